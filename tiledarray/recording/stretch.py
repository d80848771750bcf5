"""When a recording is cut, and what is evaluated then.

Each thread has a `Recorder`.  It knows, weakly, the handles that got a pending value since the
last flush; what they hold is all that anyone can still see.  A long recording is cut into
stretches that repeat: a stretch ends where the line that began it comes round again, so the second
stretch of a loop has the structure of the first and finds its plan.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tiledarray import config, core
from tiledarray.errors import raised_outside
from tiledarray.execution import evaluate
from tiledarray.graph.node import Node, Site
from tiledarray.recording.site import call_path, user_site


class State(Enum):
    """What a stretch of recording waits for."""

    EMPTY = "its first handle, whose place becomes the anchor"
    GATHERING = "as many operations as make a stretch"
    DUE = "the anchor to come round again, where it ends"
    CROWDED = "the next handle: what is pending is small, and evaluated so that more is not"


class Recorder(core.Recorder):
    """The pending work of one thread.

    The core notes what is recorded: handles that were given a pending node since the last flush,
    where those were recorded (``noted`` of them, `came_by`), and views that keep what they have
    read since, which goes when the stretch ends, so that nobody holds values that nobody can see.

    Attributes
    ----------
    count : int
        Nodes recorded since the last flush.
    state : State
        What a stretch waits for.
    limit : int
        The count from which every new handle asks `consider`: it follows from the state.
    anchor, anchor_path
        Where the stretch began: it ends where that comes round again.
    small : int
        How many of those nodes could have been computed at once, had their operands been there.
    """

    __slots__ = ("state", "cut", "anchor", "anchor_path")
    immediate = True  # whether what is small may be computed at once
    scope: Any = None  # what a traced function sees in place of values; see `arrays.tracing`

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a new stretch."""
        self.clear()
        self.count = 0
        self.cut = config.cut
        self._enter(State.EMPTY)
        self.anchor: Site | None = None
        self.anchor_path: tuple[Any, ...] = ()
        self.small = 0

    def _enter(self, state: State) -> None:
        self.state = state
        self.limit = self.cut if state in (State.GATHERING, State.DUE) else 0

    def crowded(self) -> None:
        """Have the next handle evaluate what is pending: it is many small operations, little else.

        They had better be computed at once, and that goes on only where their operands are there.
        """
        self._enter(State.CROWDED)

    def consider(self, node: Node) -> None:
        """Flush if the stretch is long enough and ``node`` begins the next one."""
        if self.state is State.CROWDED:
            if self.is_small():
                targets = [*self.pending(), node]
                self.reset()
                _evaluate_apart(targets, small=True)
                return
            self._enter(State.GATHERING if self.noted else State.EMPTY)
        if self.state is State.EMPTY:
            self._begin_at(node)
        elif self.count >= 4 * self.cut or self._comes_round(node):
            self.flush(node)
        elif self.state is State.GATHERING and self.count >= self.cut:
            self._enter(State.DUE)
            if not self.came_by(self.anchor):  # it stood before the loop
                self.anchor, self.anchor_path = node.site, call_path()

    def _comes_round(self, node: Node) -> bool:
        return self.count >= self.cut and node.site == self.anchor and (
            call_path() == self.anchor_path)

    def _begin_at(self, node: Node) -> None:
        self.anchor, self.anchor_path = node.site, call_path()
        self._enter(State.GATHERING)

    def flush(self, node: Node | None = None) -> None:
        """Evaluate what live handles hold; ``node`` is the first of the next stretch."""
        targets = self.pending()
        self.reset()  # what fails now is not tried again until it is looked at
        _evaluate_apart(targets)
        if node is not None:
            self.count = 1
            self._begin_at(node)


class _Tracing(Recorder):
    """A recorder that never evaluates: what it records is planned as a whole."""

    __slots__ = ("scope",)
    immediate = False

    def __init__(self, scope: Any) -> None:
        super().__init__()
        self.scope = scope

    def consider(self, node: Node) -> None:
        """Never cut."""
        self.limit = sys.maxsize


local: Any = core.Local(Recorder)
fallbacks: Counter[tuple[str, Site | None]] = Counter()
reasons: dict[tuple[str, Site | None], str] = {}  # why the last of each was NumPy's, if it is told


@contextmanager
def tracing(scope: Any) -> Iterator[None]:
    """Record into a recorder of its own, which never evaluates; the scope is there to be found."""
    outer, local.recorder = local.recorder, _Tracing(scope)
    try:
        yield
    finally:
        local.recorder = outer


def live_pending() -> list[Node]:
    """Return what this thread has recorded and some live handle still holds."""
    return local.recorder.pending()


def look(nodes: list[Node]) -> None:
    """Evaluate the nodes, and with them all that this thread has pending."""
    if core.look(nodes):
        evaluate.verify()
        return
    recorder = local.recorder
    wanted = [node for node in nodes if node.buffer is None]
    if isinstance(recorder, _Tracing) and wanted:
        raise TypeError(
            "a function under tiledarray.jit looked at a value; what it does next would depend "
            "on that value. Use where() instead of if, or take the look out of the function"
        )
    targets = list(dict.fromkeys([*recorder.pending(), *wanted]))
    recorder.reset()
    if not targets:
        return
    try:
        evaluate.evaluate(targets)
        return
    except Exception as error:
        if len(targets) == len(wanted) or raised_outside(error):
            raise
    # What failed may be something else that is pending: that is told when it is looked at.
    evaluate.evaluate(wanted)


def _evaluate_apart(targets: list[Node], small: bool = False) -> None:
    """Evaluate the targets; if that fails, one by one, and leave the failing ones pending.

    A failure is raised where nothing at all can be computed.
    """
    if not targets:
        return
    try:
        evaluate.evaluate(targets, small)
        return
    except Exception as error:
        if len(targets) == 1 or raised_outside(error):
            raise
    failures = []
    for target in targets:
        try:
            evaluate.evaluate([target])
        except Exception as error:
            if raised_outside(error):
                raise
            failures.append(error)
    if len(failures) == len(targets):
        raise failures[0]


def note_fallback(name: str, reason: str = "") -> None:
    """Count that NumPy itself did the work of ``name``, and keep why."""
    key = name, user_site()
    fallbacks[key] += 1
    if reason:
        reasons[key] = reason
