"""The op-by-op tier: every node through NumPy (on the host) or CuPy (on a GPU).

It needs no compiler, starts at once, and is the definition of what every kernel must return.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tiledarray.devices.buffer import host_pool
from tiledarray.devices.threads import together
from tiledarray.errors import NodeFailed
from tiledarray.execution.op_by_op.chain import WORTH_CHAINING, Chain, updated, value_of
from tiledarray.execution.op_by_op.parts import Part
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.movement import empty, strided_view
from tiledarray.ops.op import Reduction, Update

WORTH_SHARING = 128  # columns


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


def run(parts: Sequence[Part], values: dict[Node, Any], threads: int,
        given: Collection[Node] = ()) -> None:
    """Compute the parts in order.

    Parameters
    ----------
    parts : sequence of Part
    values : dict
        Given empty; the arrays of what is not dead are there in the end, and should a part fail.
    threads : int
        Host threads that share the work.
    given : collection of Node
        Leaves that nothing else refers to: an update may write in their memory.  It is marked as
        computed at once, so that it is not done twice should a later part fail.

    Raises
    ------
    NodeFailed
        Caused by what NumPy or CuPy raised.
    """
    given = set(given)
    for part in parts:
        if part.space is not None:
            chain = Chain(part.space, part.nodes, values, part.stored)
            chain.run(threads)
            values.update(chain.results)
            del chain  # it refers to its operands, which may now be written
        else:
            node = part.nodes[0]
            try:
                if isinstance(node.op, Update) and node.device.kind == "cpu":
                    mine = {x for x in part.dead if x in values or x in given}
                    result = _updated(node, values, mine)
                else:
                    result = _computed(node, values, threads)
            except Exception as error:
                raise NodeFailed(node) from error
            if node.buffer is None:
                values[node] = result
            else:
                given.add(node)
            del result
        for node in part.dead:
            values.pop(node, None)


def _computed(node: Node, values: dict[Node, Any], threads: int) -> Any:
    if node.device.kind == "cpu":
        if threads > 1 and _has_columns(node):
            return _reduced(node, value_of(node.inputs[0], values), threads)
        if node.op is empty and has_kernel(node.dtype):
            return host_pool.array(node.shape, node.dtype)[0]
    inputs = [value_of(x, values) if type(x) is Node else x for x in node.inputs]
    return compute(node, node.device.xp, inputs)


def _updated(node: Node, values: dict[Node, Any], mine: Collection[Node]) -> Any:
    """Write in the old value's array if this update alone refers to it, else in a new one."""
    old, new, *starts = node.inputs
    axes, steps, shape = node.attrs
    written = value_of(new, values)
    if old in mine and old.buffer is not None and old.buffer.exclusive():
        array = old.buffer.array
        strided_view(array, axes, steps, tuple(starts), shape)[...] = written
        node.buffer, node.inputs = old.buffer, ()
        return array
    if old in mine and old.buffer is None:
        array = values.pop(old)
        alone = array.flags.owndata or isinstance(array.base, ctypes.Array)
        if alone and array.flags.writeable and sys.getrefcount(array) == _ALONE:
            strided_view(array, axes, steps, tuple(starts), shape)[...] = written
            return array
        values[old] = array
    array, region = updated(node, value_of(old, values))
    region[...] = written
    return array


def _has_columns(node: Node) -> bool:
    """Whether it is a large reduction that keeps a last axis, long enough to be shared out."""
    if not isinstance(node.op, Reduction):
        return False
    operand, (axes, accumulate) = node.inputs[0], node.attrs
    last = len(operand.shape) - 1
    return (
        math.prod(operand.shape) >= WORTH_CHAINING
        and last not in axes and operand.shape[last] >= WORTH_SHARING
        and accumulate in (None, operand.dtype) and has_kernel(operand.dtype)
    )


def _reduced(node: Node, array: np.ndarray, threads: int) -> np.ndarray:
    """Reduce parts of the last axis at the same time; NumPy adds up each column on its own."""
    result = np.empty(node.shape, node.dtype)
    width = -(-node.shape[-1] // threads)

    def reduce(first: int) -> None:
        columns = slice(first, first + width)
        part = result[..., columns]
        with np.errstate(all="ignore"):
            part[...] = node.op.reference(
                np, array[..., columns], attrs=node.attrs, shape=part.shape, dtype=node.dtype)

    together(reduce, range(0, node.shape[-1], width))
    return result
