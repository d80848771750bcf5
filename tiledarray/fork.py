"""Forking a process that has threads: the child has only the one that forked."""

from __future__ import annotations

import importlib
import os
import threading
from types import ModuleType
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

    The ``outer`` ones, inside which others are taken, are taken first, then `importing`; of the
    rest the one that was registered last.  Nothing done inside may wait for somebody else's hook of
    `os.register_at_fork` that was registered after this module's, and so is called before.
    """
    (_outer if outer else _inner).append(lock)


# Held by whoever imports a part of the library that is first needed now: a child would wait for
# ever for what a thread was importing that it does not have.
importing = threading.RLock()


def import_part(name: str) -> ModuleType:
    """Import a module that is needed now, while no other thread forks."""
    with importing:
        return importlib.import_module(name)


def _take() -> None:
    while _held.locks != (wanted := [*_outer, importing, *reversed(_inner)]):
        _release()  # modules that were imported meanwhile have locks too
        for lock in wanted:
            lock.acquire()
            _held.locks.append(lock)


def _release() -> None:
    while _held.locks:
        _held.locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_release)
