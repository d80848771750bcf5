"""`with` blocks whose end comes whatever signal handlers raise."""

from __future__ import annotations

from typing import Any

from tiledarray.core import Block as CoreBlock


class Block(CoreBlock):
    """What a ``with`` block begins and ends; each is for one block.

    (A generator's end comes when the exception is forgotten, if a handler has raised in its making.
    ``__exit__`` is the core's.)
    """

    _used = False

    def begin(self) -> Any:
        """Begin it; return what ``as`` names."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave everything as it was; it may be done again, and before all has begun."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        # Not in C: some CPythons run handlers after a call of that, before the block protects it.
        if self._used:
            raise RuntimeError(
                f"this {type(self).__name__}(...) has been used: each `with` needs one of its own")
        self._used = True
        try:
            given: Any = self.begin()
        except BaseException:
            self.__exit__()
            raise
        return given
