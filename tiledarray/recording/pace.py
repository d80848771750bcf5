"""Whether arrays of middle size are computed at once or recorded: whichever turns out faster.

NumPy computes an operation on 40,000 elements in some 20 µs.  Recorded, ten of them in a loop are
one kernel and take a fifth of the time; but where most is not elementwise, or is looked at after
every step, or has another shape each time, recording takes twice as long.  What a program is made
of is not known beforehand, so its speed is measured while it runs: elements of middle-sized
results by the second (`core/pace.c`), with one limit or another in turn.  A try is short, comes
later and later where it does not pay, and tells nothing while it meets what is new and will be
compiled.  Where an earlier run of the program went faster recorded, the first try comes at once:
what it needs is on disk.
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
PAIRS = 6  # windows of either way in turn, all of which count before one is preferred
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
LEVELS = (1, 4)  # times `config.at_once_least`: limits that are tried, in turn
CUT = 100  # operations of a stretch: what is tried is planned soon, and other loops may follow
QUIET = frozenset(("ignore", "warn"))  # what warns has done so by now
ERRORS = ("divide by zero", "overflow", "underflow", "invalid value")  # as NumPy calls them
NEW = ("plans made", "plans read", "kernels compiled", "op by op")  # that will not come again


class Pace:
    """How fast the program runs either way, and which way it goes on.

    Attributes
    ----------
    low : int
        Elements above which arrays of middle size are recorded; 0 where they are computed at once.
    preferred : int
        The same of what was seen to be faster.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Forget all, and compute arrays of middle size at once."""
        self.low = self.preferred = 0
        least = config.at_once_least
        self._levels = [n * least for n in LEVELS if n * least < config.at_once] or [least]
        self._speed = dict.fromkeys((0, *self._levels), 0.0)  # elements by the second, by limit
        self._tries = dict.fromkeys(self._levels, 0)
        self._sums: dict[int, list[float]] = {}  # while two ways are compared: work and seconds
        self._pairs = 0
        self._asked = False  # whether an earlier run went faster recorded
        self._turned = _now()  # when recording last began
        self._waits = False  # whether it is about to
        self._patience = PATIENCE
        self._next = perf_counter() + FIRST  # when the other way is tried
        self._go(low=0, work=0.0)

    def turn(self) -> None:
        """Weigh what was done since the last turn, and say when the next one is."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._waits:
                self._waits = False
                self._turned = _now()
                expect_plans()  # op by op a try would tell nothing
                self._go(low=self._levels[0], work=self._speed[0] * WINDOW)
                return
            if self.low and core.small() > self.low:  # errors raise, or it was set anew
                self.begin()
                return
            work, seconds = core.paced() - self._done, _seconds_since(self._begun)
            done = (self.low or self._sums) and work >= self._speed[0] * WINDOW
            if seconds < (LEAST_WINDOW if done else WINDOW):
                more = work * min(8.0, WINDOW / max(seconds, 1e-9) - 1)
                core.pace(self.low, core.paced() + max(more, LITTLE), LONGEST_WINDOW - seconds)
                return
            if self._sums:
                low = self._compared(work, seconds)
            else:
                self._windows.append(work / seconds)
                self._speed[self.low] = max(self._windows)
                low = self._weigh_recorded() if self.low else self._weigh_at_once()
            if low and not self.low:
                self._waits = True
                core.wait_for_place(LONGEST_WINDOW)
                return
            self._go(low=low, work=self._speed[0] * WINDOW)
        finally:
            self._lock.release()

    def _go(self, *, low: int, work: float) -> None:
        """Go on with a limit until so much is done."""
        if low != self.low or not work:
            self._windows: deque[float] = deque(maxlen=MANY if low else WINDOWS)
            core.set_cut(min(CUT, config.cut) if low else config.cut)
        self.low = low
        self._begun, self._done, self._new = _now(), core.paced(), _new()
        core.pace(low, self._done + max(work, LITTLE), LONGEST_WINDOW)

    def _stands(self, *, preferred: bool) -> int:
        """Let it stand for a while whether the limit was better that is tried; return how to go on.

        If it was not, another one is tried next; it is not waited longer before all have been.
        """
        level = self._levels[0]
        self.preferred = level if preferred else 0
        ahead = self._speed[self.preferred] > 2 * self._speed[0 if preferred else level]
        if not preferred:
            self._levels.append(self._levels.pop(0))
        if preferred or self._speed[self._levels[0]]:
            self._patience = min(LONGEST, self._patience * (MUCH_LONGER if ahead else LONGER))
        self._next = perf_counter() + self._patience
        if preferred:
            self._tries[level] = 0
            note_faster(level // config.at_once_least)
        return self.preferred

    def _weigh_at_once(self) -> int:
        """Return the limit to go on with."""
        if len(self._windows) < WINDOWS:
            return 0
        if not self._asked:
            self._asked = True
            level = was_faster() * config.at_once_least
            if level in self._levels:
                self._next = 0.0
                self._levels.remove(level)
                self._levels.insert(0, level)
        due = (perf_counter() >= self._next and self._speed[0] >= WORTH
               and not background.unfinished() and not _warnings_raise())
        return self._levels[0] if due else 0

    def _weigh_recorded(self) -> int:
        """Return the limit to go on with."""
        level = self.low
        ahead = self._speed[level] / max(self._speed[0], 1.0)
        if self.preferred:
            # What is slow now may be the program, which does something else: see how it is at once.
            slower = ahead < 1 and len(self._windows) == MANY
            return level if perf_counter() < self._next and not slower else self._compare()
        if ahead > AHEAD:
            return self._compare()
        if _new() == self._new or self._tries[level] >= TRIES:
            return level if len(self._windows) < 2 else self._stands(preferred=False)
        self._windows.clear()
        return level if self._spent() < TRY else self._later()

    def _spent(self) -> float:
        """Return what a try has taken of this thread: what it sleeps meanwhile is its own affair.

        By the clock where it has to wait for compilers itself.
        """
        wall, _, _ = self._turned
        return perf_counter() - wall if config.compile == "wait" else _seconds_since(self._turned)

    def _later(self) -> int:
        """Try once more later: it told nothing."""
        level, spent = self._levels[0], self._spent()
        self._tries[level] += 1
        self._next = perf_counter() + 2 * self._tries[level] * spent
        return 0

    def _compare(self) -> int:
        """Begin to go on either way in turn, at once first.

        The fastest windows may have been of another part of the program than those at once.
        """
        self._sums = {0: [0.0, 0.0], self._levels[0]: [0.0, 0.0]}
        self._pairs = 0
        self._turned = _now()
        return 0

    def _compared(self, work: float, seconds: float) -> int:
        """Count a window of two ways in turn; return the limit to go on with."""
        level = self._levels[0]
        if not self.low or _new() == self._new:
            sums = self._sums[self.low]
            sums[0], sums[1] = sums[0] + work, sums[1] + seconds
        if self.low:
            self._pairs += 1
        if self._pairs < PAIRS:
            return 0 if self.low else level
        for limit, (done, took) in self._sums.items():
            self._speed[limit] = done / took if took else 0.0
        told = self._sums[level][1] > 0
        self._sums = {}
        if not told and self._tries[level] < TRIES:
            self.preferred = 0
            return self._later()
        worth = self._speed[0] * (1.0 if self.preferred else AHEAD)
        return self._stands(preferred=self._speed[level] > worth)


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


def was_faster() -> int:
    """Return with which of `LEVELS` an earlier run of this program was seen to go faster, or 0."""
    program = _program()
    if program is None or not config.cache_dir.is_dir():
        return 0
    with importing:
        from tiledarray.kernels.compile import cache
    with suppress_own(OSError, TiledArrayWarning):
        found = cache.get(cache.key("pace", program), ".pace")
        return int(found.data) if found is not None and found.data.isdigit() else 0
    return 0


def note_faster(level: int) -> None:
    """Have later runs of this program know it."""
    program = _program()
    if program is not None and was_faster() != level:
        with importing:
            from tiledarray.kernels.compile import cache
        with suppress_own(OSError, TiledArrayWarning):
            cache.put(cache.key("pace", program), ".pace", b"%d" % level, small=True)


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
