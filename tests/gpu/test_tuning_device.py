"""Tuning on a real CUDA device: whatever plan has its turn, the values are NumPy's."""

import numpy
import pytest

import tiledarray as np
from tests.plans import let_compile, plan_of
from tiledarray import config, jit
from tiledarray.execution import known, tuning
from tiledarray.execution.executable import Executable
from tiledarray.insight.explain import explain
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_device(a_device, monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "GAIN", 0.0)  # some other plan wins more often than not
    local.recorder.reset()
    known.executables.clear()
    with (np.device("cuda"), config.override(
            compile="wait", verify=False, at_once=0, cache_dir=tmp_path / "cache", tune=True)):
        yield
    local.recorder.reset()


def drawn(*shape):
    return numpy.random.default_rng(0).random(shape).astype("f4")


def softmax(xp, x):
    e = xp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


PROGRAMS = {
    "map": (lambda xp, x: xp.sqrt(x * 2.0 + 1.0) * xp.sin(x), (700, 1001)),
    "stencil": (lambda xp, x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1]
                - x[1:-1, :-2] - x[1:-1, 2:], (700, 1001)),
    "softmax": (softmax, (600, 3000)),
    "short rows": (softmax, (4000, 100)),
    "sum": (lambda xp, x: (x * x).sum(), (700, 1001)),
    "columns": (lambda xp, x: (x - x.mean(axis=0)) / x.std(axis=0), (900, 1003)),
    "running sums": (lambda xp, x: xp.cumsum(x - 0.5, axis=-1), (300, 5000)),
    "running columns": (lambda xp, x: xp.cumsum(x - 0.5, axis=0), (500, 2000)),
    "pairs": (lambda xp, x: ((x[:, None, :3] - x[None, :, :3]) ** 2).sum(-1).min(1), (900, 3)),
}


def tuned():
    """The plans that have been tuned."""
    return [made for made in known.executables.values()
            if isinstance(made, Executable) and made.tuning is not None
            and made.tuning.found is not None]


def settle(step, runs=150):
    for number in range(runs):
        step()
        if number == 0:
            let_compile()
        if number > 60:
            let_compile()
            if tuned():
                break
    step()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("jitted", [False, True])
def test_values_are_numpys_whoever_has_its_turn(name, jitted):
    compute, shape = PROGRAMS[name]
    x = drawn(*shape)
    ours, wanted = np.array(x), compute(numpy, x.astype("f8"))
    call = jit(lambda x: compute(np, x)) if jitted else lambda x: compute(np, x)
    results = []

    def step():
        results[:] = [call(ours)]
        numpy.testing.assert_allclose(numpy.asarray(results[0]), wanted, rtol=2e-4, atol=2e-4)

    settle(step)
    assert tuned()
    assert "  tuned: " in str(explain(results[0]))


def test_writes_in_place_are_applied_once():
    u, ours = drawn(300, 400), np.array(drawn(300, 400))

    def step():
        for x in (u, ours):
            x[1:-1, 1:-1] += numpy.float32(0.1) * (x[:-2, 1:-1] + x[2:, 1:-1] - 2 * x[1:-1, 1:-1])
        numpy.testing.assert_allclose(numpy.asarray(ours), u, rtol=1e-4, atol=1e-5)

    settle(step)
    assert tuned()


def test_the_next_process_begins_with_what_was_taken():
    x = drawn(500, 2000)
    ours = np.array(x)
    settle(lambda: numpy.asarray(np.cumsum(ours - 0.5, axis=0)))
    (made,) = tuned()
    sources = made.used().sources()
    known.executables.clear()
    result = np.cumsum(ours - 0.5, axis=0)
    numpy.testing.assert_allclose(numpy.asarray(result), numpy.cumsum(x - 0.5, axis=0, dtype="f8"),
                                  rtol=1e-3, atol=1e-3)
    assert plan_of(result) is not made.plan
    assert result.origin().node.buffer.plan.sources() == sources
