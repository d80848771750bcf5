"""Choosing, gathering and writing elements, and the ufunc objects, against NumPy's."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tests.strategies import DTYPES, agree, agree_on, arrays, outcome, same, same_outcome, tiled

VALUES = {
    "a": numpy.arange(12.0).reshape(3, 4),
    "v": numpy.array([3, 1, 2, 0]),
    "w": numpy.array([0.5, -1.5, 2.5, 1.0]),
    "m": numpy.array([True, False, True, True]),
    "n": numpy.array([[0, 3, 0], [1, 0, 2]]),
    "e": numpy.zeros((0, 3)),
    "c": numpy.array([1 + 2j, 3 - 1j]),
    "t": numpy.array(["x", "yz"]),
}
EXPRESSIONS = [
    "m.astype(int).choose(v, w)", "m.astype(int).choose([v, w])", "v.choose(v, w, v * 2, w * 3)",
    "m.astype(int).choose(0, 1)", "v.choose(v, w, mode='clip')", "m.astype(int).choose()",
    "[x := v * 10, m.astype(int).choose(v, x), x][1:]",
    "np.where(m, v, w)", "np.where(a > 3, a, 0)", "np.where(m)", "np.where(n)", "np.where(m, 1, 2)",
    "np.where(m, 1, 2.5)", "np.where(m, v)", "np.where(True, 1, 2)", "np.where(v, v, -1)",
    "np.where(a > 3, v, w)", "np.where(m, a, np.float32(2))",
    "np.where([True, False], [1, 2], [3, 4])",
    "np.where(m, v, [1, 2])", "np.where(m[:2], t, 'q')", "np.where(m, 'a', 'b')",
    "np.where(m, c, 1)",
    "np.nonzero(n)", "np.nonzero(3)", "np.flatnonzero(n)", "np.argwhere(n)", "np.argwhere(5)",
    "np.select([v > 2, v > 0], [v, w])", "np.select([m], [1], 7)", "np.select([v], [w])",
    "np.select([m, m], [v])", "np.select([], [])", "np.select([m], [c[0]], 2.5)",
    "np.select([a > 3, a > 1], [a, v], default=np.nan)", "np.select([m], [1], default=True)",
    "np.choose(v, [v, w, 7, v])", "np.choose([0, 1], [[1, 2], [3, 4]])", "np.choose(v, [w, w])",
    "np.choose(v, [w, v], mode='clip')", "np.choose(v, [w, v], mode='wrap')",
    "np.choose(m, [1, 2.5])",
    "np.choose(w, [v, v])", "np.choose(v, a.T)",
    "np.piecewise(w, [w < 0, w >= 0], [-1, 1])", "np.piecewise(w, [w < 0], [lambda x: -x, 5])",
    "np.piecewise(w, w > 0, [lambda x: x * 2, 0])", "np.piecewise(w, [w < 0], [1, 2, 3])",
    "np.take(v, [0, 2])", "np.take(a, [0, 2], axis=1)", "np.take(a, 5)", "np.take(v, 9)",
    "np.take(v, [-1, 9], mode='clip')", "np.take(v, [-1, 9], mode='wrap')",
    "np.take(a, [[0, 1]], 0)",
    "np.take(v, v)", "np.take(a, v[2:], axis=-1)", "np.take(a, 1, axis=7)", "np.take(e, [0])",
    "np.take(v, [0.5])", "np.take(v, [])", "np.take(a, [True, False])", "np.take([4, 5], [1])",
    "np.take(v, [0], out=np.zeros(1, int))",
    "np.take_along_axis(a, np.argsort(-a, axis=1), 1)", "np.take_along_axis(v, v, 0)",
    "np.take_along_axis(a, v, 0)", "np.take_along_axis(a, n[:, :1], None)",
    "np.take_along_axis(v, w, 0)", "np.take_along_axis(a, n[:1], 1)",
    "np.take_along_axis(a, v, None)",
    "np.compress([True, False, True], a, axis=0)", "np.compress(m, v)", "np.compress(a > 1, a)",
    "np.compress([0, 1], a)", "np.extract(a > 3, a)", "np.extract(m, v)",
    "np.ix_([0, 1], [2, 3])", "a[np.ix_([0, 2], [1, 3])]", "np.ix_(m, [1])", "np.ix_(a)",
    "np.diag_indices(3)", "np.diag_indices_from(a)", "np.tril_indices(3)", "np.triu_indices(3, 1)",
    "np.tril_indices_from(a[:, :3])", "a[np.tril_indices(3)]", "np.mask_indices(3, np.triu)",
    "np.unravel_index(v, (2, 2))", "np.unravel_index(7, (3, 4))", "np.unravel_index(v * 9, (2, 2))",
    "np.unravel_index(v, (2, 2), order='F')", "np.ravel_multi_index((v, v), (4, 4))",
    "np.unravel_index(np.argmax(a), a.shape)",
    "np.r_[v, w]", "np.r_[1:4, 9]", "np.c_[v, w]", "np.c_[a, a]", "np.r_[v, 1, 2]",
    "np.s_[1:3, ::2]",
    "np.index_exp[1]", "np.r_['0,2', v, v]", "np.r_[-1:1:3j]",
    "np.isin(v, [1, 3])", "np.searchsorted(v[::-1], 1)", "np.unique(n)",
    "np.intersect1d(v, [1, 9])",
    "np.apply_over_axes(np.sum, a, [0])", "np.diagonal(a, -1)", "np.packbits(m)", "np.roots(w)",
    "np.poly1d([1, 2])(w)", "np.polyval([1, 2, 3], w)", "np.polyfit(v, w, 1)",
    "np.heaviside(w, 0.5)",
    "np.add.reduce(a)", "np.add.reduce(a, axis=None)", "np.multiply.reduce(v)",
    "np.add.accumulate(v)",
    "np.maximum.accumulate(v)", "np.subtract.reduce(w)", "np.add.outer(v, w)",
    "np.add.reduceat(w, [0, 2])",
    "np.maximum.reduce(a, axis=1)", "np.add.reduce([1, 2])", "np.logical_or.reduce(m)",
    "np.multiply.outer([1, 2], [3, 4])", "np.add.reduce(v, dtype=float)",
    "np.add.reduce(a, keepdims=True)",
    "np.add(1, 2)", "np.exp(1)", "np.add([1, 2], 3)", "np.add(v, w)", "np.add(v, [1, 2])",
    "np.add(v)",
    "np.add(v, w, dtype='f')", "np.add(v, w, np.zeros(4))",
    "np.add(v, 1, where=m, out=np.zeros(4, int))",
    "np.sqrt(w)", "np.sqrt(np.array([4, 9]))", "np.add(t, t)", "np.exp(t)", "np.divmod(v, 2)",
    "np.modf(w)", "np.frexp(w)", "np.ldexp(w, v)", "np.isnat(np.array(['NaT'], 'M8[D]'))",
    "np.pow(v, 2)",
    "np.add(w, w, casting='no')", "np.add(v, w, casting='no')", "np.isfinite(c)",
    "np.bitwise_count(v)",
    "np.add.nin, np.add.nout, np.add.nargs, np.add.identity, np.add.types[0]", "np.add.__name__",
    "np.sin(w, out=np.zeros(4, 'i'))", "np.negative(m)", "np.invert(w)", "np.left_shift(v, 1)",
    "np.add(v, object())", "np.minimum(v, None)", "np.hypot(w, v)", "np.spacing(w)",
    "np.add(None, v)",
    "np.float_power(v, 2)", "np.frexp(2.5)", "np.exp(np.float32(2))", "np.add(np.longdouble(1), v)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, ulps=8, **VALUES)


WRITES = [
    "np.put(x, [0, 2], [7, 8])", "np.put(x, 99, 1)", "np.put(x, [-1], 5)",
    "np.place(x, x > 3, [1, 2])",
    "np.putmask(x, x > 3, 0)", "np.putmask(x, x > 3, y)", "np.copyto(x, 3)", "np.copyto(x, y)",
    "np.copyto(x, y, where=x > 2)", "np.copyto(x, 1j)", "np.copyto(x, [1, 2, 3])",
    "np.copyto(x, y[0])",
    "np.fill_diagonal(x, 9)", "np.fill_diagonal(x, [1, 2])", "np.fill_diagonal(x[0], 1)",
    "np.put_along_axis(x, np.array([[0], [1], [2]]), 5, axis=1)", "np.add.at(x, [0, 0], 1)",
    "np.copyto(x, 2.5, where=[True, False, False, True])", "np.multiply(x, 2, out=x)",
    "np.subtract.at(x, (slice(None), 1), 2)", "np.sqrt(x, out=x)", "np.cumsum(y, axis=1, out=x)",
    "np.clip(x, 1, 3, out=x)", "np.round(x, 1, out=x)", "np.random.default_rng(2).shuffle(x)",
    "np.apply_along_axis(lambda row: row.fill(1), 1, x)", "np.sum(x, axis=0, out=y[0])",
    "x.sort(0)", "np.matmul(x[:, :3], x[:, :3].T, out=x[:, :3])",
    "np.nan_to_num(x, copy=False)", "np.take(x, [0, 1], axis=1, out=y[:, :2])",
    "np.maximum(x, 5, x)", "np.add(x, y, out=(x,))", "np.mean(x, 0, out=y[1])",
]


@pytest.mark.parametrize("expression", WRITES)
def test_writes_as_numpy(expression: str) -> None:
    found = []
    for namespace in (numpy, tiledarray):
        x = namespace.array(numpy.arange(12.0).reshape(3, 4))
        y = namespace.array(numpy.ones((3, 4)))
        values = {"np": namespace, "x": x, "y": y}
        result = outcome(lambda: eval(expression, values))  # noqa: B023
        found.append((result, numpy.asarray(x), numpy.asarray(y)))
    theirs, ours = found
    same_outcome(ours[0], theirs[0], ulps=4)
    same(ours[1:], theirs[1:], ulps=4)


@settings(max_examples=60, deadline=None)
@given(arrays(), arrays(shape=()), st.sampled_from([None, 0, -1]))
def test_where_take(array: numpy.ndarray, scalar: numpy.ndarray, axis: int | None) -> None:
    agree("where", array, array, scalar)
    agree("nonzero", array)
    agree("take", array, [0, 0], axis)
    agree("select", [array == array, array != array], [array, scalar], 0)


UNARY = ["negative", "absolute", "sqrt", "exp", "isnan", "sign", "square", "logical_not",
"conjugate",
         "floor", "rint", "invert", "signbit", "bitwise_count"]
BINARY = ["add", "multiply", "subtract", "divide", "maximum", "less", "power", "arctan2",
"logical_and",
          "bitwise_xor", "floor_divide", "remainder", "copysign", "equal"]


@settings(max_examples=80, deadline=None)
@given(arrays(), st.data())
def test_ufuncs(array: numpy.ndarray, data: Any) -> None:
    other = data.draw(arrays(shape=array.shape[-1:]) | st.sampled_from([2, 0.5, True, 1j]))
    agree(data.draw(st.sampled_from(UNARY)), array, ulps=8)
    agree(data.draw(st.sampled_from(BINARY)), array, other, ulps=8)
    agree("add", array, other, dtype=data.draw(st.sampled_from(DTYPES)), ulps=8)


def test_fill_diagonal_and_ufunc_objects() -> None:
    add = tiledarray.add
    assert pickle.loads(pickle.dumps(add)) is add
    assert isinstance(add, tiledarray.ufunc)
    assert isinstance(numpy.add, tiledarray.ufunc)
    assert tiledarray.abs is tiledarray.absolute
    assert add.__doc__ == numpy.add.__doc__
    assert repr(add) == repr(numpy.add)


def test_scalars_are_computed_at_once() -> None:
    assert type(tiledarray.sqrt(2.0)) is numpy.float64
    assert type(tiledarray.sqrt(numpy.float32(2))) is numpy.float32
    assert isinstance(tiledarray.sqrt([2.0]), tiledarray.TiledArray)
    assert isinstance(tiledarray.sqrt(numpy.ones(2)), tiledarray.TiledArray)
    assert operator.index(tiledarray.argmax([1, 3, 2])) == 1


def test_other_libraries_take_over() -> None:
    class Other:
        __array_ufunc__ = None

        def __radd__(self, other: Any) -> str:
            return "other"

    with pytest.raises(TypeError):
        tiledarray.add(tiledarray.ones(2), Other())
    assert tiledarray.ones(2) + Other() == "other"
    assert tiled([1, (2,)]) == [1, (2,)]


def test_copying_an_array_onto_itself_does_nothing():
    """Not even where it may not be written, as in NumPy."""
    for xp in (numpy, tiledarray):
        frozen = xp.broadcast_to(xp.arange(100_000.0)[::-1], (100_000,))
        xp.copyto(frozen, frozen)
        xp.copyto(frozen, frozen, where=frozen > 5)
        with pytest.raises(ValueError, match="read-only"):
            xp.copyto(frozen, frozen + 1)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u4", "i8"])
@pytest.mark.parametrize("mode", ["wrap", "clip", "raise"])
def test_take_by_places_of_a_narrow_dtype_from_a_long_axis(mode: str, dtype: str) -> None:
    table, places = numpy.arange(100_000.0), numpy.arange(-5, 100).astype(dtype)
    places = places[places < 100_000] if mode == "raise" else places
    with tiledarray.config.override(at_once=0):
        found = tiledarray.take(tiledarray.array(table), tiledarray.array(places), mode=mode)
    numpy.testing.assert_array_equal(numpy.asarray(found), table.take(places, mode=mode))


# Lists that are deeper than what they are written into -----------------------------------------


WRITES = [
    ("x[:3]", "[[7, 8, 9]]"), ("x[:2]", "[[1], [2]]"), ("x[0]", "[1]"), ("x[0]", "[[1]]"),
    ("x[[0, 1]]", "[[1, 2]]"), ("x[x == 0]", "[[1, 2, 3, 4, 5]]"), ("x[:3]", "([7, 8, 9],)"),
    ("y[0]", "[[1, 2, 3, 4]]"), ("y[:1]", "[[[1, 2, 3, 4]]]"), ("x[:3]", "[np.array([7, 8, 9])]"),
    ("x[:3]", "np.array([[7, 8, 9]])"), ("x[...]", "[[1]]"), ("x[:3]", "[[]]"), ("x[:0]", "[[]]"),
    ("x[:3]", "[[1, 2], [3]]"), ("y[:2]", "[[1, 2], [3]]"), ("y[0, 0]", "[5]"),
    ("y[[0, 1]]", "[[[1]]]"), ("x[:1]", "[[5]]"), ("y[0]", "[np.array(1), 2, 3, 4]"),
    ("x[:2]", "[np.array([1]), np.array([2])]"), ("y[y == 0]", "np.ones((1, 12))"),
    ("x[x == 0]", "np.ones((5, 1))"), ("y[:2]", "[1, 2, 3, 4]"), ("y[1:]", "[[1], [2]]"),
]


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize(("place", "value"), WRITES)
def test_lists_are_as_deep_as_what_they_are_written_into(place, value, at_once) -> None:
    def written(np):
        x, y = np.zeros(5) + 0, np.zeros((3, 4)) + 0
        try:
            exec(f"{place} = {value}", {"np": np, "x": x, "y": y})
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        return numpy.asarray(x).tolist(), numpy.asarray(y).tolist()

    with tiledarray.config.override(at_once=at_once):
        assert written(tiledarray) == written(numpy)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compiled", ["wait", "never"])
@pytest.mark.parametrize("dtype", "efdD")
def test_powers_by_one_half(dtype, compiled) -> None:
    """NumPy takes the root if the exponent is one number, which may come after another one."""
    values = numpy.array([-numpy.inf, -0.0, 0.0, -4.0, 2.0, numpy.nan, 1e-310] * 3).astype(dtype)
    with tiledarray.config.override(at_once=0, compile=compiled), numpy.errstate(all="ignore"):
        x = tiledarray.array(values)
        for exponent in (0.3, 0.5, -0.5, numpy.float64(0.5), numpy.array(0.5),
                         numpy.full(values.size, 0.5)):
            ours = tiledarray.power(x, tiledarray.array(exponent)
                                    if isinstance(exponent, numpy.ndarray) else exponent).numpy()
            theirs = numpy.power(values, exponent)
            assert ours.dtype == theirs.dtype
            numpy.testing.assert_allclose(ours, theirs, rtol=2e-3 if dtype == "e" else 1e-6)
            there = ~numpy.isnan(theirs)
            assert (numpy.signbit(ours.real) == numpy.signbit(theirs.real))[there].all()
