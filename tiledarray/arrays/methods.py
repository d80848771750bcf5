"""The methods of `TiledArray`: shapes, copies, conversions, reductions, text."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, reducing, views
from tiledarray.arrays.handle import Handle, host_array, view_of, wrap
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import UnsupportedDtypeError, is_numeric
from tiledarray.ops import indexing as library
from tiledarray.ops import movement
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record


def _axis(axis: Any, ndim: int, name: str | None = None) -> int:
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(number, ndim, name)
    return number % ndim


def _sequence(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Return ints given one by one or as a sequence."""
    if len(arguments) == 1:
        (given,) = arguments
        if isinstance(given, (tuple, list)) or (type(given) is not int and np.ndim(given) > 0):
            arguments = tuple(given)
    return tuple(operator.index(length) for length in arguments)


def _is_dense(array: Any) -> bool:
    """Whether NumPy's array would be contiguous in row-major order."""
    expected = views.dense_strides(array.shape, array.itemsize)
    return 0 in array.shape or all(
        size == 1 or stride == dense
        for size, stride, dense in zip(array.shape, array.view_strides, expected, strict=True)
    )


def _method(name: str) -> Callable[..., Any]:
    """Make a method of a reduction; NumPy does it for dtypes that no kernel knows."""
    function = getattr(reducing, name)

    def method(self: Handle, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except UnsupportedDtypeError:
            return by_numpy.call(name, getattr(np, name), (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


def _by_numpy(name: str) -> Callable[..., Any]:
    def method(self: Handle, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


class Shaping:
    """Methods that give views, or copies where NumPy's would be copies."""

    __slots__ = ()

    def reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return the elements in another shape: a view where NumPy would give one."""
        lengths = _sequence(shape)
        wanted = views.new_shape(self.shape, lengths)
        if order == "A":
            order = "F" if self.flags.fnc else "C"
        if order == "F":
            return self.T.reshape(wanted[::-1], copy=copy).T
        if order != "C":
            raise ValueError(f"order must be one of 'C', 'F', 'A' (got {order!r})")
        fits = self._base is None or views.reshaped_strides(
            self.shape, self.view_strides, self.itemsize, wanted
        ) is not None
        if not fits and copy is False:
            raise ValueError("Unable to avoid creating a copy while reshaping.")
        if not fits or copy:
            return wrap(record.reshape(self.node, wanted))
        return view_of(self, views.Reshaped(wanted))

    def ravel(self: Any, order: str = "C") -> Any:
        """Return the elements along one axis: a view where NumPy would give one."""
        if order == "K":
            strides = self.view_strides
            places = sorted(range(self.ndim), key=lambda axis: -abs(strides[axis]))
            return self.transpose(places).ravel()
        if order == "A":
            order = "F" if self.flags.fnc else "C"
        if order == "F":
            return self.T.ravel()
        return self.reshape(-1, copy=not _is_dense(self), order=order)

    def flatten(self: Any, order: str = "C") -> Any:
        """Return a copy of the elements along one axis."""
        return self.ravel(order).copy()

    def transpose(self: Any, *axes: Any) -> Any:
        """Return a view with the axes in another order, by default reversed."""
        ndim = self.ndim
        if not axes or (len(axes) == 1 and axes[0] is None):
            places: tuple[int, ...] = tuple(reversed(range(ndim)))
        else:
            given = _sequence(axes)
            if len(given) != ndim:
                raise ValueError("axes don't match array")
            places = tuple(_axis(axis, ndim) for axis in given)
            if len(set(places)) != ndim:
                raise ValueError("repeated axis in transpose")
        return view_of(self, views.permutation(self.shape, places))

    def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
        """Return a view with two axes exchanged."""
        places = list(range(self.ndim))
        first, second = _axis(axis1, self.ndim, "axis1"), _axis(axis2, self.ndim, "axis2")
        places[first], places[second] = second, first
        return view_of(self, views.permutation(self.shape, places))

    def squeeze(self: Any, axis: Any = None) -> Any:
        """Return a view without axes of length one."""
        shape = self.shape
        if axis is None:
            dropped = {place for place, size in enumerate(shape) if size == 1}
        else:
            dropped = set(reducing.axes_of(axis, len(shape)))
            if any(shape[place] != 1 for place in dropped):
                raise ValueError(
                    "cannot select an axis to squeeze out which has size not equal to one"
                )
        key = tuple(0 if place in dropped else slice(None) for place in range(len(shape)))
        return self[(..., *key)]

    def diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Return a read-only view of a diagonal."""
        if self.ndim < 2:
            raise ValueError("diag requires an array of at least two dimensions")
        first, second = _axis(axis1, self.ndim, "axis1"), _axis(axis2, self.ndim, "axis2")
        if first == second:
            raise ValueError("axis1 and axis2 cannot be the same")
        step = views.diagonal(self.shape, offset, first, second)
        return view_of(view_of(self, step), views.Frozen())

    def trace(
        self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None,
        out: Any = None,
    ) -> Any:
        """Return the sum along a diagonal."""
        return self.diagonal(offset, axis1, axis2).sum(axis=-1, dtype=dtype, out=out)

    def view(self: Any, dtype: Any = None, type: Any = None) -> Any:
        """Return a view of the same elements or bytes; of a NumPy subclass, a copy."""
        if isinstance(dtype, builtins.type) and issubclass(dtype, (np.ndarray, Handle)):
            dtype, type = None, dtype
        if not (type in (None, np.ndarray) or issubclass(self.__class__, type)):
            array = self.numpy()
            return array.view(type=type) if dtype is None else array.view(dtype, type)
        if dtype is None or (isinstance(dtype, np.dtype) and dtype == self.dtype):
            return view_of(self, views.identity(self.shape))
        wanted = np.dtype(dtype)
        shape = np.empty((0, *self.shape), self.dtype).view(wanted).shape[1:]
        if wanted.itemsize != self.itemsize and not self.shape:
            raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize "
                             "is unchanged")
        if wanted.itemsize != self.itemsize:
            last = self.shape[-1] * self.itemsize
            if last % wanted.itemsize:
                raise ValueError(
                    "When changing to a larger dtype, its size must be a divisor of the total "
                    "size in bytes of the last axis of the array."
                )
            shape = (*self.shape[:-1], last // wanted.itemsize)
        return view_of(self, views.Reinterpreted(shape, wanted))


class Copying:
    """Methods that copy, convert or change the elements."""

    __slots__ = ()

    def copy(self: Any, order: str = "C") -> Any:
        """Return an array of its own with the same value."""
        return wrap(self.node)

    __copy__ = copy

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        return wrap(self.node)

    def astype(
        self: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True, device: Any = None,
    ) -> Any:
        """Return the array with another dtype; itself if ``copy=False`` and nothing changes."""
        wanted = np.dtype(dtype)
        node = self.node
        if device is not None:
            return self.to(device).astype(wanted, casting=casting)
        if not np.can_cast(node.dtype, wanted, casting):
            raise TypeError(
                f"Cannot cast array data from {node.dtype!r} to {wanted!r} according to the rule "
                f"'{casting}'"
            )
        if node.dtype == wanted:
            return wrap(node) if copy else self
        if not (is_numeric(node.dtype) and is_numeric(wanted)):
            return by_numpy.call("astype", np.ndarray.astype, (self, wanted))
        if node.dtype.kind == "c" and wanted.kind not in "cb":
            reducing.warn(
                "Casting complex values to real discards the imaginary part",
                np.exceptions.ComplexWarning,
            )
        return wrap(record.cast(node, wanted))

    def fill(self: Any, value: Any) -> None:
        """Write one value everywhere."""
        self[...] = value

    def sort(
        self: Any, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> None:
        """Sort along an axis, in place."""
        place = _axis(axis, self.ndim)
        kind = "stable" if stable else kind
        node = self.node
        self.assign(
            record.library(library.sort, (node,), (place, kind), node.shape, node.dtype)
        )

    def argsort(
        self: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
    ) -> Any:
        """Return the places that sort along an axis."""
        node = self.node if axis is not None else self.ravel().node
        place = _axis(-1 if axis is None else axis, len(node.shape))
        kind = "stable" if stable else kind
        attrs = (place, kind)
        return wrap(record.library(library.argsort, (node,), attrs, node.shape, np.intp))

    def partition(
        self: Any, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None
    ) -> None:
        """Put the element that would be in place ``kth`` there, smaller ones before; in place."""
        self.store(np.partition(self, kth, axis, kind, order))

    def conj(self: Any) -> Any:
        """Return the complex conjugate."""
        if self.dtype.kind != "c":
            return self
        return wrap(record.unary(BY_NAME["conjugate"], self.node))

    conjugate = conj

    def clip(self: Any, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the values limited to an interval."""
        if min is None and max is None:
            return np.positive(self, out=out, **options)
        if max is None:
            return np.maximum(self, min, out=out, **options)
        if min is None:
            return np.minimum(self, max, out=out, **options)
        return np.clip(self, min, max, out=out, **options)

    def dot(self: Any, other: Any, out: Any = None) -> Any:
        """See `numpy.dot`."""
        return np.dot(self, other) if out is None else np.dot(self, other, out=out)

    def resize(self: Any, *shape: Any, refcheck: bool = True) -> None:
        """Change shape and size in place; new elements are zero."""
        wanted = _sequence(shape)
        if self._base is not None:
            raise ValueError("cannot resize this array: it does not own its data")
        array = np.resize(host_array(self).ravel(), wanted)
        array.ravel()[self.size:] = 0
        self._node = record.leaf(self.device.wrap(array, copy=True))

    def put(self: Any, indices: Any, values: Any, mode: Any = "raise") -> None:
        """Write at places of the flattened array."""
        array = host_array(self).copy()
        array.put(by_numpy.to_host(indices), by_numpy.to_host(values), mode)
        self.store(array)

    def setflags(self: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
        """Make the array read-only, or writable again."""
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
        """Return the array on a device, such as ``"cuda"`` or ``"cpu"``; itself if it is there."""
        target = resolve(device)
        if target is self.device:
            return self
        return wrap(record.leaf(target.wrap(host_array(self), copy=True)))

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
        """Return the array on a device (array API)."""
        return self.to(device)


class Looking:
    """Methods that compute the value."""

    __slots__ = ()

    def numpy(self: Any) -> np.ndarray[Any, Any]:
        """Return the value as a new, writable NumPy array."""
        array: np.ndarray[Any, Any] = self.__array__()
        return array

    def cupy(self: Any) -> Any:
        """Return the value as a new CuPy array."""
        import cupy

        found = self.evaluated()
        return cupy.array(found if self._base is not None else found.array)

    def item(self: Any, *place: Any) -> Any:
        """Return one element as a Python scalar."""
        if place:
            chosen = place[0] if len(place) == 1 else place
            if isinstance(chosen, tuple):
                return self[chosen].item()
            return self.reshape(-1)[chosen].item()
        node = self.node
        if node.op is movement.full and node.buffer is None and node.shape == ():
            return np.asarray(node.inputs[0]).astype(node.dtype).item()
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return host_array(self).item()

    def tolist(self: Any) -> Any:
        """Return the elements as nested lists of Python scalars."""
        return host_array(self).tolist()

    def tobytes(self: Any, order: Any = "C") -> bytes:
        """Return the bytes of the elements."""
        return host_array(self).tobytes(order)

    def tofile(self: Any, file: Any, sep: str = "", format: str = "%s") -> None:
        """Write the elements to a file."""
        host_array(self).tofile(file, sep, format)

    def dump(self: Any, file: Any) -> None:
        """Pickle the array into a file."""
        self.numpy().dump(file)

    def dumps(self: Any) -> bytes:
        """Return the pickled array."""
        return self.numpy().dumps()

    def _scalar(self: Any) -> Any:
        if self.shape:
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return self.item()

    def __float__(self: Any) -> float:
        return float(self._scalar())

    def __int__(self: Any) -> int:
        return int(self._scalar())

    def __trunc__(self: Any) -> int:
        return math.trunc(self._scalar())

    def __complex__(self: Any) -> complex:
        return complex(self._scalar())

    def __index__(self: Any) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.item())

    def __bool__(self: Any) -> bool:
        size = self.size
        if size == 1:
            return bool(self.item())
        if size == 0:
            raise ValueError(
                "The truth value of an empty array is ambiguous. Use `array.size > 0` to check "
                "that an array is not empty."
            )
        raise ValueError(
            "The truth value of an array with more than one element is ambiguous. Use a.any() or "
            "a.all()"
        )

    def __round__(self: Any, digits: int | None = None) -> Any:
        if digits is None and not self.shape:
            return round(self.item())
        return np.round(self, digits or 0)

    def __repr__(self: Any) -> str:
        return repr(host_array(self)[()])  # without axes: of the scalar that NumPy would return

    def __str__(self: Any) -> str:
        array = host_array(self)
        return str(array) if self.shape else str(array[()])

    def __format__(self: Any, specification: str) -> str:
        if not self.shape:
            return format(host_array(self)[()], specification)
        if specification:
            raise TypeError("unsupported format string passed to TiledArray.__format__")
        return str(self)

    def __reduce__(self: Any) -> Any:
        return _restore, (self.numpy(),)

    def __dlpack__(
        self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        found = self.evaluated()
        array = found if self._base is not None else found.array
        if copy is not False:
            array = array.copy()  # the consumer may write; our buffers are immutable
        if isinstance(array, np.ndarray):
            return array.__dlpack__(
                stream=stream, max_version=max_version, dl_device=dl_device
            )
        return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        found = self.evaluated()
        array = found if self._base is not None else found.array
        kind, number = array.__dlpack_device__()
        return int(kind), int(number)


def _restore(array: np.ndarray[Any, Any]) -> Any:
    return wrap(record.leaf(resolve().wrap(array, copy=True)))


class Methods(Shaping, Copying, Looking):
    """All of them, with the reductions."""

    __slots__ = ()

    sum = _method("sum")
    prod = _method("prod")
    min = _method("min")
    max = _method("max")
    all = _method("all")
    any = _method("any")
    mean = _method("mean")
    var = _method("var")
    std = _method("std")
    argmin = _method("argmin")
    argmax = _method("argmax")
    cumsum = _method("cumsum")
    cumprod = _method("cumprod")

    take = _by_numpy("take")
    repeat = _by_numpy("repeat")
    nonzero = _by_numpy("nonzero")
    round = _by_numpy("round")
    searchsorted = _by_numpy("searchsorted")
    compress = _by_numpy("compress")
    choose = _by_numpy("choose")
    argpartition = _by_numpy("argpartition")
