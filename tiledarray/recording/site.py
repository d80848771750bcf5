"""Where in the user's program something was recorded: frames are walked, never counted."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tiledarray.graph.node import Site

_PACKAGE = "tiledarray"
_PATH_LENGTH = 16

# Whether a module of some name is the user's (not part of this package), as far as asked for.
_users: dict[str, bool] = {}
known: Any = _users.get


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code that is not part of this package."""
    module = frame.f_globals.get("__name__", "")
    found = known(module)
    if found is None:
        found = _users[module] = module != _PACKAGE and not module.startswith(f"{_PACKAGE}.")
    return found


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """Return the nearest frame outside this package, from the innermost or the one given."""
    if frame is None:
        frame = sys._getframe(1)
    while frame is not None:
        users = known(frame.f_globals.get("__name__"))
        if is_users(frame) if users is None else users:
            break
        frame = frame.f_back
    return frame


def user_site() -> Site | None:
    """Return the place in the user's program that is running now."""
    frame = user_frame()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def call_path() -> tuple[Any, ...]:
    """Return the places of the nearest callers, which tell two uses of one line apart."""
    frame = user_frame()
    path: list[Any] = []
    for _ in range(_PATH_LENGTH):
        if frame is None:
            break
        path += frame.f_code, frame.f_lasti
        frame = frame.f_back
    return tuple(path)
