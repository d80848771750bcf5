"""`ndenumerate` and `nditer` over arrays of ours.

`ndenumerate` gives what the elements are by then.  `nditer` is NumPy's own, over copies, of which
what is written is brought back.
NumPy's iterator walks memory that it may write to, which nobody is given here.  It walks copies
laid out as its own arrays would be, so it goes the same way; whenever it goes on, what it wrote
meanwhile is written into the arrays.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tiledarray.api.arguments import host, is_ours

_WRITES = frozenset(("readwrite", "writeonly"))
_CHANGES = frozenset(("enable_external_loop", "remove_axis", "remove_multi_index"))
_OWN_MEMORY = frozenset(("copy", "updateifcopy"))  # flags of operands
_UNKEPT = 2  # references to a view that nobody else has
_MANY = 1000  # views that are looked through for those that nobody has kept
_CLOSED = np.nditer(0)
_CLOSED.close()


class _Copy:
    """A copy of an array, and what it brings back.

    Attributes
    ----------
    array : numpy.ndarray
        What NumPy iterates over.
    """

    def __init__(self, ours: Any) -> None:
        self.ours = ours
        strides = ours.strides
        order = sorted(range(ours.ndim), key=lambda axis: -abs(strides[axis]))
        turned: Any = tuple(slice(None, None, -1 if strides[axis] < 0 else 1) for axis in order)
        turned += (...,)  # of an array without axes, too, that is a view
        as_it_is = order == [*range(ours.ndim)] and min(strides, default=0) >= 0
        self._in_order = ours if as_it_is else ours.transpose(order)[turned]
        self._block: np.ndarray[Any, Any] = np.array(host(self._in_order), order="C")
        self.array = self._block[turned].transpose(np.argsort(order))
        self.array.flags.writeable = ours.flags.writeable

    def watch(self) -> None:
        """Notice from now on what is written into the copy."""
        self._before = self._block.copy()
        self._start = self._block.__array_interface__["data"][0]

    def bring_element(self, element: np.ndarray[Any, Any]) -> None:
        """Write one element, a view of the copy, into the array."""
        at = (element.__array_interface__["data"][0] - self._start) // self._block.itemsize
        index: tuple[int, ...] = ()
        for n in self._block.shape[:0:-1]:
            at, k = divmod(at, n)
            index = (k, *index)
        if self._block.ndim:
            index = (at, *index)
        self._before[index] = element
        self._in_order[index] = element[()]

    def bring_all(self) -> None:
        """Write all that has changed into the array."""
        size = self._block.itemsize
        new, old = (np.ascontiguousarray(each).reshape(-1).view(f"V{size}")
                    for each in (self._block, self._before))
        if new.tobytes() != old.tobytes():
            changed = (new != old).reshape(self._block.shape)
            self._in_order[changed] = self._before[changed] = self._block[changed]


class ndenumerate(np.ndenumerate):  # noqa: N801, D101  NumPy's name and text
    __doc__ = np.ndenumerate.__doc__

    _pairs: Iterator[Any]

    def __init__(self, arr: Any) -> None:
        if not is_ours(arr):
            super().__init__(arr)
            self._pairs = np.ndenumerate(arr)
            return
        self.iter = arr.flat
        self._pairs = zip(itertools.product(*map(range, arr.shape)), self.iter, strict=True)

    def __iter__(self) -> Any:
        return self._pairs  # sooner

    def __next__(self) -> Any:
        return next(self._pairs)


def nested_iters(op: Any, axes: Any, flags: Any = None, op_flags: Any = None, *args: Any,
                 **kwargs: Any) -> Any:
    """Return NumPy's nested iterators, over copies of arrays of ours, which can only be read.

    Raises
    ------
    NotImplementedError
        If one of ours is to be written.
    """
    given = [*op] if isinstance(op, (list, tuple)) else [op]
    every = [*op_flags] if op_flags is not None else []
    if every and isinstance(every[0], str):
        every = [every] * len(given)
    if any(is_ours(each) and not _WRITES.isdisjoint(found)
           for each, found in zip(given, every, strict=False)):
        raise NotImplementedError(
            "nested_iters would write into a copy: write into the array with x[...] =, or use "
            "nditer, which brings back what it writes")
    copies = [_Copy(each).array if is_ours(each) else each for each in given]
    return np.nested_iters(copies, axes, flags, op_flags, *args, **kwargs)


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
    _were: list[bytes]  # what the written ones of them were there
    _handed: list[weakref.ref[Any]]  # views of those, of all places where it has been
    _many: int
    _passed: int  # elements since it was last looked what a buffer has written
    _buffered: bool
    _own_memory: bool  # whether NumPy has something to write back when it is closed

    def __new__(cls, op: Any, flags: Any = None, op_flags: Any = None, *args: Any,
                **kwargs: Any) -> Any:
        """Return NumPy's own where nothing is ours."""
        given = [*op] if isinstance(op, (list, tuple)) else [op]
        copies = {id(each): _Copy(each) for each in given if is_ours(each)}
        operands = [copies[id(each)].array if is_ours(each) else each for each in given]
        made = np.nditer(operands, flags, op_flags, *args, **kwargs)
        every = [*op_flags] if op_flags is not None else []
        if every and isinstance(every[0], str):
            every = [every] * len(given)
        written = {k: copies[id(given[k])] for k, found in enumerate(every)
                   if is_ours(given[k]) and not _WRITES.isdisjoint(found)}
        if not copies:
            return made
        for copy in written.values():
            copy.watch()
        self = object.__new__(cls)
        buffered = "buffered" in (flags or ())
        vars(self).update(
            _numpys=made, _given=given, _written=written, _views=None, _were=[], _handed=[],
            _many=_MANY, _passed=0,
            _buffered=buffered,
            _own_memory=buffered or not all(_OWN_MEMORY.isdisjoint(found) for found in every))
        if written:
            self._gone_on()
        return self

    def _bring(self) -> None:
        """Write into our arrays what was written since it went on."""
        if self._views is None or self._buffered:
            for copy in self._written.values():
                copy.bring_all()
            return
        for number, (k, copy) in enumerate(self._written.items()):
            view = self._views[k]
            now = view.tobytes()
            if now != self._were[number]:
                self._were[number] = now
                if view.ndim:  # many elements, where the loop is outside
                    copy.bring_all()
                else:
                    copy.bring_element(view)

    def _note(self, values: Any) -> None:
        """Note what the operands are where it is now: nothing is written there yet."""
        views = vars(self)["_views"] = values if type(values) is tuple else (values,)
        vars(self)["_were"] = [views[k].tobytes() for k in self._written]

    def _remember(self, views: Iterable[Any]) -> None:
        """Note which views somebody may keep, but for those that nobody has kept."""
        self._handed += map(weakref.ref, views)
        if len(self._handed) > self._many:
            self._handed[:] = [each for each in self._handed if each() is not None]
            vars(self)["_many"] = _MANY + 2 * len(self._handed)

    def _freeze(self) -> None:
        """Refuse what is written from now on: nobody would bring it."""
        for each in self._handed:
            view = each()
            if view is not None:
                view.flags.writeable = False

    def _gone_on(self) -> None:
        """Note that it is somewhere else, or at the end."""
        if self._buffered or self._numpys.finished:
            self._bring()
            vars(self)["_views"] = None
        else:
            self._note(self._numpys.value)

    def __iter__(self) -> Any:
        if not self._written:
            return self._numpys  # sooner
        alone = len(self._given) == 1 and not self._buffered
        return self._elements() if alone and self._views and not self._views[0].ndim else self

    def _elements(self) -> Iterator[Any]:
        """Go on as `next` does, where there is one array and each step is one element."""
        (copy,) = self._written.values()
        vars(self)["_views"] = None
        left: Any = None  # the element before: the loop has another one by now
        element: Any = None
        was = b""
        try:
            for element in self._numpys:
                was = element.tobytes()
                yield element
                if element.tobytes() != was:
                    copy.bring_element(element)
                if sys.getrefcount(left) > _UNKEPT and left is not None:
                    self._remember((left,))
                left, element = element, None
        finally:
            if element is not None and element.tobytes() != was:
                copy.bring_element(element)
            self._remember(tuple([each for each in (left, element) if each is not None]))

    def __next__(self) -> Any:
        if not self._buffered:
            self._bring()
        try:
            found = next(self._numpys)
        except BaseException:
            if self._buffered:
                self._bring()
            raise
        views: tuple[Any, ...] = found if type(found) is tuple else (found,)
        if not self._buffered:
            self._note(found)
        else:  # what a buffer holds is written some time later: it is looked for at times
            vars(self)["_passed"] += views[0].size
            if self._passed >= _MANY:
                vars(self)["_passed"] = 0
                self._bring()
        self._remember([views[k] for k in self._written])
        return found

    def iternext(self) -> bool:
        """Go on; whether there is more."""
        self._bring()
        found: bool = self._numpys.iternext()
        self._gone_on()
        return found

    def close(self) -> None:
        """Have all that was written in the arrays.

        What it gave are views of the copies, which live on with them, as our arrays do: they hold
        NumPy's iterator, and that lets go of what it goes through when it is closed.
        """
        if self._own_memory:
            self._numpys.close()
        vars(self)["_views"] = None
        self._bring()
        self._freeze()
        vars(self)["_numpys"] = _CLOSED

    def reset(self) -> None:
        """Begin again."""
        self._bring()
        self._numpys.reset()
        self._gone_on()

    def __enter__(self) -> nditer:
        self._numpys.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __del__(self) -> None:
        """Close it, but not what a loop goes on with, or a view lies in."""
        own = vars(self)
        if own.get("_written") and own["_numpys"] is not _CLOSED:
            if own["_own_memory"] and sys.getrefcount(own["_numpys"]) > _UNKEPT:
                if self._buffered and not self._numpys.finished:
                    self._numpys.iternext()  # it writes what its buffer holds
                own["_own_memory"] = False
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
        return partial(self._change, name) if name in _CHANGES else getattr(self._numpys, name)

    def _change(self, name: str, *args: Any) -> None:
        self._bring()
        getattr(self._numpys, name)(*args)
        self._gone_on()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            vars(self)[name] = value
            return
        self._bring()
        setattr(self._numpys, name, value)
        self._gone_on()
