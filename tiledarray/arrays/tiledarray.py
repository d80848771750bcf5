"""`TiledArray`: NumPy's ndarray, recorded."""

from __future__ import annotations

import dis
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, index, operators, protocols, views
from tiledarray.arrays.flags import Flags
from tiledarray.arrays.flat import FlatIterator
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    as_node,
    fitting,
    host_array,
    use_class,
    view_of,
    wrap,
)
from tiledarray.arrays.methods import Methods
from tiledarray.arrays.tracing import check_own
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.ops.selection import where as where_op
from tiledarray.recording import at_once, record

_READS = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)
_FIRST_USER_DTYPE = 256  # NPY_USERDEF: dtypes that NumPy's protocols cannot name

__all__ = ["TiledArray", "from_host", "host_array", "wrap"]


class TiledArray(Methods, Handle):
    """An array whose value is recorded, and computed when it is looked at.

    It has the attributes, methods, operators and views of `numpy.ndarray`, and takes part in
    NumPy's protocols: ``np.exp(x)`` records.  Made by the functions of this package.  What differs
    from NumPy:

    - every array that owns its value is row-major;
    - where NumPy returns a scalar there is an array without axes.  It converts as a scalar does
      and is one to `isscalar`; ``x += 1`` makes a new one, so what else refers to the old one
      keeps it;
    - such an array has the hash of its value, so that it finds that in a dict or a set;
    - ``strides`` are those of a dense array, for a view too; see `view_strides`;
    - ``ravel("K")`` and results of NumPy's order "K" are row-major where NumPy keeps the operands'
      order in memory; there are no floating-point warnings, and `errstate` changes nothing;
    - reading ``a[mask]`` computes the mask, since the result's shape depends on it;
    - ``.view(dtype)`` with another dtype is a copy.
    """

    __slots__ = ()
    __array_priority__ = 1000.0

    # What it is --------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes.  Assigning reshapes in place where that needs no copy."""
        return self._node.shape if self._base is None else self.node.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        wanted = views.new_shape(self.shape, _lengths(shape))
        check_own(self)
        if self._base is None:
            self._become_view()
        elif views.reshaped_strides(self.shape, self.view_strides, self.itemsize, wanted) is None:
            raise AttributeError(
                "Incompatible shape for in-place modification. Use `.reshape()` to make a copy "
                "with the desired shape."
            )
        self._steps = views.extend(self._steps, views.Reshaped(wanted))
        self._seen = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self._node.dtype if self._base is None else self.node.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis, in what NumPy gets of the array.

        That is a dense copy, of a view too: who hands these strides to `as_strided` with the
        array must not reach outside it.
        """
        if not self.size:
            return np.empty(self.shape, self.dtype).strides
        return views.dense_strides(self.shape, self.itemsize)

    @property
    def view_strides(self) -> tuple[int, ...]:
        """Strides that NumPy's array would have, which decide what can be a view."""
        base = self.origin()
        return views.strides_of(base._node.shape, base._node.dtype.itemsize, self.steps)

    @property
    def device(self) -> Any:
        """Where the array lives."""
        return self.node.device

    @property
    def base(self) -> Any:
        """The array that this one is a view of, ``None`` if it owns its value."""
        return self._base

    @property
    def flags(self) -> Flags:
        """Memory layout, as NumPy's array would have it; ``flags.writeable`` can be assigned."""
        return Flags(self)

    def set_writable(self, writable: bool) -> None:
        """Make the array read-only, or writable if what it is a view of is."""
        check_own(self)
        if not writable and self._base is None:
            self._become_view()
        if not writable:
            self._steps = views.extend(self._steps, views.Frozen())
        elif views.is_frozen(self.steps[:-1]):
            raise ValueError("cannot set WRITEABLE flag to True of this array")
        elif views.is_frozen(self.steps):
            self._steps = self._steps[:-1]

    def _become_view(self) -> None:
        """Make the array a view of what it was: its own views find that by `origin`."""
        base = wrap(self._node)
        self._seen = None
        self._steps = ()
        self._base = base
        del self._node

    @property
    def data(self) -> memoryview:
        """Read-only memory of a copy."""
        return self.numpy().data.toreadonly()

    @property
    def ctypes(self) -> Any:
        """Not there: C code could write into memory that other arrays share."""
        raise AttributeError(
            "TiledArray has no attribute 'ctypes', since its memory must not be written; "
            "hand x.numpy().ctypes to C, and what it wrote back by x[...] = "
        )

    # Parts of it -------------------------------------------------------------------------------

    @property
    def T(self) -> TiledArray:  # noqa: N802  NumPy's name
        """View with the axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> TiledArray:  # noqa: N802  NumPy's name
        """View with the last two axes exchanged."""
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> TiledArray:
        """Real part: a view."""
        if self.dtype.kind != "c":
            return self
        return view_of(self, views.Part(0))

    @real.setter
    def real(self, value: Any) -> None:
        self.real.store(value)

    @property
    def imag(self) -> TiledArray:
        """Imaginary part: a view; read-only zeros for a real array."""
        if self.dtype.kind != "c":
            zeros = wrap(record.full(self.shape, 0, self.dtype, self.device))
            return view_of(zeros, views.Frozen())
        return view_of(self, views.Part(1))

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self.imag.store(value)

    @property
    def flat(self) -> FlatIterator:
        """The elements in row-major order."""
        return FlatIterator(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        FlatIterator(self)[:] = value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Yield the views along the first axis; of an array with one axis, NumPy's scalars."""
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        if self.ndim == 1:
            return iter(host_array(self))
        return (self[place] for place in range(self.shape[0]))

    def __reversed__(self) -> Iterator[Any]:
        """Yield what iteration yields, from the end."""
        return iter(self[::-1])

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # Reading and writing -----------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        node = self._node if self._base is None else self.node
        if node.buffer is not None and (element := at_once.element(node, key)) is not None:
            return wrap(element)
        if not isinstance(key, tuple):
            key = (key,)
        shape = node.form.kind.shape
        step = index.step_of(key, shape)
        if step is None:
            return self._take(key)
        if not step.shape and index.is_full_integer(key, len(shape)):
            return wrap(record.view(node, *step))
        return view_of(self, step)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._base is None and self._node.buffer is not None:
            plain = type(value) in SCALARS
            if (plain or isinstance(value, Handle)) and at_once.set_element(
                self, key, value if plain else value.node
            ):
                return
        if not isinstance(key, tuple):
            key = (key,)
        # The kind only: who holds the value itself while it is written makes it a copy.
        kind = (self._node if self._base is None else self.node).form.kind
        step = index.step_of(key, kind.shape)
        if step is None:
            self._put(key, value)
            return
        root = self.origin()
        steps = views.extend(self.steps, step)
        if isinstance(value, Handle) and value.origin() is root and value.steps == steps:
            return  # the second half of `a[key] += b`: written already
        try:
            new = fitting(value, step.shape, kind.dtype, kind.device)
        except UnsupportedDtypeError:
            self._put_by_numpy(key, value)
            return
        view_of(self, step).assign(new)

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

    def _take(self, key: tuple[Any, ...]) -> Any:
        node = self.node
        try:
            found = index.places(
                key, node.shape, lambda array: as_node(array, node.device), _nonzero
            )
        except (NotImplementedError, UnsupportedDtypeError):
            return by_numpy.call("getitem", np.ndarray.__getitem__, (self, key))
        return wrap(index.take(record.view(node, *found.before), found))

    def _put(self, key: tuple[Any, ...], value: Any) -> None:
        node = self.node
        try:
            if self._put_by_mask(key, value):
                return
            found = index.places(
                key, node.shape, lambda array: as_node(array, node.device), _nonzero
            )
            new = fitting(value, found.shape, node.dtype, node.device)
        except (NotImplementedError, UnsupportedDtypeError):
            self._put_by_numpy(key, value)
            return
        part = view_of(self, found.before)
        part.assign(index.put(part.node, found, new))

    def _put_by_mask(self, key: tuple[Any, ...], value: Any) -> bool:
        """Write one value where a mask over the leading axes holds, as a `where`."""
        if len(key) != 1 or not index.is_mask(key[0]):
            return False
        if type(value) not in SCALARS and np.ndim(value) != 0:
            return False
        node, mask = self.node, key[0]
        if mask.ndim > self.ndim:
            raise index.too_many(self.ndim, mask.ndim)
        index.check_mask(mask.shape, node.shape, 0)
        if 0 in mask.shape:
            return True
        condition = as_node(mask, node.device)
        condition = record.reshape(condition, mask.shape + (1,) * (self.ndim - mask.ndim))
        new = fitting(value, (), node.dtype, node.device)
        self.assign(record.elementwise(where_op, condition, new, node))
        return True

    def _put_by_numpy(self, key: tuple[Any, ...], value: Any) -> None:
        record.note_fallback("setitem")
        array = host_array(self).copy()
        array[by_numpy.to_host(key)] = by_numpy.to_host(value)
        self.assign(from_host(array, self.device).node)

    # NumPy's protocols -------------------------------------------------------------------------

    __array_ufunc__ = protocols.array_ufunc
    __array_function__ = protocols.array_function

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Memory of a copy, for libraries that read this attribute (PIL); not for NumPy itself.

        NumPy asks `__array__`, which knows ``copy`` and every dtype, only if this is missing: so
        it is, except to an instruction that reads the attribute by name.
        """
        caller = sys._getframe(1)
        host = self.numpy() if caller.f_code.co_code[caller.f_lasti] in _READS else None
        if host is None or host.dtype.num >= _FIRST_USER_DTYPE:
            raise AttributeError("TiledArray has no attribute '__array_interface__' here")
        # The array itself in place of its address keeps the memory alive; the strides are told
        # since PIL then reads the bytes by `tobytes`.
        return {**host.__array_interface__, "data": host, "strides": host.strides}

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return this package (array API)."""
        return sys.modules[__name__.partition(".")[0]]

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the memory of a copy, as a buffer (Python 3.12 and later ask)."""
        return self.numpy().data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                "Unable to avoid copy while creating an array as requested: the values of a "
                "TiledArray are immutable, NumPy's are not"
            )
        return np.array(host_array(self), dtype=dtype, copy=True, order="C")


def _hash(self: TiledArray) -> int:
    if self.shape:
        raise TypeError(f"unhashable type: {type(self).__name__!r}")
    return hash(host_array(self)[()])


def _nonzero(mask: Any) -> tuple[Any, ...]:
    """Return the places where a mask holds; it is evaluated."""
    if not isinstance(mask, Handle):
        return np.nonzero(mask)
    found = mask.evaluated()
    array = found if mask._base is not None else found.array
    device = mask.node.device
    return tuple(
        wrap(record.leaf(device.wrap(places, copy=True))) for places in device.xp.nonzero(array)
    )


def _lengths(shape: Any) -> tuple[int, ...]:
    return tuple(map(int, shape)) if np.ndim(shape) else (int(shape),)


def from_host(array: Any, device: Any = None) -> TiledArray:
    """Return a copy of a NumPy array, on the device that is current or the one given."""
    device = resolve() if device is None else device
    return wrap(record.leaf(device.wrap(np.asarray(array), copy=True)))


for _name, _method in operators.METHODS.items():
    setattr(TiledArray, _name, _method)
TiledArray.__hash__ = _hash  # type: ignore[method-assign, assignment]
use_class(TiledArray)
