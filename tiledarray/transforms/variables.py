"""Where a function finds the arrays that are not its arguments.

A name can be bound to another array at any time, so what `jit` remembers of such an array is the
way to it: a variable of the enclosing function or of the module, an attribute, an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from tiledarray.arrays.handle import Handle

DEPTH = 4  # functions that call one another, attributes of attributes
MOST = 10_000  # values looked at
_LIBRARIES = frozenset(("tiledarray", "numpy", "scipy", "cupy", "jax", "torch", "builtins"))

Arguments = tuple[Any, ...]
Way = Callable[[Arguments], Any]


class Variable(NamedTuple):
    """An array, and the way to what stands in its place later; it raises where nothing does."""

    handle: Handle
    way: Way


def variables_of(function: Any, arguments: Arguments) -> list[Variable]:
    """Return the arrays that the function can reach by names of its own, not as arguments.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Those given by position; attributes of objects among them are looked at.
    """
    return list(_Search().run(function, arguments))


class _Search:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # so that no id comes twice

    def run(self, function: Any, arguments: Arguments) -> Iterator[Variable]:
        names: set[str] = set()
        yield from self._function(function, lambda given: function, names, DEPTH)
        for place, value in enumerate(arguments):
            if not isinstance(value, (Handle, list, tuple, dict)):
                yield from self._value(value, _item(_arguments, place), names, DEPTH)

    def _function(self, function: Any, way: Way, names: set[str], depth: int) -> Iterator[Variable]:
        if isinstance(function, MethodType):
            names |= _names(function.__func__.__code__) if hasattr(
                function.__func__, "__code__") else set()
            yield from self._value(function.__self__, _attribute(way, "__self__"), names, depth)
            function, way = function.__func__, _attribute(way, "__func__")
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None and self._new(wrapped):
            yield from self._function(wrapped, _attribute(way, "__wrapped__"), names, depth - 1)
        if not isinstance(function, FunctionType) or depth < 0:
            return
        own = _names(function.__code__)
        names |= own
        for cell in function.__closure__ or ():
            yield from self._value(_content(cell), _cell(cell), names, depth)
        for name in own & function.__globals__.keys():
            yield from self._value(
                function.__globals__[name], _global(function.__globals__, name), names, depth)
        for k, value in enumerate(function.__defaults__ or ()):
            yield from self._value(value, _item(_attribute(way, "__defaults__"), k), names, depth)
        for key, value in (function.__kwdefaults__ or {}).items():
            yield from self._value(
                value, _item(_attribute(way, "__kwdefaults__"), key), names, depth)

    def _value(self, value: Any, way: Way, names: set[str], depth: int) -> Iterator[Variable]:
        if isinstance(value, Handle):
            yield Variable(value, way)
            return
        if depth < 0 or not self._new(value):
            return
        if isinstance(value, (FunctionType, MethodType)):
            if (value.__module__ or "").partition(".")[0] not in _LIBRARIES:
                yield from self._function(value, way, names, depth - 1)
        elif isinstance(value, dict):
            for key, part in [*value.items()]:
                yield from self._value(part, _item(way, key), names, depth - 1)
        elif isinstance(value, (list, tuple)):
            for k, part in enumerate([*value]):
                yield from self._value(part, _item(way, k), names, depth - 1)
        elif isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                yield from self._attributes(value, way, names, depth)
        elif not isinstance(value, BuiltinFunctionType):
            yield from self._attributes(value, way, names, depth)

    def _attributes(self, value: Any, way: Way, names: set[str], depth: int) -> Iterator[Variable]:
        held = getattr(value, "__dict__", None)
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in names & {*(held or ()), *slots}:
            part = getattr(value, name, None)
            yield from self._value(part, _attribute(way, name), names, depth - 1)
        call = vars(type(value)).get("__call__")
        if isinstance(call, FunctionType):
            yield from self._function(MethodType(call, value), way, names, depth - 1)

    def _new(self, value: Any) -> bool:
        if id(value) in self.seen or len(self.seen) > MOST:
            return False
        self.seen.add(id(value))
        self.kept.append(value)
        return True


def _names(code: CodeType) -> set[str]:
    """Names that a function's code, and that of functions inside it, may look up."""
    found = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been bound to it yet
        return None


def _arguments(given: Arguments) -> Any:
    return given


def _cell(cell: CellType) -> Way:
    return lambda given: cell.cell_contents


def _global(variables: dict[str, Any], name: str) -> Way:
    return lambda given: variables[name]


def _attribute(way: Way, name: str) -> Way:
    return lambda given: getattr(way(given), name)


def _item(way: Way, key: Any) -> Way:
    return lambda given: way(given)[key]
