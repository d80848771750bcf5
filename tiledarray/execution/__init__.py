"""From pending nodes to values.

What makes and runs plans (`evaluate`, `direct`, `room`) brings the planner and the compilers along,
which took a third of the time of importing this library.  A program of small arrays needs none of
that; so whoever may need it asks this package for it, which imports it then.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiledarray.execution import direct as direct
    from tiledarray.execution import evaluate as evaluate
    from tiledarray.execution import room as room

_ON_FIRST_USE = frozenset(("direct", "evaluate", "room"))


def __getattr__(name: str) -> ModuleType:
    if name in _ON_FIRST_USE:  # all together: later there may be no file to be had
        found = {each: importlib.import_module(f"{__name__}.{each}") for each in _ON_FIRST_USE}
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
