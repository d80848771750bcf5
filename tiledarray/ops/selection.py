"""Elementwise ops that are no ufuncs: selecting, casting, and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.ops.ufunc import Loop, Operand, plain, result_dtype, ufunc

_BOOL = np.dtype(bool)
_WRAPS = np.lib.NumpyVersion(np.__version__) < "2.5.0"  # `where` casts ints beyond the dtype


def _where_rule(condition: Operand, first: Operand, second: Operand) -> Loop:
    common = result_dtype(first, second)
    return (_BOOL, common, common), common


def _cast_rule(source: Operand) -> Loop:
    # The target is the node's dtype, which the caller knows.
    loop = result_dtype(source)
    return (loop,), loop


def _part_rule(operand: Operand) -> Loop:
    loop = result_dtype(operand)
    return (loop,), np.empty(0, loop).real.dtype


def _make_complex_rule(re: Operand, im: Operand) -> Loop:
    whole = np.result_type(result_dtype(re, im), np.complex64)
    part = np.empty(0, whole).real.dtype
    return (part, part), whole


def _where(xp: Any, condition: Any, first: Any, second: Any, *, dtype: Any) -> Any:
    return xp.where(condition, first, second)


def _cast(xp: Any, array: Any, *, dtype: Any) -> Any:
    wanted = np.dtype(dtype)
    if array.dtype.kind == "c" and wanted.kind not in "cb":
        array = array.real
    if xp is not np and array.dtype.kind == "f" and wanted.kind == "u":
        # CuPy takes 0 for what is negative, a processor (and the kernels) what its bits are.
        whole = array.astype(np.int64).astype(wanted)
        return xp.where(array < 2.0**63, whole, array.astype(wanted))
    return array


def _bits(xp: Any, array: Any, *, dtype: Any) -> Any:
    return array.view(dtype)


def has_bits(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether kernels can read numbers of a dtype as others: halves are wider in registers."""
    return source.itemsize == target.itemsize and all(
        dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize in (4, 8))
        for dtype in (source, target))


def _real(xp: Any, array: Any, *, dtype: Any) -> Any:
    return array.real


def _imag(xp: Any, array: Any, *, dtype: Any) -> Any:
    return array.imag


def _make_complex(xp: Any, re: Any, im: Any, *, dtype: Any) -> Any:
    result = xp.empty(np.broadcast_shapes(re.shape, im.shape), dtype)
    result.real = re
    result.imag = im
    return result


class _Asked(np.ndarray):
    """What is told by which ufunc NumPy's `clip` is done: that has no public name."""

    def __array_ufunc__(self, ufunc: np.ufunc, *_: Any, **options: Any) -> Any:
        return ufunc


CLIP: np.ufunc = np.clip(np.empty(1).view(_Asked), 0, 1)  # type: ignore[assignment]
_CLIP = {
    "b": "m_and(m_or(x, y), z)", "e": "m_first_minimum(m_first_maximum(x, y), z)",
    "c": "m_clip_complex(x, y, z)", "*": "m_minimum(m_maximum(x, y), z)",
}
_CLIP_DERIVATIVES = (
    "one((x >= y) & (x <= z))", "one((x < y) & (y <= z))", "one(maximum(x, y) > z)",
)

where = plain(
    "where", _where, "m_where(x, y, z)", _where_rule, nanoseconds=(1, 1), wraps=_WRAPS,
    vjp=("", "where(x, g, 0)", "where(x, 0, g)"),
)
clip_constant = ufunc(
    CLIP, {**_CLIP, "f": "m_clip(x, y, z)"}, cost=4, name="clip_constant", nanoseconds=(1, 0.5),
    derivatives=_CLIP_DERIVATIVES,
)
clip = ufunc(
    CLIP, _CLIP, cost=4, nanoseconds=(1, 0.5), constant=clip_constant,
    derivatives=_CLIP_DERIVATIVES,
)
cast = plain("cast", _cast, "x", _cast_rule, derivatives=("1",))
bits = plain("bits", _bits, "m_bits<T>(x)", _cast_rule, cost=0, vjp=("reinterpreted(g, x)",))
real = plain("real", _real, {"c": "x.re", "*": "x"}, _part_rule, cost=0, derivatives=("1",))
imag = plain(
    "imag", _imag, {"c": "x.im", "*": "(T)0"}, _part_rule, cost=0,
    derivatives=({"c": "-1j", "f": "0"},),
)
make_complex = plain(
    "make_complex", _make_complex, "make_complex(x, y)", _make_complex_rule, cost=0,
    derivatives=("1", "1j"),
)
