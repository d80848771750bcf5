"""Rules of products, order statistics, interpolation and transforms, against differences."""

import numpy
import pytest

import tiledarray as np
from tests.gradients import check, real, whole
from tiledarray.errors import NoDerivative
from tiledarray.gradients import rules
from tiledarray.ops import indexing
from tiledarray.ops.library import BY_NAME
from tiledarray.recording import record

# Those ops of the library that give real or complex numbers and have no derivative, and why.
WITHOUT = {
    "power_of_integers": "of integers",
    "gather": "never recorded: the planner makes it of what has one",
    "check_places": "of integers",
    "linalg.matrix_power": "never recorded: it is a chain of products",
    "linalg.solve_by_factor": "never recorded: the planner makes it of a solve",
    "linalg.solve_symmetric": "never recorded: the planner makes it of a solve",
    "linalg.cond": "never recorded: it is a quotient of singular values, or a product of norms",
}
OF_PLACES = {
    "argpartition", "searchsorted", "digitize", "lexsort", "argsort", "linalg.matrix_rank"}


def test_every_op_of_the_library_has_a_rule_or_a_reason():
    ops = {*BY_NAME.values(), *(op for op in vars(indexing).values() if hasattr(op, "vjp"))}
    without = {op.name for op in ops if not op.vjp}
    assert without == {*WITHOUT} | OF_PLACES


MATMUL_SHAPES = (
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (2, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
    ((1, 2, 3), (4, 3, 1)), ((4, 0), (0, 2)),
)


@pytest.mark.parametrize(("left", "right"), MATMUL_SHAPES)
@pytest.mark.parametrize("values", [real, whole])
def test_matmul(left, right, values):
    check(np.matmul, values(*left), values(*right, seed=4))


@pytest.mark.parametrize("name, left, right", [
    ("vecdot", (2, 3), (2, 3)), ("vecdot", (4, 1, 3), (2, 3)), ("matvec", (2, 3), (3,)),
    ("matvec", (2, 3), (4, 3)), ("matvec", (4, 1, 2, 3), (2, 3)), ("vecmat", (3,), (3, 2)),
    ("vecmat", (4, 3), (2, 1, 3, 2)), ("dot", (2, 3), (4, 3, 2)), ("dot", (2, 3, 2), (2,)),
    ("dot", (2, 1, 3), (2, 2, 3, 2)), ("dot", (), (3,)), ("inner", (2, 3), (4, 3)),
    ("inner", (3,), (2, 4, 3)), ("inner", (2, 2, 3), (3,)), ("vdot", (2, 3), (3, 2)),
    ("outer", (2, 3), (4,)), ("kron", (2, 3), (2, 2)), ("tensordot", (2, 3, 4), (3, 4, 2)),
])
@pytest.mark.parametrize("values", [real, whole])
def test_products(name, left, right, values):
    check(getattr(np, name), values(*left), values(*right, seed=4))


@pytest.mark.parametrize("subscripts, shapes", [
    ("ij,jk", [(2, 3), (3, 2)]), ("ij,jk->ki", [(2, 3), (3, 2)]), ("ij,kj->", [(2, 3), (4, 3)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iij->j", [(2, 2, 3)]), ("iji,j->i", [(2, 3, 2), (3,)]),
    ("ij->", [(2, 3)]), ("ij->i", [(2, 3)]), ("i,j,k->jik", [(2,), (3,), (2,)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 2), (2, 4), (4, 2)]), ("i,i,i", [(3,), (3,), (3,)]),
    ("...ij,...jk->...ik", [(4, 2, 3), (3, 2)]), ("...i,i...->...", [(2, 3), (3, 2)]),
    ("i...->...", [(3, 2, 2)]), ("...ii->...i", [(2, 3, 3)]), ("ij,ij->i", [(2, 3), (1, 3)]),
    ("...,...", [(2, 1, 3), (4, 1)]), ("ij,k->i", [(2, 3), (4,)]), ("ij,jj->i", [(2, 3), (3, 3)]),
    ("iI,I->i", [(2, 3), (3,)]), (",ij->ji", [(), (2, 3)]), ("ij,ij->j", [(2, 1), (2, 3)]),
])
@pytest.mark.parametrize("values", [real, whole])
def test_einsum(subscripts, shapes, values):
    arrays = [values(*shape, seed=3 * k) for k, shape in enumerate(shapes)]
    check(lambda *parts: np.einsum(subscripts, *parts), *arrays)


SMALL = {
    **{name: getattr(np.linalg, name) for name in (
        "inv", "det", "cholesky", "eigvalsh", "pinv", "svdvals")},
    **{f"{name}, {place}": lambda x, name=name, place=place: getattr(np.linalg, name)(x)[place]
       for name, places in (("slogdet", 2), ("eigh", 2), ("qr", 2), ("svd", 3))
       for place in range(places)},
    **{name: getattr(np.fft, name) for name in ("fft", "ifft", "irfft", "hfft", "fftn", "irfftn")},
    "rfft": lambda x: np.fft.rfft(x.real), "ihfft": lambda x: np.fft.ihfft(x.real),
    "rfftn": lambda x: np.fft.rfftn(x.real), "solve": lambda x: np.linalg.solve(x, x[0]),
    "matmul": lambda x: x @ x[0], "einsum": lambda x: np.einsum("ij,kj,ii->", x, x, x),
    "convolve": lambda x: np.convolve(x[0], x[1]), "correlate": lambda x: np.correlate(x[0], x[1]),
    "quantile": lambda x: np.quantile(x.real, 0.3, axis=0), "sort": np.sort,
    "nanmedian": lambda x: np.nanmedian(x.real, axis=0), "median": np.median,
    "partition": lambda x: np.partition(x, 1), "vecdot": lambda x: np.vecdot(x, x[0]),
    "vecdot along": lambda x: np.linalg.vecdot(x, x ** 2, axis=0),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0, 0], [1, 0]]), 1),
}


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", SMALL)
def test_rules_compute_in_the_precision_of_their_input(name, dtype, monkeypatch):
    met = []

    def noted(value, like, fitted=rules.fitted):
        met.append(value.dtype)
        return fitted(value, like)

    x = numpy.array([[2, 0.3], [0.3, 1]], dtype)
    y, pull = np.vjp(SMALL[name], x)
    monkeypatch.setattr(rules, "fitted", noted)
    (found,) = pull(np.ones(y.shape, y.dtype))
    assert found.dtype == dtype
    assert {*met} <= {numpy.dtype("float32"), numpy.dtype("complex64")}
    assert numpy.isfinite(found).all()


# Places and ranks --------------------------------------------------------------------------------


FUNCTIONS = {
    "take_along_axis": lambda x: np.take_along_axis(x * x, np.array([[0, 0, -1], [2, 1, 1]]), 1),
    "take_along_axis, broadcast": lambda x: np.take_along_axis(x * x, np.array([[3, 0, 0]]), 1),
    "take_along_axis, one": lambda x: np.take_along_axis(x[:1] ** 2, np.array([[3], [0]]), 1),
    "take_along_axis, None": lambda x: np.take_along_axis(x, np.array([3, 0, 0]), None) ** 2,
    "take": lambda x: np.take(x * x, [0, 2, 2], axis=1),
    "take, flat": lambda x: np.take(x, np.array([[0, 5], [5, -1]])) ** 2,
    "partition": lambda x: np.partition(x, 2, axis=1) ** 2,
    "partition, several": lambda x: np.partition(x, (0, 1), axis=0) ** 2,
    "sort, flat": lambda x: np.sort(x, axis=None) ** 2,
    "sort by columns": lambda x: np.sort(x, axis=0, kind="stable") ** 3,
    "median": lambda x: np.median(x * x),
    "median by rows": lambda x: np.median(x * x, axis=0),
    "median over both": lambda x: np.median(x * x, axis=(0, 1), keepdims=True) * x,
    "quantile": lambda x: np.quantile(x * x, 0.3, axis=1),
    "quantiles": lambda x: np.quantile(x * x, [0.1, 0.5, 0.5, 1.0], axis=0, keepdims=True),
    "quantiles of all": lambda x: np.quantile(x * x, [0.0, 0.77]),
    "percentile": lambda x: np.percentile(x * x, 30, axis=1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_places_and_ranks(name):
    check(FUNCTIONS[name], real(2, 4))


METHODS = (
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased",
    "normal_unbiased",
)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_by_method(method):
    check(lambda x: np.quantile(x * x, [0.13, 0.61], axis=1, method=method), real(2, 7))


@pytest.mark.parametrize("method", [
    "linear", "lower", "higher", "midpoint", "interpolated_inverted_cdf", "hazen", "weibull",
    "median_unbiased", "normal_unbiased",
])
def test_quantiles_without_nan(method):
    x = real(3, 7)
    x[0, [1, 4]] = x[1, 0] = numpy.nan
    check_numbers(
        lambda x: np.nanquantile(x * x, [0.13, 0.61], axis=1, method=method), x)


def test_medians_and_percentiles_without_nan():
    x = real(3, 5)
    x[0, [1, 4]] = x[1, 0] = numpy.nan
    check_numbers(lambda x: np.nanmedian(x * x, axis=1), x)
    check_numbers(lambda x: np.nanmedian(x * x), x)
    check_numbers(lambda x: np.nanpercentile(x * x, 30, axis=0, keepdims=True), x)
    with pytest.raises(NoDerivative, match="nanquantile by the method 'nearest'"):
        np.grad(lambda x: np.nanquantile(x, 0.3, method="nearest"))(x)


def check_numbers(function, x):
    """The gradient by those elements that are numbers; the others get 0."""
    numbers = ~numpy.isnan(x)
    check(lambda part: function(_with(x, numbers, part)), x[numbers])
    assert (np.grad(lambda x: function(x).sum())(x)[~numbers] == 0).all()


def _with(x, numbers, part):
    result = np.array(x)
    result[numbers] = part
    return result


def test_ties_give_the_derivative_to_the_element_that_sorting_puts_there():
    x = np.array([2.0, 1.0, 1.0, 1.0])
    assert np.grad(np.median)(x).tolist() == [0, 0, 0.5, 0.5]
    assert np.grad(lambda x: np.sort(x)[1])(x).tolist() == [0, 0, 1, 0]


# Interpolation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {}, {"left": 5.0}, {"right": -1.0}, {"left": 1.0, "right": 2.0}, {"period": 1.1},
    {"period": -0.9, "left": 3.0},
])
def test_interp(options):
    x = numpy.array([[-0.2, 0.11, 0.38], [0.73, 0.97, 1.5]])
    places = numpy.array([0.0, 0.21, 0.4, 0.45, 1.0])
    if "period" in options:
        places = numpy.array([0.8, 0.05, 0.55, 0.3])
    for values in (real(len(places)), whole(len(places))):
        check(lambda x, xp, fp: np.interp(x, xp, fp, **options), x, places, values)


def test_interp_with_limits_that_have_derivatives():
    at, places, values = numpy.array([-1.0, 0.2, 0.9, 4.0]), numpy.arange(3.0) / 2, real(3)
    ends = real(2, seed=1)
    for period in (None, 3.0):
        check(lambda f, e, period=period: np.interp(
            at, places, f, left=e[0], right=e[1] ** 2, period=period), values, ends)
    check(lambda f, e: np.interp(at, places, f, right=e.sum()), whole(3), ends)


@pytest.mark.parametrize("values", [real, whole])
def test_vecdot_along_an_axis(values):
    for axis in (-1, 0, 1):
        check(lambda x, y, axis=axis: np.linalg.vecdot(x, y, axis=axis), values(2, 3), values(2, 3))


def test_interp_at_knots():
    slope = np.grad(lambda x: np.interp(x, [0.0, 1.0, 3.0], [0.0, 2.0, 3.0]).sum())
    assert slope(np.array([-1.0, 0.0, 0.5, 1.0, 3.0, 4.0])).tolist() == [0, 2, 2, 0.5, 0.5, 0]
    twice = np.grad(lambda x: np.interp(x, [0.0, 1.0, 1.0, 2.0], [0.0, 2.0, 5.0, 6.0]).sum())
    assert twice(np.array([0.5, 1.0, 1.5])).tolist() == [2, 1, 1]
    alone = np.grad(lambda f: np.interp(np.array([0.0, 1.0, 2.0]), np.array([1.0]), f).sum())
    assert alone(np.array([4.0])).tolist() == [3]


# Sliding products and transforms -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (5, 2), (2, 5), (4, 4), (3, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("values", [real, whole])
def test_sliding_products(name, mode, sizes, values):
    left, right = sizes
    check(lambda a, v: getattr(np, name)(a, v, mode), values(left), values(right, seed=3))


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_sliding_products_do_not_multiply_zeros(name, mode, monkeypatch):
    multiplications = []
    library = record.library

    def counted(op, inputs, attrs, shape, dtype):
        if op.name in ("convolve", "correlate"):
            multiplications.append(shape[0] * min(x.shape[0] for x in inputs))
        return library(op, inputs, attrs, shape, dtype)

    monkeypatch.setattr(record, "library", counted)
    a, v = real(1000), real(5, seed=1)
    for x, function in ((a, lambda a: getattr(np, name)(a, v, mode)),
                        (v, lambda v: getattr(np, name)(a, v, mode))):
        assert numpy.isfinite(np.jvp(function, (x,), (x,))[1]).all()
        assert numpy.isfinite(np.hvp(lambda x, f=function: (f(x) ** 2).sum(), x, x)).all()
    assert len(multiplications) >= 6 and max(multiplications) <= 1008 * 5


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_of_one_axis(name, norm):
    function = getattr(np.fft, name)
    for size in (4, 5):
        for n in (None, 3, 6, 7):
            for axis in (0, -1):
                for values in (real,) if name in ("rfft", "ihfft") else (real, whole):
                    x = values(*((size, 2) if axis == 0 else (2, size)))
                    check(lambda x, n=n, axis=axis: function(x, n, axis, norm), x, second=n == 3)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "irfft2"])
def test_transforms_of_several_axes(name, norm):
    function = getattr(np.fft, name)
    for s, axes in ((None, (-2, -1)), ((3, 4), (0, 2)), ((5, 2), (2, 1)), ((5,), (1,))):
        for values in (real,) if name == "rfftn" else (real, whole):
            check(lambda x, s=s, axes=axes: function(x, s, axes, norm), values(2, 3, 4))


def test_a_spectral_derivative():
    def slope(u):
        waves = 1j * np.arange(5)
        return np.fft.irfft(waves * np.fft.rfft(u), 8)

    check(lambda u: slope(u) * u + np.fft.fftshift(np.fft.fft(u)).real ** 2, real(8))
