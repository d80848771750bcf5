"""Library calls through a library that lacks what CuPy lacks, and fails as it fails."""

import numpy
import pytest

from tiledarray.ops.indexing import add_at, reinterpret
from tiledarray.ops.library import BY_NAME, options


class FarLinalg:
    def __getattr__(self, name):
        return getattr(numpy.linalg, name)

    @staticmethod
    def solve(a, b):
        if b.ndim != 1 and a.shape[:-1] != b.shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
        return numpy.linalg.solve(a, b)

    @staticmethod
    def inv(a):
        raise numpy.linalg.LinAlgError("Error reported by getrf in cuSOLVER. devInfo = 2.")


class FarAdd:
    @staticmethod
    def at(array, index, values):
        if array.dtype.char not in "iIlLqQefd":
            raise TypeError("cupy.add.at only supports int32, int64, float16, float32, ...")
        numpy.add.at(array, index, values)


class FarModule:
    linalg, add = FarLinalg(), FarAdd()

    def __getattr__(self, name):
        return getattr(numpy, name)

    @staticmethod
    def quantile(*inputs, **keywords):
        raise ValueError("'weibull' method is not yet supported. Please use any other method.")

    @staticmethod
    def asnumpy(array):
        return numpy.asarray(array)


def called(name, *inputs, **keywords):
    return BY_NAME[name].reference(FarModule(), *inputs, attrs=options(**keywords), shape=None,
                                   dtype=numpy.dtype("f8"))


@pytest.mark.parametrize("left, right", [
    ((3, 3), (3,)), ((3, 3), (3, 2)), ((4, 3, 3), (3, 2)), ((3, 3), (4, 3, 2)), ((4, 3, 3), (3,)),
    ((4, 3, 3), (1, 3, 1)), ((2, 1, 3, 3), (5, 3, 2)), ((0, 3, 3), (3,)), ((4, 0, 0), (0, 2)),
], ids=str)
def test_equations_broadcast(left, right):
    random = numpy.random.default_rng(0)
    a = random.normal(size=left) + 3 * numpy.eye(left[-1])
    b = random.normal(size=right)
    numpy.testing.assert_allclose(called("linalg.solve", a, b), numpy.linalg.solve(a, b))


def test_a_failure_has_numpys_words():
    with pytest.raises(numpy.linalg.LinAlgError, match=r"^Singular matrix$"):
        called("linalg.inv", numpy.zeros((2, 2)))


class FarPlaces(numpy.ndarray):
    """Places in memory that is not NumPy's."""


@pytest.mark.parametrize("wrong", [3, -4])
def test_places_along_an_axis_that_are_beyond_it(wrong):
    x = numpy.arange(6.0).reshape(2, 3)
    places = numpy.array([[0, -3], [2, 1]]).view(FarPlaces)
    call = BY_NAME["take_along_axis"].reference
    found = call(FarModule(), x, places, attrs=options(axis=1), shape=(2, 2), dtype=x.dtype)
    numpy.testing.assert_array_equal(found, numpy.take_along_axis(x, numpy.asarray(places), 1))
    places[1, 0] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 1 with size 3"):
        call(FarModule(), x, places, attrs=options(axis=1), shape=(2, 2), dtype=x.dtype)


def test_what_it_refuses_is_done_on_the_host():
    x = numpy.arange(7.0)
    assert called("quantile", x, 0.3, method="weibull") == numpy.quantile(x, 0.3, method="weibull")
    with pytest.raises(ValueError, match="Quantiles must be in the range"):
        called("quantile", x, 1.3, method="linear")


@pytest.mark.parametrize("dtype", list("FDefdbBhHiIlL?"))
def test_every_dtype_is_added(dtype):
    random = numpy.random.default_rng(1)
    old, new = ((random.normal(size=shape) * 90).astype(dtype) for shape in [(5, 3), (4, 3)])
    if dtype in "FD":
        old, new = old * (1 + 2j), new * (1 - 1j)
        old, new = old.astype(dtype), new.astype(dtype)
        new[0, 0] = complex(numpy.inf, 1)
    places = numpy.array([1, 3, 1, -1])
    wanted = old.copy()
    numpy.add.at(wanted, places, new)
    before = old.copy()
    found = add_at.reference(FarModule(), old, new, places, attrs=("at", ":"), shape=old.shape,
                             dtype=old.dtype)
    assert found.dtype == wanted.dtype and numpy.array_equal(old, before)
    numpy.testing.assert_array_equal(found, wanted)


def test_a_dtype_is_seen_in_an_array_of_another_library():
    class Other(numpy.ndarray):
        def __array__(self, *arguments, **keywords):
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    x = numpy.arange(6.0).reshape(2, 3).view(Other).T
    found = reinterpret.reference(numpy, x, attrs=None, shape=(3, 4), dtype=numpy.dtype("f4"))
    assert type(found) is Other
    assert numpy.array_equal(found.view(numpy.ndarray), numpy.array(
        numpy.arange(6.0).reshape(2, 3).T, order="C").view("f4"))
