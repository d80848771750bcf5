"""Chains in space: a block goes along the first dimension, plane after plane.

A thread has R rows of one lane of every plane.  It computes all of them, right or not, where that
can do no harm: bits say which of its points lie in a box, found once for all planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from tiledarray.fusion.chains.kernel import AHEAD, ChainKernel, Reach, Version, Walk
from tiledarray.fusion.chains.stages import Part, Places
from tiledarray.fusion.chains.tiles import TOGETHER
from tiledarray.fusion.ir import Terms, Value, dense_strides, storage
from tiledarray.fusion.plan import Store
from tiledarray.kernels.text.chain_ends import ChainWriter, Ends
from tiledarray.kernels.text.chains import StageText, field, program_of, renamed
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Program, Slot

MOST_HELD = 32  # registers of a thread for its points of planes that a stage reads
NARROW = (1 << 31) - 1  # numbers of 32 bits
ASYNCHRONOUS = (4, 8, 16)  # bytes that are copied to shared memory while a thread goes on


def print_walk(kernel: ChainKernel) -> Program:
    """Return the program of a chain that goes from plane to plane."""
    walk = kernel.walk
    assert walk is not None
    begin, end = _Copies(kernel, walk), _Copies(kernel, walk)
    begin.origin()
    begin.threads()
    first, begin.lines = begin.lines, []
    begin.copy_in()
    end.copy_out()
    stages = [_WalkStage(kernel, walk, number) for number in range(len(kernel.stages))]
    slots = {**begin.slots, **end.slots}
    fields = [field(slot) for slot in slots.values()]
    placed: list[Slot] = [*slots.values()]
    before, body = [], []
    for k, stage in enumerate(stages):
        fields += [field(replace(slot, name=f"g{k}_{name}"))
                   for name, slot in stage.slots.items()]
        placed += stage.slots.values()
        before += [*renamed(stage.before, k, {*stage.slots})]
        body += [*renamed(stage.lines, k, {*stage.slots})]
    lanes, rows = (sorted({*chain(*each)}) for each in zip(
        *((stage.lanes, stage.rows) for stage in stages), strict=True))
    return program_of(kernel, [], fields, placed, [
        *first, *begin.before, *end.before, *begin.lines,
        *(f"  const int {_lane(by)} = fixed(own * E2 + near_place(i_2 + ({by}), E2));"
          for by in lanes),
        *(f"  const int {_row(by)} = fixed(near_place(own + ({by}), E1) * E2 + i_2);"
          for by in rows),
        *before,
        f"  for (int z = 0; z < {AHEAD}; ++z) copy_in(z);",
        '  _Pragma("unroll 1") for (int turn = 0; turn < '
        f"{kernel.extents[0] + walk.last}; ++turn) {{",
        "    await_copies();", "    __syncthreads();", f"    copy_in(turn + {AHEAD});",
        *body, *end.lines, "  }"])


def _lane(shift: int) -> str:
    """Where a thread's first point has a neighbour along its row, as far as there is one."""
    return f"lane_{'below' if shift < 0 else 'above'}_{abs(shift)}"


def _row(place: int) -> str:
    """Where the row is that lies so far from a thread's first one, as far as there is one."""
    return f"row_{'below' if place < 0 else 'above'}_{abs(place)}"


class _Planes(ChainWriter):
    """What is written of planes."""

    def __init__(self, kernel: ChainKernel, walk: Walk) -> None:
        super().__init__(kernel)
        self.walk = walk
        self.before: list[str] = []  # what stands before all turns
        self._known: set[str] = set()  # names that are declared there

    def at(self, row: str) -> str:
        """Declare a row of a plane, and where (row, i_2) lies in it."""
        return f"const int row = {row}, at = row * E2 + i_2; (void)at;"

    def size(self, name: str, number: int, offset: Terms = ()) -> str:
        """An integer, in the text itself where it is known."""
        if offset:
            return super().size(name, number, offset)
        return f"{number}{'LL' * (abs(number) > NARROW)}" if number >= 0 else f"({number})"

    def plane(self, name: str, version: Version, turn: str, behind: int) -> None:
        """Declare where a plane of an array lies in shared memory: so many turns behind one."""
        depth = self.walk.depths[version]
        self.tile(name, version, name, f" + unsigned({turn} + {-behind % depth}) % {depth} * "
                                       "(E1 * E2)")

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """What is written goes before all turns."""
        lines, self.lines, depth, self.depth = self.lines, self.before, self.depth, 1
        yield
        self.lines, self.depth = lines, depth

    def span(self, name: str, first: int, last: int, begin: int, end: int, *,
              rings: bool = True) -> str:
        """Declare which planes of the tile lie in [first, last) and of the frame in [begin, end).

        Returns whether plane z is one of them.  Along rings those that come round are, unless each
        is to be counted once.
        """
        found = f"z >= {name}_from && z < {name}_to"
        if found in self._known:
            return found
        self._known.add(found)
        with self.ahead():
            low, high = self.size(f"{name}_begin_0", begin), self.size(f"{name}_end_0", end)
            if rings and 0 in self.kernel.around:
                self.put(f"const int {name}_from = {first}, {name}_to = {last};")
            else:
                self.put(f"const int {name}_from = int(max_idx({first}, {low} - o_0)), "
                         f"{name}_to = int(min_idx({last}, {high} - o_0));")
        return found

    def bits(self, name: str, reach: Reach | None, begin: Places, shape: Places, *,
             rings: bool = True) -> str:
        """Declare which of a thread's points lie in a box of the frame, and so near the core.

        Without ``reach``, anywhere in the tile; of rings as for `span`.
        """
        if name in self._known:
            return name
        self._known.add(name)
        halo, whole = self.kernel.halo, self.kernel.extents
        ends = []
        with self.ahead():
            for d in (1, 2):
                first, last = 0, whole[d]
                if reach is not None:
                    (below, above), (halo_below, halo_above) = reach[d], halo[d]
                    first, last = halo_below - below, whole[d] - (halo_above - above)
                if rings and d in self.kernel.around:
                    ends += [str(first), str(last)]
                    continue
                low = self.size(f"{name}_begin_{d}", begin[d])
                high = self.size(f"{name}_end_{d}", begin[d] + shape[d])
                ends += [f"int(max_idx({first}, {low} - o_{d}))",
                         f"int(min_idx({last}, {high} - o_{d}))"]
            self.put(f"const unsigned {name} = points_within<R>(own, tx, {', '.join(ends)});")
        return name

    def planes_of(self, name: str, reach: Reach, begin: Places, shape: Places, *,
                  rings: bool = True) -> str:
        """Whether plane z of an array is so near the core."""
        (below, above), (halo_below, halo_above) = reach[0], self.kernel.halo[0]
        return self.span(f"{name}_planes", halo_below - below,
                          self.kernel.extents[0] - (halo_above - above),
                          begin[0], begin[0] + shape[0], rings=rings)

    @contextmanager
    def each_of(self, bits: str = "") -> Iterator[None]:
        """What is written is done for each of a thread's points that these bits name."""
        with self.block('_Pragma("unroll") for (int u = 0; u < R; ++u)'):
            self.put(self.at("own + u"))
            if bits:
                self.put(f"if (!({bits} >> u & 1)) continue;")
            yield


class _Copies(_Planes, Ends):
    """What comes to shared memory, and what goes from there."""

    def threads(self) -> None:
        """Declare which points a thread has."""
        self.put("const int own = ty * R, i_2 = near_place(tx, E2);")
        self.put("const unsigned there = points_within<R>(own, tx, 0, E1, 0, E2);")
        self.put("(void)there;")

    def copy_in(self) -> None:
        """Write a function that copies a plane of each array."""
        with self.block("const auto copy_in = [&](const int z)", "};"):
            self.put("const int i_0 = z; (void)i_0;")
            for k, base in enumerate(self.kernel.inputs):
                self._copy_plane(f"in_{k}", base)

    def _copy_plane(self, name: str, base: Value) -> None:
        reach = self.kernel.needed[0][base]
        begin, strides = self.kernel.offsets[base], dense_strides(base.shape)
        source = self.array(name, base, base, "const {}*")
        inside = self.bits(f"{name}_bits", reach, begin, base.shape)
        with self.block(f"if ({self.planes_of(name, reach, begin, base.shape)})"):
            self.plane("tile", (base, -1), "z", 0)
            if base.dtype.itemsize in ASYNCHRONOUS:
                self.put("const unsigned first = fixed(shared_place(tile + own * E2 + i_2));")
            with self.each_of(inside):
                place = self.place(name, strides)
                if base.dtype.itemsize in ASYNCHRONOUS:
                    self.put(f"copy_async_at<{base.dtype.itemsize}>(first + unsigned(u * E2 * "
                             f"sizeof(*tile)), tile + at, {source} + ({place}));")
                else:
                    self.put(f"tile[at] = Constant<{ctype(base.dtype)}>({source})[{place}];")

    def copy_one_out(self, k: int, base: Value, store: Store) -> None:
        """Write the copy of a plane, unless its stage writes it."""
        if base in self.walk.direct:
            return
        name, nothing = f"out_{k}", ((0, 0),) * self.rank
        begin, strides = self.kernel.offsets[base], dense_strides(base.shape)
        target = self.array(name, base, store.access.value, "{}*")
        inside = self.bits(f"{name}_bits", nothing, begin, base.shape, rings=False)
        planes = self.planes_of(name, nothing, begin, base.shape, rings=False)
        with self.block(f"if (const int z = turn - {self.walk.leaves[base]}; {planes})"):
            self.put("const int i_0 = z;")
            self.plane("tile", (base, self.kernel.version(base, len(self.kernel.stages))),
                       "turn", self.walk.leaves[base])
            with self.each_of(inside):
                self.put(f"{target}[{self.place(name, strides)}] = tile[at];")

class _WalkStage(_Planes, StageText):
    """What a stage does with a plane."""

    def __init__(self, kernel: ChainKernel, walk: Walk, number: int) -> None:
        self.lanes: set[int] = set()  # distances along lanes
        self.rows: set[int] = set()  # rows beyond a thread's own
        self.kept: dict[Value, tuple[str, int]] = {}  # names of registers, and planes below
        self.fixed = False  # whether points are those that a thread has
        self.walk = walk
        self._known = set()
        StageText.__init__(self, kernel, number)

    def _parts(self) -> None:
        parts = self._by_size()
        begin, end = self._frame_planes()
        planes = self.planes_of(f"stage_{self.number}", self.reach, (begin,), (end - begin,))
        thick = [part for part in parts if self._is_thick(part)]
        self._hold(thick)
        with self.block(f"if (const int z = turn - {self.walk.lags[self.number]}; {planes})"):
            first = len(self.lines)
            for k, part in enumerate(parts):
                if part in thick:
                    self._fixed_part(k, part)
                else:
                    self._thin_part(k, part)
            self.lines[first:first] = self._declared
            self._declared = []

    def _hold(self, parts: list[Part]) -> None:
        """Have a thread hold its points of planes of which several are read, turn after turn."""
        spans: dict[Value, list[int]] = {}
        for part in parts:
            for cell in part.reads:
                if cell.access is not None and self._in_tile(cell, part):
                    base = self.kernel.memory[storage(cell.access.value)]
                    plane, _, along = self.kernel.shift(part, part.reads[cell], base)
                    if not along:
                        spans.setdefault(base, []).append(plane)
        room = MOST_HELD
        for k, (base, planes) in enumerate(spans.items()):
            below, above = max(0, -min(planes)), max(0, max(planes))
            count = below + above + 1
            words = count * TOGETHER * -(-base.dtype.itemsize // 4)
            if count == 1 or words > room:
                continue
            room -= words
            version = base, self.kernel.version(base, self.number)
            name = f"kept_{self.number}_{k}"
            self.kept[base] = name, below
            with self.ahead():
                self.put(f"{ctype(base.dtype)} {name}[{count}][R] = {{}};")
            with self.block(""):
                self.plane("newest", version, "turn", self.walk.lags[self.number] - above)
                with self.block('_Pragma("unroll") for (int u = 0; u < R; ++u)'):
                    for plane in range(count - 1):
                        self.put(f"{name}[{plane}][u] = {name}[{plane + 1}][u];")
                    self.put(f"{name}[{count - 1}][u] = "
                             "newest[row_near<R, E1>(own, u) * E2 + i_2];")

    def _frame_planes(self) -> tuple[int, int]:
        """Where in the frame the arrays begin and end that are written."""
        spans = [(self.kernel.offsets[base][0], self.kernel.offsets[base][0] + base.shape[0])
                 for base in self.stage.written]
        return min(begin for begin, _ in spans), max(end for _, end in spans)

    def _fixed_part(self, k: int, part: Part) -> None:
        """A part of which each thread computes its points."""
        border = part.kernel.border
        base, begin = self._target(part), self.kernel.begins[part]
        name = f"part_{self.number}_{k}"
        bits = self.bits(name, None, begin, part.extents)
        planes = self.span(name, 0, self.kernel.extents[0], begin[0], begin[0] + part.extents[0])
        all_of_it = border is not None or part.extents == base.shape
        with self.block(""):
            self.fixed = True
            self.put(f"const int i_0 = z; const unsigned inside = {planes} ? {bits} : 0; "
                     "(void)i_0; (void)inside;")
            stores = self._stores(part)
            for y, kind, _, _ in stores:
                self.put(f"{kind} {y}[R];")
            guarded = any(cell.kind == "load" and not self._in_tile(cell, part)
                          for cell in part.kernel.cells)
            with self.each_of():
                for y, kind, _, _ in stores:
                    self.put(f"{y}[u] = {self._left(k, part) if border else f'{kind}()'};")
                with self.block("if (inside >> u & 1)" if guarded else ""):
                    self._cells(k, part)
                    for y, _, _, value in stores:
                        self.put(f"{y}[u] = " + (
                            f"{value};" if guarded or border is None else
                            f"inside >> u & 1 ? {value} : {y}[u];"))
            for (y, _, element, _), store in zip(stores, part.kernel.stores, strict=True):
                with self.each_of(self._stored_where(store, all_of_it)):
                    self.put(f"{element} = {y}[u];")
            self.fixed = False

    def _stored_where(self, store: Store, all_of_it: bool) -> str:
        """Bits of the points that a part writes; nothing if those are all that a thread has."""
        base = self.kernel.memory[store.access.value]
        if self._is_direct(base):
            name = f"mine_{self.number}_{self.kernel.outputs.index(base)}"
            where = ((0, 0),) * self.rank, self.kernel.offsets[base], base.shape
            mine = self.bits(name, *where, rings=False)
            if 0 in self.kernel.around:
                planes = self.planes_of(name, *where, rings=False)
            else:  # the stage computes no others of those that there are
                first = self.kernel.halo[0][0]
                planes = f"z >= {first} && z < {first + self.kernel.tile[0]}"
            return f"({planes} ? {mine}{'' if all_of_it else ' & inside'} : 0)"
        if not all_of_it:
            return "inside"
        return "" if self._is_whole else "there"

    @property
    def _is_whole(self) -> bool:
        """Whether all points that threads have lie in the plane."""
        (tx, ty), (_, rows, lanes) = self.kernel.schedule.threads, self.kernel.extents
        return (ty * TOGETHER, tx) == (rows, lanes)

    def _left(self, k: int, part: Part) -> str:
        """What an update leaves as it was."""
        border = part.kernel.border
        assert border is not None
        if border.fill is not None:
            kind = ctype(border.old.dtype)
            return f"cast<{kind}>({self._operand(border.fill, border.old.dtype)})"
        old = self._old(k, part, border.old)
        if self.kernel.version(self.kernel.memory[border.old], self.number) >= -1:
            return old
        bits = self.bits(f"old_{self.number}_{k}", None, self.kernel.offsets[self._target(part)],
                         self._target(part).shape)
        return f"{bits} >> u & 1 ? {old} : {ctype(border.old.dtype)}()"

    # ---- elements ----------------------------------------------------------------------------

    def _is_direct(self, base: Value) -> bool:
        return base in self.walk.direct and (base, self.number) not in self.kernel.places and (
            base in self.stage.made)

    def _tile(self, version: Version, role: str, plane: int = 0) -> str:
        key = version, plane
        if key not in self.tiles:
            name = self.tiles[key] = f"{role}_{len(self.tiles)}"
            with self._ahead():
                self.plane(name, version, "turn", self.walk.lags[self.number] - plane)
        return self.tiles[key]

    def _read(self, base: Value, shift: Places) -> str:
        version, (plane, down, along) = self.kernel.version(base, self.number), shift
        tile = self._tile((base, version), "from", plane)
        if not self.fixed:
            return f"{tile}[at{self._moved((0, down, along))}]"
        return self._near(base, tile, plane, down, along)

    def _near(self, base: Value, tile: str, plane: int, down: int, along: int) -> str:
        """What lies so far from point u of a thread."""
        if self.kernel.extents[1] % TOGETHER or (down and along):
            lane = f"near_place(i_2 + ({along}), E2)" if along else "i_2"
            return f"{tile}[row_near<R, E1>(own, u + ({down})) * E2 + {lane}]"
        if along:
            self.lanes.add(along)
            return f"{tile}[{_lane(along)} + u * E2]"
        if base in self.kept:
            name, below = self.kept[base]
            element = f"{name}[{plane + below}][near_place(u + ({down}), R)]"
        else:
            element = f"{tile}[at + ({down}) * E2]"
        for place in (*range(down, 0), *range(TOGETHER, TOGETHER + down)):
            self.rows.add(place)
            element = f"(u + ({down}) == {place} ? {tile}[{_row(place)}] : {element})"
        return element

    def _element(self, value: Value) -> str:
        base = self.kernel.memory[value]
        if not self._is_direct(base):
            return super()._element(value)
        strides, name = dense_strides(base.shape), f"direct_{self.kernel.outputs.index(base)}"
        pointer = self.pointer(name, value, self.kernel.offsets[base], strides, kind="{}*")
        return f"{pointer}[{self.place(name, strides)}]"

    def _whole(self, part: Part) -> str:
        known = len(self.bounds)
        name = super()._whole(part)
        if len(self.bounds) > known:
            with self._ahead():
                self.put(f"only({name}, z);")
        return name
