"""Rows that are reduced, and what they become reduced over all of them, in one kernel.

Each block leaves its part, and the last one puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Store
from tiledarray.fusion.schedule.instructions import ACROSS_WORDS, words
from tiledarray.fusion.schedule.place import across
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.reduction import TOTAL_BYTES
from tiledarray.kernels.text.rows import RowPrinter


class AcrossPrinter(RowPrinter):
    """Row after row; what all rows are reduced to is put together behind them."""

    held = True
    here = "if (here) "

    def walk(self) -> None:
        """Write the loop over the block's rows, and what comes of all of them."""
        found = across(self.kernel.cells)
        far = self.kernel.totals
        for cell in found:
            self._declare_across(cell)
        self.put("int since = 0;")
        self._read_once()
        with self._rows_ahead():
            self.row()
            for cell in found:
                if not cell.axes:
                    self.put(f"TA_ONCE if (here) {self._addition(cell, f'r_{cell.number}', '0')}")
            with self.block("if (++since == LEAF)"):
                self._each_across(found, "flush();")
                self.put("since = 0;")
        self._each_across([cell for cell in found if cell not in far], "flush();")
        for cell in far:
            columns = f"r_{cell.number}"
            self.put(f"ColumnAccumulator<{self._reducer(cell)}, V> {columns}[C];")
            self.put(f"{self._leaves(cell)}.take({columns});")
        self._each_across(found, "template finish<TX, TY>();", done=True)
        self._merge_across(found)
        for k, store in enumerate(self.kernel.stores):
            if store.sink.level == "across":
                self._store_across(k, store)

    def _declare_across(self, cell: Cell) -> None:
        """Declare the accumulator of what all rows are reduced to."""
        reducer = self._reducer(cell)
        if cell in self.kernel.totals:
            self.put(f"ChunkedLeaves<{reducer}, V, C, TX * TY> {self._leaves(cell)}("
                     f"{self.kernel.totals[cell]});")
        else:
            width, chunks = ("V", "[C]") if cell.axes else ("1", "")
            self.put(f"ColumnAccumulator<{reducer}, {width}> {self._leaves(cell)}{chunks};")

    def _leaves(self, cell: Cell) -> str:
        """Name of what leaves are added to, of what all rows are reduced to."""
        return f"{'leaves' if cell in self.kernel.totals else 'r'}_{cell.number}"

    def _each_across(self, cells: list[Cell], call: str, *, done: bool = False) -> None:
        """Write a call of each accumulator of what all rows are reduced to; or of all totals."""
        for cell in cells:
            if cell in self.kernel.totals and not done:
                self.put(f"{self._leaves(cell)}.{call}")
            else:
                chunks = "TA_CHUNKS(c) " if cell.axes else ""
                self.put(f"{chunks}r_{cell.number}{'[c]' if cell.axes else ''}.{call}")

    # ---- rows that are read ahead ------------------------------------------------------------

    def _read_once(self) -> None:
        """Load what all rows share, where a thread has registers for it, and choose what is ahead.

        With the row that a thread computes it has the next one under way: what memory takes to
        answer is longer than the work of a row.
        """
        lanes = [cell for cell in self._reads(self._pass_cells(1), 1)
                 if cell not in self.bundled and self.kernel.loads[cell].strides[-1] == 1]
        rows = [k for k, axis in enumerate(self.axes) if axis.role == "row"]
        shared = [cell for cell in lanes
                  if not any(self.kernel.loads[cell].strides[k] for k in rows)]
        ahead = [cell for cell in lanes if cell not in shared and self._is_constant(cell)]
        own = 2 * sum(words(cell.dtype) for cell in ahead) + sum(
            words(cell.dtype) for cell in self.kernel.cells if cell.held and cell not in ahead)
        own += sum(words(cell.dtype) * (1 if cell in self.kernel.totals else 3)
                   for cell in across(self.kernel.cells) if cell.axes)
        once = sum(words(cell.dtype) for cell in shared)
        elements = self.schedule.chunks * self.schedule.width
        if not ahead or own * elements > ACROSS_WORDS:
            return
        self.fetched = {*ahead, *(
            cell for cell in self.kernel.cells if cell.kind == "load" and cell.phase == 0
            and not self._is_inner(cell) and any(self.kernel.loads[cell].strides)
            and self._is_constant(cell))}
        if shared and (own + once) * elements <= ACROSS_WORDS:
            self.once = set(shared)
            for cell in shared:
                self.put(f"Loaded<{ctype(self.kernel.loads[cell].value.dtype)}, V> "
                         f"once_{cell.number}[C];")
            with self.block(""):
                self._row_pointers(self.once)
                with self._each_chunk():
                    for cell in shared:
                        self.put(f"once_{cell.number}[c] = {self._chunk_load(cell)};")

    def _is_constant(self, cell: Cell) -> bool:
        """Whether nothing writes what a load reads."""
        return not self._is_written(self.kernel.loads[cell])

    @contextmanager
    def _rows_ahead(self) -> Iterator[None]:
        """Write the loop over a block's rows, and how the next row is read."""
        # All threads go as many turns: those of a warp exchange what they have.
        loop = "for (idx first = rows.begin; first < rows.end; first += TY)"
        if self.fetched:
            self._fetch_rows()
            self.put("Ahead next;")
            self.put("fetch(min_idx(rows.begin + ty, rows.end - 1), next);")
        with self.block(loop):
            self.put("const bool here = first + ty < rows.end;")
            self.put("const idx row = here ? first + ty : rows.end - 1;")
            if self.fetched:
                self.put("const Ahead now = next;")
                self.put("fetch(min_idx(first + TY + ty, rows.end - 1), next);")
            yield
        self.fetched, self.once = set(), set()

    def _fetch_rows(self) -> None:
        """Write what is read of a row ahead, and how."""
        cells = sorted(self.fetched, key=lambda cell: cell.number)
        with self.block("struct Ahead", "};"):
            for cell in cells:
                kind = ctype(self.kernel.loads[cell].value.dtype)
                self.put(f"Loaded<{kind}, V> l_{cell.number}[C];" if self._is_inner(cell)
                         else f"{kind} c_{cell.number};")
        with self.block("const auto fetch = [&](const idx row, Ahead& next) TA_LAMBDA", "};"):
            self._row_indices()
            self._row_pointers(self.fetched)
            for cell in cells:
                if not self._is_inner(cell):
                    self.put(f"next.c_{cell.number} = p_{cell.number}[0];")
            with self._each_chunk():
                for cell in cells:
                    if self._is_inner(cell):
                        self.put(f"next.l_{cell.number}[c] = {self._chunk_load(cell)};")

    def _each_chunk(self) -> AbstractContextManager[None]:
        """Write a loop over a thread's chunks of a row: ``j`` is the first lane of each."""
        return self.block("each_chunk<TX, V, C>("
                          f"{self.extent(len(self.axes) - 1)}, "
                          "[&](const idx j, const int w, const int c) TA_LAMBDA", "});")

    def _chunk_load(self, cell: Cell) -> str:
        name = f"p_{cell.number}"
        return f"load<V>({name} + {self._chunk_offset(name, self.kernel.loads[cell])}, w)"

    def _load(self, cell: Cell, u: int, lanes: bool) -> str:
        if cell in self.once:
            return f"once_{cell.number}[c][v]"
        if cell in self.fetched:
            return f"now.l_{cell.number}[c][v]" if lanes else f"now.c_{cell.number}"
        return super()._load(cell, u, lanes)

    def _addition(self, cell: Cell, accumulator: str, lane: str) -> str:
        loop = self._accumulate(cell)
        values = ", ".join(f"cast<{ctype(loop)}>({self.operand(value, loop)})"
                           for value in self._addends(cell))
        return f"{accumulator}.add({lane}, {values}, 0);"

    def _merge_across(self, cells: list[Cell]) -> None:
        """Leave each block's part; the last block goes on with all of them."""
        count = self.size("row_blocks", self.schedule.blocks)
        lane = len(self.axes) - 1
        for cell in cells:
            length, number = (self.extent(lane), cell.number) if cell.axes else ("1", cell.number)
            size = self.schedule.blocks * (self.schedule.lane.size if cell.axes else 1)
            parts = self.arg(Slot("scratch", f"w_{number}", "void*", number=size * TOTAL_BYTES))
            total = f"{self._reducer(cell)}::Total*"
            self.put(f"{total} const parts_{number} = ({total}){parts};")
            leave = f"leave_part<TX, V>(r_{number}, parts_{number} + {self.block_number()} * "
            if cell.axes:
                self.put(f"{leave}{length}, {length});")
            else:
                self.put(f"TA_FIRST TA_ONCE parts_{number}[{self.block_number()}] = "
                         f"r_{number}.total[0];")
        counters = self.arg(Slot("counters", "arrived", "unsigned*", number=1))
        self.put(f"if (!last_to_arrive({counters}, {count})) return;")
        for cell in cells:
            number = cell.number
            if cell.axes:
                self.put(f"take_parts<TX, TY, V>(r_{number}, parts_{number}, "
                         f"{self.extent(lane)}, {count});")
            else:
                self.put(f"r_{number}.template restore<TX, TY>(parts_{number}, 1, {count}, 1);")
        self._each_across(cells, "template finish<TX, TY>();", done=True)

    def _store_across(self, k: int, store: Store) -> None:
        """Store what all rows were reduced to, by one row of threads."""
        cell, access = store.sink.cell, store.access
        kind = ctype(access.value.dtype)
        base = self.arg(Slot("pointer", f"q_{k}", f"{kind}*", value=access.value,
                             offset=access.offset))
        value = f"{self._reducer(cell)}::template value<{ctype(cell.dtype)}>"
        if not cell.axes:
            self.put(f"TA_FIRST TA_ONCE {base}[0] = {value}(r_{cell.number}.total[0]);")
            return
        stride = access.strides[-1]
        place = "j" if stride == 1 else f"j * {self._stride(f'q_{k}', 0, stride)}"
        self.put(f"TA_FIRST each_across<TX, V>(r_{cell.number}, "
                 f"{self.extent(len(self.axes) - 1)}, [&](const idx j, const auto& all) "
                 f"TA_LAMBDA {{ {base}[{place}] = {value}(all); }});")

    def _accumulations(self, sinks: list[Cell], reduced: dict[str, str]) -> None:
        super()._accumulations(sinks, reduced)
        for cell in across(self.kernel.cells):
            if cell.axes and cell.phase == self.at:
                self.put(self._addition(cell, f"{self._leaves(cell)}[c]", "v"))

    def _range(self, axis: int) -> str:
        if self.axes[axis].role == "lane":
            return f"Range{{0, here ? {self.extent(axis)} : 0}}"
        return super()._range(axis)
