"""Sums over tables of all pairs of the same points, of which each pair is met once.

``f(x[:, None], x).sum(1)`` computes for points i and j what it computes for j and i as well, or
its negative, or much the same: distances are equal from either end.  So a block takes the points
of two tiles, sums along the one for each point of the other, and the other way round too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiledarray.fusion.both_ends import from_other_end
from tiledarray.fusion.ir import Access, Affine, Cell
from tiledarray.fusion.plan import Kernel, Mirror, Role, Strided
from tiledarray.fusion.schedule.bundles import find_bundles
from tiledarray.fusion.schedule.instructions import (
    PAIR_COST,
    PAIR_WORDS,
    cost_of,
    quick_op,
    words,
)
from tiledarray.fusion.target import Target
from tiledarray.ops import reduction
from tiledarray.ops.op import Elementwise, Update

MOST_LANES = 8  # of a thread: what a step reads, and adds up over the warp, is for all of them
THREADS = 256  # of a block
WARP = 32
SHARED_BYTES = 32 << 10  # of the sums of steps
STEP_COST = 4  # flops for each pair, to add up over lanes
MOST_SUMS = 4  # of a kernel
MOST_CELLS = 200  # the same


class _Alone(Exception):
    """From the other end a pair is something else."""


class _FromOtherEnd:
    """Cells as they are from the other end of a pair, by two axes of the domain.

    Each comes with whether that is the negative of the cell.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.loads: dict[Cell, Strided] = {}
        self.cells = [*kernel.cells]  # with those that are made
        self._kernel = kernel
        (a,), (b,) = (axis.domain for axis in kernel.schedule.axes)
        self._exchanged = {a: b, b: a}
        self._known: dict[tuple[Cell, bool], tuple[bool, Cell]] = {}
        self._applied_to: dict[object, Cell] = {
            _key(cell, cell.args): cell for cell in kernel.cells if cell.kind == "apply"}

    def __call__(self, cell: Cell, *, signed: bool = True) -> tuple[bool, Cell]:
        """Return whether it is the negative of another cell, and that one."""
        if not cell.axes & self._exchanged.keys():
            return False, cell
        key = cell, signed
        if key not in self._known:
            if cell.kind in ("load", "iota"):
                self._known[key] = False, self._read(cell)
            elif cell.kind == "apply":
                self._known[key] = self._applied(cell, signed=signed)
            else:
                raise _Alone
        return self._known[key]

    def _read(self, cell: Cell) -> Cell:
        """The same of the other point."""
        access = self._kernel.loads[cell]
        assert cell.access is not None
        turned = _turned(access)
        for other, its in (*self._kernel.loads.items(), *self.loads.items()):
            if other.kind == cell.kind and its == turned and (
                    other.value, other.args, other.dtype) == (cell.value, cell.args, cell.dtype):
                return other
        index = tuple(Affine(self._exchanged.get(at.axis, at.axis), at.step, at.terms)
                      for at in cell.access.index)
        made = self._add(replace(
            cell, number=len(self.cells), axes=self._turned(cell),
            access=Access(cell.access.value, index, cell.access.strides)))
        self.loads[made] = turned
        return made

    def _applied(self, cell: Cell, *, signed: bool) -> tuple[bool, Cell]:
        op = cell.value.op
        if not isinstance(op, Elementwise):
            raise _Alone
        minus, found = from_other_end(
            op, cell.args, self, signed=signed, floating=cell.dtype.kind == "f")
        if found is None or isinstance(found, Cell):
            return minus, cell if found is None else found
        args = tuple(found)
        key = _key(cell, args)
        if key not in self._applied_to:
            self._applied_to[key] = self._add(replace(
                cell, number=len(self.cells), args=args, axes=self._turned(cell)))
        return minus, self._applied_to[key]

    def _turned(self, cell: Cell) -> frozenset[int]:
        return frozenset(self._exchanged.get(axis, axis) for axis in cell.axes)

    def _add(self, cell: Cell) -> Cell:
        self.cells.append(cell)
        return cell


def _key(cell: Cell, args: tuple[Cell, ...]) -> object:
    """Equal for cells that apply the same to the same."""
    return cell.value.op, cell.value.attrs, cell.dtype, args


def mirror(kernel: Kernel, target: Target) -> bool:
    """Have each pair of points met once, if the kernel sums over all of them and that pays.

    It has no tile yet, and whatever nest; then lanes meet steps (`instructions.pairs`).
    """
    if not _may_be(kernel):
        return False
    axes = kernel.schedule.axes
    if axes[1].reduced:
        _turn(kernel)
    if _meet_once(kernel, target):
        return True
    if axes[1].reduced:
        _turn(kernel)
    return False


def _meet_once(kernel: Kernel, target: Target) -> bool:
    sums = [cell for cell in kernel.cells if cell.kind == "reduce"]
    other_end = _FromOtherEnd(kernel)
    try:
        ends = {cell: other_end(cell.args[0]) for cell in sums}
    except _Alone:
        return False
    both = frozenset(axis for part in kernel.schedule.axes for axis in part.domain)
    cost, more = (cost_of(cell for cell in cells if cell.axes >= both) + len(sums)
                  for cells in (kernel.cells, other_end.cells[len(kernel.cells):]))
    if 1.25 * (cost + more + STEP_COST) > 2 * cost:
        return False
    if not _tile(kernel, target, [*kernel.loads, *other_end.loads], sums, cost + more):
        return False
    for cell, (negative, end) in ends.items():
        made = replace(cell, number=len(other_end.cells), args=(end,))
        other_end.cells.append(made)
        kernel.mirrors[made] = Mirror(cell, negative)
    kernel.group = replace(kernel.group, cells=other_end.cells,
                           loads=[*kernel.group.loads, *other_end.loads])
    kernel.loads.update(other_end.loads)
    find_bundles(kernel)
    return True


def _may_be(kernel: Kernel) -> bool:
    """Whether it sums float values over a square, and nothing else."""
    schedule, group = kernel.schedule, kernel.group
    if len(schedule.axes) != 2 or group.phases != 1 or schedule.scanned or (
            sum(axis.reduced for axis in schedule.axes) != 1):
        return False
    if kernel.border is not None or kernel.positions or any(
            all(access.strides) or access.wrap is not None for access in kernel.loads.values()):
        return False
    if len(kernel.cells) > MOST_CELLS or any(
            store.sink.level == "full" or isinstance(store.sink.value.op, Update)
            for store in kernel.stores):  # of an update the other end may read what is written
        return False
    one, other = schedule.axes
    if one.size != other.size or any(len(axis.domain) != 1 or axis.period for axis in (one, other)):
        return False
    sums = [cell for cell in kernel.cells if cell.kind == "reduce"]
    return 0 < len(sums) <= MOST_SUMS and all(map(_is_float_sum, sums)) and not any(
        cell.kind in ("gather", "scan", "across") for cell in kernel.cells)


def _turn(kernel: Kernel) -> None:
    """Have rows for lanes and reduced lanes for steps, or the other way round."""
    first, second = kernel.schedule.axes
    roles: tuple[Role, Role] = ("step", "lane") if second.reduced else ("row", "lane")
    kernel.schedule.axes = replace(second, role=roles[0]), replace(first, role=roles[1])
    kernel.loads.update({cell: _turned(access) for cell, access in kernel.loads.items()})
    for store in kernel.stores:
        store.access = _turned(store.access)


def _turned(access: Strided) -> Strided:
    return replace(access, strides=access.strides[::-1])


def _is_float_sum(cell: Cell) -> bool:
    """Whether a reduction adds up floats as they are."""
    accumulate = cell.value.attrs[1] if cell.value.op is reduction.sum else None
    return cell.value.op is reduction.sum and cell.dtype.char in "fd" and (
        cell.args[0].dtype == cell.dtype and accumulate in (None, cell.dtype)) and (
        cell.args[0].kind == "apply")


def _tile(kernel: Kernel, target: Target, loads: Iterable[Cell], sums: list[Cell],
          cost: int) -> bool:
    """Cut the points into tiles, if that leaves enough pairs of those for a device."""
    schedule, limits = kernel.schedule, target.limits
    lanes = frozenset(schedule.lane.domain)
    own = sum(words(cell.dtype) for cell in loads if cell.axes & lanes)
    own += sum(4 * words(cell.dtype) for cell in sums)
    width = MOST_LANES
    while width > 1 and (width * own > PAIR_WORDS or width * cost > PAIR_COST):
        width //= 2
    n = schedule.lane.size
    for tile in limits.mirror_tiles if width > 1 else ():
        tiles = -(-n // tile)
        lanes_of = min(width, tile // WARP)
        tx = tile // lanes_of
        parts = sum(tiles * n * total_bytes(cell) for cell in sums)
        sums_bytes = tx // WARP * tile * sum(cell.dtype.itemsize for cell in sums)
        if tx <= THREADS and sums_bytes <= SHARED_BYTES and parts <= limits.mirror_bytes and (
                tiles * (tiles + 1) // 2 >= limits.mirror_blocks * target.workers > 0):
            schedule.width, schedule.threads = lanes_of, (tx, THREADS // tx)
            schedule.lane_tile, schedule.splits = tile, tiles
            return True
    return False


def total_bytes(cell: Cell) -> int:
    """Of a sum of floats, as tiles leave it for the last: twice its precision."""
    return 2 * cell.dtype.itemsize


def steps_together(kernel: Kernel, cost: int) -> int:
    """Steps whose totals are added up over a warp together."""
    work = kernel.schedule.width * max(1, cost)
    # A loop is written for each usual exponent: all of them compile in the time of one.
    several = any((op := quick_op(cell)) is not None and op.usual for cell in kernel.cells)
    most = (2 if several else 3) * PAIR_COST
    return next(n for n in (4, 2, 1) if n * work <= most or n == 1)
