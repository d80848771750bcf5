"""Whether arrays of middle size are computed at once or recorded: whichever turns out faster.

NumPy computes an operation on 40,000 elements in some 20 µs.  Recorded, ten of them in a loop are
one kernel and take a fifth of the time; but where most is not elementwise, or is looked at after
every step, or has another shape each time, recording takes twice as long.  What a program is made
of is not known beforehand, so its speed is measured while it runs: elements of middle-sized
results by the second (`core/pace.c`), with either limit in turn.  A try is short, comes later and
later where it does not pay, and tells nothing while it meets what is new and will be compiled.
Where an earlier run of the program went faster recorded, the first try comes at once: what it needs
is on disk.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from time import perf_counter, thread_time

import numpy as np
from numpy._core import umath  # it has no other name for what `np.errstate` sets

from tiledarray import config, core
from tiledarray.errors import TiledArrayWarning, suppress_own
from tiledarray.execution.background import background
from tiledarray.execution.known import expect_plans
from tiledarray.execution.spans import counters
from tiledarray.fork import importing
from tiledarray.recording.stretch import local

WINDOW = 0.03  # seconds over which a speed is measured; recorded, until as much is done ...
LEAST_WINDOW = WINDOW / 8  # ... but for so long, or the clock is too coarse
LONGEST_WINDOW = 3 * WINDOW  # ... and after which a slower try is weighed, too
TRY = 5 * WINDOW  # seconds of a try that meets what is new: several of a program's loops
WINDOWS = 3  # of which the fastest counts: others hold what has nothing to do with arrays ...
MANY = 12  # ... and so many before what is recorded is said to be slower than it was
LITTLE = 1e6  # elements: what has none of middle size is not weighed at all
FIRST = 1.0  # seconds before the first try, which may take as long itself while kernels compile
WORTH = 7e7  # elements by the second; below, a tenth of the time at most goes into such arrays
AHEAD = 1.15  # times as fast as the other way, to be preferred to it
TRIES = 4  # in a row that tell nothing
PATIENCE = 0.5  # seconds for which a decision stands; each time longer, by ...
LONGER = 2.0
MUCH_LONGER = 6.0  # ... where the other way was less than half as fast, up to ...
LONGEST = 60.0
CUT = 100  # operations of a stretch: what is tried is planned soon, and other loops may follow
QUIET = frozenset(("ignore", "warn"))  # what warns has done so by now
ERRORS = ("divide by zero", "overflow", "underflow", "invalid value")  # as NumPy calls them
NEW = ("plans made", "plans read", "kernels compiled", "op by op")  # that will not come again


class Pace:
    """How fast the program runs either way, and which way it goes on.

    Attributes
    ----------
    low : bool
        Whether arrays of middle size are recorded.
    preferred : bool
        Whether that was seen to be faster.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Forget all, and compute arrays of middle size at once."""
        self.low = self.preferred = False
        self._speed = {False: 0.0, True: 0.0}  # elements by the second, by whether it is low
        self._tries = 0
        self._asked = False  # whether an earlier run went faster recorded
        self._turned = 0.0  # when recording last began
        self._waits = False  # whether it is about to
        self._patience = PATIENCE
        self._next = perf_counter() + FIRST  # when the other way is tried
        self._go(low=False, work=0.0)

    def turn(self) -> None:
        """Weigh what was done since the last turn, and say when the next one is."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._waits:
                self._waits = False
                self._turned = perf_counter()
                expect_plans()  # op by op a try would tell nothing
                self._go(low=True, work=self._speed[False] * WINDOW)
                return
            if self.low and core.small() > config.at_once_least:  # errors raise, or it was set anew
                self.begin()
                return
            work, seconds = core.paced() - self._done, _seconds_since(self._begun)
            done = self.low and work >= self._speed[False] * WINDOW
            if seconds < (LEAST_WINDOW if done else WINDOW):
                more = work * min(8.0, WINDOW / max(seconds, 1e-9) - 1)
                core.pace(self.low, core.paced() + max(more, LITTLE), LONGEST_WINDOW - seconds)
                return
            self._windows.append(work / seconds)
            self._speed[self.low] = max(self._windows)
            low = self._weigh_recorded() if self.low else self._weigh_at_once()
            if low and not self.low:
                self._waits = True
                core.wait_for_place(LONGEST_WINDOW)
                return
            self._go(low=low, work=self._speed[False] * WINDOW)
        finally:
            self._lock.release()

    def _go(self, *, low: bool, work: float) -> None:
        """Go on with either limit until so much is done."""
        if low is not self.low or not work:
            self._windows: deque[float] = deque(maxlen=MANY if low else WINDOWS)
            core.set_cut(min(CUT, config.cut) if low else config.cut)
        self.low = low
        self._begun, self._done, self._new = _now(), core.paced(), _new()
        core.pace(low, self._done + max(work, LITTLE), LONGEST_WINDOW)

    def _stands(self, *, preferred: bool) -> bool:
        """Let what was decided stand for a while."""
        self.preferred = preferred
        ahead = self._speed[preferred] > 2 * self._speed[not preferred]
        self._patience = min(LONGEST, self._patience * (MUCH_LONGER if ahead else LONGER))
        self._next = perf_counter() + self._patience
        if preferred:
            self._tries = 0
            note_faster()
        return preferred

    def _weigh_at_once(self) -> bool:
        """Return whether to go on with the low limit."""
        if len(self._windows) < WINDOWS:
            return False
        if self.preferred:  # it was to be seen whether recording is still faster
            return self._stands(preferred=self._speed[True] > self._speed[False])
        if not self._asked:
            self._asked = True
            if was_faster():
                self._next = 0.0
        return (perf_counter() >= self._next and self._speed[False] >= WORTH
                and not background.unfinished() and not _warnings_raise())

    def _weigh_recorded(self) -> bool:
        """Return whether to go on with the low limit."""
        ahead = self._speed[True] / max(self._speed[False], 1.0)
        if self.preferred:
            # What is slow now may be the program, which does something else: see how it is at once.
            slower = ahead < 1 and len(self._windows) == MANY
            return perf_counter() < self._next and not slower
        if ahead > AHEAD:
            return self._stands(preferred=True)
        if _new() == self._new or self._tries >= TRIES:
            return len(self._windows) < 2 or self._stands(preferred=False)
        self._windows.clear()
        spent = perf_counter() - self._turned
        if spent < TRY:
            return True
        self._tries += 1
        self._next = perf_counter() + self._tries * spent
        return False


def _now() -> tuple[float, float, int]:
    return perf_counter(), thread_time(), threading.get_ident()


def _seconds_since(begun: tuple[float, float, int]) -> float:
    """Return this thread's processor time: others' work on a machine that is shared is not its."""
    wall, own, thread = begun
    return thread_time() - own if thread == threading.get_ident() else perf_counter() - wall


def _warnings_raise() -> bool:
    """Whether a filter makes an error of what NumPy's arithmetic warns of."""
    return any(
        action == "error" and issubclass(RuntimeWarning, category)
        and (message is None or any(map(message.match, _warnings())))
        for action, message, category, _, _ in warnings.filters)


def _warnings() -> Iterator[str]:
    """All that NumPy's arithmetic says."""
    names = [name for name, function in vars(np).items() if isinstance(function, np.ufunc)]
    return (f"{error} encountered in {name}"
            for error in ERRORS for name in (*names, "reduce", "accumulate", "cast"))


def _new() -> tuple[int, ...]:
    return tuple(counters[name] for name in NEW)


# ---- earlier runs ------------------------------------------------------------------------------


def was_faster() -> bool:
    """Whether an earlier run of this program was seen to go faster recorded."""
    program = _program()
    if program is None or not config.cache_dir.is_dir():
        return False
    with importing:
        from tiledarray.kernels.compile import cache
    with suppress_own(OSError, TiledArrayWarning):
        return cache.get(cache.key("pace", program), ".pace") is not None
    return False


def note_faster() -> None:
    """Have later runs of this program know it."""
    program = _program()
    if program is not None and not was_faster():
        with importing:
            from tiledarray.kernels.compile import cache
        with suppress_own(OSError, TiledArrayWarning):
            cache.put(cache.key("pace", program), ".pace", b"recorded", small=True)


def _program() -> str | None:
    """The path of the program's file, if it has one."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return file and os.path.abspath(file)


pace = Pace()


def _raises() -> bool:
    """Whether floating-point errors are told; then what is pending, which tells none, is done."""
    told = not QUIET.issuperset(np.geterr().values())
    if told:
        local.recorder.flush()
    return told


def begin() -> None:
    """Have speeds measured from now on."""
    core.set_pace(pace.turn, _raises, getattr(umath, "_extobj_contextvar", None))
