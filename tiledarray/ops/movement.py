"""Views, reshapes, updates, sources and leaves: the ops that compute nothing or next to nothing."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tiledarray.ops.op import AxisView, Item, Leaf, Library, Reshape, Source, Update


def strided_view(
    array: Any, axes: tuple[int, ...], steps: tuple[int, ...], starts: tuple[int, ...],
    shape: tuple[int, ...],
) -> Any:
    """Return the view of ``array`` that an `AxisView` with these attributes describes."""
    if 0 in shape:
        return np.empty_like(array, shape=shape)
    strides = [0] * len(shape)
    for axis, step, stride in zip(axes, steps, array.strides, strict=True):
        if axis >= 0:
            strides[axis] += step * stride
    if type(array) is np.ndarray and array.dtype.kind in "biufc" and array.flags.c_contiguous:
        offset = sum(map(operator.mul, starts, array.strides))  # ten times quicker than the tricks
        return np.ndarray(shape, array.dtype, array, offset, tuple(strides))
    corner = array[(*(slice(start, None) for start in starts), ...)]  # a view without axes, too
    return _stride_tricks(array).as_strided(corner, shape=shape, strides=tuple(strides))


def _stride_tricks(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks
    import cupy

    return cupy.lib.stride_tricks


def _view(xp: Any, array: Any, *starts: int, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, steps = attrs
    return strided_view(array, axes, steps, starts, shape)


def _reshape(xp: Any, array: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    return array.reshape(shape)


def _update(xp: Any, old: Any, new: Any, *starts: int, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, steps, region = attrs
    result = xp.array(old, copy=True)
    strided_view(result, axes, steps, starts, region)[...] = new
    return result


def _full(xp: Any, value: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    return xp.full(shape, value, dtype)


def _empty(xp: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    return xp.empty(shape, dtype)


def _iota(
    xp: Any, start: Any = 0, step: Any = 1, *, attrs: Any, shape: Any, dtype: Any
) -> Any:
    loop = attrs[0]
    index = xp.arange(shape[0]).astype(loop)
    return (index * xp.asarray(step, loop) + xp.asarray(start, loop)).astype(dtype)


def _item(xp: Any, outputs: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    return outputs[attrs]


def _leaf(xp: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    raise AssertionError("a leaf has its value already")


def _placeholder(xp: Any, *, attrs: Any, shape: Any, dtype: Any) -> Any:
    raise TypeError(
        "this array was made while tiledarray.jit recorded a function, and has no value outside it"
    )


def _opaque(xp: Any, *inputs: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    raise AssertionError("NumPy has computed it")


leaf = Leaf("leaf", _leaf)
# A value that NumPy has computed from the inputs; `attrs` is the name of the function.
opaque = Library("opaque", _opaque)
# A leaf without a value: what a traced function is given in place of an array.
placeholder = Leaf("placeholder", _placeholder)
view = AxisView("view", _view, vjp=("unview(g, inputs, attrs)",))
# The attrs of a reshape that says of a value without axes that it is an array, not a scalar.
AN_ARRAY = "an array"
reshape = Reshape("reshape", _reshape, vjp=("g.reshape(x.shape)",))
update = Update("update", _update, vjp=("kept_by(g, inputs, attrs)", "view_of(g, inputs, attrs)"))
full = Source("full", _full)
empty = Source("empty", _empty)
iota = Source("iota", _iota)
item = Item("item", _item)
