"""The printer: a scheduled kernel as the text of a tile program, and what to bind to it.

The text is the same for both compilers but for the constants at its top.  It never contains a
size, a stride other than 0 or 1, an offset or a scalar: those are fields of ``Args``, so a new
shape or a new scalar reuses the binary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tiledarray.fork import importing
from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.ir import Size
from tiledarray.fusion.plan import Kernel
from tiledarray.fusion.schedule.blocks import lane_blocks
from tiledarray.fusion.tiles.kernel import TileKernel
from tiledarray.kernels.text.across import AcrossPrinter
from tiledarray.kernels.text.beside import Part, print_together
from tiledarray.kernels.text.border import border_blocks, print_border
from tiledarray.kernels.text.columns import ColumnPrinter
from tiledarray.kernels.text.layout import Program, Slot
from tiledarray.kernels.text.maps import MapPrinter
from tiledarray.kernels.text.mirrors import MirrorPrinter
from tiledarray.kernels.text.printer import Printer
from tiledarray.kernels.text.rows import RowPrinter
from tiledarray.kernels.text.scans import ScanPrinter
from tiledarray.kernels.text.tiles import print_tiles

__all__ = ["Program", "Slot", "print_kernel"]

NARROW = (1 << 31) - (1 << 26)  # 32-bit indices may overshoot what they count by a tile or a share


FORMS: dict[str, type[Printer]] = {
    "map": MapPrinter, "row": RowPrinter, "column": ColumnPrinter, "scan": ScanPrinter,
}


def print_kernel(kernel: Kernel, *, device: bool) -> Program:
    """Return a kernel's tile program for the device or the host compiler."""
    if isinstance(kernel, TileKernel):
        return print_tiles(kernel, device=device)
    if kernel.form == "stream":
        with importing:  # of no use on the host
            from tiledarray.kernels.text.streams import print_stream
        return print_stream(kernel)  # type: ignore[arg-type]
    if isinstance(kernel, ChainKernel):
        with importing:
            from tiledarray.kernels.text.chains import print_chain
            from tiledarray.kernels.text.walks import print_walk
        return print_chain(kernel) if kernel.walk is None else print_walk(kernel)
    parts = [_part(part, device=device) for part in kernel.parts]
    wide = sum(part.blocks for part in parts) >= NARROW or any(
        count >= NARROW for part in kernel.parts for count in _counts(part))
    resident = min(part.schedule.resident for part in kernel.parts)
    head = [
        f"using idx = {'int' if device and not wide else 'long long'};",
        *([f"#define TA_RESIDENT {resident}"] if resident else []),
        '#include "tile.h"',
    ]
    first, *others = parts
    lines, slots = print_together(parts) if others else (
        [first.struct("Args"), first.constants, "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(block)",
         *first.lines, "}", ""], first.slots)
    tx, ty = kernel.schedule.threads
    return Program("\n".join([*head, *lines]), slots, sum(part.blocks for part in parts),
                   tx * ty, max(part.schedule.scratch_bytes for part in kernel.parts),
                   max(part.schedule.shared_bytes for part in kernel.parts),
                   max(part.schedule.shared_limit for part in kernel.parts))


def _part(kernel: Kernel, *, device: bool) -> Part:
    """What the blocks of one kernel of a launch do."""
    schedule = kernel.schedule
    printer: Printer
    if kernel.mirrors:
        printer = MirrorPrinter(kernel, device=device)
        printer.blocks()
    else:
        form = AcrossPrinter if schedule.across else FORMS[schedule.form]
        printer = form(kernel, device=device)
        if kernel.border is not None:
            print_border(printer, kernel.border)
        _print_blocks(printer)
    tx, ty = schedule.threads
    constants = (f"enum {{ TX = {tx}, TY = {ty}, V = {schedule.width}, "
                 f"C = {schedule.chunks if device else 1}"
                 f"{f', S = {schedule.stages}' if schedule.stages else ''} }};")
    blocks = schedule.blocks + border_blocks(kernel, device=device)
    return Part(list(printer.slots.values()), constants, printer.lines, blocks, tx * ty)


def _counts(kernel: Kernel) -> Iterator[int]:
    """What indices of a kernel count: bytes of arrays, axes, and the products that are formed."""
    schedule = kernel.schedule
    accesses = [*kernel.loads.values(), *(store.access for store in kernel.stores),
                *kernel.positions.values()]
    yield from (access.value.nbytes for access in accesses)
    yield from (axis.size for axis in schedule.axes)
    yield schedule.rows
    if schedule.splits > 1:  # places of the parts that blocks leave for the last
        yield schedule.rows * schedule.splits * (
            1 if schedule.lane.reduced else schedule.lane.size)
    params: list[Any] = [cell.value for cell in kernel.cells if cell.kind == "param"]
    yield from (param.count for param in params if isinstance(param, Size))


def _print_blocks(printer: Printer) -> None:
    """Write which rows and lanes a block has, and what it does with each row."""
    schedule = printer.schedule
    printer.put(f"idx t = {printer.block_number()};")
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
