"""From pending nodes to a signature: the one walk on the way to a cached plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tiledarray import core
from tiledarray.core.twin_graph import Start
from tiledarray.graph.node import Form, Node, Site, form_of, kind_of
from tiledarray.ops.movement import leaf, placeholder

Entry = tuple[Any, ...]


class Trace(NamedTuple):
    """What a plan is looked up by, and what it is bound to.

    Attributes
    ----------
    key : Key
        The signature, flat (`parts`): for each node its `Form` and references to its inputs, or its
        `Kind` if it is a leaf; then the kinds of the parameters and the outputs' numbers.  The kind
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

    key: Any
    nodes: list[Node]
    params: list[Any]
    outputs: tuple[int, ...]
    updates: list[int]
    leaves: list[int]

    @property
    def parts(self) -> tuple[Any, ...]:
        """The key as a tuple."""
        return core.parts_of(self.key)

    @property
    def signature(self) -> tuple[tuple[Entry, ...], tuple[type | Start, ...], tuple[int, ...]]:
        """Entries, kinds of the parameters and numbers of the outputs, for the planner.

        An entry is ``(op, attrs, shape, dtype, *references)``; a reference is a node's number,
        ``~k`` for parameter ``k`` or ``None`` for a start of 0.  A leaf's entry has no op:
        ``(None, shape, dtype)``.
        """
        every = self.parts
        parts = iter(every)
        entries = tuple(_entry(next(parts), parts) for _ in self.nodes)
        end = len(every) - len(self.outputs)
        return entries, every[end - len(self.params):end], self.outputs


def _entry(first: Any, parts: Iterator[Any]) -> Entry:
    if type(first) is Form and first.op is not placeholder:
        kind = first.kind
        return first.op, first.attrs, kind.shape, kind.dtype, *islice(parts, first.arity)
    kind = first.kind if type(first) is Form else first
    return None, kind.shape, kind.dtype


def trace(targets: Sequence[Node]) -> Trace:
    """Number the pending nodes below the targets, inputs first, and collect what they bind."""
    return Trace(*core.trace(targets))


def below(targets: Sequence[Node]) -> list[Node]:
    """Return the targets and what they are computed from, inputs first."""
    return trace(targets).nodes


def instantiated(
    entries: Sequence[Entry], leaves: Sequence[Any], params: Sequence[Any], device: Any,
    sites: Sequence[Site | None] | None = None,
) -> list[Node]:
    """Make the nodes of a signature; they take no part in any recording.

    Parameters
    ----------
    entries : sequence of tuple
        See `Trace.signature`.
    leaves : sequence of Node or Buffer
        The leaves, or their values, in order.
    params : sequence of scalar
    device : Device
    sites : sequence of Site, optional
        Where each entry was recorded.
    """
    nodes: list[Node] = []
    given = iter(leaves)
    for number, (op, *entry) in enumerate(entries):
        if op is None:
            shape, dtype = entry
            value = next(given)
            nodes.append(value if type(value) is Node else Node(
                form_of(leaf, None, kind_of(shape, dtype, device), 0), (), None, value))
            continue
        attrs, shape, dtype, *refs = entry
        inputs = tuple(0 if ref is None else nodes[ref] if ref >= 0 else params[~ref]
                       for ref in refs)
        nodes.append(Node(form_of(op, attrs, kind_of(shape, dtype, device), len(inputs)), inputs,
                          None if sites is None else sites[number]))
    return nodes
