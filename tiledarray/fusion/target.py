"""What the planner knows of a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from tiledarray.fusion.ir import Cell

HOST_ROW_BYTES = 1 << 20
DEVICE_ROW_ELEMENTS = 16384
DEVICE_ROW_BYTES = 1 << 19  # of rows that each pass reads again, from the L2 cache mostly

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

    def holds_row(self, length: int, itemsize: int) -> bool:
        """Whether a row of that many elements stays on chip between passes."""
        if self.kind == "cuda":
            return length <= DEVICE_ROW_ELEMENTS
        return length * itemsize <= HOST_ROW_BYTES

    def refuse_row(
        self, shape: tuple[int, ...], reduced: frozenset[int], cells: Iterable[Cell]
    ) -> str | None:
        """Say why passes over rows of this domain cannot share a kernel, if they cannot."""
        length = prod(shape[axis] for axis in reduced if axis >= 0)
        loads = [cell for cell in cells if cell.kind == "load" and cell.axes & reduced]
        if self.kind == "cuda":
            width = max(1, sum(cell.dtype.itemsize for cell in loads if cell.axes - reduced))
            rows = prod(shape) // max(length, 1)
            longest = DEVICE_ROW_ELEMENTS
            if rows >= 2 * self.workers and len(shape) - 1 in reduced:
                longest = max(longest, DEVICE_ROW_BYTES // width)
            if length > longest:
                return (f"a row of {length} elements is too long for one block of threads "
                        f"(at most {longest} where there are {rows} rows)")
            return None
        width = max(1, sum(cell.dtype.itemsize for cell in loads))
        if length * width > HOST_ROW_BYTES:
            return (f"a row of {length * width} bytes does not stay in a core's cache "
                    f"(at most {HOST_ROW_BYTES})")
        return None
