"""NumPy's writers at places that have no values here, as operations that have derivatives.

In a traced function a mask or an index has no value, so NumPy cannot be asked where it writes.
Which element gets which value is recorded instead.  Where that cannot be said the call is NumPy's,
which has no derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api import ufuncs
from tiledarray.api.arguments import handle_of, is_ours, normalize_axis_index, refuse
from tiledarray.api.progressions import arange
from tiledarray.arrays.handle import fitting, part_of, wrap
from tiledarray.arrays.reducing import cumsum
from tiledarray.arrays.views import Reshaped
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record

_U = ufuncs.BY_NAME
_WHERE = BY_NAME["where"]


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write at places of the flattened array."""
    refuse(mode != "raise", "mode= is given")
    places = handle_of(ind, a.device).reshape(-1)
    refuse(places.dtype.kind not in "iu", "places that are no integers")
    values = _flat(v, a, "unsafe")
    if values.size and places.size:
        _line(a)[places] = _repeated(values, places.size)


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write one value after the other where a mask is true."""
    refuse(is_ours(vals) and vals.origin() is arr.origin(), "NumPy reads what it has written")
    values, holds = _flat(vals, arr, "safe"), _mask(mask, arr)
    if values.size == 1:
        values = values.reshape(())
    else:
        turn = cumsum(holds.reshape(-1), dtype=np.intp) - 1
        values = values[turn % values.size].reshape(arr.shape)
    write_where(arr, holds, values)


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Write where a mask is true what stands at the same place of the values."""
    flat = _flat(values, a, "safe")
    write_where(a, _mask(mask, a), _repeated(flat, a.size).reshape(a.shape))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """Write at places along an axis."""
    places = handle_of(indices, arr.device)
    refuse(places.dtype.kind not in "iu", "places that are no integers")
    if axis is None:
        refuse(places.ndim != 1 or np.size(values) not in (1, places.size), "other shapes")
        _line(arr)[places] = _flat(values, arr, "unsafe")
        return
    refuse(arr.ndim != places.ndim, "other shapes")
    axis = normalize_axis_index(axis, arr.ndim)
    key = [arange(size).reshape((1,) * k + (size,) + (1,) * (arr.ndim - k - 1))
           for k, size in enumerate(arr.shape)]
    key[axis] = places
    arr[tuple(key)] = values


def _line(array: Any) -> Any:
    return part_of(array, Reshaped((array.size,)))


def _flat(values: Any, target: Any, casting: Any) -> Any:
    """Return values in a line; NumPy says what may be written into the target."""
    found = handle_of(values, target.device)
    refuse(not found.size, "no values")
    refuse(hasattr(values, "dtype") and not np.can_cast(found.dtype, target.dtype, casting),
           "values of another dtype")
    return wrap(found.node).reshape(-1).astype(target.dtype, copy=False)


def _repeated(values: Any, count: int) -> Any:
    """Return so many values, from the first on again and again."""
    return values if values.size == count else values[np.arange(count) % values.size]


def _mask(mask: Any, target: Any) -> Any:
    holds = handle_of(mask, target.device)
    refuse(holds.size != target.size, "a mask of another size")
    return holds.reshape(target.shape).astype(bool, copy=False)


def write_where(target: Any, holds: Any, values: Any) -> None:
    """Write the values where a mask is true; all are arrays of ours."""
    target.change(lambda old: fitting(
        wrap(record.elementwise(_WHERE, holds.node, values.node, old)),
        old.shape, old.dtype, old.device))
