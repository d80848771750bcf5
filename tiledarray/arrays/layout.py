"""How an array lies in memory: ``a.flags``, and ``a.flat``, its elements in row-major order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tiledarray.arrays import by_numpy, by_places, views
from tiledarray.arrays.handle import Handle, part_of, wrap
from tiledarray.errors import LeaveToNumPy


class Flags:
    """What `numpy.ndarray.flags` has; ``writeable`` can be assigned.

    Parameters
    ----------
    array : TiledArray
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def _numpys(self) -> Any:
        """Return the flags of an array of NumPy's that lies as ours would, and has no elements."""
        array = self._array
        stand_in = np.lib.stride_tricks.as_strided(
            np.empty(1, f"V{array.itemsize}"), array.shape, array.strides
        )
        if not self.writeable:
            stand_in.flags.writeable = False
        return stand_in.flags

    @property
    def writeable(self) -> bool:
        """Whether the elements can be assigned."""
        return not views.is_frozen(self._array.steps)

    @writeable.setter
    def writeable(self, value: Any) -> None:
        self._array.set_writable(bool(value))

    @property
    def owndata(self) -> bool:
        """Whether the array is no view of another."""
        return self._array.base is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpys(), name)

    def __getitem__(self, key: str) -> Any:
        return self.owndata if key in ("O", "OWNDATA") else self._numpys()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in ("W", "WRITEABLE"):
            raise KeyError("only WRITEABLE can be set")
        self.writeable = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flags) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]  # as NumPy's: it can change

    def __repr__(self) -> str:
        return repr(self._numpys()).replace("OWNDATA : False", f"OWNDATA : {self.owndata}")


def _compared(how: Callable[[Any, Any], Any]) -> Any:
    def compared(self: FlatIterator, other: Any) -> Any:
        return how(self._line(), other._line() if isinstance(other, FlatIterator) else other)

    return compared


class FlatIterator:
    """The elements of an array in row-major order, to be read, written and iterated.

    Parameters
    ----------
    array : TiledArray
        What is written here is written there, whatever its strides.
    """

    __slots__ = ("base", "_elements", "_given")

    def __init__(self, array: Any) -> None:
        self.base = array
        self._elements: Any = None
        self._given = 0

    @property
    def index(self) -> int:
        """How many elements it has given."""
        return int(getattr(self._elements, "index", self._given))

    @property
    def coords(self) -> tuple[int, ...]:
        """Where in the array the next element is."""
        return self._place(self.index)

    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)
    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __hash__ = None  # type: ignore[assignment]

    def _line(self) -> Any:
        return part_of(self.base, views.Reshaped((self.base.size,)))

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        """Return the core's iterator where that counts what it gives, for it is the faster one."""
        elements = self._begun()
        return elements if hasattr(elements, "index") else self

    def __next__(self) -> Any:
        element = next(self._begun())
        self._given += 1
        return element

    def _begun(self) -> Any:
        if self._elements is None:
            self._elements = iter(self._line())
        return self._elements

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not bool and isinstance(key, (int, np.integer)):
            return self.base[self._place_of(key)]
        self._check(key)
        found: Handle = self._line()[key]
        return wrap(found.node)

    def _place_of(self, key: Any) -> tuple[int, ...]:
        """Return the index in the array of the element that an index names here.

        Raises
        ------
        IndexError
            If there is none.
        """
        place, size = int(key), self.base.size
        if not -size <= place < size:
            raise IndexError(f"index {key} is out of bounds for size {size}")
        return self._place(place + size if place < 0 else place)

    def _place(self, place: int) -> tuple[int, ...]:
        shape = self.base.shape
        if len(shape) == 1:
            return (place,)
        found = []
        for n in reversed(shape[1:]):
            place, k = divmod(place, n)
            found.append(k)
        return (place, *reversed(found)) if shape else ()

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            self._set(key, value)
        except (TypeError, ValueError, OverflowError) as error:
            if not self.base.flags.writeable:
                raise ValueError("underlying array is read-only") from None
            raise error.with_traceback(None) from None

    def _set(self, key: Any, value: Any) -> None:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            self._set_one(key, value)
            return
        self._check(key)
        if isinstance(value, Handle) and self._reads_on(value) and self._set_in_order(key, value):
            return
        if self._may_overlap():
            self._set_each(key, value)
            return
        line = self._line()
        if isinstance(value, Handle):
            value = wrap(value.node).reshape(-1)
        elif np.ndim(value):
            value = np.ravel(value)
        length, size = np.size(value), line[key].size
        if length not in (0, 1, size):
            # NumPy's flat iterator repeats or cuts what it is given.
            if isinstance(value, Handle):
                value = value[np.arange(size) % length]
            else:
                value = np.resize(value, size)
        line[key] = value

    def _reads_on(self, value: Handle) -> bool:
        """Whether NumPy reads what it has written: elements of the same memory, as they are."""
        root = self.base.origin()
        if value.origin() is not root or value.dtype != self.base.dtype or (
                not self.base.flags.writeable):  # which raises
            return False
        memory = np.empty(root.shape, root.dtype)  # never touched
        return np.may_share_memory(
            views.on_array(memory, self.base.steps), views.on_array(memory, value.steps))

    def _set_in_order(self, key: Any, value: Handle) -> bool:
        """Write one element after the other, as NumPy does; ``False`` where places are unknown."""
        try:
            places = by_places.seen(key)
        except LeaveToNumPy:
            return False

        def assign(into: Any, out_of: Any) -> None:
            into.flat[places] = out_of

        by_places.change(assign, self.base, (value,))
        return True

    def _may_overlap(self) -> bool:
        """Whether elements may be the same one, so that no line of them can be written."""
        base, reached = self.base, self.base.itemsize
        for stride, n in sorted(zip(map(abs, base.strides), base.shape, strict=True)):
            if n > 1 and stride < reached:
                return True
            reached += stride * (n - 1)
        return False

    def _set_each(self, key: Any, value: Any) -> None:
        """Write one element after the other."""
        places = np.arange(self.base.size)[by_places.seen(key)].reshape(-1)
        values = wrap(value.node).reshape(-1) if isinstance(value, Handle) else np.ravel(value)
        if values.size:
            for k, place in enumerate(places.tolist()):
                self._set_one(place, values[k % values.size])

    def _set_one(self, key: Any, value: Any) -> None:
        place = self._place_of(key)
        try:
            self.base[place] = value
        except (TypeError, ValueError, OverflowError):
            raise ValueError("Error setting single item of array.") from None

    def _check(self, key: Any) -> None:
        """Raise NumPy's error where an index of several elements is none of a flat iterator."""
        if type(key) is slice:
            return
        np.broadcast_to(np.zeros((), bool), self.base.size).flat[by_numpy.to_host(key)]

    def copy(self) -> Any:
        """Return the elements as a new array."""
        return self.base.flatten()

    def as_array(self) -> Any:
        """Return what NumPy takes it for: the same memory, else a copy that cannot be written."""
        if self.base.flags.c_contiguous:
            return self.base.reshape(-1)
        found = self.base.flatten()
        found.setflags(write=False)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._line().__array__(dtype, copy)
