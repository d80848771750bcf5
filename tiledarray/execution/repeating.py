"""Loops over time: a plan that is run again and again, on what it has given.

The state is the loop's own: what the body overwrites is memory that a step has made, or a copy of
what the loop was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tiledarray.core import run_program
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.execution import replay
from tiledarray.execution.instructions import KEPT_BYTES, program_of
from tiledarray.ops.loop import Step, Steps

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

# Takes the arrays that a step has, the scalars, and those of the arrays in whose memory it may
# write; returns the outputs of its signature.
Run = Callable[[list[Buffer], Sequence[Any], Collection[int]], list[Buffer]]

_COUNT = np.dtype(np.int64)


def repeating(
    steps: Steps, device: Device, running: Callable[[Step], Run]
) -> Callable[..., Any]:
    """Return what computes a loop's results from its operands, as a buffer or a tuple of them.

    Parameters
    ----------
    steps : Steps
    device : Device
    running : callable
        Gives for a step what runs it.
    """
    runs = {step: running(step) for step in steps.recordings}

    def compute(*operands: Any) -> Any:
        own = 0 if steps.goes is None else steps.goes.scalars
        scalars = operands[steps.header:steps.header + steps.scalars]
        arrays = [device.allocate((), _COUNT), *(
            device.wrap(array, copy=False, given=True)
            for array in operands[steps.header + steps.scalars:])]
        state = _State(arrays, steps.first)
        if steps.goes is None:
            count, number, by = map(int, operands[:3])
            for _ in range(count):
                arrays[0].array[...] = number
                state.go(steps.body, runs, scalars)
                number += by
        else:
            (goes,) = state.given(steps.goes, runs, scalars[len(scalars) - own:])
            while bool(goes.array):
                (goes,) = state.go(steps.body, runs, scalars[:len(scalars) - own])
        return state.results()

    return compute


class _State:
    """The arrays of a loop that is under way, and whose memory they lie in."""

    def __init__(self, arrays: list[Buffer], first: int) -> None:
        self._arrays = arrays
        self._first = first
        self._count = len(arrays) - first
        self._lent = frozenset(buffer.pointer for buffer in arrays)

    def given(self, step: Step, runs: Mapping[Step, Run], scalars: Sequence[Any],
              ) -> list[Buffer]:
        """Return what a step gives."""
        outputs: Sequence[Buffer] = ()
        if not step.is_nothing():
            own = [place for place in range(self._first, len(self._arrays))
                   if self._is_own(self._arrays[place]) and self._arrays[place].alone()]
            outputs = runs[step](self._arrays, step.filled(scalars), own)
        found: list[Buffer] = []
        for computed, place in step.results:
            buffer = outputs[place] if computed else self._arrays[place]
            again = not computed or any(buffer is other for other in found)
            if not computed and place == 0:
                buffer = buffer.device.wrap(buffer.array, copy=True)  # the next step's number
            elif again:
                buffer = buffer.another()
            found.append(buffer)
        return found

    def go(self, step: Step, runs: Mapping[Step, Run], scalars: Sequence[Any]) -> list[Buffer]:
        """Do a step; return what it gives besides the state."""
        found = self.given(step, runs, scalars)
        self._arrays[self._first:] = found[:self._count]
        return found[self._count:]

    def results(self) -> Any:
        """Return the state, in memory of its own."""
        found = tuple(buffer if self._is_own(buffer) else buffer.device.wrap(
            buffer.array, copy=True) for buffer in self._arrays[self._first:])
        return found[0] if len(found) == 1 else found

    def _is_own(self, buffer: Buffer) -> bool:
        return buffer.pointer not in self._lent


def by_plan(step: Step, executable: Executable) -> Run:
    """Return what runs a step by its compiled plan."""
    entries = dict(zip(
        (number for number, entry in enumerate(step.signature[0]) if entry[0] is None),
        step.leaves, strict=True))
    places = [entries[number] for _, number in executable.leaves]
    values = [value for value, _ in executable.leaves]
    memory = executable.plan.memory
    overwritten = {memory[store.access.value] for kernel in executable.plan.kernels
                   for part in kernel.parts for store in part.stores}
    written = [entries[number] for value, number in executable.leaves if value in overwritten]
    on_host = executable.device.on_host
    program: list[Any] = []

    def run(arrays: list[Buffer], params: Sequence[Any], own: Collection[int]) -> list[Buffer]:
        leaves = [*arrays]
        for place in written:
            if place not in own:
                leaves[place] = leaves[place].device.wrap(leaves[place].array, copy=True)
        given = [leaves[place] for place in places]
        if not program:
            small = sum(replay.own_memory(executable.plan)[1]) <= KEPT_BYTES
            program.append(program_of(executable, keeps=small))
        found: list[Buffer] | None = None
        if program[0] is not None:
            found = run_program(program[0], given, [*params])
        if found is None:
            if not on_host and executable.runs == replay.MET:
                replay.prepare(executable, params)
            found = executable.run(dict(zip(values, given, strict=True)), params)
        return found

    return run
