"""Small problems of which a thread of a GPU has one each: in its registers, where they fit.

There is nothing to wait for then, and no element that several threads would compute the place of.
What is copied from or to memory as it lies there goes through shared memory, where the threads of a
warp copy for each other.
"""

from __future__ import annotations

from math import prod

from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.copies import copied
from tiledarray.fusion.tiles.ir import (
    Barrier,
    Call,
    Load,
    Map,
    Product,
    Program,
    Read,
    Reduce,
    Shape,
    Statement,
    Store,
    Tile,
    parts,
    reads,
    written,
)
from tiledarray.fusion.tiles.shared import lay_out, live_ranges
from tiledarray.fusion.tiles.teams import WARP

PRIMITIVES = ("cholesky", "triangular", "lu", "lu_solve", "inverse", "lu_det", "lu_slogdet")
WORD = 4  # bytes of a register
MOST_WORDS = 176  # in registers at once, of the 255 that a thread may have
MOST_OPERATIONS = 12 << 10  # of a problem: all of them are text
WARPS = 5  # of a multiprocessor, at least, for which shared memory has room


def worth_threads(lengths: Shape, target: Target) -> bool:
    """Whether there are so many problems that a thread each keeps a GPU busy."""
    return target.kind == "cuda" and (
        prod(lengths) >= target.limits.thread_problems * target.workers)


def goes_to_threads(program: Program, target: Target) -> bool:
    """Share the problems out to a thread each, their tiles to registers and memory, if all fits."""
    program.own = _own_tiles(program)
    if program.own is None:
        return False
    lay_out(program)
    if WARPS * WARP * region_of_thread(program) <= target.shared_bytes:
        return True
    program.own = None
    return False


def region_of_thread(program: Program) -> int:
    """Bytes from one problem's tiles in shared memory to the next's.

    They are an odd number of elements, so that threads are at different banks.
    """
    width = max((tile.dtype.itemsize for tile in program.offsets), default=1)
    return (-(-program.nbytes // width) | 1) * width


def _own_tiles(program: Program) -> frozenset[Tile] | None:
    """The tiles that lie in registers if a thread has a problem; ``None`` if it cannot."""
    if (not all(map(_has_a_form, program.statements))
            or program.flops + sum(map(_operations, program.statements)) > MOST_OPERATIONS):
        return None
    shared = frozenset(tile for statement in program.statements
                       if (tile := copied(statement, device=True)) is not None)
    ranges = live_ranges(program)
    for place, statement in enumerate(program.statements):
        held = {tile for tile, (first, last) in ranges.items()
                if first <= place <= last and tile not in shared}
        if isinstance(statement, Call):
            held.update(written(statement), reads(statement))
        if sum(map(_words, held)) > MOST_WORDS:
            return None
    own = frozenset(ranges) - shared
    known = all(_is_known(program, statement, own) for statement in program.statements)
    return own if known else None


def _words(tile: Tile) -> int:
    """Registers that a tile takes."""
    return prod(tile.shape) * -(-tile.dtype.itemsize // WORD)


def _has_a_form(statement: Statement) -> bool:
    return not isinstance(statement, Call) or statement.name in PRIMITIVES


def _operations(statement: Statement) -> int:
    """Roughly the instructions of what is no primitive."""
    if not isinstance(statement, Map | Reduce | Store):
        return 0
    return prod(statement.domain) * sum(1 for _ in parts(statement.expression))


def _is_known(program: Program, statement: Statement, own: frozenset[Tile]) -> bool:
    """Whether it is known ahead which elements of those tiles a statement touches."""
    if isinstance(statement, Load | Call | Product | Barrier):
        return True
    touched = [(part.source, part.index) for part in parts(statement.expression)
               if isinstance(part, Read)]
    if isinstance(statement, Map):
        touched.append((statement.tile, statement.index))
    return not any(source in own and number >= 0
                   for source, index in touched for at in index for number, _ in at.terms)
