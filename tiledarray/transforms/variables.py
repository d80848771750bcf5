"""Where a function finds the arrays and numbers that are not its arguments.

A name can be bound to something else at any time, so what `jit` remembers is the way: a variable
of the enclosing function or of the module, an attribute, an item.  What it has recorded holds as
long as what is there is what was found (`found.py`): numbers and texts of the same bits, functions
of the same code, containers of as much, objects of the same class.  Arrays may be others, of which
it notes where they are.

Looked at is what has a name that code mentions which may run: that of the function, and of all
functions and methods that it reaches by such names.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import enum
import functools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from tiledarray.arrays.handle import Handle
from tiledarray.core import AtOnce
from tiledarray.transforms.arguments import is_record, parts_of, refill
from tiledarray.transforms.code_names import Used, is_library, used
from tiledarray.transforms.found import (
    COPIED,
    GONE,
    Again,
    Array,
    Attributes,
    Constant,
    Copied,
    Function,
    Items,
    Mapping,
    Object,
    Part,
    Scope,
    Watch,
    alike,
    content,
    is_plain,
    slots,
    state,
)

DEPTH = 16  # functions that call one another, attributes of attributes
NEAR = 4  # the same for what is looked at once
MOST = 10_000  # values looked at; of others it matters which objects they are

_BUILTINS = frozenset(vars(builtins))
_ONCE = frozenset(("__init__", "__new__", "__post_init__"))  # of a class that is called
_SELDOM = _ONCE | frozenset((
    "__init_subclass__", "__class_getitem__", "__repr__", "__str__", "__del__",
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__",
    "__deepcopy__", "__replace__"))
_ITEMS = (list, tuple, set, frozenset, collections.deque)
_PARTIAL = (functools.partial, functools.partialmethod)
_DICTS = (dict, types.MappingProxyType)
_CONTAINERS = (*_ITEMS, *_DICTS)
_FROZEN = (tuple, frozenset, types.MappingProxyType)
_OPEN = (types.SimpleNamespace, argparse.Namespace, type(functools.lru_cache(len)))
_WRAPPERS = (collections.UserDict, collections.UserList, collections.ChainMap, np.vectorize)


class Variable(NamedTuple):
    """An array, what the function calls it, and its place among what a `Watch` meets."""

    handle: Handle
    name: str
    position: int


class _Bound(NamedTuple):
    """What a variable, or an attribute, was bound to before the function ran."""

    name: str
    value: Any
    holder: Any  # the variables of a module, a variable of an enclosing function, an object
    key: str

    def now(self) -> Any:
        """What it is bound to."""
        if isinstance(self.holder, CellType):
            return content(self.holder)
        if isinstance(self.holder, dict):
            return self.holder.get(self.key, GONE)
        held = getattr(self.holder, "__dict__", {})
        return held[self.key] if self.key in held else getattr(self.holder, self.key, GONE)

    def restore(self) -> None:
        """Bind it to what it was bound to."""
        if isinstance(self.holder, dict):
            self.holder[self.key] = self.value
        elif isinstance(self.holder, CellType):
            self.holder.cell_contents = self.value
        else:
            setattr(self.holder, self.key, self.value)


class _Held(NamedTuple):
    """What a container, or memory that is not ours, held before the function ran."""

    name: str
    value: Any
    before: Any  # a copy, or what says how far an iterator is


class Names:
    """What a function reaches by names of its own.

    Attributes
    ----------
    variables : list of Variable
    watch : Watch
        Says at a call whether the rest is as it was.
    objects : set of int
        Which containers and objects were found: their ``id``.
    """

    def __init__(self, search: _Search) -> None:
        self.variables = search.variables
        self.watch = Watch(search.entries)
        self.objects = search.seen.keys()
        self._bound = search.bound
        self._held = search.held
        self._drawn = search.drawn
        self._kept = search.kept

    def changed(self) -> tuple[list[str], list[str]]:
        """Return the names that are bound to another array or number now; those otherwise changed.

        The latter may be what a program remembers: a variable that was ``None``, a dict that has
        grown.
        """
        hard: list[str] = []
        soft: list[str] = []
        for each in self._bound:
            if not _equal(each.now(), each.value):
                (hard if _is_value(each.value) else soft).append(each.name)
        for name, value, before in self._held:
            if isinstance(before, Copied):
                if not before.holds(value, []):
                    hard.append(name)
                continue
            changed = [*_changed_items(value, before)]
            hard += [f"{name}[{key!r}]" for key, was in changed if _is_value(was)]
            if not _same_items(value, before) and not any(_is_value(was) for _, was in changed):
                (hard if len(value) < len(before) else soft).append(name)
        return hard, soft

    def drawn(self) -> list[str]:
        """Return the names of iterators, and generators of random numbers, that have gone on."""
        return [name for name, value, before in self._drawn if state(value) != before]

    def restore(self) -> None:
        """Bind all names to what they were bound to."""
        for each in self._bound:
            if each.now() is not each.value:
                each.restore()
        for _, value, before in self._held:
            if isinstance(value, np.ndarray):
                value[...] = before.before
            elif isinstance(value, COPIED):
                value[:] = before.before
            elif not _same_items(value, before):
                refill(value, before)


def _is_value(value: Any) -> bool:
    return isinstance(value, Handle) or (is_plain(value) and value is not None)


def _equal(now: Any, value: Any) -> bool:
    if type(now) is tuple and type(value) is tuple and len(now) == len(value):
        return all(map(_equal, now, value))
    return alike(now, value)


def _same_items(value: Any, before: Any) -> bool:
    if len(value) != len(before) or not all(map(_equal, value, before)):
        return False
    return not isinstance(value, dict) or all(map(_equal, value.values(), before.values()))


def _changed_items(value: Any, before: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the keys of what was exchanged, and what was there."""
    if isinstance(value, dict):
        for key, was in before.items():
            if key in value and not _equal(value[key], was):
                yield key, was
    elif isinstance(value, (list, collections.deque)) and len(value) == len(before):
        for k, was in enumerate(before):
            if not _equal(value[k], was):
                yield k, was


def variables_of(function: Any, arguments: tuple[Any, ...] = (),
                 named: dict[str, Any] | None = None, *, once: bool = False) -> Names:
    """Return the arrays, and the numbers, that the function can reach by names of its own.

    Parameters
    ----------
    function : callable
    arguments, named : tuple, dict
        Those given by position and by name; attributes of objects among them are looked at.
    once : bool
        Whether nothing will be compared with later, so that what is near will do.
    """
    mentioned, copied = Used(), dict[int, Copied]()
    while True:  # functions that are found have names of their own, by which more is found
        search = _Search(mentioned, copied, once=once)
        search.run(function, arguments, named or {})
        if search.used == mentioned:
            return Names(search)
        mentioned = search.used


class _Search:
    def __init__(self, mentioned: Used, copied: dict[int, Copied], *, once: bool) -> None:
        self.used = mentioned
        self.copied = copied  # memory that is not ours, by its ``id``
        self._once = once
        self._depth = NEAR if once else DEPTH
        self.seen: dict[int, int] = {}  # what was met, and its position
        self.position = 0
        self.kept: list[Any] = []  # so that no id comes twice
        self.variables: list[Variable] = []
        self.bound: list[_Bound] = []
        self.held: list[_Held] = []
        self.drawn: list[_Held] = []
        self.entries: list[tuple[Callable[[Any], Any] | None, Any, Part]] = []
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        self._claimed: set[Any] = set()  # names of modules, and classes
        self._others: dict[frozenset[str], frozenset[str]] = {}

    def run(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._fix(function, "the function")
        objects = [*_objects(arguments, itemgetter(0), "arguments"),
                   *_objects(named, itemgetter(1), "arguments")]
        for way, value, name in objects:
            if _mentions(value) and parts_of(value) is None:
                part = self.value(value, name, self._depth)
                if type(part) is not Constant:
                    self.entries.append((way, None, part))
            self._class(type(value), called=False)
        while self._waiting:
            self._waiting.popleft()()
        if "random" in self.used.names:
            self._note_state(random.random, "random")
            self._note_state(np.random.random, "numpy.random")

    # ---- values --------------------------------------------------------------------------

    def value(self, value: Any, name: str, depth: int) -> Part:
        """Look at a value; return what to compare with."""
        if isinstance(value, Handle):
            self.variables.append(Variable(value, name, self.position))
            self.position += 1
            return Array()
        if is_plain(value) or value is GONE or isinstance(value, enum.Enum):
            return Constant(value)
        if isinstance(value, COPIED):
            return self._copied(value, name)
        if id(value) in self.seen:
            return Again(self.seen[id(value)])
        if isinstance(value, type):
            self._class(value, called=True)
            return Constant(value)
        if depth < 0 or len(self.seen) > MOST or not _mentions(value):
            self._note_state(value, name)
            if isinstance(value, (attrgetter, methodcaller)):
                texts = [each for each in value.__reduce__()[1] if isinstance(each, str)]
                self.used = self.used.and_also(
                    Used(frozenset(part for each in texts for part in each.split("."))))
            return Constant(value)
        self.seen[id(value)] = self.position
        self.position += 1
        self.kept.append(value)
        return self._inside(value, name, depth - 1)

    def _note_state(self, value: Any, name: str) -> None:
        """Note how far an iterator is, or random numbers are, also those that a method draws."""
        value = getattr(value, "__self__", value)
        before = state(value)
        if before is not None:
            self.drawn.append(_Held(name, value, before))

    def _copied(self, value: Any, name: str) -> Part:
        if self._once or (
                isinstance(value, np.ndarray) and value.base is None and not value.flags.writeable):
            return Constant(value)
        found = self.copied.get(id(value))
        if found is None:
            found = self.copied[id(value)] = Copied(value)
        self.held.append(_Held(name, value, found))
        return found

    def _inside(self, value: Any, name: str, depth: int) -> Part:
        if isinstance(value, FunctionType):
            return self._function(value, name, depth)
        if isinstance(value, MethodType):
            return self._attributes(value, ("__func__", "__self__"), name, depth)
        if isinstance(value, _PARTIAL):
            return self._attributes(value, ("func", "args", "keywords"), name, depth)
        if isinstance(value, _CONTAINERS):
            return self._container(value, name, depth)
        if isinstance(value, BuiltinFunctionType):
            return self._attributes(value, ("__self__", "__name__"), name, depth)
        return self._object(value, name, depth)

    def _attributes(self, value: Any, names: tuple[str, ...], name: str, depth: int) -> Part:
        return Attributes(type(value), [
            (each, self.value(getattr(value, each), name, depth)) for each in names])

    def _container(self, value: Any, name: str, depth: int) -> Part:
        if not isinstance(value, _FROZEN):
            self.held.append(_Held(name, value, dict(value) if isinstance(value, dict)
                                   else [*value]))
        pairs = value.items() if isinstance(value, _DICTS) else enumerate(value)
        parts = [self.value(part, f"{name}[{key!r}]", depth) for key, part in [*pairs]]
        held = None
        if is_library(type(value).__module__):
            pass
        elif getattr(value, "__dict__", None):
            self.position += 1  # it is met once more
            held = self._object(value, name, depth)
        else:
            self._class(type(value), called=False)
        if isinstance(value, _DICTS):
            return Mapping(type(value), [*value], parts, held)
        return Items(type(value), parts, held)

    def _object(self, value: Any, name: str, depth: int) -> Part:
        """Look at the attributes of an object or a module."""
        kind: Any = type(value)
        if not isinstance(value, ModuleType):
            self._class(kind, called=False)
        held = getattr(value, "__dict__", None)
        scope = None
        if isinstance(held, dict):
            all_names = isinstance(value, _WRAPPERS) or (
                self.used.all_names and not isinstance(value, ModuleType))
            names = [*held] if all_names else [*(self.used.names & held.keys())]
            if "__wrapped__" in held and "__wrapped__" not in names:
                names.append("__wrapped__")
            scope = self._scope(
                held, value, names, f"{name}.", depth,
                absent=frozenset() if all_names else self._absent(frozenset(names)),
                length=len(held) if all_names else None)
        placed: list[tuple[str, Part]] = []
        for each in slots(kind):
            if self.used.all_names or each in self.used.names:
                part = self._bind(f"{name}.{each}", getattr(value, each, GONE), value, each, depth)
                if part is not None:
                    placed.append((each, part))
        return Object(kind, scope, placed)

    def _scope(self, held: Any, holder: Any, names: Iterable[str], prefix: str, depth: int,
               **rest: Any) -> Scope:
        """Look at what is behind some names."""
        same, parts = [], []
        for each in names:
            part = self._bind(prefix + each, held[each], holder, each, depth)
            if type(part) is Constant:
                same.append((each, part.value))
            elif part is not None:
                parts.append((each, part))
        return Scope(same, parts, **rest)

    def _bind(self, name: str, value: Any, holder: Any, key: str, depth: int) -> Any:
        """Look at what a name is bound to; ``None`` if only notes are made there."""
        if isinstance(value, _CONTAINERS) and not isinstance(holder, (dict, CellType)) and (
                self.used.only_notes(key)):
            return None
        self.bound.append(_Bound(name, value, holder, key))
        return self.value(value, name, depth)

    # ---- functions and classes -------------------------------------------------------------

    def _fix(self, value: Any, name: str) -> None:
        """Look at something that stays what it is."""
        part = self.value(value, name, self._depth)
        if type(part) is Function and not (part.cells or part.attributes) and (
                self.seen[id(value)] == self.position - 1):  # nothing hangs on it
            self.position -= 1
            del self.seen[id(value)]
        elif type(part) not in (Constant, Again):
            self.entries.append((None, value, part))

    def _function(self, function: FunctionType, name: str, depth: int) -> Part:
        module = function.__globals__.get("__name__", "")
        library = is_library(module if isinstance(module, str) else "")
        if not library:
            self.used = self.used.and_also(used(function.__code__))
            self._globals(function)
        cells = []
        places = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for place, (each, cell) in enumerate(places):
            found = content(cell)
            registry = module == "functools" and isinstance(found, dict)  # of a singledispatch
            if not (_is_users(found) or registry if library
                    else _is_read(found, each, function.__code__)):
                continue
            cells.append((place, self._bind(each, found, cell, each, depth)))
        own = [] if library else ["__defaults__", "__kwdefaults__"]
        own += [each for each in function.__dict__
                if each == "__wrapped__" or each in self.used.names]
        return Function(function, cells, [
            (each, self.value(getattr(function, each), f"{name}.{each}", depth)) for each in own
            if getattr(function, each) is not None])

    def _globals(self, function: FunctionType) -> None:
        """Look, later, at the variables of a function's module, and at modules that it imports."""
        variables = function.__globals__
        mentioned = used(function.__code__).names
        names = [each for each in mentioned & variables.keys()
                 if _is_read(variables[each], each, function.__code__)
                 and self._is_new((id(variables), each))]
        shadows = frozenset(mentioned & _BUILTINS).difference(variables)
        if names or (shadows and self._is_new((id(variables), shadows))):
            self._waiting.append(lambda: self.entries.append((None, variables, self._scope(
                variables, variables, names, "", self._depth, absent=shadows))))
        for each in mentioned.difference(variables):
            if each in sys.modules and self._is_new((id(sys.modules), each)):
                self._waiting.append(functools.partial(self._fix, sys.modules[each], each))

    def _class(self, kind: type, *, called: bool) -> None:
        """Look, later, at what objects of a class have from it, and what happens if it is called.

        Only the names in the class are compared: a class does not change its bases.
        """
        for each in kind.__mro__:
            if not is_library(each.__module__) and self._is_new((each, called)):
                self._waiting.append(functools.partial(self._in_class, each, called))

    def _in_class(self, kind: type, called: bool) -> None:
        held = vars(kind)
        same, others = [], []
        for each, value in held.items():
            functions = _functions(value)
            if not self._is_wanted(each, called=called, function=bool(functions)):
                continue
            if functions:
                same.append((each, value))
                for function in functions:
                    self._waiting.append(
                        functools.partial(self._fix, function, f"{kind.__name__}.{each}"))
            elif not isinstance(value, MemberDescriptorType):
                others.append(each)
        scope = self._scope(held, kind, others, f"{kind.__name__}.", self._depth)
        self.entries.append(
            (None, held, Scope([*scope.same, *same], scope.parts, length=len(held))))

    def _is_wanted(self, name: str, *, called: bool, function: bool) -> bool:
        """Whether what a class has by that name may be looked up."""
        if name.startswith("__") and name.endswith("__"):
            return function and (name not in _SELDOM or (called and name in _ONCE))
        return name in self.used.names or self.used.all_names

    def _absent(self, names: frozenset[str]) -> frozenset[str]:
        """Return the names that are mentioned but for these; the same set for the same ones."""
        found = self._others.get(names)
        if found is None:
            found = self._others[names] = self.used.names - names
        return found

    def _is_new(self, key: Any) -> bool:
        if key in self._claimed:
            return False
        self._claimed.add(key)
        return True


def _is_read(value: Any, name: str, code: CodeType) -> bool:
    """Whether more is done with a variable than to put something into a container there."""
    return not (isinstance(value, _CONTAINERS) and used(code).only_notes(name))


def _functions(value: Any) -> list[Any]:
    """Return the functions of a method, a property, a cached one."""
    found = [value, getattr(value, "__func__", None)]
    if isinstance(value, property):
        found = [value.fget, value.fset]
    elif isinstance(value, functools.cached_property):
        found = [value.func]
    return [each for each in found if isinstance(each, FunctionType)]


def _mentions(value: Any) -> bool:
    """Whether something may lead further by names of the user's."""
    if isinstance(value, (type, AtOnce)):  # the latter is a partial where the core is Python's
        return False
    if isinstance(value, (FunctionType, MethodType, *_PARTIAL, *_CONTAINERS)):
        return True
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, _CONTAINERS)  # a bound method
    if isinstance(value, ModuleType):
        return not is_library(value.__name__)
    kind = type(value)
    return not is_library(kind.__module__) or issubclass(kind, _OPEN + _WRAPPERS)


def _is_users(value: Any) -> bool:
    """Whether a variable of a library's function may be something of the user's."""
    return isinstance(value, Handle) or (
        not is_plain(value) and not isinstance(value, (*_CONTAINERS, *COPIED, type)) and (
            _mentions(value)))


def _objects(tree: Any, way: Callable[[Any], Any], name: str,
             ) -> Iterator[tuple[Callable[[Any], Any], Any, str]]:
    """Yield the objects among arguments, and what is taken apart: the way there, it, its name."""
    if isinstance(tree, (Handle, *COPIED)) or is_plain(tree):
        return
    yield way, tree, name
    step: Any = attrgetter if is_record(type(tree)) else itemgetter
    for key, each in parts_of(tree) or ():
        yield from _objects(each, _then(way, step(key)), f"{name}[{key!r}]")


def _then(way: Callable[[Any], Any], step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda given: step(way(given))
