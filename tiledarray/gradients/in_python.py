"""Functions that NumPy has written in Python: run with ours in NumPy's place, they keep history.

They are NumPy's own code, whose names are looked up here.  What their parts are made of has
derivatives; where a part has none, or looks at a value, the gradient says so as anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tiledarray.api import linalg, types, ufuncs
from tiledarray.api.arguments import handle_of, is_ours, refuse
from tiledarray.arrays import by_numpy, by_places
from tiledarray.arrays.protocols import FUNCTIONS
from tiledarray.arrays.tracing import may_look
from tiledarray.gradients.notation import xp
from tiledarray.gradients.variables import stop_gradient
from tiledarray.recording.history import differentiated

Function = Callable[..., Any]
_FUNCTIONS: tuple[Function, ...] = (
    np.apply_along_axis, np.apply_over_axes, np.corrcoef, np.cov, np.cross, np.geomspace,
    np.gradient, np.insert, np.logspace, np.poly, np.polyadd, np.polyder, np.polydiv,
    np.polyfit, np.polyint, np.polysub, np.roots, np.vander, np.linalg.tensorsolve,
)


class _Module:
    """A module of NumPy's whose functions are ours."""

    def __init__(self, original: ModuleType) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        found = _ours(getattr(self._original, name))
        setattr(self, name, found)
        return found


_module = functools.cache(_Module)


def _ours(value: Any) -> Any:
    """Return what stands for something that NumPy's code names."""
    if isinstance(value, ModuleType):
        return _module(value) if value.__name__.partition(".")[0] == "numpy" else value
    if isinstance(value, np.ufunc):
        return ufuncs.BY_NAME.get(value.__name__, value)
    found = _STAND_INS.get(getattr(value, "__name__", ""))
    if found is not None:
        return found
    if isinstance(value, type) or not callable(value):
        return value
    found = FUNCTIONS.get(value)
    name = getattr(value, "__name__", "")
    if found is None and getattr(np, name, None) is value:
        found = getattr(xp, name, None)
    return _translated(value) if found is None else found


_made: dict[Function, Function] = {}


def _translated(function: Function) -> Function:
    """Return a function of NumPy's with ours for what it calls; itself if it is not in Python."""
    code = getattr(function, "_implementation", function)
    if not isinstance(code, FunctionType) or code.__module__.partition(".")[0] != "numpy":
        return function
    if code in _made:
        return _made[code]
    made = FunctionType(code.__code__, {}, code.__name__, code.__defaults__, code.__closure__)
    made.__kwdefaults__ = code.__kwdefaults__
    _made[code] = made  # which may call itself
    for name in _names_in(code.__code__):
        if name in code.__globals__:
            made.__globals__[name] = _ours(code.__globals__[name])
    return made


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names_in(part)


# What their code names that is neither a function nor an array of ours.


class _Converter:
    """NumPy's private ``_array_converter``: arguments as arrays, and results as they were."""

    def __init__(self, *values: Any) -> None:
        self._arrays = tuple(map(handle_of, values))

    def __getitem__(self, place: int) -> Any:
        return self._arrays[place]

    def as_arrays(self, **_: Any) -> tuple[Any, ...]:
        """Return the arguments."""
        return self._arrays

    def wrap(self, result: Any, **_: Any) -> Any:
        """Return a result as it is."""
        return result


class _Broadcast:
    """`numpy.broadcast` of arrays of ours."""

    def __init__(self, *arrays: Any) -> None:
        self.shape = np.broadcast_shapes(*(array.shape for array in arrays))
        self.ndim = len(self.shape)


_STAND_INS: dict[str, Any] = {
    "_array_converter": _Converter, "broadcast": _Broadcast, "ndarray": types.ndarray}


# Functions and methods that are in C --------------------------------------------------------------

_ASSOCIATIVE: tuple[np.ufunc, ...] = (
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin)


def _by_stretches(ufunc: Any) -> Function:
    """Return what ``ufunc.reduceat`` does."""

    def reduceat(
        array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        refuse(dtype is not None or out is not None, "dtype= or out= is given")
        rows = xp.moveaxis(array, axis, 0)
        starts = np.asarray(indices)
        ufunc.reduceat(np.empty(len(rows), bool), starts)  # NumPy's errors
        between = np.diff(starts, append=len(rows))
        lengths = np.maximum(between, 1)
        ends = np.cumsum(lengths)
        stretches = np.repeat(np.arange(starts.size), lengths)
        if between.min(initial=1) > 0:  # each begins where the one before has ended
            rows = rows[len(rows) - stretches.size:]
        else:
            rows = rows[np.arange(stretches.size) + np.repeat(starts - ends + lengths, lengths)]
        if ufunc is np.add:
            found = xp.zeros((starts.size, *rows.shape[1:]), rows.dtype, device=rows.device)
            xp.add.at(found, stretches, rows)
        else:
            found = _totals(ufunc, rows, stretches, lengths.max(initial=0))[ends - 1]
        return xp.moveaxis(found, 0, axis)

    return reduceat


def _at_unknown(ufunc: Any) -> Function:
    """Return what ``ufunc.at`` does at places without values, of one that is associative."""

    def at(array: Any, indices: Any, values: Any) -> None:
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

    return at


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


def _log_of_sum(
    array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
    **others: Any,
) -> Any:
    """Return what ``logaddexp.reduce`` does."""
    refuse(dtype is not None or out is not None or bool(others), "other options are given")
    highest = stop_gradient(xp.max(array, axis=axis, keepdims=True, initial=-np.inf))
    highest = xp.where(xp.isfinite(highest), highest, 0)
    total = xp.log(xp.sum(xp.exp(array - highest), axis=axis, keepdims=True)) + highest
    return total if keepdims else xp.squeeze(total, axis=axis)


def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    counts = np.bincount(np.asarray(x), minlength=minlength)
    found = xp.zeros(counts.shape, np.float64)
    xp.add.at(found, x, weights)
    return found


def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    given = [*by_numpy.handles_in((a, bins, range))]
    if may_look(given):
        return _keeping(np.histogram)(a, bins, range, density, weights)
    refuse(weights is None or by_places.any_keeps(*given) or isinstance(bins, str),
           "bins that depend on what has a history")
    edges = xp.histogram_bin_edges(a, bins, range) if np.ndim(bins) == 0 else handle_of(bins)
    values, share = (handle_of(x).reshape(-1) for x in (a, weights))
    refuse(handle_of(a).shape != handle_of(weights).shape, "weights of another shape")
    count = edges.size - 1
    places = xp.searchsorted(edges, values, "right") - 1
    places = xp.where(values == edges[-1], count - 1, places)  # the last bin has both its ends
    inside = (places >= 0) & (places < count)
    found = xp.zeros(count, share.dtype)
    xp.add.at(found, xp.where(inside, places, 0), xp.where(inside, share, 0))
    if density:
        found = found / xp.diff(edges) / found.sum()
    return found, edges


def _unique(ar: Any, *args: Any, **kwargs: Any) -> Any:
    refuse(bool(args or kwargs), "more than the values is wanted")
    _, first = np.unique(np.asarray(stop_gradient(ar)), return_index=True)
    return ar.reshape(-1)[first]


def _polymul(a1: Any, a2: Any) -> Any:
    refuse(isinstance(a1, np.poly1d) or isinstance(a2, np.poly1d), "a poly1d")
    return xp.convolve(_without_zeros_ahead(a1), _without_zeros_ahead(a2))


def _without_zeros_ahead(coefficients: Any) -> Any:
    array = xp.atleast_1d(handle_of(coefficients))
    (places,) = np.nonzero(np.asarray(stop_gradient(array)))
    return array[places[0] if places.size else -1:]


def _qr(a: Any, mode: str = "reduced") -> Any:
    refuse(mode != "r", "this mode")
    return linalg.qr(a)[1]


def _getitem(array: Any, key: Any) -> Any:
    seen = by_places.seen(key)
    return by_places.move(lambda places: places[seen], array)


def _setitem(array: Any, key: Any, value: Any) -> None:
    def store(places: Any, seen: Any, others: Any) -> None:
        places[seen] = others

    by_places.change(store, array, (key, value))


def _keeping(function: Function) -> Function:
    def ours(*args: Any, **kwargs: Any) -> Any:
        with differentiated(()):  # a value that it looked at would be a constant
            return _translated(function)(*args, **kwargs)

    return ours


def install() -> None:
    """Have what follows the history of arrays do so through these functions."""
    by_numpy.KEEPING.update({function: _keeping(function) for function in _FUNCTIONS})
    by_numpy.KEEPING.update({
        np.bincount: _bincount, np.histogram: _histogram, np.polymul: _polymul,
        np.unique: _unique, np.linalg.qr: _qr,
        np.logaddexp.reduce: _log_of_sum,
        np.ndarray.__getitem__: _getitem, np.ndarray.__setitem__: _setitem})
    for ufunc in _ASSOCIATIVE:
        by_numpy.KEEPING.update({
            ufunc.reduceat: _by_stretches(ufunc), ufunc.at: _at_unknown(ufunc)})
