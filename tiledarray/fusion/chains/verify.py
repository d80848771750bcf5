"""What must hold of every chain: what a stage reads is on chip, right, and not overwritten yet."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tiledarray.fusion.chains.held import alone
from tiledarray.fusion.chains.kernel import ChainKernel, Walk
from tiledarray.fusion.chains.resident import exchanges
from tiledarray.fusion.chains.walk import found_in_walk
from tiledarray.fusion.ir import Value


def found_in_chain(chain: ChainKernel) -> Iterator[str]:
    """Say what is wrong with a chain that has been cut into tiles."""
    made = {base for stage in chain.stages for base in stage.made}
    for number, stage in enumerate(chain.stages):
        where = f"stage {number} of a chain"
        for base in (stage.near | stage.afar | stage.changed) & made:
            if chain.version(base, number) < -1:
                yield f"{where} needs {base} before it is there"
        for base in stage.afar & made:
            yield f"{where} reads {base}, of which a tile is there, anywhere"
        for base in stage.changed - made:
            yield f"{where} overwrites {base}, which others may still read"
        yield from (f"{where} {text}" for text in _found_in_reach(chain, number))
        if chain.walk is None:
            yield from (f"{where} {text}" for text in _found_in_places(chain, number))
    if chain.rounds > 1:
        yield from _found_in_rounds(chain)
    if chain.walk is not None:
        yield from found_in_walk(chain, chain.walk)
        yield from _found_in_planes(chain, chain.walk)
        return
    room = prod(chain.extents) * max(base.dtype.itemsize for base, _ in chain.places)
    if max(chain.places.values()) + room > chain.schedule.shared_bytes:
        yield "tiles of a chain lie beyond its shared memory"


def _found_in_rounds(chain: ChainKernel) -> Iterator[str]:
    """What is around a tile after a round is all some neighbour's."""
    one = alone(chain)
    if not 0 < chain.rest <= len(chain.stages):
        yield "the last round of a chain has stages that there are not"
    if one is None:
        yield "a chain goes in rounds with what is not in registers alone"
    elif not exchanges(chain, one):
        yield "tiles of a chain that goes in rounds need what lies beyond its neighbours"


def _found_in_planes(chain: ChainKernel, steps: Walk) -> Iterator[str]:
    """Planes of a walk lie beside one another in shared memory."""
    end = 0
    for version, begin in sorted(chain.places.items(), key=lambda item: item[1]):
        if begin < end:
            yield f"planes of {version[0]} lie where others do"
        end = begin + steps.depths[version] * prod(chain.extents[1:]) * version[0].dtype.itemsize
    if end > chain.schedule.shared_bytes:
        yield "planes of a walk lie beyond its shared memory"


def _found_in_reach(chain: ChainKernel, number: int) -> Iterator[str]:
    """A stage reads no farther than what it reads was computed."""
    own = chain.reach(number)
    for part in chain.stages[number].parts:
        for base, (least, most) in part.near.items():
            if chain.version(base, number) < -1:
                continue
            known = chain.needed[number].get(base)
            low, high = chain.shift(part, least, base), chain.shift(part, most, base)
            if known is None or any(
                    below - a > have_below or above + b > have_above
                    for (below, above), a, b, (have_below, have_above) in zip(
                        own, low, high, known, strict=True)):
                yield f"reads {base} farther away than it is right"


def _found_in_places(chain: ChainKernel, number: int) -> Iterator[str]:
    """A stage makes arrays where nothing lies that is still to be read."""
    for base in chain.stages[number].made:
        begin = chain.places[base, number]
        for (other, version), place in chain.places.items():
            if (other, version) == (base, number) or version > number:
                continue
            if _is_alive(chain, other, version, number) and (
                    abs(place - begin) < prod(chain.extents) * min(
                        base.dtype.itemsize, other.dtype.itemsize)):
                yield f"makes {base} where {other} still lies"


def _is_alive(chain: ChainKernel, base: Value, version: int, number: int) -> bool:
    """Whether what a stage has made of an array is asked for by that stage or later."""
    last = len(chain.stages)
    if base in chain.outputs and chain.version(base, last) == version:
        return True
    return any(
        chain.version(base, later) == version and base in (
            chain.stages[later].near | chain.stages[later].changed)
        for later in range(number, last)) or version == number
