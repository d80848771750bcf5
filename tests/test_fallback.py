"""What no kernel does: NumPy's own functions on host copies, visibly."""

from __future__ import annotations

import io
import tracemalloc

import numpy
import pytest
from hypothesis import given, settings

import tiledarray
from tests.strategies import agree, agree_on, arrays
from tiledarray.recording.stretch import fallbacks

VALUES = {
    "a": numpy.arange(6.0).reshape(2, 3),
    "v": numpy.array([3, 1, 2]),
    "t": numpy.array(["b", "a"]),
    "d": numpy.array(["2020-01-02", "NaT"], "M8[D]"),
    "o": numpy.array([1, "x", None], object),
    "g": numpy.array([1, 2], numpy.longdouble),
    "z": numpy.array([1 + 2j]),
}
EXPRESSIONS = [
    "np.unique(v)", "np.setdiff1d(v, [1])", "np.polyfit(v, v, 1)", "np.histogramdd(a, 2)[0]",
    "np.apply_along_axis(np.sum, 0, a)", "np.vectorize(lambda x: x * 2)(v)", "np.ediff1d(v)",
    "np.emath.sqrt([-1, 4])", "np.emath.log(v - 2)",
    "np.polynomial.polynomial.polyval(v, [1, 2])", "np.polynomial.Polynomial([1, 2])(v)",
    "np.poly1d([1, 2, 3])(v)", "np.ma.masked_array(a, a > 2).sum()", "np.strings.upper(t)",
    "np.char.upper(t)", "np.sort(t)", "np.concatenate([t, t])", "t == 'a'", "np.add(t, t)",
    "d - d[0]", "np.isnat(d)", "np.diff(d)", "np.arange('2020-01-01', '2020-01-04', dtype='M8[D]')",
    "np.sum(o[:1])", "np.array([1, None]) == None", "g + 1", "np.sqrt(g)", "np.exp(g).dtype",
    "np.array2string(a)", "np.array_str(a)", "np.array_repr(v)", "repr(a)", "str(v)",
    "np.binary_repr(5)", "np.can_cast('i4', 'i8')", "np.result_type(v, 1.0)", "np.finfo('f').eps",
    "np.iinfo(v.dtype).max", "np.promote_types('i', 'f')", "np.issubdtype(v.dtype, np.integer)",
    "np.min_scalar_type(3)", "np.isscalar(3)", "np.iterable(v)", "np.common_type(a, v)",
    "np.may_share_memory(v, v.copy())", "np.shares_memory(v, v.copy())", "list(np.ndindex(2, 2))",
    "list(np.ndenumerate(v))", "np.busday_count('2020-01', '2020-02')", "np.typename('d')",
    "np.nditer(v).shape", "np.trim_zeros([0, 1, 0])", "np.packbits([1, 0])", "np.i0(v)",
    "np.require(v, 'f')", "np.isfortran(a)", "np.flatiter", "np.ma.sum(a)", "np.rec.array(v).sum()",
    "np.matrix([[1, 2]]) * 2", "np.asmatrix(a).T", "np.float32(v[0])", "np.int8(3) + np.int8(4)",
    "np.lib.NumpyVersion('2.0.0') < '3.0.0'", "np.frompyfunc(abs, 1, 1)(v)", "np.nothing",
    "np.polynomial.nothing", "np.polyroots", "np.linalg.lstsq(a, [1, 2], rcond=None)[0]",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, ulps=16, **VALUES)


@settings(max_examples=40, deadline=None)
@given(arrays("?bilfd", min_dims=1, finite=True))
def test_functions_by_numpy(array: numpy.ndarray) -> None:
    agree("unique", array)
    agree("packbits", array.astype(bool))
    agree("trim_zeros", array.ravel())


def test_results_are_ours_and_noted() -> None:
    fallbacks.clear()
    found = tiledarray.unique(tiledarray.array([2, 1, 2]))
    assert isinstance(found, tiledarray.TiledArray)
    assert any(name == "unique" for name, _ in fallbacks)
    ((code, _offset),) = {site for name, site in fallbacks if name == "unique"}
    assert code is test_results_are_ours_and_noted.__code__


class Labelled:
    """A foreign array type, as a table's column is: it refuses what it does not know."""

    def __init__(self, values) -> None:
        self.values = numpy.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if not all(isinstance(x, (Labelled, numpy.ndarray, int)) for x in inputs):
            return NotImplemented
        inputs = [x.values if isinstance(x, Labelled) else x for x in inputs]
        return Labelled(getattr(ufunc, method)(*inputs, **options))


@pytest.mark.parametrize("call", [
    lambda np, s, x: np.exp(s), lambda np, s, x: np.add(s, 1), lambda np, s, x: np.add(1, s),
    lambda np, s, x: np.add(x, s), lambda np, s, x: x + s, lambda np, s, x: np.maximum(s, x),
    lambda np, s, x: np.add.reduce(s), lambda np, s, x: np.multiply.outer(s, x),
])
def test_foreign_operands_get_what_numpy_gives_them(call) -> None:
    values = numpy.array([1.0, 2.0])
    foreign = [Labelled(values), numpy.ma.masked_array(values, [0, 1]),
               values.view(type("Mine", (numpy.ndarray,), {}))]
    for operand in foreign:
        expected = call(numpy, operand, values)
        found = call(tiledarray, operand, tiledarray.array(values))
        assert type(found) is type(expected)
        assert numpy.array_equal(numpy.asarray(found), numpy.asarray(expected))
        assert numpy.array_equal(numpy.ma.getmask(found), numpy.ma.getmask(expected))


def test_foreign_outputs_are_written() -> None:
    for out in (numpy.zeros(2).view(numpy.matrix), numpy.ma.zeros(2)):
        assert tiledarray.add(tiledarray.arange(2), 1, out=out) is out
        assert out.ravel().tolist() in ([1, 2], [[1, 2]])


def test_nested_arguments_and_results() -> None:
    first, second = tiledarray.arange(3), tiledarray.arange(3) + 1
    counts, edges = tiledarray.histogramdd([first, second], bins=2)
    assert isinstance(counts, tiledarray.TiledArray)
    assert all(isinstance(edge, tiledarray.TiledArray) for edge in edges)


def test_changes_are_written_back() -> None:
    array = tiledarray.arange(4.0)
    view = array[1:]
    tiledarray.put(view, [0], 9)
    assert array.tolist() == [0, 9, 2, 3]
    tiledarray.place(array, array > 2, [-1])
    assert array.tolist() == [0, -1, 2, -1]
    numpy.put(array, [3], -2)
    assert array.tolist() == [0, -1, 2, -2]
    numpy.putmask(array, array < 0, tiledarray.array([5.0, 6, 7, 8]))
    assert array.tolist() == [0, 6, 2, 8]
    items = [3, 1, 2]
    tiledarray.random.default_rng(0).shuffle(items)
    numpy.random.default_rng(0).shuffle(expected := [3, 1, 2])
    assert items == expected
    parts = tiledarray.zeros(2), tiledarray.zeros(2)
    found = numpy.modf(tiledarray.array([1.5, numpy.nan], numpy.longdouble), out=parts)
    assert found[0] is parts[0]
    assert parts[1].tolist()[0] == 1.0


def test_files() -> None:
    array, file = tiledarray.arange(6).reshape(2, 3), io.BytesIO()
    tiledarray.save(file, array)
    file.seek(0)
    loaded = tiledarray.load(file)
    assert isinstance(loaded, tiledarray.TiledArray)
    assert loaded.tolist() == array.tolist()
    text = io.StringIO()
    tiledarray.savetxt(text, array)
    assert tiledarray.loadtxt(io.StringIO(text.getvalue())).tolist() == array.tolist()


def test_error_state_and_printing_are_numpys() -> None:
    assert tiledarray.errstate is numpy.errstate
    with tiledarray.printoptions(precision=2):
        assert str(tiledarray.array([1.23456])) == "[1.23]"


READING = [
    lambda np, x: np.bitwise_xor.reduce(x), lambda np, x: np.gcd.reduce(x[::3]),
    lambda np, x: np.bitwise_or.reduce(x[None], axis=()), lambda np, x: np.frexp(x * 1.0)[0],
    lambda np, x: np.add.reduceat(x, [0, 5, 100]), lambda np, x: np.lcm.accumulate(x[:9] + 1),
    lambda np, x: np.bitwise_xor.reduce(x.reshape(4, -1)[::-1, ::2], axis=1),
]


@pytest.mark.parametrize("call", READING)
def test_what_ufuncs_only_read_is_not_copied(call) -> None:
    """And is not what they return."""
    values = numpy.arange(200_000)
    with tiledarray.config.override(at_once=0):
        x = tiledarray.array(values)
        tracemalloc.start()
        found = call(tiledarray, x)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (numpy.asarray(found) == call(numpy, values)).all()
        assert most < values.nbytes or numpy.size(found) > 100_000
        if isinstance(found, tiledarray.ndarray):
            found[...] = 3
        assert (x.numpy() == values).all()


def test_outputs_of_ufunc_methods_are_written() -> None:
    x = tiledarray.array([3, 1, 2])
    out = tiledarray.zeros(3, int)
    assert tiledarray.bitwise_xor.accumulate(x, out=out) is out
    assert out.tolist() == [3, 2, 0]
    tiledarray.bitwise_xor.accumulate(x, 0, None, x)
    assert x.tolist() == [3, 2, 0]
