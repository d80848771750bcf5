"""Evaluation: from pending nodes to buffers.

A plan is looked up by the signature of what is pending; if there is none it is made.  A plan whose
kernels are not compiled yet runs op by op at once while they compile, where that is the quicker
way and needs no more memory.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tiledarray import config
from tiledarray.core import install_running, remember, remembers, run_known
from tiledarray.devices import storage
from tiledarray.devices.device import Device
from tiledarray.devices.pool import host_pool
from tiledarray.errors import (
    CompilerError,
    NodeFailed,
    OutOfMemory,
    TiledArrayWarning,
    raised_outside,
)
from tiledarray.execution import kept, placement, replay
from tiledarray.execution.at_one_go import persist
from tiledarray.execution.background import everywhere
from tiledarray.execution.executable import Executable, observers
from tiledarray.execution.instructions import program_of
from tiledarray.execution.library_calls import SILENCE
from tiledarray.execution.op_by_op import run as reference
from tiledarray.execution.op_by_op.blocks import run_loops
from tiledarray.execution.op_by_op.parts import Part, cost, nbytes, parts_of
from tiledarray.execution.spans import Spending, counters
from tiledarray.execution.taken import Mark, Taken
from tiledarray.fork import hold_at_fork
from tiledarray.fusion import passes
from tiledarray.fusion.ir import Value
from tiledarray.fusion.loops import in_blocks
from tiledarray.fusion.order import written
from tiledarray.fusion.plan import Call, Plan
from tiledarray.fusion.regions import Assumption
from tiledarray.fusion.target import Target
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Node, location
from tiledarray.graph.program import Trace, below, trace
from tiledarray.graph.scalars import told_apart
from tiledarray.kernels.compile import cuda, host
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.movement import placeholder
from tiledarray.ops.op import Leaf, Library, Update

_Error = TypeVar("_Error", bound=BaseException)

PLANS_REMEMBERED = 1024
PLANS_THAT_ASSUME = 3  # of one signature; the next assumes nothing of the parameters
COMPILE_SECONDS = 0.7
SMALL_SECONDS = 0.002
TIMES_OF_SMALL = 3
AMPLE_BYTES = 1 << 28

lock = threading.RLock()
hold_at_fork(lock)
_executables: OrderedDict[Any, Executable | Bound | UnsupportedDtypeError] = OrderedDict()
_met: OrderedDict[Any, int] = OrderedDict()  # how often, of what has no plan
_NONE: frozenset[int] = frozenset()
_NOTHING = contextlib.nullcontext()
_warned: set[str] = set()


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
    if not unknown and run_known([*targets]):
        verify()
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
        _compile(awaited)  # others may evaluate, and the process fork, meanwhile


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
    taken = Taken(traced)
    with place.active() if place.kind == "cuda" else _NOTHING:
        try:
            taken.take(targets)
            return _evaluate_taken(taken, targets, place, small)
        except BaseException:
            persist(taken.restore)
            raise


def place_of(
    traced: Trace, targets: list[Node], device: Device, **known: bool
) -> Device:
    """Return where the targets are computed: on their device, if that is a place.

    What is known of them is told to `placement.chosen`.
    """
    if device.kind != "auto":
        return device
    return placement.chosen(traced, targets, host_threads(), **known)


def _evaluate_taken(
    taken: Taken, targets: list[Node], device: Device, small: bool
) -> Executable | None:
    traced = taken.traced
    if config.compile != "wait" and device.on_host and (
            _is_new(taken, device, TIMES_OF_SMALL if small else 1)):
        taken.restore()
        parts = parts_of(traced.nodes, targets)
        if cost(parts, host_threads())[0] < (SMALL_SECONDS if small else config.first_seconds):
            _op_by_op(parts, taken, targets)
            return None
    try:
        executable, params = bound_to(traced, device, taken)
    except UnsupportedDtypeError:
        taken.restore()
        placement.bring_leaves_home(traced)
        run_reference(traced.nodes, targets)  # strings, times, objects: only NumPy knows them
        return None
    if executable.ready:
        _run(executable, params, taken, targets)
        if executable.for_core and device is targets[0].device:
            _tell_core(executable, traced, taken)
        return None
    taken.restore()
    parts = parts_of(traced.nodes, targets)
    if _waits(executable, parts):
        return executable
    if executable.bodies and cost(parts, host_threads())[1] > AMPLE_BYTES:
        if targets[0].device.kind == "auto":
            placement.bring_leaves_home(traced)
        run_loops(traced, in_blocks(traced.signature, target_of(device)), device, run_reference)
        parts = parts_of(below(targets), targets)
    _op_by_op(parts, taken, targets)
    if executable.wanted:
        executable.compile_in_background()  # not before: the compiler would take a processor
    for node in targets:
        node.buffer.plan = executable
    return None


def _tell_core(executable: Executable, traced: Trace, taken: Taken) -> None:
    """Have the core run the plan when it is met again."""
    found = _executables.get((traced.key, taken.given, config.contract, executable.device))
    if found is None or remembers(traced.key, executable) or (
            type(found) is Bound and found.executable is not executable):
        return
    program = program_of(executable, traced.updates, taken.given)
    executable.for_core = program is not None
    if program is not None:
        remember(traced.key, program, found.picks if type(found) is Bound else None)
        executable.told.add(traced.key)


def _is_new(taken: Taken, device: Device, times: int) -> bool:
    """Whether this has been met less often: to plan what may not come again takes longer."""
    key = (taken.traced.key, taken.given, config.contract, device)
    if key in _executables:
        return False
    met = _met.get(key, 0)
    _met[key] = met + 1
    while len(_met) > PLANS_REMEMBERED:
        _met.popitem(last=False)
    return met < times


# ---- plans ---------------------------------------------------------------------------------


class Bound(NamedTuple):
    """A plan for a trace in which scalars are equal by chance.

    Attributes
    ----------
    executable : Executable
    picks : tuple of int
        For each parameter of the plan, the one of the trace that it is.
    key : tuple
        By which others of its signature are found, that assume something else.
    """

    executable: Executable
    picks: tuple[int, ...]
    key: Any

    def params(self, of_trace: Sequence[Any]) -> list[Any]:
        """Return the plan's parameters, given those of the trace."""
        return [of_trace[number] for number in self.picks]


def executable_for(traced: Trace, device: Device, taken: Taken | None = None) -> Executable:
    """Return the executable of a trace, planning if it is new; see `bound_to`."""
    return bound_to(traced, device, taken)[0]


def bound_to(traced: Trace, device: Device, taken: Taken | None = None) -> (
        tuple[Executable, Sequence[Any]]):
    """Return the executable of a trace, planning if it is new, and the parameters to run it with.

    Parameters
    ----------
    traced : Trace
    device : Device
    taken : Taken, optional
        The trace's nodes, where the plan may write in the memory of leaves.

    Raises
    ------
    UnsupportedDtypeError
        Some value has a dtype that kernels do not know.
    """
    donatable = _NONE if taken is None else taken.given
    contract = config.contract
    key: Any = (traced.key, donatable, contract, device)
    params: Sequence[Any] = traced.params
    found = _executables.get(key)
    if type(found) is Executable and not found.plan.assumed:
        return found, params
    if found is None:
        sites = [node.site for node in traced.nodes] if taken is None else taken.sites()
        apart, picks = told_apart(traced, sites)
        if len(picks) > len(params):
            plain: Any = apart.key, donatable, contract, device
            found = _executables.get(plain)
            while type(found) is Bound:  # others of this structure have been told apart further
                apart, picks, plain, found = _bound_again(apart, picks, found)
            made = _suiting(apart, plain, found, taken)
            _remember(key, Bound(made, picks, plain))
            return made, apart.params
    elif type(found) is Bound:
        params = found.params(traced.params)
        if found.executable.plan.suits(params):
            return found.executable, params
        picks = tuple(range(len(traced.params)))
        while type(found) is Bound:
            traced, picks, key, found = _bound_again(traced, picks, found)
        params = traced.params
    return _suiting(traced, key, found, taken), params


def _bound_again(
    traced: Trace, picks: tuple[int, ...], found: Bound
) -> tuple[Trace, tuple[int, ...], Any, Any]:
    """Return the trace as a plan for it is looked up, by which picks, its key and what that finds.

    The picks are of what the given ones are of.
    """
    traced = traced._replace(key=found.key[0], params=found.params(traced.params))
    picks = tuple([picks[number] for number in found.picks])
    return traced, picks, found.key, _executables.get(found.key)


def _suiting(traced: Trace, key: Any, found: Any, taken: Taken | None) -> Executable:
    """Return the plan found for a key or the next that suits the parameters; else plan."""
    _, donatable, contract, device = key
    assumed: list[tuple[Assumption, ...]] = []  # by plans that do not suit
    while True:
        if found is None:
            if taken is not None:
                taken.restore()
            found = _planned(traced, donatable, device, contract, assumed)
            _remember(key, found)
        if isinstance(found, UnsupportedDtypeError):
            raise found.with_traceback(None)
        assert type(found) is Executable
        if found.plan.suits(traced.params):
            return found
        assumed.append(found.plan.assumed)
        key = key, found.plan.assumed
        found = _executables.get(key)


def _remember(key: Any, made: Executable | Bound | UnsupportedDtypeError) -> None:
    """Keep what was made for a key, and let go what was made first."""
    _executables[key] = made
    while len(_executables) > PLANS_REMEMBERED:
        _, dropped = _executables.popitem(last=False)
        if isinstance(dropped, Executable):
            dropped.let_go()


def _planned(
    traced: Trace, donatable: frozenset[int], device: Device, contract: bool | str,
    assumed: Sequence[tuple[Assumption, ...]],
) -> Executable | UnsupportedDtypeError:
    """Return the plan that another process kept, which need not suit the parameters; else plan."""
    for dtype in {node.dtype for node in traced.nodes}:
        if not has_kernel(dtype):
            return UnsupportedDtypeError(f"no kernel for dtype {dtype}")
    with Spending("planning", traced):
        return _found_or_made(traced, donatable, device, contract, assumed)


def _found_or_made(
    traced: Trace, donatable: frozenset[int], device: Device, contract: bool | str,
    assumed: Sequence[tuple[Assumption, ...]],
) -> Executable:
    target = target_of(device, contract)
    params = traced.params if len(assumed) < PLANS_THAT_ASSUME else None
    name = kept.name(traced.parts, donatable, target, assumed) if _keeps_plans() else None
    found = kept.find(name) if name is not None else None
    if found is not None:
        plan, programs, names, params = found
        made = Executable(plan, device, contract is True, programs, names)
        made.again = partial(_made, traced.signature, traced.outputs, donatable, device, target,
                             params, contract=contract is True)
        counters["plans read"] += 1
    else:
        counters["plans made"] += 1
        made = _made(traced.signature, traced.outputs, donatable, device, target, params,
                     contract=contract is True)
        if name is not None:
            kept.keep(name, made.plan, made.programs, made.names, params)
    made.sites, made.params = [node.site for node in traced.nodes], traced.params
    return made


def _keeps_plans() -> bool:
    """Whether plans are kept on disk: with the kernels, and unless each is to be verified."""
    return config.compile != "never" and not config.verify


def _made(
    signature: tuple[Any, ...], outputs: Sequence[int], donatable: frozenset[int], device: Device,
    target: Target, params: Sequence[Any] | None, *, contract: bool,
) -> Executable:
    plan = passes.plan(signature, donatable, target, params=params, check=config.verify)
    for value, number in zip(plan.outputs, outputs, strict=True):
        if number not in plan.entry.setdefault(value, []):
            plan.entry[value].append(number)
    if donatable and _loses_on_failure(plan):
        return _made(signature, outputs, _NONE, device, target, params, contract=contract)
    return Executable(plan, device, contract)


def _loses_on_failure(plan: Plan) -> bool:
    """Whether something that a leaf is overwritten after cannot be had again if a later step fails.

    What was computed by then is kept in the nodes of its values; what the planner computes for
    itself has no node, and what it was made of may be what has been overwritten.
    """
    stored = [written(step) for step in plan.steps]
    overwrites = [k for k, values in enumerate(stored) for value in values
                  if plan.memory[value] is not value and isinstance(plan.memory[value].op, Leaf)]
    return any(
        k <= at < plan.last_use[plan.memory[value]]
        for at in overwrites for k, values in enumerate(stored) for value in values
        if not plan.entry.get(value) and plan.memory[value] in plan.last_use
    )


def target_of(device: Device, contract: bool | str | None = None) -> Target:
    """What the planner knows of a device; contraction is ``config.contract`` unless it is given."""
    if contract is None:
        contract = config.contract
    if device.kind == "cuda":
        limits = device.properties
        return Target("cuda", limits.multiprocessors, limits.shared_bytes_per_block,
                      contract=bool(contract))
    return Target("cpu", host_threads())


def host_threads() -> int:
    """Threads that share the work on the host."""
    return config.threads or host.available_cpus_remembered()


# ---- tiers ---------------------------------------------------------------------------------


def _waits(executable: Executable, parts: Sequence[Part]) -> bool:
    """Whether to wait until kernels are compiled and run them, or to go on op by op."""
    problem = compiler_problem(executable.device)
    if problem is not None:
        if config.compile != "never":
            _warn(f"tiledarray runs op by op, without fused kernels: {problem}")
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
    much_memory = largest > max(AMPLE_BYTES, 2 * least)
    if not executable.wanted and (seconds > COMPILE_SECONDS or much_memory):
        return True
    if seconds > SMALL_SECONDS or executable.met > 1:  # what is small and met once is not worth it
        executable.wanted = True
    return False


def compiler_problem(device: Device) -> str | None:
    """Why kernels are not compiled for a device; ``None`` where they are."""
    if config.compile == "never":
        return "config.compile is 'never'"
    return cuda.available() if device.kind in ("cuda", "auto") else host.available()


def _compile(executable: Executable) -> None:
    """Compile a plan; where that fails, its trouble stands when it is met again."""
    device = executable.device
    try:
        with device.active() if device.kind == "cuda" else _NOTHING:
            executable.compile()
    except (CompilerError, OSError) as error:
        do_without(error)


def do_without(failure: BaseException) -> bool:
    """Warn, once, that something runs op by op since it does not compile; return ``False``."""
    _warn(f"tiledarray runs op by op what does not compile: {failure}", once="compile")
    return False


def _warn(message: str, once: str = "") -> None:
    if (once or message) not in _warned:
        _warned.add(once or message)
        warnings.warn(message, TiledArrayWarning, stacklevel=2)


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
        if isinstance(error, Exception):
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


install_running({
    "lock": lock, "device": Device("cpu"), "allocate": Device("cpu").allocate,
    "observers": observers, "counters": counters, "buffer": storage.Buffer,
    "silence": SILENCE, "is_outside": raised_outside,
})


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
        _told_where(error, nodes[0])


def _told_where(error: _Error, node: Node) -> _Error:
    """The error, with a note of the line that recorded the node."""
    place = location(node.site)
    if place is not None:
        error.add_note(f"while computing {node.op.name}, recorded at {place[0]}:{place[1]}")
    return error


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
            raise _told_where(_no_room(node), node) from error
        raise _told_where(error, node) from error.__cause__
    for node in targets:
        node.forget_inputs()


def _no_room(node: Node) -> OutOfMemory:
    size = nbytes(node)
    return OutOfMemory(
        f"no memory on {node.device} for an array of {size:,} bytes", nbytes=size,
        remedy="delete arrays that are no longer needed, use a smaller dtype, or work in parts",
    )
