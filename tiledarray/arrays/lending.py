"""What others get who ask for an array's memory.

It is the array's own where that lies on the host (`core.lend`), as NumPy's would be; otherwise a
copy that cannot be written, so that nothing written is lost.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.arrays.handle import stands_for_scalar, taken_out
from tiledarray.arrays.tracing import is_tracing

# Flags of who asks for a buffer: to write, or to know what is in it.
_WRITABLE, _FORMAT, _ALL = 0x1, 0x4, 0x11C  # PyBUF_WRITABLE, PyBUF_FORMAT, PyBUF_FULL_RO

# Packages that read `__array_interface__` themselves, and hand no array of ours to NumPy.
_READ_THE_INTERFACE = frozenset(("PIL",))
# Packages that copy arrays of NumPy's which they are to keep, and take others' as they come.
_TAKE_THEIR_OWN = frozenset(("pandas",))
_FIRST_USER_DTYPE = 256  # NPY_USERDEF: dtypes that NumPy's protocols cannot name

_NO_COPY = "Unable to avoid copy while creating an array as requested."
_NO_MEMORY = ("a TiledArray that is on a GPU, has a history or stands for a scalar of NumPy's "
              "lends nobody its memory: hand over x.numpy(), a copy, and give the array what is "
              "written into that by x[...] = ")


def buffer(self: Any, flags: int) -> Any:
    """Return what gives the buffer of an array.

    `numpy.ndarray(buffer=x)` and `numpy.frombuffer(x)` look where the memory is, release the buffer
    and keep a reference to ``x`` alone.  They ask for memory to be written, and not what is in it:
    what such are given lasts as long as ``x`` does.

    Raises
    ------
    TypeError
        If the memory cannot be lent; who only reads bytes gets those of a copy.  And for who asks
        all that there is to know (`memoryview`): NumPy does so before `__array__`, which knows
        whether a dtype is named, and whom for.
    """
    if flags == _ALL:
        raise TypeError("memoryview() and bytearray() want x.data, or numpy.asarray(x): the "
                        "array's own memory")
    value = taken_out(self, "a buffer")
    array = lent(self, lasts=flags & (_WRITABLE | _FORMAT) == _WRITABLE)
    if array is not None:
        return array
    if flags & (_WRITABLE | _FORMAT):
        raise TypeError(_NO_MEMORY)
    return value.tobytes()


def lent(self: Any, *, lasts: bool = False) -> np.ndarray[Any, Any] | None:
    """Return NumPy's array over the memory of an array; ``None`` where it cannot be lent.

    Parameters
    ----------
    lasts : bool
        Whether somebody looks there as long as the array lives, who keeps no more than that.
    """
    if is_tracing() or stands_for_scalar(self):
        return None
    found: np.ndarray[Any, Any] | None = core.lend(self, lasts)
    return found


def array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """Return NumPy's array of the elements: what `numpy.asarray` gives.

    Who names a dtype gets a copy, also if that is the array's: code in C that does so takes what
    comes of no array of NumPy's for its own, and writes into it (f2py, and so LAPACK).

    Raises
    ------
    ValueError
        If ``copy=False``, and another dtype is asked for, or the memory cannot be lent.
    """
    value = taken_out(self, "a function of NumPy's")
    own = copy or (dtype is not None and (copy is None or dtype != self.dtype)) or (
        copy is None and _asking_package() in _TAKE_THEIR_OWN)
    found = None if own else lent(self)
    if found is not None:
        return found
    if copy is False:
        raise ValueError(_NO_COPY)
    made = np.array(value, dtype=dtype, copy=True, order="C")
    if not own and not stands_for_scalar(self):
        made.flags.writeable = False
    return made


def _asking_package() -> str:
    """Return the package of the Python code that asked NumPy, which asked the caller."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")
    return name.partition(".")[0]


def interface(self: Any) -> dict[str, Any]:
    """Return where the elements lie, and how (`__array_interface__`), to who knows no other way.

    NumPy would ask for it in the place of `__array__`.  Where the memory cannot be lent it is that
    of a copy.

    Raises
    ------
    AttributeError
        To others, who then look for other ways.
    """
    package, _, _ = sys._getframe(1).f_globals.get("__name__", "").partition(".")
    if package not in _READ_THE_INTERFACE or self.dtype.num >= _FIRST_USER_DTYPE:
        raise AttributeError("TiledArray has no attribute '__array_interface__'")
    found = lent(self, lasts=True)
    host = self.numpy() if found is None else found
    # The array itself in place of its address keeps the memory alive; the strides are told since
    # PIL then reads the bytes by `tobytes`.
    return {**host.__array_interface__, "data": host, "strides": host.strides}


def memory(self: Any) -> memoryview:
    """Return the memory of the elements (`data`): of a copy, read-only, where it cannot be lent."""
    found = lent(self)
    return self.numpy().data.toreadonly() if found is None else found.data


def for_c(self: Any) -> Any:
    """Return what hands the elements to C (`ctypes`); they stay there as long as the array lives.

    Raises
    ------
    AttributeError
        If the memory cannot be lent.
    """
    found = lent(self, lasts=True)
    if found is None:
        raise AttributeError(f"TiledArray has no attribute 'ctypes' here: {_NO_MEMORY}")
    return found.ctypes


