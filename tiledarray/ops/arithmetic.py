"""Arithmetic, rounding and the handling of floats as bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiledarray.ops.ufunc import Loop, Operand, plain, result_dtype, ufunc


def _common_rule(*operands: Operand) -> Loop:
    common = result_dtype(*operands)
    return (common,) * len(operands), common


add = ufunc(np.add, {"b": "m_or(x, y)", "iu": "m_add(x, y)", "fc": "x + y"}, derivatives=("1", "1"))
subtract = ufunc(np.subtract, {"iu": "m_subtract(x, y)", "fc": "x - y"}, derivatives=("1", "-1"))
multiply = ufunc(
    np.multiply, {"b": "m_and(x, y)", "iu": "m_multiply(x, y)", "fc": "x * y"},
    derivatives=("y", "x"),
)
divide = ufunc(
    np.divide, "x / y", cost=4, quick="quick_divide(x, y, rare)", saves=4,
    derivatives=("inverse(y)", "-out / y"),
)
floor_divide = ufunc(
    np.floor_divide, "m_floor_divide(x, y)", cost=20, nanoseconds=(15, 11), derivatives=("0", "0")
)
remainder = ufunc(
    np.remainder, "m_remainder(x, y)", cost=20, nanoseconds=(8.5, 8.7),
    derivatives=("1", "-floor_divide(x, y)"),
)
fmod = ufunc(
    np.fmod, "m_fmod(x, y)", cost=20, nanoseconds=(12, 12), derivatives=("1", "-trunc(x / y)")
)
_POWER: dict[str, Any] = {
    "cost": 30, "quick": "quick_power(x, y, rare)", "usual": "with_exponent",
    "rare": "rare_power(x, known)", "exponent": True, "nanoseconds": (2.2, 0.7),
    "derivatives": ("scaled(y, x ** (y - 1))", "scaled(out, log(x))"),
}
# From some version on NumPy takes the root where the exponent is one number, 1/2: -0.0 of -0.0.
_TAKES_ROOTS = bool(np.signbit(np.power(np.array([-0.0, 1.0]), 0.5))[0])
power_constant = ufunc(
    np.power, {"e": "m_power(x, y)", "f": "m_power_constant(x, y)", "*": "m_power(x, y)"},
    name="power_constant", **_POWER
)
power = ufunc(
    np.power, "m_power(x, y)", constant=power_constant if _TAKES_ROOTS else None, **_POWER
)
float_power = ufunc(
    np.float_power, "m_power(x, y)", cost=30, nanoseconds=(9.9, 10.2),
    derivatives=("scaled(y, x ** (y - 1))", "scaled(out, log(x))"),
)

positive = ufunc(np.positive, "x", cost=0, derivatives=("1",))
negative = ufunc(np.negative, "m_negative(x)", derivatives=("-1",))
absolute = ufunc(np.absolute, "m_abs(x)", derivatives=("conj(sign(x))",))
fabs = ufunc(np.fabs, "m_abs(x)", nanoseconds=(2.2, 1.4), derivatives=("sign(x)",))
sign = ufunc(
    np.sign, "m_sign(x)", cost=2,
    vjp=({"f": "", "c": "scaled(-1j * conj(out) * real(1j * g * out), 1 / abs(x))"},),
)
square = ufunc(np.square, {"iuc": "m_square(x)", "f": "x * x"}, derivatives=("2 * x",))
reciprocal = ufunc(
    np.reciprocal, "m_reciprocal(x)", cost=4, quick="quick_divide(1.f, x, rare)", saves=4,
    derivatives=("-out * out",),
)
conjugate = ufunc(np.conjugate, {"c": "m_conjugate(x)", "*": "x"}, cost=0, vjp=("conj(g)",))

rint = ufunc(np.rint, "m_rint(x)", derivatives=("0",))
floor = ufunc(np.floor, {"f": "m_floor(x)", "*": "x"}, derivatives=("0",))
ceil = ufunc(np.ceil, {"f": "m_ceil(x)", "*": "x"}, derivatives=("0",))
trunc = ufunc(np.trunc, {"f": "m_trunc(x)", "*": "x"}, derivatives=("0",))

degrees = ufunc(np.degrees, "m_degrees(x)", nanoseconds=(2.2, 2.2), derivatives=("180 / pi",))
radians = ufunc(np.radians, "m_radians(x)", nanoseconds=(2.2, 2.2), derivatives=("pi / 180",))
rad2deg = ufunc(np.rad2deg, "m_degrees(x)", derivatives=("180 / pi",))
deg2rad = ufunc(np.deg2rad, "m_radians(x)", derivatives=("pi / 180",))

gcd = ufunc(np.gcd, "m_gcd(x, y)", cost=100)
lcm = ufunc(np.lcm, "m_lcm(x, y)", cost=100)

copysign = ufunc(
    np.copysign, "m_copysign(x, y)", derivatives=("copysign(1, x) * copysign(1, y)", "0")
)
heaviside = ufunc(
    np.heaviside, "m_heaviside(x, y)", cost=3, nanoseconds=(2.2, 2.4),
    derivatives=("0", "one(x == 0)"),
)
_NEXT_HALF = ("m_nextafter(x, y)" if np.signbit(np.nextafter(np.float16(0), np.float16(-0.0)))
              else "m_nextafter_or_first(x, y)")
nextafter = ufunc(
    np.nextafter, {"f": "m_nextafter(x, y)", "h": _NEXT_HALF}, cost=6,
    nanoseconds=(6.6, 2.2),
    derivatives=("1", "0"),
)
spacing = ufunc(
    np.spacing, {"f": "m_spacing(x)", "h": "m_spacing(x)"}, cost=4, nanoseconds=(2.7, 1.9),
    derivatives=("0",),
)
ldexp = ufunc(np.ldexp, "m_ldexp(x, y)", cost=6, derivatives=("ldexp(1.0, y)", ""))
frexp_mantissa = ufunc(
    np.frexp, "m_frexp_mantissa(x)", cost=6, name="frexp_mantissa",
    derivatives=("scaled(out, 1 / x)",),
)
frexp_exponent = ufunc(
    np.frexp, "m_frexp_exponent(x)", cost=6, output=1, name="frexp_exponent"
)
modf_fraction = ufunc(
    np.modf, "m_modf_fraction(x)", cost=4, name="modf_fraction", nanoseconds=(2.1, 2.3),
    derivatives=("1",),
)
modf_integer = ufunc(
    np.modf, "m_trunc(x)", output=1, name="modf_integer", nanoseconds=(2.1, 2.3),
    derivatives=("0",),
)


def _scaled(xp: Any, x: Any, y: Any, *, dtype: Any) -> Any:
    return xp.where((x == 0) | (y == 0), xp.zeros((), dtype), x * y)


# A product that is 0 where one factor is, whatever the other: what gradients are made of.
scaled = plain(
    "scaled", _scaled, {
        "b": "m_and(x, y)", "iu": "m_multiply(x, y)",
        "f": "m_scaled(x, y)",
        "c": "m_where(m_or(m_equal(x, cast<T>(0)), m_equal(y, cast<T>(0))), cast<T>(0), x * y)",
    },
    _common_rule, cost=2, shown="x * y", derivatives=("y", "x"),
)


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
