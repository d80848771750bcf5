"""Functions of `numpy.polynomial`, NumPy's own text run with arrays of ours, against NumPy's."""

from __future__ import annotations

import pickle

import numpy
import pytest

import tiledarray as ta
from tests.plans import moved, planned
from tests.strategies import agree_on, same

PREFIXES = {"polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "hermite": "herm",
            "hermite_e": "herme", "laguerre": "lag"}
VALUES = {
    "x": numpy.array([0.5, -1.25, 2.0]),
    "y": numpy.array([[1.0, 2.0, -3.0], [0.25, -0.5, 4.0]]),
    "i": numpy.arange(3),
    "s": numpy.array(0.75),
    "z": numpy.array([0.5 + 1j, 2 - 0.25j]),
    "e": numpy.zeros(0),
    "c": numpy.array([1.0, -2.0, 0.5, 3.0]),
    "t": numpy.array([1, 2, 0, 0]),
    "m": numpy.arange(12.0).reshape(4, 3) - 4,
    "k": numpy.arange(24.0).reshape(2, 3, 4) - 9,
}
CALLS = (
    "val(x, c)", "val(x, m)", "val(y, m)", "val(x, m, tensor=False)", "val(s, m)", "val(i, t)",
    "val(y, c[::-1])", "val(2.0, m)", "val([1, 2], m)", "val(z, m)", "val(e, m)", "val(x, 3)",
    "val(y, m, False)", "val(x, z)", "val(c, c)",
    "val2d(x, x[::-1], m)", "val2d(x, y, m)", "val2d(y, y, k)", "val3d(x, x, x[::-1], k)",
    "grid2d(x, c, m)", "grid2d(y, x, k)", "grid3d(x, c, x, k)", "grid2d([1, 2], x, m)",
    "vander(x, 3)", "vander(y, 0)", "vander(x, -1)", "vander(i, 2)", "vander(z, 2)",
    "vander2d(x, x, [1, 2])", "vander3d(x, x, x, (1, 2, 0))", "vander2d(x, y, [1, 2])",
    "der(c)", "der(c, 2)", "der(c, 0)", "der(m, axis=1)", "der(m, 2, 3.0)", "der(t)", "der(c, -1)",
    "int(c)", "int(c, 2, [1, 2])", "int(m, axis=1)", "int(c, k=x[:1])", "int(t)", "int(c, 1, x)",
    "add(c, t)", "sub(c, t)", "sub(t, c)", "mul(c, t)", "mulx(c)", "div(c, t)", "div(c, [0])",
    "pow(t, 3)", "pow(c, -1)", "add(c, m)", "mul(e, c)", "mul(z, c)", "trim(t)", "trim(c, 0.6)",
    "fromroots(x)", "fromroots(c)", "fromroots([])", "companion(c)", "companion(c[:1])", "roots(c)",
    "line(2, 3)", "roots(c[:1])", "fit(c, c**2, 2)", "fit(c, m, [0, 2])", "fit(c, c, 1, w=c)",
    "fit(i, x, 1, full=True)[0]", "fit(x, c, 1)", "gauss(4)", "weight(x)", "2poly(c)",
)
APART = [
    *(f"np.polynomial.polynomial.{call}" for call in (
        "polyvalfromroots(x, c)", "polyvalfromroots(x, m)", "polyvalfromroots(x, m, tensor=False)",
        "polyvalfromroots(y, m)", "polyvalfromroots(i, i)", "polyvalfromroots(s, x)",
        "polyvalfromroots(3, x)")),
    *(f"np.polynomial.chebyshev.{call}" for call in (
        "chebpts1(5)", "chebpts2(4)", "poly2cheb(c)", "chebpts1(0)",
        "chebinterpolate(lambda a: np.exp(a) * np.ones_like(a), 5)")),
    *(f"np.polynomial.{kind}{call}" for kind in ("Polynomial", "Chebyshev", "HermiteE")
      for call in ("(c)(y)", "(c).deriv()(x)", "(c, domain=[0, 2])(s)", "(c)(i)",
                   ".fit(c, c**2, 2)(x)", "(t).integ().coef", "(c).roots()")),
]
EXPRESSIONS = [f"np.polynomial.{module}.{prefix}{call}" for module, prefix in PREFIXES.items()
               for call in CALLS if hasattr(getattr(numpy.polynomial, module),
                                            prefix + call.partition("(")[0])]


WAYS = {"at once": {"at_once": 1 << 16}, "recorded": {"at_once": 0, "first_seconds": 60.0}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("expression", EXPRESSIONS + APART)
def test_as_numpy(expression: str, way: str) -> None:
    with ta.config.override(**WAYS[way]):
        agree_on(expression, ulps=32, **VALUES)


@pytest.mark.parametrize("module", PREFIXES)
def test_series_fuse(module: str) -> None:
    value = getattr(getattr(ta.polynomial, module), PREFIXES[module] + "val")
    x = ta.array(numpy.linspace(-1, 1, 3000))
    plan = planned(value(x, [1.0, 2.0, 0.5, -1.0]).sum())
    assert len(plan.steps) == len(plan.kernels) == 1
    assert moved(plan) <= x.nbytes + 5 * 8


@pytest.mark.parametrize("module", PREFIXES)
def test_gradients(module: str) -> None:
    name = PREFIXES[module] + "val"
    value = getattr(getattr(ta.polynomial, module), name)
    derived = getattr(getattr(ta.polynomial, module), PREFIXES[module] + "der")
    x, c = ta.array(VALUES["x"]), ta.array(VALUES["c"])
    by_x, by_c = ta.grad(lambda x, c: value(x, c).sum(), argnums=(0, 1))(x, c)
    same(by_x, value(x, derived(c)).numpy(), ulps=64)
    vander = getattr(getattr(ta.polynomial, module), PREFIXES[module] + "vander")
    same(by_c, vander(x, 3).sum(0).numpy(), ulps=64)
    assert ta.jit(value)(x, c).tolist() == pytest.approx(value(x, c).tolist())


def test_pickle() -> None:
    for function in (ta.polynomial.polynomial.polyval, ta.polynomial.chebyshev.chebfit):
        assert pickle.loads(pickle.dumps(function)) is function
