"""A chain as one kernel: where its arrays lie to one another, and what is needed around a tile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiledarray.fusion.chains.stages import Part, Places, Stage
from tiledarray.fusion.ir import Access, Affine, Cell, Group, Sink, Value, dense_strides
from tiledarray.fusion.plan import Axis, Kernel, Schedule, Store, Strided
from tiledarray.fusion.updates import read_by
from tiledarray.ops.op import Leaf

AHEAD = 1  # turns of a walk before which a plane is asked for from memory

Reach = tuple[tuple[int, int], ...]  # how far below and above, along each dimension
Version = tuple[Value, int]  # an array, and the stage that makes it (-1: it is copied)


@dataclass(eq=False, slots=True)
class Walk:
    """When a block that goes from plane to plane comes to which, and how many of them it holds.

    Attributes
    ----------
    lags : list of int
        For each stage, how many planes it is behind what has been copied to shared memory.
    depths : dict
        For each array on chip, how many of its planes are held.
    leaves : dict
        The same as lags, for each output that is copied from shared memory.
    direct : frozenset of Value
        Outputs that their stage writes to memory itself, since nothing on chip asks for them.
    """

    lags: list[int] = field(default_factory=list)
    depths: dict[Version, int] = field(default_factory=dict)
    leaves: dict[Value, int] = field(default_factory=dict)
    direct: frozenset[Value] = frozenset()

    @property
    def last(self) -> int:
        """Turns after that in which the last plane has come."""
        return max((*self.lags, *self.leaves.values()))


@dataclass(eq=False, slots=True)
class ChainKernel(Kernel):
    """Stages that one launch goes through, tile by tile.

    All arrays lie in one *frame*, of which a block has a box: with arrays of one shape their own
    indices; inner parts of such arrays lie where they are computed from them.

    Attributes
    ----------
    stages : list of Stage
    memory : dict
        The memory of every value, as in the plan.
    inputs, outputs : list of Value
        Arrays that are copied to shared memory at first, and from there at the end.
    offsets : dict
        Where in the frame each array begins.
    begins : dict
        Where in the frame the box of each part begins.
    around : frozenset of int
        Dimensions along which all arrays are rings.
    size : tuple of int
        What of the frame the blocks share out: all that the outputs cover.
    needed : list of dict
        For each stage, how far around a tile the arrays are right when it is done; the first is
        for what is there before.
    tile : tuple of int
        What a block writes.
    places : dict
        Where an array lies in shared memory, in bytes, by array and the number of the stage that
        makes it (-1: it is copied).
    walk : Walk or None
        Where a block goes along the first dimension, holding some planes of its tile.
    rounds : int
        How often the stages are gone through; what is around a tile comes from other blocks between
        (`chains.resident`).
    rest : int
        Stages of the last round, of several.
    """

    stages: list[Stage] = field(default_factory=list)
    memory: dict[Value, Value] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    offsets: dict[Value, Places] = field(default_factory=dict)
    begins: dict[Part, Places] = field(default_factory=dict)
    around: frozenset[int] = frozenset()
    size: Places = ()
    needed: list[dict[Value, Reach]] = field(default_factory=list)
    tile: Places = ()
    places: dict[Version, int] = field(default_factory=dict)
    walk: Walk | None = None
    rounds: int = 1
    rest: int = 0

    @property
    def form(self) -> str:
        """What kind of kernel it is."""
        return "chain"

    @property
    def steps(self) -> int:
        """How many stages are gone through."""
        return (self.rounds - 1) * len(self.stages) + (self.rest or len(self.stages))

    @property
    def halo(self) -> Reach:
        """How far a tile's memory reaches beyond what the block writes."""
        return widest([reach for needed in self.needed for reach in needed.values()],
                      len(self.size))

    @property
    def extents(self) -> Places:
        """Shape of a tile's memory."""
        return tuple(n + below + above
                     for n, (below, above) in zip(self.tile, self.halo, strict=True))

    def reach(self, number: int) -> Reach:
        """How far around a tile a stage computes."""
        needed = self.needed[number + 1]
        return widest([needed[base] for base in self.stages[number].written if base in needed],
                      len(self.size))

    def shift(self, part: Part, at: Places, base: Value) -> Places:
        """How far from where it writes a part reads an array, from where its box begins there."""
        return _distance(at, self.offsets[base], self.begins[part])

    def version(self, base: Value, number: int) -> int:
        """The stage that has made what a stage finds of an array on chip; -2 if it is not there."""
        return max((made for other, made in self.places if other is base and made < number),
                   default=-2)


def widest(reaches: Sequence[Reach], rank: int) -> Reach:
    """What contains all of these."""
    return tuple((max((reach[d][0] for reach in reaches), default=0),
                  max((reach[d][1] for reach in reaches), default=0)) for d in range(rank))


def _distance(at: Places, offset: Places, begin: Places) -> Places:
    return tuple(a + o - b for a, o, b in zip(at, offset, begin, strict=True))


def laps(keys: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """Where stages repeat, by what tells them apart: the first, how many, and how many times."""
    first = 0
    while first < len(keys):
        found = first, 1, 1
        for period in range(1, (len(keys) - first) // 2 + 1):
            lap, times = keys[first:first + period], 1
            while keys[first + times * period:first + (times + 1) * period] == lap:
                times += 1
            if times > 1 and times * period > found[1] * found[2]:
                found = first, period, times
        yield found
        first += found[1] * found[2]


def chain(stages: list[Stage], memory: dict[Value, Value], kept: Collection[Value],
          last: Stage | None = None) -> ChainKernel | None:
    """Return stages as one kernel, not yet cut into tiles; ``None`` where that cannot be.

    ``kept`` are the arrays that something needs afterwards.  Where the stages are one round of
    several, the ``last`` stage of all makes what is stored.
    """
    everything = {base for stage in stages for base in stage.made}
    if any(isinstance(base.op, Leaf) for base in everything):
        return None
    made = set[Value]()
    for number, stage in enumerate(stages):
        known = stage.near | stage.changed
        if (number and not known & made) or not made.isdisjoint(stage.afar) or (
                any(base in everything and base not in made for base in known | stage.afar)):
            return None  # the last: other blocks may still read what would be overwritten
        made |= stage.made
    outputs = [base for base in dict.fromkeys(
        base for stage in stages for base in sorted(stage.made, key=lambda v: v.number))
        if base in kept]
    afar = set[Value]().union(*(stage.afar for stage in stages))
    inputs = [*dict.fromkeys(
        base for stage in stages for part in stage.parts for base in part.near
        if base not in made and base not in stages[-1].near and base not in afar)]
    frame = _frame(stages, memory, {*inputs, *made}) if outputs else None
    if frame is None:
        return None
    offsets, begins = frame
    around = frozenset[int]().union(*(stage.around for stage in stages))
    if around and not _are_rings(stages, around, offsets, begins):
        return None
    least = tuple(min(offsets[base][d] for base in outputs) for d in range(stages[0].rank))
    offsets = {base: _distance(at, (0,) * len(at), least) for base, at in offsets.items()}
    begins = {part: _distance(at, (0,) * len(at), least) for part, at in begins.items()}
    size = tuple(max(offsets[base][d] + base.shape[d] for base in outputs)
                 for d in range(stages[0].rank))
    return _kernel(ChainKernel(
        Group(stages[0].kernel.group.number, size), Schedule(()), {}, [], stages=stages,
        memory=memory, inputs=inputs, outputs=outputs, offsets=offsets, begins=begins,
        around=around, size=size,
        needed=_needed(stages, {*inputs, *made}, outputs, offsets, begins)), last)


def _are_rings(stages: list[Stage], around: frozenset[int], offsets: dict[Value, Places],
               begins: dict[Part, Places]) -> bool:
    """Whether stages take their arrays for rings along these dimensions, or do nothing there."""
    lengths = {(base.shape[d], d) for base in offsets for d in around}
    if len(lengths) > len(around) or any(at[d] for at in offsets.values() for d in around):
        return False
    length = {d: n for n, d in lengths}
    for stage in stages:
        for part in stage.parts:
            if part.kernel.border is not None:
                return False
            for d in around:
                if begins[part][d] or part.extents[d] != length[d] or part.axes[d] < 0:
                    return False
                if d not in stage.around and any(
                        at[d] != part.writes[0][d] for at in part.reads.values()):
                    return False
    return True


def _frame(stages: list[Stage], memory: dict[Value, Value], inside: Collection[Value]) -> (
        tuple[dict[Value, Places], dict[Part, Places]] | None):
    """Where in one frame the arrays on chip begin, and the boxes that are computed.

    ``None`` if an array would have to be at two places.
    """
    offsets: dict[Value, Places] = {}
    begins: dict[Part, Places] = {}
    for stage in stages:
        for part in stage.parts:
            targets = [memory[store.access.value] for store in part.kernel.stores]
            begin = begins[part] = _begin_of(part, targets, offsets)
            for base, at in zip(targets, part.writes, strict=True):
                offset = _distance(begin, (0,) * len(begin), at)
                if offsets.setdefault(base, offset) != offset:
                    return None
            for base, (least, _) in part.near.items():
                if base in inside and base not in offsets:
                    like = next((other for other in targets if other.shape == base.shape), None)
                    offsets[base] = offsets[like] if like is not None else (
                        _distance(begin, (0,) * len(begin), least))
    return offsets, begins


def _begin_of(part: Part, targets: list[Value], offsets: dict[Value, Places]) -> Places:
    """Where in the frame a part's box begins: as its arrays lie already, if they do."""
    zero = (0,) * len(part.extents)
    for base, at in zip(targets, part.writes, strict=True):
        if base in offsets:
            return _distance(at, offsets[base], zero)
    known = [(base, span) for base, span in part.near.items() if base in offsets]
    for base, at in zip(targets, part.writes, strict=True):
        for other, _ in known:
            if other.shape == base.shape:
                return _distance(at, offsets[other], zero)
    if not known:
        return part.writes[0]
    least = [_distance(span[0], offsets[base], zero) for base, span in known]
    most = [_distance(span[1], offsets[base], zero) for base, span in known]
    return tuple((min(low) + max(high)) // 2 for low, high in zip(
        zip(*least, strict=True), zip(*most, strict=True), strict=True))


def _needed(stages: list[Stage], inside: Collection[Value], outputs: list[Value],
            offsets: dict[Value, Places], begins: dict[Part, Places]) -> list[dict[Value, Reach]]:
    """How far around a tile each array must be right, before each stage and at the end."""
    rank = stages[0].rank
    nothing: Reach = ((0, 0),) * rank
    needed = dict.fromkeys(outputs, nothing)
    found = [needed]
    for stage in reversed(stages):
        own = widest([needed[base] for base in stage.written if base in needed], rank)
        before = {base: reach for base, reach in needed.items() if base not in stage.made}
        for part in stage.parts:
            for base, (least, most) in part.near.items():
                if base not in inside:
                    continue
                low = _distance(least, offsets[base], begins[part])
                high = _distance(most, offsets[base], begins[part])
                reach = tuple((below + max(0, -a), above + max(0, b)) for (below, above), a, b in
                              zip(own, low, high, strict=True))
                before[base] = widest([reach, before.get(base, nothing)], rank)
        needed = before
        found.insert(0, needed)
    return found


def _kernel(kernel: ChainKernel, last: Stage | None) -> ChainKernel:
    """Add what other passes ask of a kernel: its axes, what it reads and what it stores."""
    stages, memory, size = kernel.stages, kernel.memory, kernel.size
    rank = len(size)
    everywhere = frozenset(range(rank))
    kernel.schedule.axes = tuple(
        Axis(n, "row" if d + 1 < rank else "lane", False, (d,)) for d, n in enumerate(size))
    made = {base for stage in stages for base in stage.made}
    read = dict.fromkeys(value for stage in stages for value in _read(stage)
                         if memory[value] not in made)
    # Anywhere in them: what is said of a load is of one stage.
    kernel.group.cells += [
        Cell(number, "load", value, value.dtype, access=Access(value, (), ()), axes=everywhere)
        for number, value in enumerate(read)]
    kernel.group.loads += kernel.group.cells
    for base in kernel.outputs:
        stored, writers = base, stages
        if last is not None:
            (stored,), writers = last.made, [last]
        value = max((store.access.value for stage in writers for part in stage.kernel.parts
                     for store in part.stores if memory[store.access.value] is stored),
                    key=lambda value: value.number)
        cell = Cell(len(kernel.group.cells), "apply", value, value.dtype, axes=everywhere)
        kernel.group.cells.append(cell)
        index = tuple(Affine(d) for d in range(rank))
        sink = Sink(value, cell, "full", index, stored=True)
        kernel.group.add(sink)
        kernel.stores.append(Store(sink, Strided(value, dense_strides(value.shape), ())))
    kernel.group.phases = 1
    kernel.bytes_moved = sum(
        base.nbytes for base in (*{memory[value] for value in read}, *kernel.outputs))
    kernel.flops = sum(stage.kernel.flops for stage in stages)
    return kernel


def _read(stage: Stage) -> Iterator[Value]:
    return (value for part in stage.parts for value in read_by(part.kernel.group))
