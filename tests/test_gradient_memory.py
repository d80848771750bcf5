"""Histories end: loops of gradients take no more memory the longer they run."""

import tracemalloc

import numpy
import pytest

import tiledarray as np


@pytest.fixture(autouse=True)
def op_by_op(monkeypatch):
    """What is met once is not worth compiling."""
    monkeypatch.setattr(np.config, "first_seconds", 100.0)


class Kept:
    """Counts the nodes whose history is wanted, beyond those there were."""

    def __init__(self):
        self.first = np.variable(numpy.zeros(2)).node

    def __call__(self):
        return len(self.first.kept_since())


def growth(step, warm, steps):
    """The least number of bytes by which a loop grows in one of twelve stretches.

    Caches of the process fill in one of them, and what nobody looks at is recorded until it is cut
    (after up to 1,600 operations); a leak grows in all.
    """
    for _ in range(warm):
        step()
    tracemalloc.start()
    try:
        for _ in range(20):
            step()
        used = [tracemalloc.get_traced_memory()[0]]
        for _ in range(12):
            for _ in range(steps):
                step()
            used.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return min(numpy.diff(used))


@pytest.mark.parametrize("at_once", [1, 65536])
def test_an_optimizer_does_not_grow(monkeypatch, at_once):
    monkeypatch.setattr(np.config, "at_once", at_once)
    monkeypatch.setattr(np.config, "verify", False)
    kept, log = Kept(), {"sum": np.array(0.0), "last": None}
    w = np.array(numpy.random.default_rng(0).random(50))

    def loss(w):
        found = ((w - 1.0) ** 2).sum()
        log["sum"], log["last"] = log["sum"] + 2 * found, w * 2
        return found

    def step():
        nonlocal w
        w = w - 0.1 * np.grad(loss)(w)
        float(w[0])

    assert growth(step, 900, 100) < 50_000
    assert kept() == 0
    numpy.testing.assert_allclose(w, numpy.ones(50))


def test_an_optimizer_with_variables_does_not_grow():
    kept = Kept()
    w = np.variable(numpy.random.default_rng(0).random(50))

    def step():
        nonlocal w
        loss = ((w - 1.0) ** 2).sum()
        w = np.variable(w - 0.1 * loss.grad(w))
        float(w[0])

    assert growth(step, 300, 150) < 50_000
    assert kept() < 10


def test_pulls_that_are_not_called_keep_nothing():
    kept = Kept()
    value = np.array(numpy.ones(5))
    for _ in range(100):
        value, _ = np.vjp(lambda x: np.sin(x) * 2, value)
    del _
    assert kept() == 0


@pytest.mark.timeout(120)  # a step that walked over those before would take far longer
def test_a_history_of_twenty_thousand_steps_in_place(monkeypatch):
    monkeypatch.setattr(np.config, "verify", False)
    x = np.variable(numpy.linspace(0, 1, 7))
    u = x.copy()
    for k in range(20_000):
        u[1:] += 1e-4 * u[:-1]
        if k % 5000 == 0:
            float(u.sum())
    slope = u.sum().grad(x)
    wanted = numpy.linalg.matrix_power(numpy.eye(7) + 1e-4 * numpy.eye(7, k=-1), 20_000).sum(0)
    numpy.testing.assert_allclose(slope, wanted, rtol=1e-9)
    del u, slope, x  # nodes are buried without recursion


def held_at_most(function, *args):
    """The most bytes that arrays held while a function ran, and what it returned."""
    tracemalloc.start()
    try:
        found = np.evaluate(function(*args))
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def diffused(steps):
    def function(u):
        u = u.copy()
        for _ in range(steps):
            u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) * np.cos(u[1:-1])
        return (u * u).sum()

    return np.grad(function)


def test_a_backward_pass_lets_go_of_what_it_has_computed(monkeypatch):
    for name, value in {"pool_bytes": 0, "compile": "never", "verify": False, "cut": 60}.items():
        monkeypatch.setattr(np.config, name, value)
    x = np.array(numpy.random.default_rng(0).normal(size=50_000))
    few, many = (  # the least of some: what waits to be collected comes on top
        min(held_at_most(diffused(steps), x)[0] for _ in range(4)) / x.nbytes for steps in (20, 60))
    assert many - few < 0.6 * 40  # arrays a step; before it let go there were 2.3


def test_second_derivatives_keep_what_they_ask_for():
    x = np.array(numpy.linspace(0.1, 1, 7))

    def function(x):
        for _ in range(60):
            x = x + 0.01 * np.sin(x) * x[::-1]
        return (x * x).sum()

    hessian = numpy.asarray(np.hessian(function)(x))
    v = numpy.asarray(np.grad(lambda x: (np.grad(function)(x) ** 2).sum())(x))
    slope = numpy.asarray(np.grad(function)(x))
    numpy.testing.assert_allclose(hessian, hessian.T)
    numpy.testing.assert_allclose(v, 2 * hessian @ slope)
