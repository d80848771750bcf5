"""The verifier: what must hold of values, groups, kernels and the plan after each pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import Any

from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.chains.verify import found_in_chain
from tiledarray.fusion.group import Grouper
from tiledarray.fusion.ir import Group, Value, storage, value_args
from tiledarray.fusion.plan import Kernel, Plan, Step
from tiledarray.fusion.races import found_races
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Item,
    Leaf,
    Op,
    Reduction,
    Reshape,
    Scan,
    Source,
    Update,
)


class InvalidPlan(AssertionError):
    """A pass produced a plan that cannot be run."""


def _raise_first(complaints: Iterator[str]) -> None:
    for complaint in complaints:
        raise InvalidPlan(complaint)


def verify_values(values: list[Value], outputs: list[Value]) -> None:
    """Check values: inputs come before their users, shapes and dtypes follow from theirs.

    Raises
    ------
    InvalidPlan
    """
    _raise_first(_found_in_values(values, outputs))


def verify_groups(grouper: Grouper) -> None:
    """Check groups: each sink is made once, from cells in order and groups that come before.

    Raises
    ------
    InvalidPlan
    """
    for group in grouper.groups:
        _raise_first(_found_in_group(group, grouper))


def verify_steps(steps: list[Step]) -> None:
    """Check the schedules of kernels: nothing is left out and nothing is done twice.

    Raises
    ------
    InvalidPlan
    """
    for step in steps:
        for part in step.parts if isinstance(step, Kernel) else ():
            _raise_first(_found_in_kernel(part))
        if isinstance(step, ChainKernel):
            _raise_first(found_in_chain(step))


def verify(plan: Plan, donated: Collection[int]) -> None:
    """Check a plan that may overwrite the leaves of those numbers.

    Raises
    ------
    InvalidPlan
        If it reads what is not there, leaves an output out, or has two values in one memory where
        it does not say so.
    """
    verify_steps(plan.steps)
    _raise_first(found_races(plan, donated))


# ---- values ----------------------------------------------------------------------------------


def _found_in_values(values: list[Value], outputs: list[Value]) -> Iterator[str]:
    known: set[Value] = set()
    for value in values:
        for arg in value_args(value):
            if arg not in known:
                yield f"{value} uses {arg} before it exists"
        if value in known:
            yield f"{value} is there twice"
        known.add(value)
        check = next((check for kind, check in _CHECKS.items() if isinstance(value.op, kind)), None)
        if check is not None and not check(value):
            yield f"{value} of {value.dtype} does not follow from {value.args}, {value.attrs}"
    for value in outputs:
        if value not in known:
            yield f"output {value} is no value of the plan"


def _follows_elementwise(value: Value) -> bool:
    return len(value.attrs) == len(value.args) and all(
        _broadcasts(arg.shape, value.shape) for arg in value_args(value))


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def _follows_reduction(value: Value) -> bool:
    source, axes = value.args[0], value.attrs[0]
    kept = tuple(n for axis, n in enumerate(source.shape) if axis not in axes)
    return kept == value.shape and list(axes) == sorted(set(axes))


def _follows_scan(value: Value) -> bool:
    return value.shape == value.args[0].shape and 0 <= value.attrs < len(value.shape)


def _follows_view(value: Value) -> bool:
    source, (axes, steps) = value.args[0], value.attrs
    return value.dtype == source.dtype and len(axes) == len(steps) == len(source.shape) and all(
        axis < 0 or abs(step) * (value.shape[axis] - 1) < max(n, 1)
        for axis, step, n in zip(axes, steps, source.shape, strict=True))


def _follows_update(value: Value) -> bool:
    old, new = value.args[:2]
    axes, steps, region = value.attrs
    followed = [axis for axis in axes if axis >= 0]
    return (value.shape == old.shape and value.dtype == old.dtype == new.dtype
            and len(axes) == len(steps) == len(old.shape)
            and {axis for axis, n in enumerate(region) if n != 1} <= set(followed)
            and _broadcasts(new.shape, region))


_CHECKS: dict[type[Op], Callable[[Value], bool]] = {
    Elementwise: _follows_elementwise,
    Reduction: _follows_reduction,
    Scan: _follows_scan,
    AxisView: _follows_view,
    Reshape: lambda value: (value.size, value.dtype) == (value.args[0].size, value.args[0].dtype),
    Update: _follows_update,
    Source: lambda value: not value_args(value),
    Leaf: lambda value: not value.args,
}


# ---- groups ----------------------------------------------------------------------------------


def _found_in_group(group: Group, grouper: Grouper) -> Iterator[str]:
    if grouper.comes_before(group.number, group.number):
        yield f"kernel {group.number} must come before itself"
    for sink in group.sinks:
        if grouper.group_of.get(sink.value) is not group:
            yield f"{sink.value} is a sink of several kernels"
        if sink.cell not in group.cells:
            yield f"{sink.value} is not computed where it is stored"
    yield from _found_in_cells(group)
    for cell in group.loads:
        assert cell.access is not None
        value = storage(cell.access.value)
        owner = grouper.group_of.get(value.args[0] if isinstance(value.op, Item) else value)
        if owner is group:
            yield f"kernel {group.number} reads {cell.value}, which it computes"
        elif owner is not None and not grouper.comes_before(owner.number, group.number):
            yield f"kernel {group.number} does not wait for {cell.value}"
        elif owner is None and not isinstance(value.op, Leaf):
            yield f"kernel {group.number} reads {cell.value}, which nothing computes"


def _found_in_cells(group: Group) -> Iterator[str]:
    seen: set[Any] = set()
    for cell in group.cells:
        if cell.number != len(seen):
            yield f"cell {cell.number} is the {len(seen)}th"
        for arg in cell.args:
            if arg not in seen:
                yield f"cell {cell.number} uses cell {arg.number} before it exists"
            if arg.phase > cell.phase:
                yield f"cell {cell.number} needs a later pass"
        seen.add(cell)


# ---- kernels ---------------------------------------------------------------------------------


def _found_in_kernel(kernel: Kernel) -> Iterator[str]:
    yield from _found_in_cells(kernel.group)
    schedule = kernel.schedule
    names = [axis for part in schedule.axes for axis in part.domain]
    if len(names) != len(set(names)):
        yield "an axis appears twice in the loop nest"
    if prod(axis.size for axis in schedule.axes) != prod(kernel.group.shape):
        yield f"the loop nest is not the domain {kernel.group.shape}"
    if [axis.role for axis in schedule.axes] != sorted(
            (axis.role for axis in schedule.axes), key=["row", "step", "lane"].index):
        yield "rows, steps and lanes are not in this order"
    if any(cell.kind == "across" for cell in kernel.cells) and not schedule.across:
        yield "what is reduced over all rows has no rows that blocks share"
    tiles = (schedule.width, *schedule.threads, schedule.unroll, schedule.chunks, schedule.row_tile,
             schedule.lane_tile, schedule.splits)
    if min(tiles) < 1 or prod(schedule.threads) > 1024:
        yield f"a tile of {tiles}"
    if not kernel.stores:
        yield "a kernel writes nothing"
    sums = {cell for cell in kernel.cells if cell.kind == "reduce"}
    ends = [mirror.sum for mirror in kernel.mirrors.values()]
    if ends and (sums != {*kernel.mirrors, *ends} or len(sums) != 2 * len(ends)):
        yield "a sum over pairs is not that of one end and that of the other"
    for access in (*kernel.loads.values(), *(store.access for store in kernel.stores)):
        if len(access.strides) != len(schedule.axes):
            yield f"{access.value} has strides for {len(access.strides)} axes"
