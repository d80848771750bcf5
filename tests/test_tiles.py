"""Kernels of tiles: one for all that is done for a problem, right in every tier."""

import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy
import pytest

import tiledarray as ta
from tests import tiles
from tests.plans import DEVICE, HOST, TARGETS, kinds, planned
from tiledarray import config
from tiledarray.core import Program, run_program
from tiledarray.execution import lone
from tiledarray.execution.executable import program_name, source_of
from tiledarray.fusion import limits
from tiledarray.fusion.plan import Call as LibraryCall
from tiledarray.fusion.tiles import find
from tiledarray.fusion.tiles.ir import Call, Product
from tiledarray.fusion.tiles.text import text_of
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.ops.op import Loop

few = tiles.few_are_worth_it()


def one_for_a_thread(monkeypatch):
    """Few problems, too, are shared out to a thread each where they are small."""
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, thread_problems=0))


TIERS = {"interpreter": HOST, "host": HOST, "interpreted for a GPU": DEVICE, "emulated": DEVICE,
         "emulated, a thread each": DEVICE}


@pytest.fixture(params=TIERS)
def through(request, tmp_path_factory, monkeypatch):
    tier, _, each = request.param.partition(", ")
    if each:
        one_for_a_thread(monkeypatch)
    folder = tmp_path_factory.getbasetemp() / "emulated"
    folder.mkdir(exist_ok=True)

    def run(program, *inputs):
        return tiles.through("interpreter" if tier.startswith("interpreted") else tier, program,
                             *inputs, target=TIERS[tier], folder=folder)

    return run


def drawn(*shape, dtype="f8", seed=0):
    random = numpy.random.default_rng(seed)
    values = random.normal(size=shape)
    if numpy.dtype(dtype).kind == "c":
        values = values + 1j * random.normal(size=shape)
    return (5 * values if numpy.dtype(dtype).kind in "iu" else values).astype(dtype)


def turned(np, x):
    return np.swapaxes(x, -1, -2)


def adjoint(np, x):
    return np.conj(np.swapaxes(x, -1, -2))


def spd(np, x, s):
    return x @ adjoint(np, x) + s * np.eye(x.shape[-1], dtype=x.dtype)


def by_cholesky(np, x, b):
    factor = np.linalg.cholesky(spd(np, x, 2.0))
    return np.linalg.solve(adjoint(np, factor), np.linalg.solve(factor, b))


def by_solve(np, x, b):
    return np.linalg.solve(spd(np, x, 2.0), b)


def inverted(np, x, b):
    return np.linalg.inv(spd(np, x, 1.0)) @ b


def determinant(np, x, b):
    return np.linalg.det(x * 0.5) + 1


def log_determinant(np, x, b):
    sign, size = np.linalg.slogdet(x)
    return sign * 2, size + 1


def factor_and_logarithm(np, x, b):
    factor = np.linalg.cholesky(spd(np, x, 3.0))
    return factor, 2 * np.log(np.diagonal(factor, axis1=-2, axis2=-1).real).sum(-1)


def traces(np, x, b):
    found = np.linalg.inv(spd(np, x, 1.0))
    return np.trace(found, axis1=-2, axis2=-1), abs(found).max((-1, -2)), found[..., 0, :].sum(-1)


def ridge(np, x, b):
    gram = adjoint(np, x) @ x + 0.25 * np.eye(x.shape[-1], dtype=x.dtype)
    return np.linalg.solve(gram, adjoint(np, x) @ b)


def factors(np, x, b):
    q, r = np.linalg.qr(x[..., :3])
    wide = np.linalg.qr(x[..., :2, :])
    return np.linalg.solve(r, adjoint(np, q) @ b), *wide, np.linalg.qr(b, mode="r") + 1


def square_root(np, x, b):
    w, v = np.linalg.eigh(spd(np, x, 1.0))
    return ((v * np.sqrt(w)[..., None, :]) @ adjoint(np, v) @ b, w * 1,
            np.linalg.eigvalsh(x, "u") + np.linalg.eigh(x)[0])


PROGRAMS = [factors, square_root, by_cholesky, by_solve, inverted,
            determinant, log_determinant, factor_and_logarithm, traces, ridge]


def close(found, want, exact, dtype):
    """Within twice what LAPACK is off, or a few units in the last place."""
    scale = abs(exact).max() if exact.size else 1
    off = abs(want - exact).max() if exact.size else 0
    unit = numpy.finfo(numpy.dtype(dtype)).eps * scale
    rounded = 16 if numpy.dtype(dtype).char in "fF" else 1024  # nothing is exact in double
    assert found.shape == want.shape
    assert found.dtype == want.dtype
    assert abs(found - exact).max(initial=0) <= 2 * off + rounded * unit


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_linear_algebra(through, program, dtype):
    x, b = drawn(37, 5, 5, dtype=dtype), drawn(37, 5, 2, dtype=dtype, seed=1)
    plan, found = through(program, x, b)
    assert tiles.kernels(plan), plan.refusals
    want = program(numpy, x, b)
    exact = program(numpy, x.astype("c16" if dtype[0] == "c" else "f8"),
                    b.astype("c16" if dtype[0] == "c" else "f8"))
    want, exact = (y if isinstance(y, tuple) else (y,) for y in (want, exact))
    for one, other, best in zip(found, want, exact, strict=True):
        close(one, other, best, dtype)


# ---- transforms ----------------------------------------------------------------------------------


def filtered(np, x, h):
    return np.fft.ifft(np.fft.fft(x) * h)


def spectrum(np, x, h):
    return (abs(np.fft.rfft(x.real * h.real)) ** 2).mean(-2)


def smoothed(np, x, h):
    half = np.fft.rfft(x.real)
    return np.fft.irfft(half * 0.5, n=x.shape[-1]) + h.real


def along_rows(np, x, h):
    return np.fft.fft(x * 2, axis=-2, norm="ortho") + 1


def padded(np, x, h):
    n = x.shape[-1]
    return np.fft.fft(x * 2, n=2 * n, norm="forward"), np.fft.ifft(x * h, n=max(1, n - 2))


def images(np, x, h):
    return np.fft.ifft2(np.fft.fft2(x, norm="ortho") * h), abs(np.fft.fftn(x, axes=(1, 2))) ** 2


def real_images(np, x, h):
    half = np.fft.rfft2(x.real * 2)
    return np.fft.irfft2(half * 0.5, s=x.shape[1:]) + 1, abs(half).mean((-2, -1))


def padded_images(np, x, h):
    n = x.shape[-1]
    return (np.fft.fft2(x * h, s=(2, n + 3), axes=(1, 2)), np.fft.rfftn(x.real, (n, 6), (2, 1)),
            np.fft.irfftn(x, s=(5, 2 * n + 1), axes=(1, 2), norm="forward"))


def hermitian(np, x, h):
    n = x.shape[-1]
    return (np.fft.hfft(x * h, n=2 * n), np.fft.hfft(x, axis=1) + 1, np.fft.irfft(x, n=2 * n + 4),
            np.fft.ihfft(x.real, norm="ortho") * h[:n // 2 + 1], np.fft.ihfft(x.imag, axis=1))


TRANSFORMS = [(program, n) for programs, lengths in (
    ((filtered, spectrum, smoothed, along_rows, padded), (1, 2, 6, 16, 35)),
    ((images, real_images, padded_images, hermitian), (1, 6, 15)))
    for program in programs for n in lengths]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("program", "n"), TRANSFORMS)
def test_transforms(through, program, n):
    x, h = drawn(19, 3, n, dtype="c8"), drawn(n, dtype="c8", seed=1)
    plan, found = through(program, x, h)
    assert tiles.kernels(plan), plan.refusals
    want = program(numpy, x, h)
    exact = program(numpy, x.astype("c16"), h.astype("c16"))
    want, exact = (y if isinstance(y, tuple) else (y,) for y in (want, exact))
    for one, other, best in zip(found, want, exact, strict=True):
        close(one, other, best, "c8")


def test_lengths_with_large_factors_are_left_to_numpy():
    x = drawn(50, 34, dtype="c8")
    plan = tiles.planned_for(tiles.traced_of(lambda np, x: np.fft.fft(x) + 1, x), HOST)
    assert not tiles.kernels(plan)
    assert any("factor 17" in text for text in plan.refusals)


# ---- shapes and strides --------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("batch", [(0,), (1,), (2,), (15,), (16,), (3, 0), (2, 1, 9)])
def test_batches(through, batch):
    x, b = drawn(*batch, 3, 3, dtype="f4"), drawn(*batch, 3, 2, dtype="f4", seed=1)
    _, (found,) = through(by_solve, x, b)
    assert found.shape == b.shape
    numpy.testing.assert_allclose(found, by_solve(numpy, x, b), rtol=1e-3, atol=1e-5)


def many(np, x, b):
    """What is done with matrices, each in its own way."""
    q, r = np.linalg.qr(np.swapaxes(x, -1, -2) + 1)
    w, v = np.linalg.eigh(spd(np, x, 1.0))
    return (np.linalg.solve(r, np.swapaxes(q, -1, -2) @ b), np.linalg.eigvalsh(x, "U"),
            (v * w[..., None, :] ** 0.5) @ turned(np, v) @ b, np.fft.fft2(x).real @ b,
            np.linalg.qr(b, mode="r"), np.fft.irfft2(np.fft.rfft2(b), s=b.shape[-2:]) * 2,
            np.fft.hfft(x, axis=-2).sum(-1), np.fft.ihfft(b, n=5).imag)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("batch", [(3, 0), (1,), (2, 1, 9)])
def test_batches_of_all_kinds(through, batch):
    x, b = drawn(*batch, 3, 3), drawn(*batch, 3, 2, seed=1)
    _, found = through(many, x, b)
    for mine, theirs in zip(found, many(numpy, x, b), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("view", [
    lambda x: (x[::-1, ::-1], x[..., ::-2]), lambda x: (x[::2, :2, 1:], x[3, 1:, :1]),
    lambda x: (x.swapaxes(-1, -2), x[:1, :, :2])])
def test_all_kinds_as_they_lie(through, view):
    x = drawn(34, 3, 3)

    def program(np, x):
        return many(np, *view(x))

    _, found = through(program, x)
    for mine, theirs in zip(found, program(numpy, x), strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("view", [
    lambda x: x.swapaxes(-1, -2), lambda x: x[::-1], lambda x: x[..., ::-1, :],
    lambda x: x[::2], lambda x: x[:, 1:4, 1:4], lambda x: x.transpose(1, 2, 0)[:, :, None].T,
    lambda x: x[:1] + x * 0, lambda x: x[3:4]])
def test_operands_as_they_lie(through, view):
    x = drawn(34, 5, 5)

    def program(np, x):
        y = view(x)
        y = y[:, 0] if y.ndim == 4 else y
        return np.linalg.solve(y @ turned(np, y) + np.eye(y.shape[-1]), y + 1)

    _, (found,) = through(program, x)
    numpy.testing.assert_allclose(found, program(numpy, x), rtol=1e-7, atol=1e-7)


def test_integers_and_shared_operands(through):
    x, shared = drawn(20, 4, 4, dtype="i4"), drawn(4, 4)

    def program(np, x, shared):
        return np.linalg.solve(shared @ shared.T + np.eye(4), x) + np.linalg.inv(
            x * 0 + 3 * np.eye(4)) @ shared

    _, (found,) = through(program, x, shared)
    numpy.testing.assert_allclose(found, program(numpy, x, shared), rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("shape", [(1, 3), (11, 5)])
def test_products_with_the_adjoint(through, shape, dtype):
    x = drawn(20, *shape, dtype=dtype)

    def program(np, x):
        left, right = x @ adjoint(np, x), adjoint(np, x) @ x
        other = x @ turned(np, x)  # which is no Hermitian one of complex numbers
        return left, right, other, *(np.linalg.det(y) for y in (left + np.eye(shape[0]), right))

    plan, found = through(program, x)
    products = [statement.hermitian for kernel in tiles.kernels(plan)
                for statement in kernel.program.statements if isinstance(statement, Product)]
    assert products and all(products)
    for mine, theirs in zip(found, program(numpy, x), strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shifted", [
    lambda np, x: np.triu(x) + 3 * np.eye(5), lambda np, x: np.tril(x, -1) - np.identity(5),
    lambda np, x: x + 0.5 * np.eye(5, dtype=x.dtype)])
def test_triangles_and_diagonals_store_no_mask(through, shifted):
    x = drawn(20, 5, 5, dtype="f4")
    plan, (found,) = through(lambda np, x: np.linalg.inv(shifted(np, x)) * 2, x)
    (kernel,) = tiles.kernels(plan)
    want = numpy.linalg.inv(shifted(numpy, x)) * 2
    assert kinds(plan) == ["call"] and kernel.bytes_moved == x.nbytes + want.nbytes
    numpy.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("function", "message"), [
    ("cholesky", "Matrix is not positive definite"), ("inv", "Singular matrix")])
def test_failures_tell_the_problem(through, function, message):
    x = numpy.eye(3) + numpy.zeros((2, 20, 1, 1))
    x[1, 7, 2, 2] = x[1, 9, 0, 0] = 0
    with pytest.raises(numpy.linalg.LinAlgError, match=rf"^{message} \(matrix \(1, 7\) of"):
        through(lambda np, x: getattr(np.linalg, function)(x) * 2, x)


def test_failures_are_at_the_user_s_line(monkeypatch):
    x = numpy.eye(8) + numpy.zeros((3000, 1, 1))
    x[5] = 0
    with config.override(compile="wait"):
        with pytest.raises(numpy.linalg.LinAlgError, match="matrix 5 of"):
            ta.linalg.inv(ta.array(x))
        jitted = ta.jit(lambda x: ta.linalg.inv(x * 2) + 1)
        with pytest.raises(numpy.linalg.LinAlgError, match="matrix 5 of"):
            jitted(ta.array(x))
        x[5] = numpy.nan
        with pytest.raises(numpy.linalg.LinAlgError, match=r"not converge \(matrix 5 of"):
            ta.linalg.eigvalsh(ta.array(x))
        x[5] = 2 * numpy.eye(8)
        numpy.testing.assert_allclose(jitted(ta.array(x)).numpy(), numpy.linalg.inv(2 * x) + 1)


def test_nan_is_no_failure(through):
    x = numpy.eye(5) + numpy.zeros((20, 1, 1))
    x[3, 2, 1] = numpy.nan
    _, (found,) = through(lambda np, x: np.linalg.inv(x) * 2, x)
    assert numpy.isnan(found[3]).any()
    assert not numpy.isnan(numpy.delete(found, 3, 0)).any()


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf])
def test_what_is_not_finite_stays_in_its_problem(through, bad):
    x = drawn(20, 4, 3)
    x[3, 1, 2] = bad

    def program(np, x):
        q, r = np.linalg.qr(x)
        return q * 1.0, r @ turned(np, q), np.linalg.qr(x, mode="r")

    for mine, theirs in zip(through(program, x)[1], program(numpy, x), strict=True):
        assert not numpy.isfinite(mine[3]).all() and not numpy.isfinite(theirs[3]).all()
        keep = numpy.arange(20) != 3
        numpy.testing.assert_allclose(mine[keep], theirs[keep], rtol=1e-9, atol=1e-12)


UNSEEN = {
    "functions": lambda np, w, v, b: (v * np.exp(w)[..., None, :]) @ adjoint(np, v) @ b,
    "solving": lambda np, w, v, b: v @ (adjoint(np, v) @ b / w[..., None]),
    "projections": lambda np, w, v, b: abs(adjoint(np, v) @ b) ** 2,
    "sizes": lambda np, w, v, b: (abs(v) + 1, (np.conj(v) * v).sum(-1)),
    "negated": lambda np, w, v, b: -v[..., None, :, :] @ adjoint(np, 2 * v + v)[..., None, :, :],
    "sums": lambda np, w, v, b: np.einsum("bij,bj,bkj->bik", v, w + 1, np.conj(v)),
    "one side": lambda np, w, v, b: adjoint(np, v[:, :2]).sum(-1).real ** 2 * 0 + w,
}
SEEN = {
    "vectors": lambda np, w, v, b: v * 2,
    "coordinates": lambda np, w, v, b: adjoint(np, v) @ b,
    "half": lambda np, w, v, b: v @ b,
    "one": lambda np, w, v, b: v[..., 0] @ b[0],
    "others": lambda np, w, v, b: (v[..., ::-1] * w[..., None, :]) @ adjoint(np, v),
    "moved": lambda np, w, v, b: abs(v + 1),
    "largest": lambda np, w, v, b: v.real.max(-2),
    "sums": lambda np, w, v, b: abs(v.sum(-1)),
    "solved": lambda np, w, v, b: np.linalg.solve(v, b),
    "transposed": lambda np, w, v, b: v.reshape(-1, 16) * 2,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("name", [*UNSEEN, *(f"not {name}" for name in SEEN)])
def test_signs_of_eigenvectors_do_not_show(name, dtype):
    x, b = drawn(40, 4, 4, dtype=dtype), drawn(40, 4, 2, dtype=dtype, seed=1)
    rule = SEEN[name[4:]] if name.startswith("not ") else UNSEEN[name]

    def program(np, x, b):
        return rule(np, *np.linalg.eigh(x), b)

    plan, found = tiles.through("host", program, x, b)
    # The real part of a complex vector is none of any size times it.
    by_tiles = name in UNSEEN and not (name == "one side" and dtype == "c16")
    assert ("eigh" in str([kernel.names for kernel in tiles.kernels(plan)])) == by_tiles
    want = program(numpy, x, b)
    for mine, theirs in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_what_does_not_converge_is_told(through):
    x = drawn(20, 4, 4)
    x[7, 2, 1] = x[9, 0, 0] = numpy.nan
    with pytest.raises(numpy.linalg.LinAlgError, match=r"^Eigenvalues did not .*\(matrix 7 of"):
        through(lambda np, x: np.linalg.eigvalsh(x) * 2, x)


def test_singular_least_squares_are_told(through):
    x = drawn(20, 4, 3)
    x[7, :, 1] = 0
    with pytest.raises(numpy.linalg.LinAlgError, match=r"^Singular matrix \(matrix 7 of"):
        through(coefficients, x, drawn(20, 4))


def test_a_determinant_may_be_zero(through):
    x = numpy.eye(4) + numpy.zeros((20, 1, 1))
    x[3, 2] = 0
    _, (found, sign, size) = through(
        lambda np, x: (np.linalg.det(x) + 0, *(y + 0 for y in np.linalg.slogdet(x))), x)
    assert found[3] == 0 == sign[3] and size[3] == -numpy.inf
    assert (numpy.delete(found, 3) == 1).all()


# ---- plans ---------------------------------------------------------------------------------------


def regression(np, x, y):
    gram = turned(np, x) @ x + 0.1 * np.eye(x.shape[-1])
    return np.linalg.solve(gram, (turned(np, x) @ y[..., None]))[..., 0] * 1.0


@pytest.mark.parametrize("shape", [(40, 5, 3), (40, 3, 5), (40, 4, 4)])
def test_the_whole_of_q_is_left_to_libraries(shape):
    x = drawn(*shape)
    with config.override(compile="wait", at_once=0):
        found = ta.jit(lambda x: ta.linalg.qr(x, mode="complete"))(ta.array(x))
    for mine, theirs in zip(found, numpy.linalg.qr(x, mode="complete"), strict=True):
        numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-12, atol=1e-12)


def test_a_lone_launch_is_run_by_the_core(monkeypatch):
    """Under `jit`, also after a failure, and where several results come of it."""
    found = []

    def counted(program, buffers, params):
        found.append(run_program(program, buffers, params))
        return found[-1]

    monkeypatch.setattr(lone, "run_program", counted)
    x = numpy.eye(6) * 3 + drawn(3000, 6, 6)
    bad = x.copy()
    bad[7] = 0
    with config.override(compile="wait"):
        inverse = ta.jit(lambda x: ta.linalg.inv(x * 2) + 1)
        parts = ta.jit(lambda x: tuple(ta.linalg.slogdet(x * 2)))
        for _ in range(3):
            numpy.testing.assert_allclose(
                inverse(ta.array(x)).numpy(), numpy.linalg.inv(x * 2) + 1, rtol=1e-9)
            for mine, theirs in zip(parts(ta.array(x)), numpy.linalg.slogdet(x * 2), strict=True):
                numpy.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-9)
            with pytest.raises(numpy.linalg.LinAlgError, match="matrix 7 of"):
                inverse(ta.array(bad))
    # With the core in Python there are no programs.
    assert len(found) == (0 if Program is None else 9) and None not in found


def shifted_equations(np, x, y, shift):
    """Symmetric whatever the values; definite or not, as the shift has it."""
    gram = turned(np, x) @ x + shift[:, None, None] * np.eye(x.shape[-1], dtype=x.dtype)
    return np.linalg.solve(gram, y[..., None])[..., 0] * 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_symmetric_equations_whether_definite_or_not(through, dtype):
    x, y = drawn(70, 7, 4, dtype=dtype), drawn(70, 4, dtype=dtype, seed=1)
    shift = numpy.linspace(-9, 3, 70).astype(dtype)
    gram = turned(numpy, x) @ x + shift[:, None, None] * numpy.eye(4)
    definite = (numpy.linalg.eigvalsh(gram) > 0).all(-1)
    assert 10 < definite.sum() < 60  # of neighbours, too, of which threads of a warp have one each
    _, (found,) = through(shifted_equations, x, y, shift)
    exact = shifted_equations(numpy, *(each.astype("f8") for each in (x, y, shift)))
    apart = abs(found - exact).max(-1) / (abs(exact).max(-1) * numpy.linalg.cond(gram))
    assert apart.max() < 20 * numpy.finfo(dtype).eps


@pytest.mark.parametrize("rows", [[[2, 2], [2, 2]], [[4, 2], [0, 0]], [[0, 0], [1, 4]]])
def test_symmetric_equations_that_are_singular(through, rows):
    x = drawn(40, 2, 2)
    x[13] = rows
    shift = numpy.where(numpy.arange(40) == 13, 0.0, 1.0)
    with pytest.raises(numpy.linalg.LinAlgError, match=r"^Singular matrix \(matrix 13 of"):
        through(shifted_equations, x, x[:, 0], shift)


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf, -numpy.inf])
def test_symmetric_equations_that_are_not_finite(through, bad):
    x, y, shift = drawn(40, 7, 4), drawn(40, 4, seed=1), numpy.ones(40)
    x[5, 2, 1] = bad
    _, (found,) = through(shifted_equations, x, y, shift)
    keep = numpy.arange(40) != 5
    assert not numpy.isfinite(found[5]).any()
    numpy.testing.assert_allclose(
        found[keep], shifted_equations(numpy, x[keep], y[keep], shift[keep]), rtol=1e-9)


def test_symmetric_equations_need_no_exchanges(monkeypatch):
    one_for_a_thread(monkeypatch)
    x, y = drawn(40, 7, 4), drawn(40, 4, seed=1)

    def of(program, *inputs):
        (kernel,) = tiles.kernels(tiles.planned_for(tiles.traced_of(program, *inputs), DEVICE))
        assert kernel.side == 1
        return [s.numbers for s in kernel.program.statements if getattr(s, "name", "") == "lu"]

    assert of(shifted_equations, x, y, numpy.ones(40)) == [(1,)]
    assert of(lambda np, x, y: np.linalg.solve(turned(np, x) @ (x + 1), y[..., None]) * 1,
              x, y) == [()]
    assert of(lambda np, x, y: np.linalg.solve(turned(np, x) @ x - x[:, :4], y[..., None]) * 1,
              x, y) == [()]


def marginal_likelihood(np, x, y):
    n = x.shape[1]
    apart = ((x[:, :, None] - x[:, None]) ** 2).sum(-1)
    factor = np.linalg.cholesky(np.exp(-0.5 * apart) + 0.1 * np.eye(n))
    weights = np.linalg.solve(turned(np, factor), np.linalg.solve(factor, y[..., None]))[..., 0]
    logarithm = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * (y * weights).sum(-1) - logarithm - n / 2 * numpy.log(2 * numpy.pi)


def kalman(np, x, p, z, f, h, q, r):
    x = f @ x[..., None]
    p = f @ p @ f.T + q
    s = h @ p @ h.T + r
    gain = turned(np, np.linalg.solve(s, h @ p))
    return (x + gain @ (z[..., None] - h @ x))[..., 0] * 1.0, p - gain @ s @ turned(np, gain)


def mahalanobis(np, x, mean, c):
    apart = x - mean
    return (apart * np.linalg.solve(c, apart[..., None])[..., 0]).sum(-1)


def coefficients(np, x, y):
    q, r = np.linalg.qr(x)
    return np.linalg.solve(r, turned(np, q) @ y[..., None])[..., 0]


def whitening(np, x):
    x = x - x.mean(1, keepdims=True)
    w, v = np.linalg.eigh(turned(np, x) @ x / (x.shape[1] - 1))
    return x @ (v / np.sqrt(w)[..., None, :]) @ turned(np, v)


def filtered_images(np, x, h):
    return np.fft.ifft2(np.fft.fft2(x) * h)


COUNT = 300
FILTERS = (filtered, filtered_images)
WORKLOADS = {
    coefficients: [(COUNT, 24, 12), (COUNT, 24)], whitening: [(COUNT, 30, 6)],
    filtered_images: [(COUNT, 32, 32), (32, 32)],
    by_solve: [(COUNT, 6, 6), (COUNT, 6, 3)], regression: [(COUNT, 24, 12), (COUNT, 24)],
    marginal_likelihood: [(COUNT, 64, 3), (COUNT, 64)], filtered: [(COUNT, 64), (64,)],
    kalman: [(COUNT, 4), (COUNT, 4, 4), (COUNT, 2), (4, 4), (2, 4), (4, 4), (2, 2)],
    mahalanobis: [(COUNT, 8), (8,), (COUNT, 8, 8)], spectrum: [(COUNT, 4, 64), (64,)],
}


@pytest.mark.parametrize("program", WORKLOADS)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_one_kernel(program, target):
    shapes = WORKLOADS[program]
    inputs = [drawn(*shape, dtype="c8" if program in FILTERS else "f8", seed=k)
              for k, shape in enumerate(shapes)]
    if program is kalman:
        inputs[1] = numpy.eye(4) + 0 * inputs[1]
        inputs[-1] = numpy.eye(2)
    if program is mahalanobis:
        inputs[2] = inputs[2] @ turned(numpy, inputs[2]) + numpy.eye(8)
    traced = tiles.traced_of(program, *inputs)
    plan = tiles.planned_for(traced, target)
    (kernel,) = tiles.kernels(plan)
    assert kinds(plan) == ["call"], plan.refusals
    want = program(numpy, *inputs)
    want = want if isinstance(want, tuple) else (want,)
    assert kernel.bytes_moved == sum(x.nbytes for x in (*inputs, *want))
    for mine, theirs in zip(tiles.interpreted(traced, target), want, strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-4 if program in FILTERS else 1e-7,
                                      atol=1e-6 if program in FILTERS else 0)


def test_worth_a_kernel_as_they_are(monkeypatch):
    monkeypatch.undo()
    for program, dtype, *shapes in (
            (coefficients, "f4", (4096, 24, 12), (4096, 24)), (whitening, "f4", (4096, 30, 6)),
            (filtered_images, "c16", (4096, 32, 32), (32, 32)),
            (whitening, "f8", (4096, 30, 16)), (regression, "f4", (4096, 24, 12), (4096, 24))):
        inputs = [numpy.ones(shape, dtype) for shape in shapes]
        plan = tiles.planned_for(tiles.traced_of(program, *inputs), HOST)
        assert kinds(plan) == ["call"] and len(tiles.kernels(plan)) == 1, plan.refusals
    for n, dtype in ((25, "f4"), (13, "f8"), (7, "c16")):  # LAPACK is as fast
        x = numpy.ones((4096, n, n), dtype)
        plan = tiles.planned_for(tiles.traced_of(lambda np, x: np.linalg.eigvalsh(x), x), HOST)
        assert not tiles.kernels(plan)


def test_what_others_ask_for_is_stored_beside(through):
    x = drawn(40, 4, 4)

    def program(np, x):
        gram = spd(np, x, 1.0)
        factor = np.linalg.cholesky(gram)
        return gram, factor, factor.sum(0), np.linalg.det(gram) - gram.mean()

    plan, found = through(program, x)
    assert len(tiles.kernels(plan)) == 1  # what is of all problems is made of what that stores
    for mine, theirs in zip(found, program(numpy, x), strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_what_is_the_same_for_all_problems_is_not_stored_by_each(through):
    x, y = drawn(40, 4, 4), drawn(30, 4)

    def program(np, x, y):
        added = 2.0 * np.eye(4)
        return np.linalg.inv(spd(np, x, 1.0) + added), added, y @ (added + 1)

    plan, found = through(program, x, y)
    (kernel,) = tiles.kernels(plan)
    assert len(kernel.stores) == 2  # the inverse, and where failures are noted
    for mine, theirs in zip(found, program(numpy, x, y), strict=True):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9)


def test_planning_takes_time_in_proportion(monkeypatch):
    def chain(count):
        def program(np, x, b):
            for _ in range(count):
                b = np.linalg.solve(x + b[..., None] * 0.1, b[..., None])[..., 0] + np.cos(b)
            return b

        with config.override(cut=100_000):
            traced = tiles.traced_of(program, numpy.eye(3) + numpy.zeros((64, 1, 1)),
                                     numpy.ones((64, 3)))
        started = perf_counter()
        assert find.in_tiles(traced.signature, HOST).looped.numbers
        return perf_counter() - started

    chain(2)
    assert min(chain(80) for _ in range(3)) < 12 * min(chain(20) for _ in range(3)) + 0.05


def test_too_large_for_the_chip_is_as_before():
    x = drawn(3, 200, 200)
    for target in TARGETS.values():
        plan = tiles.planned_for(tiles.traced_of(by_solve, x, x), target)
        assert not tiles.kernels(plan)
        assert any("no kernel of tiles for linalg.solve" in text for text in plan.refusals)


def test_what_is_left_to_libraries_takes_nothing_with_it():
    x = drawn(40, 34, 34)

    def program(np, x):
        gram = spd(np, x, 1.0)
        return np.linalg.det(gram) * 2, np.linalg.eigvalsh(gram), np.fft.fft2(gram)

    plan = tiles.planned_for(tiles.traced_of(program, x), HOST)
    (kernel,) = tiles.kernels(plan)
    assert kernel.names == ["matmul", "det"]


def test_few_problems_are_left_to_numpy(monkeypatch):
    monkeypatch.undo()
    x = drawn(8, 8, 8)
    plan = tiles.planned_for(tiles.traced_of(by_solve, x, x), HOST)
    assert not tiles.kernels(plan)


def test_the_text_of_a_program(monkeypatch):
    x, y = drawn(100, 6, 3, dtype="f4"), drawn(100, 6, dtype="f4")
    told = []

    def tell(target):
        traced = tiles.traced_of(regression, x, y)
        (kernel,) = tiles.kernels(tiles.planned_for(traced, target))
        told.append(text_of(kernel.program))

    for target in TARGETS.values():
        tell(target)
    one_for_a_thread(monkeypatch)
    tell(DEVICE)
    golden = Path(__file__).parent / "golden" / "tile_program.txt"
    text = "".join(told)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_explained():
    with config.override(compile="wait"), tiles.recording():
        x = ta.array(drawn(100, 6, 3, dtype="f4"))
        result = regression(ta, x, ta.array(drawn(100, 6, dtype="f4")))
        report = ta.explain(result)
    (step,) = report.plan.steps
    assert (step.kind, step.form) == ("kernel", "tile")
    assert "linalg.solve" in step.ops
    assert "\n  lu t5" in step.program
    assert "100 problems" in str(report)


def test_gradients_go_through_tiles(monkeypatch):
    x, y = drawn(40, 5, 3), drawn(40, 5)

    def loss(x, y):
        return (regression(ta, x, y) ** 2).sum()

    with config.override(compile="wait", at_once=0):
        found = ta.jit(ta.grad(loss))(ta.array(x), ta.array(y)).numpy()
        with monkeypatch.context() as patched:
            patched.setattr(limits, "HOST", replace(limits.HOST, problems=1 << 60))
            want = ta.grad(loss)(ta.array(x), ta.array(y)).numpy()
    numpy.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_an_infinity_is_not_lost(dtype, through):
    """Where NumPy's triangle is not finite ours is not; other problems know nothing of it."""
    places = [(0, 0), (1, 0), (3, 0), (1, 1), (2, 1), (0, 2), (2, 2)]
    x = drawn(2 * len(places), 4, 3, dtype=dtype)
    for k, place in enumerate(places):
        x[(2 * k, *place)] = numpy.inf
    with numpy.errstate(all="ignore"):
        _, (found,) = through(lambda np, x: np.linalg.qr(x, mode="r") * 1, x)
        want = numpy.linalg.qr(x, mode="r")
    assert not numpy.isfinite(found[~numpy.isfinite(want)]).any()
    numpy.testing.assert_allclose(found[1::2], want[1::2], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["host", "device"])
def test_what_is_transformed_is_needed_whole(target):
    """It was once computed for each problem apart along an axis that it is transformed along."""
    def program(np, a, b):
        inner = np.fft.fft(np.fft.fft(b, axis=1) * 3, axis=2)
        turned = np.linalg.inv(b)[:, :, ::-1]
        down = np.fft.fft(np.fft.ifft(b + 1, axis=-1), axis=0)
        return (np.fft.fft(a, axis=2) * 2 + inner, np.fft.ifft(a * 2, axis=0) - down,
                np.linalg.solve(a, b) + np.fft.fft(turned, axis=0))

    a, b = drawn(6, 8, 8, dtype="c16"), drawn(6, 8, 8, dtype="c16", seed=1) + 9 * numpy.eye(8)
    _, results = tiles.through("interpreter", program, a, b, target=target)
    for found, want in zip(results, program(numpy, a, b), strict=True):
        numpy.testing.assert_allclose(found, want, rtol=0, atol=1e-11 * abs(want).max())


def test_larger_matrices_are_left_to_lapack_on_the_host():
    x = drawn(40, 40, 40, dtype="c16")
    plan = tiles.planned_for(tiles.traced_of(by_solve, x, x), HOST)
    assert not tiles.kernels(plan)
    assert any("LAPACK is as fast" in text for text in plan.refusals)
    assert tiles.kernels(tiles.planned_for(tiles.traced_of(by_solve, x, x), DEVICE))


def compiled_for_a_device(kernel, *archs):
    """The kernel's text goes through NVRTC, and what a thread has lives in registers."""
    source = source_of(kernel, print_kernel(kernel, device=True)), program_name(kernel)
    for arch in archs:
        (binary,) = cuda.compile_many([source], arch)
        report = binary.reports[source[1]]
        assert report.clean, f"{arch}: {report}"


@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
def test_the_largest_hermitian_matrices_are_a_warp_s():
    x = drawn(40, 40, 32)
    (kernel,) = tiles.kernels(tiles.planned_for(tiles.traced_of(whitening, x), DEVICE))
    assert kernel.side == 32
    compiled_for_a_device(kernel, "sm_90")


@pytest.mark.sampled(16)
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize("each", ["team", "thread"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("program", WORKLOADS)
def test_nothing_spills(program, dtype, each, monkeypatch):
    if each == "thread":
        one_for_a_thread(monkeypatch)
    shapes = WORKLOADS[program]
    dtype = {"f4": "c8", "f8": "c16"}[dtype] if program in FILTERS else dtype
    inputs = [drawn(*shape, dtype=dtype, seed=k) for k, shape in enumerate(shapes)]
    (kernel,) = tiles.kernels(tiles.planned_for(tiles.traced_of(program, *inputs), DEVICE))
    compiled_for_a_device(kernel, "sm_90", "sm_80")


@pytest.mark.sampled(6)
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize(("program", "n", "dtype"), [
    (by_solve, 12, "f4"), (by_solve, 8, "f8"), (by_solve, 6, "c16"), (inverted, 8, "f4"),
    (inverted, 6, "c8"), (log_determinant, 12, "f4"), (by_cholesky, 8, "f8"), (traces, 4, "c16")])
def test_what_a_thread_has_is_in_registers(program, n, dtype, monkeypatch):
    monkeypatch.undo()
    x, b = numpy.zeros((1 << 14, n, n), dtype), numpy.zeros((1 << 14, n, 1), dtype)
    (kernel,) = tiles.kernels(tiles.planned_for(tiles.traced_of(program, x, b), DEVICE))
    assert kernel.side == 1 and kernel.teams >= 32
    compiled_for_a_device(kernel, "sm_90", "sm_80")
    few = tiles.traced_of(program, x[:4096], b[:4096])
    assert [kernel.side > 1 for kernel in tiles.kernels(tiles.planned_for(few, DEVICE))] == [True]


def test_what_is_too_large_for_a_thread_is_a_team_s(monkeypatch):
    one_for_a_thread(monkeypatch)
    for rows, side in ((20, 1), (30, 8)):  # of what a warp would have in shared memory
        x, y = drawn(400, rows, 6, dtype="f4"), drawn(400, rows, dtype="f4")
        plan = tiles.planned_for(tiles.traced_of(regression, x, y), DEVICE)
        assert [kernel.side for kernel in tiles.kernels(plan)] == [side]
    for program, n, dtype in ((by_solve, 16, "f4"), (inverted, 12, "f8"), (square_root, 4, "f4"),
                              (by_cholesky, 20, "f4"), (factors, 4, "f4")):
        x = drawn(40, n, n, dtype=dtype)
        for kernel in tiles.kernels(tiles.planned_for(tiles.traced_of(program, x, x), DEVICE)):
            assert kernel.side > 1 and kernel.program.own is None


def test_the_gradient_of_a_diagonal_stays_on_chip():
    x = drawn(600, 8, 8)

    def logs(x):
        lower = ta.linalg.cholesky(x @ x.mT + 8 * ta.eye(8))
        return ta.log(ta.diagonal(lower, axis1=1, axis2=2)).sum()

    with config.override(compile="wait"):
        value, slope = ta.jit(ta.value_and_grad(logs))(ta.array(x))
        plan = ta.explain(value, slope).plan
    # All of the batch on chip, and the sum over the batch.
    assert [step.form for step in plan.kernels] == ["tile", "row"] and not plan.calls
    exact = 2 * numpy.linalg.inv(x @ x.mT + 8 * numpy.eye(8)) @ x / 2
    numpy.testing.assert_allclose(slope.numpy(), exact, rtol=1e-9, atol=1e-12)


def test_an_elimination_that_would_be_alone_on_a_multiprocessor_is_a_call():
    """The steps of an elimination wait for one another: another block has to fill the time."""
    large = replace(DEVICE, shared_bytes=227 << 10)
    for size, alone in ((32, False), (100, True)):
        x = ta.array(numpy.zeros((500, size, size)))
        with config.override(linalg_errors="deferred"):
            plan = planned(ta.linalg.inv(x), target=large)
        refused = [text for text in plan.refusals if "wait for one another" in text]
        assert bool(refused) == alone, (size, plan.refusals)


def test_what_no_call_is_made_of_is_left_out_where_there_is_no_room():
    """The likelihood of a Gaussian process and its gradient: one kernel, and large products."""
    large = replace(DEVICE, shared_bytes=227 << 10)
    for size, products in ((32, 0), (64, 1)):
        points = ta.array(numpy.linspace(0, 1, 4096 * size).reshape(4096, size))
        logs = ta.array(numpy.zeros((4096, 3)))

        def process(logs, points=points, size=size):
            scale, noise = ta.exp(logs[:, 0])[:, None, None], ta.exp(logs[:, 1])[:, None, None]
            k = scale * ta.exp(-(points[:, :, None] - points[:, None]) ** 2) + noise * ta.eye(size)
            factor = ta.linalg.cholesky(k)
            weights = ta.linalg.solve(k, points[:, :, None])[:, :, 0]
            logarithms = ta.log(ta.diagonal(factor, axis1=1, axis2=2))
            return (points * weights).sum() + logarithms.sum()

        with config.override(linalg_errors="deferred"):
            plan = planned(*ta.value_and_grad(process)(logs), target=large)
        (kernel,) = tiles.kernels(plan)
        called = [each.name for each in kernel.program.statements if isinstance(each, Call)]
        assert called.count("cholesky") == 1 and "lu" not in called
        calls = [step.group.library.op for step in plan.steps if isinstance(step, LibraryCall)]
        assert [op.name for op in calls if not isinstance(op, Loop)] == ["matmul"] * products
        # The factor is not stored: what its diagonal becomes is computed on chip, too.
        stored = [store.access.value for store in kernel.stores if store.access.value.size > 10]
        assert sum(value.shape == (4096, size, size) for value in stored) <= products
