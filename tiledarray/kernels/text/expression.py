"""C++ text of elementwise ops: names of types, and an op applied to named operands.

In an op's ``expression`` the kinds of the first loop dtype choose the text (see `Elementwise`).
float16 and bfloat16 are computed in float32 and rounded, so they use the ``f`` text on widened
operands; a kind ``h``, where an op has it, gets them as they are (`nextafter`, `spacing`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.ops.op import Elementwise

_DType = np.dtype[Any]

_BYTES_TO_BITS = 8
_PREFIX = {"i": "i", "u": "u", "f": "f", "c": "c"}
_PLACEHOLDER = re.compile(r"\b[xyzwT]\b")


@functools.cache
def is_half(dtype: _DType) -> bool:
    """Whether values are stored in 16 bits and computed in float32."""
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16")


@functools.cache
def ctype(dtype: _DType) -> str:
    """Return the C++ name of a dtype in ``types.h``.

    Raises
    ------
    KeyError
        If kernels have no such type (long double, strings, objects, times, ...).
    """
    if dtype.kind == "b":
        return "bool"
    if dtype.name == "bfloat16":
        return "bf16"
    if dtype.kind not in _PREFIX or dtype.char in "gG":
        raise KeyError(dtype)
    return _PREFIX[dtype.kind] + str(_BYTES_TO_BITS * dtype.itemsize)


def _text(op: Elementwise, dtype: _DType) -> tuple[str, bool]:
    """Return the op's text for a first loop dtype, and whether it wants float16 widened."""
    if isinstance(op.expression, str):
        return op.expression, True
    half = is_half(dtype)
    if half and "h" in op.expression:
        return op.expression["h"], False
    kinds = ("e", "f", "*") if half else (dtype.kind, "*")
    found = next((op.expression[kind] for kind in kinds if kind in op.expression), None)
    if found is None:
        raise KeyError(f"{op.name} has no expression for {dtype}")
    return found, True


def render(
    op: Elementwise, in_dtypes: Sequence[_DType], out_dtype: _DType, names: Sequence[str],
    *, text: str = "",
) -> str:
    """Return the C++ expression of ``op``, of exactly the type of ``out_dtype``.

    Parameters
    ----------
    op : Elementwise
    in_dtypes : sequence of numpy.dtype
        The loop dtypes (``Node.attrs``), one an operand.
    out_dtype : numpy.dtype
        The node's dtype.
    names : sequence of str
        C++ names of the operands, of whatever type: each is cast to its loop dtype.
    text : str
        Instead of the op's own, over the same operands.
    """
    usual, widening = _text(op, in_dtypes[0])
    text = text or usual
    widened = widening and is_half(in_dtypes[0])
    values = {
        "T": "f32" if widened and is_half(out_dtype) else ctype(out_dtype)
    }
    for letter, name, dtype in zip("xyzw", names, in_dtypes, strict=False):
        value = f"cast<{ctype(dtype)}>({name})"
        values[letter] = f"cast<f32>({value})" if widened and is_half(dtype) else value
    filled = _PLACEHOLDER.sub(lambda match: values[match.group()], text)
    return f"cast<{ctype(out_dtype)}>({filled})"
