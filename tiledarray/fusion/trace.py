"""From pending nodes to a signature: the one walk on the way to a cached plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tiledarray.graph import Form, Node
from tiledarray.ops.movement import update

Entry = tuple[Any, ...]


class Trace(NamedTuple):
    """What a plan is looked up by, and what it is bound to.

    Attributes
    ----------
    key : tuple
        The signature, flat: for each node its `Form` and references to its inputs, or its `Kind`
        if it is a leaf; then the kinds of the parameters and the outputs' numbers.
    nodes : list of Node
        The nodes, numbered as in the signature; leaves among them.
    params : list of scalar
        Values of the run-time parameters, in order.
    outputs : tuple of int
        Numbers of the targets.
    updates : list of int
        Numbers of the leaves that an update writes to.
    """

    key: tuple[Any, ...]
    nodes: list[Node]
    params: list[Any]
    outputs: tuple[int, ...]
    updates: list[int]

    @property
    def signature(self) -> tuple[tuple[Entry, ...], tuple[type, ...], tuple[int, ...]]:
        """Entries, kinds of the parameters and numbers of the outputs, for the planner.

        An entry is ``(op, attrs, shape, dtype, *references)``; a reference is a node's number,
        ``~k`` for parameter ``k`` or ``None`` for a start of 0.  A leaf's entry has no op:
        ``(None, shape, dtype)``.
        """
        parts = iter(self.key)
        entries = tuple(_entry(next(parts), parts) for _ in self.nodes)
        return entries, tuple(map(type, self.params)), self.outputs


def _entry(first: Any, parts: Iterator[Any]) -> Entry:
    if type(first) is Form:
        kind = first.kind
        return first.op, first.attrs, kind.shape, kind.dtype, *islice(parts, first.arity)
    return None, first.shape, first.dtype


def trace(targets: Sequence[Node]) -> Trace:
    """Number the pending nodes below the targets, inputs first, and collect what they bind."""
    numbers = _numbered(targets)
    key: list[Any] = []
    params: list[Any] = []
    known_params: dict[Any, int] = {}
    updates: list[int] = []
    for node in numbers:
        if node.buffer is not None:
            key.append(node.form.kind)
            continue
        form = node.form
        key.append(form)
        for x in node.inputs:
            if type(x) is Node:
                key.append(numbers[x])
            elif x or not form.op.moves:
                # A reference to a parameter is never 0.
                key.append(known_params.get(id(x)) or _param(x, params, known_params))
            else:
                key.append(None)
        if form.op is update and node.inputs[0].buffer is not None:
            updates.append(numbers[node.inputs[0]])
    outputs = tuple([numbers[target] for target in targets])
    key += map(type, params)
    key += outputs
    return Trace(tuple(key), list(numbers), params, outputs, updates)


def _numbered(targets: Sequence[Node]) -> dict[Node, int]:
    """Number the nodes below the targets, inputs first.  Leaves have no inputs."""
    numbers: dict[Node, int] = {}
    above: list[Node] = []  # from the target down to the node: recordings are too deep to recurse
    for node in targets:
        while True:
            for x in node.inputs:
                if type(x) is Node and x not in numbers:
                    above.append(node)
                    node = x
                    break
            else:
                if node not in numbers:
                    numbers[node] = len(numbers)
                if not above:
                    break
                node = above.pop()
    return numbers


def _param(x: Any, params: list[Any], known: dict[Any, int]) -> int:
    """Return the reference to a scalar, the same for all that are equal."""
    value = (type(x), x) if x else (type(x), repr(x))
    reference = known.get(value)
    if reference is None:
        reference = known[value] = ~len(params)
        params.append(x)
    known[id(x)] = reference
    return reference
