"""What kernels begin with, compiled once: for small ones the headers take g++ half of its time.

A *beginning* is a source up to its last ``#include``; kernels have a handful of them. The compiled
form lies in the cache, beside the kernels. It is made when some kernels of a process have begun so:
for a few it does not pay.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tiledarray.fork import hold_at_fork
from tiledarray.kernels.compile import cache

MET = 4  # kernels of a process that begin alike, before that is compiled by itself
SUFFIX = ".h.gch"

_lock = threading.RLock()
hold_at_fork(_lock)
_met: Counter[tuple[Path, str]] = Counter()  # by the cache's folder, and the key
_found: dict[tuple[Path, str], Path | None] = {}


def split(source: str) -> tuple[str, str]:
    """Return how a source begins, and the rest."""
    end = source.find("\n", max(0, source.rfind("#include"))) + 1 if "#include" in source else 0
    return source[:end], source[end:]


def compiled(key: str, build: Callable[[], bytes]) -> Path | None:
    """Return what g++ is to include for a beginning, or ``None`` where it had better read it.

    Parameters
    ----------
    key : str
        Of the beginning in the cache: of all that its compiled form depends on.
    build : callable
        Compiles it. What it raises is raised, and it is not tried again.
    """
    at = cache.folder(), key
    with _lock:
        if at in _found:
            return _found[at]
        _met[at] += 1
        often = _met[at] > MET
    entry = cache.get(key, SUFFIX)
    if entry is None and often:
        give_up(key)  # should it fail; and others go on without it meanwhile
        entry = cache.get_or_build(key, SUFFIX, build)
    if entry is None:
        return None
    with _lock:
        _found[at] = entry.path.with_name(entry.path.name.removesuffix(".gch"))
        return _found[at]


def give_up(key: str) -> None:
    """Have a beginning read from now on: its compiled form was of no use."""
    with _lock:
        _found[cache.folder(), key] = None
