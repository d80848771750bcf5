"""What a traced function sees: arrays without values, whose writes happen elsewhere.

While a thread traces a function, every array that lives outside it is read as a placeholder, and
what the function writes into it is kept in a `Scope`.  The arrays themselves stay as they are, so
they can be given to the function as they are: the same array twice, overlapping views and arrays
that the function finds in its module are one array to it, as they are in NumPy.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tiledarray.arrays.handle import Handle
from tiledarray.at_one_go import at_one_go
from tiledarray.block import Block
from tiledarray.core import BEGINS, Base, history, hold, rebind
from tiledarray.graph.node import Kind, Node, form_of, is_scalar
from tiledarray.ops.movement import AN_ARRAY, placeholder
from tiledarray.recording.history import is_inside
from tiledarray.recording.stretch import local, tracing

_slot: Any = vars(Base)["_node"]
_lock = threading.RLock()
_under_way: set[traced] = set()


class HasHistory(BaseException):
    """What is traced depends on an array whose history a gradient wants: it is to be recorded."""


class Disturbed(Exception):
    """What is traced holds a stand-in of something else: a signal handler ran, or a finalizer."""


class Scope:
    """The arrays of one tracing.

    Attributes
    ----------
    outside : list of (Handle, Node)
        The arrays from outside that were read or written, with their placeholders.
    name : str
        What traces.
    drawn : str
        What numbers would be that are drawn meanwhile.
    sparse : set of int
        Stand-ins of views whose elements do not follow one another in memory: their ``id``.
    asked : set of int
        Arrays of which it was asked how they, or views of them, lie: their ``id``.
    refused : str
        What the function was told when it first looked at a value.
    """

    name = "jit"
    drawn = "the same at every call"

    def __init__(self) -> None:
        self.outside: list[tuple[Handle, Node]] = []
        self.sparse: set[int] = set()
        self.asked: set[int] = set()
        self.refused = ""
        self._unknown: set[Node] = set()  # values in which such placeholders are
        self._values: dict[int, Node] = {}  # of those
        self._inside: dict[int, Handle] = {}  # made meanwhile; kept, so that no id comes twice

    def read(self, handle: Handle) -> Node:
        """Return the node of an array that owns its value."""
        found = self._values.get(id(handle))
        if found is not None:
            return found
        if id(handle) in self._inside:
            node: Node = _slot.__get__(handle)
            return node
        return self._take(handle, self._before(handle))

    def write(self, handle: Handle, node: Node) -> None:
        """Give an array a new value."""
        if id(handle) in self._inside:
            _slot.__set__(handle, node)
            return
        if id(handle) not in self._values:
            try:
                before = self._before(handle)
            except AttributeError:  # it is being made
                self._inside[id(handle)] = handle
                _slot.__set__(handle, node)
                return
            self._take(handle, before)
        self._values[id(handle)] = node

    def written(self) -> dict[int, Node]:
        """Return the new values of arrays from outside, by their places in ``outside``."""
        return {k: self._values[id(handle)] for k, (handle, node) in enumerate(self.outside)
                if self._values[id(handle)] is not node}

    def is_inside(self, handle: Handle) -> bool:
        """Whether the function itself has made the array; it owns its value."""
        return id(handle) in self._inside

    def adopt(self, handle: Handle) -> None:
        """Take an array for one that the function has made, though it has no value yet."""
        self._inside[id(handle)] = handle

    def check_looks(self) -> None:
        """Refuse what a function does that has looked at a value, and caught what it was told.

        It went on as it would have without that value.

        Raises
        ------
        TypeError
        """
        if self.refused:
            raise TypeError(f"{self.refused}. (The function has caught this error, and gone on "
                            "otherwise than it would have with the value.)")

    def leaked(self) -> bool:
        """Whether an array that was made inside outlives the tracing.  Ends the scope."""
        left = [weakref.ref(handle) for handle in [*self._inside.values()]]
        self._inside.clear()
        if any(handle() is not None for handle in left):
            gc.collect()  # it may hang in a cycle that nobody sees
        return any(handle() is not None for handle in left)

    def knows(self, nodes: list[Node]) -> bool:
        """Whether the values are there: nothing in them stands for what is not."""
        return not any([self._is_unknown(node) for node in nodes])

    def _is_unknown(self, node: Node) -> bool:
        """Whether a value has a stand-in in it; what has one is remembered, for what is above."""
        waiting, met = [node], {node}
        while waiting:
            each = waiting.pop()
            if each in self._unknown or (each.buffer is None and each.op is placeholder):
                self._unknown.add(node)
                return True
            if each.buffer is None:
                new = [x for x in each.inputs if type(x) is Node and x not in met]
                met.update(new)
                waiting += new
        return False

    def wants(self, node: Node) -> bool:
        """Whether a gradient will ask for the history of a value."""
        return bool(node.keeps)

    def _share_how_arrays_lie(self) -> None:
        """Have the tracing around this one know what is asked here of its arrays."""
        around = local.recorder.scope
        if around is not None:
            self.sparse, self.asked = around.sparse, around.asked

    def _before(self, handle: Handle) -> Node:
        """Return the node that an array from outside has there."""
        node: Node = _slot.__get__(handle)
        return node

    def _take(self, handle: Handle, node: Node) -> Node:
        if node.keeps:
            raise HasHistory
        stand_in = make_placeholder(node.form.kind, scalar=is_scalar(node))
        self._values[id(handle)] = stand_in
        self.outside.append((handle, stand_in))
        return stand_in


class SampleScope(Scope):
    """A tracing of a function of one sample: what is outside has its values, and keeps them.

    Parameters
    ----------
    history : bool
        Whether a gradient will ask for the history of what is given.
    """

    name = "vmap"
    drawn = "the same for all samples"

    def __init__(self, *, history: bool = False) -> None:
        super().__init__()
        self._history = history
        self._outer = local.recorder.scope
        self._share_how_arrays_lie()

    def read(self, handle: Handle) -> Node:
        """Return the node of an array that owns its value."""
        if self._outer is None or id(handle) in self._inside:
            node: Node = _slot.__get__(handle)
            return node
        return self._outer.read(handle)

    def write(self, handle: Handle, node: Node) -> None:
        """Give an array of the function's own a new value.

        Raises
        ------
        TypeError
            If it is from outside.
        """
        if id(handle) not in self._inside:
            try:
                self.read(handle)
            except AttributeError:  # it is being made
                self._inside[id(handle)] = handle
            else:
                raise TypeError(
                    "a function under tiledarray.vmap writes into an array from outside, which "
                    "would happen for one sample after another; return what it writes")
        _slot.__set__(handle, node)

    def wants(self, node: Node) -> bool:
        """Whether a gradient will ask for it; that of samples is kept for other reasons."""
        return bool(node.keeps) and (self._history or is_inside(node) or any(
            each.keeps == BEGINS and each.op is not placeholder for each in history([node])))


class StepScope(Scope):
    """A tracing of a step of a loop, which may be inside another tracing.

    Attributes
    ----------
    before : list of Node
        The nodes that the arrays from outside have there.
    """

    drawn = "the same at every step"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.before: list[Node] = []
        self._outer = local.recorder.scope
        self._share_how_arrays_lie()

    def wants(self, node: Node) -> bool:
        """Whether a gradient will ask for the history of a value."""
        return super().wants(node) if self._outer is None else self._outer.wants(node)

    def _before(self, handle: Handle) -> Node:
        found: Node = (_slot.__get__(handle) if self._outer is None else self._outer.read(handle))
        return found

    def _take(self, handle: Handle, node: Node) -> Node:
        if self.wants(node):
            raise HasHistory
        self.before.append(node)
        stand_in = make_placeholder(node.form.kind, scalar=is_scalar(node))
        self._values[id(handle)] = stand_in
        self.outside.append((handle, stand_in))
        return stand_in


class _Virtual:
    """In place of the slot `_node` of all handles while some thread traces."""

    def __get__(self, handle: Handle, owner: type | None = None) -> Any:
        scope = local.recorder.scope
        return _slot.__get__(handle) if scope is None else scope.read(handle)

    def __set__(self, handle: Handle, node: Node) -> None:
        scope = local.recorder.scope
        if scope is None:
            _slot.__set__(handle, node)
        else:
            scope.write(handle, node)

    def __delete__(self, handle: Handle) -> None:
        _slot.__delete__(handle)


def give_value(handle: Handle, node: Node) -> None:
    """Give an array of its own the value that it was made for, whoever traces."""
    scope = local.recorder.scope
    if scope is None or scope.is_inside(handle):
        rebind(handle, node)
    else:
        _slot.__set__(handle, node)


def make_placeholder(kind: Kind, *, scalar: bool = True) -> Node:
    """Return a node of this kind without a value; without axes it is a scalar, or an array."""
    attrs = None if kind.shape or scalar else AN_ARRAY
    return Node(form_of(placeholder, attrs, kind, 0), ())


class traced(Block):  # noqa: N801  used as `contextlib`'s
    """Trace what this thread does inside the block: nothing is computed.

    Parameters
    ----------
    make : callable
        Makes the scope.
    """

    def __init__(self, make: Callable[[], Scope] = Scope) -> None:
        self._make = make
        self._outer: Any = None
        self._held = False

    def begin(self) -> Scope:
        """Have this thread record for the scope, and return that."""
        at_one_go(partial(hold, 1), [partial(setattr, self, "_held", True)])  # all is recorded
        _under_way.add(self)
        _exchange()
        scope = self._make()
        self._outer = local.recorder
        local.recorder = tracing(scope)
        return scope

    def end(self) -> None:
        """Have it record as before."""
        if self._outer is not None:
            local.recorder = self._outer
        if self._held:
            at_one_go(partial(hold, -1), [partial(setattr, self, "_held", False)])
        _under_way.discard(self)
        _exchange()


def _exchange() -> None:
    """Exchange the slot for as long as some thread traces: untraced code pays nothing for it."""
    with _lock:
        if _under_way:
            type.__setattr__(Handle, "_node", _Virtual())
        elif "_node" in vars(Handle):
            type.__delattr__(Handle, "_node")


def is_tracing() -> bool:
    """Whether this thread traces a function."""
    return local.recorder.scope is not None


def may_look(handles: Iterable[Handle]) -> bool:
    """Whether the arrays have values here, or will have them once they are computed."""
    scope = local.recorder.scope
    return scope is None or scope.knows([handle.node for handle in handles])


def check_own(handle: Handle) -> None:
    """Refuse to change an array from outside itself, not its value, in a traced function.

    Raises
    ------
    TypeError
        The thread traces, and the array was not made by the function.
    """
    scope = local.recorder.scope
    if scope is not None and handle._base is None and not scope.is_inside(handle):
        raise TypeError(
            f"a function under tiledarray.{scope.name} cannot change the shape or the flags of an "
            "array from outside; work on a view of it"
        )
