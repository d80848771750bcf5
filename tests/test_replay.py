"""Recorded plans that run by one launch, as they do on a GPU (here their kernels, one by one)."""

import numpy as np
import pytest

import tiledarray as ta
from tiledarray import config
from tiledarray.execution import replay, running
from tiledarray.execution.executable import Executable

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def settings():
    with config.override(at_once=0, compile="wait", device="cpu"):
        yield
    replay._prepared.clear()


@pytest.fixture
def replayed(monkeypatch):
    """Every plan of more than one launch is replayed from its first run on; whether, in a list."""
    runs = []
    monkeypatch.setattr(replay, "_most_bytes", lambda device: 1 << 28)
    # The core would run it.
    monkeypatch.setattr(running, "tell_core", lambda *plan, **known: None)
    run = Executable.run

    def prepared(self, leaves, params, *rest):
        if self.replay is None:
            replay.prepare(self, params)
        runs.append(self.replay is not None)
        return run(self, leaves, params, *rest)

    monkeypatch.setattr(Executable, "run", prepared)
    return runs


def smooth(lib, u, rate):
    """Several kernels: what is averaged is needed before anything is changed."""
    centred = u - u.mean(axis=0)
    return centred / lib.sqrt((centred * centred).sum(axis=1, keepdims=True) + rate)


def test_scalars_change(replayed):
    values = np.random.default_rng(3).random((40, 30))
    u = ta.asarray(values)
    for rate in (0.5, 0.25, 0.25, 1.5):
        found = smooth(ta, u, rate)
        np.testing.assert_allclose(found.numpy(), smooth(np, values, rate), rtol=1e-12)
    assert any(replayed)


@pytest.mark.parametrize("scalars", [(0.0, -0.0, 0.0), (1j, complex(-0.0, 1.0), 1j)])
def test_scalars_that_are_equal_need_not_be_the_same(replayed, scalars):
    values = np.ones((20, 20), type(scalars[0]))
    u = ta.asarray(values)

    def product(lib, x, scalar):
        scaled = x * scalar
        return scaled, smooth(lib, scaled + 3, 1.5)

    for scalar in scalars:
        (found, other), (wanted, _) = product(ta, u, scalar), product(np, values, scalar)
        ta.evaluate(found, other)
        for part in ("real", "imag"):
            np.testing.assert_array_equal(np.signbit(getattr(found.numpy(), part)),
                                          np.signbit(getattr(wanted, part)))
    assert all(replayed) and len(replayed) == 3


def test_writes_in_place_happen_once(replayed):
    values = np.random.default_rng(5).random((50, 40))
    u, expected = ta.asarray(values.copy()), values.copy()
    for _ in range(6):
        for lib, x in ((ta, u), (np, expected)):
            x[1:-1] += 0.5 * (x.mean(axis=0) - x[1:-1])
            x *= 1 + lib.sqrt(x.var(axis=1, keepdims=True))
        ta.evaluate(u)
    np.testing.assert_allclose(u.numpy(), expected, rtol=1e-10)
    assert any(replayed)


def test_results_do_not_share_memory_with_later_ones(replayed):
    values = np.random.default_rng(7).random((40, 30))
    u = ta.asarray(values)
    kept = []
    for rate in (1.0, 2.0, 3.0):
        kept.append(smooth(ta, u, rate))
        ta.evaluate(kept[-1])
    for rate, found in zip((1.0, 2.0, 3.0), kept, strict=True):
        np.testing.assert_allclose(found.numpy(), smooth(np, values, rate), rtol=1e-12)


def test_an_interruption_loses_nothing(replayed, monkeypatch):
    values = np.random.default_rng(9).random((50, 40))
    u, expected = ta.asarray(values.copy()), values.copy()

    def step(x):
        x[1:-1] += 0.5 * (x.mean(axis=0) - x[1:-1])

    step(u)
    ta.evaluate(u)
    step(expected)
    outputs = Executable.outputs
    monkeypatch.setattr(Executable, "outputs", lambda self, buffers: 1 / 0)
    step(u)
    with pytest.raises(ZeroDivisionError):
        ta.evaluate(u)
    monkeypatch.setattr(Executable, "outputs", outputs)
    step(expected)
    np.testing.assert_allclose(u.numpy(), expected, rtol=1e-10)


def test_memory_of_their_own_is_bounded(replayed, monkeypatch):
    monkeypatch.setattr(replay, "PREPARED", 2)
    for n in range(20, 26):
        u = ta.asarray(np.ones((n, n)))
        smooth(ta, u, 1.0).numpy()
    assert len(replay._prepared) <= 2
    monkeypatch.setattr(replay, "_most_bytes", lambda device: 0)
    u = ta.asarray(np.ones((27, 27)))
    u = u - u.mean(axis=0)
    assert np.abs(u.numpy()).max() == 0
