"""What a stretch of a program did: kernels and their times, library calls, fallbacks, memory."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from time import perf_counter
from types import TracebackType

from tiledarray.devices.device import current
from tiledarray.devices.pool import host_pool
from tiledarray.execution import executable
from tiledarray.insight.facts import Reporter, bytes_text, counted, place_text, time_text
from tiledarray.insight.measure import Profile, StepTime, host_threads
from tiledarray.recording.record import fallbacks
from tiledarray.recording.stretch import reasons

LISTED = 20
OPS_SHOWN = 60


class Session:
    """Watches everything that runs inside a ``with`` block; printed, it says what that was."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.profile = Profile()
        self.seconds = 0.0

    def __enter__(self) -> Session:
        self._counters = Counter(executable.counters)
        self._spent = dict(executable.spent)
        self._fallbacks = Counter(fallbacks)
        host_pool.reset_peak()
        self.profile.__enter__()
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = perf_counter() - self._started
        self.profile.__exit__(kind, error, traceback)
        self.counters = Counter(executable.counters) - self._counters
        self.spent = {name: spent - self._spent.get(name, 0.0)
                      for name, spent in executable.spent.items()}
        self.fallbacks = Counter(fallbacks) - self._fallbacks
        self.peak = host_pool.statistics().peak

    def __str__(self) -> str:
        device = current()
        threads = f", {host_threads()} threads" if device.kind == "cpu" else ""
        lines = [f"tiledarray: {self.title}, {time_text(self.seconds)} on {device}{threads}"]
        for kind, heading in (("kernel", "kernels"), ("library call", "library calls"),
                              ("copy", "copies")):
            lines += self._step_lines(kind, heading)
        lines += self._overhead_lines()
        lines += self._fallback_lines()
        lines.append(self._memory_line())
        return "\n".join(lines)

    def _step_lines(self, kind: str, heading: str) -> list[str]:
        entries = [entry for entry in self.profile.slowest() if entry.kind == kind]
        if not entries:
            return []
        total = sum(entry.seconds for entry in entries)
        runs = sum(entry.runs for entry in entries)
        lines = [f"  {heading}: {len(entries)}, run {runs:,} times in {time_text(total)}"]
        lines += [line for entry in entries[:LISTED] for line in _entry_lines(entry)]
        if len(entries) > LISTED:
            lines.append(f"    ... and {len(entries) - LISTED} more")
        return lines

    def _overhead_lines(self) -> list[str]:
        lines = []
        plans, read = self.counters["plans made"], self.counters["plans read"]
        if plans or read:
            lines.append(f"  planning: {plans} plans in {time_text(self.spent.get('planning', 0))}"
                         + f", {read} more from disk" * bool(read))
        compiled = self.counters["kernels compiled"]
        if compiled:
            lines.append(f"  compiling or loading: {compiled} kernels in "
                         f"{time_text(self.spent.get('compiling', 0))} (in part in the background)")
        singly = self.counters["op by op"]
        if singly:
            lines.append(f"  op by op: {singly:,} evaluations in "
                         f"{time_text(self.spent.get('op by op', 0))}, not by fused kernels "
                         "(not compiled yet, or not worth it)")
        return lines

    def _fallback_lines(self) -> list[str]:
        if not self.fallbacks:
            return ["  done by NumPy itself: nothing"]
        lines = ["  done by NumPy itself:"]
        places: Counter[tuple[str, str, str]] = Counter()
        for (name, site), count in self.fallbacks.items():
            places[place_text(site), name, reasons.get((name, site), "")] += count
        for (place, name, reason), count in places.most_common(LISTED):
            times = f"  {count:,} times" * (count > 1)
            lines.append(f"    {place or '?':<24} {name}{times}{f'  ({reason})' * bool(reason)}")
        if len(places) > LISTED:
            lines.append(f"    ... and {len(places) - LISTED} more")
        return lines

    def _memory_line(self) -> str:
        text = f"  memory: at most {bytes_text(self.peak)} of arrays on the host"
        device = current()
        if device.kind == "cuda":
            pool = device.xp.get_default_memory_pool()
            text += f", {bytes_text(pool.total_bytes())} in the pool of {device}"
        process = _process_peak()
        return text + (f", {bytes_text(process)} for the process" if process else "")


def _entry_lines(entry: StepTime) -> list[str]:
    rate = f"  {bytes_text(entry.nbytes / entry.seconds)}/s" if entry.nbytes else ""
    lines = [f"    {time_text(entry.seconds):>8} {entry.runs:>7,} x  {entry.name}{rate}"]
    whole = entry.executable.whole()
    step = whole.plan.steps[entry.executable.plan.steps.index(entry.step)]
    for place, names in Reporter(whole, whole.sites).fused(step)[:LISTED]:
        lines.append(f"{'':24}{place}  {textwrap.shorten(counted(names), OPS_SHOWN)}")
    return lines


def _process_peak() -> int:
    """Most memory that the process had at once; 0 where the system does not say."""
    try:
        import resource  # there is none on Windows
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
