"""Evaluation: from pending nodes to buffers.

A plan is looked up by the signature of what is pending; if there is none it is made.  A plan whose
kernels are not compiled yet runs op by op at once while they compile, where that is the quicker
way and needs no more memory.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Collection, Sequence
from time import perf_counter
from typing import Any, TypeVar

from tiledarray import config
from tiledarray.devices.buffer import Buffer
from tiledarray.devices.device import Device
from tiledarray.errors import CompilerError, NodeFailed, OutOfMemory, TiledArrayWarning
from tiledarray.execution.executable import Executable, counters, spent
from tiledarray.execution.op_by_op import run as reference
from tiledarray.execution.op_by_op.parts import Part, cost, nbytes, parts_of
from tiledarray.fork import hold_at_fork
from tiledarray.fusion import passes
from tiledarray.fusion.target import Target
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Node, location
from tiledarray.graph.program import Trace, trace
from tiledarray.kernels.compile import cuda, host
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.op import Library, Update

_Error = TypeVar("_Error", bound=BaseException)

PLANS_REMEMBERED = 1024
PLANS_THAT_ASSUME = 3  # of one signature; the next assumes nothing of the parameters
COMPILE_SECONDS = 0.7
SMALL_SECONDS = 0.002
AMPLE_BYTES = 1 << 28

lock = threading.RLock()
hold_at_fork(lock)
_executables: OrderedDict[Any, Executable | UnsupportedDtypeError] = OrderedDict()
_NONE: frozenset[int] = frozenset()
_warned: set[str] = set()


def evaluate(targets: Sequence[Node], small: bool = False) -> None:
    """Compute the targets together: their buffers are set, their inputs forgotten.

    Parameters
    ----------
    targets : sequence of Node
    small : bool
        Nearly all of it is small: if it takes no time op by op, no plan is worth making.

    Raises
    ------
    Exception
        What went wrong; every target not yet computed is intact and still pending.
    """
    with lock:
        by_device: dict[Any, list[Node]] = {}
        for node in targets:
            if node.buffer is None:
                by_device.setdefault(node.device, []).append(node)
        for device, nodes in by_device.items():
            if device.kind == "cuda":
                with device.active():
                    _evaluate(nodes, device)
            else:
                _evaluate(nodes, device, small)


def _evaluate(targets: list[Node], device: Device, small: bool = False) -> None:
    traced = trace(targets)
    if small and config.compile != "wait":
        parts = parts_of(traced.nodes, targets)
        if cost(parts, host_threads())[0] < SMALL_SECONDS:
            _op_by_op(parts, targets, _given(traced))
            return
    try:
        executable = executable_for(traced, device)
    except UnsupportedDtypeError:
        run_reference(traced.nodes, targets)  # strings, times, objects: only NumPy knows them
        return
    if executable.ready:
        _run(executable, traced, targets)
        return
    given = _given(traced)
    parts = parts_of(traced.nodes, targets)
    if _decide(executable, parts):
        _run(executable, traced, targets)
    else:
        _op_by_op(parts, targets, given)
        if executable.wanted:
            executable.compile_in_background()  # not before: the compiler would take a processor
        for node in targets:
            node.buffer.plan = executable


# ---- plans ---------------------------------------------------------------------------------


def executable_for(traced: Trace, device: Device) -> Executable:
    """Return the executable of a trace, planning if it is new.

    Raises
    ------
    UnsupportedDtypeError
        Some value has a dtype that kernels do not know.
    """
    donatable = _donatable(traced) if traced.updates else _NONE
    key: Any = (traced.key, donatable, config.contract)
    found = _executables.get(key)
    others = 0
    while type(found) is Executable and found.plan.assumed and not found.plan.suits(traced.params):
        key, others = (key, found.plan.assumed), others + 1
        found = _executables.get(key)
    if found is None:
        params = traced.params if others < PLANS_THAT_ASSUME else None
        found = _executables[key] = _planned(traced, donatable, device, params)
        while len(_executables) > PLANS_REMEMBERED:
            _executables.popitem(last=False)
    if isinstance(found, UnsupportedDtypeError):
        raise found.with_traceback(None)
    return found


def _planned(
    traced: Trace, donatable: frozenset[int], device: Device, params: Sequence[Any] | None
) -> Executable | UnsupportedDtypeError:
    for dtype in {node.dtype for node in traced.nodes}:
        if not has_kernel(dtype):
            return UnsupportedDtypeError(f"no kernel for dtype {dtype}")
    counters["plans made"] += 1
    started = perf_counter()
    plan = passes.plan(traced.signature, donatable, target_of(device), params=params,
                       check=config.verify)
    made = Executable(plan, device)
    made.sites, made.params = [node.site for node in traced.nodes], traced.params
    spent["planning"] += perf_counter() - started
    return made


def target_of(device: Device) -> Target:
    """What the planner knows of a device."""
    if device.kind == "cuda":
        limits = device.properties
        return Target("cuda", limits.multiprocessors, limits.shared_bytes_per_block,
                      contract=bool(config.contract))
    return Target("cpu", host_threads())


def host_threads() -> int:
    """Threads that share the work on the host."""
    return config.threads or host.available_cpus_remembered()


def _donatable(traced: Trace) -> frozenset[int]:
    """Leaves that only an update of this trace still refers to: it may write in their memory."""
    found = []
    for number in traced.updates:
        # The trace's list holds it, the pending nodes' inputs, and the call.
        inside = traced.key.count(number)
        held = sys.getrefcount(traced.nodes[number])
        if held <= inside + 2 and traced.nodes[number].buffer.exclusive():
            found.append(number)
    return frozenset(found)


def _given(traced: Trace) -> Collection[Node]:
    """Leaves that an update of this trace may write in."""
    return {traced.nodes[k] for k in _donatable(traced)} if traced.updates else ()


# ---- tiers ---------------------------------------------------------------------------------


def _decide(executable: Executable, parts: Sequence[Part]) -> bool:
    """Whether to run kernels now (compiling them first if need be), or op by op."""
    problem = compiler_problem(executable.device)
    if problem is not None:
        if config.compile != "never":
            _warn(f"tiledarray runs op by op, without fused kernels: {problem}")
        return False
    if executable.failure is not None:
        return _do_without(executable.failure)
    if not executable.missing() or config.compile == "wait" or executable.device.kind == "cuda":
        return _compile(executable)
    executable.met += 1
    seconds, largest = cost(parts, host_threads())
    least = sum(kernel.bytes_moved for kernel in executable.plan.kernels)
    much_memory = largest > max(AMPLE_BYTES, 2 * least)
    if not executable.wanted and (seconds > COMPILE_SECONDS or much_memory):
        return _compile(executable)
    if seconds > SMALL_SECONDS or executable.met > 1:  # what is small and met once is not worth it
        executable.wanted = True
    return False


def compiler_problem(device: Device) -> str | None:
    """Why kernels are not compiled for a device; ``None`` where they are."""
    if config.compile == "never":
        return "config.compile is 'never'"
    return cuda.available() if device.kind == "cuda" else host.available()


def _compile(executable: Executable) -> bool:
    try:
        executable.compile()
    except (CompilerError, OSError) as error:
        executable.failure = error
        return _do_without(error)
    return True


def _do_without(failure: BaseException) -> bool:
    _warn(f"tiledarray runs op by op what does not compile: {failure}", once="compile")
    return False


def _warn(message: str, once: str = "") -> None:
    if (once or message) not in _warned:
        _warned.add(once or message)
        warnings.warn(message, TiledArrayWarning, stacklevel=2)


def _run(executable: Executable, traced: Trace, targets: list[Node]) -> None:
    nodes, entry = traced.nodes, executable.plan.entry
    leaves = {value: nodes[number].buffer for value, number in executable.leaves}

    def done(value: Any, buffer: Buffer) -> None:
        node = nodes[entry[value]]
        node.buffer = buffer
        node.inputs = ()

    try:
        outputs = executable.run(leaves, traced.params, done)
    except Exception as error:
        _explain_failure(error, traced)
        raise
    if len(outputs) > 1:
        _mark_shared(outputs)
    for node, buffer in zip(targets, outputs, strict=True):
        buffer.plan = executable
        node.buffer = buffer
        node.inputs = ()


def _mark_shared(outputs: list[Buffer]) -> None:
    """Outputs that lie in the same memory must not be written in place."""
    seen: dict[int, Buffer] = {}
    for buffer in outputs:
        other = seen.setdefault(id(buffer.array), buffer)
        if other is not buffer:
            other.shared = buffer.shared = True


def _explain_failure(error: BaseException, traced: Trace) -> None:
    for node in traced.nodes:
        if node.buffer is None and isinstance(node.op, (Library, Update)):
            _told_where(error, node)
            return


def _told_where(error: _Error, node: Node) -> _Error:
    """The error, with a note of the line that recorded the node."""
    place = location(node.site)
    if place is not None:
        error.add_note(f"while computing {node.op.name}, recorded at {place[0]}:{place[1]}")
    return error


def run_reference(nodes: Sequence[Node], targets: Sequence[Node]) -> None:
    """Compute the targets op by op; ``nodes`` is everything below them, inputs first."""
    _run_parts(parts_of(nodes, targets), targets)


def _op_by_op(
    parts: Sequence[Part], targets: Sequence[Node], given: Collection[Node]
) -> None:
    counters["op by op"] += 1
    started = perf_counter()
    _run_parts(parts, targets, given)
    spent["op by op"] += perf_counter() - started


def _run_parts(
    parts: Sequence[Part], targets: Sequence[Node], given: Collection[Node] = ()
) -> None:
    values: dict[Node, Any] = {}
    try:
        reference.run(parts, values, host_threads(), given)
    except NodeFailed as failed:
        if given:  # they may be overwritten, so what was computed from them is kept
            _keep(values)
        node, error = failed.node, failed.__cause__
        assert error is not None
        if isinstance(error, MemoryError):
            raise _told_where(_no_room(node), node) from error
        raise _told_where(error, node) from error.__cause__
    for node in targets:
        if node.buffer is None:
            node.buffer = _owned(values[node], node)
    for node in targets:
        node.inputs = ()


def _keep(values: dict[Node, Any]) -> None:
    """Let nodes have their values."""
    for node, value in values.items():
        if isinstance(value, tuple):
            node.buffer = tuple(node.device.wrap(part, copy=True) for part in value)
        elif node.buffer is None:
            node.buffer = _owned(value, node)
        node.inputs = ()


def _no_room(node: Node) -> OutOfMemory:
    size = nbytes(node)
    return OutOfMemory(
        f"no memory on {node.device} for an array of {size:,} bytes", nbytes=size,
        remedy="delete arrays that are no longer needed, use a smaller dtype, or work in parts",
    )


def _owned(array: Any, node: Node) -> Buffer:
    """A buffer that shares no memory with another node's."""
    pooled = isinstance(array.base, ctypes.Array)  # a block of the pool, which it has to itself
    copy = not pooled and (array.base is not None or not array.flags.owndata)
    buffer = node.device.wrap(array, copy=copy)
    buffer.shared = False  # nobody else has seen it
    return buffer
