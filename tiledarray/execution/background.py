"""Compiling in the background: one thread, plan after plan."""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


class Background:
    """A thread that compiles one plan after the other.

    A forked child has its parent's plans but not its thread: what was left unfinished there is
    queued again when it is met again.
    """

    def __init__(self) -> None:
        self._unfinished: dict[Executable, None] = {}
        self._queue: queue.SimpleQueue[Executable] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def compile(self, executable: Executable) -> None:
        """Compile the plan, after those that wait."""
        self._unfinished[executable] = None
        self._queue.put(executable)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            executable = self._queue.get()
            try:
                executable.compile()
            except Exception as error:  # kept; whoever evaluates next warns of it
                executable.failure = error
            self._unfinished.pop(executable, None)

    def _begin_anew(self) -> None:
        self._queue, self._thread = queue.SimpleQueue(), None
        for executable in self._unfinished:
            executable.queued = False
        self._unfinished = {}


background = Background()
