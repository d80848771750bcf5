"""What has been met before, and the plans that were made of it."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tiledarray import config
from tiledarray.fork import hold_at_fork

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable
    from tiledarray.execution.plans import Bound
    from tiledarray.graph.dtypes import UnsupportedDtypeError

PLANS_REMEMBERED = 1024
PLANNER = "tiledarray.execution.running"  # which brings along all that plans and compiles
PLANNER_TAKES = 7  # times `config.first_seconds`, to be loaded
AMPLE_BYTES = 1 << 28  # that may be taken op by op
SMALL_SECONDS = 0.002  # that something takes op by op: hardly worth compiling it

lock = threading.RLock()  # of whoever plans or runs
hold_at_fork(lock, outer=True)
executables: OrderedDict[Any, Executable | Bound | UnsupportedDtypeError] = OrderedDict()
_without = [0.0]  # seconds that what might have been planned took, as far as one can tell
_met: OrderedDict[Any, int] = OrderedDict()  # how often, of what has no plan


def is_new(key: Any, times: int) -> bool:
    """Whether this has been met less often: to plan what may not come again takes longer."""
    if key in executables:
        return False
    met = _met.get(key, 0)
    _met[key] = met + 1
    while len(_met) > PLANS_REMEMBERED:
        _met.popitem(last=False)
    return met < times


def times_met(key: Any) -> int:
    """How often something has been met that has no plan; of what has one, very often."""
    return sys.maxsize if key in executables else _met.get(key, 0)


def planner_is_loaded() -> bool:
    """Whether something has been planned, or is about to be."""
    return PLANNER in sys.modules


def expect_plans() -> None:
    """Have the planner loaded for the next that comes again."""
    _without[0] = PLANNER_TAKES * config.first_seconds


def too_early(seconds: float) -> bool:
    """Whether all so far, with what takes that long, has not been worth loading the planner."""
    if planner_is_loaded():
        return False
    _without[0] += seconds
    return _without[0] < PLANNER_TAKES * config.first_seconds
