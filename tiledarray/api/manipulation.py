"""Rearranging arrays: views where NumPy has views."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    handle_of,
    host,
    is_ours,
    normalize_axis_index,
    normalize_axis_tuple,
    refuse,
    shape_of,
)
from tiledarray.api.blocks import padded, rolled
from tiledarray.api.joining import concatenate, from_runs, moved_to
from tiledarray.api.registry import implements
from tiledarray.arrays.handle import Handle, any_keeps, array_of, view_of, wrap
from tiledarray.arrays.index import MOST_AXES
from tiledarray.arrays.views import Frozen
from tiledarray.arrays.views import broadcast as broadcast_step
from tiledarray.graph.dtypes import broadcast
from tiledarray.recording import record

__all__ = [
    "reshape", "ravel", "transpose", "matrix_transpose", "moveaxis", "swapaxes", "rollaxis",
    "squeeze", "expand_dims", "broadcast_to", "broadcast_arrays", "array_split", "split",
    "hsplit", "vsplit", "dsplit", "unstack", "flip", "flipud", "fliplr", "rot90", "roll", "pad",
    "tile", "repeat", "resize", "block", "shape", "ndim", "size", "astype", "trim_zeros",
]

# Shape and order of axes ------------------------------------------------------------------------


@implements(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> TiledArray:
    array = handle_of(a)
    if copy:
        array = array.copy()
    wanted = host(shape)
    wanted = tuple(wanted) if isinstance(wanted, np.ndarray) and wanted.ndim else wanted
    result = array.reshape(wanted, order=order)
    if copy is False and result.base is None and result is not array:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return result


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> TiledArray:
    return handle_of(a).ravel(order)


@implements(np.transpose)
def transpose(a: Any, axes: Any = None) -> TiledArray:
    array = handle_of(a)
    return array.transpose() if axes is None else array.transpose(tuple(axes))


@implements(np.matrix_transpose)
def matrix_transpose(x: Any, /) -> TiledArray:
    array = handle_of(x)
    if array.ndim < 2:
        raise ValueError(
            f"Input array must be at least 2-dimensional, but it is {array.ndim}"
        )
    return array.swapaxes(-1, -2)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> TiledArray:
    array = handle_of(a)
    sources = normalize_axis_tuple(source, array.ndim, "source")
    targets = normalize_axis_tuple(destination, array.ndim, "destination")
    if len(sources) != len(targets):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [axis for axis in range(array.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return array.transpose(order)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> TiledArray:
    return handle_of(a).swapaxes(axis1, axis2)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> TiledArray:
    array = handle_of(a)
    ndim = array.ndim
    axis = normalize_axis_index(axis, ndim)
    first = start + ndim if start < 0 else start
    if not 0 <= first < ndim + 1:
        raise np.exceptions.AxisError(
            f"'start' arg requires {-ndim} <= start < {ndim + 1}, but {start} was passed in"
        )
    return moved_to(array, axis, first - 1 if axis < first else first)


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> TiledArray:
    return handle_of(a).squeeze(axis)


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> TiledArray:
    array = handle_of(a)
    places = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = array.ndim + len(places)
    if ndim > MOST_AXES:
        raise _too_many_axes(ndim)
    new = normalize_axis_tuple(places, ndim)
    return array[tuple(None if place in new else slice(None) for place in range(ndim))]


def _too_many_axes(ndim: int) -> ValueError:
    return ValueError(
        f"maximum supported dimension for an ndarray is currently {MOST_AXES}, found {ndim}"
    )


# Broadcasting -----------------------------------------------------------------------------------


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> TiledArray:
    source = handle_of(array)
    if np.ndim(shape) == 1 and len(shape) > MOST_AXES:
        raise _too_many_axes(len(shape))
    wanted = shape_of(shape)
    fits = len(wanted) >= source.ndim and all(
        size in (1, target)
        for size, target in zip(source.shape[::-1], wanted[::-1], strict=False)
    )
    if not fits:
        np.broadcast_to(np.broadcast_to(0, source.shape), wanted)  # raises, in NumPy's words
    return view_of(view_of(source, broadcast_step(source.shape, wanted)), Frozen())


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[TiledArray, ...]:
    arrays = arrays_of(*args)
    try:
        shape = broadcast(*(array.shape for array in arrays))
    except ValueError:
        np.broadcast_shapes(*(array.shape for array in arrays))
        raise
    return tuple(
        array if array.shape == shape else view_of(array, broadcast_step(array.shape, shape))
        for array in arrays
    )


# Splitting --------------------------------------------------------------------------------------


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[TiledArray]:
    array = handle_of(ary)
    size = array.shape[axis]
    sections = host(indices_or_sections)
    if np.ndim(sections):
        edges = [0, *(operator.index(edge) for edge in sections), size]
    else:
        count = int(sections)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(size, count)
        edges = [part * each + min(part, extra) for part in range(count + 1)]
    before = (slice(None),) * normalize_axis_index(axis, array.ndim)
    return [
        array[(*before, slice(start, stop))]
        for start, stop in pairwise(edges)
    ]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[TiledArray]:
    array = handle_of(ary)
    sections = host(indices_or_sections)
    if not np.ndim(sections) and array.shape[axis] % int(sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(array, sections, axis)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[TiledArray]:
    array = handle_of(ary)
    if array.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(array, indices_or_sections, 1 if array.ndim > 1 else 0)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[TiledArray]:
    array = handle_of(ary)
    if array.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(array, indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[TiledArray]:
    array = handle_of(ary)
    if array.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(array, indices_or_sections, 2)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> tuple[TiledArray, ...]:
    array = handle_of(x)
    if array.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    first = moved_to(array, normalize_axis_index(axis, array.ndim), 0)
    return tuple(first[place] for place in range(len(first)))


@implements(np.trim_zeros)
def trim_zeros(filt: Any, trim: Any = "fb", axis: Any = None) -> TiledArray:
    refuse(not is_ours(filt), "no array: NumPy returns what it was given")
    values = host(filt.copy())
    kept = np.trim_zeros(values, trim, axis)
    if not kept.size:
        return filt[tuple(slice(size) for size in kept.shape)]
    # Both lie in one dense memory: the distance says where the part begins.
    distance = (np.lib.array_utils.byte_bounds(kept)[0] -
                np.lib.array_utils.byte_bounds(values)[0]) // filt.itemsize
    starts = np.unravel_index(distance, values.shape)
    return filt[tuple(
        slice(int(start), int(start) + size)
        for start, size in zip(starts, kept.shape, strict=True)
    )]


# Turning and rolling ----------------------------------------------------------------------------


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> TiledArray:
    array = handle_of(m)
    axes = range(array.ndim) if axis is None else normalize_axis_tuple(axis, array.ndim)
    return array[tuple(
        slice(None, None, -1) if place in axes else slice(None) for place in range(array.ndim)
    )]


@implements(np.flipud)
def flipud(m: Any) -> TiledArray:
    array = handle_of(m)
    if array.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return array[::-1, ...]


@implements(np.fliplr)
def fliplr(m: Any) -> TiledArray:
    array = handle_of(m)
    if array.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return array[:, ::-1]


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> TiledArray:
    array = handle_of(m)
    axes = tuple(axes)
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == array.ndim:
        raise ValueError("Axes must be different.")
    if any(not -array.ndim <= axis < array.ndim for axis in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={array.ndim}.")
    k %= 4
    if k == 0:
        return array[:]
    if k == 2:
        return flip(array, axes)
    if k == 1:
        return flip(array, axes[1]).swapaxes(*axes)
    return flip(array.swapaxes(*axes), axes[1])


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> TiledArray:
    array = handle_of(a)
    shift = host(shift)
    if axis is None:
        if array.ndim == 1:
            return roll(array, shift, 0)
        return roll(array.reshape(-1), shift, 0).reshape(array.shape)
    axes = normalize_axis_tuple(axis, array.ndim, allow_duplicate=True)
    shifts, places = np.broadcast_arrays(shift, axes)
    if shifts.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    totals: dict[int, int] = {}
    for by, place in zip(shifts.flat, places.flat, strict=True):
        totals[int(place)] = totals.get(int(place), 0) + int(by)
    return from_runs(array, {
        place: rolled(array.shape[place], by) for place, by in totals.items()
    })


# Padding, tiling, repeating -------------------------------------------------------------------


_PADS_BY_INDEX = frozenset(("edge", "wrap", "reflect", "symmetric"))


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> TiledArray:
    source = handle_of(array)
    widths = host(pad_width)
    # NumPy checks the widths and the options, and says what the result's shape is.
    widths = _pad_widths(source, widths)
    if mode == "constant" and set(kwargs) <= {"constant_values"}:
        refuse(any_keeps(list(kwargs.values())), "values with a history")
        return _pad_constant(source, widths, host(kwargs.get("constant_values", 0)))
    refuse(
        mode not in _PADS_BY_INDEX or kwargs.get("reflect_type", "even") != "even",
        "an unusual mode",
    )
    refuse(0 in source.shape or set(kwargs) - {"reflect_type"}, "an empty array, or options")
    return from_runs(source, {
        axis: padded(source.shape[axis], *width, mode)
        for axis, width in enumerate(widths) if width != (0, 0)
    })


def _pad_widths(source: TiledArray, widths: Any) -> list[tuple[int, int]]:
    """Return how much to pad before and after each axis."""
    if type(widths) is int and widths >= 0:
        return [(widths, widths)] * source.ndim
    if isinstance(widths, dict):
        table = [(0, 0)] * source.ndim
        for axis, width in widths.items():
            table[axis] = tuple(np.broadcast_to(width, 2).tolist())
        widths = table
    found = np.asarray(widths)
    if found.dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    if found.size and found.min() < 0:
        raise ValueError("index can't contain negative values")
    return [(int(before), int(after)) for before, after in np.broadcast_to(found, (source.ndim, 2))]


def _pad_constant(source: TiledArray, widths: Any, values: Any) -> TiledArray:
    values = _filling(values, source.ndim, source.dtype)
    shape = tuple([
        size + before + after
        for size, (before, after) in zip(source.shape, widths, strict=True)
    ])
    first = values.flat[0].item() if values.size else 0
    result = wrap(record.full(shape, first, source.dtype, source.device))
    if values.strides != (0, 0) and not (values == first).all():
        # The sides of a later axis lie over those of the earlier ones.
        for axis, (before, after) in enumerate(widths):
            around = (slice(None),) * axis
            result[(*around, slice(0, before))] = values[axis, 0].item()
            result[(*around, slice(shape[axis] - after, None))] = values[axis, 1].item()
    result[tuple(
        slice(before, before + size)
        for size, (before, _) in zip(source.shape, widths, strict=True)
    )] = source
    return result


def _filling(values: Any, ndim: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return what is filled in before and after each axis."""
    if type(values) is int and values == 0 and dtype.kind in "biufc":
        return np.ndarray((ndim, 2), dtype, np.zeros(1, dtype), 0, (0, 0))
    given = np.broadcast_to(np.asarray(values), (ndim, 2))
    filling = np.empty((ndim, 2), dtype)
    for place in np.ndindex(filling.shape):
        filling[*place, ...] = given[place]  # one by one: NumPy says whether each may be written
    return filling


@implements(np.tile)
def tile(A: Any, reps: Any) -> TiledArray:  # noqa: N803  NumPy's name
    array = handle_of(A)
    given = host(reps)
    counts = tuple(given) if np.iterable(given) else (given,)
    refuse(
        not all(hasattr(count, "__index__") and count >= 0 for count in counts),
        "repeats that NumPy may refuse",
    )
    counts = tuple(map(int, counts))
    ndim = max(len(counts), array.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    sizes = (1,) * (ndim - array.ndim) + array.shape
    if all(count == 1 for count in counts):
        return array_of(array.reshape(sizes).node)
    spread = tuple(part for pair in zip(counts, sizes, strict=True) for part in pair)
    held = record.reshape(array.node, tuple(part for size in sizes for part in (1, size)))
    shape = tuple(count * size for count, size in zip(counts, sizes, strict=True))
    return wrap(record.reshape(record.broadcast_to(held, spread), shape))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> TiledArray:
    array = handle_of(a)
    if axis is None or array.ndim == 0:
        array, axis = array.reshape(-1), 0 if axis is None else axis
    axis = normalize_axis_index(axis, array.ndim)
    counts = np.asarray(host(repeats))
    refuse(counts.dtype.kind not in "biu", "repeats that are not integers")
    if counts.size != 1:
        index = np.repeat(np.arange(array.shape[axis]), counts)
        return array[(*(slice(None),) * axis, index)]
    count = int(counts.flat[0])
    if count < 0 and array.shape[axis]:
        raise ValueError("negative dimensions are not allowed")
    count = max(count, 0)
    before, size, after = array.shape[:axis], array.shape[axis], array.shape[axis + 1:]
    held = record.expand_dims(array.node, (axis + 1,))
    spread = record.broadcast_to(held, (*before, size, count, *after))
    return wrap(record.reshape(spread, (*before, size * count, *after)))


@implements(np.resize, "library")
def resize(a: Any, new_shape: Any) -> TiledArray:
    refuse(np.any(np.asarray(host(new_shape)) < 0), "a negative length")
    array = handle_of(a).reshape(-1)
    shape = shape_of(new_shape)
    size = int(np.prod(shape, dtype=object)) if shape else 1
    if array.size == 0:
        return wrap(record.full(shape, 0, array.dtype, array.device))
    copies = -(-size // array.size)
    joined = tile(array, copies) if copies != 1 else array
    return array_of(joined[:size].reshape(shape).node)


@implements(np.block)
def block(arrays: Any) -> TiledArray:
    depth = _depth(arrays)
    refuse(depth is None, "not nested lists")
    rows, ndim = _block_parts(arrays, depth)
    result_ndim = max(depth, ndim)
    result = _joined(rows, depth, result_ndim)
    return result if depth else result.copy()


def _depth(arrays: Any) -> Any:
    """Return how deep the lists go, ``None`` if that is not the same everywhere."""
    if not isinstance(arrays, list):
        return None if isinstance(arrays, tuple) else 0
    depths = {_depth(part) for part in arrays}
    return depths.pop() + 1 if len(depths) == 1 and None not in depths else None


def _block_parts(arrays: Any, depth: int) -> tuple[Any, int]:
    if depth == 0:
        array = handle_of(arrays)
        return array, array.ndim
    found = [_block_parts(part, depth - 1) for part in arrays]
    return [part for part, _ in found], max(ndim for _, ndim in found)


def _joined(parts: Any, depth: int, ndim: int) -> TiledArray:
    if is_ours(parts):
        return parts.reshape((1,) * (ndim - parts.ndim) + parts.shape)
    return concatenate([_joined(part, depth - 1, ndim) for part in parts], -depth)


# What an array is -------------------------------------------------------------------------------


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    return a.shape if is_ours(a) else np.shape(host(a))


@implements(np.ndim)
def ndim(a: Any) -> int:
    return a.ndim if is_ours(a) else np.ndim(host(a))


@implements(np.size)
def size(a: Any, axis: Any = None) -> int:
    if not is_ours(a):
        return np.size(host(a), axis)
    if axis is None:
        return a.size
    axes = axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([a.shape[place] for place in axes], dtype=int))


@implements(np.astype)
def astype(
    x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None
) -> TiledArray:
    if not isinstance(x, (Handle, np.ndarray, np.generic)):
        raise TypeError(f"Input should be a NumPy array or scalar. It is a {type(x)} instead.")
    array = handle_of(x)
    if device is not None:
        array = array.to(device)
    return array.astype(dtype, copy=copy)


