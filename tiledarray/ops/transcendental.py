"""Exponentials, logarithms, roots, circular and hyperbolic functions."""

from __future__ import annotations

import numpy as np

from tiledarray.ops.op import Elementwise
from tiledarray.ops.ufunc import ufunc


def _function(
    function: np.ufunc, derivative: str, cost: int = 10, quick: str = "", saves: int = 0, *,
    root: str = "", nanoseconds: tuple[float, float],
) -> Elementwise:
    """Declare a function of one argument whose C++ name is ``m_`` and NumPy's name."""
    text = f"m_{function.__name__}(x)"
    return ufunc(function, text, cost=cost, quick=quick, saves=saves, root=root,
                 nanoseconds=nanoseconds, derivatives=(derivative,))


exp = _function(np.exp, "out", root="root_of_exp(x, y)", nanoseconds=(0.8, 0.5))
exp2 = _function(np.exp2, "out * ln2", root="root_of_exp2(x, y)", nanoseconds=(0.7, 0.25))
expm1 = _function(np.expm1, "exp(x)", nanoseconds=(1.1, 0.4))
log = _function(np.log, "1 / x", quick="quick_log(x, rare)", saves=10, nanoseconds=(0.8, 0.4))
log2 = _function(np.log2, "1 / (x * ln2)", nanoseconds=(0.85, 0.2))
log10 = _function(np.log10, "1 / (x * ln10)", nanoseconds=(0.85, 0.25))
log1p = _function(np.log1p, "1 / (1 + x)", nanoseconds=(1.1, 0.45))
logaddexp = ufunc(
    np.logaddexp, "m_logaddexp(x, y)", cost=25, nanoseconds=(16, 15),
    derivatives=tuple(f"exp(where({x} == out, 0, {x} - out))" for x in "xy"),  # infinities, too
)
logaddexp2 = ufunc(
    np.logaddexp2, "m_logaddexp2(x, y)", cost=25, nanoseconds=(17, 15),
    derivatives=tuple(f"exp2(where({x} == out, 0, {x} - out))" for x in "xy"),
)

sqrt = _function(
    np.sqrt, "0.5 / out", cost=4, quick="quick_sqrt(x, rare)", saves=4, nanoseconds=(1.2, 0.4))
cbrt = _function(np.cbrt, "1 / (3 * out * out)", nanoseconds=(1, 0.3))
hypot = ufunc(
    np.hypot, "m_hypot(x, y)", cost=15, nanoseconds=(14, 4.6),
    derivatives=("scaled(x, 1 / out)", "scaled(y, 1 / out)"),
)

sin = _function(np.sin, "cos(x)", nanoseconds=(8.2, 0.5))
cos = _function(np.cos, "-sin(x)", nanoseconds=(8.2, 0.5))
tan = _function(np.tan, "1 + out * out", cost=15, nanoseconds=(1.4, 0.4))
arcsin = _function(np.arcsin, "1 / sqrt(1 - x * x)", nanoseconds=(2.1, 1.4))
arccos = _function(np.arccos, "-1 / sqrt(1 - x * x)", nanoseconds=(2.3, 1.5))
arctan = _function(np.arctan, "1 / (1 + x * x)", nanoseconds=(1.2, 0.4))
arctan2 = ufunc(
    np.arctan2, "m_arctan2(x, y)", cost=20, nanoseconds=(2.1, 0.6),
    derivatives=("scaled(y, 1 / (x * x + y * y))", "scaled(-x, 1 / (x * x + y * y))"),
)

sinh = _function(np.sinh, "cosh(x)", nanoseconds=(1.2, 0.4))
cosh = _function(np.cosh, "sinh(x)", nanoseconds=(1, 0.3))
tanh = _function(np.tanh, "1 - out * out", nanoseconds=(1.7, 0.4))
arcsinh = _function(np.arcsinh, "1 / sqrt(x * x + 1)", cost=15, nanoseconds=(2.1, 0.7))
arccosh = _function(np.arccosh, "1 / (sqrt(x - 1) * sqrt(x + 1))", cost=15, nanoseconds=(3.9, 2.9))
arctanh = _function(np.arctanh, "1 / (1 - x * x)", cost=15, nanoseconds=(1.9, 1.3))
