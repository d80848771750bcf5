"""What is larger than all that it is made of and leads to is computed block by block.

In ``softmax(q @ k.T) @ v`` the scores are a library call's result, which fuses with nothing and
would be stored.  But a row of the result needs a row of them, so it is done for some rows at a
time: the scores of a block stay in the caches, and never is there memory for all.  So it is with
distances of which the nearest are sought, with the hidden layers of a network and with what a
gradient adds up over the rows of its data.

A *loop* has axes of its own.  What is inside is cut along them: every value there says which of its
dimensions follows which axis of the loop, if any does.  A result either has a loop's axis, and each
block of it is written once, or is combined over it, and each block adds its part.  The signature
that remains has the loop as one library call (`ops.op.Loop`), and the loop's `Body` is a signature
again, with the whole inputs and results for leaves and the blocks' places for parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any

from tiledarray.fusion.along import (
    PRODUCTS,
    WHOLE,
    Along,
    Entry,
    Graph,
    Looped,
    Sizes,
    combines,
    combining_op,
    looped_of,
    operand_along,
)
from tiledarray.fusion.bodies import cut_out, made_of
from tiledarray.fusion.target import Target
from tiledarray.ops.op import AxisView, Elementwise, Library

MOST_LOOPS = 8  # of a plan
LEAST_ROWS = 16  # of a block, if there are so many: few rows make slow products


def in_blocks(signature: tuple[Any, ...], target: Target, most: int = MOST_LOOPS) -> Looped:
    """Find what is worth a loop, and make it one.

    Parameters
    ----------
    signature : tuple
        See `Trace.signature`.
    target : Target
    most : int
        How many.
    """
    looped = looped_of(signature)
    in_vain: set[int] = set()
    for _ in range(most):
        seeds = [place for place, entry in enumerate(looped.entries)
                 if _is_seed(entry, target) and place not in looped.outputs
                 and looped.numbers[place] not in in_vain]
        graph = Graph.of(looped) if seeds else None
        region = None
        for seed in seeds:
            assert graph is not None
            region = _found(graph, seed, target)
            if region is not None:
                break
            in_vain.add(looped.numbers[seed])
        if region is None:
            break
        looped = cut_out(region, looped, made_of(region, looped, region.block()))
    return looped


def _is_seed(entry: Sequence[Any], target: Target) -> bool:
    """Whether it is a product so large that it is better not stored."""
    op = entry[0]
    return op is not None and op in PRODUCTS and (
        prod(entry[2]) * entry[3].itemsize >= target.limits.loop_least)


def _found(graph: Graph, seed: int, target: Target) -> Region | None:
    """The loop that is worth most for the sake of one product."""
    shape = graph.entries[seed].shape
    alone = [axis for axis, n in enumerate(shape)
             if n > 1 and Region(graph, seed, [axis], target).saves()]
    axes = [axis for axis in alone if axis < len(shape) - 1] or alone
    while axes:
        found = Region(graph, seed, axes, target)
        if found.saves() and found.pays():
            return found
        axes = axes[1:]
    return None


# ---- regions -------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Region:
    """What would be computed in one loop.

    Attributes
    ----------
    inside : dict
        The entries that are computed from the seed for each block, and how they are cut.
    beside : dict
        The same of others that only those inside ask for.
    results : list of int
        Entries that others ask for, in order.
    """

    graph: Graph
    seed: int
    axes: Sequence[int]
    target: Target
    inside: dict[int, Along] = field(default_factory=dict)
    beside: dict[int, Along] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._grow()
        self._take_along()
        graph = self.graph
        self.results = [
            number for number, along in self.inside.items()
            if number in graph.outputs or combines(along)
            or any(user not in self.inside for user in graph.users[number])]

    @property
    def entries(self) -> list[Entry]:
        """All entries of the signature."""
        return self.graph.entries

    def _grow(self) -> None:
        """Go through all that depends on the seed: what is cut like it is inside."""
        users = self.graph.users
        self.inside[self.seed] = tuple(self.axes)
        behind: set[int] = set()  # what needs all of something inside, or what is combined
        waiting = [*users[self.seed]]
        heapify(waiting)
        met: set[int] = set()
        while waiting:
            number = heappop(waiting)
            if number in met:
                continue
            met.add(number)
            refs = self.entries[number].refs
            below = [ref for ref in refs if ref in self.inside]
            along = None
            if behind.isdisjoint(refs) and not any(combines(self.inside[ref]) for ref in below):
                along = self._cut(number)
            if along is None:
                behind.add(number)
            else:
                self.inside[number] = along
            for user in users[number]:
                heappush(waiting, user)

    def _cut(self, number: int) -> Along | None:
        """How an entry is cut if its operands inside are; ``None`` if it cannot be."""
        along: list[int | None] = [None] * len(self.axes)
        for ref, relation in self.graph.operands(number):
            for axis, d in enumerate(self.inside.get(ref, ())):
                if d is None:
                    continue
                to = relation[d]
                if to == WHOLE or along[axis] not in (None, to):
                    return None
                along[axis] = to
        found = tuple(along)
        followed = [to for to in found if to is not None]
        if len({*followed}) < len(followed):
            return None
        if combines(found) and combining_op(self.entries[number]) is None:
            return None
        agree = all(operand_along(relation, found) == self.inside[ref]
                    for ref, relation in self.graph.operands(number) if ref in self.inside)
        return found if agree else None

    def _take_along(self) -> None:
        """Find what only those inside ask for, and can be computed for each block as well."""
        waiting = [-ref for number in self.inside for ref in self._below(number)]
        heapify(waiting)
        last = None
        while waiting:
            number = -heappop(waiting)
            if number == last:
                continue
            last, entry, users = number, self.entries[number], self.graph.users[number]
            if number in self.graph.outputs or not (
                    isinstance(entry.op, Elementwise) or entry.op in PRODUCTS):
                continue
            if all(user in self.inside or user in self.beside for user in users):
                along = self._asked(number, users)
                if along is not None:
                    self.beside[number] = along
                    for ref in self._below(number):
                        heappush(waiting, -ref)

    def _below(self, number: int) -> list[int]:
        """Operands that are not inside."""
        return [ref for ref in self.entries[number].refs
                if ref is not None and ref >= 0 and ref not in self.inside]

    def _asked(self, number: int, users: Sequence[int]) -> Along | None:
        """How those who ask for an entry cut it, if they agree and it is cut at all."""
        found = {
            operand_along(relation, self.along(user))
            for user in users for ref, relation in self.graph.operands(user) if ref == number}
        along = found.pop()
        large = self.entries[number].nbytes >= self.target.limits.loop_bytes
        enough = any if large else all  # what is small is better computed once
        return along if not found and enough(d is not None for d in along) else None

    def along(self, number: int) -> Along:
        """How it is cut then."""
        found = self.inside.get(number)
        return self.beside[number] if found is None else found

    def saves(self) -> bool:
        """Whether enough is not stored then."""
        return self.seed not in self.results and self._saved() >= self.target.limits.loop_least

    def pays(self) -> bool:
        """Whether that is more than what is read or added up again for it."""
        return self.block() != self.lengths() and self._again() <= 2 * self._saved()

    def _saved(self) -> int:
        """Bytes of library calls' results that need not be stored."""
        return sum(self.entries[number].nbytes for number in (*self.inside, *self.beside)
                   if isinstance(self.entries[number].op, Library) and number not in self.results)

    def _again(self) -> int:
        """Bytes that are read or added up for more than one block."""
        counts = [-(-n // size) for n, size in zip(self.lengths(), self.block(), strict=True)]
        total = 0
        for number in self.results:
            along = self.inside[number]
            times = prod(n for n, to in zip(counts, along, strict=True) if to is None or to < 0)
            total += 4 * self.entries[number].nbytes * (times - 1)
        for number in (*self.inside, *self.beside):
            for ref, relation in self.graph.operands(number):
                if not self.holds(ref):
                    along = operand_along(relation, self.along(number))
                    times = prod(n for n, d in zip(counts, along, strict=True) if d is None)
                    total += self.entries[ref].nbytes * (times - 1)
        return total

    def holds(self, number: int) -> bool:
        """Whether an entry is computed for each block."""
        return number in self.inside or number in self.beside

    def lengths(self) -> Sizes:
        """Lengths of the axes that it is cut along."""
        return tuple(self.entries[self.seed].shape[axis] for axis in self.axes)

    def block(self) -> Sizes:
        """The sizes of a block: what is largest in it stays in the caches."""
        lengths = self.lengths()
        largest = max(
            -(-self.entries[number].nbytes // prod(
                n for n, d in zip(lengths, along, strict=True) if d is not None and d >= 0))
            for number, along in (*self.inside.items(), *self.beside.items())
            if not combines(along) and along[-1] is not None
            and not isinstance(self.entries[number].op, AxisView))
        room = max(1, self.target.limits.loop_bytes // largest)
        sizes: list[int] = []
        for place, n in reversed([*enumerate(lengths)]):
            least = min(n, LEAST_ROWS) if place == len(lengths) - 1 else 1
            blocks = -(-n // max(least, min(n, room)))
            sizes.append(-(-n // blocks))
            room = max(1, room // n) if blocks == 1 else 1
        return tuple(reversed(sizes))
