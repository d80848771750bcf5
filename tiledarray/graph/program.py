"""From pending nodes to a signature: the one walk on the way to a cached plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple

from tiledarray.graph.node import Form, Node
from tiledarray.ops.movement import placeholder, update

Entry = tuple[Any, ...]
Start = tuple[int | None, int]  # reference to another start (None: 0), and how far behind it

_COMPLEX = Struct("dd")  # two NaNs may differ, too
NEAR = 2  # starts of views that lie so close are taken to move together


class Trace(NamedTuple):
    """What a plan is looked up by, and what it is bound to.

    Attributes
    ----------
    key : tuple
        The signature, flat: for each node its `Form` and references to its inputs, or its `Kind`
        if it is a leaf; then the kinds of the parameters and the outputs' numbers.  The kind
        of a start that lies near another is where it lies (`Start`): the windows of a stencil
        move together, and what they share is known when they are planned.
    nodes : list of Node
        The nodes, numbered as in the signature; leaves among them.
    params : list of scalar
        Values of the run-time parameters, in order.
    outputs : tuple of int
        Numbers of the targets.
    updates : list of int
        Numbers of the leaves that an update writes to.
    leaves : list of int
        Numbers of all leaves.
    """

    key: tuple[Any, ...]
    nodes: list[Node]
    params: list[Any]
    outputs: tuple[int, ...]
    updates: list[int]
    leaves: list[int]

    @property
    def signature(self) -> tuple[tuple[Entry, ...], tuple[type | Start, ...], tuple[int, ...]]:
        """Entries, kinds of the parameters and numbers of the outputs, for the planner.

        An entry is ``(op, attrs, shape, dtype, *references)``; a reference is a node's number,
        ``~k`` for parameter ``k`` or ``None`` for a start of 0.  A leaf's entry has no op:
        ``(None, shape, dtype)``.
        """
        parts = iter(self.key)
        entries = tuple(_entry(next(parts), parts) for _ in self.nodes)
        end = len(self.key) - len(self.outputs)
        return entries, self.key[end - len(self.params):end], self.outputs


def _entry(first: Any, parts: Iterator[Any]) -> Entry:
    if type(first) is Form and first.op is not placeholder:
        kind = first.kind
        return first.op, first.attrs, kind.shape, kind.dtype, *islice(parts, first.arity)
    kind = first.kind if type(first) is Form else first
    return None, kind.shape, kind.dtype


def trace(targets: Sequence[Node]) -> Trace:
    """Number the pending nodes below the targets, inputs first, and collect what they bind."""
    numbers = _numbered(targets)
    key: list[Any] = []
    params: list[Any] = []
    known_params: dict[Any, int] = {}
    updates: list[int] = []
    leaves: list[int] = []
    starts: set[int | None] = set()
    for node in numbers:
        if node.buffer is not None:
            leaves.append(numbers[node])
            key.append(node.form.kind)
            continue
        form = node.form
        key.append(form)
        moves = form.op.moves
        for x in node.inputs:
            if type(x) is Node:
                key.append(numbers[x])
                continue
            number = None
            if x or not moves:  # a reference to a parameter is never 0
                number = known_params.get(id(x)) or _param(x, params, known_params)
            key.append(number)
            if moves:
                starts.add(number)
        if form.op is update and node.inputs[0].buffer is not None:
            updates.append(numbers[node.inputs[0]])
    outputs = tuple([numbers[target] for target in targets])
    key += kinds_of(params, starts)
    key += outputs
    return Trace(tuple(key), list(numbers), params, outputs, updates, leaves)


def below(targets: Sequence[Node]) -> list[Node]:
    """Return the targets and what they are computed from, inputs first."""
    return list(_numbered(targets))


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
    """Return the reference to a scalar, the same for all that are equal, zeros' signs included."""
    kind = type(x)
    if kind is complex:
        value: Any = kind, _COMPLEX.pack(x.real, x.imag)
    else:
        value = kind, x if x else repr(x)
    reference = known.get(value)
    if reference is None:
        reference = known[value] = ~len(params)
        params.append(x)
    known[id(x)] = reference
    return reference


def kinds_of(params: list[Any], starts: set[int | None]) -> list[type | Start]:
    """Return the type of every parameter, or of a start near another where it lies."""
    kinds: list[type | Start] = [type(x) for x in params]
    if len(starts) < 2:
        return kinds
    anchor = None
    base = last = 0 if None in starts else -NEAR - 1
    for start in sorted(filter(None, starts), key=lambda reference: params[~reference]):
        value = params[~start]
        if value - last <= NEAR:
            kinds[~start] = anchor, value - base
        else:
            anchor, base = start, value
        last = value
    return kinds
