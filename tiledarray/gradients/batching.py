"""A function that was recorded for one sample, recorded again for all: no op is named here.

Every value that differs from sample to sample gets one more axis in front.  What an op is then
follows from its class, of a library call from its own rule (`samples.py`); where there is none it
is made for each sample, and the results are stacked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

from tiledarray.arrays.handle import Handle
from tiledarray.core import record as recorded
from tiledarray.gradients import samples
from tiledarray.gradients.samples import Call, lifted, shifted
from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.graph.program import below
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Item,
    Library,
    Reduction,
    Reshape,
    Scan,
    Update,
)
from tiledarray.recording import record
from tiledarray.recording.join import stack_nodes

# What has a loop of its own for numbers that are the same everywhere, by that loop.
_GENERAL = {op.constant: op for op in BY_NAME.values() if op.constant is not None}


class Value(NamedTuple):
    """A value for all samples, and whether it differs: then it has their axis in front.

    Of a call made for each sample, which has several results, ``node`` is a list.
    """

    node: Any
    mapped: bool


def batched(outputs: Sequence[Node], given: Mapping[Node, Node], count: int) -> list[Value]:
    """Return values for all samples, of which a recording for one is given.

    Parameters
    ----------
    outputs : sequence of Node
        For one sample.
    given : mapping of Node to Node
        The samples that stand in the recording for all of them, and all of them.
    count : int
        Of samples.
    """
    values = {node: Value(every, mapped=True) for node, every in given.items()}
    for node in below([*dict.fromkeys(outputs)]):
        if node not in values:
            inputs = [values[x] if type(x) is Node else Value(x, mapped=False)
                      for x in (node.inputs if node.buffer is None else ())]
            mapped = tuple([x.mapped for x in inputs])
            values[node] = Value(node, mapped=False) if not any(mapped) else Value(
                _RULES[type(node.op)](Call(node, tuple([x.node for x in inputs]), mapped, count)),
                mapped=True)
    return [values[node] for node in outputs]


def _again(call: Call, inputs: Sequence[Any], attrs: Any, op: Any = None) -> Node:
    node = call.node
    kind = kind_of((call.count, *node.shape), node.dtype, node.device)
    made = recorded(form_of(op or node.op, attrs, kind, len(inputs)), tuple(inputs))
    if made.buffer is None:
        made.site = node.site
    return made


def _elementwise(call: Call) -> Node:
    rank = len(call.node.shape)
    inputs = [lifted(x, call.rank(place), rank) if mapped else x
              for place, (x, mapped) in enumerate(zip(call.inputs, call.mapped, strict=True))]
    op = _GENERAL.get(call.node.op) if any(call.mapped[1:]) else None
    return _again(call, inputs, call.node.attrs, op)


def _reduction(call: Call) -> Node:
    axes, accumulate = call.node.attrs
    return _again(call, call.inputs, (tuple(map(shifted, axes)), accumulate))


def _scan(call: Call) -> Node:
    return _again(call, call.inputs, shifted(call.node.attrs))


def _behind(axes: Sequence[int], steps: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes and the steps of a view in each sample, of a view of all."""
    return (0, *map(shifted, axes)), (1, *steps)


def _view(call: Call) -> Node:
    array, *starts = call.inputs
    return _again(call, (array, 0, *starts), _behind(*call.node.attrs))


def _reshape(call: Call) -> Node:
    return _again(call, call.inputs, None)


def _update(call: Call) -> Node:
    axes, steps, region = call.node.attrs
    old, new, *starts = call.inputs
    if not call.mapped[0]:
        old = record.broadcast_to(old, (call.count, *old.shape))
    if call.mapped[1]:
        new = lifted(new, call.rank(1), len(region))
    return _again(
        call, (old, new, 0, *starts), (*_behind(axes, steps), (call.count, *region)))


def _item(call: Call) -> Node:
    (several,) = call.inputs
    if type(several) is not list:
        return _again(call, call.inputs, call.node.attrs)
    node = call.node
    parts = [record.item(part, node.attrs, node.shape, node.dtype) for part in several]
    return _stacked(call, parts)


def _library(call: Call) -> Any:
    op = call.node.op
    found = _by_rule(op.batch, call) if op.batch else None
    if found is not None:
        return found.node if isinstance(found, Handle) else found
    parts = [record.library(
        op, [_sample(x, k) if mapped else x
             for x, mapped in zip(call.inputs, call.mapped, strict=True)],
        call.node.attrs, call.node.shape, call.node.dtype) for k in range(call.count)]
    return parts if op.outputs > 1 else _stacked(call, parts)


def _sample(node: Node, number: int) -> Node:
    """Return one of the samples."""
    rank = len(node.shape) - 1
    return record.view(node, (-1, *range(rank)), (0, *(1,) * rank), (number, *(0,) * rank),
                       node.shape[1:])


def _stacked(call: Call, parts: Sequence[Node]) -> Node:
    node = call.node
    if not parts:
        return record.full((0, *node.shape), node.dtype.type(0).item(), node.dtype, node.device)
    return stack_nodes(parts, 0, node.dtype, node.device)


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<samples>", "eval")


_NAMES = {name: value for name, value in vars(samples).items() if not name.startswith("_")}


def _by_rule(text: str, call: Call) -> Any:
    node = call.node
    return eval(_compiled(text), _NAMES, {"call": call, "attrs": node.attrs, "x": node.inputs[0]})


_RULES: dict[type, Callable[[Call], Any]] = {
    Elementwise: _elementwise, Reduction: _reduction, AxisView: _view, Reshape: _reshape,
    Scan: _scan, Update: _update, Library: _library, Item: _item,
}
