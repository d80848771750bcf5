"""Methods of ufuncs that no kernel knows, made of the ufuncs themselves: so they keep history."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api.arguments import handle_of, is_ours, normalize_axis_tuple, refuse
from tiledarray.gradients.notation import xp
from tiledarray.gradients.variables import stop_gradient
from tiledarray.ops.elementwise import BY_UFUNC

Function = Callable[..., Any]
_ASSOCIATIVE: tuple[np.ufunc, ...] = (
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2,
    np.hypot)
# All but the first inverted, these are the others.
_OF_INVERSES: dict[np.ufunc, tuple[np.ufunc, np.ufunc]] = {
    np.subtract: (np.add, np.negative), np.divide: (np.multiply, np.reciprocal)}
_POWERS: dict[np.ufunc, tuple[np.ufunc, np.ufunc]] = {
    np.logaddexp: (np.exp, np.log), np.logaddexp2: (np.exp2, np.log2)}


def keeping() -> dict[Function, Function]:
    """Return ours for the methods of all ufuncs of two operands that have a derivative."""
    found: dict[Function, Function] = {}
    for ufunc, op in BY_UFUNC.items():
        if ufunc.nin == 2 and ufunc.nout == 1 and op.derivatives:
            found.update({
                ufunc.reduce: functools.partial(_reduce, ufunc),
                ufunc.accumulate: functools.partial(_accumulate, ufunc),
                ufunc.reduceat: functools.partial(_reduceat, ufunc)})
        if ufunc in _ASSOCIATIVE:
            found[ufunc.at] = functools.partial(_at_unknown, ufunc)
    return found


def _combined_in(method: Function, array: Any, *places: Any) -> Any:
    """Return an array in the dtype in which a method of NumPy's combines its elements."""
    dtype = method(np.ones(1, array.dtype), *places).dtype
    return array if dtype == array.dtype else array.astype(dtype)


def _reduce(
    ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
    keepdims: bool = False, initial: Any = np._NoValue, where: Any = True,
) -> Any:
    """Return what ``ufunc.reduce`` does."""
    refuse(dtype is not None or out is not None or where is not True, "other options are given")
    array = _combined_in(ufunc.reduce, handle_of(array))
    axes = range(array.ndim) if axis is None else normalize_axis_tuple(axis, array.ndim)
    refuse(len(axes) > 1 and ufunc not in _ASSOCIATIVE, "an order is given by one axis alone")
    rows = xp.moveaxis(array, axes, range(len(axes)))
    rows = rows.reshape(-1, *rows.shape[len(axes):])
    if initial is not np._NoValue and initial is not None:
        begin = xp.zeros(rows[:1].shape, rows.dtype, device=rows.device) + initial
        rows = xp.concatenate([begin if len(rows) else begin.reshape(1, *rows.shape[1:]), rows])
    refuse(not len(rows), "no elements")
    total = (_log_of_sum if ufunc in _POWERS else _total)(ufunc, rows)
    return xp.expand_dims(total, tuple(axes)) if keepdims else total


def _total(ufunc: Any, rows: Any) -> Any:
    """Return what rows are combined to."""
    if ufunc in _OF_INVERSES and len(rows) > 1:
        return ufunc(rows[0], _OF_INVERSES[ufunc][0].reduce(rows[1:], dtype=rows.dtype))
    if ufunc not in _ASSOCIATIVE:
        return functools.reduce(ufunc, (rows[k] for k in range(len(rows))))
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = ufunc(rows[:half], rows[half:2 * half])
        rows = xp.concatenate([pairs, rows[2 * half:]])
    return rows[0]


def _log_of_sum(ufunc: Any, rows: Any) -> Any:
    """Return the logarithm of the sum of the powers of rows."""
    power, logarithm = _POWERS[ufunc]
    highest = stop_gradient(xp.max(rows, axis=0, initial=-np.inf))
    highest = xp.where(xp.isfinite(highest), highest, 0)
    return logarithm(xp.sum(power(rows - highest), axis=0)) + highest


def _accumulate(
    ufunc: Any, array: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:
    """Return what ``ufunc.accumulate`` does."""
    refuse(dtype is not None or out is not None, "dtype= or out= is given")
    rows = xp.moveaxis(_combined_in(ufunc.accumulate, handle_of(array)), axis, 0)
    if ufunc in _OF_INVERSES:
        combine, inverse = _OF_INVERSES[ufunc]
        found = combine.accumulate(
            xp.concatenate([rows[:1], inverse(rows[1:])]), dtype=rows.dtype)
    elif ufunc in _ASSOCIATIVE:
        found = _totals(ufunc, rows, np.zeros(len(rows), int), len(rows))
    else:
        totals = [rows[0]] if len(rows) else []
        for k in range(1, len(rows)):
            totals.append(ufunc(totals[-1], rows[k]))
        found = xp.stack(totals) if totals else rows
    return xp.moveaxis(found, 0, axis)


def _reduceat(
    ufunc: Any, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:
    """Return what ``ufunc.reduceat`` does."""
    refuse(dtype is not None or out is not None, "dtype= or out= is given")
    rows = xp.moveaxis(_combined_in(ufunc.reduceat, handle_of(array), [0]), axis, 0)
    starts = np.asarray(indices)
    ufunc.reduceat(np.ones(len(rows)), starts)  # NumPy's errors
    between = np.diff(starts, append=len(rows))
    lengths = np.maximum(between, 1)
    ends = np.cumsum(lengths)
    stretches = np.repeat(np.arange(starts.size), lengths)
    if between.min(initial=1) > 0:  # each begins where the one before has ended
        rows = rows[len(rows) - stretches.size:]
    else:
        rows = rows[np.arange(stretches.size) + np.repeat(starts - ends + lengths, lengths)]
    if ufunc in _OF_INVERSES:
        ufunc, inverse = _OF_INVERSES[ufunc]
        first = np.diff(stretches, prepend=-1).reshape(-1, *(1,) * (rows.ndim - 1)) > 0
        rows = xp.where(first, rows, inverse(rows))
    if ufunc is np.add:
        found = xp.zeros((starts.size, *rows.shape[1:]), rows.dtype, device=rows.device)
        xp.add.at(found, stretches, rows)
    elif ufunc in _ASSOCIATIVE:
        found = _totals(ufunc, rows, stretches, lengths.max(initial=0))[ends - 1]
    else:
        found = xp.stack([_total(ufunc, rows[end - length:end])
                          for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)])
    return xp.moveaxis(found, 0, axis)


def _at_unknown(ufunc: Any, array: Any, indices: Any, values: Any) -> None:
    """Do what ``ufunc.at`` does at places without values, of one that is associative."""
    refuse(not is_ours(array), "an array of NumPy's")
    places = xp.arange(array.size, device=array.device).reshape(array.shape)[indices]
    new = handle_of(values, array.device)
    refuse(not np.can_cast(new.dtype, array.dtype, "same_kind"), "values of another dtype")
    new = xp.broadcast_to(new.astype(array.dtype), places.shape).reshape(-1)
    order = xp.argsort(places, axis=None, kind="stable")
    places, new = places.reshape(-1)[order], new[order]
    found = array.copy().reshape(-1)
    first = xp.ones(places.size, bool, device=array.device)
    first[1:] = places[1:] != places[:-1]
    new = xp.where(first, ufunc(found[places], new), new)
    found[places] = _totals(ufunc, new, places, places.size)  # of equal ones the last is kept
    array[...] = found.reshape(array.shape)


def _totals(ufunc: Any, rows: Any, stretches: Any, longest: int) -> Any:
    """Return running totals along the first axis, which begin anew where another stretch does.

    By doubling (Hillis and Steele 1986).
    """
    total = rows.copy()
    width = 1
    while width < longest:
        same = (stretches[width:] == stretches[:-width]).reshape(-1, *(1,) * (rows.ndim - 1))
        total[width:] = xp.where(same, ufunc(total[:-width], total[width:]), total[width:])
        width *= 2
    return total
