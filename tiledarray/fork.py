"""Forking a process that has threads: the child has only the one that forked."""

from __future__ import annotations

import os
from typing import Any


def hold_at_fork(lock: Any) -> None:
    """Let no other thread be inside the lock when the process forks.

    The lock registered last is taken first, so one that is held while others are taken has to be
    registered after them.  Nothing done inside may wait for somebody else's hook of this kind
    that was registered later still, and so taken before.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
