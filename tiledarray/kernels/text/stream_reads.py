"""What a stream's text reads beside products: elements of arrays, and places along axes.

Neighbouring elements of two bytes come in one word, before the product that they are combined with
is there.  Places that count 0, 1, 2 ... are computed in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiledarray.fusion.ir import ONE, Value, dense_strides
from tiledarray.fusion.streams.ir import COLUMN
from tiledarray.fusion.streams.kernel import StreamKernel
from tiledarray.fusion.tiles.ir import DType, Expression, Position, Read, parts
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.stream_text import StreamText

FAR = 1 << 29  # places and starts below it do not overflow 32 bits together


class StreamReads(StreamText):
    """Writes what elements of scores are combined with.

    Attributes
    ----------
    early : dict
        Reads of two neighbours at once, and the registers that they come to.
    ragged : bool
        Whether the last tile has columns that there are not.
    in_32_bits : bool
        Whether places are computed so, in the part of the text at hand.
    """

    def __init__(self, kernel: StreamKernel) -> None:
        StreamText.__init__(self, kernel)
        self.in_32_bits = False
        self.ragged = kernel.program.columns % kernel.shape.columns != 0
        self.early: dict[Read, str] = {}
        if kernel.shape.resident == 1:  # else there are no registers for it
            asked = {part: None for total in kernel.program.extrema
                     for part in parts(total.expression)}
            self.early = {read: f"early_{k}" for k, read in enumerate(
                part for part in asked if isinstance(part, Read) and self._is_in_pairs(part))}

    def _is_in_pairs(self, read: Read) -> bool:
        """Whether elements of two bytes lie in memory as columns do, in words if the first does."""
        if not isinstance(read.source, Value) or read.source.dtype.itemsize != 2:
            return False
        *others, last = zip(read.index, dense_strides(read.source.shape), strict=True)
        return (last[0].axis == COLUMN and last[0].step == 1
                and all(coefficient % 2 == 0 for _, coefficient in last[0].terms)
                and all(at.axis < 0 and stride % 2 == 0 for at, stride in others))

    # ---- loops ---------------------------------------------------------------------------------

    def _elements(self, count: str, body: Any, *, column: str = "") -> None:
        """A loop over what a thread has of a tile."""
        self.put(f'_Pragma("unroll") for (int n = 0; n < {count}; ++n)')
        with self.block('  _Pragma("unroll") for (int c = 0; c < 4; ++c)'):
            self.put("const int r = c / 2; (void)r;")
            if self.program.lengths:
                self.put(f"const idx b_{len(self.program.lengths) - 1} = rows_of[r]; "
                         f"(void)b_{len(self.program.lengths) - 1};")
            if column:
                self.put(column)
            self.written = {}
            body()

    def _of_columns(self) -> str:
        """Which column an element is in; one that there is not stands for the last."""
        at = "tile * TILE + n * 8 + lane % 4 * 2 + c % 2"
        if not self.ragged:
            return f"const int i_{COLUMN} = {at}; (void)i_{COLUMN};"
        columns = self.size("columns", 0)
        return (f"const bool there = {at} < {columns}; "
                f"const int i_{COLUMN} = there ? {at} : {columns} - 1; (void)i_{COLUMN};")

    # ---- elements ------------------------------------------------------------------------------

    def _read_early(self) -> None:
        """Registers, and a function of a tile's number that begins to fill them."""
        for name in self.early.values():
            self.put(f"unsigned {name}[TILE / 8][2];")
        if not self.early:
            return
        with self.block("const auto read_early = [&](int tile)", "};"):
            for read, name in self.early.items():
                assert isinstance(read.source, Value)
                place = self._in_memory(read.source, read.index)
                line, _, at = place.removesuffix("]").rpartition("[")
                lines = dict.fromkeys(line.replace("[r]", f"[{r}]") for r in range(2))
                aligned = " && ".join(f"is_word({each}.at)" for each in lines)
                whole = f" && (tile + 1) * TILE <= {self.size('columns', 0)}"
                with self.block(f"if ({aligned}{whole if self.ragged else ''})"):
                    self.put('_Pragma("unroll") for (int n = 0; n < TILE / 8; ++n)')
                    with self.block('  _Pragma("unroll") for (int r = 0; r < 2; ++r)'):
                        self.put(f"const int i_{COLUMN} = tile * TILE + n * 8 + lane % 4 * 2;")
                        self.put(f"{name}[n][r] = word_at(({line} + ({at})).at);")
                with self.block("else"):
                    self._elements("TILE / 8", lambda name=name, place=place: self.put(
                        f"put_half({name}[n][r], c % 2, {place});"), column=self._of_columns())

    def _value(self, expression: Expression, loop: DType) -> str:
        if isinstance(expression, Read) and expression in self.early:
            assert isinstance(expression.source, Value)
            kind = ctype(expression.source.dtype)
            return f"half_of<{kind}>({self.early[expression]}[n][r], c % 2)"
        return StreamText._value(self, expression, loop)

    # ---- places --------------------------------------------------------------------------------

    def _by_places(self, expressions: list[Expression], write: Callable[[], None]) -> None:
        """Write something twice, where places can be computed in 32 bits: for that, and else."""
        asked = {self._counts(part): None for each in expressions for part in parts(each)
                 if isinstance(part, Position)}
        if not asked or None in asked:
            write()
            return
        with self.block(f"if ({' && '.join(asked)})"):  # type: ignore[arg-type]
            self.in_32_bits = True
            write()
            self.in_32_bits = False
        with self.block("else"):
            write()

    def _counts(self, position: Position) -> str | None:
        """The text of whether places are counted from some start; ``None`` where 64 bits it is."""
        if position.loop.str[1:] != "i8" or any(
                number != ONE and number < self.program.scalars
                for number, _ in position.at.terms):
            return None
        lengths = {COLUMN: self.program.columns}
        most = abs(position.at.step) * lengths.get(position.at.axis, 0)
        for number, coefficient in position.at.terms:
            most += abs(coefficient) * (
                1 if number == ONE else self.program.lengths[number - self.program.scalars])
        if most >= FAR:
            return None
        start, step = (self._scalar(each, position.loop)
                       for each in (position.start, position.step))
        return f"{step} == 1 && {start} > {-FAR} && {start} < {FAR}"

    def _position(self, expression: Position) -> str:
        if not self.in_32_bits:
            return StreamText._position(self, expression)
        at = expression.at
        terms = [f"int({self._scalar(expression.start, expression.loop)})"]
        if at.axis >= 0:
            terms.append(f"i_{at.axis} * {at.step}")
        for number, coefficient in at.terms:
            terms.append(str(coefficient) if number == ONE else
                         f"int(b_{number - self.program.scalars}) * {coefficient}")
        return f"cast<{ctype(expression.dtype)}>({' + '.join(terms)})"
