"""Columns: the lanes are kept, and steps reduced."""

from __future__ import annotations

from math import prod

from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.schedule.blocks import power_of_two, split
from tiledarray.fusion.schedule.bundles import find_bundles
from tiledarray.fusion.schedule.instructions import pair_width, pairs
from tiledarray.fusion.schedule.stage import stage
from tiledarray.fusion.target import Target
from tiledarray.ops import reduction
from tiledarray.ops.op import Reduction


def tile_on_host(kernel: Kernel, target: Target) -> None:
    """Many columns side by side; their steps are shared out where that leaves threads idle."""
    schedule = kernel.schedule
    lane = schedule.lane.size
    schedule.width = next(n for n in _column_widths(kernel, target) if lane >= n or n == 16)
    schedule.lane_tile = schedule.width
    if schedule.scanned:
        return
    blocks = max(1, schedule.rows * -(-lane // schedule.lane_tile))
    split(kernel, target.limits.split // max(1, min(lane, schedule.width)), 512 // max(8, blocks))


def _column_widths(kernel: Kernel, target: Target) -> tuple[int, ...]:
    """Lanes that go side by side, most first: long runs of memory, accumulators in the cache."""
    if pairs(kernel):
        return (target.limits.pair_lanes, 16)  # what is used at every step stays close
    reduced = [(cell.value.op, cell.dtype) for cell in kernel.cells
               if cell.kind in ("reduce", "scan")]
    large = any(dtype.kind == "c" or (isinstance(op, Reduction) and op.lanes == "heavy")
                for op, dtype in reduced)
    several = len(reduced) > 2
    return (256, 64, 16) if large or several else (1024, 256, 64, 16)


def tile_on_device(kernel: Kernel, target: Target) -> None:
    """The columns of a few lines of memory a block; steps are shared out to fill the device."""
    if pairs(kernel):
        _tile_pairs(kernel, target)
        return
    schedule = kernel.schedule
    wanted = target.limits.column_blocks
    tx = power_of_two(-(-schedule.lane.size // schedule.width), 1, target.limits.column_threads)
    schedule.threads = (tx, 1 if schedule.scanned else _block(kernel) // tx)
    schedule.lane_tile = tx * schedule.width
    stage(kernel, target)
    if schedule.scanned:
        return
    find_bundles(kernel)
    blocks = max(1, schedule.rows * -(-schedule.lane.size // schedule.lane_tile))
    if kernel.staged:
        wanted = target.limits.staged_blocks
    if blocks < min(8, wanted // 2) * target.workers:
        split(kernel, 8 * 256 // tx, wanted * target.workers // blocks)


def _block(kernel: Kernel) -> int:
    """Threads of a block: few where accumulators leave registers for one block of many."""
    return 128 if any(cell.kind == "reduce" and cell.value.op is reduction.selected_deviation
                      for cell in kernel.cells) else 256


def _tile_pairs(kernel: Kernel, target: Target) -> None:
    """As many lanes a thread as registers hold; steps are shared out where lanes are few."""
    schedule, limits = kernel.schedule, target.limits
    steps = prod(axis.size for axis in schedule.axes if axis.role == "step")
    lanes = schedule.rows * schedule.lane.size
    enough = limits.pair_threads * target.workers
    width = pair_width(kernel)
    while width > 1 and lanes * steps < enough * width * limits.pair_steps:
        width //= 2
    schedule.width = width
    most = limits.pair_block if lanes >= enough * width else limits.pair_shared
    tx = power_of_two(-(-schedule.lane.size // width), 8, most)
    schedule.threads = (tx, 1 if most == limits.pair_block else 256 // tx)
    schedule.lane_tile = tx * width
    find_bundles(kernel)
    blocks = max(1, schedule.rows * -(-schedule.lane.size // schedule.lane_tile))
    if lanes < enough * width:
        split(kernel, 8 * 256 // tx, limits.pair_blocks * target.workers // blocks)
