"""Kernels that reduce along the lanes: every row to one element, once or in several passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.schedule.place import reductions
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.printer import UNROLLED, UNROLLED_ROWS
from tiledarray.kernels.text.reduction import ReductionPrinter


class RowPrinter(ReductionPrinter):
    """Lanes are reduced; what a later pass needs again is held on chip."""

    staged_place = "j"
    held = False  # whether a thread has its part of a row in registers, whatever is needed again
    here = ""  # the condition under which there is a row

    @property
    def one_chunk(self) -> bool:
        """Whether a step has one chunk of lanes: many steps go by until that is merged."""
        return not self.device and self.schedule.lane.size <= self.schedule.width and any(
            axis.role == "step" for axis in self.axes)

    def body(self) -> None:
        """Pass after pass over the row."""
        lane = len(self.axes) - 1
        held = self._hold() or self.held
        if self.kernel.staged:
            self._stage_row(self._range(lane))
        for number in range(1, self.kernel.group.phases + 1):
            self.at = number
            with self._accumulated(number):
                self._lanes(number, lane, held=held)
        self._row_stores()

    def _hold(self) -> bool:
        """Declare what later passes need again; whether there is any."""
        held = [cell for cell in self.kernel.cells if cell.held]
        if held:
            self.put("TA_SCRATCH")
        for cell in held:
            self.put(f"TA_HELD({ctype(cell.dtype)}, h_{cell.number}, "
                     f"{self.extent(len(self.axes) - 1)});")
        return bool(held)

    @contextmanager
    def _accumulated(self, number: int) -> Iterator[None]:
        """Write a pass around what is done with the lanes at each of its steps."""
        steps = [k for k, axis in enumerate(self.axes) if axis.role == "step"]
        sinks = reductions(self.kernel.cells, number)
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"RowAccumulator<{self._reducer(cell)}, V> r_{cell.number}"
                         f"{self._suffix(u)};")
        with ExitStack() as loops:
            for k in steps:
                self.put(f"const Range range_{k}_{number} = {self._range(k)};")
                loops.enter_context(self._each_step(k, f"range_{k}_{number}", sinks))
            yield
        self._finish_rows(sinks)
        self._scalar_cells(phase=number)

    def _each_step(self, k: int, steps: str, sinks: list[Cell]) -> AbstractContextManager[None]:
        """The loop over an axis of steps, of which the last one's make leaves if each is short."""
        if self.one_chunk and k == len(self.axes) - 2:
            return self.block(f"steps<TX, TY, 1>({steps}, [&](const idx k_{k}) TA_LAMBDA",
                              "}, " + self._flush(sinks) + ");")
        return self.block(f"for (idx k_{k} = {steps}.begin; k_{k} < {steps}.end; ++k_{k})")

    def _flush_lanes(self, sinks: list[Cell]) -> str:
        """What is done behind a leaf of the lanes."""
        return self._flush([] if self.one_chunk else sinks)

    def _lanes(self, number: int, lane: int, *, held: bool) -> None:
        """The loop over the lanes."""
        sinks = reductions(self.kernel.cells, number)
        self._tried(number, sinks, lambda together: self._lane_loop(
            number, lane, together, sinks, held=held), self._together(number, self._most()))

    def _lane_loop(self, number: int, lane: int, together: int, sinks: list[Cell], *,
                   held: bool) -> None:
        call = "held_lanes<TX, V, C>" if held else f"lanes<TX, V, {together}>"
        extra = ", const int c" if held else ""
        with (self._usual_scalars(number),
              self._loads_ahead(number, together, "j", not held) as ahead):
            fetch = ""
            if ahead:
                how = f"{max(1, together // 2)}, {ahead}"
                call = f"lanes_ahead<TX, V, {how}>"
                fetch = f"fetch_{number}, "
                extra = f", const {ahead}& now"
            with self.block(f"{call}({self._range(lane)}, {fetch}"
                            f"[&](const idx j, const auto w{extra}) TA_LAMBDA",
                            "}, " + self._flush_lanes(sinks) + ");"):
                self._lane_body(number, guarded=held)

    def _most(self) -> int:
        """Scalar computations in a loop's body: where memory does not wait, fewer turns of it."""
        return UNROLLED_ROWS if self.device and self.unroll > 1 else UNROLLED

    def _stage_row(self, lanes: str) -> None:
        """Bring the row's staged loads into shared memory."""
        self._declare_staged("TA_STAGED_ROW")
        with self.block(f"lanes<TX, V, C>({lanes}, [&](const idx j, const auto w) TA_LAMBDA",
                        "});"):
            self._fetch(self.kernel.staged)
        self.put("await_copies();")

    def _finish_rows(self, sinks: list[Cell]) -> None:
        split = self.schedule.splits > 1
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"auto total_{cell.number}{self._suffix(u)} = "
                         f"r_{cell.number}{self._suffix(u)}.template finish<TX>();")
        if split and sinks:
            self._merge_rows(sinks)
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"{ctype(cell.dtype)} {self.name(cell, u)} = {self._reducer(cell)}"
                         f"::template value<{ctype(cell.dtype)}>(total_{cell.number}"
                         f"{self._suffix(u)});")

    def _merge_rows(self, sinks: list[Cell]) -> None:
        rows = self.schedule.rows
        for cell in sinks:
            parts = self._parts(cell, rows)
            for u in self._copies(cell):
                row = f"row{self._suffix(u)}"
                total = f"{self._reducer(cell)}::Total*"
                self.put(f"{total} const parts_{cell.number}{self._suffix(u)} = "
                         f"({total}){parts} + {row} * a.splits;")
                self.put(f"TA_ONCE parts_{cell.number}{self._suffix(u)}[split] = "
                         f"total_{cell.number}{self._suffix(u)};")
        counters = self.arg(Slot("counters", "arrived", "unsigned*", number=rows))
        self.put(f"if (!last_to_arrive({counters} + row, a.splits)) continue;")
        for cell in sinks:
            for u in self._copies(cell):
                name = f"{cell.number}{self._suffix(u)}"
                self.put(f"total_{name} = merged<TX, {self._reducer(cell)}>("
                         f"parts_{name}, a.splits);")

    def _row_stores(self) -> None:
        for k, store in enumerate(self.kernel.stores):
            if store.sink.level != "row":
                continue
            for u in self._copies(access=store.access):
                many = len(self._copies(access=store.access)) > 1
                guard = f"if (row * {self.unroll} + {u} < a.rows) " if many else self.here
                suffix = f"_{u}" if many else ""
                self.put(f"TA_ONCE {guard}q_{k}{suffix}[0] = {self._stored(store, u)};")
