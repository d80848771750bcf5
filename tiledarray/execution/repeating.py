"""Loops over time: a plan that is run again and again, on what it has given.

The state is the loop's own: what the body overwrites is memory that a step has made, or a copy of
what the loop was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiledarray.core import run_program
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.execution import replay
from tiledarray.execution.instructions import KEPT_BYTES, program_of
from tiledarray.fusion.plan import Call
from tiledarray.graph.node import location
from tiledarray.ops.loop import Step, Steps

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

Owned = Callable[[int], bool]
# Takes the arrays that a step has, and what says whether the memory of one is the loop's own and
# nobody else's; returns the outputs of the step's signature.
Run = Callable[[list[Buffer], Owned], list[Buffer]]
# Takes the parameters of a step's signature; returns what runs it.
Bind = Callable[[Sequence[Any]], Run]

_COUNT = np.dtype(np.int64)


# Does several steps at once: takes the arrays that a step has, its number and by what that grows;
# returns the state.
Several = Callable[[list[Buffer], int, int], list[Buffer]]


ALL = 1 << 62  # steps: as many as there are


class Tiled(NamedTuple):
    """How several steps are done at once.

    Attributes
    ----------
    depth : int
        How many, at most.
    bind : callable
        Takes the scalars, and of how many steps; returns what does them, if that can be.
    """

    depth: int
    bind: Callable[[Sequence[Any], int], Several | None]


def repeating(
    steps: Steps, device: Device, binding: Callable[[Step], Bind], tiled: Tiled | None = None
) -> Callable[..., Any]:
    """Return what computes a loop's results from its operands, as a buffer or a tuple of them.

    Parameters
    ----------
    steps : Steps
    device : Device
    binding : callable
        Gives for a step what binds it to its parameters.
    tiled : Tiled, optional
    """
    binds = {step: binding(step) for step in steps.recordings}

    def bound(step: Step, scalars: Sequence[Any]) -> Run | None:
        return binds[step](step.filled(scalars)) if step in binds else None

    def compute(*operands: Any) -> Any:
        scalars = operands[steps.header:steps.header + steps.scalars]
        own = steps.body.scalars
        state = _State(device, operands[steps.header + steps.scalars:], steps.first)
        run = bound(steps.body, scalars[:own])
        if steps.goes is None:
            count, number, by = map(int, operands[:3])
            done = 0 if tiled is None else state.go_far(tiled, scalars, range(
                number, number + count * by, by))
            for k in range(number + done * by, number + count * by, by):
                state.number.fill(k)
                state.go(steps.body, run)
        else:
            (goes,) = state.given(steps.goes, bound(steps.goes, scalars[own:]))
            while goes.array.item():
                (goes,) = state.go(steps.body, run)
        return state.results()

    return compute


class _State:
    """The arrays of a loop that is under way, and whose memory they lie in.

    Attributes
    ----------
    number : array
        The number of the step.
    """

    def __init__(self, device: Device, arrays: Sequence[Any], first: int) -> None:
        counter = device.allocate((), _COUNT)
        given = [device.borrow(array) for array in arrays]
        self.number = counter.array
        self._arrays = [counter, *given]
        self._first = first
        self._count = len(self._arrays) - first
        self._lent = frozenset(buffer.pointer for buffer in self._arrays)

    def given(self, step: Step, run: Run | None) -> list[Buffer]:
        """Return what a step gives."""
        outputs = [] if run is None else run(self._arrays, self._is_own)
        if step.gives_outputs:
            return outputs
        found: list[Buffer] = []
        for computed, place in step.results:
            buffer = outputs[place] if computed else self._arrays[place]
            if not computed and place == 0:
                buffer = buffer.device.wrap(buffer.array, copy=True)  # the next step's number
            elif not computed or any(buffer is other for other in found):
                buffer = buffer.another()
            found.append(buffer)
        return found

    def go(self, step: Step, run: Run | None) -> list[Buffer]:
        """Do a step; return what it gives besides the state."""
        found = self.given(step, run)
        self._arrays[self._first:] = found[:self._count]
        return found[self._count:]

    def go_far(self, tiled: Tiled, scalars: Sequence[Any], numbers: range) -> int:
        """Do as many steps as are worth doing several at once; return how many."""
        done, runs = 0, dict[int, Several | None]()
        while len(numbers) - done > 1:
            count = min(tiled.depth, len(numbers) - done)
            if count not in runs:
                runs[count] = tiled.bind(scalars, count)
            run = runs[count]
            if run is None:
                break
            self._arrays[self._first:] = run(self._arrays, numbers[done], numbers.step)
            done += count
        return done

    def results(self) -> Any:
        """Return the state, in memory of its own."""
        found = tuple(buffer if buffer.pointer not in self._lent else buffer.device.wrap(
            buffer.array, copy=True) for buffer in self._arrays[self._first:])
        return found[0] if len(found) == 1 else found

    def _is_own(self, place: int) -> bool:
        buffer = self._arrays[place]
        return buffer.alone() and buffer.pointer not in self._lent


def by_plan(step: Step, executable: Executable) -> Bind:
    """Return what binds a step's compiled plan to its parameters."""
    places = [step.places[number] for _, number in executable.leaves]
    values = [value for value, _ in executable.leaves]
    overwritten = replay.stored_into(executable.plan)
    written = [k for k, value in enumerate(values) if value in overwritten]
    program: list[Any] = []

    def bind(params: Sequence[Any]) -> Run:
        if not program:
            small = sum(replay.own_memory(executable.plan)[1]) <= KEPT_BYTES
            program.append(program_of(executable, keeps=small))
        found, given = program[0], [*params]

        def run(arrays: list[Buffer], is_own: Owned) -> list[Buffer]:
            leaves = [arrays[place] for place in places]
            for k in written:
                if not is_own(places[k]):
                    leaves[k] = leaves[k].device.wrap(leaves[k].array, copy=True)
            outputs: list[Buffer] | None = None
            if found is not None:
                outputs = run_program(found, leaves, given)
            return step_by_step(leaves, params) if outputs is None else outputs

        return run

    def step_by_step(leaves: list[Buffer], params: Sequence[Any]) -> list[Buffer]:
        if executable.device.kind == "cuda" and executable.runs == replay.MET:
            replay.prepare(executable, params)
        try:
            return executable.run(dict(zip(values, leaves, strict=True)), params)
        except Exception as error:
            failed = executable.failed
            origin = executable.plan.origin.get(failed.value, -1) if isinstance(
                failed, Call) else -1
            place = location(step.sites[origin]) if origin >= 0 else None
            if place is not None:
                error.add_note(f"in a step, at {place[0]}:{place[1]}")
            raise

    return bind
