"""What must hold of every stream program."""

from __future__ import annotations

from collections.abc import Iterator

from tiledarray.fusion.ir import ONE, Affine
from tiledarray.fusion.streams.ir import (
    COLUMN,
    DEPTH,
    EXTENT,
    Operand,
    StreamProgram,
    Weighted,
)
from tiledarray.fusion.tiles.ir import Expression, Read, Tile, parts
from tiledarray.fusion.verify import InvalidPlan


def verify_stream(program: StreamProgram) -> None:
    """Check a program.

    Raises
    ------
    InvalidPlan
        With the first thing that does not hold.
    """
    for wrong in (*_operands(program), *_order(program), *_places(program)):
        raise InvalidPlan(f"stream program: {wrong}")


def _operands(program: StreamProgram) -> Iterator[str]:
    rows = program.scalars + len(program.lengths) - 1

    def lengths(operand: Operand, wanted: dict[int, int]) -> Iterator[str]:
        for at, n in zip(operand.index, operand.value.shape, strict=True):
            if at.axis < 0:
                continue
            if at.axis not in wanted:
                yield f"operand {operand.value.number} has an axis {at.axis}"
            elif all(number == ONE for number, _ in at.terms):
                first = sum(coefficient for _, coefficient in at.terms)
                last = first + at.step * (wanted[at.axis] - 1)
                if not (0 <= first < n and 0 <= last < n):
                    yield f"operand {operand.value.number} is read from {first} to {last} of {n}"

    yield from lengths(program.left, {DEPTH: program.depth})
    yield from lengths(program.right, {DEPTH: program.depth, COLUMN: program.columns})
    for product in program.products:
        yield from lengths(product.right, {COLUMN: program.columns, EXTENT: product.extent})
    for operand in (program.right, *(product.right for product in program.products)):
        if operand.value.dtype != program.dtype:
            yield f"{operand.value.dtype} is multiplied as {program.dtype}"
        if any(number == rows for at in operand.index for number, _ in at.terms):
            yield "a matrix is another one for each row"


def _order(program: StreamProgram) -> Iterator[str]:
    """What is made of a tile's scores may depend on extrema, and what is stored on everything."""
    extrema = {total.tile for total in program.extrema}
    known = {program.scores}
    for total in program.extrema:
        yield from _asks(total.expression, known)
    for total in program.sums:
        yield from _asks(total.expression, known | extrema)
    for product in program.products:
        yield from _asks(product.weights, known | extrema)
    made = {total.tile for total in program.totals} | {
        product.tile for product in program.products}
    for store in program.stores:
        yield from _asks(store.expression, made)
    for each in program.added:
        expression = each.weights if isinstance(each, Weighted) else each.expression
        grows = {tile for tile in _tiles(expression) if tile in extrema}
        stated = {each.growth.extremum} if each.growth is not None else set()
        if grows != stated:
            yield f"{each.tile} depends on {grows}, and is scaled by {stated}"


def _tiles(expression: Expression) -> Iterator[Tile]:
    for part in parts(expression):
        if isinstance(part, Read) and isinstance(part.source, Tile):
            yield part.source


def _asks(expression: Expression, known: set[Tile]) -> Iterator[str]:
    for tile in _tiles(expression):
        if tile not in known:
            yield f"{tile} is read before it is known"


def _places(program: StreamProgram) -> Iterator[str]:
    """Numbers are taken from where their threads have them."""
    for expression in program.expressions():
        for part in parts(expression):
            if isinstance(part, Read) and isinstance(part.source, Tile):
                wanted = (Affine(COLUMN),) if part.source is program.scores else (
                    (Affine(EXTENT),) if part.source.shape else ())
                if part.index != wanted:
                    yield f"{part.source} is read at {part.index}, not at {wanted}"
