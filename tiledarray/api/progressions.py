"""Progressions and grids: `arange`, `linspace`, `meshgrid` and their like, recorded."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    device_of,
    handle_of,
    host,
    refuse,
    stand_in,
)
from tiledarray.api.creation import device_for, filled, numeric, of_values
from tiledarray.api.registry import implements
from tiledarray.arrays import immediate
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    is_recorded,
    wrap,
)
from tiledarray.devices.device import resolve
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record

__all__ = [
    "arange", "linspace", "meshgrid", "indices", "fromfunction", "mgrid", "ogrid",
]

_WHERE = BY_NAME["where"]
_INT64 = np.iinfo(np.int64)


# Progressions -----------------------------------------------------------------------------------


_ENDS = (int, float, np.integer, np.floating)
_NUMBERS = {int, float}
_OR_NONE = {*_NUMBERS, type(None)}
FEW = 1 << 12  # points of a grid that NumPy makes at once


@implements(np.arange)
def arange(*limits: Any, device: Any = None, like: Any = None, **named: Any) -> TiledArray:
    target = device_for(device, like)
    start, stop, step, dtype = _limits(*limits, **named)
    start, stop = _plain(start), _plain(stop)
    step = 1 if step is None else _plain(step)
    ends = (start, stop, step)
    usable = all(isinstance(end, _ENDS) for end in ends) and step != 0 and all(
        math.isfinite(end) and abs(end) < 2**62 for end in ends
    )
    if not usable:
        return of_values(np.arange(start, stop, step, dtype=dtype), target)
    if dtype is None:
        dtype = np.arange(start, start, step).dtype
        dtype = np.promote_types(dtype, np.arange(stop, stop, step).dtype)
    return _arange(start, stop, step, numeric(dtype), target)


def _limits(
    start: Any = None, stop: Any = None, step: Any = 1, dtype: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Return start, stop, step and dtype: one limit alone is the stop."""
    if stop is None:
        start, stop = 0, start
    if stop is None:
        raise TypeError("arange() requires stop to be specified.")
    return 0 if start is None else start, stop, step, dtype


def _plain(value: Any) -> Any:
    return host(value)[()] if isinstance(value, Handle) else value


def _arange(
    start: Any, stop: Any, step: Any, dtype: np.dtype[Any], device: Any
) -> TiledArray:
    distance = stop - start
    ratio = distance / step
    count = math.ceil(ratio)
    if ratio == 0 and distance != 0:  # underflow
        count = 0 if math.copysign(1, ratio) < 0 else 1
    count = max(count, 0)
    refuse(dtype.kind == "b" or count > _INT64.max, "booleans, or too many elements")
    if dtype.kind == "u" and min(start, start + step) < 0:  # it may be an error
        return of_values(np.arange(start, stop, step, dtype=dtype), device)
    # NumPy rounds the first two elements to the dtype, and takes the step between them.
    first = np.zeros(2, dtype)
    loop = np.dtype(np.float32) if dtype == np.float16 else dtype
    with np.errstate(all="ignore"):
        if count > 0:
            first[0] = start
        if count > 1:
            first[1] = start + step
        delta = first[1].astype(loop) - first[0].astype(loop) if count > 1 else loop.type(0)
    begin, by = first[0].item(), delta.item()
    if not np.isfinite([begin, by]).all() or (begin == 0 and np.signbit(first[0].real)):
        # The first two elements do not follow from these.
        return of_values(np.arange(start, stop, step, dtype=dtype), device)
    refuse(dtype.kind == "u" and max(begin, by) > _INT64.max, "unsigned integers beyond int64")
    if dtype == np.int64 and begin == 0 and by == 1:
        return wrap(record.places(count, device))  # as indices are, of which a plan then knows
    return wrap(record.iota(count, begin, by, loop, dtype, device))


@implements(np.linspace)
def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:
    target = device_for(device, (start, stop))
    count = operator.index(num)
    if count < 0:
        raise ValueError(f"Number of samples, {count}, must be non-negative.")
    ends = (start, stop)
    if not all(type(end) in (int, float) or isinstance(end, (np.integer, np.floating))
               for end in ends):
        if is_recorded(ends):
            result, step = _between(ends, count, endpoint, dtype, axis)
            return (result, step) if retstep else result
        linspaced: Any = np.linspace
        found = linspaced(host(start), host(stop), count, endpoint, retstep, dtype, axis)
        values, step = found if retstep else (found, None)
        result = of_values(values, target)
        return (result, step) if retstep else result
    loop = np.linspace(start, stop, 0).dtype
    wanted = loop if dtype is None else numeric(dtype)
    result, step = _linspace(start, stop, count, endpoint, loop, wanted, target)
    return (result, step) if retstep else result


def _between(
    ends: tuple[Any, Any], count: int, endpoint: bool, dtype: Any, axis: int
) -> tuple[TiledArray, Any]:
    """Return `linspace` of ends that have a history or no values, and its step; NumPy's bits."""
    arrays = arrays_of(*ends)
    samples = [end if type(end) in SCALARS else stand_in(array)
               for end, array in zip(ends, arrays, strict=True)]
    loop = np.linspace(samples[0], samples[1], 0).dtype
    start, stop = (array.astype(loop, copy=False) for array in arrays)
    intervals = count - 1 if endpoint else count
    distance = stop - start
    parts = arange(count, dtype=loop).reshape(count, *(1,) * distance.ndim)
    if intervals > 0:
        step = distance / intervals
        underflows = (step == 0).any()
        result = np.where(underflows, parts / intervals * distance, parts * step) + start
    else:
        step, result = math.nan, parts * distance + start
    if endpoint and count > 1:
        result[-1] = stop
    wanted = loop if dtype is None else numeric(dtype)
    if wanted.kind in "iu":
        result = np.floor(result)
    return np.moveaxis(result.astype(wanted, copy=False), 0, axis), step


def _linspace(
    start: Any, stop: Any, count: int, endpoint: bool, loop: np.dtype[Any], wanted: np.dtype[Any],
    device: Any,
) -> tuple[TiledArray, Any]:
    refuse(loop.kind != "f" or loop.itemsize > 8, "neither float32 nor float64")
    intervals = count - 1 if endpoint else count
    with np.errstate(all="ignore"):
        distance = np.subtract(np.asarray(stop), np.asarray(start), dtype=loop)
        step = distance / intervals if intervals > 0 else loop.type(np.nan)
    refuse(intervals > 0 and step == 0 and distance != 0, "a step that underflows")
    by = step.item() if intervals > 0 else distance.item()
    begin = loop.type(start).item()
    node = record.iota(count, begin, by, loop, loop, device)
    if endpoint and count > 1:
        # The last element is `stop` itself; said so that it fuses with what reads it.
        place = record.places(count, device)
        last = record.binary(BY_NAME["equal"], place, count - 1)
        end = record.full((), loop.type(stop).item(), loop, device)
        node = record.elementwise(_WHERE, last, end, node)
    if wanted.kind in "iu":
        node = record.unary(BY_NAME["floor"], node)
    return wrap(record.cast(node, wanted)), step


# Grids ------------------------------------------------------------------------------------------


@implements(np.meshgrid)
def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[TiledArray, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    device = device_of(*xi)
    axes = [handle_of(x, device).reshape(-1) for x in xi]
    places = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        places[:2] = 1, 0
    shape = [0] * len(axes)
    for axis, place in zip(axes, places, strict=True):
        shape[place] = axis.shape[0]
    grids = []
    for axis, place in zip(axes, places, strict=True):
        others = tuple(other for other in range(len(axes)) if other != place)
        node = record.expand_dims(axis.node, others)
        grids.append(wrap(node if sparse else record.broadcast_to(node, tuple(shape))))
    return tuple(grids)


@implements(np.indices)
def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    shape = tuple(map(operator.index, dimensions))
    wanted = numeric(dtype)
    axes = [arange(size, dtype=wanted) for size in shape]
    grids = meshgrid(*axes, sparse=sparse, indexing="ij")
    if sparse:
        return grids
    if not grids:
        return filled((0,), 0, wanted, resolve())
    result = wrap(record.full((len(shape), *shape), 0, wanted, resolve()))
    for place, grid in enumerate(grids):
        result[place] = grid
    return result


@implements(np.fromfunction)
def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None,
    **kwargs: Any,
) -> Any:
    dimensions = tuple(map(operator.index, shape))
    wanted = numeric(dtype)
    axes = [arange(size, dtype=wanted) for size in dimensions]
    return function(*meshgrid(*axes, indexing="ij"), **kwargs)


class _OpenGrid:
    """`numpy.ogrid` and `numpy.mgrid`, made of `arange` and `linspace`."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse
        self._at_once = immediate.item(np.ogrid if sparse else np.mgrid, self._made)

    def __getitem__(self, key: Any) -> Any:
        """Return the grid of the slices; a step ``5j`` means five points, the stop included."""
        return (self._at_once if _points(key) <= FEW else self._made)(key)

    def _made(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return self._axis(key, None)
        if not key:
            return np.mgrid[key]
        dtype = np.result_type(*(_ends_dtype(part) for part in key))
        axes = [self._axis(part, dtype) for part in key]
        grids = meshgrid(*axes, sparse=self.sparse, indexing="ij")
        if self.sparse:
            return grids
        shape = (len(grids), *grids[0].shape)
        result = wrap(record.full(shape, 0, dtype, grids[0].device))
        for place, grid in enumerate(grids):
            result[place] = grid
        return result

    def _axis(self, part: slice, dtype: Any) -> TiledArray:
        start = 0 if part.start is None else part.start
        step = 1 if part.step is None else part.step
        if isinstance(step, complex):
            return linspace(start, part.stop, int(abs(step)), dtype=dtype)
        return arange(start, part.stop, step, dtype=dtype)


def _points(key: Any) -> float:
    """Return how many points a grid of slices between numbers has; infinite if not known."""
    points = 1.0
    for part in key if type(key) is tuple else (key,):
        if type(part) is not slice or not (
                type(part.stop) in _NUMBERS and {type(part.start), type(part.step)} <= _OR_NONE):
            return math.inf
        points *= max(0.0, (part.stop - (part.start or 0)) / (part.step or 1) + 1)
    return points


def _ends_dtype(part: slice) -> np.dtype[Any]:
    ends = [end for end in (part.start, part.stop, part.step) if end is not None]
    found = np.result_type(*(np.asarray(end) for end in ends if not isinstance(end, complex)))
    return np.result_type(found, float) if isinstance(part.step, complex) else found


mgrid = _OpenGrid(sparse=False)
ogrid = _OpenGrid(sparse=True)
