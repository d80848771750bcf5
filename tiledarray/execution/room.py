"""What nobody has asked for, and there is hardly room for, is left pending."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tiledarray.config import memory_bytes
from tiledarray.devices.device import Device
from tiledarray.fork import importing
from tiledarray.graph.node import Node
from tiledarray.graph.program import trace

PART = 8  # of all memory: of arrays smaller than that there may be several


def left_pending(targets: Sequence[Node], asked: Collection[Node] = ()) -> list[Node]:
    """Return those of the targets that the others need only block by block.

    A look evaluates whatever has a name, for it may be looked at next.  But the scores of
    attention over 65,536 rows would take 17 GB; if they are not what was asked for, they are not
    stored, and computed again should anyone look at them.
    """
    large = [node for node in targets if _nbytes(node) >= _memory(node.device) // PART
             and node not in asked]
    if not large:
        return []
    left = {*large}
    others = [node for node in targets if node not in left]
    traced = trace(others)
    here = [node for node in traced.nodes if node in left]
    if not here:
        return []
    with importing:  # the planner comes along
        from tiledarray.execution.plans import target_of
        from tiledarray.fusion.loops import in_blocks
    looped = in_blocks(traced.signature, target_of(_place(here[0].device)))
    stored = {*looped.numbers}
    return [node for number, node in enumerate(traced.nodes)
            if node in left and number not in stored]


def _place(device: Device) -> Device:
    return Device("cpu") if device.kind == "auto" else device


def _nbytes(node: Node) -> int:
    return math.prod(node.shape) * node.dtype.itemsize


def _memory(device: Device) -> int:
    return memory_bytes() if device.kind != "cuda" else int(device.properties.memory_bytes)
