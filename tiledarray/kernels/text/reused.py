"""What loops do on a GPU where memory does not wait: they know scalars, and load a turn ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.schedule.instructions import cost_of, quick_op, streams_nothing, words
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.printer import Printer

AHEAD_WORDS = 32  # registers of a thread for what its next turn reads
AHEAD_COST = 512  # flops of a turn from which it hardly waits, and a third copy of it takes long


class ReductionPrinter(Printer):
    """Writes a reduction's loop, where what it reads is used again and again."""

    @contextmanager
    def _usual_scalars(self, number: int) -> Iterator[None]:
        """Write a loop once for each usual value of a scalar, such as an exponent."""
        found = [(op.usual, cell) for cell in self._pass_cells(number)
                 if self.schedule.quick and (op := quick_op(cell)) is not None and op.usual]
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
