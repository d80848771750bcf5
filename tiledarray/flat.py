"""``a.flat``: the elements of an array in row-major order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tiledarray import views
from tiledarray.handle import Handle, view_of, wrap


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
        size = line[key].size
        length = len(value) if hasattr(value, "__len__") and not isinstance(value, str) else 1
        if length not in (1, size) and length:
            # NumPy's flat iterator repeats or cuts what it is given.
            value = wrap(line.node)[:0].tolist() if not size else _repeated(value, size)
        line[key] = value

    def copy(self) -> Any:
        """Return the elements as a new array."""
        return self.base.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._line().__array__(dtype, copy)


def _repeated(value: Any, size: int) -> Any:
    """Return the first ``size`` elements of the value, repeated as often as needed."""
    import numpy as np

    return np.resize(np.asarray(value), size)
