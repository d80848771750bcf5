"""The op-by-op tier: every node through NumPy (on the host) or CuPy (on a GPU).

It needs no compiler, starts at once, and is the definition of what every kernel must return.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Sequence
from functools import partial
from operator import delitem, setitem
from typing import TYPE_CHECKING, Any

import numpy as np

from tiledarray.at_one_go import at_one_go
from tiledarray.devices.device import Device
from tiledarray.devices.pool import host_pool
from tiledarray.devices.storage import Buffer, memory_of
from tiledarray.devices.threads import together
from tiledarray.errors import NodeFailed, raised_outside, suppress_own
from tiledarray.execution.op_by_op.chain import (
    WORTH_CHAINING,
    Chain,
    nanoseconds,
    updated,
    value_of,
    worth,
)
from tiledarray.execution.op_by_op.parts import Part, parts_of
from tiledarray.execution.shared_calls import shared_out
from tiledarray.fork import importing
from tiledarray.graph.node import Node, location
from tiledarray.graph.program import instantiated
from tiledarray.ops.elementwise import has_kernel
from tiledarray.ops.loop import Step
from tiledarray.ops.movement import empty, strided_view
from tiledarray.ops.op import Item, Reduction, Repeat, Update

if TYPE_CHECKING:
    from tiledarray.execution.repeating import Bind, Owned, Run

WORTH_SHARING = 128  # columns


class Values(dict[Node, Any]):
    """What has been computed: the array of each node, a tuple of arrays where it has several.

    Attributes
    ----------
    fresh : set of Node
        Those whose arrays lie in memory of their own, made for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fresh: set[Node] = set()
        self._parts: set[tuple[Node, int]] = set()
        self._memory: dict[Node, list[int]] = {}  # of the results that `add` has entered

    def add(self, node: Node, result: Any, inputs: Sequence[Any]) -> None:
        """Enter a result; it is fresh unless it lies in the memory of an input."""
        self[node] = result
        if type(node.op) is Item:  # a part of what nobody else has, if it is the first
            part = node.inputs[0], node.attrs
            if part[0] in self.fresh and part not in self._parts:
                self.fresh.add(node)
            self._parts.add(part)
            return
        taken = {memory_of(x) for value in inputs for x in _arrays(value)}
        own = self._memory[node] = [memory_of(x) for x in _arrays(result)]
        if len({*own}) == len(own) and taken.isdisjoint(own):
            self.fresh.add(node)

    def alone(self, array: Any) -> bool:
        """Whether no other array that was computed lies in the memory of this one."""
        memory = memory_of(array)
        for node, value in self.items():
            if value is array:
                continue
            own = self._memory.get(node)
            if own is None or type(value) is tuple:
                own = [memory_of(x) for x in _arrays(value) if x is not array]
            if memory in own:
                return False
        return True

    def taken(self, node: Node) -> Any:
        """Return the value as the node's own buffer, copied where others look at its memory."""
        value, fresh = self[node], node in self.fresh
        if isinstance(value, tuple):
            return tuple(_buffer(part, node, fresh) for part in value)
        return _buffer(value, node, fresh)

    def keep(self) -> None:
        """Let the nodes have their values; of what needs a copy, as many as there is room for."""
        for node in sorted(self, key=lambda node: node not in self.fresh):
            if node.buffer is None:
                with suppress_own(MemoryError):
                    node.buffer = self.taken(node)


def _arrays(value: Any) -> Sequence[Any]:
    """The arrays of a value; none of a scalar."""
    if isinstance(value, tuple):
        return value
    return (value,) if hasattr(value, "base") else ()


def _buffer(array: Any, node: Node, fresh: bool) -> Any:
    """A buffer that shares no memory with another node's."""
    if node.device.on_host:
        pooled = isinstance(array.base, ctypes.Array)  # a block of the pool, all of it
        fresh = fresh and (pooled or (array.base is None and array.flags.owndata))
    return node.device.wrap(array, copy=not fresh, given=True)


def compute(node: Node, xp: Any, values: Sequence[Any]) -> Any:
    """Return the node's value from its inputs' values; a view may share their memory."""
    with np.errstate(all="ignore"):
        result = node.op.reference(
            xp, *values, attrs=node.attrs, shape=node.shape, dtype=node.dtype
        )
    if isinstance(result, tuple):
        return tuple(xp.asarray(part, order="C") for part in result)
    return xp.asarray(result)


def run(parts: Sequence[Part], values: Values, threads: int,
        given: Collection[Node] = ()) -> None:
    """Compute the parts in order.

    Parameters
    ----------
    parts : sequence of Part
    values : Values
        Given empty; what is not dead is there in the end, and should a part fail.
    threads : int
        Host threads that share the work.
    given : collection of Node
        Leaves that nothing else looks at: an update may write in their memory.  It is noted as
        computed in one go with that, so that it is not done twice should a later part fail.

    Raises
    ------
    NodeFailed
        Caused by what NumPy or CuPy raised.
    """
    given = set(given)
    for part in parts:
        if part.space is not None:
            chain = Chain(part.space, part.nodes, values, part.stored, threads)
            chain.run()
            values.fresh.update(chain.results)
            values.update(chain.results)
            del chain  # it refers to its operands, which may now be written
        else:
            node = part.nodes[-1]
            try:
                if len(part.nodes) > 1:
                    _summed_rows(part.nodes[0], node, values)
                elif isinstance(node.op, Update) and node.device.on_host:
                    mine = {x for x in part.dead if x in values or x in given}
                    _update(node, values, mine)
                else:
                    _compute(node, values, threads)
            except Exception as error:
                if raised_outside(error):
                    raise
                raise NodeFailed(node) from error
            if node.buffer is not None:
                given.add(node)
        for node in part.dead:
            values.pop(node, None)


def _compute(node: Node, values: Values, threads: int) -> None:
    inputs = [value_of(x, values) if type(x) is Node else x for x in node.inputs]
    if isinstance(node.op, Repeat):
        with importing:
            from tiledarray.execution.repeating import repeating
        device = node.device if node.device.kind != "auto" else Device("cpu")
        loop = repeating(node.attrs, device, lambda step: by_reference(
            step, node.attrs.first, device, threads))
        found = loop(*inputs)
        values.add(node, tuple(part.array for part in found) if isinstance(found, tuple)
                   else found.array, inputs)
        return
    if node.device.on_host:
        if _has_columns(node):
            sharing = worth(nanoseconds(node, node.inputs[0].shape), threads)
            if sharing > 1:
                values.add(node, _reduced(node, inputs[0], sharing), inputs)
                return
        once = _once(node, inputs[0]) if isinstance(node.op, Reduction) else None
        if once is not None:
            values.add(node, once, inputs)
            return
        shared = shared_out(node.op, node.attrs, inputs, threads)
        if shared is not None:
            result = shared(_memory, *inputs, attrs=node.attrs, shape=node.shape, dtype=node.dtype)
            values.add(node, result, inputs)
            return
        if node.op is empty and has_kernel(node.dtype):
            values.add(node, host_pool.array(node.shape, node.dtype)[0], ())
            return
    values.add(node, compute(node, node.device.xp, inputs), inputs)


def _summed_rows(chosen: Node, node: Node, values: Values) -> None:
    """Sum the rows that a mask selects; see `parts_of`."""
    mask, rows = (value_of(x, values) for x in chosen.inputs[:2])
    selected = np.ascontiguousarray(rows[mask.reshape(-1)])
    total = compute(node, node.device.xp, [selected])
    if len(selected) < len(rows):
        total += 0  # of the others: -0.0 and 0.0 are 0.0
    values.add(node, total, [selected])


def by_reference(step: Step, first: int, device: Device, threads: int) -> Bind:
    """Return what does a step of a loop over time op by op; the state begins at ``first``."""
    entries, _, outputs = step.signature
    given_up = step.given_up(first)
    leaves = [number for number, entry in enumerate(entries) if entry[0] is None]

    def bind(params: Sequence[Any]) -> Run:
        def do(arrays: list[Buffer], is_own: Owned) -> list[Buffer]:
            nodes = instantiated(
                entries, [arrays[place] for place in step.leaves], params, device, step.sites)
            targets = [nodes[number] for number in outputs]
            given = [nodes[number] for number, place in zip(leaves, step.leaves, strict=True)
                     if number in given_up and is_own(place)]
            values = Values()
            try:
                run(parts_of(nodes, targets), values, threads, given)
            except NodeFailed as failed:
                error, place = failed.__cause__ or failed, location(failed.node.site)
                if place is not None:
                    error.add_note(f"in a step, at {place[0]}:{place[1]}")
                raise error from error.__cause__
            return [values.taken(node) if node.buffer is None else node.buffer
                    for node in targets]

        return do

    return bind


def _memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return host_pool.array(shape, dtype)[0]


def _update(node: Node, values: Values, mine: Collection[Node]) -> None:
    """Write in the old value's array if this update alone looks at it, else in a new one."""
    old, new, *starts = node.inputs
    axes, steps, shape = node.attrs
    written = value_of(new, values)
    array = value_of(old, values)
    computed = old.buffer is None
    own = old in values.fresh if computed else old.buffer.alone()
    if old in mine and own and array.flags.writeable and values.alone(array):
        if not computed:
            old.buffer.elsewhere = None
        write = partial(setitem, strided_view(array, axes, steps, tuple(starts), shape), ...,
                        written)
        if computed:
            at_one_go(write, [partial(setitem, values, node, array), partial(delitem, values, old),
                              partial(values.fresh.add, node)])
        else:
            at_one_go(write, [partial(setattr, node, "buffer", old.buffer)])
            node.forget_inputs()
        return
    result, region = updated(node, array)
    region[...] = written
    values.add(node, result, (array,))


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


def _once(node: Node, array: np.ndarray) -> np.ndarray | None:
    """Reduce an array that is broadcast along what is kept, there once; ``None`` if it is not.

    NumPy would add up real numbers in another order then.
    """
    if node.dtype.kind not in "biu":
        return None
    axes = node.attrs[0]
    alike = [axis for axis in range(array.ndim) if axis not in axes
             and array.shape[axis] > 1 and not array.strides[axis]]
    if not alike or not array.size:
        return None
    part = array[tuple(slice(1 if axis in alike else None) for axis in range(array.ndim))]
    kept = tuple(length for axis, length in enumerate(part.shape) if axis not in axes)
    with np.errstate(all="ignore"):
        found = node.op.reference(np, part, attrs=node.attrs, shape=kept, dtype=node.dtype)
    return np.array(np.broadcast_to(np.reshape(found, kept), node.shape))


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
