"""Forking a process that has threads: the child has only the one that forked."""

from __future__ import annotations

import _imp
import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, ModuleType
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


LAST_OF_ALL = -1000  # of the finalisers of `multiprocessing`
_at_exit: list[Callable[[], Any]] = []
_watched = [0]  # the process whose end `multiprocessing` has been told to tell


def at_exit(work: Callable[[], Any]) -> None:
    """Have something done as the process ends, in which `leaves_something` has been called."""
    atexit.register(work)
    _at_exit.append(work)


def leaves_something() -> None:
    """Have what is to be done at exit done in a child of `multiprocessing`, too.

    It ends without the handlers of `atexit`, and forgets what its parent has told
    `multiprocessing`.
    """
    module = sys.modules.get("multiprocessing.util")
    if module is None or sys.modules["multiprocessing.process"].parent_process() is None:
        return
    if _watched[0] != os.getpid():
        _watched[0] = os.getpid()
        module.Finalize(None, _do_at_exit, exitpriority=LAST_OF_ALL)


def _do_at_exit() -> None:
    for work in reversed(_at_exit):
        with suppress(Exception):
            work()


# Held by whoever imports a part of the library that is first needed now: a child would wait for
# ever for what a thread was importing that it does not have.
importing = threading.RLock()


def import_part(name: str) -> ModuleType:
    """Import a module that is needed now, while no other thread forks."""
    free_imports()
    with importing:
        return importlib.import_module(name)


# Where CPython has its lock of all imports rightly.
_LOCKING = frozenset(("_find_spec", "_get_module_lock", "_lock_unlock_module", "cb", "__enter__"))


def free_imports() -> None:
    """Give up CPython's lock of all imports, if an import that was interrupted has left it held.

    (A signal handler that raises between ``acquire_lock`` and the ``try`` after it, in
    ``importlib._bootstrap``, leaves it with its thread.)  That thread goes on importing, while all
    others would wait for ever as they import something, and it for them.
    """
    if not _imp.lock_held():
        return
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        inside = frame.f_globals.get("__name__") == "importlib._bootstrap"
        if inside and frame.f_code.co_name in _LOCKING:
            return
        frame = frame.f_back
    with suppress(RuntimeError):  # it is another thread's, and perhaps rightly
        while True:
            _imp.release_lock()


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
