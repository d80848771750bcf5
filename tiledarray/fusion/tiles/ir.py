"""Tile programs as data: what one problem of a batch is computed by.

A *problem* is what stands at one index of the batch axes.  Its values are *tiles*: arrays of known
shape that stay on chip.  A statement computes a tile from others, or moves one from or to memory;
the elementwise work of a statement is a scalar expression over the indices of its domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Affine, Index, Param, Size, Terms, Value
from tiledarray.ops.op import Elementwise, Reduction

DType = np.dtype[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Tile:
    """An array on chip.

    Attributes
    ----------
    number : int
    shape : tuple of int
    dtype : numpy.dtype
    pitch : int
        Elements from one of its rows, along the last axis, to the next.
    """

    number: int
    shape: Shape
    dtype: DType
    pitch: int

    @property
    def size(self) -> int:
        """Number of elements, those between rows included."""
        return prod(self.shape[:-1]) * self.pitch

    @property
    def nbytes(self) -> int:
        """Bytes that it takes for one problem."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> Shape:
        """Elements from one index to the next, for each axis."""
        strides = [1] * len(self.shape)
        step = self.pitch
        for axis in reversed(range(len(self.shape) - 1)):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides)

    def __repr__(self) -> str:
        return f"t{self.number}"


# ---- scalar expressions --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """An element of a tile or, where it is read but once, of an array in memory."""

    source: Tile | Value
    index: Index

    @property
    def dtype(self) -> DType:
        """Type of the element."""
        return self.source.dtype


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """A number of the recording, or one that the planner puts in."""

    param: Param | Size | int | None

    dtype = None


@dataclass(frozen=True, eq=False, slots=True)
class Number:
    """A constant of the program."""

    number: float
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Position:
    """``start + at * step``, computed in ``loop``."""

    at: Affine
    start: Scalar
    step: Scalar
    loop: DType
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Apply:
    """An elementwise op; without one (``None``), a cast."""

    op: Elementwise | None
    loops: tuple[DType, ...]
    dtype: DType
    args: tuple[Expression, ...]


Expression = Read | Scalar | Number | Position | Apply


def parts(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of, operands first."""
    waiting: list[tuple[Expression, bool]] = [(expression, False)]
    while waiting:
        top, opened = waiting.pop()
        if opened or not isinstance(top, Apply):
            yield top
        else:
            waiting.append((top, True))
            waiting += [(arg, False) for arg in reversed(top.args)]


# ---- statements ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """What an array has at ``index`` of a tile's place, into the tile.

    ``turned``, here and of other statements: see `Program.beside`.
    """

    tile: Tile
    source: Value
    index: Index
    turned: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Map:
    """An expression for each point of a domain, into a tile at ``index``."""

    tile: Tile
    index: Index
    domain: Shape
    expression: Expression
    turned: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Reduce:
    """An expression reduced over ``axes`` of a domain; the others are those of the tile."""

    tile: Tile
    op: Reduction
    accumulator: DType
    domain: Shape
    axes: tuple[int, ...]
    expression: Expression


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tile as a matrix; ``transposed`` is 1 where the tile is its transpose, 2: conjugated."""

    tile: Tile
    rows: int
    columns: int
    transposed: int = 0

    @property
    def pitch(self) -> int:
        """Elements from one row of the tile to the next."""
        if (self.columns if not self.transposed else self.rows) == 1:
            return 1
        return self.tile.pitch

    def transpose(self) -> Matrix:
        """The transpose of a matrix of real numbers, in the same tile."""
        return Matrix(self.tile, self.columns, self.rows, 1 - self.transposed)


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """The product of two matrices."""

    out: Matrix
    left: Matrix
    right: Matrix

    @property
    def hermitian(self) -> bool:
        """Whether it is that of a matrix and its adjoint, so that one triangle says it all."""
        adjoint = 2 if self.out.tile.dtype.kind == "c" else 1
        return self.left.tile is self.right.tile and self.out.rows == self.out.columns and (
            (self.left.transposed, self.right.transposed) in ((0, adjoint), (adjoint, 0)))


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """A primitive of ``kernels/headers``.

    Attributes
    ----------
    name : str
    out : tuple of Matrix
        What it writes; what it changes in place is in ``reads`` as well.
    reads : tuple of Matrix
    numbers : tuple of int
        What else chooses the text.
    failure : str
        What `numpy.linalg.LinAlgError` says where it fails; ``""`` if nobody is told.
    before, after : statement or None
        What fills its tile, and what is made of its elements, by the threads that have them.
    """

    name: str
    out: tuple[Matrix, ...]
    reads: tuple[Matrix, ...]
    numbers: tuple[int, ...] = ()
    failure: str = ""
    before: Load | Map | None = None
    after: Map | Store | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """An expression for each point of a domain, into an array at ``index``."""

    target: Value
    index: Index
    domain: Shape
    expression: Expression
    turned: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Barrier:
    """What the threads of a problem wrote before is seen by all of them after it."""


Statement = Load | Map | Reduce | Product | Call | Store | Barrier


def written(statement: Statement) -> tuple[Tile, ...]:
    """The tiles that a statement writes."""
    if isinstance(statement, Load | Map | Reduce):
        return (statement.tile,)
    if isinstance(statement, Product):
        return (statement.out.tile,)
    if isinstance(statement, Call):
        return tuple(matrix.tile for matrix in statement.out)
    return ()


def reads(statement: Statement) -> Iterator[Tile]:
    """The tiles that a statement reads."""
    if isinstance(statement, Map | Reduce | Store):
        for part in parts(statement.expression):
            if isinstance(part, Read) and isinstance(part.source, Tile):
                yield part.source
    elif isinstance(statement, Product):
        yield from (statement.left.tile, statement.right.tile)
    elif isinstance(statement, Call):
        if statement.before is None:
            yield from (matrix.tile for matrix in statement.reads)
        for beside in (statement.before, statement.after):
            if beside is not None:
                yield from (tile for tile in reads(beside) if tile is not statement.out[0].tile
                            or beside is statement.before)


def waits(statement: Statement) -> bool:
    """Whether all threads of a problem wait for each other as it begins and ends."""
    return isinstance(statement, Barrier | Product | Call)


@dataclass(eq=False, slots=True)
class Program:
    """What one problem is computed by.

    Attributes
    ----------
    lengths : tuple of int
        Of the batch axes.
    scalars : int
        How many parameters there are; those after them are the places along the batch axes.
    statements : list of Statement
    values : list of Value
        What is computed, for those who tell.
    offsets : dict
        Where each tile lies in memory on chip, in bytes of one problem.
    nbytes : int
        Of all those tiles of a problem.
    flops : int
        Of a problem, roughly.
    own : frozenset of Tile or None
        On a device where a thread has a problem: the tiles in its registers, which lie nowhere.
    beside : int
        On a device: neighbouring problems whose elements lie side by side on chip, and are those of
        threads side by side; a statement that is ``turned`` goes along each of them instead.  0
        where each problem's tiles lie together.
    spacing : int
        Elements on chip from one of a problem to its next then.
    """

    lengths: Shape
    scalars: int
    statements: list[Statement]
    values: list[Value]
    offsets: dict[Tile, int] = field(default_factory=dict)
    nbytes: int = 0
    flops: int = 0
    own: frozenset[Tile] | None = None
    beside: int = 0
    spacing: int = 1

    @property
    def problems(self) -> int:
        """How many there are."""
        return prod(self.lengths)

    @property
    def tiles(self) -> list[Tile]:
        """All tiles, in the order in which they are written first."""
        return [*dict.fromkeys(tile for statement in self.statements
                               for tile in written(statement))]

    def singly(self) -> Iterator[Statement]:
        """The statements, and those that calls do beside."""
        for statement in self.statements:
            beside = (statement.before, statement, statement.after) if isinstance(
                statement, Call) else (statement,)
            yield from (each for each in beside if each is not None)

    @property
    def failures(self) -> list[Call]:
        """The calls that somebody is told of where they fail, in order."""
        return [statement for statement in self.statements
                if isinstance(statement, Call) and statement.failure]

    def split_terms(self, terms: Terms) -> tuple[dict[int, int], Terms]:
        """Part a linear form in its coefficients by batch axis, and the rest."""
        return split_terms(terms, self.scalars)


def split_terms(terms: Terms, scalars: int) -> tuple[dict[int, int], Terms]:
    """Part a linear form in its coefficients by batch axis, whose places follow scalars."""
    places = {number - scalars: coefficient for number, coefficient in terms if number >= scalars}
    return places, tuple(term for term in terms if term[0] < scalars)
