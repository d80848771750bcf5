"""Where the work on arrays is done that nobody put anywhere: on the host, or on the GPU.

They are born on the host.  A stretch of work goes to the GPU where that takes less time, bringing
its inputs there included; what it computes stays there until the host looks at it.  A value may
have a copy on each side (`Buffer.elsewhere`); what is written keeps one.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tiledarray import config, core
from tiledarray.block import Block
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
CALL_SECONDS = 1e-4  # the same of a library call, which is several of CuPy's
USES = 4  # what is brought to the GPU is used so often there, or more
LIBRARY_SECONDS = 5e-9  # of NumPy for an element of a library call's operands, such as an FFT's
SORT_SECONDS = 4e-8  # for an element whose place in an order is looked for
CACHED_BYTES = 1 << 22  # of arrays that stay in the host's caches ...
CACHED = 0.4  # ... and of the time that others take: a plan for them writes fewer, too
PLACE_SECONDS = 2e-9  # for an element that is read, or written, where an index says
PRODUCT_SECONDS = 1e-10  # for an element and a step along the last axis: products, solving
LOOK_BYTES = 1 << 18  # a look by way of the GPU takes as long as bringing so many bytes home
MANY = 64  # looks that a crowd of small operations is counted as

_products = frozenset((
    "matmul", "dot", "einsum", "tensordot", "solve", "inv", "cholesky", "qr", "svd", "eigh", "eig",
    "lstsq", "det", "pinv", "convolve", "correlate",
))
_orders = frozenset(("argsort", "argpartition", "lexsort"))
_at_places = frozenset(("take", "put", "add_at"))


@dataclass(slots=True)
class _Choice:
    """Where a trace is computed.

    Attributes
    ----------
    saves : float
        Seconds of a run that the GPU saves; negative where the host is quicker.
    few : bool
        Whether that is done for a few elements.
    """

    saves: float
    few: bool


_choices: OrderedDict[Any, _Choice] = OrderedDict()
_lost: OrderedDict[Any, float] = OrderedDict()  # seconds, of runs on the host, by trace


class _Wanted(threading.local):
    """What this thread evaluates in order to look at all of it on the host."""

    nodes: Collection[Node] = ()


_wanted = _Wanted()


class wanted_here(Block):  # noqa: N801  used as a function
    """Have it count inside the ``with`` block that these values will be brought home."""

    def __init__(self, nodes: Collection[Node]) -> None:
        self._nodes, self._before = nodes, _wanted.nodes

    def begin(self) -> None:
        """Have it count."""
        _wanted.nodes = self._nodes

    def end(self) -> None:
        """Have it count no more."""
        _wanted.nodes = self._before


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
    key = _, far, wanted = _key(traced)
    choice = _choices.get(key)
    if choice is None:
        # Where the inputs lie on the GPU, bringing them home is the host's way to do it.
        back = sum(nbytes(nodes[k]) for k in far) / LINK_BYTES_PER_SECOND
        over = sum(nbytes(nodes[k]) for k in traced.leaves if k not in far)
        choice = _choices[key] = _Choice(
            host_seconds(nodes, targets, threads) + back
            - _gpu_seconds(nodes) - over / LINK_BYTES_PER_SECOND / USES
            - sum(nbytes(nodes[k]) for k in wanted) / LINK_BYTES_PER_SECOND,
            all(_elements(node) <= core.small() for node in nodes if node.buffer is None))
        while len(_choices) > REMEMBERED:
            _choices.popitem(last=False)
    if choice.saves <= 0 or (choice.few and not far):
        return Device("cpu")
    if wanted and not far and choice.saves < config.first_seconds:
        return Device("cpu")  # what follows is done here, and comes from here the next time
    new, lost = _lost_so_far(traced.key, choice.saves)
    # What lies on the GPU already would come home for every run on the host, and go there again.
    soon = again or (far and (not new or config.compile == "wait"))
    if lost < config.first_seconds and not soon:
        return Device("cpu")
    if far and choice.few and not again and _paid(
            [nodes[k].buffer for k in far], MANY if crowd else 1):
        return Device("cpu")
    return accelerator()


def is_settled(traced: Trace, place: Device) -> bool:
    """Whether the same is computed at this place whenever it comes again.

    That is so while all leaves are on the same side, and on the GPU nobody asks on the host for
    what is computed.
    """
    key = _, far, wanted = _key(traced)
    choice = _choices.get(key)
    if choice is None:
        return False
    if not place.on_host:
        return 0 < len(far) == len(traced.leaves) and not wanted and not choice.few
    asked = sum(nbytes(traced.nodes[k]) for k in wanted) / LINK_BYTES_PER_SECOND
    return not far and (choice.few or choice.saves + asked <= 0)


def _key(traced: Trace) -> tuple[Any, tuple[int, ...], frozenset[int]]:
    """What it depends on where a trace is computed.

    That is its leaves that are on the GPU alone, and what the host asks for.
    """
    nodes = traced.nodes
    return (traced.key,
            tuple([k for k in traced.leaves if not _has_copy_at_home(nodes[k].buffer)]),
            frozenset([k for k in traced.outputs if nodes[k] in _wanted.nodes]))


def _lost_so_far(key: Any, saves: float) -> tuple[bool, float]:
    """Count what a run on the host loses; whether it is the first, and what all of them lose.

    To plan for the GPU and to compile takes as long, and what was met a few times may not come
    again.
    """
    before = _lost.pop(key, None)
    lost = _lost[key] = (before or 0.0) + saves
    while len(_lost) > REMEMBERED:
        _lost.popitem(last=False)
    return before is None, lost


def _elements(node: Node) -> int:
    """How many elements are computed: of an update those that it writes, of a constant none."""
    if isinstance(node.op, Source):
        return 0
    return math.prod(node.attrs[2] if isinstance(node.op, Update) else node.shape)


def _gpu_seconds(nodes: Iterable[Node]) -> float:
    """Return roughly the seconds beside the work itself that the pending nodes take on the GPU."""
    calls = sum(node.buffer is None and isinstance(node.op, Library) for node in nodes)
    return GPU_SECONDS + calls * CALL_SECONDS


def host_seconds(nodes: Iterable[Node], targets: list[Node], threads: int) -> float:
    """Return roughly the seconds that the pending ones of the nodes take on the host."""
    pending = [node for node in nodes if node.buffer is None and node.op is not placeholder]
    seconds, largest = cost(parts_of(pending, targets), threads)
    if largest <= CACHED_BYTES:
        seconds *= CACHED
    return seconds + sum(_of_library(node) for node in pending
                         if isinstance(node.op, Library | Scan))


def _of_library(node: Node) -> float:
    inputs = operands(node)
    if node.op.name in _at_places:
        places = math.prod(node.shape if node.op.name == "take" else inputs[1].shape)
        return places * PLACE_SECONDS
    elements = sum(math.prod(x.shape) for x in inputs) + math.prod(node.shape)
    if node.op.name not in _products:
        return elements * (SORT_SECONDS if node.op.name in _orders else LIBRARY_SECONDS)
    if node.op.name in ("matmul", "dot"):
        steps = math.prod(node.shape) * inputs[0].shape[-1]
    else:
        steps = elements * max((x.shape[-1] for x in inputs if x.shape), default=1)
    seconds = elements * 8 / BYTES_PER_SECOND
    return steps * PRODUCT_SECONDS + seconds * (CACHED if elements * 8 <= CACHED_BYTES else 1)


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
