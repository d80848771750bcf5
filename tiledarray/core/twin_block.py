"""The end of `with` blocks, which comes whatever signal handlers raise: `block.c` in Python.

One thing differs: a handler that raises just where ``__exit__`` is entered leaves the block's state
as it is inside.
"""

from __future__ import annotations

from tiledarray.at_one_go import persist


class Block:
    """What a ``with`` block begins and ends: ``end()`` is done whatever handlers raise."""

    def end(self) -> None:
        """Leave everything as it was; it may be done again."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        """End it, also if a signal handler raises meanwhile."""
        try:
            self.end()
        except BaseException:
            persist(self.end)
            raise
