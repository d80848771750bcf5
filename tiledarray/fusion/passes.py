"""The passes in order, from a signature to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from tiledarray.fusion.cover import uncover
from tiledarray.fusion.group import Grouper
from tiledarray.fusion.ir import Value
from tiledarray.fusion.order import order
from tiledarray.fusion.pieces import cut
from tiledarray.fusion.plan import Plan
from tiledarray.fusion.regions import Regions
from tiledarray.fusion.rewrite import Builder, rewrite, unit_axes
from tiledarray.fusion.stored import MustStore
from tiledarray.fusion.target import Target
from tiledarray.fusion.verify import verify
from tiledarray.ops import movement
from tiledarray.ops.op import AxisView

RESTARTS = 3  # of grouping for the sake of kernels that are too large


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
    for attempt in count():
        grouper = Grouper(builder.values, outputs, target, forced, may_restart=attempt < RESTARTS)
        try:
            grouper.run()
            regions = Regions(params, dict(covered.assumed))
            result = order(grouper, donatable, target, regions, dict(builder.fired),
                           builder.origin, builder.entry)
            break
        except MustStore as must:
            forced.update(must.values)
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
