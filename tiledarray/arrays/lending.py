"""What others get who ask for an array's memory.

It is the array's own where that lies on the host (`core.lend`), as NumPy's would be; otherwise a
copy that cannot be written, so that nothing written is lost.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.arrays.handle import stands_for_scalar, taken_out
from tiledarray.arrays.tracing import is_tracing
from tiledarray.recording.history import check_look

# Flags of who asks for a buffer: to write, or to know what is in it.
_WRITABLE, _FORMAT = 0x1, 0x4  # PyBUF_WRITABLE, PyBUF_FORMAT

# Packages that read `__array_interface__` themselves, and hand no array of ours to NumPy.
_READ_THE_INTERFACE = frozenset(("PIL",))
_HAS_BUFFERS = core.kind == "c" or sys.version_info >= (3, 12)
_FIRST_USER_DTYPE = 256  # NPY_USERDEF: dtypes that NumPy's protocols cannot name

_NO_COPY = "Unable to avoid copy while creating an array as requested."
_NO_MEMORY = ("a TiledArray that is on a GPU, has a history or stands for a scalar of NumPy's "
              "lends nobody its memory: hand over x.numpy(), a copy, and give the array what is "
              "written into that by x[...] = ")

# NumPy ignores all that is raised where it asks for a buffer, and then asks `__array__`: the
# thread, the array, and what it ignored.
_untold: tuple[int, int, BaseException] | None = None


def _is_untold(array: Any) -> bool:
    return _untold is not None and _untold[:2] == (threading.get_ident(), id(array))


def _tell(array: Any) -> None:
    """Raise what NumPy has ignored of this array just now."""
    global _untold
    if _untold is not None and _is_untold(array):
        error, _untold = _untold[2], None
        raise error


def buffer(self: Any, flags: int) -> Any:
    """Return what gives the buffer of an array.

    `numpy.ndarray(buffer=x)` and `numpy.frombuffer(x)` look where the memory is, release the buffer
    and keep a reference to ``x`` alone.  They ask for memory to be written, and not what is in it:
    what such are given lasts as long as ``x`` does.

    Raises
    ------
    TypeError
        If the memory cannot be lent; who only reads bytes gets those of a copy.
    """
    global _untold
    try:
        if is_tracing():
            check_look(self.node, "a buffer")
        value = taken_out(self, "a buffer")
        array = lent(self, lasts=flags & (_WRITABLE | _FORMAT) == _WRITABLE)
    except BaseException as error:
        if flags & _FORMAT:
            _untold = threading.get_ident(), id(self), error
        raise
    _untold = None
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

    Raises
    ------
    ValueError
        If ``copy=False``, and another dtype is asked for, or the memory cannot be lent.
    """
    _tell(self)
    value = taken_out(self, "a function of NumPy's")
    found = None if copy else lent(self)
    if found is not None and (dtype is None or found.dtype == dtype):
        return found
    if copy is False:
        raise ValueError(_NO_COPY)
    made = np.array(value, dtype=dtype, copy=True, order="C")
    if not copy and found is None and not stands_for_scalar(self):
        made.flags.writeable = False
    return made


def interface(self: Any) -> dict[str, Any]:
    """Return where the elements lie, and how (`__array_interface__`).

    Where the memory cannot be lent it is that of a copy to those who know no other way.  Without
    buffers NumPy would ask for this in the place of `__array__`, and all that it is told lasts.

    Raises
    ------
    AttributeError
        To others, who then look for other ways: NumPy asks `__array__`.
    """
    nameless = self.dtype.num >= _FIRST_USER_DTYPE
    asked = _HAS_BUFFERS and not nameless and not _is_untold(self)  # else by NumPy
    found = lent(self, lasts=True) if asked else None
    made: dict[str, Any]
    if found is not None:
        made = found.__array_interface__
        return made
    package, _, _ = sys._getframe(1).f_globals.get("__name__", "").partition(".")
    if package not in _READ_THE_INTERFACE or nameless:
        raise AttributeError("TiledArray has no attribute '__array_interface__'")
    host = self.numpy()
    # The array itself in place of its address keeps the memory alive; the strides are told since
    # PIL then reads the bytes by `tobytes`.
    made = {**host.__array_interface__, "data": host, "strides": host.strides}
    return made


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


