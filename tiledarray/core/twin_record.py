"""Recording in Python: each thread's recorder, and how nodes become the values of handles.

This is the first part of `record.c` written again, with its names: what is changed here is changed
there.  What the rest of that file and `slices.c` do, Python does anyhow (`recording/record.py`, and
`arrays/operators.py`, `arrays/recorded.py`, `arrays/handle.py`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import ref

from tiledarray.core import twin
from tiledarray.core.twin_graph import Form, Node

_PACKAGE = "tiledarray"
MANY_SMALL = 64  # planning and running them takes some ms, and more may follow

compute: Callable[[Form, tuple[Any, ...]], Any]  # what Python gives `install_recording`


class Recorder:
    """What one thread has pending."""

    __slots__ = ("count", "limit", "small", "_handles", "_readers", "_sites", "__weakref__")

    def __new__(cls, *_arguments: Any) -> Any:
        """Make one that has nothing pending."""
        recorder = object.__new__(cls)
        recorder.count = recorder.limit = recorder.small = 0
        recorder._handles, recorder._readers, recorder._sites = [], [], []
        return recorder

    count: int  # nodes recorded since the last flush
    limit: int  # the count from which every new handle asks `consider`
    small: int  # of those, what could have been computed at once but for its operands
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

    def clear(self) -> None:
        """Forget handles, views and places."""
        self._handles.clear()
        while self._readers:
            view = self._readers.pop()()
            seen = None if view is None else view._seen
            if seen is not None and twin.root_of(view)._node_ is not seen[0]:
                view._seen = None
        self._sites.clear()

    def pending(self) -> list[Node]:
        """Return the pending nodes that live handles hold, each once."""
        found: dict[Node, None] = {}
        for reference in self._handles:
            handle = reference()
            node = None if handle is None or handle._base is not None else handle._recorded
            if node is not None and node.buffer is None:
                found[node] = None
        return list(found)

    def came_by(self, site: Any) -> bool:
        """Whether a node was recorded at this place, after the first."""
        return site in self._sites[1:]

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


class Local(threading.local):
    """The recorder of each thread."""

    def __init__(self, make: Callable[[], Recorder]) -> None:
        global local
        self.recorder = make()
        local = self


local: Any = None

# ---- the user's line ----------------------------------------------------------------------------

# Whether a module of some name is the user's (not part of this package), as far as asked for.
_users: dict[Any, bool] = {}


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code that is not part of this package."""
    module = frame.f_globals.get("__name__", "")
    found = _users.get(module)
    if found is None:
        found = _users[module] = module != _PACKAGE and not module.startswith(f"{_PACKAGE}.")
    return found


# ---- nodes become values of handles -------------------------------------------------------------


def wrap(node: Node) -> Any:
    """Return a new array whose value is the node."""
    if node.buffer is not None:
        handle = twin.new_handle(twin.handle_class)
        handle._node = node
        return handle
    recorder = local.recorder
    if recorder.count >= recorder.limit:
        recorder.consider(node)
    handle = twin.new_handle(twin.handle_class)
    handle._node = node
    recorder._sites.append(node.site)
    recorder._handles.append(ref(handle))
    return handle


def rebind(root: Any, node: Node) -> None:
    """Make the node the value of an array that is no view."""
    if node.buffer is not None:
        root._node = node
        return
    recorder = local.recorder
    if recorder.count >= recorder.limit:
        recorder.consider(node)
    root._node = node
    recorder._sites.append(node.site)
    recorder._handles.append(ref(root))


def record(form: Form, inputs: tuple[Any, ...]) -> Node:
    """Return the node of one more operation, recorded at the user's line."""
    if form.kind.size <= twin.limit and (value := compute(form, inputs)) is not None:
        return Node(form, (), None, value)
    local.recorder.count += 1
    node = Node(form, inputs)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        users = _users.get(frame.f_globals.get("__name__"))
        if is_users(frame) if users is None else users:
            node.site = frame.f_code, frame.f_lasti
            break
        frame = frame.f_back
    return node


def install_recording(found: dict[str, Any]) -> None:
    """Say what Python does of the recording."""
    global compute
    compute = found["compute"]


def install_slices(found: dict[str, Any]) -> None:
    """Say what Python does of views: all of it."""


# ---- running what was planned before ------------------------------------------------------------
# That is quicker in C (`run.c`); without it, plans are looked up and run by `execution/`.

Program = None


def look(nodes: list[Node]) -> bool:
    """Compute nodes and all that is pending; whether it is known how."""
    return False


def run_known(targets: list[Node]) -> bool:
    """Compute targets by a program; whether there is one."""
    return False


def remember(key: Any, program: Any, picks: Any) -> None:
    """Keep the program of a key."""


def forget_program(key: Any) -> None:
    """Forget the program of a key."""


def forget_programs() -> None:
    """Forget all programs."""


def install_running(found: dict[str, Any]) -> None:
    """Say what Python does of running: all of it."""
