"""A stream program as a kernel: how many rows a block has, and how many columns a tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tiledarray.fusion.bodies import Body
from tiledarray.fusion.ir import Cell, Group, Sink, Value
from tiledarray.fusion.plan import Axis, Kernel, Plan, Schedule, Store, Strided
from tiledarray.fusion.streams.build import build
from tiledarray.fusion.streams.ir import StreamProgram
from tiledarray.fusion.streams.verify import verify_stream
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import NoTile
from tiledarray.ops import movement
from tiledarray.ops.op import Library

STEP = 16  # what is summed by one instruction, and columns that it takes or gives at least
PANEL = 64  # columns of a tile that lie together
THREADS = 256  # of a block: a warp has 16 rows
ROWS = THREADS // 2
TILE_COLUMNS = 64
STAGES = (3, 2)  # tiles in shared memory, the one at hand among them
SMALL = 64  # columns of what is multiplied with, up to which two blocks fit on a multiprocessor
BUSY_BLOCKS = 1  # of a multiprocessor, at least; fewer leave it to the library
OWN_BYTES = 1 << 10


@dataclass(eq=False, slots=True)
class StreamKernel(Kernel):
    """A launch of a stream program.

    Attributes
    ----------
    program : StreamProgram
    tile_columns : int
        Columns of the product that are made at once.
    stages : int
        Tiles of what is multiplied in shared memory.
    """

    program: StreamProgram = None  # type: ignore[assignment]
    tile_columns: int = TILE_COLUMNS
    stages: int = STAGES[0]

    @property
    def form(self) -> str:
        """What kind of kernel it is, for its name."""
        return "stream"

    @property
    def names(self) -> list[str]:
        """Names of the products that it makes."""
        return [value.op.name for value in self.program.values if isinstance(value.op, Library)]

    @property
    def blocks(self) -> int:
        """Blocks of threads, each with so many rows."""
        return blocks_of(self.program)


def blocks_of(program: StreamProgram) -> int:
    """Blocks of threads: of each batch's rows, so many at once."""
    return prod(program.lengths[:-1]) * -(-program.rows // ROWS)


def padded(columns: int) -> int:
    """Columns of a tile with those of zeros."""
    return -(-columns // STEP) * STEP


def tile_bytes(rows: int, columns: int) -> int:
    """Of a tile with its panels."""
    return rows * -(-columns // PANEL) * PANEL * 2


def programmed(body: Body, target: Target) -> Body:
    """Return a loop's body with the program of one row.

    Raises
    ------
    NoTile
    """
    (signature,) = body.signatures.values()
    scalars = len(signature[1]) - len(body.lengths)
    program, _, _ = build(signature, body.lengths, scalars, target)
    _stages(program, target)
    if blocks_of(program) < BUSY_BLOCKS * target.workers:
        raise NoTile(f"{program.problems} rows are too few for a kernel of their own")
    return Body(body.lengths, body.block, body.inputs, body.results, body.signatures,
                body.numbers, program)


def _shared(program: StreamProgram, stages: int) -> int:
    """Bytes of shared memory: the rows of a block, and tiles of what they are multiplied with."""
    tiles = tile_bytes(TILE_COLUMNS, program.depth) + sum(
        tile_bytes(TILE_COLUMNS, product.extent) for product in program.products)
    return tile_bytes(ROWS, program.depth) + stages * tiles


def _stages(program: StreamProgram, target: Target) -> int:
    room = target.shared_bytes - OWN_BYTES
    wide = max([program.depth, sum(padded(product.extent) for product in program.products)])
    if wide > 4 * PANEL:
        raise NoTile("what is added up does not fit in registers")
    for stages in STAGES:
        if _shared(program, stages) <= room:
            return stages
    raise NoTile(f"tiles of {_shared(program, STAGES[-1])} bytes do not fit in shared memory")


def body_plan(body: Body, target: Target, *, check: bool) -> Plan:
    """Return the plan of a body that has a stream program: one kernel for all rows.

    Raises
    ------
    InvalidPlan
    """
    ((signature),) = body.signatures.values()
    scalars = len(signature[1]) - len(body.lengths)
    program, builder, outputs = build(signature, body.lengths, scalars, target)
    if check:
        verify_stream(program)
    kernel = _kernel(program, outputs, target)
    memory = {value: value for value in builder.values if value.op is movement.leaf}
    memory.update((value, value.args[0]) for value in outputs)
    return Plan(
        steps=[kernel], values=builder.values, outputs=[*outputs], memory=memory, shared={},
        last_use={value: 0 for value in memory.values()}, fired={},
        origin=builder.origin, entry={}, refusals=[],
        updates={value: ("in place", "each row has its own part") for value in outputs})


def _kernel(program: StreamProgram, outputs: list[Value], target: Target) -> StreamKernel:
    cells = [Cell(number, "apply", value, value.dtype)
             for number, value in enumerate(program.values)]
    group = Group(0, program.lengths, cells=cells)
    stores = []
    for number, value in enumerate(outputs):
        sink = Sink(value, Cell(len(cells) + number, "apply", value, value.dtype), "full", ())
        group.add(sink)
        stores.append(Store(sink, Strided(value, (), ())))
    stages = _stages(program, target)
    wide = max([program.depth, *(product.extent for product in program.products)])
    lane = Axis(program.problems, "lane", False, tuple(range(len(program.lengths))))
    schedule = Schedule((lane,), threads=(THREADS, 1), blocks=blocks_of(program), stages=stages,
                        shared_bytes=_shared(program, stages), resident=2 if wide <= SMALL else 1)
    return StreamKernel(
        group, schedule, {}, stores, bytes_moved=_moved(program),
        flops=program.problems * program.flops, program=program, stages=stages)


def _moved(program: StreamProgram) -> int:
    """Bytes read and written, each array once."""
    arrays: dict[Any, int] = {value: value.nbytes for value in program.arrays()}
    written = sum(prod(store.domain) * program.problems * store.target.dtype.itemsize
                  for store in program.stores)
    return sum(arrays.values()) + written
