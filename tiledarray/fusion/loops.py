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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tiledarray.fusion.target import Target
from tiledarray.ops import elementwise, indexing, movement
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.loop import loop
from tiledarray.ops.op import AxisView, Elementwise, Library, Op, Reduction, Reshape, Scan, Source

# What becomes of an operand's dimension: a dimension of the result (not negative), or
WHOLE = -1  # all of it is needed for every element, or nobody knows
ONE = -2  # it has one element
SUMMED = -10  # this and below: it is combined; equal numbers are combined together

MOST_LOOPS = 8  # of a plan
LEAST_ROWS = 16  # of a block, if there are so many: few rows make slow products

Along = tuple[int | None, ...]  # which dimension of a value follows each of a loop's axes
Sizes = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Entry:
    """One entry of a signature; of a leaf, ``op`` is ``None``."""

    op: Op | None
    attrs: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    refs: tuple[int | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def parts(self) -> tuple[Any, ...]:
        """The entry as it stands in a signature."""
        if self.op is None:
            return None, self.shape, self.dtype
        return self.op, self.attrs, self.shape, self.dtype, *self.refs


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
    """

    lengths: Sizes
    block: Sizes
    inputs: int
    results: tuple[Result, ...]
    signatures: dict[Sizes, tuple[Any, ...]]
    numbers: tuple[int, ...]

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


class Looped(NamedTuple):
    """A signature with loops in it.

    Attributes
    ----------
    entries, kinds, outputs
        See `Trace.signature`.
    numbers : sequence of int
        Which entry each was; of a loop with several results, ``~number`` of the product that it is
        for.
    """

    entries: tuple[Any, ...]
    kinds: tuple[Any, ...]
    outputs: tuple[int, ...]
    numbers: Sequence[int]


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
    entries, kinds, outputs = signature
    looped = Looped(entries, kinds, outputs, range(len(entries)))
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
        looped = region.cut_out(looped)
    return looped


def _entry(parts: Sequence[Any]) -> Entry:
    if parts[0] is None:
        return Entry(None, None, parts[1], parts[2])
    op, attrs, shape, dtype, *refs = parts
    return Entry(op, attrs, shape, dtype, tuple(refs))


def _is_seed(entry: Sequence[Any], target: Target) -> bool:
    """Whether it is a product so large that it is better not stored."""
    op = entry[0]
    return op is not None and op in _PRODUCTS and (
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


@dataclass(eq=False, slots=True)
class Graph:
    """A signature, and who reads what in it."""

    entries: list[Entry]
    kinds: Sequence[Any]
    outputs: frozenset[int]
    users: list[list[int]]

    @classmethod
    def of(cls, looped: Looped) -> Graph:
        """Return the graph of a signature."""
        entries = [*map(_entry, looped.entries)]
        users: list[list[int]] = [[] for _ in entries]
        for number, entry in enumerate(entries):
            for ref in entry.refs:
                if ref is not None and ref >= 0:
                    users[ref].append(number)
        return cls(entries, looped.kinds, frozenset(looped.outputs), users)

    def operands(self, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The operands of an entry that are values, and what becomes of their dimensions."""
        entry = self.entries[number]
        shapes = [self.entries[ref].shape if ref is not None and ref >= 0 else None
                  for ref in entry.refs]
        for k, ref in enumerate(entry.refs):
            if ref is not None and ref >= 0:
                yield ref, _relation(entry, k, shapes)


# ---- relations -----------------------------------------------------------------------------------


def _relation(entry: Entry, k: int, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """What becomes of the dimensions of operand ``k``; ``shapes`` are those of all operands."""
    shape, op = shapes[k], entry.op
    assert shape is not None
    if isinstance(op, Elementwise):
        found = _trailing(shape, len(entry.shape))
    elif isinstance(op, Reduction):
        kept = iter(range(len(entry.shape)))
        found = [SUMMED - axis if axis in entry.attrs[0] else next(kept)
                 for axis in range(len(shape))]
    elif isinstance(op, Scan):
        found = [WHOLE if axis == entry.attrs else axis for axis in range(len(shape))]
    elif isinstance(op, AxisView):
        axes, steps = entry.attrs
        found = [axis if axis >= 0 and step == 1 and start is None and axes.count(axis) == 1
                 and n == entry.shape[axis] else WHOLE
                 for axis, step, start, n in zip(axes, steps, entry.refs[1:], shape, strict=True)]
    elif isinstance(op, Reshape):
        found = _kept_in_place(shape, entry.shape)
    elif op in _PRODUCTS:
        found = _of_product(entry, k, shapes)
    elif op in _ALONG_AN_AXIS:
        axis = _axis_of(entry)
        found = [WHOLE] * len(shape) if axis is None or len(shape) != len(entry.shape) else [
            WHOLE if d == axis % len(shape) else d for d in range(len(shape))]
    else:
        found = [WHOLE] * len(shape)
    return tuple(ONE if n == 1 else to for n, to in zip(shape, found, strict=True))


def _trailing(shape: tuple[int, ...], rank: int) -> list[int]:
    return list(range(rank - len(shape), rank))


def _kept_in_place(shape: tuple[int, ...], to: tuple[int, ...]) -> list[int]:
    """The dimensions that a reshape leaves as they are: as long, and as much in front of them."""
    places = {}
    before = 1
    for axis, n in enumerate(to):
        if n != 1:
            places[before, n] = axis
        before *= n
    found, before = [], 1
    for n in shape:
        found.append(places.get((before, n), WHOLE))
        before *= n
    return found


def _of_product(entry: Entry, k: int, shapes: Sequence[Any]) -> list[int]:
    op, rank = entry.op, len(entry.shape)
    if op is BY_NAME["einsum"]:
        return _of_einsum(dict(entry.attrs)["subscripts"], k) or [WHOLE] * len(shapes[k])
    ranks = [len(shape) for shape in shapes]
    if (op is BY_NAME["dot"] and max(ranks) > 2) or 0 in ranks:
        return [WHOLE] * ranks[k]
    # How many of its last axes each operand multiplies with, and which of them is summed.
    cores = {"vecdot": (1, 1), "matvec": (2, 1), "vecmat": (1, 2)}.get(
        op.name if op else "", (min(ranks[0], 2), min(ranks[1], 2)))
    kept = sum(cores) - 2
    own = cores[k] - 1
    core = [SUMMED] if not own else [rank - kept, SUMMED] if k == 0 else [SUMMED, rank - 1]
    leading = ranks[k] - cores[k]
    return [*range(rank - kept - leading, rank - kept), *core]


def _of_einsum(subscripts: str, k: int) -> list[int]:
    """The same of a sum in Einstein's notation; nothing where that leaves letters out."""
    operands, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow or "." in subscripts:
        return []
    letters = operands.split(",")[k]
    return [WHOLE if letters.count(letter) > 1 else result.index(letter) if letter in result
            else SUMMED - ord(letter) for letter in letters]


def _axis_of(entry: Entry) -> int | None:
    """Along which axis a library call sorts or takes; ``None``: of the array as a line."""
    if entry.op in (BY_NAME["partition"], BY_NAME["argpartition"], BY_NAME["take_along_axis"]):
        axis: int | None = dict(entry.attrs).get("axis", -1)
        return axis
    axis, _ = entry.attrs
    return axis


_PRODUCTS = {BY_NAME[name] for name in ("matmul", "dot", "matvec", "vecmat", "vecdot", "einsum")}


_ALONG_AN_AXIS = {indexing.sort, indexing.argsort, *(
    BY_NAME[name] for name in ("partition", "argpartition", "take_along_axis"))}


def _combining(entry: Entry) -> tuple[Op, Any] | None:
    """The op by which parts of a reduction or product are combined, and what to begin with."""
    dtype = entry.dtype
    if dtype.kind not in "iufcb" or (dtype.kind in "fc" and dtype.itemsize < 4):
        return None
    if isinstance(entry.op, Reduction):
        name = entry.op.combine
        if name in ("minimum", "maximum"):
            return (elementwise.BY_NAME[name], _bound(dtype, name)) if dtype.kind in "iuf" else None
        starts = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}
        return (elementwise.BY_NAME[name], starts[name]) if name in starts else None
    if entry.op in _PRODUCTS and dtype.kind != "b":
        return elementwise.BY_NAME["add"], 0
    return None


def _bound(dtype: np.dtype[Any], name: str) -> Any:
    if dtype.kind == "f":
        return np.inf if name == "minimum" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if name == "minimum" else limits.min


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
            if number in graph.outputs or _combines(along)
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
            if behind.isdisjoint(refs) and not any(_combines(self.inside[ref]) for ref in below):
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
        if _combines(found) and _combining(self.entries[number]) is None:
            return None
        agree = all(_operand_along(relation, found) == self.inside[ref]
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
                    isinstance(entry.op, Elementwise) or entry.op in _PRODUCTS):
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
            _operand_along(relation, self._along(user))
            for user in users for ref, relation in self.graph.operands(user) if ref == number}
        along = found.pop()
        large = self.entries[number].nbytes >= self.target.limits.loop_bytes
        enough = any if large else all  # what is small is better computed once
        return along if not found and enough(d is not None for d in along) else None

    def _along(self, number: int) -> Along:
        found = self.inside.get(number)
        return self.beside[number] if found is None else found

    def saves(self) -> bool:
        """Whether enough is not stored then."""
        return self.seed not in self.results and self._saved() >= self.target.limits.loop_least

    def pays(self) -> bool:
        """Whether that is more than what is read or added up again for it."""
        return self._block() != self._lengths() and self._again() <= 2 * self._saved()

    def _saved(self) -> int:
        """Bytes of library calls' results that need not be stored."""
        return sum(self.entries[number].nbytes for number in (*self.inside, *self.beside)
                   if isinstance(self.entries[number].op, Library) and number not in self.results)

    def _again(self) -> int:
        """Bytes that are read or added up for more than one block."""
        counts = [-(-n // size) for n, size in zip(self._lengths(), self._block(), strict=True)]
        total = 0
        for number in self.results:
            along = self.inside[number]
            times = prod(n for n, to in zip(counts, along, strict=True) if to is None or to < 0)
            total += 4 * self.entries[number].nbytes * (times - 1)
        for number in (*self.inside, *self.beside):
            for ref, relation in self.graph.operands(number):
                if not self._is_inside(ref):
                    along = _operand_along(relation, self._along(number))
                    times = prod(n for n, d in zip(counts, along, strict=True) if d is None)
                    total += self.entries[ref].nbytes * (times - 1)
        return total

    def _is_inside(self, number: int) -> bool:
        return number in self.inside or number in self.beside

    def _lengths(self) -> Sizes:
        return tuple(self.entries[self.seed].shape[axis] for axis in self.axes)

    def _block(self) -> Sizes:
        """The sizes of a block: what is largest in it stays in the caches."""
        lengths = self._lengths()
        largest = max(
            -(-self.entries[number].nbytes // prod(
                n for n, d in zip(lengths, along, strict=True) if d is not None and d >= 0))
            for number, along in (*self.inside.items(), *self.beside.items())
            if not _combines(along) and along[-1] is not None
            and not isinstance(self.entries[number].op, AxisView))
        room = max(1, self.target.limits.loop_bytes // largest)
        sizes: list[int] = []
        for place, n in reversed([*enumerate(lengths)]):
            least = min(n, LEAST_ROWS) if place == len(lengths) - 1 else 1
            blocks = -(-n // max(least, min(n, room)))
            sizes.append(-(-n // blocks))
            room = max(1, room // n) if blocks == 1 else 1
        return tuple(reversed(sizes))

    # ---- cutting it out ------------------------------------------------------------------------

    def cut_out(self, looped: Looped) -> Looped:
        """The signature with the loop in place of what is inside."""
        block, lengths = self._block(), self._lengths()
        signatures = {}
        for sizes in product(*({size, n % size or size} for n, size in zip(
                lengths, block, strict=True))):
            maker = _BodyMaker(self, sizes)
            signatures[sizes] = maker.signature()
        results = []
        for number in self.results:
            entry, combines = self.entries[number], _combines(self.inside[number])
            combining = _combining(entry) if combines else None
            results.append(Result(entry.shape, entry.dtype,
                                  None if combining is None else combining[1]))
        body = Body(lengths, block, len(maker.inputs), tuple(results), signatures,
                    tuple(looped.numbers[number] for number in maker.numbers))
        refs = (*maker.inputs, *(~k for k in maker.params))
        first = results[0]
        op = loop(len(results))
        made = Entry(op, body, first.shape, first.dtype, refs)
        if len(results) == 1:
            return self._renumbered(looped, {self.results[0]: made}, None)
        items = {number: Entry(movement.item, k, *results[k][:2], (len(self.entries),))
                 for k, number in enumerate(self.results)}
        return self._renumbered(looped, items, made)

    def _renumbered(self, looped: Looped, instead: dict[int, Entry], last: Entry | None) -> Looped:
        """The entries that are still asked for, in order, with some instead of others."""
        entries = [instead.get(number, entry) for number, entry in enumerate(self.entries)]
        numbers = [*looped.numbers]
        if last is not None:
            entries.append(last)
            numbers.append(~numbers[self.seed])
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


def _combines(along: Along) -> bool:
    return any(to is not None and to <= SUMMED for to in along)


def _operand_along(relation: tuple[int, ...], along: Along) -> Along:
    """How an operand is cut, given how the result is."""
    return tuple(relation.index(to) if to is not None and to in relation else None for to in along)


class _BodyMaker:
    """Makes the signature of a loop's body, for blocks of given sizes."""

    def __init__(self, region: Region, sizes: Sizes) -> None:
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
            entry = region.entries[number]
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
        shape = [*self.region.entries[number].shape]
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
        entries = self.region.entries
        path = [number]
        while path[-1] not in self._whole and isinstance(
                entries[path[-1]].op, AxisView | Reshape):
            path.append(entries[path[-1]].refs[0])  # type: ignore[arg-type]
        for each in reversed(path):
            if each not in self._whole:
                self._whole[each] = self._of_all_below(each, entries[each])
        return self._whole[number]

    def _of_all_below(self, number: int, entry: Entry) -> int:
        if isinstance(entry.op, AxisView | Reshape):
            below = [self._whole[entry.refs[0]]]  # type: ignore[index]
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
        if region._is_inside(number):
            return self._computed(number)
        if all(d is None for d in along):
            return self._of_all(number)
        if (number, along) not in self._cut:
            entry, shape = region.entries[number], self._shape(number, along)
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
            entry = self.region.entries[top]
            along = self.region._along(top)
            if (top, along) in self._cut:
                path.pop()
                continue
            waiting = [ref for ref in entry.refs
                       if ref is not None and ref >= 0 and self.region._is_inside(ref)
                       and (ref, self.region._along(ref)) not in self._cut]
            if waiting:
                path += waiting
                continue
            values = [self._part(ref, _operand_along(relation, along))
                      for ref, relation in self.region.graph.operands(top)]
            self._cut[top, along] = self._add(
                top, entry.op, entry.attrs, self._shape(top, along), entry.dtype,
                self._refs(entry, values))
        return self._cut[number, self.region._along(number)]

    def _into(self, place: int, number: int, new: int) -> int:
        """The result once a block of it has been computed."""
        entry, along = self.region.entries[number], self.region._along(number)
        rank = len(entry.shape)
        starts: list[Any] = [("place", along.index(d)) if d in along else None
                             for d in range(rank)]
        shape = self._shape(number, along)
        if _combines(along):
            found = _combining(entry)
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
