"""Arrays that are filled and then wholly overwritten need not be filled."""

from __future__ import annotations

from collections import defaultdict
from math import prod

from tiledarray.fusion.ir import Value, value_args
from tiledarray.fusion.regions import Regions, update_region
from tiledarray.fusion.rewrite import Builder
from tiledarray.ops.movement import empty, full
from tiledarray.ops.op import Update

MOST_PARTS = 64  # each is compared with each: to fill an array takes less than to compare more


def uncover(builder: Builder, outputs: list[Value], regions: Regions) -> None:
    """Have updates that cover a filled array begin with an uninitialised one."""
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    for value in builder.values:
        for arg in value_args(value):
            users[arg].append(value)
    for value in [*builder.values]:
        if isinstance(value.op, Update) and value.args[0].op is full and regions.cover(
                [update_region(update) for update in _covering(value, users, set(outputs))]):
            base = value.args[0]
            unfilled = Value(len(builder.values), empty, None, (), base.shape, base.dtype)
            builder.values.insert(0, unfilled)
            builder.origin[unfilled] = builder.origin[base]
            builder.fired["filled_for_nothing"] += 1
            value.args = (unfilled, *value.args[1:])


def _covering(first: Value, users: dict[Value, list[Value]], outputs: set[Value]) -> list[Value]:
    """The first updates of a chain that nobody else sees and that may be all of the array."""
    chain = [first]
    written = prod(first.attrs[2])
    while written < first.size and chain[-1] not in outputs and len(chain) < MOST_PARTS:
        readers = users[chain[-1]]
        if len(readers) != 1 or not isinstance(readers[0].op, Update) or (
                readers[0].args[0] is not chain[-1]):
            break
        chain.append(readers[0])
        written += prod(readers[0].attrs[2])
    return chain
