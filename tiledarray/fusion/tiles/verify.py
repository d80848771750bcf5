"""What must hold of every tile program."""

from __future__ import annotations

from collections.abc import Iterator

from tiledarray.fusion.ir import Index
from tiledarray.fusion.tiles.ir import (
    Barrier,
    Map,
    Program,
    Read,
    Reduce,
    Shape,
    Store,
    Tile,
    parts,
    reads,
    waits,
    written,
)
from tiledarray.fusion.tiles.shared import overlap
from tiledarray.fusion.verify import InvalidPlan


def verify_program(program: Program, most: int) -> None:
    """Check a program whose tiles have places.

    Parameters
    ----------
    program : Program
    most : int
        Bytes that a problem may take.

    Raises
    ------
    InvalidPlan
        With the first thing that does not hold.
    """
    for wrong in (*_order(program), *_races(program), *_indices(program)):
        raise InvalidPlan(f"tile program: {wrong}")
    if program.nbytes > most:
        raise InvalidPlan(f"tile program: {program.nbytes} bytes do not fit in {most}")


def _order(program: Program) -> Iterator[str]:
    """What is read must have been written, and be there still."""
    holds: dict[Tile, int] = {}
    for place, statement in enumerate(program.statements):
        for tile in reads(statement):
            if tile not in holds:
                yield f"statement {place} reads {tile}, which is not written or was overwritten"
        for tile in written(statement):
            for other in [*holds]:
                if other is not tile and overlap(program, tile, other):
                    del holds[other]
            holds[tile] = place


def _races(program: Program) -> Iterator[str]:
    """Between the writer and a reader of a tile, or the other way round, all threads wait.

    A thread that has a problem for itself is both, but for copies, which wait themselves.
    """
    if program.own is not None:
        return
    wrote: list[Tile] = []
    read: list[Tile] = []
    for place, statement in enumerate(program.statements):
        if isinstance(statement, Barrier) or waits(statement):
            wrote, read = [], []
            continue
        touched = [*reads(statement), *written(statement)]
        if any(overlap(program, one, other) for one in wrote for other in touched) or any(
                overlap(program, one, other) for one in read for other in written(statement)):
            yield f"no barrier before statement {place}, which meets what others wrote or read"
        wrote += written(statement)
        read += reads(statement)


def _indices(program: Program) -> Iterator[str]:
    """Constant indices stay within tiles."""
    for place, statement in enumerate(program.singly()):
        if not isinstance(statement, Map | Reduce | Store):
            continue
        domain = statement.domain
        for part in parts(statement.expression):
            if isinstance(part, Read) and isinstance(part.source, Tile):
                yield from _outside(place, part.source, part.index, domain)
                if any(number >= program.scalars for at in part.index for number, _ in at.terms):
                    yield f"statement {place} reads {part.source} at a place along the batch"
        if isinstance(statement, Map):
            yield from _outside(place, statement.tile, statement.index, domain)


def _outside(place: int, tile: Tile, index: Index, domain: Shape) -> Iterator[str]:
    for n, at in zip(tile.shape, index, strict=True):
        axis, step, terms = at.axis, at.step, at.terms
        if any(number >= 0 for number, _ in terms):
            continue
        start = sum(coefficient for _, coefficient in terms)
        end = start + (step * (domain[axis] - 1) if axis >= 0 else 0)
        if min(start, end) < 0 or max(start, end) >= n:
            yield f"statement {place} goes outside {tile}"

