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
