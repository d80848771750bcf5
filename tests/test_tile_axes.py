"""Random programs that transform, solve and reduce along any axes in turn, and move axes between.

Programs of `test_tile_programs` have their problems along the last axes.  Here what is a problem's
axis to one call is a batch axis to the next.
"""

import random
from math import prod

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import tiles
from tests.plans import DEVICE, HOST
from tiledarray.fusion.tiles import teams

LENGTHS = [1, 2, 3, 4, 5, 6, 8, 9, 12, 16]


few = tiles.few_are_worth_it()


class Made:
    """A random program: it does the same with NumPy and with ours."""

    def __init__(self, seed):
        chance = random.Random(seed)
        values = numpy.random.default_rng(seed)
        self.seed, self.dtype = seed, numpy.dtype(chance.choice(["f4", "f8", "c8", "c16"]))
        shape = [chance.choice(LENGTHS) for _ in range(chance.randint(2, 4))]
        while prod(shape) > 4096:
            shape.remove(max(shape))
        if chance.random() < 0.2:
            shape[-1] = 256  # which is long to what follows
        partly = [n if chance.random() < 0.6 else 1 for n in shape]
        self.inputs = []
        for each in (shape, shape, partly):
            found = values.normal(size=each)
            if self.dtype.kind == "c":
                found = found + 1j * values.normal(size=each)
            self.inputs.append(found.astype(self.dtype))
        self.steps = chance.randint(2, 8)

    def __call__(self, np, *inputs):
        chance = random.Random(self.seed + 1)
        pool = [*inputs]
        for _ in range(self.steps):
            x = chance.choice(pool[-3:])
            alike = [y for y in pool if y.shape == x.shape]
            step = chance.choice(STEPS)
            found = step(np, chance, x, chance.choice(alike), inputs[2])
            if found is not None and prod(found.shape) <= 1 << 14:
                pool.append(found)
        return tuple(pool[-1:] + chance.sample(pool[:-1], 1))


def transformed(np, chance, x, y, c):
    axis = chance.randrange(-x.ndim, x.ndim) if x.ndim else None
    if axis is None:
        return None
    name = chance.choice(["fft", "fft", "ifft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
    if name in ("rfft", "ihfft"):
        x = x.real
    n = x.shape[axis]
    if name in ("irfft", "hfft"):
        n = 2 * (n - 1)
    if chance.random() < 0.2:
        n += chance.choice([-2, -1, 1, 3])
    return getattr(np.fft, name)(x, n=n, axis=axis, norm="ortho") if n > 0 else None


def transformed_along_two(np, chance, x, y, c):
    if x.ndim < 2:
        return None
    axes = tuple(chance.sample(range(x.ndim), 2))
    name = chance.choice(["fftn", "ifftn", "rfftn", "fft2"])
    if name == "rfftn":
        x = x.real
    return getattr(np.fft, name)(x, axes=axes, norm="ortho")


def moved(np, chance, x, y, c):
    if x.ndim < 2:
        return x[..., None] * 2
    one, other = chance.sample(range(x.ndim), 2)
    return np.moveaxis(x, one, other) if chance.random() < 0.5 else np.swapaxes(x, one, other)


def reshaped(np, chance, x, y, c):
    if x.ndim < 1:
        return None
    at = chance.randrange(x.ndim)
    if chance.random() < 0.5 and at + 1 < x.ndim:
        return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2:])
    n = x.shape[at]
    factors = [k for k in range(2, n) if n % k == 0]
    if not factors or x.ndim > 4:
        return None
    k = chance.choice(factors)
    return x.reshape(*x.shape[:at], k, n // k, *x.shape[at + 1:])


def cut(np, chance, x, y, c):
    if x.ndim < 1:
        return None
    at = chance.randrange(x.ndim)
    before = (slice(None),) * at
    return chance.choice([
        lambda: x[(*before, slice(None, None, -1))], lambda: x[(*before, slice(1, None))],
        lambda: x[(*before, 0)], lambda: np.roll(x, 1, at), lambda: np.concatenate([x, y], at),
        lambda: x[(*before, None)] - 1,
    ])() if x.shape[at] > 1 else None


def combined(np, chance, x, y, c):
    return chance.choice([
        lambda: x * y + 1, lambda: x - 0.5 * np.conj(y), lambda: abs(x) + y.real,
        lambda: x.imag + y, lambda: np.where(x.real > 0, x, y), lambda: x * 2 - y,
    ])()


def broadcast(np, chance, x, y, c):
    try:
        numpy.broadcast_shapes(x.shape, c.shape)
    except ValueError:
        return None
    return x + 0.25 * c


def reduced(np, chance, x, y, c):
    if x.ndim < 1:
        return None
    axis, kept = chance.randrange(x.ndim), chance.random() < 0.5
    return chance.choice([
        lambda: x.sum(axis, keepdims=kept), lambda: x - x.mean(axis, keepdims=True),
        lambda: abs(x).max(axis, keepdims=kept), lambda: np.cumsum(x, axis) / x.shape[axis],
    ])()


def adjoint(np, x):
    return np.conj(np.swapaxes(x, -1, -2))


def solved(np, chance, x, y, c):
    """Of small matrices along the last axes, which are made to be far from singular."""
    if x.ndim < 2 or min(x.shape[-2:]) > 8:
        return None
    x = x / (1 + abs(x).max((-1, -2), keepdims=True))
    gram = x @ adjoint(np, x) if x.shape[-2] <= x.shape[-1] else adjoint(np, x) @ x
    heavy = gram + 2 * np.eye(gram.shape[-1], dtype=gram.dtype)
    right = y if y.shape[-2] == heavy.shape[-1] else adjoint(np, y)
    return chance.choice([
        lambda: np.linalg.inv(heavy), lambda: np.linalg.solve(heavy, right),
        lambda: np.linalg.cholesky(heavy), lambda: np.linalg.det(heavy / 2),
        lambda: np.linalg.eigvalsh(heavy), lambda: heavy @ right,
        lambda: abs(np.linalg.qr(heavy, mode="r")),
    ])()


STEPS = [transformed] * 5 + [moved, moved, reshaped, cut, combined, combined, broadcast, reduced,
                             solved, solved, transformed_along_two]


def played(seed, tier, target, folder):
    made = Made(seed)
    with numpy.errstate(all="ignore"):
        want = made(numpy, *made.inputs)
        exact = made(numpy, *(x.astype("c16" if x.dtype.kind == "c" else "f8")
                              for x in made.inputs))
    plan, found = tiles.through(tier, made, *made.inputs, target=target, folder=folder)
    for mine, theirs, best in zip(found, want, exact, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), seed
        scale = 1 + abs(best).max(initial=0)
        off = abs(theirs - best).max(initial=0)
        single = theirs.dtype.char in "fF"
        most = 4 * off + scale * (2e-4 if single else 1e-11)
        assert abs(mine - best).max(initial=0) <= most, seed
    return bool(tiles.kernels(plan))


CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("long", [False, True], ids=["", "long"])
@pytest.mark.parametrize("target", [HOST, DEVICE], ids=["host", "device"])
@settings(max_examples=120, deadline=None, suppress_health_check=CHECKS)
@given(seed=st.integers(0, 1 << 20))
def test_by_the_interpreter(seed, target, long):
    with pytest.MonkeyPatch.context() as patch:
        if long:
            patch.setattr(teams, "LONGEST_TRANSFORM", 64)
        played(seed, "interpreter", target, None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tier", ["host", "emulated"])
def test_compiled(tier, tmp_path):
    count = 30 if tier == "host" else 10
    by_tiles = [played(seed, tier, HOST if tier == "host" else DEVICE, tmp_path)
                for seed in range(count)]
    assert sum(by_tiles) > count // 2


@pytest.mark.parametrize("tier", ["host", "emulated"])
def test_a_batch_along_a_part_of_an_axis(tier, tmp_path):
    """What a reshape has split: a tile held the whole axis, and was read at the first place."""
    def program(np, x):
        return (np.fft.fft(x.reshape(12, 3, 4), axis=1) * 2, np.fft.ifft(x.reshape(12, 4, 3)) + 1,
                np.linalg.det(x.reshape(3, 4, 3, 4)[..., :3] + 3 * np.eye(3)),
                np.fft.fft(x.reshape(2, 6, 12)[::-1] * 0.5, axis=0))

    x = numpy.random.default_rng(0).normal(size=(12, 12)) + 1j
    _, results = tiles.through(tier, program, x, target=HOST if tier == "host" else DEVICE,
                               folder=tmp_path)
    for found, want in zip(results, program(numpy, x), strict=True):
        numpy.testing.assert_allclose(found, want, rtol=0, atol=1e-11 * abs(want).max())
