"""The host thread pool, seen from Python: loads what ``threads.cpp`` compiles to."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from tiledarray.errors import OutOfMemory


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
    """

    __slots__ = ("run", "start", "threads", "_library")

    run: Callable[[int], None]
    start: Callable[[int], int]

    def __init__(self, library: Path | str, threads: int) -> None:
        self._library = ctypes.CDLL(str(library))
        run = self._library.ta_run
        run.argtypes = (ctypes.c_void_p,)
        run.restype = check
        self._library.ta_threads.argtypes = (ctypes.c_int,)
        self.run = run
        self.start = self._library["ta_run"]  # another object of the same function
        self.start.argtypes = (ctypes.c_void_p,)
        self.resize(threads)

    def resize(self, threads: int) -> None:
        """Use this many threads, the calling one included, from the next launch on."""
        if threads < 1:
            raise ValueError(f"a thread pool needs at least one thread, not {threads}")
        self._library.ta_threads(threads)
        self.threads = threads


_helpers: dict[int, ThreadPoolExecutor] = {}  # by process: a forked child has no threads


def together(work: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Call ``work`` with each of the arguments, each in a Python thread of its own, and wait.

    The calling thread takes the first.  What one of them raised is raised when all have ended.
    """
    first, *others = arguments
    if not others:
        return work(first)
    helpers = _helpers.get(os.getpid())
    if helpers is None:
        _helpers.clear()
        helpers = _helpers[os.getpid()] = ThreadPoolExecutor(
            available_cpus(), thread_name_prefix="tiledarray")
    started = [helpers.submit(work, argument) for argument in others]
    try:
        work(first)
    finally:
        wait(started)
    for future in started:
        future.result()
    return None


def available_cpus() -> int:
    """Processors that the process may use: its affinity, and its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return count


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
