"""`ndenumerate` and `nditer` over arrays of ours.

`ndenumerate` gives what the elements are by then.  `nditer` is NumPy's own, over the arrays' memory
where that can be lent, else over copies that cannot be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tiledarray.api.arguments import host, is_ours
from tiledarray.arrays.lending import lent


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


def _in_memory(given: list[Any]) -> tuple[list[Any], bool]:
    """Return operands with NumPy's arrays over the memory of ours; one given twice is one.

    And whether some are over copies.  The memory stays: NumPy's iterator lets go of what it goes
    through when it is closed, but not of what it gave, which lies there.
    """
    ours = {id(each): each for each in given if is_ours(each)}
    for each in ours.values():
        host(each)  # refuses what has a history, which nobody would follow
    found = {key: lent(each, lasts=True) for key, each in ours.items()}
    copies = {key: np.asarray(each) for key, each in ours.items() if found[key] is None}
    return [{**found, **copies}.get(id(each), each) for each in given], bool(copies)


def _made(make: Callable[..., Any], op: Any, args: Any, kwargs: Any) -> tuple[Any, dict[int, Any]]:
    """Return what NumPy makes, and arrays of ours by the ``id`` of NumPy's over their memory."""
    given = [*op] if isinstance(op, (list, tuple)) else [op]
    operands, copied = _in_memory(given)
    try:
        made = make(operands, *args, **kwargs)
    except ValueError as error:
        if copied and "read-only" in str(error):
            error.add_note("An array that was put on a GPU is not written element by element: "
                           "x[...] = writes into it, and x.to('cpu') is one that can be.")
        raise
    return made, {id(found): each for found, each in zip(operands, given, strict=True)
                  if is_ours(each)}


def nested_iters(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Return NumPy's nested iterators."""
    return _made(np.nested_iters, op, args, kwargs)[0]


class _Either(type):
    """Makes ``isinstance(it, nditer)`` true for NumPy's own, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.nditer) or type.__instancecheck__(cls, instance)


class nditer(metaclass=_Either):  # noqa: N801, D101  NumPy's name and text
    __doc__ = np.nditer.__doc__

    _numpys: np.nditer
    _ours: dict[int, Any]  # arrays of ours, by the ``id`` of NumPy's over their memory

    def __new__(cls, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Return NumPy's own where nothing is ours."""
        made, ours = _made(np.nditer, op, args, kwargs)
        return cls._of(made, ours) if ours else made

    @classmethod
    def _of(cls, numpys: np.nditer, ours: dict[int, Any]) -> nditer:
        self = object.__new__(cls)
        vars(self).update(_numpys=numpys, _ours=ours)
        return self

    @property
    def operands(self) -> tuple[Any, ...]:
        """The arrays that were given, or that NumPy has made."""
        return tuple([self._ours.get(id(each), each) for each in self._numpys.operands])

    def copy(self) -> nditer:
        """Return another that is in the same place."""
        return self._of(self._numpys.copy(), self._ours)

    def __iter__(self) -> np.nditer:
        return self._numpys  # sooner

    def __next__(self) -> Any:
        return next(self._numpys)

    def __enter__(self) -> nditer:
        self._numpys.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._numpys.__exit__(*raised)

    def __getitem__(self, key: Any) -> Any:
        return self._numpys[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._numpys[key] = value

    def __len__(self) -> int:
        return len(self._numpys)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._numpys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._numpys, name, value)
