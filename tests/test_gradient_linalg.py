"""Rules of linear algebra, against differences; what is stated where none is defined."""

import numpy
import pytest

import tiledarray as np
from tests.gradients import check, real, whole
from tests.plans import planned
from tiledarray.errors import NoDerivative
from tiledarray.fusion.plan import Call
from tiledarray.gradients.factorizations import inverted_lower

VALUES = pytest.mark.parametrize("values", [real, whole])


def square(values, *shape):
    """Matrices that are far from singular."""
    return values(*shape) + 1.5 * numpy.eye(shape[-1])


def definite(x):
    """A Hermitian matrix of any one, with eigenvalues far from 0 and from each other."""
    size = x.shape[-1]
    scale = np.arange(1.0, size + 1) * 2
    return x @ x.conj().swapaxes(-1, -2) + scale * np.eye(size)


@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 1)])
def test_inverses_and_determinants(values, shape):
    x = square(values, *shape)
    check(np.linalg.inv, x)
    check(np.linalg.det, x)
    check(lambda x: np.linalg.slogdet(x)[1], x)
    check(lambda x: np.linalg.matrix_power(x, 3), x)
    check(lambda x: np.linalg.matrix_power(x, -2), x, tolerance=1e-6)
    sign, logarithm = (lambda x: np.linalg.slogdet(x)[0]), lambda x: np.linalg.slogdet(x)
    check(sign, x)
    check(lambda x: logarithm(x)[0] * logarithm(x)[1], x)


@VALUES
@pytest.mark.parametrize("left, right", [
    ((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)),
    ((2, 3, 3), (2, 3, 1)), ((3, 3), (4, 3, 2)), ((2, 1, 3, 3), (4, 3, 2)),
])
def test_equations(values, left, right):
    check(np.linalg.solve, square(values, *left), values(*right, seed=5))


@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_inverses_of_lower_triangles(values, shape):
    x = square(values, *shape)
    check(inverted_lower, x)
    numpy.testing.assert_allclose(
        inverted_lower(np.array(x)), numpy.linalg.inv(numpy.tril(x)), rtol=1e-10, atol=1e-10)


def test_equations_of_real_matrices_and_complex_sides():
    check(np.linalg.solve, square(real, 3, 3), whole(3))
    check(np.linalg.solve, square(whole, 3, 3), real(3))


@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_cholesky(values, shape):
    check(lambda x: np.linalg.cholesky(definite(x)), values(*shape))
    check(lambda x: np.linalg.cholesky(definite(x), upper=True), values(*shape))


@pytest.mark.sampled(3)
@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues(values, shape, triangle):
    x = values(*shape)
    check(lambda x: np.linalg.eigvalsh(definite(x), triangle), x)
    check(lambda x: np.linalg.eigh(definite(x), triangle)[0], x)

    def powers(x):  # nothing here depends on the phases of the vectors
        w, v = np.linalg.eigh(definite(x), triangle)
        return abs(v) ** 2, (v * np.sqrt(w)[..., None, :]) @ v.conj().swapaxes(-1, -2)

    check(lambda x: powers(x)[0], x)
    check(lambda x: powers(x)[1], x)


def test_eigenvectors_of_real_matrices():
    check(lambda x: np.linalg.eigh(definite(x))[1], real(4, 4))


def _symmetric(x):
    return x @ np.diag(np.arange(1.0, x.shape[-1] + 1)) + 0.3 * x.swapaxes(-1, -2)


def _turning(x):
    return x + 2 * np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 0.7]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind, real_ones", [(_symmetric, True), (_turning, False)])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@VALUES
def test_eigenvalues_of_any_matrix(kind, real_ones, shape, values):
    x = values(*shape) + numpy.eye(3)
    there = np.linalg.eig(np.array(numpy.asarray(kind(x))))
    here = np.linalg.eig(kind(np.variable(x)))
    gives_real = numpy.linalg.eigvals(numpy.eye(1)).dtype.kind == "f"  # NumPy until 2.5
    assert (there[0].dtype.kind == "f") == (real_ones and values is real and gives_real)
    for ours, theirs in zip(here, there, strict=True):
        assert ours.dtype == theirs.dtype and (ours == theirs).all()
    check(lambda x: np.linalg.eigvals(kind(x)), x, tolerance=1e-6)
    check(lambda x: np.linalg.eig(kind(x))[0], x, tolerance=1e-6)
    check(lambda x: abs(np.linalg.eig(kind(x))[1]) ** 2, x, tolerance=1e-6)

    def exponential(x):
        w, v = np.linalg.eig(kind(x))
        return v * np.exp(w)[..., None, :] @ np.linalg.inv(v)

    check(exponential, x, tolerance=1e-6)


@pytest.mark.sampled(2)
@VALUES
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_qr(values, shape):
    x = values(*shape) + numpy.eye(*shape[-2:])
    check(lambda x: np.linalg.qr(x)[0], x)
    check(lambda x: np.linalg.qr(x)[1], x)
    check(lambda x: np.linalg.qr(x, mode="r"), x)
    check(lambda x: np.linalg.qr(x)[0] @ (2 * np.linalg.qr(x)[1]), x)


@pytest.mark.sampled(6)
@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 4, 2), (1, 3)])
def test_svd(values, shape):
    x = values(*shape) + numpy.eye(*shape[-2:]) * numpy.arange(1, shape[-1] + 1)
    check(np.linalg.svdvals, x)
    check(lambda x: np.linalg.svd(x, compute_uv=False) ** 2, x)
    check(lambda x: np.linalg.svd(x)[1], x)

    def parts(x):
        u, s, v = np.linalg.svd(x, full_matrices=False)
        return u, s[..., None, :], v

    def middle(x):
        u, s, v = parts(x)
        return (u * s ** 3) @ v

    def polar(x):
        u, _, v = parts(x)
        return u @ v

    check(middle, x)
    check(polar, x)
    check(lambda x: abs(parts(x)[0]) ** 2, x)
    check(lambda x: abs(parts(x)[2]) ** 2, x)


def test_singular_vectors_of_real_matrices():
    x = real(4, 3) + numpy.eye(4, 3) * numpy.arange(1, 4)
    for place in range(3):
        check(lambda x, place=place: np.linalg.svd(x, full_matrices=False)[place], x)
    check(lambda x: np.linalg.svd(x)[2], x)


@VALUES
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 4, 2)])
def test_pinv(values, shape):
    check(np.linalg.pinv, values(*shape) + numpy.eye(*shape[-2:]))


def test_pinv_of_a_rank_that_stays():
    check(lambda x: np.linalg.pinv(np.outer(x[:3], x[1:])), real(5))


# Where a derivative is not defined, or nearly not -------------------------------------------------


def test_the_determinant_of_singular_matrices():
    x = numpy.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    assert numpy.linalg.matrix_rank(x) == 2
    check(np.linalg.det, x, second=False)
    check(lambda x: np.linalg.det(x[None] * np.ones((2, 1, 1))), x, second=False)
    numpy.testing.assert_allclose(np.grad(np.linalg.det)(np.ones((3, 3))), 0, atol=1e-14)
    assert np.grad(np.linalg.det)(np.zeros((1, 1))).tolist() == [[1.0]]


def test_the_logarithm_of_a_determinant_that_is_0_fails():
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        np.grad(lambda x: np.linalg.slogdet(x)[1])(np.zeros((2, 2))).tolist()


def test_the_gradient_of_a_hermitian_matrix_is_hermitian():
    x = definite(np.array(whole(3, 3)))
    for function in (
        lambda x: np.linalg.cholesky(x)[2, 0].imag, lambda x: np.linalg.eigvalsh(x)[0],
        lambda x: abs(np.linalg.eigh(x)[1][0, 0]),
    ):
        found = numpy.asarray(np.grad(function)(x))
        numpy.testing.assert_allclose(found, found.conj().T, rtol=1e-14, atol=1e-15)


def test_equal_eigenvalues():
    x = np.diag([2.0, 2.0, 5.0])
    slope = np.grad(lambda x: (np.linalg.eigvalsh(x) ** 3).sum())(x)
    numpy.testing.assert_allclose(slope, numpy.diag([12.0, 12.0, 75.0]), atol=1e-12)

    def logarithm(x):
        w, v = np.linalg.eigh(x)
        return (v * np.log(w) @ v.T)

    wanted = numpy.diag([0.5, 0.5, 0.2])  # within equal ones the vectors' share is 0
    found = np.grad(lambda x: np.trace(logarithm(x)))(x)
    numpy.testing.assert_allclose(found, wanted, atol=1e-12)
    vectors = np.grad(lambda x: np.linalg.eigh(x)[1][0, 1])(np.eye(3))
    assert vectors.tolist() == numpy.zeros((3, 3)).tolist()


def test_equal_singular_values_and_zeros():
    values = np.grad(lambda x: np.linalg.svdvals(x).sum())
    numpy.testing.assert_allclose(values(np.eye(3)), numpy.eye(3), atol=1e-14)
    x = np.diag([2.0, 1.0, 0.0])
    assert numpy.isfinite(values(x)).all()

    def vectors(x):
        u, s, v = np.linalg.svd(x)
        return u[0, 0] + v[1, 1] + s[0]

    for matrix in (np.eye(3), x, np.zeros((3, 3))):
        assert numpy.isfinite(np.grad(vectors)(matrix)).all()


def test_what_a_matrix_does_not_determine():
    with pytest.raises(NoDerivative, match=r"(?s)qr.*complete.*mode='reduced'"):
        np.grad(lambda x: np.linalg.qr(x, "complete")[1].sum())(np.ones((3, 2)))
    with pytest.raises(NoDerivative, match=r"(?s)svd.*full_matrices=False"):
        np.grad(lambda x: np.linalg.svd(x)[0].sum())(np.ones((3, 2)))
    check(lambda x: np.linalg.qr(x, "complete")[1], real(2, 3) + numpy.eye(2, 3))


def test_a_likelihood_to_the_second_order():
    x, y = numpy.linspace(0, 1, 6), real(6)

    def likelihood(p):
        gaps = x[:, None] - x
        kernel = p[1] * np.exp(-(gaps / p[0]) ** 2) + p[2] * np.eye(6)
        factor = np.linalg.cholesky(kernel)
        whitened = np.linalg.solve(factor, y)
        return whitened @ whitened / 2 + np.log(factor.diagonal()).sum()

    check(likelihood, numpy.array([0.5, 1.1, 0.3]))


MADE_OF_OTHERS = {
    "cond": lambda x: np.linalg.cond(x),
    "cond, smallest": lambda x: np.linalg.cond(x[..., :2], -2),
    "cond by columns": lambda x: np.linalg.cond(x, 1),
    "norm 2": lambda x: np.linalg.norm(x, 2, (-2, -1), keepdims=True),
    "norm -2": lambda x: np.linalg.matrix_norm(x, ord=-2),
    "nuclear norm": lambda x: np.linalg.norm(x, "nuc", axis=(-1, -2)),
    "tensorinv": lambda x: np.linalg.tensorinv(x.reshape(-1, 3, 1, 3)[0], ind=1),
    "tensorsolve": lambda x: np.linalg.tensorsolve(x.reshape(-1, 3, 3)[0], x.reshape(-1, 3)[1]),
    "multi_dot": lambda x: np.linalg.multi_dot([x[0], x, x.T, x[:, :2]]),
    "pinv to a precision": lambda x: np.linalg.pinv(x, rtol=1e-5) + np.linalg.pinv(x, 1e-6),
    "matrix_power 0": lambda x: np.linalg.matrix_power(x, 0) + x,
    "lstsq": lambda x: np.linalg.lstsq(x[..., :2], x[..., 2])[0],
    "lstsq of several": lambda x: np.linalg.lstsq(x[:, :2], x[:, 1:] ** 2)[0],
    "residuals": lambda x: np.linalg.lstsq(x[:, :2], x[:, 1:] ** 2, rcond=-1)[1],
    "lstsq of less": lambda x: np.linalg.lstsq(x[:2], x[1:, 2], rcond=1e-6)[0],
}


@pytest.mark.sampled(2)
@VALUES
@pytest.mark.parametrize("name", MADE_OF_OTHERS)
def test_what_is_made_of_others(name, values):
    x = square(values, 3, 3)
    check(MADE_OF_OTHERS[name], x, tolerance=1e-6)
    here = MADE_OF_OTHERS[name](np.variable(x))
    there = MADE_OF_OTHERS[name](np.array(x))
    numpy.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)


def test_a_chain_of_matrices():
    x, y = real(2, 3), real(3)
    for parts in ([x, x.T], [y, x.T], [x, y], [x, x.T, x, y], [y, x.T, x, y]):
        found = np.linalg.multi_dot([np.variable(part) for part in parts])
        numpy.testing.assert_allclose(found, numpy.linalg.multi_dot(parts), rtol=1e-12)


def test_lstsq_gives_numpys_four_results():
    for shape in ((4, 3), (3, 4), (3, 3)):
        for rank in (2, 3):
            x = real(*shape)
            if rank == 2:
                x[:, 2], x[2] = x[:, 1], x[1]
            for y in (real(shape[0]), real(shape[0], 2)):
                wanted = numpy.linalg.lstsq(x, y)
                found = np.linalg.lstsq(np.variable(x), y)
                for ours, theirs in zip(found, wanted, strict=True):
                    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
                    numpy.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_condition_of_singular_matrices():
    x = np.variable(numpy.zeros((2, 2, 2)) + numpy.array([[[1.0, 0], [0, 1]], [[0, 0], [0, 0]]]))
    assert np.linalg.cond(x).tolist() == [1.0, numpy.inf]
    assert np.linalg.cond(x, 1).tolist() == [1.0, numpy.inf]


@pytest.mark.parametrize("shape", [(300, 300), (500, 20, 20)])
def test_a_log_determinant_by_the_factor_has_one_product_in_its_gradient(shape):
    random = numpy.random.default_rng(0).normal(size=shape)
    matrices = random @ random.swapaxes(-1, -2) + shape[-1] * numpy.eye(shape[-1])

    def log_determinant(k):
        return np.log(np.diagonal(np.linalg.cholesky(k), axis1=-2, axis2=-1)).sum()

    with np.config.override(at_once=0):
        slope = np.grad(log_determinant)(np.array(matrices))
        products = [step for step in planned(slope).steps
                    if isinstance(step, Call) and step.value.op.name == "matmul"]
        assert len(products) == (len(shape) == 2)  # of small matrices it is part of their kernel
        numpy.testing.assert_allclose(
            numpy.asarray(slope), 0.5 * numpy.linalg.inv(matrices), rtol=0, atol=1e-14)
