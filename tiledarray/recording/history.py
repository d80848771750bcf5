"""Who asks for history, and what would lose it.

A node *keeps* its inputs, once it is computed, where a gradient will ask for them: so do those of
`begin`, and all that is computed from them (the core sees to that).  What leaves the graph on the
way to a result, as a number of Python's or through a function of NumPy's, would be a constant to
the gradient without anybody noticing.  So it is refused, or marked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tiledarray.core import BEGINS, KEEPS, history
from tiledarray.errors import HistoryLost
from tiledarray.graph.node import Node, form_of
from tiledarray.ops.movement import leaf, opaque, view
from tiledarray.recording.site import user_site


class _Depth(threading.local):
    depth = 0


_inside = _Depth()


@contextmanager
def differentiated() -> Iterator[None]:
    """Have this thread run a function whose gradient is wanted: looks that lose it are refused."""
    _inside.depth += 1
    try:
        yield
    finally:
        _inside.depth -= 1


def check_look(node: Node, what: str) -> None:
    """Refuse that a value becomes Python's or NumPy's in a function whose gradient is wanted.

    Raises
    ------
    HistoryLost
        If the value has a history.
    """
    if node.keeps and _inside.depth:
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
    if node.keeps:
        raise HistoryLost(
            f"{what} loses the history of an array, which a gradient would need",
            remedy="say that it is a constant there: stop_gradient(x)",
        )


def alias(node: Node, keeps: int) -> Node:
    """Return another node of the same value."""
    shape = node.shape
    axes = tuple(range(len(shape)))
    form = form_of(view, (axes, (1,) * len(shape)), node.form.kind, 1 + len(shape))
    found = Node(form, (node, *(0,) * len(shape)), user_site())
    found.keeps = keeps
    return found


def begin(node: Node) -> Node:
    """Return a node of the same value with which a history begins."""
    another = getattr(node.buffer, "another", None)
    if node.keeps:
        return alias(node, KEEPS)
    if another is None:
        return alias(node, BEGINS)
    found = Node(form_of(leaf, None, node.form.kind, 0), (), None, another())
    found.keeps = BEGINS
    return found


def end(began: Sequence[Node], results: Sequence[Node]) -> None:
    """Let go of the history between some nodes and results that were computed from them."""
    every = history(list(results))
    for node in began:
        node.keeps = 0
        node.inherit()
    for node in every:
        if node.keeps == KEEPS:
            node.inherit()
            if not node.keeps and node.buffer is not None:
                node.forget_inputs()


def marked(name: str, kept: Sequence[Node], node: Node) -> Node:
    """Return the node of a value that NumPy has computed from nodes with a history.

    A gradient that comes by it says which function has no derivative.
    """
    form = form_of(opaque, name, node.form.kind, len(kept))
    return Node(form, tuple(kept), user_site(), node.buffer)


