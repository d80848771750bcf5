"""Tile programs as text, for both compilers.

On the host a thread has several problems side by side: element ``e`` of problem ``w`` of a tile
lies at ``e * W + w``, and every inner loop is over ``w``.  On a device a team of threads has a
problem, and shares out the elements of each statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from tiledarray.fusion.ir import Affine, Index, Param, Value
from tiledarray.fusion.tiles.copies import copied, everywhere
from tiledarray.fusion.tiles.ir import (
    Apply,
    Barrier,
    Call,
    Expression,
    Load,
    Map,
    Number,
    Position,
    Product,
    Reduce,
    Scalar,
    Shape,
    Statement,
    Store,
    Tile,
    parts,
)
from tiledarray.fusion.tiles.kernel import TileKernel
from tiledarray.fusion.tiles.through import follows
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.layout import Program, Slot
from tiledarray.kernels.text.tile_calls import TileCalls, listed

NARROW = 1 << 30  # elements of an array that 32-bit indices can count
LEAF = 64  # elements that are added up before they are added to a total


class TilePrinter(TileCalls):
    """Writes a tile program."""

    # ---- the whole -----------------------------------------------------------------------------

    def print(self) -> Program:
        """Return the program's text and arguments."""
        kernel, program = self.kernel, self.program
        for tile in program.tiles:
            kind = ctype(tile.dtype)
            if tile not in program.offsets:
                self.put(f"{kind} t_{tile.number}[{tile.size}];")
                continue
            offset = program.offsets[tile]
            at = f"{offset * program.spacing}" if self.device else f"{offset} * W"
            own = " + threadIdx.x % TEAMS" if program.beside else ""
            self.put(f"{kind}* const t_{tile.number} = "
                     f"reinterpret_cast<{kind}*>(memory + {at}){own};")
        for place in range(len(program.failures)):
            self.put(f"int failed_{place}{' = 0' if self.device else '[W] = {}'};")
        self._statements(program.statements)
        self._failures()
        body, self.lines = self.lines, []
        self._begin()
        begin, self.lines = self.lines, []
        wide = any(value.size >= NARROW for value in self._arrays())
        fields = " ".join(
            f"alignas(8) {'idx' if slot.kind == 'size' else slot.ctype} {slot.name};"
            for slot in self.slots.values())
        schedule, threads = kernel.schedule, kernel.schedule.threads[0]
        sides = f"G = {kernel.side}, TEAMS = {kernel.teams}" if self.device else (
            f"W = {kernel.side}")
        text = "\n".join([
            f"using idx = {'int' if self.device and not wide else 'long long'};",
            *(["#define TA_ONE_TEAM"] if self.device and kernel.teams == 1 else []),
            *([f"#define TA_BESIDE {kernel.teams}"] if program.beside else []),
            *([f"#define TA_RESIDENT {schedule.resident}"] if schedule.resident else []),
            '#include "tile.h"', *self._headers(),
            f"struct Args {{ {fields} }};",
            f"enum {{ TX = {threads}, TY = 1, {sides} }};",
            "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(block)", *begin, *body, "}", ""])
        return Program(text, list(self.slots.values()), schedule.blocks, threads,
                       schedule.scratch_bytes, schedule.shared_bytes, 0)

    def _headers(self) -> list[str]:
        calls = [s for s in self.program.statements if isinstance(s, Call | Product)]
        fourier = any(isinstance(s, Call) and s.name == "fourier" for s in calls)
        orthogonal = any(isinstance(s, Call) and s.name in ("qr", "eigenvalues") for s in calls)
        return ['#include "matrices.h"', *(['#include "fourier.h"'] if fourier else []),
                *(['#include "orthogonal.h"'] if orthogonal else []), '#include "problems.h"']

    def _arrays(self) -> Iterator[Value]:
        for key in self.pointers:
            yield key[0]

    def _begin(self) -> None:
        """Which problems a block has, and where in memory they begin."""
        count = self.size("problems", self.program.problems)
        axes = range(len(self.program.lengths))
        if self.device:
            self.put("const Team<G> team;")
            beside = self.program.beside
            self.put("const i64 problem = i64(block) * TEAMS + threadIdx.x "
                     f"{'% TEAMS' if beside else '/ G'};")
            self.put(f"const bool valid = problem < {count};")
            self.put(f"i64 t = valid ? problem : {count} - 1;")
            own = "" if beside else f" + threadIdx.x / G * {self.kernel.region}"
            self.put(f"char* const memory = reinterpret_cast<char*>(shared_memory){own};")
            for k in reversed(axes[1:]):
                n = self.size(f"n_{k}", self.program.lengths[k])
                self.put(f"const i64 b_{k} = t % {n}; t /= {n};")
            self.put("const i64 b_0 = t;")
            for key, name in self.pointers.items():
                kind = self._pointer_type(key)
                self.put(f"{kind} const {name} = {self._origin(key, name, '')};")
            return
        self.put("const Team<W> team{};")
        self.put("char* const memory = scratch;")
        self.put("const i64 first = block * W;")
        self.put(f"const int valid = int(min_idx(W, {count} - first));")
        self.put(f"i64 {', '.join(f'b_{k}[W]' for k in axes)};")
        for key, name in self.pointers.items():
            self.put(f"{self._pointer_type(key)} {name}[W];")
        with self.block("for (int w = 0; w < W; ++w)"):
            self.put("i64 t = first + (w < valid ? w : valid - 1);")
            for k in reversed(axes[1:]):
                n = self.size(f"n_{k}", self.program.lengths[k])
                self.put(f"b_{k}[w] = t % {n}; t /= {n};")
            self.put("b_0[w] = t;")
            for key, name in self.pointers.items():
                self.put(f"{name}[w] = {self._origin(key, name, '[w]')};")

    def _pointer_type(self, key: Any) -> str:
        value, *_, stores = key
        kind = ctype(value.dtype)
        if stores:
            return f"{kind}*"
        return f"Constant<{kind}>" if self.device else f"const {kind}*"

    def _origin(self, key: Any, name: str, which: str) -> str:
        """Where in memory a problem's part of an array begins."""
        value, offset, places, stores = key
        kind = f"{'' if stores else 'const '}{ctype(value.dtype)}*"
        base = self.arg(Slot("pointer", name, kind, value=value, offset=offset))
        terms = [f"b_{axis}{which} * {self.size(f'{name}_{axis}', stride)}"
                 for axis, stride in places]
        return " + ".join([base, *terms])

    def _failures(self) -> None:
        if not self.program.failures:
            return
        status = self.arg(Slot("pointer", "status", "i64*", value=self.kernel.status))
        for place in range(len(self.program.failures)):
            if self.device:
                self.put(f"if (failed_{place} && valid && team.rank == 0) "
                         f"note_failure({status} + {place}, problem);")
            else:
                self.put("for (int w = 0; w < valid; ++w) "
                         f"if (failed_{place}[w]) note_failure({status} + {place}, first + w);")

    # ---- statements ----------------------------------------------------------------------------

    def _statements(self, statements: Sequence[Statement]) -> None:
        """All of them; transforms of the same rows, one of what the other leaves, are one call."""
        waiting = [*statements][::-1]
        while waiting:
            statement = waiting.pop()
            after = waiting[-1] if waiting else None
            if self.device and isinstance(statement, Call) and isinstance(after, Call) and (
                    follows(statement, after)):
                waiting.pop()
                self._fourier_through(statement, after)
            else:
                self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        self.written = {}
        self.turned = isinstance(statement, Load | Map | Store) and statement.turned
        if not isinstance(statement, Load):
            self._await_copies()
        if isinstance(statement, Barrier):
            if self.device:
                self.put("team.sync();")
        elif isinstance(statement, Load):
            self._load(statement)
        elif isinstance(statement, Map):
            structs = statement.tile.dtype.kind == "c" or _has_structs(statement.expression)
            with self._points(statement.domain, structs=structs, expression=statement.expression):
                value = self._value(statement.expression, statement.tile.dtype)
                target = self._on_chip(statement.tile, statement.index)
                self.put(f"{target} = cast<{ctype(statement.tile.dtype)}>({value});")
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Reduce):
            self._reduce(statement)
        elif isinstance(statement, Product):
            self._product(statement)
        else:
            self._call(statement)
        self.turned = False

    @contextmanager
    def _points(self, domain: Shape, *, guarded: bool = False, structs: bool = False,
                expression: Expression | None = None) -> Iterator[None]:
        """A loop over the points of a domain, and on the host over problems within."""
        if self.turned:
            count = prod(domain)
            self.put('_Pragma("unroll 4")')
            with self.block(f"for (int f = threadIdx.x; f < TEAMS * {count}; f += TX)"):
                self.put(f"const int e = f % {count}, other = f / {count} - threadIdx.x % TEAMS;")
                self._indices(domain, "e")
                yield
            return
        if self.device:
            guard = " if (valid)" if guarded else ""
            # Whole, it would keep all addresses in registers.
            self.put(f'_Pragma("unroll{"" if self.alone else " 4"}")')
            with self.block(f"for (int e = team.rank; e < {prod(domain)}; e += G){guard}"):
                self._indices(domain, "e")
                yield
            return
        for axis, n in enumerate(domain):
            if n != 1:
                self.put(f"for (int i_{axis} = 0; i_{axis} < {n}; ++i_{axis})")
        with self.block(""):
            for axis, n in enumerate(domain):
                if n == 1:
                    self.put(f"constexpr int i_{axis} = 0; (void)i_{axis};")
            if guarded:
                with self.block("for (int w = 0; w < valid; ++w)"):
                    yield
            else:
                self._hoist(expression)
                with self._every_problem(structs=structs):
                    yield

    def _hoist(self, expression: Expression | None) -> None:
        """Write ahead of the loop over problems what is the same for all of them.

        Among what the loop computes, g++ leaves it scalar where that has other types.
        """
        if expression is None:
            return
        for part in parts(expression):
            if not isinstance(part, Apply):
                continue
            for arg, loop in zip(part.args, part.loops, strict=False):
                if isinstance(arg, Scalar) and isinstance(arg.param, Param):
                    name, text = self.fresh(), self._scalar(arg, loop)
                    self.put(f"const auto {name} = {text};")
                    self.written[arg] = name
                elif self._is_shared(arg):
                    self._value(arg, loop)

    def _is_shared(self, expression: Expression) -> bool:
        """Whether a value is computed, and the same for all problems."""
        if isinstance(expression, Position):
            return all(number < self.program.scalars for number, _ in expression.at.terms)
        return isinstance(expression, Apply) and all(
            isinstance(arg, Scalar | Number) or self._is_shared(arg) for arg in expression.args)

    @contextmanager
    def _every_problem(self, *, structs: bool) -> Iterator[None]:
        """A vector loop over the problems side by side.

        Its body is a function where it has structs, as in `Printer._each`: else it is not one.
        """
        self.put('_Pragma("omp simd")')
        head = "for (int w = 0; w < W; ++w)"
        with self.block(f"{head} [&]() TA_LAMBDA", "}();") if structs else self.block(head):
            yield

    def _load(self, statement: Load) -> None:
        tile, shape = statement.tile, statement.tile.shape
        source = self._in_memory(statement.source, statement.index)
        if copied(statement, device=self.device) and not self.program.beside:
            begin, name = source[:source.index("[")], f"t_{tile.number}"
            if self.device:
                self.put(f"load_rows<{self._rows(tile)}>(team, {name}, {begin});")
                self.copies = True
            else:
                self.put(f"load_problems<{prod(shape)}>({name}, {begin});")
            return
        with self._points(shape, structs=tile.dtype.kind == "c"):
            place = self._on_chip(tile, everywhere(tile))
            if self.turned:
                begin, _, at = source[:-1].partition("[")
                self.put(f"problems::begin_copy(&{place}, {begin}.at + ({at}));")
                self.copies = True
            else:
                self.put(f"{place} = {source};")

    @staticmethod
    def _rows(tile: Tile) -> str:
        """Of a tile how many elements, in rows of how many, how far apart."""
        return listed((prod(tile.shape), tile.shape[-1] if tile.shape else 1, tile.pitch))

    def _store(self, statement: Store) -> None:
        kind = ctype(statement.target.dtype)
        tile = None if self.program.beside else copied(statement, device=self.device)
        if tile is not None:
            place = self._in_memory(statement.target, statement.index, stores=True)
            begin, name = place[:place.index("[")], f"t_{tile.number}"
            if self.device:
                self.put(f"store_rows<{self._rows(tile)}>(team, {begin}, {name}, valid);")
            else:
                self.put(f"store_problems<{prod(statement.domain)}>({begin}, {name}, valid);")
            return
        with self._points(statement.domain, guarded=True):
            name = self._value(statement.expression, statement.target.dtype)
            target = self._in_memory(statement.target, statement.index, stores=True)
            self.put(self._assigned(target, f"cast<{kind}>({name})"))

    # ---- reductions ----------------------------------------------------------------------------

    def _reduce(self, statement: Reduce) -> None:
        op, tile = statement.op, statement.tile
        place = ", i32" if op.positions else ""
        reducer = f"{op.accumulator}<{ctype(statement.accumulator)}{place}>"
        kept = [axis for axis in range(len(statement.domain)) if axis not in statement.axes]
        here: Index = tuple(Affine(axis) for axis in kept)
        out = ctype(tile.dtype)
        if self.device:
            self._reduce_by_team(statement, reducer, kept, here)
            return
        for axis in kept:
            self.put(f"for (int i_{axis} = 0; i_{axis} < {statement.domain[axis]}; ++i_{axis})")
        count = prod(statement.domain[axis] for axis in statement.axes)
        with self.block(""):
            self.put(f"ColumnAccumulator<{reducer}, W> r;")
            with (self.block(f"for (int leaf = 0; leaf < {count}; leaf += {LEAF})"),):
                with self.block(f"for (int k = leaf; k < min_idx(leaf + {LEAF}, {count}); ++k)"):
                    self._reduced_indices(statement, "k")
                    self._hoist(statement.expression)
                    with self._every_problem(structs=_has_structs(statement.expression)):
                        value = self._value(statement.expression, statement.accumulator)
                        self.put(f"r.add(w, cast<{ctype(statement.accumulator)}>({value}), k);")
                self.put("r.flush();")
            self.put("r.template finish<1, 1>();")
            self.put("for (int w = 0; w < W; ++w)")
            self.put(f"  {self._on_chip(tile, here)} = "
                     f"{reducer}::template value<{out}>(r.total[w]);")

    def _reduced_indices(self, statement: Reduce, number: str) -> None:
        rest, behind = number, prod(statement.domain[axis] for axis in statement.axes)
        for place, axis in enumerate(statement.axes):
            n = statement.domain[axis]
            behind //= max(n, 1)
            at = f"{rest} / {behind}" if behind > 1 else rest
            self.put(f"const int i_{axis} = {at}{f' % {n}' if place else ''};")

    def _reduce_by_team(self, statement: Reduce, reducer: str, kept: list[int],
                        here: Index) -> None:
        """Neighbouring threads share an element of the result, as many as there are to spare."""
        domain, tile = statement.domain, statement.tile
        results = prod(domain[axis] for axis in kept)
        count = prod(domain[axis] for axis in statement.axes)
        together = 1
        while together * 2 * results <= self.kernel.side and together < min(32, count):
            together *= 2
        accumulator = ctype(statement.accumulator)
        if self.alone:
            self.put('_Pragma("unroll")')
        with self.block(f"for (int e = 0; e < {results}; e += G / {together})"):
            at = f"team.rank / {together}" if together > 1 else "team.rank"
            self.put(f"const int mine = e + {at};")
            self.put(f"const int at = mine < {results} ? mine : {results - 1};")
            rest, behind = "at", results
            for place, axis in enumerate(kept):
                behind //= max(domain[axis], 1)
                found = f"{rest} / {behind}" if behind > 1 else rest
                self.put(f"const int i_{axis} = {found}{f' % {domain[axis]}' if place else ''};")
            self.put(f"auto total = {reducer}::total();")
            self.put(f"auto lane = {reducer}::lane();")
            start = f"team.rank % {together}" if together > 1 else "0"
            if self.alone:
                self.put('_Pragma("unroll")')
            with self.block(f"for (int k = {start}; k < {count}; k += {together})"):
                self._reduced_indices(statement, "k")
                value = self._value(statement.expression, statement.accumulator)
                self.put(f"{reducer}::add(lane, cast<{accumulator}>({value}), k);")
            self.put(f"{reducer}::absorb(total, lane);")
            if together > 1:
                self.put(f"butterfly<{together}, {reducer}>(total);")
            first = f" && team.rank % {together} == 0" if together > 1 else ""
            self.put(f"if (mine < {results}{first}) {self._on_chip(tile, here)} = "
                     f"{reducer}::template value<{ctype(tile.dtype)}>(total);")

def _has_structs(expression: Expression) -> bool:
    """Whether a complex number is part of an expression."""
    return any(part.dtype is not None and part.dtype.kind == "c" for part in parts(expression))


def print_tiles(kernel: TileKernel, *, device: bool) -> Program:
    """Return a tile kernel's text for the device or the host compiler."""
    return TilePrinter(kernel, device=device).print()


