"""Functions of NumPy's that move elements, whatever they are: done on the places of the elements.

So arrays with a history keep it: what NumPy makes of the places is read from the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.arrays.handle import Handle, as_node, fitting, follow, part_of, shown, wrap
from tiledarray.arrays.index import places as index_places
from tiledarray.arrays.index import put, take
from tiledarray.arrays.tracing import may_look
from tiledarray.arrays.views import (
    Part,
    Reinterpreted,
    Step,
    is_frozen,
    on_array,
    overlaps,
    refusal,
)
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.indexing import add_at
from tiledarray.recording import record
from tiledarray.recording.join import join_nodes


def any_keeps(*values: Any) -> bool:
    """Whether the history of one of these arrays is wanted."""
    return any(isinstance(x, Handle) and x._array is None and bool(x.node.keeps) for x in values)


def change(function: Callable[..., Any], target: Handle, arguments: Sequence[Any]) -> None:
    """Do what a function does that moves elements of its last argument into its first.

    Parameters
    ----------
    function : callable
        Called with the places of the target's elements, the arguments but the last, and the
        places of that.
    target : TiledArray
    arguments : sequence
    """
    *between, values = arguments
    between = [seen(x) for x in between]
    root = target.origin()
    begin = _whole_elements(target.steps, values.steps) if (
        isinstance(values, Handle) and values.origin() is root) else None
    if begin is None and overlaps(target.steps):
        _change_windows(function, target, (*between, values))
        return
    if begin is not None:
        # What is written may be read again.
        both = follow(root, target.steps[:begin])
        whole = both.node
        shared = np.arange(wrap(whole).size).reshape(whole.shape)
        into = on_array(shared, target.steps[begin:])
        function(into, *between, on_array(shared, values.steps[begin:]))
        if np.may_share_memory(into, shared):  # else a reshape had to copy
            both.store(wrap(_taken(_flat(whole), shared)))
        else:
            target.store(wrap(_taken(_flat(whole), into)))
        return
    flat, places, new = _two(target.node, values)
    function(places, *between, new)
    target.store(wrap(_taken(flat, places)))


def _change_windows(function: Callable[..., Any], target: Handle, arguments: Sequence[Any]) -> None:
    """Do the same where elements of the target are the same one: once in the array that owns it."""
    root, (*between, values) = target.origin(), arguments
    flat, places, new = _two(root.node, values)
    function(_in_windows(places, target), *between, new)
    root.store(wrap(_taken(flat, places)))


def _in_windows(places: np.ndarray[Any, Any], array: Handle) -> Any:
    """Return a view of an array's memory, of which those are the places, as the array is one."""
    if any(isinstance(step, Part | Reinterpreted) for step in array.steps):
        raise LeaveToNumPy("windows of parts of elements")
    if is_frozen(array.steps):
        raise ValueError(refusal("assignment destination is read-only", array.steps))
    found = on_array(places, array.steps)
    if not np.may_share_memory(found, places):
        raise LeaveToNumPy("windows that a reshape has copied")
    return found


def _two(node: Node, values: Any) -> tuple[Node, Any, Any]:
    """Return the elements of an array, and values of its dtype behind them; the places of both."""
    value = record.cast(as_node(values, node.device), node.dtype)
    places = np.arange(wrap(node).size).reshape(node.shape)
    new = places.size + np.arange(wrap(value).size).reshape(value.shape)
    flat = join_nodes([_flat(node), _flat(value)], 0, node.dtype, node.device)
    return flat, places, new


def _whole_elements(one: tuple[Step, ...], other: tuple[Step, ...]) -> int | None:
    """Return after how many steps, the same for both, two views are of the same elements.

    ``None`` if they are of different parts of elements, as a real and an imaginary part are.
    """
    begins = [max((place + 1 for place, step in enumerate(steps)
                   if isinstance(step, Part | Reinterpreted)), default=0) for steps in (one, other)]
    begin = begins[0]
    return begin if begins[1] == begin and one[:begin] == other[:begin] else None


def move(function: Callable[..., Any], array: Handle) -> Any:
    """Return what a function makes of an array that moves elements of it."""
    node = array.node
    places = np.arange(wrap(node).size).reshape(node.shape)
    found = function(places)
    return None if found is None else wrap(_taken(_flat(node), np.asarray(found)))


def merge(function: Callable[..., Any], array: Handle, values: Any) -> Any:
    """Return what a function makes of two arrays, of which it moves elements into a new one.

    It has the dtype of the first.
    """
    flat, places, new = _two(array.node, values)
    return wrap(_taken(flat, function(places, new)))


def rearrange(function: Callable[..., Any], array: Handle) -> None:
    """Do what a function does that moves elements within an array."""
    root = array.origin()
    if overlaps(array.steps):
        places = np.arange(root.size).reshape(root.shape)
        function(_in_windows(places, array))
        root.change(lambda old: record.reshape(_taken(_flat(old), places), old.shape))
        return
    places = np.arange(array.size).reshape(array.shape)
    function(places)
    array.change(lambda old: record.reshape(_taken(_flat(old), places), old.shape))


def seen(value: Any) -> Any:
    """Return places or a mask as NumPy's, or a tuple of them.

    Raises
    ------
    LeaveToNumPy
        If they have no values here.
    """
    if isinstance(value, tuple):
        return tuple(seen(part) for part in value)
    if not isinstance(value, Handle):
        return value
    if not may_look([value]):
        raise LeaveToNumPy("places have no values here")
    return np.array(shown(value))


def _flat(node: Node) -> Node:
    return record.reshape(node, (wrap(node).size,))


def _taken(flat: Node, places: np.ndarray[Any, Any]) -> Node:
    return take(flat, _found((places,), flat))


def _found(key: tuple[Any, ...], node: Node) -> Any:
    return index_places(key, node.shape, lambda array: as_node(array, node.device), np.nonzero)


# ufuncs at places ---------------------------------------------------------------------------------


def at(ufunc: np.ufunc, array: Handle, key: Any, values: Sequence[Any]) -> bool:
    """Record ``ufunc.at``; return whether that was possible."""
    key = key if isinstance(key, tuple) else (key,)
    node = array.node
    op = BY_NAME.get(ufunc.__name__)
    if op is None or ufunc.nout != 1 or len(values) != ufunc.nin - 1:
        return False
    if any(isinstance(x, Handle) and x.dtype.kind not in "biu" for x in key):
        return False
    given = tuple(seen(x) for x in key)
    numbers = np.arange(wrap(node).size).reshape(node.shape)
    if overlaps(array.steps):
        owner = array.origin()
        numbers = _in_windows(np.arange(owner.size).reshape(owner.shape), array)
        array, node = owner, owner.node
    numbers = numbers[given]
    if not isinstance(numbers, np.ndarray):
        numbers = np.asarray(numbers)
    flat = _flat(node)
    found = _found((numbers,), flat)
    value = None
    if values:
        value = as_node(values[0], node.device)
        if not record.broadcastable(value.shape, numbers.shape) or (
                not np.can_cast(value.dtype, node.dtype, "same_kind")):
            return False
        value = record.broadcast_to(record.cast(value, node.dtype), numbers.shape)
    if value is not None and ufunc is np.subtract:
        value = record.unary(BY_NAME["negative"], value)

    def changed(old: Node) -> Node:
        flat = _flat(old)
        if value is not None and ufunc in (np.add, np.subtract):
            inputs = (flat, value, *found.inputs)
            flat = record.library(add_at, inputs, found.template, flat.shape, flat.dtype)
        else:
            for turn in _turns(numbers.reshape(-1)):
                flat = _changed(op, flat, numbers.reshape(-1)[turn], (
                    () if value is None else (_taken(_flat(value), turn),)))
        return fitting(wrap(record.reshape(flat, old.shape)), old.shape, old.dtype, old.device)

    array.change(changed)
    return True


def add_at_unknown(ufunc: np.ufunc, array: Handle, key: Any, values: Sequence[Any]) -> bool:
    """Record ``add.at`` or ``subtract.at`` of places without values; whether that was possible.

    Raises
    ------
    IndexError
        If it is no index of the array.
    """
    node = array.node
    if ufunc not in (np.add, np.subtract) or len(values) != 1 or node.dtype.kind == "b" or (
            overlaps(array.steps)):
        return False
    found = _found(key if isinstance(key, tuple) else (key,), node)
    value = as_node(values[0], node.device)
    if found.fault is not None:
        raise found.fault
    if "at" not in found.template or not record.broadcastable(value.shape, found.shape) or (
            not np.can_cast(value.dtype, node.dtype, "same_kind")):
        return False
    value = record.broadcast_to(record.cast(value, node.dtype), found.shape)
    if ufunc is np.subtract:
        value = record.unary(BY_NAME["negative"], value)
    part_of(array, found.before).change(lambda old: record.library(
        add_at, (old, value, *found.inputs), found.template, old.shape, old.dtype))
    return True


def _turns(numbers: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return which places have their first turn, which their second, and so on."""
    order = np.argsort(numbers, kind="stable")
    among = numbers[order]
    first = np.searchsorted(among, among)
    turn = np.empty_like(order)
    turn[order] = np.arange(numbers.size) - first
    return [np.flatnonzero(turn == k) for k in range(turn.max(initial=-1) + 1)]


def _changed(op: Any, flat: Node, places: np.ndarray[Any, Any], others: Sequence[Node]) -> Node:
    """Return elements with an operation done at places of which none comes twice."""
    found = _found((places,), flat)
    result = record.elementwise(op, take(flat, found), *others)
    return put(flat, found, record.cast(result, flat.dtype))
