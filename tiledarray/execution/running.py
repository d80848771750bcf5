"""Plans at work: compiled where that pays, and run.

The compilers come along with this, so `evaluate` imports it when there is a plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tiledarray import config
from tiledarray.at_one_go import persist
from tiledarray.core import remember, remembers
from tiledarray.devices.device import Device
from tiledarray.devices.threads import host_threads
from tiledarray.errors import NOT_COMPILED, of_a_handler
from tiledarray.execution import known, placement, replay
from tiledarray.execution.background import everywhere
from tiledarray.execution.doing_without import do_without, tell_once
from tiledarray.execution.executable import Executable, observers
from tiledarray.execution.instructions import program_of
from tiledarray.execution.op_by_op.parts import NODE_SECONDS, Part, cost, parts_of
from tiledarray.execution.plans import Bound
from tiledarray.execution.taken import Mark, Taken
from tiledarray.fusion.ir import Value
from tiledarray.fusion.plan import Call
from tiledarray.graph.node import Node, told_where
from tiledarray.graph.program import Trace
from tiledarray.kernels.compile import cuda, host
from tiledarray.ops.movement import placeholder
from tiledarray.ops.op import Library, Update

COMPILE_SECONDS = 0.7
_NOTHING = contextlib.nullcontext()


def waits(executable: Executable, parts: Sequence[Part]) -> bool:
    """Whether to wait until kernels are compiled and run them, or to go on op by op."""
    problem = compiler_problem(executable.device)
    if problem is not None:
        if config.compile != "never":
            tell_once(f"tiledarray runs op by op, without fused kernels: {problem}")
        return False
    failure = executable.trouble.standing()
    if failure is not None:
        return do_without(failure)
    if not executable.missing():
        return True
    failure = everywhere.standing()
    if failure is not None:
        return do_without(failure)
    if config.compile == "wait" or executable.device.kind == "cuda":
        return True
    executable.met += 1
    seconds, largest = cost(parts, host_threads())
    least = sum(kernel.bytes_moved for kernel in executable.plan.kernels)
    much_memory = largest > max(known.AMPLE_BYTES, 2 * least)
    if not executable.wanted and (seconds > COMPILE_SECONDS or much_memory):
        return True
    # What is small and met once is not worth it.
    if executable.wanted or (seconds <= known.SMALL_SECONDS and executable.met == 1):
        return False
    executable.wanted = True
    return executable.at_hand()  # loaded in a moment


def goes_op_by_op(executable: Executable, traced: Trace, targets: Sequence[Node]) -> bool:
    """Whether calls of a plan had better not wait for its kernels: they are quick op by op.

    Where there are loops in it (problems of a batch, blocks, steps), kernels are far quicker.
    """
    if (executable.device.kind == "cuda" or config.compile != "background" or executable.bodies
            or not executable.missing()):
        return False
    seconds, largest = cost(parts_of(traced.nodes, targets), host_threads())
    return (seconds + NODE_SECONDS * len(traced.nodes) < config.first_seconds
            and largest <= known.AMPLE_BYTES and not executable.at_hand())


def compiler_problem(device: Device) -> str | None:
    """Why kernels are not compiled for a device; ``None`` where they are."""
    if config.compile == "never":
        return "config.compile is 'never'"
    return cuda.available() if device.kind in ("cuda", "auto") else host.available()


def compile_now(executable: Executable) -> None:
    """Compile a plan; where that fails, its trouble stands when it is met again."""
    device = executable.device
    try:
        with device.active() if device.kind == "cuda" else _NOTHING:
            executable.compile()
    except NOT_COMPILED as error:
        if of_a_handler(error):
            raise
        do_without(error)


def run(
    executable: Executable, params: Sequence[Any], taken: Taken, targets: list[Node]
) -> None:
    """Run a plan that is compiled, or one that is faster: the targets' buffers are set.

    Their inputs are forgotten.

    Raises
    ------
    Exception
        What went wrong, with a note of what was being computed and where that was recorded.
    """
    tuning = executable.tuning
    if tuning is None:
        _run(executable, params, taken, targets)
    elif tuning.turns() and not observers:
        tuning.timed(lambda plan: _run(plan, params, taken, targets))
    else:
        _run(tuning.best, params, taken, targets)


def _run(
    executable: Executable, params: Sequence[Any], taken: Taken, targets: list[Node]
) -> None:
    entry = executable.plan.entry
    leaves = _leaves_of(executable, taken, anywhere=targets[0].device.kind == "auto")
    if None in leaves.values():
        placeholder.reference(None, attrs=None, shape=None, dtype=None)  # raises

    def marks(value: Any, buffer: Any) -> list[Mark]:
        """What notes that a value has been computed: in every node that it is the value of."""
        found: list[Mark] = []
        for number in entry.get(value, ()):
            hold = buffer if not found or isinstance(buffer, tuple) else buffer.another()
            found += taken.marks(number, hold)
        return found

    def settle(outputs: list[Any]) -> None:
        for node, buffer in zip(targets, outputs, strict=True):
            buffer.plan = executable
            node.buffer = buffer

    if executable.device.kind == "cuda" and executable.runs == replay.MET:
        replay.prepare(executable, params)
    try:
        executable.run(leaves, params, marks, settle)
    except BaseException as error:
        persist(taken.restore)
        if isinstance(error, Exception) and not taken.apart:
            _explain_failure(error, taken.traced, executable)
        raise
    for node in targets:
        node.forget_inputs()


def _leaves_of(executable: Executable, taken: Taken, *, anywhere: bool) -> dict[Value, Any]:
    """Return the buffers of a plan's leaves; of what may lie ``anywhere``, where it is computed."""
    nodes, device = taken.traced.nodes, executable.device
    if anywhere and device.on_host:
        placement.bring_leaves_home(taken.traced, but=taken.given)
    if taken.apart:
        leaves = {value: taken.buffer(number) for value, number in executable.leaves}
    else:
        leaves = {value: nodes[number].buffer for value, number in executable.leaves}
    if anywhere:
        leaves = {value: placement.on_one_side(leaves[value], device, number in taken.given)
                  for value, number in executable.leaves}
    return leaves


def _explain_failure(error: BaseException, traced: Trace, executable: Executable) -> None:
    """Add to an error the line that recorded what failed, or else what may have."""
    step = executable.failed
    plan = executable.plan
    entries: Sequence[int] = ()
    if isinstance(step, Call):
        origin = plan.origin.get(step.value, -1)
        entries = [origin] if origin >= 0 else plan.entry.get(step.value, ())
    nodes = [traced.nodes[number] for number in entries] or [
        node for node in traced.nodes
        if node.buffer is None and isinstance(node.op, (Library, Update))]
    if nodes:
        told_where(error, nodes[0])


def tell_core(executable: Executable, taken: Taken, *, anywhere: bool) -> None:
    """Have the core run the plan when it is met again: of arrays that may lie ``anywhere``, too."""
    traced = taken.traced
    found = known.executables.get((traced.key, taken.given, config.contract, executable.device))
    if found is None or remembers(traced.key, executable) or (
            type(found) is Bound and found.executable is not executable):
        return
    program = program_of(executable, traced.updates, taken.given,
                         gpu=placement.accelerator() if anywhere else None)
    executable.for_core = program is not None
    if program is not None:
        remember(traced.key, program, found.picks if type(found) is Bound else None)
        executable.told.add(traced.key)
