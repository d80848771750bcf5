"""Ordinary code in which rows of a product are used up as they are made, some of it random."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy

HALVES = {"f2": numpy.dtype(numpy.float16), "bf16": numpy.dtype(ml_dtypes.bfloat16)}
DTYPES = {**HALVES, "f4": numpy.dtype(numpy.float32)}


def softmax(np: Any, scores: Any) -> Any:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scaled(np: Any, q: Any, k: Any) -> Any:
    return q @ np.swapaxes(k, -1, -2) * numpy.asarray(0.25, q.dtype)


def attention(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    return softmax(np, scaled(np, q, k)) @ v


def causal(np: Any, q: Any, k: Any, v: Any, bias: Any, *_: Any) -> Any:
    rows, columns = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    scores = np.where(rows >= columns, scaled(np, q, k) + bias, -numpy.inf).astype(q.dtype)
    return softmax(np, scores) @ v


def padded(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """Columns beyond a length do not count; the mask is the other way round."""
    out = np.arange(k.shape[-2]) >= k.shape[-2] - 5
    return softmax(np, np.where(out, -numpy.inf, scaled(np, q, k)).astype(q.dtype)) @ v


def capped(np: Any, q: Any, k: Any, v: Any, bias: Any, *_: Any) -> Any:
    scores = np.tanh(scaled(np, q, k)) * numpy.asarray(4, q.dtype) + bias
    return softmax(np, scores) @ v + q[..., :1]


def divided_first(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / numpy.asarray(3, q.dtype)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (e @ v) / e.sum(axis=-1)[..., None]


def with_statistics(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    scores = scaled(np, q, k)
    most = scores.max(-1)
    e = np.exp(scores - most[..., None])
    total = e.sum(-1)
    return e @ v / total[..., None], most + np.log(total), total


def unscaled(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    e = np.exp(scaled(np, q, k) * numpy.asarray(0.25, q.dtype))  # halves end at 65,504
    return e / e.sum(-1, keepdims=True) @ v


def layers(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    return np.maximum(scaled(np, q, k), 0) @ v


def extremes(np: Any, q: Any, k: Any, v: Any, bias: Any, *_: Any) -> Any:
    scores = scaled(np, q, k) + bias
    return scores.max(-1), scores.min(-1), scores.sum(-1)


def from_below(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    scores = scaled(np, q, k)
    e = np.exp2((scores.min(-1, keepdims=True) - scores) * numpy.asarray(0.5, q.dtype))
    return (e * v[..., 0][..., None, :]).sum(-1) / e.sum(-1)


def by_weights(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """As layers of a net are written: the columns of both matrices lie along memory."""
    first, second = np.swapaxes(k, -1, -2).copy(), np.swapaxes(v, -1, -2).copy()
    return np.maximum(q @ first, 0) @ np.swapaxes(second, -1, -2)


def by_einsum(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    letters = "ab"[:q.ndim - 2]
    scores = np.einsum(f"{letters}id,{letters}jd->{letters}ij", q, k)
    weights = softmax(np, scores * numpy.asarray(0.25, q.dtype))
    return np.einsum(f"{letters}ij,{letters}je->{letters}ie", weights, v)


def with_a_vector(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    e = softmax(np, scaled(np, q, k))
    return e @ v[(*[0] * (v.ndim - 2), slice(None), 1)]


def two_products(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    weights = softmax(np, scaled(np, q, k))
    return weights @ v, weights @ (v[..., ::-1])


def by_logarithm(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """Weights relative to the logarithm of their sum, which gradients make of them."""
    scores = scaled(np, q, k)
    most = scores.max(-1, keepdims=True)
    total = most + np.log(np.exp(scores - most).sum(-1, keepdims=True))
    return np.exp(scores - total) @ v, total[..., 0]


def assigned(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    scores = scaled(np, q, k)
    rows, columns = q.shape[-2], k.shape[-2]
    scores[..., np.triu(np.ones((rows, columns), bool), 1)] = -numpy.inf
    return softmax(np, scores) @ v


def from_keys(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """The other way round: a column of scores for each query."""
    scores = k @ np.swapaxes(q, -1, -2) * numpy.asarray(0.25, q.dtype)
    e = np.exp(scores - scores.max(-2, keepdims=True))
    weights = e / e.sum(-2, keepdims=True)
    return np.swapaxes(weights, -1, -2) @ v, np.swapaxes(v, -1, -2) @ weights


def far(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """Exponents in the thousands: one fused product would be off."""
    scores = q @ np.swapaxes(k, -1, -2) * numpy.asarray(96, q.dtype)
    return softmax(np, scores) @ v


def negated(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """The largest of what is multiplied is the smallest score."""
    scores = q @ np.swapaxes(k, -1, -2) * numpy.asarray(-0.25, q.dtype)
    return softmax(np, scores) @ v, scores.max(-1)


def divided(np: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """Scores are divided, by a number of a row's own length."""
    scores = q @ np.swapaxes(k, -1, -2) / numpy.asarray(q.shape[-1] ** 0.5, q.dtype)
    return softmax(np, scores) @ v, scores.max(-1)


CASES = [attention, causal, padded, capped, divided_first, with_statistics, unscaled, layers,
         extremes, from_below, by_einsum, with_a_vector, two_products, by_weights,
         by_logarithm, assigned, from_keys, far, negated, divided]
OF_NUMBERS = [extremes, from_below, with_a_vector]  # no row of theirs is multiplied with a matrix


def inputs(batch: tuple[int, ...], rows: int, columns: int, depth: int, extent: int, dtype: str,
           seed: int = 0) -> list[numpy.ndarray]:
    """Two matrices whose rows are multiplied, one that they weigh, and something to add."""
    values = numpy.random.default_rng(seed)
    shapes = ((*batch, rows, depth), (*batch, columns, depth), (*batch, columns, extent),
              (rows, columns))
    return [values.normal(size=shape).astype(DTYPES[dtype]) for shape in shapes]


class Made:
    """A random program of this kind: it does the same with NumPy and with ours."""

    def __init__(self, seed: int, dtype: str = "") -> None:
        chance = random.Random(seed)
        self.seed = seed
        batch = chance.choice([(), (2,), (1, 3), (2, 2)])
        rows, columns = chance.choice([
            (2, 2), (17, 33), (130, 20), (40, 130), (64, 64), (3, 100), (20, 600)])
        depth = chance.choice([1, 3, 8, 16, 40, 72, 128])
        extent = chance.choice([2, 7, 16, 24, 80])
        dtype = dtype or chance.choice([*HALVES])
        self.inputs = inputs(batch, rows, columns, depth, extent, dtype, seed)
        self.groups = chance.random() < 0.3 and len(batch) > 1

    def __call__(self, np: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        chance = random.Random(self.seed + 1)
        if self.groups:  # heads that share what they look at
            k, v = k[..., :1, :, :], v[..., :1, :, :]
        if chance.random() < 0.2:
            q = q[..., ::-1, :]
        if chance.random() < 0.2:
            k, v = k[..., ::-1, :], v[..., ::-1, :]
        if chance.random() < 0.3:
            k = np.swapaxes(np.swapaxes(k, -1, -2).copy(), -1, -2)
        if chance.random() < 0.3:
            v = np.swapaxes(np.swapaxes(v, -1, -2).copy(), -1, -2)
        scores = (q @ np.swapaxes(k, -1, -2) if chance.random() < 0.8 else
                  np.swapaxes(k @ np.swapaxes(q, -1, -2), -1, -2))
        for _ in range(chance.randint(0, 4)):
            scores = self.changed(np, scores, bias, chance)
        found = chance.choice(ENDS)(np, scores, v)
        if isinstance(found, tuple):
            return found
        for _ in range(chance.randint(0, 2)):
            step = chance.randrange(3)
            found = (found * numpy.asarray(0.5, q.dtype) if step == 0 else
                     np.maximum(found, -1) if step == 1 else found + v[..., :1, :])
        return found

    def changed(self, np: Any, scores: Any, bias: Any, chance: random.Random) -> Any:
        """Scores with something done to each."""
        half = scores.dtype
        rows, columns = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
        mask = chance.choice([rows >= columns, abs(rows - columns) < 9, bias < 1,
                              columns < 1 + scores.shape[-1] // 2])
        factor = chance.choice([0.5, -0.5, 20])
        away = numpy.asarray(-numpy.inf if chance.random() < 0.7 else -3, half)
        return chance.choice([
            lambda: scores * numpy.asarray(factor, half), lambda: scores / numpy.asarray(2, half),
            lambda: scores + bias, lambda: scores + bias[:, :1],
            lambda: scores - bias[0] * numpy.asarray(0.25, half), lambda: np.tanh(scores),
            lambda: np.where(mask, scores, away), lambda: abs(scores)])()


def _hidden(np: Any, scores: Any, v: Any) -> Any:
    return np.maximum(scores, numpy.asarray(0.5, scores.dtype)) @ v


def _numbers(np: Any, scores: Any, v: Any) -> Any:
    return scores.max(-1), scores.sum(-1) * numpy.asarray(0.25, scores.dtype)


def _without_extremum(np: Any, scores: Any, v: Any) -> Any:
    e = np.exp(-abs(scores))
    return (e @ v) / (1 + e.sum(-1, keepdims=True))


def _cooled(np: Any, scores: Any, v: Any) -> Any:
    most = scores.max(-1, keepdims=True)
    e = np.exp((scores - most) * numpy.asarray(0.5, scores.dtype))
    return np.log(e.sum(-1)) + most[..., 0], e @ v


def _by_logarithm(np: Any, scores: Any, v: Any) -> Any:
    most = scores.max(-1, keepdims=True)
    total = most + np.log(np.exp(scores - most).sum(-1, keepdims=True))
    return np.exp(scores - total) @ v


def _weighted(np: Any, scores: Any, v: Any) -> Any:
    return softmax(np, scores) @ v


ENDS = [_hidden, _numbers, _without_extremum, _cooled, _by_logarithm, _weighted,
        _weighted]


def widened(x: Any) -> Any:
    """The same in double precision."""
    return x.astype(numpy.float64)


def exact(program: Any, arguments: list[Any]) -> tuple[Any, ...]:
    """What a program gives in double precision."""
    with numpy.errstate(all="ignore"):
        found = program(numpy, *map(widened, arguments))
    return found if isinstance(found, tuple) else (found,)


def numpys(program: Any, arguments: list[Any]) -> tuple[Any, ...]:
    """What NumPy gives in the arguments' own type, which it has to be float32 for."""
    with numpy.errstate(all="ignore"):
        found = program(numpy, *arguments)
    return found if isinstance(found, tuple) else (found,)


def assert_close(found: Any, want: Any, half: Any, numpys: Any = None) -> None:
    """To some units of the type that is multiplied: weights are rounded to it.

    Of float32 errors may be some times NumPy's: exponentials of thousands have many units.
    """
    found = numpy.asarray(found)
    assert found.shape == want.shape
    single = numpy.dtype(half) == numpy.float32
    unit = 2e-6 if single else float(ml_dtypes.finfo(half).eps)
    usual = numpy.isfinite(want)
    numpy.testing.assert_array_equal(numpy.isnan(found), numpy.isnan(want))
    size = abs(want[usual]).max(initial=1)
    off = abs(found[usual].astype(numpy.float64) - want[usual]).max(initial=0)
    allowed = 12 * unit * size
    if numpys is not None:
        allowed = max(allowed, 4 * abs(numpys[usual] - want[usual]).max(initial=0))
    assert off <= allowed, (off, unit, size)
