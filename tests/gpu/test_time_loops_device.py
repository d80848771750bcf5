"""`fori_loop` and `while_loop` on a CUDA device: values and gradients.  Run with ``-m gpu``."""

import numpy
import pytest

import tiledarray as np
from tests.test_time_loops import BODIES, by_loop, by_numpy, drawn, stencil, suits
from tiledarray import config
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu

CASES = [(body, shape) for body in BODIES for shape in [(), (0,), (7,), (300, 50)]
         if suits(body, shape) and (body is not stencil or all(shape))]


@pytest.fixture(autouse=True)
def on_device(a_device):
    local.recorder.reset()
    with config.override(device="cuda", compile="wait", at_once=0):
        yield
    local.recorder.reset()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("body", "shape"), CASES)
def test_is_a_loop_of_pythons(body, shape):
    start = drawn(*shape, dtype="f4"), drawn(*shape, dtype="f4", seed=1)
    given = *map(np.array, start),
    for count in (0, 1, 2, 3, 40, 40, 40):  # launches are captured and given again
        found = by_loop(body, "f4", range(count), *given)
        wanted = by_numpy(body, "f4", range(count), *start)
        for x, y in zip(found, wanted, strict=True):
            assert x.shape == numpy.shape(y) and x.dtype == numpy.asarray(y).dtype
            numpy.testing.assert_allclose(numpy.asarray(x), y, rtol=1e-4, atol=1e-4)
    for x, y in zip(given, start, strict=True):
        numpy.testing.assert_array_equal(numpy.asarray(x), y)


def heat(np, i, u):
    new = u.copy()
    new[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
                              - 4 * u[1:-1, 1:-1])
    return new


def test_many_steps_of_a_stencil():
    u = wanted = drawn(700, 500)
    for i in range(300):
        wanted = heat(numpy, i, wanted)
    looped = np.jit(lambda n, u: np.fori_loop(n, lambda i, u: heat(np, i, u), u))
    for _ in range(3):
        found = looped(300, np.array(u))
        numpy.testing.assert_allclose(numpy.asarray(found), wanted, rtol=1e-10, atol=1e-12)


def test_until_a_condition_holds():
    def newton(np, x, a):
        return np.while_loop(lambda x: abs(x * x - a).max() > 1e-9, lambda x: (x + a / x) / 2, x)

    a = abs(drawn(1000)) + 1
    for found in (newton(np, np.array(a), np.array(a)), np.jit(
            lambda x, a: newton(np, x, a))(np.array(a), np.array(a))):
        numpy.testing.assert_allclose(numpy.asarray(found), a ** 0.5, rtol=1e-9)


def test_gradients():
    x = drawn(50, 40)
    found = np.grad(lambda u: (np.fori_loop(9, lambda i, u: heat(np, i, u), u) ** 2).sum())(
        np.array(x))
    with config.override(device="cpu"):
        wanted = np.grad(lambda u: (np.fori_loop(9, lambda i, u: heat(np, i, u), u) ** 2).sum())(
            np.array(x))
    numpy.testing.assert_allclose(numpy.asarray(found), numpy.asarray(wanted), rtol=1e-10)
