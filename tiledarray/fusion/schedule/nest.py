"""The loop nest of a kernel: its domain's axes merged and ordered, and accesses along them."""

from __future__ import annotations

from math import prod

from tiledarray.fusion.ir import Access, Affine, Cell, Group, Index, Value, strides_of
from tiledarray.fusion.limits import Limits
from tiledarray.fusion.plan import Axis, Role, Strided
from tiledarray.fusion.schedule.turn import axis_across
from tiledarray.fusion.target import Target
from tiledarray.ops.op import Reduction


def positions_of(group: Group) -> dict[Cell, Strided]:
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
            positions[sink.cell] = Strided(shim, *strides_of(Access(shim, index), len(lengths)))
    return positions


def loop_nest(group: Group, reads: list[Strided], writes: list[Strided],
              target: Target) -> tuple[Axis, ...]:
    """Order and merge the domain's axes: rows, steps, lane."""
    accesses, limits = [*reads, *writes], target.limits
    axes = [axis for axis in range(len(group.shape)) if group.shape[axis] != 1]
    if not axes:
        return (Axis(prod(group.shape), "lane", False, ()),)
    # What a map writes goes in whole lines: what it reads across them can be turned.
    written = [] if group.reduced else writes
    # Rows of which something is made over all rows are walked along, however they lie.
    over_rows = any(sink.level == "across" for sink in group.sinks)
    lane = max((axis for axis in axes if axis in group.reduced or not over_rows), key=lambda axis: (
        _unit_weight(axis, written, group.shape) if group.shape[axis] >= limits.short_lanes else 0,
        _unit_weight(axis, accesses, group.shape), axis))
    run = _lane_run(group, axes, lane, accesses)
    if group.scanned >= 0:
        other = _scanned_lane(group, lane, target)
    else:
        other = _longer_lane(group, axes, run, accesses, limits) if target.kind == "cpu" else lane
    if other != lane:
        lane, run = other, _lane_run(group, axes, other, accesses)
    joined: list[int] = []
    if target.kind == "cuda" and not group.reduced:
        joined = _joined_rows(group.shape, axes, run, reads, writes, limits)
    short = (prod(group.shape[axis] for axis in run), joined[-1]) if joined else (0, -1)
    run = joined + run
    rows = [axis for axis in axes if axis not in run and axis not in group.reduced]
    steps = [axis for axis in axes if axis not in run and axis in group.reduced]
    across = None if group.reduced else axis_across(accesses, lane, rows)
    rows.sort(key=lambda axis: axis == across)
    return (
        *_merged(rows, group.shape, "row", accesses),
        *_merged(steps, group.shape, "step", accesses, group.scanned),
        Axis(prod(group.shape[a] for a in run), "lane", lane in group.reduced, tuple(run), *short,
             scanned=lane == group.scanned),
    )


def _lane_run(group: Group, axes: list[int], lane: int, accesses: list[Strided]) -> list[int]:
    """The axes that merge into one lane axis with ``lane`` the innermost."""
    run = [lane]
    if lane == group.scanned:
        return run
    others = [axis for axis in axes
              if axis < lane and (axis in group.reduced) == (lane in group.reduced)]
    while others and _mergeable(others[-1], run[0], group.shape, run, accesses):
        run.insert(0, others.pop())
    return run


def _scanned_lane(group: Group, lane: int, target: Target) -> int:
    """The lane of a kernel that scans: the scanned axis, or one whose columns are scanned.

    Columns are walked by a thread each, so on a GPU they have to be many.
    """
    kept = prod(n for axis, n in enumerate(group.shape) if axis not in group.reduced)
    few = target.kind == "cuda" and kept < target.limits.scanned_columns * target.workers
    return group.scanned if len(group.reduced) > 1 or few or lane in group.reduced else lane


def _joined_rows(shape: tuple[int, ...], axes: list[int], run: list[int],
                 reads: list[Strided], writes: list[Strided], limits: Limits) -> list[int]:
    """The axes to join with short lanes, where only what is read does not follow in memory.

    What is written then goes in whole lines and vectors; a small operand, say one value for each
    of three channels, is read at its place in the row.
    """
    found: list[int] = []
    if prod(shape[axis] for axis in run) >= limits.joined_lanes:
        return found
    for axis in reversed([axis for axis in axes if axis < run[0]]):
        follows = reads if found else []
        if not _mergeable(axis, (found or run)[0], shape, run, [*writes, *follows]):
            break
        found.insert(0, axis)
    return found


def _longer_lane(group: Group, axes: list[int], run: list[int], accesses: list[Strided],
                 limits: Limits) -> int:
    """Another axis to walk with lanes, where the natural ones are too few to fill them.

    A short row is better reduced by one lane than by all of them together.
    """
    lane = run[-1]
    if lane in group.reduced:
        reduced = prod(group.shape[axis] for axis in axes if axis in group.reduced)
        enough = reduced > limits.short_rows
    else:
        enough = prod(group.shape[axis] for axis in run) >= limits.short_lanes
    if enough:
        return lane
    others = [axis for axis in axes if axis not in group.reduced and axis not in run
              and group.shape[axis] >= limits.long_lanes]
    return max(others, default=lane,
               key=lambda axis: (_unit_weight(axis, accesses, group.shape), axis))


def _unit_weight(axis: int, accesses: list[Strided], shape: tuple[int, ...]) -> int:
    """Bytes that are read or written at stride one along the axis, each once."""
    return sum(
        access.value.dtype.itemsize
        * prod(size for size, stride in zip(shape, access.strides, strict=True) if stride)
        for access in accesses if access.strides[axis] == 1
    )


def _mergeable(outer: int, inner: int, shape: tuple[int, ...], run: list[int],
               accesses: list[Strided]) -> bool:
    """Whether stepping once along ``outer`` is stepping past the end of ``inner``, everywhere."""
    return all(a.strides[outer] == a.strides[inner] * shape[inner] for a in accesses)


def _merged(axes: list[int], shape: tuple[int, ...], role: Role,
            accesses: list[Strided], scanned: int = -1) -> list[Axis]:
    runs: list[list[int]] = []
    for axis in axes:
        if runs and _mergeable(runs[-1][-1], axis, shape, runs[-1], accesses):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return [
        Axis(prod(shape[a] for a in run), role, role == "step", tuple(run), scanned=scanned in run)
        for run in runs
    ]


def on_nest(access: Strided, axes: tuple[Axis, ...]) -> Strided:
    """The access along the merged axes: each run steps with its innermost axis."""
    strides = tuple(access.strides[axis.domain[-1]] if axis.domain else 0 for axis in axes)
    lane = axes[-1]
    if lane.period:
        wrap = access.strides[lane.joined], strides[-1]
        if wrap[0] != wrap[1] * lane.period:
            return Strided(access.value, (*strides[:-1], 0), access.offset, wrap)
    return Strided(access.value, strides, access.offset)
