"""What is read of a joined array is read from the part that it lies in.

``np.array([u[i : i + n] for i in range(3)]).max(0)`` puts three views together and takes them apart
again: short axes are combined term by term, and so are medians of few.  Where all that reads a new
array reads a part of it each, nothing needs to put it together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tiledarray.fusion.ir import Terms, Value, add_terms, value_args
from tiledarray.fusion.pieces import in_order, renumber
from tiledarray.fusion.regions import Regions, difference
from tiledarray.fusion.rewrite import Builder
from tiledarray.ops import movement
from tiledarray.ops.op import AxisView, Update


@dataclass(slots=True)
class Found:
    """Where a view lies: its starts in what was put there, and what must stay as it is for that."""

    part: Value
    starts: tuple[int | None, ...]
    fixed: list[Terms]


def read_from_parts(builder: Builder, outputs: list[Value], regions: Regions) -> list[Value]:
    """Have views of joined arrays read what was put there; return the outputs."""
    if regions.params is None or not any(isinstance(v.op, Update) for v in builder.values):
        return outputs
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    for value in builder.values:
        for arg in value_args(value):
            users[arg].append(value)
    made: dict[Value, Value] = {}
    for joined in [*builder.values]:
        if not isinstance(joined.op, Update) or joined in outputs or not all(
                isinstance(user.op, AxisView) for user in users[joined]):
            continue
        found = {view: _found(view, regions) for view in users[joined]}
        for view, place in found.items() if None not in found.values() else ():
            assert place is not None
            for terms in place.fixed:
                regions.fix(terms)
            made[view] = builder.make(movement.view, view.attrs, (place.part, *place.starts),
                                      view.shape, view.dtype)
            builder.origin.setdefault(made[view], builder.origin[view])
            builder.fired["read_from_parts"] += 1
    if not made:
        return outputs

    def now(arg: Any) -> Any:
        while isinstance(arg, Value) and arg in made:
            arg = made[arg]
        return arg

    for value in builder.values:
        value.args = tuple(map(now, value.args))
    outputs = [now(value) for value in outputs]
    renumber(builder, outputs)
    return outputs


def _found(view: Value, regions: Regions) -> Found | None:
    """The part of a joined array that a view lies in, if it lies in one."""
    joined, *starts = view.args
    axes, steps = view.attrs
    firsts = [add_terms((), 1, start) for start in starts]
    reaches = [step * (view.shape[axis] - 1) if axis >= 0 else 0
               for axis, step in zip(axes, steps, strict=True)]
    fixed: list[Terms] = []
    while isinstance(joined.op, Update) and in_order(joined):
        old, part, *places = joined.args
        shape = joined.attrs[2]
        terms = [difference(first, add_terms((), 1, place))
                 for first, place in zip(firsts, places, strict=True)]
        begins = [regions.value(each) for each in terms]
        spans = [(min(begin, begin + reach), max(begin, begin + reach))
                 for begin, reach in zip(begins, reaches, strict=True)]
        fixed += terms
        if all(low >= 0 and high < n for (low, high), n in zip(spans, shape, strict=True)):
            whole = isinstance(part, Value) and (part.shape, part.dtype) == (shape, view.dtype)
            return Found(part, tuple(begin or None for begin in begins), fixed) if whole else None
        if not any(high < 0 or low >= n for (low, high), n in zip(spans, shape, strict=True)):
            return None
        joined = old
    return None
