"""Running totals in kernels: NumPy's bits on the host, one read and one write."""


import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import (
    DEVICE,
    HOST,
    TARGETS,
    counted,
    kinds,
    moved,
    nbytes,
    plan_of,
    planned,
)
from tiledarray import config, explain
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

DTYPES = ["?", "i1", "u1", "i2", "u4", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
SCANS = {
    "cumsum": lambda np, x, axis: np.cumsum(x, axis),
    "cumprod": lambda np, x, axis: np.cumprod(x, axis),
    "maximum": lambda np, x, axis: np.maximum.accumulate(x, axis),
    "minimum": lambda np, x, axis: np.minimum.accumulate(x, axis),
    "logical_and": lambda np, x, axis: np.logical_and.accumulate(x, axis),
    "logical_or": lambda np, x, axis: np.logical_or.accumulate(x, axis),
    "bitwise_and": lambda np, x, axis: np.bitwise_and.accumulate(x, axis),
    "bitwise_or": lambda np, x, axis: np.bitwise_or.accumulate(x, axis),
    "bitwise_xor": lambda np, x, axis: np.bitwise_xor.accumulate(x, axis),
}
# Around chunks of 16 to 256 lanes, rows that go together, and columns.
LENGTHS = [1, 2, 3, 5, 15, 16, 17, 63, 65, 255, 256, 257, 513, 1100]


@pytest.fixture(autouse=True)
def clean():
    """Nothing pending from elsewhere; everything is recorded and kernels are waited for."""
    local.recorder.reset()
    with config.override(compile="wait", at_once=0), numpy.errstate(all="ignore"):
        yield
    local.recorder.reset()


def drawn(shape, dtype, seed=0):
    """Small numbers, some of them special."""
    random = numpy.random.default_rng(seed)
    dtype = numpy.dtype(dtype)
    if dtype.kind in "iub":
        return random.integers(0, 100, shape).astype(dtype)
    values = random.normal(size=shape)
    if dtype.kind == "c":
        values = values + 1j * random.normal(size=shape)
    return values.astype(dtype)


def with_specials(x, seed):
    """Some infinities, zeros of either sign and a NaN, late in the array."""
    if x.dtype.kind not in "fc" or not x.size:
        return x
    random = numpy.random.default_rng(seed)
    flat = x.reshape(-1)
    for value in (numpy.inf, -numpy.inf, 0.0, -0.0, numpy.nan):
        if random.random() < 0.4:
            flat[random.integers(flat.size * 2 // 3, flat.size)] = value
    if random.random() < 0.5:
        flat[0] = -0.0
    return x


def same_bits(function, *arrays):
    """Kernels of ours give NumPy's dtype, shape and values, zeros' signs included."""
    theirs = function(numpy, *arrays)
    with counted() as counts:
        ours = function(np, *[np.asarray(x) for x in arrays])
        results = ours if isinstance(ours, tuple) else (ours,)
        np.evaluate(*results)
    assert not counts["op by op"] and not counts["library calls"]
    for found, wanted in zip(results, theirs if isinstance(theirs, tuple) else (theirs,),
                             strict=True):
        found = numpy.asarray(found)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "c":  # NumPy's own products differ by axis: some fuse
            rtol = 1e-12 if wanted.dtype == "c16" else 1e-4
            numpy.testing.assert_allclose(found, wanted, rtol=rtol)
            continue
        numpy.testing.assert_array_equal(found, wanted)
        if wanted.dtype.kind == "f":
            known = wanted == wanted
            assert (numpy.signbit(found) == numpy.signbit(wanted))[known].all()


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name, dtype", [
    (name, dtype) for name in SCANS for dtype in DTYPES
    if not (name.startswith("bitwise") and numpy.dtype(dtype).kind in "fc")])
def test_values_are_numpys(name, dtype):
    for k, (rows, columns) in enumerate([(9, 300), (3, 20)]):
        x = with_specials(drawn((rows, columns), dtype, k), k)
        for axis in (0, 1):
            same_bits(lambda np, x, axis=axis: SCANS[name](np, x, axis), x)


@settings(max_examples=35, deadline=None)
@given(st.data())
def test_any_shape_axis_and_stride(data):
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.sampled_from(LENGTHS if axis == 0 else LENGTHS[:6]))
                  for axis in range(rank))
    shape = tuple(data.draw(st.permutations(shape)))
    axis = data.draw(st.integers(-rank, rank - 1))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i4", "c16"]))
    name = data.draw(st.sampled_from(["cumsum", "cumprod", "maximum", "minimum"]))
    step = data.draw(st.sampled_from([1, -1, 2, -3]))
    turned = data.draw(st.booleans())
    seed = data.draw(st.integers(0, 99))

    def function(np, x):
        x = x[..., ::step]
        x = x.T if turned else x
        found = SCANS[name](np, x * 2 if seed % 2 else x, axis)
        return found, found[..., ::-1] + 1 if seed % 3 else found - x

    same_bits(function, with_specials(drawn(shape, dtype, seed), seed))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 3), (1, 1), (1, 5), (5, 1)])
def test_few_elements(shape):
    x = drawn(shape, "f4") if shape else numpy.float32(1.5)
    for axis in [None, *range(len(shape))]:
        wanted = numpy.cumsum(x, axis)
        found = numpy.asarray(np.cumsum(np.asarray(x) * 1, axis))
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        numpy.testing.assert_array_equal(found, wanted)


def test_dtypes_and_outputs():
    x = drawn((20, 300), "i2")
    same_bits(lambda np, x: np.cumsum(x, 1, dtype="f4") * 2, x)
    same_bits(lambda np, x: np.cumsum(x * 0.7, 1, dtype="i4"), x)
    same_bits(lambda np, x: np.cumsum(x, 1, dtype="?"), x)
    same_bits(lambda np, x: np.cumprod(x, 1, dtype="?"), x)
    same_bits(lambda np, x: np.nancumsum(np.where(x > 50, np.nan, x), 1), x)
    same_bits(lambda np, x: np.nancumprod(np.where(x > 50, np.nan, x * 0.02), 0), x)
    same_bits(lambda np, x: np.cumulative_sum(x, axis=1, include_initial=True), x)
    same_bits(lambda np, x: np.cumulative_prod(x, axis=0), x)
    out, theirs = np.zeros((20, 300)), numpy.zeros((20, 300))
    assert np.cumsum(np.asarray(x) * 0.5, 1, out=out) is out
    numpy.cumsum(x * 0.5, 1, out=theirs)
    numpy.testing.assert_array_equal(numpy.asarray(out), theirs)


def test_what_no_kernel_computes_is_numpys():
    x = drawn((5, 40), "f8")
    wanted = numpy.cumsum(x, 1, dtype=numpy.longdouble)
    found = numpy.asarray(np.cumsum(np.asarray(x), 1, dtype=numpy.longdouble))
    assert found.dtype == wanted.dtype and (found == wanted).all()
    with pytest.raises(TypeError):
        np.bitwise_and.accumulate(np.asarray(x))


PROGRAMS = {
    "running mean": lambda np, x, w: np.cumsum(x, -1) / np.arange(1, x.shape[-1] + 1),
    "weighted mean": lambda np, x, w: np.cumsum(x * w, -1) / np.cumsum(w, -1),
    "drawdown": lambda np, x, w: np.maximum.accumulate(x, -1) - x,
    "largest drawdown of rows": lambda np, x, w: (np.maximum.accumulate(x, -1) - x).max(-1),
    "largest drawdown of columns": lambda np, x, w: (np.maximum.accumulate(x, 0) - x).max(0),
    "largest drawdown": lambda np, x, w: (np.maximum.accumulate(x, -1) - x).max(),
    "where it is": lambda np, x, w: (np.maximum.accumulate(x, -1) - x).argmax(-1),
    "scan of scan": lambda np, x, w: np.maximum.accumulate(np.cumsum(x, -1), -1) - w,
    "scan of scan of scan": lambda np, x, w: np.cumsum(np.cumsum(np.cumsum(x, 0) * 0.5, 0), 0),
    "both axes": lambda np, x, w: np.cumsum(np.cumsum(x, 0), 1),
    "and its sum": lambda np, x, w: (np.cumsum(x, 1), np.cumsum(x, 1)[:, -1:] - x),
    "from the end": lambda np, x, w: np.flip(np.cumsum(np.flip(x, 1), 1), 1) * w,
    "from the end of columns": lambda np, x, w: np.cumsum(x[::-1], 0)[::-1] * w,
    "from both ends": lambda np, x, w: np.cumsum(x, 1) * np.cumsum(x[:, ::-1], 1)[:, ::-1],
    "largest from the end": lambda np, x, w: np.cumsum(x[:, ::-1], 1)[:, ::-1].argmax(1),
    "shifted": lambda np, x, w: np.cumsum(x, 1)[:, 7:] - np.cumsum(x, 1)[:, :-7],
    "every other": lambda np, x, w: np.cumsum(x, 1)[:, ::2] + 1,
    "beside": lambda np, x, w: (x * 2, np.cumsum(x * 2, 1), (x * 2).max(1), w + 1),
    "of a column": lambda np, x, w: np.cumsum(x[:, :1] + 0 * w, 1) + x,
    "of what is the same along it": lambda np, x, w: np.cumsum(np.broadcast_to(
        x[:, :1], x.shape), 1) + w,
    "by order": lambda np, x, w: (np.cumsum(x, 1) > np.arange(x.shape[1])) & (w > 1),
    "short axis": lambda np, x, w: np.cumsum(
        x[:, :30].reshape(-1, 10, 3) * w[:, 30:60].reshape(-1, 10, 3), -1).max(-1),
    "cast": lambda np, x, w: np.cumsum((x > w), 1) * x.astype("f4"),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("shape", [(10, 300), (1, 1000), (70, 64)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_what_stands_around_them(program, shape):
    same_bits(PROGRAMS[program], drawn(shape, "f8", 1), drawn(shape, "f8", 2))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(10, 300), (40, 2000)])
def test_between_reductions(axis, shape):
    """Sums are added up in another order than NumPy's: nearly its values."""
    def function(np, x):
        p = np.exp(x - x.max(axis, keepdims=True))
        c = np.cumsum(p / p.sum(axis, keepdims=True), axis)
        return c - c.mean(axis, keepdims=True), c.max(axis)

    x = drawn(shape, "f8")
    for found, wanted in zip(function(np, np.asarray(x)), function(numpy, x), strict=True):
        numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=1e-12, atol=1e-12)


def test_jit_and_other_shapes():
    def function(np, x, k):
        return np.cumsum(x * k, 1) / np.arange(1.0, x.shape[1] + 1), np.maximum.accumulate(x, 0)

    jitted = np.jit(lambda x, k: function(np, x, k))
    for rows, columns, k in [(4, 300, 2.0), (4, 300, 3.0), (7, 20, 0.5)]:
        x = drawn((rows, columns), "f8")
        for found, wanted in zip(jitted(np.asarray(x), k), function(numpy, x, k), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(found), wanted)


def test_a_moving_start_keeps_its_values():
    x = np.asarray(drawn((6, 400), "f8"))
    for start in range(5, 60, 9):
        found = np.cumsum(x[:, start:start + 300][:, ::-1], 1)[:, ::-1] * 2
        part = numpy.asarray(x)[:, start:start + 300]
        wanted = numpy.cumsum(part[:, ::-1], 1)[:, ::-1] * 2
        numpy.testing.assert_array_equal(numpy.asarray(found), wanted)


def test_in_place_and_after_it():
    def function(np, x):
        y = x * 1
        y[:] = np.cumsum(y, 1)
        y[:, 1:] += np.cumsum(y, 0)[:, :-1]
        z = np.cumsum(y, 1)
        y *= 2
        return y, z

    same_bits(function, drawn((8, 300), "f8"))


# ---- plans -----------------------------------------------------------------------------------

ROWS, COLUMNS = 600, 3000


def pending(shape=(ROWS, COLUMNS), dtype="f4", seed=0):
    return np.array(drawn(shape, dtype, seed))


ONE_KERNEL = {
    "running mean": lambda x, w, n: (np.cumsum(x, -1) / n, (x, n)),
    "weighted mean": lambda x, w, n: (np.cumsum(x * w, -1) / np.cumsum(w, -1), (x, w)),
    "drawdown": lambda x, w, n: (np.maximum.accumulate(x, axis=-1) - x, (x,)),
    "of rows": lambda x, w, n: (np.max(np.maximum.accumulate(x, axis=-1) - x, axis=-1), (x,)),
    "of all": lambda x, w, n: (np.max(np.maximum.accumulate(x, axis=-1) - x), (x,)),
    "of columns": lambda x, w, n: (np.max(np.maximum.accumulate(x, axis=0) - x, axis=0), (x,)),
    "of a scan": lambda x, w, n: (np.cumsum(np.cumsum(x, 1) * 2, 1), (x,)),
    "from the end": lambda x, w, n: (np.flip(np.cumsum(np.flip(x, 1), 1), 1) * w, (x, w)),
    "of shares": lambda x, w, n: (np.cumsum(x / x.sum(1, keepdims=True), 1), (x,)),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("program", ONE_KERNEL)
def test_one_kernel_one_read_one_write(program, target):
    n = np.array(numpy.arange(1, COLUMNS + 1, dtype="f4"))
    result, reads = ONE_KERNEL[program](pending(), pending(seed=1), n)
    plan = planned(result, target=target)
    assert len(plan.kernels) == len(plan.steps) == 1
    assert moved(plan) == nbytes(*reads, result)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_reads_it_elsewhere_reads_what_is_stored(target):
    x = pending()
    total = np.cumsum(x, 1)
    plan = planned((total[:, 9:] - total[:, :-9]) / 9, target=target)
    assert kinds(plan) == ["scan", "map"]
    local.recorder.reset()
    plan = planned(np.cumsum(np.cumsum(x, 0), 1), target=target)
    assert len(plan.kernels) == 2 and sum(
        cell.kind == "scan" for kernel in plan.kernels for cell in kernel.cells) == 2
    local.recorder.reset()
    plan = planned(np.cumsum(x, 1) * np.cumsum(x[:, ::-1], 1)[:, ::-1], target=target)
    assert len(plan.kernels) == 2


@pytest.mark.parametrize(("shape", "width"), [
    ((1 << 17, 2), 2), ((40_000, 5), 5), ((300, 200, 3), 3), ((4000, 17), 32)])
def test_short_rows_that_are_reduced_together_are_shared_out(shape, width):
    """On the host a row is a chunk, merged after many of them, and threads share the rows."""
    kernel = planned(np.mean(np.cumsum(pending(shape), -1)), target=HOST).kernels[0]
    schedule, text = kernel.schedule, print_kernel(kernel, device=False).text
    assert schedule.splits > 1 and schedule.blocks == schedule.splits
    assert schedule.width == width and "steps<" in text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("reduce", ["sum", "prod", "max", "argmin", "std", "any"])
@pytest.mark.parametrize("shape", [(70_000, 2), (3000, 11, 3), (30_001, 5), (9000, 16), (9000, 17)])
def test_values_of_short_rows_that_are_reduced_together(reduce, shape):
    x = drawn(shape, "f8") * 1e-3 + (reduce == "prod")

    def program(np, x):
        return getattr(np, reduce)(np.maximum.accumulate(x, -1) * x)

    assert numpy.asarray(program(np, np.array(x))) == pytest.approx(program(numpy, x), rel=1e-9)
    rest = np.array(numpy.dstack([x, x]) if x.ndim == 3 else numpy.hstack([x, x]))
    part = rest[..., :shape[-1]]  # rows that do not follow one another in memory
    assert numpy.asarray(np.sum(part * 2)) == pytest.approx((x * 2).sum(), rel=1e-9)


def test_forms_of_the_device():
    """Few rows are cut into tiles that look back; few columns are rows far apart in memory."""
    long = planned(np.cumsum(pending((1 << 20,))), target=DEVICE).kernels[0].schedule
    assert (long.form, long.threads) == ("scan", (256, 1))
    assert long.splits == (1 << 20) // (256 * long.width * long.chunks)
    few = planned(np.cumsum(pending((5000, 8)), 0), target=DEVICE).kernels[0].schedule
    assert few.form == "scan" and few.splits > 1
    many = planned(np.cumsum(pending((50, 20_000)), 0), target=DEVICE).kernels[0].schedule
    assert (many.form, many.splits, many.threads[1]) == ("column", 1, 1)


def test_several_tiles_use_counters_of_their_own():
    twice = np.cumsum(np.cumsum(pending((3, 1 << 18)), 1) * 2, 1)
    kernel = planned(twice, target=DEVICE).kernels[0]
    splits = kernel.schedule.splits
    counters = [slot for slot in print_kernel(kernel, device=True).slots
                if slot.kind == "counters"]
    assert [slot.number for slot in counters] == [3 + 2 + 2 * 3 * (splits + -(-splits // 32))]


def test_explain_names_it():
    text = str(explain(np.maximum.accumulate(pending(), axis=1) - 1))
    assert "running_max" in text and "(scan form)" in text and "scanned" in text


# ---- gradients -------------------------------------------------------------------------------


def test_the_gradient_of_a_running_sum_is_one_from_the_end():
    x = pending((ROWS, COLUMNS), "f8")
    gradient = np.grad(lambda x: np.sum(np.cumsum(x, 1) ** 2))(x)
    wanted = numpy.cumsum(2 * numpy.cumsum(numpy.asarray(x), 1)[:, ::-1], 1)[:, ::-1]
    numpy.testing.assert_allclose(numpy.asarray(gradient), wanted, rtol=1e-12)
    local.recorder.reset()
    g = pending(seed=3)
    found = np.grad(lambda x: np.sum(np.cumsum(x, 1) * g))(pending(seed=4))
    plan = planned(found, target=HOST)
    assert kinds(plan) == ["scan"] and moved(plan) == nbytes(g, found)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "maximum", "minimum"])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_to_second_order(name, axis):
    x = drawn((3, 5), "f8", 5)

    def value(x):
        return np.sum(np.sin(SCANS[name](np, x * x + x, axis)))

    gradient = numpy.asarray(np.grad(value)(np.asarray(x)))
    direction = drawn((3, 5), "f8", 6)
    step = 1e-6
    slope = (float(value(np.asarray(x + step * direction)))
             - float(value(np.asarray(x - step * direction)))) / (2 * step)
    assert numpy.sum(gradient * direction) == pytest.approx(slope, rel=1e-6, abs=1e-8)

    def second(x):
        return np.sum(np.grad(value)(x) * np.asarray(direction))

    curvature = numpy.asarray(np.grad(second)(np.asarray(x)))
    slope = (float(second(np.asarray(x + step * direction)))
             - float(second(np.asarray(x - step * direction)))) / (2 * step)
    assert numpy.sum(curvature * direction) == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_an_extremums_gradient_goes_to_the_last_of_equal_ones():
    x = numpy.array([1.0, 3.0, 3.0, 2.0, 5.0])
    weights = numpy.arange(1.0, 6.0)
    gradient = np.grad(lambda x: np.sum(np.maximum.accumulate(x) * np.asarray(weights)))(
        np.asarray(x))
    assert gradient.tolist() == [1.0, 2.0, 7.0, 0.0, 5.0]


@pytest.mark.compiler
@pytest.mark.parametrize("shape, axis", [((5, 0), 1), ((5, 0), 0), ((0, 5), 0), ((0,), 0)])
def test_of_nothing(shape, axis):
    with config.override(compile="wait"):
        for function in (np.cumsum, np.cumprod, lambda x, axis: np.maximum.accumulate(x, axis)):
            found = np.exp(function(np.ones(shape) * 2, axis=axis))
            assert numpy.asarray(found).shape == shape
            assert plan_of(found).fired["scan_of_nothing"] == 1


def alive(np, x):
    """A mean and a question about the same running totals."""
    level = np.exp(np.cumsum(x * 0.025, axis=1))
    return level.mean(axis=1), (level < 1.3).all(axis=1), level[:, -1] * (level < 1.3).all(axis=1)


def asked(np, x):
    totals = np.cumsum(x * 0.025, axis=1)
    below = totals < 0.3
    return (totals.sum(axis=1), below.all(axis=1), (~below).any(axis=1), below.sum(axis=1),
            totals.max(axis=1), totals.argmax(axis=1))


@pytest.mark.sampled(6)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", [33, 100, 257])
@pytest.mark.parametrize("program", [alive, asked])
def test_what_is_asked_of_running_totals_beside_their_sums(program, columns, dtype):
    """g++ 12 took another row's answers where a temporary was referred to in a vector loop."""
    x = numpy.random.default_rng(columns).standard_normal((900, columns)).astype(dtype)
    with config.override(compile="wait", first_seconds=0.0):
        found = program(np, np.array(x))
        for one, other in zip(found, program(numpy, x), strict=True):
            tolerance = 2e-5 if dtype == "f4" else 1e-12
            numpy.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
