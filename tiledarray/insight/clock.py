"""Where the time of a run goes: every moment is some account's, so that they add up to the run.

The core counts and times what is done at once and what is recorded (`core/watch.c`), evaluation
tells exactly what it spends (`execution/spans.py`, the observers of steps), and what remains, time
in Python's code, is shared out by samples: every millisecond, whose frame is running.  All of it is
put in place when a clock starts and taken away when it stops: a run that nobody explains has none.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import sysconfig
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.core import (
    watch_begin,
    watch_end,
    watch_enter,
    watch_leave,
    watch_note,
    watch_take,
    watch_tick,
)
from tiledarray.execution import evaluate, executable, spans
from tiledarray.fusion.plan import Call, Copy, Kernel, Step
from tiledarray.graph.node import Node, Site, location
from tiledarray.recording import site as sites
from tiledarray.recording import stretch

INTERVAL = 0.001  # seconds between samples
ALL_WALKED = 16  # evaluations at a line whose work is looked at; later one of so many
MOST_WALKED = 256  # nodes of one evaluation
# The signal whose handler takes samples: profilers alone use it.  There is none on Windows.
TICK: int = getattr(signal, "SIGPROF", None) or signal.SIGFPE

# What is told exactly, by number; the core adds up their seconds.
EXACT = ("looks", "planning", "compiling", "op by op", "NumPy", "kernels", "library calls",
         "copies", "allocation")
# What the core's calls are, by number: see `core/watch.c`.
KINDS = ("elements", "reads", "at once", "recording")

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_NUMPY = os.path.join(os.path.dirname(np.__file__), "")
_INSTALLED = (os.path.dirname(os.path.dirname(_NUMPY)), *(
    os.sep + name + os.sep for name in ("site-packages", "dist-packages")))
_STANDARD = tuple(os.path.join(sysconfig.get_path(name), "")
                  for name in ("stdlib", "platstdlib"))
# Parts of this package whose frames are something else than recording.
_OURS = {
    "arrays/looking.py": "looks", "execution": "looks", "transforms": "looks", "devices": "looks",
    "fusion": "planning", "kernels": "compiling", "insight": "telling", "command": "telling",
    "core/twin_watch.py": "telling", "core": "at once", "recording/at_once.py": "at once",
    "command/script.py": "imports",
}


@dataclass(slots=True)
class Place:
    """What was done at one place in the user's code: how often, of how many elements, how long."""

    site: Site
    count: int = 0
    elements: int = 0
    seconds: float = 0.0

    @property
    def size(self) -> float:
        """Elements of one, on average."""
        return self.elements / max(1, self.count)


@dataclass(slots=True)
class Look(Place):
    """Evaluations of what was pending that one line asked for.

    Attributes
    ----------
    operations : int
        Of those evaluations that were walked over.
    walked : int
        How many those are; ``elements`` is the sum of the largest array of each.
    asked : bool
        Whether a value was looked at; else the recording was cut there.
    works : set
        What they were: number of operations, and shape of the largest array.
    plans : dict
        The plans that were made for it: for each sequence of operations the shapes in it, in order.
    """

    operations: int = 0
    walked: int = 0
    asked: bool = True
    works: set[Any] = field(default_factory=set)
    plans: dict[Any, list[Any]] = field(default_factory=dict)

    @property
    def size(self) -> float:
        """Elements of the largest array of one, on average."""
        return self.elements / max(1, self.walked)


@dataclass(slots=True)
class Accounts:
    """Where the time went.

    Attributes
    ----------
    wall : float
        Seconds from beginning to end.
    seconds : dict
        Those of each account; they add up to ``wall``.
    places : dict
        For each of `KINDS`, what was done at each place.
    looks : list of Look
    lines, callers : dict
        Seconds of the user's own code by file and line, as far as samples tell; and those of other
        libraries by the user's line that called them.
    beyond : float
        Seconds by which estimates were above what there was; they are lowered by it.
    """

    wall: float
    seconds: dict[str, float]
    places: dict[str, list[Place]]
    looks: list[Look]
    lines: dict[tuple[str, int], float]
    callers: dict[tuple[str, int], float]
    beyond: float = 0.0

    @property
    def named(self) -> float:
        """Which part of the time some account has, and has exactly."""
        lost = self.seconds["not told apart"] + self.beyond
        return 1 - lost / self.wall if self.wall else 1.0

    def share(self, *names: str) -> float:
        """Which part of the time these accounts have."""
        return sum(self.seconds.get(name, 0.0) for name in names) / max(self.wall, 1e-9)


_running: list[Clock] = []


class Clock:
    """Accounts for the time of a ``with`` block in one thread, unless another clock is running."""

    def __init__(self) -> None:
        self.found: Accounts | None = None
        self._python: defaultdict[str, float] = defaultdict(float)
        self._lines: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._callers: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._looks: dict[Any, Look] = {}
        self._look: Look | None = None
        self._places: dict[Site | None, tuple[str, int] | None] = {}
        self._kinds: dict[CodeType, str] = {}

    def __enter__(self) -> Clock:
        if _running:
            return self
        _running.append(self)
        self._owner = threading.get_ident()
        self._evaluate = evaluate.evaluate
        run = executable.Executable.run
        self._exchanged = [(evaluate, "evaluate", self._evaluate, self._evaluated),
                           (executable.Executable, "run", run, _accounted(run))]
        for owner, name, _, ours in self._exchanged:
            setattr(owner, name, ours)
        executable.observers.append(self._step)
        spans.watchers.append(self)
        self._handler, self._ticks = signal.getsignal(TICK), None
        gate = threading.Lock()
        with gate:  # the thread is started before anything counts, and ticks from then on
            # Only the main thread runs handlers; one that is none of Python's could not come back.
            if threading.current_thread() is threading.main_thread() and self._handler is not None:
                signal.signal(TICK, self._tick)
                if hasattr(signal, "siginterrupt"):
                    signal.siginterrupt(TICK, False)  # system calls of libraries go on
                self._ticks = threading.Thread(
                    target=_tick_after, args=(gate,), name="tiledarray explains", daemon=True)
                self._ticks.start()
            watch_begin(TiledArray, _PACKAGE, EXACT.index("allocation"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self not in _running:
            return
        wall, exact, rest, telling, calls = watch_end()
        spans.watchers.remove(self)
        executable.observers.remove(self._step)
        for owner, name, original, _ in self._exchanged:
            setattr(owner, name, original)
        _running.remove(self)
        if self._ticks is not None:
            self._ticks.join()
            signal.signal(TICK, self._handler)
        self.found = self._accounts(wall, exact, rest, telling, calls)

    def _accounts(
        self, wall: float, exact: Sequence[float], rest: float, telling: float,
        calls: Sequence[tuple[CodeType, int, int, int, int, float]],
    ) -> Accounts:
        seconds = defaultdict(float, self._python)
        for name, each in (*zip(EXACT, exact, strict=False), ("telling", telling)):
            seconds[name] += each
        seconds[max(self._python, key=self._python.__getitem__, default="Python")] += rest
        places: dict[str, list[Place]] = {name: [] for name in KINDS}
        seconds.update({name: seconds[name] for name in KINDS})
        for code, offset, number, count, elements, each in calls:
            places[KINDS[number]].append(Place((code, offset), count, elements, each))
            seconds[KINDS[number]] += each
        seconds["not told apart"] = wall - sum(seconds.values())
        beyond = _lower_estimates(seconds, places)
        return Accounts(wall, dict(seconds), places, list(self._looks.values()), self._lines,
                        self._callers, beyond)

    # ---- samples -------------------------------------------------------------------------

    def _tick(self, number: int, frame: FrameType | None) -> None:
        taken = watch_take()
        if taken is not None:
            self._sample(frame, *taken)

    def _sample(self, frame: FrameType | None, seconds: float, at_once: int = 0) -> None:
        """Give so many seconds of Python's to whose frame is running.

        Those of an operation that NumPy does at once are its own while NumPy's code is running.
        """
        kind = "Python"
        if frame is not None and _is_new(frame):
            frame = frame.f_back
        while frame is not None:
            code = frame.f_code
            found = self._kinds.get(code)
            if found is None:
                found = self._kinds[code] = _kind_of(code.co_filename)
            if found in ("libraries", "NumPy", "imports"):
                kind = found
                if found == "imports":
                    break
            elif found != "standard":
                kind = _whose(kind, found, at_once)
                lines = self._lines if kind == "Python" else self._callers
                if found == "Python" and kind in ("Python", "libraries"):
                    lines[code.co_filename, frame.f_lineno or code.co_firstlineno] += seconds
                break
            frame = frame.f_back
        self._python[kind] += seconds

    # ---- what is told exactly ------------------------------------------------------------

    def begin(self, name: str, about: Any) -> None:
        """Something that evaluation spends time on begins."""
        watch_enter(EXACT.index(name))
        look = self._look
        if name == "planning" and look is not None and threading.get_ident() == self._owner:
            names = tuple(node.form.op.name for node in about.nodes)
            look.plans.setdefault(names, []).append(tuple(node.shape for node in about.nodes))

    def end(self) -> None:
        """It ends."""
        watch_leave()

    def _step(self, running: executable.Executable, step: Step, elapsed: float) -> None:
        name = ("kernels" if isinstance(step, Kernel) else "library calls"
                if isinstance(step, Call) else "copies" if isinstance(step, Copy) else "allocation")
        watch_note(EXACT.index(name), elapsed)

    def _evaluated(
        self, targets: Sequence[Node], small: bool = False, unknown: bool = False
    ) -> None:
        """Evaluate, and tell which line asked for it."""
        if threading.get_ident() != self._owner:
            self._evaluate(targets, small, unknown)
            return
        watch_enter(0)
        try:
            asked = sys._getframe(1).f_code is stretch._look.__code__
            outer, started = self._look, perf_counter()
            look = self._look = self._look_at(sites.user_site(), asked, targets)
            try:
                self._evaluate(targets, small, unknown)
            finally:
                look.seconds += perf_counter() - started
                self._look = outer
        finally:
            watch_leave()

    def _look_at(self, site: Site | None, asked: bool, targets: Sequence[Node]) -> Look:
        line = self._places.get(site)
        if line is None:
            line = self._places[site] = location(site)
        look = self._looks.get((line, asked))
        if look is None:
            assert site is not None
            look = self._looks[line, asked] = Look(site, asked=asked)
        look.count += 1
        if look.count <= ALL_WALKED or look.count % ALL_WALKED == 0:
            operations, largest = _work(targets)
            look.walked += 1
            look.operations += operations
            look.elements += math.prod(largest)
            look.works.add((operations, largest))
        return look


def _lower_estimates(seconds: dict[str, float], places: dict[str, list[Place]]) -> float:
    """Raise accounts of less than nothing to nothing, by as much as the estimated ones are lowered.

    Of many short calls only some are timed: the mean of those, times all, may be more than there
    was, and what is left for others less than nothing.  Return by how much.
    """
    beyond = left = -sum(each for each in seconds.values() if each < 0)
    for name, each in seconds.items():
        seconds[name] = max(0.0, each)
    for names in (KINDS, tuple(seconds)):
        total = sum(seconds[name] for name in names)
        kept = 1 - min(left, total) / total if total else 1.0
        left -= (1 - kept) * total
        for name in names:
            seconds[name] *= kept
            for place in places.get(name, ()):
                place.seconds *= kept
    return beyond


def _tick_after(gate: threading.Lock) -> None:
    with gate:
        pass
    watch_tick(INTERVAL, TICK)


def _accounted(run: Any) -> Any:
    """Return what runs a plan and is accounted for, also where `jit` calls it."""

    def accounted(*args: Any, **options: Any) -> Any:
        watch_enter(0)
        try:
            return run(*args, **options)
        finally:
            watch_leave()

    return accounted


def _work(targets: Sequence[Node]) -> tuple[int, tuple[int, ...]]:
    """Return how many operations are pending, and the shape of the largest array in it."""
    waiting, seen = list(targets), set(targets)
    largest: tuple[int, ...] = ()
    operations = 0
    while waiting and len(seen) < MOST_WALKED:
        node = waiting.pop()
        largest = max(largest, node.shape, key=math.prod)
        if node.buffer is None:
            operations += 1
            for part in node.inputs:
                if type(part) is Node and part not in seen:
                    seen.add(part)
                    waiting.append(part)
    return operations, largest


def _is_new(frame: FrameType) -> bool:
    """Whether a frame has run nothing yet: handlers run where a function begins."""
    code = frame.f_code
    first = 2 * (len(code.co_cellvars) + bool(code.co_freevars))  # the bytes before the first line
    return frame.f_lasti <= first and frame.f_back is not None


def _whose(called: str, caller: str, at_once: int) -> str:
    """Return whose the time is of code of some kind that the user's or our code has called."""
    if called == "NumPy" and at_once:
        return "at once"
    if called in ("libraries", "NumPy"):  # NumPy does what we ask it for
        return "libraries" if caller == "Python" else "NumPy"
    return caller


def _kind_of(file: str) -> str:
    """Return whose code a file has: the user's, this package's part, or others'."""
    if file.startswith(_PACKAGE):
        name = Path(file[len(_PACKAGE):]).as_posix()
        return _OURS.get(name) or _OURS.get(name.partition("/")[0], "recording")
    if file.startswith("<frozen importlib"):
        return "imports"
    if file.startswith("<frozen"):
        return "standard"
    if file.startswith(_NUMPY):
        return "NumPy"
    if file.startswith(_INSTALLED[0]) or any(part in file for part in _INSTALLED[1:]):
        return "libraries"
    return "standard" if file.startswith(_STANDARD) else "Python"
