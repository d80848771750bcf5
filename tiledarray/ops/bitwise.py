"""Ops on the bits of integers and on bools."""

from __future__ import annotations

import numpy as np

from tiledarray.ops.ufunc import ufunc

bitwise_and = ufunc(np.bitwise_and, {"b": "m_and(x, y)", "iu": "x & y"})
bitwise_or = ufunc(np.bitwise_or, {"b": "m_or(x, y)", "iu": "x | y"})
bitwise_xor = ufunc(np.bitwise_xor, {"b": "m_xor(x, y)", "iu": "x ^ y"})
invert = ufunc(np.invert, {"b": "m_not(x)", "iu": "(T)~x"})
left_shift = ufunc(np.left_shift, "m_left_shift(x, y)", cost=3)
right_shift = ufunc(np.right_shift, "m_right_shift(x, y)", cost=3)
bitwise_count = ufunc(np.bitwise_count, "m_bitwise_count(x)", cost=10)
