"""Where each value of a kernel lives between the passes over its row.

A value along the reduced axes that several passes need is either computed again from what it is
made of, or *held*: in registers on a GPU, in a core's own scratch memory on the host.  What is
*staged* (`stage.py`) lies in a GPU's shared memory already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.target import Target
from tiledarray.ops.op import Elementwise


def place(kernel: Kernel, target: Target) -> Kernel:
    """Mark the held cells; where too much would be held, hold less."""
    schedule = kernel.schedule
    steps = any(axis.role == "step" for axis in schedule.axes)
    on_host = schedule.form == "scan" and target.kind == "cpu"
    if (schedule.form != "row" and not on_host) or kernel.group.phases < 2 or steps:
        return kernel
    inner = inner_axes(kernel)
    needed = passes_needed(kernel)
    budget = target.limits.held_bytes
    per_thread = schedule.chunks * schedule.width if target.kind == "cuda" else 0
    for cell in kernel.cells:
        if len(needed[cell]) < 2 or not cell.axes & inner or cell in kernel.staged:
            continue
        cost = cell.value.op.cost if isinstance(cell.value.op, Elementwise) else 0
        worth = cost >= target.limits.expensive or cell.kind == "scan" or (
            target.kind == "cuda" and cell.kind == "load")
        size = per_thread * cell.dtype.itemsize
        if worth and size <= budget:
            cell.held = True
            budget -= size
    if target.kind == "cpu":
        schedule.scratch_bytes = sum(
            -(-schedule.lane.size * cell.dtype.itemsize // 64) * 64
            for cell in kernel.cells if cell.held
        )
    return kernel


def inner_axes(kernel: Kernel) -> frozenset[int]:
    """Domain axes walked inside a row: those of steps and lanes."""
    return frozenset(
        axis for part in kernel.schedule.axes if part.role != "row" for axis in part.domain
    )


def passes_needed(kernel: Kernel) -> dict[Cell, set[int]]:
    """For each cell, the passes over the row in which it is computed or read back."""
    needed: defaultdict[Cell, set[int]] = defaultdict(set)
    for store in kernel.stores:
        sink = store.sink
        if sink.level == "full":
            needed[sink.cell].add(sink.store_pass)
    for cell in reversed(kernel.cells):
        if cell.kind in ("reduce", "across"):
            needed[cell.args[0]].add(cell.phase)
            continue
        passes = {min(needed[cell])} if cell.held and needed[cell] else needed[cell]
        for arg in cell.args:
            if arg.kind != "reduce":
                needed[arg] |= passes
    return needed


def scans(cells: Iterable[Cell]) -> list[Cell]:
    """The scans among some cells."""
    return [cell for cell in cells if cell.kind == "scan"]


def across(cells: Iterable[Cell]) -> list[Cell]:
    """The reductions over all rows among some cells."""
    return [cell for cell in cells if cell.kind == "across"]


def reductions(cells: Iterable[Cell], phase: int) -> list[Cell]:
    """The reductions that one pass finishes."""
    return [cell for cell in cells if cell.kind == "reduce" and cell.phase == phase]
