"""The passes in order, from a signature to a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count, repeat
from typing import Any

from tiledarray.fork import importing
from tiledarray.fusion.agree import computed_apart
from tiledarray.fusion.along import looped_of
from tiledarray.fusion.bodies import Body
from tiledarray.fusion.chains.find import in_chains
from tiledarray.fusion.cover import uncover
from tiledarray.fusion.gathers import fuse_gathers
from tiledarray.fusion.group import Grouper
from tiledarray.fusion.ir import Value, unit_axes
from tiledarray.fusion.loops import MOST_LOOPS, in_blocks
from tiledarray.fusion.memory import last_uses, memory_of, shared_outputs
from tiledarray.fusion.order import in_order
from tiledarray.fusion.pieces import cut
from tiledarray.fusion.placed import read_where_placed
from tiledarray.fusion.plan import Plan
from tiledarray.fusion.regions import Regions
from tiledarray.fusion.rewrite import Builder, rewrite
from tiledarray.fusion.share import share
from tiledarray.fusion.spectra import overwrite_halves
from tiledarray.fusion.stored import MustStore
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.find import Found, in_tiles
from tiledarray.fusion.tiles.ir import Program
from tiledarray.fusion.tiles.kernel import body_plan
from tiledarray.fusion.time_tiles import Refused as NotTiled
from tiledarray.fusion.time_tiles import found as in_time_tiles
from tiledarray.fusion.updates import UpdateChoice, choose_updates
from tiledarray.fusion.verify import verify, verify_groups, verify_steps, verify_values
from tiledarray.ops import movement
from tiledarray.ops.loop import Steps
from tiledarray.ops.op import AxisView, Loop, Repeat

RESTARTS = 3  # of grouping for the sake of kernels that are too large


def plan(signature: tuple[Any, ...], donatable: frozenset[int], target: Target, *,
         params: Sequence[Any] | None = None, check: bool = False, loops: bool = True) -> Plan:
    """Plan what a signature describes: every pass, in order, checked if so wished.

    With ``params``, scalars of an evaluation, the plan may assume of them what it says in
    ``assumed``; without, it is right for all.

    Parameters
    ----------
    signature : tuple
        See `Trace.signature`.
    donatable : frozenset of int
        Numbers of the leaves whose memory updates may write in.
    target : Target
    params : sequence of scalar, optional
    check : bool
        Whether the verifier looks at what each pass leaves.
    loops : bool
        Whether something may go block by block.

    Raises
    ------
    InvalidPlan
        If it does not accept that.
    """
    # Loops.  What goes problem by problem on chip, or block by block, is a library call to all that
    # follows, and planned apart.

    # Values.  Rewriting comes first: it removes reshapes that grouping would have to store for, and
    # shares equal values.  What is overwritten must be known before arrays are cut along their
    # parts: a part may begin uninitialised.  Gathers come last, when it is known who reads them,
    # and what a call may overwrite.
    tiled = _on_chip(signature, target) if loops else Found(looped_of(signature), [])
    looped = in_blocks(tiled.looped, target, most=MOST_LOOPS if loops else 0)
    builder, outputs = rewrite(looped, target)
    outputs = [_as_stored(builder, value) for value in outputs]
    assumed = Regions(params)
    uncover(builder, outputs, assumed)
    outputs = cut(builder, outputs, assumed)
    fuse_gathers(builder, outputs)
    overwrite_halves(builder, outputs)
    if check:
        verify_values(builder.values, outputs)

    # Groups.  They decide what is stored; only then is it known who reads what an update
    # overwrites.  Where either needs something more in memory, grouping begins anew.
    alike: set[Value] = set()
    grouper, choices, regions = _grouped(builder, outputs, donatable, target, assumed, alike)

    # Kernels.  For each group `tile` orders and merges the axes and cuts them into tiles, for which
    # it needs all accesses; in it, maps turn transposed tiles and find windows, reductions stage
    # their loads, and maps bound by instructions try quick texts.  Then `place` holds what several
    # passes need, in what room staging and the chunks of a tile have left.
    # What is then seen to be computed in several places, and must be the same in all of them, is
    # stored as well.
    steps = in_order(grouper.groups, choices, target)
    while not alike.issuperset(apart := computed_apart(grouper.values, steps, target)):
        alike |= apart
        grouper, choices, regions = _grouped(builder, outputs, donatable, target, assumed, alike)
        steps = in_order(grouper.groups, choices, target)
    if check:
        verify_groups(grouper)
        verify_steps(steps)

    # Memory.  Launches are shared last: whether kernels may go beside one another depends on the
    # order of all, and on what lies in the same memory.  Launches in a row that read near where
    # they write are then done together, tile by tile.
    memory = memory_of(grouper.values, choices)
    refusals = [*tiled.refusals, *(text for group in grouper.groups for text in group.refusals)]
    steps = share(steps, memory, regions, target, refusals)
    steps = in_chains(steps, memory, outputs, regions, target)
    result = Plan(
        steps=steps, values=grouper.values, outputs=outputs, memory=memory,
        shared=shared_outputs(outputs, memory), last_use=last_uses(steps, memory),
        fired=dict(builder.fired), origin=builder.origin, entry=builder.entry, updates=choices,
        refusals=refusals, assumed=tuple(regions.assumed),
        bodies={value: _planned_body(value.attrs, target, check=check)
                for value in builder.values if isinstance(value.op, Loop | Repeat)},
    )
    if check:
        verify(result, donatable)
    return result


def _on_chip(signature: tuple[Any, ...], target: Target) -> Found:
    """Have what is worth it computed problem by problem, or row by row of a product, on chip."""
    tiled = in_tiles(signature, target)
    if target.kind != "cuda":
        return tiled
    with importing:  # of no use on the host
        from tiledarray.fusion.streams.find import in_streams
    return in_streams(tiled, target)


def _planned_body(body: Body | Steps, target: Target, *, check: bool) -> dict[Any, Plan]:
    """Plan what a loop does with blocks of each of its sizes, or in its steps."""
    if isinstance(body, Steps):
        # Where views begin is known, so all that may be assumed of that holds.
        made: dict[Any, Plan] = {
            step: plan(step.signature, step.given_up(body.first), target,
                       params=step.filled(repeat(0.0)), check=check)
            for step in body.recordings}
        if body.body not in made:
            return made
        try:
            tiles = in_time_tiles(body, target)
        except NotTiled as refusal:
            made[body.body].refusals.append(f"steps are done one by one: {refusal}")
            return made
        made[tiles] = plan(tiles.step.signature, frozenset(), target,
                           params=tiles.step.filled(repeat(0.0)), check=check)
        return made
    if isinstance(body.program, Program):
        return {body.block: body_plan(body, target, check=check)}
    if body.program is not None:
        with importing:
            from tiledarray.fusion.streams.kernel import body_plan as stream_plan
        return {body.block: stream_plan(body, target, check=check)}
    return {sizes: plan(signature, body.written, target, check=check, loops=False)
            for sizes, signature in body.signatures.items()}


def _grouped(builder: Builder, outputs: list[Value], donatable: frozenset[int], target: Target,
             assumed: Regions, alike: Collection[Value]) -> tuple[Grouper, UpdateChoice, Regions]:
    """Group values and choose how updates are done, until neither needs more to be stored.

    What has to come out ``alike`` wherever it is needed is.
    """
    forced = {*alike}
    for attempt in count():
        grouper = Grouper(builder.values, outputs, target, forced, alike=alike,
                          may_restart=attempt < RESTARTS)
        regions = Regions(assumed.params, dict(assumed.assumed))
        try:
            grouper.run()
            read_where_placed(grouper.groups)
            return grouper, choose_updates(grouper, donatable, regions), regions
        except MustStore as must:
            forced.update(must.values)
    raise AssertionError("unreachable")


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
