"""Functions that NumPy has written in Python: run with ours in NumPy's place, they are recorded.

So they keep history, and take arrays without values.  They are NumPy's own code, whose names are
looked up here.  What their parts are made of has derivatives; where a part has none, or looks at a
value, the gradient or the tracing says so as anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib import _function_base_impl

from tiledarray.api import equations, linalg, products, types, ufuncs
from tiledarray.api.arguments import arrays_of, device_of, handle_of, is_ours, refuse
from tiledarray.api.registry import with_names
from tiledarray.arrays import by_numpy, by_places
from tiledarray.arrays.protocols import FUNCTIONS
from tiledarray.arrays.tracing import may_look
from tiledarray.gradients import ufunc_methods
from tiledarray.gradients.notation import xp
from tiledarray.gradients.variables import stop_gradient
from tiledarray.recording.history import differentiated

Function = Callable[..., Any]
_FUNCTIONS: tuple[Function, ...] = (
    np.apply_along_axis, np.apply_over_axes, np.corrcoef, np.cov, np.cross, np.gradient,
    np.logspace, np.pad, np.poly, np.polyadd, np.polyder, np.polydiv,
    np.polyint, np.polysub, np.roots, np.vander, np.linalg.tensorsolve,
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
    names = {"__name__": __name__}  # the user's line is that which calls it
    made = _made[code] = with_names(code, names)  # which may call itself
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


def _pairs(x: Any, ndim: int, as_index: bool = False) -> Any:
    """Return two values for each axis, as ``numpy.pad`` has them."""
    if x is None:
        return ((None, None),) * ndim
    if as_index:
        return np.broadcast_to(np.round(x).astype(np.intp), (ndim, 2)).tolist()
    found = xp.broadcast_to(handle_of(x), (ndim, 2))
    return [(found[axis, 0], found[axis, 1]) for axis in range(ndim)]


_STAND_INS: dict[str, Any] = {
    "_array_converter": _Converter, "broadcast": _Broadcast, "ndarray": types.ndarray,
    "_as_pairs": _pairs}


# Functions and methods that are in C --------------------------------------------------------------


def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    share = handle_of(weights)
    counted = [*by_numpy.handles_in(x)]
    known = not counted or may_look(counted)
    refuse(not known and minlength <= 0, "how many are counted depends on values")
    places = np.asarray(x) if known else handle_of(x, share.device)
    refuse(places.shape != share.shape or places.dtype.kind not in "biu",
           "weights of another shape, or no places")
    places = places.astype(np.intp)
    if known:
        minlength = np.bincount(places, minlength=minlength).size
    else:
        places = xp.where(places < 0, minlength, places)  # which is an error, as with NumPy
    found = xp.zeros(minlength, np.float64, device=share.device)
    xp.add.at(found, places, share)
    return found


def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    if may_look(by_numpy.handles_in((a, bins, range))):
        return _keeping(np.histogram)(a, bins, range, density, weights)
    edges = _edges(a, bins, range) if np.ndim(bins) == 0 else handle_of(bins)
    values = stop_gradient(handle_of(a, edges.device))
    share = handle_of(np.ones(values.shape, np.intp) if weights is None else weights, edges.device)
    refuse(values.shape != share.shape, "weights of another shape")
    limits, count = stop_gradient(edges), edges.size - 1
    places = xp.searchsorted(limits, values, "right") - 1
    places = xp.where(values == limits[-1], count - 1, places)  # the last bin has both its ends
    inside = (places >= 0) & (places < count)
    found = xp.zeros(count, share.dtype, device=edges.device)
    xp.add.at(found, xp.where(inside, places, 0), xp.where(inside, share, 0))
    if density:
        found = found / xp.diff(edges) / found.sum()
    return found, edges


def _edges(a: Any, bins: Any, range: Any) -> Any:
    """Return the edges of bins of one width, by NumPy, and with the history of their ends."""
    refuse(isinstance(bins, str), "as many bins as the values say")
    array = handle_of(a, device_of(a, range))
    refuse(not array.size, "no elements")
    ends = (xp.min(array), xp.max(array)) if range is None else (*range,)
    constants = None if range is None else tuple(
        stop_gradient(end) if is_ours(end) else end for end in ends)
    found = xp.histogram_bin_edges(stop_gradient(array), bins, constants)
    if not by_places.any_keeps(*ends):
        return found
    moved = xp.linspace(*ends, found.size)
    return found + (moved - stop_gradient(moved))


def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    left, right = (products.inexact(x) for x in arrays_of(a, b))
    _, residuals, rank, _ = equations.lstsq(stop_gradient(left), stop_gradient(right), rcond)
    x, gaps, s, _ = equations.least_squares(left, right, rcond)
    if residuals.size:  # else there are none, or the rank is not as full as it was taken to be
        residuals = xp.where(rank == left.shape[1], gaps, residuals)
    return x, residuals, rank, s


def _polyfit(
    x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None,
    cov: Any = False,
) -> Any:
    fit = _keeping(np.polyfit)
    if not may_look(by_numpy.handles_in((x, y, w))):
        refuse(full, "the rank is not known here")
        fit = _keeping(np.polyfit, lstsq=_of_full_rank)
    return fit(x, y, deg, rcond, full, w, cov)


def _of_full_rank(a: Any, b: Any, rcond: Any) -> Any:
    """Return what `lstsq` does, but for the rank, where that is only looked at to warn of it."""
    x, residuals, _, s = equations.lstsq(a, b, rcond)
    return x, residuals, a.shape[1], s


def _unique(ar: Any, *args: Any, **kwargs: Any) -> Any:
    refuse(bool(args or kwargs), "more than the values is wanted")
    _, first = np.unique(np.asarray(stop_gradient(ar)), return_index=True)
    return ar.reshape(-1)[first]


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    where = by_places.seen(obj)
    array = handle_of(arr, device_of(arr, values))
    if by_numpy.first_handle(values) is None:
        values = np.array(values, array.dtype)  # NumPy says whether they fit
    return by_places.merge(
        lambda places, new: np.insert(places, where, new, axis), array,
        handle_of(values, array.device))


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


def _i0(x: Any) -> Any:
    """Return `numpy.i0`, whose derivatives at 0 are those of an even function."""
    x = handle_of(x)
    refuse(x.dtype.kind == "c", "complex numbers")
    near, far = (_ours(vars(_function_base_impl)[name]) for name in ("_i0_1", "_i0_2"))
    size = xp.where(x < 0, -x, x)
    small = size <= 8
    return xp.where(small, near(xp.where(small, size, 8.0)), far(xp.where(small, 8.0, size)))


def _any_seen(values: Any) -> Any:
    """Say what `numpy.any` does, where that can be known; else no."""
    return may_look(by_numpy.handles_in(values)) and xp.any(values)


def _kaiser(M: Any, beta: Any) -> Any:  # noqa: N803  NumPy's name
    count = len(np.arange(M))
    refuse(count < 2, "fewer than two points")
    along = np.linspace(-1, 1, count)
    return _i0(handle_of(beta) * np.sqrt(1 - along**2)) / _i0(beta)


def _joining(original: Any) -> Function:
    """Return what `numpy.r_` or `numpy.c_` does with an index."""
    options = {name: getattr(original, name) for name in ("axis", "matrix", "ndmin", "trans1d")}
    join = SimpleNamespace(**options, concatenate=xp.concatenate)
    return functools.partial(_translated(type(original).__getitem__), join)


def _getitem(array: Any, key: Any) -> Any:
    seen = by_places.seen(key)
    return by_places.move(lambda places: places[seen], array)


def _setitem(array: Any, key: Any, value: Any) -> None:
    def store(places: Any, seen: Any, others: Any) -> None:
        places[seen] = others

    by_places.change(store, array, (key, value))


def _keeping(function: Function, **others: Any) -> Function:
    """Return what does the same, with others in place of some that it calls."""

    def ours(*args: Any, **kwargs: Any) -> Any:
        made: Any = _translated(function)
        if others:
            made = with_names(made, {**made.__globals__, **others})
        with differentiated(()):  # a value that it looked at would be a constant
            return made(*args, **kwargs)

    return ours


def _geomspace() -> Function:
    """Return what `numpy.geomspace` does; ends without values are not looked at: 0 gives NaN."""
    module: Any = _Module(np)
    module.any = _any_seen
    return _keeping(np.geomspace, _nx=module)


def install() -> None:
    """Have what follows the history of arrays, or traces, do so through these functions."""
    by_numpy.KEEPING.update({function: _keeping(function) for function in _FUNCTIONS})
    by_numpy.KEEPING.update({
        np.bincount: _bincount, np.histogram: _histogram, np.insert: _insert,
        np.polyfit: _polyfit, np.polymul: _polymul, np.unique: _unique,
        np.linalg.lstsq: _lstsq, np.linalg.qr: _qr, np.i0: _i0, np.kaiser: _kaiser,
        np.geomspace: _geomspace(),
        np.r_.__getitem__: _joining(np.r_), np.c_.__getitem__: _joining(np.c_),
        np.ndarray.__getitem__: _getitem, np.ndarray.__setitem__: _setitem})
    by_numpy.KEEPING.update(ufunc_methods.keeping())
