"""Tile programs as text to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tiledarray.fusion.ir import ONE, Affine, Index, Param, Size, Terms, Value
from tiledarray.fusion.tiles.ir import (
    Apply,
    Barrier,
    Call,
    Expression,
    Load,
    Map,
    Matrix,
    Number,
    Position,
    Product,
    Program,
    Read,
    Reduce,
    Scalar,
    Shape,
    Statement,
    Store,
    Tile,
)


def text_of(program: Program) -> str:
    """Return a program as text: its tiles, then a line for each statement."""
    lengths = " x ".join(map(str, program.lengths))
    beside = f", {program.beside} side by side" if program.beside else ""
    lines = [f"for each of {lengths} problems{beside}, in {program.nbytes} bytes on chip:"]
    for tile in program.tiles:
        shape = " x ".join(map(str, tile.shape)) or "1"
        apart = f", rows {tile.pitch} apart" if tile.shape and tile.pitch != tile.shape[-1] else ""
        place = f"at {program.offsets[tile]}{apart}" if tile in program.offsets else "in registers"
        lines.append(f"  {tile} = {tile.dtype} [{shape}] {place}")
    writer = _Writer(program)
    lines += [f"  {writer.statement(statement)}" for statement in program.statements]
    return "\n".join(lines) + "\n"


class Expressions:
    """Writes expressions, in which arrays have names, and some values."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.arrays: dict[Value, str] = {}
        self.names: dict[Expression, str] = {}  # of values that have one

    def _array(self, value: Value) -> str:
        return self.arrays.setdefault(value, f"a{value.attrs}")

    def _index(self, index: Index) -> str:
        return ", ".join(map(self._place, index))

    def _place(self, at: Affine) -> str:
        found = []
        if at.axis >= 0:
            found.append(_axis(at.axis) if at.step == 1 else f"{at.step}*{_axis(at.axis)}")
        found += self._terms(at.terms)
        return " + ".join(found) or "0"

    def _terms(self, terms: Terms) -> Iterator[str]:
        for number, coefficient in terms:
            name = "" if number == ONE else f"s{number}" if number < self.program.scalars else (
                f"b{number - self.program.scalars}")
            yield (str(coefficient) if not name else
                   name if coefficient == 1 else f"{coefficient}*{name}")

    def read(self, value: Value, index: Index) -> str:
        """An element of an array."""
        return f"{self._array(value)}[{self._index(index)}]"

    def value(self, expression: Expression) -> str:
        """A scalar expression."""
        if expression in self.names:
            return self.names[expression]
        if isinstance(expression, Read):
            source = expression.source
            name = str(source) if isinstance(source, Tile) else self._array(source)
            return f"{name}[{self._index(expression.index)}]"
        if isinstance(expression, Scalar):
            return self._scalar(expression)
        if isinstance(expression, Number):
            return repr(expression.number)
        if isinstance(expression, Position):
            if (expression.start.param, expression.step.param) == (0, 1):
                return self._place(expression.at)
            start, step = self._scalar(expression.start), self._scalar(expression.step)
            return f"({start} + ({self._place(expression.at)}) * {step})"
        assert isinstance(expression, Apply)
        name = expression.op.name if expression.op else str(expression.dtype)
        return f"{name}({', '.join(map(self.value, expression.args))})"

    def _scalar(self, scalar: Scalar) -> str:
        param = scalar.param
        if isinstance(param, Param):
            return f"s{param.index}" + (f" + {param.shift}" if param.shift else "")
        return str(param.count) if isinstance(param, Size) else str(param or 0)


class _Writer(Expressions):
    def statement(self, statement: Statement) -> str:
        """One statement as a line."""
        if isinstance(statement, Barrier):
            return "barrier"
        if isinstance(statement, Load | Map | Store) and statement.turned:
            return f"{self.statement(replace(statement, turned=False))}, turned"
        if isinstance(statement, Load):
            shape = statement.tile.shape
            return (f"load {statement.tile} from {self._array(statement.source)}"
                    f"[{self._index(statement.index)}] for {_domain(shape)}")
        if isinstance(statement, Map):
            return (f"map {statement.tile}[{self._index(statement.index)}] = "
                    f"{self.value(statement.expression)} for {_domain(statement.domain)}")
        if isinstance(statement, Reduce):
            axes = ", ".join(_axis(axis) for axis in statement.axes)
            return (f"reduce {statement.tile} = {statement.op.name} over {axes} of "
                    f"{self.value(statement.expression)} for {_domain(statement.domain)}")
        if isinstance(statement, Product):
            return (f"product {_matrix(statement.out)} = {_matrix(statement.left)} @ "
                    f"{_matrix(statement.right)}")
        if isinstance(statement, Call):
            out, reads = (", ".join(map(_matrix, side))
                          for side in (statement.out, statement.reads))
            numbers = f" {statement.numbers}" if statement.numbers else ""
            beside = "".join(f", {when} ({self.statement(each)})" for when, each in (
                ("before", statement.before), ("after", statement.after)) if each is not None)
            return f"{statement.name}{numbers} {out} of {reads}{beside}"
        return (f"store {self._array(statement.target.args[0])}[{self._index(statement.index)}] = "
                f"{self.value(statement.expression)} for {_domain(statement.domain)}")


def _axis(axis: int) -> str:
    return f"i{axis}"


def _domain(shape: Shape) -> str:
    found = [f"{_axis(axis)} < {n}" for axis, n in enumerate(shape) if n != 1]
    return ", ".join(found) or "one"


def _matrix(matrix: Matrix) -> str:
    return f"{matrix.tile}{('', '.T', '.H')[matrix.transposed]}"
