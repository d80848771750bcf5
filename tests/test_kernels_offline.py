"""Kernels for a GPU, planned and compiled on a machine without one: nothing may spill.

Ordinary code is recorded on the CPU, planned for a CUDA device and compiled for two generations
of them.  The assembler's report says whether a kernel lives in registers alone.
"""

import os
from pathlib import Path

import ml_dtypes
import numpy
import pytest

import tiledarray as np
from tests import test_gradient_plans as gradients
from tests import test_short_axes
from tests.chain_programs import PROGRAMS, heat
from tests.plans import DEVICE, filled, planned
from tests.test_columns import SPREADS
from tiledarray import config
from tiledarray.execution import executable
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

ARCHITECTURES = ("sm_90", "sm_80")
GOLDEN = Path(__file__).parent / "golden"
BFLOAT16 = numpy.dtype(ml_dtypes.bfloat16)
DTYPES = [*map(numpy.dtype, "?bBhHiIlLefdFD"), BFLOAT16]
REALS = [*map(numpy.dtype, "efd"), BFLOAT16]
ROWS, COLUMNS = 96, 160

pytestmark = pytest.mark.skipif(
    cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}"
)

CASES = {}
FURTHER = set()  # of each family all but the first: compiled for one architecture


def case(function):
    """Register what returns pending arrays, or several such by name."""
    CASES[function.__name__.strip("_")] = function
    return function


def family(name, members, function):
    """Register one case for each member."""
    for number, member in enumerate(members):
        label = getattr(member, "name", None) or getattr(member, "__name__", None) or str(member)
        CASES[f"{name}-{label}"] = lambda member=member: function(member)
        if number:
            FURTHER.add(f"{name}-{label}")


def matrix(dtype="f4", rows=ROWS, columns=COLUMNS, seed=0):
    return filled(rows, columns, dtype=dtype, seed=seed)


# ---- elementwise -----------------------------------------------------------------------------

family("polynomial", DTYPES, lambda dtype: matrix(dtype) * matrix(dtype, seed=1) + matrix(dtype))
family("compare", map(numpy.dtype, "?bHlefD"), lambda dtype: np.where(
    matrix(dtype) < matrix(dtype, seed=1), matrix(dtype), matrix(dtype, seed=2)))
family("cast", [*map(numpy.dtype, "?bLefD"), BFLOAT16], lambda dtype: [
    (matrix(dtype).real if dtype.kind == "c" else matrix(dtype)).astype("f4"),
    matrix("i8").astype(dtype), matrix("f8").astype(dtype)])
family("scalar", [*map(numpy.dtype, "BileD"), BFLOAT16], lambda dtype: matrix(dtype) * 3 + 1)
UNARY = ["exp", "log", "sqrt", "sin", "tan", "tanh", "arctan", "arcsin", "cbrt", "expm1"]
family("real", UNARY, lambda name: [
    getattr(np, name)(matrix(dtype)) * 2 + getattr(np, name)(matrix(dtype, seed=1))
    for dtype in "fd"])
family("complex", ["exp", "sqrt", "sin", "arccos", "abs"],
       lambda name: [getattr(np, name)(matrix("F")), getattr(np, name)(matrix("D"))])
family("binary", ["divide", "power", "arctan2", "hypot", "fmod", "floor_divide", "logaddexp"],
       lambda name: [getattr(np, name)(matrix(d), matrix(d, seed=1)) * 2 for d in "fd"])
family("whole", ["floor_divide", "gcd", "left_shift"],
       lambda name: [getattr(np, name)(matrix(d), matrix(d, seed=1)) for d in "il"])
family("whole", ["power"], lambda name: [  # signed exponents in an array are NumPy's: see test_bits
    matrix("L") ** matrix("L", seed=1), matrix("l") ** 5, matrix("i") ** 3])
family("logical", ["logical_and", "logical_xor", "not_equal"],
       lambda name: getattr(np, name)(matrix("?"), matrix("?", seed=1)))


@case
def chain_of_sines():
    x = matrix()
    for k in range(12):
        x = np.sin(x) * 0.5 + 0.1 * k
    return x


def mandelbrot(z, c, steps=30):
    """Each step's condition is of the step before: NVRTC once took more than a minute."""
    n = np.zeros(c.shape, "i4")
    for _ in range(steps):
        inside = (z.real ** 2 + z.imag ** 2) < 4
        z, n = np.where(inside, z * z + c, z), np.where(inside, n + 1, n)
    return n


family("mandelbrot", "FD", lambda dtype: mandelbrot(matrix(dtype) * 0, matrix(dtype, seed=1)))


@case
def bounded_steps():
    x = matrix("d")
    for _ in range(40):
        x = np.where(x * x + 1 < 4, x * x + 1, x)
    return x


@case
def divisions():
    parts = [matrix("d", seed=k) for k in range(6)]
    return sum(a / b for a in parts for b in parts if a is not b)


@case
def many_inputs():
    return sum(filled(5000, dtype="f4", seed=k) * (k + 1) for k in range(14))


# ---- shapes ----------------------------------------------------------------------------------


@case
def broadcast():
    return matrix() * filled(COLUMNS, dtype="f4") + filled(ROWS, 1, dtype="f4")


@case
def odd_sizes():
    return matrix(columns=161) * 2 + matrix(columns=161, seed=1)


@case
def one_dimension():
    return filled(100_001, dtype="f4") + 1


@case
def negative_steps():
    x = matrix()
    return x[::-1, ::-2] * x[::-1, ::2] - x[:, 1::2]


@case
def transposed():
    return [matrix().T * 2 + 1, matrix() + matrix(rows=COLUMNS, columns=ROWS).T]


@case
def four_dimensions():
    x = filled(6, 7, 8, 9)
    return x.transpose(2, 0, 3, 1) + filled(9, 7)


@case
def reshaped():
    return (matrix() * 2).reshape(-1)[::3] + 1


@case
def stencil():
    u = matrix()
    return (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]) / 4


def smoothed(u):
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u


family("stencil_with_border", ["f4", "f8"], lambda dtype: smoothed(matrix(dtype)))


def steps(name):
    program, arrays = PROGRAMS[name]
    return program(np, *map(np.array, arrays("f4")))


family("steps", PROGRAMS, steps)


@case
def gradient_of_steps():
    return np.grad(lambda u: (heat(np, u, 8) ** 2).sum())(matrix())


@case
def update_in_place():
    u = matrix()
    u[::2] = matrix(rows=ROWS // 2) * 3
    u[:, 3:9] *= 2
    return u


@case
def joined():
    return np.concatenate([matrix() * 2, matrix(seed=1) + 1]), np.roll(matrix(), 3, axis=1)


@case
def zero_dimensions():
    return filled() * 2 + 1, matrix().sum() / matrix(seed=1).max()


# ---- sources ---------------------------------------------------------------------------------


@case
def sources():
    return [np.eye(40, 50) * 2, np.linspace(0, 1, 1001) ** 2, np.arange(1000, dtype="i4") % 7,
            np.arange(500) * 0.5, np.full((30, 40), 2.5) + np.ones((30, 40))]


@case
def triangles():
    return np.tril(matrix()), np.triu(matrix("i8"), 2)


@case
def wide_indices():
    x = np.empty((60_000, 50_000), "f4")
    return [x * 2 + 1, x[::-1, ::-1] + x.mean(axis=0), x.sum(axis=1), x.argmax(axis=0),
            x.reshape(-1)[::7] + np.arange(428_571_429)]


@case
def wide_full():
    return np.full((3_000_000_000,), 1, "i1") + np.ones((), "i1")


# ---- reductions ------------------------------------------------------------------------------

family("sum", [*map(numpy.dtype, "?bHlefdFD"), BFLOAT16], lambda dtype: [
    matrix(dtype).sum(), matrix(dtype, seed=1).sum(axis=0), matrix(dtype, seed=2).sum(axis=1)])
family("max", [*map(numpy.dtype, "?bHlefd"), BFLOAT16], lambda dtype: [
    matrix(dtype).max(axis=0), matrix(dtype, seed=2).min(axis=1)])
family("prod", map(numpy.dtype, "ifD"), lambda dtype: [
    matrix(dtype).prod(), matrix(dtype, seed=1).prod(axis=0)])
family("argmax", map(numpy.dtype, "blefd"), lambda dtype: [
    matrix(dtype).argmax(), matrix(dtype, seed=1).argmin(axis=0),
    matrix(dtype, seed=2).argmax(axis=1)])
family("variance", [*REALS, numpy.dtype("F"), numpy.dtype("D")], lambda dtype: [
    matrix(dtype).var(), matrix(dtype, seed=1).std(axis=0),
    matrix(dtype, seed=2).var(axis=1, ddof=1)])
family("spread", map(numpy.dtype, "fd"), lambda dtype: [
    spread(np, matrix(dtype, seed=seed), 0) for seed, spread in enumerate(SPREADS.values())])
family("truth", map(numpy.dtype, "?bef"), lambda dtype: [
    (matrix(dtype) > 1).any(axis=0), (matrix(dtype, seed=1) > 1).all()])


@case
def long_rows():
    x = filled(40, 40_000, dtype="f4")
    return x.sum(axis=1), x / x.sum(axis=1, keepdims=True)


@case
def large_sums():
    x, y = filled(1 << 20), filled(1 << 20, dtype="f4")
    return [(x * x).sum(), y.mean(), (y * y).sum()]


@case
def three_dimensions():
    x = filled(20, 30, 40)
    return x.sum(axis=(0, 2)), x.mean(axis=1), x.max(axis=(1, 2)), x.sum(axis=-1)


@case
def short_rows():
    return (filled(100_000, 3) ** 2).sum(axis=-1)


def several(axis):
    x = matrix()
    return x.sum(axis), x.max(axis), x.min(axis), x.mean(axis), x.var(axis)


family("several", [None, 0, 1], several)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


family("softmax", REALS, lambda dtype: softmax(matrix(dtype, columns=1024)))


@case
def softmax_of_columns():
    return softmax(matrix(), axis=0)


@case
def softmax_of_tall_columns():
    return [softmax(matrix(dtype, rows=20_000, columns=64), axis=0) for dtype in "fd"]


@case
def softmax_of_very_long_rows():
    return softmax(matrix("f4", rows=3, columns=50_000))


@case
def softmax_of_the_longest_rows_of_a_block():
    return [softmax(matrix(dtype, rows=3, columns=32_768)) for dtype in "ef"]


@case
def running_sums_that_blocks_share():
    return [np.cumsum(matrix(dtype, rows=1, columns=1 << 21) * 2, axis=-1) for dtype in "fd"]


def layer_norm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


family("layer_norm", REALS, lambda dtype: layer_norm(matrix(dtype, columns=768)))


@case
def layer_norm_of_the_longest_rows_of_a_block():
    return layer_norm(matrix("f4", rows=3, columns=32_768))


@case
def layer_norm_by_variance():
    x = matrix(columns=768)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def of_many_points(member):
    """Threads keep as many lanes as registers allow only where lanes fill the device."""
    name, features, dtype = member.split()
    program, features = getattr(test_short_axes, name), int(features)
    x, c = (np.asarray(numpy.empty((n, features), dtype)) for n in (1 << 21, 64))
    return program(np, x, c)


family("many_points", [
    f"{name} {kind}" for name in ("nearest", "soft", "least")
    for kind in ("16 f4", "16 f8", "6 f4", "32 f4")
] + ["nearest 12 i4", "least 12 i4"], of_many_points)


@case
def pairs_of_many_points():
    x, y = (np.asarray(numpy.empty(1 << 16, "f4")) for _ in range(2))
    apart = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2 + 1
    return (np.sqrt(apart) ** -1.5 / apart + apart**3 / np.exp(apart)).sum(1)


@case
def powers_of_two_exponents():
    x = np.asarray(numpy.empty((4096, 3), "f4"))
    apart = ((x[:, None] - x) ** 2).sum(-1) + 1
    return (apart**-1.5).sum(1), (apart**-2.5 + apart**-0.5).max(1)


@case
def pairs():
    p = filled(1000, dtype="f4")
    return np.exp(-(p[:, None] - p[None, :]) ** 2).sum(axis=1)


def pairs_3d(dtype):
    p = filled(700, 3, dtype=dtype)
    return np.exp(-((p[:, None, :] - p[None, :, :]) ** 2).sum(-1)).sum(axis=1)


family("pairs_3d", ["f4", "f8"], pairs_3d)


@case
def gravity():
    p = filled(500, 3)
    gap = p[:, None, :] - p[None, :, :]
    squares = (gap * gap).sum(-1) + 1e-3
    return (gap / (squares * np.sqrt(squares))[:, :, None]).sum(axis=1)


def short_axes(program, dtype="f4", rows=5000):
    return program(np, *(np.asarray(x) for x in test_short_axes.inputs_of(program, rows, dtype)))


family("short axes", [*test_short_axes.CENTRES, *test_short_axes.BODIES], short_axes)
family("short axes, double", [*test_short_axes.CENTRES, *test_short_axes.BODIES],
       lambda program: short_axes(program, "f8"))
family("short axes, many rows", test_short_axes.CENTRES,
       lambda program: short_axes(program, "f4", 1 << 17))


@case
def map_beside_reductions():
    e = np.exp(matrix())
    return e, e.sum(axis=1), e.sum(axis=0), e * 2


# ---- scans -----------------------------------------------------------------------------------

LONG = 1 << 20

family("running_sum", "?bHlefdFD", lambda dtype: [
    np.cumsum(matrix(dtype), 0), np.cumsum(matrix(dtype), 1),
    np.cumsum(matrix(dtype, rows=20_000), 0), np.cumsum(matrix(dtype, 3, LONG), 1)])
family("running_product", "?bHlefdFD", lambda dtype: [
    np.cumprod(matrix(dtype), 1), np.cumprod(matrix(dtype, 1, LONG)[0])])
family("running_extrema", "?bHlefdFD", lambda dtype: [
    np.maximum.accumulate(matrix(dtype), 1), np.minimum.accumulate(matrix(dtype, 1, LONG)[0])])
family("running_bits", "?bHl", lambda dtype: [
    getattr(np, name).accumulate(matrix(dtype), 1)
    for name in ("logical_and", "bitwise_or", "bitwise_xor")])


@case
def running_mean():
    return np.cumsum(filled(4096, 4096, dtype="f4"), -1) / np.arange(1, 4097, dtype="f4")


@case
def drawdowns():
    rows, columns = matrix(rows=300, columns=5000), matrix(rows=200, columns=40_000)
    long = matrix(rows=1, columns=LONG)[0]
    return [np.max(np.maximum.accumulate(rows, axis=1) - rows, axis=1),
            np.max(np.maximum.accumulate(long) - long),
            np.max(np.maximum.accumulate(columns, axis=0) - columns, axis=0)]


@case
def several_scans():
    x, w = matrix(rows=2000, columns=700), matrix(rows=2000, columns=700, seed=1)
    twice = np.cumsum(np.cumsum(x * w, 1) * 0.5, 1)
    return [np.cumsum(x * w, 1) / np.cumsum(w, 1), twice - twice.max(1, keepdims=True),
            np.flip(np.cumsum(np.flip(x, 1), 1), 1) * w,
            np.cumsum(np.cumsum(matrix(rows=1, columns=LONG)[0]) * 0.5)]


@case
def scans_of_short_rows():
    return [np.cumsum(matrix(rows=5000, columns=n), 1) * 2 for n in (2, 3, 5, 16, 33, 100)]


# ---- gradients -------------------------------------------------------------------------------


def gradient_of(function):
    """Return value and gradient of a function of the plan tests."""
    shapes = {
        "logistic": [(COLUMNS,), (5 * ROWS, COLUMNS), (5 * ROWS,)],
        "cross_entropy": [(ROWS, COLUMNS)] * 2, "layer_norm": [(ROWS, COLUMNS)],
        "laplacian": [(ROWS, COLUMNS)], "energy": [(12 * ROWS,)],
    }[function.__name__]
    return list(np.value_and_grad(function)(
        *(filled(*shape, dtype="f4") for shape in shapes)))


family("gradient", [
    gradients.logistic, gradients.cross_entropy, gradients.layer_norm, gradients.laplacian,
    gradients.energy,
], gradient_of)


# ---- the test --------------------------------------------------------------------------------


def recorded(name):
    """The pending arrays of a case."""
    found = CASES[name]()
    return list(found) if isinstance(found, list | tuple) else [found]


def kernels_of(name):
    """CUDA sources and names of the kernels that compute a case."""
    local.recorder.reset()
    with config.override(cut=10_000):
        plan = planned(*recorded(name), target=DEVICE)
    local.recorder.reset()
    programs = [(kernel, print_kernel(kernel, device=True)) for kernel in plan.kernels]
    return [(executable.source_of(kernel, program), executable.program_name(kernel))
            for kernel, program in programs]


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name", CASES)
def test_compiles_into_registers(name):
    sources = [*dict.fromkeys(kernels_of(name))]
    for arch in ARCHITECTURES[:1] if name in FURTHER else ARCHITECTURES:
        binaries = cuda.compile_many(sources, arch)
        for (_, kernel), binary in zip(sources, binaries, strict=True):
            report = binary.reports[kernel]
            assert report.clean, f"{arch}: {report}"
            assert report.shared_bytes <= 48 << 10


# ---- what the text looks like ----------------------------------------------------------------

GOLDEN_CASES = ["broadcast", "softmax-float32", "stencil_with_border-f4", "several-0", "pairs",
                "steps-heat"]


@pytest.mark.parametrize("golden", GOLDEN_CASES)
def test_source_text(golden):
    text = "\n".join(source for source, _ in kernels_of(golden))
    path = GOLDEN / f"{golden}.cu.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "run with --update-golden if the new text is meant"
