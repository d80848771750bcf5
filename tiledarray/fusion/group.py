"""Fourth pass: which values are stored, and which sinks share a kernel.

A *sink* is a value that a kernel must produce: a reduction, a stored elementwise value, an
update.  Everything else is virtual: it is computed inside the kernels that use it.  A sink joins
a group if it can be lowered onto the group's iteration domain from what the group holds on chip;
every refusal is kept with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tiledarray.fusion.ir import (
    ORIGIN,
    Access,
    Affine,
    Cell,
    Index,
    Param,
    Size,
    Value,
    broadcast_index,
    through_view,
)
from tiledarray.fusion.regions import Region, region_of
from tiledarray.fusion.target import Target
from tiledarray.ops.movement import empty, full
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Item,
    Leaf,
    Library,
    Reduction,
    Reshape,
    Source,
    Update,
)

EXPENSIVE = 8
SPREAD = 256
MAX_CELLS = 700
MAX_LOADS = 64


class Refusal(Exception):
    """A sink cannot be computed in this group; the message says why."""


@dataclass(eq=False, slots=True)
class Sink:
    """A value computed by a group.

    ``level`` is ``"full"`` (an element per domain point) or ``"row"`` (per point of the axes that
    are not reduced); ``index`` leads from the domain to the value's elements, or to those of the
    array that an update writes into.  ``earliest`` is the first pass over the reduced axes that may
    store it.
    """

    value: Value
    cell: Cell
    level: Literal["full", "row"]
    index: Index
    stored: bool = False
    fills: bool = False
    earliest: int = 1

    @property
    def store_pass(self) -> int:
        """The pass that stores a full sink."""
        return max(self.cell.phase + 1, self.earliest)


@dataclass(eq=False, slots=True)
class Group:
    """Sinks that share one iteration domain and become one kernel (or one library call)."""

    number: int
    shape: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    sinks: list[Sink] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    depends: set[int] = field(default_factory=set)
    library: Value | None = None
    refusals: list[str] = field(default_factory=list)
    phases: int = 0
    _memo: dict[Any, Cell] = field(default_factory=dict)

    @property
    def members(self) -> dict[Value, Sink]:
        """The group's sinks by value."""
        return {sink.value: sink for sink in self.sinks}

    @property
    def row_axes(self) -> tuple[int, ...]:
        """Domain axes that are not reduced."""
        return tuple(a for a in range(len(self.shape)) if a not in self.reduced)


def storage(value: Value) -> Value:
    """The value whose memory a reshape shares."""
    while isinstance(value.op, Reshape):
        value = value.args[0]
    return value


def elementwise_args(value: Value) -> list[Value]:
    """Operands that are values."""
    return [arg for arg in value.args if isinstance(arg, Value)]


class Grouper:
    """Builds the groups of a list of values, in order."""

    def __init__(self, values: list[Value], outputs: list[Value], target: Target) -> None:
        self.target = target
        self.values = reachable(values, outputs)
        self.outputs = outputs
        self.stored = stored_values(self.values, outputs)
        self.groups: list[Group] = []
        self.group_of: dict[Value, Group] = {}
        self.ancestors: dict[int, set[int]] = {}
        self.shared_loads: defaultdict[Value, list[Group]] = defaultdict(list)
        self.homes: defaultdict[Value, list[Group]] = defaultdict(list)
        self.reads = reads_below(self.values, self.stored)
        self._promoted: list[tuple[Value, Group]] = []

    def run(self) -> list[Group]:
        """Assign every sink to a group."""
        for value in self.values:
            if isinstance(value.op, (Library,)):
                self._library(value)
            elif self._is_sink(value):
                self._place(value)
        return self.groups

    def _is_sink(self, value: Value) -> bool:
        if isinstance(value.op, (Reduction, Update)):
            return True
        return value in self.stored and not isinstance(value.op, (Leaf, Item, Reshape, Library))

    def may_store(self, value: Value) -> bool:
        """Whether a value that has no memory yet could be given some."""
        return value not in self.stored and not isinstance(value.op, (Leaf, Item, Reshape, Library))

    # ---- joining -------------------------------------------------------------------------

    def _library(self, value: Value) -> None:
        group = self._new_group(())
        group.library = value
        for arg in elementwise_args(value):
            while isinstance(arg.op, AxisView):
                arg = arg.args[0]
            self._depend(group, arg)
        self.group_of[value] = group

    def _place(self, value: Value) -> None:
        refusals = []
        for group in self._candidates(value):
            reason = self._try(value, group)
            if reason is None:
                return
            refusals.append(f"{value} not in kernel {group.number}: {reason}")
        shape = value.attrs[2] if isinstance(value.op, Update) else value.shape
        if isinstance(value.op, Reduction):
            shape = value.args[0].shape
        group = self._new_group(shape)
        group.refusals = refusals
        reason = self._try(value, group)
        if reason is not None:
            self.groups.pop()
            raise TooLarge(value, reason)

    def _candidates(self, value: Value) -> list[Group]:
        """Groups that hold something the sink needs, or read something it reads."""
        found: dict[int, Group] = {}
        for source in self._sources(value):
            group = self.group_of.get(source)
            if group is not None and group.library is None:
                found[group.number] = group
            for group in self.shared_loads[source]:
                found[group.number] = group
        return [found[number] for number in sorted(found, reverse=True)]

    def _sources(self, value: Value) -> Iterable[Value]:
        """Stored values directly below a sink."""
        seen: set[Value] = set()
        stack = elementwise_args(value)
        while stack:
            arg = stack.pop()
            if arg in seen:
                continue
            seen.add(arg)
            if arg in self.stored or isinstance(arg.op, (Leaf, Reduction, Item, Library)):
                yield storage(arg)
            else:
                stack.extend(elementwise_args(arg))

    def _try(self, value: Value, group: Group) -> str | None:
        """Add the sink to the group; return the reason if that cannot be done."""
        before = len(group.cells)
        memo = dict(group._memo)
        reduced, depends, phases = group.reduced, set(group.depends), group.phases
        self._promoted = []
        try:
            sink = self._lower_sink(value, group)
            self._check(sink, group)
        except Refusal as refusal:
            del group.cells[before:]
            group._memo = memo
            group.reduced, group.depends, group.phases = reduced, depends, phases
            self.stored.difference_update(promoted for promoted, _ in self._promoted)
            return str(refusal)
        for promoted, home in self._promoted:
            self._store_in(promoted, home)
        group.sinks.append(sink)
        self.group_of[value] = group
        self._close_dependencies(group)
        for cell in group.cells[before:]:
            if cell.access is not None:
                self.shared_loads[storage(cell.access.value)].append(group)
            elif cell.kind == "apply":
                self.homes[cell.value].append(group)
        return None

    def _home(self, value: Value, group: Group) -> Group | None:
        """An earlier kernel that has the value in hand, where reading it back is less work."""
        if self.reads[value] < 2 * value.size or not value.shape:
            return None
        for home in self.homes[value]:
            if (home is not group and self._place_in(value, home) is not None
                    and group.number not in self.ancestors[home.number]
                    and value.size <= 2 * _largest_access(home)):
                return home
        return None

    def _place_in(self, value: Value, home: Group) -> Sink | None:
        """The value as a sink of a kernel that computes it where it could be stored from."""
        for level in ("full", "row") if home.reduced else ("full",):
            index = self._match(value.shape, home, level)
            if index is not None and (value, index) in home._memo:
                return Sink(value, home._memo[value, index], level, index)
        return None

    def _store_in(self, value: Value, home: Group) -> None:
        """Have a kernel write a value that it computes on its way."""
        sink = self._place_in(value, home)
        assert sink is not None
        home.sinks.append(sink)
        self.group_of[value] = home

    def _check(self, sink: Sink, group: Group) -> None:
        if len(group.cells) > MAX_CELLS:
            raise Refusal(f"the kernel would compute {len(group.cells)} values a point")
        if sum(cell.kind == "load" for cell in group.cells) > MAX_LOADS:
            raise Refusal(f"the kernel would read more than {MAX_LOADS} arrays")
        for number in group.depends:
            if group.number == number or group.number in self.ancestors[number]:
                raise Refusal(f"kernel {number}, which it needs, needs this kernel")
        passes = max([group.phases, *(_last_phase(s, group) for s in [*group.sinks, sink])])
        if passes > 1 and group.sinks:
            reason = self.target.refuse_passes(group.shape, group.reduced, group.cells)
            if reason:
                raise Refusal(reason)
        group.phases = passes

    def _new_group(self, shape: tuple[int, ...]) -> Group:
        group = Group(len(self.groups), shape)
        self.groups.append(group)
        self.ancestors[group.number] = set()
        return group

    def _depend(self, group: Group, value: Value) -> None:
        owner = self.group_of.get(storage(value))
        if isinstance(storage(value).op, Item):
            owner = self.group_of.get(storage(value).args[0])
        if owner is not None and owner is not group:
            group.depends.add(owner.number)
            self.ancestors[group.number] |= {owner.number} | self.ancestors[owner.number]

    def _close_dependencies(self, group: Group) -> None:
        above = set(group.depends)
        for number in group.depends:
            above |= self.ancestors[number]
        self.ancestors[group.number] |= above
        for other in self.groups:
            if group.number in self.ancestors[other.number]:
                self.ancestors[other.number] |= self.ancestors[group.number]

    # ---- lowering ------------------------------------------------------------------------

    def _lower_sink(self, value: Value, group: Group) -> Sink:
        if value.op is empty:
            cell = self._cell(group, value, kind="param", value=value, dtype=value.dtype)
            return Sink(value, cell, "full", ())
        if isinstance(value.op, Reduction):
            return self._lower_reduction(value, group)
        if isinstance(value.op, Update):
            return self._lower_update(value, group)
        for level in ("full", "row") if group.reduced else ("full",):
            index = self._match(value.shape, group, level)
            if index is not None:
                cell = self._compute(value, index, group)
                return Sink(value, cell, level, index)
        raise Refusal(f"its shape {value.shape} is not that of the kernel, {group.shape}")

    def _lower_update(self, value: Value, group: Group) -> Sink:
        region = value.attrs[2]
        if group.sinks:
            raise Refusal("an update is a kernel of its own")
        index = tuple(Affine(a) if n != 1 else ORIGIN for a, n in enumerate(region))
        new = value.args[1]
        cell = self.lower(new, broadcast_index(new.shape, index), group)
        self._depend(group, value.args[0])
        return Sink(value, cell, "full", _region_index(value, index),
                    fills=value.args[0] not in self.stored)

    def _lower_reduction(self, value: Value, group: Group) -> Sink:
        source, axes = value.args[0], value.attrs[0]
        index = self._match(source.shape, group, "full")
        if index is None:
            raise Refusal(f"it reduces an array of shape {source.shape}, not {group.shape}")
        reduced = frozenset(index[axis].axis for axis in axes) - {-1}
        if not reduced:
            reduced = frozenset({-1})
        if group.reduced and group.reduced != reduced:
            raise Refusal(f"it reduces axes {_names(reduced)}, not {_names(group.reduced)}")
        if not group.reduced:
            group.reduced = reduced
        inner = self.lower(source, index, group)
        kept = frozenset(range(len(group.shape))) - reduced
        cell = self._cell(
            group, ("sink", value), kind="reduce", value=value, dtype=value.dtype,
            args=(inner,), axes=kept, phase=inner.phase + 1,
        )
        row = tuple(index[d] for d in range(len(source.shape)) if d not in axes)
        return Sink(value, cell, "row", row)

    def _match(self, shape: tuple[int, ...], group: Group, level: str) -> Index | None:
        """Index from the group's domain to an array of that shape, unit axes apart."""
        axes = range(len(group.shape)) if level == "full" else group.row_axes
        places = [axis for axis in axes if group.shape[axis] != 1]
        if [group.shape[axis] for axis in places] != [n for n in shape if n != 1]:
            return None
        order = iter(places)
        return tuple(ORIGIN if n == 1 else Affine(next(order)) for n in shape)

    def lower(self, value: Value, index: Index, group: Group) -> Cell:
        """Return the cell of a value at an index of the group's domain."""
        value, index = self._behind_views(value, index)
        return self._direct(value, index, group) or self._compute(value, index, group)

    def _behind_views(self, value: Value, index: Index) -> tuple[Value, Index]:
        while isinstance(value.op, AxisView) and value not in self.stored:
            value, index = value.args[0], through_view(value, index)
        return value, index

    def _direct(self, value: Value, index: Index, group: Group) -> Cell | None:
        """Return the cell of a value that is not computed from others here, or is already."""
        key = (value, index)
        cell = group._memo.get(key)
        if cell is not None:
            return cell
        if isinstance(value.op, Reduction) and value in group.members:
            return self._reduced(value, index, group)
        if value in self.stored or isinstance(value.op, (Leaf, Reduction, Reshape, Item, Library)):
            return self._load(value, index, group, key)
        if isinstance(value.op, Source):
            return self._source(value, index, group)
        assert isinstance(value.op, Elementwise), value
        home = self._home(value, group)
        if home is None:
            return None
        self._promoted.append((value, home))
        self.stored.add(value)
        group.depends.add(home.number)
        self.ancestors[group.number] |= {home.number} | self.ancestors[home.number]
        return self._load(value, index, group, key)

    def _reduced(self, value: Value, index: Index, group: Group) -> Cell:
        sink = group.members[value]
        if sink.index != index:
            raise Refusal(f"it reads {value} at other places than the kernel computes it")
        return sink.cell

    def _load(self, value: Value, index: Index, group: Group, key: Any) -> Cell:
        if storage(value) in group.members:
            raise Refusal(f"it reads {value} at other places than the kernel computes it")
        self._depend(group, value)
        owner = self.group_of.get(storage(value))
        if owner is not None and owner is not group:
            group.depends.add(owner.number)
        axes = frozenset(position.axis for position in index) - {-1}
        return self._cell(
            group, key, kind="load", value=value, dtype=value.dtype,
            access=Access(value, index), axes=axes,
        )

    def _compute(self, value: Value, index: Index, group: Group) -> Cell:
        """Return the cell of a value computed here, with those of all that it is computed from."""
        if isinstance(value.op, AxisView):
            return self.lower(value.args[0], through_view(value, index), group)
        if isinstance(value.op, Source):
            return group._memo.get((value, index)) or self._source(value, index, group)
        # A stack of our own: a chain of ops may be longer than Python's is deep.
        waiting: list[Any] = [(value, index)]
        opened: set[Any] = set()
        while (value, index) not in group._memo:
            place = waiting[-1]
            if place in opened:
                waiting.pop()
                if place not in group._memo:
                    self._apply(place[0], place[1], group)
            elif opened and self._known(place[0], place[1], group) is not None:
                waiting.pop()
            else:
                opened.add(place)
                waiting.extend(reversed(self._operands(place[0], place[1])))
        return group._memo[value, index]

    def _operands(self, value: Value, index: Index) -> list[Any]:
        """Return the operands, each with the index at which it is read."""
        return [
            self._behind_views(arg, broadcast_index(arg.shape, index))
            if isinstance(arg, Value) else (arg, None) for arg in value.args
        ]

    def _known(self, operand: Any, index: Any, group: Group) -> Cell | None:
        if isinstance(operand, Value):
            return self._direct(operand, index, group)
        return self._param(operand, group)

    def _apply(self, value: Value, index: Index, group: Group) -> None:
        """Make the cell of an op whose operands have theirs."""
        assert isinstance(value.op, Elementwise), value
        operands = self._operands(value, index)
        args: Any = tuple(self._known(operand, at, group) for operand, at in operands)
        axes = frozenset[int]().union(*(arg.axes for arg in args))
        phase = max((arg.phase for arg in args), default=0)
        self._cell(group, (value, index), kind="apply", value=value, dtype=value.dtype,
                   args=args, axes=axes, phase=phase)

    def _source(self, value: Value, index: Index, group: Group) -> Cell:
        args = tuple(self._param(arg, group) for arg in value.args)
        if value.op.name == "iota":
            axes = frozenset({index[0].axis}) - {-1}
            return self._cell(group, (value, index), kind="iota", value=value, dtype=value.dtype,
                              args=args, access=Access(value, index), axes=axes)
        return self._cell(group, (value, index), kind="apply", value=value, dtype=value.dtype,
                          args=args)

    def _param(self, param: Param | Size | int | None, group: Group) -> Cell:
        key = ("param", param)
        if key in group._memo:
            return group._memo[key]
        value: Any = param
        return self._cell(group, key, kind="param", value=value, dtype=None)

    def _cell(self, group: Group, key: Any, **fields: Any) -> Cell:
        cell = Cell(number=len(group.cells), **fields)
        group.cells.append(cell)
        group._memo[key] = cell
        return cell


class TooLarge(Exception):
    """One sink alone is too much for a kernel: something below it must be stored."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(f"{value}: {reason}")
        self.value = value


def _names(axes: Iterable[int]) -> str:
    return str(tuple(sorted(axes)))


def _last_phase(sink: Sink, group: Group) -> int:
    """Passes over the reduced axes that must start before the sink is known."""
    if sink.level == "full" and group.reduced:
        return sink.cell.phase + 1
    return sink.cell.phase


def is_straight(update: Value) -> bool:
    """Whether an update writes a box, so that what lies outside it can be written beside it."""
    axes, steps, _ = update.attrs
    followed = [axis for axis in axes if axis >= 0]
    return bool(update.shape) and len(set(followed)) == len(followed) and all(
        step == 1 for axis, step in zip(axes, steps, strict=True) if axis >= 0)


def update_region(value: Value) -> Region:
    """The elements that an update writes."""
    region = value.attrs[2]
    index = _region_index(value, tuple(Affine(axis) for axis in range(len(region))))
    return region_of(value.shape, index, region)


def _region_index(value: Value, index: Index) -> Index:
    """Index into the array that an update writes, given the index into its region."""
    axes, steps, _ = value.attrs
    shim = Value(-1, value.op, (axes, steps), (value.args[0], *value.args[2:]), value.shape,
                 value.dtype)
    return through_view(shim, index)


def reachable(values: list[Value], outputs: list[Value]) -> list[Value]:
    """The values that the outputs need, inputs first."""
    needed = set(outputs)
    for value in sorted(values, key=lambda v: -v.number):
        if value in needed:
            needed.update(elementwise_args(value))
    return [value for value in values if value in needed]


def stored_values(values: list[Value], outputs: list[Value]) -> set[Value]:
    """Values that must have memory: outputs, what library calls and reshapes read, updates.

    Beyond those, an expensive value that would be computed several times: read by more than one
    user through different views, or broadcast along an axis it does not have.
    """
    stored = set(outputs)
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    cost: dict[Value, int] = {}
    for value in values:
        for arg in elementwise_args(value):
            users[arg].append(value)
        if isinstance(value.op, Library):
            for arg in elementwise_args(value):
                while isinstance(arg.op, AxisView):
                    arg = arg.args[0]
                stored.add(storage(arg))
        if isinstance(value.op, (Reshape, Update)):
            stored.add(value)
            if not (isinstance(value.op, Update) and value.args[0].op is full):
                stored.add(value.args[0])
        if value.op is empty:
            stored.add(value)
        own = value.op.cost if isinstance(value.op, Elementwise) else 0
        below = [] if isinstance(value.op, (Reduction, Library, Update, Reshape)) else (
            elementwise_args(value))
        cost[value] = min(10**6, own + sum(cost[arg] for arg in below))
    stored |= {
        value.args[0] for value in values
        if isinstance(value.op, Update) and value.args[0].op is full
        and not (is_straight(value) and users[value.args[0]] == [value])}
    return stored | {
        value for value in values
        if isinstance(value.op, Elementwise) and value.shape and cost[value] > 1
        and ((cost[value] >= EXPENSIVE and _computed_often(value, users))
             or _spread_far(value, users))}


def _spread_far(value: Value, users: dict[Value, list[Value]]) -> bool:
    """Whether the value is read very many times for each time it would be computed."""
    readers = [*users[value]]
    readers += [user for view in users[value] if isinstance(view.op, AxisView)
                for user in users[view]]
    largest = max((user.size for user in readers if isinstance(user.op, Elementwise)), default=0)
    return largest >= SPREAD * max(value.size, 1) and largest >= SPREAD * SPREAD


def _computed_often(value: Value, users: dict[Value, list[Value]]) -> bool:
    readers = users[value]
    if len(readers) > 1 and any(isinstance(user.op, AxisView) for user in readers):
        return value.size > 1 and any(
            isinstance(user.op, AxisView) and not _is_placement(user) for user in readers)
    for user in readers:
        largest = max([user, *users[user]] if isinstance(user.op, AxisView) else [user],
                      key=lambda v: v.size)
        if isinstance(largest.op, (Elementwise, AxisView)) and largest.size >= 2 * value.size:
            return not _hoistable(value, largest)
    return False


def reads_below(values: list[Value], stored: set[Value]) -> dict[Value, int]:
    """How many stored elements it takes to compute a virtual value again (at most)."""
    reads: dict[Value, int] = {}
    for value in values:
        if value in stored or not isinstance(value.op, (Elementwise, AxisView)):
            reads[value] = value.size if value.shape and not isinstance(value.op, Source) else 0
        else:  # a view may need a part of what its input needs
            reads[value] = min(1 << 62, sum(
                reads[arg] * min(arg.size, value.size) // max(arg.size, 1)
                for arg in elementwise_args(value)))
    return reads


def _largest_access(group: Group) -> int:
    """Elements of the largest array that a group reads or writes."""
    sizes = [cell.access.value.size for cell in group.cells if cell.access is not None]
    return max([*sizes, *(sink.value.size for sink in group.sinks)], default=0)


def _is_placement(view: Value) -> bool:
    """Whether a view only adds axes: every element is read once where it stands."""
    return view.size == view.args[0].size and all(arg is None for arg in view.args[1:])


def _hoistable(value: Value, user: Value) -> bool:
    """Whether the value does not vary along the user's last axis (computed once a row)."""
    return len(value.shape) == len(user.shape) and value.shape[-1] == 1
