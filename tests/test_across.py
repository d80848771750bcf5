"""What the rows of a kernel are reduced to is reduced over all rows in it: run by emulation.

Such a kernel reads its rows once where another would have read them again.
"""

import shutil

import numpy
import pytest

import tiledarray as ta
from tests import emulation
from tests.emulation import emulated
from tests.plans import kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.execution import executable
from tiledarray.fusion.target import Target
from tiledarray.insight.programs import _Writer
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel

SOON = Target("cuda", 3, contract=True, choice=(("across_points", 1),))
USUAL = Target("cuda", 132, contract=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
with_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(emulation, "DEVICE", SOON)
    with config.override(at_once=0):
        yield


def numbers(*shape, dtype="f8", seed=0):
    random = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind in "iub":
        return random.integers(0, 50, shape).astype(dtype)
    if numpy.dtype(dtype).kind == "c":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def logistic(np, x, signs, w):
    """Loss and gradient, written out."""
    margins = signs * (x @ w)
    loss = np.log1p(np.exp(-margins)).sum()
    return loss, (-signs / (1 + np.exp(margins))) @ x


def products(np, x, w):
    """`X.T @ f(X @ w)`."""
    return x.T @ np.tanh(x @ w)


def layer_norm(np, x, scale, g):
    """Gradients through layer norm, by its input, scale and shift."""
    centered = x - x.mean(-1, keepdims=True)
    spread = 1 / np.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)
    unit = centered * spread
    gs = g * scale
    along = (gs * unit).mean(-1, keepdims=True)
    slope = spread * (gs - unit * along - gs.mean(-1, keepdims=True))
    axes = tuple(range(x.ndim - 1))
    return slope, (g * unit).sum(axes), g.sum(axes)


def both_sums(np, x):
    return x.sum(1), x.sum(0)


def of_row_sums(np, x):
    rows = x.sum(1)
    return rows.max(), rows.min(), (rows * rows).sum(), rows


def extrema(np, x):
    rows = x.max(1, keepdims=True)
    return (x / (1 + abs(rows))).max(0), np.exp(x - rows).sum(0), (x == rows).any(0), rows


def of_all_rows_alike(np, x):
    return x.sum(1), np.broadcast_to(x.sum(1)[:, None], x.shape).sum(0)


def spreads(np, x):
    return x.mean(1), x.var(0), (x - x.mean(1, keepdims=True)).std(0)


def turned(np, x):
    return np.exp(x).sum(1), np.exp(x).sum(0)[::-1] * 2


def check(folder, program, *inputs, kernels, rtol=1e-11, wide=True):
    given = [x.astype("f8") if wide and x.dtype == "f4" else x for x in inputs]
    expected = program(numpy, *given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    plan, found = emulated(program, *inputs, folder=folder)
    assert len(plan.kernels) == kernels, (kinds(plan), plan.refusals)
    assert any(part.schedule.across for kernel in plan.kernels for part in kernel.parts)
    for one, other in zip(expected, found, strict=True):
        numpy.testing.assert_allclose(other, one, rtol=rtol, atol=rtol)
    return plan


@pytest.mark.sampled(6)
@with_gxx
@pytest.mark.parametrize("columns", [16, 20, 33, 64, 130])
@pytest.mark.parametrize("rows", [70, 500])
def test_logistic(folder, rows, columns):
    x, w = numbers(rows, columns), numbers(columns, seed=1) / columns
    signs = numpy.sign(numbers(rows, seed=2))
    check(folder, logistic, x, signs, w, kernels=1)
    check(folder, products, x, w, kernels=1)


@with_gxx
@pytest.mark.parametrize("columns", [260, 500, 512])
def test_wide_rows(folder, columns):
    x, w = numbers(700, columns, dtype="f4"), numbers(columns, dtype="f4", seed=1) / columns
    check(folder, products, x, w, kernels=1, rtol=2e-5)


@pytest.mark.sampled(3)
@with_gxx
@pytest.mark.parametrize("dtype, rtol", [("f4", 2e-5), ("f8", 1e-11)])
@pytest.mark.parametrize("shape", [(300, 64), (5, 60, 48), (2, 3, 20, 128)], ids=str)
def test_layer_norm(folder, dtype, rtol, shape):
    x, g = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)
    plan = check(folder, layer_norm, x, numbers(shape[-1], dtype=dtype, seed=2), g,
                 kernels=1, rtol=rtol)
    assert moved(plan) == 3 * x.nbytes + 3 * shape[-1] * x.itemsize


@pytest.mark.sampled(3)
@with_gxx
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "c16"])
def test_dtypes(folder, dtype):
    x = numbers(400, 40, dtype=dtype)
    check(folder, both_sums, x, kernels=1, rtol=1e-5 if dtype == "f4" else 1e-11)
    check(folder, of_all_rows_alike, x, kernels=1, rtol=1e-4 if dtype == "f4" else 1e-11)
    if dtype != "c16":
        check(folder, of_row_sums, x, kernels=1, rtol=1e-5 if dtype == "f4" else 1e-11)


@with_gxx
@pytest.mark.parametrize("shape", [(64, 16), (300, 100), (999, 129)], ids=str)
def test_other_reductions(folder, shape):
    check(folder, extrema, numbers(*shape), kernels=1)
    check(folder, spreads, numbers(*shape), kernels=2)


@with_gxx
def test_nan_and_infinity(folder):
    x = numbers(200, 32)
    x[3, 4], x[50, 6], x[60, 7] = numpy.nan, numpy.inf, -numpy.inf
    check(folder, both_sums, x, kernels=1)
    check(folder, extrema, x, kernels=1)


@pytest.mark.sampled(2)
@with_gxx
@pytest.mark.parametrize("view", [
    "x[:, ::2]", "x[:, ::-1]", "x[::-1]", "x[::3, 5:]", "x.T[:, ::-1]", "x.T", "x[::-1, ::-1]",
])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_views(folder, view, dtype):
    """However the rows lie, they are walked along: what is stored for each does not count."""
    def program(np, x, column):
        rows = eval(view)
        totals = rows.sum(1, keepdims=True)
        return (rows * totals).sum(0), totals * 1, (column[:len(rows)] * rows).sum(0)

    x = numbers(120, 130, dtype=dtype)
    check(folder, program, x, numbers(130, 1, dtype=dtype, seed=1), kernels=1,
          rtol=1e-4 if dtype == "f4" else 1e-11)


@with_gxx
def test_results_that_are_read_elsewhere(folder):
    """What all rows are reduced to is used in another kernel."""
    def program(np, x):
        rows = x.sum(1)
        columns = (x * rows[:, None]).sum(0)
        return columns / rows.sum(), x * columns

    x = numbers(100, 32)
    plan, found = emulated(program, x, folder=folder)
    for one, other in zip(program(numpy, x), found, strict=True):
        numpy.testing.assert_allclose(other, one, rtol=1e-11)
    assert plan.kernels[0].schedule.across and len(plan.kernels) == 2


@with_gxx
def test_accuracy_of_long_sums(folder):
    """As good as pairwise sums: leaves of rows, then totals."""
    x = numpy.full((100_000, 16), numpy.float32(0.1))
    _, (_, columns) = emulated(both_sums, x, folder=folder)
    numpy.testing.assert_allclose(columns, 100_000 * float(numpy.float32(0.1)), rtol=1e-6)


# ---- plans ---------------------------------------------------------------------------------------


def gradient(rows, columns):
    x = ta.array(numbers(rows, columns, dtype="f4"))
    signs = ta.array(numpy.sign(numbers(rows, dtype="f4", seed=1)))

    def loss(w):
        return ta.logaddexp(0, -signs * (x @ w)).mean()

    value, slope = ta.value_and_grad(loss)(ta.array(numbers(columns, dtype="f4", seed=2)))
    return value, slope, x, signs


def test_loss_and_gradient_read_their_data_once():
    value, slope, x, signs = gradient(1 << 19, 64)
    plan = planned(value, slope, target=USUAL)
    assert kinds(plan) == ["row", "map"]  # the second divides the loss by the number of rows
    assert moved(plan) - nbytes(x, signs) < 1000


@pytest.mark.parametrize("shape, why", [
    ((1000, 64), "are soon read again"), ((1 << 12, 1 << 13), "it reduces axes (0,), not (1,)"),
], ids=str)
def test_where_it_is_not_done(shape, why):
    x = ta.zeros(shape, "f4") + 1
    one, other = x.sum(1), (x * 2).sum(0)
    plan = planned(one, other, x, target=USUAL)
    assert not any(kernel.schedule.across for kernel in plan.kernels)
    assert any(why in refusal for refusal in plan.refusals), plan.refusals
    host = planned(one, other, x)
    assert not any(kernel.schedule.across for kernel in host.kernels)


def test_explain_tells_it():
    value, slope, _, _ = gradient(1 << 19, 64)
    plan = planned(value, slope, target=USUAL)
    text = "\n".join(_Writer(plan.kernels[0], lambda value: f"a{value.number}").lines())
    assert "reduce over all of them sum" in text and "when all of them are done:" in text


@pytest.mark.sampled(6)
@pytest.mark.skipif(cuda.available() is not None, reason="no CUDA compiler")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name, dtype, columns", [
    ("logistic", "f4", 64), ("logistic", "f8", 64), ("products", "f4", 512),
    ("layer norm", "f4", 256),
    ("layer norm", "f8", 128), ("extrema", "f4", 128), ("row sums", "f4", 16),
])
def test_compiles_into_registers(name, dtype, columns, architecture):
    x = ta.array(numbers(64, columns, dtype=dtype))
    one = ta.array(numbers(columns, dtype=dtype))
    arrays = {
        "logistic": lambda: logistic(ta, x, ta.sign(x[:, 0]), one),
        "products": lambda: products(ta, x, one),
        "layer norm": lambda: layer_norm(ta, x, one, x + 1),
        "extrema": lambda: extrema(ta, x),
        "row sums": lambda: of_row_sums(ta, x),
    }[name]()
    plan = planned(*(arrays if isinstance(arrays, tuple) else (arrays,)), target=SOON)
    assert any(kernel.schedule.across for kernel in plan.kernels)
    for kernel in plan.kernels:
        printed = executable.source_of(kernel, print_kernel(kernel, device=True))
        kernel_name = executable.program_name(kernel)
        (binary,) = cuda.compile_many([(printed, kernel_name)], architecture)
        assert binary.reports[kernel_name].clean, binary.reports[kernel_name]
