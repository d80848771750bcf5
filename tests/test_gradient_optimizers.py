"""What people optimize with takes our functions, gradients and Jacobians as it takes NumPy's."""

import subprocess
import sys

import numpy
import pytest
from scipy import optimize

import tiledarray as np
from tests.test_script import run
from tiledarray.errors import HistoryLost

START = numpy.array([1.3, 0.7, 0.8, 1.9, 1.2])


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def products(x, v):
    return np.hvp(rosenbrock, x, v)


FORMS = {"as it is": lambda function: function, "under jit": np.jit}


@pytest.fixture(params=[1, 65536], ids=["recorded", "at once"])
def at_once(request, monkeypatch):
    monkeypatch.setattr(np.config, "at_once", request.param)
    monkeypatch.setattr(np.config, "first_seconds", 100.0)


def same_steps(found, wanted):
    """Both runs of an optimizer went the same way."""
    assert type(found.x) is numpy.ndarray or isinstance(found.x, np.TiledArray)
    assert found.success and found.nit == wanted.nit and found.nfev == wanted.nfev
    numpy.testing.assert_allclose(found.x, wanted.x, rtol=1e-5)
    assert isinstance(found.fun, float)


# ---- scipy.optimize.minimize ---------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "TNC", "SLSQP", "trust-constr"])
def test_minimize_takes_value_and_gradient(method, form, at_once):
    both = FORMS[form](np.value_and_grad(rosenbrock))
    wanted = optimize.minimize(optimize.rosen, START, jac=optimize.rosen_der, method=method)
    for start in (START, np.array(START), [*START]):
        same_steps(optimize.minimize(both, start, jac=True, method=method), wanted)


def test_minimize_takes_a_gradient_of_its_own(at_once):
    wanted = optimize.minimize(optimize.rosen, START, jac=optimize.rosen_der, method="L-BFGS-B")
    found = optimize.minimize(rosenbrock, START, jac=np.grad(rosenbrock), method="L-BFGS-B")
    same_steps(found, wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["hess", "hessp"])
@pytest.mark.parametrize(
    "method", ["Newton-CG", "trust-ncg", "trust-krylov", "trust-exact", "trust-constr"])
def test_minimize_takes_second_derivatives(method, kind):
    if method == "trust-exact" and kind == "hessp":
        pytest.skip("SciPy asks for the matrix")
    ours = {"hess": np.hessian(rosenbrock), "hessp": products}[kind]
    theirs = {"hess": optimize.rosen_hess, "hessp": optimize.rosen_hess_prod}[kind]
    wanted = optimize.minimize(
        optimize.rosen, START, jac=optimize.rosen_der, method=method, **{kind: theirs})
    found = optimize.minimize(
        np.value_and_grad(rosenbrock), START, jac=True, method=method, **{kind: ours})
    same_steps(found, wanted)


def test_bounds_and_constraints():
    def room(x):
        return 2 - (x * x).sum()

    bounds = [(-1, 0.8)] * 5
    for method, given in (("L-BFGS-B", {}), ("SLSQP", {"constraints": {
            "type": "ineq", "fun": room, "jac": np.grad(room)}})):
        wanted = optimize.minimize(
            optimize.rosen, 0 * START, jac=optimize.rosen_der, method=method, bounds=bounds,
            **({"constraints": {"type": "ineq", "fun": room, "jac": lambda x: -2 * x}}
               if given else {}))
        found = optimize.minimize(np.value_and_grad(rosenbrock), 0 * START, jac=True,
                                  method=method, bounds=bounds, **given)
        same_steps(found, wanted)
    ring = optimize.NonlinearConstraint(
        room, 0, numpy.inf, jac=np.grad(room), hess=lambda x, v: v[0] * np.hessian(room)(x))
    found = optimize.minimize(
        np.value_and_grad(rosenbrock), 0 * START, jac=True, hess=np.hessian(rosenbrock),
        method="trust-constr", constraints=ring)
    wanted = optimize.minimize(
        optimize.rosen, 0 * START, jac=optimize.rosen_der, method="SLSQP",
        constraints={"type": "ineq", "fun": room})
    assert found.fun == pytest.approx(wanted.fun, rel=1e-4)


def test_the_gradient_and_the_fun_of_a_scipy_result_are_right():
    found = optimize.minimize(np.value_and_grad(rosenbrock), START, jac=True)
    numpy.testing.assert_allclose(found.jac, optimize.rosen_der(numpy.asarray(found.x)), atol=1e-9)
    assert optimize.check_grad(rosenbrock, np.grad(rosenbrock), START) < 1e-3


# ---- residuals -----------------------------------------------------------------------------------

TIMES = numpy.linspace(0, 3, 40)
TRUE = numpy.array([2.5, 1.3, 0.5])
SEEN = TRUE[0] * numpy.exp(-TRUE[1] * TIMES) + TRUE[2] + 0.01 * numpy.sin(37 * TIMES)


def decay(t, a, b, c):
    return a * np.exp(-b * t) + c


def residuals(p):
    return decay(TIMES, *p) - SEEN


def slopes(p):
    """The Jacobian by hand."""
    a, b, _ = p
    power = numpy.exp(-b * TIMES)
    return numpy.stack([power, -a * TIMES * power, numpy.ones(40)], axis=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("method", "given"), [("trf", {}), ("dogbox", {}), ("lm", {}), ("trf", {"loss": "soft_l1"}),
                          ("trf", {"bounds": ([0, 0, 0], [2.4, 9, 9])})])
def test_least_squares(method, given, form, at_once):
    def by_numpy(p):
        return p[0] * numpy.exp(-p[1] * TIMES) + p[2] - SEEN

    wanted = optimize.least_squares(by_numpy, [1.0, 1, 0.1], jac=slopes, method=method, **given)
    for start in ([1.0, 1, 0.1], np.array([1.0, 1, 0.1])):
        found = optimize.least_squares(
            FORMS[form](residuals), start, jac=FORMS[form](np.jacobian(residuals)), method=method,
            **given)
        assert found.success and found.nfev == wanted.nfev and found.njev == wanted.njev
        numpy.testing.assert_allclose(found.x, wanted.x, rtol=1e-7)
        numpy.testing.assert_allclose(found.jac, wanted.jac, rtol=1e-6)


def test_least_squares_without_a_jacobian():
    found = optimize.least_squares(residuals, [1.0, 1, 0.1])
    numpy.testing.assert_allclose(found.x, TRUE, rtol=0.02)


def test_curve_fit():
    def jacobian(t, *p):
        return np.jacobian(lambda p: decay(t, *p))(numpy.array(p))

    wanted = optimize.curve_fit(
        lambda t, a, b, c: a * numpy.exp(-b * t) + c, TIMES, SEEN, p0=[1.0, 1.0, 0.1])
    for given in ({}, {"method": "trf"}, {"bounds": (0, 9)}, {"sigma": np.full(40, 0.1)}):
        for values in (numpy.asarray, np.array):
            found = optimize.curve_fit(
                decay, values(TIMES), values(SEEN), p0=[1.0, 1.0, 0.1], jac=jacobian, **given)
            numpy.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
            numpy.testing.assert_allclose(found[1], wanted[1], rtol=1e-4)


def test_roots():
    found = optimize.root(np.grad(rosenbrock), START, jac=np.hessian(rosenbrock))
    numpy.testing.assert_allclose(found.x, numpy.ones(5), rtol=1e-8)

    def cube(x):
        return x ** 3 - 2

    found = optimize.root_scalar(
        cube, x0=1.0, fprime=np.grad(cube), fprime2=np.grad(np.grad(cube)), method="halley")
    assert found.root == pytest.approx(2 ** (1 / 3))


# ---- NumPy's functions that convert --------------------------------------------------------------


@pytest.mark.parametrize("function", [numpy.atleast_1d, numpy.atleast_2d, numpy.atleast_3d])
def test_numpys_conversions_give_numpys_arrays(function, at_once):
    for values in (3.0, START, START.reshape(5, 1)):
        found, wanted = function(np.array(values)), function(values)
        assert type(found) is numpy.ndarray
        numpy.testing.assert_array_equal(found, wanted)
    pair = function(np.array(START), START)
    assert type(pair) is tuple and {type(x) for x in pair} == {numpy.ndarray}
    ours = getattr(np, function.__name__)
    assert isinstance(ours(START), np.TiledArray)


def test_conversions_where_there_is_no_value_to_convert():
    def function(x):
        return (numpy.atleast_2d(x * x) * numpy.atleast_1d(x[0])).sum()

    wanted = 2 * START * START[0]
    wanted[0] += (START * START).sum()
    numpy.testing.assert_allclose(np.grad(function)(START), wanted)
    assert float(np.jit(function)(np.array(START))) == pytest.approx(float(function(START)))
    x = np.variable(START)
    numpy.testing.assert_allclose(function(x).grad(x), wanted)
    with pytest.raises(HistoryLost):
        np.grad(lambda x: numpy.asarray(x).sum())(START)


# ---- updates as optax makes them, written in NumPy -----------------------------------------------


def tree_map(function, *trees):
    first = trees[0]
    if isinstance(first, dict):
        return {name: tree_map(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, (list, tuple)):
        return type(first)(tree_map(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def adam(np, rate=0.05, first=0.9, second=0.99):
    def init(params):
        return {"t": 0, "m": tree_map(np.zeros_like, params), "v": tree_map(np.zeros_like, params)}

    def update(slopes, state):
        t = state["t"] + 1
        m = tree_map(lambda m, g: first * m + (1 - first) * g, state["m"], slopes)
        v = tree_map(lambda v, g: second * v + (1 - second) * g ** 2, state["v"], slopes)
        steps = tree_map(
            lambda m, v: -rate * m / (1 - first ** t) / (np.sqrt(v / (1 - second ** t)) + 1e-8),
            m, v)
        return steps, {"t": t, "m": m, "v": v}

    return init, update


def momentum(np, rate=0.02, factor=0.9):
    def init(params):
        return tree_map(np.zeros_like, params)

    def update(slopes, speeds):
        def one(speed, slope):
            speed *= factor  # in place
            speed -= rate * slope

        tree_map(one, speeds, slopes)
        return speeds, speeds

    return init, update


def rmsprop(np, rate=0.02, factor=0.9):
    def init(params):
        return tree_map(lambda x: np.ones_like(x) * 0.1, params)

    def update(slopes, means):
        means = tree_map(lambda s, g: np.add(factor * s, (1 - factor) * g * g),
                         means, slopes)
        return tree_map(lambda s, g: -rate * g / np.sqrt(s + 1e-8), means, slopes), means

    return init, update


def loss(np, params, x, y):
    made = np.tanh(x @ params["layer"]["weight"] + params["layer"]["bias"])
    return ((made * params["scale"][0] + params["scale"][1] - y) ** 2).mean()


def loss_by_hand(params, x, y):
    made = numpy.tanh(x @ params["layer"]["weight"] + params["layer"]["bias"])
    error = 2 * (made * params["scale"][0] + params["scale"][1] - y) / y.size
    inner = error * params["scale"][0] * (1 - made ** 2)
    return loss(numpy, params, x, y), {
        "layer": {"weight": x.T @ inner, "bias": inner.sum(axis=0)},
        "scale": [(error * made).sum(), error.sum()]}


def trained(np, both, optimizer, in_place):
    random = numpy.random.default_rng(3)
    x, y = np.array(random.normal(size=(20, 4))), np.array(random.normal(size=(20, 3)))
    params = {"layer": {"weight": np.array(random.normal(size=(4, 3))), "bias": np.zeros(3)},
              "scale": [np.array(1.0), np.array(0.0)]}
    init, update = optimizer(np)
    state = init(params)
    losses = []
    for _ in range(30):
        value, slopes = both(params, x, y)
        steps, state = update(slopes, state)
        if in_place:
            tree_map(lambda p, step: p.__iadd__(step), params, steps)
        else:
            params = tree_map(lambda p, step: p + step, params, steps)
        losses.append(float(value))
    return losses, params


@pytest.mark.sampled(2)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("optimizer", [adam, momentum, rmsprop])
def test_updates_written_in_numpy(optimizer, form, in_place, at_once):
    both = FORMS[form](np.value_and_grad(lambda params, x, y: loss(np, params, x, y)))
    losses, params = trained(np, both, optimizer, in_place)
    wanted, values = trained(numpy, loss_by_hand, optimizer, in_place)
    numpy.testing.assert_allclose(losses, wanted, rtol=1e-9)
    assert losses[-1] < 0.8 * losses[0]
    numpy.testing.assert_allclose(params["layer"]["weight"], values["layer"]["weight"], rtol=1e-8)
    numpy.testing.assert_allclose(params["scale"], values["scale"], rtol=1e-8)


# ---- unmodified scripts --------------------------------------------------------------------------

SCRIPT = """
import numpy as np
from scipy.optimize import curve_fit, least_squares, minimize

t = np.linspace(0, 3, 40)
seen = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.01 * np.sin(37 * t)
calls = []

def misfit(p):
    calls.append(type(np.ones(3)).__module__)
    return ((p[0] * np.exp(-p[1] * t) + p[2] - seen) ** 2).sum()

def by_hand(p):
    power = np.exp(-p[1] * t)
    error = 2 * (p[0] * power + p[2] - seen)
    g = np.empty(3)
    g[0], g[1], g[2] = (error * power).sum(), -(error * p[0] * t * power).sum(), error.sum()
    return g

def show(p):
    print(*(f"{value:.4f}" for value in p))

start = np.array([1.0, 1.0, 0.1])
slope = np.grad(misfit) if hasattr(np, "grad") else by_hand
for method in ("BFGS", "L-BFGS-B", "SLSQP", "TNC"):
    show(minimize(misfit, start, jac=by_hand, method=method, options={"maxiter": 500}).x)
    show(minimize(misfit, start, jac=slope, method=method, options={"maxiter": 500}).x)
show(least_squares(lambda p: p[0] * np.exp(-p[1] * t) + p[2] - seen, start).x)
show(curve_fit(lambda t, a, b, c: a * np.exp(-b * t) + c, t, seen, p0=start)[0])
import sys
print({*calls}, file=sys.stderr)
"""


def test_a_script_that_fits_runs_as_it_is(tmp_path):
    (tmp_path / "fit.py").write_text(SCRIPT)
    plain = subprocess.run([sys.executable, "fit.py"], cwd=tmp_path, capture_output=True,
                           text=True, timeout=120, check=True)
    done = run(tmp_path, "fit.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout and len(done.stdout.split()) == 30
    assert "numpy" in plain.stderr and "tiledarray" in done.stderr
