"""Which of NumPy's functions are ours, and how each does its work.

`implements` enters a function in the table by which NumPy's own functions, called with arrays of
ours, find it; gives it NumPy's name and documentation; and hands the call to NumPy itself where
the function says, by raising `LeaveToNumPy`, that it cannot do it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal

from tiledarray.arrays import by_numpy, immediate
from tiledarray.arrays.protocols import FUNCTIONS

Function = Callable[..., Any]
Kind = Literal["native", "library", "host", "fallback"]

# Public name ("linalg.solve") -> how it works.  "native": recorded ops that fuse; "library": a
# recorded node that is a kernel of its own; "host": NumPy makes the values, known to be enough;
# "fallback": NumPy on host copies, for want of something better.
KINDS: dict[str, Kind] = {}


def public_name(original: Function) -> str:
    """Return the name of a NumPy function below ``numpy.``."""
    module = (getattr(original, "__module__", None) or "numpy").removeprefix("numpy")
    return f"{module}.{getattr(original, '__name__', '')}".lstrip(".")


def stand_for(original: Function, function: Function) -> None:
    """Give a function NumPy's name, documentation and, for `help`, signature.

    What `numpy.ndarray.__array_function__` calls, NumPy's arrays keep.
    """
    function.__name__ = function.__qualname__ = original.__name__
    function.__doc__ = original.__doc__
    vars(function).update(
        __wrapped__=original, _implementation=getattr(original, "_implementation", original))


def with_names(function: Any, names: dict[str, Any]) -> FunctionType:
    """Return a function of NumPy's that is in Python, in a module with other names."""
    code = getattr(function, "_implementation", function)
    again = FunctionType(
        code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
    again.__kwdefaults__ = code.__kwdefaults__
    return again


def implements(original: Function, kind: Kind = "native") -> Callable[[Function], Function]:
    """Make a function stand for one of NumPy's.

    Parameters
    ----------
    original : callable
        NumPy's function: its name and documentation are taken over.
    kind : {"native", "library", "host", "fallback"}
        See `KINDS`.
    """
    name = public_name(original)

    def decorate(function: Function) -> Function:
        recorded = by_numpy.or_numpy(name, original, function)
        stand_for(original, recorded)
        recorded.__module__ = function.__module__
        public = immediate.function(name, original, recorded, kind)
        KINDS[name] = kind
        FUNCTIONS[original] = public
        return public

    return decorate
