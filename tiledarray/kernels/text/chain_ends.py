"""What is written of the tiles of chains: where they lie, what is before and after the stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import mul
from typing import Any

from tiledarray.fusion.chains.held import Held
from tiledarray.fusion.chains.kernel import ChainKernel, Reach, Version
from tiledarray.fusion.chains.resident import edge_bytes
from tiledarray.fusion.chains.stages import MOST_AXES, Places
from tiledarray.fusion.ir import ONE, Terms, Value, dense_strides
from tiledarray.fusion.plan import Store
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.writer import Writer

ROWS = "(const int i_0, const int i_1, const int i_2, auto rows) TA_LAMBDA"
COUNT = "enum { N = decltype(rows)::value };"


def padded(places: tuple[Any, ...], fill: Any) -> tuple[Any, ...]:
    """One for each of three dimensions."""
    return (*(fill,) * (MOST_AXES - len(places)), *places)


class ChainWriter(Writer):
    """What is written of tiles: where they lie, boxes of them, places in arrays."""

    def __init__(self, kernel: ChainKernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.rank = len(kernel.size)
        self.first = MOST_AXES - self.rank  # of three dimensions

    def dimensions(self) -> Iterator[tuple[int, int]]:
        """Dimensions of the arrays, and which of three they are."""
        return ((d, self.first + d) for d in range(self.rank))

    def box(self, name: str, reach: Reach, base: Value, *, rings: bool = True) -> None:
        """Declare what a block has of an array, so far around its tile.

        Along rings that is all of the tile, unless it is to be counted once.
        """
        halo, whole, offset = self.kernel.halo, self.kernel.extents, self.kernel.offsets[base]
        self._unit_box(name)
        for d, at in self.dimensions():
            below, above = reach[d]
            first = self.size(f"{name}_first_{at}", halo[d][0] - below)
            last = self.size(f"{name}_last_{at}", whole[d] - (halo[d][1] - above))
            if rings and d in self.kernel.around:
                self.put(f"{name}.begin[{at}] = {first}; {name}.end[{at}] = {last};")
                continue
            begin = self.size(f"{name}_begin_{at}", offset[d])
            end = self.size(f"{name}_end_{at}", offset[d] + base.shape[d])
            self.put(f"clip({name}, {at}, {first}, {last}, {begin}, {end}, o_{at});")

    def _unit_box(self, name: str) -> None:
        begins, ends = (", ".join([number] * self.first) for number in "01")
        self.put(f"Box {name}{{{{{begins}}}, {{{ends}}}}};")

    def tile(self, name: str, version: Version, of: str, plane: str = "") -> None:
        """Declare where an array lies in shared memory, or a plane of it."""
        kind = ctype(version[0].dtype)
        offset = self.size(f"{of}_place", self.kernel.places[version])
        self.put(f"{kind}* const {name} = reinterpret_cast<{kind}*>(shared + {offset}){plane};")

    def at(self, row: str) -> str:
        """Declare a row of a tile, and where (i_0, row, i_2) lies in it."""
        return f"const int row = {row}, at = (i_0 * E1 + row) * E2 + i_2; (void)at;"

    def pointer(self, name: str, value: Value, begin: Places, strides: Places, *,
                offset: Terms = (), kind: str = "const {}*") -> str:
        """Pointer to where element 0 of the frame would be of an array that begins there."""
        moved = dict(offset)
        moved[ONE] = moved.get(ONE, 0) - sum(map(mul, begin, strides))
        terms = tuple(sorted(item for item in moved.items() if item[1]))
        return self.arg(Slot("pointer", name, kind.format(ctype(value.dtype)), value=value,
                             offset=terms))

    def place(self, name: str, strides: Places, shift: Places = (0, 0, 0)) -> str:
        """Place from there of what lies so far from (i_0, row, i_2) in a tile, as an expression."""
        terms = []
        for (d, at), stride, by in zip(self.dimensions(), strides, shift, strict=False):
            if stride:
                index = f"(o_{at} + {'row' if at == 1 else f'i_{at}'}{f' + ({by})' if by else ''})"
                if d in self.kernel.around:
                    index = f"around({index}, {self.size(f'ring_{at}', self.kernel.size[d])})"
                terms.append(index if stride == 1 and d + 1 == self.rank else
                             f"{index} * {self.size(f'{name}_{at}', stride)}")
        return " + ".join(terms) or "0"


class Ends(ChainWriter):
    """What is before the stages, and after them.

    With ``lone`` that array goes to registers and comes from there, in the lines ``direct``.
    """

    def __init__(self, kernel: ChainKernel, lone: Held | None = None) -> None:
        super().__init__(kernel)
        self.lone = lone
        self.direct: list[str] = []

    def origin(self) -> None:
        """Write where a block's tiles begin in the arrays."""
        self.put("idx t = block;")
        for d, at in reversed([*self.dimensions()]):
            below = self.size(f"below_{at}", self.kernel.halo[d][0])
            tiles = self.size(f"tiles_{at}", -(-self.kernel.size[d] // self.kernel.tile[d]))
            if d:
                self.put(f"const idx o_{at} = t % {tiles} * T{at} - {below}; t /= {tiles};")
            else:
                self.put(f"const idx o_{at} = t * T{at} - {below};")

    def copy_in(self) -> None:
        """Write the copies of arrays to shared memory."""
        for k, base in enumerate(self.kernel.inputs):
            if self.lone is not None and base is self.lone.base:
                tile = f"{ctype(base.dtype)}*>(shared + {self.kernel.places[base, -1]})"
                self._direct(f"in_{k}", base, base, "const {}*", "fetch")
                self.direct.append(f"    held.store(reinterpret_cast<{tile}, false);")
                continue
            source = self.array(f"in_{k}", base, base, "const {}*")
            with self.copied(f"in_{k}", (base, -1), self.kernel.needed[0][base]):
                self._copy(f"in_{k}", base, f"Constant<{ctype(base.dtype)}>({source})[place]",
                           "tile[at]")

    def copy_out(self) -> None:
        """Write the copies of tiles to where the arrays lie."""
        for k, (base, store) in enumerate(
                zip(self.kernel.outputs, self.kernel.stores, strict=True)):
            self.copy_one_out(k, base, store)

    def copy_one_out(self, k: int, base: Value, store: Store) -> None:
        """Write the copy of a tile."""
        if self.lone is not None:
            around = ", ".join(str(n) for ends in self.kernel.halo for n in ends)
            self._direct(f"out_{k}", base, store.access.value, "{}*", f"template leave<{around}>")
            return
        target = self.array(f"out_{k}", base, store.access.value, "{}*")
        version = base, self.kernel.version(base, len(self.kernel.stages))
        with self.copied(f"out_{k}", version, ((0, 0),) * self.rank):
            self._copy(f"out_{k}", base, "tile[at]", f"{target}[place]")

    def _direct(self, name: str, base: Value, value: Value, kind: str, does: str) -> None:
        """Have a thread's registers filled from an array, or left there."""
        pointer = self.pointer(name, value, (0, 0), dense_strides(base.shape), kind=kind)
        begins = ", ".join(
            f"o_{at} - {self.size(f'{name}_begin_{at}', self.kernel.offsets[base][d])}"
            for d, at in self.dimensions())
        height, width = (self.size(f"{name}_size_{at}", base.shape[d])
                         for d, at in self.dimensions())
        self.direct.append(f"    held.{does}({pointer}, {width}, {begins}, {height}, {width});")

    def array(self, name: str, base: Value, value: Value, kind: str) -> str:
        """Pointer to where element 0 of the frame would be of what is copied."""
        return self.pointer(name, value, self.kernel.offsets[base], dense_strides(base.shape),
                            kind=kind)

    @contextmanager
    def copied(self, name: str, version: Version, reach: Reach) -> Iterator[None]:
        """What is written is done for each N rows of a box, of which the tile is declared."""
        with self.block(""):
            self.tile("tile", version, name)
            self.box(f"{name}_box", reach, version[0], rings=version[1] < 0)
            with self.block(f"each_rows<TX, TY, R>({name}_box, [&]{ROWS}", "});"):
                self.put(COUNT)
                yield

    def _copy(self, name: str, base: Value, source: str, target: str) -> None:
        """Copy rows, so that a thread's loads are all on their way before it stores."""
        self.put(f"{ctype(base.dtype)} y[N];")
        for line in (f"y[u] = {source};", f"{target} = y[u];"):
            with self.block("TA_TOGETHER(u)"):
                self.put(self.at("i_1 + u"))
                if "[place]" in line:
                    strides = dense_strides(base.shape)
                    self.put(f"const idx place = {self.place(name, strides)};")
                self.put(line)


class Rounds(Writer):
    """What is around a round of stages, of several on tiles that stay on chip."""

    def __init__(self, kernel: ChainKernel, lone: Held) -> None:
        super().__init__()
        (base,), (rows, lanes) = kernel.outputs, kernel.halo
        kind, blocks = ctype(base.dtype), kernel.schedule.blocks
        edges = self.arg(Slot("scratch", "edges", "void*", number=edge_bytes(kernel)))
        arrived = self.arg(Slot("counters", "arrived", "unsigned*", number=2 + blocks))
        length = self.size("length", len(kernel.stages))
        rest, last = self.size("rest", kernel.rest), self.size("last", kernel.rounds - 1)
        sizes = ", ".join(map(str, (*kernel.extents, *rows, *lanes)))
        self.begin = [
            f"    const Edges<{kind}, {sizes}> edges({edges}, {arrived} + 2, block, "
            "int(a.tiles_1), int(a.tiles_2));",
            '    _Pragma("unroll 1") for (int round = 0;; ++round) {',
            f"    const int steps = int(round < {last} ? {length} : {rest});"]
        self.end = [
            f"    if (round == {last}) break;", "    edges.exchange(held, round);",
            f"    held.store(reinterpret_cast<{kind}*>(shared + {kernel.places[lone.base, -1]}), "
            "false);", "    __syncthreads();", "    }"]
        self.after = [f"  clear_flags<TX * TY>({arrived}, {blocks}, {blocks});"]
