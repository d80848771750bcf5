"""`TiledArray`: NumPy's ndarray, recorded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray.arrays import (
    by_numpy,
    copying,
    index,
    looking,
    operators,
    protocols,
    reducing,
    shaping,
    views,
)
from tiledarray.arrays.handle import (
    SCALARS,
    Handle,
    as_node,
    fitting,
    host_array,
    part_of,
    use_class,
    view_of,
    wrap,
)
from tiledarray.arrays.layout import Flags, FlatIterator
from tiledarray.arrays.tracing import check_own
from tiledarray.devices.device import resolve
from tiledarray.errors import LeaveToNumPy
from tiledarray.graph.dtypes import is_numeric
from tiledarray.ops.selection import where as where_op
from tiledarray.recording import at_once, record

_FIRST_USER_DTYPE = 256  # NPY_USERDEF: dtypes that NumPy's protocols cannot name

# Packages that read `__array_interface__` themselves, and hand no array of ours to NumPy.
_READ_THE_INTERFACE = frozenset(("PIL",))

__all__ = ["TiledArray", "from_host", "host_array", "wrap"]


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
    - ``strides`` are those of a dense array, for a view too; see `view_strides`;
    - ``ravel("K")`` and results of NumPy's order "K" are row-major where NumPy keeps the operands'
      order in memory; there are no floating-point warnings, and `errstate` changes nothing;
    - reading ``a[mask]`` computes the mask, since the result's shape depends on it.
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
        """Bytes from one element to the next along each axis, as NumPy's array would have them.

        They decide which reshapes are views; no memory here need lie like that.

        Returns
        -------
        tuple of int
            One for each axis; negative along what is reversed, 0 along what is broadcast.

        Examples
        --------
        >>> import tiledarray as np
        >>> x = np.zeros((4, 6))[::2, ::-1]
        >>> x.view_strides, x.strides
        ((96, -8), (48, 8))
        """
        base = self.origin()
        return views.strides_of(base._node.shape, base._node.dtype.itemsize, self.steps)

    @property
    def device(self) -> Any:
        """Where the array lives, and its value is computed.

        Returns
        -------
        Device
            Its text is what `to` takes: ``"cpu"``, ``"cuda:0"``.
        """
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
        """Not there: C code could write into memory that other arrays share.

        Raises
        ------
        AttributeError
            Always.
        """
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
        """View with the last two axes exchanged.

        Raises
        ------
        ValueError
            If there are fewer than two axes.
        """
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
        (self if self.dtype.kind != "c" else part_of(self, views.Part(0))).store(value)

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
        part_of(self, views.Part(1)).store(value)

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
        """Yield the views along the first axis; of an array with one axis, NumPy's scalars.

        Raises
        ------
        TypeError
            If the array has no axes.
        """
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        if self.ndim == 1:
            return self._elements()
        return (self[place] for place in range(self.shape[0]))

    def _elements(self) -> Iterator[Any]:
        """Yield NumPy's scalars; each is what it is by then, as in NumPy."""
        root, node = self.origin(), None
        for place in range(self.shape[0]):
            if root._node is not node:
                array = host_array(self)
                root = self.origin()
                node = root._node
            yield array[place]

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
        if not step.shape and type(value) not in SCALARS:
            index.check_element(key, kind, value)
        root = self.origin()
        steps = views.extend(self.steps, step)
        if isinstance(value, Handle) and value.origin() is root and value.steps == steps:
            return  # the second half of `a[key] += b`: written already
        try:
            new = fitting(value, step.shape, kind.dtype, kind.device)
        except LeaveToNumPy as error:
            self._put_by_numpy(key, value, error.reason)
            return
        part_of(self, step).assign(new)

    def __delitem__(self, key: Any) -> None:
        raise ValueError("cannot delete array elements")

    def _take(self, key: tuple[Any, ...]) -> Any:
        node = self.node
        try:
            found = index.places(
                key, node.shape, lambda array: as_node(array, node.device), _nonzero
            )
        except LeaveToNumPy as error:
            reason = error.reason
            return by_numpy.call("getitem", np.ndarray.__getitem__, (self, key), reason=reason)
        return wrap(index.take(record.view(node, *found.before), found))

    def _put(self, key: tuple[Any, ...], value: Any) -> None:
        node = self.node
        try:
            if self._put_by_mask(key, value):
                return
            found = index.places(
                key, node.shape, lambda array: as_node(array, node.device), _nonzero
            )
            if type(value) not in SCALARS:
                index.check_values(key, found.shape, node.shape, np.shape(value))
            new = fitting(value, found.shape, node.dtype, node.device, checked=False)
        except LeaveToNumPy as error:
            self._put_by_numpy(key, value, error.reason)
            return
        part = part_of(self, found.before)
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
        new = fitting(value, (), node.dtype, node.device, checked=False)
        if 0 in mask.shape:
            return True
        condition = as_node(mask, node.device)
        condition = record.reshape(condition, mask.shape + (1,) * (self.ndim - mask.ndim))
        self.assign(record.elementwise(where_op, condition, new, node))
        return True

    def _put_by_numpy(self, key: tuple[Any, ...], value: Any, reason: str) -> None:
        by_numpy.call("setitem", np.ndarray.__setitem__, (self, key, value), reason=reason)

    # Methods: their functions say what they do ------------------------------------------------

    reshape = shaping.reshape
    ravel = shaping.ravel
    flatten = shaping.flatten
    transpose = shaping.transpose
    swapaxes = shaping.swapaxes
    squeeze = shaping.squeeze
    diagonal = shaping.diagonal
    trace = shaping.trace
    view = shaping.view

    copy = __copy__ = copying.copy
    __deepcopy__ = copying.deep_copy
    astype = copying.astype
    fill = copying.fill
    sort = copying.sort
    argsort = copying.argsort
    partition = copying.partition
    conj = conjugate = copying.conj
    clip = copying.clip
    dot = copying.dot
    resize = copying.resize
    put = copying.put
    setflags = copying.setflags
    byteswap = copying.byteswap
    getfield = copying.getfield
    setfield = copying.setfield
    to = copying.to
    to_device = copying.to_device
    take = copying.as_function("take")
    repeat = copying.as_function("repeat")
    nonzero = copying.as_function("nonzero")
    round = copying.as_function("round")
    searchsorted = copying.as_function("searchsorted")
    compress = copying.compress
    choose = copying.as_function("choose")
    argpartition = copying.as_function("argpartition")

    sum = reducing.method("sum", reducing.sum)
    prod = reducing.method("prod", reducing.prod)
    min = reducing.method("min", reducing.min)
    max = reducing.method("max", reducing.max)
    all = reducing.method("all", reducing.all)
    any = reducing.method("any", reducing.any)
    mean = reducing.method("mean", reducing.mean)
    var = reducing.method("var", reducing.var)
    std = reducing.method("std", reducing.std)
    argmin = reducing.method("argmin", reducing.argmin)
    argmax = reducing.method("argmax", reducing.argmax)
    cumsum = reducing.method("cumsum", reducing.cumsum)
    cumprod = reducing.method("cumprod", reducing.cumprod)

    numpy = looking.numpy
    cupy = looking.cupy
    item = looking.item
    tolist = looking.tolist
    tobytes = looking.tobytes
    tofile = looking.tofile
    dump = looking.dump
    dumps = looking.dumps
    __float__ = looking.to_float
    __int__ = looking.to_int
    __trunc__ = looking.to_truncated
    __complex__ = looking.to_complex
    __index__ = looking.to_index
    __bool__ = looking.to_bool
    __round__ = looking.to_rounded
    __repr__ = looking.to_repr
    __str__ = looking.to_str
    __format__ = looking.to_format
    __reduce__ = looking.to_pickle
    __dlpack__ = looking.to_dlpack
    __dlpack_device__ = looking.dlpack_device

    # Operators ---------------------------------------------------------------------------------

    __add__, __radd__, __iadd__ = operators.arithmetic("add", "add")
    __sub__, __rsub__, __isub__ = operators.arithmetic("sub", "subtract")
    __mul__, __rmul__, __imul__ = operators.arithmetic("mul", "multiply")
    __truediv__, __rtruediv__, __itruediv__ = operators.arithmetic("truediv", "divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = operators.arithmetic("floordiv", "floor_divide")
    __mod__, __rmod__, __imod__ = operators.arithmetic("mod", "remainder")
    __pow__, __rpow__, __ipow__ = operators.powers()
    __and__, __rand__, __iand__ = operators.arithmetic("and", "bitwise_and")
    __or__, __ror__, __ior__ = operators.arithmetic("or", "bitwise_or")
    __xor__, __rxor__, __ixor__ = operators.arithmetic("xor", "bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = operators.arithmetic("lshift", "left_shift")
    __rshift__, __rrshift__, __irshift__ = operators.arithmetic("rshift", "right_shift")
    __divmod__, __rdivmod__ = operators.divmod_pair()
    __matmul__, __rmatmul__, __imatmul__ = operators.matrix_products()
    __lt__ = operators.comparison("lt", "less")
    __le__ = operators.comparison("le", "less_equal")
    __gt__ = operators.comparison("gt", "greater")
    __ge__ = operators.comparison("ge", "greater_equal")
    __eq__ = operators.comparison("eq", "equal")
    __ne__ = operators.comparison("ne", "not_equal")
    __hash__ = looking.to_hash  # of one element; others have none
    __neg__ = operators.unary_operator("neg", "negative")
    __pos__ = operators.unary_operator("pos", "positive")
    __abs__ = operators.unary_operator("abs", "absolute")
    __invert__ = operators.unary_operator("invert", "invert")

    # NumPy's protocols -------------------------------------------------------------------------

    __array_ufunc__ = protocols.array_ufunc
    __array_function__ = protocols.array_function

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Memory of a copy, for the libraries that read this attribute instead of asking NumPy.

        NumPy asks `__array__`, which knows ``copy`` and every dtype, only if this is missing: so
        it is, except to PIL.

        Raises
        ------
        AttributeError
            For others than PIL, and for a dtype that the protocol cannot name.
        """
        package, _, _ = sys._getframe(1).f_globals.get("__name__", "").partition(".")
        if package not in _READ_THE_INTERFACE or self.dtype.num >= _FIRST_USER_DTYPE:
            raise AttributeError("TiledArray has no attribute '__array_interface__'")
        host = self.numpy()
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
    array = np.asarray(array)
    if not array.ndim and is_numeric(array.dtype):
        return wrap(as_node(array, device))
    return wrap(record.leaf(device.wrap(array, copy=True)))


use_class(TiledArray)
