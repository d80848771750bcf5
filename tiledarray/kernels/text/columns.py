"""Kernels that keep the lanes and reduce along steps: every column to one element."""

from __future__ import annotations

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.schedule.blocks import once_a_column
from tiledarray.fusion.schedule.instructions import cost_of, pairs
from tiledarray.fusion.schedule.place import reductions, scans
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.printer import UNROLLED, UNROLLED_PAIRS
from tiledarray.kernels.text.reduction import ReductionPrinter


class ColumnPrinter(ReductionPrinter):
    """Each lane has accumulators of its own."""

    staged_place = "place"
    alone = False

    def walk(self) -> None:
        """Every row by all threads."""
        self._declare_staged("TA_STAGED_STEPS")
        with self.block("TA_EVERY_ROW(row, rows)"):
            self.row()

    def body(self) -> None:
        """Pass after pass over the steps."""
        cells = self.kernel.cells
        self.alone = self.device and pairs(self.kernel)
        if self.alone:
            self.lane = "(j + v * TX)"
        self.arrays = {
            cell for cell in cells if cell.phase > 0 and not cell.axes & self.step_axes
            and cell.kind in ("apply", "reduce", "load")
        }
        ahead = self._ahead()
        self.arrays.update(ahead)
        if self.schedule.splits > 1:
            tiles = self.schedule.rows * (-(-self.schedule.lane.size // self.schedule.lane_tile))
            self.arg(Slot("counters", "arrived", "unsigned*", number=tiles))
        walk = "spread_columns" if self.alone else "columns"
        with self.block(f"{walk}<TX, V>(js, [&](const idx j, const auto w) TA_LAMBDA", "});"):
            for cell in cells:
                if cell in self.arrays:  # in a step, lanes past the end are computed with as well
                    nothing = " = {}" if self.alone and cell in ahead else ""
                    self.put(f"{ctype(cell.dtype)} x_{cell.number}[V]{nothing};")
            if ahead:
                with self._each():
                    self._define_columns(ahead)
            for number in range(1, self.kernel.group.phases + 1):
                self._column_pass(number)
            self._column_stores()

    def _ahead(self) -> list[Cell]:
        """What no step changes is loaded once: where nothing streams, or where there is room.

        On the host, if lanes read it far apart.
        """
        if not pairs(self.kernel):
            return [cell for cell in once_a_column(self.kernel) if self.needed[cell]
                    ] if self.device else []
        return [cell for cell in self.kernel.cells
                if cell.kind == "load" and cell.phase == 0 and self._is_inner(cell)
                and not cell.axes & self.step_axes
                and (self.alone or self.kernel.loads[cell].strides[-1] != 1)]

    def _column_pass(self, number: int) -> None:
        self.at = number
        sinks = reductions(self.kernel.cells, number)
        for cell in sinks:
            self.put(f"ColumnAccumulator<{self._reducer(cell)}, V> r_{cell.number};")
        for cell in scans(self._pass_cells(number)):
            self.put(f"ColumnScan<{self._scanner(cell)}, {ctype(cell.dtype)}, V> "
                     f"{self._running(cell)};")
        first, *rest = [k for k, axis in enumerate(self.axes) if axis.role == "step"]
        limit = UNROLLED_PAIRS if self.schedule.scanned else UNROLLED
        together = 1 if rest else self._together(number, limit)
        if self.alone and not rest:
            cost = self.schedule.width * max(1, cost_of(self._pass_cells(number)))
            together = next(n for n in (4, 2, 1) if n * cost <= UNROLLED_PAIRS or n == 1)
        whole = self.alone or any(number in self.needed[cell] for cell in self.kernel.staged)
        if whole:  # steps without a branch; threads past the end have nothing to do in them
            self.put("if (w) {")
            self.put("const Count<V> w{};")
        self._tried(number, sinks, lambda together: self._steps(
            number, first, rest, together, sinks), together)
        if whole:
            self.put("}")
        for cell in sinks:
            self.put(f"r_{cell.number}.template finish<TX, TY>();")
        if self.schedule.splits > 1 and sinks:
            self._merge_columns(sinks)
        with self._each():
            for cell in sinks:
                self.put(f"x_{cell.number}[v] = {self._reducer(cell)}::template "
                         f"value<{ctype(cell.dtype)}>(r_{cell.number}.total[v]);")
            self._column_cells(number)

    def _steps(self, number: int, first: int, rest: list[int], together: int,
               sinks: list[Cell]) -> None:
        """The loops over steps."""
        with (self._usual_scalars(number),
              self._loads_ahead(number, 1, f"k_{first}",
                                not (rest or self.schedule.scanned) and together == 1) as ahead,
              self.block(self._step_loop(number, first, together, ahead),
                         "}, " + self._flush(sinks) + ");")):
            for k in rest:
                self.put(f"for (idx k_{k} = 0; k_{k} < {self.extent(k)}; ++k_{k}) {{")
                self.depth += 1
            self._lane_body(number, guarded=True)
            for _ in rest:
                self.depth -= 1
                self.put("}")

    def _scan(self, cell: Cell, u: int) -> str:
        """Scans along the steps: the next element of each column."""
        (step,) = (k for k, axis in enumerate(self.axes) if axis.scanned)
        return f"{self._running(cell)}.next(v, k_{step} == 0, {self._scan_input(cell, u)})"

    def _step_loop(self, number: int, axis: int, together: int, ahead: str) -> str:
        """The loop over steps; staged loads are asked for some steps ahead."""
        steps = self._range(axis)
        if ahead:
            return (f"steps_ahead<TX, TY, 1, {ahead}>({steps}, fetch_{number}, "
                    f"[&](const idx k_{axis}, const {ahead}& now) TA_LAMBDA")
        staged = [cell for cell in self.kernel.staged if number in self.needed[cell]]
        if not staged:
            return f"steps<TX, TY, {together}>({steps}, [&](const idx k_{axis}) TA_LAMBDA"
        with self.block(f"const auto fetch_{number} = "
                        f"[&](const idx k_{axis}, const idx place) TA_LAMBDA", "};"):
            self._fetch(staged)
        return (f"staged_steps<TX, TY, V, S>({steps}, fetch_{number}, "
                f"[&](const idx k_{axis}, const idx place) TA_LAMBDA")

    def _column_cells(self, phase: int) -> None:
        """Cells per column, after the pass that made them known; plain ones ahead of them."""
        wanted = [cell for cell in self.kernel.cells if cell in self.arrays
                  and cell.phase == phase and cell.kind != "reduce"]
        below: set[Cell] = set()
        for cell in reversed(self.kernel.cells):
            if cell in wanted or cell in below:
                below |= {arg for arg in cell.args if arg.phase == 0 and arg.kind != "param"
                          and self._is_inner(arg) and arg not in self.arrays}
        self._define_columns([cell for cell in self.kernel.cells
                              if cell in below or cell in wanted])

    def _define_columns(self, cells: list[Cell]) -> None:
        self.pointed = set()
        self._bundle_loads(cells)
        for cell in cells:
            self._define_column(cell)

    def _define_column(self, cell: Cell) -> None:
        if cell.kind == "load":
            access = self.kernel.loads[cell]
            source = self._load(cell, 0, lanes=True) if cell in self.bundled else (
                f"p_{cell.number}[{self._lane_offset(f'p_{cell.number}', access)}]")
            target = f"x_{cell.number}[v] =" if cell in self.arrays else (
                f"{ctype(cell.dtype)} c_{cell.number} =")
            self.put(f"{target} {source};")
        else:
            self._define(cell, lanes=True)

    def _merge_columns(self, sinks: list[Cell]) -> None:
        lanes = self.schedule.lane.size
        rows = self.schedule.rows
        lane = "v * TX" if self.alone else "v"
        apart = ", TX" if self.alone else ""
        for cell in sinks:
            parts = self._parts(cell, rows * lanes)
            total = f"{self._reducer(cell)}::Total"
            self.put(f"{total}* const parts_{cell.number} = ({total}*){parts} + "
                     f"row * a.splits * {self.extent(len(self.axes) - 1)} + j;")
            self.put(f"TA_FIRST TA_EACH(v, w) parts_{cell.number}[split * "
                     f"{self.extent(len(self.axes) - 1)} + {lane}] = r_{cell.number}.total[v];")
        self.put("if (!last_to_arrive(a.arrived + row * a.lane_blocks + lane_block, a.splits)) "
                 "return;")
        for cell in sinks:
            self.put(f"r_{cell.number}.template restore<TX, TY{apart}>(parts_{cell.number}, "
                     f"{self.extent(len(self.axes) - 1)}, a.splits, w);")
            self.put(f"r_{cell.number}.template finish<TX, TY>();")

    def _column_stores(self) -> None:
        stores = [(k, s) for k, s in enumerate(self.kernel.stores) if s.sink.level == "row"]
        if not stores:
            return
        with self.block("TA_FIRST TA_EACH(v, w)"):
            plain = [s.sink.cell for _, s in stores if s.sink.cell not in self.arrays]
            self._define_columns(self._closure(plain))
            for k, store in stores:
                offset = self._lane_offset(f"q_{k}", store.access)
                self.put(f"q_{k}[{offset}] = {self._stored(store)};")

    def _closure(self, cells: list[Cell]) -> list[Cell]:
        """Per-column cells of phase 0 below some sinks, inputs first."""
        found = set(cells)
        for cell in reversed(self.kernel.cells):
            if cell in found:
                found |= {arg for arg in cell.args if arg not in self.arrays}
        return [cell for cell in self.kernel.cells
                if cell in found and cell.kind != "param" and self._is_inner(cell)]
