"""Exponentials, logarithms, roots, circular and hyperbolic functions."""

from __future__ import annotations

import numpy as np

from tiledarray.ops.op import Elementwise
from tiledarray.ops.ufunc import ufunc


def _function(function: np.ufunc, cost: int = 10, quick: str = "") -> Elementwise:
    """Declare a function of one argument whose C++ name is ``m_`` and NumPy's name."""
    return ufunc(function, f"m_{function.__name__}(x)", cost=cost, quick=quick)


exp = _function(np.exp)
exp2 = _function(np.exp2)
expm1 = _function(np.expm1)
log = _function(np.log, quick="quick_log(x, rare)")
log2 = _function(np.log2)
log10 = _function(np.log10)
log1p = _function(np.log1p)
logaddexp = ufunc(np.logaddexp, "m_logaddexp(x, y)", cost=25)
logaddexp2 = ufunc(np.logaddexp2, "m_logaddexp2(x, y)", cost=25)

sqrt = _function(np.sqrt, cost=4, quick="quick_sqrt(x, rare)")
cbrt = _function(np.cbrt)
hypot = ufunc(np.hypot, "m_hypot(x, y)", cost=15)

sin = _function(np.sin)
cos = _function(np.cos)
tan = _function(np.tan, cost=15)
arcsin = _function(np.arcsin)
arccos = _function(np.arccos)
arctan = _function(np.arctan)
arctan2 = ufunc(np.arctan2, "m_arctan2(x, y)", cost=20)

sinh = _function(np.sinh)
cosh = _function(np.cosh)
tanh = _function(np.tanh)
arcsinh = _function(np.arcsinh, cost=15)
arccosh = _function(np.arccosh, cost=15)
arctanh = _function(np.arctanh, cost=15)
