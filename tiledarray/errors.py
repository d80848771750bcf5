"""What can go wrong, and what to do about it: every error carries its remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


class TiledArrayWarning(UserWarning):
    """Something works, but not as well as it could; the message says what to do."""


class TiledArrayError(Exception):
    """Base of the library's own exceptions.

    Attributes
    ----------
    remedy : str or None
        What the user can do; also the last line of the message.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(f"{message}\nRemedy: {remedy}" if remedy else message)
        self.remedy = remedy


class CompilerError(TiledArrayError, RuntimeError):
    """A kernel could not be compiled.

    Attributes
    ----------
    source : str or None
        The text given to the compiler.
    log : str
        All that the compiler printed.
    path : Path or None
        File in which the source was kept.
    passing : bool
        The compiler did not refuse the source: it was killed, had no room, took too long.  The
        same may compile later.
    ending : bool
        It was killed because the process ends: nobody's failure.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        log: str = "",
        path: Path | None = None,
        passing: bool = False,
        ending: bool = False,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.source = source
        self.log = log
        self.path = path
        self.passing = passing
        self.ending = ending


class OutOfMemory(TiledArrayError, MemoryError):
    """There is no room for a buffer, even after the pool gave back what it kept.

    Attributes
    ----------
    nbytes : int
        Size asked for.
    """

    def __init__(self, message: str, *, nbytes: int = 0, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.nbytes = nbytes


class DeviceNotFound(TiledArrayError, RuntimeError):
    """A device was asked for that this machine or this installation does not have."""


class UnknownSetting(TiledArrayError, ValueError, AttributeError):
    """There is no setting of that name."""


class HistoryLost(TiledArrayError, TypeError):
    """A value that a gradient depends on would leave the recording."""


class NoDerivative(TiledArrayError, NotImplementedError):
    """A gradient depends on an operation that has no rule for it."""


# Modules whose code runs while something is computed: what raises elsewhere meanwhile is a signal
# handler.
_COMPUTING = frozenset((
    "tiledarray", "numpy", "scipy", "cupy", "cupyx", "cupy_backends", "cuda", "ml_dtypes",
    "opt_einsum", "threadpoolctl", "networkx", "fastrlock", *sys.stdlib_module_names,
)) - {"__main__"}  # fmt: skip


# What compiling may fail with, other than by a mistake of ours.
NOT_COMPILED = (CompilerError, OSError, MemoryError)


def raised_outside(error: BaseException) -> bool:
    """Whether an exception that came out of computing was raised by a handler of the program's.

    A handler (of ``signal.alarm``, of a test's time-out) runs wherever the interpreter is, and
    what it raises is the program's own: it must not be taken for a failure of the computation.
    """
    traceback = error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in _COMPUTING:
            return True
        traceback = traceback.tb_next
    return False


class suppress_own:  # noqa: N801  used as `contextlib.suppress`
    """Suppresses exceptions of these kinds, but not what a handler of the program's raises."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, self._kinds) and not raised_outside(error)


def of_a_handler(error: BaseException) -> bool:
    """Whether an exception that came out of compiling is no failure of that."""
    return not isinstance(error, CompilerError) and raised_outside(error)


class LeaveToNumPy(Exception):
    """A call, or a part of one, that NumPy itself has to do.

    Attributes
    ----------
    reason : str
        Why, as it is told by `explain`; ``""`` if there is nothing to say.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class NodeFailed(Exception):
    """A recorded operation could not be computed; the cause says why."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.node = node
