"""What a kernel moves and computes, as far as its nest tells."""

from __future__ import annotations

from math import prod
from typing import Any

from tiledarray.fusion.ir import Value
from tiledarray.fusion.plan import Axis, Kernel, Strided


def count_work(kernel: Kernel) -> None:
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
        for cell in kernel.cells if cell.kind in ("apply", "reduce", "scan")
    )
    kernel.flops += sum(points for cell in kernel.cells if cell.kind in ("reduce", "across"))


def bytes_read(kernel: Kernel) -> dict[Value, int]:
    """Bytes of each array that a kernel reads; what is read at several places counts once."""
    places: dict[Value, set[tuple[Any, ...]]] = {}
    for cell, access in kernel.loads.items():
        if cell.kind == "load":
            sides = tuple(sorted(_sides(access, kernel.schedule.axes)))
            places.setdefault(access.value, set()).add((access.offset, sides))
    counts = {value: min(value.size, sum(prod(size for _, size in sides) for _, sides in found))
              for value, found in places.items()}
    for cell, access in kernel.loads.items():
        if cell.kind == "gather":  # some elements more than once, but not from afar
            points = prod(n for axis, n in enumerate(kernel.group.shape) if axis in cell.axes)
            value = access.value
            counts[value] = min(value.size, counts.get(value, 0) + points)
    return {value: value.dtype.itemsize * count for value, count in counts.items()}


def _sides(access: Strided, axes: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """Stride and length of an access along every axis that it follows."""
    sides = list(zip(access.strides, (axis.size for axis in axes), strict=True))
    if access.wrap:
        lane = axes[-1]
        sides += [(access.wrap[0], lane.size // lane.period), (access.wrap[1], lane.period)]
    return [(stride, size) for stride, size in sides if stride]
