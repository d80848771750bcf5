"""Which frames are the user's: they are walked, never counted."""

from __future__ import annotations

from types import FrameType
from typing import Any

_PACKAGE = "tiledarray"

# Whether a module of some name is the user's (not part of this package), as far as asked for.
_users: dict[Any, bool] = {}


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code that is not part of this package."""
    module = frame.f_globals.get("__name__", "")
    found = _users.get(module)
    if found is None:
        found = _users[module] = module != _PACKAGE and not module.startswith(f"{_PACKAGE}.")
    return found


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame outside this package, from the one given."""
    while frame is not None:
        users = _users.get(frame.f_globals.get("__name__"))
        if is_users(frame) if users is None else users:
            break
        frame = frame.f_back
    return frame
