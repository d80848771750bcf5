"""Library calls in launch graphs, on a real CUDA device.  Run with ``-m gpu``."""

import threading

import numpy
import pytest

import tiledarray as np
from tiledarray.execution import replay
from tiledarray.execution.spans import counters

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    with np.config.override(compile="wait", device="cuda", at_once=0, first_seconds=0.0):
        yield cupy


@pytest.fixture
def made(monkeypatch):
    """How many calls were recorded."""
    found = []
    original = replay.captured
    monkeypatch.setattr(replay, "captured", lambda *args: found.append(1) or original(*args))
    return found


def net(np, x, w, b, v):
    hidden = np.tanh(x @ w + b)
    return (hidden @ v).sum(axis=0), hidden.max(), hidden


def programs():
    yield "net", net, [(32, 5), (5, 16), (16,), (16, 3)]
    yield "product alone", lambda np, x, y: x @ y, [(7, 9), (9, 4)]
    yield "transposed", lambda np, x, y: (x.T @ y.T + 1) * 2, [(9, 7), (4, 9)]
    yield "parts", lambda np, x, y: x[1:, ::2] @ y[::-1][:5] - x[:1, :3].sum(), [(7, 10), (6, 4)]
    yield "vectors", lambda np, x, y: (np.dot(x, y) * x, x @ y), [(50,), (50,)]
    yield "matrix and vector", lambda np, a, x: (a @ x).max() + x @ a, [(6, 6), (6,)]
    yield "stacks", lambda np, a, b: np.exp(a @ b).sum(axis=(0, 2)), [(4, 3, 5), (4, 5, 2)]
    yield "einsum", lambda np, a, b: np.einsum("ijk,jl->ikl", a, b).sum(0) + 1, [(3, 4, 5), (4, 2)]
    yield "tensordot", lambda np, a, b: np.tensordot(a, b, axes=2) * 2, [(3, 4, 5), (4, 5, 2)]
    yield "itself", lambda np, a: (a @ a, a.T @ a, a), [(8, 8)]
    yield "made first", lambda np, a: (a * 2 + 1) @ (a - 1) @ a, [(8, 8)]
    yield "odd bytes", lambda np, a, b: (a @ b, (a @ b)[1:]), [(3, 3), (3, 3)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4", "f2"])
@pytest.mark.parametrize(("name", "program", "shapes"), [*programs()],
                         ids=[p[0] for p in programs()])
def test_jitted_results_are_numpys_and_stay(made, name, program, shapes, dtype):
    rng = numpy.random.default_rng(1)
    jitted = np.jit(lambda *args: program(np, *args))
    kept = []
    for _ in range(6):
        values = [(rng.random(shape) * 4 - 2).astype(dtype) for shape in shapes]
        wanted = program(numpy, *(v.copy() for v in values))
        given = [np.array(v) for v in values]
        kept.append((jitted(*given), wanted, given, values))
        if len(kept) % 2:
            del given  # so that memory comes back at other places, and at the same
    if name not in ("einsum", "parts", "vectors"):  # a call that is not a product, or none
        assert bool(made) == (dtype != "i4")
    tolerance = {"f2": 2e-2, "f4": 1e-4, "c8": 1e-4}.get(dtype, 1e-10)
    for found, wanted, given, values in kept:
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
        for ours, theirs in pairs:
            assert ours.dtype == theirs.dtype
            numpy.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=10 * tolerance)
        for ours, theirs in zip(given, values, strict=True):
            assert (ours.numpy() == theirs).all()


def test_a_loop_that_is_recorded_is_replayed(made):
    rng = numpy.random.default_rng(2)
    x, w, b, v = (rng.random(shape) for shape in [(32, 5), (5, 16), (16,), (16, 3)])
    ours = [np.array(a) for a in (x, w, b, v)]
    for _ in range(8):
        total, largest, hidden = net(np, *ours)
        wanted = net(numpy, x, w, b, v)
        np.evaluate(total, largest, hidden)
        numpy.testing.assert_allclose(total.numpy(), wanted[0], rtol=1e-10)
        numpy.testing.assert_allclose(hidden.numpy(), wanted[2], rtol=1e-10)
        ours[1] = ours[1] - 0.1 * hidden.mean()
        w = w - 0.1 * wanted[2].mean()
        ours[2] += 0.5
        b += 0.5
    assert made


def test_gradients_of_a_net_under_jit(made):
    rng = numpy.random.default_rng(3)
    x, w, v = (np.array(rng.random(shape)) for shape in [(32, 5), (5, 16), (16, 3)])

    def loss(w, v):
        return ((np.tanh(x @ w) @ v) ** 2).mean()

    value_and_grad = np.value_and_grad(loss, argnums=(0, 1))
    jitted = np.jit(value_and_grad)
    for _ in range(4):
        (value, (dw, dv)), (wanted, (ew, ev)) = jitted(w, v), value_and_grad(w, v)
        numpy.testing.assert_allclose(float(value), float(wanted), rtol=1e-10)
        numpy.testing.assert_allclose(dw.numpy(), ew.numpy(), rtol=1e-9, atol=1e-12)
        numpy.testing.assert_allclose(dv.numpy(), ev.numpy(), rtol=1e-9, atol=1e-12)
        w, v = w - 0.1 * dw, v - 0.1 * dv
    assert made


def test_large_operands_are_not_copied(made):
    x, y = np.ones((2048, 1024)), np.ones((1024, 8))
    jitted = np.jit(lambda x, y: (x @ y + 1).sum())
    for _ in range(4):
        assert float(jitted(x, y)) == 1025 * 2048 * 8
    assert not made


def test_what_cannot_be_recorded_runs_as_it_did(monkeypatch):
    from tiledarray.devices.cuda_launch import DeviceError  # needs CuPy

    x = np.array(numpy.eye(5) * 3)
    jitted = np.jit(lambda x: np.linalg.inv(x) @ x + 1)
    for _ in range(4):
        numpy.testing.assert_allclose(jitted(x).numpy(), numpy.eye(5) + 1, atol=1e-12)

    def waits(*args, **kwargs):
        raise DeviceError("it waits")

    monkeypatch.setattr(replay, "captured", waits)
    again = np.jit(lambda x: x @ x + 2)
    for _ in range(4):
        numpy.testing.assert_allclose(again(x).numpy(), 9 * numpy.eye(5) + 2, atol=1e-12)


def test_threads_and_streams(on_device):
    cupy = on_device
    jitted = np.jit(lambda x, y: np.tanh(x @ y) + 1)
    failures = []

    def work(seed):
        rng = numpy.random.default_rng(seed)
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(20):
                x, y = rng.random((20, 20)), rng.random((20, 20))
                found = jitted(np.array(x), np.array(y)).numpy()
                if not numpy.allclose(found, numpy.tanh(x @ y) + 1):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_launch_does_it_all():
    x, y = np.ones((20, 20)), np.ones((20, 20))
    jitted = np.jit(lambda x, y: np.tanh(x @ y).sum() + (y @ x).max())
    for _ in range(3):
        jitted(x, y)
    before = counters["library calls"]
    assert abs(float(jitted(x, y)) - (400 * numpy.tanh(20.0) + 20)) < 1e-9
    assert counters["library calls"] == before


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_stacks_are_multiplied_where_they_lie(on_device, dtype, monkeypatch):
    rng = numpy.random.default_rng(5)
    a, b = (rng.standard_normal((60, 90, 70)).astype(dtype) for _ in range(2))
    copies = []
    monkeypatch.setattr(on_device, "ascontiguousarray", lambda x: copies.append(x))
    cases = [
        lambda np, a, b: a.swapaxes(1, 2) @ b,
        lambda np, a, b: a @ b.swapaxes(1, 2),
        lambda np, a, b: a[:, ::3, 1:] @ b[:, ::-1].swapaxes(1, 2)[:, 1:],
        lambda np, a, b: a[0] @ b.swapaxes(1, 2),
        lambda np, a, b: a.reshape(6, 10, 90, 70) @ b[:10].swapaxes(1, 2),
        lambda np, a, b: a[:, None, 0] @ b.swapaxes(1, 2),
        lambda np, a, b: a[:, :, :0] @ b.swapaxes(1, 2)[:, :0],
    ]
    for case in cases:
        wanted = case(numpy, a, b)
        found = case(np, np.array(a), np.array(b)).numpy()
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        epsilon = {"f2": 2e-2, "f4": 1e-5, "c8": 1e-5}.get(dtype, 1e-12)
        numpy.testing.assert_allclose(found, wanted, rtol=epsilon, atol=epsilon * 10)
