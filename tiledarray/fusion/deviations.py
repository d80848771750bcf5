"""Squares of what is left of a mean, summed in the pass that finds the mean.

For any number m the squared differences of n elements from it sum to D + n (mean - m)^2, where D is
the sum of their squared deviations from their own mean, which one pass finds (Chan, Golub and
LeVeque 1979).  So a variance written out, of all elements or of those that a mask selects, reads
its array once, where it read it for the mean, and again for the squares.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tiledarray.fusion.ir import Size, Value, unit_axes
from tiledarray.ops import movement, reduction, selection
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import AxisView, Reduction, Reshape

# What is infinite or a NaN where its first operand is, if it is no whole number.
_KEEP_INFINITE = {BY_NAME[name] for name in ("divide", "multiply", "cast")}


class _Squares(NamedTuple):
    """``(x - centre)**2`` where the mask selects, another number elsewhere."""

    x: Value
    centre: Value
    mask: Value | None = None
    elsewhere: Any = None


def mean_carried_along(builder: Any, op: Any, attrs: Any, args: Any, shape: tuple[int, ...],
                       dtype: Any) -> Value | None:
    """Sum squared deviations from a mean in the pass that finds it.

    That is a read of the array less.  Rows on chip are read twice for nothing.
    """
    inner = args[0]
    axes, accumulate = attrs
    if op is not reduction.sum or dtype.name not in ("float32", "float64") or (
            {inner.dtype, accumulate or dtype} != {dtype}) or not builder.target.bound_by_memory:
        return None
    rank = len(inner.shape)
    length = prod(inner.shape[axis] for axis in axes)
    if axes == tuple(range(rank - len(axes), rank)) and (
            builder.target.holds_row(length, dtype.itemsize)):
        return None
    sums = _Sums(builder, axes, length, shape, dtype)
    squares = sums.taken_apart(inner)
    if squares is None or squares.x.shape != inner.shape or not (
            _is_of_each(squares.centre, inner.shape, axes) and sums.have_mean(squares)):
        return None
    return sums.around_own_mean(squares)


def _is_of_each(centre: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether there is one for each of what the reduction leaves."""
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    return (1,) * (len(kept) - len(centre.shape)) + centre.shape == kept


def only_shaped(value: Value) -> bool:
    """Whether each element stands where it stood, but for axes of length one."""
    if isinstance(value.op, Reshape):
        return True
    if not isinstance(value.op, AxisView):
        return False
    axes, steps = value.attrs
    inner, *starts = value.args
    return inner.size == value.size and axes == unit_axes(inner.shape, value.shape) and (
        min(steps, default=1) >= 0 and all(start is None for start in starts))


def _bare(value: Value) -> Value:
    """What was cast to a value that may be infinite, too."""
    while value.op is selection.cast and value.dtype.kind == "f":
        value = value.args[0]
    return value


class _Sums:
    """Sums of one kind, as the values that they are of are made."""

    def __init__(self, builder: Any, axes: tuple[int, ...], length: int, shape: tuple[int, ...],
                 dtype: Any) -> None:
        self._builder, self._axes, self._length = builder, axes, length
        self._shape, self._dtype = shape, dtype

    def taken_apart(self, value: Value) -> _Squares | None:
        """Return what is squared, and where; ``None`` if it is nothing like that."""
        chosen = self._chosen(value)
        if chosen is not None:
            mask, inside, elsewhere = chosen
            squares = _difference(_root(inside))
            return None if squares is None else squares._replace(mask=mask, elsewhere=elsewhere)
        root = _root(value)
        chosen = None if root is None else self._chosen(root)
        if chosen is None:
            return _difference(root)
        mask, inside, elsewhere = chosen
        squares = _difference(inside)
        return None if squares is None else squares._replace(
            mask=mask, elsewhere=self._one("multiply", elsewhere, elsewhere))

    def _chosen(self, value: Value) -> tuple[Value, Value, Any] | None:
        """Take apart a choice between an array and a number: the mask, the array, the number."""
        if value.op is not selection.where:
            return None
        mask, first, second = value.args
        if not isinstance(mask, Value) or mask.dtype != bool:
            return None
        inverted = not isinstance(first, Value) or not first.shape
        if inverted:
            mask = self._make("logical_not", (mask.dtype,), (mask,), mask.shape, mask.dtype)
            first, second = second, first
        if not isinstance(first, Value) or first.dtype != value.dtype or (
                isinstance(second, Value) and second.shape):
            return None
        return mask, first, second

    def have_mean(self, squares: _Squares) -> bool:
        """Whether the centre comes from a sum of what the squares are of, selected or not.

        Then it is infinite or a NaN where an element is, and so are the squares.
        """
        value = squares.centre
        while not isinstance(value.op, Reduction):
            if value.dtype.kind != "f" or not (
                    value.op in _KEEP_INFINITE or only_shaped(value)):
                return False
            value = value.args[0]
            if not isinstance(value, Value):
                return False
        if value.op is not reduction.sum or value.attrs[0] != self._axes:
            return False
        summed, x = _bare(value.args[0]), _bare(squares.x)
        chosen = self._chosen(summed)
        return summed is x or (
            chosen is not None and chosen[0] is squares.mask and _bare(chosen[1]) is x)

    def around_own_mean(self, squares: _Squares) -> Value:
        """Sum squared deviations from their own mean; add what it is away from the centre."""
        mask, x = squares.mask, squares.x
        whole = np.dtype(np.int64)
        if mask is None:
            count: Any = Size(self._length)
            x = self._cast(x)
            own = self._reduced(reduction.deviation, x)
            mean = self._each("divide", self._reduced(reduction.sum, x), count)
        else:
            if mask.shape != x.shape:
                mask = self._make("logical_or", (mask.dtype, mask.dtype), (mask, mask), x.shape,
                                  mask.dtype)
            count = self._builder.make(
                reduction.sum, (self._axes, whole), (mask,), self._shape, whole)
            pair = np.result_type(self._dtype, np.complex64)
            pairs = self._make("make_complex", (self._dtype, self._dtype), (x, mask), x.shape, pair)
            found = self._builder.make(
                reduction.selected_deviation, (self._axes, pair), (pairs,), self._shape, pair)
            own, mean = (self._make(name, (pair,), (found,), self._shape, self._dtype)
                         for name in ("real", "imag"))
        centre = self._builder.make(movement.reshape, None, (squares.centre,), self._shape,
                                    squares.centre.dtype)
        gap = self._each("subtract", mean, centre)
        between = self._each("multiply", self._each("multiply", gap, gap), count)
        if mask is None:
            return self._each("add", own, between)
        others = self._each("subtract", Size(self._length), count)
        elsewhere = self._each("multiply", others, squares.elsewhere)
        return self._each("add", self._each("add", own, self._if_any(count, between)),
                          self._if_any(others, elsewhere))

    def _if_any(self, count: Any, value: Value) -> Value:
        """Return a value, or 0 where there are none that it is of."""
        loop = (np.dtype(bool), self._dtype, self._dtype)
        return self._make("where", loop, (count, value, self._one("cast", 0)), self._shape,
                          self._dtype)

    def _reduced(self, op: Reduction, x: Value) -> Value:
        return self._builder.make(op, (self._axes, self._dtype), (x,), self._shape, self._dtype)

    def _cast(self, x: Value) -> Value:
        return self._make("cast", (x.dtype,), (x,), x.shape, self._dtype)

    def _each(self, name: str, x: Any, y: Any) -> Value:
        return self._make(name, (self._dtype,) * 2, (x, y), self._shape, self._dtype)

    def _one(self, name: str, *numbers: Any) -> Value:
        """Return a number of the sums' dtype, made of such."""
        values = [x if isinstance(x, Value) else self._builder.make(
            movement.full, None, (x,), (), self._dtype) for x in numbers]
        return self._make(name, (self._dtype,) * len(values), values, (), self._dtype)

    def _make(self, name: str, loop: Any, args: Any, shape: Any, dtype: Any) -> Value:
        return self._builder.make(BY_NAME[name], loop, args, shape, dtype)


def _root(value: Any) -> Value | None:
    """What this is the square of, if it is one."""
    if not isinstance(value, Value):
        return None
    if value.op is BY_NAME["square"] or (
            value.op is BY_NAME["multiply"] and value.args[0] is value.args[-1]):
        found = value.args[0]
        return found if isinstance(found, Value) and found.dtype == value.dtype else None
    return None


def _difference(value: Any) -> _Squares | None:
    """Say what is subtracted from what, as squares of it would be."""
    if not isinstance(value, Value) or value.op is not BY_NAME["subtract"] or not all(
            isinstance(x, Value) and x.dtype.kind in "fiu" for x in value.args):
        return None
    x, centre = value.args
    if x.size < centre.size:
        x, centre = centre, x
    return _Squares(x, centre) if x.shape == value.shape else None
