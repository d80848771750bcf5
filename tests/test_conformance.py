"""What NumPy's own tests, the array API's and real scripts found; ours beside NumPy."""

from __future__ import annotations

import collections
import pickle

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiledarray as np

OTHER_DTYPES = {
    "longdouble": [1, 2, 3], "clongdouble": [1 + 2j, 2, 3], "M8[s]": [1, 2, 3], "m8[s]": [1, 2, 3],
    "U3": ["a", "bb", "c"], "S3": [b"a", b"b", b"c"], "O": [1, 2.5, "x"], ">f8": [1, 2, 3],
    "i4,f8": [(1, 2.0), (3, 4.0), (5, 6.0)],
}


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_dtypes_without_kernels_stay_numpys(dtype: str) -> None:
    values = OTHER_DTYPES[dtype]
    ours, theirs = np.array(values, dtype), numpy.array(values, dtype)
    assert type(ours) is numpy.ndarray and ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs) is True
    assert np.array_equiv(ours, theirs) is True
    assert np.array_equal(ours, theirs[::-1]) is False
    assert numpy.array_equal(np.concatenate([ours, ours[:1]]), numpy.append(theirs, theirs[:1]))


@given(st.sampled_from([">f4", ">i2", "O", "U5", "longdouble"]))
def test_conversion_to_such_a_dtype_is_numpys(dtype: str) -> None:
    found, expected = np.arange(3).astype(dtype), numpy.arange(3).astype(dtype)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes() or dtype == "O"
    assert found.tolist() == expected.tolist()


# ---- beside other classes ----------------------------------------------------------------------

MATRIX = numpy.matrix([[1, 2], [3, 4]])
MASKED = numpy.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])


@pytest.mark.parametrize("other", [MATRIX, MASKED], ids=["matrix", "masked"])
@pytest.mark.parametrize("apply", [
    lambda a, b: a * b, lambda a, b: b * a, lambda a, b: a + b, lambda a, b: b - a,
    lambda a, b: a == b, lambda a, b: b < a, lambda a, b: a @ b, lambda a, b: b @ a,
    numpy.add, numpy.multiply, numpy.dot,
])
def test_operators_beside_subclasses(apply, other) -> None:
    plain = numpy.array([[2, 0], [1, 3]])
    found, expected = apply(np.array(plain), other), apply(plain, other)
    assert type(found) is type(expected)
    numpy.testing.assert_array_equal(found, expected)


def test_in_place_beside_a_subclass() -> None:
    ours, plain = np.array([[2, 0], [1, 3]]), numpy.array([[2, 0], [1, 3]])
    view = ours[0]
    ours *= MATRIX
    plain *= MATRIX
    assert isinstance(ours, np.TiledArray)
    assert ours.tolist() == plain.tolist()
    assert view.tolist() == plain[0].tolist()


class Tagged:
    """A class as pandas': it takes over ufuncs, and refuses arrays that it does not know."""

    __array_priority__ = 1000

    def __init__(self, values) -> None:
        self.values = numpy.asarray(values)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [x.values if isinstance(x, Tagged) else x for x in inputs]
        if not all(isinstance(x, (numpy.ndarray, int, float)) for x in plain):
            return NotImplemented
        return Tagged(getattr(ufunc, method)(*plain))


@pytest.mark.parametrize("apply", [
    lambda np, a, b: numpy.add(a, b), lambda np, a, b: numpy.add(b, a), lambda np, a, b: a + b,
    lambda np, a, b: np.maximum(a, b), lambda np, a, b: numpy.multiply.outer(a, b),
])
def test_a_type_that_takes_over_gets_numpys_arrays(apply) -> None:
    plain = numpy.arange(3.0)
    found = apply(np, np.array(plain), Tagged(plain))
    expected = apply(numpy, plain, Tagged(plain))
    assert type(found) is type(expected) is Tagged
    numpy.testing.assert_array_equal(found.values, expected.values)


def _written(np, table):
    x = np.zeros(table.size)
    x[:] = table
    x[1:] *= np.array([0, 2])[1]
    np.copyto(x[:1], [table.values[2]])
    return x


@pytest.mark.parametrize("apply", [
    lambda np, t: np.asarray(t), lambda np, t: np.array(t, "f4"), lambda np, t: np.array([t, t]),
    lambda np, t: np.sin(t), lambda np, t: np.arange(t.size) + t, lambda np, t: t == np.ones(3),
    lambda np, t: numpy.add(np.ones(3), t), lambda np, t: np.add.reduce(t), _written,
    lambda np, t: np.ones(3) @ t, lambda np, t: np.stack([t, t]), lambda np, t: np.mean(t),
    lambda np, t: np.median(t), lambda np, t: np.interp(t, [0, 1], [0, 5]),
    lambda np, t: np.ndim(t), lambda np, t: np.full((2, 3), t), lambda np, t: np.linalg.norm(t),
    lambda np, t: np.unique(t),
])
def test_objects_whose_array_is_ours(apply) -> None:
    class Table:
        size = 3

        def __init__(self, values) -> None:
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return self.values

    expected = apply(numpy, Table(numpy.arange(3.0)))
    for at_once in 1, 1 << 16:
        with np.config.override(at_once=at_once):
            found = apply(np, Table(np.arange(3.0)))
        assert type(found) is (int if type(expected) is int else np.TiledArray)
        numpy.testing.assert_array_equal(found, expected)
        assert numpy.result_type(found) == numpy.result_type(expected)
    with pytest.raises(ValueError, match="not producing an array"):
        np.sin(Table([1, 2]))


def test_ufuncs_are_found_by_numpys() -> None:
    handled = {np.add: "sum"}
    assert handled[numpy.add] == "sum"
    assert numpy.add == np.add and np.add != np.subtract
    assert pickle.loads(pickle.dumps(np.cos)) == np.cos


@pytest.mark.parametrize("at_once", [0, 1000])
def test_views_as_a_class(at_once: int) -> None:
    with np.config.override(at_once=at_once):
        look_as_a_class()


def look_as_a_class() -> None:
    array = np.arange(4.0).reshape(2, 2)
    found = array.view(numpy.matrix)
    assert type(found) is numpy.matrix and found.tolist() == array.tolist()
    for kind in (np.ndarray, numpy.ndarray, type(array)):
        same = array.view(kind)
        same[0] = 7
        assert array[0].tolist() == [7, 7]
        array[0] = 0


# ---- attributes --------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [
    lambda a: a.setflags(write=False), lambda a: setattr(a.flags, "writeable", False),
    lambda a: a.flags.__setitem__("W", False),
])
def test_flags_can_be_set(lock) -> None:
    array = np.arange(4)
    earlier = array[1:]
    lock(array)
    assert not array.flags.writeable and not array.flags["W"]
    later = array[:2]
    for write in (lambda: array.__setitem__(0, 1), lambda: array.fill(3), array.sort,
                  lambda: array.__iadd__(1), lambda: later.__setitem__(0, 1),
                  lambda: np.add(array, 1, out=array)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert array.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        later.setflags(write=True)
    earlier[0] = 9  # as with NumPy: a view made before still writes
    assert array.tolist() == [0, 9, 2, 3]
    array.flags.writeable = True
    array += 1
    assert array.tolist() == [1, 10, 3, 4]


def test_owndata_and_text_of_flags() -> None:
    ours, plain = np.ones((2, 3)), numpy.ones((2, 3))
    assert repr(ours.flags) == repr(plain.flags)
    assert ours.flags.owndata and not ours[1:].flags.owndata
    assert ours.T.flags.f_contiguous and not ours.T.flags.c_contiguous


@given(st.lists(st.sampled_from([
    lambda a: a.T, lambda a: a[::-1], lambda a: a[1:], lambda a: a[:, ::2], lambda a: a[..., None],
]), max_size=3))
def test_strides_are_those_of_what_numpys_tricks_get(steps) -> None:
    array = np.arange(24.0).reshape(4, 6)
    for step in steps:
        array = step(array) if array.ndim >= 2 else array
    spread = numpy.lib.stride_tricks.as_strided(array, array.shape, array.strides)
    numpy.testing.assert_array_equal(spread, numpy.asarray(array))


@pytest.mark.parametrize("shape", [(0,), (0, 6, 4), (4, 0, 6), (3, 0)])
def test_strides_of_what_is_empty(shape) -> None:
    assert np.zeros(shape).strides == numpy.zeros(shape).strides


def test_bytes_and_fields() -> None:
    ours, plain = np.arange(3, dtype="i4"), numpy.arange(3, dtype="i4")
    assert ours.byteswap().tolist() == plain.byteswap().tolist()
    assert ours.getfield("i2", 2).tolist() == plain.getfield("i2", 2).tolist()
    ours.setfield(5, "i2", 0)
    plain.setfield(5, "i2", 0)
    assert ours.tolist() == plain.tolist()
    assert ours.byteswap(inplace=True).tolist() == plain.byteswap(inplace=True).tolist()
    assert ours.tolist() == plain.tolist()
    assert bytes(ours.data) == bytes(plain.data)
    assert pickle.loads(ours.dumps()).tolist() == plain.tolist()
    with pytest.raises(ValueError, match="cannot delete"):
        del ours[0]


def test_isscalar_of_what_numpy_makes_scalars() -> None:
    assert np.isscalar(np.ones(3).sum()) and np.isscalar(2.5)
    assert not np.isscalar(np.ones(1)) and not np.isscalar([1])


class First:
    """A class that asks to come before NumPy's arrays, though it could be one of them."""

    __array_priority__ = 10

    def __rmul__(self, other):
        return type(other)

    __rmatmul__ = __rpow__ = __rdivmod__ = __eq__ = __rmul__
    __hash__ = None

    def __array__(self, dtype=None, copy=None):
        return numpy.ones(3)


@pytest.mark.parametrize("at_once", [1, 1 << 16])
@pytest.mark.parametrize("apply", [
    lambda a, b: a * b, lambda a, b: a @ b, lambda a, b: a ** b, divmod, lambda a, b: a == b])
def test_types_that_come_first_get_numpys_arrays(apply, at_once) -> None:
    with np.config.override(at_once=at_once):
        assert apply(np.arange(3.0), First()) is apply(numpy.arange(3.0), First()) is numpy.ndarray


@pytest.mark.parametrize("made", ["csr_matrix", "csr_array", "coo_array"])
@pytest.mark.parametrize("apply", [
    lambda a, b: a @ b, lambda a, b: b @ a, lambda a, b: a * b, lambda a, b: a + b,
    lambda a, b: a[1] * b, lambda a, b: a.sum() * b, lambda a, b: b / a[1],
])
def test_sparse_matrices(apply, made) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    other = getattr(sparse, made)(numpy.arange(9.0).reshape(3, 3))
    found, expected = (apply(x, other) for x in (np.arange(3.0), numpy.arange(3.0)))
    assert sparse.issparse(found) == sparse.issparse(expected)
    if sparse.issparse(found):
        found, expected = found.toarray(), expected.toarray()
    numpy.testing.assert_array_equal(found, expected)


SCALARS_HAVE = ("is_integer", "as_integer_ratio", "hex", "bit_count", "numerator", "denominator")


@pytest.mark.parametrize("dtype", ["i8", "u1", "f2", "f4", "f8", "c16", "?"])
def test_elements_have_what_scalars_have(dtype: str) -> None:
    ours, plain = np.array([0, 3]).astype(dtype), numpy.array([0, 3]).astype(dtype)
    for name in SCALARS_HAVE:
        for found, expected in [(ours[1], plain[1]), (ours.max(), plain.max())]:
            assert hasattr(found, name) == hasattr(expected, name)
            if hasattr(expected, name):
                found, expected = getattr(found, name), getattr(expected, name)
                assert (found() if callable(found) else found) == (
                    expected() if callable(expected) else expected)
        for other in ours, np.array(3, dtype), ours[1:]:
            assert not hasattr(other, name)


def test_elements_are_seeds() -> None:
    for np_seed, seed in [(np.arange(5)[3], 3), ([np.arange(5)[3], 7], [3, 7]),
                          (np.arange(3), [0, 1, 2])]:
        expected = numpy.random.default_rng(seed).random()
        assert np.random.default_rng(np_seed).random() == expected
        sequence = np.random.SeedSequence(np_seed)
        assert np.random.default_rng(sequence).random() == expected
        for again in pickle.loads(pickle.dumps(sequence)), sequence:
            assert type(again) is np.random.SeedSequence
            assert again.generate_state(4).tolist() == (
                numpy.random.SeedSequence(seed).generate_state(4).tolist())
        for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"):
            source, theirs = getattr(np.random, name)(np_seed), getattr(numpy.random, name)(seed)
            again = pickle.loads(pickle.dumps(source))
            assert type(again) is getattr(np.random, name) and isinstance(theirs, type(again))
            wanted = theirs.random_raw(3).tolist()
            assert source.random_raw(3).tolist() == wanted == again.random_raw(3).tolist()
    key = np.array([1, 2], "u8")
    assert np.random.Philox(key=key).random_raw() == numpy.random.Philox(key=[1, 2]).random_raw()
    assert isinstance(np.random.default_rng(1).bit_generator, np.random.PCG64)


# ---- values and errors -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "u8", "i1", "i8", "f4"])
def test_gradient_at_places_whose_differences_wrap(dtype: str) -> None:
    x = numpy.array([3, 2, 1], dtype)
    y = numpy.array([0.0, 2.0, 4.0])
    expected = numpy.gradient(y, x)
    numpy.testing.assert_array_equal(np.gradient(np.array(y), np.array(x)), expected)
    numpy.testing.assert_array_equal(numpy.gradient(np.array(y), x), expected)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles_at_an_array_of_ours(name: str) -> None:
    values, wanted = numpy.arange(10.0), numpy.array([0.25, 0.5])
    found = getattr(np, name)(np.array(values), np.array(wanted))
    numpy.testing.assert_array_equal(found, getattr(numpy, name)(values, wanted))


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_correction_stands_for_ddof(name: str) -> None:
    values = numpy.array([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]])
    ours, theirs = getattr(np, name), getattr(numpy, name)
    numpy.testing.assert_allclose(ours(np.array(values), axis=1, correction=1),
                                  theirs(values, axis=1, correction=1))
    with pytest.raises(ValueError, match="can't be provided simultaneously"):
        ours(np.array(values), ddof=1, correction=1)


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.sampled_from(["f4", "f8", "i8"]))
def test_where_keeps_the_rest_of_out(mask: list[bool], dtype: str) -> None:
    kept = numpy.array([1.5, 2.5, -3.5, 1e10])
    plain = kept.copy()
    numpy.add(numpy.arange(4, dtype=dtype), 1, out=plain, where=mask)
    ours = np.array(kept)
    np.add(np.arange(4, dtype=dtype), 1, out=ours, where=mask)
    numpy.testing.assert_array_equal(ours, plain)


def test_reduce_takes_numpys_arguments() -> None:
    values, mask = numpy.arange(6).reshape(2, 3), numpy.array([True, False, True])
    found = np.add.reduce(np.array(values), 1, None, None, True, 10, mask)
    assert found.tolist() == numpy.add.reduce(values, 1, None, None, True, 10, mask).tolist()
    for initial in False, True, 2.5, numpy.False_, None:
        for name in "logical_or", "logical_and":
            given = {"axis": 0, "initial": initial, "where": True if initial is None else mask}
            found = getattr(np, name).reduce(np.array(values), **given)
            expected = getattr(numpy, name).reduce(values, **given)
            assert found.tolist() == expected.tolist() and found.dtype == expected.dtype
    assert np.add(np.ones(2), 1, out=...).tolist() == [2.0, 2.0]
    assert np.maximum.reduce(numpy.array([1, 3, 2], numpy.longdouble)) == 3
    assert np.add.reduce(np.arange(3), dtype=object) == 3


@pytest.mark.parametrize("places", [[0, 7], [0, -4]])
def test_an_index_out_of_bounds_is_told_at_once(places: list[int]) -> None:
    for index in (places, numpy.array(places), np.array(places)):
        array = np.zeros(3)
        with pytest.raises(IndexError, match=r"out of bounds for axis 0 with size 3"):
            array[index]
        with pytest.raises(IndexError, match=r"out of bounds for axis 0 with size 3"):
            array[index] = 1
        assert array.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (0, 2)])
def test_an_empty_mask_fits_any_axis(shape: tuple[int, ...]) -> None:
    ours, plain, mask = np.ones(shape), numpy.ones(shape), numpy.zeros(0, bool)
    for chosen in (mask, np.array(mask)):
        assert ours[chosen].shape == plain[mask].shape
        ours[chosen] = 5
        assert ours.tolist() == plain.tolist()


def test_a_named_tuple_is_an_index() -> None:
    place = collections.namedtuple("Place", "row column")(1, 2)
    array = np.arange(6).reshape(2, 3)
    assert array[place].item() == 5
    array[place] = 9
    assert array[1, 2].item() == 9


def test_errors_of_numpys_have_no_context_of_ours() -> None:
    with pytest.raises(ValueError, match="monotonically") as caught:
        np.histogram(np.arange(3), bins=[3, 1])
    assert caught.value.__context__ is None


def test_every_listed_name_is_there() -> None:
    for name in dir(np):
        getattr(np, name)
