"""Running a compiler: within a time limit, apart from the terminal, and never longer than we run.

A compiler gets a session of its own: Ctrl-C at the terminal goes to the whole foreground process
group, and would end one that compiles in the background.  For the same reason it can be killed
with all that it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tiledarray.errors import CompilerError
from tiledarray.fork import at_exit, hold_at_fork, leaves_something
from tiledarray.kernels.compile.folder import Folder

LOOK_SECONDS = 1.0
DYING_SECONDS = 1.0
# They would add folders to those that are searched, or write files: what a kernel is compiled
# from is in its key.
_NOT_PASSED_ON = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT",
                  "SUNPRO_DEPENDENCIES")

_lock = threading.RLock()
hold_at_fork(_lock)
_running: dict[subprocess.Popen[bytes], Compilers] = {}
_known: weakref.WeakSet[Compilers] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Finished:
    """What a compiler has left behind: its exit status, and all that it printed."""

    status: int
    output: str


class Compilers:
    """Compilers that work for one caller, who may stop them all."""

    __slots__ = ("stopped", "ended", "__weakref__")

    def __init__(self) -> None:
        self.stopped = self.ended = False
        with _lock:
            _known.add(self)

    def check(self) -> None:
        """Raise a `CompilerError` that may pass where they were stopped."""
        if self.stopped:
            raise CompilerError("the compiler was stopped", passing=True, ending=self.ended)

    def run(self, command: Sequence[str], place: Folder, seconds: float) -> Finished:
        """Run a compiler in a folder of its own, and wait for it.

        Parameters
        ----------
        command : sequence of str
        place : Folder
            Where it runs and keeps temporary files.
        seconds : float
            Time limit; 0 for none.

        Raises
        ------
        OSError
            It cannot be started.
        CompilerError
            It takes too long, or was stopped.
        """
        leaves_something()
        with _lock:
            self.check()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=place.place(""), env=_environment(), start_new_session=True,
            )  # fmt: skip
            _running[process] = self
        try:
            output = _output(process, seconds)
        except subprocess.TimeoutExpired:
            raise CompilerError(
                f"{command[0]} did not end within {seconds:g} seconds",
                passing=True,
                remedy="set tiledarray.config.compile_seconds (or TILEDARRAY_COMPILE_SECONDS) "
                "higher, or mend the compiler",
            ) from None
        finally:
            with _lock:
                _running.pop(process, None)
            _end(process)
        self.check()
        return Finished(process.returncode, output.decode(errors="replace"))

    def stop(self) -> None:
        """Kill those that run, and let no other start."""
        with _lock:
            self.stopped = True
            for process, owner in _running.items():
                if owner is self:
                    _kill(process)


def _output(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return what a compiler printed, once it has ended.

    Something that it has left running (a server that keeps objects, say) is not waited for.
    """
    deadline = time.monotonic() + seconds if seconds else float("inf")
    while True:
        left = deadline - time.monotonic()
        try:
            return process.communicate(timeout=max(0.0, min(LOOK_SECONDS, left)))[0]
        except subprocess.TimeoutExpired as waiting:
            if process.poll() is not None:
                return waiting.output or b""
            if left <= LOOK_SECONDS:
                raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """See that nothing of the compiler is left, however its turn ended."""
    if process.returncode is None:
        _kill(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(DYING_SECONDS)
    if process.stdout is not None:
        process.stdout.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in _NOT_PASSED_ON}
    kept.setdefault("PATH", os.defpath)  # where the compiler itself has been found
    return {**kept, "TMPDIR": ".", "LC_ALL": "C"}  # messages as `host` knows them


def _kill_all() -> None:
    """At exit: kill every compiler of this process, and let whoever has begun start no other."""
    with _lock:
        for owner in list(_known):
            owner.stopped = owner.ended = True
        for process in _running:
            _kill(process)


def _forget_parents() -> None:
    """In a forked child: what its parent has started is not the child's."""
    _running.clear()


at_exit(_kill_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
