"""The user's own classes with NumPy's protocols are handed the functions that their module knows.

NumPy hands its own function to ``__array_ufunc__`` and ``__array_function__``.  In a module where
``np`` is this package, ``func is np.sum`` would never be true then.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

_PACKAGE = __name__.partition(".")[0]
PROTOCOLS = ("__array_ufunc__", "__array_function__")


@functools.lru_cache(maxsize=1024)
def tell(kind: type) -> None:
    """Have the protocols of a class handed our functions, where it was written for them.

    Those of libraries, and of modules that have NumPy itself as well, are left as they are.
    """
    for cls in kind.__mro__:
        for name in PROTOCOLS:
            method = vars(cls).get(name)
            if isinstance(method, FunctionType) and _knows_ours(method):
                setattr(cls, name, _handed_ours(method))


def tell_all(values: Any) -> None:
    """Tell the classes of nested arguments."""
    if type(values) is dict:
        values = [*values.values()]
    if type(values) not in (tuple, list):
        values = (values,)
    kinds: set[Any] = {*map(type, values)}  # quick for long ones
    if kinds.isdisjoint((tuple, list, dict)):
        for kind in kinds:
            tell(kind)
    else:
        for value in values:
            tell_all(value)


def _knows_ours(method: FunctionType) -> bool:
    """Whether a function's module has functions of ours, or this package, and not NumPy."""
    known = [*method.__globals__.values()]
    if any(value is np for value in known):
        return False
    return any(
        (value.__name__ if isinstance(value, ModuleType) else
         str(getattr(type(value), "__module__", ""))).partition(".")[0] == _PACKAGE
        for value in known
    )


def _handed_ours(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def protocol(self: Any, function: Any, *rest: Any, **options: Any) -> Any:
        return method(self, ours_for(function), *rest, **options)

    return protocol


@functools.lru_cache(maxsize=1024)
def ours_for(function: Any) -> Any:
    """Return what stands for one of NumPy's functions in our namespace, else the function."""
    module = "" if isinstance(function, np.ufunc) else function.__module__
    theirs: Any = np
    ours: Any = sys.modules[_PACKAGE]
    for name in f"{module}.{function.__name__}".removeprefix("numpy").lstrip(".").split("."):
        theirs, ours = getattr(theirs, name, None), getattr(ours, name, None)
    return ours if theirs is function else function  # scipy.special has a log1p of its own
