"""Methods of `TiledArray` that copy, convert or change the elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.arrays import by_numpy, selections
from tiledarray.arrays.handle import (
    Handle,
    array_of,
    as_dtype,
    converted,
    host_array,
    stands_for_scalar,
    wrap,
)
from tiledarray.arrays.shaping import lengths_of, place_of
from tiledarray.arrays.views import is_frozen
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import is_numeric
from tiledarray.graph.node import Node
from tiledarray.ops import indexing as library
from tiledarray.ops.selection import CLIP
from tiledarray.recording import record


def as_function(name: str) -> Callable[..., Any]:
    """Make the method that does what NumPy's function of the same name does."""
    function = getattr(np, name)

    def method(self: Handle, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


def choose(self: Handle, *choices: Any, **kwargs: Any) -> Any:
    """Return what the elements choose of an array's items, or of several arguments."""
    if not choices:
        np.ndarray.choose(np.zeros(1, int), **kwargs)  # raises
    function: Any = np.choose
    return function(self, choices[0] if len(choices) == 1 else choices, **kwargs)


def copy(self: Any, order: str = "C") -> Any:
    """Return an array of its own with the same value; of a scalar, a scalar."""
    return _alike(self, self.node)

def deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    """Return an array of its own: the elements are no objects."""
    return _alike(self, self.node)


def _alike(array: Handle, node: Node) -> Any:
    """Return a scalar made of a scalar, else an array."""
    return wrap(node) if stands_for_scalar(array) else array_of(node)


def astype(
    self: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
    copy: bool = True, device: Any = None,
) -> Any:
    """Return the array with another dtype; itself if ``copy=False`` and nothing changes.

    Raises
    ------
    TypeError
        If ``casting`` does not allow it.
    """
    wanted = as_dtype(dtype)
    if copy and device is None and (chosen := selections.selection(self)) is not None:
        full = astype(wrap(chosen.full), wanted, order, casting)
        return selections.deferred(full.node, chosen.mask)
    node = self.node
    if device is not None:
        return self.to(device).astype(wanted, casting=casting)
    if not np.can_cast(node.dtype, wanted, casting):
        raise TypeError(
            f"Cannot cast array data from {node.dtype!r} to {wanted!r} according to the rule "
            f"'{casting}'"
        )
    if node.dtype == wanted:
        return _alike(self, node) if copy else self
    if not (is_numeric(node.dtype) and is_numeric(wanted)):
        return by_numpy.call("astype", np.ndarray.astype, (self, wanted))
    return _alike(self, converted(node, wanted))


def fill(self: Any, value: Any) -> None:
    """Write one value everywhere.

    Raises
    ------
    ValueError
        If it is an array with axes.
    TypeError, OverflowError
        If it is no number of the dtype.
    """
    if not isinstance(value, Handle):
        sample = np.zeros((), self.dtype)
        sample.fill(value)  # NumPy says whether it may be
        value = sample
    elif value.node.shape:
        raise ValueError("setting an array element with a sequence.")
    self[...] = value


def sort(
    self: Any, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> None:
    """Sort along an axis, in place.

    Raises
    ------
    numpy.exceptions.AxisError
        If there is no such axis.
    ValueError
        If the array is read-only, or has no fields to order by; if there is no such kind.
    """
    np.empty(0).sort(kind=kind, order=order, stable=stable)  # raises what does not depend on data
    place = place_of(axis, self.ndim)
    if is_frozen(self.steps):
        raise ValueError("sort array is read-only")
    kind = "stable" if stable else kind
    node = self.node
    self.assign(
        record.library(library.sort, (node,), (place, kind), node.shape, node.dtype)
    )


def argsort(
    self: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """Return the places that sort along an axis."""
    return np.argsort(self, axis, kind, order, stable=stable)


def partition(
    self: Any, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None
) -> None:
    """Put the element that would be in place ``kth`` there, smaller ones before; in place.

    Raises
    ------
    ValueError
        If the array is read-only, or has no such place.
    """
    parted = np.partition(self, kth, axis, kind, order)
    if is_frozen(self.steps):
        raise ValueError("partition array is read-only")
    self.store(parted)


def conj(self: Any) -> Any:
    """Return the complex conjugate."""
    if self.dtype.kind != "c":
        return self
    return np.conjugate(self)

def limits_of(dtype: np.dtype[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Return limits, those left out that are ints which no value of the dtype is beyond."""
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        if type(low) is int and low <= ends.min:
            low = None
        if type(high) is int and high >= ends.max:
            high = None
    return low, high


def clip(self: Any, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
    """Return the values limited to an interval."""
    low, high = limits_of(self.dtype, min, max)
    if low is None and high is None:
        return np.positive(self, out=out, **options)
    if high is None:
        return np.maximum(self, low, out=out, **options)
    if low is None:
        return np.minimum(self, high, out=out, **options)
    if out is None and self.dtype.kind == "V":  # ml_dtypes' own floats have no such loop
        return np.minimum(np.maximum(self, low, **options), high, **options)
    return CLIP(self, low, high, out=out, **options)


def compress(self: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """See `numpy.compress`."""
    return np.compress(condition, self, axis, out)


def dot(self: Any, other: Any, out: Any = None) -> Any:
    """See `numpy.dot`."""
    return np.dot(self, other) if out is None else np.dot(self, other, out=out)


def resize(self: Any, *shape: Any, refcheck: bool = True) -> None:
    """Change shape and size in place; new elements are zero.

    Raises
    ------
    ValueError
        If the array is a view, or has views, and is to have another size.
    """
    if shape in ((), (None,)):
        return
    wanted = lengths_of(shape)
    if min(wanted, default=0) < 0:
        raise ValueError("negative dimensions not allowed")
    if self._base is not None and not (self.flags.c_contiguous or self.flags.f_contiguous):
        raise ValueError("resize only works on single-segment arrays")
    if math.prod(wanted) == self.size:
        self.shape = wanted  # its views stay where they are
        return
    if self.base is not None:
        raise ValueError("cannot resize this array: it does not own its data")
    if refcheck and self._base is None and (self._viewed or core.is_lent(self)):
        raise ValueError(
            "cannot resize an array that references or is referenced\n"
            "by another object in this way.\n"
            "Use the np.resize function to get a new resized copy or\n"
            " set refcheck=False to disable this check"
        )
    array = np.resize(host_array(self).ravel(), wanted)
    array.ravel()[self.size:] = 0
    node = record.leaf(self.device.wrap(array, copy=True))
    if self._base is not None:  # another shape was assigned (`become_view`)
        self._base, self._steps, self._seen = None, (), None
    self._node = node


def put(self: Any, indices: Any, values: Any, mode: Any = "raise") -> None:
    """Write at places of the flattened array."""
    np.put(self, indices, values, mode)


def setflags(self: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """Make the array read-only, or writable again.

    Raises
    ------
    ValueError
        If a flag is to be set that is not here, or the array is a view of one that is read-only.
    """
    if (align is not None and not align) or uic:
        raise ValueError("cannot set aligned or WRITEBACKIFCOPY flag: NumPy's memory alone has "
                         "them")
    if write is not None:
        self.set_writable(bool(write))


def byteswap(self: Any, inplace: bool = False) -> Any:
    """Return the array with the bytes of each element in reverse order."""
    return by_numpy.call("byteswap", np.ndarray.byteswap, (self, inplace))


def getfield(self: Any, dtype: Any, offset: int = 0) -> Any:
    """Return a copy of a part of each element."""
    return by_numpy.call("getfield", np.ndarray.getfield, (self, dtype, offset))


def setfield(self: Any, val: Any, dtype: Any, offset: int = 0) -> None:
    """Write a part of each element."""
    by_numpy.call("setfield", np.ndarray.setfield, (self, val, dtype, offset))


def to(self: Any, device: Any) -> Any:
    """Return the array on a device.

    What is pending is computed where it was recorded, then copied.

    Parameters
    ----------
    device : str or Device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"auto"`` (a GPU if there is one).

    Returns
    -------
    TiledArray
        A new array; this one itself if it is there.

    Raises
    ------
    DeviceNotFound
        If there is no such device.

    Examples
    --------
    >>> import tiledarray as np
    >>> x = np.arange(3.0).to("cpu")
    >>> str(x.device)
    'cpu'
    """
    target = resolve(device)
    if target is self.device:
        return self
    return wrap(record.leaf(target.wrap(host_array(self), copy=True)))


def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
    """Return the array on a device: `to` under the array API's name.

    Parameters
    ----------
    device : str or Device
        As for `to`.
    stream : object, optional
        Not looked at.

    Returns
    -------
    TiledArray
        A new array; this one itself if it is there.

    Raises
    ------
    DeviceNotFound
        If there is no such device.
    """
    return self.to(device)
