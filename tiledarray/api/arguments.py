"""What the functions of the namespace do with their arguments."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.lib import array_utils
from numpy.lib.array_utils import normalize_axis_index

from tiledarray.api.registry import Function
from tiledarray.arrays import by_numpy
from tiledarray.arrays.handle import SCALARS, Handle, as_node, host_array, wrap
from tiledarray.devices.device import resolve
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import Shape, is_numeric
from tiledarray.graph.node import Node
from tiledarray.recording.join import stack_nodes

if TYPE_CHECKING:
    TiledArray = Any  # its operators come from a table, which a type checker cannot read
else:
    from tiledarray.arrays.tiledarray import TiledArray

__all__ = [
    "TiledArray", "arrays_of", "check_with_numpy", "common_dtype", "default_device",
    "device_of", "give", "give_alike", "handle_of", "host", "is_numeric", "is_ours",
    "normalize_axis_index", "normalize_axis_tuple", "refuse", "stand_in",
]


def default_device() -> Any:
    """Return the device on which new arrays are made."""
    return resolve()


def device_of(*values: Any) -> Any:
    """Return the device of the first array of ours among nested arguments, or the default."""
    found: Any = by_numpy.first_handle(values)
    return default_device() if found is None else found.device


def is_ours(value: Any) -> TypeGuard[TiledArray]:
    """Whether the value is an array of ours."""
    return isinstance(value, Handle)


def handle_of(value: Any, device: Any = None) -> TiledArray:
    """Return an argument as an array of ours.

    A list that holds arrays of ours is stacked without looking at them.

    Raises
    ------
    LeaveToNumPy
        If no kernel computes with its dtype.
    """
    if isinstance(value, Handle):
        dtype = value.dtype  # what is settled has it without a node
        if not is_numeric(dtype):
            raise LeaveToNumPy(f"no kernel for dtype {dtype}")
        return value
    if device is None:
        device = device_of(value)
    return wrap(node_of(value, device))


def node_of(value: Any, device: Any) -> Node:
    """Return an argument as a node; lists of arrays of ours are stacked.

    Raises
    ------
    LeaveToNumPy
        If it is an array of another library, or of a dtype that no kernel computes with.
    """
    if isinstance(value, (list, tuple)) and by_numpy.first_handle(value) is not None:
        numbers = _numbers(value)
        if numbers is not None:
            return as_node(np.array(numbers), device)
        parts = [node_of(part, device) for part in value]
        return stack_nodes(parts, 0, common_dtype(parts), device)
    if by_numpy.is_foreign(type(value)):
        raise LeaveToNumPy("an array of another library")
    return as_node(value, device)


def _numbers(values: Iterable[Any]) -> list[Any] | None:
    """Return numbers with NumPy's in place of settled ones of ours; ``None`` of other values."""
    found = []
    for value in values:
        number = value
        if isinstance(value, Handle):
            number = value._array
            if number is None or np.ndim(number):
                return None
        elif type(value) not in SCALARS:
            return None
        found.append(number)
    return found


def arrays_of(*values: Any) -> list[TiledArray]:
    """Return several arguments as arrays of ours on one device."""
    device = device_of(*values)
    return [handle_of(value, device) for value in values]


def common_dtype(arrays: Iterable[Any]) -> np.dtype[Any]:
    """Return the dtype to which arrays (or nodes) are promoted."""
    return np.result_type(*{array.dtype for array in arrays})


def host(value: Any) -> Any:
    """Return an argument with NumPy arrays in place of arrays of ours: their values are needed."""
    if isinstance(value, Handle):
        return host_array(value)
    if by_numpy.first_handle(value) is not None:
        return by_numpy.to_host(value)
    return value


def normalize_axis_tuple(axis: Any, *args: Any, **kwargs: Any) -> tuple[int, ...]:
    """Return axes as NumPy's function of this name does.

    That takes what is no integer for a sequence, and so an array that has no value.
    """
    if isinstance(axis, Handle):
        axis = [*map(operator.index, axis)] if axis.shape else operator.index(axis)
    found: tuple[int, ...] = array_utils.normalize_axis_tuple(axis, *args, **kwargs)
    return found


def refuse(condition: Any, reason: str) -> None:
    """Leave the call to NumPy, for this reason, if the condition holds.

    Raises
    ------
    LeaveToNumPy
        With the reason.
    """
    if condition:
        raise LeaveToNumPy(reason)


def stand_in(value: Any) -> Any:
    """Return an array of the same shape and dtype that takes no memory, for asking NumPy."""
    if is_ours(value):
        return np.broadcast_to(np.zeros((), value.dtype), value.shape)
    return value


def check_with_numpy(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call NumPy with stand-ins, so that a bad argument raises NumPy's own error."""
    return function(*(stand_in(value) for value in args), **kwargs)


def give(result: TiledArray, out: Any) -> TiledArray:
    """Store a result in ``out`` where one is given, and return what the caller gets.

    Raises
    ------
    ValueError
        If the output has another shape.
    TypeError
        If the result may not be cast to its dtype.
    LeaveToNumPy
        If the output is no array.
    """
    if out is None:
        return result
    if isinstance(out, tuple):
        (out,) = out
    refuse(not isinstance(out, (Handle, np.ndarray)), "out= is no array")
    if out.shape != result.shape:
        raise ValueError(
            f"output array has the wrong shape: expected {result.shape}, got {out.shape}"
        )
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast array data from {result.dtype!r} to {out.dtype!r} according to the "
            "rule 'same_kind'"
        )
    if isinstance(out, Handle):
        out.store(result)
    else:
        np.copyto(out, host_array(result), casting="same_kind")
    return out


def give_alike(result: TiledArray, out: Any) -> TiledArray:
    """Store a result in ``out`` as `give` does; it must have the result's dtype and shape.

    Raises
    ------
    LeaveToNumPy
        If it has not: NumPy says what is wrong.
    """
    if out is not None:
        kind = getattr(out, "dtype", None), getattr(out, "shape", None)
        refuse(kind != (result.dtype, result.shape), "out= of another dtype or shape")
    return give(result, out)


def shape_of(value: Any) -> Shape:
    """Return a shape argument (an int or a sequence of them) as a tuple of non-negative ints."""
    if type(value) is tuple and all(type(size) is int and size >= 0 for size in value):
        return value
    if type(value) is int and value >= 0:
        return (value,)
    if isinstance(value, Handle):
        value = host_array(value)
    elif isinstance(value, (tuple, list)):
        value = [int(size) if is_ours(size) else size for size in value]
    # NumPy checks it, in its own words, where no memory is taken.
    return np.broadcast_shapes(np.empty(value, np.dtype([])).shape)
