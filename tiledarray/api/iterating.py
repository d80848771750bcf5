"""`nditer` over arrays of ours: NumPy's own, over copies, of which what is written is brought back.

NumPy's iterator walks memory that it may write to, which nobody is given here.  It walks copies
laid out as its own arrays would be, so it goes the same way; whenever it goes on, what it wrote
meanwhile is written into the arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.api.arguments import host, is_ours

_WRITES = frozenset(("readwrite", "writeonly"))


class _Copy:
    """A copy of an array, and what it brings back.

    Attributes
    ----------
    array : numpy.ndarray
        What NumPy iterates over.
    """

    def __init__(self, ours: Any) -> None:
        self.ours = ours
        strides = ours.view_strides
        order = sorted(range(ours.ndim), key=lambda axis: -abs(strides[axis]))
        turned: Any = tuple(slice(None, None, -1 if strides[axis] < 0 else 1) for axis in order)
        turned += (...,)  # of an array without axes, too, that is a view
        self._in_order = ours.transpose(order)[turned]
        self._block: np.ndarray[Any, Any] = np.array(host(self._in_order), order="C")
        self._before = self._block.copy()
        self.array = self._block[turned].transpose(np.argsort(order))
        self.array.flags.writeable = ours.flags.writeable

    def bring_element(self, element: np.ndarray[Any, Any]) -> None:
        """Write one element, a view of the copy, into the array."""
        at = (element.__array_interface__["data"][0]
              - self._block.__array_interface__["data"][0]) // self._block.itemsize
        index = np.unravel_index(at, self._block.shape)
        if self._block[index].tobytes() != self._before[index].tobytes():
            self._in_order[index] = self._before[index] = self._block[index]

    def bring_all(self) -> None:
        """Write all that has changed into the array."""
        size = self._block.itemsize
        new, old = (np.ascontiguousarray(each).reshape(-1).view(f"V{size}")
                    for each in (self._block, self._before))
        if self._block.dtype.hasobject or new.tobytes() != old.tobytes():
            changed = (new != old).reshape(self._block.shape)
            self._in_order[changed] = self._before[changed] = self._block[changed]


class _Either(type):
    """Makes ``isinstance(it, nditer)`` true for NumPy's own, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.nditer) or type.__instancecheck__(cls, instance)


class nditer(metaclass=_Either):  # noqa: N801, D101  NumPy's name and text
    __doc__ = np.nditer.__doc__

    _numpys: np.nditer
    _given: list[Any]
    _written: dict[int, _Copy]
    _views: tuple[Any, ...] | None  # of the operands, where the loop is
    _by_element: bool

    def __new__(cls, op: Any, flags: Any = None, op_flags: Any = None, *args: Any,
                **kwargs: Any) -> Any:
        """Return NumPy's own where nothing of ours is written."""
        given = [*op] if isinstance(op, (list, tuple)) else [op]
        copies = {id(each): _Copy(each) for each in given if is_ours(each)}
        operands = [copies[id(each)].array if is_ours(each) else each for each in given]
        made = np.nditer(operands, flags, op_flags, *args, **kwargs)
        every = [*op_flags] if op_flags is not None else []
        if every and isinstance(every[0], str):
            every = [every] * len(given)
        written = {k: copies[id(given[k])] for k, found in enumerate(every)
                   if is_ours(given[k]) and not _WRITES.isdisjoint(found)}
        if not written:
            return made
        self = object.__new__(cls)
        vars(self).update(
            _numpys=made, _given=given, _written=written, _views=None,
            _by_element={"buffered", "external_loop"}.isdisjoint(flags or ()))
        return self

    def _bring(self) -> None:
        """Write into our arrays what was written since it went on."""
        for k, copy in self._written.items():
            element = self._element(k)
            if element is None:
                copy.bring_all()
            else:
                copy.bring_element(element)

    def _element(self, k: int) -> Any:
        """Return the element of an operand where it is; ``None`` if it is not at one element."""
        if not self._by_element:
            return None
        try:
            return self._numpys[k] if self._views is None else self._views[k]
        except ValueError:  # it is past the end
            return None

    def __iter__(self) -> nditer:
        return self

    def __next__(self) -> Any:
        if self._views is not None:
            self._bring()
            self._views = None
        try:
            found = next(self._numpys)
        finally:
            if not self._by_element:  # a buffer is written where it goes on
                self._bring()
        self._views = found if type(found) is tuple else (found,)
        return found

    def iternext(self) -> bool:
        """Go on; whether there is more."""
        self._bring()
        self._views = None
        found: bool = self._numpys.iternext()
        if not self._by_element:
            self._bring()
        return found

    def close(self) -> None:
        """Have all that was written in the arrays."""
        self._bring()
        self._numpys.close()
        for copy in self._written.values():
            copy.bring_all()

    def reset(self) -> None:
        """Begin again."""
        self._bring()
        self._views = None
        self._numpys.reset()
        for copy in self._written.values():
            copy.bring_all()

    def __enter__(self) -> nditer:
        self._numpys.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if "_written" in vars(self):
            self.close()

    @property
    def operands(self) -> tuple[Any, ...]:
        """The arrays that were given, or that NumPy has made."""
        self._bring()
        return tuple(each if is_ours(each) else found
                     for each, found in zip(self._given, self._numpys.operands, strict=True))

    def __getitem__(self, key: Any) -> Any:
        return self._numpys[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._numpys[key] = value
        self._bring()

    def __len__(self) -> int:
        return len(self._numpys)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._numpys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
            return
        self._bring()
        setattr(self._numpys, name, value)
