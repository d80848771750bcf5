"""How each group's domain is cut into blocks, rows and lanes, by its form."""

from __future__ import annotations

from typing import Any

from tiledarray.fusion.ir import Access, Cell, Group, strides_of
from tiledarray.fusion.plan import Kernel, Schedule, Store, Strided
from tiledarray.fusion.schedule import columns, maps, rows, scans
from tiledarray.fusion.schedule.blocks import count_blocks, vector_width
from tiledarray.fusion.schedule.instructions import find_products, find_roots, try_quick
from tiledarray.fusion.schedule.mirrors import mirror
from tiledarray.fusion.schedule.nest import loop_nest, on_nest, positions_of
from tiledarray.fusion.schedule.work import count_work
from tiledarray.fusion.target import Target

FORMS: dict[str, Any] = {"map": maps, "row": rows, "column": columns, "scan": scans}


def tile(group: Group, target: Target) -> Kernel:
    """Return the group as a kernel: axes merged and ordered, accesses strided, tile chosen."""
    domain = [Strided(cell.access.value, *strides_of(cell.access, len(group.shape)))
              for cell in group.cells if cell.access is not None]
    stored = [sink for sink in group.sinks if sink.stored]
    writes = [Strided(sink.value, *strides_of(Access(sink.value, sink.index), len(group.shape)))
              for sink in stored]
    positions = positions_of(group)
    reads = [*domain, *_as_rows(group, domain), *positions.values()]
    axes = loop_nest(group, reads, writes, target)
    accesses = iter([on_nest(access, axes) for access in domain])
    loads: dict[Cell, Strided] = {
        cell: next(accesses) for cell in group.cells if cell.access is not None
    }
    stores = [Store(sink, on_nest(write, axes)) for sink, write in zip(stored, writes, strict=True)]
    kernel = Kernel(group, Schedule(axes), loads, stores,
                    {cell: on_nest(position, axes) for cell, position in positions.items()})
    count_work(kernel)
    form = FORMS[kernel.schedule.form]
    if target.kind == "cuda":
        if not mirror(kernel, target):
            if form is not maps:
                kernel.schedule.width = vector_width(kernel)
            form.tile_on_device(kernel, target)
        count_blocks(kernel)
        try_quick(kernel)
        if target.contract and form is not scans:  # its stages know each value by itself
            find_products(kernel)
            find_roots(kernel)
    else:
        form.tile_on_host(kernel, target)
        count_blocks(kernel)
    return kernel


def _as_rows(group: Group, accesses: list[Strided]) -> list[Strided]:
    """What gathers read, as if it followed the places: so that lanes go where memory does."""
    cells = [cell for cell in group.cells if cell.access is not None]
    return [
        Strided(access.value, tuple(
            stride or (max(2, cell.along[0]) if axis in cell.axes else 0)
            for axis, stride in enumerate(access.strides)), access.offset)
        for cell, access in zip(cells, accesses, strict=True) if cell.kind == "gather"
    ]
