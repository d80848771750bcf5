"""What the op-by-op tier computes together, and what that costs.

On the host, nodes that can be computed block by block wait for others with the same index space
until something else reads them: such a chain never writes its temporaries to memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tiledarray.execution.op_by_op.chain import Shape, in_blocks, index_space, nanoseconds
from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.graph.program import instantiated
from tiledarray.ops import reduction
from tiledarray.ops.movement import full, placeholder
from tiledarray.ops.op import (
    AxisView,
    Item,
    Library,
    Repeat,
    Scan,
    Update,
)
from tiledarray.ops.selection import where

BYTES_PER_SECOND = 6e9  # of arrays that NumPy reads and writes whole
NODE_SECONDS = 1e-5  # that each node of a loop takes at every step, small as it may be
STEPS = 16  # of a loop, where nobody knows how many there will be


@dataclass(eq=False, slots=True)
class Part:
    """One node, or a chain of them, or a `where` and the sum of what it selects.

    Attributes
    ----------
    nodes : list of Node
        Inputs first.
    space : tuple of int or None
        Index space of a chain.
    stored : frozenset of Node
        Nodes of a chain, computed in blocks, that something outside it needs.
    dead : list of Node
        What nothing reads any more once the part has been computed.
    """

    nodes: list[Node]
    space: Shape | None = None
    stored: Collection[Node] = frozenset()
    dead: list[Node] = field(default_factory=list)


def parts_of(nodes: Sequence[Node], targets: Sequence[Node]) -> list[Part]:
    """Cut the pending ones of the nodes (given inputs first) into parts, in order."""
    return _Cutter([node for node in nodes if node.buffer is None], set(targets)).cut()


def operands(node: Node) -> list[Node]:
    """Return the node's inputs that are nodes."""
    return [x for x in node.inputs if type(x) is Node]


class _Cutter:
    """One walk over the nodes of an evaluation."""

    def __init__(self, nodes: list[Node], wanted: set[Node]) -> None:
        self._nodes = nodes
        self._wanted = wanted
        self._unread = Counter(x for node in nodes for x in operands(node))
        self._waiting: dict[Shape, list[Node]] = {}
        self._space: dict[Node, Shape] = {}  # of what waits
        self._parts: list[Part] = []
        self._sums = {node: node.inputs[0] for node in nodes if self._is_of_rows(node)}
        self._selected = {*self._sums.values()}

    def _is_of_rows(self, node: Node) -> bool:
        """Whether a node sums rows that a mask selects, of an array that has zeros for the others.

        NumPy's user would have summed these rows alone.  It adds rows one after the other, so that
        the sums are the same to the bit; what is one column it adds in pairs.
        """
        if node.op is not reduction.sum or node.attrs[0] != (0,) or math.prod(node.shape) < 2:
            return False
        chosen = node.inputs[0]
        if chosen.op is not where or self._unread[chosen] != 1 or chosen in self._wanted or (
                chosen.buffer is not None or not chosen.device.on_host):
            return False
        mask, rows, other = chosen.inputs
        zero = other.inputs[0] if type(other) is Node and other.op is full else other
        return (type(mask) is type(rows) is Node and type(zero) is not Node and zero == 0
                and mask.shape == (*chosen.shape[:1], *(1,) * (len(chosen.shape) - 1))
                and rows.shape == chosen.shape and rows.dtype == chosen.dtype)

    def cut(self) -> list[Part]:
        for node in self._nodes:
            self._take(node)
        for shape in list(self._waiting):
            self._flush(shape)
        return self._parts

    def _take(self, node: Node) -> None:
        """Let the node wait in a chain, or make it a part of its own."""
        if node in self._selected:
            return
        shape = None
        if node.device.on_host:
            shape = self._written_space(node) if isinstance(node.op, Update) else index_space(node)
        chosen = [self._sums[node]] if node in self._sums else []
        for x in operands(chosen[0] if chosen else node):
            if x in self._space and (self._space[x] != shape or not in_blocks(x)):
                self._flush(self._space[x])
        if shape is None:
            self._append(Part([*chosen, node]))
        else:
            self._waiting.setdefault(shape, []).append(node)
            self._space[node] = shape

    def _written_space(self, node: Node) -> Shape | None:
        """Index space of an update that can wait with the op that computes its new value.

        That op then writes into the array, without a temporary; the rest is copied, which must
        not be most of it.
        """
        old, new = node.inputs[:2]
        if old in self._space:
            self._flush(self._space[old])
        region = node.attrs[2]
        fits = (
            self._space.get(new) == region and in_blocks(new)
            and self._unread[new] == 1 and new not in self._wanted
            and 2 * math.prod(region) >= math.prod(node.shape)
        )
        return region if fits else None

    def _flush(self, shape: Shape) -> None:
        """Make what waits with this index space a part."""
        nodes = self._waiting.pop(shape)
        inside = Counter(x for node in nodes for x in operands(node))
        stored = frozenset(
            node for node in nodes
            if in_blocks(node) and (node in self._wanted or self._unread[node] > inside[node])
        )
        for node in nodes:
            del self._space[node]
        self._append(Part(nodes, shape, stored))

    def _append(self, part: Part) -> None:
        for node in part.nodes:
            for x in operands(node):
                self._unread[x] -= 1
                if not self._unread[x] and x not in self._wanted:
                    part.dead.append(x)
        self._parts.append(part)


# ---- costs ---------------------------------------------------------------------------------


def cost(parts: Sequence[Part], threads: int) -> tuple[float, int]:
    """Return roughly the seconds that the parts take, and the bytes of their largest array.

    Library calls and scans are left out: kernels take as long.  Views cost nothing.
    """
    seconds, largest = 0.0, 0
    for part in parts:
        if isinstance(part.nodes[0].op, Repeat):
            more, of_steps = _cost_of_steps(part.nodes[0], threads)
            seconds, largest = seconds + more, max(largest, of_steps)
            continue
        if part.space is None and isinstance(part.nodes[0].op, Library | Item | Scan | AxisView):
            continue
        written = [node for node in part.nodes if part.space is None or node in part.stored
                   or not in_blocks(node)]
        moved = sum(map(_written_bytes, written))
        largest = max([largest, *map(nbytes, written)])
        if part.space is None:
            moved += sum(nbytes(x) for x in operands(part.nodes[0])[is_update(part.nodes[0]):])
        work = sum(nanoseconds(node, part.space or node.shape) for node in part.nodes)
        seconds += moved / BYTES_PER_SECOND + 1e-9 * work / (1 if part.space is None else threads)
    return seconds, largest


def is_update(node: Node) -> bool:
    """Whether a node writes into part of an array, which is its first input: in place, mostly."""
    return isinstance(node.op, Update)


def _written_bytes(node: Node) -> int:
    if is_update(node):
        return math.prod(node.attrs[2]) * node.dtype.itemsize
    return nbytes(node)


def _cost_of_steps(node: Node, threads: int) -> tuple[float, int]:
    """Return what the steps of a loop over time cost."""
    steps, count = node.attrs, STEPS
    if steps.header:
        given = node.inputs[0]
        array = getattr(given.buffer, "array", None) if type(given) is Node else given
        count = STEPS if array is None else int(array)
    seconds, largest = 0.0, 0
    for step in steps.recordings:
        entries, _, outputs = step.signature
        leaves = [Node(form_of(placeholder, None, kind_of(shape, dtype, node.device), 0), ())
                  for op, shape, dtype, *_ in entries if op is None]
        nodes = instantiated(entries, leaves, step.filled([0.0] * step.scalars), node.device)
        inside = [each for each in nodes if each.op is not placeholder]
        more, of_step = cost(parts_of(inside, [nodes[number] for number in outputs]), threads)
        seconds += count * (more + NODE_SECONDS * len(inside))
        largest = max(largest, of_step)
    return seconds, largest


def nbytes(node: Node) -> int:
    """Size of the node's value in bytes."""
    return math.prod(node.shape) * node.dtype.itemsize
