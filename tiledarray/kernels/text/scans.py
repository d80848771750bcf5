"""Kernels that scan along the lanes, beside whatever they reduce along them."""

from __future__ import annotations

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel, Store
from tiledarray.fusion.schedule.place import reductions, scans
from tiledarray.fusion.schedule.scans import Stages, stages_of
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.rows import RowPrinter

TOTAL_BYTES = 24  # no total of a scan is larger
SUPER = 32  # tiles whose totals one warp adds up


class ScanPrinter(RowPrinter):
    """Stage after stage: what a scan is made of, the scan, what is made of that."""

    def __init__(self, kernel: Kernel, *, device: bool) -> None:
        super().__init__(kernel, device=device)
        self.kept: set[Cell] = set()
        self.looks_back = device and self.schedule.splits > 1

    def name(self, cell: Cell, u: int = 0) -> str:
        """Name of a cell's value for row ``u``."""
        if cell not in self.kept:
            return super().name(cell, u)
        return f"{self._array(cell, u)}[{'c * V + v' if self.device else 'v'}]"

    def _array(self, cell: Cell, u: int) -> str:
        return f"x_{cell.number}{f'_{u}' if len(self._copies(cell)) > 1 else ''}"

    # ---- blocks ------------------------------------------------------------------------------

    def block_number(self) -> str:
        """Blocks that wait for those before them are numbered as they start."""
        if not self.looks_back:
            return super().block_number()
        return f"next_in_order({self._counters()} + {self.size('rows', self.schedule.rows)})"

    def walk(self) -> None:
        """Write the loop over the block's rows, and what the last block of all cleans up."""
        super().walk()
        if self.looks_back:
            rows, splits = self.schedule.rows, self.schedule.splits
            count = self.size("flags", self._scans() * rows * (splits + -(-splits // SUPER)))
            self.put(f"clear_flags<TX>({self._counters()} + a.rows, {count}, "
                     f"{self.size('tiles', rows * splits)});")

    def _scans(self) -> int:
        return len(scans(self.kernel.cells))

    def _counters(self) -> str:
        """Counters of rows' reductions, of blocks started and done, and the flags of tiles."""
        rows, splits = self.schedule.rows, self.schedule.splits
        flags = self._scans() * rows * (splits + -(-splits // SUPER))
        return self.arg(Slot("counters", "arrived", "unsigned*", number=rows + 2 + flags))

    def _look_back(self, cell: Cell) -> str:
        """Where a tile's total is left, and those of the tiles before it are found."""
        rows, splits = self.schedule.rows, self.schedule.splits
        supers = -(-splits // SUPER)
        place = scans(self.kernel.cells).index(cell)
        parts = self.arg(Slot("scratch", f"w_{cell.number}", "void*",
                              number=rows * (splits + 2 * supers) * TOTAL_BYTES))
        count = self.size("supers", supers)
        return (f"LookBack<{self._scanner(cell)}>({self._counters()} + a.rows + 2 + "
                f"({place} * a.rows + row) * (a.splits + {count}), {parts}, row, split, a.splits)")

    # ---- rows --------------------------------------------------------------------------------

    def body(self) -> None:
        """Pass after pass over the row."""
        self._hold()
        for number in range(1, self.kernel.group.phases + 1):
            self.at = number
            stages = stages_of(self.kernel, number, keeps_loads=self.device)
            self.kept = set(stages.kept)
            with self._accumulated(number):
                for cell in scans(stages.kept):
                    for u in self._copies(cell):
                        self.put(f"RowScan<{self._scanner(cell)}, {ctype(cell.dtype)}, V> "
                                 f"{self._running(cell, u)};")
                if self.device:
                    self._tiles(number, stages)
                else:
                    self._chunks(number, stages)
                self.kept = set()
        self._row_stores()

    def _full_stores(self, number: int) -> list[tuple[int, Store]]:
        return [(k, store) for k, store in enumerate(self.kernel.stores)
                if store.sink.level == "full" and store.sink.store_pass == number]

    def _chunks(self, number: int, stages: Stages) -> None:
        """On the host, chunk after chunk of some rows side by side."""
        lane = self.extent(len(self.axes) - 1)
        sinks = reductions(self.kernel.cells, number)
        with self.block(f"lanes<TX, V, 1>(Range{{0, {lane}}}, [&](const idx j, const auto w) "
                        "TA_LAMBDA", "}, " + self._flush_lanes(sinks) + ");"):
            self._vector_loads(self._reads(self._pass_cells(number), number), guarded=False)
            stores = self._full_stores(number)
            self._begin(stores)
            self._declare(stages, "V", "")
            for stage in range(stages.count):
                with self._each():
                    self._stage(number, stages, stage, stores)
                made = [cell for cell in scans(stages.kept) if stages.depth[cell] == stage + 1]
                if made:
                    self._in_order(made)
            self._end(stores)

    def _in_order(self, cells: list[Cell]) -> None:
        """Scan a chunk of every row, element by element."""
        names = [(self._running(cell, u), self._array(cell, u))
                 for cell in cells for u in self._copies(cell)]
        with self.block("", "}"):
            self.put("int v = 0;")
            first = " ".join(f"{scan}.begin({x}[0]);" for scan, x in names)
            self.put(f"if (j == 0) {{ {first} v = 1; }}")
            each = " ".join(f"{scan}.next({x}[v]);" for scan, x in names)
            self.put(f"for (; v < int(w); ++v) {{ {each} }}")

    def _tiles(self, number: int, stages: Stages) -> None:
        """On a GPU, tile after tile; a block that looks back has one."""
        lane = self.extent(len(self.axes) - 1)
        tile = self.schedule.threads[0] * self.schedule.width * self.schedule.chunks
        lanes = f"piece(split, {self.size('share', tile)}, {lane})" if self.looks_back else (
            f"Range{{0, {lane}}}")
        with self.block(f"tiles<TX, V, C>({lanes}, [&](const idx first, const idx end) TA_LAMBDA",
                        "});"):
            self._declare(stages, "C * V", " = {}")
            for stage in range(stages.count):
                stores = [(k, store) for k, store in self._full_stores(number)
                          if stages.depth.get(store.sink.cell, 0) == stage]
                with self.block("chunks<TX, V, C>(first, end, [&](const int c, const idx j, "
                                "const int w) TA_LAMBDA", "});"):
                    cells = self._stage_cells(number, stages, stage, stores)
                    self._vector_loads(self._reads(cells, number), guarded=True)
                    self._begin(stores)
                    with self._each():
                        self._stage(number, stages, stage, stores)
                    self._end(stores)
                for cell in scans(stages.kept):
                    if stages.depth[cell] == stage + 1:
                        back = f", {self._look_back(cell)}" if self.looks_back else ""
                        self.put(f"{self._running(cell)}.template advance<TX, C>("
                                 f"{self._array(cell, 0)}{back});")
            for cell in reductions(self.kernel.cells, number):
                self.put(f"r_{cell.number}.flush();")

    def _target(self, k: int, store: Store, u: int) -> str:
        if store.access.strides[-1] == 1:
            return super()._target(k, store, u)
        return f"q_{k}{self._suffix(u)}[{self._lane_offset(f'q_{k}', store.access)}]"

    # ---- stages ------------------------------------------------------------------------------

    def _declare(self, stages: Stages, length: str, filled: str) -> None:
        for cell in stages.kept:
            for u in self._copies(cell):
                self.put(f"{ctype(cell.dtype)} {self._array(cell, u)}[{length}]{filled};")

    def _begin(self, stores: list[tuple[int, Store]]) -> None:
        for k, store in stores:
            if store.access.strides[-1] == 1:
                offset = self._chunk_offset(f"q_{k}", store.access)
                for u in self._copies(access=store.access):
                    name = f"{k}{self._suffix(u)}"
                    self._begin_storing(store, name, f"q_{name} + {offset}")

    def _end(self, stores: list[tuple[int, Store]]) -> None:
        for k, store in stores:
            if store.access.strides[-1] == 1:
                for u in self._copies(access=store.access):
                    self.put(f"y_{k}{self._suffix(u)}.flush(w);")

    def _stage_cells(self, number: int, stages: Stages, stage: int,
                     stores: list[tuple[int, Store]]) -> list[Cell]:
        """What a stage defines, inputs first: what is new in it, and loads that are not kept."""
        wanted: set[Cell] = set()
        inputs = [cell.args[0] for cell in (
            *(c for c in stages.depth if c.kind == "scan" and stages.depth[c] == stage + 1),
            *reductions(self.kernel.cells, number))]
        inputs += [store.sink.cell for _, store in stores]
        inputs += [cell for cell in stages.kept if cell.kind != "scan"]
        wanted = {cell for cell in inputs if stages.depth.get(cell, -1) == stage}
        for cell in reversed(self.kernel.cells):
            if cell in wanted and cell.kind != "scan" and not self._is_there(cell, number) and (
                    cell not in self.kept or stages.depth[cell] == stage):
                wanted.update(arg for arg in cell.args if arg in stages.depth)
        return [cell for cell in self.kernel.cells
                if cell in wanted and cell.kind != "param"
                and (cell.kind != "scan" or self._is_there(cell, number))
                and (cell not in self.kept or stages.depth[cell] == stage)]

    def _is_there(self, cell: Cell, number: int) -> bool:
        """Whether an earlier pass has put it into scratch memory."""
        return cell.held and min(self.needed[cell]) != number

    def _stage(self, number: int, stages: Stages, stage: int,
               stores: list[tuple[int, Store]]) -> None:
        """What is done with one lane in a stage."""
        mine = [(k, store) for k, store in stores
                if stages.depth.get(store.sink.cell, 0) == stage]
        for cell in self._stage_cells(number, stages, stage, mine):
            for u in self._copies(cell):
                self._define_in_stage(cell, u, number)
        self._hold_scans(stages, stage)
        for k, store in mine:
            for u in self._copies(access=store.access):
                self.put(f"{self._target(k, store, u)} = {self._stored(store, u)};")
        self._accumulations([cell for cell in reductions(self.kernel.cells, number)
                             if stages.depth.get(cell.args[0], 0) == stage], {})
        for cell in scans(stages.kept):
            if stages.depth[cell] == stage + 1:
                for u in self._copies(cell):
                    self.put(f"{self.name(cell, u)} = {self._scan_input(cell, u)};")

    def _hold_scans(self, stages: Stages, stage: int) -> None:
        """Put scans that later passes need into scratch memory."""
        for cell in scans(stages.kept):
            if cell.held and stages.depth[cell] == stage:
                self.put(f"h_{cell.number}[TA_SLOT(j, c, v)] = {self.name(cell)};")

    def _define_in_stage(self, cell: Cell, u: int, number: int) -> None:
        if self._is_there(cell, number):
            self.put(f"{ctype(cell.dtype)} {self.name(cell, u)} = "
                     f"h_{cell.number}[TA_SLOT(j, c, v)];")
            return
        value = self._expression(cell, u, lanes=True)
        new = "" if cell in self.kept else f"{ctype(cell.dtype)} "
        self.put(f"{new}{self.name(cell, u)} = {value};")
        if cell.held:
            self.put(f"h_{cell.number}[TA_SLOT(j, c, v)] = {self.name(cell, u)};")
