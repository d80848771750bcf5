"""What evaluation does and what it spends its time on: added up, and told to whoever watches."""

from __future__ import annotations

from collections import Counter, defaultdict
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol


class Watcher(Protocol):
    """Is told when planning, compiling, work op by op and NumPy's own begin and end."""

    def begin(self, name: str, about: Any) -> None:
        """Something begins; what it is done for is told with it."""

    def end(self) -> None:
        """It ends."""


counters: Counter[str] = Counter()  # launches, plans made, kernels compiled ...
spent: defaultdict[str, float] = defaultdict(float)  # seconds by name, in all threads
watchers: list[Watcher] = []
_NOBODY: list[Watcher] = []


class Spending:
    """A ``with`` block whose seconds are spent on something.

    Parameters
    ----------
    name : {"planning", "compiling", "op by op", "NumPy"}
    about : object, optional
        What it is done for.
    """

    __slots__ = ("about", "name", "started", "told")

    def __init__(self, name: str, about: Any = None) -> None:
        self.name = name
        self.about = about

    def __enter__(self) -> None:
        self.told = watchers.copy() if watchers else _NOBODY
        for watcher in self.told:
            watcher.begin(self.name, self.about)
        self.started = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        spent[self.name] += perf_counter() - self.started
        for watcher in self.told:
            watcher.end()
