"""The printer: a scheduled kernel as the text of a tile program, and what to bind to it.

The text is the same for both compilers but for the constants at its top.  It never contains a
size, a stride other than 0 or 1, an offset or a scalar: those are fields of ``Args``, so a new
shape or a new scalar reuses the binary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Cell, Param, Size, Terms, Value
from tiledarray.fusion.place import inner_axes, passes_needed, reductions
from tiledarray.fusion.plan import Kernel, Store, Strided
from tiledarray.fusion.tile import LINE, dense_strides, lane_blocks
from tiledarray.kernels.expression import ctype, render
from tiledarray.ops.op import Elementwise, Update

TOTAL_BYTES = 48  # no accumulator's Total is larger
BORDER_TILE = 8192
UNROLLED = 64  # scalar computations in a loop's body
NARROW_BYTES = (1 << 31) - (1 << 24)  # 32-bit indices may overshoot an array by a tile


@dataclass(frozen=True, slots=True)
class Slot:
    """One 8-byte field of ``Args`` (two for a complex parameter) and where its value comes from.

    ``pointer``: address of ``value``'s buffer plus ``offset`` elements; ``size``: the integer
    ``number`` plus ``offset``; ``phase``: ``offset`` modulo ``number``; ``param``: parameter ``number``; ``scratch``: memory for
    ``number`` bytes; ``counters``: ``number`` zeroed counters.
    """

    kind: Literal["pointer", "size", "phase", "param", "scratch", "counters"]
    name: str
    ctype: str
    value: Value | None = None
    number: int = 0
    offset: Terms = ()
    param: type | None = None


@dataclass(slots=True)
class Program:
    """Printed kernel: ``text`` with ``NAME`` for its name, and the slots of ``Args`` in order."""

    text: str
    slots: list[Slot]
    blocks: int
    threads: int
    grain: int
    scratch_bytes: int


@dataclass(slots=True)
class Printer:
    """Prints one kernel."""

    kernel: Kernel
    device: bool
    lines: list[str] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)
    params: dict[int, int] = field(default_factory=dict)  # numbered as met: equal texts compile once
    depth: int = 1

    def __post_init__(self) -> None:
        self.schedule = self.kernel.schedule
        self.axes = self.schedule.axes
        self.inner = inner_axes(self.kernel)
        self.lane_axes = frozenset(self.schedule.lane.domain)
        self.step_axes = self.inner - self.lane_axes
        self.needed = passes_needed(self.kernel)
        self.form = self.schedule.form
        self.unroll = self.schedule.unroll
        self.row_domain = frozenset(
            a for axis in self.axes if axis.role == "row" for a in axis.domain
        )
        self.arrays: set[Cell] = set()

    # dataclass(slots=True) needs every attribute declared
    schedule: Any = field(init=False)
    axes: Any = field(init=False)
    inner: Any = field(init=False)
    lane_axes: Any = field(init=False)
    step_axes: Any = field(init=False)
    needed: Any = field(init=False)
    form: Any = field(init=False)
    unroll: Any = field(init=False)
    row_domain: Any = field(init=False)
    arrays: Any = field(init=False)

    # ---- text ----------------------------------------------------------------------------

    def put(self, line: str) -> None:
        """Add one line at the current depth."""
        self.lines.append("  " * self.depth + line)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Add ``head {``, an indented body, and the closing ``tail``."""
        self.put(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.put(tail)

    def arg(self, slot: Slot) -> str:
        """Name of a field of ``Args`` in the text."""
        self.slots.setdefault(slot.name, slot)
        return f"a.{slot.name}"

    def size(self, name: str, number: int, offset: Terms = ()) -> str:
        """Field for an integer."""
        return self.arg(Slot("size", name, "i64", number=number, offset=offset))

    # ---- whole program -------------------------------------------------------------------

    def run(self) -> Program:
        """Print the kernel."""
        self._blocks()
        tx, ty = self.schedule.threads
        wide = any(_reach(a) >= NARROW_BYTES for a in self._accesses())
        index = "int" if self.device and not wide else "long long"
        # Every field takes 8 bytes, whatever the width of indices.
        fields = " ".join(
            f"alignas(8) {'idx' if slot.kind in ('size', 'phase') else slot.ctype} {slot.name};"
            for slot in self.slots.values()
        )
        head = [
            f"using idx = {index};",
            '#include "tile.h"',
            f"struct Args {{ {fields} }};",
            f"enum {{ TX = {tx}, TY = {ty}, V = {self.schedule.width}, "
            f"C = {self.schedule.chunks if self.device else 1} }};",
            "TA_KERNEL(NAME, Args) {",
            "  TA_BLOCKS(block)",
        ]
        text = "\n".join([*head, *self.lines, "}", ""])
        blocks = self.schedule.blocks + self._border_blocks()
        grain = 1
        return Program(text, list(self.slots.values()), blocks, tx * ty, grain,
                       self.schedule.scratch_bytes)

    def _accesses(self) -> list[Strided]:
        return [*self.kernel.loads.values(), *(s.access for s in self.kernel.stores),
                *self.kernel.positions.values()]

    def _blocks(self) -> None:
        schedule = self.schedule
        if self.kernel.border is not None:
            self._border()
        self.put("idx t = block;")
        tiled = not schedule.lane.reduced
        if tiled:
            tiles = self.size("lane_blocks", lane_blocks(schedule))
            self.put(f"const idx lane_block = t % {tiles}; t /= {tiles};")
            extent = self._extent(len(self.axes) - 1)
            tile = self.size("lane_tile", schedule.lane_tile)
            if schedule.phase:
                phase = self.arg(Slot("phase", "phase", "idx", number=LINE, offset=schedule.phase))
                self.put(f"const Range js = shifted(lane_block, {tile}, {extent}, {phase});")
            else:
                self.put(f"const Range js = piece(lane_block, {tile}, {extent});")
        if schedule.splits > 1:
            splits = self.size("splits", schedule.splits)
            self.put(f"const idx split = t % {splits}; t /= {splits};")
        groups = -(-schedule.rows // self.unroll)
        tile = -(-schedule.row_tile // self.unroll)
        self.put(f"const Range rows = piece(t, {self.size('row_tile', tile)}, "
                 f"{self.size('row_groups', groups)});")
        with self.block(f"{'TA_EVERY_ROW' if self.form == 'column' else 'TA_ROWS'}(row, rows)"):
            self._row()

    def _extent(self, axis: int) -> str:
        return self.size(f"n{axis}", self.axes[axis].size)

    def _range(self, axis: int) -> str:
        """The part of a reduced axis that this block walks."""
        split_axis = next((k for k, a in enumerate(self.axes) if a.role == "step"),
                          len(self.axes) - 1)
        if self.schedule.splits > 1 and axis == split_axis:
            unit = self.schedule.width * self.schedule.threads[0]
            unit = unit if self.axes[axis].role == "lane" else 1
            share = -(-self.axes[axis].size // self.schedule.splits)
            return f"piece(split, {self.size('share', -(-share // unit) * unit)}, " \
                   f"{self._extent(axis)})"
        return f"Range{{0, {self._extent(axis)}}}"

    # ---- rows ----------------------------------------------------------------------------

    def _copies(self, cell: Cell | None = None, access: Strided | None = None) -> range:
        """Which of the rows computed together need their own copy."""
        if self.unroll == 1:
            return range(1)
        if cell is not None:
            return range(self.unroll if cell.axes & self.row_domain else 1)
        assert access is not None
        varies = any(stride for stride, axis in zip(access.strides, self.axes, strict=True)
                     if axis.role == "row")
        return range(self.unroll if varies else 1)

    def name(self, cell: Cell, u: int = 0) -> str:
        """Name of a cell's value for row ``u``."""
        if cell in self.arrays:
            return f"x{cell.number}[v]"
        suffix = f"_{u}" if self.unroll > 1 and cell.axes & self.row_domain else ""
        return f"c{cell.number}{suffix}"

    def operand(self, cell: Cell, loop: np.dtype[Any], u: int = 0) -> str:
        """Name of an operand; a scalar arrives as the loop's type, so the kernel casts nothing."""
        if cell.kind != "param":
            return self.name(cell, u)
        param: Any = cell.value
        if isinstance(param, Size):
            return self.size(f"z{cell.number}", param.count)
        if not isinstance(param, Param):
            return f"i64({param or 0})"
        if param.kind is complex:
            kind = "c128"
        elif param.kind is float:
            kind = "f32" if loop.kind in "fV" and loop.itemsize <= 4 else "f64"
        else:
            kind = "i32" if loop.kind == "b" else "f32" if loop == np.float32 else "i64"
        number = self.params.setdefault(param.index, len(self.params))
        return self.arg(Slot("param", f"{kind}_{number}", kind, number=param.index,
                             param=param.kind))

    def _row(self) -> None:
        rows = [k for k, axis in enumerate(self.axes) if axis.role == "row"]
        for u in range(self.unroll):
            suffix = f"_{u}" if self.unroll > 1 else ""
            if self.unroll > 1:
                count = self.size("rows", self.schedule.rows)
                self.put(f"const idx row{suffix} = min_idx(row * {self.unroll} + {u}, "
                         f"{count} - 1);")
            row = f"row{suffix}"
            rest = row
            for k in reversed(rows[1:]):
                self.put(f"const idx i{k}{suffix} = {rest} % {self._extent(k)};")
                rest = f"{rest} / {self._extent(k)}"
            if rows:
                self.put(f"const idx i{rows[0]}{suffix} = {rest};")
        updated = {storage(store.sink.value.args[0]) for store in self.kernel.stores
                   if isinstance(store.sink.value.op, Update) and self.kernel.border is None}
        for cell, access in self.kernel.loads.items():
            if cell.kind == "load":
                self._row_pointer(f"p{cell.number}", f"const {ctype(cell.dtype)}*", access,
                                  written=storage(access.value) in updated)
        for k, store in enumerate(self.kernel.stores):
            self._row_pointer(f"q{k}", f"{ctype(store.access.value.dtype)}*", store.access)
        self._scalar_cells(phase=0)
        if self.form == "map":
            self._map()
        elif self.form == "row":
            self._reduced_rows()
        else:
            self._reduced_columns()

    def _row_pointer(self, name: str, kind: str, access: Strided, *,
                     written: bool = True) -> None:
        base = self.arg(Slot("pointer", name, kind, value=access.value, offset=access.offset))
        for u in self._copies(access=access):
            suffix = f"_{u}" if len(self._copies(access=access)) > 1 else ""
            terms = [base]
            for k, (stride, axis) in enumerate(zip(access.strides, self.axes, strict=True)):
                if axis.role == "row" and stride:
                    row = f"i{k}{suffix}"
                    terms.append(row if stride == 1 else f"{row} * {self._stride(name, k, stride)}")
            pointer = kind if written else f"Constant<{ctype(access.value.dtype)}>"
            self.put(f"{pointer} const {name}{suffix} = {' + '.join(terms)};")

    def _stride(self, name: str, axis: int, stride: int) -> str:
        return self.size(f"s{name}_{axis}", stride)

    def _is_inner(self, cell: Cell) -> bool:
        return bool(cell.axes & self.inner)

    def _scalar_cells(self, phase: int) -> None:
        """Cells that do not vary along the row."""
        for cell in self.kernel.cells:
            if cell.phase == phase and not self._is_inner(cell) and cell.kind in (
                    "load", "iota", "apply"):
                for u in self._copies(cell):
                    self._define(cell, u)

    # ---- cells ---------------------------------------------------------------------------

    def _define(self, cell: Cell, u: int = 0, lanes: bool = False) -> None:
        value = self._expression(cell, u, lanes)
        target = f"x{cell.number}[v] =" if cell in self.arrays else (
            f"const {ctype(cell.dtype)} {self.name(cell, u)} =")
        self.put(f"{target} {value};")

    def _expression(self, cell: Cell, u: int, lanes: bool) -> str:
        if cell.kind == "load":
            return self._load(cell, u, lanes)
        if cell.kind == "iota":
            return self._iota(cell, u, lanes)
        op = cell.value.op
        if isinstance(op, Elementwise):
            names = [self.operand(arg, loop, u)
                     for arg, loop in zip(cell.args, cell.value.attrs, strict=True)]
            return render(op, cell.value.attrs, cell.dtype, names)
        return f"cast<{ctype(cell.dtype)}>({self.operand(cell.args[0], cell.dtype, u)})"

    def _lane_offset(self, name: str, access: Strided) -> str:
        """Element offset along steps and lanes from the row's pointer."""
        terms = []
        for k, (stride, axis) in enumerate(zip(access.strides, self.axes, strict=True)):
            if axis.role == "row" or not stride:
                continue
            at = "(j + v)" if axis.role == "lane" else f"k{k}"
            terms.append(at if stride == 1 else f"{at} * {self._stride(name, k, stride)}")
        return " + ".join(terms) or "0"

    def _load(self, cell: Cell, u: int, lanes: bool) -> str:
        access = self.kernel.loads[cell]
        many = len(self._copies(access=access)) > 1
        name = f"p{cell.number}"
        pointer = f"{name}_{u}" if many else name
        if not lanes:
            return f"{pointer}[0]"
        if access.strides[-1] == 1:
            return f"l{cell.number}{f'_{u}' if many else ''}[v]"
        return f"{pointer}[{self._lane_offset(name, access)}]"

    def _vector_loads(self, cells: list[Cell], guarded: bool) -> None:
        """Loads of whole chunks, ahead of the loop over lanes."""
        for cell in cells:
            if cell.kind != "load" or self.kernel.loads[cell].strides[-1] != 1:
                continue
            access = self.kernel.loads[cell]
            copies = self._copies(access=access)
            for u in copies:
                suffix = f"_{u}" if len(copies) > 1 else ""
                name = f"p{cell.number}"
                offset = self._lane_offset(name, access).replace("(j + v)", "j")
                count = ", w" if guarded else ""
                self.put(f"const auto l{cell.number}{suffix} = "
                         f"load<V>({name}{suffix} + {offset}{count});")

    def _iota(self, cell: Cell, u: int, lanes: bool) -> str:
        access = self.kernel.loads[cell]
        loop = ctype(cell.value.attrs[0])
        place = self._place(f"t{cell.number}", access, u, lanes)
        start, step = (self.operand(arg, cell.value.attrs[0]) for arg in cell.args)
        return (f"cast<{ctype(cell.dtype)}>(m_add(m_multiply(cast<{loop}>({place}), "
                f"cast<{loop}>({step})), cast<{loop}>({start})))")

    def _place(self, name: str, access: Strided, u: int, lanes: bool) -> str:
        """Linear element index of an access, as a 64-bit integer."""
        terms = []
        if access.offset:
            terms.append(self.size(f"o{name}", 0, access.offset))
        for k, (stride, axis) in enumerate(zip(access.strides, self.axes, strict=True)):
            if not stride or (not lanes and axis.role != "row"):
                continue
            suffix = f"_{u}" if self.unroll > 1 else ""
            at = {"lane": "(j + v)", "step": f"k{k}", "row": f"i{k}{suffix}"}[axis.role]
            terms.append(f"i64({at})" if stride == 1 else
                         f"i64({at}) * {self._stride(name, k, stride)}")
        return f"i64({' + '.join(terms) or '0'})"

    # ---- the loop over lanes -------------------------------------------------------------

    def _pass_cells(self, number: int) -> list[Cell]:
        return [cell for cell in self.kernel.cells
                if self._is_inner(cell) and number in self.needed[cell]]

    def _lane_cells(self, cells: list[Cell], number: int) -> None:
        """Define the cells of one pass, from memory, from what is held, or by computing."""
        for cell in cells:
            if cell.kind in ("param", "reduce") or cell in self.arrays:
                continue
            first = min(self.needed[cell]) == number
            for u in self._copies(cell):
                if cell.held and not first:
                    self.put(f"const {ctype(cell.dtype)} c{cell.number} = "
                             f"h{cell.number}[TA_SLOT(j, c, v)];")
                else:
                    self._define(cell, u, lanes=True)
                    if cell.held:
                        self.put(f"h{cell.number}[TA_SLOT(j, c, v)] = c{cell.number};")

    def _reads(self, cells: list[Cell], number: int) -> list[Cell]:
        """The loads of a pass that go to memory."""
        return [cell for cell in cells if cell.kind == "load"
                and not (cell.held and min(self.needed[cell]) != number)]

    def _together(self, number: int) -> int:
        """Chunks of a reduction done side by side, so that several loads are under way."""
        work = sum(len(self._copies(cell)) for cell in self._pass_cells(number)
                   if cell.kind in ("load", "apply", "iota"))
        for together in (4, 2):
            if work * self.schedule.width * together <= UNROLLED:
                return together
        return 1

    def _lane_body(self, number: int, guarded: bool) -> None:
        """One chunk of lanes of pass ``number``: loads, values, stores, accumulations."""
        cells = self._pass_cells(number)
        self._vector_loads(self._reads(cells, number), guarded)
        stores = [(k, s) for k, s in enumerate(self.kernel.stores)
                  if s.sink.level == "full" and s.sink.cell.phase + 1 == max(number, 1)]
        for k, store in stores:
            if store.access.strides[-1] == 1:
                offset = self._lane_offset(f"q{k}", store.access).replace("(j + v)", "j")
                self.put(f"auto y{k} = storing<V>(q{k} + {offset});")
        with self.block("TA_EACH(v, w)"):
            self._lane_cells(cells, number)
            for k, store in stores:
                self.put(f"{self._target(k, store)} = {self._stored(store)};")
            for cell in reductions(self.kernel.cells, number):
                for u in self._copies(cell):
                    self.put(f"r{cell.number}{self._suffix(u)}.add(v, "
                             f"{self._reduced_input(cell, u)}, {self._position(cell, u)});")
        for k, store in stores:
            if store.access.strides[-1] == 1:
                self.put(f"y{k}.flush(w);")

    def _suffix(self, u: int) -> str:
        return f"_{u}" if self.unroll > 1 else ""

    def _target(self, k: int, store: Store) -> str:
        if store.access.strides[-1] == 1:
            return f"y{k}[v]"
        return f"q{k}[{self._lane_offset(f'q{k}', store.access)}]"

    def _stored(self, store: Store, u: int = 0) -> str:
        name = self.name(store.sink.cell, u)
        target = ctype(store.access.value.dtype)
        cell = store.sink.cell
        if cell.dtype is None or ctype(cell.dtype) != target:
            return f"cast<{target}>({name})"
        return name

    def _reduced_input(self, cell: Cell, u: int) -> str:
        loop = self._accumulate(cell)
        return f"cast<{ctype(loop)}>({self.name(cell.args[0], u)})"

    def _accumulate(self, cell: Cell) -> np.dtype[Any]:
        """The dtype a reduction works in."""
        dtype = cell.value.attrs[1]
        return dtype if dtype is not None else cell.value.args[0].dtype

    def _reducer(self, cell: Cell) -> str:
        return f"{cell.value.op.accumulator}<{ctype(self._accumulate(cell))}>"  # type: ignore[attr-defined]

    def _position(self, cell: Cell, u: int) -> str:
        if cell not in self.kernel.positions:
            return "0"
        return self._place(f"t{cell.number}", self.kernel.positions[cell], u, lanes=True)

    # ---- forms ---------------------------------------------------------------------------

    def _map(self) -> None:
        for cell in self.kernel.cells:
            if self._is_inner(cell):
                self.needed[cell].add(1)
        with self.block("lanes<TX, V, C>(js, [&](const idx j, const auto w) TA_LAMBDA", "});"):
            self._lane_body(1, guarded=False)

    def _reduced_rows(self) -> None:
        steps = [k for k, axis in enumerate(self.axes) if axis.role == "step"]
        lane = len(self.axes) - 1
        held = [cell for cell in self.kernel.cells if cell.held]
        if held:
            self.put("TA_SCRATCH")
        for cell in held:
            self.put(f"TA_HELD({ctype(cell.dtype)}, h{cell.number}, {self._extent(lane)});")
        for number in range(1, self.kernel.group.phases + 1):
            sinks = reductions(self.kernel.cells, number)
            for cell in sinks:
                for u in self._copies(cell):
                    self.put(f"RowAccumulator<{self._reducer(cell)}, V> r{cell.number}"
                             f"{self._suffix(u)};")
            loops = len(steps)
            for k in steps:
                self.put(f"const Range range{k}_{number} = {self._range(k)};")
                self.put(f"for (idx k{k} = range{k}_{number}.begin; "
                         f"k{k} < range{k}_{number}.end; ++k{k}) {{")
                self.depth += 1
            call = "held_lanes<TX, V, C>" if held else f"lanes<TX, V, {self._together(number)}>"
            extra = ", const int c" if held else ""
            with self.block(f"{call}({self._range(lane)}, [&](const idx j, const auto w{extra}) "
                            "TA_LAMBDA", "}, " + self._flush(sinks) + ");"):
                self._lane_body(number, guarded=bool(held))
            for _ in range(loops):
                self.depth -= 1
                self.put("}")
            self._finish_rows(sinks)
            self._scalar_cells(phase=number)
        self._row_stores()

    def _flush(self, sinks: list[Cell]) -> str:
        calls = " ".join(
            f"r{cell.number}{self._suffix(u)}.flush();" for cell in sinks
            for u in self._copies(cell)
        )
        return f"[&]() TA_LAMBDA {{ {calls} }}"

    def _finish_rows(self, sinks: list[Cell]) -> None:
        split = self.schedule.splits > 1
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"auto total{cell.number}{self._suffix(u)} = "
                         f"r{cell.number}{self._suffix(u)}.template finish<TX>();")
        if split and sinks:
            self._merge_rows(sinks)
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"const {ctype(cell.dtype)} {self.name(cell, u)} = {self._reducer(cell)}"
                         f"::template value<{ctype(cell.dtype)}>(total{cell.number}"
                         f"{self._suffix(u)});")

    def _parts(self, cell: Cell, width: int) -> str:
        number = self.schedule.splits * width * TOTAL_BYTES
        return self.arg(Slot("scratch", f"w{cell.number}", "void*", number=number))

    def _merge_rows(self, sinks: list[Cell]) -> None:
        rows = self.schedule.rows
        for cell in sinks:
            parts = self._parts(cell, rows)
            for u in self._copies(cell):
                row = f"row{self._suffix(u)}"
                self.put(f"{self._reducer(cell)}::Total* const parts{cell.number}{self._suffix(u)} ="
                         f" ({self._reducer(cell)}::Total*){parts} + {row} * a.splits;")
                self.put(f"TA_ONCE parts{cell.number}{self._suffix(u)}[split] = "
                         f"total{cell.number}{self._suffix(u)};")
        counters = self.arg(Slot("counters", "arrived", "unsigned*", number=rows))
        self.put(f"if (!last_to_arrive({counters} + row, a.splits)) continue;")
        for cell in sinks:
            for u in self._copies(cell):
                self.put(f"total{cell.number}{self._suffix(u)} = merged<TX, {self._reducer(cell)}>("
                         f"parts{cell.number}{self._suffix(u)}, a.splits);")

    def _row_stores(self) -> None:
        for k, store in enumerate(self.kernel.stores):
            if store.sink.level != "row":
                continue
            for u in self._copies(access=store.access):
                many = len(self._copies(access=store.access)) > 1
                guard = f"if (row * {self.unroll} + {u} < a.rows) " if many else ""
                suffix = f"_{u}" if many else ""
                self.put(f"TA_ONCE {guard}q{k}{suffix}[0] = {self._stored(store, u)};")

    def _reduced_columns(self) -> None:
        cells = self.kernel.cells
        self.arrays = {
            cell for cell in cells if cell.phase > 0 and not cell.axes & self.step_axes
            and cell.kind in ("apply", "reduce", "load")
        }
        if self.schedule.splits > 1:
            tiles = self.schedule.rows * (-(-self.schedule.lane.size // self.schedule.lane_tile))
            self.arg(Slot("counters", "arrived", "unsigned*", number=tiles))
        with self.block("columns<TX, V>(js, [&](const idx j, const auto w) TA_LAMBDA", "});"):
            for cell in cells:
                if cell in self.arrays:
                    self.put(f"{ctype(cell.dtype)} x{cell.number}[V];")
            for number in range(1, self.kernel.group.phases + 1):
                self._column_pass(number)
            self._column_stores()

    def _column_pass(self, number: int) -> None:
        sinks = reductions(self.kernel.cells, number)
        for cell in sinks:
            self.put(f"ColumnAccumulator<{self._reducer(cell)}, V> r{cell.number};")
        first, *rest = [k for k, axis in enumerate(self.axes) if axis.role == "step"]
        together = 1 if rest else self._together(number)
        with self.block(f"steps<TX, TY, {together}>({self._range(first)}, "
                        f"[&](const idx k{first}) TA_LAMBDA",
                        "}, " + self._flush(sinks) + ");"):
            for k in rest:
                self.put(f"for (idx k{k} = 0; k{k} < {self._extent(k)}; ++k{k}) {{")
                self.depth += 1
            self._lane_body(number, guarded=True)
            for _ in rest:
                self.depth -= 1
                self.put("}")
        for cell in sinks:
            self.put(f"r{cell.number}.template finish<TX, TY>();")
        if self.schedule.splits > 1 and sinks:
            self._merge_columns(sinks)
        with self.block("TA_EACH(v, w)"):
            for cell in sinks:
                self.put(f"x{cell.number}[v] = {self._reducer(cell)}::template "
                         f"value<{ctype(cell.dtype)}>(r{cell.number}.total[v]);")
            self._column_cells(number)

    def _column_cells(self, phase: int) -> None:
        """Cells per column, after the pass that made them known; plain ones ahead of them."""
        wanted = [cell for cell in self.kernel.cells if cell in self.arrays
                  and cell.phase == phase and cell.kind != "reduce"]
        below: set[Cell] = set()
        for cell in reversed(self.kernel.cells):
            if cell in wanted or cell in below:
                below |= {arg for arg in cell.args if arg.phase == 0 and arg.kind != "param"
                          and self._is_inner(arg)}
        for cell in self.kernel.cells:
            if cell in below or cell in wanted:
                self._define_column(cell)

    def _define_column(self, cell: Cell) -> None:
        if cell.kind == "load":
            access = self.kernel.loads[cell]
            offset = self._lane_offset(f"p{cell.number}", access)
            target = f"x{cell.number}[v] =" if cell in self.arrays else (
                f"const {ctype(cell.dtype)} c{cell.number} =")
            self.put(f"{target} p{cell.number}[{offset}];")
        else:
            self._define(cell, lanes=True)

    def _merge_columns(self, sinks: list[Cell]) -> None:
        lanes = self.schedule.lane.size
        rows = self.schedule.rows
        for cell in sinks:
            parts = self._parts(cell, rows * lanes)
            total = f"{self._reducer(cell)}::Total"
            self.put(f"{total}* const parts{cell.number} = ({total}*){parts} + "
                     f"row * a.splits * {self._extent(len(self.axes) - 1)} + j;")
            self.put(f"TA_FIRST TA_EACH(v, w) parts{cell.number}[split * "
                     f"{self._extent(len(self.axes) - 1)} + v] = r{cell.number}.total[v];")
        self.put("if (!last_to_arrive(a.arrived + row * a.lane_blocks + lane_block, a.splits)) "
                 "return;")
        for cell in sinks:
            self.put(f"r{cell.number}.template restore<TX, TY>(parts{cell.number}, "
                     f"{self._extent(len(self.axes) - 1)}, a.splits, w);")
            self.put(f"r{cell.number}.template finish<TX, TY>();")

    def _column_stores(self) -> None:
        stores = [(k, s) for k, s in enumerate(self.kernel.stores) if s.sink.level == "row"]
        if not stores:
            return
        with self.block("TA_FIRST TA_EACH(v, w)"):
            plain = [s.sink.cell for _, s in stores if s.sink.cell not in self.arrays]
            for cell in self._closure(plain):
                self._define_column(cell)
            for k, store in stores:
                offset = self._lane_offset(f"q{k}", store.access)
                self.put(f"q{k}[{offset}] = {self._stored(store)};")

    def _closure(self, cells: list[Cell]) -> list[Cell]:
        """Per-column cells of phase 0 below some sinks, inputs first."""
        found = set(cells)
        for cell in reversed(self.kernel.cells):
            if cell in found:
                found |= {arg for arg in cell.args if arg not in self.arrays}
        return [cell for cell in self.kernel.cells
                if cell in found and cell.kind != "param" and self._is_inner(cell)]

    # ---- the border of an update that is not done in place ----------------------------------

    def _border_blocks(self) -> int:
        border = self.kernel.border
        if border is None:
            return 0
        lanes = border.sizes[-1]
        rows = int(np.prod(border.sizes[:-1], dtype=np.int64))
        tile, height = self._border_tile()
        return -(-lanes // tile) * -(-rows // height)

    def _border_tile(self) -> tuple[int, int]:
        border = self.kernel.border
        assert border is not None
        lanes = border.sizes[-1]
        if self.device:
            tx, ty = self.schedule.threads
            return tx * 8, ty * 4
        return BORDER_TILE, max(1, 65536 // max(lanes, 1))

    def _border(self) -> None:
        border = self.kernel.border
        assert border is not None
        tile, height = self._border_tile()
        lanes = border.sizes[-1]
        rank = len(border.sizes)
        kind = ctype(border.old.dtype)
        source = self.arg(Slot("pointer", "border_from", f"const {kind}*", value=border.old))
        target = self.arg(Slot("pointer", "border_to", f"{kind}*",
                               value=self.kernel.stores[0].access.value))
        main = self.size("main_blocks", self.schedule.blocks)
        with self.block(f"if (block >= {main})"):
            blocks = self.size("border_lane_blocks", -(-lanes // tile))
            self.put(f"const idx t = (block - {main}) / {blocks};")
            length = self.size("border_lanes", lanes)
            self.put(f"const Range js = piece((block - {main}) % {blocks}, "
                     f"{self.size('border_tile', tile)}, {length});")
            rows = int(np.prod(border.sizes[:-1], dtype=np.int64))
            self.put(f"const Range rows = piece(t, {self.size('border_height', height)}, "
                     f"{self.size('border_rows', rows)});")
            with self.block("TA_ROWS(row, rows)"):
                tests = []
                strides = dense_strides(border.sizes[:-1])
                for d in range(rank - 1):
                    at = f"row / {self.size(f'border_step{d}', strides[d])}"
                    if d:
                        at = f"({at}) % {self.size(f'border_n{d}', border.sizes[d])}"
                    begin = self.size(f"border_begin{d}", 0, border.starts[d])
                    count = self.size(f"border_count{d}", border.extents[d])
                    tests.append(f"{at} - {begin} >= 0 && {at} - {begin} < {count}")
                begin = self.size("border_begin", 0, border.starts[-1])
                end = self.size("border_end", border.extents[-1], border.starts[-1])
                self.put(f"const bool inside = {' && '.join(tests) or 'true'};")
                self.put(f"TA_COPY_OUTSIDE({target} + row * {length}, {source} + row * {length}, "
                         f"js, idx({begin}), idx({end}), inside)")
            self.put("return;")


def _reach(access: Strided) -> int:
    """Bytes of the array an access touches: what index arithmetic must span."""
    return access.value.nbytes


def print_kernel(kernel: Kernel, *, device: bool) -> Program:
    """Return a kernel's tile program for the device or the host compiler."""
    return Printer(kernel, device).run()
