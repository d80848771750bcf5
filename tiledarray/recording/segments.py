"""Memory of long histories: values are let go, and computed again when they are asked for.

A history is a graph of nodes that keep their inputs, so what an evaluation has computed of it (a
`Segment`) can be computed again: from the same leaves, in one plan, by the same ways, so that it
has the same bits.  Values never change, for a write makes a new one.  What has no inputs stays:
where a history begins, random numbers, what NumPy has computed.

With ``config.grad_memory`` only every so many-th segment is kept while a history grows (so many
that half the memory is used).  Where a value is asked for that is not there, the segments since the
last that is are computed again, and those on the way kept as far as there is room.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any
from weakref import WeakKeyDictionary, ref

from tiledarray import config, execution
from tiledarray.block import Block
from tiledarray.core import KEEPS, MOST_WITH_HISTORY
from tiledarray.execution.spans import counters
from tiledarray.execution.taken import entries
from tiledarray.graph.node import Form, Node
from tiledarray.graph.program import Trace, trace
from tiledarray.ops.movement import opaque

FEWEST = 4  # segments that are kept whatever they take: with less, time grows with the square
LEAST_RUN = 1 << 16  # bytes of what is computed at once that make a segment

Compute = Callable[[Form, tuple[Any, ...]], Any]


class Segment:
    """What was computed of a history together, and from what.

    Attributes
    ----------
    number : int
        Those that are larger were computed later.
    used : int
        Which evaluation was the last to read it.
    size : int
        Bytes of what it has computed.
    """

    __slots__ = ("number", "used", "size", "_made", "_leaves", "__weakref__")

    def __init__(self, made: Sequence[Node], leaves: Sequence[Node]) -> None:
        _kept.made += 1
        self.number, self.used = _kept.made, _kept.evaluations
        self.size = sum(map(_nbytes, made))
        self._made = [ref(node) for node in made]
        self._leaves = [ref(node) for node in leaves]

    def nodes(self) -> list[Node]:
        """Return what it has computed, as far as anything can ask for it."""
        return [node for node in (each() for each in self._made) if node is not None]

    def leaves(self) -> list[Node]:
        """Return what it is computed from."""
        return [node for node in (each() for each in self._leaves) if node is not None]

    def let_go(self) -> None:
        """Let go of the values."""
        for node in self.nodes():
            if node.keeps == KEEPS:
                node.buffer = None

    def compute(self) -> None:
        """Compute the values again."""
        raise NotImplementedError


class _Stretch(Segment):
    """What one evaluation has computed."""

    __slots__ = ("_trace", "_numbers", "_op_by_op", "_small")

    def __init__(self, traced: Trace, made: Sequence[int], *, op_by_op: bool, small: bool) -> None:
        super().__init__([traced.nodes[k] for k in made], [traced.nodes[k] for k in traced.leaves])
        self._trace = traced._replace(nodes=[None] * len(traced.nodes))  # type: ignore[list-item]
        self._numbers = made
        self._op_by_op, self._small = op_by_op, small

    def compute(self) -> None:
        leaves = dict(zip(self._trace.leaves, self.leaves(), strict=False))
        if len(leaves) < len(self._leaves) or any(x.buffer is None for x in leaves.values()):
            execution.evaluate.evaluate([node for node in self.nodes() if node.buffer is None])
            return
        made: list[Any] = []
        for number, (form, inputs) in enumerate(entries(self._trace)):
            made.append(leaves[number] if form is None else Node(
                form, tuple([made[x] if known else x for known, x in inputs])))
        targets = [made[k] for k in self._trace.outputs]
        if self._op_by_op:
            execution.evaluate.run_reference(made, targets)
        else:
            execution.evaluate.evaluate(targets, self._small)
        for number, each in zip(self._numbers, self._made, strict=True):
            node = each()
            if node is not None and node.buffer is None:
                node.buffer = made[number].buffer


class _Run(Segment):
    """What was computed at once, one after another."""

    __slots__ = ("_compute",)

    def __init__(self, made: Sequence[Node], compute: Compute) -> None:
        own = {*made}
        leaves = dict.fromkeys(
            x for node in made for x in node.inputs if type(x) is Node and x not in own)
        super().__init__(made, [*leaves])
        self._compute = compute

    def compute(self) -> None:
        with _pausing():
            for node in self.nodes():
                if node.buffer is None:
                    node.buffer = self._compute(node.form, node.inputs)
                    if node.buffer is None:  # settings have changed: it is not small any more
                        execution.evaluate.evaluate([node])


def _nbytes(node: Node) -> int:
    buffer = node.buffer
    if buffer is None or node.keeps != KEEPS:
        return 0
    return sum(x.nbytes for x in buffer) if type(buffer) is tuple else int(buffer.nbytes)


_segments: WeakKeyDictionary[Node, Segment] = WeakKeyDictionary()


class _Passing(threading.local):
    """The backward passes of a thread of which nobody asks for derivatives.

    Attributes
    ----------
    depth : int
    computed : list of Node
        What they have computed of the history that they go through, weakly.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.computed: list[ref[Node]] = []


class _Kept:
    """The segments whose values are there.

    Attributes
    ----------
    evaluations, made : int
        How many evaluations and segments there have been.
    stride : int
        Every so many-th segment is kept.
    """

    def __init__(self) -> None:
        self.evaluations = self.made = 0
        self.stride = 1
        self._present: dict[int, ref[Segment]] = {}

    def present(self) -> list[Segment]:
        """Return them in order."""
        found = [each() for _, each in sorted(self._present.items())]
        segments = [segment for segment in found if segment is not None]
        self._present = {segment.number: ref(segment) for segment in segments}
        return segments

    def nbytes(self) -> int:
        """Return what they take, and what was computed of histories besides."""
        besides = sum(_nbytes(node) for node in _computed_besides())
        return besides + sum(segment.size for segment in self.present())

    def enter(self, segment: Segment) -> None:
        """Keep a segment's values."""
        self._present[segment.number] = ref(segment)

    def has(self, segment: Segment) -> bool:
        """Whether its values are there."""
        return segment.number in self._present

    def let_go(self, segment: Segment) -> None:
        """Let go of its values."""
        segment.let_go()
        del self._present[segment.number]


_passing = _Passing()
_kept = _Kept()


def evaluate(targets: Sequence[Node], small: bool = False) -> None:
    """Compute the targets as `execution.evaluate` does, in the memory that histories may take."""
    keeps = any(node.keeps for node in targets)
    if not keeps and not _segments:
        execution.evaluate.evaluate(targets, small)
        return
    with execution.known.lock:
        _kept.evaluations += 1
        _end_run()  # what is computed from a run comes after it
        _restore([segment for segment in map(_segments.get, _leaves_below(targets))
                  if segment is not None])
        if keeps:
            _compute(targets, small)
        else:
            execution.evaluate.evaluate(targets, small)
        _begin_run()


def _compute(targets: Sequence[Node], small: bool) -> None:
    """Compute targets that have a history, and say how that is done again."""
    traced = trace(targets)
    pending = [k for k, node in enumerate(traced.nodes) if node.buffer is None]
    before = counters["op by op"]
    execution.evaluate.evaluate(targets, small)
    made = [k for k in pending if _nbytes(traced.nodes[k])]
    if _passing.depth:
        _passing.computed += [ref(traced.nodes[k]) for k in made]
    elif made:
        _enter(_Stretch(traced, made, small=small, op_by_op=counters["op by op"] != before))


def _leaves_below(targets: Sequence[Node]) -> list[Node]:
    """Return what is or was there of what the targets are computed from."""
    found, waiting, seen = [], [*targets], {*targets}
    while waiting:
        node = waiting.pop()
        if node.buffer is not None or node in _segments:
            found.append(node)
            continue
        above = [x for x in node.inputs if type(x) is Node and x not in seen]
        seen.update(above)
        waiting += above
    return found


def _limit() -> int:
    limit = config.grad_memory
    return sys.maxsize if limit is None else limit


def _enter(segment: Segment) -> None:
    """Keep what was computed, and let go of others where it has become too much."""
    def too_much() -> bool:
        return 2 * _kept.nbytes() > _limit() and len(_kept.present()) > FEWEST

    if not _kept.present():
        _kept.stride = 1
    for node in segment.nodes():
        _segments[node] = segment
    _kept.enter(segment)
    while too_much():
        for other in _kept.present():
            if other.number % _kept.stride and other.used < _kept.evaluations - 1:
                _kept.let_go(other)
        if not too_much() or _kept.stride > _kept.made:
            return
        _kept.stride *= 2


def _restore(needed: Sequence[Segment]) -> None:
    """Have the values of segments there."""
    for segment in needed:
        segment.used = _kept.evaluations
    missing = {segment for segment in needed if not _kept.has(segment)}
    if not missing:
        return
    order = _on_the_way(missing)
    last, size = max(segment.number for segment in missing), max(each.size for each in order)
    for other in reversed(_kept.present()):  # a backward pass has been there
        if other.number > last + 1 and other.used < _kept.evaluations and (
                2 * _kept.nbytes() > _limit()):
            _kept.let_go(other)
    room = max(FEWEST, (_limit() - _kept.nbytes()) // max(1, size) - len(missing))
    every = -(-len(order) // room)
    stays = {*missing, *order[every - 1::every]}
    last_use = {_segments.get(leaf): segment for segment in order for leaf in segment.leaves()}
    on_the_way = {*order}
    for segment in order:
        counters["computed again"] += 1
        segment.compute()
        _kept.enter(segment)
        for read in on_the_way.intersection(map(_segments.get, segment.leaves())):
            if read not in stays and last_use[read] is segment:
                _kept.let_go(read)


def _on_the_way(missing: Collection[Segment]) -> list[Segment]:
    """Return what has to be computed to have some segments, in an order in which it can be."""
    above: dict[Segment, list[Segment]] = {}
    waiting = [*missing]
    while waiting:
        segment = waiting.pop()
        if segment not in above:
            above[segment] = [
                other for other in {_segments.get(leaf) for leaf in segment.leaves()}
                if other is not None and other is not segment and not _kept.has(other)]
            waiting += above[segment]
    try:
        return [*TopologicalSorter(above).static_order()]
    except CycleError:  # of runs of several threads that read one another's values
        return sorted(above, key=lambda segment: segment.number)


# ---- what is computed at once --------------------------------------------------------------------


class _Small(threading.local):
    """What was computed at once of histories since the last `_Run`.

    Attributes
    ----------
    nbytes : int
    since : Node or None
        With which it began.
    paused : bool
        Whether a run is computed again.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.since: Node | None = None
        self.compute: Compute
        self.paused = False


_small = _Small()


class _pausing(Block):  # noqa: N801  used as a function
    def begin(self) -> None:
        _small.paused = True

    def end(self) -> None:
        _small.paused = False


def note_small(form: Form, nbytes: int, compute: Compute) -> None:
    """Take note that something is computed at once that has a history, by what can do it again."""
    if _small.paused or _passing.depth:
        return
    if _small.since is None:
        _small.since = _mark(form)
    _small.nbytes += nbytes
    _small.compute = compute
    if _small.nbytes >= max(LEAST_RUN, _limit() // 16):
        with execution.known.lock:
            _kept.evaluations += 1
            _end_run()
            _small.since = _mark(form)


def _begin_run() -> None:
    """Leave what is there now out of the next run: it has been computed otherwise."""
    _small.since, _small.nbytes = None, 0


def _end_run() -> None:
    """Make a segment of what was computed at once."""
    made = [] if _small.since is None else [
        node for node in _small.since.kept_since()
        if _nbytes(node) and node.inputs and node not in _segments
        and node.form.kind.size <= MOST_WITH_HISTORY and node.op is not opaque]
    _begin_run()
    if made:
        _enter(_Run(made, _small.compute))


def _mark(form: Form) -> Node:
    """Return a node from which on new ones are found."""
    node = Node(form, ())
    node.keep(KEEPS)
    return node


def value_again(node: Node) -> Any:
    """Return the value of a pending node that was let go, computed again; ``None`` of others."""
    segment = _segments.get(node)
    if segment is not None:
        with execution.known.lock:
            _kept.evaluations += 1
            if not _kept.has(segment) and not _small.paused:
                _end_run()
            _restore([segment])
    return node.buffer


# ---- backward passes -----------------------------------------------------------------------------


class passing(Block):  # noqa: N801  used as a function
    """Go backward through a history; nobody asks for derivatives of what is computed meanwhile."""

    def __init__(self) -> None:
        self._outer = _passing.depth

    def begin(self) -> None:
        """Count it, and note what comes."""
        _passing.depth = self._outer + 1
        _begin_run()

    def end(self) -> None:
        """Count it no more."""
        _passing.depth = self._outer
        if not self._outer:
            _passing.computed.clear()


def _computed_besides() -> list[Node]:
    return [node for node in (each() for each in _passing.computed) if node is not None]


def passed(is_behind: Callable[[Node], bool]) -> None:
    """Let go of what was computed of a history that a backward pass has left behind."""
    if not _passing.computed:
        return
    ahead = []
    for node in _computed_besides():
        if node.keeps != KEEPS or node.buffer is None:
            continue
        if is_behind(node) and 2 * _kept.nbytes() > _limit():
            node.buffer = None
        else:
            ahead.append(ref(node))
    _passing.computed[:] = ahead
