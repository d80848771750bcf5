"""Chains in space: a block goes along the first dimension, plane after plane.

At each *turn* every stage computes one plane, each of them some planes behind the one before, so
that what it reads is there; of each array on chip so many planes are held as are still read.  A
halo around a whole tile in space would be more than the tile itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiledarray.fusion.chains.kernel import AHEAD, ChainKernel, Version, Walk
from tiledarray.fusion.chains.stages import Part
from tiledarray.fusion.ir import Value


@dataclass(frozen=True, slots=True)
class Use:
    """A stage's use of an array on chip: from so many planes below to so many above its own."""

    version: Version
    below: int
    above: int


def versions(chain: ChainKernel) -> list[Version]:
    """All that may be on chip."""
    return [*((base, -1) for base in chain.inputs), *(
        (base, number) for number, stage in enumerate(chain.stages)
        for base in sorted(stage.made, key=lambda value: value.number))]


def uses(chain: ChainKernel) -> list[list[Use]]:
    """What each stage reads, or overwrites in part, of what is on chip."""
    newest = {base: (base, -1) for base in chain.inputs}
    found = []
    for number, stage in enumerate(chain.stages):
        found.append([
            *(Use(newest[base], *_planes(chain, part, base))
              for part in stage.parts for base in part.near if base in newest),
            *(Use(newest[base], 0, 0) for base in stage.changed)])
        newest.update((base, (base, number)) for base in stage.made)
    return found


def _planes(chain: ChainKernel, part: Part, base: Value) -> tuple[int, int]:
    least, most = part.near[base]
    return (max(0, -chain.shift(part, least, base)[0]), max(0, chain.shift(part, most, base)[0]))


def walk(chain: ChainKernel) -> Walk:
    """Return how a block may go along the first dimension."""
    found, everything = Walk(), versions(chain)
    ready = {(base, -1): -1 for base in chain.inputs}  # the lag of what a plane is last changed by
    begun = {(base, -1): -AHEAD for base in chain.inputs}
    until = {**begun}
    used_at_all = set[Version]()
    for number, (stage, used) in enumerate(zip(chain.stages, uses(chain), strict=True)):
        changed = {use.version for use in used if use.version[0] in stage.changed}
        lag = max([0, *(ready[use.version] + use.above + 1 for use in used),
                   *(until[version] + 1 for version in changed)])
        found.lags.append(lag)
        for use in used:
            until[use.version] = max(until[use.version], lag + use.below)
            used_at_all.add(use.version)
        for base in stage.made:
            ready[base, number] = begun[base, number] = until[base, number] = lag
        ready.update(dict.fromkeys(changed, lag))
    newest = dict(everything)
    last = {base: (base, newest[base]) for base in chain.outputs}
    found.direct = frozenset(base for base, (_, number) in last.items() if (
        last[base] not in used_at_all and not any(map(any, chain.reach(number)))))
    for base, version in last.items():
        if base not in found.direct:
            found.leaves[base] = ready[version] + 1
            until[version] = max(until[version], found.leaves[base])
    written = {last[base] for base in found.direct}
    found.depths = {version: until[version] - begun[version] + 1
                    for version in everything if version not in written}
    return found


def found_in_walk(chain: ChainKernel, steps: Walk) -> Iterator[str]:
    """Say what is wrong with the turns of a chain: what is read is there, and is still there."""
    written: dict[Version, list[int]] = {(base, -1): [-1] for base in chain.inputs}
    read: dict[Version, list[int]] = {}
    for number, (stage, used) in enumerate(zip(chain.stages, uses(chain), strict=True)):
        lag = steps.lags[number]
        for use in used:
            text = _found_in_use(use, lag, steps, written[use.version])
            if use.version[0] in stage.changed and any(
                    lag <= turn for turn in read.get(use.version, ())):
                text = "changes planes that are still read"
            if text:
                yield f"stage {number} of a walk {text} of {use.version[0]}"
        for use in used:
            read.setdefault(use.version, []).append(lag + use.below)
            if use.version[0] in stage.changed:
                written[use.version].append(lag)
        for base in stage.made:
            written[base, number] = [lag]
    newest = dict(versions(chain))
    for base in chain.outputs:
        version = base, newest[base]
        if base in steps.direct:
            if version in read:
                yield f"{base} is read, but not on chip"
        elif not max(written[version]) < steps.leaves[base] < (
                _begun(version, written[version]) + steps.depths[version]):
            yield f"planes of {base} are copied too early or too late"


def _begun(version: Version, written: list[int]) -> int:
    """The lag with which planes first take their place."""
    return -AHEAD if version[1] < 0 else written[0]


def _found_in_use(use: Use, lag: int, steps: Walk, written: list[int]) -> str:
    """Say what is wrong with what a stage reads of an array; nothing of what is right."""
    if lag - use.above <= max(written):
        return "reads planes before they are there"
    if lag + use.below - _begun(use.version, written) >= steps.depths.get(use.version, 0):
        return "reads planes that are overwritten"
    return ""
