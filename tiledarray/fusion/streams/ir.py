"""Stream programs as data: what a row of a product leads to.

Expressions are those of `fusion.tiles.ir`, over three axes: the columns of the product, those of
what its rows are multiplied with, and what is summed in the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tiledarray.fusion.ir import Index, Terms, Value, dense_strides
from tiledarray.fusion.tiles.ir import (
    Apply,
    Call,
    DType,
    Expression,
    Position,
    Read,
    Shape,
    Store,
    Tile,
    parts,
    split_terms,
)
from tiledarray.ops.op import Elementwise

COLUMN, EXTENT, DEPTH = range(3)  # axes of what is computed for a row
PIECE_BYTES = 16  # that are copied together
SCALINGS = {"multiply": 2, "divide": 1}  # by what comes last, or by either


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in memory that is multiplied: an array, and where in it."""

    value: Value
    index: Index

    @property
    def piece(self) -> int:
        """Elements that are copied together."""
        return PIECE_BYTES // self.value.dtype.itemsize

    def step(self, axis: int) -> int:
        """Elements from one place along an axis to the next."""
        return sum(at.step * stride for at, stride in zip(
            self.index, dense_strides(self.value.shape), strict=True) if at.axis == axis)

    def others(self) -> set[int]:
        """Elements between matrices, and to where the first one begins; without scalars' shares."""
        return {coefficient * stride for at, stride in zip(
            self.index, dense_strides(self.value.shape), strict=True)
            for _, coefficient in at.terms}

    def in_pieces(self, down: int, along: int, length: int) -> bool:
        """Whether lines along an axis, ``length`` elements, are whole pieces, but for the start.

        ``down`` is the axis from one of them to the next.
        """
        return self.step(along) == 1 and length % self.piece == 0 and not any(
            step % self.piece for step in (self.step(down), *self.others()))


@dataclass(frozen=True, eq=False, slots=True)
class Growth:
    """How what was combined changes as an extremum does.

    Attributes
    ----------
    extremum : Tile
    factor : expression
        What to multiply by; in it, the tile is what has been added to the extremum.
    """

    extremum: Tile
    factor: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Total:
    """An expression combined over the columns: ``"Max"``, ``"Min"`` or ``"Sum"``."""

    tile: Tile
    kind: str
    expression: Expression
    growth: Growth | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Weighted:
    """The rows of a matrix added up, weighted by an expression."""

    tile: Tile
    weights: Expression
    right: Operand
    growth: Growth | None = None

    @property
    def extent(self) -> int:
        """Columns of the matrix."""
        return prod(self.tile.shape)


@dataclass(frozen=True, eq=False, slots=True)
class Mask:
    """Where scores are something else: a tile in which all are infinitely far away adds nothing.

    Attributes
    ----------
    condition : expression
        Where scores are taken, or where they are not.
    taken : bool
        Which of both.
    other : expression
        What stands elsewhere, the same for all rows and columns.
    """

    condition: Expression
    taken: bool
    other: Expression


@dataclass(eq=False, slots=True)
class StreamProgram:
    """What a row of a product leads to.

    Attributes
    ----------
    lengths : tuple of int
        Of the batch axes; the last one are the rows.
    scalars : int
        How many parameters there are; those after them are the places along the batch axes.
    columns, depth : int
        Of the product, and of what is summed in it.
    left, right : Operand
        What is multiplied: a row of it for each row, and for each column.
    scores : Tile
        A row of the product.
    dtype : numpy.dtype
        Of all that is multiplied.
    tf32 : bool
        Whether that is rounded to TF32, if it has four bytes.
    totals : list of Total
        Extrema first; nothing that they are made of depends on another one.
    products : list of Weighted
    mask : Mask or None
        Where all that is combined is relative to the extremum of masked scores.
    stores : list of Store
    values : list of Value
        What is computed, for those who tell.
    flops : int
        Of a row, roughly.
    """

    lengths: Shape
    scalars: int
    columns: int
    depth: int
    left: Operand
    right: Operand
    scores: Tile
    dtype: DType
    tf32: bool = False
    totals: list[Total] = field(default_factory=list)
    products: list[Weighted] = field(default_factory=list)
    mask: Mask | None = None
    stores: list[Store] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    flops: int = 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.lengths[-1]

    @property
    def problems(self) -> int:
        """Rows of all products."""
        return prod(self.lengths)

    @property
    def halves(self) -> bool:
        """Whether what is multiplied has two bytes."""
        return self.dtype.itemsize == 2

    @property
    def failures(self) -> list[Call]:
        """Nothing fails."""
        return []

    @property
    def extrema(self) -> list[Total]:
        """What has to be known of a tile before anything is added up."""
        return [total for total in self.totals if total.kind != "Sum"]

    @property
    def sums(self) -> list[Total]:
        """What is added up."""
        return [total for total in self.totals if total.kind == "Sum"]

    @property
    def added(self) -> list[Total | Weighted]:
        """Sums and products."""
        return [*self.sums, *self.products]

    @property
    def held(self) -> Expression | None:
        """What takes the place of scores once there is an extremum, if they have no other use."""
        extrema = self.extrema
        if len(extrema) != 1:
            return None
        held = extrema[0].expression
        later = [*(total.expression for total in self.sums),
                 *(product.weights for product in self.products)]
        return None if any(self.asks(expression, held) for expression in later) else held

    @property
    def scaled(self) -> tuple[Elementwise, Expression] | None:
        """By which number held scores have been multiplied or divided, if that is all."""
        held = self.held
        if not isinstance(held, Apply) or held.op is None or held.op.name not in SCALINGS:
            return None
        for scores, factor in (held.args, held.args[::-1])[:SCALINGS[held.op.name]]:
            while isinstance(scores, Apply) and scores.op is None and scores.dtype.kind == "f" and (
                    scores.dtype.itemsize == 4):
                (scores,) = scores.args
            if isinstance(scores, Read) and scores.source is self.scores and not any(
                    isinstance(part, Read | Position) for part in parts(factor)):
                return held.op, factor
        return None

    def across(self, operand: Operand) -> int:
        """The other axis of an operand that has the product's columns."""
        return DEPTH if operand is self.right else EXTENT

    def count(self, operand: Operand) -> int:
        """Its length."""
        return self.depth if operand is self.right else next(
            product.extent for product in self.products if product.right is operand)

    def is_turned(self, operand: Operand) -> bool:
        """Whether an operand's columns lie along memory, so that its tiles have them as columns."""
        return operand.in_pieces(self.across(operand), COLUMN, self.columns) and (
            operand.step(self.across(operand)) != 1)

    def split_terms(self, terms: Terms) -> tuple[dict[int, int], Terms]:
        """Part a linear form in its coefficients by batch axis, and the rest."""
        return split_terms(terms, self.scalars)

    def asks(self, expression: Expression, but_for: Expression | None = None) -> bool:
        """Whether an expression has scores in it outside of one part."""
        waiting = [expression]
        while waiting:
            top = waiting.pop()
            if top is but_for:
                continue
            if isinstance(top, Read) and top.source is self.scores:
                return True
            waiting += getattr(top, "args", ())
        return False

    def expressions(self) -> Iterator[Expression]:
        """All of them."""
        for total in self.totals:
            yield total.expression
        for product in self.products:
            yield product.weights
        for store in self.stores:
            yield store.expression

    def arrays(self) -> Iterator[Value]:
        """The arrays that are read, operands of products first."""
        yield self.left.value
        yield self.right.value
        yield from (product.right.value for product in self.products)
        for expression in self.expressions():
            for part in parts(expression):
                if isinstance(part, Read) and isinstance(part.source, Value):
                    yield part.source
