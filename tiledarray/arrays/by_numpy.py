"""What no kernel does, NumPy does: on host copies, its results made arrays of ours again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.arrays.handle import Handle, host_array, wrap
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import is_numeric
from tiledarray.recording import record


def first_handle(values: Any) -> Handle | None:
    """Return an array of ours from nested arguments, if there is one."""
    if isinstance(values, Handle):
        return values
    if isinstance(values, (tuple, list)):
        for value in values:
            found = first_handle(value)
            if found is not None:
                return found
    elif isinstance(values, dict):
        return first_handle(tuple(values.values()))
    return None


def _is_foreign(kind: type) -> bool:
    """Whether NumPy leaves operations to this type: another library's, or an ndarray subclass."""
    if issubclass(kind, (np.ndarray, np.generic)):
        return kind not in (np.ndarray, np.memmap) and not issubclass(kind, np.generic)
    return not issubclass(kind, Handle) and (
        hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")
    )


is_foreign: Callable[[type], bool] = functools.lru_cache(maxsize=1024)(_is_foreign)


def is_subclass(kind: type) -> bool:
    """Whether this is a class of NumPy arrays with behaviour of its own, such as a matrix."""
    return issubclass(kind, np.ndarray) and is_foreign(kind)


def leave(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a ufunc of NumPy's with a foreign operand, whose type says what comes of it.

    A type that does not know arrays of ours gets NumPy's instead.
    """
    if first_handle((args, kwargs)) is None:
        return function(*args, **kwargs)
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if "NotImplemented" not in str(error):
            raise
    return call(function.__name__, function, args, kwargs)


def to_host(values: Any) -> Any:
    """Return nested arguments with NumPy copies in place of arrays of ours."""
    if isinstance(values, Handle):
        return host_array(values).copy()
    if type(values) in (tuple, list):
        return type(values)(to_host(value) for value in values)
    if type(values) is dict:
        return {name: to_host(value) for name, value in values.items()}
    return values


def from_host(values: Any, device: Any) -> Any:
    """Return nested results with arrays of ours in place of NumPy's.

    Subclasses such as masked arrays, and dtypes that no kernel knows, stay NumPy's.
    """
    if type(values) is np.ndarray or isinstance(values, np.generic):
        if not is_numeric(values.dtype):
            return values
        return wrap(record.leaf(device.wrap(np.asarray(values), copy=True)))
    if type(values) in (tuple, list):
        return type(values)(from_host(value, device) for value in values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(from_host(value, device) for value in values))
    return values


class _Copies:
    """Host copies of the arrays of ours among arguments, and whose they are."""

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[Handle, np.ndarray[Any, Any]]] = {}

    def of(self, value: Any) -> Any:
        """Return an argument with host copies; one array is one copy wherever it stands."""
        if isinstance(value, Handle):
            found = self.pairs.get(id(value))
            if found is None:
                found = self.pairs[id(value)] = (value, host_array(value).copy())
            return found[1]
        if first_handle(value) is None:
            return value
        if type(value) in (tuple, list):
            return type(value)(self.of(part) for part in value)
        if type(value) is dict:
            return {name: self.of(part) for name, part in value.items()}
        return value

    def write_back(self) -> None:
        """Store in the arrays what was changed in their copies."""
        for handle, copy in self.pairs.values():
            if not _same_bytes(host_array(handle), copy):
                handle.store(copy)

    def original(self, value: Any) -> Any:
        """Return the array of ours whose copy this is, ``None`` if there is none."""
        for handle, copy in self.pairs.values():
            if value is copy:
                return handle
        return None


def _same_bytes(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.hasobject:
        return left.tobytes() == right.tobytes()
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (left, right))
    return np.array_equal(left, right)


def call(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any = None, *,
    convert: Callable[[Any, Any], Any] = from_host,
) -> Any:
    """Call a NumPy function on host copies; what it changes in them is stored in the arrays.

    Parameters
    ----------
    name : str
        For the count of what NumPy did.
    function : callable
    args, kwargs : tuple, dict
        With arrays of ours, nested ones too.
    convert : callable
        Takes what NumPy returned and a device: that of the first array of ours, else the current.
    """
    record.note_fallback(name)
    kwargs = kwargs or {}
    found = first_handle((args, kwargs))
    device = resolve() if found is None else found.node.device
    copies = _Copies()
    result = function(*copies.of(args), **copies.of(kwargs))
    copies.write_back()
    if type(result) is tuple:
        parts = ((copies.original(part), part) for part in result)
        return tuple(convert(part, device) if ours is None else ours for ours, part in parts)
    ours = copies.original(result)
    return convert(result, device) if ours is None else ours
