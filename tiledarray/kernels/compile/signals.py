"""Keeping the process's signal handlers while a library would have its own.

NVRTC's front end handles SIGINT and SIGTERM itself while it reads a source: either then ends the
whole process, with status 4 and whatever was not saved; and of several compiles at a time one can
leave its handlers there for good.  There is no option against it, so what was in place is put
back as soon as it is seen to be gone.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from tiledarray.devices.threads import in_background

LOOK_SECONDS = 0.002
GUARDED = (signal.SIGINT, signal.SIGTERM)
_BYTES = 512  # more than any system's `struct sigaction`, which begins with the handler's address


class Guard:
    """Puts handlers back that were replaced, from `begin` to `end`."""

    def __init__(self) -> None:
        self._sigaction: Callable[..., int] | None = None
        if sys.platform == "linux":
            self._sigaction = ctypes.CDLL(None).sigaction
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._ended = threading.Event()

    def begin(self) -> None:
        """Remember the handlers, and look after them from now on."""
        if self._sigaction is None:
            return
        self._kept = {number: self._now(number) for number in GUARDED}
        self._ended = ended = threading.Event()
        in_background(lambda: self._watch(ended))

    def end(self) -> None:
        """Look after them no longer."""
        self._ended.set()
        self._put_back()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            self._put_back()

    def _put_back(self) -> None:
        """Undo what was not done through Python: of that, Python knows."""
        for number, (action, known) in list(self._kept.items()):
            now = self._now(number)
            if now[1] is not known:
                self._kept[number] = now
            elif now[0].raw[:8] != action.raw[:8] and self._sigaction is not None:
                self._sigaction(number, action, None)

    def _now(self, number: int) -> tuple[Any, Any]:
        """What the system does about a signal, and what Python knows of that."""
        memory = ctypes.create_string_buffer(_BYTES)
        if self._sigaction is not None:
            self._sigaction(number, None, memory)
        return memory, signal.getsignal(number)
