"""What cannot be compiled runs op by op, and that is told once."""

from __future__ import annotations

import warnings

from tiledarray.errors import TiledArrayWarning

_told: set[str] = set()


def do_without(failure: BaseException) -> bool:
    """Warn, once, that something runs op by op since it does not compile; return ``False``.

    Compilers that are stopped because the process ends are nobody's failure.
    """
    if not getattr(failure, "ending", False):
        why = str(failure) or type(failure).__name__
        tell_once(f"tiledarray runs op by op what does not compile: {why}", "compile")
    return False


def tell_once(message: str, about: str = "") -> None:
    """Warn, unless that has been told."""
    if (about or message) not in _told:
        _told.add(about or message)
        warnings.warn(message, TiledArrayWarning, stacklevel=2)
