"""Pairs that are met once, on a real CUDA device: values, ragged tiles, gradients, bits."""

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, planned
from tests.test_mirrors import MIRRORED, density, forces, log_density, slopes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled_there")]


def points(n, dtype):
    random = numpy.random.default_rng(n)
    return random.random((n, 3)).astype(dtype), random.random(n).astype(dtype)


def of_some(program, x, w, some):
    """NumPy's values in float64 for some of the points, from rows of the table alone."""
    wide, weights = x.astype("f8"), w.astype("f8")
    d = wide[some, None] - wide
    r2 = (d * d).sum(-1)
    return {
        "density": lambda: numpy.exp(-3 * r2).sum(1),
        "log_density": lambda: numpy.log(numpy.exp(-r2).mean(1)) * weights[some],
        "over_the_other": lambda: numpy.exp(-r2).sum(1),
        "forces": lambda: ((weights * (r2 + 0.01) ** -1.5)[:, :, None] * -d).sum(1),
        "energies": lambda: (weights[some, None] * weights / numpy.sqrt(r2 + 0.01)).sum(1),
        "weighted": lambda: (numpy.exp(-abs(d[:, :, 0])) * weights).sum(1) / (
            numpy.exp(-abs(d[:, :, 0])).sum(1)),
    }[program.__name__]()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [33 * 256, 12_345, 33 * 512, 20_000, 40_001])
@pytest.mark.parametrize("program", MIRRORED)
def test_values_are_numpys(program, n, dtype):
    x, w = points(n, dtype)
    given = np.array(x), np.array(w)
    if dtype == "f4":
        (kernel,) = planned(program(np, *given), target=DEVICE).kernels
        assert kernel.mirrors
    found = program(np, *given).numpy()
    some = numpy.r_[:20, n - 20:n, 0:n:n // 50]
    expected = of_some(program, x, w, some)
    tolerance = 2e-5 if dtype == "f4" else 1e-12
    numpy.testing.assert_allclose(
        found[some], expected, rtol=tolerance, atol=tolerance * abs(expected).max())


@pytest.mark.parametrize("n", [9_000, 17_000])
def test_gradients(n):
    x, w = points(n, "f8")
    found = slopes(np, np.array(x), np.array(w)).numpy()
    direction = numpy.random.default_rng(1).standard_normal(x.shape)
    step = 1e-6
    ends = [float((np.log(density(np, np.array(x + by * direction), w)) * np.array(w)).sum())
            for by in (step, -step)]
    numpy.testing.assert_allclose(
        (found * direction).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("program", [density, forces, log_density])
def test_every_run_has_the_same_bits(program):
    x, w = map(np.array, points(17_001, "f4"))
    function = np.jit(lambda x, w: program(np, x, w))
    first = function(x, w).numpy()
    for _ in range(5):
        numpy.testing.assert_array_equal(function(x, w).numpy(), first)
