"""Between the two states of a handle: what the core asks when a settled value is recorded, or back.

A handle is settled while its value is a NumPy array on the host that nobody else has; see
`tiledarray.core`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.arrays import index, views
from tiledarray.arrays.handle import Handle, same_bytes, same_elements, shown, wrap
from tiledarray.devices.device import home
from tiledarray.devices.storage import HostValue, memory_of
from tiledarray.errors import raised_outside
from tiledarray.execution import placement
from tiledarray.graph.node import Node, form_of, kind_of
from tiledarray.ops.movement import AN_ARRAY, empty, full
from tiledarray.ops.movement import leaf as leaf_op
from tiledarray.ops.op import Source
from tiledarray.recording import at_once, record, stretch

# What kernels and NumPy's own arrays both have.
_DTYPES = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
MOST_FILLED = 1 << 20  # elements of a constant that is made when something is written into it


def leaf(array: Any, small: bool) -> Node:
    """Return the node of a settled value: of a copy if it is small, else over the same memory."""
    device = home()
    if type(array) is np.ndarray and not array.ndim:
        # An array, where a scalar of NumPy's would be one of ours too.
        return record.full((), array.item(), array.dtype, device)
    if not small:
        return record.leaf(device.wrap(array, copy=False, given=True))
    if type(array) is np.ndarray:
        array = array.copy()
    else:
        array = np.asarray(array)
    form = form_of(leaf_op, None, kind_of(array.shape, array.dtype, device), 0)
    return Node(form, (), None, HostValue(array, device))


def copied(array: np.ndarray[Any, Any], before: Node | None, kept: Node | None) -> Node:
    """Return a node of a copy of memory that others may write: the one before, if that is equal.

    It tells how the value was computed, if there is a node ``kept`` that does.
    """
    if before is not None and same_bytes(_array_of(before), array):
        return before
    if not array.ndim:
        return record.full((), array.item(), array.dtype, home())
    buffer = home().wrap(array, copy=True)
    buffer.plan = None if kept is None else kept.buffer.plan
    return record.leaf(buffer)


def _array_of(node: Node) -> np.ndarray[Any, Any]:
    """Return the value of a node that `copied` has made."""
    if node.buffer is None:
        return np.asarray(node.inputs[0], node.dtype)
    array: np.ndarray[Any, Any] = node.buffer.array
    return array


def give(array: np.ndarray[Any, Any], node: Node, before: Node | None) -> bool:
    """Write the value of a node into memory that others have, too.

    Where it was made of what was there ``before``, what others have written meanwhile stays.
    ``False`` if it cannot be there: it has a history, or another form, as after `resize`.
    """
    kind = node.form.kind
    if node.keeps or not (kind.shape == array.shape and kind.dtype == array.dtype
                          and kind.device is home() and array.flags.writeable):
        return False
    value = shown(wrap(node))
    changed = True if before is None else ~same_elements(value, _array_of(before))
    np.copyto(array, value, where=changed)
    return True


def value(node: Node) -> Any:
    """Return the array of a node that has its value on the host; ``None`` of another node."""
    buffer = node.buffer if node.buffer is not None else at_once.constant(node)
    array = getattr(buffer, "array", None)
    if type(array) is not np.ndarray or array.dtype not in _DTYPES:
        return None
    if node.form.kind.device is not home() or not buffer.device.on_host:
        return None
    is_array = array.ndim or node.op is full or node.attrs is AN_ARRAY
    return array if is_array else array[()]


def made(node: Node) -> Any:
    """Return a constant that has not been computed as a new array; ``None`` of another node.

    One with which a history begins is a value like any other.
    """
    form = node.form
    if node.buffer is not None or node.keeps or type(form.op) is not Source or (
            form.kind.dtype not in _DTYPES or form.kind.device is not home()
            or not form.kind.shape):
        return None
    if form.op is full and repr(node.inputs[0]) in ("0", "0.0", "False", "0j"):
        return np.zeros(node.shape, node.dtype)  # the system does it, when it is touched
    if form.op is empty or form.kind.size > MOST_FILLED:
        return None
    return at_once.made(node)


def look(handle: Handle) -> None:
    """Compute what is recorded, and have it on the host if nobody put it elsewhere."""
    node = handle.origin()._recorded
    if node is None:
        return
    if node.buffer is None:
        stretch.look_here(node)
    if node.device.kind == "auto":
        placement.bring_home(node)


def steps_of(parent: Handle, how: Any, by_index: int) -> tuple[Any, ...]:
    """Return the steps to a view from its base, by what it was taken of and how."""
    if by_index:
        key = how if type(how) is tuple else (how,)
        step = index.step_of(key, parent.shape)
        assert step is not None, "the core takes basic indices alone"
        return views.extend(parent.steps, step)
    function, arguments, options, number = how
    found = function(parent, *arguments, **(options or {}))
    if number is not None:
        found = found[number]
    assert found.origin() is parent.origin(), "what is a view to NumPy is one here"
    steps: tuple[Any, ...] = found.steps
    return steps


def view_on(array: Any, steps: tuple[Any, ...]) -> Any:
    """Return the view of a base's settled value; ``None`` if it takes a copy to make it."""
    if type(array) is not np.ndarray:
        return None
    found = views.on_array(array, steps)
    if found is not array and found.size and memory_of(found) != memory_of(array):
        return None
    if views.is_frozen(steps):
        found = found.view()
        found.flags.writeable = False
    return found


def hold_of(node: Node) -> Node:
    """Return another node of the same value, with a hold of its own on the memory."""
    return Node(node.form, (), None, node.buffer.another())


def alone(node: Node) -> bool:
    """Whether nobody but the node looks at the memory, so that it may be written in place."""
    found: bool = node.buffer.alone()
    return found


CALLBACKS = {
    "leaf": leaf, "value": value, "made": made, "look": look, "steps_of": steps_of,
    "view_on": view_on, "hold_of": hold_of, "alone": alone, "is_outside": raised_outside,
    "copied": copied, "give": give,
}
