"""Running one plan again and again on other inputs, with the same scalars, the quickest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tiledarray.core import run_program
from tiledarray.devices.storage import Buffer
from tiledarray.errors import TiledArrayError
from tiledarray.execution.executable import Executable, observers
from tiledarray.execution.instructions import KEPT_BYTES, program_of
from tiledarray.execution.replay import Replay, can_replay, own_memory
from tiledarray.fusion.ir import Value

Run = Callable[[list[Any]], list[Any]]


def runner(executable: Executable, params: Sequence[Any]) -> Run:
    """Return what runs a compiled plan on its leaves' buffers; step by step where someone watches.

    The buffers come in the order of the plan's leaves.  It is for one thread at a time, and keeps
    small temporary memory between the runs.
    """
    values = [value for value, _ in executable.leaves]

    def step_by_step(leaves: list[Buffer]) -> list[Any]:
        return executable.run(dict(zip(values, leaves, strict=True)), params)

    small, replays = sum(own_memory(executable.plan)[1]) <= KEPT_BYTES, can_replay(executable)
    program = program_of(executable, keeps=small) if small or not replays else None
    quick: Run = step_by_step
    if program is not None:
        quick = _by_core(program, [*params], step_by_step)
    elif replays:
        with suppress(TiledArrayError):  # no memory, or a call that cannot be recorded
            quick = _replayed(Replay(executable, params), values)
    return lambda leaves: (step_by_step if observers else quick)(leaves)


def _replayed(replay: Replay, values: list[Value]) -> Run:
    return lambda leaves: replay(dict(zip(values, leaves, strict=True)))


def _by_core(program: Any, params: list[Any], step_by_step: Run) -> Run:
    def run(leaves: list[Buffer]) -> list[Any]:
        outputs: list[Any] | None = run_program(program, leaves, params)
        return step_by_step(leaves) if outputs is None else outputs

    return run
