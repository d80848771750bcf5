"""Each group as a kernel or a call, in an order that respects them all."""

from __future__ import annotations

import heapq
from collections import defaultdict
from math import prod

from tiledarray.fusion.ir import Cell, Group, Sink, Value, add_terms, storage
from tiledarray.fusion.plan import Allocate, Border, Call, Copy, Kernel, Step
from tiledarray.fusion.schedule.place import place
from tiledarray.fusion.schedule.tile import tile
from tiledarray.fusion.schedule.work import bytes_read
from tiledarray.fusion.target import Target
from tiledarray.fusion.updates import UpdateChoice, is_only_written, read_by, readers_of
from tiledarray.ops.movement import empty


def in_order(groups: list[Group], choices: UpdateChoice, target: Target) -> list[Step]:
    """The steps that the groups become, each after what it depends on."""
    readers = readers_of(groups)
    steps: list[Step] = []
    for group in _sorted(groups):
        if not is_only_written(group, readers, choices):
            steps.extend(_steps(group, choices, target))
    return steps


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


def touched(step: Step) -> list[Value]:
    """Values whose memory a step reads or writes."""
    if isinstance(step, Kernel):
        return [value for part in step.parts for value in (
            *read_by(part.group), *(store.access.value for store in part.stores))]
    if isinstance(step, Call):
        return [*read_by(step.group), step.value]
    if isinstance(step, Copy):
        return [step.source, step.target]
    return [step.value]


def written(step: Step) -> list[Value]:
    """Values that are in memory once a step has run."""
    if isinstance(step, Kernel):
        return [store.access.value for part in step.parts for store in part.stores]
    return [step.value] if isinstance(step, Call) else []
