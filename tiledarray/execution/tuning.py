"""Tuning: a few other plans of the same work take turns on real runs, and the fastest stays.

The planner proposes them (`fusion.choices`) once a plan has run for a while; they are planned and
compiled by the thread in the background, and each is timed on runs that the program makes anyway:
so all data is real, and every run's result is used.  What was found is kept on disk for the class
of work (its operations and dtypes, the device, lengths to three bits), where the next plan of that
class, also of another process, finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tiledarray import config
from tiledarray.errors import NOT_COMPILED, TiledArrayError, TiledArrayWarning, suppress_own
from tiledarray.execution import known, replay
from tiledarray.execution.background import background
from tiledarray.fusion.choices import choice_text, choices, joined
from tiledarray.fusion.limits import Limits
from tiledarray.fusion.target import Choice, Target
from tiledarray.kernels.compile import cache
from tiledarray.ops.op import Leaf

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

SUFFIX = ".tuned"
LEAST_SECONDS = 20e-6  # of a plan's run, foretold: less is mostly the launch
WORTH_SECONDS = 0.5  # of its runs, foretold, before others are compiled: that takes as long
MOST_KERNELS = 12  # of a plan, for all of them are compiled once more
MOST_NODES = 400  # of the work: who evaluates something meanwhile waits until it is planned again
MOST_PLANS = 8  # beside the usual one
TIMES = 6  # that each is timed, after a first run
GAIN = 0.03  # share of the time that another plan must save
_Result = TypeVar("_Result")


class Timed(NamedTuple):
    """A choice of limits, and how long a run took with it."""

    choice: Choice
    seconds: float


class Found(NamedTuple):
    """What tuning has found.

    Attributes
    ----------
    choice : tuple of (str, int)
        The best limits, where they are not the usual ones.
    timed : list of Timed
        The usual plan's time and then the others'.
    """

    choice: Choice
    timed: list[Timed]

    def text(self) -> str:
        """What was timed and what came of it, in a sentence."""
        usual, *others = self.timed
        taken = choice_text(self.choice)
        if not others:
            return "there is no other plan to time"
        times = "; ".join(f"{choice_text(choice)} {1e3 * seconds:.3g} ms"
                          for choice, seconds in sorted(others, key=lambda other: other.seconds))
        return (f"{len(others)} other {'plan' if len(others) == 1 else 'plans'} timed beside the "
                f"usual one's {1e3 * usual.seconds:.3g} ms: {times}. "
                + (f"Taken: {taken}" if self.choice else
                   f"None saves {GAIN:.0%}, so it stays as planned"))


def found(name: str) -> Found | None:
    """Return what was found for a class of work, by this process or another."""
    with suppress_own(OSError, TiledArrayWarning, ValueError, KeyError, TypeError):
        entry = cache.get(name, SUFFIX)
        if entry is not None:
            data = json.loads(entry.data)
            return Found(_choice(data["choice"]),
                         [Timed(_choice(choice), float(seconds))
                          for choice, seconds in data["timed"]])
    return None


def _choice(data: list[tuple[str, int]]) -> Choice:
    choice = tuple((str(name), int(value)) for name, value in data)
    if not dict(choice).keys() <= Limits.__dataclass_fields__.keys():
        raise ValueError("of a version that had other limits")
    return choice


def seconds_of(executable: Executable, target: Target) -> float:
    """How long a run takes at least, as far as its own kernels say."""
    return sum(max(kernel.bytes_moved / target.bytes_per_second,
                   kernel.flops / target.flops_per_second) for kernel in executable.plan.kernels)


def tuning_of(executable: Executable, target: Target, name: str, nodes: int) -> Tuning | None:
    """Return what tunes a plan of so many nodes; ``None`` where that cannot gain much."""
    if not 0 < len(executable.plan.kernels) <= MOST_KERNELS or nodes > MOST_NODES:
        return None
    seconds = seconds_of(executable, target)
    return None if seconds < LEAST_SECONDS else Tuning(executable, target, name, seconds)


class Tuning:
    """Finds out which of a few plans runs a piece of work fastest.

    All but `compile` is for whoever holds the evaluation's lock.

    Parameters
    ----------
    usual : Executable
    target : Target
        What it was planned for.
    name : str
        Of the class of work.
    seconds : float
        That a run takes, foretold.

    Attributes
    ----------
    best : Executable
        What to run, as far as is known.
    found : Found or None
        What came of it.
    queued : bool
        Whether the thread in the background has to do with it.
    """

    def __init__(self, usual: Executable, target: Target, name: str, seconds: float) -> None:
        self.best = self._usual = usual
        self.found: Found | None = None
        self.queued = False
        self._target, self._name, self._seconds = target, name, seconds
        self._spent = 0.0
        self._proposed: list[Choice] | None = None
        self._plans: dict[Choice, Executable] = {}  # that take turns, the best so far first
        self._all: dict[Choice, float] = {}  # the least time of each
        self._ready = False
        self._runs = 0

    # ---- in the background -----------------------------------------------------------------

    def left(self) -> tuple[()]:
        """Return what another process may compile, should this one end: a GPU is needed."""
        return ()

    def compile(self) -> None:
        """Plan and compile the others."""
        try:
            self._compile()
        finally:
            self._ready = True

    def _compile(self) -> None:
        usual, device = self._usual, self._usual.device
        active = device.active if device.kind == "cuda" else nullcontext
        if self._proposed is None:
            with known.lock:
                whole = usual if usual.again is None else usual.planned(usual.again)
            self._proposed, self._plans = choices(whole.plan, self._target), {(): usual}
        for choice in self._proposed:
            if len(self._plans) > MOST_PLANS or not config.tune:
                break
            with known.lock:
                made = usual.planned(replace(self._target, choice=choice))
                other = self._is_another(made)
            if other:
                with suppress(*NOT_COMPILED), active():
                    made.compile()
                    made.sites, made.params, made.tuning = usual.sites, usual.params, self
                    self._plans[choice] = made

    def _is_another(self, made: Executable) -> bool:
        """Whether a plan runs otherwise than those that there are, with as little memory."""
        usual = self._usual
        return (
            made.plan.assumed == usual.plan.assumed
            and {number for _, number in made.leaves} == {number for _, number in usual.leaves}
            and _in_place(made) == _in_place(usual)
            and sum(replay.own_memory(made.plan)[1]) <= sum(replay.own_memory(usual.plan)[1])
            and all(_work(made) != _work(plan) for plan in self._plans.values())
        )

    # ---- runs ------------------------------------------------------------------------------

    def turns(self) -> bool:
        """Whether this run is to be timed; asked once a run, until something has been found."""
        if self.found is not None or not config.tune:
            return False
        if self._ready:
            return True
        self._spent += self._seconds
        if self._spent >= WORTH_SECONDS and not self.queued:
            self.queued = True
            background.compile(self)
        return False

    def timed(self, run: Callable[[Executable], _Result]) -> _Result:
        """Run the plan whose turn it is, and note how long it takes."""
        choice = [*self._plans][self._runs % len(self._plans)]
        plan, wait = self._plans[choice], self._usual.device.synchronize
        first = self._runs < len(self._plans)
        plan.replay = None  # the others have none
        wait()
        started = perf_counter()
        try:
            result = run(plan)
            wait()
        except BaseException:
            if plan is not self.best:
                del self._plans[choice]
            raise
        seconds = perf_counter() - started
        if not first:
            self._all[choice] = min(seconds, self._all.get(choice, seconds))
        self._runs += 1
        if self._runs >= (1 + TIMES) * len(self._plans) and self._all.keys() >= self._plans.keys():
            self._compare()
        return result

    def _compare(self) -> None:
        """Take the best of those that took turns; try once what several gain together."""
        usual = self._all[()]
        best = min(self._plans, key=self._all.__getitem__)
        if self._all[best] > (1 - GAIN) * usual:
            best = ()
        self.best = self._plans[best]
        winners = sorted((choice for choice, seconds in self._all.items()
                          if seconds <= (1 - GAIN) * usual), key=self._all.__getitem__)
        together = joined(winners)
        for choice, plan in self._plans.items():
            if choice not in ((), best):
                plan.let_go()
        if len(together) > 1 and together not in self._all and len(best) == 1:
            self._plans = {choice: self._plans[choice] for choice in ((), best)}
            self._proposed, self._ready, self._runs = [together], False, 0
            background.compile(self)
            return
        self._plans = {}
        self.found = Found(best, [Timed((), usual), *(
            Timed(choice, seconds) for choice, seconds in self._all.items() if choice)])
        self.best.runs = replay.MET  # its launches become one now
        keep(self._name, self.found)

    def let_go(self, plan: Executable) -> None:
        """Drop the other plans' kernels, if this is the usual one."""
        if plan is not self._usual:
            return
        others = {self.best, *self._plans.values()} - {self._usual}
        self.best, self._plans, self._proposed = self._usual, {}, None
        self._ready = self.queued = False
        for other in others:
            other.let_go()


def keep(name: str, what: Found) -> None:
    """Keep on disk what was found for a class of work, if there is room."""
    with suppress_own(OSError, TiledArrayError):
        cache.put(name, SUFFIX, json.dumps(what._asdict()).encode(), small=True)


def _in_place(executable: Executable) -> set[int]:
    """Numbers of the leaves that a plan writes in."""
    return {base.attrs for base in replay.stored_into(executable.plan)
            if isinstance(base.op, Leaf)}


def _work(executable: Executable) -> list[tuple[object, ...]]:
    """What a plan runs, by which two can be told apart."""
    return [(program.text, program.blocks, program.threads, program.shared_bytes,
             program.shared_limit, program.at_once) for program in executable.programs.values()]
