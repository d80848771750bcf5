"""The state machine: random moves on live arrays, which after every step are NumPy's.

``python -m tests.machine --steps 1000000 --seed 0 --out record.json`` makes that many steps on all
cores and writes what came of it.  A failure is printed as the shortest program that shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy

import tiledarray
from tests.plans import let_compile
from tests.scene import NotNow, Scene, code, namespace, refusal
from tests.sides import by_chance, chosen_by, two_sides
from tiledarray import config
from tiledarray.arrays.handle import Handle, host_array
from tiledarray.core import pace as go_on
from tiledarray.core import paced
from tiledarray.devices.device import accelerator
from tiledarray.devices.pool import HostPool
from tiledarray.errors import TiledArrayWarning
from tiledarray.execution import doing_without, known, plans, tuning
from tiledarray.execution.executable import Executable
from tiledarray.execution.op_by_op import chain
from tiledarray.execution.op_by_op import run as op_by_op
from tiledarray.execution.packing import packed, unpacked
from tiledarray.fusion import choices
from tiledarray.recording import pace
from tiledarray.recording.stretch import local

LENGTH = 40  # steps of a program
LOOKS = [100, 30, 100, 8]  # steps of a hundred after which all arrays are compared, by seed
REFUSALS = int(os.environ.get("MACHINE_REFUSALS", "25"))
LARGEST = 4096
MOST_ELEMENTS = 10_000
EVALUATE = "np.evaluate()"
SHRINK_SECONDS = 40.0


@dataclass(frozen=True)
class Tier:
    """How programs run, and what part of all steps are made so.

    Attributes
    ----------
    share : float
    settings : dict
    block : int
        Elements of a block op by op, so that small arrays have several; 0 leaves it as it is.
    few : bool
        Draw from few dtypes and few programs: each new one costs the compiling of kernels.
    repeats : int
        How often a program runs: op by op at first, then with the kernels that were compiled.
    sides : bool
        Nothing is put on a device, and each evaluation is on the host or on another by chance.
    paced : bool
        What is of middle size is computed at once or recorded by chance, which changes.
    tuned : bool
        Plans take turns with others, and any of them may stay.
    read : bool
        Plans are as they come from disk.
    """

    share: float
    settings: dict[str, Any]
    block: int = 0
    few: bool = False
    repeats: int = 1
    sides: bool = False
    paced: bool = False
    tuned: bool = False
    read: bool = False


TIERS = {
    "op_by_op": Tier(0.26, {"compile": "never", "at_once": 1, "threads": 1}),
    "recorded": Tier(0.15, {"compile": "never", "at_once": 0, "threads": 1}),
    "at_once": Tier(0.15, {"compile": "never", "at_once": 30, "threads": 1}),
    "paced": Tier(0.05, {"compile": "never", "at_once": 30, "at_once_least": 3, "threads": 1},
                  paced=True),
    "settled": Tier(0.05, {"compile": "never", "at_once": 8192, "threads": 1}),
    "blocks": Tier(0.20, {"compile": "never", "at_once": 0, "threads": 2}, block=24),
    "kernels": Tier(0.05, {"compile": "wait", "at_once": 0, "threads": 2}, few=True),
    "kernels_and_elements": Tier(0.04, {"compile": "wait", "at_once": 1, "threads": 1}, few=True),
    "background": Tier(0.05, {"compile": "background", "at_once": 1, "threads": 2}, few=True,
                       repeats=3),
    "tuned": Tier(0.04, {"compile": "wait", "at_once": 1, "threads": 2, "tune": True}, few=True,
                  repeats=8, tuned=True),
    "read": Tier(0.05, {"compile": "wait", "at_once": 0, "threads": 2}, few=True, read=True),
    "two_sides": Tier(0.05, {"compile": "wait", "at_once": 30, "threads": 1}, few=True, sides=True),
}


# ---- comparing ---------------------------------------------------------------------------------


def seen(value: Any) -> Any:
    """The value as NumPy's, as close to where it lies as can be: the array itself, on the host."""
    return host_array(value) if isinstance(value, Handle) else value


def differs(ours: Any, theirs: Any) -> str | None:
    """Say in what an array or another value is not NumPy's."""
    if not isinstance(theirs, (numpy.ndarray, numpy.generic)):
        return None if ours == theirs else f"is {ours!r:.200}, not {theirs!r:.200}"
    found, wanted = numpy.asarray(seen(ours)), numpy.asarray(theirs)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"is {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if (found == wanted).all():
        return None
    wrong = found != wanted
    place = tuple(map(int, numpy.argwhere(wrong)[0]))
    return (f"{list(place)} is {found[place]!r}, not {wanted[place]!r}; "
            f"{int(wrong.sum())} of {wrong.size} differ")


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """Say which variable is not NumPy's, if one is not."""
    for name, value in theirs.items():
        if name[0] in "vh" or name == "seen":
            if name not in ours:
                return f"{name} is missing"
            problem = differs(ours[name], value)
            if problem:
                return f"{name} {problem}"
    return None


def tame(value: Any) -> bool:
    """Whether the numbers are small multiples of 1/8, and few."""
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        return not isinstance(value, tuple)
    if value.size > MOST_ELEMENTS or value.ndim > 4:
        return False
    if value.dtype.kind == "c":
        return tame(value.real) and tame(value.imag)
    if value.dtype.kind != "f" or not value.size:
        return True
    if value.dtype.char not in "fd":
        return False
    eighths = value * 8
    return bool((abs(eighths) <= 8 * LARGEST).all() and (eighths == numpy.trunc(eighths)).all())


# ---- running -----------------------------------------------------------------------------------

# On a device kernels are always compiled first.
DEVICE_TIERS = {"op_by_op": 0.8, "kernels": 0.12, "kernels_and_elements": 0.08}


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """New memory holds numbers that no program makes: what is not written shows."""
    take = HostPool.array

    def array(self: HostPool, shape: Any, dtype: Any) -> Any:
        found = take(self, shape, dtype)
        numpy.ndarray(found[0].nbytes, "u1", found[0]).fill(0x5B)
        return found

    with mock.patch.object(HostPool, "array", array):
        yield


@contextlib.contextmanager
def paced_by_chance(seed: int) -> Iterator[None]:
    """Lower the limit of what is computed at once, and raise it, by chance."""
    random = Random(seed)

    def turn() -> None:
        go_on(random.choice((0, 0, 3, 12)), paced(), 0.0)

    with mock.patch.object(pace.pace, "turn", turn):
        pace.begin()
        yield
    pace.begin()


# Limits that give small programs other plans, and other kernels.
OTHER_LIMITS = {"expensive": (1, 1000), "parts": (1,), "loads": (2,), "small_reduction": (1,),
                "short_reduction": (1,), "tile": (16,), "summed_vectors": (1,)}


@contextlib.contextmanager
def tuned_by_chance(seed: int) -> Iterator[None]:
    """Have other plans take turns from the second run on, and any of them be the fastest."""
    random = Random(seed)
    limits = {form: OTHER_LIMITS for form in ("map", "row", "column", "scan")}
    with mock.patch.dict(choices.BY_FORM, {"cpu": limits}), mock.patch.multiple(
            tuning, LEAST_SECONDS=0.0, WORTH_SECONDS=0.0, TIMES=1, GAIN=-10.0,
            perf_counter=random.random, found=lambda name: None, keep=lambda name, what: None):
        yield


@contextlib.contextmanager
def plans_from_disk() -> Iterator[None]:
    """Have plans run as they do once they have been written and read again."""

    def read(*args: Any, made: Any = plans._made, **kwargs: Any) -> Executable:
        found = made(*args, **kwargs)
        try:
            data = packed(found.plan, found.programs, found.names)
        except LookupError:
            return found
        plan, programs, names = unpacked(data)
        return Executable(plan, found.device, found.contract, programs, names)

    with mock.patch.object(plans, "_made", read):
        yield


@contextlib.contextmanager
def setting(tier: Tier, device: str) -> Iterator[None]:
    """Run programs as the tier says."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.override(verify=True, cut=config.cut, device=device,
                                            **tier.settings))
        if tier.sides and device == "cpu":
            stack.enter_context(two_sides(by_chance(1)))
        elif tier.sides:
            stack.enter_context(chosen_by(by_chance(1), accelerator()))
        if tier.tuned:
            stack.enter_context(tuned_by_chance(1))
        if tier.read:
            stack.enter_context(plans_from_disk())
        if tier.paced:
            stack.enter_context(paced_by_chance(1))
        stack.enter_context(mock.patch.object(known, "SMALL_SECONDS", 0.0))
        stack.enter_context(poisoned())
        if tier.block:
            stack.enter_context(mock.patch.multiple(
                chain, BLOCK=tier.block, WORTH_CHAINING=2, WORTH_THREAD=0))
            stack.enter_context(mock.patch.multiple(op_by_op, WORTH_CHAINING=2, WORTH_SHARING=2))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(numpy.errstate(all="ignore"))
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", TiledArrayWarning)  # such as: a kernel does not compile
        yield


class Game:
    """One program as it runs, with NumPy and with us."""

    def __init__(self) -> None:
        local.recorder.reset()
        doing_without._told.clear()
        config.cut = 400
        self.ours = namespace(tiledarray)
        self.theirs = namespace(numpy)
        self.lines: list[str] = []

    def run(self, line: str) -> str | None:
        """Run a line with us; say what went wrong."""
        self.lines.append(line)
        try:
            exec(code(line), self.ours)
            return compare(self.ours, self.theirs) if line == EVALUATE else None
        except Exception as error:
            return f"raises {type(error).__name__}: {error}"

    def end(self) -> str | None:
        return self.run(EVALUATE)


def replay(lines: Sequence[str]) -> str | None:
    """Run a program; say what went wrong with us, if it is one that NumPy can run."""
    game = Game()
    for line in [*lines, EVALUATE]:
        try:
            exec(code(line), game.theirs)
        except Exception:
            return None
        problem = game.run(line)
        if problem:
            return problem
    return None


def replayed(lines: Sequence[str], tier: Tier, device: str) -> str | None:
    """Run a program as often as the tier says, its kernels compiled in between."""
    with setting(tier, device):
        for turn in range(tier.repeats):
            if turn:
                let_compile()
            problem = replay(lines)
            if problem:
                return problem
    return None


# ---- playing -----------------------------------------------------------------------------------


@dataclass
class Failure:
    """A program that does not do with us what it does with NumPy."""

    tier: str
    seed: int
    complaint: str
    lines: list[str]
    steps: int = 0
    reproduced: bool = True

    def __str__(self) -> str:
        return f"# {self.tier}, seed {self.seed}: {self.complaint}\n{runnable(self)}"


@dataclass
class Played:
    """What came of playing."""

    steps: int = 0
    programs: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def moves(game: Game, scene: Scene, looks: int, steps: int) -> Iterator[str | None]:
    """Make moves, as many as that; yield after every one what went wrong.

    After so many of a hundred, all arrays are compared; else recordings stay pending.
    """
    made = 0
    while made < steps:
        try:
            lines = scene.next()
        except NotNow:
            continue
        for line in lines:
            if not scene.tried(line, tame):
                other = refusal(line) if scene.refused and scene.chance(REFUSALS) else None
                if other is None:
                    break
                line = other
            problem = game.run(line)
            if not problem and scene.chance(looks):
                problem = game.run(EVALUATE)
            made += 1
            yield problem
    yield game.end()


def play_one(name: str, seed: int, length: int = LENGTH) -> tuple[int, str | None, list[str]]:
    """Play the program of a seed: how many steps, what went wrong, and its lines."""
    tier = TIERS[name]
    random = Random(f"{'few' if tier.few else name} {seed}")  # all tiers with kernels: the same
    game = Game()
    scene = Scene(lambda n: int(random.random() * n), game.theirs, tier.few)
    made = 0
    for problem in moves(game, scene, LOOKS[seed % len(LOOKS)], length):
        if problem:
            return made, problem, game.lines
        made += 1
    for _ in range(1, tier.repeats):
        let_compile()
        problem = replay(game.lines)
        made += length
        if problem:
            return made, problem, game.lines
    return made, None, game.lines


def play(name: str, steps: int, first: int = 0, device: str = "cpu", most_failures: int = 1,
         shrink: bool = True) -> Played:
    """Play programs of one seed after the other until so many steps are made.

    Parameters
    ----------
    name : str
        Of the tier.
    steps, first : int
        How many steps, and the first seed.
    device : str
    most_failures : int
        Stop at that many.
    """
    tier, played, started = TIERS[name], Played(), time.perf_counter()
    seed = first
    while played.steps < steps and len(played.failures) < most_failures:
        with setting(tier, device):
            made, complaint, lines = play_one(name, seed)
        played.steps += made
        played.programs += 1
        if complaint:
            failure = Failure(name, seed, complaint, lines, played.steps)
            played.failures.append(shortest(failure, device) if shrink else failure)
        seed += 1
    played.seconds = time.perf_counter() - started
    return played


# ---- failures ----------------------------------------------------------------------------------


def kind(complaint: str | None) -> str | None:
    """What is told apart while a failure is shrunk: errors by their type, and wrong values."""
    if complaint is None:
        return None
    return complaint.split(":")[0] if complaint.startswith("raises") else "differs"


def shortest(failure: Failure, device: str = "cpu") -> Failure:
    """The failure with as few lines as show it."""
    tier, wanted = TIERS[failure.tier], kind(failure.complaint)
    deadline = time.perf_counter() + SHRINK_SECONDS

    def fails(lines: list[str]) -> bool:
        return time.perf_counter() < deadline and kind(replayed(lines, tier, device)) == wanted

    if not fails(failure.lines):
        failure.reproduced = False
        return failure
    lines = _fewer(failure.lines, fails)
    lines = _fewer(_simpler(lines, fails), fails)
    complaint = replayed(lines, tier, device) or failure.complaint
    return Failure(failure.tier, failure.seed, complaint, lines, failure.steps)


def _fewer(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Leave out lines, many at once at first, while the program goes on failing."""
    size = max(1, len(lines) // 2)
    while size:
        before = len(lines)
        for k in reversed(range(0, len(lines), size)):
            fewer = lines[:k] + lines[k + size:]
            if len(fewer) < len(lines) and fails(fewer):
                lines = fewer
        if size > 1 or len(lines) == before:
            size //= 2
    return lines


def _simpler(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Make new arrays where they were computed from others, while the program goes on failing."""
    for k in range(len(lines)):
        found = re.fullmatch(r"(v\d+) = .*v\d+.*", lines[k])
        if not found:
            continue
        value = wanted_values(lines[:k + 1])[found[1]]
        if not isinstance(value, numpy.ndarray) or not value.ndim:
            continue
        shape, dtype = value.shape, value.dtype.str[1:]
        length = value.size
        for text in (f"np.zeros({shape}, {dtype!r})", f"np.arange({length}.0).reshape({shape})",
                     f"np.array((numpy.arange({length}) % 7).reshape({shape}).astype({dtype!r}))"):
            other = [*lines[:k], f"{found[1]} = {text}", *lines[k + 1:]]
            if fails(other):
                lines = other
                break
    return lines


def runnable(failure: Failure) -> str:
    """The failure as a program that stands alone."""
    tier = TIERS[failure.tier]
    text = "\n".join(failure.lines)
    head = ["import copy, pickle, numpy", "import tiledarray as np"]
    head += [f"np.config.{name} = {value!r}" for name, value in
             {"verify": True, **tier.settings}.items()]
    head += ["from tests.machine import poisoned", "poison = poisoned(); poison.__enter__()"]
    if tier.block:
        head += [
            "from tiledarray.execution.op_by_op import chain, run",
            f"chain.BLOCK, chain.WORTH_CHAINING, chain.WORTH_THREAD = {tier.block}, 2, 0",
            "run.WORTH_CHAINING = run.WORTH_SHARING = 2",
        ]
    if tier.paced:
        head += ["from tests.machine import paced_by_chance", "by_chance = paced_by_chance(1)",
                 "by_chance.__enter__()"]
    if "in_thread" in text:
        head += ["from tests.scene import in_thread"]
    name = failure.complaint.split()[0]
    end = [EVALUATE]
    value = wanted_values(failure.lines).get(name)
    if isinstance(value, (numpy.ndarray, numpy.generic)) and value.size <= 60:
        end += [f"print(numpy.asarray({name}).tolist(), 'want',", f"      {value.tolist()})"]
    elif isinstance(value, numpy.ndarray):
        end += [f"print(numpy.asarray({name}).sum(), 'want', {value.sum()})"]
    return "\n".join([*head, *failure.lines, *end]) + "\n"


def wanted_values(lines: Sequence[str]) -> dict[str, Any]:
    """NumPy's variables at the end of the program."""
    names = namespace(numpy)
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for line in lines:
            exec(code(line), names)
    return {name: value for name, value in names.items() if name[0] == "v"}


# ---- long runs ---------------------------------------------------------------------------------


def _work(tier: str, steps: int, first: int, options: argparse.Namespace) -> dict[str, Any]:
    """Play in a process of its own, so that one that dies is a failure too."""
    command = [sys.executable, "-m", "tests.machine", "--worker", "--tier", tier, "--steps",
               str(steps), "--seed", str(first), "--device", options.device,
               "--failures", str(options.failures)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"steps": 0, "programs": 0, "seconds": 0.0, "failures": [
            {"tier": tier, "seed": first, "complaint": f"the process ended with {done.returncode}",
             "text": done.stderr[-2000:]}]}


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                           check=False)
    return found.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a long run; return how many failures there were, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.machine", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tier", action="append", choices=sorted(TIERS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=3, help="at which a process stops")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        played = play(options.tier[0], options.steps, options.seed, options.device,
                      options.failures)
        print(json.dumps({**asdict(played), "failures": [
            {**asdict(failure), "text": str(failure)} for failure in played.failures]}))
        return 0
    return _long_run(options)


def _long_run(options: argparse.Namespace) -> int:
    names = options.tier or list(TIERS)
    whole = sum(TIERS[name].share for name in names)
    tasks = []
    for name in names:
        steps = int(options.steps * TIERS[name].share / whole)
        count = max(1, min(4 * options.jobs, steps // 5000))
        for k in range(count):
            tasks.append((name, steps // count, 10_000_000 * options.seed + 100_000 * k))
    started = time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as executor:
        results = list(executor.map(lambda task: (task[0], _work(*task, options)), tasks))
    record: dict[str, Any] = {
        "commit": _commit(), "date": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
        "seed": options.seed, "device": options.device, "jobs": options.jobs,
        "seconds": round(time.perf_counter() - started, 1),
        "steps": sum(result["steps"] for _, result in results),
        "programs": sum(result["programs"] for _, result in results),
        "tiers": {name: sum(result["steps"] for at, result in results if at == name)
                  for name in names},
        "failures": [failure for _, result in results for failure in result["failures"]],
    }
    for failure in record["failures"]:
        print(failure["text"], end="\n\n")
    print({name: value for name, value in record.items() if name != "failures"},
          f"{len(record['failures'])} failures")
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
