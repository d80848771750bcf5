"""The operators of `TiledArray`: what the table in its body is made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, selections, told, views
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    as_operand,
    rebind,
    stands_for_scalar,
    taken_out,
    wrap,
)
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import shape_text
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import Elementwise
from tiledarray.recording import record
from tiledarray.recording.record import binary, unary

Method = Callable[..., Any]
_ABSENT = object()
_KNOWN = (Handle, np.ndarray, np.generic, list, tuple, str, bytes, int, float, complex)
_TAKEN_AS_ARRAYS = ("__array__", "__array_interface__", "__array_struct__", "__array_ufunc__",
                    "__array_priority__", "__buffer__", "__len__")


def _left_to_other(plain: Method, self: Handle, other: Any) -> Any:
    """Leave ``self op other`` to the other operand's type where NumPy does, else return `_ABSENT`.

    Where the type asks to come before NumPy's arrays, as SciPy's sparse ones do, it gets one of
    these: it may know no others.
    """
    kind = type(other)
    if issubclass(kind, (Handle, np.ndarray, np.generic)):
        return _ABSENT
    protocol = getattr(kind, "__array_ufunc__", _ABSENT)
    if protocol is not _ABSENT:
        return NotImplemented if protocol is None else _ABSENT
    priority = getattr(kind, "__array_priority__", -1.0)
    if priority > getattr(self, "__array_priority__", 0.0):
        return NotImplemented
    if priority <= 0.0:  # that of NumPy's arrays
        return _ABSENT
    return by_numpy.call(plain.__name__, plain, (self, other), reason=f"beside a {kind.__name__}")


def _repeats(op: Elementwise, self: Handle, other: Any) -> bool:
    """Whether this is ``[...] * count``, which Python does with a scalar as the count.

    Raises
    ------
    TypeError
        If it is a scalar, and none that counts.
    """
    if not isinstance(other, (str, bytes, list, tuple)) or op.name != "multiply":
        return False
    scalar = stands_for_scalar(self)
    counts = not self.node.shape and self.node.dtype.kind in "iu"
    if scalar and not counts:
        kind = self.node.dtype.type.__name__
        raise TypeError(f"can't multiply sequence by non-int of type 'numpy.{kind}'")
    return counts and (scalar or isinstance(other, (str, bytes)))


def _with_numpys(op: Elementwise, self: Handle, other: Any, *, reflected: bool) -> Any:
    """Apply the op where the other operand is neither an array of ours nor a Python scalar."""
    plain, pair = _OPERATORS[op.name], (other, self) if reflected else (self, other)
    if by_numpy.is_subclass(type(other)):  # a matrix or a masked array says what that means
        return by_numpy.call(op.name, plain, pair, reason=f"beside a {type(other).__name__}")
    if not isinstance(other, (np.ndarray, np.generic)):
        result = NotImplemented if _repeats(op, self, other) else _ABSENT if reflected else (
            _left_to_other(plain, self, other))
        if result is not _ABSENT:
            return result
        if by_numpy.is_foreign(type(other)):
            return by_numpy.with_foreign(_ufunc_of(op), pair, {}, plain)
    try:
        right = as_operand(other, self.node.device)
        left = self.node  # not before: an operand's `__array__` may write into this array
        return wrap(binary(op, right, left) if reflected else binary(op, left, right))
    except LeaveToNumPy as error:
        reason = error.reason
    return by_numpy.call(op.name, plain, pair, reason=reason)


def _ufunc_of(op: Elementwise) -> Any:
    return op.ufunc


def _forward(op: Elementwise) -> Method:
    def method(self: Handle, other: Any) -> Any:
        left = self._node if self._base is None else self.node
        if isinstance(other, Handle):
            right = other._node if other._base is None else other.node
        elif type(other) in SCALARS:
            right = other
        else:
            return _with_numpys(op, self, other, reflected=False)
        try:
            return wrap(binary(op, left, right))
        except LeaveToNumPy as error:
            reason = error.reason
        return by_numpy.call(op.name, _OPERATORS[op.name], (self, other), reason=reason)

    return method


def _reflected(op: Elementwise) -> Method:
    def method(self: Handle, other: Any) -> Any:
        if type(other) not in SCALARS:
            return _with_numpys(op, self, other, reflected=True)
        try:
            return wrap(binary(op, other, self.node))
        except LeaveToNumPy as error:
            reason = error.reason
        return by_numpy.call(op.name, _OPERATORS[op.name], (other, self), reason=reason)

    return method


def _in_place(forward: Method, ufunc: Any) -> Method:
    def method(self: Handle, other: Any) -> Any:
        if by_numpy.is_subclass(type(other)):
            return by_numpy.call(ufunc.__name__, ufunc, (self, other), {"out": self})
        if by_numpy.is_foreign(type(other)) and not stands_for_scalar(self):
            protocol = getattr(type(other), "__array_ufunc__", None)
            if protocol is not None:
                return _by_other(protocol, ufunc, self, other)
        if selections.in_place(forward, self, other):
            return self
        # Once more where others have written into the array meanwhile, but not the operand itself.
        checked, done = self._base is None and not by_numpy.runs_code(other), False
        while not done:
            before = id(self._node) if checked else 0
            try:
                result = forward(self, other)
            except (TypeError, ValueError):
                by_numpy.raise_first_error(ufunc, (self, other), (self,), {})
                raise
            if not isinstance(result, Handle):
                if getattr(type(other), "__array_ufunc__", _ABSENT) is None:
                    return ufunc(self, other)  # raises: nobody else changes an array in place
                return result  # another library's type has made it
            if stands_for_scalar(self):
                return result  # NumPy's scalars are immutable; what holds the old one keeps it
            done = store(self, fitted(self, result.node, ufunc, (self, other)), before)
        return self

    return method


def _by_other(protocol: Method, ufunc: Any, self: Handle, other: Any) -> Any:
    """Have the other operand's type change an array in place, as NumPy does.

    It may do so, or write elsewhere, and gives what the name then stands for.
    """
    told.tell_all((other,))
    result = protocol(other, ufunc, "__call__", self, other, out=(self,))
    if result is not NotImplemented:
        return result
    reason = f"beside a {type(other).__name__}"  # which knows NumPy's arrays, perhaps
    return by_numpy.call(ufunc.__name__, ufunc, (self, other), {"out": (self,)}, reason=reason)


def store_result(target: Handle, node: Node, ufunc: np.ufunc, operands: Any) -> Handle:
    """Make the result of a ufunc the value of its output argument, by NumPy's rules.

    Raises
    ------
    ValueError
        If the output is read-only, on another device or of another shape.
    TypeError
        If the result may not be cast to its dtype.
    """
    store(target, fitted(target, node, ufunc, operands))
    return target


def store(target: Handle, node: Node, before: int = 0) -> bool:
    """Give an array a new value, unless it is no view and has no longer that with the id before."""
    if target._base is None:
        return rebind(target, node if node.shape else record.without_axes(node), before)
    target.assign(node)
    return True


def fitted(target: Handle, node: Node, ufunc: np.ufunc, operands: Any) -> Node:
    """Return a result as it is stored in an output argument; raises as `store_result` does."""
    old = target._node if target._base is None else target.node
    if target._base is not None and views.is_frozen(target._steps):
        raise ValueError(views.refusal("output array is read-only", target._steps))
    return node if node.form.kind is old.form.kind else _cast_to(target, node, ufunc, operands)


def _cast_to(target: Handle, node: Node, ufunc: np.ufunc, operands: Any) -> Node:
    """The result with the output's shape and dtype, where NumPy allows that."""
    old = target.node
    if node.dtype != old.dtype and not np.can_cast(node.dtype, old.dtype, "same_kind"):
        by_numpy.raise_first_error(ufunc, operands, (target,), {})
        raise TypeError(f"cannot cast the result of {ufunc.__name__} to {old.dtype}")
    if node.shape != old.shape:
        cores = _core_axes(ufunc, node, operands)
        if cores and node.shape[-cores:] != old.shape[-cores:]:  # they are not broadcast
            by_numpy.raise_first_error(ufunc, operands, (target,), {})
            raise ValueError(
                f"{ufunc.__name__}: Output operand 0 has a mismatch in its core dimensions, with "
                f"gufunc signature {ufunc.signature} (shape {shape_text(old.shape)} is different "
                f"from {shape_text(node.shape)})")
        if not record.broadcastable(node.shape, old.shape):
            raise ValueError(
                f"non-broadcastable output operand with shape {shape_text(old.shape)} doesn't "
                f"match the broadcast shape {shape_text(node.shape)}"
            )
        node = record.broadcast_to(node, old.shape)
    if node.device is not old.device:
        if "auto" not in (node.device.kind, old.device.kind):
            raise ValueError(f"the output is on {old.device}, the operands on {node.device}")
        node = record.brought(node, old.device)
    return record.cast(node, old.dtype)


def _core_axes(ufunc: np.ufunc, node: Node, operands: Any) -> int:
    """How many axes of a result belong to each product, not to the stack of them."""
    if ufunc.signature is None:
        return 0
    stacks = 0
    for operand, core in zip(operands, ufunc.signature.split("->")[0].split("),("), strict=True):
        stacks = max(stacks, np.ndim(operand) - core.count(",") - 1)
    return len(node.shape) - stacks


def _unary(op: Elementwise) -> Method:
    def method(self: Handle) -> Any:
        try:
            return wrap(unary(op, self._node if self._base is None else self.node))
        except LeaveToNumPy as error:
            reason = error.reason
        return by_numpy.call(op.name, _ufunc_of(op), (self,), reason=reason)

    return method


_PRODUCTS = (3, 4)  # exponents for which two products take less than a power, to an ulp or two
_SHORT_POWERS = {2: "square", 1: "positive", -1: "reciprocal", 0.5: "sqrt"}


def _power() -> Method:
    general, multiply = _forward(BY_NAME["power"]), _forward(BY_NAME["multiply"])
    short = {exponent: _unary(BY_NAME[name]) for exponent, name in _SHORT_POWERS.items()}
    square = short[2]

    def method(self: Handle, other: Any) -> Any:
        if type(other) in (int, float) and other in _PRODUCTS and self.node.dtype.char in "fd":
            squared = square(self)
            return square(squared) if other == 4 else multiply(squared, self)
        if type(other) in (int, float) and other in short:
            kind = self.node.dtype.kind
            if kind == "b" and stands_for_scalar(self):
                return general(self, other)  # NumPy's boolean scalars have no short way
            if kind in "fc" or (kind in "biu" and other == 2 and type(other) is int):
                return short[other](self)
        return general(self, other)

    return method


def _by_ufunc(plain: Method, ufunc: Any) -> tuple[Method, Method]:
    """Make ``x op y`` and ``y op x`` of a ufunc that is no elementwise op."""

    def forward(self: Any, other: Any) -> Any:
        result = _left_to_other(plain, self, other)
        return ufunc(self, other) if result is _ABSENT else result

    def reflected(self: Any, other: Any) -> Any:
        return ufunc(other, self)

    return forward, reflected


_matmul, _matmul_reflected = _by_ufunc(operator.matmul, np.matmul)


def _matmul_in_place(self: Any, other: Any) -> Any:
    if np.ndim(other) == 1:
        raise ValueError(
            "inplace matrix multiplication requires the first operand to have at least one and "
            "the second at least two dimensions."
        )
    return _in_place(_matmul, np.matmul)(self, other)


# What the table in the body of `TiledArray` calls ------------------------------------------------

# Python's operators, which know what NumPy's arrays do beyond their ufuncs: a number and a text are
# unequal, a list is repeated by a count.
_OPERATORS: dict[str, Method] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "power": operator.pow, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "left_shift": operator.lshift, "right_shift": operator.rshift,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}


def _named(short: str, method: Method) -> Method:
    method.__name__ = f"__{short}__"
    method.__qualname__ = f"TiledArray.__{short}__"
    return method


def _three(short: str, forward: Method, reflected: Method, ufunc: Any) -> tuple[Method, ...]:
    in_place = _in_place(forward, ufunc)
    return (
        _named(short, forward), _named(f"r{short}", reflected), _named(f"i{short}", in_place)
    )


def _each(short: str, forward: Method, reflected: Method, ufunc: Any) -> tuple[Method, ...]:
    """The same of elementwise ones."""
    forward, reflected = _named(short, forward), _named(f"r{short}", reflected)
    return _three(
        short, selections.of_each(forward), selections.of_each(reflected), ufunc)


def arithmetic(short: str, name: str) -> tuple[Method, ...]:
    """Make ``x + y``, ``y + x`` and ``x += y`` of the op of this name."""
    op = BY_NAME[name]
    return _each(short, _forward(op), _reflected(op), op.ufunc)


def powers() -> tuple[Method, ...]:
    """Make ``x ** y``, ``y ** x`` and ``x **= y``."""
    op = BY_NAME["power"]
    return _each("pow", _power(), _reflected(op), op.ufunc)


def matrix_products() -> tuple[Method, ...]:
    """Make ``x @ y``, ``y @ x`` and ``x @= y``."""
    return (
        _named("matmul", _matmul), _named("rmatmul", _matmul_reflected),
        _named("imatmul", _matmul_in_place),
    )


def divmod_pair() -> tuple[Method, ...]:
    """Make ``divmod(x, y)`` and ``divmod(y, x)``."""
    forward, reflected = _by_ufunc(divmod, np.divmod)
    return _named("divmod", forward), _named("rdivmod", reflected)


def comparison(short: str, name: str) -> Method:
    """Make ``x < y``; Python reflects it itself."""
    plain, recorded = _OPERATORS[name], _forward(BY_NAME[name])

    def method(self: Handle, other: Any) -> Any:
        if _is_unknown(other) and stands_for_scalar(self):
            scalar = taken_out(self, "a comparison")[()]
            return plain(scalar, other)  # which leaves it to the other
        return recorded(self, other)

    return selections.of_each(_named(short, method))


def _is_unknown(value: Any) -> bool:
    """Whether a value is of a class of somebody's own, which is no number to NumPy."""
    kind = type(value)
    return not (kind in SCALARS or value is None or isinstance(value, _KNOWN) or any(
        hasattr(kind, name) for name in _TAKEN_AS_ARRAYS))


def unary_operator(short: str, name: str) -> Method:
    """Make ``-x``."""
    return selections.of_each(_named(short, _unary(BY_NAME[name])))
