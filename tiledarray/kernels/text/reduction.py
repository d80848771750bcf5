"""Accumulators of kernels that reduce, and their loops where what is read is used again and again.

There memory does not wait on a GPU: loops know scalars, and load a turn ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.schedule.instructions import (
    cost_of,
    float_sums,
    quick_op,
    scaled_addends,
    shown_in_sums,
    streams_nothing,
    words,
)
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.printer import Printer
from tiledarray.ops import reduction
from tiledarray.ops.op import Reduction

TOTAL_BYTES = 48  # no accumulator's Total is larger
INT32_MAX = 2**31 - 1
AHEAD_WORDS = 32  # registers of a thread for what its next turn reads
AHEAD_COST = 512  # flops of a turn from which it hardly waits, and a third copy of it takes long


class ReductionPrinter(Printer):
    """Writes accumulators, and what is around the loop that fills them."""

    def _declare_staged(self, macro: str) -> None:
        """Declare the shared memory of staged loads."""
        for cell, offset in self.kernel.staged.items():
            shared = "_SHARED" if self.kernel.loads[cell].is_shared else ""
            self.put(f"{macro}{shared}({ctype(cell.dtype)}, s_{cell.number}, {offset});")

    def _fetch(self, cells: Iterable[Cell]) -> None:
        """Ask for a chunk of each staged load."""
        for cell in cells:
            name = f"p_{cell.number}"
            access = self.kernel.loads[cell]
            place, count = (f"{self.staged_place} / V", "1") if access.is_shared else (
                self.staged_place, "w")
            offset = self._chunk_offset(name, access)
            self.put(f"s_{cell.number}.fetch({place}, {name} + {offset}, {count});")

    @contextmanager
    def _usual_scalars(self, number: int) -> Iterator[None]:
        """Write a loop once for each usual value of a scalar, such as an exponent."""
        found = [(op.usual, cell) for cell in self._pass_cells(number)
                 if self.schedule.quick and not self.again
                 and (op := quick_op(cell)) is not None and op.usual]
        if not found:
            yield
            return
        usual, cell = found[0]
        scalar, loop = cell.args[-1], cell.value.attrs[-1]
        name = f"known_{scalar.number}_{number}"
        with self.block(f"{usual}({self.operand(scalar, loop)}, "
                        f"[&](const auto {name}) TA_LAMBDA", "});"):
            self.known[scalar] = name
            yield
            del self.known[scalar]

    def _tried(self, number: int, sinks: list[Cell], loop: Callable[[int], None],
               together: int) -> None:
        """Write a loop, and where its sums show that something is wrong the usual one as well."""
        cells = [cell for cell in self._pass_cells(number) if cell not in self.arrays]
        again = self.schedule.quick and not self.schedule.across and not any(
            store.sink.level == "full" for store in self.kernel.stores)
        self.shown = again and shown_in_sums(cells, sinks)
        if not self.shown:
            loop(together)
            return
        plain = self.products
        self.products = {**plain, **scaled_addends(cells, sinks)}
        loop(together)
        self.products, self.shown = plain, False
        names = {cell: [self._accumulator(cell, u) for u in self._copies(cell)] for cell in sinks}
        wrong = " | ".join(
            f"{name}.is_wrong()" for cell in float_sums(sinks) for name in names[cell])
        with self.block(f"if ({self._wrong(wrong)})"):
            for name in chain.from_iterable(names.values()):
                self.put(f"{name} = decltype({name})();")
            self.again = True
            loop(1)
            self.again = False

    def _accumulator(self, cell: Cell, u: int) -> str:
        """Name of what a reduction accumulates in."""
        return f"r_{cell.number}{self._suffix(u)}"

    def _wrong(self, condition: str) -> str:
        """Whether a thread does a loop again: where its own sums show that."""
        return condition

    @contextmanager
    def _loads_ahead(self, number: int, together: int, index: str, worth: bool) -> Iterator[str]:
        """Write how a turn of a loop is read, if that is worth it; give the name of what it reads.

        A load is answered long after it is asked for, even by the nearest cache.
        """
        cells = self._reads(self._pass_cells(number), number)
        found = [cell for cell in cells
                 if cell not in self.arrays and cell not in self.kernel.staged]
        lanes = self.schedule.width if self.schedule.lane.reduced else 1
        cost = cost_of(self._pass_cells(number)) * self.schedule.width * self.unroll
        size = max(2, together) * lanes * sum(words(cell.dtype) for cell in found)
        if not (worth and self.device and streams_nothing(self.kernel) and found
                and size <= AHEAD_WORDS and cost <= AHEAD_COST):
            yield ""
            return
        name = f"Ahead_{number}"
        fields: dict[str, tuple[str, str]] = {}
        for cell in found:
            field, kind, value = self._ahead_field(cell)
            fields[field] = kind, value
        with self.block(f"struct {name}", "};"):
            for field, (kind, _) in fields.items():
                self.put(f"{kind} {field};")
        with self.block(f"const auto fetch_{number} = [&](const idx {index}, {name}& next) "
                        "TA_LAMBDA", "};"):
            for field, (_, value) in fields.items():
                place = field.partition("[")[0]
                if field.endswith("[V]"):
                    self.put(f"TA_EACH(v, V) next.{place}[v] = {value};")
                else:
                    self.put(f"next.{place} = {value};")
        self.fetched = set(found)
        yield name
        self.fetched = set()

    def _ahead_field(self, cell: Cell) -> tuple[str, str, str]:
        """The field that holds a load, its type, and what is loaded there."""
        access = self.kernel.loads[cell]
        kind = ctype(access.value.dtype)
        lanes = "[V]" if self.schedule.lane.reduced else ""
        if cell in self.bundled:
            bundle = self.bundled[cell]
            number, width = bundle.first.number, len(bundle.cells)
            place = f"p_{number} + {self._lane_offset(f'p_{number}', access)}"
            return f"l_{number}{lanes}", f"Loaded<{kind}, {width}>", f"load<{width}>({place})"
        name = f"p_{cell.number}"
        if access.strides[-1] == 1:
            place = f"{name} + {self._chunk_offset(name, access)}"
            return f"l_{cell.number}", f"Loaded<{kind}, V>", f"load<V>({place})"
        return f"c_{cell.number}{lanes}", kind, f"{name}[{self._lane_offset(name, access)}]"

    def _collected(self, sinks: list[Cell]) -> dict[str, str]:
        """Declare where what is reduced stays until it is right; return it by its name."""
        reduced: dict[str, str] = {}
        for cell in sinks:
            for value in dict.fromkeys(self._addends(cell)):
                if value.kind == "param" or value in self.arrays:
                    continue
                for u in self._copies(cell):
                    name = self.operand(value, value.dtype, u)
                    if name not in reduced:
                        reduced[name] = f"e{name[1:]}[v]"
                        self.put(f"{ctype(value.dtype)} e{name[1:]}[V];")
        return reduced

    def _addends(self, cell: Cell) -> tuple[Cell, ...]:
        """What a reduction adds: a value, or the factors of a product."""
        return self.products.get(cell) or (cell.args[0],)

    def _accumulations(self, sinks: list[Cell], reduced: dict[str, str]) -> None:
        for cell in sinks:
            for u in self._copies(cell):
                loop = self._accumulate(cell)
                names = [self.operand(value, loop, u) for value in self._addends(cell)]
                values = ", ".join(f"cast<{ctype(loop)}>({reduced.get(name, name)})"
                                   for name in names)
                self.put(f"{self._accumulator(cell, u)}.add(v, {values}, "
                         f"{self._position(cell, u)});")

    def _accumulate(self, cell: Cell) -> np.dtype[Any]:
        """The dtype a reduction works in."""
        dtype = cell.value.attrs[1]
        return dtype if dtype is not None else cell.value.args[0].dtype

    def _reducer(self, cell: Cell) -> str:
        op = cell.value.op
        assert isinstance(op, Reduction)
        if op is reduction.sum and cell.args[0].dtype == bool and (
                self._accumulate(cell) == np.int64):
            return "Tally"
        place = ""
        if cell in self.kernel.positions:
            places = prod(self.kernel.positions[cell].value.shape)
            place = ", i32" if places <= INT32_MAX else ""  # half the registers of i64
        return f"{op.accumulator}<{ctype(self._accumulate(cell))}{place}>"

    def _position(self, cell: Cell, u: int) -> str:
        if cell not in self.kernel.positions:
            return "0"
        return self._place(f"t_{cell.number}", self.kernel.positions[cell], u, lanes=True)

    def _flush(self, sinks: list[Cell]) -> str:
        calls = " ".join(
            f"r_{cell.number}{self._suffix(u)}.flush();" for cell in sinks
            for u in self._copies(cell)
        )
        return f"[&]() TA_LAMBDA {{ {calls} }}"

    def _parts(self, cell: Cell, width: int) -> str:
        number = self.schedule.splits * width * TOTAL_BYTES
        return self.arg(Slot("scratch", f"w_{cell.number}", "void*", number=number))
