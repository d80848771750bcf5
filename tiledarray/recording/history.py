"""Who asks for history, and what would lose it.

A node *keeps* its inputs, once it is computed, where a gradient will ask for them: so do those of
`begin`, and all that is computed from them (the core sees to that).  What leaves the graph on the
way to a result, as a number of Python's or through a function of NumPy's, would be a constant to
the gradient without anybody noticing.  So it is refused, or marked.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet, finalize

from tiledarray.block import Block
from tiledarray.core import BEGINS, KEEPS, history
from tiledarray.errors import HistoryLost
from tiledarray.graph.node import Node, form_of, is_scalar, leaf_form
from tiledarray.ops.movement import AN_ARRAY, opaque, reshape, view
from tiledarray.recording.site import user_site
from tiledarray.recording.stretch import local


class _Depth(threading.local):
    depth = 0


_inside = _Depth()
# With which the histories of functions that are being run begin, for threads that those start.
_running: WeakSet[Node] = WeakSet()


class differentiated(Block):  # noqa: N801  used as `contextlib`'s
    """Have this thread run a function whose gradient is wanted: looks that lose it are refused.

    Parameters
    ----------
    began : sequence of Node
        With which the history begins.
    """

    def __init__(self, began: Sequence[Node]) -> None:
        self._began = began
        self._outer = _inside.depth

    def begin(self) -> None:
        """Count it."""
        _inside.depth = self._outer + 1
        _running.update(self._began)

    def end(self) -> None:
        """Count it no more."""
        _inside.depth = self._outer
        _running.difference_update(self._began)


def is_inside(node: Node) -> bool:
    """Whether the value belongs to a function that is being run."""
    return _inside.depth > 0 or (
        bool(_running) and not _running.isdisjoint(history([node])))


def check_look(node: Node, what: str) -> None:
    """Refuse that a value becomes Python's or NumPy's in a function whose gradient is wanted.

    Raises
    ------
    HistoryLost
        If the value has a history.
    """
    if node.keeps and is_inside(node):
        raise HistoryLost(
            f"{what} takes a value out of the function that is differentiated: what is computed "
            "from it would be a constant to the gradient",
            remedy="use NumPy's functions instead of Python's (np.exp, not math.exp), or say that "
                   "it is a constant: stop_gradient(x)",
        )


def check_kept(node: Node, what: str) -> None:
    """Refuse what loses the history of a value.

    Raises
    ------
    HistoryLost
        If the value has one.
    """
    if node.keeps and (local.recorder.scope is None or is_inside(node)):  # else the look is refused
        raise HistoryLost(
            f"{what} loses the history of an array, which a gradient would need",
            remedy="say that it is a constant there: stop_gradient(x)",
        )


def alias(node: Node, keeps: int, *, scalar: bool | None = None) -> Node:
    """Return another node of the same value.

    Without axes it is a scalar or an array, as it is said or as the node is: ``x += 1`` writes into
    an array, whatever its names, and gives a scalar's name another value.
    """
    shape = node.shape
    if shape or (is_scalar(node) if scalar is None else scalar):
        attrs: Any = tuple(range(len(shape))), (1,) * len(shape)
        form = form_of(view, attrs, node.form.kind, 1 + len(shape))
    else:
        form = form_of(reshape, AN_ARRAY, node.form.kind, 1)
    found = Node(form, (node, *(0,) * len(shape)), user_site())
    found.keep(keeps)
    return found


def begin(node: Node, *, scalar: bool | None = None) -> Node:
    """Return a node of the same value with which a history begins; see `alias`."""
    another = getattr(node.buffer, "another", None)
    if node.keeps:
        return alias(node, KEEPS, scalar=scalar)
    if another is None:
        return alias(node, BEGINS, scalar=scalar)
    found = Node(leaf_form(node, scalar=scalar), (), None, another())
    found.keep(BEGINS)
    return found


# With which a history begins that is wanted longer than that of their inputs.
_held: WeakSet[Node] = WeakSet()


def hold(began: Sequence[Node], holder: Any) -> None:
    """Have a history kept as long as somebody holds what will ask for it."""
    _held.update(began)

    def let_go() -> None:
        _held.difference_update(began)
        end(began)

    finalize(holder, let_go).atexit = False


def end(began: Sequence[Node]) -> None:
    """Let go of the history that begins with some nodes, in so far as nothing else wants it.

    Also of what hangs on: a function may have put aside what it has computed.
    """
    if not began:
        return
    later = began[0].kept_since()
    for node in began:
        node.inherit()
    for node in later:
        if node.keeps == KEEPS:
            node.inherit()
            if not node.keeps and node in _held:
                node.keep(BEGINS)
            if node.keeps != KEEPS and node.buffer is not None:
                node.forget_inputs()


def marked(name: str, kept: Sequence[Node], node: Node) -> Node:
    """Return the node of a value that NumPy has computed from nodes with a history.

    A gradient that comes by it says which function has no derivative.
    """
    form = form_of(opaque, name, node.form.kind, len(kept))
    return Node(form, tuple(kept), user_site(), node.buffer)
