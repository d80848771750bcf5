"""Comparisons, extrema, logic and tests of floats."""

from __future__ import annotations

import numpy as np

from tiledarray.ops.ufunc import ufunc

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
