"""Arrays on two GPUs: the same results on both, from one thread and from two, and moves between."""

import threading

import numpy
import pytest

import tiledarray as np
from tiledarray.devices.device import cuda_count

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_count() < 2, reason="needs two GPUs"),
]
NAMES = ("cuda:0", "cuda:1")
TABLE = numpy.random.default_rng(0).random((300, 4096)).astype("f4")


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def diffusion(x):
    u = np.zeros((200, 200))
    u[0] = x[0, :200]
    for _ in range(30):
        u[1:-1, 1:-1] += 0.2 * (
            u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        )
    return u


def squares(x):
    return np.jit(lambda x: (x * x).sum(axis=0))(x)


@pytest.mark.parametrize("program", [softmax, diffusion, squares, lambda x: x @ x.T])
def test_both_compute_the_same(program):
    results = []
    for name in NAMES:
        with np.device(name):
            result = program(np.asarray(TABLE))
            assert str(result.device) == name
            results.append(result.numpy())
    numpy.testing.assert_allclose(*results, rtol=1e-6)


def test_moves_between_devices():
    first, second = (np.asarray(TABLE).to(name) for name in NAMES)
    with pytest.raises(ValueError, match=r"different devices.*x\.to"):
        first + second
    total = (second * 2).to("cuda:0") + first
    numpy.testing.assert_allclose(total.numpy(), TABLE * 3, rtol=1e-6)


def test_a_thread_for_each_device():
    results = {}

    def work(name):
        with np.device(name):
            x = np.asarray(TABLE)
            for _ in range(50):
                x = x * 1.0001 + 0.5
            results[name] = x.numpy()

    threads = [threading.Thread(target=work, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numpy.testing.assert_array_equal(*(results[name] for name in NAMES))
