"""Comparisons, extrema, logic and tests of floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.ops.op import Elementwise
from tiledarray.ops.ufunc import Loop, Operand, plain, ufunc

equal = ufunc(np.equal, "m_equal(x, y)", beyond=False, ordered=False)
not_equal = ufunc(np.not_equal, "m_not(m_equal(x, y))", beyond=True, ordered=False)
less = ufunc(np.less, "m_less(x, y)", beyond=True)
less_equal = ufunc(np.less_equal, "m_less_equal(x, y)", beyond=True)
greater = ufunc(np.greater, "m_less(y, x)", beyond=False)
greater_equal = ufunc(np.greater_equal, "m_less_equal(y, x)", beyond=False)

maximum = ufunc(
    np.maximum, {"b": "m_or(x, y)", "ec": "m_first_maximum(x, y)", "*": "m_maximum(x, y)"}, cost=2,
    derivatives=("above(x, y)", "above(y, x)"),
)
minimum = ufunc(
    np.minimum, {"b": "m_and(x, y)", "ec": "m_first_minimum(x, y)", "*": "m_minimum(x, y)"}, cost=2,
    derivatives=("above(y, x)", "above(x, y)"),
)
fmax = ufunc(
    np.fmax, {"b": "m_or(x, y)", "*": "m_fmax(x, y)"}, cost=2,
    derivatives=("where(isnan(y), 1.0, above(x, y))", "where(isnan(x), 1.0, above(y, x))"),
)
fmin = ufunc(
    np.fmin, {"b": "m_and(x, y)", "*": "m_fmin(x, y)"}, cost=2,
    derivatives=("where(isnan(y), 1.0, above(y, x))", "where(isnan(x), 1.0, above(x, y))"),
)

logical_and = ufunc(np.logical_and, "m_and(cast<bool>(x), cast<bool>(y))")
logical_or = ufunc(np.logical_or, "m_or(cast<bool>(x), cast<bool>(y))")
logical_xor = ufunc(np.logical_xor, "m_xor(cast<bool>(x), cast<bool>(y))")
logical_not = ufunc(np.logical_not, "m_not(cast<bool>(x))")

isnan = ufunc(np.isnan, "m_isnan(x)")
isinf = ufunc(np.isinf, "m_isinf(x)")
isfinite = ufunc(np.isfinite, "m_isfinite(x)")
signbit = ufunc(np.signbit, "m_signbit(x)")


# Which is larger, the size of a complex number or another number: what the planner makes of the two
# for a GPU (`rewrite.py`), since squares tell it nearly always.
def _of_size(compare: np.ufunc, name: str) -> Elementwise:
    def compute(xp: Any, x: Any, y: Any, *, dtype: Any) -> Any:
        return getattr(xp, compare.__name__)(xp.absolute(x), y)

    return plain(name, compute, f"{name}(x, y)", _loops_of_size, cost=6)


def _loops_of_size(x: Operand, y: Operand) -> Loop:
    return (np.dtype(np.complex64), np.dtype(np.float32)), np.dtype(bool)


OF_SIZES: dict[Elementwise, Elementwise] = {
    less: _of_size(np.less, "size_less"),
    less_equal: _of_size(np.less_equal, "size_less_equal"),
    greater: _of_size(np.greater, "size_greater"),
    greater_equal: _of_size(np.greater_equal, "size_greater_equal"),
}
TURNED = {less: greater, less_equal: greater_equal, greater: less, greater_equal: less_equal}
