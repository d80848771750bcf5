"""All pairs on a GPU, by value: points of a thread, vectors of features, exponents; emulated."""

import shutil
from itertools import product

import numpy
import pytest

from tests.emulation import emulated
from tests.test_short_axes import BODIES, CENTRES, inputs_of
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")

CASES = [(program, "f4") for program in (*CENTRES[:4], *BODIES[:2])] + [(CENTRES[1], "f8")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.parametrize("program, dtype", CASES)
def test_values(program, dtype, folder):
    for n in (37, 300):  # one text for both
        local.recorder.reset()
        inputs = inputs_of(program, n, dtype)
        _, found = emulated(program, *inputs, folder=folder)
        expected = program(numpy, *(x.astype("f8") for x in inputs))
        tolerance = 2e-3 if dtype == "f4" else 1e-9
        numpy.testing.assert_allclose(found[0], expected, rtol=tolerance, atol=tolerance)


def slopes(np, x, y, w):
    """What is infinite has no weight: sums are NaN, and done again by the text that knows that."""
    def total(x, y):
        return (w[:, None] * np.exp((x[:, None] - y) ** 2)).sum()

    return np.grad(total, argnums=(0, 1))(x, y)


@pytest.mark.parametrize("n, m", [(37, 300), (300, 37)])
def test_zero_times_infinity_is_no_slope(n, m, folder):
    random = numpy.random.default_rng(n)
    x, w = random.random((2, n))
    y = random.random(m)
    x[5] = 100.0
    w[[5, 7]] = 0.0
    _, found = emulated(slopes, *(a.astype("f4") for a in (x, y, w)), folder=folder)
    d = x[:, None] - y
    d[5] = 0.0
    table = 2 * d * w[:, None] * numpy.exp(d * d)
    numpy.testing.assert_allclose(found[0], table.sum(1), rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(found[1], -table.sum(0), rtol=1e-4, atol=1e-4)


def both_ends(np, x, w):
    def energy(x):
        d = x[:, None] - x
        return (w[:, None] * w * np.exp(d * d)).sum()

    return np.grad(energy)(x)


@pytest.mark.parametrize("n", [37, 300])
def test_zero_times_infinity_is_no_slope_at_either_end(n, folder):
    x, w = numpy.random.default_rng(n).random((2, n))
    x[5] = 100.0
    w[[5, 7]] = 0.0
    plan, found = emulated(both_ends, *(a.astype("f4") for a in (x, w)), folder=folder)
    assert plan.fired["sums_over_either_axis"] == 1
    d = x[:, None] - x
    d[5] = d[:, 5] = 0.0
    table = 4 * d * w[:, None] * w * numpy.exp(d * d)
    numpy.testing.assert_allclose(found[0], table.sum(1), rtol=1e-4, atol=1e-4)


def near(np, x, y):
    return np.exp(-0.5 * (x[:, None] - y) ** 2).sum(1)


def weighed(np, x, y):
    e = np.exp(-((x[:, None] - y) ** 2) / 2)
    return (y * e).sum(1) / e.sum(1)


def powers(np, x, y):
    return np.exp2(x[:, None] - y[None] * 3).sum(0)


@pytest.mark.parametrize(("program", "apart"), [
    *product([near, powers], [0, 8, 12.5, 14, 20]), *product([weighed], [0, 8, 12.5])])
def test_exponentials_that_only_sums_use(program, apart, folder):
    """Off by the roundings of their exponents; denormal and zero where they are NumPy's."""
    random = numpy.random.default_rng(int(apart))
    x, y = random.random(1000) + apart, random.random(700)
    x, y = x.astype("f4"), y.astype("f4")
    plan, (found,) = emulated(program, x, y, folder=folder)
    assert sum(len(kernel.roots) for kernel in plan.kernels) == 1
    with numpy.errstate(all="ignore"):
        expected = program(numpy, *(a.astype("f8") for a in (x, y)))
        exponent = apart * apart / 2 + 1
        numpy.testing.assert_allclose(
            found, expected, rtol=(3 + 2.5 * exponent) * 2.0**-23, atol=1000 * 2.0**-149)
        if program is not weighed:
            assert (found == 0).tolist() == (program(numpy, x, y) == 0).tolist()
