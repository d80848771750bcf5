"""What a stream's text does with operands: where they are, how they get on chip, their products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tiledarray.fusion.ir import Index, Value, dense_strides, storage
from tiledarray.fusion.streams.ir import COLUMN, DEPTH, Operand
from tiledarray.fusion.streams.kernel import (
    StreamKernel,
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
        self._ways()
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

    def _ways(self) -> None:
        """How tiles of operands that come by pieces are copied."""
        program = self.program
        for name, operand in self.operands.items():
            if not self._pieces(name):
                continue
            count, down = program.count(operand), self._apart(name, COLUMN)
            if program.is_turned(operand):
                kind = f"TilesOfColumns<COPIERS, {count}, TILE, Element>"
                down = self._apart(name, program.across(operand))
            else:
                kind = f"TilesOfRows<COPIERS, TILE, {count}, Element>"
            self.put(f"const {kind} {name}_rows({name}, {down}, whole);")

    def _arranged_tiles(self, at: int) -> None:
        """Where tiles lie that are made of those that were copied, from that element on."""
        raise NotImplementedError

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
