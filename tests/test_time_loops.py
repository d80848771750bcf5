"""`fori_loop` and `while_loop`: what a loop of Python's gives, on every tier and differentiated."""

import dataclasses
from functools import partial

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tiledarray as np
from tiledarray import config, explain
from tiledarray.execution import repeating
from tiledarray.execution.spans import counters
from tiledarray.recording.stretch import local

TIERS = ("wait", "never", "background")


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    yield
    local.recorder.reset()


def drawn(*shape, dtype="f8", seed=0):
    return numpy.asarray(numpy.random.default_rng(seed).normal(size=shape)).astype(dtype)


def same(got, want):
    numpy.testing.assert_array_equal(numpy.asarray(got), want, strict=True)


# Bodies of the state (u, v, k): arrays of one shape and dtype, and an integer.


def elementwise(np, i, u, v, k):
    return u * 0.5 + v, v - k, k + i


def in_place(np, i, u, v, k):
    u += v
    v *= 0.25
    return u, v, k


def swapped(np, i, u, v, k):
    v[...] = u + k
    return v, u, k


def twice_the_same(np, i, u, v, k):
    u -= v
    return u, u, i


def what_it_was_given(np, i, u, v, k):
    return v, v, k


def old_and_new(np, i, u, v, k):
    w = u.copy()
    w[...] = w * 0.5 + k
    return w, u, k + 1


def views(np, i, u, v, k):
    return u[..., ::-1], v.reshape(-1)[::-1].reshape(v.shape), k


def stencil(np, i, u, v, k):
    if u.ndim:
        u[1:-1] += 0.5 * (u[2:] - u[:-2])
        u[0], u[-1:] = u[-1], v[:1]
    return u, v, k * i


def reduced(np, i, u, v, k):
    return u - u.sum(), np.maximum(v, u.sum() + k), k + (v > 0).sum()


def with_nan(np, i, u, v, k):
    return np.where(u > 0, np.sqrt(u), u / 0), v * numpy.float32(1), k - 7


def of(dtype, state):
    """NumPy's int64 makes float64 of float32."""
    u, v, k = state
    return *(x if x.dtype == dtype else x.astype(dtype) for x in (u, v)), k


BODIES = [elementwise, in_place, swapped, twice_the_same, what_it_was_given, old_and_new, views,
          stencil, reduced, with_nan]


def by_numpy(body, dtype, numbers, u, v):
    state = u, v, numpy.int64(2)
    with numpy.errstate(all="ignore"):
        for i in numbers:
            state = of(dtype, body(numpy, numpy.int64(i), *(
                numpy.array(x) if k < 2 else x for k, x in enumerate(state))))
    return state


def by_loop(body, dtype, numbers, u, v):
    def step(i, state):
        u, v, k = of(dtype, body(np, i, state["u"], *state["rest"]))
        return {"u": u, "rest": (v, k)}

    found = np.fori_loop(numbers, step, {"u": u, "rest": (v, 2)})
    return found["u"], *found["rest"]


def check(body, got, wanted):
    for x, y in zip(got, wanted, strict=True):
        assert x.shape == numpy.shape(y) and x.dtype == numpy.asarray(y).dtype
        if body is reduced:
            numpy.testing.assert_allclose(numpy.asarray(x), y, rtol=1e-4, atol=1e-4)
        else:
            same(x, numpy.asarray(y))


def suits(body, shape):
    return shape or body not in (stencil, views)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BODIES), st.sampled_from([(), (0,), (1,), (7,), (3, 0), (4, 5)]),
       st.sampled_from(["f8", "f4"]), st.integers(-1, 4), st.sampled_from([1, -2]),
       st.sampled_from(["never", "background"]), st.sampled_from([0, 1 << 16]))
def test_is_a_loop_of_pythons(body, shape, dtype, n, by, tier, at_once):
    assume(suits(body, shape) and not (body is stencil and not all(shape)))
    numbers = range(3, 3 + n * by, by)
    start = drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype, seed=1)
    given = *map(np.array, start),
    with config.override(compile=tier, at_once=at_once):
        check(body, by_loop(body, dtype, numbers, *given), by_numpy(body, dtype, numbers, *start))
    for x, y in zip(given, start, strict=True):
        same(x, y)


@pytest.mark.parametrize("shape", [(), (4, 5), (300, 30)])
def test_is_one_by_kernels(shape):
    numbers, bodies = range(3, -2, -2), [body for body in BODIES if suits(body, shape)]
    start = drawn(*shape, dtype="f4"), drawn(*shape, dtype="f4", seed=1)
    given = *map(np.array, start),
    all_of_them = np.jit(lambda u, v: [by_loop(body, "f4", numbers, u, v) for body in bodies])
    with config.override(compile="wait"):
        for body, got in zip(bodies, all_of_them(*given), strict=True):
            check(body, got, by_numpy(body, "f4", numbers, *start))
    for x, y in zip(given, start, strict=True):
        same(x, y)


@dataclasses.dataclass
class Swing:
    angle: object
    speed: object


@pytest.mark.parametrize("tier", TIERS)
def test_a_state_may_be_nested_and_hold_numbers(tier):
    def step(i, state):
        swing, steps = state
        speed = swing.speed - 0.1 * np.sin(swing.angle)
        return Swing(swing.angle + 0.1 * speed, speed), [steps[0] + 1]

    with config.override(compile=tier):
        swing, (steps,) = np.fori_loop(5, step, (Swing(drawn(4), 0.0 * drawn(4)), [0]))
        assert isinstance(swing, Swing) and int(steps) == 5 and steps.dtype == numpy.int64
    angle, speed = drawn(4), numpy.zeros(4)
    for _ in range(5):
        speed = speed - 0.1 * numpy.sin(angle)
        angle = angle + 0.1 * speed
    numpy.testing.assert_allclose(numpy.asarray(swing.angle), angle, rtol=1e-14)


@pytest.mark.parametrize("tier", TIERS)
def test_the_number_of_a_step_is_an_index(tier):
    """And so are arrays by names, which the body may write into."""
    table, seen, read = drawn(9, 3), np.zeros(9), np.array(drawn(9, 3, seed=1))

    def step(i, state):
        state[i] = 0.5 * state[i - 1] + read[-i]
        seen[i] = state.sum()
        return state

    wanted, sums = table.copy(), numpy.zeros(9)
    for i in range(8, 0, -2):
        wanted[i] = 0.5 * wanted[i - 1] + numpy.asarray(read)[-i]
        sums[i] = wanted.sum()
    with config.override(compile=tier):
        same(np.fori_loop(range(8, 0, -2), step, table), wanted)
    numpy.testing.assert_allclose(numpy.asarray(seen), sums, rtol=1e-14)


def test_one_plan_for_all_counts_and_numbers():
    """How often, and with which scalars, is no part of a plan."""
    def run(n, rate):
        return np.fori_loop(n, lambda i, u: u * rate + 0.5, np.ones(70_000))

    with config.override(compile="wait"):
        run(3, 0.1).numpy()
        made = counters["plans made"], counters["kernels compiled"]
        got = run(9, 0.2).numpy()
        assert (counters["plans made"], counters["kernels compiled"]) == made
    wanted = numpy.ones(70_000)
    for _ in range(9):
        wanted = wanted * 0.2 + 0.5
    same(got, wanted)


@pytest.mark.parametrize("tier", TIERS)
def test_under_jit_the_count_may_be_an_argument(tier):
    @np.jit
    def run(n, u):
        return np.fori_loop(n, lambda i, u: np.fori_loop(i, lambda j, u: u + i * j, u), u) * 2

    with config.override(compile=tier):
        for n in (3, 0, -4, 5):
            same(run(np.array(n), np.array(drawn(6))), _nested(n) * 2)


def _nested(n):
    u = drawn(6)
    for i in range(n):
        for j in range(i):
            u = u + i * j
    return u


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("jitted", [True, False])
def test_while(tier, jitted):
    def solve(b):
        def step(state):
            x, residual, count = state
            return x + 0.3 * residual, residual - 0.3 * x - 0.09 * residual, count + 1

        def goes(state):
            return np.logical_and(abs(state[1]).max() > 1e-3, state[2] < 50)

        return np.while_loop(goes, step, (0 * b, b, 0))

    with config.override(compile=tier):
        got = (np.jit(solve) if jitted else solve)(np.array(drawn(40)))
        x, residual, count = numpy.zeros(40), drawn(40), 0
        while abs(residual).max() > 1e-3 and count < 50:
            x, residual, count = x + 0.3 * residual, residual - 0.3 * x - 0.09 * residual, count + 1
        assert int(got[2]) == count > 3
        same(got[0], x)
        same(np.while_loop(lambda s: s.sum() > 1e9, lambda s: s + 1, drawn(3)), drawn(3))


# ---- derivatives and samples -----------------------------------------------------------------


def decayed(u, rate, loop=True):
    def step(i, u):
        u[1:] += rate * np.sin(u[:-1]) * (i + 1)
        return u

    if loop:
        return (np.fori_loop(5, step, u) ** 2).sum()
    u = u.copy()
    for i in range(5):
        u = step(i, u)
    return (u**2).sum()


@pytest.mark.parametrize("size", [9, 3000])
def test_derivatives_are_those_of_the_steps(size):
    u, rate = np.array(drawn(size)), np.array(0.1)
    plain = partial(decayed, loop=False)
    with config.override(compile="never"):
        for argnums in (0, 1):
            wanted = numpy.asarray(np.grad(plain, argnums)(u, rate))
            for f in (np.grad(decayed, argnums), np.jit(np.grad(decayed, argnums))):
                numpy.testing.assert_allclose(numpy.asarray(f(u, rate)), wanted, rtol=1e-12)
        with config.override(grad_memory=6 * u.nbytes):
            same(np.grad(decayed)(u, rate), numpy.asarray(np.grad(plain)(u, rate)))
        v = np.array(drawn(size, seed=1))
        for wanted, got in (
            (np.jvp(plain, [u, rate], [v, rate]), np.jvp(decayed, [u, rate], [v, rate])),
            (np.hvp(lambda u: plain(u, rate), u, v), np.hvp(lambda u: decayed(u, rate), u, v)),
            (np.vjp(plain, u, rate)[1](1.0)[0], np.vjp(decayed, u, rate)[1](1.0)[0]),
        ):
            for x, y in zip(*map(np.asarray, (wanted, got)), strict=True) if isinstance(
                    wanted, np.ndarray) else zip(wanted, got, strict=True):
                numpy.testing.assert_allclose(numpy.asarray(y), numpy.asarray(x), rtol=1e-12)


def test_a_while_loop_is_differentiated_by_its_steps():
    def root(a):
        x, _ = np.while_loop(lambda s: abs(s[1]) > 1e-14,
                             lambda s: (0.5 * (s[0] + a / s[0]), s[0] * s[0] - a), (a, a))
        return x

    assert abs(float(np.grad(root)(np.array(2.0))) - 0.5 / 2**0.5) < 1e-12
    with pytest.raises(TypeError, match="looked at a value"):
        np.jit(np.grad(root))(np.array(2.0))


def test_a_variable_by_name_has_its_gradient():
    x = np.variable(drawn(5))
    y = np.fori_loop(3, lambda i, s: s * x, np.ones(5)).sum()
    numpy.testing.assert_allclose(numpy.asarray(y.grad(x)), 3 * drawn(5) ** 2, rtol=1e-13)
    rows = np.vmap(lambda a: np.fori_loop(2, lambda i, s: s + a * x, np.zeros(5)))(np.ones(4))
    numpy.testing.assert_allclose(numpy.asarray(rows.sum().grad(x)), numpy.full(5, 8.0))


@pytest.mark.parametrize("tier", ["wait", "never"])
def test_samples_go_through_one_loop(tier):
    x, counts = drawn(6, 5), numpy.arange(6) % 4

    def several(x, n):
        u, total, _ = np.fori_loop(
            n, lambda i, s: (s[0] * 0.5 + i, s[1] + s[0].sum() + x[0], s[2]), (x, 0.0, counts))
        return u, total

    def until(x):
        return np.while_loop(lambda s: abs(s[0]).max() > 0.3, lambda s: (s[0] * 0.7, s[1] + 1),
                             (x, 0))

    with config.override(compile=tier):
        before = counters["library calls"]
        found = [np.vmap(several)(x, np.array(counts)), np.vmap(several, (0, None))(x, 3),
                 np.jit(np.vmap(several))(np.array(x), np.array(counts))]
        for k, n in enumerate(counts):
            for (u, total), count in zip(found, (n, 3, n), strict=True):
                wanted, sum_ = x[k], 0.0
                for i in range(count):
                    wanted, sum_ = wanted * 0.5 + i, sum_ + wanted.sum() + x[k, 0]
                same(u[k], wanted)
                numpy.testing.assert_allclose(float(total[k]), sum_, rtol=1e-12)
        if tier == "wait":
            assert counters["library calls"] <= before + 6  # not one a sample
        u, steps = np.vmap(until)(x)
        for k in range(6):
            wanted, count = x[k], 0
            while abs(wanted).max() > 0.3:
                wanted, count = wanted * 0.7, count + 1
            same(u[k], wanted)
            assert int(steps[k]) == count
        slopes = np.vmap(np.grad(decayed), (0, None))(x, 0.1)
        for k in range(6):
            numpy.testing.assert_allclose(
                numpy.asarray(slopes[k]), numpy.asarray(np.grad(decayed)(np.array(x[k]), 0.1)),
                rtol=1e-12)


# ---- what is refused -------------------------------------------------------------------------


def appended(u):
    KEPT.append(u)
    return u


KEPT: list = []
CALLS = 0


def counted(u):
    global CALLS
    CALLS += 1
    return u


@pytest.mark.parametrize(("body", "told"), [
    (lambda u: None, "returns None"),
    (lambda u: {"b": u["a"]}, r"nested otherwise .* state\['b'\], not state\['a'\]"),
    (lambda u: {"a": u["a"] * numpy.float64(2)}, r"state\['a'\] is float32 of shape \(3,\) before"
     r" the body, and float64 .*astype\(float32\)"),
    (lambda u: {"a": u["a"][1:]}, r"and float32 of shape \(2,\) behind"),
    (lambda u: {"a": u["a"] * float(u["a"].sum())}, "looked at a value .*test_time_loops"),
    (lambda u: {"a": u["a"] + np.random.normal(size=3)}, "draws random numbers"),
    (lambda u: {"a": "text"}, r"state\['a'\] is a str"),
    (appended, "stored an array"),
    (counted, "binds CALLS"),
])
def test_what_is_no_step_is_refused(body, told):
    state = {"a": np.zeros(3, "f4")}
    with pytest.raises(TypeError, match=told):
        np.fori_loop(2, lambda i, u: body(u), state)
    KEPT.clear()
    with pytest.raises(TypeError, match=told):
        np.while_loop(lambda u: u["a"].sum() < 1, body, state)
    KEPT.clear()
    assert CALLS == 0


def test_other_refusals():
    u = np.zeros(3)
    with pytest.raises(TypeError, match="any\\(\\) or all\\(\\)"):
        np.while_loop(lambda u: u > 0, lambda u: u, u)
    for n in (2.5, "3", np.zeros(3, int), np.array(1.0)):
        with pytest.raises(TypeError, match="fori_loop takes for n"):
            np.fori_loop(n, lambda i, u: u, u)
    with pytest.raises(TypeError, match=r"state\[1\] is a str"):
        np.fori_loop(2, lambda i, u: u, (u, "no"))
    with pytest.raises(TypeError, match="number of steps that is known"):
        np.jit(np.grad(lambda u, n: np.fori_loop(n, lambda i, u: u * 2, u).sum()))(u, np.array(3))
    with pytest.raises(ZeroDivisionError) as raised:
        np.fori_loop(2, lambda i, u: u * (1 / 0), u)
    assert raised.traceback[-1].path.name == "test_time_loops.py"


@pytest.mark.parametrize("tier", ["wait", "never"])
def test_what_fails_in_a_step_names_its_line(tier):
    def step(i, a):
        a = a + 1
        return np.linalg.inv(a * i)

    with config.override(compile=tier), pytest.raises(numpy.linalg.LinAlgError) as failed:
        float(np.fori_loop(2, step, np.eye(3)).sum())
    line = step.__code__.co_firstlineno + 2
    assert any(f"in a step, at {__file__}:{line}" in note for note in failed.value.__notes__)


# ---- how -------------------------------------------------------------------------------------


def test_what_is_overwritten_is_the_loops_own(monkeypatch):
    """A step writes where the step before wrote, and nowhere else."""
    starts = []
    run_program = repeating.run_program

    def watching(program, leaves, params):
        starts.append(leaves[0].pointer)
        return run_program(program, leaves, params)

    monkeypatch.setattr(repeating, "run_program", watching)

    def step(i, u):
        u[::2] += 1
        return u

    u = np.ones(70_000)
    with config.override(compile="wait"):
        same(np.fori_loop(4, step, u)[:2], numpy.array([5.0, 1.0]))
    assert len(starts) in (0, 4)  # 0: the twin has no programs
    assert len({*starts}) <= 1
    same(u, numpy.ones(70_000))


def test_explain_tells_of_a_step():
    told = str(explain(np.fori_loop(3, lambda i, u: np.sin(u), np.zeros((300, 300)))))
    assert "loop fori_loop" in told and "each     ta_map_sin" in told


def test_an_interrupted_loop_can_be_computed_again(monkeypatch):
    calls = []
    wrap = repeating._State.go

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return wrap(self, *args)

    monkeypatch.setattr(repeating._State, "go", interrupted)

    def step(i, u):
        u *= 2
        return u

    with config.override(compile="wait"):
        u = np.fori_loop(5, step, np.ones(70_000))
        with pytest.raises(KeyboardInterrupt):
            u.numpy()
        same(u, numpy.full(70_000, 32.0))


# ---- state without axes --------------------------------------------------------------------------

def _written(state):
    x, y = state
    other = x
    other += 1
    return x, y + other * x


@pytest.mark.parametrize(("of", "x", "y"), [
    (float, 1, 6), (numpy.float64, 1, 6), (lambda v: np.array([v]).sum(), 1, 6),
    (numpy.array, 4, 29), (np.array, 4, 29), (lambda v: np.array([v])[:1].reshape(()), 4, 29)])
def test_state_without_axes_is_written_as_numpy_writes_it(of, x, y):
    """``+=`` writes into an array that has another name; a number gets another value."""
    state = of(1.0), of(0.0)
    found = np.fori_loop(3, lambda i, s: _written(s), state)
    assert [*map(float, found)] == [x, y]
    found = np.while_loop(lambda s: s[1] < y, _written, (of(1.0), of(0.0)))
    assert [*map(float, found)] == [x, y]
    assert [*map(float, state)] == [1.0, 0.0]

    def loop(x):
        return np.fori_loop(3, lambda i, s: _written(s), (x, of(0.0)))[1]

    value, slope = np.value_and_grad(loop)(of(1.0))
    assert (float(value), float(slope)) == ((29.0, 18.0) if x == 4 else (6.0, 9.0))
