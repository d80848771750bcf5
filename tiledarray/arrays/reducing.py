"""Reductions of arrays, by NumPy's rules: axes, dtypes, ``where``, ``initial``, empty arrays."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from tiledarray.arrays import selections
from tiledarray.arrays.by_numpy import or_numpy
from tiledarray.arrays.handle import Handle, as_dtype, as_node, converted, wrap
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import UnsupportedDtypeError, is_numeric, shape_text
from tiledarray.graph.node import Node
from tiledarray.ops import reduction as ops
from tiledarray.ops import scan
from tiledarray.ops.elementwise import BY_NAME, has_kernel
from tiledarray.ops.op import Elementwise, Reduction, Scan
from tiledarray.recording import record
from tiledarray.recording.site import warn

_NO_VALUE = np._NoValue
_WHERE = BY_NAME["where"]
_FLOAT16 = np.dtype(np.float16)
_NO_ARRAY = "output must be an array"


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes, sorted and not negative.

    Raises
    ------
    numpy.exceptions.AxisError
        If one is out of bounds.
    ValueError
        If one is given twice.
    TypeError, OverflowError
        If one is no integer, or none that fits.
    """
    if axis is None:
        return tuple(range(ndim))
    wanted = axis if isinstance(axis, tuple) else (axis,)
    axes = []
    for entry in wanted:
        if isinstance(entry, (bool, np.bool_)):
            raise TypeError("an integer is required")
        number = operator.index(entry)
        if abs(number) > sys.maxsize:
            raise OverflowError("Python int too large to convert to C long")
        if not -ndim <= number < ndim:
            if ndim == 0 and number in (0, -1) and not isinstance(axis, tuple):
                return ()  # NumPy allows axis 0 and -1 of a scalar
            raise np.exceptions.AxisError(number, ndim)
        axes.append(number % ndim)
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))


def _one_axis(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axis, or all of them; an array without axes is taken as a vector."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (bool, np.bool_)):
        raise TypeError("an integer is required for the axis")
    place = normalize_axis_index(operator.index(axis), ndim or 1)
    return (place,) if ndim else ()


def count_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Return how many elements are reduced into one."""
    return math.prod(shape[axis] for axis in axes)


def keep(node: Node, axes: Sequence[int]) -> Node:
    """Put reduced axes back with length one."""
    return record.expand_dims(node, axes) if axes else node


def _finish(node: Node, axes: Sequence[int], keepdims: Any, out: Any) -> Any:
    if keepdims and keepdims is not _NO_VALUE:
        node = keep(node, axes)
    if out is None:
        return wrap(node)
    shape = _output(out).shape
    if shape != node.shape:
        raise ValueError(
            f"output parameter for reduction operation has the wrong shape: {shape_text(shape)} "
            f"instead of {shape_text(node.shape)}"
        )
    if isinstance(out, Handle):
        out.assign(record.cast(node, out.node.dtype))
    else:
        out[...] = wrap(node)
    return out


def _output(out: Any, wrong: str = "return arrays must be of ArrayType") -> Any:
    if not isinstance(out, (Handle, np.ndarray)):
        raise TypeError(wrong)
    return out


def _node(a: Any) -> Node:
    node = a.node
    if not is_numeric(node.dtype):
        raise UnsupportedDtypeError(f"no reduction for dtype {node.dtype}")
    return node


def _mask(node: Node, where: Any, original: Callable[..., Any]) -> Node:
    """Return ``where=`` as a node; one that does not fit raises NumPy's error."""
    mask = as_node(where, node.device)
    typed = mask.dtype.kind == "b" or not hasattr(where, "dtype")
    if not (typed and record.broadcastable(mask.shape, node.shape)):
        shown, chosen = (np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in (node, mask))
        options = {"initial": 0} if original in (np.max, np.min) else {}
        original(shown, where=chosen, **options)
    return mask


def _masked(node: Node, where: Any, filling: Any, original: Callable[..., Any]) -> Node:
    if where is True or where is _NO_VALUE:
        return node
    mask = _mask(node, where, original)
    fill = record.full((), np.array(filling, node.dtype).item(), node.dtype, node.device)
    return record.elementwise(_WHERE, mask, node, fill)


# Sums, products, extrema -------------------------------------------------------------------------


def _start(initial: Any, dtype: np.dtype[Any], device: Any) -> Node:
    """Return ``initial=`` as a node of the result's dtype, which NumPy says whether it fits."""
    if isinstance(initial, Handle) and not initial.node.shape:
        return record.cast(initial.node, dtype)
    sample = np.empty(1, dtype)
    sample[0] = initial
    return record.full((), sample[0].item(), dtype, device)


def _loop_into(out: Any, elements: np.dtype[Any]) -> np.dtype[Any]:
    """Return in what NumPy reduces elements into an output.

    Raises
    ------
    LeaveToNumPy
        If the output cannot hold that: NumPy stores what it has so far there again and again.
    """
    target = _output(out).dtype
    loop = np.result_type(elements, target)
    if loop != target:
        raise LeaveToNumPy("out= of a dtype that rounds")
    return loop


def _total(
    op: Reduction, combine: Elementwise, identity: int, original: Callable[..., Any]
) -> Callable[..., Any]:
    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = _NO_VALUE, where: Any = True,
    ) -> Any:
        node = _node(a)
        node = _masked(node, where, identity, original)
        axes = axes_of(axis, len(node.shape))
        if dtype is None and out is not None:
            dtype = _loop_into(out, node.dtype)
        elif dtype is not None:
            dtype = as_dtype(dtype)
            if node.dtype.kind in "fc" and not np.can_cast(node.dtype, dtype, "same_kind"):
                node = converted(node, dtype)
        result = record.reduce(op, node, axes, dtype=dtype)
        if initial is not _NO_VALUE and initial is not None:
            result = record.binary(combine, result, _start(initial, result.dtype, node.device))
        return _finish(result, axes, keepdims, out)

    return function


def _extremum(
    op: Reduction, combine: Elementwise, name: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    def function(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
        initial: Any = _NO_VALUE, where: Any = True, dtype: Any = None,
    ) -> Any:
        node = _node(a) if dtype is None else record.cast(_node(a), dtype)
        if out is not None:
            node = record.cast(node, _loop_into(out, node.dtype))
        axes = axes_of(axis, len(node.shape))
        known = initial is not _NO_VALUE and initial is not None
        if where is not True and where is not _NO_VALUE:
            _mask(node, where, original)
            if not known:
                raise ValueError(
                    f"reduction operation '{name}' does not have an identity, so to use a where "
                    "mask one has to specify 'initial'"
                )
            node = _masked(node, where, initial, original)
        kept = [size for place, size in enumerate(node.shape) if place not in axes]
        start = _start(initial, node.dtype, node.device) if known else None
        if count_of(node.shape, axes) == 0:
            if start is None:
                raise ValueError(
                    f"zero-size array to reduction operation {name} which has no identity"
                )
            result = record.broadcast_to(start, tuple(kept))
            return _finish(result, axes, keepdims, out)
        result = record.reduce(op, node, axes)
        if start is not None:
            result = record.binary(combine, result, start)
        return _finish(result, axes, keepdims, out)

    return function


def _truth(
    op: Reduction, combine: Elementwise, identity: bool, original: Callable[..., Any]
) -> Callable[..., Any]:
    def function(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, where: Any = True,
        dtype: Any = None, initial: Any = _NO_VALUE,
    ) -> Any:
        if initial is None:
            raise LeaveToNumPy("without an identity")
        node = _masked(record.cast(_node(a), bool), where, identity, original)
        axes = axes_of(axis, len(node.shape))
        result = record.reduce(op, node, axes)
        if initial is not _NO_VALUE:
            result = record.binary(combine, result, _start(initial, result.dtype, node.device))
        return _finish(result, axes, keepdims, out)

    return function


def _check_places(out: Any) -> None:
    """Raise NumPy's error if places cannot be stored in an output of this dtype."""
    if out is not None and not np.can_cast(_output(out, _NO_ARRAY).dtype, np.intp, "safe"):
        what = "array data" if out.ndim else "scalar"
        raise TypeError(
            f"Cannot cast {what} from {out.dtype!r} to {np.dtype(np.intp)!r} according to the rule "
            "'safe'"
        )


def _index(op: Reduction) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        node = _node(a)
        axes = _one_axis(axis, len(node.shape))
        if count_of(node.shape, axes) == 0:
            raise ValueError(f"attempt to get {op.name} of an empty sequence")
        _check_places(out)
        result = record.reduce(op, node, axes)
        if 0 in result.shape:
            result = record.full(result.shape, 0, result.dtype, node.device)
        return _finish(result, axes, keepdims, out)

    return function


sum = selections.of_all(_total(ops.sum, BY_NAME["add"], 0, np.sum))
prod = selections.of_all(_total(ops.prod, BY_NAME["multiply"], 1, np.prod))
min = selections.of_all(_extremum(ops.min, BY_NAME["minimum"], "minimum", np.min), of_none=False)
max = selections.of_all(_extremum(ops.max, BY_NAME["maximum"], "maximum", np.max), of_none=False)
all = selections.of_all(_truth(ops.all, BY_NAME["logical_and"], True, np.all))
any = selections.of_all(_truth(ops.any, BY_NAME["logical_or"], False, np.any))
argmin = _index(ops.argmin)
argmax = _index(ops.argmax)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """Return the range of the values: maximum minus minimum.

    Raises
    ------
    LeaveToNumPy
        If an output is given.
    """
    if out is not None:
        raise LeaveToNumPy("out= is given")
    high = max(a, axis=axis, keepdims=keepdims)
    low = min(a, axis=axis, keepdims=keepdims)
    result = record.binary(BY_NAME["subtract"], high.node, low.node)
    return _finish(result, (), False, None)


# Moments ------------------------------------------------------------------------------------------


def _moment_dtypes(node: Node, dtype: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return in what to accumulate a mean, and what it is returned as."""
    if dtype is not None:
        return as_dtype(dtype), as_dtype(dtype)
    if node.dtype.kind in "biu":
        return np.dtype(float), np.dtype(float)
    return (np.dtype(np.float32) if node.dtype == _FLOAT16 else node.dtype), node.dtype


def _same_dtype(out: Any, dtype: np.dtype[Any]) -> None:
    """Leave a moment to NumPy whose output has another dtype: it computes in that."""
    if _output(out).dtype != dtype:
        raise LeaveToNumPy("out= of another dtype")


def _moment_axes(axis: Any, ndim: int, where: Any) -> tuple[int, ...]:
    """Return the axes as `axes_of` does; a moment of an array without axes takes none."""
    if axis is not None and not ndim and where is True:
        normalize_axis_tuple(axis, 0)
    return axes_of(axis, ndim)


def _divided(total: Node, count: Any, dtype: np.dtype[Any]) -> Node:
    return record.cast(record.binary(BY_NAME["divide"], total, count), dtype)


def _counted(node: Node, axes: tuple[int, ...], where: Any, dtype: np.dtype[Any]) -> Any:
    """Return how many elements count: a Python int, or a node where a mask decides."""
    if where is True or where is _NO_VALUE:
        return count_of(node.shape, axes)
    mask = record.broadcast_to(record.cast(_mask(node, where, np.mean), bool), node.shape)
    return record.cast(record.reduce(ops.sum, mask, axes), dtype)


def _mean_node(
    node: Node, axes: tuple[int, ...], where: Any, accumulate: np.dtype[Any], dtype: np.dtype[Any]
) -> Node:
    masked = _masked(node, where, 0, np.mean)
    total = record.reduce(ops.sum, masked, axes, accumulate=accumulate, dtype=accumulate)
    real = total.dtype.type(0).real.dtype
    return _divided(total, _counted(node, axes, where, real), dtype)


@selections.of_all
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    where: Any = True,
) -> Any:
    """Return the arithmetic mean."""
    node = _node(a)
    axes = _moment_axes(axis, len(node.shape), where)
    accumulate, result = _moment_dtypes(node, dtype)
    if out is not None:
        _same_dtype(out, result)
    if where is True and count_of(node.shape, axes) == 0:
        warn("Mean of empty slice")
    return _finish(_mean_node(node, axes, where, accumulate, result), axes, keepdims, out)


def _variance(
    a: Any, axis: Any, dtype: Any, ddof: float, where: Any, mean: Any = _NO_VALUE
) -> tuple[Node, tuple[int, ...]]:
    node = _node(a)
    axes = _moment_axes(axis, len(node.shape), where)
    accumulate, result = _moment_dtypes(node, dtype)
    if dtype is not None and (accumulate.kind != "f" or node.dtype.kind == "c"):
        raise LeaveToNumPy("dtype= that is not floating point, or of complex numbers")
    result = result.type(0).real.dtype
    if where is True and count_of(node.shape, axes) <= ddof:
        warn("Degrees of freedom <= 0 for slice")
    if where is True and mean is _NO_VALUE:
        if node.dtype.kind in "biu" or node.dtype != accumulate:
            node = record.cast(node, accumulate)
        real = accumulate.type(0).real.dtype
        total = record.reduce(ops.deviation, node, axes, accumulate=accumulate, dtype=real)
    else:
        total = _masked_deviation(node, axes, where, accumulate, mean)
    count = _counted(node, axes, where, total.dtype)
    if type(count) is Node:
        zero = record.full((), 0.0, count.dtype, count.device)
        count = record.binary(
            BY_NAME["maximum"], record.binary(BY_NAME["subtract"], count, ddof), zero
        )
    else:
        count = count - ddof if count > ddof else 0
    return _divided(total, count, result), axes


def _masked_deviation(
    node: Node, axes: tuple[int, ...], where: Any, accumulate: np.dtype[Any], mean: Any
) -> Node:
    """Return the sum of squared deviations of what a mask selects, or from a given mean."""
    if mean is _NO_VALUE:
        centre = keep(_mean_node(node, axes, where, accumulate, accumulate), axes)
    else:
        centre = as_node(mean, node.device)
    centred = record.binary(BY_NAME["subtract"], record.cast(node, accumulate), centre)
    if centred.dtype.kind == "c":
        centred = record.unary(BY_NAME["absolute"], centred)
    squared = _masked(record.unary(BY_NAME["square"], centred), where, 0, np.var)
    return record.reduce(ops.sum, squared, axes)


def degrees(ddof: float, correction: Any) -> float:
    """Return the degrees of freedom taken off, which have two names.

    Raises
    ------
    ValueError
        If both are given.
    """
    if correction is _NO_VALUE:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return float(correction)


_of_two_passes = functools.partial(selections.of_all, passes=2)


@_of_two_passes
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, where: Any = True, mean: Any = _NO_VALUE,
    correction: Any = _NO_VALUE,
) -> Any:
    """Return the variance."""
    node, axes = _variance(a, axis, dtype, degrees(ddof, correction), where, mean)
    if out is not None:
        _same_dtype(out, node.dtype)
    return _finish(node, axes, keepdims, out)


@_of_two_passes
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0,
    keepdims: Any = False, where: Any = True, mean: Any = _NO_VALUE,
    correction: Any = _NO_VALUE,
) -> Any:
    """Return the standard deviation."""
    node, axes = _variance(a, axis, dtype, degrees(ddof, correction), where, mean)
    if out is not None:
        _same_dtype(out, node.dtype)
    return _finish(record.unary(BY_NAME["sqrt"], node), axes, keepdims, out)


# Running totals -----------------------------------------------------------------------------------


def _running(op: Scan, total: Reduction) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        node = _node(a)
        flat = axis is None
        if flat:
            node = record.reshape(node, (math.prod(node.shape),))
            axis = 0
        (place,) = _one_axis(axis, len(node.shape)) or (0,)
        if not node.shape:
            node = record.reshape(node, (1,))
        if out is not None and not _output(out, _NO_ARRAY).shape and a.ndim <= 1:
            raise ValueError("Iterator input op_axes[0][0] (==0) is not a valid axis of op[0], "
                             "which has 0 dimensions ")  # NumPy's words, where it does not crash
        if dtype is None:
            dtype = total.result_of(node.dtype) if out is None else _loop_into(out, node.dtype)
        dtype = as_dtype(dtype)
        if not has_kernel(dtype):
            raise LeaveToNumPy(f"dtype {dtype}")
        found = record.scan(op, node, place, dtype)
        if flat and out is not None and 0 in node.shape and 0 in out.shape:
            found = record.reshape(found, out.shape)  # of no elements NumPy takes any such output
        return _finish(found, (), False, out)

    return function


cumsum = _running(scan.cumsum, ops.sum)
cumprod = _running(scan.cumprod, ops.prod)


def _accumulated(op: Scan) -> Callable[..., Any]:
    """Return the running function that NumPy has as a method of the ufunc alone."""
    bits = op.ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    truth = op.ufunc in (np.logical_and, np.logical_or)

    def function(a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        node = _node(a)
        if dtype is not None or out is not None:
            raise LeaveToNumPy("dtype= or out= is given")
        if not node.shape or (bits and node.dtype.kind not in "biu"):
            raise LeaveToNumPy("NumPy refuses it")  # its own words
        (place,) = _one_axis(axis, len(node.shape))
        made = np.dtype(bool) if truth else node.dtype
        return _finish(record.scan(op, node, place, made), (), False, None)

    return function


RUNNING: dict[np.ufunc, Callable[..., Any]] = {
    **{ufunc: _accumulated(op) for ufunc, op in scan.BY_UFUNC.items()},
    np.add: cumsum, np.multiply: cumprod,
}
BY_UFUNC: dict[np.ufunc, Callable[..., Any]] = {
    np.add: sum, np.multiply: prod, np.minimum: min, np.maximum: max,
    np.logical_and: all, np.logical_or: any,
}


def method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the method of a reduction; NumPy does it for dtypes that no kernel knows."""
    made = or_numpy(name, getattr(np, name), function)
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"See `numpy.{name}`."
    return made
