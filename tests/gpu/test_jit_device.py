"""`jit` and other libraries' arrays on a real CUDA device.  Run with ``-m gpu``."""

import numpy
import pytest

import tiledarray as np
from tiledarray.execution.executable import observers

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    with np.config.override(compile="wait"):
        yield cupy


def heat(u, rate):
    for _ in range(4):
        u[1:-1] += rate * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u, u.sum()


@pytest.mark.parametrize("watched", [False, True])
def test_inputs_on_the_device(watched):
    jitted = np.jit(heat)
    values = numpy.random.default_rng(0).random(1000)
    expected, seen = values.copy(), []
    ours, rate = np.array(values, device="cuda"), np.array(0.1, device="cuda")
    if watched:
        observers.append(lambda executable, step, seconds: seen.append(step))
    try:
        for _ in range(3):
            same, total = jitted(ours, rate)
            expected, expected_total = heat(expected, 0.1)
            assert same is ours
            assert ours.device.kind == "cuda"
            numpy.testing.assert_allclose(numpy.asarray(ours), expected)
            assert float(total) == pytest.approx(expected_total)
    finally:
        if watched:
            observers.pop()
    assert bool(seen) == watched


def test_arrays_of_cupy(on_device):
    array = on_device.arange(6.0).reshape(2, 3).T
    for make in (np.asarray, np.array):
        found = make(array)
        assert found.device.kind == "cuda"
        numpy.testing.assert_array_equal(numpy.asarray(found), array.get())
        assert make(array, dtype="f4").dtype == "f4"
    assert np.asarray(array, device="cpu").device.kind == "cpu"
