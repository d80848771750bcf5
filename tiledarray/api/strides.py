"""Views by where their elements lie in memory, and which arrays share it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    handle_of,
    host,
    is_ours,
    normalize_axis_tuple,
    refuse,
)
from tiledarray.api.registry import implements
from tiledarray.arrays.handle import follow, view_of
from tiledarray.arrays.views import (
    Frozen,
    Reinterpreted,
    Reshaped,
    dense_strides,
    on_array,
    permutation,
    sliding,
    strided,
)
from tiledarray.core import is_lent

__all__ = ["isfortran", "shares_memory", "may_share_memory"]


@implements(np.isfortran, "host")
def isfortran(a: Any) -> bool:
    return bool(a.flags.fnc) if is_ours(a) else np.isfortran(host(a))


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> TiledArray:
    source = handle_of(x)
    stand_in = np.broadcast_to(False, source.shape)
    shape = np.lib.stride_tricks.sliding_window_view(stand_in, window_shape, axis).shape
    along = range(source.ndim) if axis is None else normalize_axis_tuple(
        axis, source.ndim, allow_duplicate=True)
    source = source if writeable else view_of(source, Frozen())
    return view_of(source, sliding(source.shape, shape, along))


@implements(np.lib.stride_tricks.as_strided)
def as_strided(
    x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True
) -> Any:
    """Make a view with given strides of an array, which reaches no further than its memory.

    That is the memory of the array that ``x`` is a view of.  Where elements would lie across
    elements it is NumPy's array.

    Raises
    ------
    ValueError
        If it would reach further, where NumPy reads what lies there.
    """
    refuse(not is_ours(x), "NumPy's array lies in memory")
    shape = x.shape if shape is None else tuple(host(shape))
    strides = x.strides if strides is None else tuple(host(strides))
    shape, counts, low, high = _laid(shape, strides, x.itemsize)
    if counts is None:
        return np.lib.stride_tricks.as_strided(np.asarray(x), shape, strides, writeable=writeable)
    source = x if writeable else view_of(x, Frozen())
    if 0 in shape:
        return view_of(source.reshape(-1)[:0], Reshaped(shape))
    memory, start = _memory(source)
    size = memory.size
    if low + start < 0 or high + start >= size:
        raise ValueError(
            f"as_strided would reach from element {low} to {high} of the memory that begins with "
            f"the array: there are {start} elements before it, and {size - start} from it on")
    return follow(memory, strided(size, start, shape, counts))


@lru_cache(maxsize=1024)
def _laid(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None, int, int]:
    """Return shape and strides in elements, and how far they reach to both sides."""
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, f"V{itemsize}"), shape, strides)
    if any(stride % itemsize for stride in stand_in.strides):
        return stand_in.shape, None, 0, 0
    counts = tuple(stride // itemsize for stride in stand_in.strides)
    ends = [count * (length - 1) for count, length in zip(counts, stand_in.shape, strict=True)]
    return (stand_in.shape, counts, sum(end for end in ends if end < 0),
            sum(end for end in ends if end > 0))


def _memory(x: Any) -> tuple[Any, int]:
    """Return the memory that ``x`` lies in, as a vector of its dtype, and where ``x`` begins."""
    base, steps = x.origin(), x.steps
    if len(steps) > 1 or (steps and not isinstance(steps[0], Reshaped)):
        blank = np.empty(base.shape, base.dtype)  # nothing reads it
        place = on_array(blank, steps)
        if place.strides != x.strides:  # an argument of a function whose gradient is asked for
            return _in_order(x), 0
        start = (place.ctypes.data - blank.ctypes.data) // x.itemsize
    else:
        start = 0
    memory = follow(base, [step for step in steps if isinstance(step, Frozen)])
    if memory.ndim != 1:
        memory = view_of(memory, Reshaped((memory.size,)))
    if x.dtype != base.dtype:
        length = base.nbytes // x.itemsize
        memory = view_of(memory, Reinterpreted((length,), x.dtype))
    return memory, start


def _in_order(x: Any) -> Any:
    """Return the elements of an array in the order in which they are said to lie in memory."""
    order = sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))
    turned = view_of(x, permutation(x.shape, order))
    if turned.strides != dense_strides(turned.shape, x.itemsize):
        raise ValueError("as_strided takes no argument that lies apart in memory here: copy it")
    return view_of(turned, Reshaped((x.size,)))


def _sharing(original: Any) -> Any:
    def ours(a: Any, b: Any, /, max_work: Any = None) -> bool:
        if not (is_ours(a) or is_ours(b)):
            return original(a, b, max_work)
        if not (is_ours(a) and is_ours(b)):
            # Whoever has an array's memory got it from `asarray`, and the array is settled.
            lent = is_lent(a if is_ours(a) else b)
            return lent and original(np.asarray(a), np.asarray(b), max_work)
        if _root(a) is not _root(b):
            return False
        # NumPy compares the same views of an array whose elements nobody touches.
        memory = np.empty(_root(a).shape, _root(a).dtype)
        return original(*(on_array(memory, x.steps) for x in (a, b)), max_work)

    return implements(original)(ours)


def _root(array: TiledArray) -> TiledArray:
    return array if array.base is None else array.base


shares_memory = _sharing(np.shares_memory)
may_share_memory = _sharing(np.may_share_memory)
