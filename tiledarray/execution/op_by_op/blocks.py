"""Loops, op by op: what would take far more memory all at once goes block by block here, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tiledarray.devices.device import Device
from tiledarray.execution.looping import begun
from tiledarray.graph.node import Node
from tiledarray.graph.program import Trace, below, instantiated
from tiledarray.ops.movement import strided_view
from tiledarray.ops.op import Item, Loop

if TYPE_CHECKING:
    from tiledarray.fusion.along import Looped
    from tiledarray.fusion.bodies import Body

Compute = Callable[[Sequence[Node], Sequence[Node]], None]


def run_loops(traced: Trace, looped: Looped, device: Device, compute: Compute) -> None:
    """Compute the nodes that are results of loops.

    Parameters
    ----------
    traced : Trace
    looped : Looped
        Its signature, with loops.
    device : Device
    compute : callable
        ``compute(nodes, targets)`` sets the targets' buffers, given all that is below them.
    """

    def node_of(place: int) -> Node:
        return traced.nodes[looped.numbers[place]]

    for place, (op, *entry) in enumerate(looped.entries):
        if not isinstance(op, Loop):
            continue
        body, refs = entry[0], entry[3:]
        inputs = [node_of(ref) for ref in refs[:body.inputs]]
        pending = [node for node in dict.fromkeys(inputs) if node.buffer is None]
        compute(below(pending), pending)
        scalars = [traced.params[~ref] for ref in refs[body.inputs:]]
        results = _done(body, [node.buffer for node in inputs], scalars, device, compute)
        for at, (other, *rest) in enumerate(looped.entries):
            if at == place and op.outputs == 1:
                _computed(node_of(at), results[0])
            elif isinstance(other, Item) and rest[3] == place:
                _computed(node_of(at), results[rest[0]])


def _computed(node: Node, buffer: Any) -> None:
    node.buffer = buffer
    node.forget_inputs()


def _done(body: Body, inputs: Sequence[Any], scalars: Sequence[Any], device: Device,
          compute: Compute) -> list[Any]:
    """Compute the results of a loop, block after block."""
    results = [begun(result, device) for result in body.results]
    for starts, sizes in body.blocks():
        entries, _, outputs = body.signatures[sizes]
        params = (*scalars, *starts)
        nodes = instantiated(entries, [*results, *inputs], params, device)
        parts = [nodes[entries[number][5]] for number in outputs]
        compute(below(parts), parts)
        for buffer, part, number in zip(results, parts, outputs, strict=True):
            axes, steps, region = entries[number][1]
            at = tuple(0 if ref is None else params[~ref] for ref in entries[number][6:])
            strided_view(buffer.array, axes, steps, at, region)[...] = part.buffer.array
    return results
