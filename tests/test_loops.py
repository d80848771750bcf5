"""What goes block by block: right in every tier, never stored whole, and told by `explain`."""

import random
from dataclasses import replace
from time import perf_counter

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, kinds, plan_of, planned
from tiledarray import config, explain
from tiledarray.core import Node
from tiledarray.execution import known, looping, room
from tiledarray.execution.op_by_op import blocks
from tiledarray.execution.spans import counters
from tiledarray.fusion import limits, loops
from tiledarray.fusion.plan import Call, Plan
from tiledarray.graph.program import trace
from tiledarray.ops.op import Leaf, Library, Loop
from tiledarray.recording.stretch import local


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    yield
    local.recorder.reset()


@pytest.fixture
def tiny(monkeypatch):
    """Loops over arrays of a few hundred bytes."""
    few = {"loop_least": 1 << 7, "loop_bytes": 1 << 13}
    monkeypatch.setattr(limits, "HOST", replace(limits.HOST, **few))
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, **few))
    monkeypatch.setattr(loops, "LEAST_ROWS", 2)
    monkeypatch.setattr(known, "AMPLE_BYTES", 0)


def drawn(*shape, dtype="f8", seed=0):
    values = numpy.random.default_rng(seed).normal(size=shape)
    return values.astype(dtype) if dtype[0] != "c" else (values * (1 - 0.5j)).astype(dtype)


def softmax(np, s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def attention(np, q, k, v):
    return softmax(np, q @ np.swapaxes(k, -1, -2) / 3) @ v


def causal(np, q, k, v):
    n = q.shape[-2]
    seen = np.arange(n)[:, None] >= np.arange(n)[None]
    return softmax(np, np.where(seen, q @ np.swapaxes(k, -1, -2), -np.inf)) @ v


def with_bias_and_weights(np, q, k, v):
    """The weights are asked for, too."""
    p = softmax(np, q @ np.swapaxes(k, -1, -2) + np.linspace(0, 1, k.shape[-2]))
    return p @ v, p


def grouped_heads(np, q, k, v):
    """Several heads of queries for each of keys, by broadcasting."""
    both = np.stack([q, q + 1, q - 1])
    return attention(np, both, k, v)


def by_einsum(np, q, k, v):
    p = softmax(np, np.einsum("...id,...jd->...ij", q, k) if q.ndim > 3 else
                np.einsum("id,jd->ij", q, k))
    return np.einsum("ij,jd->id", p, v)


def columns(np, q, k, v):
    """The same over the other axis."""
    s = k @ q.T
    p = np.exp(s - s.max(0))
    return (p / p.sum(0)).T @ v


def nearest(np, q, k, v):
    d = (q * q).sum(1)[:, None] - 2 * q @ k.T + (k * k).sum(1)
    order = np.argsort(d, axis=1)
    return d.argmin(1), d.min(1), np.sort(d, axis=1)[:, :3] * 1, order[:, :2] + 0, d.max(0)


def kernel_matrix(np, q, k, v):
    a = np.exp(-0.5 * ((q * q).sum(1)[:, None] - 2 * q @ k.T + (k * k).sum(1)))
    return a @ v, a.sum(), a.sum(0), a.T @ q, np.any(a > 0.9, axis=0)


def network(np, q, k, v):
    """A layer of forty, its loss, and the gradient written out."""
    w, y = k[:, :1] * np.ones(k.shape[0])[:, None].T, q[:, :3]
    w = (k.T @ w)[:, :40]
    back = w[:3].T
    h = np.tanh(q @ w)
    d = h @ back - y
    grow = (d @ back.T) * (1 - h * h)
    return (d * d).mean(), q.T @ grow, h.T @ d, h.max(0), (h * 2).prod(1)


def with_numbers(np, q, k, v):
    """Scalars that a plan does not know, and windows whose places it does not know."""
    out = []
    for c, at in ((0.3, 1), (0.7, 2)):
        s = (q[at:at + 30] @ k.T) * c
        out.append(np.maximum(s, 0).sum(1) + s[:, at])
    return out


def running(np, q, k, v):
    """Running totals along either axis."""
    p = np.exp(q @ k.T * 0.3)
    c = np.cumsum(p, 1)
    return (c / c[:, -1:]) @ v, (np.maximum.accumulate(p, 1) - p).max(1), np.cumsum(p, 0)[-1]


PROGRAMS = [attention, causal, with_bias_and_weights, grouped_heads, by_einsum, columns, nearest,
            kernel_matrix, network, with_numbers, running]


def all_of(found):
    return [*found] if isinstance(found, (tuple, list)) else [found]


def check(program, operands, tolerance=1e-11):
    expected = all_of(program(numpy, *operands))
    found = all_of(program(np, *map(np.array, operands)))
    np.evaluate(*found)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        numpy.testing.assert_allclose(numpy.asarray(mine), theirs, rtol=tolerance, atol=tolerance)
    return found


def operands_of(program, n, dtype="f8"):
    """Queries, keys and values; as many queries as keys where they are compared."""
    return (drawn(n if program is causal else 43, 5, dtype=dtype),
            drawn(n, 5, seed=1, dtype=dtype), drawn(n, 4, seed=2, dtype=dtype))


def loops_of(plan):
    return [step.value.attrs for step in plan.steps
            if isinstance(step, Call) and isinstance(step.value.op, Loop)]


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_by_kernels(program, tiny):
    with config.override(compile="wait"):
        found = check(program, operands_of(program, 61))
        assert loops_of(plan_of(found[0])), kinds(plan_of(found[0]))


@pytest.mark.parametrize("program, dtype", [
    *((program, dtype) for program in PROGRAMS for dtype in ("f8", "f4")),
    *((program, "c16") for program in (attention, by_einsum)),
])
def test_values_op_by_op(program, dtype, tiny):
    with config.override(compile="never"):
        before = counters["op by op"]
        check(program, operands_of(program, 64, dtype), 1e-11 if dtype != "f4" else 2e-4)
        assert counters["op by op"] > before


@pytest.mark.parametrize("compile", ["never", pytest.param("wait", marks=pytest.mark.compiler)])
@pytest.mark.parametrize("program", [attention, causal, with_bias_and_weights, grouped_heads])
def test_heads_and_samples(program, compile, tiny):
    with config.override(compile=compile):
        shapes = (2, 3, 17, 5), (2, 3, 19, 5), (2, 3, 19, 4)
        if program is causal:
            shapes = (2, 3, 19, 5), *shapes[1:]
        check(program, [drawn(*shape, seed=k) for k, shape in enumerate(shapes)])


def test_every_size_of_blocks(tiny, monkeypatch):
    """Ragged last blocks, one row a block, all rows but one."""
    operands = drawn(11, 3), drawn(13, 3, seed=1), drawn(13, 2, seed=2)
    for nbytes in range(50, 1500, 130):
        monkeypatch.setattr(limits, "HOST", replace(limits.HOST, loop_bytes=nbytes))
        with config.override(compile="never", contract=bool(nbytes % 100)):
            check(kernel_matrix, operands)


def test_what_is_combined_begins_as_numpys_does(tiny):
    """Minus infinity, NaN, integers and truth values, combined over blocks."""
    a, b = drawn(40, 3), drawn(30, 3, seed=1)
    a[7] = numpy.nan
    a[20] = -numpy.inf

    def program(np, a, b):
        s = a @ np.abs(b).T
        whole = np.floor(np.nan_to_num(s) % 50).astype(np.int64)
        return (s.max(0), s[:5].min(0), whole.max(0), whole.min(0), whole.sum(0), whole.sum(),
                (s > 1e9).any(0), (s < 1e9).all(0), (s[:4] / 3).prod(0))

    with config.override(compile="never"), numpy.errstate(all="ignore"):
        check(program, (a, b))


class Program:
    """A random program over matrices: statements that NumPy runs as well."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []

    def run(self, np, arrays):
        values = [*arrays]
        chosen = random.Random(self.random.random())
        for _ in range(chosen.randrange(6, 16)):
            values.append(self.step(np, chosen, values))
        wanted = {chosen.randrange(len(arrays), len(values)) for _ in range(3)}
        return [values[-1], *(values[k] for k in sorted(wanted))]

    def step(self, np, chosen, values):
        for _ in range(50):
            x, y = chosen.choice(values), chosen.choice(values[-4:])
            move = chosen.randrange(9)
            if move <= 2 and x.ndim == y.ndim == 2:
                for left, right in ((x, y), (x, y.T), (x.T, y), (x.T, y.T)):
                    if left.shape[1] == right.shape[0]:
                        return np.tanh(left @ right / 3)
            if move == 3:
                try:
                    numpy.broadcast_shapes(x.shape, y.shape)
                except ValueError:
                    continue
                return chosen.choice([np.add, np.multiply, np.maximum, np.subtract])(x, y) / 2
            if move == 4:
                return chosen.choice([np.tanh, np.square, np.abs])(y)
            if move == 5 and y.ndim == 2:
                keepdims, axis = chosen.random() < 0.6, chosen.choice([0, 1, None])
                return chosen.choice([np.sum, np.max, np.min, np.mean])(
                    y, axis=axis, keepdims=keepdims) / 2
            if move == 6 and y.ndim == 2:
                return chosen.choice([y.T, y[1:], y[:, ::2], y[::-1], y.reshape(y.shape[::-1]),
                                      y[None].reshape(-1)[:y.shape[0]]])
            if move == 7 and y.ndim == 2:
                return np.sort(y, axis=chosen.choice([0, 1]))
            if move == 8 and y.ndim == 1:
                return y[:, None] if chosen.random() < 0.5 else y[None]
        return values[-1] + 1


def played(seed):
    """Run a random program both ways; return the plans' loops."""
    arrays = [drawn(n, k, seed=seed + place)
              for place, (n, k) in enumerate(((12, 3), (9, 3), (12, 9), (3, 9)))]
    expected = Program(seed).run(numpy, arrays)
    found = Program(seed).run(np, [np.array(x) for x in arrays])
    np.evaluate(*found)
    for mine, theirs in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(mine), theirs, rtol=1e-9, atol=1e-9,
                                      err_msg=f"program {seed}")
    return [body for mine in found[:1] if isinstance(mine.origin().node, Node)
            and getattr(mine.origin().node.buffer, "plan", None) is not None
            for body in loops_of(plan_of(mine))]


def test_random_programs(tiny, monkeypatch):
    monkeypatch.setattr(limits, "HOST", replace(limits.HOST, loop_bytes=200))
    with config.override(compile="never"):
        assert sum(len(played(seed)) for seed in range(250)) > 40


@pytest.mark.compiler
def test_random_programs_by_kernels(tiny, monkeypatch):
    monkeypatch.setattr(limits, "HOST", replace(limits.HOST, loop_bytes=200))
    with config.override(compile="wait"):
        for seed in range(1000, 1006):
            played(seed)


# ---- plans -----------------------------------------------------------------------------------


def largest(plan: Plan) -> int:
    """Bytes of the largest array that a plan, or what it does for a block, has in memory."""
    own = [value.nbytes for value in plan.last_use if not isinstance(value.op, Loop | Leaf)]
    bodies = [largest(body) for found in plan.bodies.values() for body in found.values()]
    return max([*own, *bodies], default=0)


@pytest.mark.parametrize("target", [HOST, DEVICE])
@pytest.mark.parametrize("program", [attention, causal, nearest, kernel_matrix])
def test_no_square_array(program, target):
    """At 65,536 rows the array would take 17 GB; nothing of it is larger than a block."""
    n, d = 1 << 16, 16
    q, k, v = (np.empty((n, d), np.float32) for _ in range(3))
    np.evaluate(q, k, v)
    plan = planned(*all_of(program(np, q, k, v)), target=target)
    (body,) = loops_of(plan)
    assert body.lengths == (n,) and largest(plan) <= max(target.limits.loop_bytes, 4 * n * d)


def test_bytes_of_a_gradient_that_reads_its_data_once():
    """``X.T @ f(X @ w)``: what lies between is of a block's size, and X is read by blocks."""
    n, d, m = 1 << 18, 64, 256
    x, w = filled(n, d, dtype="f4"), filled(d, m, dtype="f4")
    plan = planned(x.T @ np.tanh(x @ w))
    (body,) = loops_of(plan)
    assert kinds(plan) == ["call"] and [result.shape for result in body.results] == [(d, m)]
    inner = next(iter(next(iter(plan.bodies.values())).values()))
    assert kinds(inner) == ["call", "map", "call", "map"] and largest(inner) <= 1 << 24


def test_what_is_stored_anyway_is_no_loop():
    q, k = (filled(5000, 8, dtype="f4", seed=seed) for seed in range(2))
    scores = q @ k.T
    assert not loops_of(planned(np.maximum(scores, 0), scores))  # both are asked for
    assert not loops_of(planned(scores))
    total = np.exp(scores / np.exp(scores).sum())  # all of it comes before any of it
    assert not loops_of(planned(total.sum(1)))


def test_a_long_recording_is_planned_in_linear_time():
    """Of thousands of values, many of them large products."""
    def recorded(count):
        x = np.empty((1 << 15, 256), np.float32)
        w = np.empty((256, 4096), np.float32)
        np.evaluate(x, w)
        total = 0
        for k in range(count):
            h = np.maximum(x @ w + k, 0)
            x = np.tanh(h[:, :256] + h.sum())
            total = total + x.sum()
        return trace([(total + x).origin().node]).signature

    def seconds(count):
        with config.override(cut=100_000):
            signature = recorded(count)
        started = perf_counter()
        loops.in_blocks(signature, HOST)
        return perf_counter() - started

    few, many = (min(seconds(count) for _ in range(2)) for count in (40, 160))
    assert many < 12 * few + 0.2


# ---- with everything else --------------------------------------------------------------------


def test_products_that_grow_are_recorded():
    """Their results are much larger than what small operands say."""
    with config.override(at_once=1 << 16):
        q, k = (np.array(drawn(4000, 3, seed=seed)) for seed in range(2))
        made = [q @ k.T, np.dot(q, k.T), np.matmul(q, k.T), q.dot(k.T), np.inner(q, k),
                np.einsum("id,jd->ij", q, k)]
        assert all(array.origin().node.buffer is None for array in made)
        small, batch = np.array(drawn(300, 300)), np.array(drawn(500, 10, 10))
        at_once = [small @ small, batch @ batch, np.matmul(batch, batch), batch @ small[:10, :10],
                   np.einsum("bij,bjk->bik", batch, batch), np.dot(small, small),
                   np.einsum("ij,ij->", small, small), small @ small[0]]
        assert all(array.origin().node.buffer is not None for array in at_once)
    del made


@pytest.mark.compiler
def test_under_jit_and_in_gradients(tiny):
    q, k, v = drawn(23, 3), drawn(29, 3, seed=1), drawn(29, 2, seed=2)

    def loss(q, k, v):
        return (attention(np, q, k, v) ** 2).sum()

    with config.override(compile="wait"):
        jitted = np.jit(lambda q, k, v: attention(np, q, k, v))
        for shift in (0, 1, 2):
            mine = jitted(np.array(q + shift), np.array(k), np.array(v))
            numpy.testing.assert_allclose(
                numpy.asarray(mine), attention(numpy, q + shift, k, v), rtol=1e-11)
        found = np.grad(loss, (0, 1, 2))(*map(np.array, (q, k, v)))
    for place, mine in enumerate(found):
        direction = drawn(*mine.shape, seed=9)

        def along(t, place=place, direction=direction):
            operands = [q, k, v]
            operands[place] = operands[place] + t * direction
            return (attention(numpy, *operands) ** 2).sum()

        h = 1e-4
        slope = (8 * (along(h) - along(-h)) - along(2 * h) + along(-2 * h)) / (12 * h)
        numpy.testing.assert_allclose((numpy.asarray(mine) * direction).sum(), slope, rtol=1e-8)


@pytest.mark.compiler
def test_the_gradient_of_attention_stores_no_square_array(tiny):
    """What the forward pass would store is computed again for the blocks of the backward pass."""
    q, k, v = (np.array(drawn(40, 3, seed=seed)) for seed in range(3))
    with config.override(compile="wait"):
        value_and_grad = np.jit(np.value_and_grad(
            lambda q, k, v: (attention(np, q, k, v) ** 2).sum(), (0, 1, 2)))
        for _ in range(2):
            _, grads = value_and_grad(q, k, v)
    plan = plan_of(grads[0])
    bodies = loops_of(plan)
    assert bodies and not any(
        isinstance(step, Call) and not isinstance(step.value.op, Loop)
        and isinstance(step.value.op, Library) and step.value.shape == (40, 40)
        for step in plan.steps)


@pytest.mark.compiler
def test_updates_of_an_input_come_after_the_loop(tiny):
    with config.override(compile="wait"):
        a, b = drawn(40, 3), drawn(30, 3, seed=1)
        x, y = np.array(a), np.array(b)
        for _ in range(3):
            s = np.exp(x @ y.T)
            x += (s / s.sum(1, keepdims=True)) @ y
            y[1:] *= 0.5
            t = numpy.exp(a @ b.T)
            a += (t / t.sum(1, keepdims=True)) @ b
            b[1:] *= 0.5
            del s
        numpy.testing.assert_allclose(numpy.asarray(x), a, rtol=1e-11)
        numpy.testing.assert_allclose(numpy.asarray(y), b, rtol=1e-11)


def test_a_failure_loses_nothing(tiny, monkeypatch):
    """What a loop was to compute is still pending, and computed when there is room."""
    q, k, v = (np.array(drawn(40, 3, seed=seed)) for seed in range(3))
    expected = attention(numpy, *(numpy.array(x) for x in (q, k, v)))
    found = attention(np, q, k, v)

    def full(*_):
        raise MemoryError("no room")

    with config.override(compile="never"):
        with monkeypatch.context() as patch:
            patch.setattr(looping, "begun", full)
            patch.setattr(blocks, "begun", full)
            with pytest.raises(MemoryError):
                np.evaluate(found)
        numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-11)


def test_explain_tells_of_blocks():
    q, k, v = (filled(8192, 64, dtype="f4", seed=seed) for seed in range(3))
    text = str(explain(attention(np, q, k, v)))
    assert "1 loop;" in text and "loop over 16 blocks" in text and "512 of 8,192" in text
    assert "matmul, ta_row_max_sum" in text and "test_loops.py" in text


# ---- what has a name, and was not asked for ----------------------------------------------------


@pytest.fixture
def cramped(tiny, monkeypatch):
    """A machine with memory for a few thousand numbers."""
    monkeypatch.setattr(room, "memory_bytes", lambda: 8 * 8 * 1200)


@pytest.mark.parametrize("compile", ["never", pytest.param("wait", marks=pytest.mark.compiler)])
def test_large_intermediates_with_names_are_left_pending(compile, cramped):
    """As at the top of a script: every intermediate lives, and nobody looks at most of them."""
    a, b, c = drawn(50, 5), drawn(60, 5, seed=1), drawn(60, 4, seed=2)
    with config.override(compile=compile):
        q, k, v = map(np.array, (a, b, c))
        scores = q @ k.T
        weights = np.exp(scores - scores.max(1, keepdims=True))
        total = weights.sum(1, keepdims=True)
        result = weights @ v / total
        s = a @ b.T
        w = numpy.exp(s - s.max(1, keepdims=True))
        expected = w @ c / w.sum(1, keepdims=True)
        numpy.testing.assert_allclose(numpy.asarray(result), expected, rtol=1e-11)
        assert scores.node.buffer is None and weights.node.buffer is None
        assert total.node.buffer is not None
        q *= 2  # what is left pending is of the array as it was
        k[3:] = 0
        numpy.testing.assert_allclose(float(weights.max()), w.max(), rtol=1e-11)
        scores[0] = 7.0
        s[0] = 7.0
        numpy.testing.assert_allclose(numpy.asarray(scores), s, rtol=1e-11)
        numpy.testing.assert_allclose(numpy.asarray(weights), w, rtol=1e-11)
        numpy.testing.assert_allclose(numpy.asarray(q), 2 * a)


def test_what_is_asked_for_or_stored_anyway_is_not_left(cramped):
    with config.override(compile="never"):
        q, k = np.array(drawn(50, 5)), np.array(drawn(60, 5, seed=1))
        scores = q @ k.T
        scaled = np.linalg.pinv(scores)  # needs all of it
        np.evaluate(scaled)
        assert scores.node.buffer is not None
        again = q @ k.T
        total = again.sum(1)
        np.evaluate(again, total)
        assert again.node.buffer is not None and total.node.buffer is not None
        other = q @ k.T
        apart = np.array(drawn(3)) + 1
        np.evaluate(apart)  # of which it is no part
        assert other.node.buffer is not None
