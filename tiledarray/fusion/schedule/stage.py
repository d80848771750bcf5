"""Which loads of a device's kernel asynchronous copies bring into shared memory ahead of their use.

Registers that wait for memory, or that hold a row between passes, leave room for few threads, and
then too few bytes are under way to keep memory busy.  A copy into shared memory needs none.  A row
kernel of several passes brings its row once; a column kernel asks for some steps ahead.
"""

from __future__ import annotations

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.target import Target

LINE_BYTES = 128
COPY_BYTES = (4, 8, 16)  # what one asynchronous copy can bring


def stage(kernel: Kernel, target: Target) -> None:
    """Choose the staged loads and their places; the rest is loaded where it is used."""
    schedule = kernel.schedule
    steps = [k for k, axis in enumerate(schedule.axes) if axis.role == "step"]
    room = target.shared_bytes - target.limits.own_bytes
    if schedule.form == "row" and kernel.group.phases > 1 and not steps:
        rows = [k for k, axis in enumerate(schedule.axes) if axis.role == "row"]
        _place(kernel, _streamed(kernel, rows, COPY_BYTES), schedule.chunks, room)
        if kernel.staged and _reads_through_cache(kernel):
            schedule.shared_limit = max(target.limits.busy_bytes, 2 * schedule.shared_bytes)
    elif schedule.form == "column" and len(steps) == 1:
        loads = _streamed(kernel, steps, target.limits.step_bytes)
        if loads:
            together = schedule.width * sum(cell.dtype.itemsize for cell in loads)
            schedule.stages = max(2, target.limits.ahead_bytes // together)
            room = min(room, target.limits.ahead_room)
            _place(kernel, loads, schedule.stages, room)
            _place(kernel, _of_steps(kernel, steps), schedule.stages, room)


def _streamed(kernel: Kernel, rounds: list[int], sizes: tuple[int, ...]) -> list[Cell]:
    """Loads of whole chunks of such sizes that are new in every round (row or step)."""
    return [
        cell for cell, access in kernel.loads.items()
        if cell.kind == "load" and access.strides[-1] == 1
        and any(access.strides[k] for k in rounds)
        and kernel.schedule.width * cell.dtype.itemsize in sizes
    ]


def _of_steps(kernel: Kernel, steps: list[int]) -> list[Cell]:
    """Loads of one element a step: every thread copies it for itself, and waits for none."""
    return [cell for cell, access in kernel.loads.items()
            if cell.kind == "load" and access.is_shared and cell.dtype.itemsize in COPY_BYTES
            and any(access.strides[k] for k in steps)]


def _place(kernel: Kernel, loads: list[Cell], chunks: int, room: int) -> None:
    """Give each load room for so many chunks of every thread, as long as there is any."""
    schedule = kernel.schedule
    tx, ty = schedule.threads
    for cell in loads:
        width = 1 if kernel.loads[cell].is_shared else schedule.width
        size = chunks * tx * ty * width * cell.dtype.itemsize
        size = -(-size // LINE_BYTES) * LINE_BYTES
        if schedule.shared_bytes + size <= room:
            kernel.staged[cell] = schedule.shared_bytes
            schedule.shared_bytes += size


def _reads_through_cache(kernel: Kernel) -> bool:
    """Whether something along the row, such as a vector that all rows share, is not staged."""
    return any(cell.kind == "load" and access.strides[-1] and cell not in kernel.staged
               for cell, access in kernel.loads.items())
