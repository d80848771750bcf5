"""What becomes of a write whose index turned out to lie outside: it is told once, and dropped.

NumPy raises before it writes, so a program that catches the error goes on with what was there.  The
error of a recorded write comes with the look; from then on its node has the value from before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiledarray import execution
from tiledarray.graph.node import Node
from tiledarray.graph.program import below
from tiledarray.ops.indexing import add_at, put
from tiledarray.ops.movement import Update
from tiledarray.ops.op import Library


def dropped(targets: Sequence[Node]) -> IndexError | None:
    """Drop the first write below the targets that has an index outside; return its error.

    Those before it that might have had one are computed.  What was computed from the array in
    between is, when it is looked at, what it is without the write.

    Parameters
    ----------
    targets : sequence of Node
        Of which the evaluation has raised an `IndexError`.

    Returns
    -------
    IndexError or None
        Of the write, to be raised; ``None`` if none is to blame, but what is read.
    """
    nodes = [node for node in below(targets) if node.buffer is None]
    nodes.reverse()  # what has been looked at is let go of, so that it is written in place
    doubtful: set[int] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node.op, Library) or any(id(x) in doubtful for x in node.inputs):
            doubtful.add(id(node))
        writes = isinstance(node.op, Update) or node.op in (put, add_at)
        if id(node) not in doubtful or not writes or node.keeps:
            continue
        try:
            execution.evaluate.evaluate([node])
        except IndexError as error:
            if _without(node):
                return error
        else:
            doubtful.discard(id(node))
    return None


def _without(write: Node) -> bool:
    """Give a write the value from before; ``False`` if that cannot be computed."""
    before = write.inputs[0]
    if not isinstance(before, Node):
        return False
    if before.buffer is None:
        try:
            execution.evaluate.evaluate([before])
        except IndexError:
            return False
    write.buffer = before.buffer.another()
    write.forget_inputs()
    return True
