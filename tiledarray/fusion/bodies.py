"""What a loop does with a block: a signature cut out of another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from tiledarray.fusion.along import (
    Along,
    Entry,
    Graph,
    Looped,
    Sizes,
    combines,
    combining_op,
    operand_along,
)
from tiledarray.ops import movement
from tiledarray.ops.loop import loop
from tiledarray.ops.op import AxisView, Op, Reshape, Source


class Result(NamedTuple):
    """What a loop gives: blocks of it, or what is combined, with ``start`` first."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: Any


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """What a loop does with a block.

    Attributes
    ----------
    lengths : tuple of int
        Of the loop's axes.
    block : tuple of int
        Of a block along each; the last ones may be shorter.
    inputs : int
        Operands that are arrays; those behind them are scalars.
    results : tuple of Result
    signatures : dict
        By the sizes of the block.  The leaves are the results as far as they have come, then the
        inputs; the parameters are the scalars, then the block's place along each axis.
    numbers : tuple of int
        Which entry of the recording each of theirs stands for.
    program : fusion.tiles.ir.Program or None
        What one block, a problem of a batch, is computed by on chip.
    """

    lengths: Sizes
    block: Sizes
    inputs: int
    results: tuple[Result, ...]
    signatures: dict[Sizes, tuple[Any, ...]]
    numbers: tuple[int, ...]
    program: Any = None

    @property
    def written(self) -> frozenset[int]:
        """Numbers of the leaves in whose memory the body writes."""
        return frozenset(range(len(self.results)))

    @property
    def count(self) -> int:
        """Number of blocks."""
        return prod(-(-n // size) for n, size in zip(self.lengths, self.block, strict=True))

    def blocks(self) -> Iterator[tuple[Sizes, Sizes]]:
        """Every block: where it begins, and its sizes."""
        for starts in product(*map(range, (0,) * len(self.lengths), self.lengths, self.block)):
            yield starts, tuple(min(size, n - at) for at, n, size in zip(
                starts, self.lengths, self.block, strict=True))


class Cut(Protocol):
    """What is cut out of a signature.

    Attributes
    ----------
    graph : Graph
    seed : int
        The entry for the sake of which it is.
    results : sequence of int
        Entries that others ask for, in order.
    """

    graph: Graph
    seed: int
    results: list[int]

    def holds(self, number: int) -> bool:
        """Whether an entry is computed for each block."""

    def along(self, number: int) -> Along:
        """How it is cut then."""

    def lengths(self) -> Sizes:
        """Lengths of the axes that it is cut along."""


class Made(NamedTuple):
    """What a loop is made of: its body, and what that is given."""

    body: Body
    refs: tuple[int, ...]


def made_of(region: Cut, looped: Looped, block: Sizes) -> Made:
    """Return what a loop over a region would be."""
    entries, lengths = region.graph.entries, region.lengths()
    signatures = {}
    for sizes in product(*({size, n % size or size} for n, size in zip(
            lengths, block, strict=True))):
        maker = BodyMaker(region, sizes)
        signatures[sizes] = maker.signature()
    results = []
    for number in region.results:
        entry = entries[number]
        combining = combining_op(entry) if combines(region.along(number)) else None
        results.append(Result(entry.shape, entry.dtype,
                              None if combining is None else combining[1]))
    body = Body(lengths, block, len(maker.inputs), tuple(results), signatures,
                tuple(looped.numbers[number] for number in maker.numbers))
    return Made(body, (*maker.inputs, *(~k for k in maker.params)))


def cut_out(region: Cut, looped: Looped, made: Made) -> Looped:
    """The signature with the loop in place of what is inside."""
    results, count = made.body.results, len(region.graph.entries)
    first = results[0]
    entry = Entry(loop(len(results)), made.body, first.shape, first.dtype, made.refs)
    if len(results) == 1:
        return exchanged(region.graph, looped, {region.results[0]: entry})
    items = {number: Entry(movement.item, k, *results[k][:2], (count,))
             for k, number in enumerate(region.results)}
    return exchanged(region.graph, looped, items, [(entry, ~looped.numbers[region.seed])])


def exchanged(graph: Graph, looped: Looped, instead: dict[int, Entry],
              more: Sequence[tuple[Entry, int]] = ()) -> Looped:
    """The entries that are still asked for, in order, with some instead of others.

    Others may refer to ``more``, each with its number in ``numbers``, as those that follow.
    """
    entries = [instead.get(number, entry) for number, entry in enumerate(graph.entries)]
    entries += [entry for entry, _ in more]
    numbers = [*looped.numbers, *(number for _, number in more)]
    places: dict[int, int] = {}
    # Leaves stay whether anyone asks for them or not: they are known by their numbers.
    path = [*reversed(looped.outputs)]
    path += [n for n, entry in enumerate(entries) if entry.op is None][::-1]
    while path:
        number = path[-1]
        waiting = [ref for ref in entries[number].refs
                   if ref is not None and ref >= 0 and ref not in places]
        if waiting and number not in places:
            path += reversed(waiting)
            continue
        path.pop()
        places.setdefault(number, len(places))
    ordered = sorted(places, key=places.__getitem__)

    def moved(number: int) -> Any:
        entry = entries[number]
        refs = tuple(places[ref] if ref is not None and ref >= 0 else ref for ref in entry.refs)
        return Entry(entry.op, entry.attrs, entry.shape, entry.dtype, refs).parts

    return Looped(tuple(map(moved, ordered)), looped.kinds,
                  tuple(places[number] for number in looped.outputs),
                  [numbers[number] for number in ordered])


class BodyMaker:
    """Makes the signature of a loop's body, for blocks of given sizes."""

    def __init__(self, region: Cut, sizes: Sizes) -> None:
        self.region = region
        self.sizes = sizes
        self.inputs: list[int] = []
        self.params: list[int] = []
        self.numbers: list[int] = []
        self._entries: list[Entry] = []
        self._numbers: list[int] = []
        self._whole: dict[int, int] = {}
        self._cut: dict[tuple[int, Along], int] = {}

    def signature(self) -> tuple[Any, ...]:
        """Results first: the leaves of inputs, and which parameters, are only known then."""
        region = self.region
        for number in region.results:
            entry = region.graph.entries[number]
            self._add(number, None, None, entry.shape, entry.dtype)
        wanted = [self._computed(number) for number in region.results]
        outputs = tuple(self._into(place, number, new)
                        for place, (number, new) in enumerate(
                            zip(region.results, wanted, strict=True)))
        return self._in_order(outputs)

    def _add(self, number: int, op: Op | None, attrs: Any, shape: Sizes, dtype: Any,
             refs: Sequence[Any] = ()) -> int:
        """Enter what stands for an entry of the whole signature."""
        self._numbers.append(number)
        self._entries.append(Entry(op, attrs, shape, dtype, tuple(refs)))
        return len(self._entries) - 1

    def _param(self, number: int) -> Any:
        if number not in self.params:
            self.params.append(number)
        return "scalar", number

    def _shape(self, number: int, along: Along) -> Sizes:
        shape = [*self.region.graph.entries[number].shape]
        for d, size in zip(along, self.sizes, strict=True):
            if d is not None and d >= 0:
                shape[d] = size
        return tuple(shape)

    def _refs(self, entry: Entry, values: Sequence[int]) -> list[Any]:
        of_values = iter(values)
        return [None if ref is None else next(of_values) if ref >= 0 else self._param(~ref)
                for ref in entry.refs]

    def _of_all(self, number: int) -> int:
        """An entry from outside, all of it: views and the like cost nothing in here."""
        entries = self.region.graph.entries
        path = [number]
        while path[-1] not in self._whole and isinstance(
                entries[path[-1]].op, AxisView | Reshape):
            path.append(entries[path[-1]].values[0])
        for each in reversed(path):
            if each not in self._whole:
                self._whole[each] = self._of_all_below(each, entries[each])
        return self._whole[number]

    def _of_all_below(self, number: int, entry: Entry) -> int:
        if isinstance(entry.op, AxisView | Reshape):
            below = [self._whole[entry.values[0]]]
        elif isinstance(entry.op, Source) and entry.op is not movement.empty:
            below = []
        else:
            self.inputs.append(number)
            return self._add(number, None, None, entry.shape, entry.dtype)
        return self._add(number, entry.op, entry.attrs, entry.shape, entry.dtype,
                         self._refs(entry, below))

    def _part(self, number: int, along: Along) -> int:
        """A block of an operand."""
        region = self.region
        if region.holds(number):
            return self._computed(number)
        if all(d is None for d in along):
            return self._of_all(number)
        if (number, along) not in self._cut:
            entry, shape = region.graph.entries[number], self._shape(number, along)
            if entry.op is movement.full:
                made = self._add(number, entry.op, entry.attrs, shape, entry.dtype,
                                 self._refs(entry, ()))
            else:
                places = [("place", along.index(d)) if d in along else None
                          for d in range(len(shape))]
                made = self._add(
                    number, movement.view, (tuple(range(len(shape))), (1,) * len(shape)), shape,
                    entry.dtype, (self._of_all(number), *places))
            self._cut[number, along] = made
        return self._cut[number, along]

    def _computed(self, number: int) -> int:
        """What is inside, of one block; what it is computed from comes first."""
        path = [number]
        while path:
            top = path[-1]
            entry = self.region.graph.entries[top]
            along = self.region.along(top)
            if (top, along) in self._cut:
                path.pop()
                continue
            waiting = [ref for ref in entry.refs
                       if ref is not None and ref >= 0 and self.region.holds(ref)
                       and (ref, self.region.along(ref)) not in self._cut]
            if waiting:
                path += waiting
                continue
            values = [self._part(ref, operand_along(relation, along))
                      for ref, relation in self.region.graph.operands(top)]
            self._cut[top, along] = self._add(
                top, entry.op, entry.attrs, self._shape(top, along), entry.dtype,
                self._refs(entry, values))
        return self._cut[number, self.region.along(number)]

    def _into(self, place: int, number: int, new: int) -> int:
        """The result once a block of it has been computed."""
        entry, along = self.region.graph.entries[number], self.region.along(number)
        rank = len(entry.shape)
        starts: list[Any] = [("place", along.index(d)) if d in along else None
                             for d in range(rank)]
        shape = self._shape(number, along)
        if combines(along):
            found = combining_op(entry)
            assert found is not None
            old = place
            if shape != entry.shape:
                old = self._add(number, movement.view, (tuple(range(rank)), (1,) * rank), shape,
                                entry.dtype, (place, *starts))
            new = self._add(number, found[0], (entry.dtype, entry.dtype), shape, entry.dtype,
                            (old, new))
        return self._add(number, movement.update, (tuple(range(rank)), (1,) * rank, shape),
                         entry.shape, entry.dtype, (place, new, *starts))

    def _in_order(self, outputs: Sequence[int]) -> tuple[Any, ...]:
        """The signature: leaves first, and parameters by number."""
        results = len(self.region.results)
        inputs = [number for number, entry in enumerate(self._entries)
                  if number >= results and entry.op is None]
        others = [number for number, entry in enumerate(self._entries) if entry.op is not None]
        order = [*range(results), *inputs, *others]
        self.numbers = [self._numbers[number] for number in order]
        places = {number: place for place, number in enumerate(order)}
        numbers = {number: k for k, number in enumerate(self.params)}

        def moved(ref: Any) -> Any:
            if isinstance(ref, tuple):
                what, number = ref
                return ~(numbers[number] if what == "scalar" else len(numbers) + number)
            return None if ref is None else places[ref]

        entries = []
        for number in order:
            entry = self._entries[number]
            entries.append(Entry(entry.op, entry.attrs, entry.shape, entry.dtype,
                                 tuple(map(moved, entry.refs))).parts)
        kinds = [self._kind(number) for number in self.params]
        return (tuple(entries), (*kinds, *(int for _ in self.sizes)),
                tuple(places[number] for number in outputs))

    def _kind(self, number: int) -> Any:
        """The type of a scalar: where a start lies beside another is of no use in here."""
        kind = self.region.graph.kinds[number]
        return int if isinstance(kind, tuple) else kind
