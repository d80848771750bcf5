"""What a process leaves uncompiled when it ends: another compiles it, for the runs to come.

A program does not wait at its end for kernels that it no longer needs, but one that always ends too
early would find nothing on disk however often it runs.  So a process of its own, of the lowest
priority and a session of its own, compiles what is left into the cache: one at a time for
each cache folder, and for at most `SECONDS`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tiledarray import config
from tiledarray.errors import NOT_COMPILED
from tiledarray.kernels.compile import cache, host

SECONDS = 60.0
_PASSED_ON = ("cache_dir", "cache_bytes", "compile_seconds")  # settings


def leave(kernels: Sequence[tuple[str, str, bool]]) -> None:
    """Have host kernels compiled by a process that this one leaves behind.

    Where none can be started nothing is said: a later run compiles them.

    Parameters
    ----------
    kernels : sequence of (source, name, contract)
        As for `host.compile_source`.
    """
    python = sys.executable or ""
    if (not config.compile_afterwards or not hasattr(os, "posix_spawn")
            or not Path(python).name.startswith("python") or not cache.lasts()):
        return
    with suppress(OSError), tempfile.TemporaryFile() as work:
        work.write(json.dumps([*kernels]).encode())
        work.seek(0)
        silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        closed = [(os.POSIX_SPAWN_CLOSE, file) for file in _handed_on()]
        os.posix_spawn(
            python, [python, "-m", __name__], _environment(),
            file_actions=[(os.POSIX_SPAWN_DUP2, work.fileno(), 0), *silent, *closed])


def _handed_on() -> list[int]:
    """Return other files that a new process would hold open: a shell's locks and pipes."""
    found = []
    with suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # that of the folder itself
                if int(name) > 2 and os.get_inheritable(int(name)):
                    found.append(int(name))
    return found


def _environment() -> dict[str, str]:
    """Return the environment in which this package, and these settings, are found again."""
    package = Path(__file__).parents[3]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(package)]))
    settings = {config.PREFIX + name.upper(): str(getattr(config, name)) for name in _PASSED_ON}
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **settings}


def main(text: str) -> None:
    """Compile what was left, as long as there is time and nobody else does."""
    until = time.monotonic() + SECONDS
    with cache.alone("afterwards") as alone:
        for source, name, contract in json.loads(text) if alone else ():
            if time.monotonic() > until:
                return
            with suppress(*NOT_COMPILED):
                host.compile_source(source, name, contract=contract)


def _begin() -> None:
    os.setsid()
    os.nice(19)
    os.chdir(os.sep)
    main(sys.stdin.read())


if __name__ == "__main__":
    _begin()
