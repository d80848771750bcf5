"""The op-by-op tier: every node through NumPy (on the host) or CuPy (on a GPU).

It needs no compiler, starts at once, and is the definition of what every kernel must return.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.errors import NodeFailed
from tiledarray.graph import Node
from tiledarray.kernels.chain import Chain, Shape, in_blocks, index_space, updated, value_of
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.movement import empty, strided_view
from tiledarray.ops.op import Update
from tiledarray.runtime.buffer import host_pool


def _references_of_a_local() -> int:
    """Count the references to an array that only a local variable holds, as Python counts."""
    array = np.empty(0)
    return sys.getrefcount(array)


_ALONE = _references_of_a_local()


def compute(node: Node, xp: Any, values: Sequence[Any]) -> Any:
    """Return the node's value from its inputs' values; a view may share their memory."""
    with np.errstate(all="ignore"):
        result = node.op.reference(
            xp, *values, attrs=node.attrs, shape=node.shape, dtype=node.dtype
        )
    if isinstance(result, tuple):
        return tuple(xp.ascontiguousarray(part) for part in result)
    return xp.asarray(result)


class OpByOp:
    """One walk over the nodes of an evaluation.

    On the host, what can be computed block by block waits in a chain (see `Chain`) with what else
    has its index space, until something else reads it.

    Parameters
    ----------
    nodes : sequence of Node
        Everything below the targets, inputs first, all on one device.
    targets : sequence of Node
        The nodes whose values are wanted.
    threads : int
        Threads that share the blocks of a chain.
    """

    def __init__(self, nodes: Sequence[Node], targets: Sequence[Node], threads: int) -> None:
        self.values: dict[Node, Any] = {}
        self._nodes = [node for node in nodes if node.buffer is None]
        self._wanted = set(targets)
        self._threads = threads
        self._unread = Counter(x for node in self._nodes for x in _operands(node))
        self._waiting: dict[Shape, list[Node]] = {}
        self._space: dict[Node, Shape] = {}  # of what waits

    def run(self) -> dict[Node, Any]:
        """Return the arrays of the targets.

        Raises
        ------
        NodeFailed
            Caused by what NumPy or CuPy raised.
        """
        for node in self._nodes:
            try:
                self._take(node)
            except NodeFailed:
                raise
            except Exception as error:
                raise NodeFailed(node) from error
        for shape in list(self._waiting):
            self._flush(shape)
        return self.values

    def _take(self, node: Node) -> None:
        """Compute the node, or let it wait."""
        shape = None
        if node.device.kind == "cpu":
            shape = self._written_space(node) if isinstance(node.op, Update) else index_space(node)
        for x in _operands(node):
            if x in self._space and (self._space[x] != shape or not in_blocks(x)):
                self._flush(self._space[x])
        if shape is not None:
            self._waiting.setdefault(shape, []).append(node)
            self._space[node] = shape
        else:
            self.values[node] = self._computed(node)
            self._release(node)

    def _computed(self, node: Node) -> Any:
        inputs = [value_of(x, self.values) if type(x) is Node else x for x in node.inputs]
        if node.device.kind == "cpu":
            if isinstance(node.op, Update):
                return self._updated(node, inputs[1])
            if node.op is empty and has_kernel(node.dtype):
                return host_pool.array(node.shape, node.dtype)[0]
        return compute(node, node.device.xp, inputs)

    # ---- chains --------------------------------------------------------------------------

    def _flush(self, shape: Shape) -> None:
        """Compute what waits with this index space."""
        nodes = self._waiting.pop(shape)
        inside = Counter(x for node in nodes for x in _operands(node))
        stored = {
            node for node in nodes
            if in_blocks(node) and (node in self._wanted or self._unread[node] > inside[node])
        }
        chain = Chain(shape, nodes, self.values, stored)
        chain.run(self._threads)
        self.values.update(chain.results)
        for node in nodes:
            del self._space[node]
        for node in nodes:
            self._release(node)

    def _release(self, node: Node) -> None:
        """Forget the operands that nothing reads any more."""
        for x in _operands(node):
            self._unread[x] -= 1
            if not self._unread[x] and x not in self._wanted:
                self.values.pop(x, None)

    # ---- updates -------------------------------------------------------------------------

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

    def _updated(self, node: Node, new: Any) -> Any:
        """Write in the old value's array if this update alone refers to it, else in a new one."""
        old, starts = node.inputs[0], node.inputs[2:]
        axes, steps, shape = node.attrs
        if old in self.values and self._unread[old] == 1 and old not in self._wanted:
            array = self.values.pop(old)
            alone = array.flags.owndata or isinstance(array.base, ctypes.Array)
            if alone and array.flags.writeable and sys.getrefcount(array) == _ALONE:
                strided_view(array, axes, steps, starts, shape)[...] = new
                return array
            self.values[old] = array
            del array
        array, region = updated(node, value_of(old, self.values))
        region[...] = new
        return array


def _operands(node: Node) -> list[Node]:
    return [x for x in node.inputs if type(x) is Node]
