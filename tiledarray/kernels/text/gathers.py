"""Reads at computed places, as a `Printer` writes them: as far from a pointer as a place says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tiledarray.fusion.ir import Cell


def gathered(printer: Any, cell: Cell, u: int, *, lanes: bool) -> str:
    """Return the read for row ``u``, of each lane or of what is the same for all."""
    access, name = printer.kernel.loads[cell], f"p_{cell.number}"
    offset = printer._lane_offset(name, access) if lanes else "0"
    if lanes and cell in printer.pointed:
        return f"g_{cell.number}{printer._suffix(u)}[{offset}]"
    place = _distance(printer, cell, printer.name(cell.args[0], u))
    return f"{_pointer(printer, cell, u)}[{place} + {offset}]"


def point_at_rows(printer: Any, cells: Iterable[Cell]) -> None:
    """Declare where the lanes of a chunk are read from, where that is one place for all of them.

    Compilers make vectors of what they then see to lie side by side, and of nothing else.
    """
    found = [cell for cell in cells if cell.kind == "gather" and _has_one_place(printer, cell)]
    printer.pointed = set(found)
    for cell in found:
        place = cell.args[0]
        for u in printer._copies(cell):
            at = (printer._load(place, u, lanes=True) if printer._is_inner(place)
                  else printer.name(place, u))
            printer.put(f"const auto g_{cell.number}{printer._suffix(u)} = "
                        f"{_pointer(printer, cell, u)} + {_distance(printer, cell, at)};")


def _has_one_place(printer: Any, cell: Cell) -> bool:
    """Whether the lanes of a chunk have one place, which is known before them."""
    place, lane = cell.args[0], frozenset(printer.schedule.lane.domain)
    if place.kind != "load" or place.axes & lane or printer.kernel.loads[cell].wrap:
        return False
    return not (printer.device and printer._is_inner(place))  # it may be brought by vectors


def _pointer(printer: Any, cell: Cell, u: int) -> str:
    """The pointer of a row, from which places count."""
    many = len(printer._copies(access=printer.kernel.loads[cell])) > 1
    return f"p_{cell.number}{f'_{u}' if many else ''}"


def _distance(printer: Any, cell: Cell, place: str) -> str:
    """Elements from there to a place; places from the end are negative."""
    stride, size = cell.along
    found = f"place_in({place}, {printer.size(f'zp_{cell.number}', size)})"
    return f"{found} * {printer.size(f'sp_{cell.number}_at', stride)}"
