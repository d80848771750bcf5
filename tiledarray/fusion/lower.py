"""Lowering: a sink as cells of a group's domain, one scalar computation each.

A `Lowering` holds what the group would become.  Nothing of the group changes until it is applied,
so an attempt that is refused is simply dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from tiledarray.fusion.ir import (
    ORIGIN,
    READS,
    Access,
    Affine,
    Cell,
    Group,
    Index,
    Param,
    Sink,
    Size,
    Value,
    add_terms,
    broadcast_index,
    dense_strides,
    normalised,
    storage,
    through_view,
    through_views,
    windows_access,
)
from tiledarray.fusion.limits import Limits
from tiledarray.fusion.regions import region_index
from tiledarray.fusion.schedule.instructions import ACROSS_WORDS, WARP, words_of_lanes
from tiledarray.fusion.short import components, without
from tiledarray.ops.movement import empty, iota
from tiledarray.ops.op import (
    AxisView,
    Elementwise,
    Gather,
    Item,
    Leaf,
    Library,
    Reduction,
    Reshape,
    Scan,
    Source,
    Strided,
    Update,
)

_PLACE = -2  # stands for the axis that a computed place is along, as if it were the domain's


class Refusal(Exception):
    """A sink cannot be computed in this group; the message says why."""


def refuse_loads(count: int, most: int) -> None:
    """Refuse a kernel that reads so many arrays, if they are too many.

    Raises
    ------
    Refusal
    """
    if count > most:
        raise Refusal(f"the kernel would read more than {most} arrays")


def match(shape: tuple[int, ...], group: Group, level: str) -> Index | None:
    """Index from the group's domain to an array of that shape, unit axes apart."""
    axes = range(len(group.shape)) if level == "full" else group.row_axes
    places = [axis for axis in axes if group.shape[axis] != 1]
    if [group.shape[axis] for axis in places] != [n for n in shape if n != 1]:
        return None
    order = iter(places)
    return tuple(ORIGIN if n == 1 else Affine(next(order)) for n in shape)


def place_in(value: Value, home: Group) -> Sink | None:
    """The value as a sink of a group that computes it where it could be stored from."""
    for level in LEVELS if home.reduced else LEVELS[:1]:
        index = match(value.shape, home, level)
        if index is not None and (value, index) in home.known:
            return Sink(value, home.known[value, index], level, index)
    return None


def may_turn(value: Value, group: Group) -> bool:
    """Whether a sink may stand the other way round along the axis that the group scans.

    What a sum from the end is read by is such a view of a scan as its input is.
    """
    op = value.op
    return group.scanned >= 0 and not isinstance(op, (Scan, Update)) and not (
        isinstance(op, Reduction) and op.positions)


LEVELS: tuple[Any, ...] = ("full", "row")


class Lowering:
    """One sink lowered onto a group's domain.

    Parameters
    ----------
    group : Group
    stored : set of Value
        Values that are read rather than computed.
    home : callable
        The earlier group from which a value had better be stored and read, if there is one.
    limits : Limits
    apart : dict
        Short axes of what is reduced that are no axes of the domain.

    Attributes
    ----------
    cells : list of Cell
        What the group would compute besides.
    loads : list of Cell
        Those of them that read.
    reduced : frozenset of int
        The axes that the group would walk in passes.
    scanned : int
        The one that it would scan along.
    reads : dict
        The stored values read.
    promoted : dict
        Values that would be stored from an earlier group.
    """

    def __init__(self, group: Group, stored: set[Value],
                 home: Callable[[Value, Group], Group | None], limits: Limits,
                 apart: dict[Value, tuple[int, ...]]) -> None:
        self._limits = limits
        self._apart = apart
        self.group = group
        self.cells: list[Cell] = []
        self.loads: list[Cell] = []
        self.reduced = group.reduced
        self.scanned = group.scanned
        self.reads: dict[Value, None] = {}
        self.promoted: dict[Value, Group] = {}
        self._stored = stored
        self._home = home
        self._known: dict[Any, Cell] = {}

    def apply(self, sinks: list[Sink]) -> None:
        """Have the group compute the sinks."""
        group = self.group
        group.cells += self.cells
        group.loads += self.loads
        group.known.update(self._known)
        group.reduced = self.reduced
        group.scanned = self.scanned
        sizes = (cell.access.value.size for cell in self.cells if cell.access is not None)
        group.largest = max(group.largest, *sizes, 0)
        for sink in sinks:
            group.add(sink)

    # ---- sinks ---------------------------------------------------------------------------

    def frame(self, value: Value, turned: bool = False) -> tuple[Any, list[Index]]:
        """The level at which the group could compute a value, and the index of each sink.

        ``turned``, the value's elements stand the other way round along the axis of the scan.

        Raises
        ------
        Refusal
            If the domain does not fit.
        """
        group = self.group
        if value.op is empty:
            return "full", [()]
        if isinstance(value.op, Update):
            if group.sinks:
                raise Refusal("an update is a kernel of its own")
            return "full", [tuple(
                Affine(a) if n != 1 else ORIGIN for a, n in enumerate(value.attrs[2]))]
        if isinstance(value.op, Reduction):
            across = self._frame_across(value)
            if across is not None:
                return "across", [across]
            return "row", [self._turned(index) if turned else index
                           for index in self._frame_of_reduction(value)]
        if isinstance(value.op, Scan):
            return "full", [self._frame_of_scan(value)]
        for level in LEVELS if group.reduced else LEVELS[:1]:
            index = match(value.shape, group, level)
            if index is not None:
                return level, [self._turned(index) if turned else index]
        indices = self._beside_components(value)
        if indices:
            return "row", indices
        raise Refusal(f"its shape {value.shape} is not that of the kernel, {group.shape}")

    def _beside_components(self, value: Value) -> list[Index]:
        """The index of each component of a value like one that the group has in components."""
        for member, sinks in self.group.members.items():
            if len(sinks) > 1 and member.shape == value.shape:
                return [*sinks]
        return []

    def _frame_of_reduction(self, value: Value) -> list[Index]:
        group = self.group
        source, axes = value.args[0], value.attrs[0]
        short = self._apart.get(value, ())
        index = match(without(source.shape, short), group, "full")
        indices = [] if index is None else components(source.shape, short, index)
        if index is None and short:
            index = match(source.shape, group, "full")
            indices = [index] if index is not None else []
        if not indices:
            raise Refusal(f"it reduces an array of shape {source.shape}, not {group.shape}")
        reduced = frozenset(indices[0][axis].axis for axis in axes) - {-1} or frozenset({-1})
        if group.reduced and group.reduced != reduced:
            rows = any(sink.level == "row" for sink in group.sinks)
            if group.scanned < 0 or rows or not reduced > group.reduced:
                raise Refusal(f"it reduces axes {_names(reduced)}, not {_names(group.reduced)}")
            self._refuse_more_axes(reduced)
        self.reduced = reduced
        return indices

    def _frame_across(self, value: Value) -> Index | None:
        """The index of what is reduced over all rows of a kernel that reduces them; else nothing.

        Each row is then read once for what it is reduced to and for what that is used for.

        Raises
        ------
        Refusal
            If blocks of threads could not share the rows out so.
        """
        group, limits = self.group, self._limits
        rows = {axis for axis in group.row_axes if group.shape[axis] != 1}
        if not (limits.across_points and group.reduced and rows) or group.scanned >= 0:
            return None
        source, axes = value.args[0], value.attrs[0]
        for level in LEVELS:
            index = match(source.shape, group, level)
            if index is not None and {index[axis].axis for axis in axes} - {-1} == rows:
                self._refuse_across(value, level)
                return index
        return None

    def _refuse_across(self, value: Value, level: str) -> None:
        group, limits = self.group, self._limits
        axes = [axis for axis, n in enumerate(group.shape) if n != 1]
        lanes = group.shape[axes[-1]]
        if group.reduced != {axes[-1]} or not limits.short_lanes <= lanes <= (
                limits.across_lanes if level == "full" else limits.across_short):
            raise Refusal(self._other_axes(axes))
        points = prod(group.shape)
        if points < limits.across_points:
            raise Refusal(f"{self._other_axes(axes)}, and {points} elements are soon read again")
        if not any(cell.axes >= {*axes} for cell in (*group.loads, *self.loads)):
            raise Refusal(f"{self._other_axes(axes)}, and reads no array of all its elements, "
                          "which would be read again")
        if not isinstance(value.op, Reduction) or value.op.positions or self._apart.get(value) or (
                any(len(sinks) > 1 for sinks in group.members.values())):
            raise Refusal("it reduces the rows of a kernel to places or components")

    def _other_axes(self, axes: list[int]) -> str:
        reduced = self.group.reduced
        rows = _names(axis for axis in axes if axis not in reduced)
        return f"it reduces axes {rows}, not {_names(reduced)}"

    def refuse_wide_rows(self) -> None:
        """Refuse what a warp has no registers for, where rows are reduced to something each.

        Raises
        ------
        Refusal
        """
        found = [cell for cell in (*self.group.cells, *self.cells)
                 if cell.kind == "across" and cell.axes]
        if not found:
            return
        own = words_of_lanes(found, (*self.group.loads, *self.loads))
        lanes = prod(self.group.shape[axis] for axis in found[0].axes)
        if own * -(-lanes // WARP) > ACROSS_WORDS:
            raise Refusal(f"a row of {lanes} elements, each with {own} words of its own, and what "
                          "all rows become, are too much for a warp")

    def _frame_of_scan(self, value: Value) -> Index:
        group = self.group
        index = match(value.shape, group, "full")
        if index is None:
            raise Refusal(f"its shape {value.shape} is not that of the kernel, {group.shape}")
        if any(isinstance(sink.value.op, Update) for sink in group.sinks):
            raise Refusal("an update is a kernel of its own")
        axis = index[value.attrs].axis
        if axis < 0:
            raise Refusal("it scans along an axis of one element")
        if group.scanned not in (-1, axis):
            raise Refusal(f"it scans along axis {axis}, not {group.scanned}")
        self.scanned = axis
        if group.reduced and axis not in group.reduced:
            raise Refusal(f"it scans along axis {axis}, which is not reduced")
        self._refuse_more_axes(group.reduced)
        self.reduced = group.reduced or frozenset({axis})
        return index

    def _refuse_more_axes(self, reduced: frozenset[int]) -> None:
        """Refuse to reduce more than what is scanned, unless that is the last axis.

        Then a block goes through its rows one after the other.

        Raises
        ------
        Refusal
        """
        shape = self.group.shape
        last = max((axis for axis, n in enumerate(shape) if n != 1), default=-1)
        if not reduced <= {self.scanned} and self.scanned != last:
            raise Refusal(f"it reduces axes {_names(reduced)} and scans along {self.scanned}")

    def _turned(self, index: Index) -> Index:
        axis = self.group.scanned
        end = self.group.shape[axis] - 1
        return tuple(
            Affine(axis, -position.step, add_terms(position.terms, 1, end * position.step))
            if position.axis == axis else position for position in index)

    def sink(self, value: Value, level: Any, index: Index) -> Sink:
        """Lower a sink in its frame.

        Raises
        ------
        Refusal
            If the group would be too large, or cannot read what it needs.
        """
        if value.op is empty:
            cell = self._cell(value, kind="param", value=value, dtype=value.dtype)
            return Sink(value, cell, level, index)
        if isinstance(value.op, Update):
            new = value.args[1]
            cell = self._lower(new, broadcast_index(new.shape, index))
            self.reads[storage(value.args[0])] = None
            return Sink(value, cell, level, region_index(value, index),
                        fills=value.args[0] not in self._stored)
        if isinstance(value.op, Reduction):
            return self._reduction(value, level, index)
        if isinstance(value.op, Scan):
            return Sink(value, self._scan(value, index), level, index)
        return Sink(value, self._compute(value, index), level, index)

    def _scan(self, value: Value, index: Index) -> Cell:
        inner = self._lower(value.args[0], index)
        axes = inner.axes | {self.scanned}
        return self._cell((value, index), kind="scan", value=value, dtype=value.dtype,
                          args=(inner,), axes=axes, phase=inner.phase)

    def _reduction(self, value: Value, level: Any, index: Index) -> Sink:
        source, axes = value.args[0], value.attrs[0]
        inner = self._lower(source, index)
        row = tuple(index[d] for d in range(len(source.shape)) if d not in axes)
        if level == "across":
            lanes = self.reduced & {position.axis for position in row}
            cell = self._cell(
                ("sink", value, index), kind="across", value=value, dtype=value.dtype,
                args=(inner,), axes=lanes, phase=inner.phase + bool(lanes))
            return Sink(value, cell, level, row)
        kept = frozenset(range(len(self.group.shape))) - self.reduced
        cell = self._cell(
            ("sink", value, index), kind="reduce", value=value, dtype=value.dtype,
            args=(inner,), axes=kept, phase=inner.phase + 1,
        )
        return Sink(value, cell, "row", row)

    # ---- values --------------------------------------------------------------------------

    def _lower(self, value: Value, index: Index) -> Cell:
        """Return the cell of a value at an index of the group's domain."""
        value, index = self._behind_views(value, index)
        return self._direct(value, index) or self._compute(value, index)

    def _behind_views(self, value: Value, index: Index) -> tuple[Value, Index]:
        return through_views(value, index, self._is_stored)

    def _is_stored(self, value: Value) -> bool:
        return value in self._stored or value in self.promoted

    def _find(self, key: Any) -> Cell | None:
        return self._known.get(key) or self.group.known.get(key)

    def _direct(self, value: Value, index: Index) -> Cell | None:
        """Return the cell of a value that is not computed from others here, or is already."""
        cell = self._find((value, index))
        if cell is not None:
            return cell
        if isinstance(value.op, Reduction) and value in self.group.members:
            return self._reduced_here(value, index)
        if isinstance(value.op, (Gather, Strided)) and not self._is_stored(value):
            return self._read_through(value, index)
        if self._is_stored(value) or isinstance(
                value.op, (Leaf, Reduction, Scan, Reshape, Item, Library)):
            return self._load(value, index)
        if isinstance(value.op, Source):
            return self._source(value, index)
        assert isinstance(value.op, Elementwise), value
        home = self._home(value, self.group)
        if home is None:
            return None
        self.promoted[value] = home
        return self._load(value, index)

    def _reduced_here(self, value: Value, index: Index) -> Cell:
        sink = self.group.members[value].get(index)
        if sink is None:
            raise Refusal(f"it reads {value} at other places than the kernel computes it")
        if sink.level == "across":
            raise Refusal(f"it reads {value}, which is known when all rows are done")
        return sink.cell

    def _load(self, value: Value, index: Index) -> Cell:
        return self._read(value, index, Access(value, index))

    def _read(self, value: Value, index: Index, access: Access) -> Cell:
        """Return the cell of a value at an index that is a read from memory."""
        inner = storage(access.value)
        if inner in self.group.members:
            raise Refusal(f"it reads {access.value} at other places than the kernel computes it")
        self.reads[inner] = None
        axes = frozenset(position.axis for position in access.index) - {-1}
        return self._cell((value, index), kind="load", value=value, dtype=value.dtype,
                          access=access, axes=axes)

    def _read_through(self, value: Value, index: Index) -> Cell:
        read = self._gather if isinstance(value.op, Gather) else self._overlapping
        return read(value, index)

    def _overlapping(self, value: Value, index: Index) -> Cell:
        """Return the cell of an element of windows: a load from the memory they are of."""
        return self._read(value, index, windows_access(value, index, self._is_stored))

    def _gather(self, value: Value, index: Index) -> Cell:
        """Return the cell of what stands at computed places: a load, from as far as they say."""
        array, places, checked = value.args
        axis, along = value.attrs
        behind = axis + (1 if along else len(places.shape))
        place = self._lower(
            places, normalised(places.shape, index if along else index[axis:behind]))
        at = normalised(array.shape, (*index[:axis], Affine(_PLACE), *index[behind:]))
        inner, at = self._behind_views(array, at)
        if storage(inner) in self.group.members:
            raise Refusal(f"it reads {inner} at other places than the kernel computes it")
        self.reads[storage(inner)] = None
        self.reads[storage(checked)] = None
        stride = sum(position.step * step for position, step in zip(
            at, dense_strides(inner.shape), strict=True) if position.axis == _PLACE)
        at = tuple(Affine(-1, 0, position.terms) if position.axis == _PLACE else position
                   for position in at)
        axes = frozenset(position.axis for position in at) - {-1}
        return self._cell((value, index), kind="gather", value=value, dtype=value.dtype,
                          args=(place,), access=Access(inner, at), axes=axes | place.axes,
                          phase=place.phase, along=(stride, array.shape[axis]))

    def _compute(self, value: Value, index: Index) -> Cell:
        """Return the cell of a value computed here, with those of all that it is computed from."""
        if isinstance(value.op, AxisView):
            return self._lower(value.args[0], through_view(value, index))
        if isinstance(value.op, Source):
            return self._find((value, index)) or self._source(value, index)
        if isinstance(value.op, (Gather, Strided)):
            return self._find((value, index)) or self._read_through(value, index)
        # A stack of our own: a chain of ops may be longer than Python's is deep.
        waiting: list[Any] = [(value, index)]
        opened: set[Any] = set()
        cell = self._find((value, index))
        while cell is None:
            place = waiting[-1]
            if place in opened:
                waiting.pop()
                if self._find(place) is None:
                    self._apply(place[0], place[1])
            elif opened and self._operand(place[0], place[1]) is not None:
                waiting.pop()
            else:
                opened.add(place)
                waiting.extend(reversed(self._operands(place[0], place[1])))
            cell = None if waiting else self._find((value, index))
        return cell

    def _operands(self, value: Value, index: Index) -> list[Any]:
        """Return the operands, each with the index at which it is read."""
        return [
            self._behind_views(arg, broadcast_index(arg.shape, index))
            if isinstance(arg, Value) else (arg, None) for arg in value.args
        ]

    def _operand(self, operand: Any, index: Any) -> Cell | None:
        if isinstance(operand, Value):
            return self._direct(operand, index)
        return self._param(operand)

    def _apply(self, value: Value, index: Index) -> None:
        """Make the cell of an op whose operands have theirs."""
        assert isinstance(value.op, Elementwise), value
        operands = self._operands(value, index)
        args: Any = tuple(self._operand(operand, at) for operand, at in operands)
        axes = frozenset[int]().union(*(arg.axes for arg in args))
        phase = max((arg.phase for arg in args), default=0)
        self._cell((value, index), kind="apply", value=value, dtype=value.dtype,
                   args=args, axes=axes, phase=phase)

    def _source(self, value: Value, index: Index) -> Cell:
        args = tuple(self._param(arg) for arg in value.args)
        if value.op is iota:
            args = args or (self._param(0), self._param(1))
            axes = frozenset({index[0].axis}) - {-1}
            return self._cell((value, index), kind="iota", value=value, dtype=value.dtype,
                              args=args, access=Access(value, index), axes=axes)
        return self._cell((value, index), kind="apply", value=value, dtype=value.dtype, args=args)

    def _param(self, param: Param | Size | int | None) -> Cell:
        key = ("param", param)
        value: Any = param
        return self._find(key) or self._cell(key, kind="param", value=value, dtype=None)

    def _cell(self, key: Any, **fields: Any) -> Cell:
        cell = Cell(number=len(self.group.cells) + len(self.cells), **fields)
        most = self._limits.cells
        if cell.number >= most:
            raise Refusal(f"the kernel would compute more than {most} values a point")
        self.cells.append(cell)
        self._known[key] = cell
        if cell.kind in READS:
            self.loads.append(cell)
            refuse_loads(len(self.group.loads) + len(self.loads), self._limits.loads)
        return cell


def _names(axes: Iterable[int]) -> str:
    return str(tuple(sorted(axes)))
