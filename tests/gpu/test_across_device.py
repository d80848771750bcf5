"""Reductions over the rows of a kernel that reduces them, on a GPU: each row is read once."""

import numpy
import pytest

import tiledarray as np
from tests.test_across import (
    both_sums,
    extrema,
    layer_norm,
    logistic,
    numbers,
    of_row_sums,
    products,
)
from tiledarray import config

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_device"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def on_the_gpu():
    with config.override(device="cuda", compile="wait"):
        yield


def check(program, *inputs, rtol, times=3):
    given = [x.astype({"f": "f8", "F": "c16"}.get(x.dtype.char, x.dtype)) for x in inputs]
    expected = program(numpy, *given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    arrays = [np.array(x) for x in inputs]
    jitted = np.jit(lambda *xs: program(np, *xs))
    plans = []
    for run in (lambda *xs: program(np, *xs), jitted) * times:
        found = run(*arrays)
        found = found if isinstance(found, tuple) else (found,)
        np.evaluate(*found)
        plans.append(found[-1].origin().node.buffer.plan)
        for one, other in zip(expected, found, strict=True):
            scale = numpy.abs(one[numpy.isfinite(one)]).max(initial=1)
            numpy.testing.assert_allclose(other.numpy(), one, rtol=rtol, atol=rtol * scale)
    return plans


def has_across(plans):
    return all(any(part.schedule.across for kernel in plan.plan.kernels for part in kernel.parts)
               for plan in plans if plan is not None)


@pytest.mark.parametrize("dtype, rtol", [("f4", 2e-5), ("f8", 1e-10)])
@pytest.mark.parametrize("shape", [(1 << 20, 16), (262_147, 64), (200_003, 100), (140_000, 129)])
def test_logistic(shape, dtype, rtol):
    rows, columns = shape
    x, w = numbers(*shape, dtype=dtype), numbers(columns, dtype=dtype, seed=1) / columns
    signs = numpy.sign(numbers(rows, dtype=dtype, seed=2))
    assert has_across(check(logistic, x, signs, w, rtol=rtol))
    assert has_across(check(products, x, w, rtol=rtol))


@pytest.mark.parametrize("columns", [256, 500, 512])
def test_wide_rows(columns):
    x, w = numbers(70_001, columns, dtype="f4"), numbers(columns, dtype="f4", seed=1) / columns
    assert has_across(check(products, x, w, rtol=3e-5))


@pytest.mark.parametrize("dtype, rtol, shape", [
    ("f4", 3e-5, (300_007, 64)), ("f8", 1e-10, (7, 30_011, 96)), ("f4", 3e-5, (3, 50, 700, 200)),
])
def test_layer_norm(dtype, rtol, shape):
    x, g = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)
    assert has_across(check(layer_norm, x, numbers(shape[-1], dtype=dtype, seed=2), g, rtol=rtol))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "c8"])
def test_dtypes(dtype):
    x = numbers(400_001, 44, dtype=dtype)
    rtol = 1e-5 if dtype in ("f4", "c8") else 1e-10
    assert has_across(check(both_sums, x, rtol=rtol, times=1))
    if dtype != "c8":
        assert has_across(check(of_row_sums, x, rtol=10 * rtol, times=1))


def test_extrema_with_nan():
    x = numbers(300_000, 60)
    x[3, 4], x[50, 6] = numpy.nan, numpy.inf
    check(extrema, x, rtol=1e-10)


def test_gradients():
    x, w = np.array(numbers(300_000, 64)), np.array(numbers(64, seed=1) / 8)
    signs = np.array(numpy.sign(numbers(300_000, seed=2)))

    def loss(w):
        return np.logaddexp(0, -signs * (x @ w)).mean()

    value, slope = np.value_and_grad(loss)(w)
    margins = signs.numpy() * (x.numpy() @ w.numpy())
    expected = (-signs.numpy() / (1 + numpy.exp(margins)) / len(margins)) @ x.numpy()
    numpy.testing.assert_allclose(float(value), numpy.logaddexp(0, -margins).mean(), rtol=1e-12)
    numpy.testing.assert_allclose(slope.numpy(), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("columns", [16, 24, 48, 64, 100, 128, 200])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i2"])
def test_short_rows(columns, dtype):
    x = numbers(10_007, columns, dtype=dtype)
    wide = x.astype("f8" if x.dtype.kind == "f" else "i8")
    array = np.array(x)
    numpy.testing.assert_allclose(
        array.sum(1, dtype=wide.dtype).numpy(), wide.sum(1), rtol=1e-11, atol=1e-11)
    numpy.testing.assert_array_equal((array * 2).max(1).numpy(), (x * 2).max(1))
    numpy.testing.assert_array_equal(array.argmin(1).numpy(), x.argmin(1))
