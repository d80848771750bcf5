"""The verifier's part on memory: nothing is read before it is written or after it is overwritten.

Updates in place make *versions* of the value whose memory they use.  A step that reads one version
has to come after the writes that made it and before the writes of later ones; steps whose regions
are apart may go in any order, and those of one launch go in no order at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import accumulate
from typing import NamedTuple

from tiledarray.fusion.ir import READS, Index, Value, library_operand, storage
from tiledarray.fusion.plan import Call, Copy, Kernel, Plan, Step
from tiledarray.fusion.regions import Region, Regions, read_region, region_of
from tiledarray.fusion.schedule.place import passes_needed
from tiledarray.ops.movement import empty
from tiledarray.ops.op import Item, Leaf

Versions = dict[Value, int]


class Touch(NamedTuple):
    """A read or write of a value's memory: all of it, or a region, by a part of a launch.

    ``passes`` are the first and the last pass over a kernel's reduced axes that do it.
    """

    value: Value
    region: Region | None
    step: int
    part: Kernel | None = None
    at: Index = ()
    passes: tuple[int, int] = (0, 0)


def found_races(plan: Plan, donated: Collection[int]) -> Iterator[str]:
    """Say what the plan reads at the wrong time, and what it shares without saying so."""
    versions = _versions(plan)
    reads, writes = _touches(plan)
    yield from _found_in_place(plan, donated)
    for base, touches in writes.items():
        yield from _found_writes(plan, touches, versions)
        yield from _found_reads(plan, reads[base], touches, versions)
    made = {touch.value for touches in writes.values() for touch in touches}
    for touches in reads.values():
        for read in touches:
            if not (_is_there(read.value) or read.value in made):
                yield f"{read.value} is read and nothing computes it"
    yield from _found_outputs(plan, versions, made)


def _is_there(value: Value) -> bool:
    return isinstance(value.op, Leaf) or value.op is empty


def _versions(plan: Plan) -> Versions:
    """How many updates in place lead from what a memory held first to each value."""
    versions: Versions = {}
    for value in plan.values:
        in_place = plan.updates.get(value, ("", ""))[0] == "in place"
        versions[value] = versions[storage(value.args[0])] + 1 if in_place else 0
    return versions


def _touches(plan: Plan) -> tuple[dict[Value, list[Touch]], dict[Value, list[Touch]]]:
    """Reads and writes of the plan's steps, by memory."""
    reads: defaultdict[Value, list[Touch]] = defaultdict(list)
    writes: defaultdict[Value, list[Touch]] = defaultdict(list)
    for number, step in enumerate(plan.steps):
        for read in _reads(step, number):
            base = storage(read.value)
            base = base.args[0] if isinstance(base.op, Item) else base
            reads[plan.memory[base]].append(read._replace(value=base))
        for write in _writes(step, number):
            writes[plan.memory[write.value]].append(write)
    return reads, writes


def _reads(step: Step, number: int) -> Iterator[Touch]:
    if isinstance(step, Copy):
        yield Touch(step.source, None, number)
    if isinstance(step, Call):
        for arg in step.value.args:
            if isinstance(arg, Value):
                yield Touch(library_operand(arg), None, number)
    for part in step.parts if isinstance(step, Kernel) else ():
        needed = passes_needed(part)
        for cell in part.cells:
            if cell.kind in READS and cell.access is not None:
                region = read_region(cell, part.group.shape)
                index = () if region is None else cell.access.index
                passes = needed[cell] or {0}
                yield Touch(cell.access.value, region, number, part, index,
                            (min(passes), max(passes)))
        if part.border is not None and part.border.fill is None:
            yield Touch(part.border.old, None, number, part)


def _writes(step: Step, number: int) -> Iterator[Touch]:
    if isinstance(step, Copy):
        yield Touch(step.target, None, number)
    if isinstance(step, Call):
        yield Touch(step.value, None, number)
    for part in step.parts if isinstance(step, Kernel) else ():
        for store in part.stores:
            sink = store.sink
            region = None if part.border is not None else (
                region_of(sink.value.shape, sink.index, part.group.shape))
            last = sink.store_pass if sink.level == "full" else part.group.phases + 1
            yield Touch(sink.value, region, number, part, sink.index, (last, last))


def _apart(plan: Plan, one: Touch, other: Touch) -> bool:
    """Whether what the plan assumes of its parameters keeps two accesses apart."""
    return one.region is not None and other.region is not None and Regions(
        None, dict.fromkeys(plan.assumed)).apart(one.region, other.region)


def _found_writes(plan: Plan, writes: list[Touch], versions: Versions) -> Iterator[str]:
    """Of two writes of one memory the earlier version's comes first."""
    by_step: list[Touch] = []
    made: dict[int, Value] = {}
    for second in sorted(writes, key=lambda touch: (versions[touch.value], touch.step)):
        first = made.setdefault(versions[second.value], second.value)
        if first is not second.value:
            yield f"{first} and {second.value} overwrite the same value"
        for one in by_step[bisect_left(by_step, second.step, key=_step):]:
            if not _apart(plan, one, second):
                yield f"{one.value} is written in step {one.step}, over {second.value}"
        insort(by_step, second, key=_step)


def _step(touch: Touch) -> int:
    return touch.step


def _found_reads(
    plan: Plan, reads: list[Touch], writes: list[Touch], versions: Versions
) -> Iterator[str]:
    """A read comes after the writes of what it reads, and before those of what overwrites it.

    Writes are gone through from the read's step in either direction, as far as there are any that
    belong to the other side.
    """
    writes = sorted(writes, key=_step)
    numbers = [versions[write.value] for write in writes]
    latest = [*accumulate(numbers, max)]
    earliest = [*accumulate(reversed(numbers), min)][::-1]
    for read in reads:
        own = versions[read.value]
        place = bisect_left(writes, read.step, key=_step)
        while place < len(writes) and earliest[place] <= own:
            yield from _found_between(plan, read, writes[place], versions)
            place += 1
        place = bisect_right(writes, read.step, key=_step) - 1
        while place >= 0 and latest[place] > own:
            yield from _found_between(plan, read, writes[place], versions)
            place -= 1


def _found_between(plan: Plan, read: Touch, write: Touch, versions: Versions) -> Iterator[str]:
    if versions[write.value] <= versions[read.value]:
        if write.step >= read.step and not _apart(plan, read, write):
            yield f"{read.value} is read in step {read.step}, before {write.value} is there"
    elif write.step <= read.step and not _apart(plan, read, write):
        same_points = (write.part is read.part and write.at == read.at and read.region
                       is not None and read.region.shape == write.value.shape)
        if not same_points or read.passes[1] > write.passes[0]:
            yield (f"{read.value} is read in step {read.step}, where {write.value} "
                   "has overwritten it")


def _found_in_place(plan: Plan, donated: Collection[int]) -> Iterator[str]:
    for value, (choice, _) in plan.updates.items():
        base = plan.memory[value]
        if choice != "in place":
            if base is not value:
                yield f"{value} is not done in place, and lies in the memory of {base}"
        elif isinstance(base.op, Item) or (
                isinstance(base.op, Leaf) and base.attrs not in donated):
            yield f"{value} overwrites {base}, which is not the plan's own"


def _found_outputs(plan: Plan, versions: Versions, made: Collection[Value]) -> Iterator[str]:
    """Outputs are there at the end, and share memory with what the plan says alone."""
    last: defaultdict[Value, int] = defaultdict(int)
    for value in made:
        last[plan.memory[value]] = max(last[plan.memory[value]], versions[value])
    inside: defaultdict[Value, list[int]] = defaultdict(list)
    for place, output in enumerate(plan.outputs):
        value = storage(output)
        base = plan.memory[value]
        inside[base].append(place)
        call = value.args[0] if isinstance(value.op, Item) else value
        if not (_is_there(value) or call in made):
            yield f"output {output} is never computed"
        elif versions[value] < last[base]:
            yield f"output {output} is overwritten"
        if value is base and isinstance(base.op, Leaf) and place not in plan.shared.get(base, ()):
            yield f"output {output} is a leaf's memory, and the plan does not say so"
    for base, places in inside.items():
        if len(places) > 1 and plan.shared.get(base, ()) != tuple(places):
            yield f"outputs {places} share the memory of {base}, and the plan does not say so"
