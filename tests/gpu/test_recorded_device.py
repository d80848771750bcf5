"""Plans that are met again and run by the core, on a real CUDA device.  Run with ``-m gpu``."""

import threading

import numpy
import pytest

import tiledarray as np
from tiledarray.core import kind, run_known
from tiledarray.execution import instructions
from tiledarray.execution.executable import Executable

pytestmark = pytest.mark.gpu
written_in_c = pytest.mark.skipif(kind != "c", reason="the twin leaves it to Python")


@pytest.fixture(autouse=True)
def on_device():
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    with np.config.override(compile="wait", at_once=0, first_seconds=0.0):
        yield cupy


def by_core(x):
    """Evaluate an array; whether the core did so by itself."""
    done = run_known([x.origin()._node])
    np.evaluate(x)
    return done


def heated(u, rate=0.1):
    u[1:-1, 1:-1] += rate * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
    u[0] = rate
    return u


def scaled_rows(u, rate=0.1):
    u[1:-1] *= rate / abs(u).sum(axis=1, keepdims=True)[1:-1]
    return u


def summed(u, rate=0.1):
    """Sums of blocks that share a reduction, so scratch and counters."""
    u[3:-3] += rate * u.sum() - u.mean(axis=0)
    return u


def apart(u, rate=0.1):
    return u * rate + u.sum(axis=0) - u[::-1]


@written_in_c
@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("shape", [(40, 50), (1500, 700)], ids=str)
@pytest.mark.parametrize("program", [heated, scaled_rows, summed, apart])
@pytest.mark.parametrize("own", [instructions.KEPT_BYTES, 0])
def test_loops_are_run_by_the_core_and_right(program, shape, device, own, monkeypatch):
    monkeypatch.setattr(instructions, "KEPT_BYTES", own)  # of scratch and temporaries
    start = numpy.random.default_rng(0).random(shape) + 0.5
    with np.config.override(device=device):
        u, wanted, kept, found = np.array(start), start, [], []
        for step in range(14):
            rate = (0.1, 0.2, -0.0, 0.0)[step % 4] + 0.01 * (step > 8)
            if step in (5, 10):
                kept.append((u, wanted))
                u, wanted = u + 0.0, wanted + 0.0
                np.evaluate(u)
            u, wanted = program(u, rate), program(wanted, rate)
            found.append(by_core(u))
        assert not found[0] and found[-1]
        numpy.testing.assert_allclose(u.numpy(), wanted, rtol=1e-9, atol=1e-12)
        for ours, theirs in kept:
            numpy.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-12)


@written_in_c
def test_what_has_a_copy_on_the_host_is_decided_anew():
    with np.config.override(device="auto"):
        wanted = numpy.random.default_rng(0).random((1500, 1500))
        u = np.array(wanted)
        for _ in range(8):
            done = by_core(heated(u))
            heated(wanted)
        assert done
        assert float(u[3, 4]) == pytest.approx(wanted[3, 4], rel=1e-12)
        before = u.numpy().copy()
        assert not by_core(heated(u))
        numpy.testing.assert_allclose(before, wanted, rtol=1e-10)
        heated(wanted)
        numpy.testing.assert_allclose(u.numpy(), wanted, rtol=1e-10)


@written_in_c
def test_each_stream_has_its_own(on_device):
    with np.config.override(device="cuda"):
        start = numpy.random.default_rng(0).random((900, 800))
        u, wanted = np.array(start), start.copy()
        for _ in range(5):
            done = by_core(summed(u))
            summed(wanted)
        assert done
        on_device.cuda.get_current_stream().synchronize()
        with on_device.cuda.Stream(non_blocking=True) as other:
            assert not by_core(summed(u))
            other.synchronize()
        summed(wanted)
        numpy.testing.assert_allclose(u.numpy(), wanted, rtol=1e-9)


def test_threads_that_meet_the_same_plan():
    problems = []

    def work(seed):
        try:
            with np.config.override(device="cuda"):
                wanted = numpy.random.default_rng(seed).random((300, 200))
                u = np.array(wanted)
                for step in range(40):
                    summed(heated(u, 0.1 * seed))
                    summed(heated(wanted, 0.1 * seed))
                    if step % 7 == 0:
                        np.evaluate(u)
                numpy.testing.assert_allclose(u.numpy(), wanted, rtol=1e-8)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@written_in_c
def test_many_launches_are_one_graph(monkeypatch):
    monkeypatch.setattr(instructions, "STARTED_SINGLY", 1)
    replays = []
    monkeypatch.setattr(Executable, "run", lambda self, *args, run=Executable.run, **given: (
        replays.append(self.replay is not None), run(self, *args, **given))[1])
    with np.config.override(device="cuda"):
        wanted = numpy.random.default_rng(0).random((900, 800))
        u = np.array(wanted)
        for _ in range(6):
            assert not by_core(summed(u))
            summed(wanted)
        assert replays[-1]
        numpy.testing.assert_allclose(u.numpy(), wanted, rtol=1e-9)
