"""Chains of elementwise ops through NumPy, walked in blocks that stay in the cache.

NumPy writes every temporary to memory and reads it back.  Here all ops of a chain are applied to
one block of the index space before the next, each through its own ufunc and into scratch that the
cache holds, by several threads at a time (NumPy releases the interpreter lock).  Every element is
computed by the very calls that NumPy's user would have made, so the results are the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tiledarray.devices.pool import host_pool
from tiledarray.devices.threads import together
from tiledarray.errors import NodeFailed, raised_outside
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.movement import full, strided_view
from tiledarray.ops.op import NANOSECONDS, Elementwise, Reduction, Update
from tiledarray.ops.ufunc import in_loop_dtypes

BLOCK = 1 << 16  # elements; a few arrays of so many fit in a core's cache
WORTH_CHAINING = 1 << 14
WORTH_THREAD = 4e5  # nanoseconds of NumPy's that are worth another thread
ROW_NANOSECONDS = 25.0  # that NumPy takes to begin with another row that it reduces

Shape = tuple[int, ...]
_BYTE = np.dtype(np.uint8)


@dataclass(eq=False, slots=True)
class Step:
    """One node of a chain: what to call, on which values of a block, and where the result goes.

    ``target`` is an array over the index space (a reduction's has only its leading axes); without
    one the result is written to scratch number ``slot``, whose content nobody needs by then.
    """

    node: Node
    call: Callable[..., Any]
    operands: list[int]
    target: np.ndarray | None
    slot: int = -1


def index_space(node: Node) -> Shape | None:
    """Index space over which the node can be computed block by block; ``None``: it cannot.

    Updates are no part of this: they follow what they write.
    """
    op = node.op
    if isinstance(op, Elementwise):
        known = has_kernel(node.dtype, *node.attrs)
    elif op is full:
        known = has_kernel(node.dtype)
    else:
        return _reduced_space(node) if isinstance(op, Reduction) else None
    return node.shape if known and math.prod(node.shape) >= WORTH_CHAINING else None


def in_blocks(node: Node) -> bool:
    """Whether others of the chain can read the node's value as it is computed."""
    return not isinstance(node.op, Reduction | Update)


def _reduced_space(node: Node) -> Shape | None:
    """Shape of a reduction's operand, if it reduces rows that a block holds whole.

    NumPy then adds up each row as it would in the whole array.  Where it casts while it reduces,
    its order depends on where its buffer begins.
    """
    operand, (axes, accumulate) = node.inputs[0], node.attrs
    shape = operand.shape
    kept = len(shape) - len(axes)
    whole_rows = kept and axes == (*range(kept, len(shape)),) and math.prod(shape[kept:]) <= BLOCK
    plain = (accumulate is None or accumulate == operand.dtype) and has_kernel(operand.dtype)
    return shape if whole_rows and plain and math.prod(shape) >= WORTH_CHAINING else None


class Chain:
    """Nodes over one index space, bound to their operands and to memory for their results.

    Parameters
    ----------
    shape : tuple of int
        The index space.
    nodes : sequence of Node
        Inputs first.  None of them reads a reduction or an update among them, and the new value
        of an update is an elementwise node among them that nothing else reads.
    values : dict
        What has been computed already, among it every operand that is not in the chain.
    stored : collection of Node
        The elementwise nodes whose values are needed afterwards.
    threads : int
        That may share the work.

    Attributes
    ----------
    results : dict
        The arrays of what is stored, of reductions and of updates, complete after `run`.
    """

    def __init__(self, shape: Shape, nodes: Sequence[Node], values: dict[Node, Any],
                 stored: Collection[Node], threads: int = 1) -> None:
        self.shape = shape
        self.results: dict[Node, np.ndarray] = {}
        self._threads = worth(sum(nanoseconds(node, shape) for node in nodes), threads)
        whole = self._threads == 1 and _are_alone(nodes) and all(map(_in_one_pass, nodes))
        self._axis, self._rows = (0, shape[0]) if whole else _cut(shape)
        self._inputs: list[tuple[int, np.ndarray]] = []
        targets = self._allocate(nodes, values, stored)
        computed = _eagerly([node for node in nodes if not isinstance(node.op, Update)], targets)
        self._template: list[Any] = [None] * len(computed)  # a block's values: steps', then others
        places: dict[Any, int] = {node: k for k, node in enumerate(computed)}
        self._steps = [
            Step(node, _call(node, self._axis), self._bind(node, places, values), targets.get(node))
            for node in computed
        ]
        self._slots = _share_slots(self._steps)

    def _allocate(self, nodes: Sequence[Node], values: dict[Node, Any],
                  stored: Collection[Node]) -> dict[Node, np.ndarray]:
        """Make the arrays of the results; return where each step writes its own."""
        targets = {}
        for node in nodes:
            try:
                if isinstance(node.op, Update):
                    array, region = updated(node, value_of(node.inputs[0], values))
                    self.results[node], targets[node.inputs[1]] = array, region
                elif node in stored or isinstance(node.op, Reduction):
                    targets[node] = self.results[node] = host_pool.array(node.shape, node.dtype)[0]
            except Exception as error:
                if raised_outside(error):
                    raise
                raise NodeFailed(node) from error
        return targets

    def _bind(self, node: Node, places: dict[Any, int], values: dict[Node, Any]) -> list[int]:
        """Return the places of a step's operands; those from outside are given theirs."""
        found = []
        loops = node.attrs if isinstance(node.op, Elementwise) else (node.dtype,)
        for x, loop in zip(node.inputs, loops, strict=True):
            if x not in places or type(x) is not Node:
                places[x] = len(self._template)
                if type(x) is Node:
                    array = value_of(x, values)
                    if array.shape != self.shape:  # what is read-only some functions copy
                        array = np.broadcast_to(array, self.shape)
                    self._inputs.append((places[x], array))
                    self._template.append(None)
                else:
                    self._template.append(np.asarray(x, loop))
            found.append(places[x])
        return found

    def run(self) -> None:
        """Compute every block."""
        blocks, count = self._blocks()
        together(lambda scratch: self._walk(blocks, scratch),
                 [self._scratch() for _ in range(min(self._threads, count))])

    def _blocks(self) -> tuple[Iterator[tuple[Any, ...]], int]:
        """Return the indices of all blocks, which threads may share, and how many there are."""
        length = self.shape[self._axis]
        cuts = [slice(k, min(k + self._rows, length)) for k in range(0, length, self._rows)]
        before = self.shape[:self._axis]
        return itertools.product(*map(range, before), cuts), math.prod(before) * len(cuts)

    def _scratch(self) -> list[np.ndarray]:
        """Return for each step without a target an array that takes the largest block."""
        block = (self._rows, *self.shape[self._axis + 1:])
        size = math.prod(block)
        slots = [host_pool.array((size * itemsize,), _BYTE)[0] for itemsize in self._slots]
        return [
            slots[step.slot][:size * step.node.dtype.itemsize].view(step.node.dtype).reshape(block)
            if step.target is None else step.target for step in self._steps
        ]

    def _walk(self, blocks: Iterator[tuple[Any, ...]], scratch: list[np.ndarray]) -> None:
        """Compute block after block, until none is left."""
        work = list(enumerate(zip(self._steps, scratch, strict=True)))
        with np.errstate(all="ignore"):
            for index in blocks:
                rows = slice(index[-1].stop - index[-1].start)
                values = self._template.copy()
                for place, array in self._inputs:
                    values[place] = array[index]
                for place, (step, memory) in work:
                    values[place] = out = memory[rows if step.target is None else index]
                    try:
                        step.call(*[values[k] for k in step.operands], out=out)
                    except Exception as error:
                        if raised_outside(error):
                            raise
                        raise NodeFailed(step.node) from error


def nanoseconds(node: Node, space: Shape) -> float:
    """Return what a node takes NumPy, by one processor, over an index space."""
    if not isinstance(node.op, Elementwise):
        in_rows = isinstance(node.op, Reduction) and (
            len(node.inputs[0].shape) - 1 in node.attrs[0])
        each = 0.0 if isinstance(node.op, Update) else NANOSECONDS[0]
        return math.prod(space) * each + (
            ROW_NANOSECONDS * math.prod(node.shape) if in_rows else 0.0)
    double, single = node.op.nanoseconds
    return math.prod(space) * (single if node.attrs and node.attrs[0] == "f4" else double)


def worth(work: float, threads: int) -> int:
    """Return how many of the threads so many nanoseconds are worth."""
    return max(1, min(threads, int(work / WORTH_THREAD))) if WORTH_THREAD else threads


def value_of(node: Node, values: dict[Node, Any]) -> Any:
    """Return the node's array, computed just now or before."""
    buffer = node.buffer
    if buffer is None:
        return values[node]
    return tuple(part.array for part in buffer) if type(buffer) is tuple else buffer.array


def updated(node: Node, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an update's new array, filled but for the region, and the region as a view of it."""
    array = host_pool.array(node.shape, node.dtype)[0]
    axes, steps, shape = node.attrs
    starts = node.inputs[2:]
    followed = [axis for axis in axes if axis >= 0]
    box = len(set(followed)) == len(followed) and all(
        step == 1 or axis < 0 for axis, step in zip(axes, steps, strict=True))
    inside: tuple[slice, ...] = ()
    for axis, start in zip(axes, starts, strict=True) if box else ():
        end = start + (shape[axis] if axis >= 0 else 1)
        for beside in (slice(start), slice(end, None)):
            array[*inside, beside] = old[*inside, beside]
        inside = (*inside, slice(start, end))
    if not box:
        array[...] = old
    return array, strided_view(array, axes, steps, starts, shape)


def _cut(shape: Shape) -> tuple[int, int]:
    """Axis along which blocks are cut (those before it are walked one by one), and their length."""
    inner = 1
    for axis in reversed(range(len(shape))):
        if inner * shape[axis] > BLOCK:
            return axis, BLOCK // inner
        inner *= shape[axis]
    return 0, shape[0]


def _are_alone(nodes: Sequence[Node]) -> bool:
    """Whether none of the nodes reads another one."""
    inside = {*nodes}
    return not any(type(x) is Node and x in inside for node in nodes for x in node.inputs)


def _is_direct(node: Node) -> bool:
    """Whether a ufunc computes the node from its operands as they are."""
    ufunc: Any = getattr(node.op, "ufunc", None)
    return ufunc is not None and ufunc.nout == 1 and all(
        x.dtype == loop for x, loop in zip(node.inputs, node.attrs, strict=True)
        if type(x) is Node)


def _in_one_pass(node: Node) -> bool:
    """Whether NumPy computes the node without temporaries, which would have its size."""
    op: Any = node.op
    return bool(op.combine or op.positions) if isinstance(op, Reduction) else _is_direct(node)


def _call(node: Node, dropped: int) -> Callable[..., Any]:
    """Return what computes a block of the node, given the operands' and ``out``.

    A block lacks the first ``dropped`` axes of the index space.
    """
    op: Any = node.op
    attrs, dtype = node.attrs, node.dtype
    if op is full:
        return lambda value, out: np.copyto(out, value)
    ufunc: Any = getattr(op, "ufunc", None)
    if _is_direct(node):
        return partial(ufunc, casting="unsafe")
    if ufunc is not None and ufunc.nout == 1:
        return lambda *operands, out: ufunc(
            *in_loop_dtypes(np, operands, attrs), out=out, casting="unsafe")
    if isinstance(op, Reduction):
        attrs = (tuple(axis - dropped for axis in attrs[0]), attrs[1])
    return lambda *operands, out: np.copyto(
        out, op.reference(np, *operands, attrs=attrs, shape=out.shape, dtype=dtype))


def _eagerly(nodes: Sequence[Node], kept: Collection[Node]) -> list[Node]:
    """Put what is the last to read a value (none of ``kept``) as early as it can be.

    Nodes come in the order in which their results are needed: of two sums over the same terms,
    the second would find all terms waiting.
    """
    inputs = {node: [x for x in dict.fromkeys(node.inputs) if type(x) is Node] for node in nodes}
    readers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for x in inputs[node]:
            if x in readers:
                readers[x].append(node)
    unread = {node: len(found) for node, found in readers.items()}
    missing = {node: sum(x in readers for x in inputs[node]) for node in nodes}
    order: dict[Node, None] = {}
    for first in nodes:
        ready = [first]
        while ready:
            node = ready.pop()
            if node in order:
                continue
            order[node] = None
            for x in inputs[node]:
                if x in unread:
                    unread[x] -= 1
            for reader in readers[node]:
                missing[reader] -= 1
                if not missing[reader] and any(
                    unread.get(x) == 1 and x not in kept for x in inputs[reader]
                ):
                    ready.append(reader)
    return list(order)


def _share_slots(steps: Sequence[Step]) -> list[int]:
    """Give each step without a target a slot of scratch; return the bytes an element needs there.

    A slot is free again after the last step that reads it.  A ufunc may write where an operand of
    its dtype lies, the others may not: they compute in several passes.
    """
    last_reader = {place: number for number, step in enumerate(steps) for place in step.operands}
    sizes: list[int] = []
    free: list[int] = []
    for number, step in enumerate(steps):
        dying = [steps[k] for k in dict.fromkeys(step.operands)
                 if k < number and steps[k].slot >= 0 and last_reader[k] == number]
        in_place = [other.slot for other in dying if other.node.dtype == step.node.dtype]
        if step.target is None:
            step.slot = in_place[0] if in_place else free.pop() if free else len(sizes)
            if step.slot == len(sizes):
                sizes.append(0)
            sizes[step.slot] = max(sizes[step.slot], step.node.dtype.itemsize)
        free += [other.slot for other in dying if other.slot != step.slot]
    return sizes
