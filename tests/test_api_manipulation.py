"""Functions that rearrange arrays, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tests.strategies import agree, agree_on, arrays
from tiledarray import config

VALUES = {
    "g": numpy.arange(4.0).astype("g"), "d": numpy.arange(4).astype("M8[D]"),
    "o": numpy.array(["a", 1, None]),
    "a": numpy.arange(12.0).reshape(3, 4),
    "b": numpy.arange(24, dtype="i4").reshape(2, 3, 4).transpose(2, 0, 1),
    "v": numpy.arange(5),
    "r": numpy.arange(6.0)[::-2],
    "e": numpy.zeros((0, 3)),
    "s": numpy.array(2.5),
    "m": numpy.array([True, False, True]),
    "t": numpy.array(["x", "yz"]),
}
EXPRESSIONS = [
    *(f"np.{name}_memory({one}, {other})" for name in ("shares", "may_share") for x in "gdot"
      for one, other in ((x, x), (x, f"{x}[1:]"), (f"{x}[:1]", f"{x}[1:]"), (x, f"{x}.copy()"))),
    "np.asfortranarray(s).shape", "np.asfortranarray(v)",
    "np.shares_memory(a, a[1:])", "np.shares_memory(a[0], a[1])", "np.may_share_memory(v, v[::2])",
    "np.shares_memory(a[:, ::2], a[:, 1::2])", "np.may_share_memory(a[:, ::2], a[:, 1::2])",
    "np.shares_memory(a, a.copy())", "np.shares_memory(a.T, a)", "np.tril_indices_from(a)",
    "np.reshape(a, (4, 3))", "np.reshape(a, -1)", "np.reshape(b, (6, -1))", "np.reshape(a, (5, 2))",
    "np.reshape(a, (2, 6), order='F')", "np.reshape(a, shape=(6, 2))", "np.reshape(e, (3, -1, 2))",
    "np.reshape(a, (-1, -1))", "np.reshape([1, 2, 3, 4], (2, 2))", "np.reshape(v, v[5:])",
    "np.ravel(a)", "np.ravel(a, 'F')", "np.ravel(a.T, 'K')", "np.ravel(3)",
    "np.transpose(a)", "np.transpose(b, (1, 0, 2))", "np.transpose(b, (0, 0, 1))",
    "np.transpose(a, (0, 1, 2))", "np.permute_dims(b, (2, 0, 1))", "np.matrix_transpose(b)",
    "np.matrix_transpose(v)", "np.moveaxis(b, 0, -1)", "np.moveaxis(b, (0, 1), (-1, 0))",
    "np.moveaxis(b, 5, 0)", "np.moveaxis(b, (0, 1), 0)", "np.swapaxes(b, 0, 2)",
    "np.swapaxes(a, 0, 3)", "np.rollaxis(b, 2)", "np.rollaxis(b, 0, 3)", "np.rollaxis(b, 1, 9)",
    "np.rollaxis(b, -1, 1)",
    "np.squeeze(a[None, :, None])", "np.squeeze(a[None], 0)", "np.squeeze(a, 0)", "np.squeeze(s)",
    "np.expand_dims(a, 0)", "np.expand_dims(a, (0, -1))", "np.expand_dims(a, 4)",
    "np.expand_dims(a, (1, 1))", "np.expand_dims(s, 0)",
    "np.broadcast_to(v, (3, 5))", "np.broadcast_to(v, (3, 4))", "np.broadcast_to(s, (2, 2))",
    "np.broadcast_to(a, (4,))", "np.broadcast_to(3, 4)", "np.broadcast_to(e, (2, 0, 3))",
    "np.broadcast_arrays(a, v[:4], 1)", "np.broadcast_arrays(a, v)",
    "np.broadcast_shapes((2, 1), 3)",
    "np.concatenate([a, a])", "np.concatenate([a, a], axis=1)", "np.concatenate((a, a), None)",
    "np.concatenate([a, v])", "np.concatenate([])", "np.concatenate([a, a], 2)",
    "np.concatenate([v, r])", "np.concatenate([v, m])", "np.concatenate([1, 2])",
    "np.concatenate([a, a[:, :2]])", "np.concatenate([a, a[:, :2]], -1)", "np.concatenate(b)",
    "np.concatenate([v, [1.5]])", "np.concatenate([v, v], dtype='f')", "np.concatenate([v], 0)",
    "np.concatenate([r, r], dtype='i')", "np.concatenate([r, r], dtype='i', casting='unsafe')",
    "np.concatenate([v, v], out=np.zeros(10))", "np.concatenate([v, v], out=np.zeros(3))",
    "np.concatenate([t, t])", "np.concatenate([e, a[:, :3]])", "np.concatenate(3)",
    "np.concatenate([v, t])", "np.concat([a, a])", "np.concatenate([a, a], axis=1.5)",
    "np.stack([a, a])", "np.stack([a, a], axis=-1)", "np.stack([a, a], 1)", "np.stack([a, v])",
    "np.stack([])", "np.stack([s, s])", "np.stack([v, v], 4)", "np.stack([v, r[:1]])",
    "np.vstack([a, a])", "np.vstack([v, v])", "np.vstack([1, 2])", "np.vstack([a, v])",
    "np.hstack([a, a])", "np.hstack([v, r])", "np.hstack([s, 1])", "np.dstack([a, a])",
    "np.dstack([v, v])", "np.column_stack([v, v])", "np.column_stack([a, a[:, 0]])",
    "np.vstack([v, v], dtype='d')", "np.row_stack([a, a])", "np.vstack(a)", "np.hstack(a)",
    "np.block([[a, a], [a, a]])", "np.block([v, 2])", "np.block([[a], [v[:4]]])", "np.block(3)",
    "np.block([[a, a], a])", "np.block([[np.eye(2), np.zeros((2, 1))], [np.ones((1, 3))]])",
    "np.unstack(a)", "np.unstack(a, axis=1)", "np.unstack(s)",
    "np.split(a, 3)", "np.split(a, 2)", "np.split(a, [1, 2])", "np.split(a, 2, axis=1)",
    "np.array_split(v, 3)", "np.array_split(a, 3, axis=1)", "np.array_split(v, 0)",
    "np.hsplit(a, 2)", "np.vsplit(a, 3)", "np.dsplit(b, 3)", "np.dsplit(a, 2)", "np.vsplit(v, 1)",
    "np.hsplit(v, [2])", "np.split(v, [7, 9])", "np.split(v, [-1])", "np.hsplit(s, 1)",
    "np.flip(a)", "np.flip(a, 0)", "np.flip(b, (0, 2))", "np.flip(a, 2)", "np.fliplr(a)",
    "np.flipud(a)", "np.fliplr(v)", "np.flipud(s)", "np.flip(s)",
    "np.rot90(a)", "np.rot90(a, 2)", "np.rot90(a, 3)", "np.rot90(a, -1)", "np.rot90(b, 1, (1, 2))",
    "np.rot90(a, 1, (0, 0))", "np.rot90(v)", "np.rot90(a, 0)", "np.rot90(a, 1, (0, 1, 2))",
    "np.roll(v, 2)", "np.roll(a, 1)", "np.roll(a, 1, axis=0)", "np.roll(a, (1, 2), (0, 1))",
    "np.roll(a, 2, (0, 1))", "np.roll(a, -1, 1)", "np.roll(v, 17)", "np.roll(e, 1)",
    "np.roll(a, 1, 5)", "np.roll(a, (1, 1), (1, 1))", "np.roll(a, (1, 2), 0)", "np.roll(s, 1)",
    "np.pad(v, 2)", "np.pad(a, 1)", "np.pad(a, ((1, 2), (0, 3)))", "np.pad(a, (1, 0))",
    "np.pad(v, 2, constant_values=7)", "np.pad(a, 1, constant_values=((1, 2), (3, 4)))",
    "np.pad(v, 2, constant_values=(1, 2))", "np.pad(a, {0: (1, 2)})", "np.pad(a, {-1: 3})",
    "np.pad(v, -1)", "np.pad(v, 1.5)", "np.pad(v, 1, 'nothing')", "np.pad(v, (1, 2, 3))",
    *(f"np.pad({array}, {width}, '{mode}')"
      for mode in ("edge", "wrap", "reflect", "symmetric", "maximum", "mean", "minimum", "median",
                   "linear_ramp")
      for array, width in (("v", 2), ("v", 13), ("a", "((1, 2), (3, 0))"), ("v[:1]", 2), ("b", 1))),
    "np.pad(v, 2, 'reflect', reflect_type='odd')", "np.pad(e, 1, 'edge')",
    "np.pad(e, ((1, 1), (0, 0)))",
    "np.pad(v, 2, 'edge', constant_values=1)", "np.pad(a, 1, 'empty').shape", "np.pad(s, 1)",
    "np.pad(v, 3, 'maximum', stat_length=2)", "np.pad(v, 1, lambda x, *_: x)",
    "np.tile(v, 2)", "np.tile(a, (2, 3))", "np.tile(v, (2, 2))", "np.tile(a, 0)", "np.tile(s, 3)",
    "np.tile(a, (2, 1, 2))", "np.tile(v, ())", "np.tile(e, 2)", "np.tile(v, 1)", "np.tile(v, -1)",
    "np.repeat(v, 2)", "np.repeat(a, 2, axis=0)", "np.repeat(a, 3, axis=1)", "np.repeat(v, -1)",
    "np.repeat(v, [1, 2, 0, 1, 3])", "np.repeat(a, [1, 2, 0], axis=0)", "np.repeat(v, [1, 2])",
    "np.repeat(3, 4)", "np.repeat(a, 2, 5)", "np.repeat(v, 0)", "np.repeat(v, 1.5)",
    "np.atleast_1d(s, v)", "np.atleast_2d(v)", "np.atleast_3d(a)", "np.atleast_3d(v, s)",
    "np.atleast_1d(3)", "np.atleast_2d(b)",
    "np.append(v, 7)", "np.append(a, a, 0)", "np.append(a, v)", "np.append(a, v, 0)",
    "np.insert(v, 2, 9)", "np.insert(a, 1, 5, axis=0)", "np.insert(a, 1, [1, 2, 3], axis=1)",
    "np.insert(v, [1, 3], 9)", "np.insert(v, 9, 1)", "np.insert(a, -1, 7)",
    "np.insert(v, 1, [7, 8])",
    "np.insert(v, slice(0, 2), 1)", "np.insert(v, m, 1)", "np.insert(v, 5, 2.7)",
    "np.insert(a, 0, [[1], [2], [3]], axis=1)",
    "np.delete(v, 1)", "np.delete(a, 1, 0)", "np.delete(a, [0, 2], 1)", "np.delete(v, slice(1, 3))",
    "np.delete(v, 9)", "np.delete(a, 5)", "np.delete(v, [])",
    "np.delete(v, [True] * 2 + [False] * 3)",
    "np.resize(v, (2, 4))", "np.resize(v, 3)", "np.resize(e, (2, 2))", "np.resize(a, ())",
    "np.resize(v, -1)",
    "np.trim_zeros(v)", "np.unique(np.concatenate([v, v]))", "np.unique(v, return_counts=True)",
    "np.sort(np.unique_values(v))", "np.unique_counts(v)", "np.union1d(v, r)", "np.isin(v, [1, 2])",
    "np.shape(a)", "np.shape([[1, 2]])", "np.ndim(a)", "np.ndim(3)", "np.size(a)", "np.size(a, 1)",
    "np.size([1, 2])", "np.size(a, (0, 1))", "np.astype(v, float)", "np.astype([1], float)",
    "np.apply_along_axis(sum, 0, a)", "np.vectorize(lambda x: x + 1)(v)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, **VALUES)


@settings(max_examples=80, deadline=None)
@given(arrays(min_dims=1), st.data())
def test_rearranged(array: numpy.ndarray, data: Any) -> None:
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    shift = data.draw(st.integers(-9, 9))
    agree("roll", array, shift, axis)
    agree("roll", array, shift)
    agree("flip", array, axis)
    agree("moveaxis", array, axis, 0)
    agree("repeat", array, 2, axis)
    agree("tile", array, (2, 1))
    agree("concatenate", [array, array[::-1]], 0)
    agree("stack", [array, array], axis)
    agree("ravel", array)
    agree("delete", array, data.draw(st.integers(-5, 4)), axis)


@settings(max_examples=60, deadline=None)
@given(
    arrays(min_dims=1, max_dims=2),
    st.sampled_from(["constant", "edge", "wrap", "reflect", "symmetric"]),
    st.integers(0, 7), st.integers(0, 7),
)
def test_pad(array: numpy.ndarray, mode: str, before: int, after: int) -> None:
    agree("pad", array, (before, after), mode)


@settings(max_examples=50, deadline=None)
@given(st.lists(arrays(shape=(2, 3)), min_size=1, max_size=4), st.sampled_from([0, 1, None]))
def test_joined(parts: list[numpy.ndarray], axis: int | None) -> None:
    agree("concatenate", parts, axis)
    agree("vstack", parts)
    agree("hstack", parts)
    agree("dstack", parts)


def test_views_alias() -> None:
    array = tiledarray.zeros((2, 3))
    for view in (tiledarray.flip(array, 1), tiledarray.rot90(array), tiledarray.transpose(array),
                 tiledarray.reshape(array, -1), tiledarray.moveaxis(array, 0, 1),
                 tiledarray.expand_dims(array, 0), tiledarray.split(array, 2)[1]):
        view[...] = view + 1
    assert array.tolist() == [[6, 6, 6], [7, 7, 7]]


def test_broadcast_to_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        tiledarray.broadcast_to(tiledarray.zeros(3), (2, 3))[0] = 1


def test_numpy_functions_find_ours() -> None:
    array = tiledarray.arange(3.0)
    assert isinstance(numpy.concatenate([array, array]), tiledarray.TiledArray)
    assert isinstance(numpy.pad(array, 1), tiledarray.TiledArray)
    assert numpy.stack([array, numpy.ones(3)]).tolist() == [[0, 1, 2], [1, 1, 1]]


@pytest.mark.parametrize("at_once", [0, 524288])
def test_a_block_of_one_array_is_new(at_once):
    with config.override(at_once=at_once):
        x = tiledarray.arange(4.0)
        for made in (tiledarray.block(x), tiledarray.block([x]), tiledarray.block([[x]])):
            made += 1
        assert x.tolist() == [0, 1, 2, 3]
