"""Values on a real CUDA device are NumPy's.  Run with ``-m gpu``."""

import warnings

import numpy
import pytest

import tiledarray as np
from tests import programs, test_columns, test_plans
from tests.plans import counted, filled, plan_of
from tests.test_programs import check, chunks
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

KINDS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
EPSILON = {"e": 2e-3, "f": 2e-5, "d": 1e-12, "F": 2e-5, "D": 1e-12}


@pytest.fixture(autouse=True)
def on_device():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    local.recorder.reset()
    with np.device("cuda"), config.override(compile="wait", verify=True):
        yield
    local.recorder.reset()


def same(ours, theirs, scale=1.0):
    """Equal dtypes, shapes and values; floats up to rounding."""
    found, theirs = numpy.asarray(ours), numpy.asarray(theirs)
    assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
    if theirs.dtype.kind in "fc":
        rtol = EPSILON[theirs.dtype.char] * scale
        size = numpy.max(numpy.abs(theirs), initial=0, where=numpy.isfinite(theirs))
        numpy.testing.assert_allclose(found, theirs, rtol=rtol, atol=rtol * float(size))
    else:
        numpy.testing.assert_array_equal(found, theirs)


def agrees(function, *arrays, scale=1.0, kernels=True):
    """The function of arrays on the device gives NumPy's values, by kernels of ours."""
    inputs = [np.array(array) for array in arrays]
    with numpy.errstate(all="ignore"), counted() as counts:
        theirs = function(numpy, *arrays)
        ours = function(np, *inputs)
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        pairs = list(pairs)
        np.evaluate(*[left for left, _ in pairs])
        for left, right in pairs:
            assert str(left.device).startswith("cuda")
            same(left, right, scale)
    if kernels:
        assert not counts["op by op"]


@pytest.mark.parametrize("first", chunks(100))
def test_random_programs(first):
    for seed in range(3000 + first, 3010 + first):
        check(programs.write_program(seed, 10, 30), compile="wait",
              cut=[400, 400, 7, 15][seed % 4])


@pytest.mark.parametrize("first", chunks(30))
def test_random_programs_op_by_op(first):
    for seed in range(4000 + first, 4010 + first):
        check(programs.write_program(seed), compile="never", cut=[400, 9][seed % 2])


@pytest.mark.parametrize("name", test_plans.PROGRAMS)
def test_programs_that_are_one_kernel(name):
    program, shapes = test_plans.PROGRAMS[name]
    arrays = [numpy.asarray(filled(*shape, seed=k)) for k, shape in enumerate(shapes)]
    agrees(program, *arrays)


@pytest.mark.parametrize("name", test_plans.JOINED)
def test_parts_put_together(name):
    agrees(test_plans.JOINED[name], *[numpy.asarray(filled(70, 33, seed=k)) for k in range(2)])


@pytest.mark.parametrize("size", [1, 33, 700, 2049])
def test_all_pairs(size):
    x = numpy.asarray(filled(size))
    agrees(test_plans.gaussians, x)
    agrees(test_plans.accelerations, x, x[::-1].copy(), scale=10)
    points = numpy.asarray(filled(size, 3))
    agrees(test_plans.distances, points)
    agrees(test_plans.forces, points, scale=100)


# ---- operations by dtype ---------------------------------------------------------------------


def values(dtype, shape, seed=0):
    return programs.make(seed, shape, dtype)


@pytest.mark.parametrize("dtype", KINDS)
def test_elementwise_operations(dtype):
    def arithmetic(np, x, y):
        return x + y, x * y, np.maximum(x, y), x == y, np.where(x == y, x, x + y)

    def inexact(np, x, y):
        return x - y, x / (abs(y) + 2), np.exp(x), np.sqrt(abs(x) + 1), np.tanh(y), np.sin(x)

    def whole(np, x, y):
        return x & y, x | y, x ^ y, ~x

    def ordered(np, x, y):
        return (x < y, x // (abs(y) + 1), x % (abs(y) + 1), np.minimum(x, y), np.sign(x),
                np.clip(x, 0, 3))

    kind = numpy.dtype(dtype).kind
    for size in (1, 1000, 4099):
        x, y = values(dtype, (size,), 1), values(dtype, (size,), 2)
        agrees(arithmetic, x, y)
        if kind in "fc":
            agrees(inexact, x, y, scale=4)
        if kind in "iub":
            agrees(whole, x, y)
        if kind in "iuf":
            agrees(ordered, x, y)


@pytest.mark.parametrize("dtype", KINDS)
def test_casts(dtype):
    x = abs(values(dtype, (1037,))) if numpy.dtype(dtype).kind != "b" else values(dtype, (1037,))
    for other in KINDS:
        if numpy.dtype(dtype).kind != "c" or numpy.dtype(other).kind == "c":
            agrees(lambda np, x, other=other: x.astype(other), x)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 5, 8])
def test_slices_at_any_alignment(dtype, start):
    x = values(dtype, (1003,))
    agrees(lambda np, x: (x[start:] + x[start:], x[start:-1] * x[1 + start:], x[start:].sum()), x)
    wide = values(dtype, (37, 67))
    agrees(lambda np, x: (x[1:, start:] + x[:-1, start:], x[:, start:start + 9] * 1,
                          x[::2, start::3] + 1, x[:, ::-1][:, start:] + 0), wide)

    def written(np, x):
        y = x.copy()
        y[start:, start:-1] = x[start:, start + 1:]
        y[:, start] += 1
        return y

    agrees(written, wide)


@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("shape", [
    (1,), (7,), (1000,), (65_537,), (1_000_003,), (3, 5), (1000, 3), (3, 1000), (129, 257),
    (2, 100_001), (100_001, 2), (31, 33, 35), (1, 4097), (4097, 1),
], ids=str)
def test_reductions(dtype, shape):
    x = values(dtype, shape)
    axes = [None, *range(len(shape)), *([(0, 2), (1, 2)] if len(shape) == 3 else [])]
    # NumPy itself adds columns one after another, and halves with little care.
    scale = 100 if dtype in ("f2", "f4", "c8") else 10

    def program(np, x, axis):
        found = [x.sum(axis), x.any(axis), x.mean(axis) if dtype != "f2" else x.any(axis)]
        if dtype != "c8":
            found += [x.max(axis), x.min(axis)]
            if not isinstance(axis, tuple):
                found += [x.argmax(axis), x.argmin(axis)]
        if dtype in ("f4", "f8", "c8"):
            found += [x.var(axis)]
        return tuple(found)

    for axis in axes:
        if dtype == "f2" and x.size > 60_000:
            agrees(lambda np, x, axis=axis: (x.max(axis), x.argmin(axis), x.any(axis)), x)
        else:
            agrees(lambda np, x, axis=axis: program(np, x, axis), x, scale=scale)


def test_a_long_row_is_shared_by_blocks_the_same_each_time():
    x = numpy.random.default_rng(0).random(3_000_001)
    ours = np.array(x)
    results = {float((ours * k).sum()) / k for k in [2.0] * 20}
    assert len(results) == 1
    agrees(lambda np, x: ((x - 0.5).sum(), x.var(), x.max(), x.argmax()), x, scale=100)


@pytest.mark.parametrize("shape", [(5, 3), (64, 1024), (300, 10_000), (7, 40_000), (3, 100, 65),
                                   (2000, 20), (301, 1001), (270, 30_000), (270, 70_000)])
def test_rows_kept_and_rows_too_long(shape):
    x = numpy.random.default_rng(0).random(shape)
    for program in (test_plans.softmax, test_plans.layer_norm):
        agrees(program, x, scale=10)
        agrees(program, x.astype("f4"), scale=10)


@pytest.mark.parametrize("columns", [3, 8, 64, 260, 1001])
def test_variance_of_columns_far_from_zero(columns):
    x = (1000 + numpy.random.default_rng(0).random((20_011, columns))).astype("f4")
    found = numpy.asarray(np.array(x).var(axis=0))
    numpy.testing.assert_allclose(found, x.astype("f8").var(axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", test_columns.SPREADS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("shape", "axis"), [
    ((20_011, 64), 0), ((3000, 1001), 0), ((90, 80, 60), (0, 1)), ((40, 3000, 50), 1)])
def test_spreads_written_out(name, dtype, shape, axis):
    x = numpy.random.default_rng(0).normal(3, size=shape).astype(dtype)
    program = test_columns.SPREADS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.evaluate(program(np, np.array(x), axis))
        wanted = program(numpy, x.astype("f8"), axis)
    assert plan_of(found).fired["mean_carried_along"]
    numpy.testing.assert_allclose(
        numpy.asarray(found), wanted, rtol=2e-5 if dtype == "f4" else 1e-11)


# ---- writes, loops, devices ------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 30, 500])
def test_stencil_in_place(steps):
    def program(np, u):
        u = u.copy()
        for _ in range(steps):
            u[1:-1, 1:-1] = test_plans.stencil(np, u)
        return u

    agrees(program, numpy.asarray(filled(130, 67)))


def test_loop_in_place():
    def program(np, x, y):
        x, y = x.copy(), y.copy()
        for k in range(200):
            x += 0.01 * y
            y[::2] -= 0.01 * x[::2]
            y[1::2] *= 1 + 0.0001 * k
        return x, y

    agrees(program, numpy.asarray(filled(1001)), numpy.asarray(filled(1001, seed=1)), scale=10)


def test_transfers():
    host = filled(100, 30).to("cpu")
    assert str(host.device) == "cpu"
    there = host.to("cuda")
    result = (there * 2 + 1).sum(0)
    assert str(result.device).startswith("cuda")
    back = result.to("cpu")
    assert str(back.device) == "cpu"
    same(back + 0, (numpy.asarray(host) * 2 + 1).sum(0))
    there[3] = 0  # the original is another array
    assert numpy.asarray(host)[3].any()
    assert not numpy.asarray(there)[3].any()
    pending = np.sin(there)
    same(pending.to("cpu"), numpy.sin(numpy.asarray(there)))


def test_arrays_of_two_devices_do_not_mix():
    here, there = filled(5).to("cpu"), filled(5).to("cuda")
    with pytest.raises(ValueError, match=r"different devices.*x\.to"):
        here + there
    with pytest.raises(ValueError, match="cannot write an array on cpu"):
        there[1:] = here[1:]
    same(there + 1.5, numpy.asarray(here) + 1.5)


def test_numpy_arrays_and_scalars_follow_the_array():
    there = filled(5)
    result = there + numpy.arange(5) * numpy.float32(2)
    assert str(result.device).startswith("cuda")
    same(result, numpy.asarray(there) + numpy.arange(5) * numpy.float32(2))


def test_empty_and_scalar_arrays():
    for shape in [(), (0,), (0, 5), (5, 0), (1, 1)]:
        x = values("f8", shape)
        agrees(lambda np, x: (x + 1, x.sum(), x.prod()), x)


def test_library_calls_between_kernels():
    def program(np, a, b):
        product = np.maximum((a - a.mean(0)) @ b, 0)
        return product, np.cumsum(product, 0) + 1, np.sort(product, 1) * 2

    agrees(program, numpy.asarray(filled(33, 20)), numpy.asarray(filled(20, 24)), scale=100)


class OnlyInterface:
    """What numba's device arrays are: `__cuda_array_interface__` and nothing else."""

    def __init__(self, array):
        self.kept = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def test_an_array_that_has_only_the_cuda_interface():
    import cupy

    source = OnlyInterface(cupy.arange(6.0).reshape(2, 3).T)
    expected = numpy.arange(6.0).reshape(2, 3).T
    for array in (np.asarray(source), np.array(source, dtype="f4")):
        assert str(array.device).startswith("cuda")
        same(array + 1, (expected + 1).astype(array.dtype))
    source.kept[...] = 0  # ours is a copy
    same(array, expected.astype("f4"))


@pytest.mark.parametrize("compile", ["never", "wait"])
def test_casts_and_loops_that_cupy_does_otherwise_or_not(compile):
    def program(np):
        x = np.array([-1.0, -2.0, 3.0, 0.0])
        z = np.array([0j, 1 + 2j])
        return x.astype("u1"), x.astype("u8"), np.logical_not(z), np.logical_and(z, z[::-1])

    with np.config.override(compile=compile), np.device("cuda"):
        for found, expected in zip(program(np), program(numpy), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(found), expected)


def test_an_index_array_beyond_its_axis():
    x, places = filled(5), np.array([0, 7], device="cuda")
    there = x.to("cuda")
    for write in (False, True):
        with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 5"):
            if write:
                there[places] = 1.0
            else:
                there[places]
    same(there, numpy.asarray(x))
    late = there[np.argsort(there)[:2] + 4]  # computed first
    with pytest.raises(IndexError, match="is out of bounds for axis 0 with size 5"):
        np.evaluate(late)


def test_what_is_written_last_to_a_place_counts():
    places = numpy.random.default_rng(0).integers(-700, 700, (3, 50_000))
    values = numpy.arange(150_000.0).reshape(3, 50_000)
    expected, found = numpy.zeros(700), np.zeros(700, device="cuda")
    expected[places] = values
    found[np.array(places, device="cuda")] = np.array(values, device="cuda")
    same(found, expected)
    expected, found = numpy.zeros((4, 700, 3)), np.zeros((4, 700, 3), device="cuda")
    expected[:, places[0]] = values[:, :3][0]
    found[:, np.array(places[0], device="cuda")] = np.array(values[:, :3][0], device="cuda")
    same(found, expected)
    expected[places[0] % 4, :, places[1] % 3] = values[0, :, None]
    found[places[0] % 4, :, places[1] % 3] = np.array(values[0, :, None], device="cuda")
    same(found, expected)


@pytest.mark.parametrize("left, right", [
    ((70_000, 64), (64,)), ((5, 300_000), (300_000,)), ((70_000,), (70_000, 64)),
    ((3000,), (3000, 5)), ((300_000,), (300_000,)), ((1, 7), (7,)), ((40,), (40, 3001)),
], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_with_a_vector(left, right, dtype):
    random = numpy.random.default_rng(0)
    x, y = random.normal(size=left).astype(dtype), random.normal(size=right).astype(dtype)
    with np.device("cuda"), np.config.override(compile="wait"):
        found = numpy.asarray(np.array(x) @ np.array(y) * 2)
    wanted = x.astype("f8") @ y.astype("f8") * 2
    assert found.dtype == dtype
    scale = numpy.sqrt(x.shape[-1]) * numpy.abs(x).max() * numpy.abs(y).max()
    numpy.testing.assert_allclose(found, wanted, atol=scale * (1e-5 if dtype == "f4" else 1e-13))


def test_what_lapack_refuses():
    singular = np.zeros((2, 3, 3), device="cuda")
    indefinite = np.array([[1.0, 2], [2, 1]], device="cuda")
    for function, array, message in [
        (np.linalg.inv, singular, "Singular matrix"),
        (np.linalg.inv, singular[0], "Singular matrix"),
        (lambda x: np.linalg.solve(x, x), singular, "Singular matrix"),
        (lambda x: np.linalg.solve(x, x[0]), singular[0], "Singular matrix"),
        (np.linalg.cholesky, indefinite, "Matrix is not positive definite"),
    ]:
        with pytest.raises(numpy.linalg.LinAlgError, match=f"^{message}"):
            np.evaluate(function(array))
    same(np.linalg.inv(indefinite), numpy.linalg.inv(numpy.asarray(indefinite)), scale=10)


@pytest.mark.parametrize("dtype", ["c8", "c16", "i1", "i2", "u2", "i8", "?", "f2"])
def test_adding_at_places_in_every_dtype(dtype):
    random = numpy.random.default_rng(2)
    x, new = ((random.normal(size=n) * 90 * (1 + (2j if dtype[0] == "c" else 0))).astype(dtype)
              for n in (50, 400))
    places = random.integers(-50, 50, 400)
    expected = x.copy()
    numpy.add.at(expected, places, new)
    found = np.array(x, device="cuda")
    np.add.at(found, np.array(places, device="cuda"), np.array(new, device="cuda"))
    error = {"c8": 1e-3, "f2": 2}.get(dtype, 1e-9)
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=0, atol=error)


def test_an_array_seen_as_another_dtype():
    x = numpy.arange(12.0).reshape(3, 4)
    there = np.array(x, device="cuda")
    for dtype in ("f4", "c16", "u1", "i8"):
        same(there.view(dtype), x.view(dtype))
        same(there[1:].view(dtype) * 1, x[1:].view(dtype) * 1)


def test_a_method_that_cupy_lacks():
    x = numpy.arange(20.0) ** 2
    for method in ("weibull", "linear", "inverted_cdf"):
        found = np.quantile(np.array(x, device="cuda"), 0.3, method=method)
        same(found, numpy.quantile(x, 0.3, method=method))


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_arrays_of_cupys_that_begin_between_vectors(start):
    """They are copied: kernels load vectors from where an array begins."""
    cupy = pytest.importorskip("cupy")
    theirs = cupy.arange(40_004, dtype="f4")[start:start + 40_000]
    ours = np.asarray(theirs)
    numpy.testing.assert_array_equal((ours * 2 + 1).numpy(), cupy.asnumpy(theirs) * 2 + 1)
    assert float(ours.reshape(-1, 8).sum(0)[0]) == float(theirs.reshape(-1, 8).sum(0)[0])


COMPARISONS = [np.less, np.less_equal, np.greater, np.greater_equal]
RADII = [2.0, 0.3, 1e-25, 1e-12, 1e19, 3e38, 0.0, -1.0, numpy.inf, numpy.nan]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("radius", RADII)
def test_sizes_of_complex_numbers_beside_numbers(compare, radius):
    """Squares tell nearly always; the rest has to be as the sizes themselves say."""
    rng = numpy.random.default_rng(0)
    near = abs(radius) * (1 + rng.integers(-80, 80, 4000) * 2.0**-24)
    sizes = numpy.concatenate([near, 10.0 ** rng.uniform(-44, 38, 2000), [0, numpy.inf, numpy.nan]])
    turn = numpy.exp(2j * numpy.pi * rng.random(sizes.size))
    with numpy.errstate(all="ignore"):
        z = (sizes * turn).astype("c8")
    z[:50] = z[:50].real
    z[50:60] = numpy.inf + 1j * numpy.nan
    ours = compare(np.abs(np.array(z)), numpy.float32(radius))
    turned = compare(numpy.float32(radius), np.abs(np.array(z)))
    size = np.abs(np.array(z))
    size.numpy()
    expected = compare(size, numpy.float32(radius))
    other = compare(numpy.float32(radius), size)
    for one, two in ((ours, expected), (turned, other)):
        assert (numpy.asarray(one) == numpy.asarray(two)).all()
