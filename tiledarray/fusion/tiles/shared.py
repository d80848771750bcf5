"""Where tiles lie: those that are not needed at the same time share memory; and barriers."""

from __future__ import annotations

from tiledarray.fusion.tiles.ir import (
    Barrier,
    Load,
    Map,
    Product,
    Program,
    Reduce,
    Statement,
    Store,
    Tile,
    reads,
    waits,
    written,
)

ALIGNMENT = 16  # bytes, of a tile


def live_ranges(program: Program) -> dict[Tile, tuple[int, int]]:
    """Return the first and the last statement that touch each tile."""
    found: dict[Tile, tuple[int, int]] = {}
    for place, statement in enumerate(program.statements):
        for tile in (*written(statement), *reads(statement)):
            first, _ = found.get(tile, (place, place))
            found[tile] = first, place
    return found


def drop_unread(program: Program) -> None:
    """Leave out what fills tiles that nobody reads."""
    needed: set[Tile] = set()
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        fills = isinstance(statement, Load | Map | Reduce | Product)
        if fills and needed.isdisjoint(written(statement)):
            continue
        needed.update(reads(statement))
        kept.append(statement)
    program.statements = kept[::-1]


def lay_out(program: Program) -> None:
    """Give every tile in memory a place: the largest first, each as low as there is room."""
    ranges = {tile: found for tile, found in live_ranges(program).items()
              if tile not in (program.own or ())}
    offsets: dict[Tile, int] = {}
    for tile in sorted(ranges, key=lambda tile: (-tile.nbytes, tile.number)):
        first, last = ranges[tile]
        taken = sorted((offsets[other], offsets[other] + _room(other)) for other in offsets
                       if ranges[other][0] <= last and first <= ranges[other][1])
        at = 0
        for begin, end in taken:
            if at + _room(tile) <= begin:
                break
            at = max(at, end)
        offsets[tile] = at
    program.offsets = offsets
    program.nbytes = max((at + _room(tile) for tile, at in offsets.items()), default=0)


def _room(tile: Tile) -> int:
    return -(-tile.nbytes // ALIGNMENT) * ALIGNMENT


def put_barriers(program: Program) -> None:
    """Have the threads of a problem wait before they touch what others wrote, or still read."""
    statements: list[Statement] = []
    wrote: set[Tile] = set()
    read: set[Tile] = set()
    for statement in program.statements:
        if isinstance(statement, Load | Map | Reduce | Store) and (
                _meet(program, wrote, {*reads(statement), *written(statement)})
                or _meet(program, read, {*written(statement)} - own(statement))):
            statements.append(Barrier())
            wrote, read = set(), set()
        statements.append(statement)
        if waits(statement):
            wrote, read = set(), set()
        else:
            wrote.update(written(statement))
            read.update(reads(statement))
    program.statements = statements


def own(statement: Statement) -> set[Tile]:
    """Tiles of which a thread reads the elements that it writes itself, and no others."""
    return set()


def _meet(program: Program, some: set[Tile], others: set[Tile]) -> bool:
    """Whether some of the tiles lie where others do."""
    return any(overlap(program, tile, other) for tile in some for other in others)


def overlap(program: Program, one: Tile, other: Tile) -> bool:
    """Whether two tiles have memory in common."""
    if not {one, other} <= program.offsets.keys():
        return one is other
    at, to = program.offsets[one], program.offsets[other]
    return at < to + other.nbytes and to < at + one.nbytes
