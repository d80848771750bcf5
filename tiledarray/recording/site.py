"""Where in the user's program something was recorded."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from tiledarray.core import frames
from tiledarray.graph.node import Site

INSTALLED = frozenset(("site-packages", "dist-packages"))  # folders of packages that are installed


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """Return the nearest frame outside this package, from the innermost or the one given."""
    return frames.user_frame(sys._getframe(1) if frame is None else frame)


def user_site() -> Site | None:
    """Return the place in the user's program that is running now."""
    frame = user_frame()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def user_line() -> tuple[str, int] | None:
    """Return file and line of the user's own code that is running now, be it through NumPy's."""
    frame = user_frame()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "numpy":
        frame = user_frame(frame.f_back)
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the user's line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
    else:
        warnings.warn_explicit(
            text, category, frame.f_code.co_filename, frame.f_lineno,
            module=frame.f_globals.get("__name__"),
        )
