"""What the text of every statement of a tile program shares: places, and scalar expressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.fusion.ir import ONE, Index, Param, Size, Value, dense_strides, storage
from tiledarray.fusion.tiles.ir import (
    Apply,
    Expression,
    Number,
    Position,
    Read,
    Scalar,
    Tile,
)
from tiledarray.fusion.tiles.kernel import TileKernel
from tiledarray.kernels.text.expression import ctype, render
from tiledarray.kernels.text.writer import Writer


class TileText(Writer):
    """Writes lines, names fields of ``Args``, elements of tiles and arrays, and values.

    Attributes
    ----------
    pointers : dict
        Names of where a problem's part of an array begins, by what tells such parts apart.
    written : dict
        Names of values that the statement at hand has computed.
    turned : bool
        Whether that goes along problems that lie side by side: ``other`` is how many further than a
        thread's own the one is that an element belongs to.
    """

    turned = False

    def __init__(self, kernel: TileKernel, *, device: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.program = kernel.program
        self.device = device
        self.pointers: dict[Any, str] = {}
        self.written: dict[Expression, str] = {}  # names of values, of the statement at hand
        self.names = 0

    # ---- text ----------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self.names += 1
        return f"c_{self.names}"

    # ---- places --------------------------------------------------------------------------------

    def _in_memory(self, value: Value, index: Index, *, stores: bool = False) -> str:
        """An element of an array in memory."""
        array = value.args[0] if stores else value  # of an update, what it writes in
        strides = dense_strides(array.shape)
        offset: dict[int, int] = {}
        places: dict[int, int] = {}
        moving: list[str] = []
        batch = [d for d, at in enumerate(index)
                 if any(number >= self.program.scalars for number, _ in at.terms)]
        for d, (at, stride) in enumerate(zip(index, strides, strict=True)):
            of_batch, rest = self.program.split_terms(at.terms)
            for axis, coefficient in of_batch.items():
                places[axis] = places.get(axis, 0) + coefficient * stride
            for number, coefficient in rest:
                offset[number] = offset.get(number, 0) + coefficient * stride
            if at.axis >= 0:
                step = at.step * stride
                # What depends on the lengths of the batch is no part of the text.
                by = self.size(f"s_{d}_{value.number}_{at.step}".replace("-", "m"), step) if any(
                    other > d for other in batch) else str(step)
                moving.append(f"i_{at.axis} * {by}" if step != 1 else f"i_{at.axis}")
        last = len(self.program.lengths) - 1
        terms = tuple(sorted(item for item in offset.items() if item[1]))
        key = (storage(value) if not stores else value, terms, tuple(sorted(places.items())),
               stores)
        name = self.pointers.setdefault(key, f"{'q' if stores else 'g'}_{len(self.pointers)}")
        if self.turned and last in places:
            moving.append(f"other * {self.size(f'{name}_{last}', places[last])}")
        which = "" if self.device else "[w]"
        return f"{name}{which}[{' + '.join(moving) or '0'}]"

    def _offset(self, tile: Tile, index: Index) -> str:
        """The number of an element of a tile."""
        total, moving = 0, []
        for at, stride in zip(index, tile.strides, strict=True):
            for number, coefficient in at.terms:
                if number == ONE:
                    total += coefficient * stride
                else:
                    by = self.size(f"o_{number}", 0, ((number, 1),))
                    moving.append(f"int({by}) * {coefficient * stride}")
            if at.axis >= 0:
                step = at.step * stride
                moving.append(f"i_{at.axis}" if step == 1 else f"i_{at.axis} * {step}")
        if total or not moving:
            moving.append(str(total))
        return " + ".join(moving)

    def _on_chip(self, tile: Tile, index: Index) -> str:
        offset = self._offset(tile, index)
        if self.program.beside:
            other = " + other" if self.turned else ""
            return f"t_{tile.number}[({offset}) * {self.program.spacing}{other}]"
        return f"t_{tile.number}[{offset}]" if self.device else (
            f"t_{tile.number}[({offset}) * W + w]")

    # ---- expressions ---------------------------------------------------------------------------

    def _value(self, expression: Expression, loop: np.dtype[Any]) -> str:
        """The name of an expression's value; its operands are written first."""
        if expression in self.written:
            return self.written[expression]
        if isinstance(expression, Scalar):
            return self._scalar(expression, loop)
        if isinstance(expression, Number):
            return f"cast<{ctype(expression.dtype)}>(f64({float(expression.number).hex()}))"
        if isinstance(expression, Read):
            text = self._on_chip(expression.source, expression.index) if isinstance(
                expression.source, Tile) else self._in_memory(expression.source, expression.index)
        elif isinstance(expression, Position):
            text = self._position(expression)
        else:
            text = self._applied(expression)
        name = self.written[expression] = self.fresh()
        self.put(f"const {ctype(expression.dtype)} {name} = {text};")
        return name

    def _applied(self, expression: Apply) -> str:
        names = [self._value(arg, loop)
                 for arg, loop in zip(expression.args, expression.loops, strict=False)]
        if expression.op is None:
            return f"cast<{ctype(expression.dtype)}>({names[0]})"
        return render(expression.op, expression.loops, expression.dtype, names)

    def _position(self, expression: Position) -> str:
        at, loop = expression.at, ctype(expression.loop)
        terms = [f"i64(i_{at.axis}) * {at.step}"] if at.axis >= 0 else []
        for number, coefficient in at.terms:
            if number == ONE:
                terms.append(f"i64({coefficient})")
            elif number >= self.program.scalars:
                axis = number - self.program.scalars
                place = f"b_{axis}{'' if self.device else '[w]'}"
                if self.turned and axis == len(self.program.lengths) - 1:
                    place = f"({place} + other)"
                terms.append(f"{place} * {coefficient}")
            else:
                terms.append(f"i64({self.size(f'o_{number}', 0, ((number, 1),))}) * {coefficient}")
        start, step = (self._scalar(x, expression.loop)
                       for x in (expression.start, expression.step))
        place = " + ".join(terms) or "i64(0)"
        return (f"cast<{ctype(expression.dtype)}>(m_add(m_multiply(cast<{loop}>({place}), "
                f"cast<{loop}>({step})), cast<{loop}>({start})))")

    def _scalar(self, scalar: Scalar, loop: np.dtype[Any]) -> str:
        """A scalar arrives as the loop's type, so that the kernel casts nothing."""
        param = scalar.param
        if isinstance(param, Size):
            return f"i64({param.count})"
        if not isinstance(param, Param):
            return f"i64({param or 0})"
        return self.param(param, loop)
