"""Operands on different devices: what nobody put anywhere follows what was put on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.graph.program import below
from tiledarray.ops.movement import placeholder
from tiledarray.recording.history import check_kept


class Apart(ValueError):
    """Arrays are on different devices."""

    def __init__(self, device: Any, other: Any) -> None:
        super().__init__(
            f"arrays are on different devices, {device} and {other}; "
            f"bring them together with x.to({str(device)!r})"
        )


def together(operands: Sequence[Any]) -> list[Any]:
    """Return the operands on the one device that some were put on; scalars stay as they are.

    Raises
    ------
    Apart
        Some were put on different devices.
    """
    devices = dict.fromkeys(x.device for x in operands if type(x) is Node)
    placed = [device for device in devices if device.kind != "auto"]
    if len(placed) > 1:
        raise Apart(*placed[:2])
    device = placed[0]
    return [brought(x, device) if type(x) is Node else x for x in operands]


def brought(node: Node, device: Any) -> Node:
    """Return a value as one on another device, where one of the two is ``Device("auto")``.

    What is pending is recorded once more; a value that is there is copied, if it has to be.

    Raises
    ------
    Apart
        Neither is, or the value is an argument of a traced function.
    """
    if node.device is device:
        return node
    if "auto" not in (node.device.kind, device.kind):
        raise Apart(device, node.device)
    made: dict[Node, Node] = {}
    for each in below([node]):
        if each.op is placeholder:
            raise Apart(device, each.device)
        check_kept(each, "taking it to another device")
        kind = kind_of(each.shape, each.dtype, device)
        form = form_of(each.op, each.attrs, kind, each.form.arity)
        inputs = tuple([made[x] if type(x) is Node else x for x in each.inputs])
        made[each] = Node(form, inputs, each.site, _held(each.buffer, device))
    return made[node]


def _held(buffer: Any, device: Any) -> Any:
    """Return a hold of one more value on what a buffer has, on a device."""
    if buffer is None:
        return None
    if type(buffer) is tuple:
        return tuple([_held(part, device) for part in buffer])
    return (buffer if device.kind == "auto" else buffer.on(device)).another()
