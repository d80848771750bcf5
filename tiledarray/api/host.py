"""Calling NumPy on host copies: what it returns becomes ours, what it changes is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy
from tiledarray.arrays.handle import wrap
from tiledarray.graph.dtypes import is_numeric
from tiledarray.recording import record


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


def written_back(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call NumPy's function on host copies; what it changes in them is stored in the arrays."""
    return by_numpy.call(name, function, args, kwargs, convert=wrapped)
