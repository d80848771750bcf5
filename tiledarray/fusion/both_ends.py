"""One sum for those over either axis of a table of pairs, if the table turned is much the same.

What points have to do with each other is a table, ``f(x[:, None], x[None])``, and its gradient by
the points is a sum over one axis and a sum over the other, since each point stands in both.  To sum
over the one axis is to sum the turned table over the other, and there most of what the table is
computed from is found again: distances are the same from either end, differences are each other's
negatives.  So all pairs are gone through once, as one does by hand.

Only sums that gradients are made of are joined (they have factors that are `scaled` by others): the
sign of a difference that is zero is lost, and factors that terms have in common are taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.fusion.deviations import only_shaped
from tiledarray.fusion.ir import Value, value_args
from tiledarray.ops import arithmetic, comparison, movement, reduction
from tiledarray.ops.op import AxisView, Elementwise

MOST_VALUES = 200  # that a table is computed from
_EITHER_WAY = {arithmetic.add, arithmetic.multiply, arithmetic.scaled,
               comparison.equal, comparison.not_equal}
_PRODUCTS = {arithmetic.multiply, arithmetic.scaled}
_WITH_PRODUCTS = {arithmetic.multiply_add, arithmetic.multiply_subtract,
                  arithmetic.subtract_product}
_EVEN = {arithmetic.square, arithmetic.absolute}
_ODD = {arithmetic.negative, arithmetic.sign}
_SIGNED = {*_PRODUCTS, *_WITH_PRODUCTS, *_ODD, arithmetic.add, arithmetic.subtract}


class _Alone(Exception):
    """What is turned has little to do with what it was before."""


class _Turned:
    """Tables with two axes exchanged.

    Each comes with a sign: the turned table is that of the value, or the value's negative.
    """

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._known: dict[Any, tuple[bool, Value]] = {}

    def __call__(
        self, value: Value, axes: tuple[int, int], *, signed: bool = True
    ) -> tuple[bool, Value]:
        """Return whether the turned value is the negative of another one, and that one."""
        one, other = (value.shape[axis] for axis in axes)
        if one == other and (one == 1 or value.op is movement.full):
            return False, value
        key = value, axes, signed
        if key not in self._known:
            if len(self._known) >= MOST_VALUES:
                raise _Alone
            if isinstance(value.op, Elementwise):
                self._known[key] = self._computed(value, axes, signed=signed)
            elif isinstance(value.op, AxisView):
                self._known[key] = self._viewed(value, axes, signed=signed)
            elif one == other:
                raise _Alone  # it would be read across its rows
            else:
                self._known[key] = False, self._view(
                    value, tuple(_exchanged(axis, axes) for axis in range(len(value.shape))),
                    (1,) * len(value.shape), (None,) * len(value.shape), axes, value.shape)
        return self._known[key]

    def _view(self, inner: Value, to: tuple[int, ...], steps: Any, starts: Any,
              axes: tuple[int, int], shape: tuple[int, ...]) -> Value:
        """A view of a shape with two axes exchanged."""
        turned = tuple(shape[_exchanged(axis, axes)] for axis in range(len(shape)))
        made: Value = self._builder.make(
            movement.view, (to, steps), (inner, *starts), turned, inner.dtype)
        return made

    def _viewed(self, value: Value, axes: tuple[int, int], *, signed: bool) -> tuple[bool, Value]:
        to, steps = value.attrs
        inner, *starts = value.args
        along = [[at for at, axis in enumerate(to) if axis == each] for each in axes]
        if all(len(each) == 1 for each in along):
            first, second = along[0][0], along[1][0]
            if inner.shape[first] != inner.shape[second] or (steps[first], starts[first]) != (
                    steps[second], starts[second]):
                raise _Alone
            minus, turned = self(inner, (first, second), signed=signed)
            return minus, value if turned is inner else self._view(
                turned, to, steps, starts, axes, tuple(
                    value.shape[_exchanged(axis, axes)] for axis in range(len(value.shape))))
        if any(len(each) > 1 for each in along):
            raise _Alone
        if not any(along) and value.shape[axes[0]] == value.shape[axes[1]]:
            return False, value
        return False, self._view(
            inner, tuple(_exchanged(axis, axes) for axis in to), steps, starts, axes, value.shape)

    def _computed(self, value: Value, axes: tuple[int, int], *, signed: bool) -> tuple[bool, Value]:
        def turned(arg: Any, *, signed: bool) -> tuple[bool, Any]:
            known = not isinstance(arg, Value) or not arg.shape
            return (False, arg) if known else self(arg, axes, signed=signed)

        minus, found = from_other_end(
            value.op, _full(self._builder, value), turned, signed=signed,
            floating=value.dtype.kind == "f")
        if found is None or isinstance(found, Value):
            return minus, value if found is None else found
        shape = tuple(value.shape[_exchanged(axis, axes)] for axis in range(len(value.shape)))
        return minus, self._builder.make(value.op, value.attrs, found, shape, value.dtype)


def _exchanged(axis: int, axes: tuple[int, int]) -> int:
    return axes[1 - axes.index(axis)] if axis in axes else axis


def _full(builder: Any, value: Value) -> tuple[Any, ...]:
    """The operands, with as many axes as the value has."""
    return tuple(
        builder.make(movement.reshape, None, (arg,),
                     (1,) * (len(value.shape) - len(arg.shape)) + arg.shape, arg.dtype)
        if isinstance(arg, Value) and 0 < len(arg.shape) < len(value.shape) else arg
        for arg in value.args)


def from_other_end(op: Any, args: Sequence[Any], turned: Callable[..., tuple[bool, Any]], *,
                   signed: bool, floating: bool) -> tuple[bool, Any]:
    """What an op of each pair is from its other end.

    Parameters
    ----------
    op : Op
    args : sequence
        Its operands.
    turned : callable
        Gives, for an operand, whether that is the negative of what it returns as well, if it may be
        (``signed``).
    signed : bool
        Whether the result may be the negative of something.
    floating : bool
        Whether it is made of floats.

    Returns
    -------
    (bool, None)
        Whether it is its own negative, or itself.
    (bool, operand)
        The same of that.
    (bool, list)
        The same of the op of other operands.
    """
    signs, found = map(list, zip(*(
        turned(arg, signed=_is_even(op, args, place) or (signed and _may_be_negative(op, place)))
        for place, arg in enumerate(args)), strict=True))
    same = list(args)
    if op is arithmetic.subtract and signed and floating and not any(signs) and (
            found[::-1] == same):
        return True, None
    minus = _sign(op, signs)
    if minus is None:
        return from_other_end(op, args, turned, signed=False, floating=floating)
    if op is arithmetic.negative and signed:
        return not signs[0], found[0]
    either_way = op in _EITHER_WAY and found[::-1] == same
    return minus, None if found == same or either_way else found


def _is_even(op: Any, args: Sequence[Any], place: int) -> bool:
    """Whether it does not matter if an operand is the negative, not even where that is zero."""
    return op in _EVEN or (
        place < 2 and args[0] is args[min(1, len(args) - 1)]
        and op in {*_PRODUCTS, *_WITH_PRODUCTS})


def _may_be_negative(op: Any, place: int) -> bool:
    """Whether an operand's negative at most changes the sign of the result."""
    return op in _SIGNED or (op is arithmetic.divide and place == 0)


def _sign(op: Any, signs: list[bool]) -> bool | None:
    """Whether the result is negative where some operands are; ``None`` if it is something else."""
    if not any(signs) or op in _EVEN:
        return False
    if op in _PRODUCTS or op in _ODD or op is arithmetic.divide:
        return sum(signs) % 2 == 1
    if op in _WITH_PRODUCTS:
        product, third = signs[0] != signs[1], signs[2]
        return product if product == third else None
    return signs[0] if all(signs) else None  # of a sum or a difference


def sums_over_either_axis(builder: Any, op: Any, attrs: Any, args: tuple[Any, ...],
                          shape: tuple[int, ...], dtype: Any) -> Value | None:
    """Sum a table of pairs once where a gradient adds its sums over either axis."""
    if op is not arithmetic.add or dtype.kind != "f" or {*attrs} != {dtype}:
        return None
    found = [each for arg in args if (each := _summed(builder, arg, shape)) is not None]
    if len(found) < 2:
        return None
    (one, axis), (other, over) = sorted(found, key=lambda each: each[1])
    if one.shape != other.shape or over != axis + 1 or one.shape[axis] != one.shape[over]:
        return None
    pairs = one.shape[axis] * one.shape[over]
    known = [_computed_for(each, pairs) for each in (one, other)]
    if not all(any(value.op is arithmetic.scaled for value in each) for each in known):
        return None
    try:
        minus, turned = _Turned(builder)(one, (axis, over))
    except _Alone:
        return None
    new = _computed_for(turned, pairs).difference(*known)
    if 2 * sum(map(_cost, new)) > sum(map(_cost, known[0])):
        return None
    terms = _joined(builder, other, turned, minus)
    sums = tuple(n for at, n in enumerate(terms.shape) if at != over)
    total = builder.make(reduction.sum, ((over,), dtype), (terms,), sums, dtype)
    made: Value = builder.make(movement.reshape, None, (total,), shape, dtype)
    return made


def _summed(builder: Any, arg: Any, shape: tuple[int, ...]) -> tuple[Value, int] | None:
    """What an operand is the sum of, along one axis, if nobody else needs the sum."""
    if not isinstance(arg, Value) or arg.shape != shape:
        return None
    while only_shaped(arg):
        if arg.number in builder.shared or arg in builder.kept:
            return None
        arg = arg.args[0]
    if arg.op is not reduction.sum or arg.number in builder.shared or arg in builder.kept:
        return None
    (terms,), (axes, accumulate) = arg.args, arg.attrs
    if len(axes) != 1 or {terms.dtype, accumulate or arg.dtype} != {arg.dtype}:
        return None
    return terms, axes[0]


def _computed_for(value: Value, pairs: int) -> set[Value]:
    """What is computed for each of so many pairs, for a table of what they give."""
    found: set[Value] = set()
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if at not in found and isinstance(at.op, Elementwise | AxisView) and at.size >= pairs:
            found.add(at)
            waiting += value_args(at)
    return found


def _cost(value: Value) -> int:
    return value.op.cost if isinstance(value.op, Elementwise) else 0


def _joined(builder: Any, one: Value, other: Value, minus: bool) -> Value:
    """Add a term, or take it away.  Factors that both have are taken out."""
    half, other_half = _half(one), _half(other)
    if half is not None and other_half is not None:
        return _twice(builder, _joined(builder, half, other_half, minus))
    if one.op is other.op in _PRODUCTS:
        for a, b in (one.args, one.args[::-1]):
            for c, d in (other.args, other.args[::-1]):
                if b == d and isinstance(a, Value) and isinstance(c, Value):
                    return _made(builder, one.op, _joined(builder, a, c, minus), b)
    return _made(builder, arithmetic.subtract if minus else arithmetic.add, one, other)


def _half(value: Value) -> Value | None:
    """What a value is twice of."""
    if value.op is arithmetic.add and value.args[0] is value.args[1]:
        half: Value = value.args[0]
        return half
    return None


def _twice(builder: Any, value: Value) -> Value:
    """A value's double: the first factor's, which several may have."""
    first, second = value.args if value.op is arithmetic.scaled else (None, None)
    if isinstance(first, Value):
        return _made(builder, value.op, _twice(builder, first), second)
    return _made(builder, arithmetic.add, value, value)


def _made(builder: Any, op: Any, one: Value, other: Any) -> Value:
    shapes = [x.shape for x in (one, other) if isinstance(x, Value)]
    made: Value = builder.make(
        op, (one.dtype, one.dtype), (one, other), np.broadcast_shapes(*shapes), one.dtype)
    return made
