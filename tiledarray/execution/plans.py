"""Plans of what is pending: those of before, those kept on disk, and new ones.

The planner comes along with this, so `evaluate` imports it when there is something to plan.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tiledarray import config
from tiledarray.block import Block
from tiledarray.devices.device import Device
from tiledarray.devices.threads import host_threads
from tiledarray.execution import kept, known, tuning
from tiledarray.execution.doing_without import tell_once
from tiledarray.execution.executable import Executable
from tiledarray.execution.spans import Spending, counters
from tiledarray.execution.taken import Taken
from tiledarray.fusion import passes
from tiledarray.fusion.choices import BY_FORM
from tiledarray.fusion.order import written
from tiledarray.fusion.plan import Plan
from tiledarray.fusion.regions import Assumption
from tiledarray.fusion.target import Target
from tiledarray.fusion.verify import InvalidPlan
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.program import Trace
from tiledarray.graph.scalars import told_apart
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.op import Leaf

PLANS_THAT_ASSUME = 3  # of one signature; the next assumes nothing of the parameters
_NONE: frozenset[int] = frozenset()


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


class _NotLookingForGarbage(Block):
    """Have Python look for no garbage: a plan's objects stay, and are looked through many times."""

    _enabled = False

    def begin(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        if self._enabled:
            gc.enable()


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
    found = known.executables.get(key)
    if type(found) is Executable and not found.plan.assumed:
        return found, params
    if found is None:
        sites = [node.site for node in traced.nodes] if taken is None else taken.sites()
        apart, picks = told_apart(traced, sites)
        if len(picks) > len(params):
            plain: Any = apart.key, donatable, contract, device
            found = known.executables.get(plain)
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
    return traced, picks, found.key, known.executables.get(found.key)


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
        found = known.executables.get(key)


def _remember(key: Any, made: Executable | Bound | UnsupportedDtypeError) -> None:
    """Keep what was made for a key, and let go what was made first."""
    known.executables[key] = made
    while len(known.executables) > known.PLANS_REMEMBERED:
        _, dropped = known.executables.popitem(last=False)
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
    with Spending("planning", traced), _NotLookingForGarbage():
        return _found_or_made(traced, donatable, device, contract, assumed)


def _found_or_made(
    traced: Trace, donatable: frozenset[int], device: Device, contract: bool | str,
    assumed: Sequence[tuple[Assumption, ...]],
) -> Executable:
    target = target_of(device, contract)
    name_of_class = _class_name(traced, donatable, target, device)
    known_best = None if name_of_class is None else tuning.found(name_of_class)
    usual = target
    if known_best is not None:
        target = replace(target, choice=known_best.choice)
    params = traced.params if len(assumed) < PLANS_THAT_ASSUME else None
    name = kept.name(traced.parts, donatable, target, assumed) if _keeps_plans() else None
    found = kept.find(name) if name is not None else None
    if found is not None:
        plan, programs, names, params = found
        made = Executable(plan, device, contract is True, programs, names)
        made.again = target
        counters["plans read"] += 1
    planned = partial(_made, traced.signature, traced.outputs, donatable, device, params,
                      contract=contract is True)
    if found is None:
        counters["plans made"] += 1
        made = planned(target)
        if name is not None:
            kept.keep(name, made.plan, made.programs, made.names, params)
    made.planned = planned
    if known_best is not None:
        made.tuned = known_best.text()
    elif name_of_class is not None:
        made.tuning = tuning.tuning_of(made, usual, name_of_class, len(traced.nodes))
    made.sites, made.params = [node.site for node in traced.nodes], traced.params
    return made


def _class_name(
    traced: Trace, donatable: frozenset[int], target: Target, device: Device
) -> str | None:
    """Name of the class of plans that what tuning finds is kept for; ``None`` where it is off."""
    if not config.tune or not BY_FORM[target.kind]:
        return None
    maker = device.properties.name if device.kind == "cuda" else platform.machine()
    return kept.class_name(traced.parts, donatable, target, maker)


def is_kept(traced: Trace, device: Device, taken: Taken) -> bool:
    """Whether another process has kept the plan of a trace."""
    if not _keeps_plans():
        return False
    name = kept.name(traced.parts, taken.given, target_of(device), ())
    return name is not None and kept.has(name)


def _keeps_plans() -> bool:
    """Whether plans are kept on disk: with the kernels, and unless each is to be verified."""
    return config.compile != "never" and not config.verify


def _made(
    signature: tuple[Any, ...], outputs: Sequence[int], donatable: frozenset[int], device: Device,
    params: Sequence[Any] | None, target: Target, *, contract: bool,
) -> Executable:
    plan = _valid(signature, donatable, target, params)
    for value, number in zip(plan.outputs, outputs, strict=True):
        if number not in plan.entry.setdefault(value, []):
            plan.entry[value].append(number)
    if donatable and _loses_on_failure(plan):
        return _made(signature, outputs, _NONE, device, params, target, contract=contract)
    return Executable(plan, device, contract)


def _valid(
    signature: tuple[Any, ...], donatable: frozenset[int], target: Target,
    params: Sequence[Any] | None,
) -> Plan:
    """Return a plan that the verifier accepts: if the usual one is none, one that assumes less.

    Raises
    ------
    InvalidPlan
        There is none either, or plans are to be verified (`config.verify`).
    """
    try:
        return passes.plan(signature, donatable, target, params=params, check=True)
    except InvalidPlan as fault:
        if config.verify:
            raise
        tell_once("tiledarray found a fault of its own in a plan before it could do harm "
                  f"({fault}), and goes another way, which may be slower. Please report it.")
    return passes.plan(signature, _NONE, replace(target, choice=()), check=True, loops=False)


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
                      contract=bool(contract), wgmma=limits.capability[0] == 9)
    return Target("cpu", host_threads())
