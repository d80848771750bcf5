"""Forking a process that has threads: the child has only the one that forked."""

from __future__ import annotations

import os
import threading
from typing import Any

_outer: list[Any] = []
_inner: list[Any] = []


class _Held(threading.local):
    """What the thread that forks has taken: others may be registered before it is released."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_held = _Held()


def hold_at_fork(lock: Any, *, outer: bool = False) -> None:
    """Let no other thread be inside the lock when the process forks.

    The ``outer`` ones, inside which others are taken, are taken first; of the rest the one that was
    registered last.  Nothing done inside may wait for somebody else's hook of `os.register_at_fork`
    that was registered after this module's, and so is called before.
    """
    (_outer if outer else _inner).append(lock)


def _take() -> None:
    for lock in (*_outer, *reversed(_inner)):
        lock.acquire()
        _held.locks.append(lock)


def _release() -> None:
    while _held.locks:
        _held.locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_release)
