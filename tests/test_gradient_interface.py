"""What the functions of gradients take and return, and what they say where they cannot."""

import collections
import concurrent.futures
import copy
import dataclasses
import math
import pickle
import typing

import numpy
import pytest
import scipy.optimize

import tiledarray as np
from tiledarray.errors import HistoryLost, NoDerivative

X = numpy.array([0.7, -1.3, 2.1])


def total(x):
    return (x * x).sum()


# ---- errors --------------------------------------------------------------------------------------

ERRORS = {
    "integers": (lambda: np.grad(total)(np.arange(3)), TypeError,
                 r"^grad takes arrays of real or complex numbers, not of int64"),
    "bools": (lambda: np.vjp(total, np.arange(3) > 1), TypeError,
              "^vjp takes arrays of real or complex numbers, not of bool"),
    "an int in a tree": (lambda: np.grad(lambda p: p["x"] * p["n"])({"x": 1.0, "n": 3}), TypeError,
                         "not of int64"),
    "a text in a tree": (lambda: np.grad(lambda p: p["x"])({"x": 1.0, "how": "relu"}), TypeError,
                         "^grad takes arrays of real or complex numbers, not str;"),
    "an object": (lambda: np.grad(total)(object()), TypeError, "not object;"),
    "a result with axes": (lambda: np.grad(lambda x: x)(X), ValueError,
                           r"gradient of one number, not of an array of shape \(3,\); sum it"),
    "a complex result": (lambda: np.grad(lambda x: total(x) * 1j)(X), TypeError,
                         "gradient of a real number, not of complex128; take its real part"),
    "an integer result": (lambda: np.grad(lambda x: (x > 0).sum())(X), TypeError,
                          "gradient of a real number, not of int64"),
    "a number of Python's": (lambda: np.grad(lambda x: 1.0)(X), TypeError,
                             "returns an array of tiledarray without axes, not float"),
    "nothing": (lambda: np.value_and_grad(lambda x: None)(X), TypeError, "not NoneType"),
    "argnums": (lambda: np.grad(total, 1)(X), ValueError,
                "grad with argnums=1 takes at least 2 arguments by position, not 1"),
    "argnums twice": (lambda: np.grad(lambda x, y: x, (0, -2))(1.0, 2.0), ValueError,
                      r"grad with argnums=\(0, -2\) names an argument twice"),
    "no arguments": (lambda: np.grad(total)(), ValueError, "at least 1 arguments"),
    "no pair": (lambda: np.grad(total, has_aux=True)(X), TypeError,
                "has_aux=True takes a function that returns a pair"),
    "a mode": (lambda: np.jacobian(total, mode="fast"), ValueError, 'or "forward", not \'fast\''),
    "a jacobian of two": (lambda: np.jacobian(lambda p: p[0])((X, X)), TypeError,
                          "one array that returns one array, not of 2 that returns 1"),
    "a jacobian of a number": (lambda: np.jacobian(lambda p: 3.0)(X), TypeError,
                               "returns float, not an array"),
    "ints as a variable": (lambda: np.variable([1, 2]), TypeError,
                           "^variable takes arrays of real"),
    "no history": (lambda: total(np.array(X)).grad(np.array(X)), HistoryLost,
                   "no history was kept.*\n.*tiledarray.variable"),
    "no array": (lambda: total(np.variable(X)).grad(X), TypeError,
                 "with respect to arrays of tiledarray, not ndarray"),
    "the gradient of an array": (lambda: (np.variable(X) * 2).grad(np.variable(X)), ValueError,
                                 "gradient of one number"),
    "a tangent's shape": (lambda: np.jvp(total, (X,), (X[:2],)), ValueError,
                          r"a tangent has the shape of what it belongs to, \(3,\), not \(2,\)"),
    "a tangent's dtype": (lambda: np.jvp(total, (X,), (X * 1j,)), TypeError,
                          "a tangent of complex128 for what is of float64"),
    "too few tangents": (lambda: np.jvp(lambda x, y: x, (X, X), (X,)), ValueError,
                         "expected: 2, got: 1"),
    "a cotangent's shape": (lambda: np.vjp(total, X)[1](X), ValueError,
                            r"a cotangent has the shape of what it belongs to, \(\), not \(3,\)"),
    "a cotangent's structure": (
        lambda: np.vjp(lambda x: {"a": x, "b": x}, X)[1]({"a": X}), ValueError,
        "missing key.*b"),
    "no derivative": (
        lambda: np.jit(np.grad(lambda x: np.histogram(x, "auto")[1].sum()))(np.array(X)),
        NoDerivative, "^histogram has no derivative here .line .* of .*test_gradient_interface"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, text = ERRORS[name]
    with pytest.raises(error, match=text):
        call()


LOOKS = {
    "float": lambda x: float(x[0]), "complex": lambda x: complex(x[0]),
    "item": lambda x: x[0].item(), "tolist": lambda x: x.tolist(), "numpy": lambda x: x.numpy(),
    "asarray": numpy.asarray, "tobytes": lambda x: x.tobytes(), "math": lambda x: math.exp(x[0]),
    "round": lambda x: round(x[0]), "pickle": pickle.dumps, "trunc": lambda x: math.trunc(x[0]),
    "dlpack": lambda x: numpy.from_dlpack(x),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_inside_is_refused_and_outside_is_not(name):
    look = LOOKS[name]
    with pytest.raises(HistoryLost, match=r"takes a value out of the function(.|\n)*stop_gradient"):
        np.grad(lambda x: (look(x), total(x))[1])(X)
    look(np.variable(X))

    def stopped(x):
        look(np.stop_gradient(x))
        return total(x)

    numpy.testing.assert_allclose(np.grad(stopped)(X), 2 * X)


def test_a_look_inside_by_another_thread_is_refused_too():
    def function(x):
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            squares = threads.submit(total, x).result()
            return squares * threads.submit(lambda: float(x[0])).result()

    with pytest.raises(HistoryLost):
        np.grad(function)(X)
    x = np.variable(X)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        seen = []

        def meanwhile(y):
            seen.append(threads.submit(lambda: float(x[0] * 2)).result())
            return total(y)

        np.grad(meanwhile)(X)
    assert seen == [2 * X[0]]


def test_looks_that_decide_are_no_loss():
    def function(x):
        str(x), repr(x[0]), f"{x[0]:.2f}", int(x[2]), len(x), hash(x[0])
        return total(x) * 3 if x[0] > 0 and x.any() and 0 <= x[0] < 1 else total(x)

    numpy.testing.assert_allclose(np.grad(function)(X), 6 * X)


def test_a_written_array_is_not_what_the_result_was_computed_from():
    x = np.variable(X)
    y = x * 2
    z = total(y)
    numpy.testing.assert_allclose(z.grad(y), 4 * X)
    y += 1
    with pytest.raises(ValueError, match="was not computed from the array as it is now"):
        z.grad(y)
    x += 1
    numpy.testing.assert_allclose(z.grad(x), 8 * X)  # as it was at the beginning


# ---- trees ---------------------------------------------------------------------------------------


class Pair(typing.NamedTuple):
    left: typing.Any
    right: typing.Any


@dataclasses.dataclass
class Net:
    weights: list
    bias: typing.Any
    name: str = dataclasses.field(default="net", metadata={"pytree_node": False})


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: typing.Any
    y: typing.Any = None


def test_arguments_and_results_are_nested():
    w = numpy.array([1.0, 2.0])
    made = collections.OrderedDict
    for tree, get in (
        ({"a": w, "b": [w, (w, 3.0)]}, lambda t: t["b"][0] * t["b"][1][1]),
        (Pair(w, [w]), lambda t: t.left * t.right[0]),
        (Net([w, w * 2], numpy.float64(1.5)), lambda t: t.weights[1] * t.bias),
        (Frozen(w, {"z": w}), lambda t: t.x * t.y["z"]),
        (made(b=w, a=w), lambda t: t["a"] * t["b"]),
    ):
        gradient = np.grad(lambda t, get=get: get(t).sum())(tree)
        assert type(gradient) is type(tree)
        value, pull = np.vjp(lambda t, get=get: {"out": get(t)}, tree)
        (same,) = pull({"out": np.ones(2)})
        assert type(same) is type(tree)
        primals, tangents = np.jvp(lambda t, get=get: (get(t), t), (tree,), (gradient,))
        assert type(tangents[1]) is type(tree)
        numpy.testing.assert_allclose(primals[0], value["out"])
    net = np.grad(lambda t: (t.weights[1] * t.bias).sum())(Net([w, w * 2], numpy.float64(1.5), "n"))
    numpy.testing.assert_allclose(net.weights, [[0, 0], [1.5, 1.5]])
    assert float(net.bias) == 6.0 and net.name == "n"
    frozen = np.grad(lambda t: (t.x * t.y).sum())(Frozen(w, w * 3))
    numpy.testing.assert_allclose([frozen.x, frozen.y], [w * 3, w])


def test_several_arguments_by_position_and_by_name():
    def function(x, y, *, scale):
        return (x * y * scale).sum()

    found = np.grad(function, argnums=(1, -2))(X, X * 2, scale=3)
    assert type(found) is tuple
    numpy.testing.assert_allclose(found, [X * 3, X * 6])
    (value, aux), slope = np.value_and_grad(lambda x: (total(x), {"twice": x * 2}), has_aux=True)(X)
    numpy.testing.assert_allclose(aux["twice"], 2 * X)
    numpy.testing.assert_allclose(slope, 2 * X)
    assert float(value) == pytest.approx((X * X).sum())
    slope, aux = np.grad(lambda x: (total(x), 3), has_aux=True)(X)
    assert aux == 3


def test_what_the_result_does_not_depend_on_has_zeros():
    z = X.astype("f4") + 1j
    _, b = np.grad(lambda x, z: total(x), (0, 1))(X, z)
    assert b.dtype == z.dtype == "complex64"
    assert not numpy.asarray(b).any() and b.shape == z.shape
    x, y = np.variable(X), np.variable(X)
    numpy.testing.assert_array_equal(total(x).grad([x, y])[1], numpy.zeros(3))
    numpy.testing.assert_array_equal(np.grad(lambda x: np.array(1.0))(X), numpy.zeros(3))
    numpy.testing.assert_array_equal(np.jvp(lambda x: np.ones(2), (X,), (X,))[1], numpy.zeros(2))
    numpy.testing.assert_array_equal(np.vjp(lambda x: np.ones(2), X)[1](np.ones(2))[0], 0 * X)
    numpy.testing.assert_array_equal(np.hessian(lambda x: x.sum())(X), numpy.zeros((3, 3)))


def test_stop_gradient():
    numpy.testing.assert_allclose(np.grad(lambda x: (x * np.stop_gradient(x)).sum())(X), X)
    plain = np.array(X)
    assert np.stop_gradient(plain) is plain
    numpy.testing.assert_allclose(np.stop_gradient([1.0, 2.0]), [1.0, 2.0])

    def written(x):
        y = np.stop_gradient(x)
        y *= 2  # not into x
        return (x * y).sum()

    numpy.testing.assert_allclose(np.grad(written)(X), 2 * X)


def test_arguments_are_not_written():
    x = np.array(X)

    def function(x):
        x *= 3
        return total(x)

    numpy.testing.assert_allclose(np.grad(function)(x), 18 * X)
    numpy.testing.assert_array_equal(x, X)


# ---- optimizers ----------------------------------------------------------------------------------

def valley(x):
    return ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum()


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "SLSQP", "TNC", "trust-constr"])
def test_optimizers_of_scipy_take_values_and_gradients(method):
    found = scipy.optimize.minimize(np.value_and_grad(valley), numpy.zeros(4), jac=True,
                                    method=method)
    assert found.x == pytest.approx(numpy.ones(4), abs=1e-3)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_of_scipy_takes_a_jacobian(method):
    times = np.linspace(0, 1, 9)
    seen = 2 * np.exp(-3 * times)

    def misfit(q):
        return q[0] * np.exp(-q[1] * times) - seen

    found = scipy.optimize.least_squares(misfit, numpy.ones(2), np.jacobian(misfit), method=method)
    assert found.x == pytest.approx([2, 3])


def test_derivatives_by_arrays_of_numpys_are_numpys():
    ours = np.array(X)
    for derivative in (np.grad(total), np.hessian(total), np.jacobian(np.sin),
                       lambda x: np.value_and_grad(total)(x)[1],
                       lambda x: np.hvp(total, x, X)):
        assert type(derivative(X)) is numpy.ndarray
        assert type(derivative(ours)) is np.TiledArray
        assert derivative(X).tolist() == derivative(ours).tolist()
    mixed = np.grad(lambda p: total(p["x"]) * p["y"].sum())({"x": X, "y": ours})
    assert [type(mixed[name]) for name in "xy"] == [numpy.ndarray, np.TiledArray]


def test_derivatives_by_arrays_of_numpys_keep_a_history_that_is_wanted():
    def outer(w):
        return (np.grad(lambda x: (w * x * x).sum())(X) ** 2).sum()

    w = np.array([1.0, 2.0, 3.0])
    assert np.grad(outer)(w) == pytest.approx(8 * numpy.asarray(w) * X * X)
    assert np.jit(outer)(w) == pytest.approx(float(outer(w)))


# ---- what functions with a rule take ---------------------------------------------------------


def powered(name, x, times, *, shift=0.0):
    for _ in range(times):
        x = getattr(np, name)(x) + shift
    return x


@pytest.mark.parametrize("around", [lambda f: f, np.jit])
def test_checkpoint_takes_what_is_no_array(around):
    x = numpy.array([0.3, -0.7])
    wanted = np.grad(lambda x: powered("sin", x, 3, shift=x[0]).sum())(x)
    checked = np.checkpoint(powered)
    found = around(np.grad(lambda x: checked("sin", x, 3, shift=x[0]).sum()))(np.array(x))
    numpy.testing.assert_allclose(found, wanted)
    places = np.array([1, 1, 0])
    found = around(np.grad(lambda x: np.checkpoint(lambda x, k: x[k] ** 2)(x, places).sum()))(
        np.array(x))
    numpy.testing.assert_allclose(found, [2 * 0.3, 4 * -0.7])
    for times in (1, 2, True):  # equal numbers of other types are other arguments
        def function(x, times=times):
            kind = np.checkpoint(lambda x, times: x * (10 if times is True else times))
            return kind(x, times).sum()
        assert np.grad(function)(x).tolist() == [10 if times is True else times] * 2


def test_rules_take_what_is_no_array():
    scaled, directed = np.custom_vjp(lambda x, mode: x), np.custom_jvp(lambda mode, x: x)
    factors = {"twice": 2.0, "thrice": 3.0}
    scaled.defvjp(lambda x, mode: (x, factors[mode]), lambda factor, g: (g * factor, None))
    directed.defjvp(lambda at, v: (at[1], v[1] * factors[at[0]] if v[0] is None else "wrong"))
    x = numpy.array([0.3, -0.7])
    for mode, factor in factors.items():
        assert np.grad(lambda x, mode=mode: scaled(x, mode).sum())(x).tolist() == [factor] * 2
        assert np.grad(lambda x, mode=mode: directed(mode, x).sum())(x).tolist() == [factor] * 2
        many = np.vmap(np.grad(lambda x, mode=mode: (scaled(x, mode) * directed(mode, x)).sum()))
        numpy.testing.assert_allclose(many(x[:, None]), 2 * factor * x[:, None])


def test_what_a_rule_gives_has_the_shape_of_what_it_belongs_to():
    x = numpy.ones(3)
    for wrong, told in ((lambda g: g.sum(), r"\(\)"), (lambda g: g[None] * g, r"\(1,3\)"),
                        (lambda g: 1.0, r"\(\)")):
        function = np.custom_vjp(lambda x: x * 2)
        function.defvjp(lambda x: (x * 2, None), lambda kept, g, wrong=wrong: (wrong(g),))
        with pytest.raises(ValueError, match=rf"custom_vjp .*\(3,\), not {told}"):
            np.grad(lambda x, function=function: function(x).sum())(x)
    nothing = np.custom_vjp(lambda x, y: x * y)
    nothing.defvjp(lambda x, y: (x * y, y), lambda y, g: (g * y, 0.0))
    assert [part.tolist() for part in np.grad(lambda x, y: nothing(x, y).sum(), (0, 1))(x, x)] == [
        [1.0] * 3, [0.0] * 3]
    function = np.custom_jvp(lambda x: x * 2)
    function.defjvp(lambda at, v: (at[0] * 2, v[0].sum()))
    with pytest.raises(ValueError, match=r"custom_jvp .*\(3,\), not \(\)"):
        np.grad(lambda x: function(x).sum())(x)


def _doubled_line(a):
    line = a.reshape(-1)
    line *= 2
    return (a * a).sum()


def _far_and_near(a):
    line = a.ravel()
    line[0] = 5
    every_other = a[::2]
    every_other *= 3
    return (a ** 3).sum()


_VIEWS = {
    "whole": lambda x: x, "turned": lambda x: x.T, "column": lambda x: x[:, 1],
    "row": lambda x: x[1], "reversed": lambda x: x[::-1], "columns": lambda x: x[:, ::2],
    "turned thrice": lambda x: x.reshape(3, 2, 2).transpose(2, 0, 1),
}


@pytest.mark.parametrize("function", [_doubled_line, _far_and_near])
@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
@pytest.mark.parametrize("given", [numpy.array, np.array], ids=["NumPy's", "ours"])
def test_what_does_not_lie_together_is_copied_where_numpy_copies_it(function, view, given):
    start = numpy.arange(1.0, 13).reshape(3, 4)

    def value(place=None, step=0.0):
        x = view(start.copy())
        if place is not None:
            x[place] += step
        return function(x)

    slopes = numpy.array([(value(at, 1e-5) - value(at, -1e-5)) / 2e-5
                       for at in numpy.ndindex(view(start).shape)]).reshape(view(start).shape)

    def found(way):
        return way(view(given(start)))

    ways = {
        "value_and_grad": lambda x: np.value_and_grad(function)(x),
        "vjp": lambda x: (lambda y, pull: (y, pull(1.0)[0]))(*np.vjp(function, x)),
        "jacobian": lambda x: (value(), np.jacobian(function, mode="forward")(x)),
        "jit": np.jit(np.value_and_grad(function)),
    }
    for way in [*ways.values(), ways["jit"]]:
        y, slope = found(way)
        assert float(y) == value()
        numpy.testing.assert_allclose(numpy.asarray(slope), slopes, rtol=1e-6)


@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
def test_a_loop_in_a_jitted_function_copies_what_does_not_lie_together(view):
    def outer(u):
        def body(i, s):
            line = u.reshape(-1)
            line[i] = 5
            return s + line.sum() + u.sum()

        return np.fori_loop(3, body, 0.0)

    start = numpy.arange(12.0).reshape(3, 4)
    u, s = view(start.copy()), 0.0
    for i in range(3):
        line = u.reshape(-1)
        line[i] = 5
        s += line.sum() + u.sum()
    jitted = np.jit(outer)
    for function in outer, jitted, jitted:
        assert float(function(view(np.array(start)))) == s


@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
def test_jit_copies_of_numpys_arrays_what_numpy_copies(view):
    def write(a):
        line = a.reshape(-1)
        line[0] = 7
        a[-1] = 1
        return line.sum() + a.sum()

    ours, theirs = (numpy.arange(12.0).reshape(3, 4) for _ in range(2))
    jitted = np.jit(write)
    for _ in range(3):
        assert float(jitted(view(ours))) == write(view(theirs))
        numpy.testing.assert_array_equal(ours, theirs)


# ---- arrays without axes -------------------------------------------------------------------------

def written(x):
    other = x
    other += 1
    return x * other


@pytest.mark.parametrize("way", [
    lambda x: np.value_and_grad(written)(x),
    lambda x: (np.vjp(written, x)[0], np.vjp(written, x)[1](1.0)[0]),
    lambda x: np.jvp(written, (x,), (numpy.ones(()),)),
    lambda x: (written(copy.copy(x)), np.jacobian(written)(x)),
    lambda x: np.value_and_grad(lambda y: 0 * np.grad(written)(y) + written(y))(x),
    lambda x: np.jit(np.value_and_grad(written))(x),
], ids=["value_and_grad", "vjp", "jvp", "jacobian", "of a gradient", "jit"])
@pytest.mark.parametrize(("of", "is_array"), [
    (float, False), (numpy.float64, False), (lambda x: np.array([x]).sum(), False),
    (numpy.array, True), (np.array, True), (lambda x: np.array(x - 1) + 1, False),
    (lambda x: np.array([x])[0], False), (lambda x: np.array([x, 1.0])[:1].reshape(()), True),
], ids=["float", "float64", "sum", "NumPy's array", "array", "operation", "element", "view"])
def test_arrays_without_axes_are_no_numbers(way, of, is_array):
    """``+=`` writes into an array that has another name; a number gets another value."""
    value, slope = way(of(2.0))
    assert (float(value), float(slope)) == ((9.0, 6.0) if is_array else (6.0, 5.0))
