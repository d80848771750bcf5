"""What is asked for again and again on a GPU: gradients by one plan, places, lone launches."""

import numpy
import pytest

import tiledarray as np
from tests.plans import counted
from tests.test_gradient_again import misfit
from tiledarray import config
from tiledarray.gradients import again, functions

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_device")]

X = numpy.linspace(-1.5, 2.0, 40)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(again, "PATIENCE", 0.0)
    monkeypatch.setattr(again, "_functions", again.OrderedDict())
    monkeypatch.setattr(again, "_plans", again.OrderedDict())


@pytest.fixture
def passes(monkeypatch):
    found = []
    for module in (again, functions):
        plain = module.backward
        monkeypatch.setattr(
            module, "backward",
            lambda *args, plain=plain, **options: found.append(1) or plain(*args, **options))
    return found


@pytest.mark.parametrize("device", ["cuda", "auto", "cpu"])
@pytest.mark.parametrize("size", [40, 300_000])
def test_gradients_have_one_plan(at_once, passes, device, size):
    x = numpy.resize(X, size)
    with config.override(device="cpu", compile="wait"):
        t = np.array(numpy.linspace(0, 1, size))
        expected = [np.value_and_grad(misfit)(np.array(x * k), t) for k in (1, 2, 3, 4)]
        expected = [(float(value), slope.numpy()) for value, slope in expected]
    again._functions.clear()
    again._plans.clear()
    del passes[:]
    with config.override(device=device, compile="wait"):
        t = np.array(numpy.linspace(0, 1, size))
        for k, (value, slope) in zip((1, 2, 3, 4), expected, strict=True):
            found, by_x = np.value_and_grad(misfit)(np.array(x * k), t)
            numpy.testing.assert_allclose(float(found), value, rtol=1e-10)
            numpy.testing.assert_allclose(by_x.numpy(), slope, rtol=1e-9, atol=1e-12)
            by_x[0] = 7.0  # its own memory
    assert len(passes) == 1


def test_gradients_of_what_lies_on_both_sides(at_once):
    with config.override(device="auto", compile="wait"):
        here = np.array(numpy.linspace(0, 1, 400_000))
        there = np.exp(np.array(numpy.linspace(0, 1, 400_000)) * 2)
        np.evaluate(there)

        def mixed(x):
            return (x * here * there).sum()

        for k in range(1, 5):
            slope = np.grad(mixed)(np.full(400_000, float(k)))
            numpy.testing.assert_allclose(
                slope.numpy(), here.numpy() * there.numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8"])
def test_places_beyond_the_axis(dtype):
    with config.override(device="cuda", compile="wait"):
        table = np.array(numpy.arange(100.0).reshape(20, 5))
        right = numpy.array([0, 19, 3, 3, 7], dtype)
        for _ in range(3):
            numpy.testing.assert_array_equal(
                table[np.array(right)].numpy(), table.numpy()[right])
            with pytest.raises(IndexError, match="index 20 is out of bounds for axis 0"):
                table[np.array(numpy.array([0, 20, 1], dtype))].numpy()
            with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1"):
                table[np.array(right), np.array(numpy.array([0, 1, 2, 5, 3], dtype))].numpy()
        if dtype[0] == "i":
            with pytest.raises(IndexError, match="index -21 is out of bounds for axis 0"):
                table[np.array(numpy.array([0, -21], dtype))].numpy()
        rows = np.arange(5)
        for places in (0, 4, 5):  # no kernel reads what is the result itself
            columns = np.array(numpy.array([0, 1, 2, 3, places], dtype))
            if places < 5:
                numpy.testing.assert_array_equal(
                    table[:5][rows, columns].numpy(), table.numpy()[range(5), columns.numpy()])
                continue
            with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1"):
                table[:5][rows, columns].numpy()
        numpy.testing.assert_array_equal(
            table[np.array(right), np.array(right % 5)].numpy(), table.numpy()[right, right % 5])


@pytest.mark.parametrize("size", [3, 8, 40])
def test_lone_launches(size):
    import cupy

    with config.override(device="cuda", compile="wait"):
        random = numpy.random.default_rng(0)
        invert = np.jit(lambda a, s: np.linalg.inv(a + s * np.eye(a.shape[-1])))
        solve = np.jit(lambda a, b: (np.linalg.solve(a, b), np.linalg.det(a)))
        for k in range(4):
            a = random.random((500, size, size)) + size * numpy.eye(size)
            b = random.random((500, size, 1))
            with cupy.cuda.Stream(non_blocking=k % 2 == 1) as stream:
                found = invert(np.array(a), float(k % 2))
                x, det = solve(np.array(a), np.array(b))
                stream.synchronize()
                numpy.testing.assert_allclose(
                    found.numpy(), numpy.linalg.inv(a + k % 2 * numpy.eye(size)), rtol=1e-9)
                numpy.testing.assert_allclose(x.numpy(), numpy.linalg.solve(a, b), rtol=1e-9)
                numpy.testing.assert_allclose(det.numpy(), numpy.linalg.det(a), rtol=1e-9)
            a[77] = 0
            with pytest.raises(numpy.linalg.LinAlgError, match="77"):
                invert(np.array(a), 0.0)
        with counted() as counts:
            invert(np.array(b @ b.swapaxes(1, 2)), 1.0)
        assert counts["library calls"] == 1
