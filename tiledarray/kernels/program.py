"""The printer: a scheduled kernel as the text of a tile program, and what to bind to it.

The text is the same for both compilers but for the constants at its top.  It never contains a
size, a stride other than 0 or 1, an offset or a scalar: those are fields of ``Args``, so a new
shape or a new scalar reuses the binary.
"""

from __future__ import annotations

from tiledarray.fusion.plan import Kernel, Strided
from tiledarray.fusion.tile import lane_blocks
from tiledarray.kernels.layout import Program, Slot
from tiledarray.kernels.printer import Printer
from tiledarray.kernels.printer_border import border_blocks, print_border
from tiledarray.kernels.printer_columns import ColumnPrinter
from tiledarray.kernels.printer_maps import MapPrinter
from tiledarray.kernels.printer_rows import RowPrinter

__all__ = ["Program", "Slot", "print_kernel"]

NARROW_BYTES = (1 << 31) - (1 << 24)  # 32-bit indices may overshoot an array by a tile


FORMS: dict[str, type[Printer]] = {
    "map": MapPrinter, "row": RowPrinter, "column": ColumnPrinter,
}


def print_kernel(kernel: Kernel, *, device: bool) -> Program:
    """Return a kernel's tile program for the device or the host compiler."""
    schedule = kernel.schedule
    printer = FORMS[schedule.form](kernel, device=device)
    if kernel.border is not None:
        print_border(printer, kernel.border)
    _print_blocks(printer)
    tx, ty = schedule.threads
    wide = any(access.value.nbytes >= NARROW_BYTES for access in _accesses(kernel))
    index = "int" if device and not wide else "long long"
    # Every field takes 8 bytes, whatever the width of indices.
    fields = " ".join(
        f"alignas(8) {'idx' if slot.kind in ('size', 'phase') else slot.ctype} {slot.name};"
        for slot in printer.slots.values()
    )
    head = [
        f"using idx = {index};",
        *([f"#define TA_RESIDENT {schedule.resident}"] if schedule.resident else []),
        '#include "tile.h"',
        f"struct Args {{ {fields} }};",
        f"enum {{ TX = {tx}, TY = {ty}, V = {schedule.width}, "
        f"C = {schedule.chunks if device else 1}"
        f"{f', S = {schedule.stages}' if schedule.stages else ''} }};",
        "TA_KERNEL(NAME, Args) {",
        "  TA_BLOCKS(block)",
    ]
    blocks = schedule.blocks + border_blocks(kernel, device=device)
    return Program("\n".join([*head, *printer.lines, "}", ""]), list(printer.slots.values()),
                   blocks, tx * ty, schedule.scratch_bytes, schedule.shared_bytes,
                   schedule.shared_limit)


def _accesses(kernel: Kernel) -> list[Strided]:
    return [*kernel.loads.values(), *(store.access for store in kernel.stores),
            *kernel.positions.values()]


def _print_blocks(printer: Printer) -> None:
    """Write which rows and lanes a block has, and what it does with each row."""
    schedule = printer.schedule
    printer.put("idx t = block;")
    if not schedule.lane.reduced:
        tiles = printer.size("lane_blocks", lane_blocks(schedule))
        printer.put(f"const idx lane_block = t % {tiles}; t /= {tiles};")
        extent = printer.extent(len(printer.axes) - 1)
        tile = printer.size("lane_tile", schedule.lane_tile)
        if schedule.phase:
            modulus, terms = schedule.phase
            phase = printer.arg(Slot("phase", "phase", "idx", number=modulus, offset=terms))
            printer.put(f"const Range js = shifted(lane_block, {tile}, {extent}, {phase});")
        else:
            printer.put(f"const Range js = piece(lane_block, {tile}, {extent});")
    if schedule.splits > 1:
        splits = printer.size("splits", schedule.splits)
        printer.put(f"const idx split = t % {splits}; t /= {splits};")
    printer.rows()
