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

import numpy as np

from tiledarray.arrays.handle import Handle, wrap
from tiledarray.arrays.tracing import StepScope, make_placeholder, traced
from tiledarray.core import record as recorded
from tiledarray.gradients import samples
from tiledarray.gradients.notation import xp
from tiledarray.gradients.samples import Call, lifted, shifted
from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.graph.program import below, instantiated
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.loop import Step
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Item,
    Library,
    Reduction,
    Repeat,
    Reshape,
    Scan,
    Update,
)
from tiledarray.recording import record
from tiledarray.recording.join import stack_nodes
from tiledarray.transforms.loops import Recording

# What has a loop of its own for numbers that are the same everywhere, by that loop.
_GENERAL = {op.constant: op for op in BY_NAME.values() if op.constant is not None}


class Value(NamedTuple):
    """A value for all samples, and whether it differs: then it has their axis in front.

    Of a call that has several results ``node`` is a tuple of them, or if it is made for each sample
    a list of its calls.
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


def _repeat(call: Call) -> Any:
    """Make one loop of the loops of all samples.

    They take as many steps as the longest; the state of a sample that has gone through its own
    stays as it is.
    """
    steps, node = call.node.attrs, call.node
    header = [*call.inputs[:steps.header]]
    end = steps.header + steps.scalars
    scalars = call.inputs[steps.header:end]
    own = steps.body.scalars
    constants = end + steps.first - 1
    kinds = [kind_of(x.shape, x.dtype, node.device) for x in node.inputs[end:]]
    values = [*call.inputs[end:constants], *(
        _of_all(Value(x, mapped), call.count) for x, mapped in zip(
            call.inputs[constants:], call.mapped[constants:], strict=True))]
    going = None
    if steps.goes is not None:  # whether each sample takes the first step
        (going,) = _step(steps.goes, [None, *values], scalars[own:], kinds, call)
    differ = bool(header) and call.mapped[0]
    with traced(lambda: StepScope(node.op.name)):
        counter = make_placeholder(kind_of((), np.dtype(np.int64), node.device))
        recording = Recording(node.op.name, counter, node.device)
        arrays = [make_placeholder(x.form.kind) for x in values]
        first = steps.first - 1
        recording.constants.update(zip(arrays[:first], values[:first], strict=True))
        recording.state, recording.values = arrays[first:], values[first:]
        found = _step(steps.body, [counter, *arrays], scalars[:own], kinds, call)
        after = found[:len(recording.state)]
        goes: Any = None
        if going is not None:
            mine = make_placeholder(going.form.kind)
            recording.state.append(mine)
            recording.values.append(going)
            after.append(xp.logical_and(wrap(mine), wrap(found[-1])).node)
            recording.goes, recording.decision = wrap(mine).any().node, wrap(after[-1]).any().node
            goes = wrap(mine)
        elif differ:
            counts = make_placeholder(header[0].form.kind)
            recording.constants[counts] = header[0]
            goes = wrap(counter) < wrap(counts)
        recording.after = after if goes is None else [
            _chosen(goes, new, old) if new is not old else new
            for new, old in zip(after, recording.state, strict=True)]
    if differ:
        header[0] = wrap(header[0]).max(initial=0).node
    results = recording.recorded(tuple(header))[:len(kinds) - first]
    return results[0] if len(results) == 1 else (*results,)


def _step(step: Step, arrays: Sequence[Any], scalars: Sequence[Any], kinds: Sequence[Any],
          call: Call) -> list[Node]:
    """Record what a step gives for all samples, from the arrays that it has for all.

    ``kinds`` are those of the arrays, but the first, for one sample.
    """
    one = [arrays[0], *map(make_placeholder, kinds)]
    given = {}
    for place, (sample, every) in enumerate(zip(one[1:], arrays[1:], strict=True), 1):
        if every.shape == sample.shape:
            one[place] = every
        else:
            given[sample] = every
    nodes = instantiated(step.signature[0], [one[place] for place in step.leaves],
                         step.filled(scalars), call.node.device, step.sites)
    outputs = step.signature[2]
    return [_of_all(value, call.count) for value in batched(
        [nodes[outputs[place]] if computed else one[place] for computed, place in step.results],
        given, call.count)]


def _of_all(value: Value, count: int) -> Node:
    """Return a value as if it was another for each sample."""
    node: Node = value.node
    return node if value.mapped else record.broadcast_to(node, (count, *node.shape))


def _chosen(goes: Any, new: Node, old: Node) -> Node:
    """Return the new values of samples that go on, and the old ones of others."""
    rank = len(new.shape)
    found: Node = xp.where(wrap(lifted(goes.node, 0, rank - 1)), wrap(new), wrap(old)).node
    return found


def _item(call: Call) -> Node:
    (several,) = call.inputs
    if type(several) is tuple:
        return several[call.node.attrs]
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
    Scan: _scan, Update: _update, Library: _library, Repeat: _repeat, Item: _item,
}
