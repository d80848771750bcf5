"""Sorting, searching, counting, order statistics: library calls, most of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    check_with_numpy,
    handle_of,
    host,
    normalize_axis_index,
    normalize_axis_tuple,
    refuse,
)
from tiledarray.api.registry import implements
from tiledarray.arrays import by_numpy, reducing
from tiledarray.arrays.handle import array_of, wrap
from tiledarray.ops import indexing as ops
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

__all__ = [
    "sort", "argsort", "partition", "argpartition", "lexsort", "sort_complex", "searchsorted",
    "digitize", "median", "nanmedian", "quantile", "percentile", "nanquantile", "nanpercentile",
    "bincount", "histogram", "histogram2d", "histogramdd", "histogram_bin_edges", "cov",
    "corrcoef", "unique_values",
]

_NO_VALUE = np._NoValue


def _along(a: Any, axis: Any, places: bool) -> tuple[TiledArray, int]:
    """Return an array and its axis; flattened where the axis is None.

    What gives places takes an array without axes as a vector, as NumPy does.
    """
    array = handle_of(a)
    if axis is None or (places and array.ndim == 0):
        return array.reshape(-1), 0 if axis is None else normalize_axis_index(axis, 1)
    if array.ndim == 0:
        raise np.exceptions.AxisError(operator.index(axis), 0)
    return array, normalize_axis_index(axis, array.ndim)


def _order(op: Any, dtype: Any) -> Callable[..., Any]:
    def ours(
        a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> TiledArray:
        refuse(order is not None, "order= is given")
        array, axis = _along(a, axis, dtype is not None)
        if kind is not None and stable is not None:
            raise ValueError("`kind` and `stable` parameters can't be provided at the same time. "
                             "Use only one of them.")
        if kind is not None:
            np.sort(np.empty(0), kind=kind)
        attrs = (axis, "stable" if stable else kind)
        result = dtype or array.dtype
        return wrap(record.library(op, (array.node,), attrs, array.shape, result))

    return ours


sort = implements(np.sort, "library")(_order(ops.sort, None))
argsort = implements(np.argsort, "library")(_order(ops.argsort, np.dtype(np.intp)))


def _divide(name: str, dtype: Any) -> Callable[..., Any]:
    def ours(
        a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
    ) -> TiledArray:
        refuse(order is not None or kind != "introselect", "order= or kind= is given")
        array, axis = _along(a, axis, dtype is not None)
        places = tuple(np.atleast_1d(host(kth)).tolist())
        length = array.shape[axis] if array.size else 0  # of no elements NumPy takes any place
        if not all(type(place) is int and -length <= place < length for place in places):
            check_with_numpy(getattr(np, name), np.empty(length), places)
        attrs = options(axis=axis, kth=places if len(places) != 1 else places[0])
        result = dtype or array.dtype
        return wrap(record.library(LIBRARY[name], (array.node,), attrs, array.shape, result))

    return ours


partition = implements(np.partition, "library")(_divide("partition", None))
argpartition = implements(np.argpartition, "library")(
    _divide("argpartition", np.dtype(np.intp))
)


@implements(np.lexsort, "library")
def lexsort(keys: Any, axis: int = -1) -> TiledArray:
    columns = arrays_of(*keys)
    refuse(
        not columns or any(column.shape != columns[0].shape for column in columns),
        "keys of different shapes",
    )
    refuse(columns[0].ndim == 0, "keys without axes")
    axis = normalize_axis_index(axis, columns[0].ndim)
    nodes = [column.node for column in columns]
    return wrap(record.library(
        LIBRARY["lexsort"], nodes, options(axis=axis), columns[0].shape, np.intp
    ))


@implements(np.sort_complex, "library")
def sort_complex(a: Any) -> TiledArray:
    array = sort(a)
    if array.dtype.kind == "c":
        return array
    return array.astype(np.complex64 if array.dtype.char in "bhBH" else np.complex128)


@implements(np.searchsorted, "library")
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> TiledArray:
    array, values = arrays_of(a, v)
    refuse(side not in ("left", "right"), "side= is neither left nor right")
    if array.ndim != 1:
        how = "of too small depth" if array.ndim == 0 else "too deep"
        raise ValueError(f"object {how} for desired array")
    if sorter is not None:
        order = handle_of(sorter)
        refuse(order.dtype.kind not in "iu" or order.shape != array.shape,
               "sorter= is not one integer for each element")
        array = array[order]
    nodes = (array.node, values.node)
    return wrap(record.library(
        LIBRARY["searchsorted"], nodes, options(side=side), values.shape, np.intp
    ))


@implements(np.digitize, "library")
def digitize(x: Any, bins: Any, right: bool = False) -> TiledArray:
    values, edges = arrays_of(x, bins)
    refuse(
        values.dtype.kind == "c" or edges.dtype.kind == "c" or edges.ndim != 1,
        "bins or values are not real vectors",
    )
    # NumPy checks the order of the edges at once.
    order = np.asarray(host(edges))
    steps = np.diff(order)
    if not ((steps >= 0).all() or (steps <= 0).all()):
        raise ValueError("bins must be monotonically increasing or decreasing")
    side = "left" if right else "right"
    if order.size > 1 and order[0] > order[-1]:
        return len(order) - searchsorted(edges[::-1], values, side)
    return searchsorted(edges, values, side)


# Order statistics -------------------------------------------------------------------------------


def _reduced_shape(array: TiledArray, axis: Any, keepdims: Any) -> tuple[Any, tuple[int, ...]]:
    if axis is None:
        axes: Any = tuple(range(array.ndim))
    else:
        axes = normalize_axis_tuple(axis, array.ndim)
    shape = tuple(
        1 if place in axes else size
        for place, size in enumerate(array.shape) if keepdims or place not in axes
    )
    return (None if axis is None else axes if len(axes) > 1 else axes[0]), shape


def _middle(original: Callable[..., Any]) -> Callable[..., Any]:
    name = original.__name__

    def ours(
        a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
        keepdims: Any = False,
    ) -> TiledArray:
        array = handle_of(a)
        refuse(array.size == 0 or (type(axis) is tuple and not axis), "an empty array, or no axes")
        refuse(out is not None, "out= is given")
        keepdims = keepdims is not _NO_VALUE and bool(keepdims)
        axis, shape = _reduced_shape(array, axis, keepdims)
        dtype = original(np.zeros(1, array.dtype)).dtype
        node = record.library(
            LIBRARY[name], (array.node,), options(axis=axis, keepdims=keepdims), shape, dtype
        )
        return array_of(node) if keepdims else wrap(node)

    return implements(original, "library")(ours)


median = _middle(np.median)
nanmedian = _middle(np.nanmedian)


def _quantiles(original: Callable[..., Any], most: float) -> Callable[..., Any]:
    name = original.__name__

    def ours(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
        method: str = "linear", keepdims: Any = False, *, weights: Any = None,
    ) -> TiledArray:
        array = handle_of(a)
        wanted = np.asarray(host(q))
        refuse(
            weights is not None or array.size == 0 or wanted.dtype.kind not in "fiu",
            "weights, an empty array, or quantiles that are no numbers",
        )
        refuse((type(axis) is tuple and not axis) or out is not None, "no axes, or out= is given")
        refuse(
            array.dtype.kind not in "iuf" or wanted.ndim > 1 or method not in _METHODS,
            "quantiles of this dtype, in a table, or by this method",
        )
        if wanted.size and not ((wanted >= 0).all() and (wanted <= most).all()):
            original([0.0], wanted)  # raises, in NumPy's words
        keepdims = keepdims is not _NO_VALUE and bool(keepdims)
        axis, shape = _reduced_shape(array, axis, keepdims)
        points: Any = tuple(wanted.tolist()) if wanted.ndim else wanted.item()
        # A q with a dtype of its own is strong; a Python number, or a list, is not.
        strong = wanted if hasattr(q, "dtype") else points
        refuse(
            hasattr(q, "dtype") and wanted.dtype != np.float64,
            "quantiles of another dtype than float64",
        )
        dtype = np.asarray(original(np.zeros(1, array.dtype), strong, method=method)).dtype
        attrs = options(q=points, axis=axis, method=method, keepdims=keepdims)
        refuse(
            hasattr(q, "dtype") and array.dtype.kind == "f" and array.dtype.itemsize < 8,
            "float64 quantiles of smaller floats",
        )
        node = record.library(LIBRARY[name], (array.node,), attrs, wanted.shape + shape, dtype)
        return array_of(node) if keepdims else wrap(node)

    return implements(original, "library")(ours)


_METHODS = frozenset((
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased",
    "normal_unbiased",
))
quantile = _quantiles(np.quantile, 1)
percentile = _quantiles(np.percentile, 100)
nanquantile = _quantiles(np.nanquantile, 1)
nanpercentile = _quantiles(np.nanpercentile, 100)


@implements(np.unique_values, "host")
def unique_values(x: Any, /) -> TiledArray:
    # In order: NumPy leaves it open, and what sorts by `unique_values` elsewhere relies on it.
    return by_numpy.call("unique_values", np.unique, (x,), {"equal_nan": False})


# Counting: the shapes or the checks depend on values, so these look ------------------------------


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that looks at its arguments: NumPy's, on the host."""

    def ours(*args: Any, **kwargs: Any) -> Any:
        refuse(True, "looks at every value")

    return implements(original, "host")(ours)


bincount = _looking(np.bincount)
histogram = _looking(np.histogram)
histogram2d = _looking(np.histogram2d)
histogramdd = _looking(np.histogramdd)
histogram_bin_edges = _looking(np.histogram_bin_edges)


@implements(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> TiledArray:
    refuse(
        y is not None or fweights is not None or aweights is not None,
        "weights or a second array",
    )
    refuse(
        dtype is not None or (ddof is not None and ddof != int(ddof)),
        "dtype= or a broken ddof=",
    )
    array = handle_of(m)
    refuse(array.ndim != 2 or 0 in array.shape, "not a table with elements")
    rows = array if rowvar or array.shape[0] == 1 else array.T
    rows = rows.astype(np.result_type(array.dtype, np.float64))
    ddof = (0 if bias else 1) if ddof is None else ddof
    factor = rows.shape[1] - ddof
    refuse(factor <= 0, "no degrees of freedom")
    rows = rows - reducing.mean(rows, axis=1, keepdims=True)
    return (np.dot(rows, rows.T.conj()) / factor).squeeze()


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> TiledArray:
    refuse(y is not None or dtype is not None, "dtype= or a second array")
    matrix = cov(x, rowvar=rowvar)
    refuse(matrix.ndim != 2, "not a table")
    spread = np.sqrt(matrix.diagonal().real)
    result = matrix / spread[:, None] / spread[None, :]
    if result.dtype.kind == "c":
        limited = np.empty_like(result)
        limited.real = np.clip(result.real, -1, 1)
        limited.imag = np.clip(result.imag, -1, 1)
        return limited
    return np.clip(result, -1, 1)
