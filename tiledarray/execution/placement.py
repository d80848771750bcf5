"""Where the work on arrays is done that nobody put anywhere: on the host, or on the GPU.

They are born on the host.  A stretch of work goes to the GPU where that takes less time, bringing
its inputs there included; what it computes stays there until the host looks at it.  A value may
have a copy on each side (`Buffer.elsewhere`); what is written keeps one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from tiledarray import config, core
from tiledarray.devices.device import Device, accelerator, home
from tiledarray.devices.storage import Buffer
from tiledarray.execution.op_by_op.parts import BYTES_PER_SECOND, cost, nbytes, operands, parts_of
from tiledarray.graph.node import Node
from tiledarray.graph.program import Trace
from tiledarray.ops.movement import placeholder
from tiledarray.ops.op import Library, Scan, Source, Update

REMEMBERED = 4096  # traces
LINK_BYTES_PER_SECOND = 1e10  # from the host to a GPU and back
GPU_SECONDS = 1e-4  # to bind and launch a plan, and to wait for it
USES = 4  # what is brought to the GPU is used so often there, or more
LIBRARY_SECONDS = 5e-9  # of NumPy for an element of a library call's operands: sorting, FFT
PRODUCT_SECONDS = 1e-10  # for an element and a step along the last axis: products, solving
LOOK_BYTES = 1 << 18  # a look by way of the GPU takes as long as bringing so many bytes home
MANY = 64  # looks that a crowd of small operations is counted as

_products = frozenset((
    "matmul", "dot", "einsum", "tensordot", "solve", "inv", "cholesky", "qr", "svd", "eigh", "eig",
    "lstsq", "det", "pinv", "convolve", "correlate",
))


class _Choice(NamedTuple):
    """Whether the GPU computes a trace, and whether that is done for a few elements."""

    on_gpu: bool
    few: bool


_choices: OrderedDict[Any, _Choice] = OrderedDict()


def chosen(
    traced: Trace, targets: list[Node], threads: int, *, again: bool = False, crowd: bool = False
) -> Device:
    """Return the device that computes the targets: the host's, or the GPU.

    Parameters
    ----------
    traced : Trace
        Of arrays on ``Device("auto")``; its nodes are there.
    targets : list of Node
    threads : int
        Of the host.
    again : bool
        Whether it is known that this comes again.
    crowd : bool
        Whether it is many small operations, and more will come.
    """
    nodes = traced.nodes
    far = tuple([k for k in traced.leaves if not _has_copy_at_home(nodes[k].buffer)])
    key = traced.key, far
    choice = _choices.get(key)
    if choice is None:
        seconds = host_seconds(nodes, targets, threads)
        over = sum(nbytes(nodes[k]) for k in traced.leaves if k not in far)
        back = sum(nbytes(nodes[k]) for k in far) / LINK_BYTES_PER_SECOND
        # Where the inputs lie on the GPU, bringing them home is the host's way to do it.
        choice = _choices[key] = _Choice(
            seconds + back > GPU_SECONDS + over / LINK_BYTES_PER_SECOND / USES,
            all(_elements(node) <= core.small() for node in nodes if node.buffer is None))
        while len(_choices) > REMEMBERED:
            _choices.popitem(last=False)
        once = not again and config.compile != "wait"
        if once and seconds + back < config.first_seconds:  # not compiled: it may not come again
            return Device("cpu")
    if not choice.on_gpu or (choice.few and not far):
        return Device("cpu")
    if far and choice.few and not again and _paid(
            [nodes[k].buffer for k in far], MANY if crowd else 1):
        return Device("cpu")
    return accelerator()


def _elements(node: Node) -> int:
    """How many elements are computed: of an update those that it writes, of a constant none."""
    if isinstance(node.op, Source):
        return 0
    return math.prod(node.attrs[2] if isinstance(node.op, Update) else node.shape)


def host_seconds(nodes: Iterable[Node], targets: list[Node], threads: int) -> float:
    """Return roughly the seconds that the pending ones of the nodes take on the host."""
    pending = [node for node in nodes if node.buffer is None and node.op is not placeholder]
    seconds, _ = cost(parts_of(pending, targets), threads)
    return seconds + sum(_of_library(node) for node in pending
                         if isinstance(node.op, Library | Scan))


def _of_library(node: Node) -> float:
    inputs = operands(node)
    elements = sum(math.prod(x.shape) for x in inputs) + math.prod(node.shape)
    if node.op.name not in _products:
        return elements * LIBRARY_SECONDS
    steps = max((x.shape[-1] for x in inputs if x.shape), default=1)
    return elements * steps * PRODUCT_SECONDS + elements * 8 / BYTES_PER_SECOND


def _has_copy_at_home(buffer: Any) -> bool:
    if type(buffer) is tuple:
        return all(map(_has_copy_at_home, buffer))
    return bool(buffer.device.on_host) or (
        buffer.elsewhere is not None and buffer.elsewhere.device.on_host)


def on_one_side(buffer: Any, device: Device, written: bool = False) -> Any:
    """Return a leaf's value on the device that computes; what is overwritten is there alone.

    An operation with several results has a buffer for each.
    """
    if type(buffer) is tuple:
        return tuple([part.on(device) for part in buffer])
    return buffer.parted(device) if written else buffer.on(device)


# ---- bringing home ---------------------------------------------------------------------------


def bring_home(node: Node) -> None:
    """Let a computed node have its value on the host; what it had stays as the copy elsewhere."""
    buffer = node.buffer
    if type(buffer) is tuple:
        node.buffer = tuple([_at_home(part) for part in buffer])
    elif not buffer.device.on_host:
        node.buffer = _at_home(buffer)


def bring_leaves_home(traced: Trace, but: Collection[int] = ()) -> None:
    """Do so for the leaves of a trace, which is about to be computed on the host.

    ``but`` are numbers of leaves that will be overwritten.
    """
    for number in traced.leaves:
        node: Any = traced.nodes[number]
        if node is not None and number not in but:
            bring_home(node)


def _at_home(buffer: Buffer) -> Buffer:
    if buffer.device.on_host:
        return buffer
    found = buffer.on(home())
    buffer.elsewhere = None  # one of the two refers to the other
    found.elsewhere, found.plan = buffer, buffer.plan
    return found


def comes_home(node: Node) -> bool:
    """Count a look at a small part of a value; bring it home now if that would have paid."""
    buffer = node.buffer
    if node.device.kind != "auto" or not isinstance(buffer, Buffer) or buffer.device.on_host:
        return False
    if not _paid([buffer], 1):
        return False
    bring_home(node)
    return True


def _paid(buffers: list[Any], looks: int) -> bool:
    """Count looks at small parts of what lies on a GPU; whether to have it here would have paid.

    They are counted together for all that one plan computes, for a loop computes it anew.
    """
    if tuple in map(type, buffers):
        return False
    counted: list[Any] = [*{
        id(found): found
        for buffer in buffers for found in [buffer if buffer.plan is None else buffer.plan]
    }.values()]
    for each in counted:
        each.looks += looks
    paid = max(each.looks for each in counted) * LOOK_BYTES
    if paid < sum(buffer.nbytes for buffer in buffers):
        return False
    for each in counted:
        each.looks = 0
    return True
