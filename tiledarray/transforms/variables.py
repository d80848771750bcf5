"""Where a function finds the arrays and numbers that are not its arguments.

A name can be bound to another array at any time, so what `jit` remembers of such an array is the
way to it: a variable of the enclosing function or of the module, an attribute, an item.  What it
has recorded holds as long as the numbers (and texts) behind names are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from tiledarray.arrays.handle import Handle

DEPTH = 4  # functions that call one another, attributes of attributes
MOST = 10_000  # values looked at
_LIBRARIES = frozenset(("tiledarray", "numpy", "scipy", "cupy", "jax", "torch", "builtins"))

_NUMBERS = (bool, int, float, complex, str, np.generic)

Arguments = tuple[Any, ...]
Way = Callable[[Arguments], Any]


class Place(NamedTuple):
    """Where a value is found: its name, what finds it later, what puts another there.

    ``way`` raises where nothing is found any more; ``put`` is missing where nothing can be put.
    """

    name: str
    way: Way
    put: Callable[[Any], None] | None = None

    def attribute(self, holder: Any, name: str) -> Place:
        """The place of an attribute of what is here."""
        return Place(f"{self.name}.{name}", lambda given: getattr(self.way(given), name),
                     lambda value: setattr(holder, name, value))

    def item(self, holder: Any, key: Any) -> Place:
        """The place of an item of what is here."""
        put = None if isinstance(holder, tuple) else lambda value: holder.__setitem__(key, value)
        return Place(f"{self.name}[{key!r}]", lambda given: self.way(given)[key], put)


class Variable(NamedTuple):
    """An array and the place where it was found."""

    handle: Handle
    place: Place


class Number(NamedTuple):
    """A number, or a text, and the place where it was found."""

    value: Any
    place: Place

    def is_there(self, arguments: Arguments) -> bool:
        """Whether the place holds the same, of the same type and sign."""
        try:
            now = self.place.way(arguments)
        except (AttributeError, LookupError, ValueError):
            return False
        return now is self.value or (
            type(now) is type(self.value) and repr(now) == repr(self.value))


def variables_of(function: Any, arguments: Arguments) -> tuple[list[Variable], list[Number]]:
    """Return the arrays, and the numbers, that the function can reach by names of its own.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Those given by position; attributes of objects among them are looked at.
    """
    search = _Search()
    return list(search.run(function, arguments)), search.numbers


def put_back(variables: list[Variable], numbers: list[Number], args: Arguments) -> list[str]:
    """Bind names to what they were bound to; return the names of those that were not."""
    changed = []
    for number in numbers:
        if number.place.put is not None and not number.is_there(args):
            number.place.put(number.value)
            changed.append(number.place.name)
    for handle, place in variables:
        try:
            now = place.way(args)
        except (AttributeError, LookupError, ValueError):
            now = None
        if now is not handle and place.put is not None:
            place.put(handle)
            changed.append(place.name)
    return changed


class _Search:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # so that no id comes twice
        self.numbers: list[Number] = []

    def run(self, function: Any, arguments: Arguments) -> Iterator[Variable]:
        names: set[str] = set()
        yield from self._function(function, Place("the function", lambda given: function), names,
                                  DEPTH)
        given = Place("arguments", lambda given: given)
        for k, value in enumerate(arguments):
            if not isinstance(value, (Handle, list, tuple, dict, *_NUMBERS)):
                yield from self._value(value, given.item(arguments, k), names, DEPTH)

    def _function(self, function: Any, place: Place, names: set[str], depth: int,
                  ) -> Iterator[Variable]:
        if isinstance(function, MethodType):
            names |= _names(getattr(function.__func__, "__code__", None))
            yield from self._value(
                function.__self__, place.attribute(function, "__self__"), names, depth)
            function, place = function.__func__, place.attribute(function, "__func__")
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None and self._new(wrapped):
            yield from self._function(
                wrapped, place.attribute(function, "__wrapped__"), names, depth - 1)
        if not isinstance(function, FunctionType) or depth < 0:
            return
        own = _names(function.__code__)
        names |= own
        before = len(self.numbers)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (),
                              strict=True):
            yield from self._value(_content(cell), _cell(name, cell), names, depth)
        for name in own & function.__globals__.keys():
            yield from self._value(
                function.__globals__[name], _global(name, function.__globals__), names, depth)
        if function.__globals__.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            before = len(self.numbers)  # a library's decorator has none of the user's
        for attribute in ("__defaults__", "__kwdefaults__"):
            yield from self._value(
                getattr(function, attribute), place.attribute(function, attribute), names, depth)
        del self.numbers[before:]  # nor is a default a name that is bound anew

    def _value(self, value: Any, place: Place, names: set[str], depth: int) -> Iterator[Variable]:
        if isinstance(value, Handle):
            yield Variable(value, place)
        elif isinstance(value, _NUMBERS):
            self.numbers.append(Number(value, place))
        elif depth >= 0 and value is not None and self._new(value):
            yield from self._inside(value, place, names, depth)

    def _inside(self, value: Any, place: Place, names: set[str], depth: int) -> Iterator[Variable]:
        if isinstance(value, (FunctionType, MethodType)):
            if (value.__module__ or "").partition(".")[0] not in _LIBRARIES:
                yield from self._function(value, place, names, depth - 1)
        elif isinstance(value, dict):
            for key, part in [*value.items()]:
                yield from self._value(part, place.item(value, key), names, depth - 1)
        elif isinstance(value, (list, tuple)):
            for k, part in enumerate([*value]):
                yield from self._value(part, place.item(value, k), names, depth - 1)
        elif isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                yield from self._attributes(value, place, names, depth)
        elif not isinstance(value, BuiltinFunctionType):
            yield from self._attributes(value, place, names, depth)

    def _attributes(self, value: Any, place: Place, names: set[str], depth: int,
                    ) -> Iterator[Variable]:
        held = getattr(value, "__dict__", None)
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in names & {*(held or ()), *slots}:
            part = getattr(value, name, None)
            yield from self._value(part, place.attribute(value, name), names, depth - 1)
        call = vars(type(value)).get("__call__")
        if isinstance(call, FunctionType):
            yield from self._function(MethodType(call, value), place, names, depth - 1)

    def _new(self, value: Any) -> bool:
        if id(value) in self.seen or len(self.seen) > MOST:
            return False
        self.seen.add(id(value))
        self.kept.append(value)
        return True


def _names(code: CodeType | None) -> set[str]:
    """Names that a function's code, and that of functions inside it, may look up."""
    found = set() if code is None else {*code.co_names}
    for constant in () if code is None else code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been bound to it yet
        return None


def _cell(name: str, cell: CellType) -> Place:
    return Place(name, lambda given: cell.cell_contents,
                 lambda value: setattr(cell, "cell_contents", value))


def _global(name: str, variables: dict[str, Any]) -> Place:
    return Place(name, lambda given: variables[name],
                 lambda value: variables.__setitem__(name, value))
