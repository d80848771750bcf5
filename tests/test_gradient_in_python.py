"""Functions of NumPy's that are written in Python, and methods that no kernel knows."""

import numpy
import pytest

import tiledarray as np
from tests.gradients import check, real
from tiledarray.core import history
from tiledarray.errors import NoDerivative


def at(ufunc, array, places, *values):
    array = np.array(array)
    ufunc.at(array, places, *values)
    return array


def fill_with_the_first(row, width, axis, options):
    row[:width[0]] = row[width[0]] ** 2
    row[-width[1]:] = 3


X, Y, M = real(9), real(9, seed=1), real(3, 4)
FUNCTIONS = {
    "apply_along_axis": (lambda m: np.apply_along_axis(lambda r: (r * r).cumsum(), 1, m), M),
    "apply_along_axis of numbers": (lambda m: np.apply_along_axis(np.sum, 0, m * m), M),
    "apply_over_axes": (lambda m: np.apply_over_axes(np.sum, m * m, [0, 1]), M),
    "corrcoef": (lambda x, y: np.corrcoef(x, y)[0, 1], X, Y),
    "cov": (lambda m: np.cov(m, aweights=[1.0, 2.0, 3.0, 4.0]), M),
    "cov of two": (np.cov, X, Y),
    "geomspace": (lambda x: np.geomspace(x[0], x[1], 4), X),
    "logspace": (lambda x: np.logspace(0, x[0], 3), X),
    "histogram": (lambda x: np.histogram(Y, weights=x * x)[0], X),
    "insert": (lambda x, y: np.insert(x, [1, 3], y[:2] * 2), X, Y),
    "poly": (lambda x: np.poly(x[:3]), X),
    "polyadd": (lambda x, y: np.polyadd(x[:2] * 2, y), X, Y),
    "polysub": (lambda x, y: np.polysub(x[:2] * 2, y), X, Y),
    "polyder": (lambda x: np.polyder(x[:4] ** 2, 2), X),
    "polymul": (lambda x, y: np.polymul(np.pad(x[:2], (1, 0)), y * 2), X, Y),
    "polydiv": (lambda x, y: np.polydiv(x[:4], y[4:6])[0], X, Y),
    "the rest of polydiv": (lambda x, y: np.polydiv(x[:4], y[4:6])[1], X, Y),
    "gradient at places": (lambda x, y: np.gradient(x * y, y.cumsum(), edge_order=2), X, Y),
    "polyint": (lambda x: np.polyint(x[:4] ** 2, 2, k=[x[0], 1]), X),
    "polyfit": (lambda x, y: np.polyfit(x, y, 2), X, Y),
    "polyfit with weights": (lambda x, y: np.polyfit(x, y * y, 1, w=x), X, Y),
    "roots": (lambda x: np.roots(np.stack([x[0], -2 - x[1], x[2]])).real, X),
    "vander": (lambda x: np.vander(x[:3], increasing=True), X),
    "tensorsolve": (lambda x: np.linalg.tensorsolve(
        x.reshape(3, 3) + 2 * np.eye(3), x[:3] * x[3:6]), X),
    "maximum.accumulate": (lambda m: np.maximum.accumulate(m * m, axis=1), M),
    "minimum.accumulate": (lambda x: np.minimum.accumulate(x * x), X),
    "multiply.accumulate": (lambda x: np.multiply.accumulate(x, out=np.empty(9)), X),
    "add.reduceat": (lambda m: np.add.reduceat(m * m, [0, 2], axis=1), M),
    "multiply.reduceat": (lambda x: np.multiply.reduceat(x, [0, 4, 2]), X),
    "maximum.reduceat": (lambda x: np.maximum.reduceat(x * x, [0, 4]), X),
    "add.reduceat to and fro": (lambda m: np.add.reduceat(m * m, [2, 0, 1, 1], axis=1), M),
    "add.reduceat of the end": (lambda x: np.add.reduceat(x * x, [3, 5]), X),
    "minimum.reduceat of rows": (lambda m: np.minimum.reduceat(m * m, [1, 3, 0], axis=1), M),
    "fmax.accumulate": (lambda m: np.fmax.accumulate(m * m, axis=1), M),
    "fmin.reduce": (lambda m: np.fmin.reduce(m * m, axis=(0, 1), keepdims=True), M),
    "hypot.reduce": (lambda m: np.hypot.reduce(m, axis=1, initial=2.0), M),
    "hypot.accumulate": (np.hypot.accumulate, X),
    "hypot.reduceat": (lambda x: np.hypot.reduceat(x, [0, 3, 5]), X),
    "subtract.reduce": (lambda m: np.subtract.reduce(m * m, axis=1), M),
    "subtract.reduce of one": (lambda x: np.subtract.reduce(x[:1] ** 2), X),
    "subtract.accumulate": (lambda m: np.subtract.accumulate(m * m), M),
    "subtract.reduceat": (lambda x: np.subtract.reduceat(x * x, [0, 4, 2]), X),
    "divide.reduce": (lambda m: np.divide.reduce(m, axis=-1, keepdims=True), M),
    "divide.accumulate": (lambda m: np.divide.accumulate(m, axis=1), M),
    "divide.reduceat": (lambda m: np.divide.reduceat(m, [0, 2], axis=1), M),
    "power.accumulate": (lambda m: np.power.accumulate(m, axis=1), M),
    "arctan2.accumulate": (np.arctan2.accumulate, X),
    "arctan2.reduceat": (lambda m: np.arctan2.reduceat(m, [0, 2], axis=1), M),
    "fmod.reduce": (np.fmod.reduce, X),
    "logaddexp.accumulate": (lambda m: np.logaddexp.accumulate(m, axis=1), M),
    "logaddexp.reduceat": (lambda x: np.logaddexp.reduceat(x, [0, 3, 1]), X),
    "logaddexp2.accumulate": (np.logaddexp2.accumulate, X),
    "logaddexp2.reduce": (lambda m: np.logaddexp2.reduce(m, axis=0), M),
    "logaddexp.reduce": (lambda m: np.logaddexp.reduce(m, axis=1), M),
    "logaddexp.reduce of all": (lambda m: np.logaddexp.reduce(m, axis=None, keepdims=True), M),
    "multiply.at": (lambda x, y: at(np.multiply, x, [0, 1, 1, 0, 1], y[:5]), X, Y),
    "divide.at": (lambda m, y: at(np.divide, m, ([0, 0, 1], [1, 1, 2]), y[0]), M, Y),
    "maximum.at": (lambda x, y: at(np.maximum, x, [0, 1, 1], y[3:6]), X, Y),
    "square.at": (lambda x: at(np.square, x, [0, 1, 1]), X),
    "bincount": (lambda x: np.bincount([0, 1, 1, 2], weights=x[:4] ** 2, minlength=5), X),
    "unique": (lambda x: np.unique(x * x), X),
    "r_": (lambda x: np.r_[x, 0, x[0], 1:4, x * x], X),
    "r_ of rows": (lambda x: np.r_["0,2", x, x * x], X),
    "r_ of columns": (lambda m: np.r_["-1", m, m * m], M),
    "c_": (lambda x: np.c_[x, numpy.ones(9), x * x], X),
    "i0": (lambda x: np.i0(20 * x - 9), X),
    "i0 of 0": (lambda x: np.i0(x - x[4]), X),
    "kaiser": (lambda x: np.kaiser(7, 4 * x[0]), X),
    "linspace of one": (lambda x: np.linspace(x[0], x[1], 1) * x, X),
    **{f"pad by {mode}": (lambda m, mode=mode: np.pad(m * m, ((1, 2), (2, 0)), mode), M)
       for mode in ("maximum", "mean", "median", "minimum", "linear_ramp", "edge", "wrap")},
    "pad by the mean of some": (lambda x: np.pad(x * x, 2, "mean", stat_length=(2, 3)), X),
    "pad by ramps to values": (
        lambda x: np.pad(x, 2, "linear_ramp", end_values=(x[0], x[1] * x[2])), X),
    "pad by odd reflection": (lambda x: np.pad(x * x, 2, "reflect", reflect_type="odd"), X),
    "pad by a function": (lambda x: np.pad(x * x, 2, fill_with_the_first), X),
    "pad by a value": (lambda x: np.pad(x * x, 2, constant_values=x[0]), X),
    "pad by values": (lambda m: np.pad(
        m, ((1, 2), (2, 1)), constant_values=((m[0, 0], 0), (1, m[1, 2] ** 2))), M),
    "qr in the mode r": (lambda m: np.linalg.qr(m.T, mode="r"), M),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_the_history(name):
    function, *arrays = FUNCTIONS[name]
    wanted = numpy.asarray(function(*map(np.array, arrays)))
    value, _ = np.vjp(function, *arrays)
    assert numpy.asarray(value) == pytest.approx(wanted, rel=1e-13)
    check(function, *arrays)
    begun = [*map(np.variable, arrays)]
    assert numpy.isfinite(function(*begun).sum().grad(begun[-1])).all()


@pytest.mark.parametrize(("ufunc", "most"), [(np.add, 12), (np.maximum, 40)])
def test_many_stretches_are_reduced_at_once(ufunc, most):
    x = np.variable(real(2000))
    assert len(history([ufunc.reduceat(x, np.arange(0, x.size, 5)).node])) <= most


def test_sums_of_exponentials_without_an_end():
    slope = np.grad(lambda x: np.logaddexp.reduce(x))
    assert slope(np.array([-numpy.inf, 0.0, 0.0])).tolist() == [0, 0.5, 0.5]
    assert slope(np.array([1000.0, 0.0])).tolist() == [1, 0]
    assert np.vjp(np.logaddexp.reduce, np.array([-numpy.inf]))[0] == -numpy.inf


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", [
    lambda a: np.prod(a, axis=0), lambda a: np.median(a, axis=0), lambda a: np.median(a, axis=1),
    lambda a: np.quantile(a, [0.3, 0.4], axis=0), lambda a: np.extract(a > 0, a),
    lambda a: np.nanmedian(a), lambda a: np.unique(a, axis=0),
])
def test_of_no_elements_there_is_nothing_to_say(function):
    assert np.grad(lambda a: function(a).sum())(np.zeros((4, 0, 2))).shape == (4, 0, 2)
    assert not np.jvp(function, (np.zeros((4, 0, 2)),), (np.zeros((4, 0, 2)),))[1].sum()


def test_running_extrema_of_equal_elements_and_nan():
    def loss(x):
        return (np.maximum.accumulate(x) * np.arange(1.0, 6.0)).sum()

    assert np.grad(loss)(np.array([1.0, 3.0, 2.0, 3.0, 4.0])).tolist() == [1, 5, 0, 4, 5]
    value, slope = np.value_and_grad(loss)(np.array([1.0, numpy.nan, 2.0, 3.0, numpy.nan]))
    assert numpy.isnan(value) and slope.tolist() == [1, 9, 0, 0, 5]


def test_what_looks_at_values_is_refused_by_name():
    x = np.array(M)
    with pytest.raises(NoDerivative, match=r"^apply_along_axis has no derivative here"):
        np.grad(lambda m: np.apply_along_axis(lambda r: float(r[0]), 1, m).sum())(x)
    with pytest.raises(NoDerivative, match=r"^unique has no derivative here"):
        np.grad(lambda m: np.unique(m, axis=0).sum())(x)
    y = np.variable(M)
    total = np.apply_along_axis(lambda r: float(r[0]), 1, y).sum()
    assert float(total) == pytest.approx(M[:, 0].sum())
    with pytest.raises(NoDerivative, match="has no derivative here"):
        total.grad(y)
