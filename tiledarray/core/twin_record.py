"""Recording in Python: each thread's recorder, and how nodes become the values of handles.

This is `recorder.c` and `values.c` written again, with their names: what is changed here is changed
there.  What `record.c`, `slices.c` and `run.c` do, Python does anyhow (`recording/record.py`,
`arrays/operators.py`, `arrays/recorded.py`, `arrays/handle.py`, `execution/`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from tiledarray.core import twin_state as state
from tiledarray.core.frames import user_frame
from tiledarray.core.twin_graph import Form, Node, any_keeps

PATH_LENGTH = 16  # callers that tell two uses of one line apart

# What a stretch waits for: its first handle, whose place becomes the anchor; as many operations as
# make a stretch; the anchor to come round again, where it ends; or the next handle, for what is
# pending is small, and evaluated so that more is not.
EMPTY, GATHERING, DUE, CROWDED = range(4)
MANY_SMALL = 64  # planning and running them takes some ms, and more may follow

compute: Callable[[Form, tuple[Any, ...]], Any]  # what Python gives `install_recording`


class Recorder:
    """What one thread has pending."""

    __slots__ = (
        "count", "limit", "small", "cut", "cuts", "state", "_anchor", "_path", "_handles",
        "_readers", "_sites", "__weakref__",
    )

    def __new__(cls, *_arguments: Any) -> Any:
        """Make one that has nothing pending."""
        recorder = object.__new__(cls)
        recorder.cuts = True
        recorder._handles, recorder._readers, recorder._sites = [], [], []
        recorder.reset()
        return recorder

    count: int  # nodes recorded since the last flush
    limit: int  # the count from which every new handle asks `consider`
    small: int  # of those, what could have been computed at once but for its operands
    cut: int  # operations that make a stretch
    cuts: bool  # whether it ever ends
    state: int
    _anchor: Any  # where the stretch began, ...
    _path: tuple[Any, ...]  # ... and by which callers
    _handles: list[Any]  # weak references: to handles that got a pending node, ...
    _readers: list[Any]  # ... and to views that keep what they have read
    _sites: list[Any]  # where the handles' nodes were recorded

    @property
    def noted(self) -> int:
        """How often a handle got a pending node since the last flush."""
        return len(self._sites)

    def consider(self, node: Node) -> None:
        """Flush where it is time to."""
        raise NotImplementedError

    def reset(self) -> None:
        """Begin a new stretch."""
        self._handles.clear()
        for view in state.drained(self._readers):
            seen = view._seen
            if seen is not None and state.root_of(view)._node_ is not seen[0]:
                view._seen = None
        self._sites.clear()
        self.count = self.small = 0
        self.cut = cut_setting
        self._anchor, self._path = None, ()
        self.enter(EMPTY)

    def enter(self, state: int) -> None:
        """Wait for something else."""
        self.state = state
        waits = state in (GATHERING, DUE)
        self.limit = sys.maxsize if not self.cuts else self.cut if waits else 0

    def begin_at(self, node: Node) -> None:
        """Begin the stretch at this node."""
        self._anchor, self._path = node.site, call_path()
        self.enter(GATHERING)

    def comes_round(self, node: Node) -> bool:
        """Whether the stretch is long enough, and the node recorded where it began."""
        return self.count >= self.cut and node.site == self._anchor and call_path() == self._path

    def move_anchor(self, node: Node) -> None:
        """Have the stretch begin at this node, if it has not come by its anchor again."""
        if self._anchor not in self._sites[1:]:  # it stood before the loop
            self._anchor, self._path = node.site, call_path()

    def pending(self) -> list[Node]:
        """Return the pending nodes that live handles hold, each once."""
        found: dict[Node, None] = {}
        for reference in self._handles:
            handle = reference()
            node = None if handle is None or handle._base is not None else handle._recorded
            if node is not None and node.buffer is None:
                found[node] = None
        return list(found)

    def is_small(self) -> bool:
        """Whether small operations are many, and little else was recorded."""
        return self.small >= MANY_SMALL and 2 * self.small >= self.noted

    def note_small(self) -> None:
        """Count a small operation that had to be recorded, for what it reads is pending."""
        self.small += 1
        if self.is_small():
            self.crowded()

    def crowded(self) -> None:
        """Have the next handle evaluate what is pending."""
        raise NotImplementedError

    def note_reader(self, view: Any) -> None:
        """Have a view let go of what it has read, when the stretch ends."""
        self._readers.append(ref(view))
        state.note_reader(view)


class Local(threading.local):
    """The recorder of each thread."""

    def __init__(self, make: Callable[[], Recorder]) -> None:
        global local
        self.recorder = make()
        local = self


local: Any = None

def call_path() -> tuple[Any, ...]:
    """Return the places of the nearest callers."""
    frame = user_frame(sys._getframe(1))
    path: list[Any] = []
    for _ in range(PATH_LENGTH):
        if frame is None:
            break
        path += frame.f_code, frame.f_lasti
        frame = frame.f_back
    return tuple(path)


cut_setting = sys.maxsize


def set_cut(value: int) -> None:
    """Operations that make a stretch, from the next one on."""
    global cut_setting
    cut_setting = value


# ---- nodes become values of handles -------------------------------------------------------------


def wrap(node: Node) -> Any:
    """Return a new array whose value is the node."""
    if node.buffer is not None:
        handle = state.new_handle(state.handle_class)
        handle._node = node
        return handle
    recorder = local.recorder
    if recorder.count >= recorder.limit:
        recorder.consider(node)
    handle = state.new_handle(state.handle_class)
    handle._node = node
    recorder._sites.append(node.site)
    recorder._handles.append(ref(handle))
    return handle


def rebind(root: Any, node: Node, before: int = 0) -> bool:
    """Make the node the value of an array that is no view.

    ``False`` if its value is not the node with the id ``before``, unless that is 0: the recorder
    may let others write.
    """
    recorder = None if node.buffer is not None else local.recorder
    if recorder is not None and recorder.count >= recorder.limit:
        recorder.consider(node)
    if before and not state.held:
        loan = None if root._array_ is None else state.loan_of(root)
        found = root._node_ if loan is None else loan.node
        if id(found) != before or not state.exchange(root, found, node):
            return False
    else:
        root._node = node
    if recorder is not None:
        recorder._sites.append(node.site)
        recorder._handles.append(ref(root))
    return True


def record(form: Form, inputs: tuple[Any, ...], pending: bool = False) -> Node:
    """Return the node of one more operation, recorded at the user's line.

    As part of something larger (``pending``) it is not computed at once.
    """
    kept = any_keeps(inputs)
    most = min(state.of_nodes(), state.most_with_history) if kept else state.of_nodes()
    if not pending and form.kind.size <= most:
        value = compute(form, inputs)
        if value is not None:
            return _computed(form, inputs, value) if kept else Node(form, (), None, value)
    local.recorder.count += 1
    node = Node(form, inputs)
    frame = user_frame(sys._getframe(1))
    if frame is not None:
        node.site = frame.f_code, frame.f_lasti
    return node


def _computed(form: Form, inputs: tuple[Any, ...], value: Any) -> Node:
    """Return the node of what has been computed at once, with its history."""
    frame = user_frame(sys._getframe(2))
    node = Node(form, inputs, None if frame is None else (frame.f_code, frame.f_lasti), value)
    node.forget_inputs()
    return node


def install_recording(found: dict[str, Any]) -> None:
    """Say what Python does of the recording."""
    global compute
    compute = found["compute"]


def set_lets_go(value: bool) -> None:
    """Whether values of histories may be let go: that is asked for in Python anyhow."""


def install_slices(found: dict[str, Any]) -> None:
    """Say what Python does of views: all of it."""


# ---- running what was planned before ------------------------------------------------------------
# That is quicker in C (`run.c`); without it, plans are looked up and run by `execution/`.

Program = None
start_on_device = 0
start_kernel = None


def look(nodes: list[Node], here: bool) -> bool:
    """Compute nodes and all that is pending; whether it is known how."""
    return False


def run_known(targets: list[Node]) -> bool:
    """Compute targets by a program; whether there is one."""
    return False


def run_program(program: Any, leaves: list[Any], params: list[Any]) -> list[Any] | None:
    """Run a program on buffers of its leaves; ``None`` if Python has to do it."""
    return None


def remember(key: Any, program: Any, picks: Any) -> None:
    """Keep a program of a key."""


def remembers(key: Any, plan: Any) -> bool:
    """Whether a plan's program of a key is kept."""
    return False


def forget_program(key: Any) -> None:
    """Forget the programs of a key."""


def forget_programs() -> None:
    """Forget all programs."""


def install_running(found: dict[str, Any]) -> None:
    """Say what Python does of running: all of it."""
