"""What sinks are computed from, and which groups read or produce some of it.

Sets of sources and of groups are bits of integers: thousands of sinks may read one array, and what
each needs is found without going through all that others need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tiledarray.fusion.ir import Group, Value, storage, value_args
from tiledarray.fusion.short import without
from tiledarray.fusion.stored import is_virtual
from tiledarray.ops.op import Reduction, Update

REMEMBERED = 1 << 11  # virtual values whose sources are; each takes a bit for every source

Lengths = tuple[int, ...]  # of axes, without those of length one


class Below(NamedTuple):
    """What lies below a value.

    Attributes
    ----------
    sources : int
        A bit for every stored value that it is computed from.
    repeated : int
        A bit for every virtual value on the way that takes less to read back than to compute again.
    """

    sources: int
    repeated: int


def lengths(shape: tuple[int, ...]) -> Lengths:
    """A shape without its axes of length one, by which sinks and domains are matched."""
    return tuple(n for n in shape if n != 1)


def bits_of(bits: int) -> Iterator[int]:
    """The numbers whose bits are set, the largest first."""
    while bits:
        number = bits.bit_length() - 1
        bits ^= 1 << number
        yield number


class Nearby:
    """Sources of values, and the groups near them, kept while groups are built.

    Parameters
    ----------
    stored : set of Value
        Values that are read rather than computed; whoever adds to it calls `forget`.
    reads : dict
        How many stored elements it takes to compute a value again.
    apart : dict
        Short axes of what is reduced that are no axes of a kernel's domain.
    across : bool
        Whether what a kernel's rows are reduced to may be reduced over all rows in it.
    """

    def __init__(self, stored: set[Value], reads: dict[Value, int],
                 apart: dict[Value, tuple[int, ...]], *, across: bool) -> None:
        self._apart = apart
        self._across = across
        self._stored = stored
        self._reads = reads
        self.sources: list[Value] = []
        self._source_bits: dict[Value, int] = {}
        self._repeated_bits: dict[Value, int] = {}
        self._homed = 0
        self._below: dict[Value, Below] = {}
        self._near: defaultdict[Value, int] = defaultdict(int)
        self._held: defaultdict[int, int] = defaultdict(int)
        self._domains: defaultdict[Lengths, int] = defaultdict(int)
        self._rows: defaultdict[Lengths, int] = defaultdict(int)

    # ---- what lies below -----------------------------------------------------------------

    def forget(self) -> None:
        """Forget what lies below virtual values: some of them are stored now."""
        self._below.clear()

    def below(self, sink: Value) -> Below:
        """What a sink is computed from."""
        if len(self._below) > REMEMBERED:
            self._below.clear()
        path = value_args(sink)
        while path:
            value = path[-1]
            if value in self._below:
                path.pop()
            elif not is_virtual(value, self._stored):
                self._below[value] = Below(self._source_bit(storage(value)), 0)
            else:
                waiting = [arg for arg in value_args(value) if arg not in self._below]
                path += waiting
                if not waiting:
                    sources, repeated = self._joined(value)
                    self._below[value] = Below(sources, repeated | self._repeated_bit(value))
        return self._joined(sink)

    def _joined(self, value: Value) -> Below:
        sources = repeated = 0
        for arg in value_args(value):
            found = self._below[arg]
            sources |= found.sources
            repeated |= found.repeated
        return Below(sources, repeated)

    def _source_bit(self, value: Value) -> int:
        bit = self._source_bits.get(value)
        if bit is None:
            bit = self._source_bits[value] = 1 << len(self.sources)
            self.sources.append(value)
        return bit

    def _repeated_bit(self, value: Value) -> int:
        if self._reads[value] < 2 * value.size:
            return 0
        return self._repeated_bits.setdefault(value, 1 << len(self._repeated_bits))

    def could_be_read_back(self, below: Below) -> bool:
        """Whether a group computes something on the way that it might store."""
        return bool(below.repeated & self._homed)

    # ---- groups --------------------------------------------------------------------------

    def computed(self, value: Value) -> None:
        """Note that some group computes a virtual value."""
        self._homed |= self._repeated_bits.get(value, 0)

    def touched(self, value: Value, group: Group) -> None:
        """Note that a group reads or produces a stored value."""
        self._near[value] |= 1 << group.number
        self._held[group.number] |= self._source_bit(value)

    def shaped(self, group: Group) -> None:
        """Note the domain of a group, and its rows once it reduces."""
        self._domains[lengths(group.shape)] |= 1 << group.number
        if group.reduced:
            self._rows[lengths(tuple(group.shape[axis] for axis in group.row_axes))] |= (
                1 << group.number)
        for value, sinks in group.members.items():
            if len(sinks) > 1:
                self._rows[lengths(value.shape)] |= 1 << group.number

    def near(self, source: Value) -> int:
        """A bit for every group that reads or produces a stored value."""
        return self._near.get(source, 0)

    def held(self, group: Group, sources: int) -> int:
        """How many of these sources a group reads or produces."""
        return (self._held[group.number] & sources).bit_count()

    def fitting(self, sink: Value) -> int:
        """A bit for every group whose domain a sink could be computed on."""
        if isinstance(sink.op, Update):
            return 0  # a kernel of its own
        if isinstance(sink.op, Reduction):
            source, short = sink.args[0].shape, self._apart.get(sink, ())
            fitting = self._domains.get(lengths(source), 0)
            if self._across and sink.size == 1:
                fitting |= self._rows.get(lengths(source), 0)
            return fitting | self._domains.get(lengths(without(source, short)), 0)
        own = lengths(sink.shape)
        return self._domains.get(own, 0) | self._rows.get(own, 0)
