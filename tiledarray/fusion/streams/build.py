"""From what is recorded of one row of a product to its stream program.

What is combined after an extremum is known is made relative to it: ``sum(exp(s - max(s)))``.  If
that is a product of an exponential of the extremum with something that does not depend on it, then
it can be brought from one extremum to a larger one by one factor, and all is done in one pass.
Factors that are the same for all columns, as the sum that softmax divides by, are taken out of sums
and products first: they need not be known before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tiledarray.fusion.along import PRODUCTS, SUMMED, Looped, of_product
from tiledarray.fusion.ir import (
    ORIGIN,
    Affine,
    Index,
    Value,
    broadcast_index,
    through_view,
    value_args,
)
from tiledarray.fusion.regions import region_index
from tiledarray.fusion.rewrite import Builder, rewrite
from tiledarray.fusion.streams.ir import (
    COLUMN,
    DEPTH,
    EXTENT,
    Growth,
    Mask,
    Operand,
    StreamProgram,
    Total,
    Weighted,
)
from tiledarray.fusion.streams.region import COMBINED, WIDEST
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import Maker, NoTile, through_reshape
from tiledarray.fusion.tiles.ir import (
    Apply,
    DType,
    Expression,
    Number,
    Position,
    Read,
    Scalar,
    Shape,
    Store,
    Tile,
    parts,
)
from tiledarray.ops import elementwise
from tiledarray.ops.library import is_tf32
from tiledarray.ops.op import AxisView, Elementwise, Leaf, Reduction, Reshape, Source, Update

SINGLE = np.dtype(np.float32)
ADD, SUBTRACT, NEGATIVE, MULTIPLY, DIVIDE = (elementwise.BY_NAME[name] for name in (
    "add", "subtract", "negative", "multiply", "divide"))
EXP, EXP2, CAST, WHERE = (elementwise.BY_NAME[name] for name in ("exp", "exp2", "cast", "where"))
# Of what is at most one and goes into a product of halves: the instruction's own accuracy will do.
QUICK = {op: replace(op, expression=f"quick_{op.name}(x)") for op in (EXP, EXP2)}
# The same of a difference of two numbers, of which the second is one for a row.
QUICK_FROM = {op: replace(
    op, name=f"{op.name}_of_difference", ufunc=None, expression=f"quick_{op.name}_from(x, y)",
    reference=lambda xp, x, y, op=op, **_: op.ufunc(x - y)) for op in (EXP, EXP2)}


class Factored(NamedTuple):
    """A value as another one with factors of its row: ``(op, factor)`` in order."""

    core: Value
    factors: tuple[tuple[Elementwise, Callable[[], Expression]], ...]


class StreamMaker(Maker):
    """Makes the program of one row; see `Maker`."""

    def __init__(self, values: list[Value], outputs: list[Value], scalars: int,
                 lengths: Shape, target: Target) -> None:
        Maker.__init__(self, values, outputs, scalars, target, padded=True)
        self.lengths = lengths
        self.outputs = outputs
        self._made_of_seed: set[Value] = set()
        self._extrema: dict[Tile, tuple[str, Value]] = {}  # which, and of what
        self._ofs: dict[Value, str] = {}
        self._growths: dict[Value, Growth | None] = {}
        self._halves = False  # what is multiplied has two bytes
        self._quick = False  # exponentials need not be better than an instruction's

    def _chosen(self) -> set[Value]:
        return set()

    def program(self) -> StreamProgram:
        """Make it.

        Raises
        ------
        NoTile
        """
        seed = next((value for value in self.values if value.op in PRODUCTS), None)
        if seed is None:
            raise NoTile("there is no product")
        made = self._seed(seed)
        for value in self.values:
            if value is not seed:
                self._add(value, made)
        made.totals.sort(key=lambda total: total.kind == "Sum")
        if not made.totals and not made.products:
            raise NoTile("nothing is combined over the columns of the product")
        for part in (part for each in made.expressions() for part in parts(each)):
            if isinstance(part, Read) and part.source is self.scores and (
                    part.index != (Affine(COLUMN),)):
                raise NoTile("columns of the product are taken in another order")
        weights = {id(product.weights) for product in made.products}
        if len(weights) > 1:
            raise NoTile("products with several weights")
        made.mask = self._mask(made)
        made.values = [value for value in self.values
                       if not isinstance(value.op, Leaf | AxisView | Update | Source)]
        made.flops = self.flops
        return made

    def _add(self, value: Value, made: StreamProgram) -> None:
        """Have the program compute a value, if that is more than an expression."""
        if isinstance(value.op, Reduction):
            made.totals.append(self._total(value))
        elif value.op in PRODUCTS and value.size == 1:
            made.totals.append(self._weighted_number(value, made))
        elif value.op in PRODUCTS:
            made.products.append(self._weighted(value, made))
        elif isinstance(value.op, Update):
            made.stores.append(self._result(value))
        elif not isinstance(value.op, Leaf | Source | Elementwise | AxisView | Reshape):
            raise NoTile(f"{value.op.name} has no form for streams")

    # ---- products ------------------------------------------------------------------------------

    def _seed(self, seed: Value) -> StreamProgram:
        columns, axis = max((n, axis) for axis, n in enumerate(seed.shape))
        if seed.size != columns or columns == 1:
            raise NoTile("a row of the product is not one row")
        self.columns = columns
        index = tuple(Affine(COLUMN) if k == axis else ORIGIN for k in range(len(seed.shape)))
        left, right = (self._operand(seed, k, index) for k in range(2))
        if any(at.axis == COLUMN for at in left.index):
            left, right = right, left
        if any(at.axis == COLUMN for at in left.index):
            raise NoTile("both operands have the columns")
        for operand in (left, right):
            if operand.value.dtype != seed.dtype:
                raise NoTile(f"{operand.value.dtype} is multiplied as {seed.dtype}")
        if any(number >= self.scalars + len(self.lengths) - 1
               for at in right.index for number, _ in at.terms):
            raise NoTile("each row has another matrix")
        tile = self.tile((columns,), SINGLE)
        self.scores = tile
        self.known(seed, tile, (axis,))
        self._made_of_seed = {seed}
        for value in self.values:
            if not self._made_of_seed.isdisjoint(value_args(value)):
                self._made_of_seed.add(value)
        self._ofs[seed] = "scores"
        depth = self._depth_of(seed)
        if depth > WIDEST:
            raise NoTile(f"{depth} numbers are summed in the product, more than {WIDEST}")
        self.flops += 2 * columns * depth
        made = StreamProgram(
            self.lengths, self.scalars, columns, depth, left, right, tile, seed.dtype,
            tf32=all(is_tf32(value.attrs) for value in self.values if value.op in PRODUCTS))
        self._halves, self._quick = made.halves, made.halves or made.tf32
        if not made.halves:
            self._refuse_other_floats()
        return made

    def _refuse_other_floats(self) -> None:
        """What is more than float32 is not computed in that, and a cast to less is no detail."""
        for value in self.values:
            if not isinstance(value.op, Leaf) and value.dtype.kind in "fV" and (
                    value.dtype != SINGLE):
                raise NoTile(f"products of {SINGLE} beside numbers of {value.dtype}")

    @staticmethod
    def _depth_of(product: Value) -> int:
        found = {n for k in range(2) for to, n in zip(_relation(product, k), product.args[k].shape,
                                                      strict=True) if to <= SUMMED}
        return max(found, default=1)

    def _operand(self, product: Value, k: int, index: Index, summed: int = DEPTH) -> Operand:
        """Where in memory an operand of a product is."""
        value = product.args[k]
        relation = _relation(product, k)
        if len(product.args) != 2 or sum(to <= SUMMED for to in relation) != 1:
            raise NoTile("a product is summed over several axes")
        index = tuple(Affine(summed) if to <= SUMMED else index[to] for to in relation)
        index = broadcast_index(value.shape, index)
        while isinstance(value.op, AxisView | Reshape):
            index = through_view(value, index) if isinstance(value.op, AxisView) else (
                through_reshape(value, index))
            value = value.args[0]
        if not isinstance(value.op, Leaf):
            raise NoTile("an operand of the product is computed for each row")
        for axis in (COLUMN, EXTENT, DEPTH):
            if sum(at.axis == axis for at in index) > 1:
                raise NoTile("an operand is a diagonal")
        return Operand(value, index)

    def _weights(self, value: Value, made: StreamProgram) -> tuple[Value, Operand]:
        """The weights of a second product, and what they weigh."""
        places = [k for k, arg in enumerate(value.args) if arg in self._made_of_seed]
        if len(places) != 1 or len(value.args) != 2:
            raise NoTile("a product of scores with themselves")
        (weights,) = places
        weighed, relation = value.args[weights], _relation(value, weights)
        if any((to <= SUMMED) != (n == self.columns and n > 1)
               for to, n in zip(relation, weighed.shape, strict=True) if n > 1):
            raise NoTile("scores are not summed in a product")
        extents = [axis for axis, n in enumerate(value.shape) if n > 1]
        if len(extents) > 1:
            raise NoTile("a row is multiplied with several matrices")
        index = tuple(Affine(EXTENT) if axis in extents else ORIGIN
                      for axis in range(len(value.shape)))
        right = self._operand(value, 1 - weights, index, COLUMN)
        if any(number >= self.scalars + len(self.lengths) - 1
               for at in right.index for number, _ in at.terms):
            raise NoTile("each row has another matrix")
        if not value.dtype == right.value.dtype == made.dtype:
            raise NoTile("products of several types")
        if value.size > WIDEST:
            raise NoTile(f"a row of a product has {value.size} columns, more than {WIDEST}")
        return weighed, right

    def _weighted(self, value: Value, made: StreamProgram) -> Weighted:
        """The second product: its left operand are weights."""
        weights, right = self._weights(value, made)
        factored = self._brought_to_size(weights)
        if factored.factors and made.dtype == np.float16 and not (
                _is_half(factored.core.dtype) or self._is_at_most_one(factored.core)):
            raise NoTile("weights that are brought to size at the end may be beyond float16")
        tile = self.tile((value.size,), SINGLE)
        extents = tuple(axis for axis, n in enumerate(value.shape) if n > 1)
        self.known(value, tile, extents, self._behind_of(factored))
        self.flops += 2 * self.columns * value.size
        return Weighted(tile, self._of_scores(factored.core), right, self._growth(factored.core))

    def _weighted_number(self, value: Value, made: StreamProgram) -> Total:
        """The same where a row is multiplied with a vector."""
        weights, right = self._weights(value, made)
        factored = self._brought_to_size(weights)
        tile = self.tile((), SINGLE)
        self.known(value, tile, (), self._behind_of(factored))
        self._ofs[value] = "row"
        self.flops += 2 * self.columns
        other = _in_single(Read(right.value, right.index))
        summed = Apply(MULTIPLY, (SINGLE, SINGLE), SINGLE, (self._of_scores(factored.core), other))
        return Total(tile, "Sum", summed, self._growth(factored.core))

    # ---- reductions ----------------------------------------------------------------------------

    def _total(self, value: Value) -> Total:
        op: Any = value.op
        source = value.args[0]
        kind = op.accumulator
        if kind not in COMBINED or op.positions or value.size != 1 or (
                source not in self._made_of_seed or source.size != self.columns):
            raise NoTile(f"{op.name} has no form for streams")
        accumulator = value.attrs[1] or op.accumulator_of(source.dtype, None)
        if value.dtype.kind not in "fV" or np.dtype(accumulator).itemsize > 4:
            raise NoTile(f"{op.name} of {value.dtype} has no form for streams")
        factored = self._brought_to_size(source) if kind == "Sum" else Factored(source, ())
        growth = self._growth(factored.core)
        if kind != "Sum" and growth is not None:
            raise NoTile("an extremum of what depends on another one")
        tile = self.tile((), SINGLE)
        if kind != "Sum":
            self._extrema[tile] = kind, source
        self.known(value, tile, (), self._behind_of(factored))
        self.flops += source.size
        return Total(tile, kind, self._of_scores(factored.core), growth)

    def _brought_to_size(self, value: Value) -> Factored:
        """Take factors out of what is added up, if sums do not leave float32 for the want of them.

        (Those that halves would have left are none the worse for it.)
        """
        factored = self._factored(value)
        if factored.factors and not self._halves and not self._is_at_most_one(factored.core):
            raise NoTile("what is brought to size at the end may be beyond float32")
        return factored

    def _factored(self, value: Value) -> Factored:
        """Take what is the same for all columns out of a value that will be added up."""
        factors: list[tuple[Elementwise, Callable[[], Expression]]] = []
        while True:
            if _is_plain_view(value) or _is_plain_cast(value):
                value = value.args[0]
                continue
            if value.op in QUICK:
                found = self._relative(value)
                if found is not None:
                    value, factor = found
                    factors.append((MULTIPLY, factor))
                break
            if value.op not in (MULTIPLY, DIVIDE):
                break
            left, right = value.args
            if isinstance(right, Value) and self._level(right) == "row":
                factors.append((value.op, partial(self._of_row, right)))
                value = left
            elif value.op is MULTIPLY and isinstance(left, Value) and self._level(left) == "row":
                factors.append((value.op, partial(self._of_row, left)))
                value = right
            else:
                break
        return Factored(value, tuple(reversed(factors)))

    def _relative(self, value: Value) -> tuple[Value, Callable[[], Expression]] | None:
        """Write ``exp(x - z)``, of what is known at the end, as ``exp(x - max(x))`` and a factor.

        That exponential must be there already, as it is where z is the logarithm of its sum.
        """
        exponent = value.args[0]
        if not isinstance(exponent, Value) or exponent.op is not SUBTRACT:
            return None
        x, z = exponent.args
        if not (isinstance(z, Value) and self._level(z) == "row" and self._depends(z)) or (
                self._is_at_most_one(value)):
            return None
        for other in self.values:
            if other.op is value.op and self._is_at_most_one(other) and (
                    other.args[0].args[0] is x):
                most = other.args[0].args[1]
                return other, lambda op=value.op, most=most: Apply(
                    op, (SINGLE,), SINGLE, (Apply(SUBTRACT, (SINGLE, SINGLE), SINGLE, (
                        self._of_row(most), self._of_row(z))),))
        return None

    def _is_at_most_one(self, value: Value) -> bool:
        """Whether a value is an exponential relative to the largest exponent of its row."""
        exponent = value.args[0]
        if value.op not in QUICK or not isinstance(exponent, Value) or (
                exponent.op is not SUBTRACT):
            return False
        x, most = exponent.args
        known = self._tiles.get(_bare(most)) if isinstance(most, Value) else None
        return known is not None and self._extrema.get(known[0]) == ("Max", x)

    def _behind_of(self, factored: Factored) -> Callable[[Read], Expression] | None:
        """What makes a value of what is added up, if there are factors."""
        if not factored.factors:
            return None

        def made(read: Read) -> Expression:
            found: Expression = read
            for op, factor in factored.factors:
                found = self._applied(op, (found, factor()))
            return found

        return made

    def _applied(self, op: Elementwise, args: tuple[Expression, ...]) -> Expression:
        if op is DIVIDE:  # by the same for a whole row
            one = Apply(DIVIDE, (SINGLE, SINGLE), SINGLE, (Number(1, SINGLE), args[1]))
            op, args = MULTIPLY, (args[0], one)
        return Apply(op, (SINGLE, SINGLE), SINGLE, args)

    def _mask(self, made: StreamProgram) -> Mask | None:
        """Where scores are not used at all: not for the largest, and with no weight."""
        if len(made.extrema) != 1 or any(
                each.growth is None for each in made.added):
            return None
        masked = made.extrema[0].expression
        while isinstance(masked, Apply) and masked.op is None:
            masked = masked.args[0]
        if not isinstance(masked, Apply) or masked.op is not WHERE:
            return None
        condition, *others = masked.args
        if made.asks(condition):
            return None
        (most,) = made.extrema
        asked = [each.weights if isinstance(each, Weighted) else each.expression
                 for each in made.added]
        if most.kind != "Max" or not all(_vanishes(each, most) for each in asked):
            return None
        for taken, other in ((True, others[1]), (False, others[0])):
            if not any(isinstance(part, Read | Position) for part in parts(other)):
                return Mask(condition, taken, other)
        return None

    # ---- how sums change as extrema do ---------------------------------------------------------

    def _growth(self, value: Value) -> Growth | None:
        """The factor by which a value changes as an extremum does; ``None`` if it does not."""
        if value not in self._growths:
            self._growths[value] = self._new_growth(value)
        return self._growths[value]

    def _new_growth(self, value: Value) -> Growth | None:
        if not self._depends(value):
            return None
        op, args = value.op, value.args
        if _is_plain_view(value) or _is_plain_cast(value) or op is NEGATIVE:
            return self._growth(args[0])
        if op in (EXP, EXP2):
            if not self._is_relative(args[0]):
                raise NoTile("an exponent is relative to an extremum of something else")
            tile, change = self._change(args[0])
            return Growth(tile, Apply(QUICK[op] if self._quick else op, (SINGLE,), SINGLE,
                                      (change,)))
        dependent = [arg for arg in args if isinstance(arg, Value) and self._depends(arg)]
        if len(dependent) == 1 and (op is MULTIPLY or (op is DIVIDE and dependent[0] is args[0])):
            return self._growth(dependent[0])
        raise NoTile(f"{op.name} of what depends on an extremum is not proportional to a factor")

    def _is_relative(self, value: Value) -> bool:
        """Whether a value is the distance to an extremum, scaled perhaps, of what has that.

        Of something else the distance may be infinite where the extremum is, and no factor says so.
        """
        while value.op in (NEGATIVE, MULTIPLY, DIVIDE) or _is_plain_view(value) or (
                _is_plain_cast(value)):
            dependent = [arg for arg in value_args(value) if self._depends(arg)]
            if len(dependent) != 1:
                return False
            (value,) = dependent
        if value.op is not SUBTRACT or not all(isinstance(arg, Value) for arg in value.args):
            return False
        for x, most in (value.args, value.args[::-1]):
            known = self._tiles.get(_bare(most))
            if known is not None and known[0] in self._extrema:
                return self._extrema[known[0]][1] is x
        return False

    def _change(self, value: Value) -> tuple[Tile, Expression]:
        """What is added to a value where one is added to the extremum that it depends on."""
        if value in self._tiles:
            tile, _ = self._tiles[value]
            if tile not in self._extrema:
                raise NoTile("an exponent depends on what is known at the end alone")
            return tile, Read(tile, ())
        op, args = value.op, value.args
        if _is_plain_view(value) or _is_plain_cast(value):
            return self._change(args[0])
        dependent = [k for k, arg in enumerate(args)
                     if isinstance(arg, Value) and self._depends(arg)]
        if len(dependent) != 1 or op not in (ADD, SUBTRACT, NEGATIVE, MULTIPLY, DIVIDE):
            raise NoTile("an exponent is not linear in an extremum")
        (place,) = dependent
        tile, change = self._change(args[place])
        if op is ADD or (op is SUBTRACT and place == 0):
            return tile, change
        if op in (SUBTRACT, NEGATIVE):
            return tile, Apply(NEGATIVE, (SINGLE,), SINGLE, (change,))
        other = args[1 - place]
        if (op is DIVIDE and place == 1) or (isinstance(other, Value) and self._level(other) not in
                                             ("row", "")):
            raise NoTile("an exponent is not linear in an extremum")
        by = self._of_row(other) if isinstance(other, Value) else Scalar(other)
        return tile, Apply(op, (SINGLE, SINGLE), SINGLE, (change, by))

    def _depends(self, value: Value) -> bool:
        """Whether something that is combined over the columns goes into a value."""
        waiting = [value]
        while waiting:
            top = waiting.pop()
            if top in self._tiles and self._tiles[top][0] is not self.scores:
                return True
            if top not in self._tiles:
                waiting += value_args(top)
        return False

    # ---- levels --------------------------------------------------------------------------------

    def _level(self, value: Value) -> str:
        """What a value has: ``"scores"``, ``"row"``, ``"out"``, or ``""`` if it is a constant."""
        if value not in self._ofs:
            self._ofs[value] = self._new_level(value)
        return self._ofs[value]

    def _new_level(self, value: Value) -> str:
        below = {self._level(arg) for arg in value_args(value)}
        if isinstance(value.op, Leaf):
            return "scores" if value.size == self.columns else "row" if value.size == 1 else "other"
        if isinstance(value.op, Reduction) and below == {"scores"}:
            return "row"
        if isinstance(value.op, Source):
            return "" if value.size == 1 else "scores" if value.size == self.columns else "other"
        if value.op in PRODUCTS:
            return "out"
        if "out" in below:
            return "out"
        if value.size == 1:
            return "row" if below - {""} else ""
        return "scores" if value.size == self.columns else "other"

    # ---- expressions ---------------------------------------------------------------------------

    def _of_scores(self, value: Value) -> Expression:
        """A value of the columns."""
        if value.size not in (1, self.columns):
            raise NoTile("what is computed has several axes")
        return self._expression(value, tuple(
            Affine(COLUMN) if n > 1 else ORIGIN for n in value.shape))

    def _of_row(self, value: Value) -> Expression:
        if value.size != 1:
            raise NoTile("a factor has several elements")
        return self._expression(value, (ORIGIN,) * len(value.shape))

    def _result(self, value: Value) -> Store:
        if not isinstance(value.args[0].op, Leaf):
            raise NoTile("an update has no form for streams")
        region, new = value.attrs[2], value.args[1]
        level = self._level(new)
        if level not in ("row", "out"):
            raise NoTile("what has the product's columns is asked for")
        index: Index = tuple(Affine(EXTENT) if n > 1 else ORIGIN for n in region)
        if sum(n > 1 for n in region) > 1:
            raise NoTile("a result has several axes")
        expression = self._expression(new, broadcast_index(new.shape, index))
        return Store(value, region_index(value, index), (1, prod(region)), expression)

    def _of_leaf(self, value: Value, index: Index) -> Expression:
        return Read(value, index)

    def _new_expression(self, value: Value, index: Index) -> Expression:
        """As usual, but what has two bytes is computed with in four."""
        if not isinstance(value.op, Elementwise):
            made = Maker._new_expression(self, value, index)
            return _in_single(made)
        points = self.columns if any(at.axis == COLUMN for at in index) else 1
        self.flops += value.op.cost * points
        args = tuple(
            self._expression(arg, broadcast_index(arg.shape, index)) if isinstance(arg, Value)
            else Scalar(arg) for arg in value.args)
        op = value.op
        quick = self._quick and op in QUICK and self._depends(value)
        if not any(_is_half(dtype) for dtype in (value.dtype, *value.attrs)) and (
                self._halves or not quick):
            return Apply(op, value.attrs, value.dtype, args)
        if isinstance(op.expression, dict) and "h" in op.expression:
            raise NoTile(f"{op.name} is about numbers of two bytes")
        if op is CAST and _is_half(value.dtype) and isinstance(args[0], Apply) and (
                args[0].op is WHERE and args[0].dtype.kind == "f"):
            # What is chosen may be cast before as well: a number of the program costs nothing.
            condition, *others = args[0].args
            chosen = args[0].loops[0], SINGLE, SINGLE
            return Apply(WHERE, chosen, SINGLE, (condition, *map(_as_single, others)))
        if op is CAST:
            return Apply(None, (_widened(value.dtype),), _widened(value.dtype), args)
        loops = tuple(map(_widened, value.attrs))
        if quick:
            (exponent,) = args
            if isinstance(exponent, Apply) and exponent.op is SUBTRACT and isinstance(
                    exponent.args[1], Read) and isinstance(exponent.args[1].source, Tile):
                return Apply(QUICK_FROM[op], (SINGLE, SINGLE), SINGLE, exponent.args)
            op = QUICK[op]
        if op is DIVIDE and not any(isinstance(part, Read | Position) for part in parts(args[1])):
            return self._applied(op, args)
        return Apply(op, loops, _widened(value.dtype), args)


def _vanishes(expression: Expression, most: Total) -> bool:
    """Whether nothing is left where that of which there is a maximum is negatively infinite.

    So it is of an exponential of its difference to the maximum, times numbers that scores have no
    part in.
    """
    if not isinstance(expression, Apply):
        return False
    op, args = expression.op, expression.args
    if op is None:
        return _vanishes(args[0], most)
    if op is MULTIPLY:
        return any(_vanishes(one, most) and not any(
            isinstance(part, Read) and isinstance(part.source, Tile) for part in parts(other))
            for one, other in (args, args[::-1]))
    if op in (EXP, EXP2, *QUICK.values()) and isinstance(args[0], Apply) and (
            args[0].op is SUBTRACT):
        args = args[0].args
    elif op not in QUICK_FROM.values():
        return False
    x, least = args
    return x is most.expression and isinstance(least, Read) and least.source is most.tile


def _relation(product: Value, k: int) -> list[int]:
    relation = of_product(product, k, [arg.shape for arg in product.args])  # type: ignore[arg-type]
    if any(to == -1 for to in relation):
        raise NoTile("a product has no form for streams")
    return relation


def _is_half(dtype: DType) -> bool:
    return dtype.itemsize == 2 and dtype.kind in "fV"


def _widened(dtype: DType) -> DType:
    return SINGLE if _is_half(dtype) else dtype


def _in_single(expression: Expression) -> Expression:
    """The same, if it has two bytes in four."""
    if expression.dtype is not None and _is_half(expression.dtype):
        return Apply(None, (SINGLE,), SINGLE, (expression,))
    return expression


def _as_single(expression: Expression) -> Expression:
    """The same as a number of four bytes; one that was cast to more is what it was before."""
    while isinstance(expression, Apply) and expression.op is None and (
            expression.args[0].dtype == SINGLE):
        expression = expression.args[0]
    if expression.dtype is None or expression.dtype == SINGLE:
        return expression
    return Apply(None, (SINGLE,), SINGLE, (expression,))


def _bare(value: Value) -> Value:
    while _is_plain_view(value) or _is_plain_cast(value):
        value = value.args[0]
    return value


def _is_plain_view(value: Value) -> bool:
    """Whether a value has the elements of its operand in the same order."""
    if isinstance(value.op, Reshape):
        return True
    return isinstance(value.op, AxisView) and value.size == value.args[0].size and all(
        n == 1 or (axis >= 0 and step == 1 and start is None) for axis, step, start, n in zip(
            *value.attrs[:2], value.args[1:], value.args[0].shape, strict=True))


def _is_plain_cast(value: Value) -> bool:
    """Whether a value is cast between floats of two and four bytes, which changes it little."""
    return value.op is CAST and all(
        _widened(dtype) == SINGLE for dtype in (value.dtype, value.args[0].dtype))


def build(signature: tuple[Any, ...], lengths: Shape, scalars: int,
          target: Target) -> tuple[StreamProgram, Builder, list[Value]]:
    """Make the program of a loop's body for one row.

    Parameters
    ----------
    signature : tuple
        See `fusion.bodies.Body`.
    lengths : tuple of int
        Of the batch axes; the last one are the rows.
    scalars : int
        How many of the parameters are no places.
    target : Target

    Returns
    -------
    program : StreamProgram
    builder : Builder
    outputs : list of Value

    Raises
    ------
    NoTile
    """
    entries, kinds, outputs = signature
    looped = Looped(entries, kinds, outputs, range(len(entries)))
    builder, found = rewrite(looped, target, calls=False)
    maker = StreamMaker(builder.values, found, scalars, lengths, target)
    return maker.program(), builder, found

