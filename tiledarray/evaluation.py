"""Evaluation: from pending nodes to buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray.graph import Node
from tiledarray.kernels.reference import compute


def pending_order(targets: Sequence[Node]) -> list[Node]:
    """Return the pending nodes that the targets need, inputs first."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(target, False) for target in reversed(targets)]
    while stack:
        node, inputs_done = stack.pop()
        if inputs_done:
            order.append(node)
            continue
        if node.buffer is not None or node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((x, False) for x in node.inputs if type(x) is Node)
    return order


def evaluate(targets: Sequence[Node]) -> None:
    """Compute the targets (and what they need), op by op."""
    values: dict[Node, Any] = {}

    def value(operand: Any) -> Any:
        if type(operand) is not Node:
            return operand
        return values[operand] if operand in values else operand.buffer.array

    for node in pending_order(targets):
        values[node] = compute(node, node.device.xp, [value(x) for x in node.inputs])
    for node in targets:
        if node.buffer is None:
            node.buffer = node.device.wrap(values[node], copy=False)
            node.inputs = ()
