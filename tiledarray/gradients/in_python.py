"""Functions that NumPy has written in Python: run with ours in NumPy's place, they keep history.

They are NumPy's own code, whose names are looked up here.  What their parts are made of has
derivatives; where a part has none, or looks at a value, the gradient says so as anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib import _function_base_impl

from tiledarray.api import linalg, types, ufuncs
from tiledarray.api.arguments import handle_of, refuse
from tiledarray.arrays import by_numpy, by_places
from tiledarray.arrays.protocols import FUNCTIONS
from tiledarray.arrays.tracing import may_look
from tiledarray.gradients import ufunc_methods
from tiledarray.gradients.notation import xp
from tiledarray.gradients.variables import stop_gradient
from tiledarray.recording.history import differentiated

Function = Callable[..., Any]
_FUNCTIONS: tuple[Function, ...] = (
    np.apply_along_axis, np.apply_over_axes, np.corrcoef, np.cov, np.cross, np.geomspace,
    np.gradient, np.insert, np.logspace, np.pad, np.poly, np.polyadd, np.polyder, np.polydiv,
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


def _i0(x: Any) -> Any:
    """Return `numpy.i0`, whose derivatives at 0 are those of an even function."""
    x = handle_of(x)
    refuse(x.dtype.kind == "c", "complex numbers")
    near, far = (_ours(vars(_function_base_impl)[name]) for name in ("_i0_1", "_i0_2"))
    size = xp.where(x < 0, -x, x)
    small = size <= 8
    return xp.where(small, near(xp.where(small, size, 8.0)), far(xp.where(small, 8.0, size)))


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
        np.unique: _unique, np.linalg.qr: _qr, np.i0: _i0,
        np.kaiser: _kaiser,
        np.r_.__getitem__: _joining(np.r_), np.c_.__getitem__: _joining(np.c_),
        np.ndarray.__getitem__: _getitem, np.ndarray.__setitem__: _setitem})
    by_numpy.KEEPING.update(ufunc_methods.keeping())
