"""What a stretch of a program did: where its time went, kernels, fallbacks, memory; a verdict."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from time import perf_counter
from types import TracebackType

from tiledarray.devices.device import current
from tiledarray.devices.pool import host_pool
from tiledarray.execution import spans
from tiledarray.execution.background import background
from tiledarray.insight.clock import Accounts, Clock
from tiledarray.insight.facts import (
    Reporter,
    bytes_text,
    count_text,
    counted,
    line_text,
    place_text,
    time_text,
)
from tiledarray.insight.measure import Profile, StepTime, host_threads
from tiledarray.insight.verdicts import (
    NAMES,
    WIDTH,
    Facts,
    Verdict,
    dominating,
    lines_of,
    size_text,
    together,
    verdicts,
)
from tiledarray.recording.record import fallbacks
from tiledarray.recording.stretch import reasons

LISTED = 20
OPS_SHOWN = 60
TOLD = 0.005  # of the time: accounts of less are left out


class Session:
    """Watches everything that runs inside a ``with`` block; printed, it says what that was.

    Attributes
    ----------
    accounts : Accounts or None
        Where the time went; ``None`` where another session was watching already.
    verdicts : list of Verdict
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.profile = Profile()
        self.clock = Clock()
        self.accounts: Accounts | None = None
        self.seconds = 0.0

    def __enter__(self) -> Session:
        self._counters = Counter(spans.counters)
        self._spent = dict(spans.spent)
        self._fallbacks = Counter(fallbacks)
        host_pool.reset_peak()
        self.profile.__enter__()
        self._started = perf_counter()
        self.clock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clock.__exit__(kind, error, traceback)
        found = self.accounts = self.clock.found
        self.seconds = perf_counter() - self._started if found is None else found.wall
        self.profile.__exit__(kind, error, traceback)
        self.counters = Counter(spans.counters) - self._counters
        self.spent = {name: spent - self._spent.get(name, 0.0)
                      for name, spent in spans.spent.items()}
        self.fallbacks = Counter(fallbacks) - self._fallbacks
        self.peak = host_pool.statistics().peak
        self.verdicts: list[Verdict] = []
        if self.accounts is not None:
            self.verdicts = verdicts(Facts(
                self.accounts, self.counters, self.fallbacks, background.unfinished()))

    @property
    def did_something(self) -> bool:
        """Whether anything was done with arrays."""
        at_once = self.accounts is not None and any(self.accounts.places.values())
        return bool(self.counters or self.fallbacks or at_once)

    def __str__(self) -> str:
        device = current()
        threads = f", {host_threads()} threads" if device.kind == "cpu" else ""
        lines = [f"tiledarray: {self.title}, {time_text(self.seconds)} on {device}{threads}"]
        if self.accounts is not None:
            lines += self._account_lines(self.accounts)
        for kind, heading in (("kernel", "kernels"), ("library call", "library calls"),
                              ("copy", "copies")):
            lines += self._step_lines(kind, heading)
        lines += self._overhead_lines()
        lines += self._fallback_lines()
        lines += self._memory_lines()
        if self.accounts is not None:
            lines += self._verdict_lines(self.accounts)
        return "\n".join(lines)

    def _account_lines(self, accounts: Accounts) -> list[str]:
        lines = [f"  where the time went ({accounts.named:.0%} named):"]
        seconds = dict(accounts.seconds)
        seconds["looks"] += seconds.pop("reads")
        for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
            detail = self._detail(name, accounts)
            if spent >= TOLD * accounts.wall or detail:
                text = f"    {spent / accounts.wall:>5.1%} {time_text(max(spent, 0)):>8}  "
                text += f"{NAMES[name]}: {detail}" if detail else NAMES[name]
                lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 22,
                                       break_long_words=False, break_on_hyphens=False)
        return lines

    def _detail(self, name: str, accounts: Accounts) -> str:
        """What there was of an account, and on which lines."""
        if name == "Python" and accounts.lines:
            line = max(accounts.lines, key=accounts.lines.__getitem__)
            return f"{line_text(*line)} {accounts.lines[line] / accounts.wall:.0%}"
        if name in ("elements", "at once", "recording") and accounts.places[name]:
            places = accounts.places[name]
            whole = together(places)
            what = {"elements": "read or written", "recording": "operations"}.get(
                name, f"operations, {size_text(whole.size)} each")
            return f"{whole.count:,} {what}: {lines_of(places)}"
        if name == "looks" and accounts.looks:
            count = sum(look.count for look in accounts.looks)
            times = count_text(count, "evaluation")
            size = sum(look.size * look.count for look in accounts.looks) / count
            return f"{times} of arrays of {size_text(size)}: {lines_of(accounts.looks)}"
        return ""

    def _verdict_lines(self, accounts: Accounts) -> list[str]:
        if not self.verdicts:
            return [f"  verdict: nothing is wrong; most of the time goes to {dominating(accounts)}"]
        lines = ["  verdict:"]
        for verdict in self.verdicts:
            lines += textwrap.wrap(f"{verdict.share:.0%}: {verdict.text}", WIDTH,
                                   initial_indent="  - ", subsequent_indent="    ",
                                   break_long_words=False, break_on_hyphens=False)
        return lines

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
            spent = time_text(self.spent.get("planning", 0))
            lines.append(f"  planning: {count_text(plans, 'plan')} in {spent}"
                         + f", {read} more from disk" * bool(read))
        compiled = self.counters["kernels compiled"]
        if compiled:
            lines.append(f"  compiling or loading: {count_text(compiled, 'kernel')} in "
                         f"{time_text(self.spent.get('compiling', 0))} (in part in the background)")
        singly = self.counters["op by op"]
        if singly:
            lines.append(f"  op by op: {count_text(singly, 'evaluation')} in "
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

    def _memory_lines(self) -> list[str]:
        parts = [f"{bytes_text(self.peak)} of recorded arrays on the host"] if self.peak else []
        device = current()
        if device.kind == "cuda":
            pool = device.xp.get_default_memory_pool()
            parts.append(f"{bytes_text(pool.total_bytes())} in the pool of {device}")
        process = _process_peak()
        if process:
            parts.append(f"{bytes_text(process)} for the process")
        return [f"  memory: at most {', '.join(parts)}"] if parts else []


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
