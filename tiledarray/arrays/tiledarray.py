"""`TiledArray`: NumPy's ndarray, recorded."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.arrays import (
    copying,
    lending,
    looking,
    operators,
    protocols,
    recorded,
    reducing,
    selections,
    settled,
    shaping,
    views,
)
from tiledarray.arrays.handle import (
    Handle,
    as_node,
    host_array,
    part_of,
    scalar,
    stands_for_scalar,
    taken_out,
    use_class,
    view_of,
    wrap,
)
from tiledarray.arrays.immediate import attribute, method
from tiledarray.arrays.layout import Flags, FlatIterator
from tiledarray.arrays.tracing import check_own
from tiledarray.core import LIBRARY, PRODUCT, READS, SHARED, WRITES
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import is_numeric
from tiledarray.recording import record
from tiledarray.recording.stretch import local

__all__ = ["TiledArray", "from_host", "host_array", "wrap"]


# Packages that ask `isinstance(x, numpy.ndarray)` of what they could as well work with, and write
# into something else, or refuse it, where that says no.  (Others hand what says yes to functions in
# C that take NumPy's alone: pandas.)
_AS_NUMPYS = frozenset(("scipy", "sklearn"))

# By the identity of what owns a value in place of the user's array: that array (`become_view`).
_in_front: dict[int, weakref.ref[TiledArray]] = {}


def _part(array: Any, place: int) -> Any:
    part = view_of(array, views.Part(place))
    return wrap(part.node) if stands_for_scalar(array) else part


def _real(array: Any) -> Any:
    return array if array.dtype.kind != "c" else _part(array, 0)


def _imag(array: Any) -> Any:
    return _part(array, 1)


_REAL, _IMAG = attribute("real", _real), attribute("imag", _imag)


def _set_part(array: Any, place: int, value: Any) -> None:
    if stands_for_scalar(array):
        part_of(array, views.Part(place)).store(value)
    else:
        part = (_IMAG if place else _REAL)(array)
        part[...] = value if isinstance(value, Handle) else np.asarray(value)


def _of_scalar(name: str) -> Any:
    """Return an attribute that is there where NumPy would have a scalar which has it."""

    def get(array: TiledArray) -> Any:
        if not stands_for_scalar(array) or not hasattr(array.dtype.type, name):
            raise AttributeError(f"'TiledArray' object has no attribute {name!r}")
        return getattr(taken_out(array, name)[()], name)

    return property(get, None, None, f"`{name}` of NumPy's scalars; only elements have it.")


class TiledArray(Handle):
    """An array whose value is recorded, and computed when it is looked at.

    It has the attributes, methods, operators and views of `numpy.ndarray`, and takes part in
    NumPy's protocols: ``np.exp(x)`` records.  Made by the functions of this package.  What differs
    from NumPy:

    - every array that owns its value is row-major;
    - where NumPy returns a scalar there is an array without axes.  It converts as a scalar does
      and is one to `isscalar`; ``x += 1`` makes a new one, so what else refers to the old one
      keeps it;
    - such an array has the hash of its value, so that it finds that in a dict or a set;
    - ``ravel("K")`` and results of NumPy's order "K" are row-major where NumPy keeps the operands'
      order in memory; there are no floating-point warnings, and `errstate` changes nothing;
    - reading ``a[mask]`` computes the mask, since the result's shape depends on it.
    """

    __slots__ = ()
    __array_priority__ = 1000.0

    # What it is --------------------------------------------------------------------------------

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
        """Bytes from one element to the next along each axis, as NumPy's array would have them.

        They decide which reshapes are views, and `as_strided` takes them; no memory here need lie
        like that, and ``numpy.asarray(x)`` is a dense copy.

        Returns
        -------
        tuple of int
            One for each axis; negative along what is reversed, 0 along what is broadcast.

        Examples
        --------
        >>> import tiledarray as np
        >>> np.zeros((4, 6))[::2, ::-1].strides
        (96, -8)
        """
        base = self.origin()
        scope = local.recorder.scope
        if scope is not None:
            scope.asked.add(id(base))
        return views.strides_of(base._node.shape, base._node.dtype.itemsize, self.steps)

    @property
    def device(self) -> Any:
        """Where the array lives, and its value is computed.

        Returns
        -------
        Device
            Its text is what `to` takes: ``"cpu"``, ``"cuda:0"``.
        """
        chosen = selections.of_array(self)
        return self.node.device if chosen is None else chosen.full.device

    @property
    def base(self) -> Any:
        """The array that this one is a view of, ``None`` if it owns its value."""
        if self._base is None:
            return None
        root = self.origin()
        known = _in_front.get(id(root))
        front = None if known is None else known()
        if front is None or front.origin() is not root:
            return root
        return None if front is self else front

    @property
    def flags(self) -> Flags:
        """Memory layout, as NumPy's array would have it; ``flags.writeable`` can be assigned."""
        return Flags(self)

    def set_writable(self, writable: bool) -> None:
        """Make the array read-only, or writable again; ``x.flags.writeable = ...`` does so.

        Parameters
        ----------
        writable : bool
            Of this array and the views taken from it later; those that exist stay as they are.

        Raises
        ------
        ValueError
            If it is to be writable, and is a view of what is not.

        Examples
        --------
        >>> import tiledarray as np
        >>> x = np.zeros(3)
        >>> x.set_writable(False)
        >>> x[0] = 1
        Traceback (most recent call last):
        ...
        ValueError: assignment destination is read-only
        """
        check_own(self)
        if not writable and self._base is None:
            self.become_view()
        if not writable:
            self._steps = views.extend(self._steps, views.Frozen())
        elif views.is_frozen(self.steps[:-1]):
            raise ValueError("cannot set WRITEABLE flag to True of this array")
        elif views.is_frozen(self.steps):
            self._steps = self._steps[:-1]

    def become_view(self) -> None:
        """Make the array a view of what it was: its own views find that by `origin`.

        To the user it still is what owns the value.
        """
        while self._base is None:  # a handler, or another thread, may be before
            try:
                base = wrap(self._node)
            except AttributeError:
                if self.origin() is self:
                    raise
                return
            key = id(base)
            _in_front[key] = weakref.ref(self, functools.partial(_in_front.pop, key))
            if core.move_below(self, base):
                return
            _in_front.pop(key, None)

    data: Any = property(
        lending.memory, None, None,
        "The memory of the elements; of a copy, read-only, where it cannot be lent.")
    ctypes: Any = property(
        lending.for_c, None, None,
        "What hands the elements to C; not there of an array that has no memory on the host.")

    # Parts of it -------------------------------------------------------------------------------

    @property
    def mT(self) -> TiledArray:  # noqa: N802  NumPy's name
        """View with the last two axes exchanged.

        Raises
        ------
        ValueError
            If there are fewer than two axes.
        """
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self.swapaxes(-1, -2)

    def _set_real(self, value: Any) -> None:
        _set_part(self, 0, value)

    real: Any = property(_REAL, _set_real, None, "Real part: a view.")

    @property
    def imag(self) -> TiledArray:
        """Imaginary part: a view; read-only zeros for a real array."""
        if self.dtype.kind != "c" and stands_for_scalar(self):
            return scalar(self.dtype.type(0), self.device)
        if self.dtype.kind != "c":
            zeros = wrap(record.full(self.shape, 0, self.dtype, self.device))
            return view_of(zeros, views.Frozen())
        return _IMAG(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        _set_part(self, 1, value)

    @property
    def flat(self) -> FlatIterator:
        """The elements in row-major order."""
        return FlatIterator(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        if isinstance(value, TiledArray) and value._base is not None and (
                self.flags.f_contiguous and not value.flags.f_contiguous):
            value = wrap(value.node)  # NumPy copies it, so that it is read as it was
        if np.size(value) or not self.flags.writeable:  # nothing repeated is nothing
            FlatIterator(self)[:] = value

    def __reversed__(self) -> Iterator[Any]:
        """Yield what iteration yields, from the end."""
        return iter(self[::-1])

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # Methods: their functions say what they do ------------------------------------------------

    reshape = method("reshape", shaping.reshape)
    ravel = method("ravel", shaping.ravel)
    flatten = method("flatten", shaping.flatten)
    transpose = method("transpose", shaping.transpose)
    swapaxes = method("swapaxes", shaping.swapaxes)
    squeeze = method("squeeze", shaping.squeeze)
    diagonal = method("diagonal", shaping.diagonal)
    trace = method("trace", shaping.trace)
    view = method("view", shaping.view)

    copy = method("copy", copying.copy)
    __copy__ = copying.copy
    __deepcopy__ = copying.deep_copy
    astype = method("astype", copying.astype)
    fill = method("fill", copying.fill, WRITES)
    sort = method("sort", copying.sort, WRITES)
    argsort = method("argsort", copying.argsort, LIBRARY | SHARED)
    partition = method("partition", copying.partition, WRITES)
    conj = conjugate = method("conj", copying.conj)
    clip = method("clip", copying.clip)
    dot = method("dot", copying.dot, LIBRARY | PRODUCT)
    resize = copying.resize
    put = method("put", copying.put, WRITES)
    setflags = copying.setflags
    byteswap = copying.byteswap
    getfield = copying.getfield
    setfield = copying.setfield
    to = copying.to
    to_device = copying.to_device
    take = method("take", copying.as_function("take"))
    repeat = method("repeat", copying.as_function("repeat"))
    nonzero = method("nonzero", copying.as_function("nonzero"), LIBRARY)
    round = method("round", copying.as_function("round"))
    searchsorted = method("searchsorted", copying.as_function("searchsorted"), LIBRARY | SHARED)
    compress = method("compress", copying.compress)
    choose = method("choose", copying.choose)
    argpartition = method(
        "argpartition", copying.as_function("argpartition"), LIBRARY | SHARED)

    sum = method("sum", reducing.method("sum", reducing.sum))
    prod = method("prod", reducing.method("prod", reducing.prod))
    min = method("min", reducing.method("min", reducing.min))
    max = method("max", reducing.method("max", reducing.max))
    all = method("all", reducing.method("all", reducing.all))
    any = method("any", reducing.method("any", reducing.any))
    mean = method("mean", reducing.method("mean", reducing.mean))
    var = method("var", reducing.method("var", reducing.var))
    std = method("std", reducing.method("std", reducing.std))
    argmin = method("argmin", reducing.method("argmin", reducing.argmin))
    argmax = method("argmax", reducing.method("argmax", reducing.argmax))
    cumsum = method("cumsum", reducing.method("cumsum", reducing.cumsum))
    cumprod = method("cumprod", reducing.method("cumprod", reducing.cumprod))

    numpy = looking.numpy
    cupy = looking.cupy
    item = method("item", looking.item, READS)
    tolist = method("tolist", looking.tolist, READS)
    tobytes = method("tobytes", looking.tobytes, READS)
    tofile = looking.tofile
    dump = looking.dump
    dumps = looking.dumps
    __trunc__ = looking.to_truncated
    __bytes__ = looking.to_bytes
    __complex__ = looking.to_complex
    __round__ = looking.to_rounded
    __repr__ = looking.to_repr
    __str__ = looking.to_str
    __format__ = looking.to_format

    def __conform__(self, protocol: Any) -> Any:
        """Give `sqlite3` the number that a scalar is; of other arrays it stores the bytes."""
        return None if self.ndim else self.item()
    __reduce__ = looking.to_pickle
    __dlpack__ = looking.to_dlpack
    __dlpack_device__ = looking.dlpack_device

    is_integer = _of_scalar("is_integer")
    as_integer_ratio = _of_scalar("as_integer_ratio")
    hex = _of_scalar("hex")
    bit_count = _of_scalar("bit_count")
    numerator = _of_scalar("numerator")
    denominator = _of_scalar("denominator")

    __divmod__, __rdivmod__ = operators.divmod_pair()

    # NumPy's protocols -------------------------------------------------------------------------

    __array_function__ = protocols.array_function

    __array_interface__ = property(
        lending.interface, None, None, "Where the elements lie in memory, which others may write.")

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return this package (array API)."""
        return sys.modules[__name__.partition(".")[0]]

    __array__ = lending.array


def from_host(array: Any, device: Any = None) -> TiledArray:
    """Return a copy of a NumPy array, on the device that is current or the one given."""
    device = resolve() if device is None else device
    array = np.asarray(array)
    if not array.ndim and is_numeric(array.dtype):
        return wrap(as_node(array, device))
    return wrap(record.leaf(device.wrap(array, copy=True)))


use_class(TiledArray)
core.install(
    TiledArray, {**recorded.FUNCTIONS, **settled.CALLBACKS},
    {"transposed": (shaping.transpose, (), None, None), "as_numpys": _AS_NUMPYS})
