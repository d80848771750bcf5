"""Nested dicts, lists, tuples and dataclasses of arrays: optree's, loaded where they are met."""

from __future__ import annotations

from typing import Any


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Return the arrays and numbers in a nested structure, and how they are nested."""
    import optree

    leaves, structure = optree.tree_flatten(tree, namespace="tiledarray")
    return list(leaves), structure


def unflatten(structure: Any, leaves: Any) -> Any:
    """Return a nested structure of other leaves."""
    import optree

    return optree.tree_unflatten(structure, leaves)


def leaves_like(structure: Any, tree: Any) -> list[Any]:
    """Return the leaves of another structure.

    Raises
    ------
    ValueError
        If it is nested otherwise.
    """
    found: list[Any] = structure.flatten_up_to(tree)
    return found
