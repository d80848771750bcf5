"""What planning produces: kernels with a schedule, library calls, and the buffers between them.

Every field here is data about the computation; nothing refers to the arrays of one evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tiledarray.fusion.ir import Cell, Group, Sink, Terms, Value, storage
from tiledarray.fusion.regions import Assumption
from tiledarray.ops.op import Leaf

Role = Literal["row", "step", "lane"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a kernel's loop nest: domain axes merged into one.

    ``row`` axes are shared out to blocks, ``step`` axes are reduced sequentially, the ``lane``
    axis is walked by neighbouring threads or vector lanes.  A ``scanned`` axis is walked in order.
    Where ``period`` is not 0, the axis joins short rows of that length, which follow the domain
    axis ``joined``, and some accesses are wrapped.
    """

    size: int
    role: Role
    reduced: bool
    domain: tuple[int, ...]
    period: int = 0
    joined: int = -1
    scanned: bool = False


@dataclass(frozen=True, slots=True)
class Strided:
    """An access in terms of the loop nest: element strides per `Axis`, and a run-time offset.

    A wrapped access reads lane ``j`` at ``j // period`` and ``j % period`` times the two strides
    in ``wrap``; its own stride along the lanes is 0.
    """

    value: Value
    strides: tuple[int, ...]
    offset: Terms
    wrap: tuple[int, int] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether all lanes read the same element."""
        return not self.strides[-1] and self.wrap is None


@dataclass(eq=False, slots=True)
class Window:
    """Loads of one array that differ by constant shifts, so that neighbours share what they read.

    ``access`` is the one that is not shifted (it may be none of them), and stands where the
    chunks of lanes are aligned; ``shifts`` has each load's rows and lanes from there.
    """

    access: Strided
    shifts: dict[Cell, tuple[int, int]]

    def lines(self, rows: int) -> dict[int, tuple[int, int]]:
        """For ``rows`` rows computed together: rows of memory read, each from which lane to which.

        Lanes are relative to those of a chunk.
        """
        found: dict[int, tuple[int, int]] = {}
        for row, lane in self.shifts.values():
            for line in range(row, row + rows):
                least, most = found.get(line, (lane, lane))
                found[line] = min(least, lane), max(most, lane)
        return dict(sorted(found.items()))


@dataclass(eq=False, slots=True)
class Bundle:
    """Loads at adjacent constant places that one aligned vector load brings.

    ``cells`` has the place of each in the vector; that at place 0 says where the vector lies.
    """

    cells: dict[Cell, int]

    @property
    def first(self) -> Cell:
        """The load where the vector begins."""
        return next(cell for cell, place in self.cells.items() if place == 0)


@dataclass(frozen=True, slots=True)
class Root:
    """What a device takes a root of, where only sums use its square: ``op(cell * by)``.

    ``by`` is a scalar at most, ``divided`` by if so wished (two could multiply to what float32 has
    not), or its opposite if ``negative``.  ``added`` says that sums alone use the square: it is
    their product, and not made.
    """

    cell: Cell
    by: Cell | None = None
    divided: bool = False
    negative: bool = False
    added: bool = False


@dataclass(frozen=True, slots=True)
class Mirror:
    """What a sum over pairs is made of from the other end of each: of it, or its negative."""

    sum: Cell
    negative: bool


@dataclass(eq=False, slots=True)
class Schedule:
    """How a group's domain is cut: the nest, the tile, and the constants of the kernel text.

    Attributes
    ----------
    axes : tuple of Axis
        Rows, then steps, then the lane axis.
    width : int
        Consecutive lanes a thread handles (``V``).
    threads : (int, int)
        Threads along lanes and along rows or steps (``TX, TY``); ``(1, 1)`` on the host.
    unroll : int
        Rows computed together, so that what they share is read once: neighbours along one axis.
    unrolled : int
        That axis of the nest.
    chunks : int
        Chunks of a held row per thread.
    row_tile, lane_tile : int
        Rows and lanes of a block.
    plane : bool
        Whether a block's rows lie along the last of their axes alone.
    splits : int
        Blocks that share a reduction.
    across : bool
        Whether blocks share what all rows are reduced to.
    streamed : bool
        Whether the host stores results past the cache.
    phase : (int, linear form) or None
        Tiles are shifted along the lanes by the form modulo the number, to stand on whole lines.
    ragged : bool
        Whether a row may begin or end within a chunk of ``width`` lanes.
    resident : int
        Blocks that a multiprocessor should have room for; 0 leaves it to the compiler.
    quick : bool
        Whether texts for most arguments are tried first (``kernels/device_math.h``).
    stages : int
        Rounds of a staged load that shared memory has places for; 0 where nothing is staged.
    shared_bytes : int
        Shared memory of a block for staged loads and totals.
    shared_limit : int
        Shared memory to take from a multiprocessor's cache at most; 0 leaves it to the driver.
    """

    axes: tuple[Axis, ...]
    width: int = 1
    threads: tuple[int, int] = (1, 1)
    unroll: int = 1
    unrolled: int = 0
    chunks: int = 1
    row_tile: int = 1
    lane_tile: int = 1
    plane: bool = False
    splits: int = 1
    across: bool = False
    streamed: bool = False
    blocks: int = 1
    scratch_bytes: int = 0
    phase: tuple[int, Terms] | None = None
    ragged: bool = False
    resident: int = 0
    quick: bool = False
    stages: int = 0
    shared_bytes: int = 0
    shared_limit: int = 0

    @property
    def scanned(self) -> bool:
        """Whether an axis is walked in order."""
        return any(axis.scanned for axis in self.axes)

    @property
    def lane(self) -> Axis:
        """The lane axis."""
        return self.axes[-1]

    @property
    def rows(self) -> int:
        """Number of rows."""
        count = 1
        for axis in self.axes:
            if axis.role == "row":
                count *= axis.size
        return count

    @property
    def row_groups(self) -> int:
        """Number of groups of rows computed together."""
        size = self.axes[self.unrolled].size
        return self.rows // size * -(-size // self.unroll) if self.unroll > 1 else self.rows

    @property
    def form(self) -> Literal["map", "row", "column", "scan"]:
        """Whether lanes are mapped, reduced, kept while steps are walked, or scanned."""
        if self.lane.scanned:
            return "scan"
        if self.lane.reduced:
            return "row"
        return "column" if any(axis.role == "step" for axis in self.axes) else "map"


@dataclass(eq=False, slots=True)
class Store:
    """A sink that is written: where, and through which access."""

    sink: Sink
    access: Strided


@dataclass(eq=False, slots=True)
class Border:
    """What an update leaves as it was, copied beside the region when it is not done in place.

    ``sizes`` is the array's shape; the region covers ``[starts, starts + extents)``.  With ``fill``
    there is no old array: everything outside the region gets that value.
    """

    old: Value
    sizes: tuple[int, ...]
    starts: tuple[Terms, ...]
    extents: tuple[int, ...]
    fill: Cell | None = None


@dataclass(eq=False, slots=True)
class Kernel:
    """One launch: a group's blocks, and those of the kernels ``beside`` it.

    What is beside has a domain, a schedule and arguments of its own and shares no values;
    ``bytes_moved`` and ``flops`` count it in.

    ``windows`` groups the loads of a map kernel on the device.  ``staged`` are the loads that
    asynchronous copies bring into shared memory ahead of their use, with the byte offset of each.
    ``turned`` are loads that run along the last row axis in memory: a block copies its tile of them
    as they lie, and turns it on chip.  ``products`` are the sums of what is a product, with its
    factors: both are rounded together.  ``roots`` are exponentials that only sums use, which are
    squares of roots.  ``bundles`` are loads of a device's reduction that vectors bring, each from
    places side by side.  ``mirrors`` are sums of what pairs are from the other end, with those that
    they are part of: each pair is met once.  ``totals`` are sums of rows over all rows whose totals
    lie in shared memory, with the byte offset of each: a thread touches them once a leaf.
    """

    group: Group
    schedule: Schedule
    loads: dict[Cell, Strided]
    stores: list[Store]
    positions: dict[Cell, Strided] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    staged: dict[Cell, int] = field(default_factory=dict)
    turned: list[Cell] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    products: dict[Cell, tuple[Cell, Cell]] = field(default_factory=dict)
    roots: dict[Cell, Root] = field(default_factory=dict)
    mirrors: dict[Cell, Mirror] = field(default_factory=dict)
    totals: dict[Cell, int] = field(default_factory=dict)
    border: Border | None = None
    beside: list[Kernel] = field(default_factory=list)
    bytes_moved: int = 0
    flops: int = 0

    @property
    def form(self) -> str:
        """What kind of kernel it is."""
        return self.schedule.form

    @property
    def names(self) -> list[str]:
        """Names of the ops whose results it stores."""
        return [sink.value.op.name for sink in self.group.sinks]

    @property
    def parts(self) -> list[Kernel]:
        """The kernel itself and those beside it."""
        return [self, *self.beside]

    @property
    def cells(self) -> list[Cell]:
        """The kernel's computations, inputs first."""
        return self.group.cells


@dataclass(eq=False, slots=True)
class Call:
    """One library call; its operands are strided views of stored values."""

    group: Group
    value: Value


@dataclass(eq=False, slots=True)
class Allocate:
    """Memory for a value that nothing computes: an uninitialised array."""

    value: Value


@dataclass(eq=False, slots=True)
class Copy:
    """A dense copy of a stored value, made before it is updated in place."""

    source: Value
    target: Value


Step = Kernel | Call | Allocate | Copy


@dataclass(eq=False, slots=True, repr=False)  # thousands of values deep
class Plan:
    """Steps in order, and what memory each stored value uses.

    Attributes
    ----------
    steps : list of Step
    outputs : list of Value
    memory : dict
        ``memory[v]`` is the value whose buffer ``v`` lives in: itself, the old value of an update
        done in place, or the value a reshape shares.
    shared : dict
        Outputs that must not be written in place as long as something else lives: for each memory
        that several outputs lie in, or an output and a leaf that nobody gave away, their places
        in ``outputs``.
    last_use : dict
        Index of the last step that touches the memory of a value.
    fired : dict
        Rewrite rules that fired, and how often.
    origin : dict
        For each value, the number of the entry in the signature that it was made for.
    entry : dict
        For some values, the numbers of the entries in the signature that they are the value of.
    refusals : list of str
        Why sinks did not share a kernel.
    updates : dict
        For each update, ``"in place"``, ``"border"``, ``"fill"`` or ``"copy"``, and why.
    assumed : tuple of Assumption
        What must hold of the run-time parameters for the plan to be right.
    bodies : dict
        For each loop, its body's plans by the sizes of the block; for each loop over time, those
        of its steps.
    """

    steps: list[Step]
    values: list[Value]
    outputs: list[Value]
    memory: dict[Value, Value]
    shared: dict[Value, tuple[int, ...]]
    last_use: dict[Value, int]
    fired: dict[str, int]
    origin: dict[Value, int]
    entry: dict[Value, list[int]]
    refusals: list[str]
    updates: dict[Value, tuple[str, str]]
    assumed: tuple[Assumption, ...] = ()
    bodies: dict[Value, dict[Any, Plan]] = field(default_factory=dict)

    def suits(self, params: Sequence[Any]) -> bool:
        """Whether what the plan assumes of the parameters holds for these."""
        return all(assumption.holds(params) for assumption in self.assumed)

    def writes_inputs(self) -> bool:
        """Whether some value is computed in the memory of an input."""
        return any(map(self.writes_input, self.memory))

    def writes_input(self, value: Value) -> bool:
        """Whether a value is computed in the memory of an input."""
        return isinstance(self.memory[value].op, Leaf) and not isinstance(storage(value).op, Leaf)

    @property
    def kernels(self) -> list[Kernel]:
        """The generated kernels among the steps."""
        return [step for step in self.steps if isinstance(step, Kernel)]


