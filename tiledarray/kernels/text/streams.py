"""Stream programs as text, for the device's compiler.

A block of threads has some rows.  Thread t of a warp has rows t / 4 and t / 4 + 8 of its 16, and of
every eight columns two: so numbers of a row are arrays of two, and a tile of scores is ``s[n][c]``.
Where there is `wgmma`, the next tile's product is under way while elementwise work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tiledarray.fusion.ir import dense_strides
from tiledarray.fusion.streams.build import EXP, MULTIPLY, QUICK_FROM, SINGLE
from tiledarray.fusion.streams.ir import EXTENT, Growth, Total
from tiledarray.fusion.streams.kernel import COPIER_REGISTERS, StreamKernel, padded
from tiledarray.fusion.tiles.ir import Apply, Expression, Read, Store, Tile, parts
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Program
from tiledarray.kernels.text.stream_singles import StreamSingles

NARROW = 1 << 30  # elements of an array that 32-bit indices can count
EMPTY = {"Max": "-infinity<f32>()", "Min": "infinity<f32>()", "Sum": "0"}
COMBINE = {"Max": "m_maximum", "Min": "m_minimum"}
OF_ROW = {"Max": "largest_of_row", "Min": "smallest_of_row", "Sum": "sum_of_row"}


class StreamPrinter(StreamSingles):
    """Writes a stream program."""

    def __init__(self, kernel: StreamKernel) -> None:
        StreamSingles.__init__(self, kernel)
        self.extrema = kernel.program.extrema
        self.sums = kernel.program.sums
        self.scaled = kernel.program.scaled
        self.near = False

    @property
    def growths(self) -> list[Growth]:
        """How sums and products grow, each once."""
        return [*dict.fromkeys(
            each.growth for each in self.kernel.program.added if each.growth is not None)]

    # ---- the whole -----------------------------------------------------------------------------

    def print(self) -> Program:
        """Return the program's text and arguments."""
        program, kernel = self.program, self.kernel
        self.size("rows", program.rows)
        self.size("columns", program.columns)
        self._tiles()
        self._numbers()
        self._unit()
        self._read_early()
        self._step()
        self._walk()
        walk, self.lines = self.lines, []
        early = [*self.pointers]
        self._ends()
        ends, self.lines = self.lines, []
        self._pointers([key for key in self.pointers if key not in early])
        late, self.lines = self.lines, []
        self._begin()
        self._pointers(early)
        body = [*self.lines, *walk, *late, *ends, *["}"] * kernel.stays]
        wide = any(value.size >= NARROW for value in (
            *program.arrays(), *(store.target for store in program.stores)))
        fields = " ".join(
            f"alignas(8) {'idx' if slot.kind == 'size' else slot.ctype} {slot.name};"
            for slot in self.slots.values())
        shape = kernel.shape
        text = "\n".join([
            f"using idx = {'long long' if wide else 'int'};",
            f"#define TA_RESIDENT {kernel.schedule.resident}",
            *["#define TA_ARRANGED"] * kernel.arranged,
            '#include "streams.h"',
            *self._instructions(),
            "using namespace streams;",
            f"struct Args {{ {fields} }};",
            f"enum {{ TX = {shape.threads + kernel.copiers}, TY = 1, WORKERS = {shape.threads}, "
            f"ROWS = {shape.rows}, TILE = {shape.columns}, DEPTH = {program.depth}, "
            f"STAGES = {shape.stages} }};",
            f"enum {{ COPIERS = {'TA_WGMMA ? TX - WORKERS : ' * bool(kernel.copiers)}WORKERS }};",
            f"using Element = {ctype(program.dtype)};",
            "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(block)", *body, "}", ""])
        return Program(text, list(self.slots.values()), kernel.schedule.blocks,
                       shape.threads + kernel.copiers, 0,
                       kernel.schedule.shared_bytes, 0)

    def _begin(self) -> None:
        """Which rows a block and a thread have, and where in memory they begin."""
        program, axes = self.program, len(self.program.lengths) - 1
        rows = self.size("rows", program.rows)
        columns = self.size("columns", program.columns)
        self.put(f"const idx row_blocks = ({rows} + (ROWS - 1)) / ROWS;")
        group = "block"
        if self.kernel.stays:
            group, blocks = "group", self.size("blocks", self.kernel.schedule.blocks)
            self.put("int turn = 0;")
            self.put('_Pragma("unroll 1") for (idx group = block; group < row_blocks; '
                     f"group += {blocks}, turn = 1 - turn) {{")
        self.put(f"idx t = {group} / row_blocks;")
        self.put(f"const idx first = {group} % row_blocks * ROWS;")
        for k in reversed(range(1, axes)):
            n = self.size(f"n_{k}", program.lengths[k])
            self.put(f"const idx b_{k} = t % {n}; t /= {n};")
        if axes:
            self.put("const idx b_0 = t;")
        self.put("const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 + lane / 4;")
        self.put(f"const bool valid[2] = {{first + own < {rows}, first + own + 8 < {rows}}};")
        self.put(f"const idx rows_of[2] = {{min_idx(first + own, {rows} - 1), "
                 f"min_idx(first + own + 8, {rows} - 1)}};")
        self.put(f"const int tiles = ({columns} + (TILE - 1)) / TILE;")

    # ---- numbers -------------------------------------------------------------------------------

    def _numbers(self) -> None:
        """What a thread has in registers."""
        for total in (*self.extrema, *self.sums):
            empty = EMPTY[total.kind]
            self.put(f"f32 m_{total.tile.number}[2] = {{{empty}, {empty}}};")
        for k, _ in enumerate(self.growths):
            self.put(f"f32 grown_{k}[2];")
        for product in self.products:
            self.put(f"f32 o_{product.tile.number}[{padded(product.extent) // 8}][4] = {{}};")
        self.put("f32 s[TILE / 8][4];")
        if self.products and self.halves:
            self.put("unsigned p[TILE / 16][4];")

    @contextmanager
    def _each_row(self) -> Iterator[None]:
        self.written = {}
        with self.block('_Pragma("unroll") for (int r = 0; r < 2; ++r)'):
            self._row_at_hand()
            yield

    def _or(self, value: str, other: str) -> str:
        """A value, or another one where there is no such column."""
        return f"there ? {value} : {other}" if self.ragged else value

    # ---- a tile of scores ----------------------------------------------------------------------

    def _unit(self) -> None:
        """What scores are multiplied by: none of them is, but what an exponential takes and gives.

        Products with a positive number are in the order of the scores, rounded ones too.
        """
        if self.scaled is None:
            return
        op, factor = self.scaled
        self.written = {}
        self.put(f"const f32 by_all = cast<f32>({self._value(factor, SINGLE)});")
        self.put(f"const f32 factor = {'by_all' if op is MULTIPLY else '1.f / by_all'};")
        self.put("const bool is_plain = factor > 1e-20f && factor < 1e20f;")
        self.put("const f32 unit = is_plain ? factor : 1.f;")

    def _step(self) -> None:
        """What is done with a tile: three functions of its number."""
        with self.block("const auto combine = [&](int tile)", "};"):
            self.put("(void)tile;")
            self._find_extrema()
            self._find_growths()
            self._add_up()
        with self.block("const auto scale = [&]", "};"):
            for product in self.products:
                if product.growth is not None:
                    k = self.growths.index(product.growth)
                    with self.block("if (!in_whole_warp("
                                    f"grown_{k}[0] == 1.f && grown_{k}[1] == 1.f))"):
                        self._elements(
                            str(padded(product.extent) // 8), lambda name=product.tile.number, k=k:
                            self.put(f"o_{name}[n][c] *= grown_{k}[r];"))
        if self.products and self.halves:
            with self.block("const auto pack_weights = [&]", "};"):
                self.put('_Pragma("unroll") for (int n = 0; n < TILE / 16; ++n)')
                self.put("  pack<Element>(p[n], s[2 * n], s[2 * n + 1]);")

    def _find_extrema(self) -> None:
        if not self.extrema:
            return
        for total in self.extrema:
            name, empty = total.tile.number, EMPTY[total.kind]
            self.put(f"f32 now_{name}[2] = {{m_{name}[0], m_{name}[1]}};" if self.scaled is None
                     else f"f32 now_{name}[2] = {{{empty}, {empty}}};")
        self.place = {self.program.scores: "s[n][c]"}
        if self.scaled is not None and self.held is not None:
            with self.block("if (!is_plain)"):
                sign = "*" if self.scaled[0] is MULTIPLY else "/"
                self._elements("TILE / 8", lambda: self.put(f"s[n][c] = s[n][c] {sign} by_all;"))
            self.place[self.held] = "s[n][c]"

        def found() -> None:
            values = [self._value(total.expression, total.tile.dtype) for total in self.extrema]
            for total, value in zip(self.extrema, values, strict=True):
                name = f"now_{total.tile.number}[r]"
                inside = self._or(value, EMPTY[total.kind])
                self.put(f"{name} = {COMBINE[total.kind]}({name}, {inside});")
                if self.held is not None and self.scaled is None:
                    self.put(f"s[n][c] = {value};")

        self._by_places([total.expression for total in self.extrema], lambda: self._elements(
            "TILE / 8", found, column=self._of_columns()))
        for total in self.extrema:
            name, empty = total.tile.number, EMPTY[total.kind]
            self.put(f"f32 used_{name}[2], added_{name}[2];")
            with self._each_row():
                now = f"{OF_ROW[total.kind]}(now_{name}[r])"
                self.put(f"const f32 now = {now};" if self.scaled is None else
                         f"const f32 now = {COMBINE[total.kind]}(m_{name}[r], {now} * unit);")
                self.put(f"used_{name}[r] = now == {empty} ? 0.f : now;")
                self.put(f"added_{name}[r] = m_{name}[r] == {empty} || m_{name}[r] == now "
                         f"? 0.f : now - m_{name}[r];")
                self.put(f"m_{name}[r] = now;")

    def _find_growths(self) -> None:
        for k, growth in enumerate(self.growths):
            self.place = {growth.extremum: f"added_{growth.extremum.number}[r]"}
            with self._each_row():
                self.put(f"grown_{k}[r] = {self._value(growth.factor, growth.extremum.dtype)};")
        for total in self.sums:
            if total.growth is not None:
                k = self.growths.index(total.growth)
                self.put('_Pragma("unroll") for (int r = 0; r < 2; ++r) '
                         f"m_{total.tile.number}[r] *= grown_{k}[r];")

    def _add_up(self) -> None:
        self.place = {self.program.scores: "s[n][c]"}
        if self.held is not None:
            self.place[self.held] = "s[n][c]" if self.scaled is None else "(s[n][c] * unit)"
        for total in self.extrema:
            self.place[total.tile] = f"used_{total.tile.number}[r]"

        def added() -> None:
            values = [self._value(total.expression, total.tile.dtype) for total in self.sums]
            for total, value in zip(self.sums, values, strict=True):
                self.put(f"m_{total.tile.number}[r] += {self._or(f'cast<f32>({value})', '0.f')};")
            if self.products:
                weights = self._value(self.products[0].weights, self.products[0].tile.dtype)
                self.put(f"s[n][c] = {self._or(f'cast<f32>({weights})', '0.f')};")

        if not self._has_differences():
            if self.program.added:
                self._elements("TILE / 8", added, column=self._of_columns())
            return
        (name,) = (total.tile.number for total in self.extrema)
        self.put("const bool near = in_whole_warp("
                 f"is_near(used_{name}[0]) && is_near(used_{name}[1]));")
        with self.block("if (near)"):
            self.put(f"const f32 by = {'' if self.scaled is None else 'unit * '}log2_e<f32>;")
            self.put(f"const f32 most[2] = {{used_{name}[0] * log2_e<f32>, "
                     f"used_{name}[1] * log2_e<f32>}};")
            self.near = True
            self._elements("TILE / 8", added, column=self._of_columns())
            self.near = False
        with self.block("else"):
            self._elements("TILE / 8", added, column=self._of_columns())

    # ---- the walk ------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Tile after tile: with `wgmma` the product of one while another's rows are combined."""
        if self.halves:
            self._multiply()
        else:
            self._multiply_singles()
        if self.kernel.stays:
            self._walk_on_chip()
            return
        if self.copiers:
            self.put("#if TA_WGMMA")
            self._walk_beside_copies()
            self.put("#else")
        self._next()
        self.put("int stage = 0, last = -1;  // tiles")
        self.put("int due[AHEAD + 1];  // those that are fetched, in order")
        with self.block("const auto fetch_next = [&](int place)", "};"):
            self.put("fetch(due[place] = last = next(last));")
        self.put('_Pragma("unroll") for (int k = 0; k < AHEAD; ++k) fetch_next(k);')
        with self.block("const auto go_on = [&]", "};"):
            self.put("stage = stage == STAGES - 1 ? 0 : stage + 1;")
            self.put('_Pragma("unroll") for (int k = 0; k < AHEAD; ++k) due[k] = due[k + 1];')
        if not self.halves:
            self._walk_in_order()
            self.put("await_copies();")
            return
        if not self.copiers:
            self.put("#if TA_WGMMA")
            self._walk_overlapping()
            self.put("#else")
        self._walk_in_order()
        self.put("#endif")
        self.put("await_copies();")

    def _walk_on_chip(self) -> None:
        """The same, where all operands are on chip: nothing is waited for."""
        if not self.halves:
            self._walk_on_chip_in_order()
            return
        settled = " ".join(f"settled(o_{product.tile.number});" for product in self.products)
        pack = "pack_weights();" if self.products else ""
        self.put("#if TA_WGMMA")
        self.put("multiply_rows(0);")
        self._begin_reading("0")
        self.put("finish(s);")
        self.put(f"combine(0); {pack}")
        with self.block('_Pragma("unroll 1") for (int tile = 1; tile < tiles; ++tile)'):
            self.put("multiply_rows(tile);")
            if self.products:
                self.put("add_products(tile - 1);")
            self._begin_reading("tile")
            self.put("await_products<1>(); settled(s);" if self.products else "finish(s);")
            self.put("combine(tile);")
            if self.products:
                self.put(f"await_products<0>(); {settled}")
                self.put(f"scale(); {pack}")
        if self.products:
            self.put(f"add_products(tiles - 1); await_products<0>(); {settled}")
        self.put("#else")
        self._walk_on_chip_in_order()
        self.put("#endif")

    def _walk_on_chip_in_order(self) -> None:
        with self.block('_Pragma("unroll 1") for (int tile = 0; tile < tiles; ++tile)'):
            self._begin_reading("tile")
            self.put("multiply_rows(tile);")
            self.put("combine(tile);")
            self._use_weights("tile")

    def _use_weights(self, stage: str) -> None:
        if self.products:
            self.put(f"{'pack_weights(); ' * self.halves}scale(); add_products({stage});")

    def _walk_in_order(self) -> None:
        """One tile after the other."""
        if self.kernel.arranged:
            self._walk_arranged()
            return
        with self.block('_Pragma("unroll 1") while (due[0] < tiles)'):
            self.put("await_copies_before<AHEAD - 1>(); show_tiles(); __syncthreads();")
            self.put("fetch_next(AHEAD);")
            self._begin_reading()
            self.put("multiply_rows(stage);")
            self.put("combine(due[0]);")
            self._use_weights("stage")
            self.put("go_on();")

    def _walk_arranged(self) -> None:
        """The same, where `wgmma` takes tiles that all threads have arranged before."""
        self.put("#if TA_WGMMA")
        self.put("await_copies_before<AHEAD - 1>(); __syncthreads();")
        self.put("arrange_rows();")
        self.put("#endif")
        with self.block('_Pragma("unroll 1") while (due[0] < tiles)'):
            self.put("await_copies_before<AHEAD - 1>(); __syncthreads();")
            self.put("fetch_next(AHEAD);")
            self._begin_reading()
            self.put("#if TA_WGMMA")
            self.put("arrange(stage); show_tiles(); __syncthreads();")
            self.put("#endif")
            self.put("multiply_rows(stage);")
            self.put("combine(due[0]);")
            self._use_weights("stage")
            self.put("go_on();")

    def _walk_overlapping(self) -> None:
        """The next tile's product and that of weights are under way while rows are combined."""
        wait = "await_copies_before<AHEAD - 1>(); show_tiles(); __syncthreads();"
        settled = " ".join(f"settled(o_{product.tile.number});" for product in self.products)
        pack = "pack_weights();" if self.products else ""
        with self.block("if (due[0] < tiles)"):
            self.put(wait)
            self.put("due[AHEAD] = last = next(last);")
            self.put("multiply_rows(0);")
            self.put("fetch(last);")
            self._begin_reading()
            self.put("finish(s);")
            self.put(f"combine(due[0]); {pack}")
            self.put("int before = 0; (void)before;")
            self.put("go_on();")
            with self.block('_Pragma("unroll 1") while (due[0] < tiles)'):
                self.put(wait)
                self.put("due[AHEAD] = last = next(last);")
                self.put("multiply_rows(stage);")
                if self.products:
                    self.put("add_products(before);")
                self.put("fetch(last);")
                self._begin_reading()
                self.put("await_products<1>(); settled(s);" if self.products else "finish(s);")
                self.put("combine(due[0]);")
                if self.products:
                    self.put(f"await_products<0>(); {settled}")
                    self.put(f"scale(); {pack}")
                self.put("before = stage;")
                self.put("go_on();")
            if self.products:
                self.put(f"add_products(before); await_products<0>(); {settled}")

    def _walk_beside_copies(self) -> None:
        """The same, where some threads copy for the others, and four warps go on by themselves."""
        settled = " ".join(f"settled(o_{product.tile.number});" for product in self.products)
        pack = "pack_weights();" if self.products else ""
        self.put("__syncthreads();  // the barriers are there")
        with self.block("if (threadIdx.x >= WORKERS)"):
            self.put(f"give_registers<{COPIER_REGISTERS}>();")
            with self.block("for (Turn at(1); at.tile < tiles; at.go_on<STAGES>())"):
                self.put("right_ring.await_free(at);")
                self.put("right_ring.show(at, copy_right(at.tile, at.stage));")
                if self.products:
                    self.put("weighed_ring.await_free(at);")
                    self.put("weighed_ring.show(at, " + " & ".join(
                        f"copy_{name}(at.tile, at.stage)" for name in self.operands
                        if name != "right") + ");")
            self.put("await_copies();")
            self.put("return;")
        self.put(f"take_registers<{self.kernel.worker_registers}>();")
        self.put("await_copies(); show_tiles(); workers_barrier<WORKERS>();  // rows are there")
        self.put("Turn at(0), before(0);")
        self.put("right_ring.await(at); show_tiles();")
        self.put("multiply_rows(0);")
        self._begin_reading("0")
        self.put("finish(s); right_ring.leave(at);")
        self.put(f"combine(0); {pack}")
        with self.block('_Pragma("unroll 1") for (at.go_on<STAGES>(); at.tile < tiles; '
                        "before = at, at.go_on<STAGES>())"):
            self.put("right_ring.await(at);")
            if self.products:
                self.put("weighed_ring.await(before);")
            self.put("show_tiles();")
            self.put("multiply_rows(at.stage);")
            if self.products:
                self.put("add_products(before.stage);")
            self._begin_reading("at.tile")
            self.put("await_products<1>(); settled(s);" if self.products else "finish(s);")
            self.put("right_ring.leave(at);")
            self.put("combine(at.tile);")
            if self.products:
                self.put(f"await_products<0>(); {settled}")
                self.put(f"weighed_ring.leave(before); scale(); {pack}")
        if self.products:
            self.put("weighed_ring.await(before); show_tiles();")
            self.put(f"add_products(before.stage); await_products<0>(); {settled}")

    def _begin_reading(self, tile: str = "due[0]") -> None:
        if self.early:
            self.put(f"read_early({tile});")

    def _next(self) -> None:
        """The tile after another one: of those that add something to some row of the block."""
        if self.program.mask is None:
            self.put("const auto next = [&](int tile) { return tile + 1; };")
            return
        self._asked()
        with self.block("const auto next = [&](int tile)", "};"):
            self.put('_Pragma("unroll 1") do ++tile; '
                     "while (tile < tiles && !__syncthreads_or(asked(tile)));")
            self.put("return tile;")

    def _asked(self) -> None:
        """Whether a thread has scores of a tile that add something."""
        mask, (total,) = self.program.mask, self.extrema
        self.place, self.written = {}, {}
        other = self._value(mask.other, total.tile.dtype)
        self.put(f"const bool leaves_out = cast<f32>({other}) == {EMPTY[total.kind]};")
        with self.block("const auto asked = [&](int tile)", "};"):
            self.put("bool found = !leaves_out;")

            def found() -> None:
                taken = self._value(mask.condition, mask.condition.dtype)
                self.put(f"found |= {'' if mask.taken else '!'}{taken};")

            self._by_places([mask.condition], lambda: self._elements(
                "TILE / 8", found, column=self._of_columns()))
            self.put("return found;")

    def _is_difference(self, expression: Expression) -> bool:
        """Whether it is the exponential of held scores relative to their extremum."""
        if not isinstance(expression, Apply) or expression.op is not QUICK_FROM[EXP]:
            return False
        scores, most = expression.args
        return scores is self.held and isinstance(most, Read) and (
            most.source is self.extrema[0].tile)

    def _has_differences(self) -> bool:
        later = [*(total.expression for total in self.sums),
                 *(product.weights for product in self.products[:1])]
        return self.held is not None and any(
            self._is_difference(part) for each in later for part in parts(each))

    def _applied(self, expression: Apply) -> str:
        if self.near and self._is_difference(expression):
            return "quick_exp_near(s[n][c], by, most[r])"
        return StreamSingles._applied(self, expression)

    # ---- what is left --------------------------------------------------------------------------

    def _ends(self) -> None:
        """Threads of a row put together what they have, and results are stored."""
        for total in self.sums:
            name = f"m_{total.tile.number}[r]"
            with self._each_row():
                self.put(f"{name} = {OF_ROW['Sum']}({name});")
                self._without_extremum(total.growth, name)
        for product in self.products:
            if product.growth is not None:
                name = f"o_{product.tile.number}[n][c]"
                self._elements(str(padded(product.extent) // 8), lambda growth=product.growth,
                               name=name: self._without_extremum(growth, name))
        self.place = {total.tile: f"m_{total.tile.number}[r]" for total in self.program.totals}
        self.place.update((product.tile, f"o_{product.tile.number}[n][c]")
                          for product in self.products)
        for store in self.program.stores:
            extent = store.domain[1]
            if extent == 1:
                with self._each_row():
                    self._put(store, "lane % 4 == 0 && valid[r]")
            elif self._goes_together(store, 8) and extent % 32 == 0:
                self._put_eights(store)
            elif self._goes_together(store, 2):
                self._put_pairs(store)
            else:
                at = f"const int i_{EXTENT} = n * 8 + lane % 4 * 2 + c % 2;"
                inside = "valid[r]" if extent % 16 == 0 else f"valid[r] && i_{EXTENT} < {extent}"
                self._elements(str(padded(extent) // 8), lambda store=store, inside=inside:
                               self._put(store, inside), column=at)

    @staticmethod
    def _goes_together(store: Store, count: int) -> bool:
        """Whether so many neighbours of a row are one word in memory."""
        array = store.target.args[0]
        *others, last = zip(store.index, dense_strides(array.shape), strict=True)
        return (store.target.dtype.itemsize == 2 and store.target.dtype.kind in "fV"
                and store.domain[1] % count == 0 and last[0].axis == EXTENT
                and last[0].step == 1 and not last[0].terms
                and all(at.axis < 0 and stride % count == 0 for at, stride in others))

    def _put_pairs(self, store: Store) -> None:
        """Two elements of a thread by one instruction."""
        extent, kind = store.domain[1], ctype(store.target.dtype)
        self.put(f'_Pragma("unroll") for (int n = 0; n < {padded(extent) // 8}; ++n)')
        with self.block('  _Pragma("unroll") for (int r = 0; r < 2; ++r)'):
            self._row_at_hand()
            self._both(store)
            self.put(f"const int i_{EXTENT} = n * 8 + lane % 4 * 2;")
            inside = "valid[r]" if extent % 16 == 0 else f"valid[r] && i_{EXTENT} < {extent}"
            place = self._in_memory(store.target, store.index, stores=True)
            self.put(f"if ({inside}) put(reinterpret_cast<unsigned&>({place}), "
                     f"packed({kind}(), both[0], both[1]));")

    def _put_eights(self, store: Store) -> None:
        """Eight elements, which four threads have of each other: whole sectors of memory."""
        extent, kind = store.domain[1], ctype(store.target.dtype)
        self.put(f'_Pragma("unroll") for (int four = 0; four < {extent // 8}; four += 4)')
        with self.block('  _Pragma("unroll") for (int r = 0; r < 2; ++r)'):
            self._row_at_hand()
            self.put("unsigned words[4];")
            with self.block('_Pragma("unroll") for (int n = four; n < four + 4; ++n)'):
                self._both(store)
                self.put(f"words[n - four] = packed({kind}(), both[0], both[1]);")
            self.put("turn_among_four(words);")
            self.put(f"const int i_{EXTENT} = (four + lane % 4) * 8;")
            place = self._in_memory(store.target, store.index, stores=True)
            self.put(f"if (valid[r]) reinterpret_cast<uint4&>({place}) = "
                     "uint4{words[0], words[1], words[2], words[3]};")

    def _row_at_hand(self) -> None:
        """Name the row's place."""
        last = len(self.program.lengths) - 1
        self.put(f"const idx b_{last} = rows_of[r]; (void)b_{last};")

    def _both(self, store: Store) -> None:
        """Two neighbours that a thread has, of the eight columns at hand."""
        extent = store.domain[1]
        self.put("f32 both[2];")
        with self.block('_Pragma("unroll") for (int v = 0; v < 2; ++v)'):
            self.put("const int c = 2 * r + v;")
            at = "n * 8 + lane % 4 * 2 + v"
            self.put(f"const int i_{EXTENT} = "
                     f"{at if extent % 16 == 0 else f'min_idx({at}, {extent} - 1)'}; "
                     f"(void)i_{EXTENT};")
            self.written = {}
            value = self._value(store.expression, store.target.dtype)
            self.put(f"both[v] = cast<f32>({value});")

    def _without_extremum(self, growth: Growth | None, name: str) -> None:
        """Where all columns are as far from it as can be, NumPy's differences are no numbers."""
        if growth is not None:
            total = self._total_of(growth.extremum)
            self.put(f"if (m_{total.tile.number}[r] == {EMPTY[total.kind]}) "
                     f"{name} = quiet_nan<f32>();")

    def _total_of(self, tile: Tile) -> Total:
        found: Total = next(total for total in self.program.totals if total.tile is tile)
        return found

    def _put(self, store: Store, inside: str) -> None:
        with self.block(f"if ({inside})"):
            value = self._value(store.expression, store.target.dtype)
            place = self._in_memory(store.target, store.index, stores=True)
            self.put(f"put({place}, cast<{ctype(store.target.dtype)}>({value}));")


def print_stream(kernel: StreamKernel) -> Program:
    """Return a stream kernel's text."""
    return StreamPrinter(kernel).print()


