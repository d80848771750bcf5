"""What the planner knows of a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from tiledarray.fusion.ir import Cell

HOST_ROW_BYTES = 1 << 20
DEVICE_ROW_ELEMENTS = 16384


@dataclass(frozen=True, slots=True)
class Target:
    """A device's kind and the limits that shape its kernels.

    Attributes
    ----------
    kind : "cpu" or "cuda"
    workers : int
        Host threads, or multiprocessors.
    contract : bool
        Whether products are rounded together with the sums they go into.
    """

    kind: Literal["cpu", "cuda"]
    workers: int
    contract: bool = False

    def holds_row(self, length: int, itemsize: int) -> bool:
        """Whether a row of that many elements stays on chip between passes."""
        if self.kind == "cuda":
            return length <= DEVICE_ROW_ELEMENTS
        return length * itemsize <= HOST_ROW_BYTES

    def refuse_row(
        self, shape: tuple[int, ...], reduced: frozenset[int], cells: Iterable[Cell]
    ) -> str | None:
        """Say why rows of this domain cannot be held on chip between passes, if they cannot."""
        length = prod(shape[axis] for axis in reduced if axis >= 0)
        if self.kind == "cuda":
            if length > DEVICE_ROW_ELEMENTS:
                return (f"a row of {length} elements does not stay in a block's registers "
                        f"(at most {DEVICE_ROW_ELEMENTS})")
            return None
        width = sum(
            cell.dtype.itemsize for cell in cells
            if cell.kind == "load" and cell.axes & reduced
        )
        if length * max(width, 1) > HOST_ROW_BYTES:
            return (f"a row of {length * width} bytes does not stay in a core's cache "
                    f"(at most {HOST_ROW_BYTES})")
        return None
