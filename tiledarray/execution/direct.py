"""Running one plan again and again on other inputs, with the same scalars, the quickest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tiledarray import config
from tiledarray.core import run_program
from tiledarray.devices.storage import Buffer
from tiledarray.errors import NOT_COMPILED, TiledArrayError
from tiledarray.execution.doing_without import do_without
from tiledarray.execution.evaluate import run_reference
from tiledarray.execution.executable import Executable, observers
from tiledarray.execution.instructions import KEPT_BYTES, program_of
from tiledarray.execution.lone import lone_launch
from tiledarray.execution.replay import Replay, can_replay, own_memory
from tiledarray.execution.spans import counters
from tiledarray.fusion.ir import Value
from tiledarray.graph.program import Trace, instantiated

if TYPE_CHECKING:
    from tiledarray.execution.tuning import Tuning

Run = Callable[[list[Any]], list[Any]]


def runner(executable: Executable, params: Sequence[Any]) -> Run:
    """Return what runs a compiled plan on its leaves' buffers; step by step where someone watches.

    The buffers come in the order of the plan's leaves.  It is for one thread at a time, and keeps
    small temporary memory between the runs.
    """
    if executable.tuning is not None:
        return _Tuned(executable, executable.tuning, params)
    return _quickest(executable, params)


def _quickest(executable: Executable, params: Sequence[Any]) -> Run:
    """Return what runs a plan: without looking at whether another is faster."""
    values = [value for value, _ in executable.leaves]

    def step_by_step(leaves: list[Buffer]) -> list[Any]:
        return executable.run(dict(zip(values, leaves, strict=True)), params, jitted=True)

    lone = lone_launch(executable, params)
    if lone is not None:
        return lambda leaves: (step_by_step if observers else lone)(leaves)
    small, replays = sum(own_memory(executable.plan)[1]) <= KEPT_BYTES, can_replay(executable)
    program = program_of(executable, keeps=small) if small or not replays else None
    quick: Run = step_by_step
    if program is not None:
        quick = _by_core(program, [*params], step_by_step)
    elif replays:
        with suppress(TiledArrayError):  # no memory, or a call that cannot be recorded
            quick = _replayed(Replay(executable, params), values)
    return lambda leaves: (step_by_step if observers else quick)(leaves)


class _Tuned:
    """Runs the plan whose turn it is, and the best of them once that is known."""

    def __init__(self, usual: Executable, tuning: Tuning, params: Sequence[Any]) -> None:
        self._tuning, self._params = tuning, params
        self._numbers = [number for _, number in usual.leaves]
        self._plan, self._quick = usual, _quickest(usual, params)
        self._order: list[int] | None = None  # of the leaves, where the plan has another

    def __call__(self, leaves: list[Any]) -> list[Any]:
        tuning = self._tuning
        if tuning.turns() and not observers:
            return tuning.timed(partial(self._step_by_step, leaves))
        if tuning.best is not self._plan:
            self._plan, self._quick = tuning.best, _quickest(tuning.best, self._params)
            self._order = [self._numbers.index(number) for _, number in self._plan.leaves]
        return self._quick(leaves if self._order is None else [leaves[k] for k in self._order])

    def _step_by_step(self, leaves: list[Any], plan: Executable) -> list[Any]:
        by_number = dict(zip(self._numbers, leaves, strict=True))
        return plan.run({value: by_number[number] for value, number in plan.leaves}, self._params)


def leaves_op_by_op(executable: Executable, traced: Trace) -> list[int]:
    """Return the numbers of all leaves: those of a plan, and then those that it does not read.

    An argmin along an axis of length one is rewritten to zeros; op by op it is computed.
    """
    planned = [number for _, number in executable.leaves]
    known = set(planned)
    entries, _, _ = traced.signature
    return planned + [number for number, (op, *_) in enumerate(entries)
                      if op is None and number not in known]


class Meanwhile:
    """Runs what a plan is of op by op until its kernels are there: see `runner`.

    They are compiled in the background from the second run on: what runs once needs none.

    Parameters
    ----------
    executable : Executable
        On the host.
    params : sequence of scalar
        With which it runs.
    traced : Trace
        What it is a plan of.
    """

    def __init__(self, executable: Executable, params: Sequence[Any], traced: Trace) -> None:
        self._executable, self._params = executable, params
        self._entries, _, self._outputs = traced.signature
        self._scalars, self._sites = traced.params, [node.site for node in traced.nodes]
        numbers = leaves_op_by_op(executable, traced)
        self._planned = len(executable.leaves)
        self._order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self._kernels: Run | None = None
        self._runs = 0

    def __call__(self, leaves: list[Any]) -> list[Any]:
        """Return the outputs' buffers, given those of `leaves_op_by_op` in their order."""
        if self._kernels is None:
            if not self._executable.ready and config.compile == "wait":  # it was not at first
                with suppress(*NOT_COMPILED):
                    self._executable.compile()
            if not self._executable.ready:
                return self._op_by_op(leaves)
            self._kernels = runner(self._executable, self._params)
        return self._kernels(leaves[:self._planned])

    def _op_by_op(self, leaves: list[Any]) -> list[Any]:
        nodes = instantiated(self._entries, [leaves[place] for place in self._order],
                             self._scalars, self._executable.device, self._sites)
        targets = [nodes[number] for number in self._outputs]
        counters["op by op"] += 1
        run_reference(nodes, targets)
        self._runs += 1
        if self._runs > 1:
            failure = self._executable.trouble.standing()
            if failure is not None:
                do_without(failure)
            self._executable.compile_in_background()
        return [node.buffer for node in targets]


def _replayed(replay: Replay, values: list[Value]) -> Run:
    return lambda leaves: replay(dict(zip(values, leaves, strict=True)))


def _by_core(program: Any, params: list[Any], step_by_step: Run) -> Run:
    def run(leaves: list[Buffer]) -> list[Any]:
        outputs: list[Any] | None = run_program(program, leaves, params)
        return step_by_step(leaves) if outputs is None else outputs

    return run
