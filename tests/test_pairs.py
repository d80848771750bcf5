"""All pairs on a GPU: lanes that a thread keeps, vectors of adjacent loads, sums of products.

Column kernels run here by emulation, with so few threads that each keeps several lanes.
"""

import shutil
from dataclasses import replace

import numpy
import pytest

import tiledarray as np
from tests import test_short_axes
from tests.emulation import emulated
from tests.plans import DEVICE, filled, planned
from tests.test_short_axes import points
from tiledarray.fusion import limits
from tiledarray.fusion.schedule.instructions import PAIR_WORDS
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(autouse=True)
def fresh_recorder():
    local.recorder.reset()
    yield
    local.recorder.reset()


@pytest.fixture
def lanes_are_enough(monkeypatch):
    """As if a GPU had few threads: each has several lanes, and all steps of them."""
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, pair_threads=0))


def kernel_of(function, *inputs):
    """The one kernel of what a function computes, planned for a GPU; nothing is computed."""
    found = function(np, *(np.asarray(x) for x in inputs))
    (kernel,) = planned(found, target=DEVICE).kernels
    return kernel


def text(kernel):
    return print_kernel(kernel, device=True).text


def many(*shape, dtype="f4"):
    """An array that nobody looks at."""
    return numpy.empty(shape, dtype)


# ---- schedules ---------------------------------------------------------------------------------


def test_where_lanes_are_enough_each_thread_has_its_own():
    schedule = kernel_of(test_short_axes.nearest, many(1 << 21, 16), many(64, 16)).schedule
    assert (schedule.width, schedule.threads, schedule.splits) == (4, (128, 1), 1)


def test_where_they_are_not_threads_and_blocks_share_the_steps(monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, mirror_blocks=0))
    schedule = kernel_of(density, *[many(1 << 16)] * 3).schedule
    assert schedule.width == 4
    assert schedule.threads[1] == 4
    assert DEVICE.workers * 32 < schedule.blocks < DEVICE.workers * 128


@pytest.mark.sampled(6)
@pytest.mark.parametrize("lanes", [1 << 21, (1 << 21) + 1, (1 << 21) - 5])
@pytest.mark.parametrize(("features", "dtype", "width"), [
    (2, "f4", 4), (16, "f4", 4), (32, "f4", 2), (16, "f8", 2), (32, "f8", 1),
])
def test_lanes_of_a_thread_fit_its_registers(features, dtype, width, lanes):
    kernel = kernel_of(test_short_axes.least, many(lanes, features, dtype=dtype),
                       many(64, features, dtype=dtype))
    assert kernel.schedule.width == width
    assert width * features * numpy.dtype(dtype).itemsize // 4 <= PAIR_WORDS


@pytest.mark.parametrize(("shape", "widths"), [
    ((1 << 20, 16), {4: 8}), ((1 << 20, 6), {2: 6}), ((1 << 20, 3), {}),
    ((1 << 20, 5), {}), ((1 << 20, 12), {4: 6}),
])
def test_adjacent_features_come_in_vectors(shape, widths):
    kernel = kernel_of(test_short_axes.nearest, many(*shape), many(64, shape[1]))
    found = [len(bundle.cells) for bundle in kernel.bundles]
    assert {width: found.count(width) for width in found} == widths
    for bundle in kernel.bundles:
        offset = dict(kernel.loads[bundle.first].offset).get(-1, 0)
        assert offset % len(bundle.cells) == 0
        assert sorted(bundle.cells.values()) == list(range(len(bundle.cells)))
    assert text(kernel).count("load<4>") == 2 * widths.get(4, 0) // 2


def test_what_may_begin_between_vectors_is_loaded_one_by_one():
    def of_some_features(np, x, c):
        return test_short_axes.nearest(np, x[:, 4:12], c[:, 4:12])

    kernel = kernel_of(of_some_features, many(1 << 20, 16), many(64, 16))
    assert len(kernel.group.loads) == 16
    assert not kernel.bundles


def test_exponentials_are_summed_as_the_maximum_is_found_where_distances_are_computed():
    (kernel, _) = planned(test_short_axes.soft(np, *map(np.asarray, (
        many(1 << 20, 16), many(64, 16)))).mean(), target=DEVICE).kernels
    assert kernel.group.phases == 1
    x = np.asarray(many(1 << 12, 64))
    (kernel,) = planned(np.exp(x - x.max(1)[:, None]).sum(1), target=DEVICE).kernels
    assert kernel.group.phases == 2


# ---- instructions --------------------------------------------------------------------------------


def test_a_loop_knows_its_exponent():
    found = text(kernel_of(test_short_axes.forces, many(4096, 3)))
    assert found.count("with_exponent(a.f32_") == 1
    quick, exact = found.split("if (rare)")
    assert quick.count("quick_power(") == exact.count("rare_power(") == 2  # rows
    assert "m_power(" not in found


@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_only_of_float32(dtype):
    found = text(kernel_of(test_short_axes.forces, many(4096, 3, dtype=dtype)))
    assert "with_exponent" not in found
    assert "rare" not in found


def test_an_exponent_that_varies_is_no_constant():
    def program(np, x, y):
        return ((x[:, None] - x) ** 2 + 1e-3) ** y[:, None]

    found = text(kernel_of(lambda np, x, y: program(np, x, y).sum(1), many(4096), many(4096)))
    assert "m_power(" in found
    assert "quick" not in found


@pytest.mark.parametrize(("function", "rounded_once"), [
    (lambda np, x, y: (x * y).sum(), True), (lambda np, x, y: (x * x).sum(0), True),
    (lambda np, x, y: np.square(x).sum(1), True), (lambda np, x, y: (x * 2).sum(), True),
    (lambda np, x, y: (x * y).max(), False), (lambda np, x, y: (x * y + x).sum(), False),
    (lambda np, x, y: (x * y).sum(dtype="f8"), False),
    (lambda np, x, y: (x.astype("f2") * y.astype("f2")).sum(), False),
    (lambda np, x, y: (x.astype("i4") * y.astype("i4")).sum(), False),
])
def test_a_product_is_rounded_with_the_sum_that_alone_uses_it(function, rounded_once):
    x, y = filled(70, 160, dtype="f4"), filled(70, 160, dtype="f4", seed=1)
    (kernel,) = planned(function(np, x, y), target=DEVICE).kernels
    assert bool(kernel.products) is rounded_once
    x, y = filled(70, 160, dtype="f4"), filled(70, 160, dtype="f4", seed=1)
    (kernel,) = planned(function(np, x, y), target=replace(DEVICE, contract=False)).kernels
    assert not kernel.products


def test_a_product_that_is_stored_or_used_twice_is_rounded():
    x, y = filled(70, 160, dtype="f4"), filled(70, 160, dtype="f4", seed=1)
    product = x * y
    for kernel in planned(product, product.sum(1), target=DEVICE).kernels:
        assert not kernel.products
    product = x * y
    for kernel in planned(product.sum(1), product.max(1), target=DEVICE).kernels:
        assert not kernel.products


# ---- values --------------------------------------------------------------------------------------


def density(np, x, y, z):
    dx, dy, dz = x[:, None] - x, y[:, None] - y, z[:, None] - z
    return np.exp(-2 * (dx * dx + dy * dy + dz * dz)).sum(1)


def stretched(np, x, c):
    """What lanes alone decide is computed of what they keep."""
    return (abs((x * 2 + 1)[:, None] - c[None]).sum(-1) * x[:, :1]).max(1) + x[:, 0]


def where_nearest_of_squares(np, x, c):
    return ((x[:, None] - c[None]) ** 2).sum(-1).argmin(1) * 3


def compare(folder, program, *inputs, tolerance=3e-5):
    plan, (found,) = emulated(program, *inputs, folder=folder)
    wide = [x.astype("f8") if x.dtype.kind == "f" else x for x in inputs]
    expected = program(numpy, *wide)
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return plan.kernels[0]


@pytest.mark.sampled(3)
@emulates
@pytest.mark.parametrize("shape", [(700, 16, 31), (515, 6, 11), (1025, 3, 10), (40, 12, 9)],
                         ids=str)
@pytest.mark.parametrize("program", [
    test_short_axes.nearest, test_short_axes.soft, stretched, where_nearest_of_squares])
def test_lanes_kept_by_threads(lanes_are_enough, folder, program, shape):
    n, features, centres = shape
    kernel = compare(folder, program, points(n, features, dtype="f4"),
                     points(centres, features, dtype="f4", seed=1))
    assert kernel.schedule.threads[1] == 1
    assert kernel.schedule.width > 1
    assert len(kernel.bundles) == {16: 8, 6: 6, 3: 0, 12: 6}[features]


@emulates
@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
def test_lanes_kept_of_every_width(lanes_are_enough, folder, dtype):
    kernel = compare(folder, test_short_axes.least, points(257, 16, dtype=dtype),
                     points(9, 16, dtype=dtype, seed=1))
    assert {len(bundle.cells) for bundle in kernel.bundles} == {
        "f8": {2}, "i4": {4}, "u1": {16}}[dtype]


@emulates
@pytest.mark.parametrize("n", [900, 129, 64, 5])
def test_densities(lanes_are_enough, folder, n):
    kernel = compare(folder, density, *(points(n, dtype="f4", seed=k) for k in range(3)))
    assert kernel.schedule.width == 4


@emulates
@pytest.mark.parametrize(("n", "steps"), [(700, 30), (401, 9)])
def test_steps_shared_by_threads(folder, n, steps):
    kernel = compare(folder, test_short_axes.nearest, points(n, 16, dtype="f4"),
                     points(steps, 16, dtype="f4", seed=1))
    assert kernel.schedule.threads[1] > 1
    assert kernel.schedule.splits == 1
