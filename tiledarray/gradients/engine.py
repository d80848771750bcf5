"""Reverse and forward mode over the recorded graph.  No op is named here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray.arrays.handle import wrap
from tiledarray.core import BEGINS, history
from tiledarray.gradients import rules
from tiledarray.gradients.notation import zeros_of
from tiledarray.graph.node import Node
from tiledarray.ops.op import Elementwise, Item
from tiledarray.recording.history import end


def _active(order: Sequence[Node], roots: Sequence[Node]) -> dict[Node, list[int]]:
    """Return which of the nodes depend on the roots, each with the places of inputs that do."""
    found: dict[Node, list[int]] = {node: [] for node in roots}
    for node in order:
        places = [place for place, x in enumerate(node.inputs) if type(x) is Node and x in found]
        if places:
            found[node] = places
    return found


def backward(
    outputs: Sequence[Node], cotangents: Sequence[Any], wanted: Sequence[Node]
) -> list[Any]:
    """Return the cotangents of nodes, given those of outputs that were computed from them.

    Parameters
    ----------
    outputs : sequence of Node
    cotangents : sequence of TiledArray
        Of the outputs' shapes and dtypes.
    wanted : sequence of Node

    Returns
    -------
    list of TiledArray or None
        ``None`` where no output depends on the node.

    Raises
    ------
    NoDerivative
        If an operation between them has no rule.
    """
    order = history(list(dict.fromkeys(outputs)))
    active = _active(order, wanted)
    sums: dict[Node, Any] = {}
    parts: dict[Node, dict[int, Any]] = {}  # of operations with several results
    kept = {*wanted}
    for output, given in zip(outputs, cotangents, strict=True):
        if output in active:
            _add(sums, output, given)
    found: dict[Node, Any] = {}
    for node in reversed(order):
        places = active.get(node)
        if places is None:
            continue
        g: Any = parts.pop(node, None) or sums.pop(node, None)
        if g is None:
            continue
        if node in kept:
            found[node] = g
        if type(node.op) is Item:
            parts.setdefault(node.inputs[0], {})[node.attrs] = g
            continue
        for place, value in zip(places, rules.pull(node, g, places), strict=True):
            if value is not None:
                _add(sums, node.inputs[place], value)
    return [found.get(node) for node in wanted]


def _add(sums: dict[Node, Any], node: Node, value: Any) -> None:
    before = sums.get(node)
    sums[node] = value if before is None else before + value


def forward(
    inputs: Sequence[Node], tangents: Sequence[Any], outputs: Sequence[Node]
) -> list[Any]:
    """Return the tangents of outputs, given those of what they were computed from.

    Parameters
    ----------
    inputs : sequence of Node
    tangents : sequence of TiledArray
        Of the inputs' shapes and dtypes.
    outputs : sequence of Node

    Returns
    -------
    list of TiledArray or None
        ``None`` where the output depends on no input.

    Raises
    ------
    NoDerivative
        If an operation between them has no rule.
    """
    order = history(list(dict.fromkeys(outputs)))
    known: dict[Node, Any] = dict(zip(inputs, tangents, strict=True))
    for node in order:
        if node in known:
            continue
        moving = {place: known[x] for place, x in enumerate(node.inputs)
                  if type(x) is Node and x in known}
        if not moving or any(type(x) is tuple for x in moving.values()):
            continue
        tangent = _pushed(node, moving)
        if tangent is not None:
            known[node] = tangent
    return [known.get(node) for node in outputs]


def _pushed(node: Node, moving: dict[int, Any]) -> Any:
    op = node.op
    if isinstance(op, Elementwise) and not op.vjp:
        return rules.push(node, moving)
    return _transposed(node, moving)


def _transposed(node: Node, moving: dict[int, Any]) -> Any:
    """Return the tangent by the rule for cotangents: that is linear, and this its transpose."""
    dummy = zeros_of(wrap(node)).node
    dummy.keep(BEGINS)
    places = [*moving]
    values = rules.pull(node, wrap(dummy), places)
    pairs = [(value.node, moving[place]) for place, value in zip(places, values, strict=True)
             if value is not None]
    (found,) = backward([value for value, _ in pairs], [t for _, t in pairs], [dummy])
    end([dummy])
    return found
