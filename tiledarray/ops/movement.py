"""Views, reshapes, updates, sources and leaves: the ops that compute nothing or next to nothing."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.ops.op import AxisView, Item, Leaf, Library, Reshape, Source, Strided, Update

Terms = tuple[tuple[tuple[int, int], ...], ...]


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


def overlapping_view(
    array: Any, terms: Terms, starts: Sequence[int], shape: tuple[int, ...]
) -> Any:
    """Return the view of ``array`` that `windows` with these attributes describes."""
    strides = strides_along(terms, array.strides, len(shape))
    corner = array[(*(slice(start, None) for start in starts), ...)]
    return _stride_tricks(array).as_strided(corner, shape=shape, strides=strides)


def strides_along(terms: Terms, strides: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the strides of the axes of `windows`, from those of the array."""
    along = [0] * rank
    for dimension, stride in zip(terms, strides, strict=True):
        for axis, step in dimension:
            along[axis] += step * stride
    return tuple(along)


def _stride_tricks(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks
    import cupy

    return cupy.lib.stride_tricks


def _view(xp: Any, array: Any, *starts: int, attrs: Any, shape: Any, dtype: Any) -> Any:
    axes, steps = attrs
    return strided_view(array, axes, steps, starts, shape)


def _windows(xp: Any, array: Any, *starts: int, attrs: Any, shape: Any, dtype: Any) -> Any:
    if not math.prod(shape):
        return xp.empty(shape, dtype)
    return overlapping_view(array, attrs, starts, shape)


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


_COUNTED = frozenset(map(np.dtype, "qd"))  # which hold all numbers of elements


def _iota(
    xp: Any, start: Any = 0, step: Any = 1, *, attrs: Any, shape: Any, dtype: Any
) -> Any:
    loop = np.dtype(attrs[0])
    if loop in _COUNTED:
        index = xp.arange(shape[0], dtype=loop)
    else:
        index = xp.arange(shape[0]).astype(loop)
    if step != 1:
        index *= xp.asarray(step, loop)
    if step != 1 or start != 0:  # 0 * -1 + 0 is 0
        index += xp.asarray(start, loop)
    return index.astype(dtype, copy=False)


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
# A view whose dimensions follow several axes each, as those of windows that slide do.  `inputs` are
# those of a `view`, `attrs` the (axis, step) pairs of each dimension of the array, which is read at
# its start plus the sum of ``step * index[axis]``: elements may be met again.
windows = Library("windows", _windows, vjp=("overlapped(g, inputs, attrs)",),
                  batch="windows_of_each(call)")
strided = Strided("strided", _windows)
# The attrs of a reshape that says of a value without axes that it is an array, not a scalar.
AN_ARRAY = "an array"
reshape = Reshape("reshape", _reshape, vjp=("g.reshape(x.shape)",))
update = Update("update", _update, vjp=("kept_by(g, inputs, attrs)", "view_of(g, inputs, attrs)"))
full = Source("full", _full)
empty = Source("empty", _empty)
iota = Source("iota", _iota)
item = Item("item", _item)
