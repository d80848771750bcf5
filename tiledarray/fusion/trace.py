"""From pending nodes to a signature: the one walk on the way to a cached plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tiledarray.graph import Node
from tiledarray.ops.movement import update, view

Entry = tuple[Any, ...]


class Trace(NamedTuple):
    """What a plan is looked up by, and what it is bound to.

    Attributes
    ----------
    signature : tuple
        ``entries``, parameter kinds and output numbers: everything that shapes the plan.
    nodes : list of Node
        The nodes, numbered as in the signature; leaves among them.
    leaves : list of Node
        The nodes that hold a buffer already, in order.
    params : list of scalar
        Values of the run-time parameters, in order.
    """

    signature: tuple[Any, ...]
    nodes: list[Node]
    leaves: list[Node]
    params: list[Any]


def trace(targets: Sequence[Node]) -> Trace:
    """Number the pending nodes below the targets, inputs first, and collect what they bind.

    An entry is ``(op, attrs, shape, dtype, *references)``; a reference is a node's number, ``~k``
    for parameter ``k`` or ``None`` for a start of 0.  A leaf's entry has no op: ``(None, shape,
    dtype)``.
    """
    numbers: dict[Any, int] = {}
    nodes: list[Node] = []
    leaves: list[Node] = []
    entries: list[Entry] = []
    params: list[Any] = []
    param_numbers: dict[Any, int] = {}
    stack: list[Any] = list(reversed(targets))
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        if node.buffer is not None:
            stack.pop()
            numbers[node] = len(nodes)
            nodes.append(node)
            leaves.append(node)
            entries.append((None, node.shape, node.dtype))
            continue
        missing = [x for x in node.inputs if type(x) is Node and x not in numbers]
        if missing:
            missing.reverse()
            stack.extend(missing)
            continue
        stack.pop()
        op = node.op
        origin = None if op is view or op is update else _NOTHING
        references = []
        for x in node.inputs:
            if type(x) is Node:
                references.append(numbers[x])
            elif x == 0 and origin is None:
                references.append(None)
            else:
                key = (type(x), x) if x else (type(x), repr(x))
                number = param_numbers.get(key)
                if number is None:
                    number = param_numbers[key] = len(params)
                    params.append(x)
                references.append(~number)
        numbers[node] = len(nodes)
        nodes.append(node)
        entries.append((op, node.attrs, node.shape, node.dtype, *references))
    signature = (
        tuple(entries), tuple(map(type, params)), tuple([numbers[t] for t in targets]),
    )
    return Trace(signature, nodes, leaves, params)


_NOTHING = object()
