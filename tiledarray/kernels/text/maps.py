"""Kernels that reduce nothing: an element out for every point.

On the device loads come as windows: the lines of memory that rows computed together share.
"""

from __future__ import annotations

from collections.abc import Container

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel, Store, Window
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.printer import Printer, moved


class MapPrinter(Printer):
    """One pass over the lanes."""

    def __init__(self, kernel: Kernel, *, device: bool) -> None:
        super().__init__(kernel, device=device)
        self.windows = {cell: window for window in kernel.windows for cell in window.shifts}
        self.row_axes = [k for k, axis in enumerate(self.axes) if axis.role == "row"]
        if self.schedule.ragged:
            self.lanes = "W"

    def body(self) -> None:
        """One pass over the lanes."""
        for cell in self.kernel.cells:
            if self._is_inner(cell):
                self.needed[cell].add(1)
        call = ("ragged_lanes" if self.schedule.ragged
                else "streamed_lanes" if self.schedule.streamed else "lanes")
        with self.block(f"{call}<TX, V, C>(js, [&](const idx j, const auto w) TA_LAMBDA", "});"):
            if self.schedule.ragged:
                self.put("enum { W = decltype(w)::value };")
            if any(access.wrap for access in self.kernel.loads.values()):
                period = self.size("period", self.schedule.lane.period)
                self.put(f"const auto at = joined_rows<{self.lanes}>(j, {period});")
            self._lane_body(1, guarded=False)

    def _begin_storing(self, store: Store, name: str, place: str) -> None:
        if not self.schedule.streamed:
            super()._begin_storing(store, name, place)
            return
        self.put(f"alignas(64) {ctype(store.access.value.dtype)} b_{name}[V];")
        self.put(f"auto y_{name} = collecting({place}, b_{name});")

    # ---- rows of a plane ---------------------------------------------------------------------

    def rows(self) -> None:
        """Write which rows a block has: of the last axis alone, where they lie in a plane."""
        if not self.schedule.plane:
            super().rows()
            return
        *outer, last = self.row_axes
        side, extent = self.size("row_tile", self.schedule.row_tile), self.extent(last)
        if outer:
            tiles = self.size("row_tiles", -(-self.axes[last].size // self.schedule.row_tile))
            self.put(f"const Range rows = piece(t % {tiles}, {side}, {extent}); t /= {tiles};")
        else:
            self.put(f"const Range rows = piece(t, {side}, {extent});")
        self._indices(outer, "t")
        if not self.kernel.turned:
            self.walk()
            return
        for cell in self.kernel.turned:
            self._stage(cell)
        self.put("TA_TURNED")
        with self.block("TA_ROWS(row, rows)"):
            self.row()

    def _stage(self, cell: Cell) -> None:
        """Copy a block's tile of what runs along the last row axis."""
        access, name = self.kernel.loads[cell], f"p_{cell.number}"
        kind, side = ctype(access.value.dtype), self.schedule.row_tile
        terms = [self.arg(Slot("pointer", name, f"const {kind}*", value=access.value,
                               offset=access.offset))]
        terms += [f"i_{k} * {self._stride(name, k, access.strides[k])}"
                  for k in self.row_axes[:-1] if access.strides[k]]
        lane = len(self.axes) - 1
        self.put(f"TA_TILE({kind}, t_{cell.number}, {side}, {side});")
        source = f"static_cast<{self._pointer_type(access)}>({' + '.join(terms)})"
        self.put(f"turn<TX, TY>(t_{cell.number}, {source}, rows, js, "
                 f"{self._stride(name, lane, access.strides[lane])});")

    # ---- rows computed together --------------------------------------------------------------

    def _row_indices(self) -> None:
        if self.schedule.plane:
            self.put(f"const idx i_{self.row_axes[-1]} = row;")
        elif self.unroll == 1:
            super()._row_indices()
        else:
            self._indices(self.row_axes, "row")
        for u in range(self.unroll if self.unroll > 1 else 0):
            for k in self.row_axes:
                ahead = f" + {u}" if k == self.schedule.unrolled and u else ""
                self.put(f"const idx i_{k}_{u} = i_{k}{ahead};")

    def _indices(self, axes: list[int], number: str) -> None:
        """Write the places along some axes of rows, given the number of such a place."""
        rest = number
        for k in reversed(axes):
            unrolled = self.unroll > 1 and k == self.schedule.unrolled
            count = self.extent(k)
            if unrolled:
                count = self.size("unrolled_groups", -(-self.axes[k].size // self.unroll))
            at = rest if k == axes[0] else f"{rest} % {count}"
            rest = f"{rest} / {count}"
            if unrolled:
                # The last group ends with the last row, and stores what no other has stored.
                self.put(f"const idx first = {at} * {self.unroll};")
                at = f"min_idx(first, {self.extent(k)} - {self.unroll})"
            self.put(f"const idx i_{k} = {at};")

    def _guard(self, u: int) -> str:
        return f"if (i_{self.schedule.unrolled}_{u} >= first) " if u + 1 < self.unroll else ""

    # ---- windows -----------------------------------------------------------------------------

    def _row_pointers(self, loads: Container[Cell]) -> None:
        for window in self.kernel.windows:
            self._line_pointers(window)
        super()._row_pointers(loads)

    def _is_row_load(self, cell: Cell) -> bool:
        return (super()._is_row_load(cell) and cell not in self.windows
                and cell not in self.kernel.turned)

    def _line_pointers(self, window: Window) -> None:
        """Where each line of memory that a window's rows read begins."""
        access, name = window.access, f"p_{next(iter(window.shifts)).number}"
        pointer = self._pointer_type(access)
        kind = f"const {ctype(access.value.dtype)}*"
        base = self.arg(Slot("pointer", name, kind, value=access.value, offset=access.offset))
        for line in self._lines(window):
            terms = []
            for k in self.row_axes:
                if access.strides[k]:
                    at = f"(i_{k} + {line})" if k == self._line_axis() and line else f"i_{k}"
                    stride = access.strides[k]
                    terms.append(at if stride == 1 else f"{at} * {self._stride(name, k, stride)}")
            self.put(f"{pointer} const {self._line(window, line)} = {moved(base, terms)};")

    def _vector_loads(self, cells: list[Cell], guarded: bool) -> None:
        super()._vector_loads([cell for cell in cells if cell not in self.windows], guarded)
        for window in self.kernel.windows:
            for line, (least, most) in self._lines(window).items():
                name = self._line(window, line)
                call = (f"window<{self.lanes}, {least}, {most}>" if least or most
                        else f"load<{self.lanes}>")
                self.put(f"const auto l{name[1:]} = {call}({name} + j);")

    def _load(self, cell: Cell, u: int, lanes: bool) -> str:
        if cell in self.kernel.turned:
            return f"t_{cell.number}[row - rows.begin][j - js.begin + v]"
        if cell not in self.windows:
            return super()._load(cell, u, lanes)
        window = self.windows[cell]
        row, lane = window.shifts[cell]
        line = row + (u if self._follows_rows(window) else 0)
        at = f"v {'+' if lane > 0 else '-'} {abs(lane)}" if lane else "v"
        return f"l{self._line(window, line)[1:]}[{at}]"

    def _follows_rows(self, window: Window) -> bool:
        """Whether rows computed together read different lines."""
        return self.unroll > 1 and window.access.strides[self.schedule.unrolled] != 0

    def _line_axis(self) -> int:
        """The row axis that the lines of windows follow."""
        return self.schedule.unrolled if self.unroll > 1 else self.row_axes[-1]

    def _lines(self, window: Window) -> dict[int, tuple[int, int]]:
        return window.lines(self.unroll if self._follows_rows(window) else 1)

    def _line(self, window: Window, line: int) -> str:
        lines = list(self._lines(window))
        name = f"p_{next(iter(window.shifts)).number}"
        return f"{name}_{lines.index(line)}" if len(lines) > 1 else name
