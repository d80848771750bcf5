"""Kernels that meet each pair of points once: a block sums over two tiles of them, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.schedule.instructions import cost_of
from tiledarray.fusion.schedule.mirrors import steps_together, total_bytes
from tiledarray.fusion.schedule.place import reductions
from tiledarray.kernels.text.columns import ColumnPrinter
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot


class MirrorPrinter(ColumnPrinter):
    """Lanes are points of one tile and steps those of another; each has accumulators."""

    def blocks(self) -> None:
        """Write which tiles a block has, and what it does with them."""
        schedule = self.schedule
        self.alone = True
        self.lane = "(j + v * TX)"
        self.size("splits", schedule.splits)
        self.size("lane_tile", schedule.lane_tile)
        self.extent(0)
        self.extent(1)
        self.arg(Slot("counters", "arrived", "unsigned*", number=schedule.splits))
        self.put("const Tiles tiles = pair_of_tiles(block);")
        self.put("const bool mirrored = tiles.first != tiles.second && "
                 "(tiles.second + 1) * a.lane_tile <= a.n_1;")
        self.put("const int orders = tiles.first == tiles.second ? 1 : 2;")
        self.row()

    def body(self) -> None:
        """The pairs of two tiles, then what is made of sums that are complete."""
        cells = self.kernel.cells
        self.at = 1
        sums = [cell for cell in reductions(cells, 1) if cell not in self.kernel.mirrors]
        ahead = self._ahead()
        self.arrays = {*ahead, *sums, *(cell for cell in cells if cell.phase > 0 and (
            cell.kind in ("apply", "load") and not cell.axes & self.step_axes))}
        for cell in sums:
            total = f"{self._reducer(cell)}::Total"
            parts = self.arg(Slot(
                "scratch", f"w_{cell.number}", "void*", number=(
                    self.schedule.splits * self.schedule.lane.size * total_bytes(cell))))
            self.put(f"{total}* const parts_{cell.number} = ({total}*){parts};")
        for cell in self.kernel.mirrors:
            self.put(f"{self._mirror(cell)} m_{cell.number};")
        with self._orders("mirrored ? 1 : orders"):
            self.put("const Range steps_of = piece(split, a.lane_tile, a.n_0);")
            with self._columns():
                self._begin_columns(ahead, sums)
                cost = cost_of(self._pass_cells(1))
                together = steps_together(self.kernel, cost)
                self.put("{")
                self.put("const Count<V> w{};")  # past the end are sums that nobody stores
                self._tried(1, [*sums, *self.kernel.mirrors],
                            lambda at_once: self._steps(1, 0, [], at_once, sums), together)
                self.put("}")
                for cell in sums:
                    self.put(f"r_{cell.number}.template finish<TX, TY>();")
                    self.put(f"TA_FIRST TA_EACH(v, w) parts_{cell.number}[split * a.n_1 + j + "
                             f"v * TX] = r_{cell.number}.total[v];")
        with self.block("if (mirrored)"):
            for cell, mirror in self.kernel.mirrors.items():
                self.put(f"m_{cell.number}.template leave<{'-' if mirror.negative else ''}1, TY>("
                         f"parts_{mirror.sum.number} + tiles.second * a.n_1 + "
                         "tiles.first * a.lane_tile);")
        with self._orders("orders"):
            self.put("if (!last_to_arrive(a.arrived + lane_block, a.splits)) continue;")
            with self._columns():
                self._begin_columns(ahead, sums)
                for cell in sums:
                    self.put(f"r_{cell.number}.template restore<TX, TY, TX>(parts_{cell.number} "
                             "+ j, a.n_1, a.splits, w);")
                    self.put(f"r_{cell.number}.template finish<TX, TY>();")
                with self._each():
                    for cell in sums:
                        self.put(f"x_{cell.number}[v] = {self._reducer(cell)}::template "
                                 f"value<{ctype(cell.dtype)}>(r_{cell.number}.total[v]);")
                    self._column_cells(1)
                self._column_stores()

    @contextmanager
    def _orders(self, count: str) -> Iterator[None]:
        """Write a loop over a block's tiles: lanes are points of the second one, then the first."""
        with self.block(f"for (int order = 0; order < ({count}); ++order)"):
            self.put("const idx lane_block = order ? tiles.first : tiles.second;")
            self.put("const idx split = order ? tiles.second : tiles.first; (void)split;")
            self.put("const Range js = piece(lane_block, a.lane_tile, a.n_1);")
            yield

    @contextmanager
    def _columns(self) -> Iterator[None]:
        with self.block("spread_columns<TX, V>(js, [&](const idx j, const auto w) TA_LAMBDA",
                        "});"):
            yield

    def _begin_columns(self, ahead: list[Cell], sums: list[Cell]) -> None:
        """Declare what lanes keep, and read what no step changes."""
        for cell in self.kernel.cells:
            if cell in self.arrays:
                nothing = " = {}" if cell in ahead else ""
                self.put(f"{ctype(cell.dtype)} x_{cell.number}[V]{nothing};")
        if ahead:
            with self._each():
                self._define_columns(ahead)
        for cell in sums:
            self.put(f"ColumnAccumulator<{self._reducer(cell)}, V> r_{cell.number};")

    def _steps(self, number: int, first: int, rest: list[int], together: int,
               sinks: list[Cell]) -> None:
        """The loop over steps, some of which are added up over the warp together."""
        gathers = " ".join(f"m_{cell.number}.template gather<TY>(k - steps_of.begin, n);"
                           for cell in self.kernel.mirrors)
        with (self._usual_scalars(number),
              self.block(f"mirrored_steps<TX, TY, {together}>(steps_of, "
                         "[&](const idx k_0, const int u) TA_LAMBDA",
                         f"}}, [&](const idx k, const auto n) TA_LAMBDA {{ {gathers} }}, "
                         f"{self._flush(sinks)});")):
            self._lane_body(number, guarded=True)

    def _accumulations(self, sinks: list[Cell], reduced: dict[str, str]) -> None:
        mirrors = [cell for cell in sinks if cell in self.kernel.mirrors]
        super()._accumulations([cell for cell in sinks if cell not in mirrors], reduced)
        for cell in mirrors:
            loop = self._accumulate(cell)
            names = [self.operand(value, loop, 0) for value in self._addends(cell)]
            values = ", ".join(f"cast<{ctype(loop)}>({reduced.get(name, name)})"
                               for name in names)
            self.put(f"m_{cell.number}.add(u, {values});")

    def _accumulator(self, cell: Cell, u: int) -> str:
        return f"{'m' if cell in self.kernel.mirrors else 'r'}_{cell.number}"

    def _wrong(self, condition: str) -> str:
        """Sums over a warp are done again by all of it."""
        return f"__any_sync(0xffffffffu, {condition})"

    def _mirror(self, cell: Cell) -> str:
        return (f"Mirror<{self._reducer(cell)}, {cell.number}, TX, TX * V, "
                f"{steps_together(self.kernel, cost_of(self._pass_cells(1)))}>")
