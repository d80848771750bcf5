"""Maps: nothing is reduced, an element out for every point."""

from __future__ import annotations

from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.schedule.blocks import count_blocks, power_of_two
from tiledarray.fusion.schedule.bundles import find_bundles
from tiledarray.fusion.schedule.instructions import words
from tiledarray.fusion.schedule.turn import turn
from tiledarray.fusion.schedule.windows import find_windows, has_halo, map_width, phase
from tiledarray.fusion.target import Target
from tiledarray.ops.op import Update


def tile_on_host(kernel: Kernel, target: Target) -> None:
    """Long runs of lanes; large results go past the cache."""
    schedule = kernel.schedule
    lane, rows = schedule.lane.size, schedule.rows
    schedule.width = target.limits.lanes
    schedule.lane_tile = target.limits.lanes if rows == 1 else min(target.limits.lanes, 1 << 12)
    side = turn(kernel, target)
    if side:
        schedule.width = schedule.lane_tile = schedule.row_tile = side
        return
    if lane >= target.limits.streamed_lanes and _streamed(kernel, target):
        schedule.streamed, schedule.width = True, target.limits.streamed_chunk
    schedule.row_tile = max(1, target.limits.tile // max(1, min(lane, schedule.lane_tile)))


def _streamed(kernel: Kernel, target: Target) -> bool:
    """Whether results are stored past the cache: large ones that are not updates in place."""
    stored = [store.access.value for store in kernel.stores]
    return (sum(value.nbytes for value in stored) >= target.limits.streamed_bytes
            and not any(isinstance(value.op, Update) for value in stored))


def tile_on_device(kernel: Kernel, target: Target) -> None:
    """Vectors and windows; blocks enough for every multiprocessor."""
    schedule = kernel.schedule
    side = turn(kernel, target)
    width = schedule.width = 1 if side else map_width(kernel)
    find_windows(kernel, width)
    find_bundles(kernel)
    if side:
        schedule.threads = (32, side // 4)
        schedule.lane_tile = schedule.row_tile = side
        schedule.chunks = side // 32
        return
    schedule.phase = phase(kernel, width)
    schedule.ragged = schedule.phase is not None or schedule.lane.size % width > 0
    halo = schedule.rows > 1 and has_halo(kernel)
    most = target.limits.halo_lanes // width if halo else 256
    tx = power_of_two(-(-schedule.lane.size // width), 4, most)
    ty = 256 // tx
    schedule.threads = (tx, ty)
    if halo:
        schedule.lane_tile, schedule.row_tile = tx * width, ty * schedule.unroll
        rows = [k for k, axis in enumerate(schedule.axes) if axis.role == "row"]
        schedule.plane = schedule.unroll > 1 and schedule.unrolled != rows[-1]
        if schedule.plane:  # where a block begins is known once for several rows of a thread
            schedule.row_tile = target.limits.plane_rows * ty
            lines = sum(len(window.lines(schedule.unroll)) * words(next(iter(window.shifts)).dtype)
                        for window in kernel.windows)
            few = lines * width <= target.limits.plane_words
            schedule.resident = target.limits.plane_blocks if few else 0
            _occupy(kernel, 8 * target.workers)
    else:
        schedule.chunks = max(1, min(4 // width, schedule.lane.size // (tx * width)))
        schedule.lane_tile = tx * width * schedule.chunks
        schedule.row_tile = max(ty, target.limits.map_tile // schedule.lane_tile)
        if width == 1:
            schedule.resident = 4
            _occupy(kernel, 8 * target.workers)


def _occupy(kernel: Kernel, wanted: int) -> None:
    """Make blocks smaller until there are enough for every multiprocessor."""
    schedule = kernel.schedule
    tx, ty = schedule.threads
    count_blocks(kernel)
    while schedule.blocks < wanted and schedule.row_tile > ty:
        schedule.row_tile = max(ty, schedule.row_tile // 2)
        count_blocks(kernel)
    while schedule.blocks < wanted and schedule.chunks > 1:
        schedule.chunks -= 1
        schedule.lane_tile = tx * schedule.width * schedule.chunks
        count_blocks(kernel)
