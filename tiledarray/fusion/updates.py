"""What grouped values are written to memory, and where updates go.

An update is done in place where the old value is dead and is read only where it is overwritten;
otherwise with its border (copied beside it or, of an array that is the same everywhere, filled),
or after a copy.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

from tiledarray.fusion.group import Grouper
from tiledarray.fusion.ir import READS, Group, Sink, Value, library_operand, storage
from tiledarray.fusion.regions import Regions, is_straight, read_region, region_of
from tiledarray.fusion.stored import MustStore
from tiledarray.fusion.target import Target
from tiledarray.ops.movement import empty
from tiledarray.ops.op import Item, Leaf, Update

UpdateChoice = dict[Value, tuple[str, str]]
Readers = dict[Value, list[Group]]


def choose_updates(grouper: Grouper, donatable: frozenset[int], regions: Regions) -> UpdateChoice:
    """Mark what each group stores; say how each update is done, and why.

    Returns
    -------
    dict
        For each update ``"in place"``, ``"border"``, ``"fill"`` or ``"copy"``, and the reason.

    Raises
    ------
    MustStore
        If some could be done in place, were what they write stored first.
    """
    readers = readers_of(grouper.groups)
    outputs = {storage(value) for value in grouper.outputs}
    for group in grouper.groups:
        for sink in group.sinks:
            sink.stored = (
                isinstance(sink.value.op, Update) or sink.value in outputs
                or any(reader is not group for reader in readers[sink.value])
            )
    choices: UpdateChoice = {}
    missing: list[Value] = []
    for group in grouper.groups:
        for sink in group.sinks:
            if isinstance(sink.value.op, Update):
                choices[sink.value] = choice = _choice(
                    grouper, group, sink, readers, outputs, donatable, regions
                )
                if choice[0] == "later":
                    missing.append(sink.value.args[1])
    if missing:
        raise MustStore(missing)
    return choices


def readers_of(groups: list[Group]) -> defaultdict[Value, list[Group]]:
    """Groups that read each stored value from memory."""
    readers: defaultdict[Value, list[Group]] = defaultdict(list)
    for group in groups:
        for value in read_by(group):
            readers[value].append(group)
    return readers


def _read_by_cells(group: Group) -> list[Value]:
    """What a kernel's cells read from memory."""
    return [storage(cell.access.value) for cell in group.cells
            if cell.kind in READS and cell.access is not None]


def read_by(group: Group) -> list[Value]:
    """Stored values that a group reads, or needs for an update."""
    found = _read_by_cells(group)
    if group.library is not None:
        for arg in group.library.args:
            if isinstance(arg, Value):
                found.append(library_operand(arg))
    found += [storage(sink.value.args[0]) for sink in group.sinks
              if isinstance(sink.value.op, Update) and not sink.fills]
    return list(dict.fromkeys(found))


def _choice(
    grouper: Grouper, group: Group, sink: Sink, readers: Readers,
    outputs: set[Value], donatable: frozenset[int], regions: Regions,
) -> tuple[str, str]:
    if sink.fills:
        return "fill", "the old value is the same everywhere"
    old = storage(sink.value.args[0])
    owned = old not in outputs and not isinstance(old.op, Item) and (
        not isinstance(old.op, Leaf) or old.attrs in donatable)
    others = [reader for reader in readers[old] if reader is not group]
    blocked = any(grouper.comes_before(group.number, reader.number) for reader in others)
    if owned and not blocked and _reads_what_it_writes(group, sink, old, regions):
        for reader in others:
            grouper.depend(group, reader.number)
        if old in _read_by_cells(group):
            sink.earliest = group.phases  # every pass may read it again
        return "in place", "the old value is dead"
    reason = (
        "something else holds the old value" if not owned
        else "what needs the old value comes later" if blocked
        else "it reads the old value at other places"
    )
    new = sink.value.args[1]
    if is_straight(sink.value) and not (owned and not blocked and grouper.may_store(new)
                                        and _small_beside(sink.value, grouper.target)):
        return "border", reason
    if owned and not blocked and grouper.may_store(new):
        return "later", "what it writes must be stored first"
    return "copy", reason


def _small_beside(update: Value, target: Target) -> bool:
    """Whether a region is sooner stored elsewhere first than all the rest copied."""
    region = prod(update.attrs[2]) * update.dtype.itemsize
    launch = target.launch_seconds * target.bytes_per_second
    return 2 * region + launch < 2 * (update.nbytes - region)


def _reads_what_it_writes(group: Group, sink: Sink, old: Value, regions: Regions) -> bool:
    """Whether the old value is read only where the same point of the domain writes, or far away."""
    written = region_of(sink.value.shape, sink.index, group.shape)
    return all(
        (read := read_region(cell, group.shape)) is not None and (
            (cell.access.index == sink.index and cell.access.value.shape == sink.value.shape)
            or regions.apart(written, read))
        for cell in group.cells
        if cell.kind in READS and cell.access is not None and storage(cell.access.value) is old
    )


def is_only_written(group: Group, readers: Readers, choices: UpdateChoice) -> bool:
    """Whether this is an uninitialised array that is first met by an update in place."""
    value = group.sinks[0].value if group.sinks else None
    return value is not None and value.op is empty and any(
        sink.value in choices and choices[sink.value][0] == "in place"
        and storage(sink.value.args[0]) is value
        for reader in readers[value] for sink in reader.sinks
    )
