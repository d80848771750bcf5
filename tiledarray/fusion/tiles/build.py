"""From what is recorded of one problem to its tile program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tiledarray.fusion.along import Looped
from tiledarray.fusion.ir import (
    ORIGIN,
    Affine,
    Index,
    Value,
    broadcast_index,
    normalised,
    through_view,
    value_args,
)
from tiledarray.fusion.regions import region_index
from tiledarray.fusion.rewrite import Builder, rewrite
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.ir import (
    Apply,
    Call,
    DType,
    Expression,
    Load,
    Map,
    Matrix,
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
    parts,
)
from tiledarray.fusion.tiles.teams import pitch, refusal
from tiledarray.ops import elementwise, movement
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Item,
    Leaf,
    Library,
    Reduction,
    Reshape,
    Source,
    Update,
)

DEEPEST = 64  # elementwise ops of one expression
CONJUGATE = elementwise.BY_NAME["conjugate"]
ACCUMULATORS = frozenset(("Sum", "Prod", "Min", "Max", "All", "Any", "ArgMin", "ArgMax"))


class NoTile(Exception):
    """One problem cannot be computed on chip; the message says why."""


class NoRoom(NoTile):
    """Shared memory has no room for one, or not for several that hide each other's waits."""


def whole(shape: Shape) -> Index:
    """Return the index of all of an array of that shape, the domain being the same."""
    return tuple(ORIGIN if n == 1 else Affine(axis) for axis, n in enumerate(shape))


class Maker:
    """Makes the program of one problem.

    Parameters
    ----------
    values : list of Value
        Operands before what is made of them.
    outputs : list of Value
        Updates of the arrays that the results go to.
    scalars : int
        How many of the parameters are no places along the batch axes.
    target : Target
    padded : bool
        Whether threads go down the columns of a tile, whose rows should be at different banks.
    """

    def __init__(self, values: list[Value], outputs: list[Value], scalars: int,
                 target: Target, *, padded: bool) -> None:
        self.target = target
        self.padded = padded
        self.scalars = scalars
        self.statements: list[Statement] = []
        self.flops = 0
        self.values = _asked_for(values, outputs)
        self._tiles: dict[Value, tuple[Tile, tuple[int, ...]]] = {}
        self._behind: dict[Value, Callable[[Read], Expression]] = {}
        self._made: dict[Any, Expression] = {}  # in the expression at hand
        self._slabs: dict[Any, Tile] = {}
        self._depth: Counter[Value] = Counter()
        self._single: set[Tile] = set()  # of values that one other is made of
        self._count = 0
        self._domain: Shape = ()
        self._settled = self._chosen()
        self.reads = self._counted()

    def _chosen(self) -> set[Value]:
        """The elementwise values that are computed once, and not where they are asked for."""
        asked: Counter[Value] = Counter()  # how many elements
        for value in self.values:
            points = value.args[0].size if isinstance(value.op, Reduction) else value.size
            operands = value_args(value)
            for base in map(_base, operands if isinstance(value.op, Library) else {*operands}):
                if not _is_seen_through(value):
                    asked[base] += points
        found = set()
        for value in self.values:
            if isinstance(value.op, Elementwise):
                self._depth[value] = 1 + max(
                    (self._depth[_base(arg)] for arg in value_args(value)), default=0)
                if self._depth[value] >= DEEPEST or (
                        not self._is_free(value) and 2 * asked[value] > 3 * value.size):
                    self._depth[value] = 0
                    found.add(value)
        return found

    def _counted(self) -> Counter[Value]:
        """How often the elements of each value are asked for by what is computed from them."""
        reads: Counter[Value] = Counter()
        for value in reversed(self.values):
            if _is_seen_through(value):
                continue
            again = isinstance(value.op, Elementwise) and value not in self._settled
            for base in map(_base, value_args(value)):
                reads[base] += reads[value] if again else 1
        return reads

    def run(self, primitives: Any) -> None:
        """Make all statements; ``primitives`` says what becomes of a library call.

        Raises
        ------
        NoTile
        """
        for value in self.values:
            op = value.op
            if isinstance(op, Elementwise):
                if value in self._settled:
                    self.computed(value)
            elif isinstance(op, Reduction):
                self._reduce(value)
            elif isinstance(op, Library):
                primitives(self, value)
            elif isinstance(op, Update):
                self._store(value)
            elif not isinstance(op, Leaf | AxisView | Source | Item | Reshape):
                raise NoTile(f"{op.name} has no form for tiles")

    # ---- tiles ---------------------------------------------------------------------------------

    def tile(self, shape: Shape, dtype: DType, *, padded: bool = False, apart: int = 0) -> Tile:
        """A new tile; ``padded`` where threads go down its columns.

        Its rows are at least ``apart`` elements apart.
        """
        self._count += 1
        columns = shape[-1] if shape else 1
        if padded and self.padded and prod(shape[:-1]) > 1:
            columns = pitch(columns, dtype.itemsize)
        return Tile(self._count, shape, dtype, max(columns, apart))

    def computed(self, value: Value) -> Tile:
        """Compute a value into a tile of its own."""
        tile = self.fresh(value, value.dtype)
        self.known(value, tile)
        return tile

    def known(self, value: Value, tile: Tile, order: tuple[int, ...] | None = None,
              behind: Callable[[Read], Expression] | None = None) -> None:
        """Note that a tile has the value, its axes in that order.

        Of what ``behind`` gives, if something, the value is made when an element is read.
        """
        if behind is not None:
            self._behind[value] = behind
        self._tiles[value] = tile, tuple(range(len(value.shape))) if order is None else order
        if self.reads[value] == 1:
            self._single.add(tile)
        else:
            self._single.discard(tile)

    def fresh(self, value: Value, dtype: DType, order: tuple[int, ...] | None = None,
              apart: int = 0) -> Tile:
        """The elements of a value, cast, in a new tile that nobody else reads."""
        order = order or tuple(range(len(value.shape)))
        shape = tuple(value.shape[axis] for axis in order)
        index = tuple(ORIGIN if n == 1 else Affine(order.index(axis))
                      for axis, n in enumerate(value.shape))
        expression = self.expression(value, index, shape)
        tile = self._left_by(expression, shape, dtype) or self.tile(
            shape, dtype, padded=True, apart=apart)
        self.put(tile, expression, shape)
        return tile

    def _left_by(self, expression: Expression, shape: Shape, dtype: DType) -> Tile | None:
        """A tile that nobody reads after the expression, which may take the expression's place."""
        for part in parts(expression):
            if isinstance(part, Read) and isinstance(part.source, Tile):
                tile = part.source
                if tile in self._single and part.index == whole(shape) and (
                        tile.shape == shape and tile.dtype == dtype):
                    return tile
        return None

    def taken(self, value: Value, shape: Shape, dtype: DType) -> Tile | None:
        """The tile that has just these elements, if nobody else reads it."""
        tile, transposed = self._lying(value, dtype)
        mine = tile is not None and tile in self._single and not transposed
        return tile if tile is not None and mine and tile.shape == shape else None

    def fill(self, tile: Tile, value: Value, index: Index, domain: Shape,
             at: Index | None = None) -> None:
        """Have a tile get a value at an index, cast to the tile's type."""
        self.put(tile, self.expression(value, index, domain), domain, at)

    def put(self, tile: Tile, expression: Expression, domain: Shape,
            at: Index | None = None) -> None:
        """Have a tile get an expression, or load it."""
        if at is None and isinstance(expression, Read) and isinstance(expression.source, Value) \
                and expression.dtype == tile.dtype:
            self.statements.append(Load(tile, expression.source, expression.index))
            return
        if isinstance(expression, Read) and expression.source is tile:
            return  # it is what it is
        self.map(tile, domain, expression, at)

    def map(self, tile: Tile, domain: Shape, expression: Expression,
            at: Index | None = None) -> None:
        """Have a tile get an expression, cast."""
        if expression.dtype != tile.dtype:
            expression = Apply(None, (tile.dtype,), tile.dtype, (expression,))
        self.statements.append(Map(tile, at or whole(tile.shape), domain, expression))

    def own(self, value: Value, dtype: DType) -> Matrix:
        """A matrix of the value's elements that a primitive may overwrite."""
        found = self._tiles.get(value)
        if found is not None and value not in self._behind and self.reads[value] == 1:
            tile, order = found
            if tile.dtype == dtype and order == tuple(range(len(value.shape))):
                return self.as_matrix(tile)
        return self.as_matrix(self.fresh(value, dtype))

    def as_matrix(self, tile: Tile, *, vector: bool = False) -> Matrix:
        """A tile as a matrix; a vector is a column.

        Raises
        ------
        NoTile
            If it has several.
        """
        shape = (*tile.shape, 1) if vector else tile.shape
        if prod(shape[:-2]) != 1:
            raise NoTile("a problem has several matrices")
        return Matrix(tile, shape[-2], shape[-1])

    def matrix(self, value: Value, dtype: DType) -> Matrix:
        """A matrix to read, in a tile: transposed and conjugated as it may lie there."""
        tile, transposed = self._lying(value, dtype)
        if tile is None:
            return self.as_matrix(self.fresh(value, dtype))
        if prod(value.shape[:-2]) != 1:
            raise NoTile("a problem has several matrices")
        return Matrix(tile, value.shape[-2], value.shape[-1], transposed)

    def _lying(self, value: Value, dtype: DType) -> tuple[Tile | None, int]:
        """The tile that has a matrix, and how; ``None`` if no tile has it like that."""
        rows, columns = value.shape[-2:]
        inner, conjugated = value, False
        index = whole(value.shape)
        while inner not in self._tiles:
            if isinstance(inner.op, AxisView):
                inner, index = inner.args[0], through_view(inner, index)
            elif inner.op is CONJUGATE and isinstance(inner.args[0], Value) and (
                    inner.args[0].dtype == inner.dtype):
                conjugated ^= inner.dtype.kind == "c"
                inner = inner.args[0]
                index = broadcast_index(inner.shape, index)
            else:
                break
        if inner.dtype != dtype:
            return None, 0
        if inner in self._behind:
            return None, 0
        if inner in self._tiles:
            tile, order = self._tiles[inner]
            index = tuple(index[axis] for axis in order)
        elif isinstance(inner.op, Leaf):
            found = self._slab(inner, index, value.shape)
            if found is None:
                return None, 0
            tile, index = found
        else:
            return None, 0
        last = len(value.shape) - 1
        straight = Affine(last - 1), Affine(last)
        ends = index[-2:] if len(index) > 1 else (ORIGIN, *index)
        if any(at != ORIGIN for at in index[:-2]) or prod(tile.shape[:-2]) != 1:
            return None, 0
        if tile.shape[-2:] == (rows, columns) and not conjugated and self._same(
                ends, straight, (rows, columns)):
            return tile, 0
        if tile.shape[-2:] == (columns, rows) and self._same(ends, straight[::-1],
                                                            (columns, rows)):
            return tile, 1 + conjugated
        return None, 0

    @staticmethod
    def _same(found: tuple[Affine, ...], wanted: tuple[Affine, ...], shape: Shape) -> bool:
        return all(n == 1 or one == other
                   for one, other, n in zip(found, wanted, shape, strict=True))

    def _is_free(self, value: Value) -> bool:
        """Whether it costs next to nothing: made of indices and scalars alone."""
        if isinstance(value.op, AxisView):
            return self._is_free(value.args[0])
        if isinstance(value.op, Source):
            return True
        return isinstance(value.op, Elementwise) and value.op.cost <= 2 and (
            self._depth[value] <= 4 and all(map(self._is_free, value_args(value))))

    # ---- expressions ---------------------------------------------------------------------------

    def expression(self, value: Value, index: Index, domain: Shape) -> Expression:
        """A value at an index of a domain.

        Raises
        ------
        NoTile
        """
        self._domain = domain
        self._made = {}
        return self._expression(value, index)

    def _expression(self, value: Value, index: Index) -> Expression:
        while value not in self._tiles:
            if isinstance(value.op, AxisView):
                value, index = value.args[0], through_view(value, index)
            elif isinstance(value.op, Reshape):
                value, index = value.args[0], through_reshape(value, index)
            else:
                break
        if value in self._tiles:
            tile, order = self._tiles[value]
            read = Read(tile, normalised(tile.shape, tuple(index[axis] for axis in order)))
            return self._behind[value](read) if value in self._behind else read
        if (value, index) not in self._made:
            self._made[value, index] = self._new_expression(value, index)
        return self._made[value, index]

    def _new_expression(self, value: Value, index: Index) -> Expression:
        op = value.op
        if isinstance(op, Leaf):
            return self._of_leaf(value, index)
        if op is movement.full:
            return Apply(None, (value.dtype,), value.dtype, (Scalar(value.args[0]),))
        if op is movement.iota:
            start, step = map(Scalar, value.args or (0, 1))
            return Position(index[0], start, step, value.attrs[0], value.dtype)
        if not isinstance(op, Elementwise):
            raise NoTile(f"{op.name} has no form for tiles")
        self.flops += op.cost * prod(self._domain)
        args = tuple(
            self._expression(arg, broadcast_index(arg.shape, index)) if isinstance(arg, Value)
            else Scalar(arg) for arg in value.args)
        return Apply(op, value.attrs, value.dtype, args)

    def _of_leaf(self, value: Value, index: Index) -> Expression:
        points = prod(n for axis, n in enumerate(self._domain)
                      if any(at.axis == axis for at in index))
        once = self.reads[value] == 1 and 2 * points > prod(self._domain)
        if once and self.target.kind == "cuda":
            return Read(value, index)
        found = self._slab(value, index, self._domain)
        return Read(value, index) if found is None else Read(*found)

    def _slab(self, value: Value, index: Index, domain: Shape) -> tuple[Tile, Index] | None:
        """A tile with what one problem has of an array; ``None`` if it is not its own."""
        if not any(number >= self.scalars for at in index if at.axis < 0 for number, _ in at.terms):
            return None
        shape, from_, to, key = [], [], [], [value]
        for axis, (n, at) in enumerate(zip(value.shape, index, strict=True)):
            if at.axis < 0:
                kind: Any = at.terms
                shape.append(1)
                from_.append(at)
                to.append(ORIGIN)
            elif n <= 2 * domain[at.axis] + 8 and not any(
                    number >= self.scalars for number, _ in at.terms):
                kind = None
                shape.append(n)
                from_.append(Affine(axis) if n > 1 else ORIGIN)
                to.append(at)
            else:
                kind = at.step, at.terms, domain[at.axis]
                shape.append(domain[at.axis])
                from_.append(Affine(axis, at.step, at.terms))
                to.append(Affine(at.axis))
            key.append(kind)
        tile = self._slabs.get(tuple(key))
        if tile is None:
            tile = self._slabs[tuple(key)] = self.tile(tuple(shape), value.dtype, padded=True)
            self.statements.append(Load(tile, value, tuple(from_)))
            if self.reads[value] == 1:
                self._single.add(tile)
        return tile, normalised(tile.shape, tuple(to))

    # ---- statements ----------------------------------------------------------------------------

    def _reduce(self, value: Value) -> None:
        op: Any = value.op
        axes, accumulator = value.attrs
        source = value.args[0]
        if op.accumulator not in ACCUMULATORS:
            raise NoTile(f"{op.name} has no form for tiles")
        accumulator = accumulator or op.accumulator_of(source.dtype, None)
        if op.positions:
            accumulator = source.dtype
        tile = self.tile(value.shape, value.dtype)
        expression = self.expression(source, whole(source.shape), source.shape)
        self.flops += source.size
        self.statements.append(Reduce(tile, op, np.dtype(accumulator), source.shape, axes,
                                      expression))
        self.known(value, tile)

    def _store(self, value: Value) -> None:
        if not isinstance(value.args[0].op, Leaf):
            raise NoTile("an update has no form for tiles")
        region = value.attrs[2]
        index = whole(region)
        new = value.args[1]
        expression = self.expression(new, broadcast_index(new.shape, index), region)
        if self.target.kind == "cpu" and not isinstance(expression, Read):
            # What lies side by side in memory is then moved in whole vectors.
            tile = self.tile(region, value.dtype)
            self.map(tile, region, expression)
            expression = Read(tile, index)
        self.statements.append(Store(value, region_index(value, index), region, expression))

    def product(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        """Add the product of two matrices."""
        self.flops += 2 * left.rows * left.columns * right.columns
        self.statements.append(Product(out, left, right))

    def call(self, name: str, out: tuple[Matrix, ...], reads: tuple[Matrix, ...], flops: int,
             numbers: tuple[int, ...] = (), failure: str = "") -> None:
        """Add a primitive.

        Raises
        ------
        NoTile
            If there is none of these sizes.
        """
        first = out[0]
        sizes = (first.columns,) if name == "fourier" else (first.rows, first.columns)
        reason = refusal(name, sizes, first.tile.dtype.itemsize,
                         device=self.target.kind == "cuda")
        if reason is not None:
            raise NoTile(reason)
        limits, width = self.target.limits, first.tile.dtype.itemsize
        size = min(sizes) if name == "qr" else first.rows
        if self.target.kind == "cpu" and name != "fourier" and size > min(
                limits.matrix_rows, limits.matrix_row_bytes // width):
            raise NoTile(f"LAPACK is as fast for matrices of {size} rows")
        self.flops += flops
        self.statements.append(Call(name, out, reads, numbers, failure))



def _asked_for(values: list[Value], outputs: list[Value]) -> list[Value]:
    """The values that the outputs are made of, in order."""
    found: set[Value] = set()
    waiting = [*outputs]
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            waiting += value_args(value)
    return [value for value in values if value in found]


def _is_seen_through(value: Value) -> bool:
    """Whether who asks for a value asks for another one: views, and conjugates."""
    return isinstance(value.op, AxisView | Reshape) or (
        value.op is CONJUGATE and isinstance(value.args[0], Value))


def _base(value: Value) -> Value:
    while _is_seen_through(value):
        value = value.args[0]
    return value


def through_reshape(value: Value, index: Index) -> Index:
    """Index into a reshape's input, given that into the reshape, which may split axes.

    Raises
    ------
    NoTile
        If it joins axes that are both gone along.
    """
    waiting = [(n, at) for n, at in zip(value.shape, index, strict=True) if n != 1][::-1]
    found = []
    for n in value.args[0].shape:
        at, length = ORIGIN, 1
        while length < n and waiting:
            more, place = waiting.pop()
            at, length = _joined(at, more, place), length * more
        if length != n:
            raise NoTile("a reshape that moves elements has no form for tiles")
        found.append(at)
    return tuple(found)


def _joined(outer: Affine, length: int, inner: Affine) -> Affine:
    """The place along an axis that has been split, given those along both parts.

    Raises
    ------
    NoTile
    """
    if outer.axis >= 0 and inner.axis >= 0:
        raise NoTile("a reshape that joins axes of a problem has no form for tiles")
    terms = dict(inner.terms)
    for number, coefficient in outer.terms:
        terms[number] = terms.get(number, 0) + length * coefficient
    axis, step = (inner.axis, inner.step) if outer.axis < 0 else (outer.axis, length * outer.step)
    return Affine(axis, step, tuple(sorted(terms.items())))


def build(signature: tuple[Any, ...], lengths: Shape, scalars: int, target: Target,
          primitives: Any, *, padded: bool) -> tuple[Program, Builder, list[Value]]:
    """Make the program of a loop's body for one problem.

    Parameters
    ----------
    signature : tuple
        See `fusion.bodies.Body`.
    lengths : tuple of int
        Of the batch axes.
    scalars : int
        How many of the parameters are no places.
    target : Target
    primitives : callable
        What becomes of library calls.
    padded : bool
        Whether threads share a problem: see `Maker`.

    Returns
    -------
    program : Program
    builder : Builder
        Has all values that are known of the problem, in order, and what each was made for.
    outputs : list of Value

    Raises
    ------
    NoTile
    """
    entries, kinds, outputs = signature
    looped = Looped(entries, kinds, outputs, range(len(entries)))
    builder, found = rewrite(looped, target, calls=False)
    maker = Maker(builder.values, found, scalars, target, padded=padded)
    maker.run(primitives)
    values = [value for value in maker.values if not isinstance(value.op, Leaf | AxisView | Update)]
    return (Program(lengths, scalars, maker.statements, values, flops=maker.flops),
            builder, found)

