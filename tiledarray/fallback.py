"""What no kernel does, NumPy does: on host copies, its results made arrays of ours again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray import record
from tiledarray.handle import Handle, host_array, wrap
from tiledarray.runtime.device import resolve
from tiledarray.signatures import is_numeric


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
    """Return nested results with arrays of ours in place of NumPy's."""
    if isinstance(values, (np.ndarray, np.generic)):
        if type(values) is not np.ndarray and not isinstance(values, np.generic):
            return values  # a subclass such as a masked array is no array of ours
        array = np.asarray(values)
        if not is_numeric(array.dtype):
            if array.ndim == 0:
                return values
            device = resolve("cpu")
        return wrap(record.leaf(device.wrap(array, copy=True)))
    if type(values) in (tuple, list):
        return type(values)(from_host(value, device) for value in values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(from_host(value, device) for value in values))
    return values


def call(name: str, function: Callable[..., Any], args: Any, kwargs: Any = None) -> Any:
    """Call a NumPy function on host copies of the arguments."""
    kwargs = kwargs or {}
    record.note_fallback(name)
    out = kwargs.get("out")
    found = first_handle((args, kwargs))
    device = resolve("cpu") if found is None else found.node.device
    results = function(*to_host(args), **to_host(kwargs))
    if out is None or out == (None,):
        return from_host(results, device)
    return _into(out, results)


def _into(out: Any, results: Any) -> Any:
    """Store results that NumPy wrote into copies of ``out``, and return ``out``."""
    targets = out if isinstance(out, tuple) else (out,)
    parts = results if isinstance(results, tuple) else (results,)
    for target, part in zip(targets, parts, strict=True):
        if isinstance(target, Handle):
            target.store(np.asarray(part))
    return targets[0] if len(targets) == 1 else targets
