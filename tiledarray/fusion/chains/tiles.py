"""Tiles of a chain: which shape they have, how long it takes, and where arrays lie on chip."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as chain_of
from itertools import product
from math import prod

from tiledarray.fusion.chains.held import WARP, held
from tiledarray.fusion.chains.kernel import ChainKernel, Version, Walk
from tiledarray.fusion.chains.stages import MOST_AXES, Places, Stage
from tiledarray.fusion.chains.walk import walk
from tiledarray.fusion.ir import Value
from tiledarray.fusion.target import Target

THREADS = {1: (512, 1), 2: (32, 16), 3: (32, 16)}  # of a block, along lanes and rows
TOGETHER = 4  # rows computed by a thread, so that what they share is read once
MOST_THREADS = 2048  # of a multiprocessor
ENOUGH_THREADS = 768  # for it to be busy: fewer wait for shared memory most of the time
HELD_ROWS = (6, 8)  # of a thread that has an array in registers, if not as many as of others
ENOUGH_HELD = 384  # the same of threads that hold arrays in registers
SCHEDULERS = 4  # of a multiprocessor, between which its warps are shared out
BLOCK_THREADS = 1024  # of a block, at most
REGISTERS = 1 << 16  # of a multiprocessor
WALK_REGISTERS = 64  # of a thread of a walk
MOST_ROUNDS = 4  # blocks of a multiprocessor, one after the other, that go from plane to plane
ALIGNMENT = 16


@functools.cache
def shapes(rank: int) -> list[Places]:
    """Shapes that a tile's memory may have."""
    lanes = (512, 1024, 2048) if rank == 1 else (32, 64, 96, 128)
    rows = ((), (), ((16, 32, 48, 64, 96),), ((6, 8, 12, 16), (8, 16, 24)))[rank]
    return [*product(*rows, lanes)]


@functools.cache
def planes() -> list[Places]:
    """Shapes that a plane's memory may have."""
    return [*product((16, 24, 32, 64), (64, 96, 128))]


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut a chain: its tile, the threads of a block, and where arrays lie on chip."""

    seconds: float
    tile: Places
    threads: tuple[int, int]
    places: dict[Version, int]
    shared: int
    walk: Walk | None = None
    resident: int = 0  # blocks of a multiprocessor that registers should have room for


def tile(chain: ChainKernel, target: Target, given: Iterable[Places] = ()) -> float | None:
    """Choose a chain's tile; return how long it takes, ``None`` if it does not fit on chip.

    With ``given``, the tile's memory has one of these shapes.
    """
    given = [*given]
    found = cuts(chain, target, given or shapes(len(chain.size)))
    if len(chain.size) == MOST_AXES:
        found = chain_of(found, _walks(chain, target, given))
    best = min(found, key=lambda cut: cut.seconds, default=None)
    if best is None:
        return None
    take(chain, best)
    return best.seconds


def take(chain: ChainKernel, cut: Cut) -> None:
    """Cut a chain so."""
    chain.tile, chain.places, chain.walk = cut.tile, cut.places, cut.walk
    schedule = chain.schedule
    schedule.threads, schedule.resident = cut.threads, cut.resident
    schedule.lane_tile, schedule.row_tile = chain.tile[-1], prod(chain.tile[:-1])
    schedule.blocks = prod(-(-n // m) for n, m in zip(chain.size, chain.tile, strict=True))
    schedule.shared_bytes = cut.shared


def cuts(chain: ChainKernel, target: Target, memories: Iterable[Places]) -> Iterator[Cut]:
    """Tiles that are on chip whole, of which the memory has such shapes."""
    slots, count = _slots(chain)
    itemsize = max(base.dtype.itemsize for base, _ in slots)
    for extents in memories:
        inner = _inside(chain, extents)
        if min(inner) < 1:
            continue
        nbytes = _aligned(prod(_around(chain, inner)) * itemsize)
        shared = count * nbytes
        if shared > target.shared_bytes - target.limits.own_bytes:
            continue
        places = {key: slot * nbytes for key, slot in slots.items()}
        for threads in _threads(_around(chain, inner)):
            chain.tile, chain.schedule.threads = inner, threads  # what stages hold depends on it
            if threads != THREADS[len(inner)] and not all(
                    held(chain, number) for number in range(len(chain.stages))):
                continue
            yield Cut(_seconds(chain, inner, shared, target), inner, threads, places, shared)


def _threads(extents: Places) -> Iterator[tuple[int, int]]:
    """How many threads may share a tile: the usual, and fewer that each hold more rows of it."""
    usual = THREADS[len(extents)]
    yield usual
    if len(extents) == 2:
        yield from ((WARP, extents[0] // rows) for rows in HELD_ROWS
                    if extents[0] % rows == 0 and extents[0] // rows < usual[1])


def _walks(chain: ChainKernel, target: Target, given: Sequence[Places]) -> Iterator[Cut]:
    """Tiles of which some planes are on chip at a time."""
    steps = walk(chain)
    for extents in [extents[1:] for extents in given] or planes():
        inner = _inside(chain, (1 << 30, *extents))[1:]
        if min(inner) < 1:
            continue
        rows, lanes = _around(chain, (1, *inner))[1:]
        threads = -(-lanes // WARP) * WARP, -(-rows // TOGETHER)
        places, shared = {}, 0
        for version, depth in steps.depths.items():
            places[version] = shared
            shared += _aligned(depth * rows * lanes * version[0].dtype.itemsize)
        if prod(threads) > BLOCK_THREADS or shared > (
                target.shared_bytes - target.limits.own_bytes):
            continue
        across = prod(-(-n // m) for n, m in zip(chain.size[1:], inner, strict=True))
        lengths = dict.fromkeys(-(-chain.size[0] // parts) for parts in range(
            1, 1 + max(1, MOST_ROUNDS * target.workers // across)))
        resident = min(target.limits.chain_shared // shared, REGISTERS // (
            prod(threads) * WALK_REGISTERS))
        for length in lengths if resident else ():
            cut = length, *inner
            if not given or _around(chain, cut) in given:
                seconds = _seconds_of_walk(chain, steps, cut, threads, resident, target)
                yield Cut(seconds, cut, threads, places, shared, steps, resident)


def _inside(chain: ChainKernel, extents: Places) -> Places:
    """What a block writes of a tile with such memory."""
    return tuple(min(n, extent - below - above) for n, extent, (below, above) in zip(
        chain.size, extents, chain.halo, strict=True))


def _around(chain: ChainKernel, inner: Places) -> Places:
    return tuple(n + below + above for n, (below, above) in zip(inner, chain.halo, strict=True))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def seconds_apart(stage: Stage, target: Target) -> float:
    """What a stage takes as a launch of its own."""
    kernel, limits = stage.kernel, target.limits
    slower = limits.chain_space if stage.rank == MOST_AXES else 1.0
    return limits.chain_launch + max(kernel.bytes_moved * slower / target.bytes_per_second,
                                     kernel.flops / target.flops_per_second)


def _seconds(chain: ChainKernel, inner: Places, shared: int, target: Target) -> float:
    """How long a chain takes with such tiles: what it computes on chip, and the memory's time."""
    limits = target.limits
    threads = chain.schedule.threads
    blocks = prod(-(-n // m) for n, m in zip(chain.size, inner, strict=True))
    rounds = -(-blocks // target.workers)
    at_once = max(1, min(limits.chain_shared // shared, MOST_THREADS // prod(threads), rounds))
    cycles, in_registers = 0.0, 0
    for number, stage in enumerate(chain.stages):
        extents = [n + below + above
                   for n, (below, above) in zip(inner, chain.reach(number), strict=True)]
        one = held(chain, number)
        in_registers += one is not None
        cycles += limits.chain_barrier / at_once + (
            _turns(extents, threads) * stage.cycles if one is None else
            _even(threads[1] * at_once) / at_once * one.rows * chain.extents[1] * (
                stage.operations + one.exchanges) / 96)
    extra = prod(n + below + above for n, (below, above) in zip(
        inner, chain.halo, strict=True)) / prod(inner)
    cycles += 2 * (len(chain.inputs) * extra + len(chain.outputs)) * prod(inner) / 32
    enough = ENOUGH_THREADS if in_registers < len(chain.stages) else ENOUGH_HELD
    cycles *= rounds * max(1, enough / (at_once * prod(threads)))
    moved = chain.bytes_moved * (1 + extra) / 2
    return limits.chain_launch + moved / target.bytes_per_second + cycles / limits.clock


def _seconds_of_walk(chain: ChainKernel, steps: Walk, inner: Places, threads: Places, resident: int,
                     target: Target) -> float:
    """The same of a walk, which copies planes meanwhile."""
    limits = target.limits
    whole = _around(chain, inner)
    blocks = prod(-(-n // m) for n, m in zip(chain.size, inner, strict=True))
    at_once = min(resident, -(-blocks // target.workers))
    rounds = -(-blocks // (at_once * target.workers)) * at_once
    points = prod(threads) * TOGETHER
    cycles = limits.chain_barrier + points * (
        sum(stage.cycles for stage in chain.stages)
        + (len(chain.inputs) + 2 * len(steps.leaves)) / WARP)
    cycles *= (whole[0] + steps.last) * rounds * max(1, ENOUGH_THREADS / (
        at_once * prod(threads)))
    extra = prod(whole) / prod(inner)
    parts = (chain.bytes_moved * (1 + extra) / 2 / target.bytes_per_second,
             cycles / limits.clock)
    return limits.chain_launch + max(parts) + min(parts) / 8


def _even(warps: int) -> int:
    """Warps of a multiprocessor as its schedulers have them: each as many as the busiest."""
    return -(-warps // SCHEDULERS) * SCHEDULERS


def _turns(extents: Sequence[int], threads: tuple[int, int]) -> int:
    """Points of a box, counted as the threads of a block go over it: some have nothing to do."""
    tx, ty = threads
    *outer, lanes = extents
    together = TOGETHER if outer else 1
    rows = -(-outer[-1] // together) * prod(outer[:-1]) if outer else 1
    return -(-lanes // tx) * tx * -(-rows // ty) * ty * together


def _slots(chain: ChainKernel) -> tuple[dict[tuple[Value, int], int], int]:
    """Which place in shared memory each array has; how many there are.

    A place is free again after the last stage that reads or changes what lies there.
    """
    stages = chain.stages
    last: dict[Value, int] = dict.fromkeys(chain.inputs, -1)
    for number, stage in enumerate(stages):
        last.update(dict.fromkeys((*stage.near, *stage.written), number))
    last.update(dict.fromkeys(chain.outputs, len(stages)))
    found: dict[tuple[Value, int], int] = {}
    held: dict[int, Value] = {}
    count = 0
    made = [(base, -1) for base in chain.inputs]
    made += [(base, number) for number, stage in enumerate(stages)
             for base in sorted(stage.made, key=lambda v: v.number)]
    for base, number in made:
        free = [slot for slot in range(count) if last[held[slot]] < number]
        slot = free[0] if free else count
        count = max(count, slot + 1)
        held[slot] = base
        found[base, number] = slot
    return found, count
