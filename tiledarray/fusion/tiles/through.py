"""On a GPU, what is done with each element beside a transform is done as it takes it and leaves it.

A thread has the elements of a transform in registers, so what loads the tile before it, and what is
made of it element by element after it, needs no way through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiledarray.fusion.ir import Index
from tiledarray.fusion.tiles.build import whole
from tiledarray.fusion.tiles.ir import (
    Apply,
    Call,
    Expression,
    Load,
    Map,
    Position,
    Program,
    Read,
    Statement,
    Store,
    Tile,
    parts,
    reads,
)


def absorb(program: Program) -> None:
    """Have transforms do what stands beside them."""
    found: list[Statement] = []
    waiting = program.statements[::-1]
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Call) and _along_rows(statement):
            tile = statement.out[0].tile
            if found and (before := _filling(aligned(found[-1], tile), tile)) is not None:
                statement = replace(statement, before=before)
                found.pop()
            if waiting and (after := _emptying(
                    aligned(waiting[-1], tile), tile, waiting[:-1])) is not None:
                statement = replace(statement, after=after)
                waiting.pop()
        found.append(statement)
    program.statements = found


def follows(first: Call, second: Call) -> bool:
    """Whether a call transforms rows that another has left as it transformed them."""
    return (_along_rows(first) and _along_rows(second) and second.before is None
            and first.out[0].tile is second.out[0].tile and not isinstance(first.after, Store))


def _along_rows(call: Call) -> bool:
    """Whether a call transforms each row of its tile, whole."""
    shape = call.out[0].tile.shape
    return call.name == "fourier" and call.numbers[1:] == (len(shape) - 1, *shape)


def aligned(statement: Statement, tile: Tile) -> Statement:
    """The statement with the axes of a tile, where that but takes axes of length 1 elsewhere."""
    if not isinstance(statement, Map | Store) or statement.domain == tile.shape:
        return statement
    own, others = ([axis for axis, n in enumerate(shape) if n != 1]
                   for shape in (statement.domain, tile.shape))
    if [statement.domain[axis] for axis in own] != [tile.shape[axis] for axis in others]:
        return statement
    axes = dict(zip(own, others, strict=True))
    return replace(statement, domain=tile.shape, index=_along(statement.index, axes),
                   expression=_renamed(statement.expression, axes, {}))


def _along(index: Index, axes: dict[int, int]) -> Index:
    return tuple(at if at.axis < 0 else replace(at, axis=axes[at.axis]) for at in index)


def _renamed(expression: Expression, axes: dict[int, int],
             known: dict[Expression, Expression]) -> Expression:
    """The expression along other axes; what is shared in it stays so."""
    for part in parts(expression):
        if part in known:
            continue
        if isinstance(part, Apply):
            known[part] = replace(part, args=tuple(known[arg] for arg in part.args))
        elif isinstance(part, Read):
            known[part] = replace(part, index=_along(part.index, axes))
        elif isinstance(part, Position):
            known[part] = replace(part, at=_along((part.at,), axes)[0])
        else:
            known[part] = part
    return known[expression]


def _alone(statement: Map | Store, tile: Tile) -> bool:
    """Whether each point of a statement reads of a tile the element there, at most."""
    return statement.domain == tile.shape and not statement.turned and all(
        part.index == whole(tile.shape) for part in parts(statement.expression)
        if isinstance(part, Read) and part.source is tile)


def _filling(statement: Statement, tile: Tile) -> Load | Map | None:
    """The statement, if all it does is to give a tile its elements."""
    if isinstance(statement, Map):
        return statement if statement.tile is tile and _alone(statement, tile) and (
            statement.index == whole(tile.shape)) else None
    return statement if isinstance(statement, Load) and statement.tile is tile and (
        not statement.turned) else None


def _emptying(statement: Statement, tile: Tile, later: Sequence[Statement]) -> Map | Store | None:
    """The statement, if it takes the elements of a tile one by one, and nobody needs them then."""
    if isinstance(statement, Map):
        return statement if _filling(statement, tile) is not None else None
    last = isinstance(statement, Store) and tile in reads(statement) and not any(
        tile in reads(other) for other in later)
    return statement if isinstance(statement, Store) and last and _alone(statement, tile) else None
