"""A stream program as a kernel: how many rows a block has, and how many columns a tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from tiledarray.fusion.bodies import Body
from tiledarray.fusion.ir import Cell, Group, Sink, Value
from tiledarray.fusion.plan import Axis, Kernel, Plan, Schedule, Store, Strided
from tiledarray.fusion.streams.build import build
from tiledarray.fusion.streams.ir import Operand, StreamProgram
from tiledarray.fusion.streams.verify import verify_stream
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import NoTile
from tiledarray.ops import movement
from tiledarray.ops.op import Library

STEP = 16  # what is summed by one instruction, and columns that it takes or gives at least
PANEL_BYTES = 128  # of a row of a tile, that lie together
ROWS_OF_WARP = 16
BUSY_BLOCKS = 1  # of a multiprocessor, at least; fewer leave it to the library
OWN_BYTES = 1 << 10
COPIERS = 128  # threads that do nothing but copy, beside those that multiply by `wgmma`
COPIER_REGISTERS = 32
LONG = 512  # columns, from which on it pays that some threads copy for the others
REGISTERS = 1 << 16  # of a multiprocessor
MOST_REGISTERS = 240  # of a thread
BARRIER_BYTES = 8
ROUNDS = 3  # times that a block takes rows, at least, where operands stay


class Shape(NamedTuple):
    """How a stream is cut.

    Attributes
    ----------
    wide : int
        Up to which columns of what is multiplied with.
    threads : int
        Of a block.
    columns : int
        Of the product that are made at once.
    stages : int
        Tiles of what is multiplied in shared memory, the one at hand among them.
    resident : int
        Blocks of a multiprocessor that registers should have room for.
    """

    wide: int
    threads: int
    columns: int
    stages: int
    resident: int

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.threads // 32 * ROWS_OF_WARP


# In order of preference, where shared memory has room; measured on an H200 (docs/decisions.md).
SHAPES = (Shape(64, 256, 64, 3, 2), Shape(128, 256, 128, 3, 1), Shape(256, 256, 64, 4, 1),
          Shape(256, 256, 64, 3, 1), Shape(256, 128, 64, 3, 1),
          # Where there is no more shared memory; too few stages for `wgmma`.
          Shape(256, 256, 64, 2, 1), Shape(256, 128, 64, 2, 1))


# The same of what has four bytes: sums and weights of three products take twice the registers.
OF_SINGLES = (Shape(64, 128, 64, 2, 2), Shape(128, 256, 32, 2, 1), Shape(128, 128, 32, 2, 1))
OF_TF32 = (Shape(64, 128, 64, 2, 2), Shape(128, 256, 64, 2, 1), *OF_SINGLES[1:])
# The same where `wgmma` takes tiles that are arranged for it.
ARRANGED, ARRANGED_TF32 = Shape(64, 256, 64, 2, 1), Shape(64, 256, 64, 2, 2)

# The same where some threads copy for the others; more columns would take more registers.
WITH_COPIERS = (Shape(64, 384, 128, 4, 1), Shape(64, 256, 64, 6, 1), Shape(128, 256, 128, 3, 1))


@dataclass(eq=False, slots=True)
class StreamKernel(Kernel):
    """A launch of a stream program.

    Attributes
    ----------
    program : StreamProgram
    shape : Shape
    copiers : int
        Threads that copy for the others; without, all do.
    stays : bool
        Whether all tiles of what is multiplied with stay on chip while a block goes from rows to
        rows; the next rows come meanwhile.
    arranged : bool
        Whether four warps multiply tiles of four bytes together, which are arranged before.
    """

    program: StreamProgram = None  # type: ignore[assignment]
    shape: Shape = SHAPES[0]
    copiers: int = 0
    stays: bool = False
    arranged: bool = False

    @property
    def form(self) -> str:
        """What kind of kernel it is, for its name."""
        return "stream"

    @property
    def worker_registers(self) -> int:
        """What copiers leave to a thread of the others, of those that a block begins with.

        With more, threads would wait for registers for ever.
        """
        threads = self.shape.threads + self.copiers
        at_first = REGISTERS // threads // 8 * 8 * threads
        left = (at_first - self.copiers * COPIER_REGISTERS) // self.shape.threads
        return min(left // 8 * 8, MOST_REGISTERS)

    @property
    def held_tiles(self) -> int:
        """Tiles of each operand that are on chip at once."""
        return _tiles(self.program, self.shape) if self.stays else self.shape.stages

    @property
    def names(self) -> list[str]:
        """Names of the products that it makes."""
        return [value.op.name for value in self.program.values if isinstance(value.op, Library)]


def blocks_of(program: StreamProgram, shape: Shape) -> int:
    """Blocks of threads: of each batch's rows, so many at once."""
    return prod(program.lengths[:-1]) * -(-program.rows // shape.rows)


def padded(columns: int) -> int:
    """Columns of a tile with those of zeros."""
    return -(-columns // STEP) * STEP


def tile_bytes(rows: int, columns: int, itemsize: int) -> int:
    """Of a tile with its panels."""
    return rows * -(-columns * itemsize // PANEL_BYTES) * PANEL_BYTES


def operand_bytes(program: StreamProgram, operand: Operand, shape: Shape) -> int:
    """Of a tile of an operand that has the product's columns."""
    count = program.count(operand)
    rows, columns = (padded(count), shape.columns) if program.is_turned(operand) else (
        shape.columns, count)
    return tile_bytes(rows, columns, program.dtype.itemsize)


def arranged_bytes(program: StreamProgram, shape: Shape) -> dict[str, int]:
    """Of tiles that are arranged for `wgmma`, by name: rows go along what is summed there.

    Of three products there are low parts, of rows and of operands; high parts are the numbers
    themselves, where they lie in the right order.
    """
    three, size = not program.tf32, program.dtype.itemsize
    found = {"rows_low": tile_bytes(shape.rows, program.depth, size)} if three else {}
    right = tile_bytes(shape.columns, padded(program.depth), size)
    if program.is_turned(program.right):
        found["right_high"] = right
    if three:
        found["right_low"] = right
    for k, product in enumerate(program.products):
        for part in ("high", "low")[:1 + three]:
            found[f"matrix_{k}_{part}"] = tile_bytes(padded(product.extent), shape.columns, size)
    return found


def programmed(body: Body, target: Target) -> Body:
    """Return a loop's body with the program of one row.

    Raises
    ------
    NoTile
    """
    (signature,) = body.signatures.values()
    scalars = len(signature[1]) - len(body.lengths)
    program, _, _ = build(signature, body.lengths, scalars, target)
    if blocks_of(program, _shape(program, target)) < BUSY_BLOCKS * target.workers:
        raise NoTile(f"{program.problems} rows are too few for a kernel of their own")
    return replace(body, program=program)


def _operands(program: StreamProgram) -> list[Operand]:
    """What has the product's columns."""
    return [program.right, *(product.right for product in program.products)]


def _tiles(program: StreamProgram, shape: Shape) -> int:
    """Tiles of a row of the product."""
    return -(-program.columns // shape.columns)


def _shared(program: StreamProgram, shape: Shape, *, stays: bool = False) -> int:
    """Bytes of shared memory: the rows of a block, and tiles of what they are multiplied with.

    Where all of that stays, it is there once, and so are the rows that come next.
    """
    tile = sum(operand_bytes(program, operand, shape) for operand in _operands(program))
    tiles = _tiles(program, shape) if stays else shape.stages
    rows = tile_bytes(shape.rows, program.depth, program.dtype.itemsize)
    return (1 + stays) * rows + tiles * tile


def _stays(program: StreamProgram, shape: Shape, target: Target) -> bool:
    """Whether operands fit on chip whole, are the same for all rows, and rows are many."""
    row = len(program.lengths) - 1
    same = not any(row in program.split_terms(at.terms)[0]
                   for operand in _operands(program) for at in operand.index)
    return (same and row == 0 and program.mask is None
            and 0 < _tiles(program, shape) <= shape.stages
            and _shared(program, shape, stays=True) <= max(
                _shared(program, shape), (target.shared_bytes - OWN_BYTES) // shape.resident)
            and blocks_of(program, shape) >= ROUNDS * shape.resident * target.workers)


def copiers_of(program: StreamProgram, target: Target) -> int:
    """Threads that copy for the others: without, all say which tiles a mask needs, and copy."""
    at_once = (target.wgmma and program.halves and program.mask is None and program.columns >= LONG
               and _wide(program) <= WITH_COPIERS[-1].wide)
    return COPIERS if at_once else 0


def _wide(program: StreamProgram) -> int:
    return max(program.depth, sum(padded(product.extent) for product in program.products))


def _arranged(program: StreamProgram, target: Target) -> Shape | None:
    """The shape where tiles of four bytes are arranged for `wgmma`, if they may be, and fit."""
    shape = ARRANGED_TF32 if program.tf32 else ARRANGED
    fits = (not program.halves and target.wgmma and _wide(program) <= shape.wide
            and not _stays(program, OF_SINGLES[0], target)
            and _shared(program, shape) + sum(arranged_bytes(program, shape).values())
            <= target.shared_bytes - OWN_BYTES)
    return shape if fits else None


def _shape(program: StreamProgram, target: Target) -> Shape:
    """Return the first one that fits, with copiers of those that keep all multiprocessors busy.

    Raises
    ------
    NoTile
    """
    room = target.shared_bytes - OWN_BYTES
    wide = _wide(program)
    copiers = copiers_of(program, target)
    arranged = _arranged(program, target)
    if arranged is not None:
        return arranged
    usual = SHAPES if program.halves else OF_TF32 if program.tf32 else OF_SINGLES
    fitting = [shape for shape in (WITH_COPIERS if copiers else usual)
               if wide <= shape.wide and _shared(program, shape) <= room]
    if not fitting:
        raise NoTile(f"a block of {wide} columns does not fit on a multiprocessor")
    busy = (shape for shape in fitting if blocks_of(program, shape) >= target.workers)
    return next(busy, fitting[-1]) if copiers else fitting[0]


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
    shape = _shape(program, target)
    lane = Axis(program.problems, "lane", False, tuple(range(len(program.lengths))))
    copiers = copiers_of(program, target)
    barriers = 4 * shape.stages * BARRIER_BYTES if copiers else 0
    stays = not copiers and _stays(program, shape, target)
    blocks = shape.resident * target.workers if stays else blocks_of(program, shape)
    arranged = _arranged(program, target) is not None
    shared = _shared(program, shape, stays=stays) + barriers
    if arranged:
        shared += sum(arranged_bytes(program, shape).values())
    schedule = Schedule(
        (lane,), threads=(shape.threads + copiers, 1), blocks=blocks, stages=shape.stages,
        shared_bytes=shared, resident=shape.resident)
    return StreamKernel(
        group, schedule, {}, stores, bytes_moved=_moved(program),
        flops=program.problems * program.flops, program=program, shape=shape, copiers=copiers,
        stays=stays, arranged=arranged)


def _moved(program: StreamProgram) -> int:
    """Bytes read and written, each array once."""
    arrays: dict[Any, int] = {value: value.nbytes for value in program.arrays()}
    written = sum(prod(store.domain) * program.problems * store.target.dtype.itemsize
                  for store in program.stores)
    return sum(arrays.values()) + written
