"""What was found behind names, and whether that is there again.

A tree that is walked at every call of a jitted function: each part is given what is there now and
says whether what was recorded holds for it.  What may be another one at every call (an array, an
object, a container) is noted on the way, in the order in which it was found.
"""

from __future__ import annotations

import array
import enum
import functools
import io
import operator
import random
import types
from collections.abc import Callable, Iterable, Sequence
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any, Protocol

import numpy as np

from tiledarray.arrays.handle import Handle
from tiledarray.errors import raised_outside
from tiledarray.transforms.code_names import is_library

GONE = object()  # what is found where nothing is
PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, range, slice,
         type(...))
COPIED = (np.ndarray, bytearray, array.array)

Parts = Sequence[tuple[Any, "Part"]]


def is_plain(value: Any) -> bool:
    """Whether a value never changes, so that it is the same where it looks the same."""
    return isinstance(value, PLAIN) and not isinstance(value, enum.Enum)


def alike(now: Any, value: Any) -> bool:
    """Whether two are one object, or plain and of one type and the very bits.

    ``0.0 == -0.0``, though a plan tells them apart, and a NaN equals not even itself.
    """
    return now is value or (
        type(now) is type(value) and is_plain(value) and repr(now) == repr(value))


class Part(Protocol):
    """What was found in one place."""

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether what was recorded holds for what is there now."""


class Constant:
    """A number, a text; or something of which it matters only that it is the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether it is there."""
        return now is self.value or alike(now, self.value)


class Array:
    """An array of ours: any."""

    __slots__ = ()

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether there is one."""
        met.append(now)
        return isinstance(now, Handle)


class Again:
    """Something that was found elsewhere before."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether what is there is what is at the other place, too."""
        return met[self.position] is now


class Copied:
    """Memory that is not ours (an array of NumPy's, a bytearray), whose values were recorded.

    Attributes
    ----------
    before : array_like
        A copy of it.
    """

    __slots__ = ("form", "before", "_values")

    def __init__(self, value: Any) -> None:
        self.form = _form(value)
        self.before = value[:] if isinstance(value, array.array) else value.copy()
        self._values = _bytes(self.before) if _size(value) <= _PIECE else None

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether the same values are there."""
        if not isinstance(now, COPIED) or _form(now) != self.form:
            return False
        if self._values is not None:
            return _bytes(now) == self._values
        ours, theirs = (np.asarray(each).reshape(-1) for each in (self.before, now))
        step = max(1, _PIECE // ours.itemsize)  # pieces stay in the cache
        return all(ours[k:k + step].tobytes() == theirs[k:k + step].tobytes()
                   for k in range(0, ours.size, step))


_PIECE = 1 << 16  # bytes


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytearray) else value.tobytes()


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else len(memoryview(value).cast("B"))


def _form(value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        return type(value), value.shape, value.dtype
    return type(value), getattr(value, "typecode", None)


class _Sequence:
    """Values in their order."""

    __slots__ = ("constants", "parts")

    def __init__(self, parts: list[Part]) -> None:
        constants = [part.value for part in parts if isinstance(part, Constant)]
        self.constants = constants if len(constants) == len(parts) else None
        self.parts = parts

    def holds(self, now: Iterable[Any], met: list[Any]) -> bool:
        """Whether these values hold; there are as many."""
        if self.constants is not None:
            return all(map(operator.is_, now, self.constants)) or (
                all(map(alike, now, self.constants)))
        return all([part.holds(value, met)  # all, for what is met has its place
                    for part, value in zip(self.parts, now, strict=True)])


class Items:
    """A list, a tuple, a set, a deque."""

    __slots__ = ("kind", "length", "values", "held")

    def __init__(self, kind: type[Any], parts: list[Part], held: Part | None = None) -> None:
        self.kind = kind
        self.length = len(parts)
        self.values = _Sequence(parts)
        self.held = held  # attributes of its own

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether there are as many, each of which holds."""
        if type(now) is not self.kind or len(now) != self.length:
            return False
        met.append(now)
        return self.values.holds(now, met) and (self.held is None or self.held.holds(now, met))


class Mapping:
    """A dict: the order of its keys is seen where one goes through it."""

    __slots__ = ("kind", "keys", "values", "held")

    def __init__(self, kind: type[Any], keys: list[Any], parts: list[Part],
                 held: Part | None = None) -> None:
        self.kind = kind
        self.keys = keys
        self.values = _Sequence(parts)
        self.held = held

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether it has the same keys, and what is behind each holds."""
        keys = self.keys
        if type(now) is not self.kind or len(now) != len(keys):
            return False
        if not all(map(operator.is_, now, keys)) and not all(map(_same_key, now, keys)):
            return False
        met.append(now)
        return self.values.holds(now.values(), met) and (
            self.held is None or self.held.holds(now, met))


def _same_key(now: Any, key: Any) -> bool:
    if is_plain(key):
        return alike(now, key)
    return type(now) is type(key) and bool(now == key)


class Scope:
    """Variables of a module, a class, or an object: those that the function looks up.

    Parameters
    ----------
    same : sequence
        Names, and what is constant behind each.
    parts : sequence
        Names, and what was found behind each otherwise.
    absent : frozenset of str, optional
        Names behind which nothing was found.
    length : int, optional
        How many names there are in all, which says whether others have come.
    """

    __slots__ = ("same", "parts", "absent", "length")

    def __init__(self, same: Parts, parts: Parts, absent: frozenset[str] = frozenset(),
                 length: int | None = None) -> None:
        self.same = tuple(same)
        self.parts = tuple(parts)
        self.absent = absent
        self.length = length

    def holds(self, held: Any, met: list[Any]) -> bool:
        """Whether what the names lead to holds."""
        if self.length is not None and len(held) != self.length:
            return False
        get = held.get
        for name, value in self.same:
            now = get(name, GONE)
            if now is not value and not alike(now, value):
                return False
        for name, part in self.parts:
            if not part.holds(get(name, GONE), met):
                return False
        return not self.absent or held.keys().isdisjoint(self.absent)


class Object:
    """An object, or a module: its attributes."""

    __slots__ = ("kind", "scope", "slots")

    def __init__(self, kind: type, scope: Scope | None, slots: Parts) -> None:
        self.kind = kind
        self.scope = scope
        self.slots = tuple(slots)

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether there is one of its class, and its attributes hold."""
        if type(now) is not self.kind:
            return False
        met.append(now)
        if self.scope is not None and not self.scope.holds(now.__dict__, met):
            return False
        return not self.slots or all([
            part.holds(getattr(now, name, GONE), met) for name, part in self.slots])


class Function:
    """A function: its code, and what its variables and defaults are.

    Parameters
    ----------
    cells : sequence
        Places among the variables of enclosing functions, and what was found there.
    attributes : sequence
        Names of its own, and what was found behind each.
    """

    __slots__ = ("code", "globals", "cells", "attributes")

    def __init__(self, function: FunctionType, cells: Parts, attributes: Parts) -> None:
        self.code = function.__code__
        self.globals = function.__globals__
        self.cells = tuple(cells)
        self.attributes = tuple(attributes)

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether it is a function of the same code, and what it looks up holds."""
        if (type(now) is not FunctionType or now.__code__ is not self.code
                or now.__globals__ is not self.globals):
            return False
        met.append(now)
        cells = now.__closure__ or ()
        for place, part in self.cells:
            if not part.holds(content(cells[place]), met):
                return False
        return not self.attributes or all([
            part.holds(getattr(now, name, GONE), met) for name, part in self.attributes])


class Attributes:
    """A method or a `functools.partial`: what it consists of."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: Parts) -> None:
        self.kind = kind
        self.parts = tuple(parts)

    def holds(self, now: Any, met: list[Any]) -> bool:
        """Whether it is of that type, and its parts hold."""
        if type(now) is not self.kind:
            return False
        met.append(now)
        return all([part.holds(getattr(now, name, GONE), met) for name, part in self.parts])


class Watch:
    """All that was found for a function, and for objects among its arguments.

    Parameters
    ----------
    entries : list
        In the order of the search: the way to an object among the arguments, or ``None``; what else
        it is that is looked at, and stays what it is; and what was found there.
    """

    __slots__ = ("entries", "_reads", "_written")

    WRITTEN_AFTER = 16  # reads, as text that is compiled: it takes milliseconds, and a read a third
    MOST_WRITTEN = 2000  # lines of it

    def __init__(self, entries: list[tuple[Callable[[Any], Any] | None, Any, Part]]) -> None:
        self.entries = tuple(entries)
        self._reads = 0
        self._written: Callable[[Any, list[Any]], bool] | None = None

    def read(self, arguments: tuple[Any, Any]) -> list[Any] | None:
        """Return what is met on the way where what was recorded holds; otherwise ``None``."""
        met: list[Any] = []
        try:
            if self._written is not None:
                return met if self._written(arguments, met) else None
            self._reads += 1
            if self._reads == self.WRITTEN_AFTER:
                self._written = _written(self)
            for way, held, part in self.entries:
                if not part.holds(held if way is None else way(arguments), met):
                    return None
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            if raised_outside(error):
                raise
            return None  # another thread changes it meanwhile
        return met


class _Text:
    """Writes what `holds` does of some parts as one function, without a call for each of them."""

    def __init__(self) -> None:
        self.lines = ["def holds(arguments, met):"]
        self.known: dict[str, Any] = {
            "__name__": __name__, "GONE": GONE, "alike": alike, "Handle": Handle,
            "content": content, "FunctionType": FunctionType}

    def name(self, value: Any) -> str:
        """The name of a value in the text."""
        name = f"c{len(self.known)}"
        self.known[name] = value
        return name

    def put(self, line: str) -> None:
        """Add a line."""
        self.lines.append(f"    {line}")

    def refuse(self, condition: str) -> None:
        """Have nothing hold where a condition does."""
        self.put(f"if {condition}: return False")

    def bind(self, expression: str) -> str:
        """Give a value a name of its own."""
        name = f"t{len(self.lines)}"
        self.put(f"{name} = {expression}")
        return name

    def part(self, part: Part, expression: str) -> None:
        """Write that a part holds for what an expression finds."""
        if type(part) not in _WRITERS:
            self.refuse(f"not {self.name(part)}.holds({expression}, met)")
            return
        _WRITERS[type(part)](self, part, self.bind(expression))


def _write_constant(text: _Text, part: Constant, now: str) -> None:
    value = text.name(part.value)
    text.refuse(f"{now} is not {value} and not alike({now}, {value})")


def _write_array(text: _Text, part: Array, now: str) -> None:
    text.put(f"met.append({now})")
    text.refuse(f"not isinstance({now}, Handle)")


def _write_again(text: _Text, part: Again, now: str) -> None:
    text.refuse(f"met[{part.position}] is not {now}")


def _write_scope(text: _Text, part: Scope, held: str) -> None:
    if part.length is not None:
        text.refuse(f"len({held}) != {part.length}")
    get = text.bind(f"{held}.get")
    for name, value in part.same:
        _write_constant(text, Constant(value), text.bind(f"{get}({name!r}, GONE)"))
    for name, inner in part.parts:
        text.part(inner, f"{get}({name!r}, GONE)")
    if part.absent:
        text.refuse(f"not {held}.keys().isdisjoint({text.name(part.absent)})")


def _write_attributes(text: _Text, parts: Parts, now: str) -> None:
    for name, inner in parts:
        text.part(inner, f"getattr({now}, {name!r}, GONE)")


def _write_object(text: _Text, part: Object, now: str) -> None:
    text.refuse(f"type({now}) is not {text.name(part.kind)}")
    text.put(f"met.append({now})")
    if part.scope is not None:
        _write_scope(text, part.scope, text.bind(f"{now}.__dict__"))
    _write_attributes(text, part.slots, now)


def _write_function(text: _Text, part: Function, now: str) -> None:
    text.refuse(f"type({now}) is not FunctionType or {now}.__code__ is not {text.name(part.code)}"
                f" or {now}.__globals__ is not {text.name(part.globals)}")
    text.put(f"met.append({now})")
    cells = text.bind(f"{now}.__closure__ or ()")
    for place, inner in part.cells:
        text.part(inner, f"content({cells}[{place}])")
    _write_attributes(text, part.attributes, now)


def _write_consists(text: _Text, part: Attributes, now: str) -> None:
    text.refuse(f"type({now}) is not {text.name(part.kind)}")
    text.put(f"met.append({now})")
    _write_attributes(text, part.parts, now)


_WRITERS: dict[type, Callable[[_Text, Any, str], None]] = {
    Constant: _write_constant, Array: _write_array, Again: _write_again, Scope: _write_scope,
    Object: _write_object, Function: _write_function, Attributes: _write_consists,
}


def _written(watch: Watch) -> Callable[[Any, list[Any]], bool] | None:
    """Return what reads a watch as one function, unless it would be too long."""
    text = _Text()
    for way, held, part in watch.entries:
        found = text.name(held) if way is None else f"{text.name(way)}(arguments)"
        text.part(part, found)
        if len(text.lines) > watch.MOST_WRITTEN:
            return None
    text.put("return True")
    exec(compile("\n".join(text.lines), "<names of a jitted function>", "exec"), text.known)
    made: Callable[[Any, list[Any]], bool] = text.known["holds"]
    return made


@functools.lru_cache(4096)
def slots(kind: Any) -> tuple[str, ...]:
    """Return the attributes of a class's objects that have places of their own."""
    return tuple(name for each in kind.__mro__ for name, value in vars(each).items()
                 if isinstance(value, MemberDescriptorType) and not is_library(each.__module__))


def state(value: Any) -> Any:
    """Return how far an iterator is, or random numbers are; ``None`` of anything else.

    How far a generator is nobody can tell: it may stand at one line again and again.
    """
    if isinstance(value, types.GeneratorType):
        return None if value.gi_frame is None else object()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, io.IOBase):
        return _place_in(value)
    if isinstance(value, (np.random.RandomState, random.Random)):
        return repr((value.get_state if isinstance(value, np.random.RandomState)
                     else value.getstate)())
    if type(value).__module__ in ("builtins", "itertools") and hasattr(type(value), "__next__"):
        return repr(value), operator.length_hint(value, -1)
    return None


def _place_in(file: io.IOBase) -> Any:
    """Return how far a file has been read; ``None`` of one that is written, as a log is."""
    try:
        return file.tell() if file.readable() and not file.writable() else None
    except (OSError, ValueError):  # a line of it is being iterated over, or it is closed
        return repr(file)


def content(cell: CellType) -> Any:
    """What a variable of an enclosing function is."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been bound to it yet
        return GONE
