"""Compiling in the background: one thread, plan after plan; and when a failure is tried again."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

from tiledarray.devices.threads import in_background
from tiledarray.errors import CompilerError

FIRST_REST = 2.0  # seconds; twice as long after every further failure
LONGEST_REST = 600.0
REST_FOR_TIME_LOST = 4.0
QUICK_TURNS = 0.0002  # seconds: the switch interval while something is compiled


class Compiles(Protocol):
    """What the thread compiles: a plan, which notes its failures itself."""

    queued: bool

    def compile(self) -> None:
        """Compile all of it."""

    def left(self) -> Sequence[tuple[str, str, bool]]:
        """Return what another process may compile, should this one end: see `afterwards.leave`."""


class Trouble:
    """A failure to compile, and how long it stands: until then nothing is tried again.

    What the compiler refused stands for the life of the process.  What may pass (the compiler was
    killed, the disk was full, it took too long) stands for some seconds, and longer each time it
    comes again, so that a compiler that always hangs takes a small share of the time.

    Attributes
    ----------
    error : Exception or None
        What went wrong last; none once it has succeeded.
    """

    __slots__ = ("error", "_until", "_times")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget it: what was tried has succeeded."""
        self.error: Exception | None = None
        self._until = 0.0
        self._times = 0

    def note(self, error: Exception, seconds: float) -> None:
        """Remember what went wrong, in a try that took so long."""
        self.error = error
        if passing(error):
            least = max(FIRST_REST, REST_FOR_TIME_LOST * seconds)
            self._until = monotonic() + min(LONGEST_REST, least * 2**min(self._times, 20))
        else:
            self._until = float("inf")
        self._times += 1

    def standing(self) -> Exception | None:
        """Return what went wrong, as long as nothing is to be tried again."""
        return self.error if self.error is not None and monotonic() < self._until else None


def passing(error: BaseException) -> bool:
    """Whether the same may compile later."""
    if isinstance(error, CompilerError):
        return error.passing
    return isinstance(error, OSError | MemoryError)


everywhere = Trouble()  # passing failures of any plan: they are the compiler's, not the plan's


class Background:
    """A thread that compiles one plan after the other.

    A forked child has its parent's plans but not its thread: what was left unfinished there is
    queued again when it is met again.  The process does not wait for the thread when it ends:
    what is left is compiled afterwards.
    """

    def __init__(self) -> None:
        self._unfinished: dict[Compiles, None] = {}
        self._queue: SimpleQueue[Compiles] = SimpleQueue()
        self._begun = self._closed = False
        self._usual_turns: float | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def compile(self, executable: Compiles) -> None:
        """Compile the plan, after those that wait."""
        self._unfinished[executable] = None
        self._queue.put(executable)
        if not self._begun:
            self._begun = in_background(self._work)
            atexit.register(self._close)  # after the handler that kills compilers, to run before

    def unfinished(self) -> int:
        """Return how many plans are being compiled, or wait for it."""
        return len(self._unfinished)

    def _work(self) -> None:
        while True:
            executable = self._queue.get()
            if self._closed:
                return
            self._take_turns()
            try:
                executable.compile()
            except Exception:  # noted there; whoever evaluates next warns of it
                executable.queued = False  # again, once it no longer stands
            self._unfinished.pop(executable, None)
            if not self._unfinished:
                self._take_no_turns()

    def _take_turns(self) -> None:
        """Have Python's threads change quickly, as long as there is something to compile.

        A thread waits for a switch interval before it asks another to let go of the interpreter,
        and anew whenever that one has let go by itself and has it back at once.  NumPy does so in
        every operation on more than 500 elements: beside a loop of them, each of the hundred steps
        of a compilation would take a third of a second.
        """
        usual = sys.getswitchinterval()
        if usual > QUICK_TURNS and self._usual_turns is None:
            self._usual_turns = usual
            sys.setswitchinterval(QUICK_TURNS)

    def _take_no_turns(self) -> None:
        usual, self._usual_turns = self._usual_turns, None
        if usual is not None and round(sys.getswitchinterval() / QUICK_TURNS, 3) == 1:
            sys.setswitchinterval(usual)  # if nobody else has set it

    def _close(self) -> None:
        if self._closed:  # a forked child has its parent's handler, too
            return
        self._closed = True
        left = [kernel for executable in list(self._unfinished) for kernel in executable.left()]
        if left:
            from tiledarray.kernels.compile import afterwards
            afterwards.leave(left)

    def _begin_anew(self) -> None:
        self._queue, self._begun = SimpleQueue(), False
        self._take_no_turns()
        for executable in self._unfinished:
            executable.queued = False
        self._unfinished = {}


background = Background()
