"""What a stream's text does with operands: where they are, how they get on chip, their products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tiledarray.fusion.ir import Index, Value, dense_strides, storage
from tiledarray.fusion.streams.ir import COLUMN, DEPTH, Operand
from tiledarray.fusion.streams.kernel import (
    StreamKernel,
    arranged_bytes,
    operand_bytes,
    padded,
    tile_bytes,
)
from tiledarray.fusion.tiles.ir import Expression, Tile
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.tile_text import TileText


class StreamText(TileText):
    """Writes where numbers and operands of a stream are, and products of tiles.

    Attributes
    ----------
    operands : dict
        By name, what has the product's columns: the right operand of the first product, and those
        that rows are multiplied with.
    elements : dict
        Of a tile of each.
    place : dict
        Where numbers are, in the loop at hand.
    """

    kernel: StreamKernel  # type: ignore[assignment]

    def __init__(self, kernel: StreamKernel) -> None:
        TileText.__init__(self, kernel, device=True)  # type: ignore[arg-type]
        program = kernel.program
        self.program: Any = program
        self.products = program.products
        self.held = program.held
        self.copiers = kernel.copiers
        self.halves = program.halves
        self.place: dict[Tile | Expression, str] = {}
        self.operands = {"right": program.right, **{
            f"matrix_{k}": product.right for k, product in enumerate(program.products)}}
        size = program.dtype.itemsize
        self.elements = {name: operand_bytes(program, operand, kernel.shape) // size
                         for name, operand in self.operands.items()}

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
        self.put(f"const Element* const {name} = {' + '.join([start, *terms])};")

    def _tiles(self) -> None:
        """Where tiles lie in shared memory, and how they get there."""
        program, shape = self.program, self.kernel.shape
        self._begins("left", program.left)
        for name, operand in self.operands.items():
            self._begins(name, operand)
        size = program.dtype.itemsize
        at = tile_bytes(shape.rows, program.depth, size) // size
        self.put("Element* const on_chip = reinterpret_cast<Element*>(shared_memory);")
        self.put(f"Element* const rows_tile = on_chip{f' + turn * {at}' * self.kernel.stays};")
        next_rows = f"on_chip + (1 - turn) * {at}"
        at += at * self.kernel.stays
        for name in self.operands:
            self.put(f"Element* const {name}_tiles = on_chip + {at};")
            at += self.kernel.held_tiles * self.elements[name]
        if self.kernel.arranged:
            self._arranged_tiles(at)
        if self.copiers:
            self._rings(at)
        pieces = [f"is_aligned({name})" for name in ("left", *self.operands) if self._pieces(name)]
        if pieces:
            self.put(f"const bool whole = {' && '.join(pieces)};")
        if not self.kernel.stays:
            self._copy_rows("rows_tile", "left", "first")
        for name, operand in self.operands.items():
            if self._pieces(name):
                count, down = program.count(operand), self._apart(name, COLUMN)
                if program.is_turned(operand):
                    kind = f"TilesOfColumns<COPIERS, {count}, TILE, Element>"
                    down = self._apart(name, program.across(operand))
                else:
                    kind = f"TilesOfRows<COPIERS, TILE, {count}, Element>"
                self.put(f"const {kind} {name}_rows({name}, {down}, whole);")
        for name in self.operands:
            with self.block(f"const auto copy_{name} = [&](int tile, int stage)", "};"):
                self.put(f"const int left = {self.size('columns', 0)} - tile * TILE;")
                self._fetch(name)
        if self.kernel.stays:
            self._fetch_once(next_rows)
            return
        self.put("int fetched = 0;  // the stage of the next tile")
        with self.block("const auto fetch = [&](int tile)", "};"):
            with self.block("if (tile < tiles)"):
                for name in self.operands:
                    self.put(f"copy_{name}(tile, fetched);")
            self.put("commit_copies();")
            self.put("fetched = fetched == STAGES - 1 ? 0 : fetched + 1;")
        self.put(f"enum {{ AHEAD = {self._ahead()} }};")
        self.put('static_assert(AHEAD > 0, "there are too few stages");')

    def _arranged_tiles(self, at: int) -> None:
        """Where tiles lie that `wgmma` takes in the place of those that were copied."""
        self.put("#if TA_WGMMA")
        for name, size in arranged_bytes(self.program, self.kernel.shape).items():
            self.put(f"f32* const {name} = on_chip + {at};")
            at += size // self.program.dtype.itemsize
        self.put("#endif")

    def _rings(self, at: int) -> None:
        """What tells threads that copy, and those that multiply, of one another."""
        self.put("#if TA_WGMMA")
        self.put(f"u64* const barriers = reinterpret_cast<u64*>(on_chip + {at});")
        for k, name in enumerate(("right", "weighed")):
            self.put(f"const Ring<STAGES> {name}_ring(barriers + {2 * k} * STAGES);")
        self.put("if (threadIdx.x == 0) right_ring.prepare(COPIERS, WORKERS / 32), "
                 "weighed_ring.prepare(COPIERS, WORKERS / 32);")
        self.put("#else")
        self.put("if (threadIdx.x >= WORKERS) return;")
        self.put("#endif")

    def _fetch_once(self, next_rows: str) -> None:
        """Of operands all, with a block's first rows; of rows always the next ones."""
        blocks = self.size("blocks", self.kernel.schedule.blocks)
        with self.block("if (group == block)"):
            self._copy_rows("rows_tile", "left", "first")
            with self.block("for (int tile = 0; tile < tiles; ++tile)"):
                for name in self.operands:
                    self.put(f"copy_{name}(tile, tile);")
        self.put("await_copies(); show_tiles(); __syncthreads();")
        with self.block(f"if (group + {blocks} < row_blocks)"):
            self.put(f"const idx later = (group + {blocks}) * ROWS;")
            self.put("const Element* const next = left + i64(later - first) * "
                     f"{self._down()};")
            self._copy_rows(next_rows, "next", "later")

    def _ahead(self) -> str:
        """Tiles that are fetched ahead: the one before is in use where products overlap."""
        return "TA_WGMMA ? STAGES - 2 : STAGES - 1" if self.halves else "STAGES - 1"

    def _apart(self, name: str, axis: int) -> str:
        """Elements between places of an operand along an axis."""
        return self.size(f"{name}_step_{axis}", self.operands[name].step(axis))

    def _pieces(self, name: str) -> bool:
        """Whether an operand comes by pieces of 16 bytes."""
        program = self.program
        if name == "left":
            left = program.left
            return bool(left.step(DEPTH) == 1 and program.depth % left.piece == 0
                        and not any(step % left.piece for step in left.others()))
        operand = self.operands[name]
        found: bool = program.is_turned(operand) or operand.in_pieces(
            COLUMN, program.across(operand), program.count(operand))
        return found

    def _copy_rows(self, tile: str, begin: str, first: str) -> None:
        """Begin to copy the rows of a block from one on, which begin there, to a tile."""
        left, rows, down = self.program.left, self.size("rows", 0), self._down()
        if self._pieces("left"):
            copy = f"{tile}, {begin}, {down}, {rows} - {first}, whole"
            self.put(f"if (threadIdx.x < WORKERS) copy_rows<WORKERS, ROWS, DEPTH>({copy});")
            return
        along = self.size("left_along", left.step(DEPTH))
        self.put("if (threadIdx.x < WORKERS) copy_elements<WORKERS, ROWS, DEPTH>("
                 f"{tile}, {begin}, {down}, {along}, {rows} - {first});")

    def _down(self) -> str:
        """Elements between rows of what is on the left."""
        left = self.program.left
        return self.size("left_down", sum(
            coefficient * stride for at, stride in zip(
                left.index, dense_strides(left.value.shape), strict=True)
            for number, coefficient in at.terms if number == self._last_place()))

    def _last_place(self) -> int:
        """The parameter that is a row's place."""
        found: int = self.program.scalars + len(self.program.lengths) - 1
        return found

    def _fetch(self, name: str) -> None:
        """Begin to copy a tile of an operand; whether nothing but waiting is left to do."""
        tile = f"{name}_tiles + stage * {self.elements[name]}"
        if self._pieces(name):
            self.put(f"return {name}_rows.fetch({tile}, tile, left);")
            return
        operand, down = self.operands[name], self._apart(name, COLUMN)
        along = self._apart(name, self.program.across(operand))
        self.put(f"copy_elements<COPIERS, TILE, {self.program.count(operand)}>({tile}, "
                 f"{name} + tile * TILE * {down}, {down}, {along}, left);")
        self.put("return false;")

    # ---- products ----------------------------------------------------------------------------

    def _instructions(self) -> Iterator[str]:
        """Functions around `wgmma`, whose text names each register of its result."""
        kind = ctype(self.program.dtype)
        turned = self.program.is_turned
        if not self.halves:
            yield '#include "singles.h"'
        if self.kernel.arranged:
            yield "#if TA_WGMMA"
            yield wgmma(kind, self.kernel.shape.columns, registers=False)
            for extent in sorted({padded(product.extent) for product in self.products}):
                yield wgmma(kind, extent, registers=True)
            yield "#endif"
        if not self.halves:
            return
        yield "#if TA_WGMMA"
        yield wgmma(kind, self.kernel.shape.columns, registers=False,
                    turned=turned(self.program.right))
        for extent, other in sorted({(padded(product.extent), turned(product.right))
                                     for product in self.products}):
            yield wgmma(kind, extent, registers=True, turned=other)
        yield "#endif"

    def _multiply(self) -> None:
        """Products of tiles; of `wgmma`'s operands the places are known ahead.

        What is summed goes along the panels of a tile, or down its rows where that is turned.
        """
        if not self.halves:
            self._multiply_singles()
            return
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
            self.put(f"  add_from_tile(Element(), s, operand_at({left}), "
                     f"operand_at(right_at + stage * {size // 8} + {beside}), k > 0);")
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
                f"add_from_registers{'_turned' * turned}(Element(), {total}, p[k / 16], "
                f"operand_at({name}_at + stage * {self.elements[name] // 8} + "
                + (f"(k / PANEL * {extent} * PANEL + k % PANEL) / 8" if turned
                   else "k * PANEL / 8") + "), 1);"))
            self.put("commit_products();")
            self.put("#else")
            self._add_products(lambda name, total, extent, turned: (
                f"add_product<TILE, {extent}, {str(turned).lower()}>({total}, p, {name}_tiles + "
                f"stage * {self.elements[name]});"))
            self.put("#endif")

    def _multiply_singles(self) -> None:
        """The same where all has four bytes: as one number of TF32, or as three products of two."""
        program, products = self.program, 1 if self.program.tf32 else 3
        depth, turned = padded(program.depth), program.is_turned(program.right)
        if self.kernel.arranged:
            self.put("#if TA_WGMMA")
            self._multiply_arranged(products, depth)
            self.put("#else")
        with self.block("const auto multiply_rows = [&](int stage)", "};"):
            self.put(f"multiply_singles<{products}, ROWS, TILE, {depth}, {str(turned).lower()}>"
                     f"(s, rows_tile, right_tiles + stage * {self.elements['right']});")
        if self.products:
            with self.block("const auto add_products = [&](int stage)", "};"):
                self._add_products(lambda name, total, extent, turned: (
                    f"add_singles<{products}, TILE, {extent}, {str(turned).lower()}>({total}, s, "
                    f"{name}_tiles + stage * {self.elements[name]});"))
        if self.kernel.arranged:
            self.put("#endif")

    def _multiply_arranged(self, products: int, depth: int) -> None:
        """The same by `wgmma`, of tiles that are arranged for it before."""
        program, three = self.program, products == 3
        turned, size = program.is_turned(program.right), self.elements["right"]
        low = "rows_low" if three else "nullptr"
        count = tile_bytes(self.kernel.shape.rows, program.depth, 4) // 4
        with self.block("const auto arrange_rows = [&]", "};"):
            self.put(f"part_tile<{products}, WORKERS, {count}>(rows_tile, {low});")
        with self.block("const auto arrange = [&](int stage)", "};"):
            if turned:
                lows = "right_low" if three else "nullptr"
                self.put(f"arrange_tile<{products}, WORKERS, TILE, {depth}, true, false>"
                         f"(right_tiles + stage * {size}, right_high, {lows});")
            else:
                lows = "right_low" if three else "nullptr"
                self.put(f"part_tile<{products}, WORKERS, {size}>"
                         f"(right_tiles + stage * {size}, {lows});")
            self._add_products(lambda name, total, extent, turned: (
                f"arrange_tile<{products}, WORKERS, {extent}, TILE, {str(not turned).lower()}, "
                f"true>({name}_tiles + stage * {self.elements[name]}, {name}_high, "
                f"{f'{name}_low' if three else 'nullptr'});"))
        self.put("const unsigned left_at = described(rows_tile, 16) + "
                 "number_of_four_warps() * (64 * 8);")
        self.put(f"const unsigned right_at = described({'right_high' if turned else 'right_tiles'}"
                 ", 16);")
        if three:
            self.put("const unsigned left_low = described(rows_low, 16) + "
                     "number_of_four_warps() * (64 * 8), low_at = described(right_low, 16);")
        with self.block("const auto multiply_rows = [&](int stage)", "};"):
            at = "right_at" if turned else f"right_at + stage * {size // 4}"
            self.put("f32 low[TILE / 8][4];")
            self.put("begin_products();")
            with self.block(f'_Pragma("unroll") for (int k = 0; k < {depth}; k += 8)'):
                self.put("const int l = along<ROWS>(k), r = along<TILE>(k);")
                self.put(f"add_from_tile(Element(), s, operand_at(left_at + l), "
                         f"operand_at({at} + r), k > 0);")
                if three:
                    self.put(f"add_from_tile(Element(), low, operand_at(left_low + l), "
                             f"operand_at({at} + r), k > 0);")
                    self.put("add_from_tile(Element(), low, operand_at(left_at + l), "
                             "operand_at(low_at + r), 1);")
            self.put("commit_products(); finish(s);")
            if three:
                self.put("settled(low);")
            self._elements("TILE / 8", lambda: self.put(
                f"s[n][c] = whole_of<{products}>(s[n][c], low[n][c]);"))
        if not self.products:
            return
        loop = '_Pragma("unroll") for (int n = 0; n < TILE / 8; ++n)'
        parts = ("high", "low")[:1 + three]
        with self.block("const auto add_products = [&](int)", "};"):
            for k, product in enumerate(self.products):
                for part in parts:
                    self.put(f"const unsigned {part}_at_{k} = described(matrix_{k}_{part}, 16);")
                for part in ("high", "low"):
                    self.put(f"f32 {part}_{k}[{padded(product.extent) // 8}][4];")
            self.put(f"begin_results<{products}>(s); begin_products();")
            for k, product in enumerate(self.products):
                with self.block(loop):
                    self.put(f"const int r = along<{padded(product.extent)}>(n * 8);")
                    for part in parts:
                        self.put(f"add_from_registers(Element(), {part}_{k}, s[n], "
                                 f"operand_at({part}_at_{k} + r), n > 0);")
            self.put("commit_products(); await_products<0>();")
            self._settle(f"{part}_{k}" for k, _ in enumerate(self.products) for part in parts)
            if three:  # with both parts at once there are too few registers
                self.put("low_results(s); begin_products();")
                for k, product in enumerate(self.products):
                    at = f"high_at_{k} + along<{padded(product.extent)}>(n * 8)"
                    self.put(f"{loop} add_from_registers(Element(), low_{k}, s[n], "
                             f"operand_at({at}), 1);")
                self.put("commit_products(); await_products<0>();")
                self._settle(f"low_{k}" for k, _ in enumerate(self.products))
            for k, product in enumerate(self.products):
                self._elements(str(padded(product.extent) // 8), lambda k=k, product=product: (
                    self.put(f"o_{product.tile.number}[n][c] += "
                             f"whole_of<{products}>(high_{k}[n][c], low_{k}[n][c]);")))

    def _settle(self, names: Iterable[str]) -> None:
        self.put(" ".join(f"settled({name});" for name in names))

    def _add_products(self, text: Callable[[str, str, int, bool], str]) -> None:
        for k, product in enumerate(self.products):
            self.put(text(f"matrix_{k}", f"o_{product.tile.number}", padded(product.extent),
                          self.program.is_turned(product.right)))

    def _rows_of_panels(self, operand: Operand) -> int:
        """Rows of an operand's tiles."""
        program = self.program
        return padded(program.count(operand)) if program.is_turned(operand) else (
            self.kernel.shape.columns)


def wgmma(kind: str, columns: int, *, registers: bool, turned: bool = False) -> str:
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
        if kind == "f32":  # results as they are: see singles.h
            left = "const f32 (&a)[4]"
            inputs = ", ".join(f'"r"(__float_as_uint(a[{k}]))' for k in (0, 2, 1, 3))
    else:
        name, left = "add_from_tile", "u64 a"
        given, last, inputs = f"%{count}, %{count + 1}", count + 2, '"l"(a)'
        tail = f"p, 1, 1, 0, {int(turned)}"
    instruction, multiplied = "k16", kind
    if kind == "f32":  # what is summed goes along rows: nothing says how
        instruction, multiplied, tail = "k8", "tf32", "p, 1, 1"
    return "\n".join([
        "namespace streams {",
        f"TA_FN void {name}({kind}, f32 (&c)[{columns // 8}][4], {left}, u64 b, int add) {{",
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{last}, 0; "',
        f'    "wgmma.mma_async.sync.aligned.m64n{columns}{instruction}.f32.{multiplied}'
        f'.{multiplied} "',
        f'    "{{{results}}}, {given}, {tail}; }}"',
        f'    : {outs} : {inputs}, "l"(b), "r"(add));',
        "}",
        "}  // namespace streams",
    ])
