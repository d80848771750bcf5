"""Stream programs as text, for the device's compiler.

A block of threads has some rows.  Thread t of a warp has rows t / 4 and t / 4 + 8 of its 16, and of
every eight columns two: so numbers of a row are arrays of two, and a tile of scores is ``s[n][c]``.
Where there is `wgmma`, the next tile's product is under way while elementwise work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tiledarray.fusion.ir import Index, Value, storage
from tiledarray.fusion.schedule.nest import dense_strides
from tiledarray.fusion.streams.ir import COLUMN, DEPTH, EXTENT, PIECE, Growth, Operand, Total
from tiledarray.fusion.streams.kernel import StreamKernel, operand_bytes, padded, tile_bytes
from tiledarray.fusion.tiles.ir import Expression, Store, Tile
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Program, Slot
from tiledarray.kernels.text.tile_text import TileText

NARROW = 1 << 30  # elements of an array that 32-bit indices can count
EMPTY = {"Max": "-infinity<f32>()", "Min": "infinity<f32>()", "Sum": "0"}
COMBINE = {"Max": "m_maximum", "Min": "m_minimum"}
OF_ROW = {"Max": "largest_of_row", "Min": "smallest_of_row", "Sum": "sum_of_row"}


class StreamPrinter(TileText):
    """Writes a stream program."""

    kernel: StreamKernel  # type: ignore[assignment]

    def __init__(self, kernel: StreamKernel) -> None:
        TileText.__init__(self, kernel, device=True)  # type: ignore[arg-type]
        self.program: Any = kernel.program
        self.extrema = kernel.program.extrema
        self.sums = kernel.program.sums
        self.products = kernel.program.products
        self.place: dict[Tile | Expression, str] = {}  # where numbers are, in the loop at hand
        self.held = kernel.program.held
        program = kernel.program
        self.operands = {"right": program.right, **{
            f"matrix_{k}": product.right for k, product in enumerate(program.products)}}
        self.elements = {name: operand_bytes(program, operand, kernel.shape) // 2
                         for name, operand in self.operands.items()}  # of a tile
        self.ragged = kernel.program.columns % kernel.shape.columns != 0

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
        body = [*self.lines, *walk, *late, *ends]
        wide = any(value.size >= NARROW for value in (
            *program.arrays(), *(store.target for store in program.stores)))
        fields = " ".join(
            f"alignas(8) {'idx' if slot.kind == 'size' else slot.ctype} {slot.name};"
            for slot in self.slots.values())
        shape = kernel.shape
        text = "\n".join([
            f"using idx = {'long long' if wide else 'int'};",
            f"#define TA_RESIDENT {kernel.schedule.resident}",
            '#include "streams.h"',
            *self._instructions(),
            "using namespace streams;",
            f"struct Args {{ {fields} }};",
            f"enum {{ TX = {shape.threads}, TY = 1, ROWS = {shape.rows}, "
            f"TILE = {shape.columns}, DEPTH = {program.depth}, STAGES = {shape.stages} }};",
            f"using Half = {ctype(program.dtype)};",
            "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(block)", *body, "}", ""])
        return Program(text, list(self.slots.values()), kernel.schedule.blocks, shape.threads, 0,
                       kernel.schedule.shared_bytes, 0)

    def _instructions(self) -> Iterator[str]:
        """Functions around `wgmma`, whose text names each register of its result."""
        kind = ctype(self.program.dtype)
        yield "#if TA_WGMMA"
        turned = self.program.is_turned
        yield wgmma(kind, self.kernel.shape.columns, registers=False,
                    turned=turned(self.program.right))
        for extent, other in sorted({(padded(product.extent), turned(product.right))
                                     for product in self.products}):
            yield wgmma(kind, extent, registers=True, turned=other)
        yield "#endif"

    def _begin(self) -> None:
        """Which rows a block and a thread have, and where in memory they begin."""
        program, axes = self.program, len(self.program.lengths) - 1
        rows = self.size("rows", program.rows)
        columns = self.size("columns", program.columns)
        self.put(f"const idx row_blocks = ({rows} + (ROWS - 1)) / ROWS;")
        self.put("idx t = block / row_blocks;")
        self.put("const idx first = block % row_blocks * ROWS;")
        for k in reversed(range(1, axes)):
            n = self.size(f"n_{k}", program.lengths[k])
            self.put(f"const i64 b_{k} = t % {n}; t /= {n};")
        if axes:
            self.put("const i64 b_0 = t;")
        self.put("const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 + lane / 4;")
        self.put(f"const bool valid[2] = {{first + own < {rows}, first + own + 8 < {rows}}};")
        self.put(f"const i64 rows_of[2] = {{min_idx(first + own, {rows} - 1), "
                 f"min_idx(first + own + 8, {rows} - 1)}};")
        self.put(f"const int tiles = ({columns} + (TILE - 1)) / TILE;")

    def _pointers(self, keys: Iterable[Any]) -> None:
        """Where in memory arrays begin: of those that follow the rows, for both of a thread."""
        axes = len(self.program.lengths) - 1
        for key in keys:
            name = self.pointers[key]
            value, _, places, stores = key
            kind = f"{ctype(value.dtype)}*" if stores else f"Constant<{ctype(value.dtype)}>"
            if any(axis == axes for axis, _ in places):
                both = ", ".join(self._origin(key, name, f"rows_of[{r}]") for r in range(2))
                self.put(f"{kind} const {name}[2] = {{{both}}};")
            else:
                self.put(f"{kind} const {name} = {self._origin(key, name, '')};")

    def _origin(self, key: Any, name: str, row: str) -> str:
        value, offset, places, stores = key
        kind = f"{'' if stores else 'const '}{ctype(value.dtype)}*"
        base = self.arg(Slot("pointer", name, kind, value=value, offset=offset))
        last = len(self.program.lengths) - 1
        terms = [f"{row if axis == last else f'b_{axis}'} * {self.size(f'{name}_{axis}', stride)}"
                 for axis, stride in places]
        return " + ".join([base, *terms])

    # ---- places --------------------------------------------------------------------------------

    def _in_memory(self, value: Value, index: Index, *, stores: bool = False) -> str:
        text = TileText._in_memory(self, value, index, stores=stores)
        name, _, at = text.partition("[")
        key = next(key for key, known in self.pointers.items() if known == name)
        by_row = any(axis == len(self.program.lengths) - 1 for axis, _ in key[2])
        return f"{name}[r][{at}" if by_row else text

    def _on_chip(self, tile: Tile, index: Index) -> str:
        return self.place[tile]

    def _value(self, expression: Expression, loop: Any) -> str:
        if self.held is not None and expression is self.held and expression in self.place:
            return self.place[expression]
        return TileText._value(self, expression, loop)

    # ---- tiles of operands ---------------------------------------------------------------------

    def _begins(self, name: str, operand: Operand) -> None:
        """Where in memory an operand begins, for the batch and the rows at hand."""
        offset: dict[int, int] = {}
        terms: list[str] = []
        last = len(self.program.lengths) - 1
        for at, stride in zip(operand.index, dense_strides(operand.value.shape), strict=True):
            places, rest = self.program.split_terms(at.terms)
            for number, coefficient in rest:
                offset[number] = offset.get(number, 0) + coefficient * stride
            for axis, coefficient in places.items():
                by = self.size(f"{name}_{axis}", coefficient * stride)
                terms.append(f"i64(first) * {by}" if axis == last else f"b_{axis} * {by}")
        kind = ctype(operand.value.dtype)
        start = self.arg(Slot("pointer", name, f"const {kind}*", value=storage(operand.value),
                              offset=tuple(sorted(item for item in offset.items() if item[1]))))
        self.put(f"const Half* const {name} = {' + '.join([start, *terms])};")

    def _tiles(self) -> None:
        """Where tiles lie in shared memory, and how they get there."""
        program, shape = self.program, self.kernel.shape
        self._begins("left", program.left)
        for name, operand in self.operands.items():
            self._begins(name, operand)
        self.put("Half* const rows_tile = reinterpret_cast<Half*>(shared_memory);")
        at = tile_bytes(shape.rows, program.depth) // 2
        for name in self.operands:
            self.put(f"Half* const {name}_tiles = rows_tile + {at};")
            at += shape.stages * self.elements[name]
        pieces = [f"is_aligned({name})" for name in ("left", *self.operands) if self._pieces(name)]
        if pieces:
            self.put(f"const bool whole = {' && '.join(pieces)};")
        self._copy_rows()
        for name, operand in self.operands.items():
            if self._pieces(name):
                count, down = program.count(operand), self._apart(name, COLUMN)
                if program.is_turned(operand):
                    kind = f"ColumnsInOrder<TX, {count}, TILE, Half>"
                    down = self._apart(name, program.across(operand))
                else:
                    kind = f"RowsInOrder<TX, TILE, {count}, Half>"
                self.put(f"{kind} {name}_rows({name}, {down}, whole);")
        self.put("int ahead = 0, fetched = 0;  // tiles, and the stage of the next")
        with self.block("const auto fetch = [&]", "};"):
            with self.block("if (ahead < tiles)"):
                self.put(f"const int left = {self.size('columns', 0)} - ahead * TILE;")
                for name in self.operands:
                    self._fetch(name)
            self.put("commit_copies();")
            self.put("++ahead;")
            self.put("fetched = fetched == STAGES - 1 ? 0 : fetched + 1;")
        self.put(f"enum {{ AHEAD = {self._ahead()} }};")
        self.put('static_assert(AHEAD > 0, "there are too few stages");')
        self.put('_Pragma("unroll") for (int t = 0; t < AHEAD; ++t) fetch();')

    def _apart(self, name: str, axis: int) -> str:
        """Elements between places of an operand along an axis."""
        return self.size(f"{name}_step_{axis}", self.operands[name].step(axis))

    def _pieces(self, name: str) -> bool:
        """Whether an operand comes by pieces of 16 bytes."""
        program = self.program
        if name == "left":
            left = program.left
            return bool(left.step(DEPTH) == 1 and program.depth % PIECE == 0
                        and not any(step % PIECE for step in left.others()))
        operand = self.operands[name]
        found: bool = program.is_turned(operand) or operand.in_pieces(
            COLUMN, program.across(operand), program.count(operand))
        return found

    def _copy_rows(self) -> None:
        """Begin to copy the rows of a block."""
        left, rows = self.program.left, self.size("rows", 0)
        down = self.size("left_down", sum(
            coefficient * stride for at, stride in zip(
                left.index, dense_strides(left.value.shape), strict=True)
            for number, coefficient in at.terms if number == self._last_place()))
        if self._pieces("left"):
            self.put(f"copy_rows<TX, ROWS, DEPTH>(rows_tile, left, {down}, {rows} - first, whole);")
            return
        along = self.size("left_along", left.step(DEPTH))
        self.put(f"copy_elements<TX, ROWS, DEPTH>(rows_tile, left, {down}, {along}, "
                 f"{rows} - first);")

    def _last_place(self) -> int:
        """The parameter that is a row's place."""
        found: int = self.program.scalars + len(self.program.lengths) - 1
        return found

    def _fetch(self, name: str) -> None:
        """Begin to copy the next tile of an operand."""
        tile = f"{name}_tiles + fetched * {self.elements[name]}"
        if self._pieces(name):
            self.put(f"{name}_rows.fetch({tile}, left);")
            return
        operand, down = self.operands[name], self._apart(name, COLUMN)
        along = self._apart(name, self.program.across(operand))
        self.put(f"copy_elements<TX, TILE, {self.program.count(operand)}>({tile}, "
                 f"{name} + ahead * TILE * {down}, {down}, {along}, left);")

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
        if self.products:
            self.put("unsigned p[TILE / 16][4];")

    def _elements(self, count: str, body: Any, *, column: str = "") -> None:
        """A loop over what a thread has of a tile."""
        self.put(f'_Pragma("unroll") for (int n = 0; n < {count}; ++n)')
        with self.block('  _Pragma("unroll") for (int c = 0; c < 4; ++c)'):
            self.put("const int r = c / 2; (void)r;")
            if self.program.lengths:
                self.put(f"const i64 b_{len(self.program.lengths) - 1} = rows_of[r]; "
                         f"(void)b_{len(self.program.lengths) - 1};")
            if column:
                self.put(column)
            self.written = {}
            body()

    @contextmanager
    def _each_row(self) -> Iterator[None]:
        self.written = {}
        with self.block('_Pragma("unroll") for (int r = 0; r < 2; ++r)'):
            last = len(self.program.lengths) - 1
            self.put(f"const i64 b_{last} = rows_of[r]; (void)b_{last};")
            yield

    def _of_columns(self) -> str:
        """Which column an element is in; one that there is not stands for the last."""
        at = "tile * TILE + n * 8 + lane % 4 * 2 + c % 2"
        if not self.ragged:
            return f"const int i_{COLUMN} = {at}; (void)i_{COLUMN};"
        columns = self.size("columns", 0)
        return (f"const bool there = {at} < {columns}; "
                f"const int i_{COLUMN} = there ? {at} : {columns} - 1; (void)i_{COLUMN};")

    def _or(self, value: str, other: str) -> str:
        """A value, or another one where there is no such column."""
        return f"there ? {value} : {other}" if self.ragged else value

    # ---- a tile of scores ----------------------------------------------------------------------

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
                    self._elements(
                        str(padded(product.extent) // 8), lambda name=product.tile.number, k=k:
                        self.put(f"o_{name}[n][c] *= grown_{k}[r];"))
        if self.products:
            with self.block("const auto pack_weights = [&]", "};"):
                self.put('_Pragma("unroll") for (int n = 0; n < TILE / 16; ++n)')
                self.put("  pack<Half>(p[n], s[2 * n], s[2 * n + 1]);")

    def _find_extrema(self) -> None:
        if not self.extrema:
            return
        for total in self.extrema:
            name = total.tile.number
            self.put(f"f32 now_{name}[2] = {{m_{name}[0], m_{name}[1]}};")
        self.place = {self.program.scores: "s[n][c]"}

        def found() -> None:
            values = [self._value(total.expression, total.tile.dtype) for total in self.extrema]
            for total, value in zip(self.extrema, values, strict=True):
                name = f"now_{total.tile.number}[r]"
                inside = self._or(value, EMPTY[total.kind])
                self.put(f"{name} = {COMBINE[total.kind]}({name}, {inside});")
                if self.held is not None:
                    self.put(f"s[n][c] = {value};")

        self._elements("TILE / 8", found, column=self._of_columns())
        for total in self.extrema:
            name, empty = total.tile.number, EMPTY[total.kind]
            self.put(f"f32 used_{name}[2], added_{name}[2];")
            with self._each_row():
                self.put(f"const f32 now = {OF_ROW[total.kind]}(now_{name}[r]);")
                self.put(f"used_{name}[r] = now == {empty} ? 0.f : now;")
                self.put(f"added_{name}[r] = m_{name}[r] == {empty} ? 0.f : now - m_{name}[r];")
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
            self.place[self.held] = "s[n][c]"
        for total in self.extrema:
            self.place[total.tile] = f"used_{total.tile.number}[r]"

        def added() -> None:
            values = [self._value(total.expression, total.tile.dtype) for total in self.sums]
            for total, value in zip(self.sums, values, strict=True):
                self.put(f"m_{total.tile.number}[r] += {self._or(f'cast<f32>({value})', '0.f')};")
            if self.products:
                weights = self._value(self.products[0].weights, self.products[0].tile.dtype)
                self.put(f"s[n][c] = {self._or(f'cast<f32>({weights})', '0.f')};")

        if self.sums or self.products:
            self._elements("TILE / 8", added, column=self._of_columns())

    # ---- the walk ------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Tile after tile: with `wgmma` the product of one while another's rows are combined."""
        self._multiply()
        self.put("int stage = 0;")
        if self.program.mask is None:
            self.put("#if TA_WGMMA")
            self._walk_overlapping()
            self.put("#else")
        self._walk_in_order()
        if self.program.mask is None:
            self.put("#endif")
        self.put("await_copies();")

    def _walk_in_order(self) -> None:
        """One tile after the other, but for those that add nothing to any row."""
        asked = self.program.mask is not None
        if asked:
            self._asked()
        with self.block('_Pragma("unroll 1") for (int tile = 0; tile < tiles; ++tile)'):
            self.put("await_copies_before<AHEAD - 1>(); show_tiles();")
            self.put("const bool needed = __syncthreads_or(asked(tile));" if asked else
                     "__syncthreads();")
            self.put("fetch();")
            with self.block("if (needed)" if asked else ""):
                self.put("multiply_rows(stage);")
                self.put("finish(s);")
                self.put("combine(tile);")
                if self.products:
                    self.put("pack_weights(); scale(); add_products(stage);")
                    self.put(" ".join(f"finish(o_{product.tile.number});"
                                      for product in self.products))
            self.put("stage = stage == STAGES - 1 ? 0 : stage + 1;")

    def _walk_overlapping(self) -> None:
        """The next tile's product and that of weights are under way while rows are combined."""
        wait = "await_copies_before<AHEAD - 1>(); show_tiles(); __syncthreads();"
        settled = " ".join(f"settled(o_{product.tile.number});" for product in self.products)
        pack = "pack_weights();" if self.products else ""
        self.put(wait)
        self.put("multiply_rows(0); finish(s);")
        self.put("fetch();")
        self.put(f"combine(0); {pack}")
        with self.block('_Pragma("unroll 1") for (int tile = 1; tile < tiles; ++tile)'):
            if self.products:
                self.put("const int before = stage;")
            self.put("stage = stage == STAGES - 1 ? 0 : stage + 1;")
            self.put(wait)
            self.put("multiply_rows(stage);")
            if self.products:
                self.put("add_products(before);")
            self.put("fetch();")
            self.put("await_products<1>(); settled(s);" if self.products else "finish(s);")
            self.put("combine(tile);")
            if self.products:
                self.put(f"await_products<0>(); {settled}")
                self.put(f"scale(); {pack}")
        if self.products:
            self.put(f"add_products(stage); await_products<0>(); {settled}")

    def _ahead(self) -> str:
        """Tiles that are fetched ahead: the one before is in use where products overlap."""
        return "TA_WGMMA ? STAGES - 2 : STAGES - 1" if self.program.mask is None else "STAGES - 1"

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

            self._elements("TILE / 8", found, column=self._of_columns())
            self.put("return found;")

    def _multiply(self) -> None:
        """Products of tiles; of `wgmma`'s operands the places are known ahead.

        What is summed goes along the panels of a tile, or down its rows where that is turned.
        """
        program, tile = self.program, self.kernel.shape.columns
        depth, size = padded(program.depth), self.elements["right"]
        turned = program.is_turned(program.right)
        self.put("#if TA_WGMMA")
        self.put("const unsigned left_at = described(rows_tile, 16) + "
                 "number_of_four_warps() * (64 * PANEL / 8);")
        for name, operand in self.operands.items():
            across = self._rows_of_panels(operand)
            # Panels are side by side along what is not summed.
            beside = (name == "right") == program.is_turned(operand)
            apart = f"{across} * PANEL * 2" if beside else "16"
            self.put(f"const unsigned {name}_at = described({name}_tiles, {apart});")
        self.put("#endif")
        with self.block("const auto multiply_rows = [&](int stage)", "};"):
            self.put("#if TA_WGMMA")
            self.put("begin_products();")
            self.put(f'_Pragma("unroll") for (int k = 0; k < {depth}; k += 16)')
            left = "left_at + (k / PANEL * ROWS * PANEL + k % PANEL) / 8"
            beside = "k * PANEL / 8" if turned else f"(k / PANEL * {tile * 64} + k % PANEL) / 8"
            self.put(f"  add_from_tile(Half(), s, at({left}), "
                     f"at(right_at + stage * {size // 8} + {beside}), k > 0);")
            self.put("commit_products();")
            self.put("#else")
            self.put(f"multiply_tiles<ROWS, TILE, {depth}, {str(turned).lower()}>"
                     f"(s, rows_tile, right_tiles + stage * {size});")
            self.put("#endif")
        if not self.products:
            return
        with self.block("const auto add_products = [&](int stage)", "};"):
            self.put("#if TA_WGMMA")
            self.put("begin_products();")
            self._add_products(lambda name, total, extent, turned: (
                '_Pragma("unroll") for (int k = 0; k < TILE; k += 16) '
                f"add_from_registers{'_turned' * turned}(Half(), {total}, p[k / 16], "
                f"at({name}_at + stage * {self.elements[name] // 8} + "
                + (f"(k / PANEL * {extent} * PANEL + k % PANEL) / 8" if turned
                   else "k * PANEL / 8") + "), 1);"))
            self.put("commit_products();")
            self.put("#else")
            self._add_products(lambda name, total, extent, turned: (
                f"add_product<TILE, {extent}, {str(turned).lower()}>({total}, p, {name}_tiles + "
                f"stage * {self.elements[name]});"))
            self.put("#endif")

    def _add_products(self, text: Callable[[str, str, int, bool], str]) -> None:
        for k, product in enumerate(self.products):
            self.put(text(f"matrix_{k}", f"o_{product.tile.number}", padded(product.extent),
                          self.program.is_turned(product.right)))

    def _rows_of_panels(self, operand: Operand) -> int:
        """Rows of an operand's tiles."""
        program = self.program
        return padded(program.count(operand)) if program.is_turned(operand) else (
            self.kernel.shape.columns)

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
            elif self._goes_in_pairs(store):
                self._put_pairs(store)
            else:
                at = f"const int i_{EXTENT} = n * 8 + lane % 4 * 2 + c % 2;"
                inside = "valid[r]" if extent % 16 == 0 else f"valid[r] && i_{EXTENT} < {extent}"
                self._elements(str(padded(extent) // 8), lambda store=store, inside=inside:
                               self._put(store, inside), column=at)

    @staticmethod
    def _goes_in_pairs(store: Store) -> bool:
        """Whether two neighbours of a row are one word in memory."""
        array = store.target.args[0]
        *others, last = zip(store.index, dense_strides(array.shape), strict=True)
        return (store.target.dtype.itemsize == 2 and store.target.dtype.kind in "fV"
                and store.domain[1] % 2 == 0 and last[0].axis == EXTENT and last[0].step == 1
                and not last[0].terms and all(at.axis < 0 and stride % 2 == 0
                                              for at, stride in others))

    def _put_pairs(self, store: Store) -> None:
        """Two elements of a thread by one instruction."""
        extent, kind = store.domain[1], ctype(store.target.dtype)
        self.put(f'_Pragma("unroll") for (int n = 0; n < {padded(extent) // 8}; ++n)')
        with self.block('  _Pragma("unroll") for (int r = 0; r < 2; ++r)'):
            last = len(self.program.lengths) - 1
            self.put(f"const i64 b_{last} = rows_of[r]; (void)b_{last};")
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
            self.put(f"const int i_{EXTENT} = n * 8 + lane % 4 * 2;")
            inside = "valid[r]" if extent % 16 == 0 else f"valid[r] && i_{EXTENT} < {extent}"
            place = self._in_memory(store.target, store.index, stores=True)
            self.put(f"if ({inside}) put(reinterpret_cast<unsigned&>({place}), "
                     f"packed({kind}(), both[0], both[1]));")

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


def wgmma(kind: str, columns: int, *, registers: bool, turned: bool) -> str:
    """Return a function that adds a product of 64 rows and that many columns to registers.

    Its left operand is in shared memory, and the right one's rows are columns of the result; or
    it is in registers, and the right one's columns are.  It is the other way round where that is
    turned.
    """
    count = columns // 2
    results = ", ".join(f"%{k}" for k in range(count))
    outs = ", ".join(f'"+f"(c[{k // 4}][{k % 4}])' for k in range(count))
    if registers:
        name, left = f"add_from_registers{'_turned' * turned}", "const unsigned (&a)[4]"
        given = f"{{{', '.join(f'%{count + k}' for k in range(4))}}}, %{count + 4}"
        last, tail = count + 5, f"p, 1, 1, {int(not turned)}"
        inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])'
    else:
        name, left = "add_from_tile", "u64 a"
        given, last, inputs = f"%{count}, %{count + 1}", count + 2, '"l"(a)'
        tail = f"p, 1, 1, 0, {int(turned)}"
    return "\n".join([
        "namespace streams {",
        f"TA_FN void {name}({kind}, f32 (&c)[{columns // 8}][4], {left}, u64 b, int add) {{",
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{last}, 0; "',
        f'    "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "',
        f'    "{{{results}}}, {given}, {tail}; }}"',
        f'    : {outs} : {inputs}, "l"(b), "r"(add));',
        "}",
        "}  // namespace streams",
    ])


def print_stream(kernel: StreamKernel) -> Program:
    """Return a stream kernel's text."""
    return StreamPrinter(kernel).print()


