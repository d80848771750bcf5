"""Memory for who asks an array for a buffer, drops that at once and reads on.

`numpy.ndarray(buffer=x)` and `numpy.frombuffer(x)` look where the memory is, release the buffer and
keep a reference to ``x`` alone.  So what they were shown has to live as long as ``x`` does.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import numpy as np

# By the identity of arrays: a reference that drops the entry when the array dies, and the blocks
# that others may look at.  More than one where the array has had more than one size.
_lent: dict[int, tuple[weakref.ref[Any], list[np.ndarray[Any, Any]]]] = {}

_refused: tuple[int, int] | None = None  # thread and array, where memory to write was asked for


def note_refused(array: Any) -> None:
    """Remember that somebody was refused memory to write: NumPy then asks for some to read."""
    global _refused
    _refused = threading.get_ident(), id(array)


def was_refused(array: Any) -> bool:
    """Whether that was this array and thread just now; only the first who asks is told so."""
    global _refused
    before, _refused = _refused, None
    return before == (threading.get_ident(), id(array))


def lent(array: Any, value: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of a value, in memory that lives as long as the array.

    Who was shown an earlier value of the same size has the same memory, and sees this one now: as
    with NumPy's arrays, but not before someone asks.  So a loop that asks in every step has one
    block.

    Parameters
    ----------
    array : TiledArray
    value : numpy.ndarray
        Of the array now.
    """
    key = id(array)
    found = _lent.get(key)
    if found is None:
        found = _lent[key] = weakref.ref(array, functools.partial(_lent.pop, key)), []
    blocks = found[1]
    block = next((block for block in blocks if block.nbytes == value.nbytes), None)
    if block is None:
        block = np.empty(value.nbytes, np.uint8)
        blocks.append(block)
    block.view(value.dtype).reshape(value.shape)[...] = value
    return block.data.toreadonly()
