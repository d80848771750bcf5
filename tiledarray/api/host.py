"""Calling NumPy on host copies: what it returns becomes ours, what it changes is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray import fallback, record
from tiledarray.handle import Handle, host_array, wrap
from tiledarray.runtime.device import resolve
from tiledarray.signatures import is_numeric


def wrapped(values: Any, device: Any) -> Any:
    """Return NumPy arrays among results as arrays of ours; fresh ones are not copied."""
    if type(values) is np.ndarray:
        if not is_numeric(values.dtype):
            return values
        fresh = values.base is None and values.flags.c_contiguous and values.flags.writeable
        return wrap(record.leaf(device.wrap(values, copy=not fresh)))
    if type(values) in (tuple, list):
        return type(values)(wrapped(part, device) for part in values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(wrapped(part, device) for part in values))
    return values


class _Copies:
    """Host copies of the arrays of ours among arguments, and what they were."""

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[Handle, np.ndarray[Any, Any]]] = {}

    def of(self, value: Any) -> Any:
        """Return an argument with host copies; one array is one copy wherever it stands."""
        if isinstance(value, Handle):
            found = self.pairs.get(id(value))
            if found is None:
                found = self.pairs[id(value)] = (value, host_array(value).copy())
            return found[1]
        if type(value) in (tuple, list):
            return type(value)(self.of(part) for part in value)
        if type(value) is dict:
            return {name: self.of(part) for name, part in value.items()}
        return value

    def write_back(self) -> None:
        """Store in the arrays what was changed in their copies."""
        for handle, copy in self.pairs.values():
            before = host_array(handle)
            same = before.shape == copy.shape and before.tobytes() == copy.tobytes()
            if not same:
                handle.store(copy)

    def original(self, value: Any) -> Any:
        """Return the array of ours whose copy this is, or the value."""
        for handle, copy in self.pairs.values():
            if value is copy:
                return handle
        return value


def written_back(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call NumPy's function on host copies; what it changes in them is stored in the arrays."""
    record.note_fallback(name)
    found = fallback.first_handle((args, kwargs))
    device = resolve() if found is None else found.node.device
    copies = _Copies()
    result = function(*copies.of(args), **copies.of(kwargs))
    copies.write_back()
    ours = copies.original(result)
    return ours if ours is not result else wrapped(result, device)
