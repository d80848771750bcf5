"""Nested dicts, lists, tuples and dataclasses of arrays: optree's, loaded where they are met."""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

from tiledarray.devices.threads import all_of
from tiledarray.fork import import_part

_NAMESPACE = "tiledarray"
_registering = threading.RLock()
_registered: set[type] = set()


@functools.cache
def _optree() -> Any:
    """Import optree, in a thread of its own.

    What a signal handler raises while its types are registered would leave it broken for good, and
    handlers run in the main thread alone.
    """
    (found,) = all_of(import_part, ["optree"], 1, apart=True)
    return found


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Return the arrays and numbers in a nested structure, and how they are nested."""
    leaves, structure = _optree().tree_flatten(tree, namespace=_NAMESPACE)
    new = {type(leaf) for leaf in leaves
           if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)} - _registered
    if not new:
        return list(leaves), structure
    with _registering:
        for kind in new - _registered:
            _register(kind)
            _registered.add(kind)
    return flatten(tree)


def _register(kind: type) -> None:
    """Have optree know a dataclass: its fields, but those with ``pytree_node=False`` are fixed."""
    fields = dataclasses.fields(kind)
    moving = [each.name for each in fields if each.metadata.get("pytree_node", True)]
    fixed = [each.name for each in fields if each.name not in moving]

    def taken_apart(value: Any) -> tuple[Any, Any, Any]:
        return ([getattr(value, name) for name in moving],
                tuple(getattr(value, name) for name in fixed), moving)

    def put_together(rest: Any, values: Any) -> Any:
        made: Any = object.__new__(kind)  # without checks of its own, which might look
        for name, value in zip((*moving, *fixed), (*values, *rest), strict=True):
            object.__setattr__(made, name, value)
        return made

    _optree().register_pytree_node(kind, taken_apart, put_together, namespace=_NAMESPACE)


def unflatten(structure: Any, leaves: Any) -> Any:
    """Return a nested structure of other leaves."""
    return _optree().tree_unflatten(structure, leaves)


def named_leaves(tree: Any, name: str) -> tuple[list[Any], list[str], Any]:
    """Return the leaves of a nested structure, what to call each, and how they are nested."""
    leaves, structure = flatten(tree)
    names = [name + "".join(f"[{key!r}]" for key in path) for path in structure.paths()]
    return leaves, names, structure


def prefixes(prefix: Any, tree: Any) -> list[Any]:
    """Return what a structure that may end earlier than another says of each of its leaves.

    Raises
    ------
    ValueError
        If it is nested otherwise.
    """
    flatten(tree)  # so that its dataclasses are known
    said, structure = _optree().tree_flatten(
        prefix, is_leaf=lambda part: part is None, namespace=_NAMESPACE)
    parts = structure.flatten_up_to(tree)
    return [each for each, part in zip(said, parts, strict=True) for _ in flatten(part)[0]]


def leaves_like(structure: Any, tree: Any) -> list[Any]:
    """Return the leaves of another structure.

    Raises
    ------
    ValueError
        If it is nested otherwise.
    """
    found: list[Any] = structure.flatten_up_to(tree)
    return found
