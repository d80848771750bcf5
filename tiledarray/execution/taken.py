"""Taking over a pending graph: how an evaluation learns that nobody else looks at a leaf.

An update may write in the memory of a leaf if nothing but what is being evaluated can ever look at
the leaf's value again.  What else could is not counted: a handle, an operation recorded by another
thread, a local variable somewhere, each may hold the leaf, or any of the nodes between it and the
targets.  So the evaluation lets all of these go.  The targets forget their inputs, the structure
stays in the trace's key, and the leaves' memory with holds of its own; a leaf whose memory has no
other owner then was seen by nobody else.  Where the nodes are needed after all (to plan, to go op
by op, or since something failed), they are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem
from typing import Any
from weakref import ref

from tiledarray.devices.storage import Buffer
from tiledarray.graph.node import Form, Node, Site
from tiledarray.graph.program import Trace

Mark = Callable[[], None]
# By evaluations that are under way, and by those that failed and had no memory, or no frames, left
# to restore anything.
_underway: list[Taken] = []
_NONE: frozenset[int] = frozenset()


class Taken:
    """The nodes of a trace, taken over as far as one of its updates may write in a leaf.

    Attributes
    ----------
    traced : Trace
        While it is taken over, its list of nodes has ``None`` in place of what was let go.
    apart : bool
        Whether nodes have been let go.
    given : frozenset of int
        Numbers of the leaves in whose memory updates may write.
    settled : bool
        Whether it is clear where the same is computed another time (`placement.is_settled`).
    failed : bool
        Whether the evaluation has failed, so that anybody may restore what it took.
    """

    def __init__(self, traced: Trace, *, settled: bool = False) -> None:
        self.traced = traced
        self.settled = settled
        self.apart = self.failed = False
        self.given = _NONE

    def begin(self) -> None:
        """Note that an evaluation is under way, before anything is taken over."""
        _underway.append(self)

    def end(self) -> None:
        """Note that it is no more."""
        if self in _underway:  # a signal handler may have raised when it was no more
            _underway.remove(self)

    def take(self, targets: Sequence[Node]) -> None:
        """Take the nodes over, if an update might write; whoever is interrupted must `restore`."""
        candidates = _candidates(self.traced) if self.traced.updates else ()
        if candidates and any(node.keeps for node in self.traced.nodes):
            return  # a gradient will ask for what is there
        if candidates:
            self._take(candidates, targets)

    def _take(self, candidates: Sequence[int], targets: Sequence[Node]) -> None:
        self._targets = dict(zip(self.traced.outputs, targets, strict=True))
        self._computed: dict[int, Any] = {}
        nodes: list[Any] = self.traced.nodes
        self._sites = [node.site for node in nodes]
        self._leaves: dict[int, Any] = {k: nodes[k] for k in self.traced.leaves}
        self._forms = {k: self._leaves[k].form for k in candidates}
        first = {k: ref(self._leaves[k].buffer) for k in candidates}
        self._buffers = {k: self._leaves.pop(k).buffer.another() for k in candidates}
        self.apart = True
        for target in self._targets.values():
            target.inputs = ()
        # From here on the key alone knows the structure.
        nodes[:] = [None] * len(nodes)
        for number, node in (*self._leaves.items(), *self._targets.items()):
            nodes[number] = node
        self.given = frozenset(k for k, buffer in self._buffers.items() if buffer.alone())
        for number in self._buffers.keys() - self.given:
            # Whoever has it may evaluate again: let it remember a copy on another side.
            self._buffers[number] = first[number]() or self._buffers[number]

    def sites(self) -> list[Site | None]:
        """Return where each node was recorded."""
        return self._sites if self.apart else [node.site for node in self.traced.nodes]

    def buffer(self, number: int) -> Any:
        """Return the buffer of a leaf; ``None`` if it has no value."""
        found = self._buffers.get(number) if self.apart else None
        return self.traced.nodes[number].buffer if found is None else found

    def marks(self, number: int, hold: Any) -> list[Mark]:
        """Return what notes that a value has been computed, each implemented in C."""
        node: Any = self.traced.nodes[number]
        if node is None:
            return [partial(setitem, self._computed, number, hold)]
        return [] if node.buffer is not None else [partial(setattr, node, "buffer", hold)]

    def restore(self) -> None:
        """Make the nodes again: what was computed is a leaf now, all else is pending as before."""
        if not self.apart:
            return
        made: list[Node] = []
        for number, (form, inputs) in enumerate(entries(self.traced)):
            node = self._leaves.get(number) or self._targets.get(number)
            if number in self._buffers:
                hold = self._buffers[number]
                node = Node(self._forms[number], (), None,
                            hold if number in self.given else hold.another())
            elif number in self._computed:
                assert form is not None
                node = Node(form, (), self._sites[number], self._computed[number])
            elif number not in self._leaves:
                found = tuple([made[x] if known else x for known, x in inputs])
                if node is None:
                    assert form is not None
                    node = Node(form, found, self._sites[number])
                elif node.buffer is None:
                    node.inputs = found
            assert node is not None
            made.append(node)
        self.traced.nodes[:] = made
        self.apart = False

    def given_nodes(self) -> set[Node]:
        """Return the leaves in whose memory updates may write; the nodes have been restored."""
        return {self.traced.nodes[number] for number in self.given}


def any_failed() -> bool:
    """Whether something is still to be restored of an evaluation that failed."""
    return bool(_underway) and any([taken.failed for taken in _underway])


def restore_failed() -> None:
    """Restore it; for one thread at a time."""
    for taken in [each for each in _underway if each.failed]:
        taken.restore()
        taken.end()


def _candidates(traced: Trace) -> list[int]:
    """Leaves that updates write to, of memory with one owner."""
    found = []
    for number in dict.fromkeys(traced.updates):
        buffer = traced.nodes[number].buffer
        if isinstance(buffer, Buffer) and buffer.alone():
            found.append(number)
    return found


def entries(traced: Trace) -> list[tuple[Form | None, list[tuple[bool, Any]]]]:
    """Return the form and the inputs of every node: numbers of nodes, or scalars themselves."""
    entries: list[tuple[Form | None, list[tuple[bool, Any]]]] = []
    parts = iter(traced.parts)
    for _ in traced.nodes:
        first = next(parts)
        if type(first) is not Form:
            entries.append((None, []))
            continue
        inputs: list[tuple[bool, Any]] = []
        for _ in range(first.arity):
            reference = next(parts)
            if reference is None:
                inputs.append((False, 0))
            elif reference >= 0:
                inputs.append((True, reference))
            else:
                inputs.append((False, traced.params[~reference]))
        entries.append((first, inputs))
    return entries
