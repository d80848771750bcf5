"""The text that every form of kernel shares: fields, rows, cells and the loop over lanes.

A form (`maps`, `rows`, `columns`) adds what it does with one row.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from tiledarray.fusion.ir import ONE, READS, Cell, storage
from tiledarray.fusion.plan import Kernel, Store, Strided
from tiledarray.fusion.schedule.instructions import quick_op
from tiledarray.fusion.schedule.place import inner_axes, passes_needed, reductions
from tiledarray.kernels.text.expression import ctype, render
from tiledarray.kernels.text.gathers import gathered, point_at_rows
from tiledarray.kernels.text.layout import Slot
from tiledarray.kernels.text.writer import Writer
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import Elementwise, Scan, Update

UNROLLED = 64  # scalar computations in a loop's body
NEAR = 64  # elements from one pointer to another that is a constant from there
UNROLLED_ROWS = 128  # of rows computed together
UNROLLED_PAIRS = 320  # flops, where the loop's own work is what there is to save

DIVIDE = BY_NAME["divide"]


def _place_in_line(cell: Cell) -> tuple[Any, int]:
    """What a cell reads but for a constant along the last dimension, and that constant."""
    assert cell.access is not None
    value, index = cell.access.value, cell.access.index
    if not index or cell.access.strides is not None:
        return (value, index, cell.access.strides), 0
    last = index[-1]
    place = dict(last.terms).get(ONE, 0)
    moving = tuple(term for term in last.terms if term[0] != ONE)
    return (value, index[:-1], last.axis, last.step, moving), place


def moved(pointer: str, terms: list[str]) -> str:
    """A pointer so many elements on; they are added up as integers, which takes less."""
    return f"{pointer} + ({' + '.join(terms)})" if len(terms) > 1 else " + ".join([pointer, *terms])


class Printer(Writer):
    """Writes what one kernel does with a row; a form says how in `body`.

    Attributes
    ----------
    arrays : set of Cell
        Cells with a value for each lane of the chunk, kept over the loop over steps.
    staged_place : str
        Where in shared memory a staged chunk lies, as an expression of the loops around it.
    lanes : str
        Name of the number of lanes of a chunk.
    lane : str
        Lane ``v`` of a chunk, as an expression.
    at : int
        The pass that is being written.
    """

    staged_place = ""
    lane = "(j + v)"

    def __init__(self, kernel: Kernel, *, device: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.device = device
        self.arrays: set[Cell] = set()
        self.bundled = {cell: bundle for bundle in kernel.bundles if device
                        for cell in bundle.cells}
        self.products = kernel.products if device else {}
        self.roots = kernel.roots if device else {}
        self.quick = self.rare = False
        self.shown = self.again = False  # sums show what is wrong; the loop is done again then
        self.pointed: set[Cell] = set()  # gathers that lanes find by a pointer of their chunk
        self.fetched: set[Cell] = set()  # loads that a turn of the loop finds in registers
        self.once: set[Cell] = set()  # loads of the lanes that all rows share, in registers
        self.known: dict[Cell, str] = {}  # scalars that the loop around has as constants
        self.near: dict[str, str] = {}  # names of pointers by those that lie a few elements away
        self.schedule = kernel.schedule
        self.axes = kernel.schedule.axes
        self.unroll = kernel.schedule.unroll
        self.lanes = "V"
        self.at = 0
        self.inner = inner_axes(kernel)
        self.step_axes = self.inner - frozenset(self.schedule.lane.domain)
        self.needed = passes_needed(kernel)
        self.structs = any(cell.dtype is not None and cell.dtype.kind == "c"
                           for cell in kernel.cells)
        self.row_domain = frozenset(
            a for axis in self.axes if axis.role == "row" for a in axis.domain
        )

    # ---- text -------------------------------------------------------------------------------

    def extent(self, axis: int) -> str:
        """Field for the length of an axis of the nest."""
        return self.size(f"n_{axis}", self.axes[axis].size)

    def _range(self, axis: int) -> str:
        """The part of a reduced axis that this block walks."""
        split_axis = next((k for k, a in enumerate(self.axes) if a.role == "step"),
                          len(self.axes) - 1)
        if self.schedule.splits > 1 and axis == split_axis:
            unit = self.schedule.width * self.schedule.threads[0] * self._together(1)
            unit = unit if self.axes[axis].role == "lane" else 1
            share = -(-self.axes[axis].size // self.schedule.splits)
            return f"piece(split, {self.size('share', -(-share // unit) * unit)}, " \
                   f"{self.extent(axis)})"
        return f"Range{{0, {self.extent(axis)}}}"

    # ---- rows -------------------------------------------------------------------------------

    def body(self) -> None:
        """What is done with one row."""
        raise NotImplementedError

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
            return f"x_{cell.number}[v]"
        suffix = f"_{u}" if self.unroll > 1 and cell.axes & self.row_domain else ""
        return f"c_{cell.number}{suffix}"

    def operand(self, cell: Cell, loop: np.dtype[Any], u: int = 0) -> str:
        """Name of an operand; a scalar arrives as the loop's type, so the kernel casts nothing."""
        if cell.kind != "param":
            return self.name(cell, u)
        if cell in self.known:
            return f"{ctype(loop)}({self.known[cell]})"
        return self.scalar(cell, loop)

    def block_number(self) -> str:
        """The number of the block, as an expression; those of the border come first."""
        return "block" if self.kernel.border is None else "(block - a.border_blocks)"

    def rows(self) -> None:
        """Write which rows a block has, and what it does with them."""
        height = self.size("row_tile", -(-self.schedule.row_tile // self.unroll))
        groups = self.size("row_groups", self.schedule.row_groups)
        self.put(f"const Range rows = piece(t, {height}, {groups});")
        self.walk()

    def walk(self) -> None:
        """Write the loop over the block's rows."""
        with self.block("TA_ROWS(row, rows)"):
            self.row()

    def row(self) -> None:
        """Write what a block does with one row."""
        self._row_indices()
        self._row_pointers(self.kernel.loads.keys() - self.fetched - self.once)
        self._store_pointers()
        self._scalar_cells(phase=0)
        self.body()

    def _row_indices(self) -> None:
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
                self.put(f"const idx i_{k}{suffix} = {rest} % {self.extent(k)};")
                rest = f"{rest} / {self.extent(k)}"
            if rows:
                self.put(f"const idx i_{rows[0]}{suffix} = {rest};")

    def _row_pointers(self, loads: Container[Cell]) -> None:
        """Point at the row in each of these loads."""
        near: dict[Any, tuple[int, int]] = {}
        for cell, access in self.kernel.loads.items():
            if cell in loads and self._is_row_load(cell) and not self._bundled_behind(cell):
                kind, name = self._pointer_type(access), f"p_{cell.number}"
                line, place = _place_in_line(cell)
                first, start = near.setdefault(line, (cell.number, place))
                if 0 < abs(place - start) <= NEAR:
                    self._near_pointer(kind, name, f"p_{first}", place - start, access)
                else:
                    self._row_pointer(name, kind, access)

    def _store_pointers(self) -> None:
        for k, store in enumerate(self.kernel.stores):
            if store.sink.level == "across":  # not of the row
                continue
            self._row_pointer(f"q_{k}", f"{ctype(store.access.value.dtype)}*", store.access)

    def _bundled_behind(self, cell: Cell) -> bool:
        """Whether the vector that brings a load begins at another one."""
        return cell in self.bundled and self.bundled[cell].first is not cell

    def _is_row_load(self, cell: Cell) -> bool:
        """Whether the cell is read through a pointer of its own for each row."""
        return cell.kind in READS

    def _pointer_type(self, access: Strided) -> str:
        """Type of a pointer to read from; what an update in place writes is not constant."""
        kind = ctype(access.value.dtype)
        return f"const {kind}*" if self._is_written(access) else f"Constant<{kind}>"

    def _is_written(self, access: Strided) -> bool:
        """Whether an update in place writes what is read here."""
        return self.kernel.border is None and any(
            isinstance(store.sink.value.op, Update)
            and storage(store.sink.value.args[0]) is storage(access.value)
            for store in self.kernel.stores)

    def _row_pointer(self, name: str, pointer: str, access: Strided) -> None:
        kind = f"{'const ' * (name[0] == 'p')}{ctype(access.value.dtype)}*"
        base = self.arg(Slot("pointer", name, kind, value=access.value, offset=access.offset))
        for u in self._copies(access=access):
            suffix = f"_{u}" if len(self._copies(access=access)) > 1 else ""
            terms = []
            for k, (stride, axis) in enumerate(zip(access.strides, self.axes, strict=True)):
                if axis.role == "row" and stride:
                    row = f"i_{k}{suffix}"
                    terms.append(row if stride == 1 else f"{row} * {self._stride(name, k, stride)}")
            self.put(f"{pointer} const {name}{suffix} = {moved(base, terms)};")

    def _near_pointer(self, kind: str, name: str, first: str, shift: int, access: Strided) -> None:
        """A pointer a few elements from another one: loads from both share an address."""
        self.near[name] = first
        copies = self._copies(access=access)
        for u in copies:
            suffix = f"_{u}" if len(copies) > 1 else ""
            self.put(f"{kind} const {name}{suffix} = {first}{suffix} + ({shift});")

    def _stride(self, name: str, axis: int, stride: int) -> str:
        return self.size(f"s{self.near.get(name, name)}_{axis}", stride)

    def _is_inner(self, cell: Cell) -> bool:
        return bool(cell.axes & self.inner)

    def _scalar_cells(self, phase: int) -> None:
        """Cells that do not vary along the row."""
        for cell in self.kernel.cells:
            if cell.phase == phase and not self._is_inner(cell) and cell.kind in (
                    "load", "gather", "iota", "apply"):
                for u in self._copies(cell):
                    self._define(cell, u)
        self._divisors(phase)

    def _divides_by_one(self, cell: Cell) -> bool:
        """Whether this is a whole row divided by the same float32 (worth it on a GPU)."""
        return (
            self.device and cell.kind == "apply" and cell.value.op is DIVIDE
            and cell.dtype == np.float32 and self._is_inner(cell)
            and not self._is_inner(cell.args[1]) and cell.args[1] not in self.arrays
        )

    def _divisor(self, cell: Cell, u: int) -> str:
        suffix = f"_{u}" if self.unroll > 1 and cell.axes & self.row_domain else ""
        return f"d_{cell.number}{suffix}"

    def _divisors(self, phase: int) -> None:
        """Prepare the divisions by what the pass has made known."""
        under = {cell.args[1] for cell in self.kernel.cells if self._divides_by_one(cell)}
        for cell in self.kernel.cells:
            if cell in under and cell.phase == phase:
                for u in self._copies(cell):
                    name = self.operand(cell, np.dtype(np.float32), u)
                    self.put(f"const Divisor {self._divisor(cell, u)} = "
                             f"divisor(cast<f32>({name}));")

    # ---- cells ------------------------------------------------------------------------------

    def _define(self, cell: Cell, u: int = 0, lanes: bool = False) -> None:
        """Write a cell: not ``const``, for NVRTC tries such as constants, chains of them anew."""
        value = self._expression(cell, u, lanes)
        target = f"x_{cell.number}[v] =" if cell in self.arrays else (
            f"{ctype(cell.dtype)} {self.name(cell, u)} =")
        self.put(f"{target} {value};")

    def _expression(self, cell: Cell, u: int, lanes: bool) -> str:
        if cell.kind == "load":
            return self._load(cell, u, lanes)
        if cell.kind == "gather":
            return gathered(self, cell, u, lanes=lanes)
        if cell.kind == "iota":
            return self._iota(cell, u, lanes)
        if cell.kind == "scan":
            return self._scan(cell, u)
        op = cell.value.op
        if lanes and self._divides_by_one(cell):
            over, under = cell.args
            name = self.operand(over, cell.dtype, u)
            return f"divided(cast<f32>({name}), {self._divisor(under, u)})"
        if cell in self.roots:
            return self._root(cell, u)
        if isinstance(op, Elementwise):
            names = [self.operand(arg, loop, u)
                     for arg, loop in zip(cell.args, cell.value.attrs, strict=True)]
            return render(op, cell.value.attrs, cell.dtype, names, text=self._text_of(cell))
        return f"cast<{ctype(cell.dtype)}>({self.operand(cell.args[0], cell.dtype, u)})"

    def _root(self, cell: Cell, u: int) -> str:
        """The root of what only sums use, or its square where it is in products."""
        op, root, single = cell.value.op, self.roots[cell], np.dtype(np.float32)
        assert isinstance(op, Elementwise)
        by = "1.f" if root.by is None else self.operand(root.by, single, u)
        by = f"inverse_factor({by})" if root.divided else by
        by = f"-{by}" if root.negative else by
        text = render(op, (single, single), single,
                      [self.operand(root.cell, single, u), by], text=op.root)
        return text if root.added else f"m_square({text})"

    def _text_of(self, cell: Cell) -> str:
        """The text of an op where most arguments are tried first; ``""`` for the usual one."""
        op = quick_op(cell) if self.quick or self.rare else None
        if op is None or (op.usual and cell.args[-1] not in self.known):
            return ""
        text = op.quick or op.shown if self.quick else op.rare
        if self.quick and op.shown and not self.shown:
            text = f"noted({text}, rare)"
        return text.replace("known", self.known[cell.args[-1]]) if op.usual else text

    def _lane_offset(self, name: str, access: Strided) -> str:
        """Element offset along steps and lanes from the row's pointer."""
        terms = []
        for k, (stride, axis) in enumerate(zip(access.strides, self.axes, strict=True)):
            if axis.role == "row" or not stride:
                continue
            at = self.lane if axis.role == "lane" else f"k_{k}"
            terms.append(at if stride == 1 else f"{at} * {self._stride(name, k, stride)}")
        terms += self._wrapped(name, access)
        return " + ".join(terms) or "0"

    def _chunk_offset(self, name: str, access: Strided) -> str:
        """Element offset of a chunk of lanes from the row's pointer."""
        return self._lane_offset(name, access).replace(self.lane, "j")

    def _wrapped(self, name: str, access: Strided) -> list[str]:
        """Terms of a wrapped access: the joined row of a lane, and its place there."""
        strides = zip(("row", "place"), access.wrap or (), strict=False)
        return [f"at.{part}[v]" if stride == 1 else
                f"at.{part}[v] * {self.size(f's{name}_{part}', stride)}"
                for part, stride in strides if stride]

    def _load(self, cell: Cell, u: int, lanes: bool) -> str:
        access = self.kernel.loads[cell]
        many = len(self._copies(access=access)) > 1
        name = f"p_{cell.number}"
        pointer = f"{name}_{u}" if many else name
        if not lanes:
            return f"{pointer}[0]"
        if cell in self.fetched:
            return self._fetched(cell, access)
        if cell in self.bundled:
            bundle = self.bundled[cell]
            suffix = f"_{u}" if many else ""
            return f"l_{bundle.first.number}{suffix}[{bundle.cells[cell]}]"
        if access.strides[-1] == 1:
            return f"l_{cell.number}{f'_{u}' if many else ''}[v]"
        if cell in self.kernel.staged:
            return f"l_{cell.number}[0]"
        return f"{pointer}[{self._lane_offset(name, access)}]"

    def _fetched(self, cell: Cell, access: Strided) -> str:
        """A load that was asked for a turn ahead."""
        lane = "[v]" if self.schedule.lane.reduced else ""
        if cell in self.bundled:
            bundle = self.bundled[cell]
            return f"now.l_{bundle.first.number}{lane}[{bundle.cells[cell]}]"
        return f"now.{'l' if access.strides[-1] == 1 else 'c'}_{cell.number}{lane}"

    def _vector_loads(self, cells: list[Cell], guarded: bool) -> None:
        """Loads of whole chunks, ahead of the loop over lanes."""
        for cell in cells:
            if cell.kind != "load" or any(
                    cell in other for other in (self.arrays, self.fetched, self.once)):
                continue
            access = self.kernel.loads[cell]
            if access.strides[-1] != 1 and cell not in self.kernel.staged:
                continue
            copies = self._copies(access=access)
            for u in copies:
                suffix = f"_{u}" if len(copies) > 1 else ""
                name = f"p_{cell.number}"
                source = f"{name}{suffix} + {self._chunk_offset(name, access)}"
                if cell in self.kernel.staged:
                    part = " / V" if access.is_shared else ""
                    value = f"s_{cell.number}.load({self.staged_place}{part}, {source})"
                else:
                    value = f"load<V>({source}{', w' if guarded else ''})"
                self.put(f"const auto l_{cell.number}{suffix} = {value};")

    def _bundle_loads(self, cells: Iterable[Cell]) -> None:
        """Load the vectors that bring some of these cells for one lane."""
        for bundle in dict.fromkeys(self.bundled[cell] for cell in cells
                                    if cell in self.bundled and cell not in self.fetched):
            name = f"p_{bundle.first.number}"
            access = self.kernel.loads[bundle.first]
            copies = self._copies(access=access)
            for u in copies:
                suffix = f"_{u}" if len(copies) > 1 else ""
                self.put(f"const auto l{name[1:]}{suffix} = load<{len(bundle.cells)}>("
                         f"{name}{suffix} + {self._lane_offset(name, access)});")

    def _iota(self, cell: Cell, u: int, lanes: bool) -> str:
        access = self.kernel.loads[cell]
        loop = ctype(cell.value.attrs[0])
        place = self._place(f"t_{cell.number}", access, u, lanes)
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
            at = {"lane": self.lane, "step": f"k_{k}", "row": f"i_{k}{suffix}"}[axis.role]
            terms.append(f"i64({at})" if stride == 1 else
                         f"i64({at}) * {self._stride(name, k, stride)}")
        terms += [f"i64({term})" for term in self._wrapped(name, access)]
        return f"i64({' + '.join(terms) or '0'})"

    # ---- the loop over lanes ----------------------------------------------------------------

    def _pass_cells(self, number: int) -> list[Cell]:
        return [cell for cell in self.kernel.cells
                if self._is_inner(cell) and number in self.needed[cell]]

    def _lane_cells(self, cells: list[Cell], number: int) -> None:
        """Define the cells of one pass, from memory, from what is held, or by computing."""
        for cell in cells:
            if cell.kind in ("param", "reduce", "across") or cell in self.arrays:
                continue
            first = min(self.needed[cell]) == number
            for u in self._copies(cell):
                if cell.held and not first:
                    self.put(f"{ctype(cell.dtype)} c_{cell.number} = "
                             f"h_{cell.number}[TA_SLOT(j, c, v)];")
                else:
                    self._define(cell, u, lanes=True)
                    if cell.held:
                        self.put(f"h_{cell.number}[TA_SLOT(j, c, v)] = c_{cell.number};")

    def _reads(self, cells: list[Cell], number: int) -> list[Cell]:
        """The loads of a pass that go to memory."""
        return [cell for cell in cells if cell.kind == "load"
                and not (cell.held and min(self.needed[cell]) != number)]

    def _together(self, number: int, limit: int = UNROLLED) -> int:
        """Chunks of a reduction done side by side, so that several loads are under way."""
        work = sum(len(self._copies(cell)) for cell in self._pass_cells(number)
                   if cell.kind in ("load", "gather", "apply", "iota"))
        for together in (4, 2):
            if work * self.schedule.width * together <= limit:
                return together
        return 1

    def _lane_body(self, number: int, guarded: bool) -> None:
        """One chunk of lanes of pass ``number``: loads, values, stores, accumulations."""
        cells = self._pass_cells(number)
        point_at_rows(self, cells)
        self._vector_loads(self._reads(cells, number), guarded)
        stores = [(k, s) for k, s in enumerate(self.kernel.stores)
                  if s.sink.level == "full" and s.sink.store_pass == number]
        for k, store in stores:
            if store.access.strides[-1] == 1:
                offset = self._chunk_offset(f"q_{k}", store.access)
                for u in self._copies(access=store.access):
                    name = f"{k}{self._suffix(u)}"
                    self._begin_storing(store, name, f"q_{name} + {offset}")
        sinks = reductions(self.kernel.cells, number)
        tried = [] if self.again or not self.schedule.quick else [
            op for cell in cells if (op := quick_op(cell)) is not None]
        if self.shown and all(op.shown for op in tried):
            self.quick = True
            self._each_lane(cells, stores, number, sinks=sinks)
            self.quick = False
        elif tried:
            reduced = self._collected(sinks)
            known = self._usual()
            self.put(f"bool rare = {f'!{known}' if known else 'false'};")
            self.quick = True
            with self.block("if (!rare)") if known else nullcontext():
                self._each_lane(cells, stores, number, reduced)
            self.quick, self.rare = False, True
            with self.block("if (rare)"):
                self._each_lane(cells, stores, number, reduced)
            self.rare = False
            if sinks:
                with self._each():
                    self._accumulations(sinks, reduced)
        else:
            self._each_lane(cells, stores, number, sinks=sinks)
        for k, store in stores:
            if store.access.strides[-1] == 1:
                for u in self._copies(access=store.access):
                    self.put(f"{self._guard(u)}y_{k}{self._suffix(u)}.flush(w);")

    def _begin_storing(self, store: Store, name: str, place: str) -> None:
        """Declare where the lanes of a chunk are stored."""
        self.put(f"auto y_{name} = storing<{self.lanes}>({place});")

    def _guard(self, u: int) -> str:
        """Condition under which row ``u`` of those computed together is stored."""
        return ""

    def _each(self) -> AbstractContextManager[None]:
        """Write a loop over the lanes of a chunk.

        On the host its body is a function: what a simd loop itself declares lies in memory if it
        is a struct (a complex number), and the loop does not vectorise.  Nor does it if the
        function takes many names from around it: what has no structs does without.
        """
        if self.device or not self.structs:
            return self.block("TA_EACH(v, w)")
        return self.block("TA_EACH(v, w) [&]() TA_LAMBDA", "}();")

    def _usual(self) -> str:
        """Whether the loop is one for a usual value of a scalar; ``""`` if it knows none."""
        return next((f"is_usual<decltype({name})>" for name in self.known.values()), "")

    def _collected(self, sinks: list[Cell]) -> dict[str, str]:
        """Declare where what is reduced stays until it is right; return it by its name."""
        assert not sinks
        return {}

    def _accumulations(self, sinks: list[Cell], reduced: dict[str, str]) -> None:
        """Add a chunk's values to the accumulators."""

    def _each_lane(self, cells: list[Cell], stores: list[tuple[int, Store]], number: int,
                   reduced: dict[str, str] | None = None, sinks: Iterable[Cell] = ()) -> None:
        with self._each():
            self._bundle_loads(cell for cell in self._reads(cells, number)
                               if cell not in self.arrays)
            self._lane_cells(cells, number)
            for k, store in stores:
                for u in self._copies(access=store.access):
                    self.put(f"{self._target(k, store, u)} = {self._stored(store, u)};")
            for name, place in (reduced or {}).items():
                self.put(f"{place} = {name};")
            self._accumulations(list(sinks), {})

    def _suffix(self, u: int) -> str:
        return f"_{u}" if self.unroll > 1 else ""

    def _target(self, k: int, store: Store, u: int) -> str:
        if store.access.strides[-1] == 1:
            return f"y_{k}{self._suffix(u)}[v]"
        return f"q_{k}[{self._lane_offset(f'q_{k}', store.access)}]"

    def _stored(self, store: Store, u: int = 0) -> str:
        name = self.name(store.sink.cell, u)
        target = ctype(store.access.value.dtype)
        cell = store.sink.cell
        if cell.dtype is None or ctype(cell.dtype) != target:
            return f"cast<{target}>({name})"
        return name

    # ---- scans ------------------------------------------------------------------------------

    def _scan(self, cell: Cell, u: int) -> str:
        """The next element of a scan, where lanes are scanned by themselves."""
        raise NotImplementedError

    def _running(self, cell: Cell, u: int = 0) -> str:
        """Name of what a pass carries along a scan."""
        return f"r_{cell.number}_{self.at}{self._suffix(u)}"

    def _scanner(self, cell: Cell) -> str:
        op = cell.value.op
        assert isinstance(op, Scan)
        return f"{op.accumulator}<{ctype(cell.dtype)}>"

    def _scan_input(self, cell: Cell, u: int) -> str:
        return f"cast<{ctype(cell.dtype)}>({self.operand(cell.args[0], cell.dtype, u)})"
