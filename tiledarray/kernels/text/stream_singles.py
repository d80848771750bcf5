"""A stream's products where all has four bytes: of TF32, one or three in place of one."""

from __future__ import annotations

from collections.abc import Iterable

from tiledarray.fusion.streams.kernel import arranged_bytes, padded, tile_bytes
from tiledarray.kernels.text.stream_reads import StreamReads

PRODUCTS = 3  # of numbers that are parted in two, but for that of both low parts


class StreamSingles(StreamReads):
    """Writes products of float32, by `mma`, or by `wgmma` of tiles that are arranged for it.

    What they do is in singles.h.
    """

    def _arranged_tiles(self, at: int) -> None:
        """Where tiles lie that `wgmma` takes in the place of those that were copied."""
        self.put("#if TA_WGMMA")
        for name, size in arranged_bytes(self.program, self.kernel.shape).items():
            self.put(f"f32* const {name} = on_chip + {at};")
            at += size // self.program.dtype.itemsize
        self.put("#endif")

    def _multiply_singles(self) -> None:
        """Functions that multiply the tiles of a stage, and add what weights make of one."""
        program, products = self.program, 1 if self.program.tf32 else PRODUCTS
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
        self._arrange(products, depth)
        self._multiply_arranged_rows(products, depth)
        if self.products:
            self._add_arranged(products)

    def _arrange(self, products: int, depth: int) -> None:
        """Functions that arrange the rows of a block, and what lies in a stage."""
        program, three = self.program, products == PRODUCTS
        turned, size = program.is_turned(program.right), self.elements["right"]
        count = tile_bytes(self.kernel.shape.rows, program.depth, 4) // 4

        def low(name: str) -> str:
            return f"{name}_low" if three else "nullptr"

        with self.block("const auto arrange_rows = [&]", "};"):
            self.put(f"part_tile<{products}, WORKERS, {count}>(rows_tile, {low('rows')});")
        with self.block("const auto arrange = [&](int stage)", "};"):
            way = (f"arrange_tile<{products}, WORKERS, TILE, {depth}, true, false>" if turned else
                   f"part_tile<{products}, WORKERS, {size}>")
            self.put(f"{way}(right_tiles + stage * {size}, {'right_high, ' * turned}"
                     f"{low('right')});")
            self._add_products(lambda name, total, extent, turned: (
                f"arrange_tile<{products}, WORKERS, {extent}, TILE, {str(not turned).lower()}, "
                f"true>({name}_tiles + stage * {self.elements[name]}, {name}_high, {low(name)});"))

    def _multiply_arranged_rows(self, products: int, depth: int) -> None:
        """Scores, of tiles in shared memory alone."""
        turned, three = self.program.is_turned(self.program.right), products == PRODUCTS
        size = self.elements["right"]
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

    def _add_arranged(self, products: int) -> None:
        """What weights in registers make of operands; of three products low weights come last."""
        three = products == PRODUCTS
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
