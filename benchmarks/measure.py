"""Checks every peer against the reference, then times them all, their batches interleaved."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import first_call
from benchmarks.peers import PEERS, Peer, Refused
from benchmarks.workload import Arrays, Check, Workload

SEED = 1
CACHE_TO_DEFEAT = 256 << 20  # inputs smaller than this rotate on CUDA, out of the L2 cache
MOST_COPIES = 8
MOST_RUNS = 2000
WARM = 20  # batches' time that goes into runs that are not timed


@dataclass(frozen=True)
class Limits:
    """How long to measure.

    Attributes
    ----------
    batches : int
        Batches a peer; the median counts.
    batch : float
        Seconds a batch should take.
    run : float
        A peer whose single run takes longer than this is timed once.
    first_call : float or None
        Seconds a fresh process may take; None leaves first calls out.
    jobs : int
        Fresh processes at a time.
    compilers_only : bool
        Whether first calls are taken only of peers that compile, to hold their limit.
    """

    batches: int = 5
    batch: float = 0.1
    run: float = 4.0
    first_call: float | None = 90.0
    jobs: int = 1
    compilers_only: bool = False


@dataclass
class Row:
    """What was found for one peer and one workload.  Times in seconds."""

    workload: str
    peer: str
    median: float | None = None
    batches: list[float] = field(default_factory=list)
    runs_per_batch: int = 0
    error: float | None = None
    first: float | None = None
    second: float | None = None
    floor: float | None = None
    failure: str | None = None
    note: str | None = None


@dataclass
class Contestant:
    """A peer ready to run a workload."""

    peer: Peer
    run: Callable[..., Any]
    inputs: list[tuple[Any, ...]]
    row: Row
    runs: int = 1

    def once(self, turn: int = 0) -> tuple[Any, ...]:
        """Run on the inputs of this turn, up to the result."""
        return self.peer.finish(self.run(*self.inputs[turn % len(self.inputs)]))

    def batch(self) -> float:
        """Return the seconds of one run, from `runs` of them.

        On CUDA they are queued one after the other and waited for once; on the CPU, where some
        peers would run several at a time, each is waited for.
        """
        outputs: Any = ()
        in_order = self.peer.device == "cuda"
        start = time.perf_counter()
        for turn in range(self.runs):
            outputs = self.run(*self.inputs[turn % len(self.inputs)])
            if not in_order:
                self.peer.finish(outputs)
        self.peer.finish(outputs)
        return (time.perf_counter() - start) / self.runs


def measure(
    workload: Workload,
    names: Sequence[str],
    device: str,
    size: int,
    limits: Limits,
    rates: tuple[float, float],
) -> list[Row]:
    """Measure one workload with the peers called `names`."""
    inputs = workload.setup(size, SEED)
    rows = {
        name: Row(workload.name, name)
        for name in names
        if name in workload.variants or not PEERS[name].only_variants
    }
    take_first_calls(workload, rows, device, size, limits)
    check = workload.reference(inputs)

    contestants = []
    for name, row in rows.items():
        if row.failure is None:
            contestant = enter(workload, PEERS[name], device, inputs, check, row, limits)
            if contestant is not None:
                contestants.append(contestant)
    compete(workload, contestants, limits)
    floor = workload.floor(device, inputs, *rates)
    for row in rows.values():
        row.floor = floor
    peers = [contestant.peer for contestant in contestants]
    contestants.clear()
    gc.collect()
    for peer in peers:
        peer.release()
    return list(rows.values())


def take_first_calls(
    workload: Workload, rows: dict[str, Row], device: str, size: int, limits: Limits
) -> None:
    """Fill in first calls; a peer that fails or exceeds its limit there goes no further."""
    if limits.first_call is None:
        return
    names = [name for name in rows if PEERS[name].compiles or not limits.compilers_only]
    found = first_call.measure_all(
        names, workload.name, device, size, limits.first_call, limits.jobs
    )
    for name, call in found.items():
        rows[name].first, rows[name].second = call.first, call.second
        rows[name].failure = call.failure


def enter(
    workload: Workload,
    kind: type[Peer],
    device: str,
    inputs: Arrays,
    check: Check,
    row: Row,
    limits: Limits,
) -> Contestant | None:
    """Check a peer's results and warm it up; None if it cannot run, with the reason in `row`."""
    peer = None
    try:
        peer = kind(device)
        run = peer.build(workload)
        copies = rotation(device, inputs) if not workload.fixed_floor else 1
        placed = [tuple(peer.put(array) for array in inputs) for _ in range(copies)]
        contestant = Contestant(peer, run, placed, row)
        with peer.settled():
            outputs = contestant.once()
            contestant.once(1)
        row.error = workload.error(peer.get(outputs), check)
        if not row.error <= workload.tolerance:
            row.failure = f"wrong: relative error {row.error:.1e}"
            return None
        del outputs
        warm = time.perf_counter() + WARM * limits.batch
        while time.perf_counter() < warm:  # some find out what is run again and again
            contestant.once(1)
        start = time.perf_counter()
        contestant.once(1)
        seconds = time.perf_counter() - start
        if seconds > limits.run:
            row.median, row.batches, row.runs_per_batch = seconds, [seconds], 1
            row.note = f"timed once: over {limits.run:g} s"
        contestant.runs = max(1, min(MOST_RUNS, round(limits.batch / seconds)))
        return contestant
    except Refused as refusal:
        row.failure = str(refusal)
    except Exception as error:  # whatever a peer raises is its result
        row.failure = describe(error)
    finally:
        gc.collect()
        if peer is not None and row.failure:
            peer.release()
    return None


def describe(error: Exception) -> str:
    """Return an exception in one short line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:150]}" if lines else type(error).__name__


def rotation(device: str, inputs: Arrays) -> int:
    """Return how many copies of the inputs it takes to find none of them in the cache."""
    size = sum(array.nbytes for array in inputs)
    if device == "cpu" or size >= CACHE_TO_DEFEAT:
        return 1
    return min(MOST_COPIES, math.ceil(CACHE_TO_DEFEAT / size))


def compete(workload: Workload, contestants: list[Contestant], limits: Limits) -> None:
    """Time batches of all contestants in turn."""
    open_ones = [one for one in contestants if not one.row.batches]
    for _ in range(limits.batches):
        for contestant in list(open_ones):
            try:
                if workload.bulky:
                    for other in contestants:
                        other.peer.release()
                contestant.once()
                contestant.row.batches.append(contestant.batch())
            except Exception as error:  # out of memory beside the others, say
                contestant.row.failure = f"{type(error).__name__} while timed"
                open_ones.remove(contestant)
    for contestant in open_ones:
        contestant.row.median = statistics.median(contestant.row.batches)
        contestant.row.runs_per_batch = contestant.runs
