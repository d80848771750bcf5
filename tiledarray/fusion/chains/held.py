"""Stages between which an array stays in registers: a thread has some rows of some lanes of it.

What neighbouring threads have of it comes from the lanes beside by exchange within the warp, which
has whole rows of a tile, and from the rows above and below through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiledarray.fusion.chains.kernel import ChainKernel
from tiledarray.fusion.chains.stages import Part, Places
from tiledarray.fusion.ir import Cell, Value, storage

WARP = 32
MOST_LANES = 4  # of a thread
MOST_WORDS = 112  # registers for what a thread has and sees of an array


@dataclass(frozen=True, eq=False)
class Held:
    """What a thread has of an array, and sees around it.

    Attributes
    ----------
    base : Value
        The array that the stage reads, which is what the one before has made.
    rows, lanes : int
        What a thread has.
    above, below, left, right : int
        How far the stage reads from each point.
    reads : dict
        For each load of it, how far away that is, down and along.
    """

    base: Value
    rows: int
    lanes: int
    above: int
    below: int
    left: int
    right: int
    reads: dict[Cell, Places]

    @property
    def words(self) -> int:
        """Registers for what a thread has, and what it sees."""
        return self.base.dtype.itemsize // 4 * (self.rows * self.lanes + (
            self.rows + self.above + self.below) * (self.lanes + self.left + self.right))

    @property
    def exchanges(self) -> float:
        """Of a warp for each point, with lanes beside and rows around."""
        return (self.left + self.right) / self.lanes + 2 * (self.above + self.below) / self.rows

    @property
    def rows_beside(self) -> range:
        """Of the rows that a thread sees those of which it needs lanes beside its own."""
        down = [down for down, along in self.reads.values() if along]
        return range(self.above + min(down), self.above + max(down) + self.rows) if down else (
            range(0))

    def place(self, cell: Cell) -> str:
        """Where point (u, v) finds what a load reads, in what the thread sees."""
        down, along = self.reads[cell]
        return f"[u + {self.above + down}][v + {self.left + along}]"


def held(chain: ChainKernel, number: int) -> Held | None:
    """What a stage may have in registers of the array that it computes anew; else nothing.

    The chain has a tile already, and threads.
    """
    stage = chain.stages[number]
    if len(chain.size) != 2 or len(stage.parts) != 1:
        return None
    (part,) = stage.parts
    border = part.kernel.border
    read = [base for base in part.near if _made_before(chain, base, number) and (
        border is None or border.fill is not None or base is chain.memory[border.old])]
    if len(read) != 1 or len(stage.made) != 1 or stage.changed or len(part.kernel.stores) != 1:
        return None
    (made,), (base,) = stage.made, read
    if (made.dtype != base.dtype or made.dtype.itemsize not in (4, 8)
            or not _leaves_as_it_was(chain, part, base, made)):
        return None
    high, wide = chain.extents
    rows, lanes = -(-high // chain.schedule.threads[1]), wide // WARP
    if wide % WARP or lanes > MOST_LANES:
        return None
    reads = {
        cell: chain.shift(part, at, base) for cell, at in part.reads.items()
        if cell.access is not None and chain.memory[storage(cell.access.value)] is base}
    if not reads:
        return None
    down, along = ([shift[d] for shift in reads.values()] for d in range(2))
    found = Held(base, rows, lanes, max(0, -min(down)), max(0, max(down)),
                 max(0, -min(along)), max(0, max(along)), reads)
    near = max(found.left, found.right) <= lanes and max(found.above, found.below) <= rows
    return found if near and found.words <= MOST_WORDS else None


def _made_before(chain: ChainKernel, base: Value, number: int) -> bool:
    """Whether a stage reads what the one before has made of an array."""
    return base in (chain.stages[number - 1].made if number else chain.inputs)


def _leaves_as_it_was(chain: ChainKernel, part: Part, base: Value, made: Value) -> bool:
    """Whether what a part does not compute of an array stays what lay there before."""
    if chain.offsets[base] != chain.offsets[made] or base.shape != made.shape:
        return False
    border = part.kernel.border
    if border is None:
        return part.extents == made.shape
    return border.fill is None and chain.memory[border.old] is base and not any(
        chain.shift(part, part.writes[0], base))


def is_asked_for(chain: ChainKernel, number: int) -> bool:
    """Whether what a stage has made is asked for by others than the next one."""
    (base,) = chain.stages[number].made
    return base in chain.outputs or any(
        base in stage.near | stage.changed for stage in chain.stages[number + 2:])


def alone(chain: ChainKernel) -> Held | None:
    """What the first stage holds, if all that stages pass on they pass on in registers.

    Then it goes there from memory, and back, without a tile in between, and may stay there for
    several rounds: whoever needs the array afterwards, or one in between, has to have it stored.
    """
    seen = [held(chain, number) for number in range(len(chain.stages))]
    one = seen[0]
    if one is None or None in seen or chain.around or len(chain.outputs) != 1:
        return None
    asked = any(is_asked_for(chain, number) for number in range(len(seen) - 1))
    again = any(one.base in stage.near for stage in chain.stages[1:])
    return None if asked or again else one
