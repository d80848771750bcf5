"""What the planner knows of a device."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from tiledarray.fusion.ir import Cell

HOST_ROW_BYTES = 1 << 20
HOST_COLUMNS = 1024  # that a thread walks over side by side
DEVICE_ROW_ELEMENTS = 16384
DEVICE_ROW_BYTES = 1 << 19  # of rows that each pass reads again, from the L2 cache mostly
DEVICE_COLUMN_BYTES = 512  # of a step, read by one block of threads
DEVICE_COLUMN_LEAST = 128  # where fewer columns still leave it as many steps to read
DEVICE_COLUMN_BLOCKS = 2  # for each multiprocessor, to keep memory busy

# Nominal rates: a copy and the arithmetic of each multiprocessor or thread (an H200's 132 copy
# 4.3 TB/s); a launch is what two kernels cost beyond one.
DEVICE_BYTES_PER_MULTIPROCESSOR = 3e10
DEVICE_FLOPS_PER_MULTIPROCESSOR = 128 * 1.5e9
DEVICE_LAUNCH_SECONDS = 3e-6
HOST_BYTES_PER_SECOND = 12e9
HOST_FLOPS_PER_THREAD = 8e9  # an op's cost counts about ten flops for a transcendental function
HOST_LAUNCH_SECONDS = 5e-6


@dataclass(frozen=True, slots=True)
class Target:
    """A device's kind and the limits that shape its kernels.

    Attributes
    ----------
    kind : "cpu" or "cuda"
    workers : int
        Host threads, or multiprocessors.
    shared_bytes : int
        Shared memory that a block of threads can have; 99 KiB on every GPU since Ampere.
    contract : bool
        Whether products are rounded together with the sums they go into.
    """

    kind: Literal["cpu", "cuda"]
    workers: int
    shared_bytes: int = 99 << 10
    contract: bool = False

    @property
    def bytes_per_second(self) -> float:
        """Nominal rate at which a kernel that fills the device reads and writes."""
        if self.kind == "cuda":
            return self.workers * DEVICE_BYTES_PER_MULTIPROCESSOR
        return HOST_BYTES_PER_SECOND

    @property
    def flops_per_second(self) -> float:
        """Nominal arithmetic of the whole device."""
        each = DEVICE_FLOPS_PER_MULTIPROCESSOR if self.kind == "cuda" else HOST_FLOPS_PER_THREAD
        return self.workers * each

    @property
    def launch_seconds(self) -> float:
        """What a launch costs beyond the work in it."""
        return DEVICE_LAUNCH_SECONDS if self.kind == "cuda" else HOST_LAUNCH_SECONDS

    @property
    def bound_by_memory(self) -> bool:
        """Whether a kernel that takes an exponential of every element still waits for memory."""
        return self.kind == "cuda"

    def holds_row(self, length: int, itemsize: int) -> bool:
        """Whether a row of that many elements stays on chip between passes."""
        if self.kind == "cuda":
            return length <= DEVICE_ROW_ELEMENTS
        return length * itemsize <= HOST_ROW_BYTES

    def refuse_passes(
        self, shape: tuple[int, ...], reduced: frozenset[int], cells: Iterable[Cell]
    ) -> str | None:
        """Say why several passes over this domain cannot share a kernel, if they cannot."""
        length = prod(shape[axis] for axis in reduced if axis >= 0)
        kept = prod(shape) // max(length, 1)
        lanes = prod(shape[max(reduced) + 1:])
        loads = [cell for cell in cells if cell.kind == "load" and cell.axes & reduced]
        if self.kind == "cpu":
            return _refuse_walk(length, lanes, sum(cell.dtype.itemsize for cell in loads))
        width = max(1, sum(cell.dtype.itemsize for cell in loads if cell.axes - reduced))
        if lanes == 1:
            return self._refuse_rows(length, kept, width)
        widest = max((cell.dtype.itemsize for cell in loads), default=1)
        return self._refuse_columns(length, kept, width, widest)

    def _refuse_rows(self, length: int, rows: int, width: int) -> str | None:
        longest = DEVICE_ROW_ELEMENTS
        if rows >= 2 * self.workers:
            longest = max(longest, DEVICE_ROW_BYTES // width)
        if length <= longest:
            return None
        return (f"a row of {length} elements is too long for one block of threads "
                f"(at most {longest} where there are {rows} rows)")

    def _refuse_columns(self, length: int, columns: int, width: int, widest: int) -> str | None:
        """Say whether blocks that share the columns of one pass would save more than they cost."""
        blocks = max(columns * widest, DEVICE_COLUMN_LEAST) / DEVICE_COLUMN_BYTES
        wanted = DEVICE_COLUMN_BLOCKS * self.workers
        seconds = length * columns * width / self.bytes_per_second
        if seconds * (wanted / blocks - 1) < 2 * self.launch_seconds:  # a launch, and the merge
            return None
        return (f"{columns} columns of {length} elements give work to {math.ceil(blocks)} blocks "
                f"of threads, and the device takes {wanted}")


def _refuse_walk(length: int, lanes: int, width: int) -> str | None:
    """Say whether what a thread walks over in every pass is too much for its core's cache."""
    columns = min(lanes, HOST_COLUMNS)
    if columns * length * width <= HOST_ROW_BYTES:
        return None
    rows = f"a row of {length * width} bytes does" if lanes == 1 else (
        f"{columns} columns of {length * width} bytes do")
    return f"{rows} not stay in a core's cache (at most {HOST_ROW_BYTES})"
