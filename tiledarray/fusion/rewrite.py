"""From the signature to values, simplified on the way.

Every value is built through `Builder.make`, which applies the rules of `RULES` in order and
shares equal values, so one forward walk simplifies everything and leaves out what nobody reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tiledarray.fusion.along import Looped
from tiledarray.fusion.both_ends import sums_over_either_axis
from tiledarray.fusion.deviations import mean_carried_along, only_shaped
from tiledarray.fusion.ir import Param, Size, Value, unit_axes, viewed
from tiledarray.fusion.networks import median_of_few
from tiledarray.fusion.own_places import added_to_each_row, taken_from_each_row
from tiledarray.fusion.short import computed_again, may_unroll
from tiledarray.fusion.spectra import inverse_scaled_later, real_part_of_inverse
from tiledarray.fusion.target import Target
from tiledarray.ops import (
    arithmetic,
    comparison,
    elementwise,
    movement,
    reduction,
    selection,
    transcendental,
)
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Library,
    Op,
    Reduction,
    Reshape,
    Scan,
    Update,
)

_PRODUCTS = {BY_NAME[name] for name in ("matmul", "dot", "inner", "vecdot")}
_PRODUCTS_WITH_VECTORS = {BY_NAME[name] for name in ("matmul", "dot", "matvec", "vecmat")}


class Builder:
    """Makes values, one of each; keeps which rules fired, and what is read again or returned.

    Attributes
    ----------
    calls : bool
        Whether library calls will be calls; in what is computed on chip they are part of it.
    """

    def __init__(self, target: Target, *, calls: bool = True) -> None:
        self.target = target
        self.calls = calls
        self.values: list[Value] = []
        self.fired: Counter[str] = Counter()
        self.shared: set[int] = set()
        self.kept: set[Value] = set()
        self.origin: dict[Value, int] = {}
        self.entry: dict[Value, list[int]] = {}
        self._known: dict[Any, Value] = {}

    def make(
        self, op: Op, attrs: Any, args: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Value:
        """Return the (simplified, shared) value of an op."""
        for rule in RULES.get(type(op), ()):
            result = rule(self, op, attrs, tuple(args), shape, dtype)
            if result is not None:
                self.fired[rule.__name__] += 1
                return result
        key = (op, attrs, shape, dtype, *map(_key, args))
        value = None if op is movement.empty else self._known.get(key)
        if value is None:
            value = Value(len(self.values), op, attrs, tuple(args), shape, dtype)
            self._known[key] = value
            self.values.append(value)
        return value


def _key(arg: Any) -> Any:
    return arg.number if isinstance(arg, Value) else ("constant", arg)


Args = tuple[Any, ...]
Shape = tuple[int, ...]
DType = np.dtype[Any]
Rule = Callable[[Builder, Any, Any, Args, Shape, DType], Value | None]


def reshape_of_same_shape(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                          dtype: DType) -> Value | None:
    """A reshape to the same shape is nothing."""
    return args[0] if args[0].shape == shape else None


def reshape_of_reshape(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                       dtype: DType) -> Value | None:
    """Only the last of several reshapes counts."""
    inner = args[0]
    if isinstance(inner.op, Reshape):
        return builder.make(op, attrs, inner.args, shape, dtype)
    return None


def reshape_by_unit_axes(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                         dtype: DType) -> Value | None:
    """Adding or dropping axes of length one is a view."""
    inner = args[0]
    axes = unit_axes(inner.shape, shape)
    if axes is None:
        return None
    starts = (None,) * len(axes)
    steps = tuple(int(axis >= 0) for axis in axes)
    return builder.make(movement.view, (axes, steps), (inner, *starts), shape, dtype)


def reshape_before_elementwise(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                               dtype: DType) -> Value | None:
    """Reshape the inputs instead, where they have the full shape and nobody shares the result."""
    inner = args[0]
    if not isinstance(inner.op, Elementwise) or inner.number in builder.shared:
        return None
    operands = [x for x in inner.args if isinstance(x, Value)]
    if any(x.shape != inner.shape and x.size != 1 for x in operands):
        return None
    moved = [
        builder.make(op, attrs, (x,), shape if x.shape == inner.shape else (1,) * len(shape),
                     x.dtype) if isinstance(x, Value) else x
        for x in inner.args
    ]
    return builder.make(inner.op, inner.attrs, moved, shape, dtype)


def reduction_of_reshape(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                         dtype: DType) -> Value | None:
    """A full reduction does not see how its elements are arranged."""
    inner = args[0]
    if len(attrs[0]) != len(inner.shape) or not isinstance(inner.op, Reshape):
        return None
    source = inner.args[0]
    axes = tuple(range(len(source.shape)))
    return builder.make(op, (axes, *attrs[1:]), (source,), shape, dtype)


def reduction_without_unit_axes(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                                dtype: DType) -> Value | None:
    """Axes of length one are dropped, not reduced."""
    inner = args[0]
    axes, accumulate = attrs
    real = tuple(axis for axis in axes if inner.shape[axis] != 1)
    if len(real) == len(axes) and axes:
        return None
    if real:
        dropped = [axis for axis in axes if axis not in real]
        kept = [axis for axis in range(len(inner.shape)) if axis not in dropped]
        squeezed = builder.make(movement.reshape, None, (inner,),
                                tuple(inner.shape[axis] for axis in kept), inner.dtype)
        moved = tuple(kept.index(axis) for axis in real)
        return builder.make(op, (moved, accumulate), (squeezed,), shape, dtype)
    point = builder.make(movement.reshape, None, (inner,), shape, inner.dtype)
    if op.combine:
        return _cast(builder, point, dtype)
    if op is reduction.deviation:
        return _deviation_of_one(builder, point, accumulate, shape, dtype)
    return builder.make(movement.full, None, (0,), shape, dtype)


def _deviation_of_one(builder: Builder, point: Value, accumulate: Any, shape: tuple[int, ...],
                      dtype: np.dtype[Any]) -> Value:
    point = _cast(builder, point, accumulate if accumulate is not None else point.dtype)
    loop = point.dtype
    subtract = elementwise.BY_NAME["subtract"]
    nothing = builder.make(subtract, (loop, loop), (point, point), shape, loop)
    if loop.kind == "c":
        part = np.empty(0, loop).real.dtype
        nothing = builder.make(elementwise.BY_NAME["real"], (loop,), (nothing,), shape, part)
    return _cast(builder, nothing, dtype)


def deviation_in_two_passes(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                            dtype: DType) -> Value | None:
    """A row that stays on chip is read twice for nothing: first its mean, then the squares."""
    inner = args[0]
    axes, accumulate = attrs
    loop = accumulate if accumulate is not None else inner.dtype
    rank = len(inner.shape)
    length = prod(inner.shape[axis] for axis in axes)
    if (op is not reduction.deviation or loop.kind != "f" or dtype != loop or len(shape) == 0
            or axes != tuple(range(rank - len(axes), rank))
            or prod(shape) < builder.target.limits.many_rows
            or not builder.target.holds_row(length, inner.dtype.itemsize)):
        return None
    binary = (loop, loop)
    wide = _cast(builder, inner, loop)
    total = builder.make(reduction.sum, (axes, loop), (wide,), shape, loop)
    mean = builder.make(elementwise.BY_NAME["divide"], binary, (total, Size(length)), shape, loop)
    column = shape + (1,) * len(axes)
    mean = builder.make(movement.reshape, None, (mean,), column, loop)
    apart = builder.make(elementwise.BY_NAME["subtract"], binary, (wide, mean), inner.shape, loop)
    square = builder.make(elementwise.BY_NAME["multiply"], binary, (apart, apart), inner.shape,
                          loop)
    return builder.make(reduction.sum, (axes, loop), (square,), shape, loop)


def unroll_small_reduction(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                           dtype: DType) -> Value | None:
    """A handful of elements is combined directly: it fuses like any elementwise work.

    Of what is computed from broadcast arrays it may be some more.
    """
    inner = args[0]
    axes, accumulate = attrs
    if not op.combine or len(axes) != 1 or inner.size <= 64 or not shape:
        return None
    axis, limits = axes[0], builder.target.limits
    count = inner.shape[axis]
    if count < 1 or (count > limits.small_reduction
                     and not may_unroll(inner, axis, builder.kept, limits)):
        return None
    parts = [_part_at(builder, inner, axis, k, shape) for k in range(count)]
    if accumulate is not None and parts[0].dtype != accumulate:
        parts = [_cast(builder, part, accumulate) for part in parts]
    if op.combine.startswith("logical"):
        parts = [_cast(builder, part, dtype) for part in parts]
    combine = elementwise.BY_NAME[op.combine]
    loop = parts[0].dtype
    if op.combine in ("minimum", "maximum"):  # of a long chain of branches a compiler makes much
        while len(parts) > 2:
            parts = [builder.make(combine, (loop, loop), pair, shape, loop) if len(pair) > 1
                     else pair[0] for pair in (parts[k:k + 2] for k in range(0, len(parts), 2))]
    total = parts[0]
    for part in parts[1:]:
        total = builder.make(combine, (loop, loop), (total, part), shape, loop)
    return _cast(builder, total, dtype) if total.dtype != dtype else total


def maximum_carried_along(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                          dtype: DType) -> Value | None:
    """Sum the exponentials of what is left of the maximum in the pass that finds the maximum.

    That is a read of the array less.  Rows on chip are read twice for nothing, unless they are
    computed twice, and a host's cores are busier with the exponentials than with memory.
    """
    inner = args[0]
    axes, accumulate = attrs
    if op is not reduction.sum or inner.op is not transcendental.exp or (
            not builder.target.bound_by_memory):
        return None
    x = _less_own_maximum(inner.args[0], axes)
    loops = {dtype, inner.dtype, accumulate or dtype}
    if x is None or loops != {x.dtype} or x.dtype.name not in ("float32", "float64"):
        return None
    rank = len(x.shape)
    if axes == tuple(range(rank - len(axes), rank)) and builder.target.holds_row(
            prod(x.shape[axis] for axis in axes), x.dtype.itemsize) and not (
            computed_again(x, builder.kept, builder.target.limits)):
        return None
    return builder.make(reduction.exponentials, attrs, (x,), shape, dtype)


def _less_own_maximum(value: Any, axes: tuple[int, ...]) -> Value | None:
    """The array of which this is the difference from its own maximum along the axes, if it is."""
    if not isinstance(value, Value) or value.op is not arithmetic.subtract or not all(
            isinstance(x, Value) for x in value.args):
        return None
    x, top = value.args
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    if x.shape != value.shape or (1,) * (len(kept) - len(top.shape)) + top.shape != kept:
        return None
    while isinstance(top.op, AxisView) and only_shaped(top):
        top = top.args[0]
    return x if top.op is reduction.max and top.args[0] is x and top.attrs[0] == axes else None


def _part_at(builder: Builder, value: Value, axis: int, k: int, shape: tuple[int, ...]) -> Value:
    """One term of a reduction; a product stays one, to be rounded together with the sum."""
    if _factors(value) is None or value.number in builder.shared or not builder.target.contract:
        return _slice_at(builder, value, axis, k, shape)
    inner = (x for x in value.args)
    if any(isinstance(x, Value) and x.shape != value.shape for x in inner):
        return _slice_at(builder, value, axis, k, shape)
    parts = [_slice_at(builder, x, axis, k, shape) if isinstance(x, Value) else x
             for x in value.args]
    return builder.make(value.op, value.attrs, parts, shape, value.dtype)


def _slice_at(builder: Builder, value: Value, axis: int, k: int, shape: tuple[int, ...]) -> Value:
    kept = iter(range(len(shape)))
    axes = tuple(-1 if d == axis else next(kept) for d in range(len(value.shape)))
    steps = tuple(int(d != axis) for d in range(len(value.shape)))
    starts = tuple(k if d == axis and k else None for d in range(len(value.shape)))
    return builder.make(movement.view, (axes, steps), (value, *starts), shape, value.dtype)


def _cast(builder: Builder, value: Value, dtype: np.dtype[Any]) -> Value:
    if value.dtype == dtype:
        return value
    return builder.make(elementwise.BY_NAME["cast"], (value.dtype,), (value,), value.shape, dtype)


def view_of_nothing_moved(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                          dtype: DType) -> Value | None:
    """A view that reads every element where it stands is nothing."""
    inner = args[0]
    axes, steps = attrs
    if inner.shape == shape and all(
        (axis == d and step == 1 and start is None) or n == 1
        for d, (axis, step, start, n) in enumerate(zip(axes, steps, args[1:], shape, strict=True))
    ):
        return inner
    return None


def view_turned_round(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                      dtype: DType) -> Value | None:
    """An axis read backwards from end to end begins at its end, whatever the start is called."""
    inner, *starts = args
    ends = _ends(attrs, starts, shape, inner.shape)
    return None if ends == starts else builder.make(op, attrs, (inner, *ends), shape, dtype)


def update_turned_round(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                        dtype: DType) -> Value | None:
    """An axis written backwards from end to end begins there, too: where such a view reads."""
    old, new, *starts = args
    ends = _ends(attrs[:2], starts, attrs[2], shape)
    return None if ends == starts else builder.make(op, attrs, (old, new, *ends), shape, dtype)


def _ends(attrs: Any, starts: Sequence[Any], part: Shape, shape: Shape) -> list[Any]:
    """Where the dimensions of an array are begun, of which a part is taken as the attrs say."""
    return [n - 1 if axis >= 0 and step == -1 and part[axis] == n > 1 else start
            for axis, step, start, n in zip(*attrs, starts, shape, strict=True)]


def scan_of_one(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                dtype: DType) -> Value | None:
    """A scan along an axis of length one only casts."""
    return _cast(builder, args[0], dtype) if shape[attrs] == 1 else None


def cast_to_same(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                 dtype: DType) -> Value | None:
    """A cast to the dtype an array has is nothing."""
    inner = args[0]
    if op is selection.cast and isinstance(inner, Value) and inner.dtype == dtype:
        return inner if inner.shape == shape else None
    return None


def _factors(arg: Any) -> tuple[Any, Any] | None:
    """What a float product is the product of."""
    if not isinstance(arg, Value) or arg.op not in (arithmetic.multiply, arithmetic.square):
        return None
    if arg.dtype.name not in ("float32", "float64") or set(arg.attrs) != {arg.dtype}:
        return None
    return arg.args[0], arg.args[-1]


def product_with_sum(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                     dtype: DType) -> Value | None:
    """Round a product once, together with the sum that alone uses it (a fused multiply-add).

    Of two products neither: rounded each by itself they may cancel to zero (``x*y - z*w``,
    ``b*b - 4*a*c``), rounded one only they leave a remainder of either sign.  Squares only add up.
    """
    if not builder.target.contract or op not in (arithmetic.add, arithmetic.subtract):
        return None
    factors = [_factors(arg) for arg in args]
    squares = [found is not None and found[0] is found[1] for found in factors]
    if None not in factors and (
            op is arithmetic.subtract or args[0] is args[1] or not all(squares)):
        return None
    for place, (product, found) in enumerate(zip(args, factors, strict=True)):
        if found is not None and set(attrs) == {product.dtype} and (
                product.shape == shape and product.number not in builder.shared):
            fused = (arithmetic.multiply_add if op is arithmetic.add
                     else (arithmetic.multiply_subtract, arithmetic.subtract_product)[place])
            return builder.make(fused, (dtype,) * 3, (*found, args[1 - place]), shape, dtype)
    return None


def size_compared(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                  dtype: DType) -> Value | None:
    """Compare the sizes of complex numbers by squares where that is enough: on a GPU, no root."""
    if builder.target.kind != "cuda" or op not in comparison.OF_SIZES:
        return None
    for compare, (size, other) in ((op, args), (comparison.TURNED[op], args[::-1])):
        if isinstance(size, Value) and size.op is arithmetic.absolute and (
                size.shape == shape and size.number not in builder.shared
                and size.args[0].dtype == np.complex64 and {*attrs} == {size.dtype}):
            loops = size.args[0].dtype, size.dtype
            return builder.make(
                comparison.OF_SIZES[compare], loops, (size.args[0], other), shape, dtype)
    return None


def product_of_vectors(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                       dtype: DType) -> Value | None:
    """A product of two vectors is a sum of products, which fuses with what is around it."""
    if op not in _PRODUCTS or shape or dtype.char not in "fdFD":
        return None
    left, right = args
    if not len(left.shape) == len(right.shape) == 1 or not (
            left.dtype == dtype == right.dtype) or (
            left.size < builder.target.limits.summed_vectors):
        return None
    if op is BY_NAME["vecdot"]:
        left = _conjugate(builder, left)
    # As they lie: a reshape would keep them apart.
    lies = next((x.args[0].shape for x in (left, right) if isinstance(x.op, Reshape)), left.shape)
    factors = [builder.make(movement.reshape, None, (x,), lies, dtype) for x in (left, right)]
    products = builder.make(arithmetic.multiply, (dtype, dtype), factors, lies, dtype)
    return builder.make(reduction.sum, (tuple(range(len(lies))), dtype), (products,), shape, dtype)


def product_with_vector(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                        dtype: DType) -> Value | None:
    """So is that of a vector and a matrix whose rows in memory are short: libraries are slow.

    Windows have no rows in memory.
    """
    if op not in _PRODUCTS_WITH_VECTORS or dtype.char not in "fdFD":
        return None
    ranks = tuple(len(x.shape) for x in args)
    if ranks not in ((1, 2), (2, 1)) or any(x.dtype != dtype for x in args):
        return None
    at = ranks.index(2)
    matrix, vector = args[at], args[1 - at]
    turned = isinstance(matrix.op, AxisView) and matrix.attrs[0] == (1, 0)
    row, rows = matrix.shape[::1 if turned else -1]
    limits = builder.target.limits
    longest = limits.across_lanes if 0 < limits.across_points <= row * rows else limits.summed_row
    if not of_windows(matrix) and (not 1 < row <= longest or rows < limits.many_rows):
        return None
    if op is BY_NAME["vecmat"]:
        vector = _conjugate(builder, vector)
    axis = 1 - at  # of the matrix, that is summed
    if turned and matrix.args[0].shape == matrix.shape[::-1] and matrix.attrs[1] == (1, 1):
        matrix, axis = matrix.args[0], 1 - axis  # as it lies in memory: others read it so
    along = (vector.size, 1) if axis == 0 else (1, vector.size)
    vector = builder.make(movement.reshape, None, (vector,), along, dtype)
    products = builder.make(
        arithmetic.multiply, (dtype, dtype), (matrix, vector), matrix.shape, dtype)
    return builder.make(reduction.sum, ((axis,), dtype), (products,), shape, dtype)


def of_windows(value: Value) -> bool:
    """Whether a value is a view of windows."""
    return viewed(value).op is movement.windows


def scan_of_nothing(builder: Builder, op: Any, attrs: Any, args: Args, shape: Shape,
                    dtype: DType) -> Value | None:
    """Without elements there is nothing to go through."""
    return builder.make(movement.full, None, (0,), shape, dtype) if 0 in shape else None


def _conjugate(builder: Builder, value: Value) -> Value:
    if value.dtype.kind != "c":
        return value
    conjugate = elementwise.BY_NAME["conjugate"]
    return builder.make(conjugate, (value.dtype,), (value,), value.shape, value.dtype)


RULES: dict[type[Op], tuple[Rule, ...]] = {
    Reshape: (
        reshape_of_same_shape, reshape_of_reshape, reshape_by_unit_axes,
        reshape_before_elementwise,
    ),
    Reduction: (reduction_without_unit_axes, reduction_of_reshape, deviation_in_two_passes,
                unroll_small_reduction, maximum_carried_along, mean_carried_along),
    AxisView: (view_of_nothing_moved, view_turned_round),
    Update: (update_turned_round,),
    Scan: (scan_of_nothing, scan_of_one),
    Elementwise: (cast_to_same, product_with_sum, size_compared, real_part_of_inverse,
                  inverse_scaled_later, sums_over_either_axis),
    Library: (product_of_vectors, product_with_vector, taken_from_each_row, added_to_each_row,
              median_of_few),
}


def rewrite(
    signature: Looped, target: Target, *, calls: bool = True
) -> tuple[Builder, list[Value]]:
    """Build the values of a signature; return them and the outputs."""
    entries, kinds, outputs, numbers = signature
    uses = Counter(ref for entry in entries if entry[0] is not None
                   for ref in entry[4:] if ref is not None and ref >= 0)
    uses.update(outputs)
    returned = set(outputs)
    builder = Builder(target, calls=calls)
    made: list[Value] = []
    for place, (number, entry) in enumerate(zip(numbers, entries, strict=True)):
        before = len(builder.values)
        if entry[0] is None:
            value = Value(len(builder.values), movement.leaf, number, (), entry[1], entry[2])
            builder.values.append(value)
        else:
            op, attrs, shape, dtype, *references = entry
            args = [None if ref is None else made[ref] if ref >= 0
                    else _param(~ref, kinds, op.moves) for ref in references]
            value = builder.make(op, attrs, args, shape, dtype)
        if uses[place] > 1:
            builder.shared.add(value.number)
        if place in returned:
            builder.kept.add(value)
        recorded = number if number >= 0 else ~number
        builder.origin.update((new, recorded) for new in builder.values[before:])
        if entry[0] is movement.update:
            builder.origin[value] = recorded
        if number >= 0:
            builder.entry.setdefault(value, []).append(number)
        made.append(value)
    return builder, [made[number] for number in outputs]


def _param(index: int, kinds: Sequence[Any], moves: bool) -> Param | int:
    """The parameter, or for a start near another that one and a constant."""
    kind = kinds[index]
    if not isinstance(kind, tuple):
        return Param(index, kind)
    anchor, shift = kind
    if not moves:
        return Param(index, int)
    return shift if anchor is None else Param(~anchor, int, shift)
