"""Choices for kernels that are bound by their instructions rather than by memory."""

from __future__ import annotations

from tiledarray.fusion.plan import Kernel
from tiledarray.ops.op import Elementwise

QUICK_COST = 12  # of divisions, roots, logarithms for which a chunk's text is written twice
QUICK_BLOCKS = 6  # of 256 threads on a multiprocessor, at 40 registers: they hide the memory
PAIR_THREADS = 64  # along the lanes
PAIR_BLOCKS = 64  # for each multiprocessor: long blocks leave some idle at the end


def pairs(kernel: Kernel) -> bool:
    """Whether a column kernel streams nothing: steps meet lanes that stay where they are."""
    steps = [k for k, axis in enumerate(kernel.schedule.axes) if axis.role == "step"]
    return kernel.schedule.form == "column" and not any(
        access.strides[-1] and any(access.strides[k] for k in steps)
        for access in kernel.loads.values()
    )


def try_quick(kernel: Kernel) -> None:
    """Let a map on a GPU try texts for most arguments, where its divisions and roots are many.

    All results must be in registers until a chunk is done, since it may be done again.
    """
    cost = sum(
        cell.value.op.cost for cell in kernel.cells if cell.kind == "apply"
        and isinstance(cell.value.op, Elementwise) and cell.value.op.has_quick(cell.value.attrs)
    )
    schedule = kernel.schedule
    if schedule.form == "map" and cost >= QUICK_COST and all(
            store.access.strides[-1] == 1 for store in kernel.stores):
        schedule.quick = True
        schedule.resident = QUICK_BLOCKS
