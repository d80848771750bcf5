"""Which values have memory: what must have it, and what is sooner stored than computed again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from tiledarray.fusion.ir import Value, library_operand, storage, value_args, viewed
from tiledarray.fusion.limits import Limits
from tiledarray.fusion.regions import is_straight
from tiledarray.ops.movement import empty, full
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

Components = dict[Value, int]  # how many of a value's elements are computed side by side


def reachable(values: list[Value], outputs: list[Value]) -> list[Value]:
    """The values that the outputs need, inputs first."""
    needed = set(outputs)
    for value in sorted(values, key=lambda v: -v.number):
        if value in needed:
            needed.update(value_args(value))
    return [value for value in values if value in needed]


def must_be_stored(values: list[Value], outputs: list[Value]) -> set[Value]:
    """Values that must have memory: outputs, what library calls and reshapes read, updates."""
    stored = set(outputs)
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    for value in values:
        for arg in value_args(value):
            users[arg].append(value)
        if isinstance(value.op, Library):
            stored.update(map(library_operand, value_args(value)))
        if isinstance(value.op, (Gather, Strided)):
            stored.update(storage(viewed(arg)) for arg in value_args(value))
        if isinstance(value.op, (Reshape, Update)):
            stored.add(value)
            if not (isinstance(value.op, Update) and value.args[0].op is full):
                stored.add(value.args[0])
        if value.op is empty:
            stored.add(value)
    return stored | {
        value.args[0] for value in values
        if isinstance(value.op, Update) and value.args[0].op is full
        and not (is_straight(value) and users[value.args[0]] == [value])}


def sooner_stored(values: list[Value], limits: Limits, components: Components) -> set[Value]:
    """Expensive values that would be computed several times.

    They are read by more than one user through different views, or broadcast along an axis they do
    not have; the components that a kernel computes side by side count once.
    """
    users: defaultdict[Value, list[Value]] = defaultdict(list)
    cost: dict[Value, int] = {}
    for value in values:
        for arg in value_args(value):
            users[arg].append(value)
        own = value.op.cost if isinstance(value.op, Elementwise) else 0
        below = [] if isinstance(value.op, (Reduction, Scan, Library, Update, Reshape)) else (
            value_args(value))
        cost[value] = min(10**6, own + sum(cost[arg] for arg in below))
    return {
        value for value in values
        if isinstance(value.op, Elementwise) and value.shape and cost[value] > 1
        and ((cost[value] >= limits.expensive and _computed_often(value, users, components))
             or (_spread_far(value, users, limits) and not (
                 cost[value] < limits.expensive and _one_a_row(value, users))))}


def _spread_far(value: Value, users: dict[Value, list[Value]], limits: Limits) -> bool:
    """Whether the value is read very many times for each time it would be computed."""
    readers = [*users[value]]
    for reader in readers:
        if isinstance(reader.op, AxisView):
            readers += users[reader]
    largest = max((user.size for user in readers if isinstance(user.op, Elementwise)), default=0)
    return largest >= limits.spread * max(value.size, limits.spread, 1)


def _one_a_row(value: Value, users: dict[Value, list[Value]]) -> bool:
    """Whether it is only read as one number for each row of something: once a row is enough."""
    return bool(users[value]) and all(
        isinstance(user.op, AxisView) and _same_along_rows(value, user, users)
        for user in users[value])


def _same_along_rows(value: Value, view: Value, users: dict[Value, list[Value]]) -> bool:
    """Whether a view, and views of it, repeat a value's elements along their last axes."""
    last = len(view.shape) - 1
    return not any(axis == last and n > 1 for axis, n in zip(
        view.attrs[0], value.shape, strict=True)) and all(
        _same_along_rows(view, user, users) for user in users[view]
        if isinstance(user.op, AxisView))


def _computed_often(value: Value, users: dict[Value, list[Value]], components: Components) -> bool:
    def size(user: Value) -> int:
        return user.size // components.get(user, 1)

    readers = users[value]
    if len(readers) > 1 and any(isinstance(user.op, AxisView) for user in readers):
        if sum(user.size * len(users[user]) for user in readers) <= value.size:
            return False  # its parts, each read once
        return value.size > 1 and any(
            isinstance(user.op, AxisView) and not _is_placement(user) for user in readers)
    for user in readers:
        largest = max([user, *users[user]] if isinstance(user.op, AxisView) else [user],
                      key=size)
        if isinstance(largest.op, (Elementwise, AxisView)) and size(largest) >= 2 * value.size:
            return not _hoistable(value, largest)
    return False


def count_reads(values: Iterable[Value], stored: set[Value], reads: dict[Value, int]) -> None:
    """Note how many stored elements it takes (at most) to compute each value again."""
    for value in values:
        if value in stored or not isinstance(value.op, (Elementwise, AxisView)):
            reads[value] = value.size if value.shape and not isinstance(value.op, Source) else 0
        else:  # a view may need a part of what its input needs
            reads[value] = min(1 << 62, sum(
                reads[arg] * min(arg.size, value.size) // max(arg.size, 1)
                for arg in value_args(value)))


def largest_uses(values: list[Value]) -> dict[Value, int]:
    """Return how many elements the largest value has that is computed with each."""
    largest = dict.fromkeys(values, 0)
    for value in reversed(values):
        seen = largest[value] if isinstance(value.op, AxisView | Reshape | Item) else value.size
        for arg in value_args(value):
            largest[arg] = max(largest.get(arg, 0), seen)
    return largest


def _is_placement(view: Value) -> bool:
    """Whether a view only adds axes: every element is read once where it stands."""
    return view.size == view.args[0].size and all(arg is None for arg in view.args[1:])


def _hoistable(value: Value, user: Value) -> bool:
    """Whether the value does not vary along the user's last axis (computed once a row)."""
    return len(value.shape) == len(user.shape) and value.shape[-1] == 1


class MustStore(Exception):
    """Values have to be stored that were not: grouping begins anew with them."""

    def __init__(self, values: Iterable[Value]) -> None:
        self.values = list(values)
        super().__init__(", ".join(map(str, self.values)))


# ---- kernels that would be too large ------------------------------------------------------------


def is_virtual(value: Value, stored: set[Value]) -> bool:
    """Whether kernels compute the value again instead of reading it."""
    return value not in stored and not isinstance(value.op, (Leaf, Reduction, Scan, Item, Library))


def cone(value: Value, stored: set[Value]) -> list[Value]:
    """The virtual values that a sink is computed from, inputs first."""
    seen: set[Value] = set()
    stack = value_args(value)
    while stack:
        arg = stack.pop()
        if arg not in seen and is_virtual(arg, stored):
            seen.add(arg)
            stack.extend(value_args(arg))
    return sorted(seen, key=lambda v: v.number)


def pieces_of(value: Value, stored: set[Value], limits: Limits, *,
              computed_beside: bool = False) -> list[Value]:
    """What to store so that a sink that is too much for a kernel is computed in several.

    Each piece is as large as a kernel can be, as far as that is known before it is lowered: what
    is read through several views counts once.  Where all seems to fit it is such views that make
    it large, and the work is halved.  With ``computed_beside``, reductions may be computed in the
    kernel of a piece; else it reads them.
    """
    below = cone(value, stored)
    pieces: dict[Value, None] = {}
    parts: dict[Value, Cells] = {}
    for each in (*below, value):
        if each is value or not isinstance(each.op, AxisView):
            operands = [_behind_views(arg, stored) for arg in value_args(each)]
            parts[each] = _cells_of(
                each, operands, parts, pieces, limits, computed_beside=computed_beside)
    if pieces:
        return [*pieces]
    computed = [each for each in below if isinstance(each.op, Elementwise)]
    if not computed:
        raise AssertionError(f"{value} cannot be made smaller")
    return [computed[len(computed) // 2]]


class Cells(NamedTuple):
    """What a kernel would have for a value: values computed and parameters, and values read."""

    computed: frozenset[Any]
    read: frozenset[Value]


def _cells_of(value: Value, operands: list[Value], parts: dict[Value, Cells],
              pieces: dict[Value, None], limits: Limits, *, computed_beside: bool) -> Cells:
    """What a value is computed from; its largest operands are cut off."""
    own = {value, *(arg for arg in value.args if not isinstance(arg, Value))}
    while True:
        inside = [arg for arg in operands if arg in parts and arg not in pieces]
        outside = [arg for arg in operands if arg not in inside]
        beside = [arg for arg in outside if computed_beside and isinstance(arg.op, Reduction)]
        cells = Cells(
            frozenset[Any]().union(own, beside, *(parts[arg].computed for arg in inside)),
            frozenset(arg for arg in outside if arg not in beside).union(
                *(parts[arg].read for arg in inside)))
        found = [arg for arg in inside if isinstance(arg.op, Elementwise)]
        if not found or (sum(map(len, cells)) < limits.cells and len(cells.read) <= limits.loads):
            return cells
        pieces[max(found, key=lambda arg: sum(map(len, parts[arg])))] = None


def _behind_views(value: Value, stored: set[Value]) -> Value:
    while isinstance(value.op, AxisView) and value not in stored:
        value = value.args[0]
    return value
