"""Arithmetic, rounding and the handling of floats as bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.ops.ufunc import Loop, Operand, plain, result_dtype, ufunc


def _common_rule(*operands: Operand) -> Loop:
    common = result_dtype(*operands)
    return (common,) * len(operands), common


add = ufunc(np.add, {"b": "m_or(x, y)", "iu": "m_add(x, y)", "fc": "x + y"})
subtract = ufunc(np.subtract, {"iu": "m_subtract(x, y)", "fc": "x - y"})
multiply = ufunc(np.multiply, {"b": "m_and(x, y)", "iu": "m_multiply(x, y)", "fc": "x * y"})
divide = ufunc(np.divide, "x / y", cost=4, quick="quick_divide(x, y, rare)")
floor_divide = ufunc(np.floor_divide, "m_floor_divide(x, y)", cost=20, nanoseconds=(15, 11))
remainder = ufunc(np.remainder, "m_remainder(x, y)", cost=20, nanoseconds=(8.5, 8.7))
fmod = ufunc(np.fmod, "m_fmod(x, y)", cost=20, nanoseconds=(12, 12))
power = ufunc(np.power, "m_power(x, y)", cost=30, exponent=True, nanoseconds=(2.2, 0.7))
float_power = ufunc(np.float_power, "m_power(x, y)", cost=30, nanoseconds=(9.9, 10.2))

positive = ufunc(np.positive, "x", cost=0)
negative = ufunc(np.negative, "m_negative(x)")
absolute = ufunc(np.absolute, "m_abs(x)")
fabs = ufunc(np.fabs, "m_abs(x)", nanoseconds=(2.2, 1.4))
sign = ufunc(np.sign, "m_sign(x)", cost=2)
square = ufunc(np.square, {"iu": "m_square(x)", "fc": "x * x"})
reciprocal = ufunc(
    np.reciprocal, "m_reciprocal(x)", cost=4, quick="quick_divide(1.f, x, rare)"
)
conjugate = ufunc(np.conjugate, {"c": "m_conjugate(x)", "*": "x"}, cost=0)

rint = ufunc(np.rint, "m_rint(x)")
floor = ufunc(np.floor, {"f": "m_floor(x)", "*": "x"})
ceil = ufunc(np.ceil, {"f": "m_ceil(x)", "*": "x"})
trunc = ufunc(np.trunc, {"f": "m_trunc(x)", "*": "x"})

degrees = ufunc(np.degrees, "m_degrees(x)", nanoseconds=(2.2, 2.2))
radians = ufunc(np.radians, "m_radians(x)", nanoseconds=(2.2, 2.2))
rad2deg = ufunc(np.rad2deg, "m_degrees(x)")
deg2rad = ufunc(np.deg2rad, "m_radians(x)")

gcd = ufunc(np.gcd, "m_gcd(x, y)", cost=100)
lcm = ufunc(np.lcm, "m_lcm(x, y)", cost=100)

copysign = ufunc(np.copysign, "m_copysign(x, y)")
heaviside = ufunc(np.heaviside, "m_heaviside(x, y)", cost=3, nanoseconds=(2.2, 2.4))
nextafter = ufunc(
    np.nextafter, {"f": "m_nextafter(x, y)", "h": "m_nextafter(x, y)"}, cost=6,
    nanoseconds=(6.6, 2.2),
)
spacing = ufunc(
    np.spacing, {"f": "m_spacing(x)", "h": "m_spacing(x)"}, cost=4, nanoseconds=(2.7, 1.9),
)
ldexp = ufunc(np.ldexp, "m_ldexp(x, y)", cost=6)
frexp_mantissa = ufunc(np.frexp, "m_frexp_mantissa(x)", cost=6, name="frexp_mantissa")
frexp_exponent = ufunc(
    np.frexp, "m_frexp_exponent(x)", cost=6, output=1, name="frexp_exponent"
)
modf_fraction = ufunc(
    np.modf, "m_modf_fraction(x)", cost=4, name="modf_fraction", nanoseconds=(2.1, 2.3),
)
modf_integer = ufunc(np.modf, "m_trunc(x)", output=1, name="modf_integer", nanoseconds=(2.1, 2.3))


# A product and a sum rounded once: what the planner makes of the two where it may (`rewrite.py`).
def _wide(x: Any) -> Any:
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


multiply_add = plain(
    "multiply_add", lambda xp, x, y, z, dtype: _wide(x) * _wide(y) + z,
    {"f": "m_fma(x, y, z)"}, _common_rule, cost=2,
)
multiply_subtract = plain(
    "multiply_subtract", lambda xp, x, y, z, dtype: _wide(x) * _wide(y) - z,
    {"f": "m_fma(x, y, -z)"}, _common_rule, cost=2,
)
subtract_product = plain(
    "subtract_product", lambda xp, x, y, z, dtype: z - _wide(x) * _wide(y),
    {"f": "m_fma(-x, y, z)"}, _common_rule, cost=2,
)
