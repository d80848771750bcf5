"""The host thread pool, seen from Python: loads what ``threads.cpp`` compiles to."""

from __future__ import annotations

import _thread
import ctypes
import functools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from sys import is_finalizing
from typing import Any, TypeVar

from tiledarray import config
from tiledarray.errors import OutOfMemory, raised_outside
from tiledarray.fork import free_imports

LOOK_SECONDS = 0.5  # between looks for signals while others work
START_SECONDS = 5.0  # after which a thread that has not begun is given up

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class ThreadPool:
    """Threads that share the blocks of a kernel launch.

    There is one pool a process; a second object of this class controls the same threads.
    It survives ``fork``, and several Python threads may launch at once (they take turns).

    Parameters
    ----------
    library : Path
        ``threads.cpp``, compiled.
    threads : int
        Threads to use, the calling one included.

    Attributes
    ----------
    run : callable
        ``run(address)`` of four int64 and the kernel's arguments after them: the address of a
        compiled kernel, ``blocks``, ``grain``, ``scratch_bytes``.  Blocks ``0 .. blocks`` are
        shared out ``grain`` at a time, and each thread has ``scratch_bytes`` of its own, 64-byte
        aligned.  ``blocks <= grain`` runs in the calling thread.  Returns when all is done; the
        interpreter lock is released meanwhile.  (One address, since ``ctypes`` takes a sixth of a
        microsecond for each argument.)
    start : callable
        The same, but it returns a status for `check` in place of raising.
    tiles : int
        Address of the kernel that does several steps of a loop at once, tile by tile.
    """

    __slots__ = ("run", "start", "tiles", "threads", "_library")

    tiles: int
    run: Callable[[int], None]
    start: Callable[[int], int]

    def __init__(self, library: Path | str, threads: int) -> None:
        self._library = ctypes.CDLL(str(library))
        run = self._library.ta_run
        run.argtypes = (ctypes.c_void_p,)
        run.restype = check
        self._library.ta_threads.argtypes = (ctypes.c_int,)
        self.run = run
        self.tiles = int(ctypes.cast(self._library.ta_tiles, ctypes.c_void_p).value or 0)
        self.start = self._library["ta_run"]  # another object of the same function
        self.start.argtypes = (ctypes.c_void_p,)
        self.resize(threads)

    def resize(self, threads: int) -> None:
        """Use this many threads, the calling one included, from the next launch on."""
        if threads < 1:
            raise ValueError(f"a thread pool needs at least one thread, not {threads}")
        self._library.ta_threads(threads)
        self.threads = threads


class _Helpers:
    """Python threads that wait for work.  They end with the process and are not waited for.

    (An executor's refuse work, and are joined, once the interpreter has begun to exit.)
    """

    def __init__(self) -> None:
        self._begin_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._count = 0  # a forked child has none of its parent's threads
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def give(self, tasks: Sequence[Callable[[], None]]) -> bool:
        """Have the tasks done; false where there is no thread and none can be started.

        Once the interpreter exits those that there are get its lock no more.
        """
        if is_finalizing():
            return False
        missing = min(len(tasks), _available_once()) - self._count
        for _ in range(missing):
            if not in_background(functools.partial(self._help, self._work)):
                break
            self._count += 1
        if not self._count:
            return False
        for task in tasks:
            self._work.put(task)
        return True

    @staticmethod
    def _help(work: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            work.get()()


_helpers = _Helpers()


def in_background(work: Callable[[], None]) -> bool:
    """Start a thread that does not keep the process; false where no thread can be started.

    (`threading.Thread.start` waits for ever for a thread that ends for want of memory before it
    has begun.)
    """
    if is_finalizing():  # it would never begin, on some CPythons
        return False
    free_imports()
    begins = _thread.allocate_lock()
    begins.acquire()

    def begin() -> None:
        begins.release()
        work()

    try:
        _thread.start_new_thread(begin, ())
    except RuntimeError:  # too many, or the interpreter exits
        return False
    return begins.acquire(timeout=START_SECONDS)


def together(work: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Call ``work`` with each of the arguments, each in a Python thread of its own, and wait.

    The calling thread takes the first.  What one of them raised is raised when all have ended.
    """
    first, *others = arguments
    if not others:
        return work(first)
    outcomes: list[BaseException | None] = []
    ended: SimpleQueue[None] = SimpleQueue()

    def task(argument: Any) -> None:
        outcomes.append(_raised(work, argument))
        ended.put(None)

    if not _helpers.give([functools.partial(task, argument) for argument in others]):
        for argument in others:
            task(argument)
    raised = _raised(work, first)
    while len(outcomes) < len(others):
        try:
            ended.get()
        except BaseException as interruption:  # not before the others have ended: they still write
            raised = raised or interruption
    for error in (raised, *outcomes):
        if error is not None:
            raise error
    return None


class _Turns:
    """Work that threads take from one another piece by piece."""

    def __init__(self, work: Callable[[Any], None], pieces: Sequence[Any]) -> None:
        self._work = work
        self._waiting = deque(pieces)
        self._lock = threading.Lock()
        self._helping = 0  # pieces that helpers are at
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._errors: list[BaseException] = []

    def help(self) -> None:
        """Do pieces as long as there are any."""
        while True:
            with self._lock:
                try:
                    piece = self._waiting.popleft()
                except IndexError:
                    return
                self._helping += 1
            error = _raised(self._work, piece)
            with self._lock:
                self._helping -= 1
                if error is not None:
                    self._errors.append(error)
                    self._waiting.clear()
            self._ended.put(None)

    def go_on(self) -> None:
        """Do pieces, as the thread that asked for it, until all have been done."""
        try:
            while self._waiting:
                try:
                    piece = self._waiting.popleft()
                except IndexError:
                    break
                self._work(piece)
        except BaseException as error:
            self._errors.append(error)
        while True:
            try:
                if self._is_done():
                    break
                self._ended.get()
            except BaseException as interruption:  # they still write
                self._errors.append(interruption)
        self._work = _nothing  # helpers that come too late keep nothing alive
        if self._errors:
            raise self._errors[0]

    def _is_done(self) -> bool:
        if self._errors:
            self._waiting.clear()
        with self._lock:
            return not self._helping


def _nothing(piece: Any) -> None:
    """Do no work."""


def in_turns(work: Callable[[Any], None], pieces: Sequence[Any], threads: int) -> None:
    """Call ``work`` with each of the pieces, whatever thread comes to do it.

    Where the machine is busy the calling thread does most of them, and waits for nobody who has
    not begun.  What one of them raised is raised when none is at work any more.

    Parameters
    ----------
    work : callable
    pieces : sequence
    threads : int
        The calling one included.
    """
    turns = _Turns(work, pieces)
    if threads > 1 and len(pieces) > 1:
        _helpers.give([turns.help] * (min(threads, len(pieces)) - 1))
    turns.go_on()


def _raised(work: Callable[[Any], None], argument: Any) -> BaseException | None:
    try:
        work(argument)
    except BaseException as error:
        return error
    return None


def all_of(
    work: Callable[[_Given], _Made], arguments: Sequence[_Given], workers: int,
    seconds: float = 0.0, *, apart: bool = False,
) -> list[_Made]:
    """Return what ``work`` makes of each argument, by so many threads at a time.

    What is done ``apart`` is so where signal handlers run, too: what they raise comes out of the
    wait then, and is not taken for a failure of the work.

    The first error ends the wait, and so does an interruption; the threads are left to themselves.

    Raises
    ------
    TimeoutError
        It takes longer than ``seconds``, unless that is 0.
    """
    apart = apart and threading.current_thread() is threading.main_thread()
    if workers <= 1 and not seconds and not apart:
        return [work(argument) for argument in arguments]
    deadline = time.monotonic() + seconds
    waiting = deque(enumerate(arguments))
    ended: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()

    def go_on() -> None:
        while waiting:
            try:
                number, argument = waiting.popleft()
            except IndexError:
                return
            try:
                ended.put((number, work(argument), None))
            except BaseException as error:
                ended.put((number, None, error))

    try:
        started = [in_background(go_on) for _ in range(workers)]
        if not any(started):
            go_on()
        made: dict[int, _Made] = {}
        while len(made) < len(arguments):
            left = deadline - time.monotonic() if seconds else LOOK_SECONDS
            try:
                # A signal that comes just before a wait begins is only seen when it ends.
                number, result, error = ended.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except Empty:
                if left <= LOOK_SECONDS and seconds:
                    raise TimeoutError(f"not done within {seconds:g} seconds") from None
                free_imports()
                continue
            if error is not None:
                raise error
            made[number] = result
    except BaseException:
        waiting.clear()
        raise
    return [made[number] for number in range(len(arguments))]


def available_cpus() -> int:
    """Processors that the process may use: its affinity, and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError) as error:
        if raised_outside(error):
            raise
        return count


@functools.cache
def _available_once() -> int:
    return available_cpus()


def host_threads() -> int:
    """Threads that share the work on the host."""
    return config.threads or _available_once()


def check(status: int) -> None:
    """Raise what a launch's status means.

    Raises
    ------
    OutOfMemory
        There was no room for scratch; nothing has been computed.
    """
    if status:
        raise OutOfMemory(
            "no memory for a kernel's scratch space",
            remedy="use fewer threads (tiledarray.config.threads) or free memory",
        )
