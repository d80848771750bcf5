"""Kernels as programs to read: their loops, what is loaded, computed, reduced and stored.

A value that is used once stands in the expression that uses it.  Places in arrays are counted in
elements, as the kernel counts them; ``s0`` is a run-time parameter, a number or a start.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tiledarray.fusion.chains.kernel import ChainKernel, laps
from tiledarray.fusion.ir import ONE, Cell, Param, Size, Terms, Value
from tiledarray.fusion.plan import Axis, Kernel, Store, Strided
from tiledarray.fusion.streams.kernel import StreamKernel
from tiledarray.fusion.streams.text import text_of as stream_text
from tiledarray.fusion.tiles.kernel import TileKernel
from tiledarray.fusion.tiles.text import text_of
from tiledarray.ops.movement import full

WIDTH = 100


def program_of(kernel: Kernel, label: Callable[[Value], str]) -> str:
    """Return a kernel's program as text.

    Parameters
    ----------
    kernel : Kernel
    label : callable
        What to call an array.
    """
    if isinstance(kernel, TileKernel):
        lines = text_of(kernel.program).splitlines()
    elif isinstance(kernel, StreamKernel):
        lines = stream_text(kernel.program, kernel.shape).splitlines()
    elif isinstance(kernel, ChainKernel):
        lines = [*_chain(kernel, label)]
    else:
        lines = [line for part in kernel.parts for line in _Writer(part, label).lines()]
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line))


def shared_out(kernel: TileKernel | StreamKernel, device: str) -> str:
    """Say how problems or rows are shared out."""
    if isinstance(kernel, StreamKernel):
        shape = kernel.shape
        rows = (f"{shape.rows} rows at a time; the other operands stay on chip" if kernel.stays
                else f"{shape.rows} rows each")
        of_singles = "" if kernel.program.halves else (
            f"; {'one product' if kernel.program.tf32 else 'three products'} of TF32 for each")
        return (f"{kernel.schedule.blocks:,} of {rows}, by tiles of {shape.columns} columns"
                f"{of_singles}")
    program = kernel.program
    together = f"{kernel.side} side by side" if device != "cuda" else (
        f"{kernel.teams} a block, each by "
        + ("a thread" if kernel.side == 1 else f"{kernel.side} threads"))
    return f"{program.problems:,} problems, {together}; {program.nbytes:,} bytes of each on chip"


def members(kernel: Kernel) -> list[Kernel]:
    """The kernels of a launch; of a chain those of all its stages."""
    if isinstance(kernel, ChainKernel):
        return [part for stage in kernel.stages for part in stage.kernel.parts]
    return kernel.parts


def tiles_of(kernel: ChainKernel) -> str:
    """Say how a chain is cut into tiles."""
    halo = ", ".join(f"{below} and {above}" for below, above in kernel.halo)
    rounds = "" if kernel.rounds == 1 else (
        f", {len(kernel.stages)} at a time, between which all blocks exchange edges")
    return (f"{kernel.steps} steps in tiles of {_by(kernel.tile)} of {_by(kernel.size)}, "
            f"with {halo} around them{', plane after plane' if kernel.walk else ''}{rounds}")


def _by(lengths: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in lengths)


def _chain(kernel: ChainKernel, label: Callable[[Value], str]) -> Iterator[str]:
    """What a block of a chain does; stages that do the same are said once."""
    yield f"for each tile: {tiles_of(kernel)}"
    for base in kernel.inputs:
        yield f"  copy {label(base)} to shared memory"
    for first, period, times in laps([stage.text for stage in kernel.stages]):
        yield f"  {times} times:" if times > 1 else "  once:"
        for stage in kernel.stages[first:first + period]:
            for part in stage.kernel.parts:
                yield from (f"    {line}" for line in _Writer(part, label).lines())
    for base in kernel.outputs:
        yield f"  copy {label(base)} from shared memory"


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent + "    ", drop_whitespace=True,
                         break_long_words=False, break_on_hyphens=False)


DEEP = 32  # calls in calls


class _Writer:
    def __init__(self, kernel: Kernel, label: Callable[[Value], str]) -> None:
        self.kernel, self.label = kernel, label
        axes = kernel.schedule.axes
        self.walked = [axis for axis in axes if axis.reduced or axis.scanned]
        self.free = [axis for axis in axes if axis not in self.walked]
        inner = {number for axis in self.walked for number in axis.domain}
        self.uses = Counter(arg for cell in kernel.cells for arg in cell.args
                            if isinstance(arg, Cell))
        self.uses.update(store.sink.cell for store in kernel.stores)
        self.named: set[Cell] = set()
        depths: dict[Cell, int] = {}  # of what is written in the place of a cell
        for cell in kernel.cells:
            depth = 1 + max((depths[arg] for arg in cell.args if isinstance(arg, Cell)), default=0)
            if self._has_a_name(cell) or (depth > DEEP and cell.kind == "apply"):
                self.named.add(cell)
                depth = 0
            depths[cell] = depth
        self.passes: dict[int, list[str]] = {}
        self.after: dict[int, list[str]] = {}
        for cell in kernel.cells:
            if cell in self.named:
                walks = cell.kind in ("reduce", "scan") or bool(cell.axes & inner)
                number = cell.phase if cell.kind in ("reduce", "across") else cell.phase + walks
                part = self.passes if walks else self.after
                part.setdefault(number, []).append(self._line(cell))
        in_passes = [store for store in kernel.stores
                     if store.sink.level == "full" and self.walked]
        for store in in_passes:
            self.passes.setdefault(store.sink.store_pass, []).append(self._store(store))
        last = max([0, *self.passes])
        self.after.setdefault(last, []).extend(
            self._store(store) for store in kernel.stores
            if store not in in_passes and store.sink.level != "across")
        self.behind = [self._store(store) for store in kernel.stores
                       if store.sink.level == "across"]

    def _has_a_name(self, cell: Cell) -> bool:
        if cell.kind in ("reduce", "across", "scan"):
            return True
        return cell.kind in ("apply", "gather") and self.uses[cell] > 1

    def lines(self) -> Iterator[str]:
        """Each line of the program."""
        free = ", ".join(map(_bound, self.free))
        yield f"for each {free}:" if free else "once:"
        walked = ", ".join(map(_bound, self.walked))
        for number in range(max([0, *self.passes, *self.after]) + 1):
            if number in self.passes:
                yield f"  pass {number} over {walked}:"
                yield from (f"    {line}" for line in self.passes[number])
            yield from (f"  {line}" for line in self.after.get(number, ()))
        if self.behind:
            yield "when all of them are done:"
            yield from (f"  {line}" for line in self.behind)
        if self.kernel.border is not None:
            yield "  what is around the region: " + (
                "copied" if self.kernel.border.fill is None else "filled")

    def _line(self, cell: Cell) -> str:
        held = ", held" if cell.held else ""
        if cell.kind in ("reduce", "scan"):
            return f"{self._name(cell)} = {cell.kind} {self._applied(cell)}{held}"
        if cell.kind == "across":
            return f"{self._name(cell)} = reduce over all of them {self._applied(cell)}"
        return f"{self._name(cell)} = {self._computed(cell)}{held}"

    def _store(self, store: Store) -> str:
        return f"store {self._place(store.access)} = {self._value(store.sink.cell)}"

    def _name(self, cell: Cell) -> str:
        return f"x{cell.number}"

    def _value(self, arg: Any) -> str:
        """What an operand is: its name, or how it is computed."""
        if not isinstance(arg, Cell):
            return _parameter(arg)
        return self._name(arg) if arg in self.named else self._computed(arg)

    def _computed(self, cell: Cell) -> str:
        if cell.kind == "param":
            return _parameter(cell.value)
        if cell.kind == "iota":
            start, step = map(self._value, cell.args)
            if (start, step) == ("0", "1"):
                return self._index(self.kernel.loads[cell])
            return f"({start} + ({self._index(self.kernel.loads[cell])}) * {step})"
        if cell.kind in ("load", "gather"):
            place = self._place(self.kernel.loads[cell])
            if cell.kind == "load":
                return place
            (at,) = cell.args
            return f"{place[:-1]} + {cell.along[0]} * {self._value(at)}]"
        return self._applied(cell)

    def _applied(self, cell: Cell) -> str:
        if cell.value.op is full:
            return self._value(cell.args[0])
        name = str(cell.dtype) if cell.value.op.name == "cast" else cell.value.op.name
        return f"{name}({', '.join(map(self._value, cell.args))})"

    def _place(self, access: Strided) -> str:
        return f"{self.label(access.value)}[{self._index(access)}]"

    def _index(self, access: Strided) -> str:
        found = [_name(axis) if stride == 1 else f"{stride}*{_name(axis)}"
                 for axis, stride in zip(self.kernel.schedule.axes, access.strides, strict=True)
                 if stride]
        if access.wrap is not None:
            found.append(f"wrapped {access.wrap}")
        return " + ".join([*found, *_terms(access.offset)]) or "0"


def _name(axis: Axis) -> str:
    return "i" + "_".join(map(str, axis.domain))


def _bound(axis: Axis) -> str:
    return f"{_name(axis)} < {axis.size}"


def _terms(terms: Terms) -> Iterator[str]:
    for number, coefficient in terms:
        yield (str(coefficient) if number == ONE else
               f"s{number}" if coefficient == 1 else f"{coefficient}*s{number}")


def _parameter(param: Any) -> str:
    if isinstance(param, Param):
        return f"s{param.index}" + (f" + {param.shift}" if param.shift else "")
    return str(param.count) if isinstance(param, Size) else str(param)
