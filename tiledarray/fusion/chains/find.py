"""Which launches become chains: runs of stages, cut where a model says that it pays most."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from tiledarray.fusion.chains.kernel import ChainKernel, chain
from tiledarray.fusion.chains.resident import repeated, resident
from tiledarray.fusion.chains.stages import Stage, stage_of
from tiledarray.fusion.chains.tiles import seconds_apart, tile
from tiledarray.fusion.ir import Value, storage
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Kernel, Step
from tiledarray.fusion.regions import Regions
from tiledarray.fusion.target import Target


def in_chains(steps: list[Step], memory: dict[Value, Value], outputs: Sequence[Value],
              regions: Regions, target: Target) -> list[Step]:
    """Return the steps with those in a row that are sooner done together as chains."""
    if target.kind != "cuda" or len(steps) < 2 or not target.limits.chain_gain:
        return steps
    stages = [stage_of(step, memory, regions) if isinstance(step, Kernel) else None
              for step in steps]
    if not any(one and other for one, other in itertools.pairwise(stages)):
        return steps
    finder = _Finder(memory, _last_uses(steps, memory, outputs), regions, target)
    result: list[Step] = []
    number = 0
    while number < len(steps):
        run = _run_from(stages, number)
        if run:
            result += finder.cut(run, number)
        else:
            result.append(steps[number])
        number += max(1, len(run))
    return result


def _last_uses(steps: list[Step], memory: dict[Value, Value], outputs: Sequence[Value]) -> (
        dict[Value, int]):
    """The last step that touches each memory; what is needed afterwards is beyond all of them."""
    last: dict[Value, int] = {}
    for number, step in enumerate(steps):
        last.update((memory[storage(value)], number) for value in touched(step))
    last.update((memory[storage(value)], len(steps)) for value in outputs)
    return last


def _run_from(stages: Sequence[Stage | None], first: int) -> list[Stage]:
    """Stages in a row, on arrays of as many dimensions."""
    run: list[Stage] = []
    for stage in stages[first:]:
        if stage is None or (run and stage.rank != run[0].rank):
            break
        run.append(stage)
    return run


class _Finder:
    """Cuts runs of stages into chains."""

    def __init__(self, memory: dict[Value, Value], last: dict[Value, int], regions: Regions,
                 target: Target) -> None:
        self._memory, self._last, self._regions = memory, last, regions
        self._target = target
        self._in_vain: set[Any] = set()  # what stages begin with from which no chain pays
        self._in_launches: set[Any] = set()  # what stages do that do not stay on chip in rounds

    def cut(self, run: list[Stage], first: int) -> Iterator[Step]:
        """Cut a run, which begins at that step, into chains, and stages that stay launches."""
        at = 0
        before: ChainKernel | None = None
        while at < len(run):
            best = (None if before is None else self._again(before, run, at, first)) or (
                self._best(run, at, first))
            if best is None:
                yield run[at].kernel
                at += 1
                continue
            best = self._resident(best, run, at, first) or best
            for stage in run[at:at + best.steps]:
                self._regions.assumed.update(dict.fromkeys(stage.assumed))
            yield best
            before = best if best.rounds == 1 else None
            at += best.steps

    def _best(self, run: list[Stage], at: int, first: int) -> ChainKernel | None:
        """The chain from one stage on that saves most, if any saves enough."""
        begin = tuple(stage.does for stage in run[at:at + 2])
        if begin in self._in_vain:
            return None
        best: ChainKernel | None = None
        limits = self._target.limits
        gain, apart = limits.chain_gain, seconds_apart(run[at], self._target)
        for length in range(2, min(limits.chain_stages, len(run) - at) + 1):
            stages = run[at:at + length]
            apart += seconds_apart(stages[-1], self._target)
            if _texts(stages) > limits.parts:
                break
            if not _is_whole(run, at, length):
                continue
            found = self._chain(stages, first + at)
            seconds = None if found is None else tile(found, self._target)
            if seconds is not None and apart / seconds > gain:
                best, gain = found, apart / seconds
        if best is None:
            self._in_vain.add(begin)
            return None
        # The rest is shared out evenly, so that fewer kernels differ.
        rest = len(run) - at
        even = ceil(rest / ceil(rest / len(best.stages)))
        if 1 < even < len(best.stages) and _is_whole(run, at, even):
            other = self._chain(run[at:at + even], first + at)
            if other is not None and tile(other, self._target) is not None:
                return other
        return best

    def _resident(self, usual: ChainKernel, run: list[Stage], at: int, first: int) -> (
            ChainKernel | None):
        """Stages that repeat as rounds on tiles that stay on chip, where launches take longer."""
        if len(run[at].parts) != 1 or run[at].does in self._in_launches:
            return None
        count = repeated(run[at:at + self._passed_on(run, at, first)], self._memory)
        while count and not _is_whole(run, at, count):
            count -= 1
        if count <= len(usual.stages):
            return None
        found = resident(run[at:at + count], self._memory, self._target)
        if found is not None:
            kernel, seconds = found
            one = tile(usual, self._target, (usual.extents,))
            if one is not None and seconds < one * count / len(usual.stages):
                return kernel
        self._in_launches.add(run[at].does)
        return None

    def _passed_on(self, run: list[Stage], at: int, first: int) -> int:
        """How many stages make what the next one alone asks for, and the one after these."""
        for number, stage in enumerate(run[at:], at):
            if any(self._last[made] > first + number + 1 for made in stage.made):
                return number + 1 - at
        return len(run) - at

    def _again(self, before: ChainKernel, run: list[Stage], at: int, first: int) -> (
            ChainKernel | None):
        """A chain like the one before, of stages that do the same."""
        stages = run[at:at + len(before.stages)]
        if [stage.does for stage in stages] != [stage.does for stage in before.stages] or (
                not _is_whole(run, at, len(stages))):
            return None
        found = self._chain(stages, first + at)
        return None if found is None or tile(found, self._target, (before.extents,)) is None else (
            found)

    def _chain(self, stages: list[Stage], first: int) -> ChainKernel | None:
        end = first + len(stages) - 1
        kept = {base for stage in stages for base in stage.made if self._last[base] > end}
        return chain(stages, self._memory, kept)


def _texts(stages: Sequence[Stage]) -> int:
    """How many parts have a text of their own, which the compiler has to work through."""
    return sum(map(len, {stage.text for stage in stages}))


def _is_whole(run: list[Stage], at: int, length: int) -> bool:
    """Whether no stage changes what was there before, and the next one nothing that is made."""
    made = set[Value]()
    for stage in run[at:at + length]:
        if not stage.changed <= made:
            return False
        made |= stage.made
    following = run[at + length] if at + length < len(run) else None
    return following is None or not following.changed & made
