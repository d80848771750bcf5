"""A tile program as a kernel: how many problems go side by side, and what it is bound to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeGuard

import numpy as np

from tiledarray.fusion.bodies import Body
from tiledarray.fusion.ir import Cell, Group, Sink, Value
from tiledarray.fusion.plan import Axis, Kernel, Plan, Schedule, Store, Strided
from tiledarray.fusion.rewrite import Builder
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles import ir
from tiledarray.fusion.tiles.beside import BLOCKS, OWN_BYTES, goes_beside, lies_beside, side_of
from tiledarray.fusion.tiles.build import NoRoom, NoTile, build
from tiledarray.fusion.tiles.ir import Call, Load, Map, Product, Program, Read, Reduce, parts
from tiledarray.fusion.tiles.primitives import primitive
from tiledarray.fusion.tiles.shared import drop_unread, lay_out, put_barriers
from tiledarray.fusion.tiles.teams import WARP, region, registers_of_transform, team_of
from tiledarray.fusion.tiles.threads import (
    PRIMITIVES,
    goes_to_threads,
    region_of_thread,
    worth_threads,
)
from tiledarray.fusion.tiles.through import absorb
from tiledarray.fusion.tiles.verify import verify_program
from tiledarray.ops import movement
from tiledarray.ops.op import Library

VECTOR_BYTES = 64  # of the elements of problems side by side on the host
FEWEST = 4  # of those
SPILLED = 4  # times as much: what lies in the next cache is still sooner done than called for
BLOCK = 128  # threads of a block on a device, of teams that may be smaller
BUSY_THREADS = 256  # of a multiprocessor, at least
MULTIPROCESSOR_BYTES = 160 << 10  # of its shared memory, for all blocks
LARGEST_TEAM = 128
ALONE = 100 << 10  # bytes of a block, of which more leave a multiprocessor hardly another
REGISTERS = 1 << 16  # of it
STATUS = np.dtype(np.int64)
FINE = -1  # where no problem failed: all bits, which is beyond all others without a sign


@dataclass(eq=False, slots=True)
class TileKernel(Kernel):
    """A launch of a tile program.

    Attributes
    ----------
    program : Program
    side : int
        On the host, problems side by side; on a device, threads of a problem's team.
    teams : int
        Problems of a block on a device.
    status : Value or None
        Where the least problem is noted for which each call failed.
    """

    program: Program = field(default_factory=lambda: Program((), 0, [], []))
    side: int = 1
    teams: int = 1
    status: Value | None = None

    @property
    def form(self) -> str:
        """What kind of kernel it is, for its name."""
        return "tile"

    @property
    def names(self) -> list[str]:
        """Names of the calls that it makes."""
        return [value.op.name.rpartition(".")[2] for value in self.program.values
                if isinstance(value.op, Library)]

    @property
    def region(self) -> int:
        """Bytes of shared memory from the tiles of one problem to those of the next."""
        return self.schedule.shared_bytes // self.teams


def programmed(body: Body, target: Target) -> Body:
    """Return a loop's body with the program of one block, a problem.

    Raises
    ------
    NoTile
    """
    program, _, _ = _built(body, target)
    _sides(program, target)
    return replace(body, program=program)


def _built(body: Body, target: Target) -> tuple[Program, Builder, list[Value]]:
    """Make a body's program: for a thread if one can have a problem, or for a team.

    Raises
    ------
    NoTile
    """
    if worth_threads(body.lengths, target):
        made = _begun(body, target, padded=False)
        if goes_to_threads(made[0], target):
            return made
    padded = target.kind == "cuda"
    made = _begun(body, target, padded=padded)
    if padded and lies_beside(made[0]):
        beside = _begun(body, target, padded=False)
        if goes_beside(beside[0], target):
            made = beside
    if padded:
        absorb(made[0])
    lay_out(made[0])
    put_barriers(made[0])
    return made


def _begun(body: Body, target: Target, *, padded: bool) -> tuple[Program, Builder, list[Value]]:
    """Make a body's program, whose tiles have no places yet: see `build`."""
    ((signature),) = body.signatures.values()
    scalars = len(signature[1]) - len(body.lengths)
    made = build(signature, body.lengths, scalars, target, primitive, padded=padded)
    drop_unread(made[0])
    return made


def _transforms(statement: ir.Statement) -> TypeGuard[Call]:
    return isinstance(statement, Call) and statement.name == "fourier"


def _sides(program: Program, target: Target) -> tuple[int, int]:
    """Problems side by side on the host; threads of a team and teams of a block on a device.

    Raises
    ------
    NoTile
        If there is no room.
    """
    if target.kind == "cpu":
        widths = {tile.dtype.type(0).real.dtype.itemsize for tile in program.tiles
                  if tile.dtype.kind in "fc"} or {8}
        side = VECTOR_BYTES // max(widths)
        while side > FEWEST and side * program.nbytes > target.limits.problem_bytes:
            side //= 2
        if side * program.nbytes > SPILLED * target.limits.problem_bytes:
            raise NoTile(f"{side} problems of {program.nbytes} bytes do not stay in a core's cache")
        return side, 1
    return _teams(program, target.shared_bytes - OWN_BYTES)


def _teams(program: Program, room: int) -> tuple[int, int]:
    """Threads of a team and teams of a block: whole warps, and several blocks have room.

    Raises
    ------
    NoRoom
        If there is no room for one.
    """
    if program.beside:
        return side_of(program.statements), program.beside
    side = _widest(program) if program.own is None else 1
    while side < WARP and WARP // side * _region(program, side) > room:
        side *= 2
    if _region(program, side) > room:
        raise NoRoom(f"a problem of {program.nbytes} bytes does not fit in shared memory")
    if room > ALONE and 2 * _region(program, side) > room and any(
            isinstance(statement, Call) and statement.name in PRIMITIVES
            for statement in program.statements):
        raise NoRoom(f"a multiprocessor would have one problem of {program.nbytes} bytes at a "
                     "time, and the steps of an elimination wait for one another")
    teams = max(1, BLOCK // side)
    while teams * side > WARP and teams > 1 and teams * _region(program, side) > room // 3:
        teams //= 2
    return side, teams


def _region(program: Program, side: int) -> int:
    """Bytes from the tiles of one problem to those of the next."""
    if program.own is not None:
        return region_of_thread(program)
    if program.beside:
        return -(-program.nbytes * program.spacing // program.beside)
    widths = [tile.dtype.itemsize for tile in program.tiles if tile.dtype.kind in "fc"]
    return max(16, -(-region(program.nbytes, side, max(widths, default=8)) // 16) * 16)


def _widest(program: Program) -> int:
    """Threads of a team: as many as the primitive takes that can use most, or more.

    Where few problems fit on a multiprocessor, there must be more of each.
    """
    found = [WARP // 8]
    for statement in program.statements:
        if isinstance(statement, Product):
            out = statement.out
            sizes: tuple[int, ...] = out.rows, out.columns, statement.left.columns
            found.append(team_of("product", sizes, out.tile.dtype.itemsize))
        elif isinstance(statement, Call):
            out = statement.out[0]
            sizes = (out.columns,) if statement.name == "fourier" else (out.rows, out.columns)
            found.append(team_of(statement.name, sizes, out.tile.dtype.itemsize))
    busy = -(-BUSY_THREADS * program.nbytes // MULTIPROCESSOR_BYTES)
    widest = max(*found, min(LARGEST_TEAM, 1 << max(0, busy - 1).bit_length()))
    # Jacobi's method has pairs for a warp, and ends for all of its problems at once.
    by_warps = any(isinstance(s, Call) and s.name == "eigenvalues" for s in program.statements)
    return min(widest, WARP) if by_warps else widest


def body_plan(body: Body, target: Target, *, check: bool) -> Plan:
    """Return the plan of a body that has a program: one kernel for all problems.

    Its leaves are those of the body and, last, where failures are noted if something may fail.

    Raises
    ------
    InvalidPlan
    """
    ((signature),) = body.signatures.values()
    program, builder, outputs = _built(body, target)
    side, teams = _sides(program, target)
    if check:
        verify_program(program, SPILLED * target.limits.problem_bytes // side
                       if target.kind == "cpu" else target.shared_bytes - OWN_BYTES)
    status, values = None, builder.values
    if program.failures:
        leaves = sum(entry[0] is None for entry in signature[0])
        status = Value(len(values), movement.leaf, leaves, (), (len(program.failures),), STATUS)
        values = [*values, status]
    kernel = _kernel(program, outputs, status, target, side, teams)
    memory = {value: value for value in values if value.op is movement.leaf}
    memory.update((value, value.args[0]) for value in outputs)
    return Plan(
        steps=[kernel], values=values, outputs=[*outputs], memory=memory, shared={},
        last_use={value: 0 for value in memory.values()}, fired={},
        origin=builder.origin, entry={}, refusals=[],
        updates={value: ("in place", "each problem has its own part") for value in outputs})


def _kernel(program: Program, outputs: list[Value], status: Value | None, target: Target,
            side: int, teams: int) -> TileKernel:
    cells = [Cell(number, "apply", value, value.dtype)
             for number, value in enumerate(program.values)]
    group = Group(0, program.lengths, cells=cells)
    problems = program.problems
    stores = []
    for number, value in enumerate(outputs):
        access = Strided(value, (), ())
        sink = Sink(value, Cell(len(cells) + number, "apply", value, value.dtype), "full", ())
        group.add(sink)
        stores.append(Store(sink, access))
    if status is not None:
        sink = Sink(status, Cell(-1, "apply", status, STATUS), "full", ())
        stores.append(Store(sink, Strided(status, (), ())))
    device = target.kind == "cuda"
    threads = (side * teams, 1) if device else (1, 1)
    lane = Axis(problems, "lane", False, tuple(range(len(program.lengths))))
    blocks = -(-problems // (teams if device else side))
    schedule = Schedule(
        (lane,), threads=threads, blocks=blocks,
        scratch_bytes=0 if device else side * program.nbytes,
        shared_bytes=teams * _region(program, side) if device else 0,
        resident=_resident(program, side, teams) if device else 0)
    return TileKernel(
        group, schedule, {}, stores, bytes_moved=_moved(program), flops=problems * program.flops,
        program=program, side=side, teams=teams, status=status)


def _resident(program: Program, side: int, teams: int) -> int:
    """Blocks that a multiprocessor's registers should have room for; 0 if it does not matter."""
    registers = [registers_of_transform(out.columns, out.tile.dtype.itemsize, side)
                 for statement in program.statements
                 if _transforms(statement) for out in statement.out[:1]]
    least = BLOCKS if program.beside else 1
    return max(least, REGISTERS // (side * teams * max(registers))) if registers else 0


def arrays_read(program: Program) -> Iterator[tuple[Value, int]]:
    """The arrays that a program reads, and how many elements one problem has of each."""
    for statement in program.singly():
        if isinstance(statement, Load):
            yield statement.source, prod(statement.tile.shape)
        elif isinstance(statement, Map | Reduce | ir.Store):
            for part in parts(statement.expression):
                if isinstance(part, Read) and isinstance(part.source, Value):
                    followed = {at.axis for at in part.index if at.axis >= 0}
                    yield part.source, prod(statement.domain[axis] for axis in followed)


def _moved(program: Program) -> int:
    """Bytes read and written by all problems."""
    sizes: dict[Value, int] = {}
    for value, count in arrays_read(program):
        sizes[value] = sizes.get(value, 0) + count * program.problems
    total = sum(min(value.size, size) * value.dtype.itemsize for value, size in sizes.items())
    for statement in program.singly():
        if isinstance(statement, ir.Store):
            total += (prod(statement.domain) * program.problems
                      * statement.target.dtype.itemsize)
    return total
