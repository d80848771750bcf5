"""What only NumPy does, in traced functions: recorded where the shapes of results are known."""

import numpy
import pytest

import tiledarray as np
from tests.plans import fresh_recorder
from tiledarray.errors import NoDerivative

X = numpy.random.default_rng(0).random((6, 8))
V, PLACES, MASK = X[0], numpy.arange(8) % 3, X > 0.5
SQUARE = X[:, :6] @ X[:, :6].T + numpy.eye(6)
OPERANDS = X, V, PLACES, MASK, SQUARE


pytestmark = pytest.mark.compiler  # without one, `jit` calls functions as they are


clean = fresh_recorder(compile="wait")


def at(ufunc):
    def program(np, x, v, i, m, s):
        found = np.ones(3)
        getattr(np, ufunc).at(found, i, v)
        return found

    return program


def written(how):
    def program(np, x, v, i, m, s):
        found = x.copy()
        half = found[::2, 1:]
        how(np, half, x, v, i, m[::2, 1:])
        return found, half * 2

    return program


def lists(np, a, x, v, i, m):
    a[0, 1:3] = [v[0], 1.0]
    a[:2, [0, 2]] = [[v[1], 2], (3, a[0, 0])]
    a[1:, :2] = a[1:, :2] * [v[3], 2] + [[4], [v[2] * 0]]


def diagonals(np, a, x, v, i, m):
    np.fill_diagonal(a, -1.0)
    np.fill_diagonal(a[:, 2:], v[:2])
    np.fill_diagonal(a.T, [a[0, 0], 5], wrap=True)


def last_places(np, a, x, v, i, m):
    np.put_along_axis(a, np.argmax(a, 1)[:, None], 9.0, 1)


PROGRAMS = {
    "bincount": lambda np, x, v, i, m, s: np.bincount(i, v, 5),
    "bincount of places": lambda np, x, v, i, m, s: np.bincount(i, minlength=4),
    "histogram": lambda np, x, v, i, m, s: np.histogram(x, bins=4),
    "histogram of a range": lambda np, x, v, i, m, s: np.histogram(v, 5, (0.2, 0.9), weights=v)[0],
    "histogram between elements": lambda np, x, v, i, m, s: (
        np.histogram(x, 4, (v.min(), v.max()))),
    "histogram of edges": lambda np, x, v, i, m, s: np.histogram(v, numpy.linspace(0, 1, 5))[0],
    "histogram2d": lambda np, x, v, i, m, s: np.histogram2d(v, v[::-1], bins=3)[0],
    "maximum.at": at("maximum"), "multiply.at": at("multiply"), "add.at": at("add"),
    "reduceat": lambda np, x, v, i, m, s: np.add.reduceat(x, [0, 3, 5], axis=1),
    "logaddexp.reduce": lambda np, x, v, i, m, s: np.logaddexp.reduce(x, axis=0),
    "put": written(lambda np, a, x, v, i, m: np.put(a, [1, 3, -1], [7.0, 8.0])),
    "place": written(lambda np, a, x, v, i, m: np.place(a, m, [1.0, 2.0, 3.0])),
    "putmask": written(lambda np, a, x, v, i, m: np.putmask(a, m, a * 2)),
    "put_along_axis": written(last_places),
    "fill_diagonal": written(diagonals), "lists": written(lists),
    "lstsq": lambda np, x, v, i, m, s: np.linalg.lstsq(x.T, v, rcond=None)[:2],
    "multi_dot": lambda np, x, v, i, m, s: np.linalg.multi_dot([x, x.T, x]),
    "matrix_rank": lambda np, x, v, i, m, s: np.linalg.matrix_rank(s),
    "cond": lambda np, x, v, i, m, s: np.linalg.cond(s),
    "polyfit": lambda np, x, v, i, m, s: np.polyfit(v, v**2, 2),
    "vander": lambda np, x, v, i, m, s: np.vander(v, 3),
    "choose": lambda np, x, v, i, m, s: np.choose(i, [v, v * 2, v * 3]),
    "unravel_index": lambda np, x, v, i, m, s: np.unravel_index(i, (2, 4)),
    "ravel_multi_index": lambda np, x, v, i, m, s: np.ravel_multi_index((i, i), (3, 3)),
    "isin": lambda np, x, v, i, m, s: np.isin(i, [1, 2]),
    "packbits": lambda np, x, v, i, m, s: np.packbits(m),
    "i0": lambda np, x, v, i, m, s: np.i0(v),
    "average": lambda np, x, v, i, m, s: np.average(x, axis=1, weights=v),
    "cov": lambda np, x, v, i, m, s: np.cov(v),
    "cov of two": lambda np, x, v, i, m, s: np.cov(v, v**2, ddof=0),
    "corrcoef": lambda np, x, v, i, m, s: (np.corrcoef(v), np.corrcoef(x, v)),
    "sliding windows": lambda np, x, v, i, m, s: (
        np.lib.stride_tricks.sliding_window_view(v, 3).max(1)),
    "sliding windows of rows": lambda np, x, v, i, m, s: (
        np.lib.stride_tricks.sliding_window_view(x, (2, 3), (0, 1))[::2, 1]),
    "apply_along_axis": lambda np, x, v, i, m, s: np.apply_along_axis(lambda r: r * r[0], 0, x),
    "apply_along_axis to one": lambda np, x, v, i, m, s: np.apply_along_axis(np.sum, 1, x),
    "apply_over_axes": lambda np, x, v, i, m, s: np.apply_over_axes(np.sum, x, [0]),
    "polyadd": lambda np, x, v, i, m, s: np.polyadd(v, [1.0, 2.0]),
    "polysub": lambda np, x, v, i, m, s: np.polysub(v[:2], i),
    "polyder": lambda np, x, v, i, m, s: np.polyder(v, 2),
    "polyint": lambda np, x, v, i, m, s: np.polyint(v, k=1.5),
    "vecdot": lambda np, x, v, i, m, s: (
        np.linalg.vecdot(x, v), np.linalg.vecdot(v, v), np.vecdot(x * 1j, x, axis=0)),
    "insert": lambda np, x, v, i, m, s: np.insert(v, [3, 1, -1], v[:3]),
    "insert rows": lambda np, x, v, i, m, s: np.insert(x, slice(1, 3), v, axis=0),
    "insert as many": lambda np, x, v, i, m, s: np.insert(i, [2], [7.5, 8.0, True]),
    "insert at one place": lambda np, x, v, i, m, s: np.insert(x, 1, x[:, :2].T, axis=1),
    "geomspace": lambda np, x, v, i, m, s: np.geomspace(v[0], v[1:3], 4),
    "logspace": lambda np, x, v, i, m, s: np.logspace(v, 2.0, 4, base=3.0),
    "among others": lambda np, x, v, i, m, s: (
        np.histogram(np.sqrt(x) * v, bins=4, range=(0, 1))[0].cumsum() / x.size),
}


def compared(found, expected):
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            compared(mine, theirs)
        return
    assert found.shape == numpy.shape(expected) and found.dtype == numpy.asarray(expected).dtype
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name):
    """Called twice, of other values: nothing of the first call is kept."""
    program = PROGRAMS[name]
    jitted = np.jit(lambda *operands: program(np, *operands))
    for turned in (False, True):
        operands = [x[::-1].copy() if turned else x for x in OPERANDS]
        compared(jitted(*map(np.array, operands)), program(numpy, *operands))


A = X[:, :3]  # arrays of NumPy's that programs find by name
BESIDE = {
    "bincount": lambda np, x: np.bincount(PLACES, x, 5),
    "bincount of as many": lambda np, x: np.bincount(PLACES, weights=x),
    "isin": lambda np, x: np.isin(V, x),
    "interp": lambda np, x: np.interp(V, [0.0, 0.4, 0.6], [1, 2, 3], left=x[0], right=x[1]),
    "choose": lambda np, x: np.choose(PLACES, [x, x * 2, V]),
    "multi_dot": lambda np, x: np.linalg.multi_dot([A, A.T, x[:6].reshape(6, 1)]),
    "lstsq": lambda np, x: np.linalg.lstsq(A, x[:6], rcond=None)[:2],
    "tensorsolve": lambda np, x: np.linalg.tensorsolve(
        SQUARE.reshape(2, 3, 6), x[:6].reshape(2, 3)),
    "polyfit": lambda np, x: np.polyfit(V, x, 2, w=V),
    "histogram": lambda np, x: np.histogram(V, 4, weights=x),
}


@pytest.mark.parametrize("name", BESIDE)
def test_before_a_traced_array_stands_one_of_numpys(name):
    program = BESIDE[name]
    jitted = np.jit(lambda x: program(np, x))
    for x in (V, X[1], -X[2]):
        compared(jitted(np.array(x)), program(numpy, x))


NUMBERS = numpy.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8], [9, 7, 9, 3]])
OF_NUMBERS = {
    "polyfit": lambda np, n: np.polyfit(n[0] * 2, n[1], 1),
    "polyfit of places": lambda np, n: np.polyfit(np.arange(4), n[0] * 0.5, 2),
    "polyfit of weights": lambda np, n: np.polyfit(n[3], n[1], 1, w=n[2]),
    "average": lambda np, n: np.average(n, axis=0, weights=n[1]),
    "average by a mask": lambda np, n: np.average(n[0], weights=n[0] > 2),
    "lstsq": lambda np, n: np.linalg.lstsq(n[:, :3], n[:, 3], rcond=None),
    "tensorsolve": lambda np, n: np.linalg.tensorsolve(n.reshape(4, 2, 2), n[0]),
    "tensorinv": lambda np, n: np.linalg.tensorinv(n.reshape(4, 2, 2), 1),
    "histogram": lambda np, n: np.histogram(n, 3, weights=n > 2, density=True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_whole_numbers_to_compute_with(name, dtype):
    """While a call is recorded, zeros stood for them, which no such function takes."""
    program = OF_NUMBERS[name]
    jitted = np.jit(lambda n: program(np, n))
    for n in (NUMBERS, NUMBERS[::-1] + 1, NUMBERS.T * 2):
        n = n.astype(dtype)
        compared(jitted(np.array(n)), program(numpy, n))


def test_places_beyond_the_array_are_an_error_of_the_call():
    @np.jit
    def program(x, places):
        found = x.copy()
        np.put(found, places, 1.0)
        return found

    assert program(np.array(V), np.array([1, 2]))[2] == 1
    with pytest.raises(IndexError, match="out of bounds"):
        numpy.asarray(program(np.array(V), np.array([1, 20])))
    assert program(np.array(V), np.array([1, 3]))[3] == 1


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 2), (0, 2), (0, 0)])
@pytest.mark.parametrize("order", [2, -2, "nuc"])
def test_norms_of_nothing(order, shape):
    def program(np, x):
        return np.linalg.norm(x, ord=order, axis=(-2, -1))

    x = numpy.zeros(shape)
    for traced in (False, True):
        call = np.jit(lambda x: program(np, x)) if traced else lambda x: program(np, x)
        if order == -2 and 0 in shape[-2:]:
            with pytest.raises(ValueError, match="reduction operation minimum which has no identi"):
                call(np.array(x))
            continue
        found, want = call(np.array(x)), program(numpy, x)
        assert (found.shape, found.dtype) == (want.shape, numpy.dtype("f8"))
        numpy.testing.assert_array_equal(found.numpy(), want)


def test_a_shape_that_depends_on_values_is_refused():
    counts = np.jit(lambda i: np.bincount(i, minlength=4))
    assert counts(np.array([0, 1, 1])).tolist() == [1, 2, 0, 0]
    with pytest.raises(ValueError, match=r"bincount: the result has shape \(8,\), and \(4,\)"):
        numpy.asarray(counts(np.array([0, 7])))
    for refused in (lambda x: np.unique(x), lambda x: np.nonzero(x)):
        with pytest.raises(TypeError, match="looked at a value"):
            np.jit(refused)(np.array(PLACES))
    for refused in (np.bincount, lambda x: np.grad(lambda w: np.bincount(x, w)[0])(np.array(V))):
        with pytest.raises(TypeError, match=r"looked at a value .* Say so by minlength="):
            np.jit(refused)(np.array(PLACES))


PROGRESSIONS = {
    "numbers": lambda np, x: np.linspace(x[0], x[1], 7),
    "without an end": lambda np, x: np.linspace(x[0], 1.7, 5, endpoint=False, retstep=True),
    "rows": lambda np, x: np.linspace(x, [x[::-1], x], 4, axis=-1),
    "none": lambda np, x: np.linspace(x[0], x[0], 3),
    "one": lambda np, x: np.linspace(x[0], x, 1),
    "whole": lambda np, x: np.linspace(x[2], 9, 5, dtype=int),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("name", PROGRESSIONS)
def test_progressions_between_ends_without_values(name, dtype):
    program = PROGRESSIONS[name]
    jitted = np.jit(lambda x: program(np, x))
    for start in ([1, 2, -7], [0.3, 0.7, -1.9], [3e5, -11, 0]):
        x = numpy.array(start).astype(dtype)
        expected = program(numpy, x)
        found = [jitted(np.array(x))]
        if dtype != "int64":
            found.append(program(np, np.variable(x)))
        for each in found:
            compared(each, expected)
            numpy.testing.assert_array_equal(
                *(y[0] if isinstance(y, tuple) else y for y in (each, expected)))


def test_what_is_wrong_in_a_function_of_rows_is_told():
    rows = np.array(X)
    with pytest.raises(TypeError, match="has no len"):
        np.jit(lambda x: np.apply_along_axis(lambda r: r[:len(3)], 1, x))(rows)
    with pytest.raises(TypeError, match=r"looked at a value \(line \d+ of .*test_calls_in_traces"):
        np.jit(lambda x: np.apply_along_axis(lambda r: r if r[0] else -r, 1, x))(rows)
    with pytest.raises(TypeError, match=r"looked at a value \(line \d+ of .*test_calls_in_traces"):
        np.jit(lambda x: np.roots(x))(rows[0])


def test_it_has_no_derivative():
    with pytest.raises(NoDerivative, match="histogram"):  # the first of its results are counts
        np.jit(np.grad(lambda x: np.histogram(x, "auto")[1].sum()))(np.array(V))


def test_for_each_sample():
    found = np.vmap(lambda x: np.histogram(x, bins=4, range=(0, 1))[0])(np.array(X))
    assert found.tolist() == [numpy.histogram(x, 4, (0, 1))[0].tolist() for x in X]


def put_computed(np, x):
    found = x.copy()
    np.put(found, np.argsort(x)[:4], [1.0, 2.0])
    return found


def placed(np, x):
    found = x.copy()
    np.place(found, found > 0.5, [9.0, 8.0])
    return found


def along_axis(np, x):
    found = x.reshape(-1, 4).copy()
    np.put_along_axis(found, found.argmax(1)[:, None], -1.0, axis=1)
    return found


def at_computed(np, x):
    found, places = np.zeros(8), (x * 3).astype(int)
    np.add.at(found, places, x)
    np.maximum.at(found, places[:3], 9.0)
    return found


@pytest.mark.parametrize("program", [put_computed, placed, along_axis, at_computed])
def test_places_that_are_computed_for_each_sample(program):
    expected = numpy.stack([program(numpy, x) for x in X])
    for mapped in (np.vmap(lambda x: program(np, x)), np.jit(np.vmap(lambda x: program(np, x)))):
        numpy.testing.assert_allclose(numpy.asarray(mapped(np.array(X))), expected)


@pytest.mark.parametrize("change", [
    lambda y: numpy.place(y, y > 0.4, y[:2]), lambda y: numpy.place(y, y > 0.4, y[1:3]),
    lambda y: numpy.place(y, y > 0.4, y), lambda y: numpy.place(y[1:], y[1:] > 0.4, vals=y[:3]),
    lambda y: numpy.putmask(y, y > 0.4, y[::-1]), lambda y: numpy.put(y, [1, 2, 3], y[:3]),
    lambda y: numpy.put_along_axis(y, numpy.array([1, 2, 3]), y[:3], 0),
    lambda y: numpy.add.at(y, [1, 2, 3], y[:3]),
])
def test_values_that_are_a_view_of_what_is_written(change):
    def changed(y):
        y = y.copy()
        change(y)
        return y

    x = numpy.array([[1, 2, 0.1, 3, 5], [0.1, 2, 3, 1, 4], [0.3, 0.2, 9, 8, 7]])
    wanted = numpy.stack([changed(row) for row in x])
    jitted = np.jit(changed)
    for _ in range(2):
        numpy.testing.assert_array_equal(numpy.stack([jitted(np.array(row)) for row in x]), wanted)
    numpy.testing.assert_array_equal(numpy.asarray(np.vmap(changed)(np.array(x))), wanted)
    numpy.testing.assert_array_equal(numpy.stack([changed(np.array(row)) for row in x]), wanted)


def part(a):
    a.partition(1)
    return a


def totals_into(a):
    numpy.cumsum(a, axis=None, out=a)
    return a


def placed_twice(a):
    numpy.place(a, a > 0, [4, 5])
    return a


@pytest.mark.parametrize("change", [part, totals_into, placed_twice])
@pytest.mark.parametrize("shape", [(0, 1), (0, 2), (3, 0)])
def test_of_no_elements_numpy_takes_any(change, shape):
    assert change(numpy.zeros(shape)).shape == shape
    x = np.zeros(shape)
    assert change(x.copy()).shape == shape
    assert np.jit(lambda x: change(x * 1))(x).shape == shape
    assert np.vmap(lambda x: change(x * 1))(np.zeros((2, *shape))).shape == (2, *shape)
    assert np.jit(np.grad(lambda x: change(x * 1).sum()))(x).shape == shape
    with np.config.override(at_once=0):
        assert change(np.zeros(shape)).shape == shape


def squared(change):
    def program(x):
        y = x * 1
        change(y, x)
        return (y ** 2 * np.arange(1.0, y.size + 1).reshape(y.shape)).sum()

    return program


def in_rows(program):
    return lambda x: program(x.reshape(2, 3))


def heights(*args, **kwargs):
    def program(x):
        a = np.array([0.1, 0.2, 0.9, 0.5, 0.55, 0.05])
        return (np.histogram(a, *args, weights=x, **kwargs)[0] ** 2).sum()

    return program


WRITERS = {
    "place": squared(lambda y, x: np.place(y, x > 0.1, x[:2] * 3)),
    "place one": squared(lambda y, x: np.place(y, x > 0.1, [2.0])),
    "place as many": squared(lambda y, x: np.place(y, x > 0.1, x[::-1] * 2)),
    "place nothing": squared(lambda y, x: np.place(y, x > 9, x[:2] * 3)),
    "putmask": squared(lambda y, x: np.putmask(y, x > 0.1, x * 2)),
    "putmask again": squared(lambda y, x: np.putmask(y, x > 0.1, x[:4] * 2)),
    "putmask reversed": squared(lambda y, x: np.putmask(y, x > 0.1, y[::-1])),
    "putmask of rows": in_rows(squared(lambda y, x: np.putmask(y, x > 0.1, x * 2))),
    "put": squared(lambda y, x: np.put(y, np.argsort(x)[:3], x[:2] * 2)),
    "put, the method": squared(lambda y, x: y.put(np.argsort(x)[:3] - 3, x[:2] * 2)),
    "maximum.at": squared(lambda y, x: np.maximum.at(y, np.array([0, 0, 1, -1]), x[1:5] * 2)),
    "minimum.at": squared(lambda y, x: np.minimum.at(y, np.argsort(x)[:3] // 2, 0.1)),
    "fmax.at": squared(lambda y, x: np.fmax.at(y, np.argsort(x), 0.1)),
    "multiply.at": squared(lambda y, x: np.multiply.at(y, np.argsort(x) // 3, x[::-1] * 2)),
    "multiply.at of rows": in_rows(squared(lambda y, x: np.multiply.at(
        y, (np.argsort(x[0]) // 2, slice(1, None)), x[0, 1:]))),
    "multiply.at nowhere": squared(lambda y, x: np.multiply.at(y, np.argsort(x)[:0], 2)),
    "along": squared(lambda y, x: np.put_along_axis(y, np.argsort(x)[:3], x[:3] * 2, 0)),
    "along none": squared(lambda y, x: np.put_along_axis(y, np.argsort(x)[:3], x[:3], None)),
    "along rows": in_rows(squared(
        lambda y, x: np.put_along_axis(y, np.argmax(x, axis=1)[:, None], x[:, :1] * 2, 1))),
    "choose": lambda x: (np.choose((x > 0) * 1 + (x > 0.3) * 1, [x, x ** 2, 3 * x]) ** 2).sum(),
    "histogram": heights(3), "range": heights(3, (0.1, 0.55)), "bins": heights([0, 0.2, 0.5, 0.9]),
    "density": heights([0, 0.2, 0.5, 0.9], density=True),
}


def matrix(x):
    return np.stack([x, x ** 2 + 1, np.ones(6)], axis=1)


def counted(*args, **kwargs):
    def program(x):
        counts, edges = np.histogram(x, *args, **kwargs)
        return (counts * (edges[1:] + edges[:-1] ** 2)).sum()

    return program


LOOKERS = {
    "lstsq": lambda x: (np.linalg.lstsq(matrix(x), x[::-1])[0] ** 2).sum(),
    "lstsq, residuals": lambda x: np.linalg.lstsq(matrix(x), x[::-1])[1].sum(),
    "lstsq, the rest": lambda x: (
        np.prod(np.linalg.lstsq(matrix(x), X[:6, :2])[3]) * np.linalg.lstsq(matrix(x), x)[2]),
    "lstsq of a constant": lambda x: (np.linalg.lstsq(X[:6, :4], x)[0] ** 2).sum(),
    "lstsq of few rows": lambda x: (np.linalg.lstsq(matrix(x)[:2], x[:2], 1e-3)[0] ** 2).sum(),
    "polyfit": lambda x: (np.polyfit(x, x[::-1], 2) ** 2).sum(),
    "polyfit of a constant": lambda x: (np.polyfit(V[:6], x, 2, w=V[1:7]) ** 2).sum(),
    "polyfit of places": lambda x: (np.polyfit(np.arange(6), x, 1) ** 2).sum(),
    "polyfit, weights": lambda x: (np.polyfit(V[:6], x ** 2, 1, w=x) ** 2).sum(),
    "polyfit, covariance": lambda x: (np.polyfit(V[1:7], x, 1, cov=True)[1] ** 2).sum(),
    "bincount": lambda x: (np.bincount(np.argsort(x) // 2, x, 4) ** 2).sum(),
    "bincount of bools": lambda x: (np.bincount(x > 0, x, 2) ** 2).sum(),
    "bincount of a constant": lambda x: (np.bincount(PLACES[:6], weights=x) ** 2).sum(),
    "counts": counted(3), "density of counts": counted(4, density=True),
    "density of a range": counted(3, (-0.2, 0.6), density=True),
    "density by weights": lambda x: counted(3, weights=x, density=True)(x),
    "between extrema": lambda x: counted(4, (x.min() - 1, x.max() * 2), density=True)(x),
    "edges": lambda x: counted(np.sort(x), density=True)(V[:6] - 0.3),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", [*WRITERS, *LOOKERS])
def test_gradients_of_what_depends_on_values(name):
    gradient = np.grad({**WRITERS, **LOOKERS}[name])
    x = np.array(numpy.random.default_rng(0).random((3, 6)) - 0.3)
    wanted = np.stack([gradient(row) for row in x])
    for found in (np.stack([np.jit(gradient)(row) for row in x]), np.vmap(gradient)(x),
                  np.jit(np.vmap(gradient))(x)):
        numpy.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_gradients_where_the_shape_of_results_is_another():
    counts = np.jit(np.grad(lambda x, places: np.bincount(places, x, 2)[0]))
    assert counts(np.array([1.0, 2.0]), np.array([0, 1])).tolist() == [1, 0]
    for places in ([0, 2], [0, -1]):
        with pytest.raises(IndexError, match="index 2 is out of bounds"):
            numpy.asarray(counts(np.array([1.0, 2.0]), np.array(places)))
    residuals = np.jit(np.grad(lambda x: np.linalg.lstsq(matrix(x), x)[1].sum()))
    with pytest.raises(ValueError, match=r"lstsq: the result has shape \(0,\), and \(1,\)"):
        numpy.asarray(residuals(np.ones(6)))


def test_gradients_of_a_choice_that_is_not_there():
    gradient = np.jit(np.grad(lambda x: np.choose((x > 0) * 2, [x, x ** 2]).sum()))
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        numpy.asarray(gradient(np.array([0.5, -1.0])))


WORD_FOR_WORD = {
    "irfft2": lambda np, x: np.fft.irfft2(x, s=(3,)),
    "rfftn": lambda np, x: np.fft.rfftn(x, s=(3, 3), axes=(5,)),
    "item": lambda np, x: np.ones((2, 3)).item(100),
    "item of too many": lambda np, x: np.ones((2, 3)).item(1, 2, 3),
    "item of a fraction": lambda np, x: np.ones((2, 3)).item(2.0),
    "solve": lambda np, x: np.linalg.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1))),
    "einsum of too few": lambda np, x: np.einsum("i,j", x),
    "einsum of too many": lambda np, x: np.einsum("i", x, x),
}


@pytest.mark.parametrize("name", WORD_FOR_WORD)
def test_errors_are_numpys_word_for_word(name):
    function = WORD_FOR_WORD[name]
    with pytest.raises(Exception) as theirs:
        function(numpy, numpy.arange(6.0))
    for run in (lambda x: function(np, x), np.jit(lambda x: function(np, x))):
        with np.config.override(at_once=0), pytest.raises(type(theirs.value)) as ours:
            run(np.arange(6.0))
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("part", ["real", "imag"])
@pytest.mark.parametrize("number", [0.5, 2, True, 0.5j, numpy.float32(3), numpy.complex64(1j)])
def test_parts_of_numbers_are_numbers(part, number):
    x = numpy.arange(6, dtype="f4")
    expected = x * getattr(numpy, part)(number)
    for run in (lambda x: x * getattr(np, part)(number),
                np.jit(lambda x: x * getattr(np, part)(number))):
        with np.config.override(at_once=0):
            found = run(np.array(x))
        assert found.dtype == expected.dtype
        numpy.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("given", "fdFD")
@pytest.mark.parametrize("asked", "fdFD")
def test_transforms_into_another_precision(name, given, asked):
    """``out=`` decides in which precision NumPy transforms."""
    x = (numpy.random.default_rng(0).random((3, 8)) * (1 + 0.5j)).astype("D")
    x = x.astype(given) if given in "FD" else x.real.astype(given)
    shape = getattr(numpy.fft, name)(x if name != "rfft" else x.real).shape
    expected = numpy.zeros(shape, asked)
    norm = "forward" if name[0] == "i" else "backward"
    out = np.zeros(shape, asked)
    transform = np.jit(lambda x, out: getattr(np.fft, name)(x, norm=norm, out=out))
    try:
        getattr(numpy.fft, name)(x, norm=norm, out=expected)
    except TypeError:
        with pytest.raises(TypeError):
            transform(np.array(x), out)
        return
    transform(np.array(x), out)
    tolerance = 1e-6 if "f" in (given + asked).lower() else 1e-14
    numpy.testing.assert_allclose(out.numpy(), expected, rtol=tolerance, atol=tolerance)
