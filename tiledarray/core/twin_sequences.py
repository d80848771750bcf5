"""Arguments as NumPy takes them, in Python: `sequences.c` written again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_operators import PLAIN
from tiledarray.core.twin_state import settled, size_of


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
                type(part) is slice and all(
                    bound is None or type(bound) is int
                    for bound in (part.start, part.stop, part.step))):
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
