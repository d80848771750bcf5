"""Rounds of stages on tiles that stay on chip: the blocks of one launch all run at a time.

A chain ends where what is around its tiles is used up: the next launch reads them anew.  Where
stages repeat and all tiles fit on the device at once, blocks go on instead, once their neighbours
have left what they need of the edges in memory, which is the device's L2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tiledarray.fusion.chains.held import WARP, Held, alone
from tiledarray.fusion.chains.kernel import ChainKernel, chain
from tiledarray.fusion.chains.stages import Part, Stage
from tiledarray.fusion.chains.tiles import BLOCK_THREADS, REGISTERS, Cut, cuts, take
from tiledarray.fusion.ir import Cell, Value, storage
from tiledarray.fusion.target import Target

LENGTHS = (4, 6, 8, 12, 16)  # stages of a round
LEAST = 2  # rounds
ROWS = (48, 64, 80, 96, 112, 128)  # of a tile's memory
LANES = (64, 128)
OWN_REGISTERS = 20  # of a thread, beside what it holds
GRANULARITY = 8  # of a thread's registers
RESERVED = 1 << 10  # bytes of shared memory of each block that are the system's
LEAST_THREADS = 1536  # that any multiprocessor holds


def repeated(run: Sequence[Stage], memory: dict[Value, Value]) -> int:
    """How many stages do what the first does, each with what the one before has made."""
    first = run[0]
    if len(first.parts) != 1 or len(first.made) != 1 or first.changed:
        return 1
    met = first.near | first.afar | first.made  # blocks may still read these
    count = 1
    for before, stage in itertools.pairwise(run):
        (made,) = before.made
        if (made not in stage.near or not _repeats(stage, first, made, memory)
                or stage.changed or stage.made & met):
            break
        met |= stage.made
        count += 1
    return count


def _repeats(stage: Stage, first: Stage, made: Value, memory: dict[Value, Value]) -> bool:
    """Whether a stage differs from the first in the array alone that it reads and makes."""
    if stage.does != first.does or len(stage.made) != 1 or stage.around != first.around:
        return False
    (part,), (other,) = stage.parts, first.parts
    cells, twins = part.kernel.cells, other.kernel.cells
    border = part.kernel.border
    if _border(part) != _border(other) or (
            border is not None and border.fill is None and memory[border.old] is not made):
        return False
    return [cell.number for cell in cells] == [cell.number for cell in twins] and all(
        _reads_the_same(cell, cell in part.reads, twin, made, memory)
        for cell, twin in zip(cells, twins, strict=True))


def _border(part: Part) -> tuple[Any, ...] | None:
    """What a part leaves as it was, but for where that lies."""
    border = part.kernel.border
    return None if border is None else (
        border.sizes, border.extents, None if border.fill is None else border.fill.value)


def _reads_the_same(cell: Cell, near: bool, twin: Cell, made: Value,
                    memory: dict[Value, Value]) -> bool:
    """Whether a cell is another one's scalar, or reads what that does, but for the array made."""
    if cell.kind == "param":
        return cell.value == twin.value
    if cell.kind != "load":
        return cell.value.attrs == twin.value.attrs
    assert cell.access is not None and twin.access is not None
    if near and memory[storage(cell.access.value)] is made:
        return True  # as far away as the other: that is of what the stages do
    return (cell.access.value is twin.access.value and cell.access.index == twin.access.index
            and cell.access.strides == twin.access.strides)


def resident(stages: Sequence[Stage], memory: dict[Value, Value], target: Target) -> (
        tuple[ChainKernel, float] | None):
    """Return repeated stages as rounds on tiles that stay on chip, and how long they take.

    ``None`` where the device has no room for all tiles at a time.
    """
    best: tuple[float, ChainKernel, Cut] | None = None
    for length in LENGTHS:
        rounds = -(-len(stages) // length)
        if not LEAST <= rounds <= target.limits.chain_rounds:
            continue
        (made,) = stages[length - 1].made
        found = chain([*stages[:length]], memory, {made}, stages[-1])
        if found is None or len(found.size) != 2 or found.outputs != [made]:
            continue
        found.rounds, found.rest = rounds, len(stages) - (rounds - 1) * length
        found.flops = sum(stage.kernel.flops for stage in stages)
        for cut in _cuts(found, target):
            if best is None or cut.seconds < best[0]:
                best = cut.seconds, found, cut
    if best is None:
        return None
    seconds, found, cut = best
    take(found, cut)
    return found, seconds


def _cuts(kernel: ChainKernel, target: Target) -> Iterator[Cut]:
    """Tiles of which the device holds all at once, each with edges that neighbours alone need."""
    limits = target.limits
    shapes = [(rows, lanes) for rows in ROWS for lanes in LANES]
    for cut in cuts(kernel, target, shapes):
        kernel.tile, kernel.schedule.threads = cut.tile, cut.threads
        one = alone(kernel)
        if one is None or not exchanges(kernel, one):
            continue
        threads = prod(cut.threads)
        blocks = prod(-(-n // m) for n, m in zip(kernel.size, cut.tile, strict=True))
        at_once = -(-blocks // target.workers)
        registers = REGISTERS // (at_once * threads) // GRANULARITY * GRANULARITY
        shared = at_once * (cut.shared + limits.own_bytes + RESERVED)
        if (registers < one.words + OWN_REGISTERS or threads > BLOCK_THREADS
                or at_once * threads > LEAST_THREADS or shared > target.shared_bytes + RESERVED):
            continue
        seconds = limits.chain_launch + kernel.bytes_moved / target.bytes_per_second
        seconds += (cut.seconds - seconds) * kernel.steps / len(kernel.stages)
        yield Cut(seconds + kernel.rounds * limits.chain_exchange, cut.tile, cut.threads,
                  cut.places, cut.shared, resident=at_once)


def exchanges(kernel: ChainKernel, one: Held) -> bool:
    """Whether all that a tile needs around it is a neighbour's, and begins where lanes do."""
    begins = kernel.extents[1] == one.lanes * WARP and all(
        n % one.lanes == 0 for n in kernel.halo[1])
    return begins and all(
        max(around) <= n for around, n in zip(kernel.halo, kernel.tile, strict=True))


def edge_bytes(kernel: ChainKernel) -> int:
    """Memory for what blocks leave for one another: of two rounds, as neighbours may be behind."""
    (base,) = kernel.outputs
    return 2 * base.dtype.itemsize * prod(
        -(-n // m) * m for n, m in zip(kernel.size, kernel.tile, strict=True))
