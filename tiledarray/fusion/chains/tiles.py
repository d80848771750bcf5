"""Tiles of a chain: which shape they have, how long it takes, and where arrays lie on chip."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from tiledarray.fusion.chains.held import held
from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.chains.stages import Places, Stage
from tiledarray.fusion.ir import Value
from tiledarray.fusion.target import Target

THREADS = {1: (512, 1), 2: (32, 16), 3: (32, 16)}  # of a block, along lanes and rows
TOGETHER = 4  # rows computed by a thread, so that what they share is read once
MOST_THREADS = 2048  # of a multiprocessor
ENOUGH_THREADS = 768  # for it to be busy: fewer wait for shared memory most of the time
ALIGNMENT = 16


@functools.cache
def shapes(rank: int) -> list[Places]:
    """Shapes that a tile's memory may have."""
    lanes = (512, 1024, 2048) if rank == 1 else (32, 64, 96, 128)
    rows = ((), (), ((16, 32, 48, 64, 96),), ((6, 8, 12, 16), (8, 16, 24)))[rank]
    return [*product(*rows, lanes)]


def tile(chain: ChainKernel, target: Target, given: Iterable[Places] = ()) -> float | None:
    """Choose a chain's tile; return how long it takes, ``None`` if it does not fit on chip.

    With ``given``, the tile's memory has one of these shapes.
    """
    slots, count = _slots(chain)
    chain.schedule.threads = THREADS[len(chain.size)]
    itemsize = max(base.dtype.itemsize for base, _ in slots)
    best: tuple[float, Places, int, int] | None = None
    for extents in given or shapes(len(chain.size)):
        inner = tuple(min(n, extent - below - above) for n, extent, (below, above) in zip(
            chain.size, extents, chain.halo, strict=True))
        if min(inner) < 1:
            continue
        whole = tuple(n + below + above for n, (below, above) in zip(
            inner, chain.halo, strict=True))
        nbytes = -(-prod(whole) * itemsize // ALIGNMENT) * ALIGNMENT
        shared = count * nbytes
        if shared > target.shared_bytes - target.limits.own_bytes:
            continue
        chain.tile = inner
        seconds = _seconds(chain, inner, shared, target)
        if best is None or seconds < best[0]:
            best = seconds, inner, nbytes, shared
    if best is None:
        return None
    seconds, chain.tile, nbytes, shared = best
    chain.places = {key: slot * nbytes for key, slot in slots.items()}
    schedule = chain.schedule
    schedule.lane_tile, schedule.row_tile = chain.tile[-1], prod(chain.tile[:-1])
    schedule.blocks = prod(-(-n // m) for n, m in zip(chain.size, chain.tile, strict=True))
    schedule.shared_bytes = shared
    return seconds


def seconds_apart(stage: Stage, target: Target) -> float:
    """What a stage takes as a launch of its own."""
    kernel = stage.kernel
    return target.limits.chain_launch + max(
        kernel.bytes_moved / target.bytes_per_second, kernel.flops / target.flops_per_second)


def _seconds(chain: ChainKernel, inner: Places, shared: int, target: Target) -> float:
    """How long a chain takes with such tiles: what it computes on chip, and the memory's time."""
    limits = target.limits
    threads = prod(chain.schedule.threads)
    blocks = prod(-(-n // m) for n, m in zip(chain.size, inner, strict=True))
    rounds = -(-blocks // target.workers)
    at_once = max(1, min(limits.chain_shared // shared, MOST_THREADS // threads, rounds))
    cycles = 0.0
    for number, stage in enumerate(chain.stages):
        extents = [n + below + above
                   for n, (below, above) in zip(inner, chain.reach(number), strict=True)]
        one = held(chain, number)
        cycles += limits.chain_barrier / at_once + (
            _turns(extents) * stage.cycles if one is None else
            extents[0] * chain.extents[1] * (stage.operations + one.exchanges) / 96)
    extra = prod(n + below + above for n, (below, above) in zip(
        inner, chain.halo, strict=True)) / prod(inner)
    cycles += 2 * (len(chain.inputs) * extra + len(chain.outputs)) * prod(inner) / 32
    cycles *= rounds * max(1, ENOUGH_THREADS / (at_once * threads))
    moved = chain.bytes_moved * (1 + extra) / 2
    return limits.chain_launch + moved / target.bytes_per_second + cycles / limits.clock


def _turns(extents: Sequence[int]) -> int:
    """Points of a box, counted as the threads of a block go over it: some have nothing to do."""
    tx, ty = THREADS[len(extents)]
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
