"""What the rules of places along an axis, order statistics and interpolation are written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.api.arguments import normalize_axis_tuple
from tiledarray.errors import NoDerivative
from tiledarray.gradients.notation import add_at, unsorted, where, xp, zeros_of
from tiledarray.gradients.products import real_dtype


def added_along(x: Any, new: Any, at: Any, axis: int) -> Any:
    """Return the array with values added at places along an axis, repeated ones too."""
    axis %= x.ndim
    parts = [
        at if place == axis else xp.arange(size, device=x.device).reshape(
            tuple(size if other == place else 1 for other in range(x.ndim)))
        for place, size in enumerate(x.shape)]
    return add_at(x, new, parts, ("at",) * x.ndim)


def untaken(g: Any, x: Any, at: Any, attrs: Any) -> Any:
    """Return what belongs to an array that was read at places along an axis."""
    return added_along(zeros_of(x), g, at, dict(attrs)["axis"])


def extremes_from(g: Any, x: Any, out: Any, axis: int) -> Any:
    """Return what belongs to an array of which there are running extrema: of equal ones the last.

    From a NaN on, each element that is one is a new extremum.
    """
    along = [1] * x.ndim
    along[axis] = -1
    places = xp.arange(x.shape[axis], device=x.device).reshape(along)
    new = (x == out) | (x != x)
    return added_along(zeros_of(x), g, np.maximum.accumulate(where(new, places, 0), axis), axis)


def unpartitioned(g: Any, x: Any, out: Any, attrs: Any) -> Any:
    """Return what belongs to an array that was partitioned: by rank, for equal values any order."""
    axis = dict(attrs)["axis"]
    by_rank = xp.take_along_axis(g, xp.argsort(out, axis=axis, kind="stable"), axis=axis)
    return unsorted(by_rank, xp.argsort(x, axis=axis, kind="stable"), axis)


# Quantiles ---------------------------------------------------------------------------------------

# By which numbers a method that interpolates says where a quantile lies (Hyndman and Fan 1996).
_PLOTTING = {
    "linear": (1.0, 1.0), "lower": (1.0, 1.0), "higher": (1.0, 1.0), "midpoint": (1.0, 1.0),
    "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}


def unranked(g: Any, x: Any, attrs: Any, name: str) -> Any:
    """Return what belongs to an array of which a quantile was taken: two elements have parts in it.

    They are found by sorting; of equal elements those have them that sorting puts there.  How NumPy
    interpolates between them is seen from what it makes of 0, 1, 2, ...
    """
    settings = dict(attrs)
    rows, order = _rows(x, settings["axis"])
    count = rows.shape[-1]
    q = settings.get("q")
    if name.startswith("nan"):
        numbers = xp.sum(~xp.isnan(rows), axis=-1, keepdims=True)
        place = _place_of_numbers(name, q, settings.get("method", "linear"), numbers)
    else:
        given = () if q is None else (q,)
        method = {} if q is None else {"method": settings["method"]}
        found = getattr(np, name)(np.arange(count, dtype=float), *given, **method)
        place = xp.asarray(np.atleast_1d(found), device=x.device)
    low = xp.floor(place)
    part = (place - low).astype(real_dtype(x))
    low = low.astype(int)
    high = xp.minimum(low + 1, count - 1)
    along = g.reshape((len(q) if isinstance(q, tuple) else 1, *rows.shape[:-1]))
    along = xp.moveaxis(along, 0, -1)
    new = xp.concatenate([along * (1 - part), along * part], axis=-1)
    ranks = xp.concatenate([low, high], axis=-1)
    ranks = xp.broadcast_to(ranks, new.shape)
    at = xp.take_along_axis(xp.argsort(rows, axis=-1), ranks, axis=-1)
    total = added_along(zeros_of(rows), new, at, -1)
    return total.reshape(tuple(x.shape[axis] for axis in order)).transpose(np.argsort(order))


def _rows(x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return an array with the reduced axes as its last one, and the order of axes behind it."""
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    order = (*(place for place in range(x.ndim) if place not in axes), *axes)
    kept = tuple(x.shape[place] for place in order[:x.ndim - len(axes)])
    return x.transpose(order).reshape((*kept, -1)), order


def _place_of_numbers(name: str, q: Any, method: str, numbers: Any) -> Any:
    """Return where quantiles lie among as many numbers: there are fewer where some are NaN.

    Raises
    ------
    NoDerivative
        Of a method that does not interpolate: it is said for no NaN only.
    """
    if method not in _PLOTTING:
        raise NoDerivative(
            f"{name} by the method {method!r} has no derivative",
            remedy="use another method, or select the numbers and use the function without nan")
    wanted = 0.5 if q is None else np.atleast_1d(q) / (100 if name == "nanpercentile" else 1)
    before, behind = _PLOTTING[method]
    place = numbers * wanted + (before + wanted * (1 - before - behind)) - 1
    place = xp.clip(place, 0, xp.maximum(numbers - 1, 0))
    if method == "lower":
        return xp.floor(place)
    if method == "higher":
        return xp.ceil(place)
    return (xp.floor(place) + xp.ceil(place)) / 2 if method == "midpoint" else place


# Interpolation -----------------------------------------------------------------------------------


def interpolated(g: Any, inputs: Sequence[Any], attrs: Any, k: int) -> Any:
    """Return what belongs to an input of `numpy.interp`.

    At a knot the slope is that of the piece behind it, at the last one of the piece before it.
    Outside, the result is a constant, or the first or the last value.
    """
    settings = dict(attrs)
    period = settings["period"]
    x, knots, values = inputs
    order = None
    if period is not None:
        period = abs(period)
        settings["left"] = settings["right"] = None
        x, knots = x % period, knots % period
        order = xp.argsort(knots)
        knots, values = knots[order], values[order]
        knots = xp.concatenate([knots[-1:] - period, knots, knots[:1] + period])
        values = xp.concatenate([values[-1:], values, values[:1]])
    if k == 0:
        return _by_place(g, x, knots, values)
    found = (_by_knots if k == 1 else _by_values)(g, x, knots, values, settings)
    if order is None:
        return found
    whole = found[1:-1] + 0
    whole[-1] += found[0]
    whole[0] += found[-1]
    return unsorted(whole, order, 0)


def _pieces(x: Any, knots: Any) -> tuple[Any, Any, Any]:
    """Return between which knots places lie, and which part of the way from the first of them."""
    last = knots.shape[0] - 1
    low = xp.clip(xp.searchsorted(knots, x, side="right") - 1, 0, max(last - 1, 0))
    high = xp.minimum(low + 1, last)
    width = knots[high] - knots[low]
    empty = width == 0
    part = where(empty, 0.0, (x - knots[low]) / where(empty, 1.0, width))
    return low, high, part


def _slopes(x: Any, knots: Any, values: Any) -> Any:
    """Return by how much the values rise from knot to knot; nothing outside."""
    low, high, _ = _pieces(x, knots)
    width = knots[high] - knots[low]
    inside = (x >= knots[0]) & (x <= knots[-1]) & (width != 0)
    return where(inside, (values[high] - values[low]) / where(inside, width, 1.0), 0.0)


def _by_place(g: Any, x: Any, knots: Any, values: Any) -> Any:
    return g * _slopes(x, knots, values)


def _by_knots(g: Any, x: Any, knots: Any, values: Any, settings: Any) -> Any:
    low, high, part = _pieces(x, knots)
    rise = g * _slopes(x, knots, values)
    rise = rise.real
    total = xp.zeros(knots.shape, rise.dtype, device=knots.device)
    total = add_at(total, -rise * (1 - part), [low], ("at",))
    return add_at(total, -rise * part, [high], ("at",))


def _by_values(g: Any, x: Any, knots: Any, values: Any, settings: Any) -> Any:
    inside = xp.clip(x, knots[0], knots[-1])
    low, high, part = _pieces(inside, knots)
    if settings["left"] is not None:
        g = where(x < knots[0], 0.0, g)
    if settings["right"] is not None:
        g = where(x > knots[-1], 0.0, g)
    total = xp.zeros(values.shape, g.dtype, device=values.device)
    total = add_at(total, g * (1 - part), [low], ("at",))
    return add_at(total, g * part, [high], ("at",))
