"""Methods of `TiledArray` that compute the value."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.arrays import lending, views
from tiledarray.arrays.handle import (
    as_node,
    scalar,
    shown,
    stands_for_scalar,
    taken_out,
    wrap,
)
from tiledarray.arrays.tracing import may_look
from tiledarray.devices.device import home, resolve
from tiledarray.graph.dtypes import is_numeric
from tiledarray.ops import movement
from tiledarray.recording import record
from tiledarray.recording.history import check_look
from tiledarray.recording.stretch import local, looked

_FEW_BYTES = 1 << 12  # may be an object that others have, too


def numpy(self: Any) -> np.ndarray[Any, Any]:
    """Compute the array and return its value for NumPy.

    Returns
    -------
    numpy.ndarray
        A new one, row-major, of the array's shape and dtype.  Neither sees what is written into
        the other.

    Raises
    ------
    TypeError
        Under `jit`, which cannot look at values.

    Examples
    --------
    >>> import tiledarray as np
    >>> (np.arange(3) * 2).numpy()
    array([0, 2, 4])
    """
    return np.array(taken_out(self, "numpy()"), copy=True, order="C")


def cupy(self: Any) -> Any:
    """Compute the array and return its value for CuPy.

    Returns
    -------
    cupy.ndarray
        A new one, on the current GPU of CuPy.

    Raises
    ------
    ModuleNotFoundError
        If CuPy is not installed.
    TypeError
        Under `jit`, which cannot look at values.
    """
    import cupy

    if self._array is None:
        check_look(self.node, "cupy()")
    found = self.evaluated()
    return cupy.array(found if self._base is not None else found.array)


def nonzero(self: Any) -> tuple[Any, ...]:
    """Return the places of the elements that are not zero: an array for each axis."""
    node = self.computed()
    if node.device.kind == "auto" and self.size <= core.small():
        array, device = shown(self), home()
    else:
        device = node.buffer.device  # where the value lies
        array = node.buffer.array
        if self._base is not None:
            array = views.on_array(array, self._steps)
    return tuple(
        wrap(record.leaf(device.wrap(places, copy=True), node.device))
        for places in device.xp.nonzero(array)
    )


def item(self: Any, *place: Any) -> Any:
    """Return one element as a Python scalar.

    Raises
    ------
    ValueError
        If none is named and there is not exactly one.
    IndexError
        If there is no such element.
    """
    if place:
        chosen = place[0] if len(place) == 1 else place
        if isinstance(chosen, tuple):
            if len(chosen) != self.ndim:
                raise ValueError("incorrect number of indices for array")
            return self[chosen].item()
        flat, chosen = self.reshape(-1), operator.index(chosen)
        if not -flat.size <= chosen < flat.size:
            raise IndexError(f"index {chosen} is out of bounds for size {flat.size}")
        return flat[chosen].item()
    node = self.node
    if node.op is movement.full and node.buffer is None and node.shape == ():
        return np.asarray(node.inputs[0]).astype(node.dtype).item()
    if self.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    return taken_out(self, "item()").item()


def tolist(self: Any) -> Any:
    """Return the elements as nested lists of Python scalars."""
    return taken_out(self, "tolist()").tolist()


def tobytes(self: Any, order: Any = "C") -> bytes:
    """Return the bytes of the elements."""
    return taken_out(self, "tobytes()").tobytes(order)


def tofile(self: Any, file: Any, sep: str = "", format: str = "%s") -> None:
    """Write the elements to a file."""
    taken_out(self, "tofile()").tofile(file, sep, format)


def dump(self: Any, file: Any) -> None:
    """Pickle the array into a file."""
    self.numpy().dump(file)


def dumps(self: Any) -> bytes:
    """Return the pickled array."""
    return self.numpy().dumps()


def _scalar(self: Any) -> Any:
    if self.shape:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    return self.item()


def to_float(self: Any) -> float:
    """The one element, for ``float``."""
    value = _scalar(self)
    if type(value) is complex and stands_for_scalar(self):
        # Of a complex number the real part, with a warning.
        return float(taken_out(self, "float()")[()])
    return float(value)


def to_int(self: Any) -> int:
    """The one element, for ``int``."""
    if stands_for_scalar(self):
        return int(shown(self)[()])  # of a complex number the real part, with a warning
    return int(_scalar(self))


def to_truncated(self: Any) -> int:
    """The one element, for `math.trunc`."""
    return math.trunc(_scalar(self))


def to_bytes(self: Any) -> bytes:
    """The bytes of the elements, for ``bytes``; of an integer without axes so many zeros."""
    if self.shape or self.dtype.kind not in "iu":
        return tobytes(self)
    return bytes(to_index(self))


def to_complex(self: Any) -> complex:
    """The one element, for ``complex``."""
    return complex(_scalar(self))


def to_index(self: Any) -> int:
    """The one integer, for ``range`` and the indices of lists.

    Raises
    ------
    TypeError
        If the array has axes, is none of integers, or has no value here.
    """
    if self.shape or self.dtype.kind not in "iu":
        raise TypeError("only integer scalar arrays can be converted to a scalar index")
    if not (self.is_computed() or may_look([self])):
        raise looked("an axis, a length, a count or a bound has to be "
                     f"{local.recorder.scope.drawn}. Give it as a number of Python's, not as an "
                     "array")
    return int(self.item())


def to_bool(self: Any) -> bool:
    """The truth of the one element, for ``if``.

    Raises
    ------
    ValueError
        If there is not exactly one element.
    """
    size = self.size
    if size == 1:
        return bool(shown(self).item())
    if size == 0:
        raise ValueError(
            "The truth value of an empty array is ambiguous. Use `array.size > 0` to check "
            "that an array is not empty."
        )
    raise ValueError(
        "The truth value of an array with more than one element is ambiguous. Use a.any() or "
        "a.all()"
    )


def to_rounded(self: Any, digits: int | None = None) -> Any:
    """What ``round`` gives: of an array without axes a Python int."""
    if self.shape:
        raise TypeError("type numpy.ndarray doesn't define __round__ method")
    if digits is None:
        return round(self.item())
    return np.round(self, digits or 0)


def to_repr(self: Any) -> str:
    """The text of the value, for ``repr``."""
    array = shown(self)
    return repr(array[()] if stands_for_scalar(self) else array)


def _one(self: Any) -> Any:
    """Return the value of an array without axes as NumPy's scalar."""
    value = self._array
    return value if isinstance(value, np.generic) else shown(self)[()]


def to_str(self: Any) -> str:
    """The text of the value, for ``str``."""
    return str(shown(self) if self.shape else _one(self))


def to_hash(self: Any) -> int:
    """The hash of the one element, so that a dict finds it.

    Raises
    ------
    TypeError
        If the array has axes: it can change.
    """
    if self.shape:
        raise TypeError(f"unhashable type: {type(self).__name__!r}")
    return hash(_one(self))


def to_format(self: Any, specification: str) -> str:
    """The text of the one element, for ``format``.

    Raises
    ------
    TypeError
        If the array has axes and there is a specification.
    """
    if not self.shape:
        return format(_one(self), specification)
    if specification:
        raise TypeError("unsupported format string passed to TiledArray.__format__")
    return str(self)


def to_pickle(self: Any) -> Any:
    """What `pickle` keeps: the value, as an array that is nobody else's."""
    value = taken_out(self, "pickle").view()
    return _restore, (value[()] if stands_for_scalar(self) else value,)


def to_dlpack(
    self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """The value for another library, by DLPack: the array's own memory where that is on the host.

    On a GPU it is a copy, unless ``copy=False``: that memory is lent, and while the consumer has
    it, what is written into this array goes elsewhere.

    Raises
    ------
    HistoryLost
        If the value has a history, in a function whose gradient is wanted.
    """
    if self._array is None:
        check_look(self.node, "DLPack")
    array = None if copy else lending.lent(self)
    if array is not None:
        # Not all who ask understand what is read-only: NumPy refuses older ones.
        with contextlib.suppress(BufferError):
            return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)
    if copy is False:
        array = views.on_array(self.origin().evaluated().lend(), self.steps)
    else:
        found = self.evaluated()
        array = (found if self._base is not None else found.array).copy()
    self.origin().evaluated().device.tell_outcomes()
    return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)


def dlpack_device(self: Any) -> tuple[int, int]:
    """Where the value is, for DLPack."""
    if self._array is not None:
        return (1, 0)  # the host
    found = self.evaluated()
    array = found if self._base is not None else found.array
    kind, number = array.__dlpack_device__()
    return int(kind), int(number)


def _restore(value: Any) -> Any:
    if isinstance(value, np.generic):
        return scalar(value, resolve())
    if not is_numeric(value.dtype) or not value.ndim:
        return wrap(as_node(value, resolve()))
    # NumPy leaves what is large in the bytes that were read just now, for this array alone.
    own = (value.flags.writeable and value.nbytes > _FEW_BYTES
           and (value.base is None or type(value.base) is bytes))
    return wrap(record.leaf(resolve().wrap(value, copy=not own, given=own)))
