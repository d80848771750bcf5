"""Arguments as NumPy takes them, in Python: `sequences.c` written again, and parts of indices."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
from numpy import ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_operators import PLAIN
from tiledarray.core.twin_state import settled, size_of


def is_bound(x: Any) -> bool:
    """Whether it is an end or the step of a basic slice."""
    return x is None or type(x) is int or isinstance(x, np.integer)


def basic_part(key: Any) -> int:
    """Part of a basic index: 1 an int, 2 what leaves an axis, 0 something else."""
    kind = type(key)
    if kind is int or isinstance(key, np.integer):
        return 1
    if kind is slice:
        return 2 if is_bound(key.start) and is_bound(key.stop) and is_bound(key.step) else 0
    return 2 if key is None or kind is EllipsisType else 0


class Arguments:
    """Arguments as NumPy takes them."""

    __slots__ = ("values", "first", "product", "total", "handles", "arrays")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.first: Any = None  # the first array
        self.product = 1
        self.total = 0
        self.handles = self.arrays = False  # whether there are any, and what makes an array


def plain_sequence(arguments: Arguments, x: Any, bound: int, depth: int) -> Any:
    """Return a list or a tuple with NumPy's arrays in place of ours; ``None`` if they are not."""
    found = []
    for part in x:
        value = None
        if isinstance(part, state.base_class):
            value = settled(part)
            arguments.handles = True
        elif type(part) in PLAIN or isinstance(part, np.number) or type(part) is ndarray or (
                type(part) is slice and basic_part(part)):
            value = part
        elif depth and type(part) in (list, tuple):
            value = plain_sequence(arguments, part, bound, depth - 1)
        if value is not None and type(value) not in (list, tuple):
            arguments.total += size_of(value)
        if value is None or arguments.total > bound:
            return None
        found.append(value)
    arguments.arrays = True
    return tuple(found) if type(x) is tuple else found  # a tuple is an index, perhaps
