"""Doing several things so that no signal handler runs in between.

CPython runs signal handlers between byte codes, so calls that one C function makes of others
implemented in C come one after the other, whatever the handlers raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import call

from tiledarray.errors import raised_outside

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
    """Do work that may be repeated, again if a signal handler raises in the middle of it.

    What that raises comes out when the work is done, as from an ``except`` clause of the program's.
    Between attempts nothing takes memory; where all of them lack it, the work is left undone.
    """
    raised: BaseException | None = None
    attempts = 0
    while attempts < ATTEMPTS:
        try:
            work()
            break
        except BaseException as error:
            if not isinstance(error, Exception) or raised_outside(error):
                raised = error
        attempts += 1
    if raised is not None:
        raise raised
