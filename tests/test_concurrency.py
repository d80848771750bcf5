"""Threads that record and evaluate at the same time; forked children."""

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from unittest import mock

import numpy
import pytest

import tiledarray as np
from tests.plans import filled
from tests.programs import difference, run, write_program
from tiledarray import config
from tiledarray.core import kind
from tiledarray.execution import known, launches, plans
from tiledarray.graph.program import trace
from tiledarray.recording import stretch

THREADS = 6


def in_threads(work, count=THREADS):
    """Run ``work(k)`` in so many threads that start together; return what they return."""
    barrier = threading.Barrier(count)

    def start(k):
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(count) as executor:
        return list(executor.map(start, range(count)))


@pytest.mark.parametrize("compile", ["never", "background", "wait"])
def test_each_thread_records_and_evaluates_its_own(compile):
    def work(k):
        x = filled(500, seed=k)
        expected = numpy.array(x)
        for step in range(60):
            x = x * 0.5 + numpy.float64(k)
            expected = expected * 0.5 + k
            x[1:-1] = (x[:-2] + x[2:]) * 0.5
            expected[1:-1] = (expected[:-2] + expected[2:]) * 0.5
            if step % 20 == k:
                numpy.testing.assert_allclose(float(x.sum()), expected.sum(), rtol=1e-12)
        numpy.testing.assert_allclose(numpy.asarray(x), expected, rtol=1e-12)

    with config.override(compile=compile, cut=30):
        in_threads(work)


def test_random_programs_in_threads():
    def work(k):
        complaints = []
        for seed in range(5000 + 10 * k, 5010 + 10 * k):
            program = write_program(seed)
            complaint = difference(program, run(program.lines, np, np.array, numpy.asarray))
            complaints += [f"{complaint}\n{program}"] if complaint else []
        return complaints

    with config.override(compile="never"):
        assert not list(chain.from_iterable(in_threads(work)))


@pytest.mark.parametrize("compile", ["never", "wait"])
def test_all_threads_look_at_the_same_arrays(compile):
    with config.override(compile=compile):
        for seed in range(10):
            x = filled(100, 50, seed=seed)
            y = np.exp(x) + x.mean(1)[:, None]
            total = y.sum(0)
            found = in_threads(lambda k, y=y, total=total: (
                numpy.asarray(y).copy(), numpy.asarray(total).copy(), numpy.asarray(y * k)))
            host = numpy.asarray(x)
            expected = numpy.exp(host) + host.mean(1)[:, None]
            for k, (left, right, product) in enumerate(found):
                numpy.testing.assert_allclose(left, expected, rtol=1e-12)
                numpy.testing.assert_allclose(right, expected.sum(0), rtol=1e-12)
                numpy.testing.assert_allclose(product, expected * k, rtol=1e-12)


def test_what_one_thread_recorded_another_evaluates():
    handed = in_threads(lambda k: np.sqrt(filled(64, seed=k)) + k)
    for k, array in enumerate(handed):
        expected = numpy.sqrt(numpy.asarray(filled(64, seed=k))) + k
        numpy.testing.assert_allclose(numpy.asarray(array), expected)


def test_an_array_that_another_thread_updates_is_one_of_its_values():
    shared = np.zeros(2000)
    stop = threading.Event()

    def write():
        for k in range(1, 300):
            np.evaluate(shared)
            shared[:] = float(k)
        stop.set()

    def read():
        while not stop.is_set():
            seen = shared.numpy()
            assert (seen == seen[0]).all()

    with config.override(compile="never"):
        in_threads(lambda k: read() if k else write(), 3)
    assert numpy.all(numpy.asarray(shared) == 299)


def test_recorders_are_apart():
    x = filled(10)
    y = x + 1
    pending = in_threads(lambda k: len(stretch.live_pending()), 2)
    assert pending == [0, 0]
    assert y.origin().node.pending
    assert not known.lock._is_owned()


# ---- forks -------------------------------------------------------------------------------------

FORKED = """
import os, sys, threading, warnings
import numpy
import tiledarray as np
from tiledarray import config

warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
config.compile = "{compile}"
config.threads = 4
x = np.array(numpy.arange(300_000.0))
before = numpy.asarray(np.sqrt(x) + x.mean())  # the pool's threads run
pending = np.sqrt(x) * 2
stop = threading.Event()

def busy():
    y = np.array(numpy.arange(50_000.0))
    while not stop.is_set():
        float((y * 3).sum())

if {busy}:
    threading.Thread(target=busy, daemon=True).start()
for _ in range({times}):
    child = os.fork()
    if child == 0:
        good = numpy.array_equal(numpy.asarray(pending), numpy.sqrt(numpy.asarray(x)) * 2)
        good &= numpy.array_equal(numpy.asarray(np.sqrt(x) + x.mean()), before)
        good &= abs(float((x * 0.25).sum()) - 300_000 * 299_999 / 8) < 1e-3
        y = np.zeros(1000)
        for _ in range(50):
            y[1:-1] = (y[2:] + y[:-2]) * 0.5 + 1
        good &= bool(numpy.isfinite(numpy.asarray(y)).all())
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
stop.set()
assert numpy.array_equal(numpy.asarray(pending), numpy.sqrt(numpy.asarray(x)) * 2)
print("fine")
"""


@pytest.mark.sampled(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("compile", ["never", "background", "wait"])
def test_a_forked_child_goes_on(compile, busy):
    text = textwrap.dedent(FORKED).format(compile=compile, busy=busy, times=3)
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "fine"


BUILDING = """
import os, threading, time
from pathlib import Path
from tiledarray.execution import known, running  # all locks, before what is registered below
from tiledarray.kernels.compile import cache

building, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # registered last, it is called first

def build():
    building.set()
    forking.wait()
    time.sleep(0.2)  # the forking thread waits for the evaluation's lock now
    return b"built"

def work():
    with known.lock:
        cache.get_or_build(cache.key("a"), ".txt", build)

thread = threading.Thread(target=work)
thread.start()
building.wait()
child = os.fork()
entry = cache.get_or_build(cache.key("a"), ".txt", lambda: os._exit(2))
other = cache.get_or_build(cache.key("b"), ".txt", lambda: b"other")
good = (entry.data, other.data) == (b"built", b"other")
if child == 0:
    os._exit(0 if good else 1)
thread.join()
_, status = os.waitpid(child, 0)
assert status == 0 and good, status
print("fine")
"""

LOADING = """
import os, threading, time
import tiledarray as np
from tiledarray.execution import known

inside, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # registered last, it is called first

def work():
    with known.lock:
        from tiledarray.kernels.compile import cache  # the first part of the planner
        assert not known.planner_is_loaded()
        inside.set()
        forking.wait()
        time.sleep(0.2)  # the forking thread waits for the evaluation's lock now
        with np.config.override(first_seconds=0.0, at_once=0, compile="wait"):
            assert float((np.ones(2000) * 3).sum()) == 6000
        assert known.planner_is_loaded()

thread = threading.Thread(target=work)
thread.start()
inside.wait()
child = os.fork()
good = float((np.ones(300_000) * 3 + 1).sum()) == 1_200_000
if child == 0:
    os._exit(0 if good else 1)
thread.join()
_, status = os.waitpid(child, 0)
assert status == 0 and good, status
print("fine")
"""

HELD = """
import os, threading
import tiledarray as np
from tiledarray import config
from tiledarray.execution import executable, known
from tiledarray.kernels.compile import cache, host, process
from tiledarray.devices import device
from tiledarray.devices.pool import host_pool

x = np.arange(1000.0)
twice = np.jit(lambda x: x * 2)
for lock in (config._lock, device._lock, host_pool.lock, cache._lock, host._lock, process._lock,
             executable._compiled._lock, known.lock):
    taken = threading.Event()

    def hold():
        with lock:
            taken.set()
            threading.Event().wait(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        with config.override(compile="never"):
            good = float((twice(x) + np.ones(1000)).sum()) == 1000 * 1000
        free = lock.acquire(timeout=1)
        os._exit(0 if good and free else 1)
    thread.join()
    _, status = os.waitpid(child, 0)
    assert status == 0, (lock, status)
print("fine")
"""

QUEUED = """
import os, threading
import tiledarray as np
from tiledarray.execution import plans
from tiledarray.execution.executable import Executable
from tiledarray.graph.program import trace

compile, begun, go_on = Executable.compile, threading.Event(), threading.Event()

def slowly(executable):
    begun.set()
    go_on.wait()
    compile(executable)

Executable.compile = slowly
node = (np.arange(1000.0) * 2).node
made = plans.executable_for(trace([node]), node.device)
made.compile_in_background()
begun.wait()
child = os.fork()
go_on.set()
if child == 0:
    made.compile_in_background()  # its parent's thread was at it, and is not here
for _ in range(600):
    if made.ready:
        break
    threading.Event().wait(0.1)
if child == 0:
    os._exit(0 if made.ready else 1)
_, status = os.waitpid(child, 0)
assert status == 0 and made.ready, (status, made.ready)
print("fine")
"""


IMPORTING = """
import faulthandler, os, signal, threading, time
import numpy, tiledarray as np

def work():
    assert float((np.sqrt(np.array(numpy.arange(5000.0))) + 1).sum()) > 0
    np.fori_loop(3, lambda k, u: u * 0.5 + 1, np.array(numpy.ones(500))).numpy()
    np.grad(lambda u: (u * u).sum())(np.array(numpy.ones(500))).numpy()

other = threading.Thread(target=work)
other.start()
time.sleep({delay})
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(20, exit=True)
    work()
    os._exit(0)
other.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("fine")
"""


# Each child is cold: its threads make what is first needed at the same time.
FRESH = """
import os, sys, threading
import numpy, tiledarray

THREADS = 8

def add(u, part, k):
    v = u[part]
    v += k + 1

def fill(u, part, k):
    u[part] = k + 1

def count(u, part, k):
    for place in range(part.start, part.start + 5):
        u[place] = u[place] + k

def double(u, part, k):
    u[part] = u[part] * 2 + numpy.linspace(0.0, k, part.stop - part.start)

def scatter(u, part, k):
    u[[part.start, part.start + 5, part.stop - 1]] = k + 1

def mask(u, part, k):
    v = u[part]
    v[v > -1] = k + 1

def put(u, part, k):
    numpy.put(u, numpy.arange(part.start, part.stop, 2), k + 1)

def add_at(u, part, k):
    numpy.add.at(u, numpy.arange(part.start, part.stop, 2), k + 1)

def several(u, part, k):
    for place in range(6):
        v = u.reshape(-1, THREADS)[:, k]
        v += 1
        numpy.put(v, [37 * place + j for j in range(10)], k)

def either(u, part, k):
    (scatter if k % 2 else add)(u, part, k)

def work(u, k, write):
    part = slice(k * SIZE, (k + 1) * SIZE)
    write(u, part, k)
    if write not in RECORDED:
        u[part][1:-1] *= 1.5

def tried(make, write):
    sys.setswitchinterval(1e-5)  # a fork forgets it
    u, barrier = make(tiledarray), threading.Barrier(THREADS)
    expected, failed = make(numpy), []
    threading.excepthook = failed.append

    def run(k):
        barrier.wait()
        work(u, k, write)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(THREADS):
        work(expected, k, write)
    return not failed and numpy.array_equal(numpy.asarray(u), expected)

def zeros(np):
    return np.zeros(THREADS * SIZE)

def progression(np):
    return np.arange(float(THREADS * SIZE))

def columns(np):
    return np.zeros((SIZE, THREADS)).T.reshape(-1)

def expression(np):
    return np.ones(THREADS * SIZE) * 2 + 1

RECORDED = scatter, mask, put, add_at, either, several
AT_ONCE = add, fill, count, double
wrong = []
for SIZE, makes, writes in ((600, 2 * [zeros, progression, columns], AT_ONCE),
                            (20_000, 2 * [expression, progression], RECORDED[:-1]),
                            (25_000, 6 * [zeros], (several,)),
                            (200_000, [zeros], AT_ONCE)):
    for make in makes:
        for write in writes:
            child = os.fork()
            if child == 0:
                os._exit(0 if tried(make, write) else 1)
            if os.waitpid(child, 0)[1]:
                wrong.append((SIZE, make.__name__, write.__name__))
assert not wrong, wrong
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("core", ["c", "python"])
def test_threads_that_are_the_first_to_write_into_an_array(core, tmp_path):
    if core == "c" and kind != "c":
        pytest.skip("the extension may not be built")
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FRESH],
        capture_output=True, text=True, timeout=120, cwd=root,
        env={**os.environ, "PYTHONPATH": root, "TILEDARRAY_CACHE_DIR": str(tmp_path),
             "TILEDARRAY_CORE": core, "TILEDARRAY_AT_ONCE": "16384"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "fine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("delay", [0.004, 0.015, 0.04])
def test_a_fork_while_another_thread_loads_parts_of_the_library(delay, tmp_path):
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IMPORTING.format(delay=delay)],
        capture_output=True, text=True, timeout=60, cwd=root,
        env={**os.environ, "PYTHONPATH": root, "TILEDARRAY_CACHE_DIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "fine"


@pytest.mark.sampled(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("text", [BUILDING, LOADING, HELD, QUEUED])
def test_a_fork_meets_what_other_threads_hold(text, tmp_path):
    root = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text], capture_output=True,
        text=True, timeout=60, cwd=root,
        env={**os.environ, "PYTHONPATH": root, "TILEDARRAY_CACHE_DIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "fine" and not result.stderr


def test_threads_fill_parts_of_one_array():
    rows, times = 8, 20
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with config.override(compile="never", at_once=0):
            for _ in range(3):
                shared = np.zeros((rows, 500))

                def add(k, shared=shared):
                    for j in range(times):
                        np.add(shared[k], 1, out=shared[k])
                        shared[k, j] = j

                in_threads(add, rows)
                numpy.testing.assert_array_equal(
                    numpy.asarray(shared)[:, times:], numpy.full((rows, 500 - times), times)
                )
    finally:
        sys.setswitchinterval(before)


@pytest.mark.compiler
def test_counters_are_made_with_the_launch():
    """Threads that plan at once would make them twice, and one write into what is freed."""
    with config.override(at_once=0):
        node = np.sqrt(np.arange(300_000.0)).sum().node
    made = plans.executable_for(trace([node]), node.device)
    made.compile()
    (launch,) = (each for each in made.launches.values() if each.binding.counters)
    with mock.patch.object(launches.np, "zeros", side_effect=AssertionError):
        assert launch.counters(1) == launch.counters(1) != 0


def test_an_array_has_one_node_whoever_asks_first():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with config.override(at_once=8):
            for _ in range(200):
                x = np.zeros(2000)
                x[0] = 1.0
                assert x._array is not None  # it has none yet
                found = in_threads(lambda k, x=x: x.origin()._node, 3)
                assert len(set(map(id, found))) == 1
    finally:
        sys.setswitchinterval(before)
