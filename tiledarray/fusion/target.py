"""What the planner knows of a device."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

from tiledarray.fusion import limits
from tiledarray.fusion.ir import Cell
from tiledarray.fusion.limits import Limits

Choice = tuple[tuple[str, int], ...]  # limits by name, and what they are instead


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
    wgmma : bool
        Whether four warps multiply tiles together, while they do something else (sm_90a).
    choice : tuple of (str, int)
        Limits that are not those of the kind of device (`fusion.choices`).
    """

    kind: Literal["cpu", "cuda"]
    workers: int
    shared_bytes: int = 99 << 10
    contract: bool = False
    wgmma: bool = False
    choice: Choice = ()

    @property
    def limits(self) -> Limits:
        """The thresholds of this kind of device, or those chosen instead."""
        usual = limits.GPU if self.kind == "cuda" else limits.HOST
        return _replaced(usual, self.choice) if self.choice else usual

    @property
    def bytes_per_second(self) -> float:
        """Nominal rate at which a kernel that fills the device reads and writes."""
        return self.limits.bytes_per_second * (self.workers if self.kind == "cuda" else 1)

    @property
    def flops_per_second(self) -> float:
        """Nominal arithmetic of the whole device."""
        return self.limits.flops_per_second * self.workers

    @property
    def launch_seconds(self) -> float:
        """What a launch costs beyond the work in it."""
        return self.limits.launch_seconds

    @property
    def bound_by_memory(self) -> bool:
        """Whether a kernel that takes an exponential of every element still waits for memory."""
        return self.kind == "cuda"

    def holds_row(self, length: int, itemsize: int) -> bool:
        """Whether a row of that many elements stays on chip between passes."""
        if self.kind == "cuda":
            return length <= self.block_row(itemsize)
        return length * itemsize <= self.limits.row_bytes

    def block_row(self, itemsize: int) -> int:
        """Elements of a row for one block of threads, each of so many bytes."""
        limits = self.limits
        narrow = min(limits.narrow_row, limits.narrow_row_bytes // max(1, itemsize))
        return max(limits.row_elements, narrow)

    def refuse_passes(
        self, shape: tuple[int, ...], reduced: frozenset[int], cells: Iterable[Cell]
    ) -> str | None:
        """Say why several passes over this domain cannot share a kernel, if they cannot."""
        length = prod(shape[axis] for axis in reduced if axis >= 0)
        kept = prod(shape) // max(length, 1)
        lanes = prod(shape[max(reduced) + 1:])
        loads = [cell for cell in cells if cell.kind == "load" and cell.axes & reduced]
        if self.kind == "cpu":
            return self._refuse_walk(length, lanes, sum(cell.dtype.itemsize for cell in loads))
        width = max(1, sum(cell.dtype.itemsize for cell in loads if cell.axes - reduced))
        if lanes == 1:
            return self._refuse_rows(length, kept, width)
        widest = max((cell.dtype.itemsize for cell in loads), default=1)
        return self._refuse_columns(length, kept, width, widest)

    def _refuse_rows(self, length: int, rows: int, width: int) -> str | None:
        longest = self.block_row(width)
        if rows >= 2 * self.workers:
            longest = max(longest, self.limits.shared_row_bytes // width)
        if length <= longest:
            return None
        return (f"a row of {length} elements is too long for one block of threads "
                f"(at most {longest} where there are {rows} rows)")

    def _refuse_columns(self, length: int, columns: int, width: int, widest: int) -> str | None:
        """Say whether blocks that share the columns of one pass would save more than they cost."""
        blocks = max(columns * widest, self.limits.pass_least) / self.limits.pass_bytes
        wanted = self.limits.pass_blocks * self.workers
        seconds = length * columns * width / self.bytes_per_second
        if seconds * (wanted / blocks - 1) < 2 * self.launch_seconds:  # a launch, and the merge
            return None
        return (f"{columns} columns of {length} elements give work to {math.ceil(blocks)} blocks "
                f"of threads, and the device takes {wanted}")

    def _refuse_walk(self, length: int, lanes: int, width: int) -> str | None:
        """Say whether what a thread walks over in every pass is too much for its core's cache."""
        columns = min(lanes, self.limits.walked_columns)
        if columns * length * width <= self.limits.row_bytes:
            return None
        rows = f"a row of {length * width} bytes does" if lanes == 1 else (
            f"{columns} columns of {length * width} bytes do")
        return f"{rows} not stay in a core's cache (at most {self.limits.row_bytes})"


@functools.cache
def _replaced(usual: Limits, choice: Choice) -> Limits:
    others: dict[str, Any] = dict(choice)
    return replace(usual, **others)
