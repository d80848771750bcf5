"""Reductions: what `tiledarray.reductions` does, under NumPy's names, and those built on it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api import ufuncs
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    handle_of,
    normalize_axis_index,
    normalize_axis_tuple,
    refuse,
)
from tiledarray.api.registry import implements
from tiledarray.arrays import reducing
from tiledarray.arrays.handle import Handle, as_dtype, wrap
from tiledarray.arrays.tracing import may_look
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record

__all__ = [
    "nanargmin", "nanargmax",
    "sum", "prod", "min", "max", "amin", "amax", "all", "any", "mean", "std", "var", "ptp",
    "cumsum", "cumprod", "argmin", "argmax", "count_nonzero", "cumulative_sum", "cumulative_prod",
    "average", "nansum", "nanprod", "nancumsum", "nancumprod", "nanmin", "nanmax", "nanmean",
    "nanvar", "nanstd", "trace",
]

_U = ufuncs.BY_NAME
_NO_VALUE = np._NoValue


def _thin(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def ours(a: Any, *args: Any, **kwargs: Any) -> TiledArray:
        refuse(
            "mean" in kwargs and not isinstance(kwargs["mean"], Handle),
            "mean= is not an array of ours",
        )
        return function(handle_of(a), *args, **kwargs)

    return implements(original)(ours)


sum = _thin(np.sum, reducing.sum)
prod = _thin(np.prod, reducing.prod)
min = _thin(np.min, reducing.min)
max = _thin(np.max, reducing.max)
amin = _thin(np.amin, reducing.min)
amax = _thin(np.amax, reducing.max)
all = _thin(np.all, reducing.all)
any = _thin(np.any, reducing.any)
mean = _thin(np.mean, reducing.mean)
std = _thin(np.std, reducing.std)
var = _thin(np.var, reducing.var)
ptp = _thin(np.ptp, reducing.ptp)
cumsum = _thin(np.cumsum, reducing.cumsum)
cumprod = _thin(np.cumprod, reducing.cumprod)


def _index(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def ours(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> TiledArray:
        return function(handle_of(a), axis, out, keepdims is not _NO_VALUE and keepdims)

    return implements(original)(ours)


argmin = _index(np.argmin, reducing.argmin)
argmax = _index(np.argmax, reducing.argmax)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> TiledArray:
    array = handle_of(a)
    holds = array if array.dtype.kind == "b" else array.astype(bool)
    return reducing.sum(holds, axis=axis, dtype=np.intp, keepdims=keepdims)


def _cumulative(original: Callable[..., Any], running: Any, start: int) -> Callable[..., Any]:
    def ours(
        x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None,
        include_initial: bool = False,
    ) -> TiledArray:
        array = handle_of(x)
        if array.ndim == 0:
            array = array.reshape(1)
        if axis is None:
            if array.ndim != 1:
                raise ValueError("For arrays which have more than one dimension ``axis`` argument "
                                 "is required.")
            axis = 0
        refuse(include_initial and out is not None, "include_initial= with out=")
        result = running(array, axis=axis, dtype=dtype, out=out)
        if not include_initial:
            return result
        axis = normalize_axis_index(axis, array.ndim)
        shape = (*array.shape[:axis], array.shape[axis] + 1, *array.shape[axis + 1:])
        longer = wrap(record.full(shape, start, result.dtype, result.device))
        longer[(*(slice(None),) * axis, slice(1, None))] = result
        return longer

    return implements(original)(ours)


cumulative_sum = _cumulative(np.cumulative_sum, reducing.cumsum, 0)
cumulative_prod = _cumulative(np.cumulative_prod, reducing.cumprod, 1)


@implements(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
    keepdims: Any = False,
) -> Any:
    keepdims = keepdims is not _NO_VALUE and keepdims
    if axis is not None:
        axis = normalize_axis_tuple(axis, np.ndim(a), argname="axis")
    if weights is None:
        array = handle_of(a)
        result = reducing.mean(array, axis=axis, keepdims=keepdims)
        count = array.size / result.size
        scale = wrap(record.full((), count, result.dtype, result.device))
    else:
        array, weight = arrays_of(a, weights)
        weight = _spread_weights(array, weight, axis)
        kind = np.result_type(array.dtype, weight.dtype)
        if array.dtype.kind in "iub":
            kind = np.result_type(kind, np.float64)
        scale = reducing.sum(weight, axis=axis, dtype=kind, keepdims=keepdims)
        if may_look([scale]) and bool((scale == 0.0).any()):  # else it gives inf or NaN
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        total = reducing.sum(
            _U["multiply"](array, weight, dtype=kind), axis=axis, keepdims=keepdims
        )
        result = total / scale
    if not returned:
        return result
    return result, wrap(record.broadcast_to(scale.node, result.shape))


def _spread_weights(array: TiledArray, weights: TiledArray, axis: Any) -> TiledArray:
    """Return the weights in the shape of the array."""
    if weights.shape == array.shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = normalize_axis_tuple(axis, array.ndim, argname="axis")
    if weights.shape != tuple(array.shape[place] for place in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified "
                         "axis.")
    ordered = weights.transpose(tuple(int(place) for place in np.argsort(axes)))
    kept = tuple(size if place in axes else 1 for place, size in enumerate(array.shape))
    return ordered.reshape(kept)


# Without NaNs -----------------------------------------------------------------------------------


def _without_nans(array: TiledArray, filling: float) -> tuple[TiledArray, TiledArray]:
    """Return the array with NaNs replaced, and where they were."""
    missing = array != array
    node = record.elementwise(BY_NAME["where"], missing.node, filling, array.node)
    return wrap(node), missing


def _nan_total(
    original: Callable[..., Any], function: Callable[..., Any], filling: float
) -> Callable[..., Any]:
    def ours(a: Any, *args: Any, **kwargs: Any) -> TiledArray:
        array = handle_of(a)
        if array.dtype.kind in "fc":
            array, _ = _without_nans(array, filling)
        return function(array, *args, **kwargs)

    return implements(original)(ours)


nansum = _nan_total(np.nansum, reducing.sum, 0.0)
nanprod = _nan_total(np.nanprod, reducing.prod, 1.0)
nancumsum = _nan_total(np.nancumsum, reducing.cumsum, 0.0)
nancumprod = _nan_total(np.nancumprod, reducing.cumprod, 1.0)


def _nan_extremum(
    original: Callable[..., Any], function: Callable[..., Any], filling: float
) -> Callable[..., Any]:
    def ours(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = _NO_VALUE, where: Any = True,
    ) -> TiledArray:
        array = handle_of(a)
        refuse(out is not None, "out= is given")
        refuse(where is not True and initial is _NO_VALUE, "where= without initial=")
        keepdims = keepdims is not _NO_VALUE and keepdims
        where = True if where is _NO_VALUE else where
        if array.dtype.kind != "f":
            refuse(array.dtype.kind == "c", "complex numbers")
            return function(array, axis, None, keepdims, initial, where)
        filled, missing = _without_nans(array, filling)
        result = function(filled, axis, None, keepdims, initial, where)
        nothing = reducing.all(missing, axis=axis, keepdims=keepdims)
        if initial is _NO_VALUE:
            # NumPy warns of slices without numbers; that would need the values now.
            result = wrap(record.elementwise(
                BY_NAME["where"], nothing.node, np.nan, result.node
            ))
        return result

    return implements(original)(ours)


nanmin = _nan_extremum(np.nanmin, reducing.min, np.inf)
nanmax = _nan_extremum(np.nanmax, reducing.max, -np.inf)


def _nan_index(
    original: Callable[..., Any], function: Callable[..., Any], filling: float
) -> Callable[..., Any]:
    def ours(
        a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False
    ) -> TiledArray:
        array = handle_of(a)
        refuse(array.dtype.kind == "c" or array.size == 0, "complex numbers or an empty array")
        keepdims = keepdims is not _NO_VALUE and keepdims
        if array.dtype.kind == "f":
            array, missing = _without_nans(array, filling)
            if bool(reducing.any(reducing.all(missing, axis=axis))):
                raise ValueError("All-NaN slice encountered")
        return function(array, axis, out, keepdims)

    return implements(original)(ours)


nanargmin = _nan_index(np.nanargmin, reducing.argmin, np.inf)
nanargmax = _nan_index(np.nanargmax, reducing.argmax, -np.inf)


@implements(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
    where: Any = True,
) -> TiledArray:
    array = handle_of(a)
    keepdims = keepdims is not _NO_VALUE and keepdims
    if array.dtype.kind not in "fc":
        return reducing.mean(array, axis, dtype, out, keepdims, where)
    refuse(where is not True and where is not _NO_VALUE, "where= is given")
    refuse(out is not None or as_dtype(dtype or float).kind not in "fc", "out= or dtype= is given")
    filled, missing = _without_nans(array, 0.0)
    kind = array.dtype if dtype is None else as_dtype(dtype)
    count = reducing.sum(~missing, axis=axis, dtype=np.intp, keepdims=keepdims)
    total = reducing.sum(filled, axis=axis, dtype=kind, keepdims=keepdims)
    return (total / count).astype(kind)


def _nan_variance(
    a: Any, axis: Any, dtype: Any, ddof: float, keepdims: Any
) -> TiledArray:
    array = handle_of(a)
    kind = array.dtype if dtype is None else as_dtype(dtype)
    refuse(array.dtype.kind not in "fc" or kind.kind not in "fc", "not floating point")
    refuse(dtype is not None and "c" in (array.dtype.kind, kind.kind), "dtype= beside complex")
    keepdims = keepdims is not _NO_VALUE and keepdims
    filled, missing = _without_nans(array.astype(kind, copy=False), 0.0)
    present = ~missing
    count = reducing.sum(present, axis=axis, dtype=np.intp, keepdims=True)
    centre = (reducing.sum(filled, axis=axis, keepdims=True) / count).astype(kind)
    centred = wrap(record.elementwise(
        BY_NAME["where"], missing.node, 0.0, (filled - centre).node
    ))
    squared = centred * centred if kind.kind == "f" else (
        centred.real * centred.real + centred.imag * centred.imag
    )
    total = reducing.sum(squared, axis=axis, keepdims=keepdims)
    degrees = reducing.sum(present, axis=axis, dtype=np.intp, keepdims=keepdims) - ddof
    result = (total / degrees).astype(squared.dtype)
    return wrap(record.elementwise(
        BY_NAME["where"], (degrees <= 0).node, np.nan, result.node
    ))


def _nan_spread(original: Callable[..., Any], root: bool) -> Callable[..., Any]:
    def ours(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
        keepdims: Any = False, *, where: Any = True, mean: Any = _NO_VALUE,
        correction: Any = _NO_VALUE,
    ) -> TiledArray:
        refuse(where is not True or mean is not _NO_VALUE, "where= or mean= is given")
        refuse(out is not None, "out= is given")
        ddof = reducing.degrees(ddof, correction)
        variance = _nan_variance(a, axis, dtype, ddof, keepdims)
        return _U["sqrt"](variance) if root else variance

    return implements(original)(ours)


nanvar = _nan_spread(np.nanvar, root=False)
nanstd = _nan_spread(np.nanstd, root=True)


@implements(np.trace)
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> TiledArray:
    return handle_of(a).trace(operator.index(offset), axis1, axis2, dtype, out)
