"""`config.deterministic` on a real CUDA device: scattered sums are NumPy's, to the bit."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    with np.device("cuda"), config.override(deterministic=True, at_once=0):
        yield
    local.recorder.reset()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4", "u1"])
def test_sums_at_equal_places_are_added_in_order(dtype):
    rng = numpy.random.default_rng(0)
    old = (10 * rng.random((40, 3))).astype(dtype)
    places = rng.integers(-40, 40, 50_000)
    new = (10 * rng.random((50_000, 3))).astype(dtype)
    wanted, ours = old.copy(), np.array(old)
    with numpy.errstate(over="ignore"):
        numpy.add.at(wanted, places, new)
        np.add.at(ours, np.array(places), np.array(new))
    assert numpy.asarray(ours).tobytes() == wanted.tobytes()


def test_nothing_and_one_value_for_all():
    ours, wanted = np.ones(5), numpy.ones(5)
    np.add.at(ours, np.array([], int), 1.5)
    np.add.at(ours, np.array([1, 1, 4]), 0.1)
    numpy.add.at(wanted, [1, 1, 4], 0.1)
    assert numpy.asarray(ours).tobytes() == wanted.tobytes()


def test_gradients_of_what_is_taken():
    rng = numpy.random.default_rng(0)
    table, places = rng.random((30, 8), "f4"), rng.integers(0, 30, 40_000)
    weights = rng.random((40_000, 8), "f4")

    def loss(table):
        return (np.take(table, np.array(places), axis=0) * np.array(weights)).sum()

    wanted = numpy.zeros((30, 8), "f4")
    numpy.add.at(wanted, places, weights)
    for _ in range(3):
        found = np.grad(loss)(np.array(table))
        assert numpy.asarray(found).tobytes() == wanted.tobytes()


def test_the_same_sum_again_and_again():
    x = np.array(numpy.random.default_rng(0).random((3000, 1001), "f4"))
    for compute in (lambda: np.exp(x).sum(), lambda: np.cumsum(x, axis=1)[:, -1],
                    lambda: (x.T @ np.sin(x)), lambda: np.linalg.inv(x[:200, :200]),
                    lambda: np.fft.fft(x[0])):
        assert len({numpy.asarray(compute()).tobytes() for _ in range(40)}) == 1
