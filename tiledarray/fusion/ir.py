"""What the planner works on: values, run-time parameters, affine indices and cells.

A *value* is one recorded op seen without its buffers, so that a plan outlives the arrays it was
made for.  A *cell* is one scalar computation inside a kernel: a value at one index of the
kernel's iteration domain.  The same value read at two shifted places is two cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from tiledarray.ops.movement import strides_along
from tiledarray.ops.op import AxisView, Op, Reshape, Strided


@dataclass(frozen=True, slots=True)
class Param:
    """A Python scalar of the recording, known only when the plan runs, plus a constant."""

    index: int
    kind: type
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """A length that the planner itself puts into a computation: an argument of the kernel."""

    count: int


@dataclass(eq=False, slots=True)
class Value:
    """One op of the recording; ``args`` are values, parameters and integers (``None``: 0)."""

    number: int
    op: Op
    attrs: Any
    args: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"%{self.number}:{self.op.name}{list(self.shape)}"


def storage(value: Value) -> Value:
    """The value whose memory a reshape shares."""
    while isinstance(value.op, Reshape):
        value = value.args[0]
    return value


def value_args(value: Value) -> list[Value]:
    """Operands that are values."""
    return [arg for arg in value.args if isinstance(arg, Value)]


def viewed(value: Value) -> Value:
    """The value that a view is of."""
    while isinstance(value.op, AxisView):
        value = value.args[0]
    return value


def library_operand(arg: Value) -> Value:
    """The stored value that a library call's operand is a view of, or windows."""
    arg = viewed(arg)
    return storage(viewed(arg.args[0]) if isinstance(arg.op, Strided) else arg)


Terms = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Affine:
    """Index along one dimension: ``step * domain_index[axis] + sum(coefficient * param)``.

    ``axis == -1`` stands for no dependence on the domain.  The constant part is the coefficient
    of the pseudo-parameter `ONE`.
    """

    axis: int
    step: int = 1
    terms: Terms = ()


ONE = -1


Index = tuple[Affine, ...]
ORIGIN = Affine(-1, 0)


def add_terms(terms: Terms, scale: int, start: Param | int | None) -> Terms:
    """Return ``scale * terms + start`` with like terms joined."""
    total = {number: scale * coefficient for number, coefficient in terms}
    if isinstance(start, Param):
        total[start.index] = total.get(start.index, 0) + 1
        start = start.shift
    if start:
        total[ONE] = total.get(ONE, 0) + start
    return tuple(sorted(item for item in total.items() if item[1]))


def evaluated_terms(terms: Terms, params: Sequence[Any]) -> int:
    """Value of a linear form in the run-time parameters."""
    total = 0
    for number, coefficient in terms:
        total += coefficient if number == ONE else coefficient * params[number]
    return total


def through_view(value: Value, index: Index) -> Index:
    """Index into a view's input, given the index into the view."""
    return placed(value.args[0].shape, value.attrs[0], value.attrs[1], value.args[1:], index)


def placed(
    shape: tuple[int, ...], axes: Sequence[int], steps: Sequence[int], starts: Sequence[Any],
    index: Index,
) -> Index:
    """Index into an array of that shape, given the index into a part of it."""
    result = []
    for axis, step, start in zip(axes, steps, starts, strict=True):
        if axis < 0:
            result.append(Affine(-1, 0, add_terms((), 1, start)))
        else:
            outer = index[axis]
            result.append(
                Affine(outer.axis, outer.step * step, add_terms(outer.terms, step, start))
            )
    return normalised(shape, tuple(result))


def broadcast_index(shape: tuple[int, ...], index: Index) -> Index:
    """Index into an operand of that shape which broadcasts against the index's dimensions."""
    return normalised(shape, index[len(index) - len(shape):])


def normalised(shape: tuple[int, ...], index: Index) -> Index:
    """Dimensions of length one are always read at 0: write that one way."""
    if 1 not in shape:
        return index
    return tuple(
        ORIGIN if n == 1 else position for n, position in zip(shape, index, strict=True)
    )


def unit_axes(shape: tuple[int, ...], to: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes of ``to`` that the dimensions of ``shape`` follow if they differ by unit axes only."""
    if [n for n in shape if n != 1] != [n for n in to if n != 1]:
        return None
    places = iter(axis for axis, n in enumerate(to) if n != 1)
    return tuple(-1 if n == 1 else next(places) for n in shape)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _in_no_memory(view: Value) -> bool:
    return False


def through_views(
    value: Value, index: Index, ends: Callable[[Value], bool] = _in_no_memory
) -> tuple[Value, Index]:
    """What a view is of, and the index into that; what lies in memory is not looked behind."""
    while isinstance(value.op, AxisView) and not ends(value):
        value, index = value.args[0], through_view(value, index)
    return value, index


CellKind = Literal["load", "gather", "param", "iota", "apply", "reduce", "across", "scan"]
READS = ("load", "gather")


@dataclass(frozen=True, slots=True)
class Access:
    """Where a cell reads or a store writes: a stored value at an index of the domain.

    With ``strides``, in elements, the index is into another array over the same memory, whose
    elements may be the same ones several times.
    """

    value: Value
    index: Index
    strides: tuple[int, ...] | None = None


def strides_of(access: Access, rank: int) -> tuple[tuple[int, ...], Terms]:
    """Element strides along the domain's axes, and the offset, of an access."""
    along = dense_strides(access.value.shape) if access.strides is None else access.strides
    strides = [0] * rank
    offset: Terms = ()
    for step, position in zip(along, access.index, strict=True):
        if position.axis >= 0:
            strides[position.axis] += step * position.step
        merged = dict(offset)
        for number, coefficient in position.terms:
            merged[number] = merged.get(number, 0) + step * coefficient
        offset = tuple(sorted(merged.items()))
    return tuple(strides), offset


def windows_access(
    value: Value, index: Index, ends: Callable[[Value], bool] = _in_no_memory
) -> Access:
    """Where the memory of what windows are of is read, at an index into the windows."""
    array, *starts = value.args
    begin = tuple(Affine(d, 1, add_terms((), 1, start)) for d, start in enumerate(starts))
    inner, at = through_views(array, normalised(array.shape, begin), ends)
    along, offset = strides_of(Access(inner, at), len(array.shape))
    strides = strides_along(value.attrs, along, len(value.shape))
    return Access(inner, (*index, Affine(-1, 0, offset)), (*strides, 1))


@dataclass(eq=False, slots=True)
class Cell:
    """One scalar computation of a kernel.

    ``axes`` are the domain axes it depends on; ``phase`` counts the passes over the reduced axes
    that must have finished before it can be computed; an "across" is reduced over all rows of a
    kernel, in the pass of that number, and known when all are done.  A "gather" reads as far from
    the place of its access as its operand, a place along an axis, says: ``along`` is the stride of
    that axis, and its length.
    """

    number: int
    kind: CellKind
    value: Value
    dtype: np.dtype[Any]
    args: tuple[Any, ...] = ()
    access: Access | None = None
    axes: frozenset[int] = frozenset()
    phase: int = 0
    held: bool = field(default=False)
    along: tuple[int, int] = (0, 0)


@dataclass(eq=False, slots=True)
class Sink:
    """A value computed by a group.

    ``level`` is ``"full"`` (an element per domain point), ``"row"`` (per point of the axes that
    are not reduced) or ``"across"`` (what the rows of a kernel are reduced to); ``index`` leads
    from the domain to the value's elements, or to those of the array that an update writes into.
    ``earliest`` is the first pass over the reduced axes that may store it.
    """

    value: Value
    cell: Cell
    level: Literal["full", "row", "across"]
    index: Index
    stored: bool = False
    fills: bool = False
    earliest: int = 1

    @property
    def store_pass(self) -> int:
        """The pass that stores a full sink."""
        return max(self.cell.phase + 1, self.earliest)


@dataclass(eq=False, slots=True)
class Group:
    """Sinks that share one iteration domain and become one kernel (or one library call).

    ``cells`` are in the order in which they are computed; ``known`` finds them by value and index
    (or parameter), ``members`` the sinks by value and index: several of a value whose short axes
    are taken out of the domain.  ``depends`` are the groups that come before.

    ``reduced`` are the axes that blocks walk in passes: those that reductions reduce, and the one
    along which it ``scanned`` (-1: none); of several the kernel has its lanes along that one.
    """

    number: int
    shape: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    scanned: int = -1
    sinks: list[Sink] = field(default_factory=list)
    members: dict[Value, dict[Index, Sink]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    loads: list[Cell] = field(default_factory=list)
    known: dict[Any, Cell] = field(default_factory=dict)
    depends: set[int] = field(default_factory=set)
    library: Value | None = None
    refusals: list[str] = field(default_factory=list)
    phases: int = 0
    largest: int = 0

    def add(self, sink: Sink) -> None:
        """Have the group produce a value."""
        self.sinks.append(sink)
        self.members.setdefault(sink.value, {})[sink.index] = sink
        self.largest = max(self.largest, sink.value.size)

    @property
    def row_axes(self) -> tuple[int, ...]:
        """Domain axes that are not walked in passes."""
        return tuple(a for a in range(len(self.shape)) if a not in self.reduced)
