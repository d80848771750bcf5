"""What a printed kernel is: its text, and the fields of ``Args`` to bind to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tiledarray.fusion.ir import Terms, Value


@dataclass(frozen=True, slots=True)
class Slot:
    """One 8-byte field of ``Args`` (two for a complex parameter) and where its value comes from.

    ``pointer``: address of ``value``'s buffer plus ``offset`` elements; ``size``: the integer
    ``number`` plus ``offset``; ``phase``: ``offset`` modulo ``number``; ``param``: parameter
    ``number``; ``scratch``: memory for ``number`` bytes; ``counters``: ``number`` zeroed counters.
    """

    kind: Literal["pointer", "size", "phase", "param", "scratch", "counters"]
    name: str
    ctype: str
    value: Value | None = None
    number: int = 0
    offset: Terms = ()
    param: type | None = None


@dataclass(slots=True)
class Program:
    """Printed kernel: ``text`` with ``NAME`` for its name, and the slots of ``Args`` in order.

    ``scratch_bytes`` are of a host thread, ``shared_bytes`` of a device's block (beside what the
    text declares), ``shared_limit`` of a multiprocessor, which has the rest as cache (0: as many
    as fit).  With ``at_once`` blocks wait for one another: all must run at a time.
    """

    text: str
    slots: Iterable[Slot]
    blocks: int
    threads: int
    scratch_bytes: int
    shared_bytes: int
    shared_limit: int
    at_once: bool = False
