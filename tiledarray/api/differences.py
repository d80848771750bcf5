"""Differences, integrals and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api import ufuncs
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    handle_of,
    host,
    is_ours,
    normalize_axis_index,
    normalize_axis_tuple,
    refuse,
)
from tiledarray.api.indexing import where
from tiledarray.api.joining import concatenate, moved_to
from tiledarray.api.registry import implements
from tiledarray.arrays import reducing
from tiledarray.arrays.handle import any_keeps, wrap
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

__all__ = [
    "diff", "ediff1d", "gradient", "trapezoid", "cross", "unwrap", "interp", "convolve",
    "correlate",
]

_U = ufuncs.BY_NAME
_NO_VALUE = np._NoValue


@implements(np.diff)
def diff(
    a: Any, n: Any = 1, axis: int = -1, prepend: Any = _NO_VALUE, append: Any = _NO_VALUE
) -> TiledArray:
    if n == 0:
        return a
    if n < 0:
        raise ValueError("order must be non-negative but got " + repr(n))
    array = handle_of(a)
    if array.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis_index(axis, array.ndim)
    ends = [_end(end, array, axis) for end in (prepend, append)]
    if any(end is not None for end in ends):
        array = concatenate([part for part in (ends[0], array, ends[1]) if part is not None], axis)
    before = (slice(None),) * axis
    later, earlier = (*before, slice(1, None)), (*before, slice(None, -1))
    minus = _U["not_equal"] if array.dtype.kind == "b" else _U["subtract"]
    for _ in range(n):
        array = minus(array[later], array[earlier])
    return array


def _end(end: Any, array: TiledArray, axis: int) -> Any:
    if end is _NO_VALUE:
        return None
    part = handle_of(end, array.device)
    if part.ndim == 0:
        shape = (*array.shape[:axis], 1, *array.shape[axis + 1:])
        part = wrap(record.broadcast_to(part.node, shape))
    return part


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> TiledArray:
    array = handle_of(ary).reshape(-1)
    ends: list[Any] = [None, None]
    for place, extra in ((0, to_begin), (1, to_end)):
        if extra is not None:
            more = handle_of(extra, array.device)
            if not np.can_cast(more.dtype, array.dtype, casting="same_kind"):
                name = "to_end" if place else "to_begin"
                raise TypeError(
                    f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` "
                    "rule."
                )
            ends[place] = more.reshape(-1).astype(array.dtype)
    parts = [part for part in (ends[0], array[1:] - array[:-1], ends[1]) if part is not None]
    return concatenate(parts) if len(parts) > 1 else parts[0]


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    array = handle_of(f)
    axes = tuple(range(array.ndim)) if axis is None else normalize_axis_tuple(axis, array.ndim)
    spacings = _spacings(array, axes, varargs)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if array.dtype.kind in "biu":
        refuse(array.dtype.kind == "b", "booleans")
        array = array.astype(np.float64)
    for place in axes:
        if array.shape[place] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, at least "
                "(edge_order + 1) elements are required."
            )
    results = [
        _gradient_along(array, place, spacing, edge_order)
        for place, spacing in zip(axes, spacings, strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results)


def _spacings(array: TiledArray, axes: tuple[int, ...], given: tuple[Any, ...]) -> list[Any]:
    """Return for each axis the constant step, or the steps between the places."""
    if not given:
        return [1.0] * len(axes)
    if len(given) == 1 and np.ndim(given[0]) == 0:
        given = given * len(axes)
    if len(given) != len(axes):
        raise TypeError("invalid number of arguments")
    found = []
    for place, spacing in zip(axes, given, strict=True):
        if np.ndim(spacing) == 0:
            found.append(spacing)
            continue
        if np.ndim(spacing) != 1:
            raise ValueError("distances must be either scalars or 1d")
        if len(spacing) != array.shape[place]:
            raise ValueError("when 1d, distances must match the length of the corresponding "
                             "dimension")
        # Evenly spaced places take the shorter formula, as in NumPy; that needs their values.
        refuse(any_keeps([spacing]), "the places have a history")
        positions = np.asarray(host(spacing))
        if positions.dtype.kind in "iu":
            positions = positions.astype(np.float64)  # their differences could wrap around
        steps = np.diff(positions)
        found.append(steps[0] if (steps == steps[0]).all() else steps)
    return found


def _gradient_along(array: TiledArray, axis: int, spacing: Any, edge_order: int) -> TiledArray:
    before = (slice(None),) * axis

    def at(part: Any) -> tuple[Any, ...]:
        return (*before, part)

    def values(start: Any, stop: Any = None) -> TiledArray:
        return array[at(slice(start, stop))]

    out = wrap(record.full(array.shape, 0, array.dtype, array.device))
    uniform = np.ndim(spacing) == 0
    if uniform:
        out[at(slice(1, -1))] = (values(2) - values(None, -2)) / (2.0 * spacing)
    else:
        shape = [1] * array.ndim
        shape[axis] = -1
        first, second = spacing[:-1].reshape(shape), spacing[1:].reshape(shape)
        low = -second / (first * (first + second))
        middle = (second - first) / (first * second)
        high = first / (second * (first + second))
        out[at(slice(1, -1))] = (
            low * values(None, -2) + middle * values(1, -1) + high * values(2)
        )
    for side, weights in _edges(spacing, edge_order, uniform):
        places = (0, 1, 2) if side == 0 else (-1, -2, -3)
        if edge_order == 1:
            step = spacing if uniform else spacing[side]
            near, far = (array[at(place)] for place in ((1, 0) if side == 0 else (-1, -2)))
            out[at(side)] = (near - far) / step
        else:
            out[at(side)] = _weighted(array, at, places, weights)
    return out


def _weighted(array: TiledArray, at: Any, places: Any, weights: Any) -> TiledArray:
    if places[0] == -1:
        places, weights = places[::-1], weights[::-1]
    first, second, third = (
        weight * array[at(place)] for place, weight in zip(places, weights, strict=True)
    )
    return first + second + third


def _edges(spacing: Any, edge_order: int, uniform: bool) -> Any:
    """Return for each end the weights of the elements from the end inwards (second order)."""
    if edge_order == 1:
        return [(0, None), (-1, None)]
    if uniform:
        weights = (-1.5 / spacing, 2.0 / spacing, -0.5 / spacing)
        return [(0, weights), (-1, tuple(-weight for weight in weights))]
    first, second = spacing[0], spacing[1]
    start = (
        -(2.0 * first + second) / (first * (first + second)),
        (first + second) / (first * second),
        -first / (second * (first + second)),
    )
    first, second = spacing[-2], spacing[-1]
    stop = (
        (2.0 * second + first) / (second * (first + second)),
        -(second + first) / (first * second),
        second / (first * (first + second)),
    )
    return [(0, start), (-1, stop)]


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> TiledArray:
    values = handle_of(y)
    step: Any = dx
    if x is not None:
        places = handle_of(x, values.device)
        if places.ndim == 1:
            shape = [1] * values.ndim
            steps = diff(places)
            shape[axis] = steps.shape[0]
            step = steps.reshape(shape)
        else:
            step = diff(places, axis=axis)  # it may have other axes: a negative one stays so
    later, earlier = [slice(None)] * values.ndim, [slice(None)] * values.ndim
    later[axis], earlier[axis] = slice(1, None), slice(None, -1)
    heights = values[tuple(later)] + values[tuple(earlier)]
    return reducing.sum(step * heights / 2.0, axis=axis)


@implements(np.cross)
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> TiledArray:
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = arrays_of(a, b)
    refuse(left.ndim < 1 or right.ndim < 1, "no axes")
    left = moved_to(left, normalize_axis_index(axisa, left.ndim, "axisa"), left.ndim - 1)
    right = moved_to(right, normalize_axis_index(axisb, right.ndim, "axisb"), right.ndim - 1)
    refuse(left.shape[-1] != 3 or right.shape[-1] != 3, "not vectors of three")
    a0, a1, a2 = (left[..., place] for place in range(3))
    b0, b1, b2 = (right[..., place] for place in range(3))
    parts = (a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    shape = parts[0].shape
    axisc = normalize_axis_index(axisc, len(shape) + 1, "axisc")
    out = wrap(record.full((*shape, 3), 0, parts[0].dtype, parts[0].device))
    for place, part in enumerate(parts):
        out[..., place] = part
    return moved_to(out, len(shape), axisc)


@implements(np.unwrap)
def unwrap(
    p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi
) -> TiledArray:
    array = handle_of(p)
    axis = normalize_axis_index(axis, array.ndim)
    steps = diff(array, axis=axis)
    refuse(
        not isinstance(period, (int, float)) or np.result_type(steps.dtype, period).kind != "f",
        "period= that is no real number",
    )
    limit = period / 2 if discont is None else discont
    half = period / 2
    wrapped = _U["remainder"](steps + half, period) - half
    edge = ((wrapped == -half) & (steps > 0)).node
    wrapped = wrap(record.elementwise(BY_NAME["where"], edge, half, wrapped.node))
    small = (abs(steps) < limit).node
    change = wrap(record.elementwise(BY_NAME["where"], small, 0.0, (wrapped - steps).node))
    result = array.astype(np.result_type(array.dtype, period))
    later = (*(slice(None),) * axis, slice(1, None))
    result[later] = array[later] + reducing.cumsum(change, axis=axis)
    return result


# Signals ----------------------------------------------------------------------------------------


@implements(np.interp, "library")
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> TiledArray:
    ends = [limit if is_ours(limit) and not limit.ndim else None for limit in (left, right)]
    left, right = (limit if end is None else None
                   for limit, end in zip((left, right), ends, strict=True))
    refuse(
        any(limit is not None and not np.isscalar(limit) for limit in (left, right, period)),
        "limits that are arrays",
    )
    at, places, values = arrays_of(x, xp, fp)
    refuse(
        places.ndim != 1 or values.ndim != 1 or places.shape != values.shape,
        "not vectors of one length",
    )
    refuse(
        places.shape[0] == 0 or np.iscomplexobj(left) or np.iscomplexobj(right),
        "empty or complex data",
    )
    refuse(
        at.dtype.kind == "c" or places.dtype.kind == "c" or period == 0,
        "complex places or period 0",
    )
    dtype = np.dtype(complex if values.dtype.kind == "c" else float)
    inputs = [part.node for part in (at, places, values)]
    attrs = options(left=left, right=right, period=period)
    found = wrap(record.library(LIBRARY["interp"], inputs, attrs, at.shape, dtype))
    for end, outside in zip(ends, (at < places[0], at > places[-1]), strict=True):
        if end is not None and period is None:
            found = where(outside, end.astype(dtype), found)
    return found


def _sliding(name: str, a: Any, v: Any, mode: Any) -> TiledArray:
    refuse(mode not in ("full", "same", "valid"), "an unknown mode")
    left, right = arrays_of(a, v)
    left, right = (part.reshape(1) if part.ndim == 0 else part for part in (left, right))
    refuse(
        left.ndim != 1 or right.ndim != 1 or 0 in left.shape or 0 in right.shape,
        "not vectors with elements",
    )
    long, short = sorted((left.shape[0], right.shape[0]), reverse=True)
    size = {"full": long + short - 1, "same": long, "valid": long - short + 1}[mode]
    dtype = np.result_type(left.dtype, right.dtype)
    nodes = (left.node, right.node)
    return wrap(record.library(LIBRARY[name], nodes, options(mode=mode), (size,), dtype))


@implements(np.convolve, "library")
def convolve(a: Any, v: Any, mode: Any = "full") -> TiledArray:
    return _sliding("convolve", a, v, mode)


@implements(np.correlate, "library")
def correlate(a: Any, v: Any, mode: Any = "valid") -> TiledArray:
    return _sliding("correlate", a, v, mode)
