"""What no kernel does: NumPy's own functions on host copies, visibly."""

from __future__ import annotations

import io

import numpy
import pytest
from hypothesis import given, settings

import tiledarray
from tests.strategies import agree, agree_on, arrays
from tiledarray.recorder import fallbacks

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
    "np.lib.stride_tricks.sliding_window_view(v, 2)", "np.emath.sqrt([-1, 4])",
    "np.emath.log(v - 2)",
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
