"""Every rule for gradients, against differences: of every op, in both modes, to second order."""

import numpy
import pytest

import tiledarray as np
from tests.gradients import check, real
from tiledarray.ops import comparison
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.op import Elementwise

ABOVE_ONE = {"arccosh": (1.2, 2.5)}
NOT_DIFFERENTIABLE = {
    "frexp_exponent", "gcd", "lcm", "bitwise_count", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan",
    "isinf", "isfinite", "signbit", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
    "left_shift", "right_shift",
}
OF_PLANS = {"multiply_add", "multiply_subtract", "subtract_product"}  # a recording has none of them


def test_every_op_with_a_derivative_has_a_rule():
    without = {op.name for op in BY_NAME.values() if not op.derivatives and not op.vjp}
    assert without == NOT_DIFFERENTIABLE | OF_PLANS


UFUNCS = sorted(
    op.name for op in BY_NAME.values()
    if isinstance(op, Elementwise) and op.ufunc is not None and op.ufunc.nout == 1
    and op.name not in NOT_DIFFERENTIABLE | {"ldexp", "spacing", "nextafter", "clip_constant"})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs(name):
    op = BY_NAME[name]
    low, high = ABOVE_ONE.get(name, (0.3, 0.9))
    arrays = [real(2, 3, low=low, high=high), real(3, low=low, high=high, seed=1)]
    if name == "clip":
        check(lambda x: np.clip(x, 0.4, 0.7), arrays[0])
        return
    if name == "power_constant":
        for exponent in (0.37, 0.5, -1.5):
            check(lambda x, exponent=exponent: np.power(x, exponent), arrays[0])
        return
    if name in vars(comparison):
        arrays[1] = arrays[1] * 0.9 + 0.02
    check(getattr(np, name), *arrays[:op.ufunc.nin])


HOLOMORPHIC = (
    "add", "subtract", "multiply", "divide", "power", "negative", "positive", "square",
    "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos",
    "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "absolute", "conjugate",
)


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_complex_ufuncs(name):
    op = BY_NAME[name]
    arrays = [real(2, 2) + 1j * real(2, 2, seed=2), real(2, seed=3) - 1j * real(2, seed=4)]
    check(getattr(np, name), *arrays[:op.ufunc.nin])
    if op.ufunc.nin == 2:
        check(lambda x, y: getattr(np, name)(x, y), arrays[0], real(2, seed=5))


FUNCTIONS = {
    "where": lambda x: np.where(x > 0.6, x * x, 3 * x),
    "sum": lambda x: (x * x).sum(axis=0),
    "sum of all": lambda x: (x * x).sum(),
    "mean": lambda x: (x * x).mean(axis=1, keepdims=True),
    "prod": lambda x: np.prod(x, axis=1),
    "prod of all": lambda x: np.prod(x),
    "max": lambda x: (x * x).max(axis=0),
    "min": lambda x: (x * x).min(),
    "var": lambda x: np.var(x, axis=0),
    "std": lambda x: np.std(x, ddof=1),
    "norm": lambda x: np.linalg.norm(x),
    "cumsum": lambda x: np.cumsum(x * x, axis=1),
    "cumprod": lambda x: np.cumprod(x, axis=0),
    "sort": lambda x: np.sort(x, axis=-1) ** 2,
    "views": lambda x: x[1:, ::-2] * x.T[0, 1:].sum() + x[:1, ::2][..., None, 0],
    "diagonal": lambda x: x.diagonal() * x[:, 0],
    "square diagonal": lambda x: x[:, :3].diagonal() ** 2,
    "diagonals": lambda x: np.concatenate([part.ravel() for part in (
        np.diagonal(x.reshape(3, 2, 2), axis1=1, axis2=2) * x[:, :2],
        np.diagonal(x.reshape(1, 3, 2, 2), axis1=3, axis2=2) ** 2,
        np.diagonal(x.reshape(2, 3, 2), axis1=0, axis2=2) * x[:, :2],
        np.diagonal(x.reshape(2, 2, 3)) ** 3, np.diagonal(x.reshape(3, 1, 4), axis1=1, axis2=2),
        np.diagonal(x.reshape(3, 2, 2), 1, 1, 2) ** 2, np.trace(x.reshape(3, 2, 2), 0, 1, 2) ** 2,
        np.einsum("bii->ib", x.reshape(3, 2, 2)) ** 2)]),
    "broadcast": lambda x: np.broadcast_to(x[0], (5, 4)) * x[0],
    "reshape": lambda x: (x.reshape(2, 6) * x.ravel()[:6]).T,
    "joined": lambda x: np.concatenate([x, x[:1] ** 2, np.ones((1, 4))]),
    "stacked": lambda x: np.stack([x[0], np.sin(x[1])], axis=1),
    "taken": lambda x: x[[0, 2, 2, 1], [3, 0, 0, 1]] ** 2,
    "taken rows": lambda x: x[[1, 1, 0]] * x[0],
    "masked": lambda x: x[np.array([True, False, True])] ** 2,
    "padded": lambda x: np.pad(x, 1)[1:, 1:] * np.pad(x, ((1, 1), (1, 1)), mode="edge")[:-1, :-1],
    "rolled": lambda x: np.roll(x, 1, axis=0) * x,
    "diff": lambda x: np.diff(x, axis=0) ** 2,
    "matmul": lambda x: x @ x.T,
    "outer": lambda x: np.outer(x[0], x[1]),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(FUNCTIONS[name], real(3, 4))


def _in_place(x):
    u = np.zeros((5, 6))
    u[1:-1, 1:-1] = x
    for _ in range(3):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
        u[0] = u[-2]
    u[[0, 0, 1]] = u[[2, 3, 4]]
    u[u > 0.8] = 0.1
    u[:, 2] *= u[:, 3]
    v = u.T
    v[0] += v[3]
    np.multiply(u, u, out=u)
    np.add.at(u, ([0, 0], [1, 1]), u[2, :2])
    return u


def test_writes():
    check(_in_place, real(3, 4))


def test_the_array_as_it_was_at_the_start():
    x = np.variable([1.0, 2.0, 3.0])
    x[1] = 5.0
    x[0] *= x[2]
    assert (x * x).sum().grad(x).tolist() == [18.0, 0.0, 6.0 + 6.0]


def test_products_with_zeros():
    x = numpy.array([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0], [1.0, 2.0, 3.0]])
    assert np.grad(lambda x: np.prod(x, axis=1).sum())(x).tolist() == [
        [0, 6, 0], [0, 0, 0], [6, 3, 2]]
    check(lambda x: np.cumprod(x, axis=1), x)


def test_a_branch_that_is_not_taken_gives_no_nan():
    for function in (
        lambda x: np.where(x > 0, np.sqrt(x), 0.0).sum(),
        lambda x: np.where(x > 0, x * np.log(x), 0.0).sum(),
        lambda x: np.where(x > 0, 1 / x, 0.0).sum(),
        lambda x: np.linalg.norm(x * 0.0),
        lambda x: np.hypot(x * 0, x * 0).sum(),
        lambda x: np.arctan2(x * 0, x - x).sum(),
        lambda x: np.where(x > 2, x / 0.0, x).sum(),
        lambda x: np.where(x > 2, x / np.float64(0), x).sum(),
    ):
        assert numpy.isfinite(np.grad(function)(np.array([0.0, 1.0, 0.0]))).all()


def test_a_zero_factor_does_not_hide_a_second_derivative():
    found = np.hessian(lambda p: p[1] * np.sqrt(p[0]))(np.array([4.0, 0.0]))
    assert found.tolist() == [[0.0, 0.25], [0.25, 0.0]]


def test_zeros_of_pythons_divide_as_numpys_do():
    x = numpy.array([2.0, -1.0])
    assert np.grad(lambda x: (x / 0.0).sum())(x).tolist() == [numpy.inf] * 2
    assert np.grad(lambda x: (x / -0.0).sum())(x).tolist() == [-numpy.inf] * 2
    assert numpy.isnan(np.grad(lambda x: (x / 0j).real.sum())(x)).all()
    assert np.grad(lambda x: x[x > 9].mean() + x.sum())(x).tolist() == [1.0, 1.0]
    assert np.grad(lambda x: x[:1].std(ddof=1) + x[1])(x).tolist() == [0.0, 1.0]


def test_sinc_near_zero():
    for x in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.03, 0.04):
        slope = np.grad(lambda x: np.sinc(x).sum())(np.array([x]))
        curvature = np.hessian(lambda x: np.sinc(x).sum())(np.array([x]))
        y = np.pi * x
        wanted = np.pi * y * (-1 / 3 + y**2 / 30 - y**4 / 840 + y**6 / 45360)
        assert float(slope[0]) == pytest.approx(wanted, rel=1e-12)
        wanted = np.pi**2 * (-1 / 3 + y**2 / 10 - y**4 / 168 + y**6 / 6480)
        assert float(curvature[0, 0]) == pytest.approx(wanted, rel=1e-11)


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_sums_of_exponentials_at_infinity(name):
    """An infinite term is all of the sum; of two infinite ones each is."""
    f, inf = getattr(np, name), numpy.inf
    x = np.array([inf, 2.0, 1.0, -inf, inf, -inf])
    y = np.array([2.0, inf, -inf, 3.0, inf, -inf])
    by_x, by_y = np.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1))(x, y)
    assert by_x.tolist() == [1, 0, 1, 0, 1, 1] and by_y.tolist() == [0, 1, 0, 1, 1, 1]
    assert np.jvp(lambda x: f(x, y), (x,), (np.ones(6),))[1].tolist() == by_x.tolist()
    assert np.hvp(lambda x: f(x, y).sum(), x, np.ones(6)).tolist() == [0] * 6
