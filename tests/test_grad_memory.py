"""`config.grad_memory`: long histories in bounded memory, with the very same results."""

import gc
import random
import tracemalloc

import numpy
import pytest

import tiledarray as np
from tests.test_gradient_programs import MOVES, result, written
from tiledarray.errors import NoDerivative
from tiledarray.execution.spans import counters
from tiledarray.recording import segments

X = numpy.random.default_rng(0).normal(size=2000) * 0.5


@pytest.fixture(autouse=True)
def op_by_op(monkeypatch):
    """Short stretches, so that a few steps are a long history."""
    for name, value in {"first_seconds": 100.0, "compile": "never", "cut": 12,
                        "verify": False, "at_once": 0}.items():
        monkeypatch.setattr(np.config, name, value)


def diffused(u, steps=30):
    u = u.copy()
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) * np.cos(u[1:-1])
    return (u * u).sum()


def normalized(u):
    """Sums, whose bits depend on how they are planned."""
    for k in range(40):
        u = u / np.sqrt((u * u).mean()) + 0.01 * k
        u[::3] *= np.tanh(u.sum() * 0.01)
    return np.sin(u).sum()


def remembered(u):
    """What was computed long before is read again."""
    past = [u * 2]
    for _ in range(40):
        u = u + 0.1 * np.sin(past[len(past) // 2] * u)
        past.append(u)
    return sum((each * each).mean() for each in past[::7]) + (past[0] * u).sum()


def looked_at(u):
    for _ in range(30):
        u = np.sin(u) * 2 if float(np.stop_gradient(u).mean()) > 0 else np.exp(u * 0.9) - 0.5
        u[np.stop_gradient(u) > 1] *= 0.5
        best = np.argmax(u)
        u[3] += u[best] * 0.1
    return (u * u).sum()


def drawn(u):
    numbers = np.random.default_rng(1)
    for _ in range(40):
        u = np.cos(u) + 0.1 * numbers.normal(size=u.shape) * u
    return (u ** 3).sum()


def written_later(u):
    """Constants that are overwritten after they were read: what was read counts."""
    field = np.array(numpy.linspace(0, 1, u.size))
    for _ in range(40):
        u = u + 0.1 * np.sin(u * field)
        field[1:] *= 0.9
        field[0] += 1.0
    return (u * field).sum()


def library(u):
    for _ in range(20):
        v = np.sort(u) + np.cumsum(u) * 1e-3
        u = np.fft.irfft(np.fft.rfft(v) * 0.9, n=u.size) + u[::-1] * 0.1
    return (u * u).sum()


FUNCTIONS = [diffused, normalized, remembered, looked_at, drawn, written_later, library]


def same(differentiate, limits=(0, 60 * X.nbytes, 2**40)):
    """The results are the same to the bit, and values were computed again; how often is told."""
    wanted = numpy.asarray(differentiate())
    again = []
    for limit in limits:
        before = counters["computed again"]
        with np.config.override(grad_memory=limit):
            found = numpy.asarray(differentiate())
        again.append(counters["computed again"] - before)
        assert found.tobytes() == wanted.tobytes()
    return again


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_are_the_same_to_the_bit(function):
    least, some, none = same(lambda: np.grad(function)(np.array(X)))
    assert least >= some and least > 0
    assert none == 0


def test_a_history_that_is_held_lets_go_of_nothing_where_there_is_room():
    with np.config.override(grad_memory=0):
        held = np.variable(np.array(X))
        end = held
        for _ in range(60):
            end = np.sin(end) * 1.1 + end[::-1] * 0.1
        float(end.sum())
    assert same(lambda: np.grad(diffused)(np.array(X)), limits=(2**40,)) == [0]
    assert end.sum().grad(held).shape == X.shape


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [diffused, normalized])
def test_by_kernels_too(function, monkeypatch):
    monkeypatch.setattr(np.config, "compile", "wait")
    monkeypatch.setattr(np.config, "first_seconds", 0.0)
    monkeypatch.setattr(np.config, "cut", 40)

    def differentiate():
        return np.grad(function)(np.array(X[:200]))

    np.evaluate(differentiate())  # the first run of all may be planned otherwise
    least, _, none = same(differentiate)
    assert least > 0 and none == 0


def test_several_passes_through_one_history():
    def ends(u):
        u = u * 1.0
        for _ in range(30):
            u = u + 0.1 * np.sin(u) * u[::-1]
        return u[:3]

    assert same(lambda: np.jacobian(ends)(np.array(X)))[0] > 0
    v = X[:7]

    def bent(u):
        for _ in range(20):
            u = u + 0.1 * np.sin(u) * u.mean()
        return (u * u).sum()

    assert same(lambda: np.hvp(bent, np.array(v), v))[0] > 0
    assert same(lambda: np.grad(lambda u: (np.grad(bent)(u) ** 2).sum())(np.array(v)))[0] > 0


def test_variables_and_pulls():
    def by_variable():
        x = np.variable(X)
        u = x.copy()
        for _ in range(40):
            u[1:] += 0.1 * np.sin(u[:-1])
        return (u * u).sum().grad(x)

    def by_pull():
        value, pull = np.vjp(lambda u: diffused(u) * u[0], np.array(X))
        return np.stack([pull(1.0)[0], pull(value)[0], pull(2.0)[0]])

    assert same(by_variable)[0] > 0
    assert same(by_pull)[0] > 0


def test_what_is_held_outside_has_its_value():
    def trajectory():
        def function(u):
            seen = []
            for _ in range(40):
                u = u + 0.1 * np.sin(u)
                seen.append(u)
            return (u * u).sum(), seen

        slope, seen = np.grad(function, has_aux=True)(np.array(X))
        return np.stack([slope, *seen])

    same(trajectory)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [*range(20), 159, 175])
def test_random_programs(seed, monkeypatch):
    choose = random.Random(seed)
    monkeypatch.setattr(np.config, "at_once", choose.choice([0, 1, 65536]))
    monkeypatch.setattr(np.config, "cut", choose.choice([5, 20, 60]))
    monkeypatch.setattr(segments, "LEAST_RUN", choose.choice([100, 2000, 1 << 16]))
    lines, x = written(seed, 20, [line for line in MOVES if not line.startswith("step(")])
    try:
        same(lambda: np.grad(lambda x: result(np, x, lines))(np.array(x)))
    except NoDerivative:
        pytest.skip("it has no derivative")


SMALL = numpy.random.default_rng(0).normal(size=700) * 0.5


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kernels", [False, True])
def test_what_is_computed_at_once(function, kernels, monkeypatch):
    monkeypatch.setattr(np.config, "at_once", 65536)
    monkeypatch.setattr(segments, "LEAST_RUN", 1 << 14)
    if kernels:  # what is recorded instead has other bits
        monkeypatch.setattr(np.config, "compile", "wait")
    found = same(lambda: np.grad(function)(np.array(SMALL)), (0, 60 * SMALL.nbytes, 2**40))
    assert found[0] > 0 and found[2] == 0


def test_memory_of_small_steps(monkeypatch):
    monkeypatch.setattr(np.config, "at_once", 65536)
    x = np.array(SMALL)
    most_held(4, x, 0)  # caches
    (few, _), (many, none) = (most_held(steps, x, None) for steps in (60, 240))
    (less, again), (bounded, more) = (most_held(steps, x, 30 * x.nbytes) for steps in (60, 240))
    assert none == 0 and many > few + 1500
    assert bounded - less < (many - few) / 5  # the nodes themselves are kept
    assert 0 < again < more


def most_held(steps, x, limit):
    """The most arrays like x that were held, and how many segments were computed again."""
    before = counters["computed again"]
    with np.config.override(grad_memory=limit, pool_bytes=0):
        tracemalloc.start()
        try:
            np.evaluate(np.grad(lambda u: diffused(u, steps))(x))
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    return held / x.nbytes, counters["computed again"] - before


def test_memory_of_a_time_loop():
    x = np.array(numpy.random.default_rng(0).normal(size=50_000))
    most_held(4, x, 0)  # caches
    (few, _), (many, none) = (most_held(steps, x, None) for steps in (16, 64))
    (less, again), (bounded, more) = (most_held(steps, x, 10 * x.nbytes) for steps in (16, 64))
    assert none == 0 and many > few + 60
    assert bounded < less + 12  # 4 times the steps, and not one array more for each five of them
    assert again < more < 4 * 64  # a step is about a stretch


def test_nothing_is_left_behind():
    gc.collect()
    before = len(segments._segments)  # of other tests
    with np.config.override(grad_memory=0):
        np.evaluate(np.grad(diffused)(np.array(X)))
        x = np.variable(X)
        kept = diffused(x).grad(x)
        del x, kept
        assert len(segments._segments) == before
