"""Last pass: steps in an order, updates in place where the old value is dead, and lifetimes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from math import prod

from tiledarray.fusion.group import Grouper
from tiledarray.fusion.ir import Cell, Group, Sink, Value, add_terms, storage
from tiledarray.fusion.plan import Allocate, Border, Call, Copy, Kernel, Plan, Step
from tiledarray.fusion.regions import Regions, is_straight, region_of
from tiledarray.fusion.schedule.place import place
from tiledarray.fusion.schedule.tile import bytes_read, tile
from tiledarray.fusion.share import share
from tiledarray.fusion.stored import MustStore
from tiledarray.fusion.target import Target
from tiledarray.ops.movement import empty
from tiledarray.ops.op import AxisView, Item, Leaf, Reshape, Update

UpdateChoice = dict[Value, tuple[str, str]]


def order(grouper: Grouper, donatable: frozenset[int], target: Target, regions: Regions,
          fired: dict[str, int], origin: dict[Value, int], entry: dict[Value, list[int]]) -> Plan:
    """Return the plan of the grouped values."""
    groups = grouper.groups
    readers = _readers(groups)
    outputs = {storage(value) for value in grouper.outputs}
    for group in groups:
        for sink in group.sinks:
            sink.stored = (
                isinstance(sink.value.op, Update) or sink.value in outputs
                or any(reader is not group for reader in readers[sink.value])
            )
    choices = _update_choices(grouper, readers, outputs, donatable, regions)
    steps: list[Step] = []
    for group in _sorted(groups):
        if not _only_written(group, readers, choices):
            steps.extend(_steps(group, choices, target))
    memory = _memory(grouper.values, choices)
    refusals = [text for group in groups for text in group.refusals]
    steps = share(steps, memory, regions, target, refusals)
    return Plan(
        steps=steps, values=grouper.values, outputs=grouper.outputs, memory=memory,
        shared=_shared(grouper.outputs, memory), last_use=_last_use(steps, memory), fired=fired,
        origin=origin, entry=entry, updates=choices, refusals=refusals,
        assumed=tuple(regions.assumed),
    )


def _readers(groups: list[Group]) -> defaultdict[Value, list[Group]]:
    """Groups that read each stored value from memory."""
    readers: defaultdict[Value, list[Group]] = defaultdict(list)
    for group in groups:
        for value in _read_by(group):
            readers[value].append(group)
    return readers


def _read_on_the_way(group: Group) -> list[Value]:
    """What a kernel's cells read from memory."""
    return [storage(cell.access.value) for cell in group.cells
            if cell.kind == "load" and cell.access is not None]


def _read_by(group: Group) -> list[Value]:
    found = _read_on_the_way(group)
    if group.library is not None:
        for arg in group.library.args:
            if isinstance(arg, Value):
                found.append(library_operand(arg))
    found += [storage(sink.value.args[0]) for sink in group.sinks
              if isinstance(sink.value.op, Update) and not sink.fills]
    return list(dict.fromkeys(found))


def library_operand(arg: Value) -> Value:
    """The stored value that a library call's operand is a view of."""
    while isinstance(arg.op, AxisView):
        arg = arg.args[0]
    return storage(arg)


# ---- updates -------------------------------------------------------------------------------


def _update_choices(grouper: Grouper, readers: dict[Value, list[Group]], outputs: set[Value],
                    donatable: frozenset[int], regions: Regions) -> UpdateChoice:
    """For each update ``"in place"``, ``"border"`` (copied beside it), ``"fill"`` or ``"copy"``.

    Raises
    ------
    MustStore
        If some could be done in place, were what they write stored first.
    """
    choices: UpdateChoice = {}
    missing: list[Value] = []
    for group in grouper.groups:
        for sink in group.sinks:
            if isinstance(sink.value.op, Update):
                choices[sink.value] = choice = _update_choice(
                    grouper, group, sink, readers, outputs, donatable, regions
                )
                if choice[0] == "later":
                    missing.append(sink.value.args[1])
    if missing:
        raise MustStore(missing)
    return choices


def _update_choice(
    grouper: Grouper, group: Group, sink: Sink, readers: dict[Value, list[Group]],
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
        if old in _read_on_the_way(group):
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
        (cell.access.index == sink.index and cell.access.value.shape == sink.value.shape)
        or regions.apart(
            written, region_of(cell.access.value.shape, cell.access.index, group.shape))
        for cell in group.cells
        if cell.kind == "load" and cell.access is not None and storage(cell.access.value) is old
    )


# ---- steps ---------------------------------------------------------------------------------


def _sorted(groups: list[Group]) -> list[Group]:
    """Groups after what they depend on; otherwise as recorded."""
    waiting = {group.number: len(group.depends) for group in groups}
    users: defaultdict[int, list[int]] = defaultdict(list)
    for group in groups:
        for number in group.depends:
            users[number].append(group.number)
    ready = [number for number, count in waiting.items() if not count]
    heapq.heapify(ready)
    result = []
    while ready:
        number = heapq.heappop(ready)
        result.append(groups[number])
        for user in users[number]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    assert len(result) == len(groups), "kernels depend on one another in a cycle"
    return result


def _only_written(group: Group, readers: dict[Value, list[Group]], choices: UpdateChoice) -> bool:
    """Whether this is an uninitialised array that is first met by an update in place."""
    value = group.sinks[0].value if group.sinks else None
    return value is not None and value.op is empty and any(
        sink.value in choices and choices[sink.value][0] == "in place"
        and storage(sink.value.args[0]) is value
        for reader in readers[value] for sink in reader.sinks
    )


def _steps(group: Group, choices: UpdateChoice, target: Target) -> list[Step]:
    if group.library is not None:
        return [Call(group, group.library)]
    if len(group.sinks) == 1 and group.sinks[0].value.op is empty:
        return [Allocate(group.sinks[0].value)]
    kernel = place(tile(group, target), target)
    steps: list[Step] = [kernel]
    for sink in group.sinks:
        choice, _ = choices.get(sink.value, ("", ""))
        if choice in ("border", "fill"):
            kernel.border = _border(sink)
            kernel.bytes_moved += _border_bytes(kernel, kernel.border, sink.value)
        elif choice == "copy":
            steps.insert(0, Copy(storage(sink.value.args[0]), sink.value))
    return steps


def _border_bytes(kernel: Kernel, border: Border, value: Value) -> int:
    """Bytes of the border that are written, and read beyond what the kernel reads anyway."""
    beside = value.nbytes - value.dtype.itemsize * prod(border.extents)
    if border.fill is not None:
        return beside
    read = bytes_read(kernel).get(border.old, 0)
    return beside + min(beside, border.old.nbytes - read)


def _border(sink: Sink) -> Border:
    value = sink.value
    axes, _, region = value.attrs
    extents = tuple(region[axis] if axis >= 0 else 1 for axis in axes)
    starts = tuple(add_terms((), 1, start) for start in value.args[2:])
    old = storage(value.args[0])
    fill = Cell(-1, "param", old.args[0], old.dtype) if sink.fills else None
    return Border(old, value.shape, starts, extents, fill)


# ---- memory --------------------------------------------------------------------------------


def _memory(values: list[Value], choices: UpdateChoice) -> dict[Value, Value]:
    memory: dict[Value, Value] = {}
    for value in values:
        if isinstance(value.op, Reshape):
            memory[value] = memory[storage(value)]
        elif value in choices and choices[value][0] == "in place":
            memory[value] = memory[storage(value.args[0])]
        else:
            memory[value] = value
    return memory


def _shared(outputs: list[Value], memory: dict[Value, Value]) -> dict[Value, tuple[int, ...]]:
    """The outputs that share memory with one another or with a leaf that stays as it is."""
    inside: defaultdict[Value, list[int]] = defaultdict(list)
    for number, value in enumerate(outputs):
        inside[memory[storage(value)]].append(number)
    return {
        base: tuple(numbers) for base, numbers in inside.items()
        if len(numbers) > 1 or isinstance(storage(outputs[numbers[0]]).op, Leaf)
    }


def touched(step: Step) -> list[Value]:
    """Values whose memory a step reads or writes."""
    if isinstance(step, Kernel):
        return [value for part in step.parts for value in (
            *_read_by(part.group), *(store.access.value for store in part.stores))]
    if isinstance(step, Call):
        return [*_read_by(step.group), step.value]
    if isinstance(step, Copy):
        return [step.source, step.target]
    return [step.value]


def written(step: Step) -> list[Value]:
    """Values that are in memory once a step has run."""
    if isinstance(step, Kernel):
        return [store.access.value for part in step.parts for store in part.stores]
    return [step.value] if isinstance(step, Call) else []


def _last_use(steps: list[Step], memory: dict[Value, Value]) -> dict[Value, int]:
    last: dict[Value, int] = {}
    for number, step in enumerate(steps):
        for value in touched(step):
            last[memory[value]] = number
    return last


