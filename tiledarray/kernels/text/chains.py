"""Chains: several launches' kernels on tiles in shared memory, one after the other.

Stages whose texts differ in their arguments alone are one loop over these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from operator import sub
from typing import Any

import numpy as np

from tiledarray.fusion.chains.held import Held, alone, held, is_asked_for
from tiledarray.fusion.chains.kernel import ChainKernel, Version, laps
from tiledarray.fusion.chains.stages import Part, Places
from tiledarray.fusion.chains.tiles import TOGETHER
from tiledarray.fusion.ir import (
    Cell,
    Value,
    dense_strides,
    storage,
    strides_of,
)
from tiledarray.kernels.text.chain_ends import COUNT, ROWS, ChainWriter, Ends, Rounds, padded
from tiledarray.kernels.text.expression import ctype, render
from tiledarray.kernels.text.layout import Program, Slot
from tiledarray.ops.op import Elementwise

_FIELD = re.compile(r"\ba\.(\w+)")
_POINT = "(const int i_0, const int i_1, const int i_2) TA_LAMBDA"
_EACH_U, _EACH_V = (
    f'_Pragma("unroll") for (int {name} = 0; {name} < {{}}; ++{name})' for name in "uv")
THIN = 8  # times that the arrays are larger than a part that one warp of a block computes
FEW_CELLS = 24  # of a stage that is written for tiles at the ends of lines as well
_WIDE = 1 << 30  # elements of an array from which its indices take 64 bits


def print_chain(kernel: ChainKernel) -> Program:
    """Return a chain's program, for the device."""
    stages = [StageText(kernel, number) for number in range(len(kernel.stages))]
    alike = kernel.rounds > 1 or len({stage.key for stage in stages}) == 1
    lone = alone(kernel) if alike else None
    assert lone is not None or kernel.rounds == 1
    begin, end = Ends(kernel, lone), Ends(kernel, lone)
    begin.origin()
    begin.copy_in()
    rounds = Rounds(kernel, lone) if lone is not None and kernel.rounds > 1 else None
    end.copy_out()
    slots = {**begin.slots, **(rounds.slots if rounds else {}), **end.slots}
    structs: list[str] = []
    fields = [field(slot) for slot in slots.values()]
    placed = [*slots.values()]
    body: list[str] = [] if lone is not None else ["  __syncthreads();"]
    for first, period, times in laps([stage.key for stage in stages]):
        if period == 1 and (kept := _in_registers(kernel, first, times, lone)) is not None:
            stages[first:first + times] = kept
        body += ["  {", *(f"    {line}" for line in stages[first].before)]
        if lone is not None:
            assert (first, times) == (0, len(stages)) and stages[0].held is not None
            body += [*begin.direct, "    __syncthreads();"]
        if rounds:
            body += rounds.begin
        count = "steps" if rounds else times
        body.append(f"  _Pragma(\"unroll 1\") for (int k = 0; k < {count}; ++k) {{")
        for k in range(first, first + period):
            same = stages[k:k + period * times:period]
            common, own = _parted(same)
            fields += [field(replace(slot, name=f"g{k}_{slot.name}")) for slot in common]
            placed += common
            if own:
                structs.append(f"struct Stage_{k} {{ {' '.join(map(field, own[0]))} }};")
                fields.append(f"Stage_{k} stages_{k}[{times}];")
                placed += [slot for slots_of in own for slot in slots_of]
            body += ["    {", *([f"      const Stage_{k}& s = a.stages_{k}[k];"] if own else []),
                     *renamed(same[0].lines, k, {slot.name for slot in common}), "    }",
                     "    __syncthreads();"]
        body += ["  }", *(rounds.end if rounds else ()), *(end.direct if lone else ()), "  }"]
    return program_of(kernel, structs, fields, placed, [
        *begin.lines, *body, *end.lines, *(rounds.after if rounds else ())])


def program_of(kernel: ChainKernel, structs: list[str], fields: list[str], placed: list[Slot],
               body: list[str]) -> Program:
    """Return the program of a chain, given its types, arguments, and what a block does."""
    tx, ty = kernel.schedule.threads
    extents = padded(kernel.extents, 1)
    constants = ", ".join([
        f"TX = {tx}", f"TY = {ty}", f"R = {_together(kernel)}",
        *(f"E{d} = {n}" for d, n in enumerate(extents)),
        *(f"T{d} = {n}" for d, n in enumerate(padded(kernel.tile, 1)))])
    wide = any(value.size >= _WIDE for value in (
        *kernel.outputs, *(cell.value for cell in kernel.group.loads)))
    resident = kernel.schedule.resident
    text = [
        f"using idx = {'long long' if wide else 'int'};",
        *([f"#define TA_RESIDENT {resident}"] if resident else []),
        '#include "tile.h"', '#include "chains.h"', *structs,
        f"struct Args {{ {' '.join(fields)} }};",
        f"enum {{ {constants} }};", "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(block)",
        "  char* const shared = reinterpret_cast<char*>(shared_memory);",
        *body, "}", ""]
    return Program("\n".join(text), placed, kernel.schedule.blocks, tx * ty, 0,
                   kernel.schedule.shared_bytes, 0, at_once=kernel.rounds > 1)


def _in_registers(kernel: ChainKernel, first: int, times: int, lone: Held | None) -> (
        list[StageText] | None):
    """Stages that repeat, with the array in registers that one passes on to the next."""
    end = first + times
    seen = [held(kernel, number) for number in range(first, end)]
    if times == 1 or seen[0] is None:
        return None
    texts = [
        StageText(kernel, number, one, whole=lone is None and (
            number + 1 == end or is_asked_for(kernel, number)), loads=lone is None)
        for number, one in enumerate(seen, first)]
    return texts if all(text.key == texts[0].key for text in texts) else None


def renamed(lines: Iterable[str], k: int, common: set[str]) -> Iterator[str]:
    """The lines of stages whose fields are in two places: what is the same in all, and the rest."""
    for line in lines:
        yield "    " + _FIELD.sub(
            lambda found: f"a.g{k}_{found[1]}" if found[1] in common else f"s.{found[1]}", line)


def _together(kernel: ChainKernel) -> int:
    return TOGETHER if len(kernel.size) > 1 else 1


def field(slot: Slot) -> str:
    """Return the declaration of an argument."""
    kind = "idx" if slot.kind in ("size", "phase") else slot.ctype
    return f"alignas(8) {kind} {slot.name};"


def _parted(alike: list[StageText]) -> tuple[list[Slot], list[list[Slot]]]:
    """The fields that are the same for all stages, and the others of each."""
    names = list(alike[0].slots)
    same = {name for name in names
            if all(stage.slots[name] == alike[0].slots[name] for stage in alike)}
    return ([alike[0].slots[name] for name in names if name in same],
            [] if len(same) == len(names) else
            [[stage.slots[name] for name in names if name not in same] for stage in alike])


class StageText(ChainWriter):
    """What a stage does; the names in it are the same in stages that do the same."""

    def __init__(self, kernel: ChainKernel, number: int, held: Held | None = None, *,
                 whole: bool = True, loads: bool = True) -> None:
        super().__init__(kernel)
        self.number, self.stage, self.held = number, kernel.stages[number], held
        self.whole = whole  # whether all that it has in registers goes to shared memory
        self.loads = loads  # whether it comes from there at first
        self.before: list[str] = []  # what stands before the loop over stages that do the same
        self.tiles: dict[Any, str] = {}
        self.bounds: dict[tuple[Places, Places], str] = {}
        self.reach = kernel.reach(number)
        self._declared: list[str] = []
        with self.block(""):
            begin = len(self.lines)
            self._parts()
            self.lines[begin:begin] = self._declared

    def _parts(self) -> None:
        if self.held is not None:
            self._held_part(self.stage.parts[0], self.held)
            return
        thick: dict[Value, list[str]] = {}
        for k, part in enumerate(self._by_size()):
            base = self._target(part)
            if self._is_thick(part):
                whole = self._part(k, part)
                thick.setdefault(base, []).append(f"{whole} == box_{k}")
            elif base in thick:
                with self.block(f"if (!({' || '.join(thick[base])}))"):
                    self._thin_part(k, part)
            else:
                self._thin_part(k, part)

    def _by_size(self) -> list[Part]:
        return sorted(self.stage.parts,
                      key=lambda part: (-prod(part.extents), self.kernel.begins[part]))

    def _is_thick(self, part: Part) -> bool:
        """Whether all threads compute a part together."""
        return prod(part.extents) * THIN >= prod(self._target(part).shape)

    def _target(self, part: Part) -> Value:
        return self.kernel.memory[part.kernel.stores[0].access.value]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for stages that differ in their arguments alone."""
        return (*self.lines, *(field(slot) for slot in self.slots.values()))

    # ---- tiles -------------------------------------------------------------------------------

    def _tile_read(self, base: Value) -> str:
        """Name of the tile of an array that was on chip before the stage."""
        return self._tile((base, self.kernel.version(base, self.number)), "from")

    def _tile_written(self, base: Value) -> str:
        made = base in self.stage.made
        return self._tile((base, self.number if made else (
            self.kernel.version(base, self.number))), "to")

    def _tile(self, version: Version, role: str) -> str:
        if version not in self.tiles:
            name = self.tiles[version] = f"{role}_{len(self.tiles)}"
            with self._ahead():
                self.tile(name, version, name)
        return self.tiles[version]

    def _read(self, base: Value, shift: Places) -> str:
        """The element that lies so far away of an array that was on chip before the stage."""
        return f"{self._tile_read(base)}[at{self._moved(shift)}]"

    def _element(self, value: Value) -> str:
        """The element of an array that a stage writes."""
        return f"{self._tile_written(self.kernel.memory[value])}[at]"

    @contextmanager
    def _ahead(self) -> Iterator[None]:
        """What is written goes to the beginning of the stage."""
        lines, self.lines, depth, self.depth = self.lines, [], self.depth, 2
        yield
        self._declared += self.lines
        self.lines, self.depth = lines, depth

    def _whole(self, part: Part) -> str:
        """Name of what a block has, of what it computes, of the arrays that a part writes."""
        base = self._target(part)
        key = self.kernel.offsets[base], base.shape
        if key not in self.bounds:
            self.bounds[key] = f"all_{len(self.bounds)}"
            with self._ahead():
                self.box(self.bounds[key], self.reach, base)
        return self.bounds[key]

    def _box(self, k: int, part: Part) -> str:
        """Declare what a block has of a part's box; return the name of all that it has."""
        whole, name = self._whole(part), f"box_{k}"
        self._unit_box(name)
        for d, at in self.dimensions():
            if d in self.kernel.around:
                self.put(f"{name}.begin[{at}] = {whole}.begin[{at}]; "
                         f"{name}.end[{at}] = {whole}.end[{at}];")
                continue
            first = self.kernel.begins[part][d]
            begin = self.size(f"{name}_begin_{at}", first)
            end = self.size(f"{name}_end_{at}", first + part.extents[d])
            self.put(f"cut({name}, {at}, {whole}, {begin}, {end}, o_{at});")
        return whole

    # ---- parts -------------------------------------------------------------------------------

    def _part(self, k: int, part: Part) -> str:
        """A part that all threads share, some rows of a thread together."""
        stores = self._stores(part)
        whole = self._box(k, part)
        if part.kernel.border is not None:
            self._border(k, part, whole, stores[0][2])
        with self.block(f"each_rows<TX, TY, R>(box_{k}, [&]{ROWS}", "});"):
            self.put(COUNT)
            for name, kind, _, _ in stores:
                self.put(f"{kind} {name}[N];")
            with self.block("TA_TOGETHER(u)"):
                self.put(self.at("i_1 + u"))
                self._cells(k, part)
                for name, _, _, value in stores:
                    self.put(f"{name}[u] = {value};")
            with self.block("TA_TOGETHER(u)"):
                self.put(self.at("i_1 + u"))
                for name, _, element, _ in stores:
                    self.put(f"{element} = {name}[u];")
        return whole

    def _held_part(self, part: Part, held: Held) -> None:
        """A part of which each thread has its points in registers: what it leaves stays there."""
        ((_, kind, _, value),) = self._stores(part)
        tile, source = self._tile_written(self._target(part)), self._tile_read(held.base)
        tall, wide = self.kernel.extents
        sizes = (tall, wide, held.rows, held.lanes, held.above, held.below, held.left, held.right)
        place = self.kernel.places[held.base, self.kernel.version(held.base, self.number)]
        self.before = [f"Held<{kind}, {', '.join(map(str, sizes))}> held;"]
        if self.loads:
            self.before.append(f"held.load(reinterpret_cast<{kind}*>(shared + {place}));")
        beside = held.rows_beside
        self.put(f"held.template look<{beside.start}, {beside.stop}>({source});")
        # Outside the box an array stays as it was. What a tile has beyond what is right any more
        # is computed as well, for nobody asks for it: that costs less than to leave it out.
        if 1 in self.kernel.around:
            self.put("const int first = 0, end = E2;")
        else:
            first, end = self._ends(part, 1)
            self.put(f"const int first = int({first} - o_2), end = int({end} - o_2);")
        if 0 in self.kernel.around:
            self.put("const int top = 0, bottom = E1;")
        else:
            top, bottom = self._ends(part, 0)
            self.put(f"const int top = int({top} - o_1), "
                     f"bottom = int(min_idx({bottom} - o_1, E1));")
        rows, lanes = held.rows, held.lanes
        self.put(f"bool inside[{lanes}];")
        self.put(f"{_EACH_V.format(lanes)} inside[v] = "
                 "held.lane + v >= first && held.lane + v < end;")
        guarded = not all(cell in held.reads or self._in_tile(cell, part)
                          for cell in part.kernel.cells if cell.kind == "load")
        step = "const auto step = [&](const auto all_rows, const auto all_lanes) TA_LAMBDA"
        with self.block(step, "};"), self.block(_EACH_U.format(rows)):
            self.put("const int row = held.row + u;")
            self.put("const bool within = all_rows || (row >= top && row < bottom);")
            if guarded or tall % rows:
                self.put("if (!within) continue;")
            with self.block(_EACH_V.format(lanes)):
                self.put("const int i_0 = 0, i_2 = held.lane + v, at = row * E2 + i_2; "
                         "(void)i_0; (void)i_2; (void)at;")
                if guarded:
                    self.put("if (!all_lanes && !inside[v]) continue;")
                self._cells(0, part)
                self.put(f"held.own[u][v] = within && (all_lanes || inside[v]) ? {value} : "
                         "held.own[u][v];")
        self.put(f"const bool all_rows = held.row >= top && held.row + {rows} <= bottom;")
        self.put("if (all_rows && first <= 0 && end >= E2) step(Count<1>(), Count<1>());")
        if len(part.kernel.cells) <= FEW_CELLS and not guarded:  # three texts, not two
            self.put("else if (all_rows) step(Count<1>(), Count<0>());")
        self.put("else step(Count<0>(), Count<0>());")
        whole = self.size("whole", int(self.whole))
        self.put(f"held.store({tile}, {whole});")

    def _ends(self, part: Part, d: int) -> tuple[str, str]:
        """Where in the frame a part's box begins and ends along a dimension."""
        begin, at = self.kernel.begins[part][d], self.first + d
        return (self.size(f"box_0_begin_{at}", begin),
                self.size(f"box_0_end_{at}", begin + part.extents[d]))

    def _thin_part(self, k: int, part: Part) -> None:
        """A part that few tiles have some of: one warp computes it, another one for each part."""
        stores = self._stores(part)
        whole = self._whole(part)
        with self.block(""):
            if part.kernel.border is not None:
                self._box(k, part)
                self._border(k, part, whole, stores[0][2])
            with self.block(f"if (threadIdx.x / 32 == {k} % (TX * TY / 32))"):
                if part.kernel.border is None:
                    self._box(k, part)
                call = f"each_point(box_{k}, threadIdx.x % 32, 32, [&]{_POINT}"
                with self.block(call, "});"):
                    self.put(self.at("i_1"))
                    self._cells(k, part)
                    for _, _, element, value in stores:
                        self.put(f"{element} = {value};")

    def _stores(self, part: Part) -> list[tuple[str, str, str, str]]:
        """For each array that a part writes: a name, its type, the element, and the value."""
        return [(f"y_{j}", ctype(store.access.value.dtype), self._element(store.access.value),
                 self._stored(store.sink.cell, store.access.value))
                for j, store in enumerate(part.kernel.stores)]

    def _cells(self, k: int, part: Part) -> None:
        for cell in part.kernel.cells:
            if cell.kind != "param":
                self.put(f"{ctype(cell.dtype)} c_{cell.number} = "
                         f"{self._expression(k, cell, part)};")

    def _border(self, k: int, part: Part, whole: str, element: str) -> None:
        """What an update leaves as it was, where a block's tile reaches that."""
        border = part.kernel.border
        assert border is not None
        kind = ctype(border.old.dtype)
        call = f"each_around<TX * TY>({whole}, box_{k}, [&]{_POINT}"
        with self.block(call, "});"):
            self.put(self.at("i_1"))
            if border.fill is not None:
                source = f"cast<{kind}>({self._operand(border.fill, border.old.dtype)})"
            else:
                source = self._old(k, part, border.old)
            self.put(f"{element} = {source};")

    def _old(self, k: int, part: Part, value: Value) -> str:
        base = self.kernel.memory[value]
        if self.kernel.version(base, self.number) >= -1:
            return self._read(base, self.kernel.shift(part, part.writes[0], base))
        strides = dense_strides(value.shape)
        begin = tuple(map(sub, self.kernel.begins[part], part.writes[0]))
        pointer = self.pointer(f"old_{k}", value, begin, strides)
        return f"Constant<{ctype(value.dtype)}>({pointer})[{self.place(f'old_{k}', strides)}]"

    @staticmethod
    def _moved(shift: Places) -> str:
        """What is added to a place in a tile for one so far away."""
        return "".join(
            f" + ({by}){pitch}"
            for by, pitch in zip(padded(shift, 0), (" * E1 * E2", " * E2", ""), strict=True) if by)

    # ---- cells -------------------------------------------------------------------------------

    def _in_tile(self, cell: Cell, part: Part) -> bool:
        assert cell.access is not None
        base = self.kernel.memory[storage(cell.access.value)]
        return cell in part.reads and self.kernel.version(base, self.number) >= -1

    def _expression(self, k: int, cell: Cell, part: Part) -> str:
        if cell.kind == "load":
            return self._load(k, cell, part)
        op = cell.value.op
        if isinstance(op, Elementwise):
            names = [self._operand(arg, loop)
                     for arg, loop in zip(cell.args, cell.value.attrs, strict=True)]
            return render(op, cell.value.attrs, cell.dtype, names)
        return f"cast<{ctype(cell.dtype)}>({self._operand(cell.args[0], cell.dtype)})"

    def _load(self, k: int, cell: Cell, part: Part) -> str:
        access = cell.access
        assert access is not None
        if self._in_tile(cell, part):
            base = self.kernel.memory[storage(access.value)]
            shift = self.kernel.shift(part, part.reads[cell], base)
            if self.held is not None and cell in self.held.reads:
                return f"held.seen{self.held.place(cell)}"
            return self._read(base, shift)
        if self.kernel.around and cell in part.reads:
            strides = dense_strides(access.value.shape)
            shift = tuple(map(sub, part.reads[cell], self.kernel.begins[part]))
            name = f"p_{k}_{cell.number}"
            pointer = self.pointer(name, access.value, (0,) * self.rank, strides)
            return (f"Constant<{ctype(access.value.dtype)}>({pointer})"
                    f"[{self.place(name, strides, shift)}]")
        along, offset = strides_of(access, len(part.kernel.group.shape))
        strides = tuple(along[axis] if axis >= 0 else 0 for axis in part.axes)
        name = f"p_{k}_{cell.number}"
        pointer = self.pointer(name, access.value, self.kernel.begins[part], strides,
                               offset=offset)
        return f"Constant<{ctype(access.value.dtype)}>({pointer})[{self.place(name, strides)}]"

    def _operand(self, cell: Cell, loop: np.dtype[Any]) -> str:
        return self.scalar(cell, loop) if cell.kind == "param" else f"c_{cell.number}"

    def _stored(self, cell: Cell, value: Value) -> str:
        target, name = ctype(value.dtype), self._operand(cell, value.dtype)
        if cell.kind == "param" or cell.dtype is None or ctype(cell.dtype) != target:
            return f"cast<{target}>({name})"
        return name
