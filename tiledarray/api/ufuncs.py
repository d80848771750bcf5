"""NumPy's ufuncs, lazy: one callable object each, made from the table of ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.api.arguments import device_of, node_of
from tiledarray.arrays import by_numpy, immediate, selections
from tiledarray.arrays.handle import SCALARS, Handle, wrap
from tiledarray.arrays.protocols import array_ufunc
from tiledarray.arrays.tracing import is_tracing
from tiledarray.errors import LeaveToNumPy
from tiledarray.ops.elementwise import BY_UFUNC
from tiledarray.ops.op import Elementwise
from tiledarray.recording.record import binary, unary

# Computed by several ops or by one library node instead of one op; recorded all the same.
COMPOSED = frozenset(
    (np.divmod, np.modf, np.frexp, np.matmul, np.vecdot, np.matvec, np.vecmat)
)


class UFunc:
    """One of NumPy's ufuncs, which records instead of computing.

    It takes what NumPy's takes: arrays of either kind, scalars, lists; ``out``, ``where``,
    ``dtype``, ``casting``.  Called with Python and NumPy scalars alone it computes at once, as
    NumPy does, and returns a NumPy scalar.
    """

    def __init__(self, original: np.ufunc) -> None:
        self._original = original
        self.__name__ = self.__qualname__ = original.__name__
        self.__doc__ = original.__doc__
        self._op: Elementwise | None = BY_UFUNC.get(original)

    nin = property(lambda self: self._original.nin)
    nout = property(lambda self: self._original.nout)
    nargs = property(lambda self: self._original.nargs)
    ntypes = property(lambda self: self._original.ntypes)
    types = property(lambda self: self._original.types)
    identity = property(lambda self: self._original.identity)
    signature = property(lambda self: self._original.signature)
    __signature__ = property(lambda self: self._original.__signature__)

    @property
    def native(self) -> bool:
        """Whether kernels compute it."""
        return self._op is not None or self._original in COMPOSED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the ufunc, applied to the arguments."""
        return self._apply(args, kwargs)

    def _apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        original = self._original
        if not original.nin <= len(args) <= original.nin + original.nout:
            return original(*args, **kwargs)  # raises
        args, out = self._without_outputs(args, kwargs)
        if any(by_numpy.is_foreign(type(value)) for value in (*args, *(out or ()))):
            given = kwargs if out is None else {**kwargs, "out": out}
            return by_numpy.with_foreign(original, args, given)
        if original.nout > 1 and out is not None and _are_settled((*args, *out)):
            return by_numpy.call(self.__name__, original, args, {**kwargs, "out": out},
                                 reason="small, with outputs given")  # NumPy warns, or raises
        leading: Any = by_numpy.first_handle((args, out, kwargs.get("where")))
        if leading is None and all(isinstance(value, _PLAIN) for value in args):
            return original(*args, **kwargs) if out is None else original(*args, out=out, **kwargs)
        device = device_of(leading)
        try:
            operands = tuple(_operand(value, device) for value in args)
        except LeaveToNumPy as error:
            if out is not None:
                kwargs["out"] = out
            return by_numpy.call(self.__name__, original, args, kwargs, reason=error.reason)
        if leading is None:
            leading = by_numpy.first_handle(operands)
        result = array_ufunc(leading, original, "__call__", *operands, out=out, **kwargs)
        if result is NotImplemented:  # another library's array is among them: NumPy asks it
            return original(*args, **kwargs)
        return result

    def _without_outputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
        """Take the outputs out of the arguments; return the others by position, and them.

        They are ``None`` where nothing is said of them; one that is ``None`` is to be a new array.
        """
        original = self._original
        out = kwargs.pop("out", _NOT_GIVEN)
        if len(args) > original.nin:
            if out is not _NOT_GIVEN:
                raise TypeError("cannot specify 'out' as both a positional and keyword argument")
            given = args[original.nin:]  # of several outputs perhaps the first ones alone
            return args[:original.nin], (*given, *(None,) * (original.nout - len(given)))
        if out is _NOT_GIVEN:
            return args, None
        if out is Ellipsis:  # arrays, not scalars: as every result of ours
            return args, (None,) * original.nout
        if isinstance(out, tuple):
            return args, out
        if original.nout > 1:
            raise TypeError("'out' must be a tuple of arrays")
        return args, (out,)

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None,
               keepdims: bool = False, initial: Any = np._NoValue, where: Any = True) -> Any:
        """Reduce over axes; see `numpy.ufunc.reduce`."""
        given = {"axis": axis, "dtype": dtype, "keepdims": keepdims}
        if initial is not np._NoValue:
            given["initial"] = initial
        if where is not True:
            given["where"] = where
        return self._method("reduce", (array,), given, out)

    def accumulate(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        """Accumulate along an axis; see `numpy.ufunc.accumulate`."""
        return self._method("accumulate", (array,), {"axis": axis, "dtype": dtype}, out)

    def reduceat(self, array: Any, indices: Any, axis: Any = 0, dtype: Any = None,
                 out: Any = None) -> Any:
        """Reduce over stretches of an axis; see `numpy.ufunc.reduceat`."""
        return self._method("reduceat", (array, indices), {"axis": axis, "dtype": dtype}, out)

    def outer(self, left: Any, right: Any, /, **kwargs: Any) -> Any:
        """Apply to all pairs; see `numpy.ufunc.outer`."""
        out = kwargs.pop("out", None)
        return self._method("outer", (left, right), kwargs, out)

    def at(self, array: Any, indices: Any, *operands: Any) -> Any:
        """Apply in place at indices, repeated ones included; see `numpy.ufunc.at`."""
        if isinstance(array, Handle):
            array_ufunc(array, self._original, "at", array, indices, *operands)
            return None
        function: Any = self._original.at  # a type with a protocol of its own may return something
        return function(*by_numpy.to_host((array, indices, *operands)))

    def _method(
        self, method: str, arrays: tuple[Any, ...], options: dict[str, Any], out: Any
    ) -> Any:
        if out is not None and not isinstance(out, tuple):
            out = (out,)
        function = getattr(self._original, method)
        if any(by_numpy.is_foreign(type(value)) for value in (*arrays, *(out or ()))):
            given = {name: value for name, value in options.items()
                     if value is not _DEFAULTS.get(name, _NOT_GIVEN)}
            return by_numpy.with_foreign(
                function, arrays, given if out is None else {**given, "out": out})
        leading, reason = by_numpy.first_handle((arrays, out)), ""
        if self._op is not None and method != "reduceat":
            try:
                device = device_of(leading)
                arrays = tuple(_operand(value, device) for value in arrays)
                leading = by_numpy.first_handle((arrays, out))
            except LeaveToNumPy as error:
                leading, reason = None, error.reason
            if leading is not None:
                return array_ufunc(leading, self._original, method, *arrays, out=out, **options)
        if out is not None:
            options = {**options, "out": out}
        name = f"{self.__name__}.{method}"
        return by_numpy.call(name, function, arrays, options, reason=reason)

    def resolve_dtypes(self, *args: Any, **kwargs: Any) -> Any:
        """Return the dtypes of the loop; see `numpy.ufunc.resolve_dtypes`."""
        return self._original.resolve_dtypes(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<ufunc '{self.__name__}'>"

    # Types with a protocol of their own are handed NumPy's ufunc, and may have been told of ours.
    def __eq__(self, other: object) -> bool:
        return self is other or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> tuple[Any, ...]:
        return ufunc_of, (self._original,)


class _Unary(UFunc):
    """A ufunc of one operand: the short way for an array of ours."""

    _op: Elementwise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], Handle) and not (
                selections.selection(args[0])):
            array = args[0]
            try:
                return wrap(unary(self._op, array._node if array._base is None else array.node))
            except LeaveToNumPy as error:
                reason = error.reason
            return by_numpy.call(self.__name__, self._original, args, reason=reason)
        return self._apply(args, kwargs)


class _Binary(UFunc):
    """A ufunc of two operands: the short way for arrays of ours and Python scalars."""

    _op: Elementwise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 2 or kwargs or any(map(selections.selection, args)):
            return self._apply(args, kwargs)
        left, right = args
        if isinstance(left, Handle):
            left = left._node if left._base is None else left.node
            if isinstance(right, Handle):
                right = right._node if right._base is None else right.node
            elif type(right) not in SCALARS:
                return self._apply(args, kwargs)
        elif isinstance(right, Handle) and type(left) in SCALARS:
            right = right.node
        else:
            return self._apply(args, kwargs)
        try:
            return wrap(binary(self._op, left, right))
        except LeaveToNumPy as error:
            reason = error.reason
        return by_numpy.call(self.__name__, self._original, args, reason=reason)


_PLAIN = (bool, int, float, complex, np.generic)
_NOT_GIVEN = object()
_DEFAULTS = {"axis": 0, "dtype": None, "keepdims": False}  # which other types are not told of


def _are_settled(values: tuple[Any, ...]) -> bool:
    """Whether all arrays of ours are small and have values of NumPy's, so that it is to compute."""
    arrays = [value for value in values if isinstance(value, Handle)]
    return bool(arrays) and not is_tracing() and all(
        array._array is not None and array.size <= config.at_once for array in arrays)


def _operand(value: Any, device: Any) -> Any:
    """Return an operand as `array_ufunc` takes it: an array of ours, or a scalar."""
    if isinstance(value, (Handle, *_PLAIN)):
        return value
    return wrap(node_of(value, device))


def _make(original: np.ufunc) -> UFunc:
    if original in BY_UFUNC and original.nout == 1 and original.nin <= 2:
        return _Unary(original) if original.nin == 1 else _Binary(original)
    return UFunc(original)


def _all_ufuncs() -> dict[str, Any]:
    """Return every ufunc of NumPy's namespace by its names there; aliases are one object."""
    made: dict[np.ufunc, Any] = {}
    names = {}
    for name, original in vars(np).items():
        if isinstance(original, np.ufunc) and not name.startswith("_"):
            if original not in made:
                made[original] = immediate.ufunc(original, _make(original))
            names[name] = made[original]
    return names


BY_NAME: dict[str, Any] = _all_ufuncs()


def ufunc_of(original: np.ufunc) -> Any:
    """Return ours for one of NumPy's ufuncs."""
    return BY_NAME[original.__name__]
