"""Fifth pass: how each group's domain is cut into blocks, rows and lanes."""

from __future__ import annotations

from math import prod
from typing import Any

from tiledarray.fusion.ir import Access, Affine, Cell, Group, Index, Terms, Value
from tiledarray.fusion.plan import Axis, Kernel, Role, Schedule, Store, Strided
from tiledarray.fusion.schedule.instructions import PAIR_BLOCKS, PAIR_THREADS, pairs, try_quick
from tiledarray.fusion.schedule.stage import stage
from tiledarray.fusion.schedule.turn import axis_across, turn
from tiledarray.fusion.schedule.windows import (
    VECTOR_BYTES,
    find_windows,
    has_halo,
    map_width,
    phase,
)
from tiledarray.fusion.target import Target
from tiledarray.ops.op import Reduction, Update

HOST_TILE = 1 << 14
HOST_LANES = 1 << 13
STREAMED_CHUNK = 1 << 8  # lanes collected before they are stored
STREAMED_BYTES = 1 << 24  # of results, from which on they are not expected to stay in the cache
STREAMED_LANES = 1 << 9
DEVICE_TILE = 1 << 12
HELD_ELEMENTS = 32  # of a row, by one thread
HELD_ELEMENT_BYTES = 128
SPLIT = 1 << 16
PAIR_LANES = 128
SHORT_LANES = 16
SHORT_ROWS = 64
LONG_LANES = 256
SPLIT_THREADS = 256  # of a block that has a part of a row
SPLIT_BLOCKS = 8  # of those for each multiprocessor
COLUMN_THREADS = 32  # along the lanes, where a block has the columns of a few lines
COLUMN_BLOCKS = 16  # for each multiprocessor
STAGED_BLOCKS = 2  # the same where loads are staged: as many as fit of the largest
JOINED_LANES = 32
HALO_LANES = 128


def tile(group: Group, target: Target) -> Kernel:
    """Return the group as a kernel: axes merged and ordered, accesses strided, tile chosen."""
    domain = [Strided(cell.access.value, *_strides(cell.access, len(group.shape)))
              for cell in group.cells if cell.access is not None]
    stored = [sink for sink in group.sinks if sink.stored]
    writes = [Strided(sink.value, *_strides(Access(sink.value, sink.index), len(group.shape)))
              for sink in stored]
    positions = _positions(group)
    axes = _nest(group, [*domain, *positions.values()], writes, target)
    accesses = iter([_on(access, axes) for access in domain])
    loads: dict[Cell, Strided] = {
        cell: next(accesses) for cell in group.cells if cell.access is not None
    }
    stores = [Store(sink, _on(write, axes)) for sink, write in zip(stored, writes, strict=True)]
    kernel = Kernel(group, Schedule(axes), loads, stores,
                    {cell: _on(position, axes) for cell, position in positions.items()})
    _count_work(kernel)
    if target.kind == "cuda":
        _tile_device(kernel, target)
        try_quick(kernel)
    else:
        _tile_host(kernel, target)
    return kernel


# ---- the loop nest -------------------------------------------------------------------------


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _strides(access: Access, rank: int) -> tuple[tuple[int, ...], Terms]:
    """Element strides along the domain's axes, and the offset, of an access."""
    strides = [0] * rank
    offset: Terms = ()
    for step, position in zip(dense_strides(access.value.shape), access.index, strict=True):
        if position.axis >= 0:
            strides[position.axis] += step * position.step
        merged = dict(offset)
        for number, coefficient in position.terms:
            merged[number] = merged.get(number, 0) + step * coefficient
        offset = tuple(sorted(merged.items()))
    return tuple(strides), offset


def _positions(group: Group) -> dict[Cell, Strided]:
    """For index reductions: the row-major place of an element among the reduced ones."""
    positions = {}
    for sink in group.sinks:
        if isinstance(sink.value.op, Reduction) and sink.value.op.positions:
            lengths = tuple(
                n if axis in group.reduced else 1 for axis, n in enumerate(group.shape)
            )
            index: Index = tuple(
                Affine(axis) if axis in group.reduced else Affine(-1, 0)
                for axis in range(len(group.shape))
            )
            shim = Value(-1, sink.value.op, None, (), lengths, sink.value.dtype)
            positions[sink.cell] = Strided(shim, *_strides(Access(shim, index), len(lengths)))
    return positions


def _nest(group: Group, reads: list[Strided], writes: list[Strided],
          target: Target) -> tuple[Axis, ...]:
    """Order and merge the domain's axes: rows, steps, lane."""
    accesses = [*reads, *writes]
    axes = [axis for axis in range(len(group.shape)) if group.shape[axis] != 1]
    if not axes:
        return (Axis(prod(group.shape), "lane", False, ()),)
    # What a map writes goes in whole lines: what it reads across them can be turned.
    written = [] if group.reduced else writes
    lane = max(axes, key=lambda axis: (
        _unit_weight(axis, written) if group.shape[axis] >= SHORT_LANES else 0,
        _unit_weight(axis, accesses), axis))
    run = _lane_run(group, axes, lane, accesses)
    other = _longer_lane(group, axes, run, accesses) if target.kind == "cpu" else lane
    if other != lane:
        lane, run = other, _lane_run(group, axes, other, accesses)
    joined: list[int] = []
    if target.kind == "cuda" and not group.reduced:
        joined = _joined_rows(group.shape, axes, run, reads, writes)
    short = (prod(group.shape[axis] for axis in run), joined[-1]) if joined else (0, -1)
    run = joined + run
    rows = [axis for axis in axes if axis not in run and axis not in group.reduced]
    steps = [axis for axis in axes if axis not in run and axis in group.reduced]
    across = None if group.reduced else axis_across(accesses, lane, rows)
    rows.sort(key=lambda axis: axis == across)
    return (
        *_merged(rows, group.shape, "row", accesses),
        *_merged(steps, group.shape, "step", accesses),
        Axis(prod(group.shape[a] for a in run), "lane", lane in group.reduced, tuple(run), *short),
    )


def _lane_run(group: Group, axes: list[int], lane: int, accesses: list[Strided]) -> list[int]:
    """The axes that merge into one lane axis with ``lane`` the innermost."""
    run = [lane]
    others = [axis for axis in axes
              if axis < lane and (axis in group.reduced) == (lane in group.reduced)]
    while others and _mergeable(others[-1], run[0], group.shape, run, accesses):
        run.insert(0, others.pop())
    return run


def _joined_rows(shape: tuple[int, ...], axes: list[int], run: list[int],
                 reads: list[Strided], writes: list[Strided]) -> list[int]:
    """The axes to join with short lanes, where only what is read does not follow in memory.

    What is written then goes in whole lines and vectors; a small operand, say one value for each
    of three channels, is read at its place in the row.
    """
    found: list[int] = []
    if prod(shape[axis] for axis in run) >= JOINED_LANES:
        return found
    for axis in reversed([axis for axis in axes if axis < run[0]]):
        follows = reads if found else []
        if not _mergeable(axis, (found or run)[0], shape, run, [*writes, *follows]):
            break
        found.insert(0, axis)
    return found


def _longer_lane(group: Group, axes: list[int], run: list[int], accesses: list[Strided]) -> int:
    """Another axis to walk with lanes, where the natural ones are too few to fill them.

    A short row is better reduced by one lane than by all of them together.
    """
    lane = run[-1]
    if lane in group.reduced:
        reduced = prod(group.shape[axis] for axis in axes if axis in group.reduced)
        enough = reduced > SHORT_ROWS
    else:
        enough = prod(group.shape[axis] for axis in run) >= SHORT_LANES
    if enough:
        return lane
    others = [axis for axis in axes if axis not in group.reduced and axis not in run
              and group.shape[axis] >= LONG_LANES]
    return max(others, key=lambda axis: (_unit_weight(axis, accesses), axis), default=lane)


def _unit_weight(axis: int, accesses: list[Strided]) -> int:
    """Bytes an element that are read or written at stride one along the axis."""
    return sum(a.value.dtype.itemsize for a in accesses if a.strides[axis] == 1)


def _mergeable(outer: int, inner: int, shape: tuple[int, ...], run: list[int],
               accesses: list[Strided]) -> bool:
    """Whether stepping once along ``outer`` is stepping past the end of ``inner``, everywhere."""
    return all(a.strides[outer] == a.strides[inner] * shape[inner] for a in accesses)


def _merged(axes: list[int], shape: tuple[int, ...], role: Role,
            accesses: list[Strided]) -> list[Axis]:
    runs: list[list[int]] = []
    for axis in axes:
        if runs and _mergeable(runs[-1][-1], axis, shape, runs[-1], accesses):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return [
        Axis(prod(shape[a] for a in run), role, role == "step", tuple(run))
        for run in runs
    ]


def _on(access: Strided, axes: tuple[Axis, ...]) -> Strided:
    """The access along the merged axes: each run steps with its innermost axis."""
    strides = tuple(access.strides[axis.domain[-1]] if axis.domain else 0 for axis in axes)
    lane = axes[-1]
    if lane.period:
        wrap = access.strides[lane.joined], strides[-1]
        if wrap[0] != wrap[1] * lane.period:
            return Strided(access.value, (*strides[:-1], 0), access.offset, wrap)
    return Strided(access.value, strides, access.offset)


# ---- tiles ---------------------------------------------------------------------------------


def _count_work(kernel: Kernel) -> None:
    """Least bytes the kernel can move (each array's touched part once), and its arithmetic."""
    points = prod(axis.size for axis in kernel.schedule.axes)
    written = sum(
        prod(axis.size for axis, stride in zip(kernel.schedule.axes, store.access.strides,
                                               strict=True) if stride)
        * store.access.value.dtype.itemsize for store in kernel.stores
    )
    kernel.bytes_moved = sum(bytes_read(kernel).values()) + written
    kernel.flops = sum(
        getattr(cell.value.op, "cost", 1)
        * prod(n for axis, n in enumerate(kernel.group.shape) if axis in cell.axes)
        for cell in kernel.cells if cell.kind in ("apply", "reduce")
    )
    kernel.flops += sum(points for cell in kernel.cells if cell.kind == "reduce")


def bytes_read(kernel: Kernel) -> dict[Value, int]:
    """Bytes of each array that a kernel reads; what is read at several places counts once."""
    places: dict[Value, set[tuple[Any, ...]]] = {}
    for cell, access in kernel.loads.items():
        if cell.kind == "load":
            sides = tuple(sorted(_sides(access, kernel.schedule.axes)))
            places.setdefault(access.value, set()).add((access.offset, sides))
    return {
        value: value.dtype.itemsize * min(
            value.size, sum(prod(size for _, size in sides) for _, sides in found)
        )
        for value, found in places.items()
    }


def _sides(access: Strided, axes: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """Stride and length of an access along every axis that it follows."""
    sides = list(zip(access.strides, (axis.size for axis in axes), strict=True))
    if access.wrap:
        lane = axes[-1]
        sides += [(access.wrap[0], lane.size // lane.period), (access.wrap[1], lane.period)]
    return [(stride, size) for stride, size in sides if stride]


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


def _tile_host(kernel: Kernel, target: Target) -> None:
    schedule = kernel.schedule
    lane, rows = schedule.lane.size, schedule.rows
    if schedule.form == "map":
        schedule.width = HOST_LANES
        schedule.lane_tile = HOST_LANES if rows == 1 else min(HOST_LANES, 1 << 12)
        side = turn(kernel, target)
        if side:
            schedule.width = schedule.lane_tile = schedule.row_tile = side
        else:
            if lane >= STREAMED_LANES and _streamed(kernel):
                schedule.streamed, schedule.width = True, STREAMED_CHUNK
            schedule.row_tile = max(1, HOST_TILE // max(1, min(lane, schedule.lane_tile)))
    elif schedule.form == "row":
        schedule.width = 64 if lane >= 256 else 16
        work = max(1, prod(axis.size for axis in schedule.axes if axis.role != "row"))
        if _shared_between_rows(kernel):
            schedule.unroll = 4
        schedule.row_tile = max(schedule.unroll, HOST_TILE // work)
        _split(kernel, SPLIT, 512 // max(8, -(-rows // schedule.row_tile)))
    else:
        schedule.width = next(n for n in _column_widths(kernel) if lane >= n or n == 16)
        schedule.lane_tile = schedule.width
        blocks = max(1, rows * -(-lane // schedule.lane_tile))
        _split(kernel, SPLIT // max(1, min(lane, schedule.width)), 512 // max(8, blocks))
    _count_blocks(kernel)


def _streamed(kernel: Kernel) -> bool:
    """Whether results are stored past the cache: large ones that are not updates in place."""
    stored = [store.access.value for store in kernel.stores]
    return (sum(value.nbytes for value in stored) >= STREAMED_BYTES
            and not any(isinstance(value.op, Update) for value in stored))


def _column_widths(kernel: Kernel) -> tuple[int, ...]:
    """Lanes that go side by side, most first: long runs of memory, accumulators in the cache."""
    if pairs(kernel):
        return (PAIR_LANES, 16)  # what is used at every step stays close
    reduced = [(cell.value.op, cell.dtype) for cell in kernel.cells if cell.kind == "reduce"]
    large = any(dtype.kind == "c" or (isinstance(op, Reduction) and op.lanes == "heavy")
                for op, dtype in reduced)
    several = len(reduced) > 2
    return (256, 64, 16) if large or several else (1024, 256, 64, 16)


def _split(kernel: Kernel, piece: int, most: int) -> None:
    """Share a long reduction between at most ``most`` blocks, each with at least ``piece``."""
    schedule = kernel.schedule
    if kernel.group.phases != 1:
        return
    axis = _split_axis(schedule)
    rest = prod(a.size for a in schedule.axes if a.reduced and a is not axis)
    schedule.splits = max(1, min(axis.size, -(-axis.size * rest // piece), most))


def _split_axis(schedule: Schedule) -> Axis:
    """The axis that is shared out when a reduction is split."""
    return next((axis for axis in schedule.axes if axis.role == "step"), schedule.lane)


def _tile_device(kernel: Kernel, target: Target) -> None:
    schedule = kernel.schedule
    if schedule.form != "map":
        schedule.width = _vector_width(kernel)
    if schedule.form == "map":
        _tile_device_map(kernel, target)
    elif schedule.form == "row":
        _tile_device_rows(kernel, target)
    else:
        _tile_device_columns(kernel, target)
    _count_blocks(kernel)


def _tile_device_map(kernel: Kernel, target: Target) -> None:
    schedule = kernel.schedule
    side = turn(kernel, target)
    width = schedule.width = 1 if side else map_width(kernel)
    find_windows(kernel, width)
    if side:
        schedule.threads = (32, side // 4)
        schedule.lane_tile = schedule.row_tile = side
        schedule.chunks = side // 32
        return
    schedule.phase = phase(kernel, width)
    schedule.ragged = schedule.phase is not None or schedule.lane.size % width > 0
    halo = schedule.rows > 1 and has_halo(kernel)
    tx = _power(-(-schedule.lane.size // width), 4, HALO_LANES // width if halo else 256)
    ty = 256 // tx
    schedule.threads = (tx, ty)
    if halo:
        schedule.lane_tile, schedule.row_tile = tx * width, ty * schedule.unroll
    else:
        schedule.chunks = max(1, min(4 // width, schedule.lane.size // (tx * width)))
        schedule.lane_tile = tx * width * schedule.chunks
        schedule.row_tile = max(ty, DEVICE_TILE // schedule.lane_tile)
        if width == 1:
            schedule.resident = 4
            _occupy(kernel, 8 * target.workers)


def _tile_device_rows(kernel: Kernel, target: Target) -> None:
    schedule = kernel.schedule
    lane, width = schedule.lane.size, schedule.width
    if _shared_between_rows(kernel):
        schedule.unroll = 8
    held = kernel.group.phases > 1
    per_thread = _held_elements(kernel) // width if held else 4 if lane > 128 else 1
    least = _power(-(-lane // width), 1, 4)  # neighbours read whole sectors
    tx = _power(-(-lane // (width * max(1, per_thread))), least, 1024 if held else 256)
    schedule.threads = (tx, 1 if tx > 32 else max(1, 128 // tx))
    schedule.row_tile = schedule.threads[1] * schedule.unroll
    schedule.chunks = max(1, -(-lane // (tx * width)))
    blocks = max(1, -(-schedule.rows // schedule.row_tile))
    if blocks < 4 * target.workers:
        _split(kernel, 4096, SPLIT_BLOCKS * target.workers // blocks)
        if schedule.splits > 1:
            schedule.threads = (SPLIT_THREADS, 1)
            schedule.row_tile = schedule.unroll
            schedule.chunks = 1
            if _split_axis(schedule) is schedule.lane:
                unit = SPLIT_THREADS * width * 4  # whole rounds of a block, and no block without
                share = -(-lane // (schedule.splits * unit)) * unit
                schedule.splits = -(-lane // share)
    stage(kernel, target)


def _held_elements(kernel: Kernel) -> int:
    """Elements of a row for one thread, so that one value of each can be held in registers."""
    widest = max((cell.dtype.itemsize for cell in kernel.cells
                  if cell.axes & kernel.group.reduced), default=1)
    return min(HELD_ELEMENTS, HELD_ELEMENT_BYTES // widest)


def _tile_device_columns(kernel: Kernel, target: Target) -> None:
    schedule = kernel.schedule
    most, wanted = (PAIR_THREADS, PAIR_BLOCKS) if pairs(kernel) else (COLUMN_THREADS, COLUMN_BLOCKS)
    tx = _power(-(-schedule.lane.size // schedule.width), 8, most)
    schedule.threads = (tx, 256 // tx)
    schedule.lane_tile = tx * schedule.width
    stage(kernel, target)
    blocks = max(1, schedule.rows * -(-schedule.lane.size // schedule.lane_tile))
    if kernel.staged:
        wanted = STAGED_BLOCKS
    if blocks < min(8, wanted // 2) * target.workers:
        _split(kernel, 8 * 256 // tx, wanted * target.workers // blocks)


def _occupy(kernel: Kernel, wanted: int) -> None:
    """Make blocks smaller until there are enough for every multiprocessor."""
    schedule = kernel.schedule
    tx, ty = schedule.threads
    _count_blocks(kernel)
    while schedule.blocks < wanted and schedule.row_tile > ty:
        schedule.row_tile = max(ty, schedule.row_tile // 2)
        _count_blocks(kernel)
    while schedule.blocks < wanted and schedule.chunks > 1:
        schedule.chunks -= 1
        schedule.lane_tile = tx * schedule.width * schedule.chunks
        _count_blocks(kernel)


def _power(n: int, least: int, most: int) -> int:
    """The power of two at or above ``n``, within bounds."""
    return max(least, min(most, 1 << max(0, n - 1).bit_length()))


def _vector_width(kernel: Kernel) -> int:
    """Lanes a thread handles: 16 bytes of the narrowest element where all accesses align."""
    schedule = kernel.schedule
    accesses = [access for cell, access in kernel.loads.items() if cell.kind == "load"]
    accesses += [store.access for store in kernel.stores if store.sink.level == "full"
                 or schedule.form == "column"]
    unit = [access for access in accesses if access.strides[-1] == 1]
    if not unit:
        return 1
    width = min(VECTOR_BYTES // access.value.dtype.itemsize for access in unit)
    others = [axis.size for axis in schedule.axes[:-1]]
    for access in unit:
        parts = [stride for stride, n in zip(access.strides, others, strict=False) if n > 1]
        parts += [coefficient for _, coefficient in access.offset]
        parts.append(schedule.lane.size)
        while width > 1 and any(part % width for part in parts):
            width //= 2
    return max(1, width)


def lane_blocks(schedule: Schedule) -> int:
    """Tiles along the lane axis."""
    if schedule.lane.reduced:
        return 1
    extra = schedule.phase[0] - 1 if schedule.phase else 0
    return -(-(schedule.lane.size + extra) // schedule.lane_tile)


def row_blocks(kernel: Kernel) -> int:
    """Tiles along the rows; a turned one lies along the last axis."""
    schedule = kernel.schedule
    if kernel.turned:
        last = [axis.size for axis in schedule.axes if axis.role == "row"][-1]
        return schedule.rows // last * -(-last // schedule.row_tile)
    return -(-schedule.row_groups // (schedule.row_tile // schedule.unroll))


def _count_blocks(kernel: Kernel) -> None:
    schedule = kernel.schedule
    lanes = lane_blocks(schedule)
    rows = row_blocks(kernel)
    schedule.blocks = lanes * rows * schedule.splits
