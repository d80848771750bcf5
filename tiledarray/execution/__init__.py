"""From pending nodes to values.

What makes and runs plans brings the planner and the compilers along, which took a third of the time
of importing this library, and what goes op by op needs most of the rest.  A program of small arrays
needs none of that, and one that is over soon no planner; so whoever may need a part asks this
package for it, which imports it then.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from tiledarray.fork import import_part

if TYPE_CHECKING:
    from tiledarray.execution import direct as direct
    from tiledarray.execution import doing_without as doing_without
    from tiledarray.execution import evaluate as evaluate
    from tiledarray.execution import known as known
    from tiledarray.execution import plans as plans
    from tiledarray.execution import room as room
    from tiledarray.execution import running as running

_OP_BY_OP = ("evaluate", "room", "known", "doing_without")
_PLANNED = frozenset(("direct", "plans", "running"))


def __getattr__(name: str) -> ModuleType:
    if name in _OP_BY_OP:  # all together: later there may be no file to be had
        return [_part(each) for each in _OP_BY_OP][_OP_BY_OP.index(name)]
    if name in _PLANNED:
        return _part(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _part(name: str) -> ModuleType:
    part = import_part(f"{__name__}.{name}")
    if getattr(part.__spec__, "_initializing", False):  # by this very thread, further out
        raise RuntimeError(
            "an array cannot be looked at while the program's first look imports what it needs; "
            "what runs in the middle of things (a signal handler, a finaliser) may write into "
            "arrays, and is to look at them later")
    return part
