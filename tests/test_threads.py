"""The host thread pool, driven by small compiled kernels."""

import ctypes
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from tiledarray import config
from tiledarray.devices import threads as devices_threads
from tiledarray.devices.threads import all_of, available_cpus, in_turns, together
from tiledarray.errors import OutOfMemory
from tiledarray.kernels.compile import host

pytestmark = pytest.mark.skipif(host.available() is not None, reason="no C++ compiler")

SOURCE = """
#include <cstdint>
#include <cstring>
#include <pthread.h>
#include <time.h>
struct Args { int64_t* count; uint64_t* thread; int64_t scratch; int64_t pause_us; };
extern "C" void touch(const Args* a, int64_t begin, int64_t end, char* scratch) {
    if (a->scratch) {
        if (reinterpret_cast<uintptr_t>(scratch) % 64) return;
        memset(scratch, int(begin), a->scratch);
    }
    for (int64_t i = begin; i < end; ++i) {
        a->count[i] += 1;
        a->thread[i] = uint64_t(pthread_self());
    }
    if (a->pause_us) {
        timespec pause{0, long(a->pause_us) * 1000};
        nanosleep(&pause, nullptr);
    }
    for (int64_t k = 0; k < a->scratch; ++k)
        if (scratch[k] != char(begin)) a->count[begin] += 1000;
}
"""


class Launch:
    """Counts how often each block ran, and in which thread."""

    def __init__(self, blocks, scratch=0, pause_us=0):
        self.blocks, self.scratch = blocks, scratch
        self.count = np.zeros(blocks, np.int64)
        self.thread = np.zeros(blocks, np.uint64)
        self.pause_us = pause_us

    def run(self, grain=1):
        kernel = host.compile_source(SOURCE, "touch", contract=False)
        launch = ctypes.create_string_buffer(struct.pack(
            "8q", kernel.address, self.blocks, grain, self.scratch,
            self.count.ctypes.data, self.thread.ctypes.data, self.scratch, self.pause_us,
        ))  # fmt: skip
        host.pool().run(ctypes.addressof(launch))
        return self


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    with config.override(threads=request.param):
        yield request.param


@pytest.mark.parametrize("blocks, grain", [(1, 1), (2, 1), (7, 3), (64, 64), (1000, 1), (999, 10)])
def test_every_block_runs_once(threads, blocks, grain):
    for _ in range(20):
        assert (Launch(blocks, scratch=100).run(grain).count == 1).all()
    assert host.pool().threads == threads


def test_no_blocks_is_no_work(threads):
    Launch(0).run()


def test_work_is_shared_by_the_threads_asked_for(threads):
    launch = Launch(40, pause_us=2000).run()
    assert (launch.count == 1).all()
    used = set(launch.thread)
    assert len(used) <= threads
    assert len(used) > 1 or threads == 1


def test_a_single_chunk_stays_in_the_calling_thread():
    with config.override(threads=4):
        assert set(Launch(8).run(grain=8).thread) == {threading.get_ident()}


def test_sleeping_workers_wake_up():
    with config.override(threads=2):
        for _ in range(5):
            time.sleep(0.002)
            launch = Launch(4, pause_us=2000).run()
            assert (launch.count == 1).all() and len(set(launch.thread)) == 2


def test_scratch_grows(threads):
    for size in (1, 64, 1000, 1 << 20, 10):
        assert (Launch(50, scratch=size).run().count == 1).all()


def test_impossible_scratch_is_an_error():
    launch = Launch(4)
    launch.scratch = 1 << 60
    with pytest.raises(OutOfMemory):
        launch.run()
    assert (launch.count == 0).all()


def test_many_python_threads_launch_at_once():
    wrong = []

    def work():
        for turn in range(200):
            if (Launch(1 + turn % 17, scratch=64).run().count != 1).any():
                wrong.append(turn)

    with config.override(threads=3):
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not wrong


def test_resizing_between_launches():
    for count in (3, 1, 4, 2, 2, 5):
        with config.override(threads=count):
            assert (Launch(100).run().count == 1).all()
    with pytest.raises(ValueError, match="at least one"):
        host.pool().resize(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_working_threads():
    with config.override(threads=3):
        Launch(100).run()
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # a hanging child dies
            launch = Launch(40, pause_us=1000).run()
            os._exit(0 if (launch.count == 1).all() and len(set(launch.thread)) > 1 else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (Launch(100).run().count == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_launches():
    with config.override(threads=3):
        Launch(100).run()
        busy = threading.Thread(target=lambda: Launch(100, pause_us=1000).run())
        busy.start()
        time.sleep(0.01)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            os._exit(0 if (Launch(100).run().count == 1).all() else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        busy.join()


def test_a_process_ends_while_workers_sleep():
    code = ("from tiledarray.kernels.compile import host; "
            "import test_threads as t; t.Launch(50).run()")
    environment = {**os.environ, "TILEDARRAY_THREADS": "4",
                   "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    result = subprocess.run([sys.executable, "-c", code], env=environment, timeout=20,
                            capture_output=True, text=True)  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")


def test_an_interrupt_is_raised_when_the_others_have_ended():
    ended = []

    def work(number):
        if number:
            time.sleep(0.3)
            ended.append(number)

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        together(work, range(3))
    assert sorted(ended) == [1, 2]
    timer.join()


def test_all_of_stops_at_the_first_error_and_at_the_time_limit():
    done = []

    def work(number):
        time.sleep(0.02)
        done.append(number)
        if number == 3:
            raise KeyError(number)
        return -number

    assert all_of(work, range(3), 2) == [0, -1, -2]
    with pytest.raises(KeyError):
        all_of(work, range(100), 2)
    with pytest.raises(TimeoutError, match=r"0\.1 seconds"):
        all_of(lambda number: time.sleep(0.4), [1], 1, 0.1)
    time.sleep(0.1)
    assert len(done) < 20


def test_a_signal_that_does_not_end_the_wait_is_seen_soon():
    class Raised(Exception):
        pass

    def handler(*_):
        raise Raised

    def work(number):
        time.sleep(0.3)  # by then it waits
        if number == 0:  # the thread that waits is not woken by what another one is told
            signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
        time.sleep(5)

    before = signal.signal(signal.SIGALRM, handler)
    started = time.monotonic()
    try:
        with pytest.raises(Raised):
            all_of(work, range(2), 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 4


def test_available_cpus():
    assert 1 <= available_cpus() <= os.cpu_count()


# ---- pieces that threads take from one another -----------------------------------------------


@pytest.mark.parametrize("pieces", [0, 1, 2, 50])
@pytest.mark.parametrize("threads", [1, 2, 9])
def test_every_piece_is_done_once(pieces, threads):
    for _ in range(20):
        done = []
        in_turns(done.append, range(pieces), threads)
        assert sorted(done) == list(range(pieces))


def test_a_piece_that_a_helper_is_at_is_waited_for():
    done, own = [], threading.get_ident()

    def work(piece):
        if threading.get_ident() != own:
            time.sleep(0.05)
        else:
            time.sleep(0.002)
        done.append(threading.get_ident())

    in_turns(work, range(20), 2)
    assert len(done) == 20


def test_helpers_that_come_too_late_are_not_waited_for_and_keep_nothing(monkeypatch):
    given = []
    monkeypatch.setattr(devices_threads._helpers, "give", given.extend)
    kept = np.ones(3)
    done = []
    in_turns(lambda piece, held=kept: done.append(piece), range(4), 3)
    assert done == [0, 1, 2, 3] and len(given) == 2
    alive = weakref.ref(kept)
    del kept
    gc.collect()
    assert alive() is None
    given[0]()
    assert len(done) == 4


@pytest.mark.parametrize("place", [0, 7, 19])
def test_the_error_of_a_piece_is_raised_and_the_rest_left(place):
    done = []

    def work(piece):
        if piece == place:
            raise KeyError(piece)
        time.sleep(0.001)
        done.append(piece)

    with pytest.raises(KeyError):
        in_turns(work, range(20), 3)
    count = len(done)
    time.sleep(0.02)
    assert len(done) == count < 20  # nobody writes any more


def test_a_thread_that_never_begins_is_given_up(monkeypatch):
    """Without memory Python starts threads that end before they have begun."""
    monkeypatch.setattr(devices_threads, "START_SECONDS", 0.01)
    monkeypatch.setattr(devices_threads._thread, "start_new_thread", lambda function, arguments: 1)
    assert devices_threads.in_background(lambda: None) is False
    assert all_of(lambda x: x + 1, [1, 2, 3], workers=2) == [2, 3, 4]
    helpers = devices_threads._Helpers()
    assert helpers.give([lambda: None]) is False
