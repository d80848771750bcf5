"""Blocks: how many there are, reductions shared out between them, vectors of their threads."""

from __future__ import annotations

from math import prod

from tiledarray.fusion.ir import ONE, Cell, evaluated_terms
from tiledarray.fusion.plan import Axis, Kernel, Schedule
from tiledarray.fusion.schedule.instructions import words
from tiledarray.fusion.schedule.place import passes_needed
from tiledarray.fusion.schedule.windows import VECTOR_BYTES


def lane_blocks(schedule: Schedule) -> int:
    """Tiles along the lane axis."""
    if schedule.lane.reduced:
        return 1
    extra = 0
    if schedule.phase:
        modulus, terms = schedule.phase
        known = all(number == ONE for number, _ in terms)
        extra = evaluated_terms(terms, ()) % modulus if known else modulus - 1
    return -(-(schedule.lane.size + extra) // schedule.lane_tile)


def row_blocks(kernel: Kernel) -> int:
    """Tiles along the rows."""
    schedule = kernel.schedule
    if schedule.plane:
        last = [axis.size for axis in schedule.axes if axis.role == "row"][-1]
        return schedule.row_groups // last * -(-last // schedule.row_tile)
    return -(-schedule.row_groups // (schedule.row_tile // schedule.unroll))


def count_blocks(kernel: Kernel) -> None:
    """Note how many blocks the tiles make."""
    schedule = kernel.schedule
    lanes = lane_blocks(schedule)
    rows = row_blocks(kernel)
    schedule.blocks = lanes * rows * schedule.splits
    if kernel.mirrors:  # pairs of tiles, and each with itself
        schedule.blocks = lanes * (lanes + 1) // 2


def split(kernel: Kernel, piece: int, most: int) -> None:
    """Share a long reduction between at most ``most`` blocks, each with at least ``piece``."""
    schedule = kernel.schedule
    if kernel.group.phases != 1:
        return
    axis = split_axis(schedule)
    rest = prod(a.size for a in schedule.axes if a.reduced and a is not axis)
    schedule.splits = max(1, min(axis.size, -(-axis.size * rest // piece), most))


def split_axis(schedule: Schedule) -> Axis:
    """The axis that is shared out when a reduction is split."""
    return next((axis for axis in schedule.axes if axis.role == "step"), schedule.lane)


def power_of_two(n: int, least: int, most: int) -> int:
    """The power of two at or above ``n``, within bounds."""
    return max(least, min(most, 1 << max(0, n - 1).bit_length()))


ONCE_WORDS = 8  # registers of a thread for what its columns have once


def once_a_column(kernel: Kernel) -> list[Cell]:
    """The loads of a device's column kernel that no step changes, if there is room for them.

    What is only needed when the steps are done takes none.
    """
    schedule = kernel.schedule
    steps = [k for k, axis in enumerate(schedule.axes) if axis.role == "step"]
    if schedule.form != "column":
        return []
    unit = {cell: access for cell, access in kernel.loads.items()
            if cell.kind == "load" and access.strides[-1] == 1}
    found = [cell for cell, access in unit.items()
             if cell.phase == 0 and not any(access.strides[k] for k in steps)]
    streamed = [access.value.dtype.itemsize for cell, access in unit.items() if cell not in found]
    lanes = VECTOR_BYTES // max(streamed, default=VECTOR_BYTES)
    needed = passes_needed(kernel)
    room = sum(words(cell.dtype) for cell in found if needed[cell]) * lanes
    return found if room <= ONCE_WORDS else []


def vector_width(kernel: Kernel) -> int:
    """Lanes a thread handles: 16 bytes of the widest element where all accesses align.

    What a column has once is loaded and stored lane by lane, so its elements do not count.
    """
    schedule = kernel.schedule
    accesses = [access for cell, access in kernel.loads.items() if cell.kind == "load"]
    accesses += [store.access for store in kernel.stores if store.sink.level == "full"
                 or schedule.form == "column"]
    unit = [access for access in accesses if access.strides[-1] == 1]
    if not unit:
        return 1
    once = [] if schedule.form != "column" else [
        *(kernel.loads[cell] for cell in once_a_column(kernel)),
        *(store.access for store in kernel.stores if store.sink.level == "row")]
    streamed = [access for access in unit if access not in once]
    width = min(VECTOR_BYTES // access.value.dtype.itemsize for access in streamed or unit)
    others = [axis.size for axis in schedule.axes[:-1]]
    for access in unit:
        parts = [stride for stride, n in zip(access.strides, others, strict=False) if n > 1]
        parts += [coefficient for _, coefficient in access.offset]
        parts.append(schedule.lane.size)
        while width > 1 and any(part % width for part in parts):
            width //= 2
    return max(1, width)
