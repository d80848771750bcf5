"""Which values are computed for each problem of a batch by one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tiledarray.fusion.along import (
    CORES,
    Along,
    Entry,
    Graph,
    Sizes,
    operand_along,
    transformed,
)
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.beside import LINE
from tiledarray.ops import movement
from tiledarray.ops.op import AxisView, Elementwise, Item, Library, Reduction, Reshape, Source

ALONE = 64


def is_seed(entry: Any) -> bool:
    """Whether an entry of a signature is a call for the sake of which there are tiles."""
    op = entry[0]
    return isinstance(op, Library) and op.tile in (*CORES, "fourier") and 0 not in entry[2] and (
        not _is_complete(op, entry[1]))


def _is_complete(op: Library, attrs: Any) -> bool:
    """Whether a call asks for the whole of Q, more columns of which tiles do not compute."""
    return op.tile == "qr" and dict(attrs)["mode"] == "complete"


def batch_axes(entry: Entry) -> tuple[int, ...]:
    """The axes of a seed's result that its problems are apart along, but for those of length 1."""
    assert isinstance(entry.op, Library)
    rank = len(entry.shape)
    if entry.op.tile == "fourier":
        along = transformed(entry.attrs, rank)
        axes = [axis for axis in range(rank) if axis not in along]
    else:
        core = CORES[entry.op.tile]
        axes = [*range(rank - core)]
    return tuple(axis for axis in axes if entry.shape[axis] > 1)


def has_form(entry: Entry) -> bool:
    """Whether one problem of an entry may be computed on chip."""
    op, dtype = entry.op, entry.dtype
    if dtype.char not in "?bBhHiIlLqQfdFD":
        return False
    if isinstance(op, Library):
        return bool(op.tile) and dtype.kind in "fc" and 0 not in entry.shape and (
            not _is_complete(op, entry.attrs))
    if isinstance(op, Reduction):
        return op.accumulator in ("Sum", "Prod", "Min", "Max", "All", "Any", "ArgMin", "ArgMax")
    return isinstance(op, Elementwise | AxisView | Reshape | Item) or (
        isinstance(op, Source) and op is not movement.empty)


@dataclass(eq=False, slots=True)
class TileRegion:
    """What would be computed for each problem in one kernel.

    Attributes
    ----------
    graph : Graph
    seed : int
    axes : tuple of int
        The batch axes of its result.
    target : Target
    barred : frozenset of int
        Entries that are not to be computed there.
    again : frozenset of int
        Entries that are computed again by those outside who ask for them.
    inside : dict
        The entries that are computed there, and which of their dimensions follow the batch axes.
    results : list of int
        Entries that others ask for, in order.
    """

    graph: Graph
    seed: int
    axes: tuple[int, ...]
    target: Target
    barred: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    inside: dict[int, Along] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    _size: int = 0

    def __post_init__(self) -> None:
        graph = self.graph
        self._size = self.target.limits.tile_bytes
        self.inside[self.seed] = self.axes
        while self._step():
            pass
        self._drop_unused()
        # What is the same for all problems is computed again by those outside who ask for it.
        self.results = [
            number for number, along in sorted(self.inside.items())
            if any(d is not None for d in along) and number not in self.again and (
                number in graph.outputs or any(
                    user not in self.inside for user in graph.users[number]))]

    def holds(self, number: int) -> bool:
        """Whether an entry is computed for each problem."""
        return number in self.inside

    def along(self, number: int) -> Along:
        """Which of its dimensions follow the batch axes."""
        return self.inside[number]

    def lengths(self) -> Sizes:
        """Lengths of the batch axes."""
        shape = self.graph.entries[self.seed].shape
        return tuple(shape[axis] for axis in self.axes)

    def stored(self) -> int:
        """Bytes of what is stored for others."""
        return sum(self.graph.entries[number].nbytes for number in self.results)

    def apart(self) -> int:
        """How many of the batch axes lie behind an axis of the problem, so that it is scattered.

        Problems that may lie side by side on chip as they do in memory are not: see `beside`.
        """
        entry = self.graph.entries[self.seed]
        own = [axis for axis in range(len(entry.shape)) if axis not in self.axes]
        last = len(entry.shape) - 1
        beside = self.target.kind == "cuda" and isinstance(entry.op, Library) and (
            entry.op.tile == "fourier" and entry.shape[last] * entry.dtype.itemsize >= LINE)
        return sum(axis > min(own, default=axis) for axis in self.axes
                   if axis != last or not beside)

    # ---- growing -------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Take in more, if there is something; what is inside never waits for itself outside."""
        before = len(self.inside)
        behind: set[int] = set()  # outside, and made of something inside
        for number, entry in enumerate(self.graph.entries):
            if number in self.inside or entry.op is None:
                continue
            refs = entry.values
            if not behind.isdisjoint(refs):
                behind.add(number)
            elif any(ref in self.inside for ref in refs):
                along = self._forward(number)
                if along is not None and self._fits(number, along):
                    self.inside[number] = along
                else:
                    behind.add(number)
        leads: set[int] = set()  # outside, and something inside is made of it
        for number in reversed(range(len(self.graph.entries))):
            if number in self.inside:
                continue
            users = self.graph.users[number]
            mine = any(user in self.inside for user in users)
            late = not leads.isdisjoint(users)
            if mine and not late and number not in behind and (
                    self.graph.entries[number].op is not None):
                along = self._backward(number)
                if along is not None and self._fits(number, along):
                    self.inside[number] = along
                    continue
            if mine or late:
                leads.add(number)
        return len(self.inside) > before

    def _fits(self, number: int, along: Along) -> bool:
        """Whether an entry has a form for tiles, and one problem of it may be on chip."""
        entry = self.graph.entries[number]
        if number in self.barred or not has_form(entry):
            return False
        if isinstance(entry.op, Item) and entry.refs[0] not in self.inside:
            return False
        size = entry.nbytes // prod(
            entry.shape[d] for d in along if d is not None) if entry.shape else 1
        # What is elementwise is on chip only where more than one reads it.
        alone = isinstance(entry.op, Elementwise | AxisView) and len(self.graph.users[number]) == 1
        return size <= (ALONE if alone else 1) * self._size

    def _forward(self, number: int) -> Along | None:
        """How an entry is cut if its operands inside are; ``None`` if it cannot be."""
        inside = self.inside
        operands = [*self.graph.operands(number)]
        if not any(ref in inside and any(d is not None for d in inside[ref])
                   for ref, _ in operands):
            return None
        along: list[int | None] = [None] * len(self.lengths())
        for ref, relation in operands:
            for axis, d in enumerate(inside.get(ref, ())):
                if d is None:
                    continue
                to = relation[d]
                if to < 0 or along[axis] not in (None, to):
                    return None
                along[axis] = to
        return self._agreed(number, tuple(along))

    def _agreed(self, number: int, along: Along) -> Along | None:
        """The same, if it is cut along all axes and its operands inside are cut as it needs."""
        if any(d is None for d in along) or len({*along}) < len(along):
            return None
        shape = self.graph.entries[number].shape
        if any(d is not None and shape[d] != n
               for d, n in zip(along, self.lengths(), strict=True)):
            return None
        if not self._may_be_cut(number, along):
            return None
        agree = all(ref not in self.inside or operand_along(relation, along) == self.inside[ref]
                    for ref, relation in self.graph.operands(number))
        return along if agree else None

    def _may_be_cut(self, number: int, along: Along) -> bool:
        """Whether each batch axis of an entry is one of its operand, or repeats that.

        Of a call it is none of those that a problem has: what is transformed is needed whole.
        """
        entry = self.graph.entries[number]
        if isinstance(entry.op, Source):
            return entry.op is movement.full
        if isinstance(entry.op, Library) and entry.op.tile not in ("", "product"):
            rank = len(entry.shape)
            own = transformed(entry.attrs, rank) if entry.op.tile == "fourier" else range(
                rank - CORES[entry.op.tile], rank)
            return not any(d in own for d in along)
        if not isinstance(entry.op, AxisView | Reshape):
            return True
        ((_, relation),) = self.graph.operands(number)
        repeated = isinstance(entry.op, AxisView)
        return all(d in relation or (repeated and d not in entry.attrs[0]) for d in along)

    def _backward(self, number: int) -> Along | None:
        """How those inside that ask for an entry cut it, if they agree."""
        graph = self.graph
        users = [user for user in graph.users[number] if user in self.inside]
        if not users:
            return None
        found = {operand_along(relation, self.inside[user])
                 for user in users for ref, relation in graph.operands(user) if ref == number}
        if len(found) > 1:
            return None
        along = found.pop()
        if all(d is None for d in along):
            return along if self._is_free(number) else None
        return self._agreed(number, along)

    def _is_free(self, number: int) -> bool:
        """Whether it is made of indices and scalars alone, and cheap."""
        entry = self.graph.entries[number]
        if isinstance(entry.op, Source):
            return entry.op is not movement.empty
        if isinstance(entry.op, Elementwise):
            return entry.op.cost <= 2 and all(map(self._is_free, entry.values))
        return isinstance(entry.op, AxisView) and self._is_free(entry.values[0])

    def _drop_unused(self) -> None:
        """Leave out what is only copied: views that others ask for, and what nobody does."""
        graph = self.graph
        for number in sorted(self.inside, reverse=True):
            entry = graph.entries[number]
            mine = any(user in self.inside for user in graph.users[number])
            if not mine and isinstance(entry.op, AxisView | Reshape | Source):
                del self.inside[number]
