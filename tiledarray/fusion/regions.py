"""Which parts of arrays kernels touch, and which of those certainly have no element in common.

Where a region begins is a run-time parameter, so that a moving window keeps its plan.  What follows
from where regions lie is therefore written down in the plan, as `Assumption` about the parameters:
the plan is used as long as they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tiledarray.fusion.ir import (
    ONE,
    Affine,
    Cell,
    Index,
    Terms,
    Value,
    evaluated_terms,
    through_view,
)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A linear form is not negative; with a ``modulus``, no multiple of it (of 0: not zero)."""

    terms: Terms
    modulus: int | None = None

    def holds(self, params: Sequence[Any]) -> bool:
        """Whether it is so for these parameters."""
        value = evaluated_terms(self.terms, params)
        if self.modulus is None:
            return value >= 0
        return value % self.modulus != 0 if self.modulus else value != 0


@dataclass(frozen=True, slots=True)
class Span:
    """Places ``first + k * step`` for ``k < count`` along one dimension."""

    first: Terms
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class Region:
    """Elements of an array of that shape, ``size`` of them.

    They lie in the box of one span for each dimension, and are all of it unless several dimensions
    follow one axis (a diagonal).
    """

    shape: tuple[int, ...]
    spans: tuple[Span, ...]
    size: int


def region_of(shape: tuple[int, ...], index: Index, domain: tuple[int, ...]) -> Region:
    """The elements of an array that an index reaches from a domain."""
    followed = {position.axis for position in index if position.axis >= 0 and position.step}
    spans = []
    for position in index:
        count = domain[position.axis] if position.axis >= 0 and position.step else 1
        step, first = (position.step, position.terms) if count > 1 else (1, position.terms)
        if step < 0:
            step, first = -step, _sum((1, first), constant=step * (count - 1))
        spans.append(Span(first, step, count))
    return Region(shape, tuple(spans), prod(domain[axis] for axis in followed))


def read_region(cell: Cell, domain: tuple[int, ...]) -> Region | None:
    """The elements that a cell reads of its stored value; ``None`` if that may be any."""
    access = cell.access
    if access is None or cell.kind == "gather" or access.strides is not None:
        return None
    return region_of(access.value.shape, access.index, domain)


def is_straight(update: Value) -> bool:
    """Whether an update writes a box, so that what lies outside it can be written beside it."""
    axes, steps, _ = update.attrs
    followed = [axis for axis in axes if axis >= 0]
    return bool(update.shape) and len(set(followed)) == len(followed) and all(
        step == 1 for axis, step in zip(axes, steps, strict=True) if axis >= 0)


def update_region(value: Value) -> Region:
    """The elements that an update writes."""
    region = value.attrs[2]
    index = region_index(value, tuple(Affine(axis) for axis in range(len(region))))
    return region_of(value.shape, index, region)


def region_index(value: Value, index: Index) -> Index:
    """Index into the array that an update writes, given the index into its region."""
    axes, steps, _ = value.attrs
    shim = Value(-1, value.op, (axes, steps), (value.args[0], *value.args[2:]), value.shape,
                 value.dtype)
    return through_view(shim, index)


@dataclass(slots=True)
class Regions:
    """Decides whether regions are apart, and keeps what was assumed for it.

    Without parameters only what holds for all of them, or was assumed before, is true.
    """

    params: Sequence[Any] | None = None
    assumed: dict[Assumption, None] = field(default_factory=dict)

    def apart(self, one: Region, other: Region) -> bool:
        """Whether two regions of the same memory certainly have no element in common.

        Boxes are compared: two diagonals of one box count as overlapping.
        """
        if one.shape != other.shape or not (one.size and other.size):
            return False  # what is empty is still read after it is made
        reasons = [reason for a, b in zip(one.spans, other.spans, strict=True)
                   for reason in _reasons(a, b)]
        if any(all(number == ONE for number, _ in reason.terms) and reason.holds(())
               for reason in reasons):
            return True
        for reason in reasons:
            if reason in self.assumed or (
                    self.params is not None and reason.holds(self.params)):
                self.assumed[reason] = None
                return True
        return False

    def value(self, terms: Terms) -> int:
        """A linear form for the parameters at hand."""
        assert self.params is not None
        return evaluated_terms(terms, self.params)

    def fix(self, terms: Terms) -> None:
        """Assume that a linear form has the value that it has now."""
        if any(number != ONE for number, _ in terms):
            for factor in (1, -1):
                apart = _sum((factor, terms), constant=-factor * self.value(terms))
                self.assumed[Assumption(apart)] = None

    def cover(self, regions: Sequence[Region]) -> bool:
        """Whether regions of one array leave nothing of it out, and do not overlap."""
        return sum(region.size for region in regions) == prod(regions[0].shape) and all(
            self.apart(one, other)
            for k, one in enumerate(regions) for other in regions[:k]
        )


def _reasons(a: Span, b: Span) -> Iterator[Assumption]:
    """What would keep two spans apart, the most lasting first; the same for them exchanged."""
    if a.first == b.first:
        return
    between = _sum((1, b.first), (-1, a.first))
    apart = between if between[:1] > _sum((-1, between))[:1] else _sum((-1, between))
    if a.count == b.count == 1:
        yield Assumption(apart, 0)
        return
    step = a.step if b.count == 1 else b.step if a.count == 1 else a.step
    if step > 1 and (min(a.count, b.count) == 1 or a.step == b.step):
        yield Assumption(apart, step)
    yield Assumption(_sum((1, between), constant=-a.step * (a.count - 1) - 1))
    yield Assumption(_sum((-1, between), constant=-b.step * (b.count - 1) - 1))


def _sum(*parts: tuple[int, Terms], constant: int = 0) -> Terms:
    """Linear forms, each times a factor, and a constant, added up."""
    total = {ONE: constant}
    for factor, terms in parts:
        for number, coefficient in terms:
            total[number] = total.get(number, 0) + factor * coefficient
    return tuple(sorted(item for item in total.items() if item[1]))
