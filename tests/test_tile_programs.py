"""Random programs of small linear algebra, transforms and what stands around them, by tiles."""

import random
from dataclasses import replace

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import tiles
from tests.plans import DEVICE, HOST
from tiledarray.fusion import limits

BATCHES = [(2,), (3,), (16,), (17,), (33,), (2, 3), (3, 1, 4), (1, 5), (7, 5)]
DTYPES = ["f4", "f8", "c8", "c16"]


few = tiles.few_are_worth_it()


class Made:
    """A random program: it does the same with NumPy and with ours."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.seed = seed
        self.batch = chance.choice(BATCHES)
        self.n = chance.choice([1, 2, 3, 4, 5, 7, 8])
        self.dtype = numpy.dtype(chance.choice(DTYPES))
        values = numpy.random.default_rng(seed)

        def drawn(*shape, real=False):
            found = values.normal(size=shape)
            if self.dtype.kind == "c" and not real:
                found = found + 1j * values.normal(size=shape)
            return found.astype(self.dtype)

        n, batch = self.n, self.batch
        self.inputs = [drawn(*batch, n, n), drawn(*batch, n), drawn(n, n), drawn(n),
                       drawn(*batch[:-1], 1, n, n), values.integers(-3, 4, (*batch, n, n))]
        self.steps = chance.randint(2, 7)

    def __call__(self, np, *inputs):
        chance = random.Random(self.seed + 1)
        a, v, shared, w, partly, whole = inputs
        matrices = [a, a + partly * 0.5, whole + a * 0.25, shared + a, a[..., ::-1, :]]
        vectors = [v, v * w, a[..., 0], a[..., -1, :]]
        results = []
        for _ in range(self.steps):
            step = chance.choice(STEPS)
            x, y = chance.choice(matrices), chance.choice(matrices)
            u, z = chance.choice(vectors), chance.choice(vectors)
            kind, found = step(np, self, x, y, u, z, shared)
            if kind == "matrix":
                matrices.append(found / (1 + abs(found).max((-1, -2), keepdims=True)))
            elif kind == "vector":
                vectors.append(found / (1 + abs(found).max(-1, keepdims=True)))
            else:
                results.append(found)
        kept = [matrices[-1] * 1.5, vectors[-1] * 0.5, *results[-1:]]
        chance.shuffle(kept)
        return tuple(kept[:chance.randint(1, 2)])


def identity(np, made):
    return np.eye(made.n, dtype=made.dtype)


def adjoint(np, x):
    return np.conj(np.swapaxes(x, -1, -2))


def heavy(np, made, x):
    """A matrix that is far from singular."""
    return x / (1 + abs(x).max((-1, -2), keepdims=True)) + 2 * made.n * identity(np, made)


def definite(np, made, x):
    x = x / (1 + abs(x).max((-1, -2), keepdims=True))
    return x @ adjoint(np, x) + identity(np, made)


def least_squares(np, made, x, u):
    q, r = np.linalg.qr(np.concatenate([heavy(np, made, x)] * 2, -2))
    return r, adjoint(np, q[..., :made.n, :]) @ u[..., None]


def logarithm(np, x):
    w, v = np.linalg.eigh(x)
    return (v * np.log(w)[..., None, :]) @ adjoint(np, v)


STEPS = [
    lambda np, made, x, y, u, z, s: ("matrix", x @ y),
    lambda np, made, x, y, u, z, s: ("matrix", x @ s + np.swapaxes(y, -1, -2)),
    lambda np, made, x, y, u, z, s: ("matrix", adjoint(np, x) @ x),
    lambda np, made, x, y, u, z, s: ("matrix", np.where(x.real > 0, x, 2 * y)),
    lambda np, made, x, y, u, z, s: ("matrix", u[..., :, None] * np.conj(z)[..., None, :]),
    lambda np, made, x, y, u, z, s: ("matrix", np.linalg.inv(heavy(np, made, x))),
    lambda np, made, x, y, u, z, s: ("matrix", np.linalg.solve(heavy(np, made, x), y)),
    lambda np, made, x, y, u, z, s: ("matrix", np.linalg.cholesky(definite(np, made, x))),
    lambda np, made, x, y, u, z, s: (
        "matrix", adjoint(np, np.linalg.qr(heavy(np, made, x))[0]) @ y),
    lambda np, made, x, y, u, z, s: ("vector", np.linalg.eigvalsh(definite(np, made, x)) + u),
    lambda np, made, x, y, u, z, s: ("matrix", logarithm(np, definite(np, made, x)) @ y),
    lambda np, made, x, y, u, z, s: ("matrix", np.linalg.qr(heavy(np, made, x), mode="r") - y),
    lambda np, made, x, y, u, z, s: ("vector", np.linalg.solve(*least_squares(np, made, x, u))[
        ..., 0]),
    lambda np, made, x, y, u, z, s: ("matrix", np.fft.fft(x)[..., ::-1, :].real * y),
    lambda np, made, x, y, u, z, s: ("matrix", np.fft.ifft(x * 2, axis=-2).imag + y),
    lambda np, made, x, y, u, z, s: ("matrix", np.fft.fft(x, axis=0).real + np.fft.fft(y).imag),
    lambda np, made, x, y, u, z, s: ("matrix", np.fft.ifft2(np.fft.fft2(x) * y).real + x),
    lambda np, made, x, y, u, z, s: ("matrix", np.fft.irfftn(
        np.fft.rfftn(y.real, axes=(-1, -2)), s=(made.n, made.n), axes=(-1, -2)) - x),
    lambda np, made, x, y, u, z, s: ("vector", np.fft.hfft(u, n=made.n) * z.real),
    lambda np, made, x, y, u, z, s: (
        "vector", np.linalg.solve(heavy(np, made, x), u[..., None])[..., 0]),
    lambda np, made, x, y, u, z, s: ("vector", (x @ u[..., None])[..., 0] + z),
    lambda np, made, x, y, u, z, s: ("vector", x[..., numpy.arange(made.n)[0], :] - u),
    lambda np, made, x, y, u, z, s: ("vector", np.diagonal(x, axis1=-2, axis2=-1) * z),
    lambda np, made, x, y, u, z, s: ("vector", x.sum(-1) + abs(y).max(-2)),
    lambda np, made, x, y, u, z, s: ("vector", np.linalg.solve(
        adjoint(np, np.linalg.cholesky(definite(np, made, x))), z[..., None])[..., 0]),
    lambda np, made, x, y, u, z, s: ("vector", np.linalg.solve(
        np.linalg.cholesky(definite(np, made, x)), z[..., None])[..., 0][..., ::-1]),
    lambda np, made, x, y, u, z, s: ("scalar", np.linalg.det(heavy(np, made, x)) / 7),
    lambda np, made, x, y, u, z, s: ("scalar", np.linalg.slogdet(heavy(np, made, y))[1] + 1),
    lambda np, made, x, y, u, z, s: ("scalar", np.trace(x @ y, axis1=-2, axis2=-1)),
    lambda np, made, x, y, u, z, s: ("scalar", (u * z).sum(-1) + abs(x).min((-1, -2))),
    lambda np, made, x, y, u, z, s: ("scalar", np.linalg.inv(heavy(np, made, x)).sum(0)),
]


def played(seed, tier, target, folder):
    made = Made(seed)
    wide = [x.astype("c16" if x.dtype.kind == "c" else "f8" if x.dtype.kind == "f" else x.dtype)
            for x in made.inputs]
    with numpy.errstate(all="ignore"):
        want = made(numpy, *made.inputs)
        exact = made(numpy, *wide)
    plan, found = tiles.through(tier, made, *made.inputs, target=target, folder=folder)
    single = made.dtype.char in "fF"
    for mine, theirs, best in zip(found, want, exact, strict=True):
        assert mine.dtype == theirs.dtype, seed
        scale = 1 + abs(best).max(initial=0)
        off = abs(theirs - best).max(initial=0)
        most = 4 * off + scale * (2e-4 if single else 1e-11)
        assert abs(mine - best).max(initial=0) <= most, seed
    return bool(tiles.kernels(plan))


CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["host", "device"])
@settings(max_examples=90, deadline=None, suppress_health_check=CHECKS)
@given(seed=st.integers(0, 1 << 20))
def test_by_the_interpreter(seed, target):
    played(seed, "interpreter", target, None)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("tier", ["host", "emulated", "emulated, a thread each"])
def test_compiled(tier, tmp_path, monkeypatch):
    tier, _, each = tier.partition(", ")
    if each:
        monkeypatch.setattr(limits, "GPU", replace(limits.GPU, thread_problems=0))
    by_tiles = [played(seed, tier, HOST if tier == "host" else DEVICE, tmp_path)
                for seed in range(8)]
    assert sum(by_tiles) > 4
