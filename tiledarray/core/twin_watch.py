"""Where the time goes, while somebody asks: this is `watch.c` in Python, for `twin.py`.

While a watch is on, the methods of the class of arrays are exchanged for ones that count, by the
place in the user's program and by kind.  Every call is timed, and what that takes is left out.
The thread that ticks needs the interpreter's lock: samples come more often than they should from
where NumPy lets go of it.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tiledarray.core import twin
from tiledarray.core import twin_state as state
from tiledarray.core.twin_at_once import parts_of

ELEMENT, LOOK, AT_ONCE, RECORDED = range(4)
MOST_ACCOUNTS = 16

_OPERATORS = [f"__{prefix}{name}__" for name in twin.operator_names for prefix in ("", "r", "i")]
_OTHERS = ["__neg__", "__pos__", "__abs__", "__invert__",
           *(f"__{name}__" for name in twin.comparison_names)]
_LOOKS = ["__float__", "__int__", "__index__", "__bool__"]


def timed_nothing(*args: Any, **names: Any) -> float:
    """Return the seconds that it takes to time a call: a part of what small ones seem to take."""
    started = perf_counter()
    int(*(), **names)
    return perf_counter() - started


class _Watch:
    """What is known of the time until now; of one thread."""

    def __init__(self, kind: Any, folder: str) -> None:
        self.kind = kind
        self.folder = folder
        self.owner = get_ident()
        self.on = True
        self.inside = False
        self.exact = self.in_python = self.telling = self.estimated = 0.0
        self.accounts = [0.0] * MOST_ACCOUNTS
        self.stack: list[int] = []
        self.known: set[CodeType] = set()
        self.places: dict[Any, list[Any]] = {}
        self.originals: list[tuple[type, str, Any]] = []
        self.cost = min(map(timed_nothing, range(100)))
        self.begun = self.last = perf_counter()

    def settle(self) -> None:
        """Account for the time until now."""
        until = perf_counter()
        if self.stack:
            self.accounts[self.stack[-1]] += until - self.last
            self.exact += until - self.last
        else:
            self.in_python += until - self.last - self.estimated
            self.estimated = 0.0
        self.last = until

    def is_owners(self) -> bool:
        """Whether this is the thread that is watched."""
        return self.on and get_ident() == self.owner

    def users(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost of the user's frames."""
        while frame is not None and frame.f_code.co_filename.startswith(self.folder):
            frame = frame.f_back
        if frame is not None:
            self.known.add(frame.f_code)
        return frame

    def exchange(self, owner: type, name: str, kind_of: Callable[..., tuple[int, int]]) -> None:
        """Put one that counts in a method's place."""
        self.originals.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, self.counting(getattr(owner, name), kind_of))

    def counts(self) -> bool:
        """Whether a call is to be counted here and now."""
        return self.on and not self.inside and get_ident() == self.owner

    def draw(self, original: Any, args: Any, names: Any) -> Any:
        """Call the method of a generator of random numbers, and count it."""
        return self.counting(original, self.of_result)(*args, **names)

    def counting(self, original: Any, kind_of: Callable[..., tuple[int, int]]) -> Any:
        """Return what calls a method and counts it."""
        known, places = self.known, self.places

        def counted(*args: Any, **names: Any) -> Any:
            if self.inside or not self.on or get_ident() != self.owner:
                return original(*args, **names)
            frame: Any = sys._getframe(1)
            if frame.f_code not in known:
                frame = self.users(frame)
            self.inside, exact, result, started = True, self.exact, None, perf_counter()
            try:
                result = original(*args, **names)
                return result
            finally:
                seconds = perf_counter() - started - (self.exact - exact)
                seconds = seconds - self.cost if seconds > self.cost else 0.0
                self.inside = False
                if frame is not None:
                    kind, elements = kind_of(result, args)
                    key = frame.f_code, frame.f_lasti, kind
                    entry = places.get(key)
                    if entry is None:
                        entry = places[key] = [0, 0, 0.0]
                    entry[0] += 1
                    entry[1] += elements
                    entry[2] += seconds
                    if self.stack:
                        self.accounts[self.stack[-1]] -= seconds
                    else:
                        self.estimated += seconds

        return counted

    def of_result(self, result: Any, args: Any, otherwise: int = AT_ONCE) -> tuple[int, int]:
        """Return kind and elements of a call by what came of it."""
        if isinstance(result, (tuple, list)) and result:
            result = result[0]
        most = self.size_of(result)
        for arg in args:
            if type(arg) is self.kind:
                most = max(most, self.size_of(arg))
        if type(result) is not self.kind:
            return otherwise, most
        if result._array_ is not None:
            return AT_ONCE, most
        node = result._recorded  # what was computed as well, as large random numbers are
        computed = node is not None and node.buffer is not None
        return (AT_ONCE, result.size) if computed else (RECORDED, 1)

    def size_of(self, value: Any) -> int:
        """Return the elements of a settled array of ours; 1 of anything else."""
        return getattr(value._array_, "size", 1) if type(value) is self.kind else 1

    def of_read(self, result: Any, args: Any) -> tuple[int, int]:
        """Return them of reading by an index."""
        if type(result) is self.kind and isinstance(result._array_, np.generic):
            return ELEMENT, 1
        return self.of_result(result, ())

    def of_write(self, result: Any, args: Any) -> tuple[int, int]:
        """Return them of writing by an index."""
        handle, key, value = args
        array = handle._array_
        if array is None:
            return RECORDED, 1
        size = self.size_of(value)
        places = key if isinstance(key, tuple) else (key,)
        scalar = size == 1 and all(isinstance(part, (int, np.integer)) or (
            type(part) is self.kind and isinstance(part._array_, np.integer)) for part in places)
        return (ELEMENT if scalar and len(places) == array.ndim else AT_ONCE), size

    def of_function(self, result: Any, args: Any) -> tuple[int, int]:
        """Return them of a function."""
        reads = parts_of(args[0])[2] & twin.READS
        return self.of_result(result, args, LOOK if reads else AT_ONCE)

    def of_look(self, result: Any, args: Any) -> tuple[int, int]:
        """Return them of a method that returns no array."""
        return self.of_result(result, args, LOOK)

    def give_back(self) -> None:
        """Put the methods back."""
        while self.originals:
            owner, name, original = self.originals.pop()
            if original is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, original)


_watch: _Watch | None = None


def watch_begin(kind: type, folder: str, releases: int) -> None:
    """Begin to watch a class of arrays; ``releases`` is the account of giving memory back.

    Here that is Python's.

    Raises
    ------
    RuntimeError
        If it is watched already.
    """
    global _watch
    if _watch is not None:
        raise RuntimeError("the core is watched already")
    _watch = _Watch(kind, folder)
    for name in (*_OPERATORS, *_OTHERS):
        if name in vars(twin.Base):
            _watch.exchange(twin.Base, name, _watch.of_result)
    for name in _LOOKS:
        _watch.exchange(twin.Base, name, lambda result, args: (LOOK, 1))
    _watch.exchange(twin.Base, "__getitem__", _watch.of_read)
    _watch.exchange(twin.Base, "__setitem__", _watch.of_write)
    _watch.exchange(twin.AtOnce, "__call__", _watch.of_function)
    for name, method in [*vars(kind).items()]:
        parts = getattr(method, "parts", None)
        if parts is not None:
            reads = parts[2] & twin.READS
            _watch.exchange(kind, name, _watch.of_look if reads else _watch.of_result)
    state.watch = _watch
    _watch.begun = _watch.last = perf_counter()


def watch_end() -> tuple[float, list[float], float, float, list[Any]]:
    """End; return all seconds, those of each account, Python, telling, and what was at places.

    Raises
    ------
    RuntimeError
        If nothing is watched.
    """
    global _watch
    if _watch is None:
        raise RuntimeError("the core is not watched")
    watch, _watch = _watch, None
    watch.settle()
    watch.on = False
    state.watch = None
    watch.give_back()
    found = [(*place, *entry) for place, entry in watch.places.items()]
    return watch.last - watch.begun, watch.accounts, watch.in_python, watch.telling, found


def watch_enter(account: int) -> None:
    """What follows is an account's, until `watch_leave`."""
    if _watch is not None and _watch.is_owners():
        _watch.settle()
        _watch.stack.append(account)


def watch_leave() -> None:
    """What follows is the account's before."""
    if _watch is not None and _watch.is_owners() and _watch.stack:
        _watch.settle()
        _watch.stack.pop()


def watch_note(account: int, seconds: float) -> None:
    """Give seconds just spent to another account."""
    if _watch is None or not _watch.is_owners():
        return
    _watch.accounts[account] += seconds
    if _watch.stack:
        _watch.accounts[_watch.stack[-1]] -= seconds
    else:
        _watch.in_python -= seconds
        _watch.exact += seconds


def watch_take() -> tuple[float, int] | None:
    """Return the seconds in Python's code that no sample has taken; ``None`` in other code.

    With them is told whether an operation is running, which here is other code.
    """
    watch = _watch
    if watch is None or not watch.is_owners() or watch.inside or watch.stack:
        return None
    watch.settle()
    seconds, watch.in_python = watch.in_python, 0.0
    return seconds, 0


def watch_tick(interval: float, number: int) -> None:
    """Send the watched thread a signal every so many seconds until the watch ends."""
    watch = _watch
    while watch is not None and watch.on:
        time.sleep(interval)
        if watch.on and not watch.inside and not watch.stack:
            if sys.platform == "win32":
                _thread.interrupt_main(signal.Signals(number))
            else:
                signal.pthread_kill(watch.owner, number)
