"""NumPy's protocols: how its ufuncs and functions come to arrays of ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, by_places, reducing, selections, told
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    as_dtype,
    as_node,
    as_operand,
    assign_all,
    converted,
    host_array,
    wrap,
)
from tiledarray.arrays.index import MOST_AXES
from tiledarray.arrays.operators import fitted, store_result
from tiledarray.arrays.tracing import is_tracing
from tiledarray.arrays.views import is_frozen
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME, BY_UFUNC, OUTPUTS_BY_UFUNC
from tiledarray.recording import record
from tiledarray.recording.site import warn

# Filled by the public namespace: NumPy's function -> ours; ufuncs that are no elementwise op
# (matmul), called with the inputs alone -> ours.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
UFUNCS: dict[np.ufunc, Callable[..., Any]] = {}

# NumPy's functions that make its arrays of whatever they are given, as `asarray` does.  Libraries
# call them on what a user's function returned, before they hand it to code in C (SciPy's L-BFGS-B).
CONVERSIONS = frozenset((np.atleast_1d, np.atleast_2d, np.atleast_3d))

# NumPy's own generators shuffle what is no array of NumPy's by ``x[i], x[j] = x[j], x[i]``, which
# loses rows where these are views.  They only warn of it, and offer nothing to take over.
warnings.filterwarnings("error", "you are shuffling a 'TiledArray' object")

# Options of a ufunc's call that are ours; order= and subok= change nothing here.
_UNDERSTOOD = frozenset(("where", "dtype", "casting", "order", "subok"))


# NumPy's words.  Here what is left out is 0.
_WHERE_ALONE = ("'where' used without 'out', expect unitialized memory in output. If this is "
                "intentional, use out=None.")


def _others(values: Sequence[Any]) -> list[Any]:
    """Return the operands whose types have operations of their own, which come first."""
    return [value for value in values if by_numpy.is_foreign(type(value))]


def _by_others(
    others: Sequence[Any], ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]
) -> Any:
    """Ask the other libraries' types among the operands, as NumPy would next."""
    told.tell_all(others)
    for other in others:
        protocol = getattr(type(other), "__array_ufunc__", None)
        if protocol is not None and not isinstance(other, np.ndarray):
            result = protocol(other, ufunc, method, *inputs, **options)
            if result is not NotImplemented:
                return result
    return NotImplemented


def array_ufunc(
    self: Handle, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
) -> Any:
    """Apply a NumPy ufunc."""
    if method == "__call__" and out is None and not options:
        op = BY_UFUNC.get(ufunc)
        deferred = None if op is None else selections.applied(ufunc, inputs, options)
        if deferred is not None:
            return deferred
        if op is not None and ufunc.nin <= 2:
            node = self._node if self._base is None else self.node
            try:
                if ufunc.nin == 1:
                    return wrap(record.unary(op, as_node(inputs[0], node.device)))
                left, right = inputs
                if isinstance(left, Handle) and isinstance(right, Handle):
                    return wrap(record.binary(op, left.node, right.node))
                if left is self and type(right) in SCALARS:
                    return wrap(record.binary(op, node, right))
                if right is self and type(left) in SCALARS:
                    return wrap(record.binary(op, left, node))
            except LeaveToNumPy as error:
                reason = error.reason
                return by_numpy.call(ufunc.__name__, ufunc, inputs, reason=reason)
    others = _others(inputs if out is None else (*inputs, *out))
    if others:
        given = options if out is None else {**options, "out": out}
        result = _by_others(others, ufunc, method, inputs, given)
        if result is not NotImplemented:
            return result
        reason = "beside an array of another library"  # which knows NumPy's arrays
    else:
        try:
            return _METHODS[method](self, ufunc, inputs, out, options)
        except LeaveToNumPy as error:
            reason = error.reason
    given = options if out is None else {**options, "out": out}
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return by_numpy.call(name, function, inputs, given, reason=reason)


def _call(self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]) -> Any:
    where, dtype = options.get("where", True), options.get("dtype")
    along = {"axis": options["axis"]} if ufunc is np.vecdot and "axis" in options else {}
    understood = options.keys() - along.keys() <= _UNDERSTOOD
    casting = options.get("casting", "same_kind")
    any_output = casting == "unsafe" and dtype is None
    if not understood or not (casting == "same_kind" or any_output):
        raise LeaveToNumPy("casting= or other options are given")
    if where is not True and ufunc is np.power and all(map(_is_integral, inputs)):
        raise LeaveToNumPy("where= says which exponents may be negative")
    if where is not True and out is None:
        warn(_WHERE_ALONE, UserWarning)
    try:
        nodes = _results(self, ufunc, inputs, dtype, along)
        targets = out if out is not None else (None,) * len(nodes)
        if any_output:
            nodes = tuple([converted(node, target.dtype) if isinstance(target, Handle) else node
                           for target, node in zip(targets, nodes, strict=True)])
        found = [_selected(target, node, where)
                 for target, node in zip(targets, nodes, strict=True)]
        if len(found) == 1:
            return _store(targets[0], found[0], ufunc, inputs, casting)
        results = _store_all(targets, found, ufunc, inputs, casting)
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(error, LeaveToNumPy):
            by_numpy.raise_first_error(ufunc, inputs, out, options)
        raise
    return results


def _results(
    self: Handle, ufunc: np.ufunc, inputs: Any, dtype: Any, along: dict[str, Any]
) -> tuple[Node, ...]:
    """Return the results of a ufunc as nodes."""
    special = UFUNCS.get(ufunc)
    if special is not None and dtype is None:
        results = special(*inputs, **along)
        if results is NotImplemented:
            raise LeaveToNumPy("operands that the product does not take")
        return tuple(x.node for x in (results if isinstance(results, tuple) else (results,)))
    device = self.node.device
    # A foreign operand may write into ours as it becomes an array.
    given = [x if isinstance(x, Handle) else as_operand(x, device) for x in inputs]
    operands = [x.node if isinstance(x, Handle) else x for x in given]
    if not any(type(x) is Node for x in operands):  # an array of ours is in out= or where= alone
        operands = [as_node(x, device) for x in operands]
    if dtype is not None:
        if ufunc.nout != 1 or ufunc not in BY_UFUNC:
            raise LeaveToNumPy("dtype= is given")
        operands = _cast_operands(ufunc, operands, as_dtype(dtype))
    op = BY_UFUNC.get(ufunc)
    ops = OUTPUTS_BY_UFUNC.get(ufunc, ()) if op is None else (op,)
    if not ops:
        raise LeaveToNumPy
    return tuple(record.elementwise(op, *operands) for op in ops)


def _is_integral(value: Any) -> bool:
    return getattr(value, "dtype", np.dtype(type(value))).kind in "biu"


def _cast_operands(ufunc: np.ufunc, operands: list[Any], dtype: np.dtype[Any]) -> list[Any]:
    """Cast the operands to the loop that ``dtype=`` asks for, by NumPy's rules."""
    keys = [x.dtype if type(x) is Node else np.dtype(type(x)) if type(x) is bool else type(x)
            for x in operands]
    signature = (None,) * ufunc.nin + (dtype,)
    loop = ufunc.resolve_dtypes((*keys, None), signature=signature, casting="same_kind")
    return [
        record.cast(x, wanted) if type(x) is Node else _typed(x, wanted, operands)
        for x, wanted in zip(operands, loop, strict=False)
    ]


def _typed(value: Any, dtype: np.dtype[Any], operands: list[Any]) -> Node:
    device = next(x.device for x in operands if type(x) is Node)
    return record.full((), np.array(value, dtype).item(), dtype, device)


def _selected(target: Any, node: Node, where: Any) -> Node:
    """Return a result where a mask selects it, elsewhere what is in the output."""
    if where is True:
        return node
    mask = as_node(where, node.device)
    if mask.dtype.kind != "b" and hasattr(where, "dtype"):
        raise TypeError(
            f"Cannot cast array data from {mask.dtype!r} to dtype('bool') according to the "
            "rule 'safe'"
        )
    if target is None:
        old = record.full((), 0, node.dtype, node.device)
    else:
        old = as_node(target, node.device)
        if np.can_cast(node.dtype, old.dtype, "same_kind"):
            node = record.cast(node, old.dtype)
        old = record.cast(old, node.dtype)  # else storing the result raises
    return record.elementwise(BY_NAME["where"], mask, node, old)


def _store_all(
    targets: Any, nodes: Any, ufunc: np.ufunc, inputs: Any, casting: Any
) -> tuple[Any, ...]:
    """Store several results: in all arrays of ours or in none, also if a handler raises."""
    pairs = [*zip(targets, nodes, strict=True)]
    writes = [(target, fitted(target, node, ufunc, inputs))
              for target, node in pairs if isinstance(target, Handle)]
    results = tuple([target if isinstance(target, Handle) else
                     _store(target, node, ufunc, inputs, casting) for target, node in pairs])
    assign_all(writes)
    return results


def _store(target: Any, node: Node, ufunc: np.ufunc, inputs: Any, casting: Any) -> Any:
    if target is None:
        return wrap(node)
    if isinstance(target, Handle):
        return store_result(target, node, ufunc, inputs)
    np.copyto(target, host_array(wrap(node)), casting=casting)
    return target


# Other methods of ufuncs -----------------------------------------------------------------------


def _reduce(self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]) -> Any:
    function = reducing.BY_UFUNC.get(ufunc)
    if function is None or not isinstance(inputs[0], Handle):
        raise LeaveToNumPy
    options = {name: value for name, value in options.items() if value is not np._NoValue}
    options.setdefault("axis", 0)
    target = None if out is None else out[0]
    try:
        return function(inputs[0], out=target, **options)
    except (TypeError, ValueError) as error:
        if target is None or isinstance(error, LeaveToNumPy):
            raise
        by_numpy.raise_first_error(ufunc.reduce, inputs, out, options)
        raise


def _accumulate(
    self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]
) -> Any:
    function = reducing.RUNNING.get(ufunc)
    if function is None or not isinstance(inputs[0], Handle):
        raise LeaveToNumPy
    if out is not None and not by_places.any_keeps(inputs[0], *out):
        raise LeaveToNumPy("out= is given")
    axis = options.get("axis", 0)
    if not inputs[0].ndim:
        raise TypeError("cannot accumulate on a scalar")
    if axis is None or isinstance(axis, tuple):
        axes = range(inputs[0].ndim) if axis is None else axis
        if len(axes) != 1:
            raise ValueError("accumulate does not allow multiple axes")
        (axis,) = axes
    return function(inputs[0], axis=axis, dtype=options.get("dtype"),
                    out=None if out is None else out[0])


def _outer(self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]) -> Any:
    left, right = (as_node(value, self.node.device) for value in inputs)
    ndim = len(left.shape) + len(right.shape)
    if ndim > MOST_AXES:
        raise ValueError(
            f"maximum supported dimension for an ndarray is {MOST_AXES}, but "
            f"`{ufunc.__name__}.outer()` result would have {ndim}."
        )
    ndim = len(left.shape)
    places = tuple(range(ndim, ndim + len(right.shape)))
    spread = wrap(record.expand_dims(left, places))
    return _call(self, ufunc, (spread, wrap(right)), out, options)


def _at(self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]) -> Any:
    array, key, *values = inputs
    if isinstance(array, Handle) and is_frozen(array.steps):
        raise ValueError("output array is read-only")  # NumPy does not look, and writes
    if isinstance(array, Handle) and is_tracing() and by_places.add_at_unknown(
            ufunc, array, key, values):
        return
    if not (isinstance(array, Handle) and by_places.any_keeps(array, *values)):
        raise LeaveToNumPy
    if not by_places.at(ufunc, array, key, values):
        raise LeaveToNumPy("a ufunc that no kernel knows")


def _left(self: Handle, ufunc: np.ufunc, inputs: Any, out: Any, options: dict[str, Any]) -> Any:
    raise LeaveToNumPy


_METHODS = {
    "__call__": _call, "reduce": _reduce, "accumulate": _accumulate, "outer": _outer,
    "at": _at, "reduceat": _left,
}


def array_function(
    self: Handle, func: Any, types: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """Apply a NumPy function: ours where there is one, else NumPy's own on host copies."""
    if func in CONVERSIONS and not by_places.any_keeps(*args) and not is_tracing():
        return func(*(np.asarray(x) if isinstance(x, Handle) else x for x in args))
    ours = FUNCTIONS.get(func)
    if ours is not None:
        return ours(*args, **kwargs)
    for kind in types:
        if not issubclass(kind, (Handle, np.ndarray)):
            return NotImplemented
    return by_numpy.call(func.__name__, func, args, kwargs)
