"""Zeros have the signs that NumPy gives them, in kernels as well."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config


@pytest.fixture(autouse=True)
def by_kernels():
    with config.override(at_once=0, compile="wait", first_seconds=0.0):
        yield


NEAR_ZERO = numpy.array([-0.3, 0.3, -0.0, 0.0, -1.5, 2.5, -0.999])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("size", [1, 7, 70_001])
@pytest.mark.parametrize("to", ["f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("between", ["i1", "i2", "i4", "i8", "u8"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_integers_have_no_negative_zero(dtype, between, to, size):
    """GCC takes a number that is made an integer, and a number again, for what `trunc` gives."""
    x = abs(numpy.resize(NEAR_ZERO, size)) if between == "u8" else numpy.resize(NEAR_ZERO, size)
    x = x.astype(dtype)
    found = np.jit(lambda x: x.astype(between).astype(to))(np.array(x))
    assert found.numpy().tobytes() == x.astype(between).astype(to).tobytes()


def test_what_is_divided_by_integers_and_angles_of_them():
    x = numpy.resize(NEAR_ZERO, 100_003)

    def program(np, x):
        whole = x.astype(int)
        return np.arctan2(whole, whole * 2.0), whole * 1.0, x - x.astype("i4")

    found = np.jit(lambda x: program(np, x))(np.array(x))
    for mine, wanted in zip(found, program(numpy, x), strict=True):
        numpy.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-14)
        assert (numpy.signbit(mine.numpy()) == numpy.signbit(wanted)).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_spacing_of_zeros(dtype):
    x = numpy.array([-0.0, 0.0, -1.0, 1.0], dtype)
    assert np.jit(np.spacing)(np.array(x)).numpy().tobytes() == numpy.spacing(x).tobytes()


@pytest.mark.parametrize(("reduce", "dtype"), [
    ("prod", "f4"), ("prod", "f8"),  # of complex zeros the order decides
    *((reduce, dtype) for reduce in ("max", "cumsum") for dtype in ("f4", "f8", "c16"))])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions_of_one_element(reduce, axis, dtype):
    x = numpy.array([[-0.0, 2.0, -0.0]], dtype)
    for given in (x, x.T, x[:, :1]):
        found = np.jit(lambda x: getattr(np, reduce)(x, axis=axis))(np.array(given))
        assert found.numpy().tobytes() == numpy.asarray(
            getattr(numpy, reduce)(given, axis=axis)).tobytes()


def test_what_is_read_only_is_not_written_where_a_mask_has_nothing():
    x = np.broadcast_to(np.ones(0), (2, 0))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        x[x > 5] = 1
