"""Loads at adjacent constant places, such as the features of a point: vectors bring them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tiledarray.fusion.ir import ONE, Cell
from tiledarray.fusion.plan import Bundle, Kernel, Strided
from tiledarray.fusion.schedule.place import inner_axes
from tiledarray.fusion.schedule.windows import VECTOR_BYTES

NARROWEST = 4  # bytes of a vector that is worth it


def find_bundles(kernel: Kernel) -> None:
    """Group the loads inside a row that are strided along the lanes, or the same for all of them.

    Every vector is full and aligned: strides, moving offsets and the array are whole vectors.
    """
    inner = inner_axes(kernel)
    left = [cell for cell, access in kernel.loads.items()
            if cell.kind == "load" and cell.axes & inner and access.strides[-1] != 1
            and access.wrap is None and cell not in kernel.staged and cell not in kernel.turned]
    width = VECTOR_BYTES
    while width > 1:
        lines: defaultdict[Any, dict[Cell, int]] = defaultdict(dict)
        for cell in left:
            access = kernel.loads[cell]
            size = width * access.value.dtype.itemsize
            if NARROWEST < size <= VECTOR_BYTES and _whole(kernel, access, width):
                line, place = _line(access)
                lines[line, place // width][cell] = place % width
        for cells in lines.values():
            if len(cells) == width:
                kernel.bundles.append(Bundle(cells))
                left = [cell for cell in left if cell not in cells]
        width //= 2


def _whole(kernel: Kernel, access: Strided, width: int) -> bool:
    """Whether all that moves an access moves it by whole vectors of an array of such."""
    parts = [stride for stride, axis in zip(access.strides, kernel.schedule.axes, strict=True)
             if axis.size > 1]
    parts += [coefficient for number, coefficient in access.offset if number != ONE]
    return not any(part % width for part in (*parts, access.value.size))


def _line(access: Strided) -> tuple[Any, int]:
    """What an access reads but for its constant offset, and that."""
    moving = tuple(term for term in access.offset if term[0] != ONE)
    return (access.value, access.strides, moving), dict(access.offset).get(ONE, 0)
