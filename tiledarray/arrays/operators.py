"""The operators of `TiledArray`, one table."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core._exceptions import _UFuncNoLoopError

from tiledarray.arrays import by_numpy, views
from tiledarray.arrays.handle import SCALARS, Handle, as_operand, rebind, wrap
from tiledarray.graph.dtypes import UnsupportedDtypeError, shape_text
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import Elementwise
from tiledarray.recording import record
from tiledarray.recording.record import binary, unary

Method = Callable[..., Any]
_ABSENT = object()


def _leaves_to_other(self: Handle, other: Any) -> bool:
    """Whether the other operand's type wants the operator for itself (NumPy's rule)."""
    kind = type(other)
    protocol = getattr(kind, "__array_ufunc__", _ABSENT)
    if protocol is _ABSENT:
        own = getattr(self, "__array_priority__", 0.0)
        return bool(getattr(kind, "__array_priority__", -1.0) > own)
    return protocol is None


def _repeats(op: Elementwise, self: Handle, other: Any) -> bool:
    """Whether this is ``"text" * count``, which Python does with a scalar as the count."""
    if not isinstance(other, (str, bytes)) or op.name != "multiply":
        return False
    return not self.node.shape and self.node.dtype.kind in "iu"


def _through_numpy(op: Elementwise, self: Handle, other: Any, *, reflected: bool) -> Any:
    """Apply the op where the other operand is neither an array of ours nor a Python scalar."""
    if by_numpy.is_subclass(type(other)):
        return _beside_subclass(op, self, other, reflected=reflected)
    if isinstance(other, (np.ndarray, np.generic)) and type(other).__module__ == "numpy":
        left = self.node
        try:
            right = as_operand(other, left.device)
            return wrap(binary(op, right, left) if reflected else binary(op, left, right))
        except UnsupportedDtypeError:
            pass
    elif _leaves_to_other(self, other) or _repeats(op, self, other):
        return NotImplemented
    ufunc: Any = op.ufunc
    return by_numpy.leave(ufunc, (other, self) if reflected else (self, other), {})


def _beside_subclass(op: Elementwise, self: Handle, other: Any, *, reflected: bool) -> Any:
    """Apply an operator beside a matrix or a masked array: it says what that means."""
    pair = (other, self) if reflected else (self, other)
    return by_numpy.call(op.name, _OPERATORS[op.name], pair)


def _by_numpy(op: Elementwise, *operands: Any) -> Any:
    ufunc: Any = op.ufunc
    return by_numpy.call(op.name, ufunc, operands)


def _forward(op: Elementwise) -> Method:
    def method(self: Handle, other: Any) -> Any:
        left = self._node if self._base is None else self.node
        if isinstance(other, Handle):
            right = other._node if other._base is None else other.node
        elif type(other) in SCALARS:
            right = other
        else:
            return _through_numpy(op, self, other, reflected=False)
        try:
            return wrap(binary(op, left, right))
        except UnsupportedDtypeError:
            return _by_numpy(op, self, other)

    return method


def _reflected(op: Elementwise) -> Method:
    def method(self: Handle, other: Any) -> Any:
        if type(other) not in SCALARS:
            return _through_numpy(op, self, other, reflected=True)
        try:
            return wrap(binary(op, other, self.node))
        except UnsupportedDtypeError:
            return _by_numpy(op, other, self)

    return method


def _in_place(forward: Method, ufunc: Any) -> Method:
    def method(self: Handle, other: Any) -> Any:
        if by_numpy.is_subclass(type(other)):
            return by_numpy.call(ufunc.__name__, ufunc, (self, other), {"out": self})
        result = forward(self, other)
        if not isinstance(result, Handle):
            return result  # another library's type has made it
        if self._base is None and not self._node.shape:
            return result  # NumPy's scalars are immutable; what holds the old one keeps it
        return store_result(self, result.node, ufunc, (self, other))

    return method


def store_result(target: Handle, node: Node, ufunc: np.ufunc, operands: Any) -> Handle:
    """Make the result of a ufunc the value of its output argument, by NumPy's rules."""
    old = target._node if target._base is None else target.node
    if node.form.kind is not old.form.kind:
        node = _cast_to(old, node, ufunc, operands)
    if target._base is None:
        rebind(target, node)
    elif views.is_frozen(target._steps):
        raise ValueError("output array is read-only")
    else:
        target.assign(node)
    return target


def _cast_to(old: Node, node: Node, ufunc: np.ufunc, operands: Any) -> Node:
    """The result with the output's shape and dtype, where NumPy allows that."""
    if node.shape != old.shape:
        if not record.broadcastable(node.shape, old.shape):
            raise ValueError(
                f"non-broadcastable output operand with shape {shape_text(old.shape)} doesn't "
                f"match the broadcast shape {shape_text(node.shape)}"
            )
        node = record.broadcast_to(node, old.shape)
    if node.device is not old.device:
        raise ValueError(f"the output is on {old.device}, the operands on {node.device}")
    if node.dtype != old.dtype:
        if not np.can_cast(node.dtype, old.dtype, "same_kind"):
            _raise_casting(ufunc, operands, old.dtype)
        node = record.cast(node, old.dtype)
    return node


def _raise_casting(ufunc: np.ufunc, operands: Any, dtype: np.dtype[Any]) -> None:
    """Raise NumPy's own error, by a call without elements."""
    samples = [x if type(x) in SCALARS else np.empty(0, x.dtype) for x in operands]
    ufunc(*samples, out=(np.empty(0, dtype),) + (None,) * (ufunc.nout - 1))
    raise TypeError(f"cannot cast the result of {ufunc.__name__} to {dtype}")


def _unary(op: Elementwise) -> Method:
    def method(self: Handle) -> Any:
        try:
            return wrap(unary(op, self._node if self._base is None else self.node))
        except UnsupportedDtypeError:
            return _by_numpy(op, self)

    return method


def _equality(op: Elementwise, otherwise: bool) -> Method:
    """Make ``==`` or ``!=``: what cannot be compared differs."""
    forward = _forward(op)

    def method(self: Handle, other: Any) -> Any:
        try:
            return forward(self, other)
        except _UFuncNoLoopError:
            node = self.node
            shape = record.broadcast(node.shape, np.shape(other))
            return wrap(record.full(shape, otherwise, np.dtype(bool), node.device))

    return method


_SHORT_POWERS = {2: "square", 1: "positive", -1: "reciprocal", 0.5: "sqrt"}


def _power() -> Method:
    general = _forward(BY_NAME["power"])
    short = {exponent: _unary(BY_NAME[name]) for exponent, name in _SHORT_POWERS.items()}

    def method(self: Handle, other: Any) -> Any:
        if type(other) in (int, float) and other in short:
            kind = self.node.dtype.kind
            if kind in "fc" or (kind in "biu" and other == 2 and type(other) is int):
                return short[other](self)
        return general(self, other)

    return method


def _matmul(self: Any, other: Any) -> Any:
    return NotImplemented if _leaves_to_other(self, other) else np.matmul(self, other)


def _matmul_reflected(self: Any, other: Any) -> Any:
    return NotImplemented if _leaves_to_other(self, other) else np.matmul(other, self)


def _divmod(self: Any, other: Any) -> Any:
    return NotImplemented if _leaves_to_other(self, other) else np.divmod(self, other)


def _divmod_reflected(self: Any, other: Any) -> Any:
    return NotImplemented if _leaves_to_other(self, other) else np.divmod(other, self)


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


_OPERATORS: dict[str, Method] = {
    name: getattr(operator, f"__{short}__") for short, name in (_BINARY | _COMPARISONS).items()
}


def _methods() -> dict[str, Method]:
    methods: dict[str, Method] = {
        "__matmul__": _matmul, "__rmatmul__": _matmul_reflected,
        "__imatmul__": _in_place(_matmul, np.matmul),
        "__divmod__": _divmod, "__rdivmod__": _divmod_reflected,
    }
    for short, name in _BINARY.items():
        op = BY_NAME[name]
        forward = _power() if short == "pow" else _forward(op)
        methods[f"__{short}__"] = forward
        methods[f"__r{short}__"] = _reflected(op)
        methods[f"__i{short}__"] = _in_place(forward, op.ufunc)
    for short, name in _COMPARISONS.items():
        methods[f"__{short}__"] = _forward(BY_NAME[name])
    methods["__eq__"] = _equality(BY_NAME["equal"], False)
    methods["__ne__"] = _equality(BY_NAME["not_equal"], True)
    for short, name in _UNARY.items():
        methods[f"__{short}__"] = _unary(BY_NAME[name])
    for name, method in methods.items():
        method.__name__ = name
        method.__qualname__ = f"TiledArray.{name}"
    return methods


METHODS = _methods()
