"""When a recording is cut, and what is evaluated then.

Each thread has a `Recorder`.  It knows, weakly, the handles that got a pending value since the
last flush; what they hold is all that anyone can still see.  A long recording is cut into
stretches that repeat: a stretch ends where the line that began it comes round again, so the second
stretch of a loop has the structure of the first and finds its plan.
"""

from __future__ import annotations

import atexit
from collections import Counter
from typing import Any

import numpy as np

from tiledarray import config, core, execution
from tiledarray.core import CROWDED, DUE, EMPTY, GATHERING
from tiledarray.errors import raised_outside
from tiledarray.graph.node import Node, Site
from tiledarray.recording import failed_writes, segments
from tiledarray.recording.site import user_line, user_site


class Recorder(core.Recorder):
    """The pending work of one thread.

    The core notes what is recorded: how many nodes (``count``), handles that were given a pending
    one since the last flush, where those were recorded (``noted`` of them), and views that keep
    what they have read since, which goes when the stretch ends, so that nobody holds values that
    nobody can see.  It knows what the stretch waits for (``state``), and from which ``count`` on
    every new handle asks `consider`: ``limit``, which follows from the state.
    """

    __slots__ = ()
    immediate = True  # whether what is small may be computed at once
    scope: Any = None  # what a traced function sees in place of values; see `arrays.tracing`

    def crowded(self) -> None:
        """Have the next handle evaluate what is pending: it is many small operations, little else.

        They had better be computed at once, and that goes on only where their operands are there.
        """
        self.enter(CROWDED)

    def consider(self, node: Node) -> None:
        """Flush if the stretch is long enough and ``node`` begins the next one."""
        if self.state == CROWDED:
            if self.is_small():
                targets = [*self.pending(), node]
                self.reset()
                _evaluate_apart(targets, small=True)
                return
            self.enter(GATHERING if self.noted else EMPTY)
        if self.state == EMPTY:
            self.begin_at(node)
        elif self.count >= 4 * self.cut or self.comes_round(node):
            self.flush(node)
        elif self.state == GATHERING and self.count >= self.cut:
            self.enter(DUE)
            self.move_anchor(node)

    def flush(self, node: Node | None = None) -> None:
        """Evaluate what live handles hold; ``node`` is the first of the next stretch."""
        targets = self.pending()
        self.reset()  # what fails now is not tried again until it is looked at
        _evaluate_apart(targets)
        if node is not None:
            self.count = 1
            self.begin_at(node)


class _Tracing(Recorder):
    """A recorder that never evaluates: what it records is planned as a whole."""

    __slots__ = ("scope",)
    immediate = False

    def __init__(self, scope: Any) -> None:
        self.cuts = False
        self.reset()
        self.scope = scope


local: Any = core.Local(Recorder)


@atexit.register
def _load_for_finalisers() -> None:
    """Load what computes, if finalisers may want what is recorded: later nothing is imported."""
    pending = local.recorder.pending()
    if pending:
        execution.evaluate.load({node.device for node in pending})


fallbacks: Counter[tuple[str, Site | None]] = Counter()
reasons: dict[tuple[str, Site | None], str] = {}  # why the last of each was NumPy's, if it is told


def tracing(scope: Any) -> Recorder:
    """Return a recorder that never evaluates; the scope is there to be found."""
    return _Tracing(scope)


def live_pending() -> list[Node]:
    """Return what this thread has recorded and some live handle still holds."""
    return local.recorder.pending()


def look(nodes: list[Node], *, here: bool = False) -> None:
    """Evaluate the nodes, and with them all that this thread has pending.

    Parameters
    ----------
    nodes : list of Node
    here : bool
        Whether the host asks for these values, which may be computed on a GPU.

    Raises
    ------
    Exception
        What went wrong.  A write with an index outside is dropped then (`failed_writes`).
    """
    execution.evaluate.heal()
    try:
        known = config.grad_memory is None and core.look(nodes, here)
    except IndexError as error:
        _tell_of_write(error, [node for node in nodes if node.buffer is None])
        raise
    if known:
        if config.verify:
            execution.evaluate.verify()
        return
    if here:
        with execution.placement.wanted_here(nodes):
            _look(nodes)
    else:
        _look(nodes)


def _look(nodes: list[Node]) -> None:
    """Do so where the core cannot."""
    recorder = local.recorder
    wanted = [node for node in nodes if node.buffer is None]
    if isinstance(recorder, _Tracing) and wanted:
        if recorder.scope.knows(wanted):
            execution.evaluate.evaluate(wanted)
            return
        raise looked("what it does next would depend on that value. Use where() instead of if, or "
                     "take the look out of the function")
    targets = list(dict.fromkeys([*recorder.pending(), *wanted]))
    recorder.reset()
    left = execution.room.left_pending(targets, wanted)
    targets = [node for node in targets if node not in left]
    if not targets:
        return
    try:
        if config.grad_memory is None:  # the account of looks asks who calls this
            execution.evaluate.evaluate(targets, unknown=True)
        else:
            segments.evaluate(targets)
        return
    except Exception as error:
        if isinstance(error, IndexError):
            _tell_of_write(error, wanted)
        if len(targets) == len(wanted) or raised_outside(error):
            raise
    # What failed may be something else that is pending: that is told when it is looked at.
    _evaluate(wanted)


def looked(consequence: str) -> TypeError:
    """Return the error of a look at a value in a traced function."""
    place = user_line()
    where = f" (line {place[1]} of {place[0]})" if place else ""
    scope = local.recorder.scope
    words = f"a function under tiledarray.{scope.name} looked at a value{where}; {consequence}"
    scope.refused = scope.refused or words
    return TypeError(words)


def _tell_of_write(error: IndexError, wanted: list[Node]) -> None:
    """Raise what a write below the wanted nodes raises for an index outside, and drop that write.

    Nodes are made again where their evaluation fails: this is the time when all that is pending
    has been tried together, so what several arrays refer to still is one node.
    """
    found = None if raised_outside(error) else failed_writes.dropped(wanted)
    if found is None:
        return
    try:
        raise found from None
    finally:
        del found  # else its traceback keeps it, and what the frames refer to


def look_here(node: Node) -> None:
    """Evaluate a node that has no value yet, for all of which the host asks."""
    look([node], here=node.device.kind == "auto")


def check(nodes: list[Node]) -> None:
    """Evaluate what may be an error for its values, so that it is raised where NumPy raises it.

    In a traced function there are no values: there it comes with the call that has them.
    """
    if not isinstance(local.recorder, _Tracing):
        look(nodes)


def _evaluate(targets: list[Node], small: bool = False) -> None:
    if config.grad_memory is None:
        execution.evaluate.evaluate(targets, small)
    else:
        segments.evaluate(targets, small)


def _evaluate_apart(targets: list[Node], small: bool = False) -> None:
    """Evaluate the targets; if that fails, one by one, and leave the failing ones pending.

    A failure is raised where nothing at all can be computed; not that of a factorization, which is
    pending only where the user wants to hear of it later.
    """
    left = execution.room.left_pending(targets)
    targets = [node for node in targets if node not in left]
    if not targets:
        return
    try:
        _evaluate(targets, small)
        return
    except Exception as error:
        if raised_outside(error) or (len(targets) == 1 and not _waits(error)):
            raise
    failures = []
    for target in targets:
        try:
            _evaluate([target])
        except Exception as error:
            if raised_outside(error):
                raise
            failures.append(error)
    if len(failures) == len(targets) and not all(map(_waits, failures)):
        raise failures[0]


def _waits(error: BaseException) -> bool:
    """Whether an error is told where the value is looked at."""
    return isinstance(error, np.linalg.LinAlgError)


def note_fallback(name: str, reason: str = "") -> None:
    """Count that NumPy itself did the work of ``name``, and keep why."""
    key = name, user_site()
    fallbacks[key] += 1
    if reason:
        reasons[key] = reason
