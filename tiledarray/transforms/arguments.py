"""Nested arguments and results of a jitted function, taken apart and put together.

The function is given containers of its own.  What it changes in them is told, and done to the
caller's when the call is done.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tiledarray.arrays.handle import host_array
from tiledarray.arrays.shaping import lying_as
from tiledarray.arrays.tiledarray import TiledArray, from_host
from tiledarray.graph.node import Kind, Node
from tiledarray.transforms.found import GONE, slots


class Copy(NamedTuple):
    """An argument of NumPy's, the array of ours that was given in its place, and its value then."""

    original: np.ndarray[Any, Any]
    array: TiledArray
    node: Node


def give_back(copies: list[Copy]) -> None:
    """Write what was written into copies into the arrays of NumPy's that they were made of.

    Raises
    ------
    TypeError
        If one of these overlaps another, which the function has not seen.
    """
    written = [copy for copy in copies if copy.array.node is not copy.node]
    for copy in written:
        if any(np.may_share_memory(copy.original, other.original)
               for other in copies if other is not copy):
            raise TypeError(
                "a function under tiledarray.jit writes into an argument of NumPy's that overlaps "
                "another one, and was given a copy of each; give it arrays of tiledarray's")
    for copy in written:
        copy.original[...] = host_array(copy.array)


class Scalar:
    """A scalar as part of a key: equal to what has its type and its very bits.

    ``0.0 == -0.0``, though a plan tells them apart, and a NaN equals not even itself.
    """

    __slots__ = ("value", "_text")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._text = f"{type(value)} {value!r}"  # tells signs of zeros apart

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Same:
    """An object that has no hash as part of a key: equal to itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Given(NamedTuple):
    """In what is returned: a container that was given, or comes twice, by its number."""

    number: int


class Known:
    """Containers that are known by a number: those that were given, then those that were met."""

    __slots__ = ("_numbers", "_kept")

    def __init__(self, given: list[Any]) -> None:
        self._kept = [*given]  # so that no id comes twice
        self._numbers = {id(container): Given(k) for k, container in enumerate(given)}

    def of(self, container: Any) -> Given | None:
        """Return the number of one."""
        return self._numbers.get(id(container))

    def add(self, container: Any) -> None:
        """Give one the next number."""
        self._numbers[id(container)] = Given(len(self._kept))
        self._kept.append(container)


_LEAVES = frozenset((bool, int, float, complex, str, type(None)))  # what is no dataclass
_FACTORY = object()  # the key, in a shape, of what a defaultdict makes


def flatten(tree: Any, arrays: list[Any], copies: list[Copy] | None = None,
            known: Known | None = None) -> Any:
    """Take the arrays out of nested tuples, lists, dicts and dataclasses.

    What remains can be a dict key; in it each array has left its `Kind`.  NumPy's are copied, which
    is noted in ``copies``.  With ``known``, a container that comes again leaves its number.
    """
    if type(tree) is TiledArray:
        arrays.append(tree)
        return (tree._node if tree._base is None else tree.node).form.kind
    if isinstance(tree, (TiledArray, np.ndarray)):
        array = tree if isinstance(tree, TiledArray) else lying_as(tree, from_host(tree).node)
        arrays.append(array)
        if isinstance(tree, np.ndarray) and copies is not None:
            copies.append(Copy(tree, array, array.node))
        return array.node.form.kind
    kind = type(tree)
    if isinstance(tree, tuple):
        return (kind, *[flatten(part, arrays, copies, known) for part in tree])
    if isinstance(tree, (list, dict)) or (
            kind not in _LEAVES and hasattr(kind, "__dataclass_fields__")):
        number = None if known is None else known.of(tree)
        if number is not None:
            return number
        shape = (
            (dict, *[(name, flatten(part, arrays, copies, known)) for name, part in tree.items()])
            if kind is dict else _taken_apart(tree, arrays, copies, known))
        if known is not None:
            known.add(tree)
        return shape
    if isinstance(tree, (bool, int, float, complex, np.generic)):
        return Scalar(tree)
    if kind is slice:  # before Python 3.12 it has no hash
        return (slice, *[flatten(part, arrays) for part in (tree.start, tree.stop, tree.step)])
    return tree if kind.__hash__ is not None else Same(tree)


def _taken_apart(tree: Any, arrays: list[Any], copies: list[Copy] | None,
                 known: Known | None) -> Any:
    if isinstance(tree, list):
        return (type(tree), *[flatten(part, arrays, copies, known) for part in tree])
    is_dict = isinstance(tree, dict)
    items = [(name, flatten(part, arrays, copies, known))
             for name, part in (tree if is_dict else _fields(tree)).items()]
    if isinstance(tree, defaultdict):
        items.append((_FACTORY, tree.default_factory))
    return (type(tree), *items)


def unflatten(shape: Any, arrays: Iterator[Any], given: list[Any] | None = None) -> Any:
    """Put the arrays back, in the order in which `flatten` took them out.

    Containers that come again are those in ``given``, to which those that are made are added.
    """
    kind = type(shape)
    if kind is Kind:
        return next(arrays)
    if kind is Scalar or kind is Same:
        return shape.value
    if kind is Given:
        assert given is not None
        return given[shape.number]
    if kind is tuple and shape and isinstance(shape[0], type):
        return _put_together(shape, arrays, given)
    return shape


def _put_together(shape: Any, arrays: Iterator[Any], given: list[Any] | None) -> Any:
    kind, *parts = shape
    if issubclass(kind, (tuple, list)) or kind is slice:
        made: Any = [unflatten(part, arrays, given) for part in parts]
        if kind is not list:
            made = kind(*made) if kind is slice or hasattr(kind, "_fields") else kind(made)
    else:
        made = {name: unflatten(part, arrays, given) for name, part in parts}
        if kind is not dict:
            made = _dict(kind, made) if issubclass(kind, dict) else _record(kind, made)
    if given is not None and not isinstance(made, (tuple, slice)):
        given.append(made)
    return made


def _dict(kind: Any, items: dict[Any, Any]) -> Any:
    """Return a dict of another class, without what its own initialisation wants."""
    factory = items.pop(_FACTORY, None)
    made = kind.__new__(kind)
    if isinstance(made, OrderedDict):
        OrderedDict.update(made, items)
    else:
        dict.update(made, items)
    if isinstance(made, defaultdict):
        made.default_factory = factory
    return made


def _record(kind: Any, fields: dict[str, Any]) -> Any:
    """Return an object of a dataclass, without checks of its own, which might look."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def is_record(kind: type) -> bool:
    """Whether objects of a class are taken apart: it is a dataclass."""
    return hasattr(kind, "__dataclass_fields__") and not issubclass(kind, (tuple, list, dict))


def _fields(record: Any) -> dict[str, Any]:
    """Return what a dataclass's object has: its fields, and what else was put there."""
    held = getattr(record, "__dict__", None)
    kind: Any = type(record)
    found = {name: getattr(record, name, GONE) for name in slots(kind)}
    return {**{name: value for name, value in found.items() if value is not GONE}, **(held or {})}


def outline(tree: Any) -> Any:
    """Return what `flatten` made, with no values of the numbers in it."""
    if type(tree) is Scalar or type(tree) is Same:
        return type(tree.value)
    return tuple([outline(part) for part in tree]) if type(tree) is tuple else tree


# ---- what is changed in containers ----------------------------------------------------------


def parts_of(tree: Any) -> Any:
    """Return the keys and values of something that is taken apart; ``None`` if it is not."""
    if isinstance(tree, dict):
        return tree.items()
    if isinstance(tree, (list, tuple)):
        return enumerate(tree)
    return _fields(tree).items() if is_record(type(tree)) else None


def containers(tree: Any) -> Iterator[Any]:
    """Yield what may be changed among nested arguments, the outer first."""
    parts = parts_of(tree)
    if parts is None:
        return
    if not isinstance(tree, tuple):
        yield tree
    for _, value in parts:
        yield from containers(value)


def contains_itself(tree: Any) -> bool:
    """Whether a container among nested arguments is in itself."""
    around: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(tree, False)]
    while waiting:
        each, left = waiting.pop()
        parts = None if left else parts_of(each)
        if left:
            around.discard(id(each))
        elif parts is not None:
            if id(each) in around:
                return True
            around.add(id(each))
            waiting += [(each, True), *((part, False) for _, part in parts)]
    return False


def contents(container: Any) -> Any:
    """Return what is in a container: a list, or a dict."""
    if isinstance(container, list):
        return [*container]
    return dict(container if isinstance(container, dict) else _fields(container))


class Handed:
    """The containers that a function was given, and what was in them.

    Attributes
    ----------
    known : Known
        How to say in a result that it is one of them.
    """

    def __init__(self, arguments: Any) -> None:
        self._all = [*containers(arguments)]
        self._before = [contents(container) for container in self._all]
        self.known = Known(self._all)

    def changes(self, arrays: list[Any]) -> list[tuple[int, Any]]:
        """Return which were changed, and what is in them now, whose arrays join ``arrays``."""
        return [(k, flatten(now, arrays, None, self.known))
                for k, (container, before) in enumerate(zip(self._all, self._before, strict=True))
                if not _is_same(now := contents(container), before)]


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, dict):
        return [*now] == [*before] and all(now[key] is before[key] for key in before)
    return len(now) == len(before) and all(x is y for x, y in zip(now, before, strict=True))


def hand_back(changes: list[tuple[int, Any]], arrays: Iterator[Any], given: list[Any],
              copies: list[Copy]) -> None:
    """Change the caller's containers; arrays that stand for NumPy's are these there."""
    originals = {id(copy.array): copy.original for copy in copies}
    arrays = (originals.get(id(array), array) for array in arrays)
    for k, values in [(k, unflatten(shape, arrays, given)) for k, shape in changes]:
        refill(given[k], values)


def refill(container: Any, values: Any) -> None:
    """Give a container other contents: a list, or a dict."""
    if isinstance(container, list):
        list.__setitem__(container, slice(None), values)
    elif isinstance(container, dict):
        kind = OrderedDict if isinstance(container, OrderedDict) else dict
        for key in [key for key in container if key not in values]:
            kind.__delitem__(container, key)
        if [*container] != [*values][:len(container)]:
            kind.clear(container)
        kind.update(container, values)
    elif is_record(type(container)):
        before = _fields(container)
        for name in before.keys() - values.keys():
            object.__delattr__(container, name)
        for name, value in values.items():
            if before.get(name, GONE) is not value:
                object.__setattr__(container, name, value)
    else:
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(values)


def run_on_copies(function: Callable[..., Any], shape: Any, arrays: list[Any],
                  copies: list[Copy], arguments: Any) -> Any:
    """Run a function as it is on arrays of ours in place of NumPy's, in containers of its own."""
    parts = iter(arrays)
    args = tuple([unflatten(each, parts) for each in shape[0]])
    kwargs = unflatten(shape[1], parts)
    handed = Handed((args, tuple(kwargs.values())))
    found: list[Any] = []
    result = flatten(function(*args, **kwargs), found, None, handed.known)
    changes = handed.changes(found)
    made = iter(found)
    given = [*containers((arguments[0], tuple(arguments[1].values())))]
    result = unflatten(result, made, given)
    hand_back(changes, made, given, copies)
    return result
