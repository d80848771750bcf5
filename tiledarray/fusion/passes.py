"""The passes in order, from a signature to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray.fusion.cover import uncover
from tiledarray.fusion.group import Grouper, TooLarge, elementwise_args
from tiledarray.fusion.ir import Value
from tiledarray.fusion.order import MustStore, order
from tiledarray.fusion.pieces import cut
from tiledarray.fusion.plan import Plan
from tiledarray.fusion.regions import Regions
from tiledarray.fusion.rewrite import Builder, rewrite, unit_axes
from tiledarray.fusion.target import Target
from tiledarray.fusion.verify import verify
from tiledarray.ops import movement
from tiledarray.ops.op import AxisView, Elementwise


def plan(signature: tuple[Any, ...], donatable: frozenset[int], target: Target, *,
         params: Sequence[Any] | None = None, check: bool = False) -> Plan:
    """Plan what a signature describes.

    Rewriting comes first because it removes reshapes that grouping would have to store for;
    grouping decides what is stored, which tiling needs to know all accesses; placing needs the
    passes that grouping found and the chunks that tiling chose; sharing launches needs the order
    of all kernels and the memory of what is updated in place.

    With ``params``, scalars of an evaluation, the plan may assume of them what it says in
    ``assumed``; without, it is right for all.
    """
    builder, outputs = rewrite(signature, target)
    outputs = [_as_stored(builder, value) for value in outputs]
    covered = Regions(params)
    uncover(builder, outputs, covered)
    outputs = cut(builder, outputs, covered)
    forced: set[Value] = set()
    while True:
        grouper = Grouper(builder.values, outputs, target)
        grouper.stored |= forced
        try:
            grouper.run()
            regions = Regions(params, dict(covered.assumed))
            result = order(grouper, donatable, target, regions, dict(builder.fired),
                           builder.origin, builder.entry)
            break
        except TooLarge as too_large:
            forced.add(_largest_below(too_large.value, grouper.stored))
        except MustStore as must:
            forced.add(must.value)
    if check:
        verify(result, donatable)
    return result


def _as_stored(builder: Builder, value: Value) -> Value:
    """An output that only adds axes to a value shares its memory."""
    if isinstance(value.op, AxisView):
        inner = value.args[0]
        axes = unit_axes(inner.shape, value.shape)
        if axes is not None and inner.size == value.size and all(
            (axis == found and step == 1 and start is None) or n == 1
            for axis, found, step, start, n in zip(
                value.attrs[0], axes, value.attrs[1], value.args[1:], inner.shape, strict=True)
        ):
            alias = Value(len(builder.values), movement.reshape, None, (inner,), value.shape,
                          value.dtype)
            builder.values.append(alias)
            return alias
    return value


def _largest_below(value: Value, stored: set[Value]) -> Value:
    """The virtual value in the middle of a sink's cone: storing it cuts the work in two."""
    cone: list[Value] = []
    seen: set[Value] = set()
    stack = elementwise_args(value)
    while stack:
        arg = stack.pop()
        if arg in seen or arg in stored:
            continue
        seen.add(arg)
        if isinstance(arg.op, Elementwise):
            cone.append(arg)
        stack.extend(elementwise_args(arg))
    cone.sort(key=lambda v: v.number)
    if not cone:
        raise AssertionError(f"{value} cannot be made smaller")
    return cone[len(cone) // 2]
