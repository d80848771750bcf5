"""All pairs on a GPU, by value: points of a thread, vectors of features, exponents; emulated."""

import shutil
from itertools import product

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.emulation import emulated
from tests.test_short_axes import BODIES, CENTRES, inputs_of
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")

CASES = [(program, "f4") for program in (*CENTRES[:4], *BODIES[:2])] + [(CENTRES[1], "f8")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(3)
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


TABLES = {
    "squares": lambda np, d: d * d,
    "exponentials": lambda np, d: np.exp(-d * d / 2),
    "scaled exponentials": lambda np, d: 2 * np.exp(-(d ** 2) / 2),
    "quotients": lambda np, d: 1 / (1 + d * d) * 2,
    "roots": lambda np, d: np.sqrt(d * d + 1) * 0.5,
    "powers": lambda np, d: (d * d + 1) ** -1.5 * d,
}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*TABLES]), st.sampled_from([33, 65, 100, 128, 130, 159, 161, 300]),
       st.sampled_from([37, 129, 300, 515, 700]), st.sampled_from([0, 1, None]), st.booleans())
def test_sums_over_tables_of_any_size(folder, name, n, m, axis, gradient):
    """Rows of few elements have several rows of threads a block, and turns that read ahead."""
    random = numpy.random.default_rng(n * m)
    x, y = random.random(n), random.random(m)

    def program(np, x, y):
        return TABLES[name](np, x[:, None] - y).sum(axis)

    wanted = program(numpy, x, y)
    if gradient:
        step = 1e-6
        wanted = sum(sign * TABLES[name](numpy, x[:, None] + by - y)
                     for sign, by in ((1, step), (-1, -step))).sum(1) / (2 * step)

    def slope(np, x, y):
        return np.grad(lambda x: program(np, x, y).sum())(x)

    local.recorder.reset()
    given = x.astype("f4"), y.astype("f4")
    _, found = emulated(slope if gradient else program, *given, folder=folder)
    scale = abs(wanted).max()
    numpy.testing.assert_allclose(found[0], wanted, rtol=2e-4, atol=2e-5 * scale)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("scaled", "x", "y"), [
    (lambda d: -d ** 2 * 1e38 * 10, 0.5, 0.5), (lambda d: -0.5 * d ** 2 / 1e-20 / 1e-20, 0.5, 0.5),
    (lambda d: -d / 1e-39, 0.5, 0.5), (lambda d: d / 0.0, 0.5, 0.5), (lambda d: d / 0.0, 0.75, 0.5),
    (lambda d: d * 1e20 * 1e20 * 1e-30, 3e-10, 1e-10),
    (lambda d: d * 1e-25 * 1e-25 * 1e15, 3e36, 1e36),
    (lambda d: -d * 1e-25 * 1e-25, numpy.inf, 1.0), (lambda d: d / numpy.inf, 1.0, 2.0),
])
def test_extreme_scalars_in_exponents(scaled, x, y, folder):
    def program(np, x, y):
        return np.exp(scaled(x[:, None] - y)).sum(1)

    x, y = numpy.full(300, x, "f4"), numpy.full(700, y, "f4")
    local.recorder.reset()
    plan, found = emulated(program, x, y, folder=folder)
    assert plan.kernels[0].roots
    with numpy.errstate(all="ignore"):
        expected = program(numpy, x, y)
    numpy.testing.assert_allclose(found[0], expected, rtol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("terms", "root"), [
    (lambda k, w: k * w - k * (w * 0.5), True), (lambda k, w: (k * w + k) * 2 - w * k, True),
    (lambda k, w: k * w - k * k, False), (lambda k, w: k * w - w, False),
    (lambda k, w: k * k * w - k * k, True)])
def test_sums_of_multiples_have_an_exponential_equally_often(terms, root, folder):
    """Of others the difference of two that are nearly equal would be further off."""
    def program(np, x, w):
        d = x[:, None] - x[None]
        return terms(np.exp(-d * d), w[None]).sum(1)

    random = numpy.random.default_rng(5)
    x, w = random.random((2, 300)).astype("f4")
    local.recorder.reset()
    plan, found = emulated(program, x, w, folder=folder)
    assert bool(plan.kernels[0].roots) == root
    expected = program(numpy, x.astype("f8"), w.astype("f8"))
    numpy.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
