"""The kernels that this process has loaded."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Any

from tiledarray.fork import hold_at_fork

RECENT = 256


class Loaded:
    """Loaded kernels by what they were compiled from: those in use, and those asked for last.

    A kernel takes address space, and the system allows a process only so many mappings; one that
    no launch holds any more and that was not asked for lately is let go, and so unloaded.
    """

    def __init__(self, recent: int = RECENT) -> None:
        self._most = recent
        self._all: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.RLock()
        hold_at_fork(self._lock)

    def __contains__(self, key: Any) -> bool:
        return key in self._all

    def get(self, key: Any) -> Any:
        """Return the kernel, or ``None`` if it is not loaded."""
        kernel = self._all.get(key)
        if kernel is not None:
            self[key] = kernel
        return kernel

    def __setitem__(self, key: Any, kernel: Any) -> None:
        dropped = None
        with self._lock:
            self._all[key] = kernel
            self._recent[key] = kernel
            self._recent.move_to_end(key)
            if len(self._recent) > self._most:
                dropped = self._recent.popitem(last=False)
        del dropped  # unloaded here, outside the lock
