"""Products, linear algebra, Fourier transforms and random numbers, against NumPy's."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tests.strategies import agree, agree_on, arrays, same

_random = numpy.random.default_rng(0)
_square = _random.normal(size=(4, 4))
VALUES = {
    "a": _random.normal(size=(3, 4)),
    "b": _random.normal(size=(4, 5)),
    "q": _square,
    "h": _square @ _square.T + 4 * numpy.eye(4),
    "z": _square + 1j * _square.T,
    "k": _random.normal(size=(2, 3, 4, 4)),
    "f": _random.normal(size=(4, 4)).astype("f"),
    "i": _random.integers(-5, 5, (4, 4)),
    "v": _random.normal(size=4),
    "w": _random.normal(size=7),
    "m": numpy.array([[True, False], [True, True]]),
    "e": numpy.zeros((0, 3)),
    "s": numpy.zeros((3, 3)),
    "o": numpy.ones((2, 2), "e"),
}
ORDERS = ["None", "'fro'", "'nuc'", "1", "-1", "2", "-2", "0", "3", "0.5", "np.inf", "-np.inf",
"'x'"]
EXPRESSIONS = [
    "a @ b", "np.matmul(a, b)", "np.matmul(b, a)", "np.matmul(a, v)", "np.matmul(v, v)", "v @ b",
    "k @ q", "np.matmul(k, k[0])", "np.matmul(a, 3)", "i @ i", "f @ f", "f @ q", "m @ m", "z @ q",
    "np.matmul(e, np.ones((3, 2)))", "np.matmul(e.T, e)", "o @ o", "np.matmul(k, k[:, :2])",
    "np.matmul(a, b, out=np.zeros((3, 5)))", "np.matmul([[1, 2]], [[3], [4]])", "a @ a",
    "np.dot(a, b)", "np.dot(v, v)", "np.dot(3, a)", "np.dot(k, q)", "np.dot(q, k)", "np.dot(a, a)",
    "np.dot(k, v)", "np.dot(k[0], k[1])", "a.dot(b)", "np.dot(i, v)", "np.dot([1, 2], [3, 4])",
    "np.vdot(q, q)", "np.vdot(z, z)", "np.vdot(v, w)", "np.vecdot(k, v)", "np.vecdot(z, z)",
    "np.vecdot(v, w)", "np.matvec(q, v)", "np.vecmat(v, b)", "np.matvec(k, v)",
    "np.vecmat(z, z[0])",
    "np.inner(v, v)", "np.inner(a, q)", "np.inner(a, 2)", "np.inner(a, b)", "np.inner(i, i)",
    "np.outer(v, w)", "np.outer(a, 2)", "np.outer([1, 2], [3])", "np.outer(i, v)",
    "np.kron(a, i)", "np.kron(v, a)", "np.kron(2, a)", "np.kron(i, m)",
    "np.tensordot(a, b, 1)", "np.tensordot(k, q, ([2], [1]))",
    "np.tensordot(k, k, ((0, 1), (0, 1)))",
    "np.tensordot(a, b, 0)", "np.tensordot(a, b)", "np.tensordot(k, q, (3, 0))",
    "np.tensordot(q, h)",
    "np.einsum('ij,jk', a, b)", "np.einsum('ij,jk->ki', a, b)", "np.einsum('ii', q)",
    "np.einsum('ii->i', q)", "np.einsum('...ij,jk->...ik', k, q)", "np.einsum('i,i', v, v)",
    "np.einsum('ij->ji', a)", "np.einsum('ij,jk,kl->il', a, b, b.T)", "np.einsum('ij,kl', a, b)",
    "np.einsum('i,j->ij', v, w)", "np.einsum('ij,j', a, w)", "np.einsum('ij->k', a)",
    "np.einsum('...i,...i', k, v)", "np.einsum(a, [0, 1], b, [1, 2])", "np.einsum('ij,jk', a)",
    "np.einsum('ij,ij->', q, h, optimize=True)", "np.einsum('bij,bjk->bik', k[0], k[1])",
    "np.einsum('ijk->i', k)", "np.einsum('ij', i)", "np.einsum_path('ij,jk', a, b)[0]",
    *(f"np.linalg.norm({array}, {order}{axis})" for array in "av" for order in ORDERS
      for axis in ("", ", axis=0", ", keepdims=True")),
    *(f"np.linalg.norm(k, {order}, axis=(1, 3))" for order in ORDERS),
    "np.linalg.norm(k)", "np.linalg.norm(i)", "np.linalg.norm(z)", "np.linalg.norm(z, 1)",
    "np.linalg.norm(f)", "np.linalg.norm(k, axis=(0, 1, 2))", "np.linalg.norm(a, axis=(0, 0))",
    "np.linalg.norm(a, axis=1.5)", "np.linalg.norm(a, axis=-1)", "np.linalg.norm([3, 4])",
    "np.linalg.norm(k, 2)", "np.linalg.norm(o)", "np.linalg.norm(o, axis=0)",
    "np.linalg.vector_norm(a)", "np.linalg.vector_norm(a, ord=1, axis=0)",
    "np.linalg.matrix_norm(k)",
    "np.linalg.matrix_norm(k, ord=1)", "np.linalg.vector_norm(k, axis=(0, 1), keepdims=True)",
    "np.linalg.inv(q)", "np.linalg.inv(k)", "np.linalg.inv(a)", "np.linalg.inv(s)",
    "np.linalg.inv(v)",
    "np.linalg.inv(i + 9 * np.eye(4))", "np.linalg.inv(f)", "np.linalg.inv(o)",
    "np.linalg.det(q)", "np.linalg.det(k)", "np.linalg.det(s)", "np.linalg.slogdet(q)",
    "np.linalg.slogdet(k)", "np.linalg.slogdet(z)", "np.linalg.solve(q, v)",
    "np.linalg.solve(q, b)",
    "np.linalg.solve(k, b)", "np.linalg.solve(q, w)", "np.linalg.solve(s, [1, 2, 3])",
    "np.linalg.cholesky(h)", "np.linalg.cholesky(h, upper=True)", "np.linalg.cholesky(-h)",
    "np.linalg.cholesky(a)", "np.linalg.eigh(h)[0]", "np.linalg.eigvalsh(h)",
    "np.linalg.eigh(h).eigenvalues", "np.linalg.eigvals(q)", "np.linalg.eig(h)[0]",
    "np.linalg.eigh(a)",
    "np.abs(np.linalg.eigh(h)[1])", "np.linalg.eigvalsh(h, 'U')", "np.linalg.eigh(h, 'X')",
    "np.linalg.svd(a, compute_uv=False)", "np.abs(np.linalg.svd(a)[0])", "np.linalg.svd(a).S",
    "np.abs(np.linalg.svd(b.T, full_matrices=False)[2])", "np.linalg.svdvals(k)",
    "np.abs(np.linalg.qr(a)[1])", "np.abs(np.linalg.qr(b.T, 'complete').Q)", "np.linalg.qr(a, 'r')",
    "np.linalg.qr(a, 'nothing')", "np.linalg.pinv(a)", "np.linalg.pinv(k)",
    "np.linalg.lstsq(a.T, v)[0]",
    "np.linalg.matrix_rank(a)", "np.linalg.cond(q)", "np.linalg.matrix_power(q, 3)",
    "np.linalg.matrix_power(q, 0)", "np.linalg.matrix_power(q, -2)", "np.linalg.matrix_power(q, 1)",
    "np.linalg.matrix_power(a, 2)", "np.linalg.matrix_power(q, 1.5)",
    "np.linalg.multi_dot([a, b, b.T])",
    "np.linalg.tensorinv(k.reshape(4, 6, 8, 3)[:, :, :, :])", "np.linalg.trace(k)",
    "np.linalg.diagonal(k)", "np.linalg.cross(a[:, :3], a[:, 1:])", "np.linalg.outer(v, w)",
    "np.linalg.outer(a, a)", "np.linalg.matrix_transpose(k)", "np.linalg.matmul(a, b)",
    "np.linalg.vecdot(a, a)", "np.linalg.vecdot(a, a, axis=0)", "np.linalg.tensordot(a, b, axes=1)",
    "np.linalg.solve(np.zeros((0, 0)), np.zeros(0))", "np.linalg.nothing",
    *(f"np.fft.{name}({array})" for array in "wvaifzm" for name in (
        "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn",
        "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift")),
    "np.fft.fft(w, 4)", "np.fft.fft(w, 12)", "np.fft.fft(a, axis=0)", "np.fft.fft(a, axis=4)",
    "np.fft.fft(w, n=True)", "np.fft.fftn(k, s=(None, 3), axes=(0, 1))",
    "np.fft.irfft2(k, s=(None, 3), axes=(0, 1))", "np.fft.fftshift(np.array(3))",
    "np.fft.ifft(w.astype('f'), out=np.zeros(w.shape, complex))", "np.fft.fftn(a, axes=(0, 5))",
    "np.fft.ifft(np.ones((1, 1)) + 0j, out=np.zeros((4, 1), complex))",
    "np.fft.fft(w, 0)", "np.fft.fft(w, norm='ortho')", "np.fft.fft(w, norm='x')",
    "np.fft.irfft(w, 9)", *(f"np.fft.{name}(w, norm='x')" for name in (
        "ifft", "rfft", "irfft", "hfft", "ihfft")),
    *(f"np.fft.{name}(k, norm='x')" for name in ("fftn", "ifft2", "rfft2", "irfftn")),
    "np.fft.fftn(k, s=(3, 5), axes=(1, 2))", "np.fft.fftn(a, s=(3,), axes=(0, 1))", "np.fft.fft(3)",
    "np.fft.rfftn(k, axes=(0, 2))", "np.fft.irfftn(a, s=(3, 5), axes=(0, 1))", "np.fft.fft(o)",
    "np.fft.fft2(k, axes=(0, 1))", "np.fft.fftshift(a, 1)", "np.fft.fft([1, 2, 3])",
    "np.fft.fftfreq(7)", "np.fft.fftfreq(8, 0.5)", "np.fft.rfftfreq(7)", "np.fft.fftfreq(2.5)",
    "np.fft.fftn(a, axes=(0, 0))", "np.fft.fftn(a, axes=())",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, ulps=1 << 20 if "o)" in expression else 2000, **VALUES)


@settings(max_examples=60, deadline=None)
@given(arrays("?bilfdD", min_dims=1, max_dims=3, finite=True),
       arrays("?bilfdD", min_dims=1, max_dims=3, finite=True))
def test_products(left: numpy.ndarray, right: numpy.ndarray) -> None:
    for name in ("matmul", "dot", "inner", "vecdot"):
        agree(name, left, right, ulps=64)
    # NumPy's loop of a complex product rounds once (a fused multiply-add) where there is one.
    agree("outer", left, right, ulps=4 if "c" in left.dtype.kind + right.dtype.kind else 0)


@settings(max_examples=40, deadline=None)
@given(arrays("bifdFD", min_dims=1, max_dims=3, min_side=1, finite=True), st.integers(1, 9),
       st.sampled_from([None, "ortho", "forward"]))
def test_transforms(array: numpy.ndarray, size: int, norm: str | None) -> None:
    for name in ("fft", "ifft", "irfft"):
        agree(f"fft.{name}", array, size, norm=norm, ulps=64)
    agree("fft.fftn", array, norm=norm, ulps=64)


def test_errors_of_values_come_at_once() -> None:
    with pytest.raises(numpy.linalg.LinAlgError):
        tiledarray.linalg.cholesky(-tiledarray.eye(3))
    assert tiledarray.ones(2).sum() == 2


DRAWS = [
    ("normal", (0, 1, (3, 2))), ("uniform", (0, 2, 5)), ("integers", (0, 10, 4)), ("random", (3,)),
    ("standard_normal", ((2, 2),)), ("permutation", (5,)), ("choice", (6, 3)), ("poisson", (3, 4)),
    ("exponential", (2.0, 3)), ("normal", ()), ("bytes", (3,)),
]


@pytest.mark.parametrize(("name", "args"), DRAWS)
def test_generator(name: str, args: tuple) -> None:
    theirs = getattr(numpy.random.default_rng(7), name)(*args)
    ours = getattr(tiledarray.random.default_rng(7), name)(*args)
    if isinstance(theirs, numpy.ndarray):
        assert isinstance(ours, tiledarray.TiledArray)
        ours = numpy.asarray(ours)
    same(ours, theirs)


def test_legacy_random() -> None:
    for namespace in (numpy, tiledarray):
        namespace.random.seed(3)
        values = [namespace.random.rand(3), namespace.random.randint(0, 9, 4),
                  namespace.random.randn(2, 2), namespace.random.normal(size=2)]
        if namespace is numpy:
            expected = values
    for ours, theirs in zip(values, expected, strict=True):
        assert isinstance(ours, tiledarray.TiledArray)
        same(numpy.asarray(ours), theirs)


SHUFFLED = """
import numpy, tiledarray
x = tiledarray.arange(10).reshape(5, 2)
for generator in numpy.random.default_rng(0), numpy.random.RandomState(0):
    try:
        generator.shuffle(x)
    except UserWarning as warning:
        print(warning, x.tolist() == sorted(generator.permutation(x).tolist()))
"""


def test_numpys_own_generators_lose_no_rows() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SHUFFLED], capture_output=True, text=True, check=True)
    told = found.stdout.splitlines()  # pytest has filters of its own
    assert len(told) == 2
    assert all("a 'TiledArray' object" in line and line.endswith("True") for line in told)


def test_shuffle_writes_back() -> None:
    ours, theirs = tiledarray.arange(9), numpy.arange(9)
    tiledarray.random.default_rng(1).shuffle(ours)
    numpy.random.default_rng(1).shuffle(theirs)
    same(numpy.asarray(ours), theirs)
    assert isinstance(tiledarray.random.default_rng(1), numpy.random.Generator)
    state = tiledarray.random.RandomState(4)
    same(numpy.asarray(state.rand(3)), numpy.random.RandomState(4).rand(3))


def test_submodules_can_be_imported() -> None:
    from tiledarray.fft import rfft
    from tiledarray.linalg import LinAlgError, norm

    assert LinAlgError is numpy.linalg.LinAlgError
    assert norm([3, 4]) == 5
    assert rfft([1.0, 2.0]).tolist() == [3, -1]


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (3000, 8, 8), (200, 70, 70)])
def test_cholesky_reads_one_triangle(shape, upper, dtype) -> None:
    random = numpy.random.default_rng(3)
    x = random.normal(size=shape) + (1j * random.normal(size=shape) if dtype == "c16" else 0)
    a = x @ x.conj().swapaxes(-1, -2) / shape[-1] + numpy.eye(shape[-1])
    a += (numpy.tril if upper else numpy.triu)(x, -1 if upper else 1)
    with tiledarray.config.override(at_once=0):
        found = numpy.asarray(tiledarray.linalg.cholesky(tiledarray.array(a), upper=upper))
    numpy.testing.assert_allclose(
        found, numpy.linalg.cholesky(a, upper=upper), rtol=1e-10, atol=1e-10)
