"""Transforms whose problems lie side by side on a GPU: those of columns.

Where neighbours in memory belong to neighbouring problems, threads side by side should, too: then
they read whole lines.  On chip the elements of such problems alternate, so that threads side by
side find theirs at different banks, wherever a butterfly takes them from.  What has the elements of
each problem together in memory instead is turned on its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tiledarray.fusion.ir import Index, Value, dense_strides
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import whole
from tiledarray.fusion.tiles.copies import everywhere
from tiledarray.fusion.tiles.ir import (
    Call,
    Load,
    Map,
    Program,
    Read,
    Shape,
    Statement,
    Store,
    Tile,
    parts,
    reads,
    written,
)
from tiledarray.fusion.tiles.teams import team_beside
from tiledarray.fusion.tiles.through import aligned

LINE = 128  # bytes that threads side by side should read
SECTOR = 32  # of which fewer take as long to read
MOST_THREADS = 512  # of a block, if that leaves as many columns as a sector has
LARGEST_BLOCK = 1024
OWN_BYTES = 1 << 10  # of a block's shared memory, which the system takes
BLOCKS = 2  # of a multiprocessor, at least: one waits for memory while another computes
FEW = 16  # elements of a problem that may lie anywhere


def side_of(statements: Sequence[Statement]) -> int:
    """Threads of a team."""
    return max(team_beside(call.out[0].columns) for call in statements if isinstance(call, Call))


def lies_beside(program: Program) -> bool:
    """Whether all it does is to transform, and memory has its problems side by side somewhere."""
    transforms = [isinstance(statement, Call) and statement.name == "fourier"
                  for statement in program.statements]
    return any(transforms) and all(
        known or isinstance(statement, Load | Map | Store)
        for known, statement in zip(transforms, program.statements, strict=True)
    ) and any("beside" in _sides(program, statement) for statement in program.statements)


def goes_beside(program: Program, target: Target) -> bool:
    """Put problems that lie so side by side, if there is room.

    Tiles have no places yet.
    """
    statements = _at_once(program)
    last = program.lengths[-1]
    tiles = {tile for statement in statements for tile in written(statement)}
    width = max(tile.dtype.itemsize for tile in tiles)
    nbytes = sum(tile.nbytes for tile in tiles)  # seldom is there more than one
    # Of problems that are all equally far apart.
    turned = any("along" in _sides(program, statement) for statement in statements)
    count, side = LINE // width, side_of(statements)
    while count * width > SECTOR and (
            count * side > MOST_THREADS or 2 * (count + 1) * nbytes > target.shared_bytes
            or (turned and last % count)):
        count //= 2
    spacing = count + 1 if turned else count
    if last < count or (turned and last % count) or count * width < SECTOR or (
            count * side > LARGEST_BLOCK or spacing * nbytes > target.shared_bytes - OWN_BYTES):
        return False
    program.statements = [
        part for statement in statements for part in _turned(program, statement)]
    program.beside, program.spacing = count, spacing
    return True


def _at_once(program: Program) -> list[Statement]:
    """The statements, but what is only computed to be stored is as it is stored."""
    found: list[Statement] = []
    readers = Counter(tile for statement in program.statements for tile in {*reads(statement)})
    for statement in program.statements:
        last = found[-1] if found else None
        if isinstance(last, Map) and last.domain == last.tile.shape and (
                last.index == whole(last.domain) and readers[last.tile] == 1):
            store = aligned(statement, last.tile)
            if isinstance(store, Store) and isinstance(value := store.expression, Read) and (
                    value.source is last.tile and value.index == last.index
                    and store.domain == last.domain):
                found[-1] = replace(store, expression=last.expression)
                continue
        found.append(statement)
    return found


def _turned(program: Program, statement: Statement) -> Iterator[Statement]:
    """A statement that goes the way in which memory has its elements; a store may become two."""
    sides = {*_sides(program, statement)}
    if "along" not in sides or not isinstance(statement, Load | Map | Store):
        yield statement
        return
    if isinstance(statement, Store) and "beside" in sides:
        number = 1 + max(tile.number for tile in program.tiles)
        shape = statement.domain
        tile = Tile(number, shape, statement.target.dtype, shape[-1])
        yield Map(tile, everywhere(tile), shape, statement.expression)
        statement = replace(statement, expression=Read(tile, everywhere(tile)))
    yield replace(statement, turned=True)


def _sides(program: Program, statement: Statement) -> Iterator[str]:
    """How what a statement reads and writes in memory lies there: problems "beside" or "along"."""
    for array, index, domain in _accesses(statement):
        strides = dense_strides(array.shape)
        own = across = 0
        inner = max((axis for axis, n in enumerate(domain) if n > 1), default=-1)
        for at, stride in zip(index, strides, strict=True):
            across += program.split_terms(at.terms)[0].get(len(program.lengths) - 1, 0) * stride
            if at.axis == inner >= 0:
                own += at.step * stride
        if prod(domain) >= FEW and own != across:
            if across == 1:
                yield "beside"
            elif own == 1 and across:
                yield "along"


def _accesses(statement: Statement) -> Iterator[tuple[Value, Index, Shape]]:
    """What a statement reads and writes in memory, at which index of a domain."""
    if isinstance(statement, Load):
        yield statement.source, statement.index, statement.tile.shape
    if isinstance(statement, Store):
        yield statement.target.args[0], statement.index, statement.domain
    if isinstance(statement, Map | Store):
        for part in parts(statement.expression):
            if isinstance(part, Read) and isinstance(part.source, Value):
                yield part.source, part.index, statement.domain
