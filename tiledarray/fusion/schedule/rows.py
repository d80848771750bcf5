"""Rows: the lanes are reduced, once or in several passes."""

from __future__ import annotations

from math import prod

from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.schedule.blocks import power_of_two, split, split_axis
from tiledarray.fusion.schedule.bundles import find_bundles
from tiledarray.fusion.schedule.instructions import ACROSS_WORDS, WARP, words_of_lanes
from tiledarray.fusion.schedule.place import across
from tiledarray.fusion.schedule.stage import stage
from tiledarray.fusion.target import Target
from tiledarray.ops import reduction

# Accumulators, and values read for each row, that a thread has room for; a GPU wants many threads.
OWN_OF_ROWS = {"cpu": 32, "cuda": 16}

CHUNKS_UNDER_WAY = 4  # of a row, loaded by a thread side by side; see docs/decisions.md

SHORTEST = 4  # threads of a row, so that neighbours read whole sectors
SHORTEST_TURNS = 4  # rows one after the other where that is one load a thread: blocks take time

# Where what rows are reduced to is reduced over all of them:
ACROSS_THREADS = 256  # of a block
ACROSS_RESIDENT = (2, 4)  # blocks of a multiprocessor, at least and at most
OTHER_WORDS = 48  # registers of a thread beside what it has of a row and of what all rows become
REGISTERS = 1 << 16  # of a multiprocessor
RESIDENT_THREADS = 1024  # of a multiprocessor, with so many registers
ACROSS_ELEMENTS = 16  # of a row for a thread


def tile_on_host(kernel: Kernel, target: Target) -> None:
    """Rows one after the other; long ones are shared out between threads."""
    schedule = kernel.schedule
    schedule.width = 64 if schedule.lane.size >= 256 else 16
    work = max(1, prod(axis.size for axis in schedule.axes if axis.role != "row"))
    if _shared_between_rows(kernel):
        schedule.unroll = _rows_together(kernel, 4, OWN_OF_ROWS[target.kind])
    schedule.row_tile = max(schedule.unroll, target.limits.tile // work)
    split(kernel, target.limits.split, 512 // max(8, -(-schedule.rows // schedule.row_tile)))


def tile_on_device(kernel: Kernel, target: Target) -> None:
    """As many threads as a row has work for; what is held fits their registers."""
    schedule = kernel.schedule
    lane, width = schedule.lane.size, schedule.width
    if across(kernel.cells):
        _tile_across(kernel, target)
        return
    if _shared_between_rows(kernel):
        schedule.unroll = _rows_together(kernel, 8, OWN_OF_ROWS[target.kind])
    held = kernel.group.phases > 1
    per_thread = _held_elements(kernel, target) // width if held else CHUNKS_UNDER_WAY
    least = power_of_two(-(-lane // width), 1, SHORTEST)
    tx = power_of_two(-(-lane // (width * max(1, per_thread))), least, 1024 if held else 256)
    if not held and any(axis.role == "step" for axis in schedule.axes):
        # A row has many lanes, one after the other: the device is to be filled with threads first.
        while 2 * tx * width <= lane and tx * schedule.rows < RESIDENT_THREADS * target.workers:
            tx *= 2
    schedule.threads = (tx, 1 if tx > 32 else max(1, 128 // tx))
    schedule.chunks = max(1, -(-lane // (tx * width)))
    turns = SHORTEST_TURNS if schedule.chunks == 1 and tx == SHORTEST else 1
    schedule.row_tile = schedule.threads[1] * schedule.unroll * turns
    blocks = max(1, -(-schedule.rows // schedule.row_tile))
    if blocks < 4 * target.workers:
        split(kernel, 4096, target.limits.split_blocks * target.workers // blocks)
        if schedule.splits > 1:
            schedule.threads = (target.limits.split_threads, 1)
            schedule.row_tile = schedule.unroll
            schedule.chunks = 1
            if split_axis(schedule) is schedule.lane:
                # Whole rounds of a block, and no block without any.
                unit = target.limits.split_threads * width * 4
                share = -(-lane // (schedule.splits * unit)) * unit
                schedule.splits = -(-lane // share)
    stage(kernel, target)
    find_bundles(kernel)


def _tile_across(kernel: Kernel, target: Target) -> None:
    """As many blocks as the device has at a time, for each leaves a part of what rows become.

    A thread has as much of a row as fits its registers, with what each element of that is reduced
    to: so few threads compute again what a row has one of.
    """
    schedule = kernel.schedule
    lane, width = schedule.lane.size, schedule.width
    own = words_of_lanes(
        [cell for cell in across(kernel.cells) if cell.axes], kernel.group.loads)
    elements = max(1, min(ACROSS_ELEMENTS, ACROSS_WORDS // max(1, own)) // width) * width
    least = power_of_two(-(-lane // width), 1, SHORTEST)
    tx = power_of_two(-(-lane // elements), least, WARP)
    schedule.threads = (tx, ACROSS_THREADS // tx)
    schedule.chunks = -(-lane // (tx * width))
    schedule.across = True
    threads = ACROSS_THREADS * (OTHER_WORDS + own * schedule.chunks * width)
    least, most = ACROSS_RESIDENT
    schedule.resident = max(least, min(most, REGISTERS // threads))
    _place_totals(kernel, target)
    most = target.workers * schedule.resident
    rounds = -(-schedule.rows // (most * schedule.threads[1]))
    schedule.row_tile = rounds * schedule.threads[1]
    find_bundles(kernel)


def _place_totals(kernel: Kernel, target: Target) -> None:
    """Give the totals of sums over all rows shared memory, which leaves registers for rows."""
    schedule = kernel.schedule
    elements = ACROSS_THREADS * schedule.chunks * schedule.width
    for cell in across(kernel.cells):
        if not cell.axes or cell.value.op is not reduction.sum:
            continue
        added = cell.value.attrs[1] or cell.dtype
        size = elements * max(8, 2 * added.itemsize * (added.kind in "fc"))
        if schedule.shared_bytes + size <= target.shared_bytes - target.limits.own_bytes:
            kernel.totals[cell] = schedule.shared_bytes
            schedule.shared_bytes += size


def _shared_between_rows(kernel: Kernel) -> bool:
    """Whether every large read is shared by all rows: then rows are computed together."""
    schedule = kernel.schedule
    rows = [k for k, axis in enumerate(schedule.axes) if axis.role == "row"]
    lanes = [k for k, axis in enumerate(schedule.axes) if axis.role != "row"]
    reads = [access for cell, access in kernel.loads.items() if cell.kind == "load"
             and any(access.strides[k] for k in lanes)]
    return (
        schedule.form == "row" and len(rows) == 1 and schedule.rows >= 64
        and kernel.group.phases <= 1 and bool(reads)
        and not any(access.strides[k] for access in reads for k in rows)
        and not any(store.sink.level == "full" for store in kernel.stores)
    )


def _rows_together(kernel: Kernel, most: int, room: int) -> int:
    """Rows computed together: as many as have room for what each has of its own."""
    own = sum(cell.kind == "reduce" or (
        cell.kind == "load" and not cell.axes & kernel.group.reduced) for cell in kernel.cells)
    while most > 1 and most * own > room:
        most //= 2
    return most


def _held_elements(kernel: Kernel, target: Target) -> int:
    """Elements of a row for one thread, so that one value of each can be held in registers."""
    widest = max((cell.dtype.itemsize for cell in kernel.cells
                  if cell.axes & kernel.group.reduced), default=1)
    return min(target.limits.held_elements, target.limits.held_element_bytes // widest)
