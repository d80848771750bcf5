"""``a.flat``: the elements of an array in row-major order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, views
from tiledarray.arrays.handle import Handle, view_of, wrap


class FlatIterator:
    """The elements of an array in row-major order, to be read, written and iterated.

    Parameters
    ----------
    array : TiledArray
        What is written here is written there, whatever its strides.
    """

    __slots__ = ("base", "index", "_elements")

    def __init__(self, array: Any) -> None:
        self.base = array
        self.index = 0
        self._elements: Any = None

    def _line(self) -> Any:
        return view_of(self.base, views.Reshaped((self.base.size,)))

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._elements is None:
            self._elements = iter(self._line())
        self.index += 1
        return next(self._elements)

    def __getitem__(self, key: Any) -> Any:
        found: Handle = self._line()[key]
        return wrap(found.node)

    def __setitem__(self, key: Any, value: Any) -> None:
        line = self._line()
        if isinstance(value, Handle):
            value = wrap(value.node).reshape(-1)
        elif np.ndim(value):
            value = np.ravel(value)
        length, size = np.size(value), line[key].size
        if length not in (0, 1, size):
            # NumPy's flat iterator repeats or cuts what it is given.
            value = np.resize(by_numpy.to_host(value), size)
        line[key] = value

    def copy(self) -> Any:
        """Return the elements as a new array."""
        return self.base.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._line().__array__(dtype, copy)
