"""Evaluation: from pending nodes to buffers.

A plan is looked up by the signature of what is pending; if there is none it is made.  A plan whose
kernels are not compiled yet runs op by op at once while they compile, where that is the quicker
way and needs no more memory.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Sequence
from sys import is_finalizing
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tiledarray import config
from tiledarray.at_one_go import persist
from tiledarray.core import run_known
from tiledarray.devices import storage
from tiledarray.devices.device import Device
from tiledarray.devices.pool import host_pool
from tiledarray.devices.threads import host_threads
from tiledarray.errors import NodeFailed, OutOfMemory, raised_outside
from tiledarray.execution import known, placement
from tiledarray.execution.doing_without import tell_once
from tiledarray.execution.known import lock
from tiledarray.execution.op_by_op import run as reference
from tiledarray.execution.op_by_op.parts import Part, cost, nbytes, parts_of
from tiledarray.execution.spans import Spending, counters
from tiledarray.execution.taken import Taken, any_failed, restore_failed
from tiledarray.fork import import_part, importing
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Node, told_where
from tiledarray.graph.program import Trace, below, trace

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

TIMES_OF_SMALL = 3
LONG = 64  # operations, of which a plan takes as long as to do them several times
TIMES_OF_LONG = 4
PLANNING_SECONDS = 5e-4  # of an operation
_NOTHING = contextlib.nullcontext()


def evaluate(targets: Sequence[Node], small: bool = False, unknown: bool = False) -> None:
    """Compute the targets together: their buffers are set, their inputs forgotten.

    Parameters
    ----------
    targets : sequence of Node
    small : bool
        Nearly all of it is small: if it takes no time op by op, no plan is worth making.
    unknown : bool
        The core has been asked for its program already, and knows none.

    Raises
    ------
    Exception
        What went wrong; every target not yet computed is intact and still pending.
    """
    heal()
    if not unknown and run_known([*targets]):
        verify()
        return
    if is_finalizing() and all(node.device.kind != "cuda" for node in targets):
        _evaluate_at_exit(targets)
        return
    while True:
        with lock:
            if config.verify is not storage.watching:
                storage.watch(config.verify)
            awaited = _evaluate_all(targets, small)
            verify()
            host_pool.take_back()  # of arrays that died since more may be kept than is allowed
        if awaited is None:
            return
        _planning()[1].compile_now(awaited)  # others may evaluate, and the process fork, meanwhile


def heal() -> None:
    """Restore what evaluations took that failed without memory to do so, or without frames."""
    if any_failed():
        with lock:
            restore_failed()


def load(devices: Collection[Device]) -> None:
    """Load what goes op by op, before the interpreter exits and imports nothing any more."""
    import_part("tiledarray.execution.repeating")
    for device in {Device("cpu"), *devices}:
        assert device.backend


def _evaluate_at_exit(targets: Sequence[Node]) -> None:
    """Compute the targets for a finaliser that runs while the interpreter exits.

    Other threads run no more, whatever they have locked, and nothing can be imported.
    """
    traced = trace([node for node in targets if node.buffer is None])
    placement.bring_leaves_home(traced)
    run_reference(traced.nodes, targets)


def verify() -> None:
    """Look whether live buffers share memory, if that is wanted."""
    if config.verify:
        with lock:  # in the middle of an evaluation they may
            storage.check()


def _evaluate_all(targets: Sequence[Node], small: bool) -> Executable | None:
    """Compute the targets, or return the plan that has to be compiled before."""
    by_device: dict[Any, list[Node]] = {}
    for node in targets:
        if node.buffer is None:
            by_device.setdefault(node.device, []).append(node)
    for device, nodes in by_device.items():
        awaited = _evaluate(nodes, device, small)
        if awaited is not None:
            return awaited
    return None


def _evaluate(targets: list[Node], device: Device, small: bool) -> Executable | None:
    traced = trace(targets)
    place = place_of(traced, targets, device, crowd=small)
    taken = Taken(traced, settled=place is device or placement.is_settled(traced, place))
    restore = taken.restore  # there may be no memory for it later
    with place.active() if place.kind == "cuda" else _NOTHING:
        try:
            taken.begin()
            taken.take(targets)
            awaited = _evaluate_taken(taken, targets, place, small)
            taken.end()
        except BaseException:
            taken.failed = True
            persist(restore)
            if not taken.apart:
                persist(taken.end)
            raise
    return awaited


def place_of(
    traced: Trace, targets: list[Node], device: Device, **told: bool
) -> Device:
    """Return where the targets are computed: on their device, if that is a place.

    What is known of them is told to `placement.chosen`.
    """
    if device.kind != "auto":
        return device
    return placement.chosen(traced, targets, host_threads(), **told)


def _evaluate_taken(
    taken: Taken, targets: list[Node], device: Device, small: bool
) -> Executable | None:
    traced = taken.traced
    key = traced.key, taken.given, config.contract, device
    waits = config.compile == "wait" or not device.on_host
    if not waits:
        new = known.is_new(key, TIMES_OF_SMALL if small else 1)
        if new or not known.planner_is_loaded():
            taken.restore()
            parts = parts_of(traced.nodes, targets)
            if _is_soon_done(parts, len(traced.nodes), small, new):
                _op_by_op(parts, taken, targets)
                return None
    try:
        plans, _ = _planning()
    except OSError as error:  # another time there may be files to be had
        if raised_outside(error):
            raise
        tell_once(f"tiledarray runs op by op: its planner could not be loaded ({error})", "planner")
        taken.restore()
        _op_by_op(parts_of(traced.nodes, targets), taken, targets)
        return None
    if not waits and len(traced.nodes) >= LONG and known.times_met(key) <= TIMES_OF_LONG and (
            not plans.is_kept(traced, device, taken)):
        taken.restore()
        parts = parts_of(traced.nodes, targets)
        if _is_soon_done(parts, len(traced.nodes), small, new=True):
            _op_by_op(parts, taken, targets)
            return None
    try:
        executable, params = plans.bound_to(traced, device, taken)
    except UnsupportedDtypeError:
        taken.restore()
        placement.bring_leaves_home(traced)
        run_reference(traced.nodes, targets)  # strings, times, objects: only NumPy knows them
        return None
    return _by_plan(executable, params, taken, targets)


def _is_soon_done(parts: Sequence[Part], nodes: int, small: bool, new: bool) -> bool:
    """Whether to go op by op takes less than to plan, or, if need be, to load the planner."""
    seconds, most_bytes = cost(parts, host_threads())
    if new and seconds < (known.SMALL_SECONDS if small else config.first_seconds):
        return True
    if most_bytes > known.AMPLE_BYTES:
        return False
    quicker = new and config.first_seconds and seconds < PLANNING_SECONDS * nodes
    return bool(quicker) or known.too_early(seconds)


@functools.cache
def _planning() -> tuple[ModuleType, ModuleType]:
    """Import what makes plans and what runs them, which brings the planner along."""
    from tiledarray.execution import plans, running
    return plans, running


def _by_plan(
    executable: Executable, params: Sequence[Any], taken: Taken, targets: list[Node]
) -> Executable | None:
    """Compute the targets, by their plan or while it is compiled; else return it."""
    plans, running = _planning()
    traced, device = taken.traced, executable.device
    if executable.ready:
        running.run(executable, params, taken, targets)
        if executable.for_core and executable.tuning is None and taken.settled:
            running.tell_core(executable, taken, anywhere=targets[0].device.kind == "auto")
        return None
    taken.restore()
    parts = parts_of(traced.nodes, targets)
    if running.waits(executable, parts):
        return executable
    if executable.bodies and cost(parts, host_threads())[1] > known.AMPLE_BYTES:
        with importing:
            from tiledarray.execution.op_by_op.blocks import run_loops
            from tiledarray.fusion.loops import in_blocks
        if targets[0].device.kind == "auto":
            placement.bring_leaves_home(traced)
        looped = in_blocks(traced.signature, plans.target_of(device))
        run_loops(traced, looped, device, run_reference)
        parts = parts_of(below(targets), targets)
    _op_by_op(parts, taken, targets)
    if executable.wanted:
        executable.compile_in_background()  # not before: the compiler would take a processor
    for node in targets:
        node.buffer.plan = executable
    return None


def run_reference(nodes: Sequence[Node], targets: Sequence[Node]) -> None:
    """Compute the targets op by op; ``nodes`` is everything below them, inputs first."""
    with Spending("op by op"):
        _run_parts(parts_of(nodes, targets), targets)


def _op_by_op(parts: Sequence[Part], taken: Taken, targets: Sequence[Node]) -> None:
    counters["op by op"] += 1
    with Spending("op by op"):
        if targets[0].device.kind == "auto":
            placement.bring_leaves_home(taken.traced)
        _run_parts(parts, targets, taken.given_nodes())


def _run_parts(
    parts: Sequence[Part], targets: Sequence[Node], given: Collection[Node] = ()
) -> None:
    values = reference.Values()
    try:
        reference.run(parts, values, host_threads(), given)
        for node in targets:
            if node.buffer is None:
                node.buffer = values.taken(node)
    except BaseException as failed:
        if given:  # they may be overwritten, so what was computed from them is kept
            persist(values.keep)
        if not isinstance(failed, NodeFailed):
            raise
        node, error = failed.node, failed.__cause__
        assert error is not None
        if isinstance(error, MemoryError):
            raise told_where(_no_room(node), node) from error
        raise told_where(error, node) from error.__cause__
    for node in targets:
        node.forget_inputs()


def _no_room(node: Node) -> OutOfMemory:
    size = nbytes(node)
    return OutOfMemory(
        f"no memory on {node.device} for an array of {size:,} bytes", nbytes=size,
        remedy="delete arrays that are no longer needed, use a smaller dtype, or work in parts",
    )
