"""Doing several things so that no signal handler runs in between.

CPython runs signal handlers between byte codes, so calls that one C function makes of others
implemented in C come one after the other, whatever the handlers raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import call

ATTEMPTS = 100


def at_one_go(start: Callable[[], int | None], marks: Iterable[Callable[[], None]]) -> int:
    """Start something and note that it is done, with nothing in between.

    Parameters
    ----------
    start : callable
        Implemented in C; returns a status, 0 or ``None`` if all is well.
    marks : iterable of callable
        Implemented in C (such as ``partial(setattr, ...)``); called only if all is well.

    Returns
    -------
    int
        The status.
    """
    return next(filter(None, map(call, (start, *marks))), 0)


def persist(work: Callable[[], None]) -> None:
    """Do work that may be repeated, again if a signal handler raises in the middle of it."""
    for _ in range(ATTEMPTS):
        try:
            return work()
        except BaseException:  # a handler's: what the program raised already matters more
            continue
    return None
