"""Columns whose statistics are used on the same array: which kernels, how many blocks, values."""

import contextlib
import warnings

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, kinds, moved, nbytes, plan_of, planned
from tests.test_staging import by_device_plan, softmax
from tiledarray.core import forget_programs
from tiledarray.execution import known
from tiledarray.fusion.target import Target
from tiledarray.kernels.text.program import print_kernel

PROGRAMS = {
    "standardised": lambda xp, x: (x - x.mean(axis=0)) / x.std(axis=0),
    "softmax": lambda xp, x: softmax(xp, x, axis=0),
    "share": lambda xp, x: x / x.sum(axis=0),
    "below the maximum": lambda xp, x: x - x.max(0),
}
VECTORS = {"standardised": 2, "softmax": 2, "share": 1, "below the maximum": 1}
TALL = [(16_384, 512), (100_000, 64), (300_000, 3), (2_000, 1001), (500, 40, 30)]


def zeros(shape, dtype="f4"):
    return np.evaluate(np.zeros(shape, dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", TALL)
@pytest.mark.parametrize("name", PROGRAMS)
def test_tall_columns_are_split_on_a_device(name, shape, dtype):
    x = zeros(shape, dtype)
    y = PROGRAMS[name](np, x)
    plan = planned(y, target=DEVICE)
    assert kinds(plan) == ["column", "map"], plan.refusals
    # Read, read and written once each, and the statistics written and read.
    assert moved(plan) == 2 * x.nbytes + y.nbytes + 2 * VECTORS[name] * x[0].nbytes
    column = plan.kernels[0].schedule
    assert column.splits > 1
    assert DEVICE.workers // 2 < column.blocks
    lanes = -(-column.lane.size // column.lane_tile)
    steps = shape[0]
    shortest = 8 * 256 // column.threads[0]  # steps that a block does not share any further
    assert column.blocks >= min(DEVICE.workers, steps // shortest * lanes)
    assert any("columns of" in refusal for refusal in plan.refusals)


@pytest.mark.parametrize("shape", [(64, 64), (100, 100), (200, 8), (50, 4096), (64, 1 << 17)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_short_or_many_columns_stay_in_one_kernel(name, shape):
    x = zeros(shape)
    y = PROGRAMS[name](np, x)
    plan = planned(y, target=DEVICE)
    assert kinds(plan) == ["column"]
    assert moved(plan) == nbytes(x, y)
    assert plan.kernels[0].schedule.splits == 1


@pytest.mark.parametrize("target", [HOST, DEVICE])
@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (1, 3000)])
def test_arrays_of_no_or_one_row_are_planned(shape, target):
    assert planned(PROGRAMS["share"](np, zeros(shape)), target=target).steps


def test_the_refusal_says_how_many_blocks_would_have_work():
    plan = planned(PROGRAMS["share"](np, zeros((16_384, 512))), target=DEVICE)
    wanted = DEVICE.limits.pass_blocks * DEVICE.workers
    assert any(f"512 columns of 16384 elements give work to 4 blocks of threads, and the device "
               f"takes {wanted}" in refusal for refusal in plan.refusals), plan.refusals


@pytest.mark.parametrize(("shape", "forms"), [
    ((1000, 200), ["column"]), ((200, 5000), ["column"]), ((1000, 5000), ["column", "map"]),
    ((50_000, 16), ["column", "map"]),
])
def test_on_the_host_what_is_walked_over_again_stays_in_the_cache(shape, forms):
    plan = planned(PROGRAMS["share"](np, zeros(shape)), target=HOST)
    assert kinds(plan) == forms
    assert any("not stay in a core's cache" in reason for reason in plan.refusals) == (
        len(forms) > 1)


def test_a_value_is_not_stored_where_one_array_and_a_vector_make_it_again():
    x = zeros((40_000, 64))
    plan = planned(softmax(np, x, axis=0), target=HOST)
    assert kinds(plan) == ["column", "column", "map"]
    assert moved(plan) == 4 * x.nbytes + 64 * 4 * (1 + 1 + 2 + 1)
    assert not any(store.sink.level == "full" for kernel in plan.kernels[:2]
                   for store in kernel.stores)


@pytest.mark.compiler
def test_a_split_reduction_stores_what_it_computes_on_its_way():
    x, y = filled(30_000, 64, dtype="f4"), filled(30_000, 64, dtype="f4", seed=1)
    for target in (HOST, DEVICE):
        product = x * y
        (kernel,) = planned(product, product.sum(axis=0), target=target).kernels
        assert kernel.schedule.splits > 1
    product = x * y
    total = product.sum(axis=0)
    with np.config.override(compile="wait"):
        np.evaluate(product, total)
    numpy.testing.assert_array_equal(product, x.numpy() * y.numpy())
    numpy.testing.assert_allclose(total, (x.numpy() * y.numpy()).sum(axis=0, dtype="f8"), 1e-6)


@pytest.mark.sampled(6)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(20_000, 64), (100_000, 3), (3_001, 101), (500, 40, 30)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_numpy(name, shape, dtype):
    x = filled(*shape, dtype=dtype)
    with np.config.override(compile="wait"):
        found = np.evaluate(PROGRAMS[name](np, x))
    assert len(plan_of(found).kernels) > 1
    wanted = PROGRAMS[name](numpy, x.numpy().astype("f8"))
    tolerance = 3e-6 if dtype == "f4" else 1e-13
    numpy.testing.assert_allclose(found, wanted, tolerance, 3 * tolerance)


# ---- the maximum carried along -------------------------------------------------------------


def sum_of_exponentials(xp, x, axis):
    return xp.exp(x - x.max(axis=axis, keepdims=True)).sum(axis=axis)


@contextlib.contextmanager
def carried_along_on_the_host():
    """Plan for the host as for a device that waits for memory; what was planned is forgotten."""
    with pytest.MonkeyPatch.context() as patch, np.config.override(compile="wait"):
        patch.setattr(Target, "bound_by_memory", True)
        patch.setattr(known, "executables", type(known.executables)())
        forget_programs()
        yield


@pytest.mark.parametrize(("shape", "axis", "passes"), [
    ((40_000, 64), 0, 1), ((3, 100_000), 1, 1), ((40, 1 << 16), 0, 1), ((100_000,), 0, 1),
    ((300, 4096), 1, 2), ((20, 30, 40), 2, 2),
])
def test_it_takes_one_pass_where_rows_are_not_on_chip(shape, axis, passes):
    x = zeros(shape)
    plan = planned(sum_of_exponentials(np, x, axis), target=DEVICE)
    (kernel,) = plan.kernels
    assert kernel.group.phases == passes
    assert plan.fired.get("maximum_carried_along", 0) == (passes == 1)
    assert "maximum_carried_along" not in planned(
        sum_of_exponentials(np, x, axis), target=HOST).fired


def test_softmax_of_tall_columns_reads_the_array_twice():
    x = zeros((40_000, 64))
    plan = planned(softmax(np, x, axis=0), target=DEVICE)
    assert kinds(plan) == ["column", "map"]
    assert "Exponentials<f32>" in print_kernel(plan.kernels[0], device=True).text


@pytest.mark.parametrize("other", [
    lambda x: x - x.max(axis=1), lambda x: x - x.max(axis=0, keepdims=True).T,
    lambda x: x - x.max(axis=0)[::-1], lambda x: x - x.max(), lambda x: x.max(axis=0) - x,
    lambda x: x - (2 * x).max(axis=0), lambda x: x - x.min(axis=0), lambda x: x[:1] - x.max(axis=0),
])
def test_only_the_maximum_along_the_same_axes_is_carried(other):
    x = zeros((600, 600))
    assert not planned(np.exp(other(x)).sum(axis=0), target=DEVICE).fired.get(
        "maximum_carried_along")


@pytest.mark.sampled(6)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("shape", "axis"), [
    ((20_000, 64), 0), ((5_001, 33), 0), ((3, 300_001), 1), ((30, 20, 40), (0, 1)),
    ((600_000,), 0), ((60, 70, 80), 1), ((300, 20_000), 0),
])
def test_its_values_are_those_of_numpy(shape, axis, dtype):
    x = np.array((numpy.random.default_rng(0).normal(size=shape) * 5).astype(dtype))
    with carried_along_on_the_host():
        found = np.evaluate(sum_of_exponentials(np, x, axis))
        assert plan_of(found).fired["maximum_carried_along"] == 1
    wanted = sum_of_exponentials(numpy, x.numpy().astype("f8"), axis)
    numpy.testing.assert_allclose(found, wanted, 2e-6 if dtype == "f4" else 1e-13)


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("slope", [1, -1, 0])
def test_rising_falling_and_equal_elements_lose_nothing(slope, dtype):
    x = (slope * numpy.linspace(-2, 2, 500_000)).astype(dtype)
    plan, found = by_device_plan(sum_of_exponentials(np, np.array(x), 0))
    assert plan.fired["maximum_carried_along"] == 1
    wanted = sum_of_exponentials(numpy, x.astype("f8"), 0)
    numpy.testing.assert_allclose(found, wanted, 1e-6 if dtype == "f4" else 1e-14)


@pytest.mark.compiler
@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["f4", "f8"]))
def test_infinities_nans_and_extremes_come_out_as_in_numpy(data, dtype):
    limits = numpy.finfo(dtype)
    special = [numpy.inf, -numpy.inf, numpy.nan, float(limits.min), float(limits.max), 0.0, -0.0,
               1.0, -80.0, 80.0, 700.0]
    weights = data.draw(st.lists(st.integers(0, len(special) - 1), min_size=1, max_size=4))
    random = numpy.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    x = numpy.array(special, dtype)[random.choice(weights, size=(150, 16))]
    found = by_device_plan(sum_of_exponentials(np, np.array(x), 0))[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = sum_of_exponentials(numpy, x, 0)
    numpy.testing.assert_allclose(found, wanted, 1e-5 if dtype == "f4" else 1e-13)


# ---- the mean carried along ----------------------------------------------------------------


def _selected(xp, x, axis, elsewhere=0):
    inside = x > 0.25
    count = inside.sum(axis=axis, keepdims=True)
    mean = xp.where(inside, x, 0).sum(axis=axis, keepdims=True) / count
    return xp.where(inside, (x - mean) ** 2, elsewhere).sum(axis=axis)


def _selected_otherwise(xp, x, axis):
    outside = xp.isnan(x)
    filled = xp.where(outside, 0, x)
    mean = filled.sum(axis=axis, keepdims=True) / (~outside).sum(axis=axis, keepdims=True)
    apart = xp.where(outside, 0.5, mean.astype(x.dtype) - filled)
    return (apart * apart).sum(axis=axis)


SPREADS = {
    "written out": lambda xp, x, axis: ((x - x.mean(axis, keepdims=True)) ** 2).sum(axis),
    "the other way round": lambda xp, x, axis: xp.square(
        x.mean(axis, keepdims=True) - x).sum(axis),
    "of a part around the mean of all": lambda xp, x, axis: xp.where(
        x > 0.5, (x - x.mean(axis, keepdims=True)) ** 2, 0).sum(axis),
    "selected": _selected,
    "with another number elsewhere": lambda xp, x, axis: _selected(xp, x, axis, 0.5),
    "not selected": _selected_otherwise,
    "where=": lambda xp, x, axis: x.var(axis, where=x > 0.25),
    "of rows that a column selects": lambda xp, x, axis: x.var(
        axis, where=x.max(tuple(range(1, x.ndim)), keepdims=True) > 0.5),
    "without NaN": lambda xp, x, axis: xp.nanstd(x, axis=axis),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize(("shape", "axis"), [((40_000, 64), 0), ((9, 200, 300), (0, 1))])
def test_a_spread_written_out_reads_its_array_once(name, shape, axis, dtype):
    x = zeros(shape, dtype)
    y = SPREADS[name](np, x, axis)
    plan = planned(y, target=DEVICE)
    assert plan.fired.get("mean_carried_along"), plan.refusals
    assert "mean_carried_along" not in planned(
        SPREADS[name](np, x, axis), target=HOST).fired
    if name != "of rows that a column selects":
        assert kinds(plan) == ["column"], plan.refusals
        assert moved(plan) == nbytes(x, y)


@pytest.mark.parametrize("other", [
    lambda x: (x - x.mean(1)) ** 2, lambda x: (x - 3.0) ** 2, lambda x: (x - x[0]) ** 2,
    lambda x: (x - x.max(0)) ** 2, lambda x: (x - x.sum(0)[::-1]) ** 2,
    lambda x: (x - x.mean(0).astype("i4")) ** 2, lambda x: (x - x.astype("i4").mean(0)) ** 2,
    lambda x: (x - np.nan_to_num(x.mean(0))) ** 2, lambda x: (x - (x > 1).mean(0)) ** 2,
    lambda x: np.where(x < 1, (x - np.where(x > 2, x, 0).mean(0)) ** 2, 0),
    lambda x: (x - x.mean(0)) ** 3, lambda x: (x - x.mean(0)) * (x + x.mean(0)),
    lambda x: (x - x.mean()) ** 2, lambda x: np.where(x > 1, (x - x.mean(0)) ** 2, x)])
def test_other_sums_do_not_carry_a_mean(other):
    x = zeros((600, 600))
    assert not planned(other(x).sum(axis=0), target=DEVICE).fired.get("mean_carried_along")


def test_rows_on_chip_are_read_twice_there():
    x = zeros((4096, 600))
    y = ((x - x.mean(1, keepdims=True)) ** 2).sum(1)
    assert not planned(y, target=DEVICE).fired.get("mean_carried_along")


@pytest.mark.sampled(6)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize(("shape", "axis", "offset"), [
    ((5_001, 33), 0, 1000), ((90, 80, 60), (0, 1), -7)])
def test_a_spread_is_numpys(name, shape, axis, offset, dtype):
    x = numpy.random.default_rng(0).normal(offset, size=shape).astype(dtype)
    with carried_along_on_the_host(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.evaluate(SPREADS[name](np, np.array(x), axis))
        assert plan_of(found).fired["mean_carried_along"]
        wanted = SPREADS[name](numpy, x.astype("f8"), axis)
    numpy.testing.assert_allclose(found, wanted, 3e-5 if dtype == "f4" else 1e-11)


@pytest.mark.compiler
def test_a_trend_loses_nothing():
    x = numpy.linspace(-1e6, 1e6, 400_000)[:, None] + numpy.ones(3)
    for name in SPREADS:
        with carried_along_on_the_host():
            found = np.evaluate(SPREADS[name](np, np.array(x), 0))
        numpy.testing.assert_allclose(found, SPREADS[name](numpy, x, 0), 1e-12, err_msg=name)


@pytest.mark.compiler
@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from(["f4", "f8"]), st.sampled_from(sorted(SPREADS)))
def test_infinities_and_nans_in_spreads_come_out_as_in_numpy(data, dtype, name):
    special = [numpy.inf, -numpy.inf, numpy.nan, 0.0, -0.0, 1.0, 0.5, -80.0, 80.0]
    drawn = data.draw(st.lists(st.integers(0, len(special) - 1), min_size=1, max_size=4))
    random = numpy.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    x = numpy.array(special, dtype)[random.choice(drawn, size=(150, 300))]
    with carried_along_on_the_host(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.evaluate(SPREADS[name](np, np.array(x), 0))
        assert plan_of(found).fired["mean_carried_along"]
        wanted = SPREADS[name](numpy, x, 0)
    numpy.testing.assert_allclose(found, wanted, 1e-5 if dtype == "f4" else 1e-13, 1e-25)
