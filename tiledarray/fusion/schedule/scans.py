"""Scans along the lanes: rows in order on the host, tile by tile by a block of threads on a GPU.

A kernel that scans works in *stages*: what a scan is made of, for a whole tile, then the scan, then
what is made of that.  What a later stage needs again of an earlier one is *kept*.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.schedule.blocks import power_of_two, split, split_axis
from tiledarray.fusion.schedule.place import inner_axes, passes_needed, reductions
from tiledarray.fusion.target import Target

WARP = 32  # threads
SHORT = 16  # elements of a row that are computed with at once, however many there are
MOST_THREADS = 128  # of a block that scans: several on a multiprocessor wait for memory in turn
SPLIT_THREADS = 256  # of blocks that look back at one another, the fewer the better


@dataclass(frozen=True, slots=True)
class Stages:
    """How one pass over the lanes goes.

    Attributes
    ----------
    depth : dict
        For each cell along the lanes, how many scans one after the other it needs: its stage.  A
        scan is done when its input's stage is.
    kept : list of Cell
        Scans, and what other stages need beside that.
    """

    depth: dict[Cell, int]
    kept: list[Cell]

    @property
    def count(self) -> int:
        """Number of stages."""
        return 1 + max(self.depth.values(), default=0)


def stages_of(kernel: Kernel, number: int, *, keeps_loads: bool) -> Stages:
    """Stages of a pass; where loads are not kept, a later stage loads again."""
    inner, needed = inner_axes(kernel), passes_needed(kernel)
    depth: dict[Cell, int] = {}
    kept: dict[Cell, None] = {}
    used: defaultdict[Cell, set[int]] = defaultdict(set)  # the stages that a load is used in
    for cell in kernel.cells:
        if number not in needed[cell] or not cell.axes & inner:
            continue
        if _is_held(cell, number, needed):
            depth[cell] = 0
            continue
        own = max((depth.get(arg, 0) for arg in cell.args), default=0)
        depth[cell] = own + (cell.kind == "scan")
        if cell.kind == "scan":
            kept[cell] = None
        for arg in cell.args:
            if arg.kind == "load":
                used[arg].add(own)
            elif arg.kind in ("apply", "gather") and depth.get(arg, own) < own:
                kept[arg] = None
    for cell in _ends(kernel, number):
        used[cell].add(0)
    loads = [cell for cell in used if cell.kind == "load" and cell in depth
             and not _is_held(cell, number, needed)]
    depth.update((cell, min(used[cell])) for cell in loads)
    kept.update((cell, None) for cell in loads if keeps_loads and len(used[cell]) > 1)
    return Stages(depth, list(kept))


def _is_held(cell: Cell, number: int, needed: dict[Cell, set[int]]) -> bool:
    """Whether an earlier pass has put the cell where this one finds it."""
    return cell.held and min(needed[cell]) != number


def _ends(kernel: Kernel, number: int) -> list[Cell]:
    """What a pass stores or reduces."""
    return [*(cell.args[0] for cell in reductions(kernel.cells, number)),
            *(store.sink.cell for store in kernel.stores
              if store.sink.level == "full" and store.sink.store_pass == number)]


def tile_on_host(kernel: Kernel, target: Target) -> None:
    """Some rows side by side, each in order: a scan waits for its last element, not for memory."""
    schedule, limits = kernel.schedule, target.limits
    lane = schedule.lane.size
    reduces = any(cell.kind == "reduce" for cell in kernel.cells)
    most = 64 if reduces else limits.scanned_chunk
    while most > 16 and most * limits.scanned_rows * _kept_bytes(kernel) > limits.scanned_bytes:
        most //= 2
    schedule.width = lane if lane <= SHORT else power_of_two(lane, SHORT, most)
    rows = [axis for axis in schedule.axes if axis.role == "row"]
    alone = any(axis.role == "step" for axis in schedule.axes) or kernel.group.phases > 1
    if len(rows) == 1 and not alone and schedule.rows >= limits.scanned_rows:
        schedule.unroll = limits.scanned_rows
    schedule.row_tile = max(schedule.unroll, limits.tile // max(1, lane))
    if split_axis(schedule) is not schedule.lane:
        split(kernel, limits.split, 512 // max(8, -(-schedule.rows // schedule.row_tile)))


def tile_on_device(kernel: Kernel, target: Target) -> None:
    """A block scans a tile of a row at once; of few rows each block has one tile."""
    schedule = kernel.schedule
    lane, width = schedule.lane.size, schedule.width
    whole = power_of_two(-(-lane // width), 1, WARP)
    alone = all(axis.role != "step" for axis in schedule.axes) and kernel.group.phases == 1
    few = alone and schedule.rows < 2 * target.workers
    at_once = target.limits.shared_lanes
    if not few or schedule.rows * lane < target.workers * at_once:
        at_once = target.limits.scanned_lanes
    most = _elements(kernel, target, at_once) // width
    tx = power_of_two(-(-lane // (width * most)), whole, SPLIT_THREADS if few else MOST_THREADS)
    ty = max(1, 128 // tx) if tx <= WARP else 1
    schedule.threads = (tx, ty)
    schedule.chunks = max(1, min(most, -(-lane // (tx * width))))
    schedule.row_tile = ty
    tile = tx * width * schedule.chunks
    if few and lane > tile:
        schedule.splits = -(-lane // tile)


def _kept_bytes(kernel: Kernel, *, keeps_loads: bool = False) -> int:
    """Bytes that are kept for an element of a row, at most in any pass."""
    return max(sum(cell.dtype.itemsize for cell in stages_of(
        kernel, number, keeps_loads=keeps_loads).kept)
        for number in range(1, kernel.group.phases + 1))


def _elements(kernel: Kernel, target: Target, lanes: int) -> int:
    """Elements for one thread, of so many of a row: at least a vector, a power of two."""
    width = kernel.schedule.width
    count = min(lanes // SPLIT_THREADS,
                target.limits.scanned_bytes // max(1, _kept_bytes(kernel, keeps_loads=True)))
    return max(width, 1 << (max(1, count).bit_length() - 1))
