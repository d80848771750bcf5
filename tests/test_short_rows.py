"""Short rows on a GPU: threads have work, vectors bring rows, products with vectors are sums."""

import shutil

import numpy
import pytest

import tiledarray as np
from tests.emulation import emulated
from tests.plans import DEVICE, HOST, filled, kinds, moved, nbytes, planned
from tiledarray import config
from tiledarray.recording.stretch import local

ROWS = 4096

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(at_once=0):
        yield
    local.recorder.reset()


def drawn(shape, dtype, seed=0):
    values = numpy.random.default_rng(seed).normal(size=shape)
    return (values + 1j * values[::-1] if dtype in ("c8", "c16") else values * 9).astype(dtype)


def agrees(folder, function, *arrays):
    """Emulated kernels give NumPy's values in a wider dtype; return the kernels."""
    wide = {"f4": "f8", "c8": "c16", "i2": "i8"}
    expected = function(numpy, *(x.astype(wide.get(x.dtype.str[1:], x.dtype)) for x in arrays))
    plan, results = emulated(function, *arrays, folder=folder)
    for found, wanted in zip(results, expected, strict=True):
        epsilon = 1e-5 if found.dtype in ("f4", "c8") else 1e-12
        numpy.testing.assert_allclose(
            found, wanted, rtol=epsilon, atol=epsilon * float(abs(wanted).max()))
    return plan.kernels


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [3, 4, 8, 16, 64])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_every_thread_of_a_column_kernel_has_lanes(columns, dtype, folder):
    def function(np, x, r, q):
        return ((x * r[:, None]).sum(0), (x.real * q[3:, None]).max(0), (x * r[::-1, None]).sum(0),
                (x * q[:-3, None]).sum(0))

    n = 20_000 // columns
    (kernel,) = agrees(folder, function, drawn((n, columns), dtype), drawn(n, dtype, 1),
                       drawn(n + 3, "f8" if dtype == "f8" else "f4", 2))
    schedule = kernel.schedule
    assert schedule.form == "column"
    assert schedule.threads[0] * schedule.width < 2 * columns + schedule.width


@pytest.mark.parametrize("columns", [4, 16, 64])
def test_what_a_step_reads_once_is_copied_ahead_as_well(columns):
    x, r = filled(ROWS, columns, dtype="f4"), filled(ROWS, dtype="f4", seed=1)
    (kernel,) = planned((x * r[:, None]).sum(0), target=DEVICE).kernels
    assert len(kernel.staged) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i2"])
def test_vectors_bring_the_rows_of_maps(columns, dtype, folder):
    def function(np, x):
        return (x * x).sum(1), x[::-1, ::-1].sum(1), x[:, 1:].sum(1), x.real.max(1) * 2

    kernels = agrees(folder, function, drawn((3001, columns), dtype))
    bundled = sum(len(bundle.cells) for kernel in kernels for bundle in kernel.bundles)
    size = numpy.dtype(dtype).itemsize
    assert bundled > 0 or columns * size % max(8, 2 * size)


WAYS = {
    "rows": lambda np, a, v, r: (a @ v, np.dot(a, v), np.matvec(a, v), v @ a.T),
    "columns": lambda np, a, v, r: (a.T @ r, r @ a, np.vecmat(r, a), np.dot(r, a)),
    "turned": lambda np, a, v, r: (a[::-1] @ v, a[:, ::-1].T @ r, np.inner(v, a), np.inner(a, v)),
    "computed": lambda np, a, v, r: ((a * 2 + 1) @ v - r, (r * (a @ v)) @ a),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [5, 64])
@pytest.mark.parametrize("dtype", ["f4", "c16"])
@pytest.mark.parametrize("way", ["rows", "columns", "computed"])
def test_products_with_vectors(way, columns, dtype, folder):
    assert agrees(folder, WAYS[way], drawn((500, columns), dtype), drawn(columns, dtype, 1),
                  drawn(500, dtype, 2))


@pytest.mark.parametrize("way", WAYS)
def test_which_products_are_sums(way):
    """On a GPU those with a matrix of short rows, however it is turned; long rows are calls."""
    def kinds_of(rows, columns, target):
        local.recorder.reset()
        a, v, r = filled(rows, columns), filled(columns, seed=1), filled(rows, seed=2)
        return kinds(planned(*WAYS[way](np, a, v, r), target=target))

    calls = 4 if way == "turned" else 0
    assert kinds_of(ROWS, 64, DEVICE).count("call") <= calls
    assert "call" in kinds_of(ROWS, 65, DEVICE)
    assert "call" in kinds_of(63, 64, DEVICE)
    assert "call" in kinds_of(ROWS, 64, HOST)


def test_the_gradient_of_a_logistic_loss_reads_its_data_twice():
    x, y, w = filled(1 << 16, 64, dtype="f4"), filled(1 << 16, dtype="f4"), filled(64, dtype="f4")
    value, gradient = np.value_and_grad(
        lambda w: np.logaddexp(0, -y * (x @ w)).mean())(w)
    plan = planned(value, gradient, target=DEVICE)
    assert kinds(plan) == ["row", "row", "column"]
    assert moved(plan) < 2.1 * nbytes(x)


@pytest.mark.parametrize("target", [HOST, DEVICE])
def test_calls_with_numbers_among_their_operands_are_left_alone(target):
    x, at = filled(300, 300), np.array(numpy.arange(0, 300, 2))
    assert planned(x[at, 3] * 2, target=target).steps
