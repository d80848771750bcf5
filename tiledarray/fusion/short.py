"""Short axes of what kernels compute from broadcast arrays: they need no loop and no memory.

``((x[:, None] - c[None]) ** 2).sum(-1)`` reduces an array that nothing stores and that is far
larger than what it is computed from.  A short axis that is reduced is then combined term by term,
in registers, so that what comes after it can be reduced in the same kernel.  A short axis that is
kept, along which some of the work is broadcast, is taken out of the kernel's domain: what the
components have in common is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product
from math import prod
from typing import NamedTuple

from tiledarray.fusion.ir import (
    ONE,
    ORIGIN,
    Affine,
    Index,
    Value,
    broadcast_index,
    storage,
    through_view,
)
from tiledarray.fusion.limits import Limits
from tiledarray.ops.op import AxisView, Elementwise, Reduction, Source

Place = tuple[Value, Index]


class Reach(NamedTuple):
    """What the elements of an array are computed from, where nothing between is stored.

    Attributes
    ----------
    passed, read : list of (Value, Index)
        Values computed or viewed, and values read, with the index for an element of the array.
    """

    passed: list[Place]
    read: list[Place]

    @property
    def elements(self) -> int:
        """Elements of all arrays that are read."""
        return sum({storage(value): value.size for value, _ in self.read}.values())

    @property
    def cost(self) -> int:
        """Flops of all that is computed for an element."""
        return sum(value.op.cost for value, _ in self.passed if isinstance(value.op, Elementwise))


def reach(value: Value, stored: Collection[Value], most: int) -> Reach | None:
    """What an array is computed from, unless that is more than so many values."""
    start = (value, tuple(map(Affine, range(len(value.shape)))))
    found = Reach([], [])
    seen: set[Place] = set()
    waiting: list[Place] = [start]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        inner, index = at
        if len(seen) > most:
            return None
        if inner in stored or not isinstance(inner.op, (Elementwise, AxisView, Source)):
            found.read.append(at)
        elif isinstance(inner.op, AxisView):
            found.passed.append(at)
            waiting.append((inner.args[0], through_view(inner, index)))
        elif isinstance(inner.op, Elementwise):
            found.passed.append(at)
            waiting += [(arg, broadcast_index(arg.shape, index))
                        for arg in inner.args if isinstance(arg, Value)]
    return found


def follows(index: Index, axes: Iterable[int]) -> bool:
    """Whether an index varies along all of these axes."""
    return {position.axis for position in index}.issuperset(axes)


def may_unroll(value: Value, axis: int, stored: Collection[Value], limits: Limits) -> bool:
    """Whether a short axis of what is to be reduced costs nothing to combine term by term.

    That is so where the array need not exist: all that it is computed from stays in the caches.
    """
    count = value.shape[axis]
    if not count <= limits.short_reduction:
        return False
    found = reach(value, stored, limits.unrolled_cells // count)
    if found is None or limits.broadcast * found.elements > value.size:
        return False
    read = sum(follows(index, (axis,)) for _, index in found.read)
    return count * read <= limits.unrolled_loads


def computed_again(value: Value, stored: Collection[Value], limits: Limits) -> bool:
    """Whether every pass over an array computes it anew, at some expense, from smaller ones."""
    found = reach(value, stored, limits.unrolled_cells)
    return found is not None and found.elements < value.size and found.cost >= limits.expensive


class Apart(NamedTuple):
    """Short axes that are taken out of the domains of kernels.

    Attributes
    ----------
    axes : dict
        For reductions of arrays with such axes: which axes of the array.
    shared : dict
        For what is computed or viewed below them: how many components a kernel has of it.
    """

    axes: dict[Value, tuple[int, ...]]
    shared: dict[Value, int]


def taken_apart(values: Iterable[Value], stored: Collection[Value], limits: Limits) -> Apart:
    """Find the reductions whose kept short axes are no axes of their kernels."""
    apart = Apart({}, {})
    for value in values:
        if isinstance(value.op, Reduction) and value.shape:
            _take_apart(value, stored, limits, apart)
    return apart


def _take_apart(value: Value, stored: Collection[Value], limits: Limits, apart: Apart) -> None:
    source, reduced = value.args[0], value.attrs[0]
    short = [axis for axis, n in enumerate(source.shape)
             if axis not in reduced and 1 < n <= limits.short_axis]
    if not short or not source.size:
        return
    found = reach(source, stored, limits.unrolled_cells)
    if found is None or limits.broadcast * found.elements > source.size:
        return
    axes = tuple(
        axis for axis in short
        if any(not follows(index, (axis,)) and follows(index, reduced) and _works(inner)
               for inner, index in found.passed))

    def count(place: Place) -> int:
        return prod(source.shape[axis] for axis in axes if follows(place[1], (axis,)))

    if (not axes or prod(source.shape[axis] for axis in axes) > limits.components
            or sum(map(count, found.passed)) > limits.unrolled_cells
            or sum(map(count, found.read)) > limits.unrolled_loads):
        return
    apart.axes[value] = axes
    for place in found.passed:
        inner = place[0]
        apart.shared[inner] = max(count(place), apart.shared.get(inner, 1))


def _works(value: Value) -> bool:
    return isinstance(value.op, Elementwise) and value.op.cost > 0


def without(shape: tuple[int, ...], axes: Collection[int]) -> tuple[int, ...]:
    """The shape without some axes."""
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def components(shape: tuple[int, ...], axes: tuple[int, ...], rest: Index) -> list[Index]:
    """The index of every component, given the one along the other axes."""
    found = []
    for at in product(*(range(shape[axis]) for axis in axes)):
        places = dict(zip(axes, at, strict=True))
        others = iter(rest)
        found.append(tuple(_constant(places[axis]) if axis in places else next(others)
                           for axis in range(len(shape))))
    return found


def _constant(place: int) -> Affine:
    return Affine(-1, 0, ((ONE, place),)) if place else ORIGIN
