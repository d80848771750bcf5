"""The core: handles of arrays, and what NumPy does at once.

Written in C (`_core.c`) and again in Python (`twin.py`), which takes its place where the extension
was not built.  The environment variable ``TILEDARRAY_CORE`` chooses: ``c`` or ``python``.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

from tiledarray.errors import UnknownSetting

VARIABLE = "TILEDARRAY_CORE"


def _chosen(wanted: str | None) -> tuple[ModuleType, str, str | None]:
    """Return the core, its kind, and why it is not the one in C."""
    if wanted not in (None, "", "c", "python"):
        raise UnknownSetting(f"{VARIABLE} is {wanted!r}", remedy="set it to c or python")
    problem = f"{VARIABLE} asks for Python"
    if wanted != "python":
        try:
            return importlib.import_module("tiledarray.core._core"), "c", None
        except ImportError as error:
            if wanted == "c":
                raise
            problem = f"the extension is not there ({error})"
    return importlib.import_module("tiledarray.core.twin"), "python", problem


_core, kind, problem = _chosen(os.environ.get(VARIABLE))

if TYPE_CHECKING:
    from tiledarray.core.twin import AtOnce, Base
else:
    Base, AtOnce = _core.Base, _core.AtOnce

install = _core.install
set_limit = _core.set_limit
hold = _core.hold
set_births = _core.set_births
watch = _core if kind == "c" else importlib.import_module("tiledarray.core.twin_watch")
watch_begin, watch_end = watch.watch_begin, watch.watch_end
watch_enter, watch_leave, watch_note = watch.watch_enter, watch.watch_leave, watch.watch_note
watch_take, watch_tick = watch.watch_take, watch.watch_tick
METHOD, WRITES, READS, LIBRARY, UFUNC, OUTER, DRAWS, LOOKS, BOUND = (
    _core.METHOD, _core.WRITES, _core.READS, _core.LIBRARY, _core.UFUNC, _core.OUTER, _core.DRAWS,
    _core.LOOKS, _core.BOUND)
ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA = (
    _core.ANY_SIZE, _core.OF_SHAPE, _core.OF_RANGE, _core.OF_COUNT, _core.OF_SQUARE, _core.OF_DATA)
