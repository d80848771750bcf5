"""Making arrays: constants are recorded, the rest is NumPy's values wrapped."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.api.arguments import (
    TiledArray,
    device_of,
    handle_of,
    host,
    is_numeric,
    is_ours,
    node_of,
    refuse,
    shape_of,
)
from tiledarray.api.registry import implements
from tiledarray.arrays import by_numpy
from tiledarray.arrays.handle import (
    Handle,
    any_keeps,
    array_of,
    as_dtype,
    is_recorded,
    stands_for_scalar,
    wrap,
)
from tiledarray.arrays.layout import FlatIterator
from tiledarray.arrays.tracing import may_look
from tiledarray.devices.device import resolve
from tiledarray.devices.dlpack import device_name, import_array
from tiledarray.graph.node import Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.recording import record

__all__ = [
    "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "copy", "from_dlpack",
    "zeros", "ones", "empty", "zeros_like", "ones_like", "empty_like", "full", "full_like", "eye",
    "identity", "tri", "tril", "triu", "diag", "diagflat", "diagonal", "logspace", "geomspace",
    "vander", "frombuffer", "fromiter", "fromstring", "fromfile", "hanning", "hamming", "blackman",
    "bartlett", "kaiser",
]

_WHERE = BY_NAME["where"]
_INT64 = np.iinfo(np.int64)


def device_for(device: Any, like: Any = None) -> Any:
    """Return the device that ``device=`` names, or that of ``like``, or the current one."""
    if device is None:
        return device_of(like)
    return resolve(device)


def numeric(dtype: Any) -> np.dtype[Any]:
    """Return the dtype, or leave the call to NumPy if no kernel computes with it."""
    found = as_dtype(dtype)
    refuse(not is_numeric(found), "strings, times or objects")
    return found


def of_values(values: Any, device: Any) -> TiledArray:
    """Return NumPy's values as an array of ours."""
    return wrap(node_of(values, device))


def filled(shape: Any, value: Any, dtype: Any, device: Any) -> TiledArray:
    """Return an array of one Python scalar."""
    return wrap(record.full(shape_of(shape), value, numeric(dtype), device))


_FLAGS = {name: flag for flag, names in {
    "C": ("C", "C_CONTIGUOUS", "CONTIGUOUS"), "F": ("F", "F_CONTIGUOUS", "FORTRAN"),
    "A": ("A", "ALIGNED"), "W": ("W", "WRITEABLE"), "O": ("O", "OWNDATA"),
    "E": ("E", "ENSUREARRAY")}.items() for name in names}


# From data --------------------------------------------------------------------------------------


def _from(
    value: Any, dtype: Any, device: Any, like: Any, copy: bool | None, order: Any = None
) -> Any:
    """Return what NumPy's ``array`` and ``asarray`` return.

    That is NumPy's own array where it shares memory that others write.
    """
    if isinstance(value, FlatIterator):
        value = value.as_array()
    if isinstance(value, Handle):
        found = _from_handle(value, dtype, device, copy)
        if order != "C" or found is not value or value.flags.c_contiguous:
            return found
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        return _from_handle(value, dtype, device, True)
    shared = None if copy or device is not None else _of_others(value, dtype, copy, order)
    if shared is not None:
        return shared
    if copy is False:
        raise ValueError(
            "Unable to avoid copy while creating an array as requested: only a TiledArray can be "
            "taken as it is"
        )
    target = device_for(device, value if like is None else like)
    if dtype is None:
        if isinstance(value, (np.ndarray, np.generic, list, tuple, int, float, complex)):
            return wrap(node_of(value, target))
        if _is_imported(value):
            return _imported(value, copy, device)
        return wrap(node_of(np.array(value), target))
    wanted = numeric(dtype)
    if _is_imported(value):
        return _imported(value, copy, device).astype(wanted, copy=False)
    if by_numpy.first_handle(value) is not None:
        return wrap(record.cast(node_of(value, target), wanted))
    return wrap(node_of(np.array(value, wanted), target))


def _from_handle(value: Any, dtype: Any, device: Any, copy: bool | None) -> TiledArray:
    wanted = value.dtype if dtype is None else as_dtype(dtype)
    if device is not None:
        value = value.to(device)
    scalar = stands_for_scalar(value)
    if wanted == value.dtype and not scalar:
        return value.copy() if copy else value
    if copy is False:
        raise ValueError(
            "Unable to avoid copy while creating an array as requested: "
            + ("what is given is a scalar" if scalar else "another dtype is asked for")
        )
    result = value.astype(wanted)
    return array_of(result.node) if scalar else result


_NO_MEMORY = (np.ndarray, np.generic, list, tuple, int, float, complex, str, bytes, range)


def _of_others(value: Any, dtype: Any, copy: bool | None, order: Any) -> Any:
    """Return NumPy's array over memory that somebody else may write, ``None`` if there is none.

    Such are a ``bytearray``, arrays of ``array``, `ctypes` and `multiprocessing`, files in memory.
    """
    if isinstance(value, _NO_MEMORY):
        return None
    try:
        if memoryview(value).readonly:
            return None
    except (TypeError, ValueError, BufferError):
        return None
    found = np.asarray(value, dtype, order, copy=copy)
    return None if found.base is None else found


def _is_imported(value: Any) -> bool:
    """Whether the array has to come by DLPack, for it is on a GPU or NumPy cannot read it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    if not hasattr(value, "__dlpack_device__"):
        return hasattr(value, "__cuda_array_interface__")
    return not hasattr(value, "__array__") or device_name(value) != "cpu"


def _imported(value: Any, copy: bool | None, wanted: Any = None) -> TiledArray:
    array = import_array(value, copy)
    device = resolve("cpu") if isinstance(array, np.ndarray) else resolve(
        f"cuda:{array.device.id}"
    )
    result = wrap(record.leaf(device.wrap(array, copy=True)))
    return result if wanted is None else result.to(wanted)


@implements(np.array)
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", subok: bool = False,
    ndmin: int = 0, ndmax: int = 0, like: Any = None, device: Any = None,
) -> TiledArray:
    refuse(ndmax, "ndmax= is given")
    result = _from(object, dtype, device, like, None if copy is None else bool(copy), order)
    if result.ndim < ndmin:
        result = result.reshape((1,) * (ndmin - result.ndim) + result.shape)
    return result


@implements(np.asarray)
def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None,
    like: Any = None,
) -> TiledArray:
    return _from(a, dtype, device, like, copy, order)


@implements(np.asanyarray)
def asanyarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None,
    like: Any = None,
) -> TiledArray:
    refuse(isinstance(a, np.ndarray) and type(a) is not np.ndarray, "a subclass of ndarray")
    return _from(a, dtype, device, like, copy, order)


@implements(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> TiledArray:
    result = _from(a, dtype, None, like, None)
    if result.base is not None and not result.flags.c_contiguous:
        result = result.copy()
    return result if result.ndim else result.reshape(1)


@implements(np.asfortranarray)
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> TiledArray:
    result = _from(a, dtype, None, like, None)
    if not result.flags.f_contiguous:
        return result.T.copy().T
    return result if result.ndim else result.reshape(1)


@implements(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> TiledArray:
    flags = {_FLAGS[each.upper()] for each in requirements or ()}
    if flags >= {"C", "F"}:
        raise ValueError('Cannot specify both "C" and "F" order')
    order = "C" if "C" in flags else None
    result = asfortranarray(a, dtype, like=like) if "F" in flags else (
        asanyarray(a, dtype, order, like=like))
    return result if all(result.flags[each] for each in flags & {*"AWO"}) else result.copy()


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> TiledArray:
    return _from(a, None, None, None, True)


@implements(np.from_dlpack)
def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> TiledArray:
    if not is_ours(x) and not hasattr(x, "__dlpack__"):
        raise AttributeError(f"{type(x).__name__!r} object has no attribute '__dlpack__'")
    result = x.copy() if is_ours(x) else _imported(x, copy)
    return result if device is None else result.to(device)


# Constants --------------------------------------------------------------------------------------


def _constant(original: Callable[..., Any], value: int) -> Callable[..., Any]:
    def ours(
        shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TiledArray:
        return filled(shape, value, float if dtype is None else dtype, device_for(device, like))

    return implements(original)(ours)


def _constant_like(original: Callable[..., Any], value: int) -> Callable[..., Any]:
    def ours(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
        device: Any = None,
    ) -> TiledArray:
        return _filled_like(a, value, dtype, shape, device)

    return implements(original)(ours)


def _filled_like(a: Any, value: Any, dtype: Any, shape: Any, device: Any) -> TiledArray:
    like: Any = a if isinstance(a, (Handle, np.ndarray)) else handle_of(a)
    refuse(isinstance(a, np.ndarray) and type(a) is not np.ndarray, "a subclass of ndarray")
    target = device_for(device, a)
    return filled(
        like.shape if shape is None else shape, value, like.dtype if dtype is None else dtype,
        target,
    )


zeros = _constant(np.zeros, 0)
ones = _constant(np.ones, 1)
# There is no uninitialized array: recorded, one of zeros costs nothing until it is written.
empty = _constant(np.empty, 0)
zeros_like = _constant_like(np.zeros_like, 0)
ones_like = _constant_like(np.ones_like, 1)
empty_like = _constant_like(np.empty_like, 0)


@implements(np.full)
def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None,
    like: Any = None,
) -> TiledArray:
    target = device_for(device, fill_value if like is None else like)
    if dtype is None:
        dtype = fill_value.dtype if is_ours(fill_value) else np.array(fill_value).dtype
    return _full(shape_of(shape), fill_value, numeric(dtype), target)


@implements(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
    shape: Any = None, *, device: Any = None,
) -> TiledArray:
    result = _filled_like(a, 0, dtype, shape, device)
    return _full(result.shape, fill_value, result.dtype, result.device)


def _full(shape: Any, value: Any, dtype: np.dtype[Any], device: Any) -> TiledArray:
    if not isinstance(value, Handle) and np.ndim(value) == 0:
        # NumPy says whether the value fits, and how it is converted.
        with np.errstate(all="ignore"):
            sample = np.empty((), dtype)
            np.copyto(sample, value, casting="unsafe")
        return wrap(record.full(shape, sample.item(), dtype, device))
    result = wrap(record.full(shape, 0, dtype, device))
    result[...] = handle_of(value, device).astype(dtype)
    return result


@implements(np.eye)
def eye(
    N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", *,  # noqa: N803
    device: Any = None, like: Any = None,
) -> TiledArray:
    rows = operator.index(N)
    columns = rows if M is None else operator.index(M)
    offset = operator.index(k)
    return _where_index(
        (rows, columns), offset, "equal", numeric(dtype), device_for(device, like)
    )


def _where_index(
    shape: tuple[int, int], offset: int, relation: str, dtype: np.dtype[Any], device: Any
) -> TiledArray:
    """Return whether ``column - row`` is equal to, or less than, the offset."""
    if min(shape) < 0:
        raise ValueError("negative dimensions are not allowed")
    row, column = _grid(shape, device)
    shifted = record.binary(BY_NAME["add"], row, offset) if offset else row
    return wrap(record.cast(record.binary(BY_NAME[relation], column, shifted), dtype))


def _grid(shape: tuple[int, int], device: Any) -> tuple[Node, Node]:
    rows, columns = (record.places(n, device) for n in shape)
    return record.expand_dims(rows, (1,)), record.expand_dims(columns, (0,))


@implements(np.identity)
def identity(n: Any, dtype: Any = None, *, like: Any = None) -> TiledArray:
    return eye(n, dtype=float if dtype is None else dtype, like=like)


@implements(np.tri)
def tri(
    N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None  # noqa: N803
) -> TiledArray:
    rows = operator.index(N)
    columns = rows if M is None else operator.index(M)
    refuse(rows < 0 or columns < 0, "negative lengths")
    device = device_for(None, like)
    return _where_index((rows, columns), operator.index(k), "less_equal", numeric(dtype), device)


def _triangle(original: Callable[..., Any], relation: str, shift: int) -> Callable[..., Any]:
    def ours(m: Any, k: int = 0) -> TiledArray:
        source = handle_of(m)
        refuse(source.ndim == 0, "an array without axes")
        shape = source.shape[-2:] if source.ndim > 1 else source.shape * 2
        mask = _where_index(shape, operator.index(k) + shift, relation, np.dtype(bool),
                            source.device)
        zero = record.full((), 0, source.dtype, source.device)
        return wrap(record.elementwise(_WHERE, mask.node, source.node, zero))

    return implements(original)(ours)


tril = _triangle(np.tril, "less_equal", 0)
triu = _triangle(np.triu, "greater", -1)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> TiledArray:
    source = handle_of(v)
    if source.ndim == 2:
        return source.diagonal(k)
    if source.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    return _on_diagonal(source, k)


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> TiledArray:
    return _on_diagonal(handle_of(v).reshape(-1), k)


def _on_diagonal(source: TiledArray, k: int) -> TiledArray:
    size = source.shape[0] + abs(k)
    zeros_node = record.full((size, size), 0, source.dtype, source.device)
    if source.shape[0] == 0:
        return wrap(zeros_node)
    starts = (max(-k, 0), max(k, 0))
    return wrap(record.update(zeros_node, source.node, (0, 0), (1, 1), starts, source.shape))


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TiledArray:
    return handle_of(a).diagonal(offset, axis1, axis2)


# Values of NumPy's -------------------------------------------------------------------------------


def _values_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function whose few values NumPy computes."""

    def ours(*args: Any, device: Any = None, **kwargs: Any) -> TiledArray:
        refuse(any_keeps([*by_numpy.handles_in((args, kwargs))]), "an argument has a history")
        refuse(not may_look(by_numpy.handles_in((args, kwargs))), "an argument has no value here")
        target = device_for(device, args)
        found = original(*host(args), **host(kwargs))
        result = of_values(found, target)
        if not found.flags.writeable:  # it is of bytes that nobody may write
            result.flags.writeable = False
        return result

    return implements(original, "host")(ours)


logspace = _values_of(np.logspace)
geomspace = _values_of(np.geomspace)
vander = _values_of(np.vander)


# Memory of others ---------------------------------------------------------------------------------


def over_memory(
    shape: Any, dtype: Any = float, buffer: Any = None, offset: Any = 0, strides: Any = None,
    order: Any = "C",
) -> Any:
    """Return an array over the memory of one of ours: a view of that; ``None`` if none is."""
    try:
        kind = as_dtype(dtype)
        shape = shape_of(shape)
        size, start = math.prod(shape) * kind.itemsize, operator.index(offset)
    except (TypeError, ValueError):
        return None  # NumPy says what is wrong
    if start < 0:  # NumPy reads what lies before the memory
        raise ValueError("offset must be non-negative")
    if strides is not None or order not in ("C", None) or not is_numeric(kind) or (
            not buffer.flags.c_contiguous or start + size > buffer.nbytes):
        return None
    memory = buffer.reshape(-1)
    each = kind.itemsize
    if kind == buffer.dtype and not start % each:  # kernels know these better than bytes
        return memory[start // each:(start + size) // each].reshape(shape)
    return memory.view(np.uint8)[start:start + size].view(kind).reshape(shape)


@implements(np.frombuffer, "host")
def frombuffer(
    buffer: Any, dtype: Any = float, count: Any = -1, offset: Any = 0, *, device: Any = None,
    like: Any = None,
) -> Any:
    """Return the array that lies in a buffer: NumPy's, over the same memory.

    Of an array of ours it is a view, and of what nobody may write an array of ours.
    """
    if is_ours(buffer):
        if not buffer.flags.c_contiguous:
            raise ValueError("ndarray is not C-contiguous")
        memory = np.empty(buffer.nbytes, np.uint8)  # nothing reads it
        shape = np.frombuffer(memory, dtype, count, offset).shape
        view = over_memory(shape, dtype, buffer, offset)
        if view is not None:
            return view
        refuse(any_keeps([buffer]), "an argument has a history")
        refuse(not may_look([buffer]), "an argument has no value here")
    found = np.frombuffer(host(buffer), dtype, count, offset)
    if found.flags.writeable and device is None and not is_ours(buffer):
        return found
    result = of_values(found, device_for(device, buffer)) if is_numeric(found.dtype) else (
        found.copy())
    result.flags.writeable = False
    return result


@implements(np.fromiter, "host")
def fromiter(
    iter: Any, dtype: Any, count: int = -1, *, device: Any = None, like: Any = None
) -> TiledArray:
    if isinstance(iter, Handle):
        return of_values(np.fromiter(host(iter), dtype, count), device_for(device, iter))
    items = list(iter if count < 0 else itertools.islice(iter, count))
    if is_recorded(items):
        return wrap(record.cast(node_of(items, device_for(device, items)), numeric(dtype)))
    return of_values(np.fromiter(items, dtype, count), device_for(device, like))


fromstring = _values_of(np.fromstring)
fromfile = _values_of(np.fromfile)
hanning = _values_of(np.hanning)
hamming = _values_of(np.hamming)
blackman = _values_of(np.blackman)
bartlett = _values_of(np.bartlett)
kaiser = _values_of(np.kaiser)
