"""Dtype and shape rules of elementwise ops: asked of NumPy once, then remembered.

A *key* stands for an operand: its ``numpy.dtype``, or the type of a Python scalar, which is weak
(NEP 50) and therefore takes part with its type only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tiledarray.errors import LeaveToNumPy
from tiledarray.ops import elementwise
from tiledarray.ops.op import Elementwise

Shape = tuple[int, ...]
Key = Any

_REMEMBERED = 1 << 14
_LONG = np.iinfo(np.long)
_UNSIGNED = np.iinfo(np.ulong)


class UnsupportedDtypeError(LeaveToNumPy, TypeError):
    """No kernel computes with this dtype; NumPy itself may."""


class Signature(NamedTuple):
    """What NumPy does with operands of certain keys.

    Parameters
    ----------
    loop : tuple of numpy.dtype
        What each input is cast to.
    dtype : numpy.dtype
        Of the result.
    converters : tuple
        For each operand that is a Python scalar the function which checks it and makes it the
        loop's kind of number, else ``None``.
    """

    loop: tuple[np.dtype[Any], ...]
    dtype: np.dtype[Any]
    converters: tuple[Any, ...]


def canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return NumPy's own object of a dtype, if it is of numbers in native byte order.

    An equal one (unpickled, or of ``newbyteorder``) is the same to kernels; but NumPy compares by
    identity in places: ``np.add.at`` of arrays of one takes twenty times as long.
    """
    if dtype.kind in "biufc" and dtype.isnative and dtype.metadata is None:
        return np.dtype(dtype.char)
    return dtype


@lru_cache(maxsize=256)
def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether kernels can compute with the dtype."""
    return elementwise.has_kernel(dtype)


_signatures: dict[tuple[Any, ...], Signature] = {}


def signature(op: Elementwise, *keys: Key) -> Signature:
    """Return the signature of an op for these operands.

    Raises
    ------
    TypeError
        NumPy's own, where it has no such loop.
    UnsupportedDtypeError
        Where NumPy has a loop but the kernels have none.
    """
    found = _signatures.get((op, *keys))
    if found is None:
        loop, dtype = _resolve(op, keys)
        if not all(is_numeric(part) for part in (*loop, dtype)):
            raise UnsupportedDtypeError(f"{op.name}: no kernel for {loop} -> {dtype}")
        converters = tuple(
            _converter(part, exponent=op.exponent and place == 1, wraps=op.wraps)
            if isinstance(key, type) else None
            for place, (part, key) in enumerate(zip(loop, keys, strict=True))
        )
        found = _signatures[(op, *keys)] = Signature(loop, dtype, converters)
    return found


def _resolve(
    op: Elementwise, keys: tuple[Key, ...]
) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    if op.ufunc is not None:
        # The call raises what NumPy raises, in NumPy's words; the samples are empty.
        samples = [key(1) if isinstance(key, type) else np.empty(0, key) for key in keys]
        with np.errstate(all="ignore"):
            op.ufunc(*samples)
    loop, dtype = elementwise.loop_dtypes(op, keys)
    return tuple(loop), dtype


def _converter(loop: np.dtype[Any], *, exponent: bool, wraps: bool) -> Callable[[Any], Any]:
    if loop.kind == "b":
        return bool
    if loop.kind in "fV":  # V: ml_dtypes' own floats
        return float
    if loop.kind == "c":
        return complex
    limits = np.iinfo(loop)
    low, high = int(limits.min), int(limits.max)

    def checked(value: Any) -> int:
        if low <= value <= high:
            if exponent and value < 0:
                raise ValueError("Integers to negative integer powers are not allowed.")
            return int(value)
        if wraps:
            return int(np.asarray(value).astype(loop))
        wide = loop.kind == "u" and loop.itemsize >= 4
        if not _LONG.min <= value <= (_UNSIGNED if wide else _LONG).max:
            raise OverflowError("Python int too large to convert to C long")
        raise OverflowError(f"Python integer {value} out of bounds for {loop}")

    return checked


def compares_beyond(
    op: Elementwise, value: Any, dtype: np.dtype[Any], *, reflected: bool
) -> bool | None:
    """Return the answer of comparing integers of ``dtype`` with an int they cannot hold.

    ``None`` if this is no such comparison.
    """
    if op.beyond is None or type(value) is not int or dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    if limits.min <= value <= limits.max:
        return None
    return op.beyond ^ (value < limits.min) ^ reflected if op.ordered else op.beyond


_broadcasts: dict[tuple[Shape, ...], Shape] = {}


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that the operands of an elementwise op broadcast to.

    Raises
    ------
    ValueError
        If they do not fit.
    """
    found = _broadcasts.get(shapes)
    if found is None:
        try:
            # NumPy's function knows 32 axes only, its arrays have up to 64.
            found = shapes[0] if len(set(shapes)) == 1 else np.broadcast_shapes(*shapes)
        except ValueError as error:
            if "too large" in str(error):
                raise
            text = "".join(f"{shape_text(shape)} " for shape in shapes)
            raise ValueError(
                f"operands could not be broadcast together with shapes {text}"
            ) from None
        if len(_broadcasts) > _REMEMBERED:
            _broadcasts.clear()
        _broadcasts[shapes] = found
    return found


def shape_text(shape: Shape) -> str:
    """Return a shape as NumPy's messages write it: ``(2,3)``, ``(2,)``, ``()``."""
    inner = ",".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
