"""`ndarray` and `ufunc` as classes that NumPy's objects and ours both are instances of."""

from __future__ import annotations

import functools
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import numpy as np

from tiledarray.api.arguments import is_ours, stand_in
from tiledarray.api.creation import filled, over_memory
from tiledarray.api.registry import implements
from tiledarray.api.ufuncs import UFunc
from tiledarray.arrays import told
from tiledarray.arrays.handle import as_dtype
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.devices.device import resolve
from tiledarray.graph.dtypes import is_numeric

_METHODS = (MethodDescriptorType, WrapperDescriptorType)


def _of_either(method: Any) -> Any:
    """Return a method of NumPy's arrays as a function of both kinds of array."""
    ours = getattr(TiledArray, method.__name__)

    @functools.wraps(method)
    def called(array: Any, /, *args: Any, **kwargs: Any) -> Any:
        return (ours if isinstance(array, TiledArray) else method)(array, *args, **kwargs)

    return called


class _ArrayType(type):
    """Makes ``isinstance(x, ndarray)`` true for both kinds of array, which its methods take."""

    def __getattribute__(cls, name: str) -> Any:
        found = super().__getattribute__(name)
        if cls is ndarray and isinstance(found, _METHODS) and hasattr(TiledArray, name) and (
                name not in told.PROTOCOLS):  # by these NumPy sees that its arrays have no others
            return _of_either(found)
        return found

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is ndarray:
            return isinstance(instance, (np.ndarray, TiledArray))
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is ndarray:
            return issubclass(subclass, (np.ndarray, TiledArray))
        return type.__subclasscheck__(cls, subclass)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not ndarray:
            return super().__call__(*args, **kwargs)
        if len(args) + len(kwargs) <= 2 and set(kwargs) <= {"shape", "dtype"}:
            shape, dtype = (*args, *kwargs.values(), float)[:2]
            shape, dtype = kwargs.get("shape", shape), kwargs.get("dtype", dtype)
            if is_numeric(as_dtype(dtype)):
                return filled(shape, 0, dtype, resolve())
        if isinstance(kwargs.get("buffer", args[2] if len(args) > 2 else None), TiledArray):
            found = over_memory(*args, **kwargs)
            if found is not None:
                return found
        return np.ndarray(*args, **kwargs)


class ndarray(np.ndarray, metaclass=_ArrayType):  # noqa: N801  NumPy's name
    """An array: `TiledArray`, or NumPy's own.

    Called, it makes a new array of ours; given a buffer, one of NumPy's, but a view of ours where
    the buffer is an array of ours (without ``strides=``).  A class derived from it is NumPy's, but
    for the functions that its protocols are handed.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        told.tell(cls)


class NDArrayOperatorsMixin(np.lib.mixins.NDArrayOperatorsMixin):
    """NumPy's operators by its ufuncs, in whose place the protocol is handed ours."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        told.tell(cls)


@implements(np.isscalar, "host")
def isscalar(element: Any) -> bool:
    # What NumPy returns as a scalar is an array without axes here.
    return (is_ours(element) and element.ndim == 0) or np.isscalar(element)


# Questions about dtypes, answered without computing what is recorded.


@implements(np.result_type, "host")
def result_type(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*map(stand_in, arrays_and_dtypes))


@implements(np.common_type, "host")
def common_type(*arrays: Any) -> Any:
    return np.common_type(*map(stand_in, arrays))


class _UFuncType(type):
    """Makes ``isinstance(f, ufunc)`` true for both kinds of ufunc."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(getattr(instance, "fallback", instance), (np.ufunc, UFunc))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (np.ufunc, UFunc))


class ufunc(metaclass=_UFuncType):  # noqa: N801  NumPy's name
    """A ufunc: one of ours, or one of NumPy's."""
