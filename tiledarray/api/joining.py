"""Joining arrays, and leaving parts of them out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    check_with_numpy,
    common_dtype,
    device_of,
    give,
    handle_of,
    host,
    is_ours,
    normalize_axis_index,
    refuse,
)
from tiledarray.api.blocks import (
    MOST_REGIONS,
    Run,
    assemble,
    count_regions,
    runs_of,
    without,
)
from tiledarray.api.registry import implements
from tiledarray.arrays.handle import Handle, array_of, as_dtype, wrap
from tiledarray.graph.dtypes import Shape
from tiledarray.recording import record
from tiledarray.recording.join import join_nodes, stack_nodes

__all__ = [
    "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack", "atleast_1d",
    "atleast_2d", "atleast_3d", "append", "insert", "delete",
]


def _parts(arrays: Any) -> list[TiledArray]:
    if is_ours(arrays):
        return [arrays[place] for place in range(len(arrays))]
    refuse(not isinstance(arrays, (list, tuple)), "arrays in something else than a list")
    return arrays_of(*arrays)


def _result_dtype(parts: Sequence[Any], dtype: Any, casting: Any, out: Any) -> np.dtype[Any]:
    found = common_dtype(parts) if dtype is None else as_dtype(dtype)
    if out is not None:
        refuse(dtype is not None, "out= and dtype= together")
        refuse(not isinstance(out, (Handle, np.ndarray)), "out= is no array")
        found = out.dtype
    for part in parts:
        refuse(not np.can_cast(part.dtype, found, casting), "casting= does not allow it")
    refuse(not found.isnative or found.kind not in "biufc", "strings, times or objects")
    return found


def _shapes_match(shapes: Sequence[Shape], axis: int) -> bool:
    first = shapes[0]
    if not all(len(shape) == len(first) for shape in shapes) or not first:
        return False
    rest = first[:axis] + first[axis + 1:]
    return all(shape[:axis] + shape[axis + 1:] == rest for shape in shapes)


@implements(np.concatenate)
def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> TiledArray:
    parts = _parts(arrays)
    if axis is None:
        parts = [part.reshape(-1) for part in parts]
        axis = 0
    if not parts or not _shapes_match([part.shape for part in parts], operator.index(axis)):
        axis = _checked_axis(parts, axis)
    axis = normalize_axis_index(axis, parts[0].ndim)
    wanted = _result_dtype(parts, dtype, casting, out)
    nodes = [part.node for part in parts]
    return give(wrap(join_nodes(nodes, axis, wanted, nodes[0].device)), out)


def _checked_axis(parts: Sequence[Any], axis: Any) -> int:
    """Return the axis, or raise what NumPy's concatenate raises for these shapes."""
    if parts and parts[0].ndim:
        axis = normalize_axis_index(axis, parts[0].ndim)
        if _shapes_match([part.shape for part in parts], axis):
            return axis
    check_with_numpy(lambda *samples: np.concatenate(samples, axis), *parts)
    return axis


@implements(np.stack)
def stack(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> TiledArray:
    parts = _parts(arrays)
    if not parts:
        raise ValueError("need at least one array to stack")
    if any(part.shape != parts[0].shape for part in parts):
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, parts[0].ndim + 1)
    wanted = _result_dtype(parts, dtype, casting, out)
    nodes = [part.node for part in parts]
    return give(wrap(stack_nodes(nodes, axis, wanted, nodes[0].device)), out)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> TiledArray:
    parts = [atleast_2d(part) for part in _parts(tup)]
    return concatenate(parts, 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> TiledArray:
    parts = [atleast_1d(part) for part in _parts(tup)]
    axis = 0 if parts and parts[0].ndim == 1 else 1
    return concatenate(parts, axis, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> TiledArray:
    return concatenate([atleast_3d(part) for part in _parts(tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> TiledArray:
    parts = [part.reshape(-1, 1) if part.ndim < 2 else part for part in _parts(tup)]
    return concatenate(parts, 1)


def _at_least(function: Any, grow: Any) -> Any:
    def ours(*arys: Any) -> Any:
        results = [grow(array) for array in arrays_of(*arys)]
        return results[0] if len(results) == 1 else tuple(results)

    return implements(function)(ours)


def _grow_3d(array: TiledArray) -> TiledArray:
    if array.ndim < 2:
        return array.reshape(1, -1, 1)
    return array[..., None] if array.ndim == 2 else array


atleast_1d = _at_least(np.atleast_1d, lambda array: array if array.ndim else array.reshape(1))
atleast_2d = _at_least(
    np.atleast_2d, lambda array: array if array.ndim > 1 else array.reshape(1, -1)
)
atleast_3d = _at_least(np.atleast_3d, _grow_3d)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> TiledArray:
    array, more = arrays_of(arr, values)
    return concatenate((array, more), axis)


@implements(np.insert, "library")
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> TiledArray:
    array = handle_of(arr, device_of(arr, values))
    # One place; NumPy's rules for several are its own.
    refuse(
        not isinstance(obj, (int, np.integer)) or isinstance(obj, bool),
        "the places are an array",
    )
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = normalize_axis_index(axis, array.ndim)
    size = array.shape[axis]
    if not -size <= obj <= size:
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {size}")
    place = int(obj) + (size if obj < 0 else 0)
    # NumPy says whether other values fit the dtype.
    new = values if is_ours(values) else handle_of(
        np.array(host(values), array.dtype), array.device)
    new = new.astype(array.dtype)
    if new.ndim < array.ndim:
        new = new.reshape((1,) * (array.ndim - new.ndim) + new.shape)
    new = moved_to(new, 0, axis)
    block = (*array.shape[:axis], new.shape[axis], *array.shape[axis + 1:])
    before = (slice(None),) * axis
    node = record.broadcast_to(new.node, block) if _fits(new.shape, block) else None
    refuse(node is None, "values that do not go in as they are")
    parts = [array[(*before, slice(place))].node, node, array[(*before, slice(place, None))].node]
    return wrap(join_nodes(parts, axis, array.dtype, parts[0].device))


def _fits(shape: Shape, wanted: Shape) -> bool:
    return all(
        size in (1, target) for size, target in zip(shape, wanted, strict=True)
    ) and len(shape) == len(wanted)


def moved_to(array: TiledArray, source: int, destination: int) -> TiledArray:
    """Return the array with one axis moved."""
    order = [axis for axis in range(array.ndim) if axis != source]
    order.insert(destination, source)
    return array.transpose(order)


@implements(np.delete, "library")
def delete(arr: Any, obj: Any, axis: Any = None) -> TiledArray:
    array = handle_of(arr)
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = normalize_axis_index(axis, array.ndim)
    size = array.shape[axis]
    if type(obj) is int and -size <= obj < size:
        return from_runs(array, {axis: without(size, obj % size)})
    kept = np.delete(np.arange(size), np.asarray(obj) if isinstance(obj, Handle) else obj)
    runs = runs_of(kept)
    if len(runs) > MOST_REGIONS:
        return array[(*(slice(None),) * axis, kept)]
    return from_runs(array, {axis: runs})


def from_runs(array: TiledArray, runs: dict[int, list[Run]]) -> TiledArray:
    """Return the elements that the runs of some axes name, put together from views."""
    every = [
        runs[axis] if axis in runs else [Run(0, size, 0, 1)]
        for axis, size in enumerate(array.shape)
    ]
    if count_regions(every) <= MOST_REGIONS or len(runs) == 1:
        return array_of(assemble(array.node, every))
    for axis, axis_runs in runs.items():
        array = from_runs(array, {axis: axis_runs})
    return array
