"""Transposed reads: tiles that a block copies along memory and reads back along its lanes.

What is at stride one along a row axis and strided along the lanes would be read an element a line.
Instead a block copies its tile in whole lines: to shared memory on the device, to a tile in the
core's cache on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel, Strided
from tiledarray.fusion.target import Target

TILE_BYTES = {"cuda": 40 << 10, "cpu": 128 << 10}  # of shared memory, of a core's cache
SIDES = (64, 32)
SHORT = 16
WIDE = 16  # bytes of an element of which a line holds so few that the host reads it as it is


def axis_across(accesses: Sequence[Strided], lane: int, rows: Sequence[int]) -> int | None:
    """The row axis along which most is read or written at stride one, and not along the lanes."""
    def weight(axis: int) -> int:
        return sum(access.value.dtype.itemsize for access in accesses
                   if access.strides[axis] == 1 and access.strides[lane] > 1)

    across = max(rows, key=weight, default=None)
    return across if across is not None and weight(across) else None


def turn(kernel: Kernel, target: Target) -> int | None:
    """Mark the loads to turn; return the side of a block's tile if something is transposed."""
    schedule = kernel.schedule
    rows = [k for k, axis in enumerate(schedule.axes) if axis.role == "row"]
    if not rows or min(schedule.lane.size, schedule.axes[rows[-1]].size) < SHORT:
        return None
    found: list[Cell] = [
        cell for cell, access in kernel.loads.items() if cell.kind == "load"
        and access.strides[rows[-1]] == 1 and access.strides[-1] > 1
    ]
    width = sum(cell.dtype.itemsize for cell in found)
    most = TILE_BYTES[target.kind]
    side = next((side for side in SIDES if width * side * (side + 1) <= most), None)
    if not found or side is None:
        return None
    if target.kind == "cuda" or any(cell.dtype.itemsize < WIDE for cell in found):
        kernel.turned, kernel.schedule.plane = found, True
    return side
