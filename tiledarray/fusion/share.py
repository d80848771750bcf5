"""Kernels that nothing orders share a launch.

Parts of one array are one launch, however large: their blocks are shared out together.  Other
kernels are worth it on a GPU, where one after the other each would leave it idle for longer than
it works.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tiledarray.fusion.ir import Value, storage
from tiledarray.fusion.plan import Kernel, Step
from tiledarray.fusion.regions import Region, Regions, read_region, region_of
from tiledarray.fusion.target import Target


class Touch(NamedTuple):
    """Memory that a kernel reads or writes: all of it, or a region."""

    memory: Value
    region: Region | None
    written: bool


Touches = dict[Value, list[Touch]]  # by memory


def share(steps: list[Step], memory: dict[Value, Value], regions: Regions, target: Target,
          refusals: list[str]) -> list[Step]:
    """Return the steps with kernels put beside earlier ones where nothing between forbids it."""
    result: list[Step] = []
    touches: dict[Kernel, Touches] = {}
    written: set[Value] = set()
    for step in steps:
        home = None
        if isinstance(step, Kernel):
            touches[step] = _touches(step, memory)
            own = _written(touches[step])
            if own & written or (target.kind == "cuda" and _small(step, target)):
                home = _home(step, result, touches, regions, target, refusals)
            written |= own
        if home is None or not isinstance(step, Kernel):
            result.append(step)
            continue
        home.beside.append(step)
        home.bytes_moved += step.bytes_moved
        home.flops += step.flops
        for base, found in touches[step].items():
            touches[home].setdefault(base, []).extend(found)
    return result


def _home(kernel: Kernel, steps: list[Step], touches: dict[Kernel, Touches],
          regions: Regions, target: Target, refusals: list[str]) -> Kernel | None:
    """The latest launch that the kernel can be part of, and that nothing after it keeps it from."""
    own = touches[kernel]
    writes = _written(own)
    for step in reversed(steps):
        if not isinstance(step, Kernel) or any(
            _in_order(one, other, regions) for base in own.keys() & touches[step].keys()
            for one in own[base] for other in touches[step][base]
        ):
            return None
        together = writes & _written(touches[step])
        if together or (target.kind == "cuda" and _small(kernel, target) and _small(step, target)):
            reason = _refusal(kernel, step, target.limits.parts)
            if reason is None:
                return step
            refusals.append(f"kernel {kernel.group.number} not in the launch of kernel "
                            f"{step.group.number}: {reason}")
        if together:
            return None  # a failure between them must find the parts written in order
    return None


def _written(touches: Touches) -> set[Value]:
    return {base for base, found in touches.items() if any(touch.written for touch in found)}


def _small(kernel: Kernel, target: Target) -> bool:
    return max(kernel.bytes_moved / target.bytes_per_second,
               kernel.flops / target.flops_per_second) < target.launch_seconds


def _refusal(kernel: Kernel, launch: Kernel, most: int) -> str | None:
    """Why a kernel that could share a launch does not."""
    one, other = prod(kernel.schedule.threads), prod(launch.schedule.threads)
    if one != other:
        return f"its blocks have {one} threads, those there {other}"
    if len(launch.parts) >= most:
        return f"a launch has at most {most} parts"
    if any(part.schedule.splits > 1 or part.schedule.across
           for part in (kernel, *launch.parts)):
        return "blocks that share a reduction count arrivals, one kernel at a time"
    if any(part.schedule.stages for part in (kernel, *launch.parts)):
        return "what copies into shared memory ahead has it to itself"
    return None


def _in_order(one: Touch, other: Touch, regions: Regions) -> bool:
    """Whether two accesses of the same memory must stay one after the other."""
    if not (one.written or other.written):
        return False
    if one.region is None or other.region is None:
        return True
    return not regions.apart(one.region, other.region)


def _touches(kernel: Kernel, memory: dict[Value, Value]) -> Touches:
    domain = kernel.group.shape
    found: list[Touch] = []
    for cell in kernel.group.loads:
        if cell.access is not None:
            base = storage(cell.access.value)
            found.append(Touch(memory.get(base, base), read_region(cell, domain), False))
    for store in kernel.stores:
        value = store.sink.value
        region = region_of(value.shape, store.sink.index, domain)
        found.append(Touch(memory[value], None if kernel.border else region, True))
    if kernel.border is not None and kernel.border.fill is None:
        found.append(Touch(memory[kernel.border.old], None, False))
    touches: Touches = {}
    for touch in found:
        touches.setdefault(touch.memory, []).append(touch)
    return touches
