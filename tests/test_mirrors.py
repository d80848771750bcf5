"""Tables of all pairs of the same points on a GPU, of which each pair is met once; emulated."""

import shutil
from dataclasses import replace

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiledarray as ta
from tests.emulation import emulated
from tests.plans import DEVICE, planned
from tiledarray.fusion import limits
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


def density(np, x, w):
    return np.exp(-3 * ((x[:, None] - x[None]) ** 2).sum(-1)).sum(1)


def log_density(np, x, w):
    return np.log(np.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).mean(1)) * w


def over_the_other(np, x, w):
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1)).sum(0)


def forces(np, x, w):
    d = x[None] - x[:, None]
    r2 = (d * d).sum(-1) + 0.01
    return ((w[None] * r2 ** -1.5)[:, :, None] * d).sum(1)


def energies(np, x, w):
    d = x[:, None] - x[None]
    return (w[:, None] * w[None] / np.sqrt((d * d).sum(-1) + 0.01)).sum(1)


def weighted(np, x, w):
    k = np.exp(-abs(x[:, None, 0] - x[None, :, 0]))
    return (k * w[None]).sum(1) / k.sum(1)


def of_differences(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return (d ** 3 + d).sum(1) + (d * w[None]).sum(1)


def heaviest(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return np.where(d > 0, np.exp(d), d * d * d + w[None]).sum(1)


def before(np, x, w):
    n = len(x)
    later = np.arange(n)[:, None] < np.arange(n)
    d = ((x[:, None] - x[None]) ** 2).sum(-1)
    return np.where(later, np.exp(-d), 0.25 * d).sum(1)


def divided(np, x, w):
    d = x[:, None, 0] - x[None, :, 0]
    return (1 / (d + np.where(d == 0, 2, 0))).sum(1)


def slopes(np, x, w):
    """Of the logarithm of the density: what each point has to do with the others, both ways."""
    if np is ta:
        return np.grad(lambda x: (np.log(density(np, x, w)) * w).sum())(x)
    d = x[:, None] - x[None]
    k = np.exp(-3 * (d * d).sum(-1))
    by = w / k.sum(1)
    return -6 * (((by[:, None] + by[None]) * k)[:, :, None] * d).sum(1)


PROGRAMS = [density, log_density, over_the_other, forces, energies, weighted, of_differences,
            heaviest, before, divided, slopes]
MIRRORED = {density: 1, log_density: 1, over_the_other: 1, forces: 3, energies: 1, weighted: 2}


@pytest.fixture(params=[64, 128], ids=["tiles of 64", "tiles of 128"])
def small_tiles(request, monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, mirror_tiles=(request.param,), mirror_blocks=1e-6))


def checked(program, n, dtype, folder, *, seed=0, tolerance=None):
    random = numpy.random.default_rng(seed)
    x, w = random.random((n, 3)).astype(dtype), random.random(n).astype(dtype)
    with numpy.errstate(all="ignore"):
        expected = program(numpy, x.astype("f8"), w.astype("f8"))
    local.recorder.reset()
    plan, found = emulated(program, x, w, folder=folder)
    tolerance = tolerance or (1e-4 if dtype == "f4" else 1e-11)
    numpy.testing.assert_allclose(
        found[0], expected, rtol=tolerance, atol=tolerance * abs(expected).max())
    return plan


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program, dtype, small_tiles, folder):
    for n in (256, 150):  # whole tiles, and others
        plan = checked(program, n, dtype, folder)
    if program in MIRRORED and dtype == "f4":
        (kernel,) = plan.kernels
        assert len(kernel.mirrors) == MIRRORED[program]


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 128, 129, 191, 193])
def test_any_number_of_points(n, small_tiles, folder):
    checked(log_density, n, "f8", folder)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("there", [numpy.nan, numpy.inf, 1e30])
def test_a_point_that_is_none_spoils_what_numpy_spoils(there, small_tiles, folder):
    x = numpy.random.default_rng(0).random((150, 3)).astype("f4")
    x[[7, 140], 1] = there
    w = numpy.ones(150, "f4")
    for program in (density, forces):
        with numpy.errstate(all="ignore"):
            expected = program(numpy, x, w)
        local.recorder.reset()
        _, found = emulated(program, x, w, folder=folder)
        numpy.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-3)


def either(np, a, b):
    return np.where(a < b, a, 0.5 * b)


OF_ONE = [
    lambda np, a: -a, lambda np, a: a * a, lambda np, a: abs(a), lambda np, a: np.exp(-a * a),
    lambda np, a: np.sqrt(1 + a * a), lambda np, a: a ** 3, lambda np, a: np.sign(a),
    lambda np, a: np.tanh(a), lambda np, a: 1 / (2 + np.cos(a)), lambda np, a: np.maximum(a, 0),
]
OF_TWO = [
    lambda np, a, b: a + b, lambda np, a, b: a - b, lambda np, a, b: a * b,
    lambda np, a, b: a / (1 + b * b), lambda np, a, b: np.maximum(a, b), either,
    lambda np, a, b: np.hypot(a, b), lambda np, a, b: (a == b) * a,
]


@st.composite
def tables(draw):
    """Functions of pairs: how each value is made of those before it."""
    steps = []
    for place in range(draw(st.integers(2, 7))):
        operands = st.integers(0, 6 + place)
        steps.append(draw(st.one_of(
            st.tuples(st.sampled_from(OF_ONE), operands),
            st.tuples(st.sampled_from(OF_TWO), operands, operands))))
    return steps


@settings(max_examples=15, deadline=None, suppress_health_check=[
          HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(tables(), st.sampled_from([130, 150, 192]), st.sampled_from([0, 1]),
       st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_any_function_of_pairs(folder, steps, n, axis, several):
    def program(np, x, w):
        place = np.arange(n)
        pool = [x[:, None, 0] - x[None, :, 0], x[None, :, 1] - x[:, None, 1], x[:, None, 2] + 0 * w,
                w[None] + 0 * x[:, :1], w[:, None] * w[None], (place[:, None] - place) / n,
                (place[:, None] < place) * 1.0]
        for function, *operands in steps:
            pool.append(function(np, *(pool[k] for k in operands)))
        return sum(pool[-1 - k].sum(axis) * (k + 1) for k in several) + w

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "GPU", replace(
            limits.GPU, mirror_tiles=(64,), mirror_blocks=1e-6))
        checked(program, n, "f8", folder, tolerance=1e-9)


def written_in_place(np, x, w):
    w = np.cumsum(w)
    x, some = x[6:], w[6:]
    w[6:] = (some[:, None] * np.exp(-((x[:, None] - x[None]) ** 2).sum(-1))).sum(1)
    return w


def written_back(np, x, w):
    x = x * 1
    d = x[:, None] - x[None]
    x += 1e-3 * ((d * d).sum(-1)[:, :, None] * d).sum(1)
    return x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [written_in_place, written_back])
def test_what_is_read_from_the_other_end_is_not_written_meanwhile(program, small_tiles, folder):
    for n in (256, 150):
        checked(program, n, "f8", folder)


# ---- plans -------------------------------------------------------------------------------------


def of_many(program, n, dtype="f4"):
    local.recorder.reset()
    arrays = (ta.asarray(numpy.empty(shape, dtype)) for shape in ((n, 3), n))
    kernels = planned(program(ta, *arrays), target=DEVICE).kernels
    local.recorder.reset()
    return kernels


@pytest.mark.parametrize("program", MIRRORED)
def test_many_points_are_met_once(program):
    n = 1 << 16
    (kernel,) = of_many(program, n)
    tiles = n // kernel.schedule.lane_tile
    assert len(kernel.mirrors) == MIRRORED[program]
    assert kernel.schedule.blocks == tiles * (tiles + 1) // 2
    scratch = [slot.number for slot in print_kernel(kernel, device=True).slots
               if slot.kind == "scratch"]
    assert sum(scratch) == n * tiles * 8 * len(kernel.mirrors)
    assert tiles == n // 512


@pytest.mark.parametrize("n", [1 << 16, 1 << 17, 1 << 18, 1 << 19])
def test_the_sums_of_tiles_stay_within_bounds(n):
    (kernel,) = of_many(density, n)
    found = print_kernel(kernel, device=True)
    assert sum(slot.number for slot in found.slots if slot.kind == "scratch") <= 1 << 29
    assert bool(kernel.mirrors) == (n < 1 << 19)


@pytest.mark.parametrize("program", [of_differences, heaviest, divided])
def test_what_is_another_thing_from_the_other_end_is_not(program):
    assert not any(kernel.mirrors for kernel in of_many(program, 1 << 16))


def test_hundreds_of_operations_are_not():
    def program(np, x, w):
        d = x[:, None, 0] - x[None, :, 0]
        for _ in range(120):
            d = d * 0.5 + d
        return (d * d).sum(1)

    assert not any(kernel.mirrors for kernel in of_many(program, 1 << 16))


def test_few_points_are_not():
    assert not any(kernel.mirrors for kernel in of_many(density, 4096))


def test_other_points_are_not():
    x, y = (ta.asarray(numpy.empty((1 << 16, 3), "f4")) for _ in range(2))
    kernels = planned(ta.exp(-((x[:, None] - y) ** 2).sum(-1)).sum(1), target=DEVICE).kernels
    assert not any(kernel.mirrors for kernel in kernels)


def test_sums_of_whole_numbers_and_extremes_are_not():
    x = ta.asarray(numpy.empty(1 << 16, "i4"))
    y = ta.asarray(numpy.empty(1 << 16, "f4"))
    for result in (abs(x[:, None] - x).sum(1), abs(y[:, None] - y).max(1)):
        assert not any(kernel.mirrors for kernel in planned(result, target=DEVICE).kernels)
