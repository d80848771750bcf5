"""The border of an update that is not done in place: blocks of their own copy or fill it."""

from __future__ import annotations

import numpy as np

from tiledarray.fusion.ir import dense_strides
from tiledarray.fusion.plan import Border, Kernel
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.printer import Printer

BORDER_TILE = 8192
BORDER_ELEMENTS = 65536
NARROW = 16  # elements left of a row, so that one thread copies them
BORDER_ROWS = 16  # of a block on a GPU: those that are copied whole go one after the other ...
NARROW_ROWS = 64  # ... unless most have little left


def border_blocks(kernel: Kernel, *, device: bool) -> int:
    """How many blocks copy the border."""
    border = kernel.border
    if border is None:
        return 0
    tile, height = _tile(kernel, border, device=device)
    return -(-border.sizes[-1] // tile) * -(-_rows(border) // height)


def _rows(border: Border) -> int:
    return int(np.prod(border.sizes[:-1], dtype=np.int64))


def _tile(kernel: Kernel, border: Border, *, device: bool) -> tuple[int, int]:
    """Lanes and rows of a block."""
    if device:
        tx, ty = kernel.schedule.threads
        narrow = border.sizes[-1] - border.extents[-1] <= NARROW
        return tx * ty * 16, NARROW_ROWS if narrow else BORDER_ROWS
    return BORDER_TILE, max(1, BORDER_ELEMENTS // max(border.sizes[-1], 1))


def print_border(printer: Printer, border: Border) -> None:
    """Write what the first blocks do, those before the kernel's own."""
    kernel = printer.kernel
    tile, height = _tile(kernel, border, device=printer.device)
    lanes = border.sizes[-1]
    kind = ctype(border.old.dtype)
    if border.fill is None:
        old = printer.arg(Slot("pointer", "border_from", f"const {kind}*", value=border.old))
        source = f"Constant<{kind}>({old})"
    else:
        value = printer.operand(border.fill, border.old.dtype)
        source = f"Filled<{kind}>{{cast<{kind}>({value})}}"
    target = printer.arg(Slot("pointer", "border_to", f"{kind}*",
                              value=kernel.stores[0].access.value))
    first = printer.size("border_blocks", border_blocks(kernel, device=printer.device))
    with printer.block(f"if (block < {first})"):
        blocks = printer.size("border_lane_blocks", -(-lanes // tile))
        printer.put(f"const idx t = block / {blocks};")
        length = printer.size("border_lanes", lanes)
        printer.put(f"const Range js = piece(block % {blocks}, "
                    f"{printer.size('border_tile', tile)}, {length});")
        printer.put(f"const Range rows = piece(t, {printer.size('border_height', height)}, "
                    f"{printer.size('border_rows', _rows(border))});")
        begin = printer.size("border_begin", 0, border.starts[-1])
        end = printer.size("border_end", border.extents[-1], border.starts[-1])
        printer.put(f"const Range left{{js.begin, min_idx(js.end, {begin})}};")
        printer.put(f"const Range right{{max_idx(js.begin, {end}), js.end}};")
        tests = " && ".join(_inside(printer, border)) or "true"
        printer.put(f"copy_around<TX * TY, {NARROW}>({target}, {source}, {length}, rows,")
        printer.put("            js, left, right,")
        printer.put(f"            [&](const idx row) TA_LAMBDA {{ return {tests}; }});")
        printer.put("return;")


def _inside(printer: Printer, border: Border) -> list[str]:
    """Conditions under which a row passes through the region, one for each axis but the last."""
    tests = []
    strides = dense_strides(border.sizes[:-1])
    for d, (size, stride) in enumerate(zip(border.sizes[:-1], strides, strict=True)):
        inner = d == len(strides) - 1
        at = "row" if inner else f"(row / {printer.size(f'border_step_{d}', stride)})"
        if d:
            at = f"({at} % {printer.size(f'border_n_{d}', size)})"
        begin = printer.size(f"border_begin_{d}", 0, border.starts[d])
        count = printer.size(f"border_count_{d}", border.extents[d])
        tests.append(f"{at} - {begin} >= 0 && {at} - {begin} < {count}")
    return tests
