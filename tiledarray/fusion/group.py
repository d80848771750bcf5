"""Which sinks share a kernel.

A *sink* is a value that a kernel must produce: a reduction, a stored elementwise value, an
update.  Everything else is virtual: it is computed inside the kernels that use it.  A sink joins
a group if it can be lowered onto the group's iteration domain from what the group holds on chip;
every refusal is kept with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from tiledarray.fusion.ir import Group, Sink, Value, library_operand, storage, value_args
from tiledarray.fusion.lower import Lowering, Refusal, may_turn, place_in, refuse_loads
from tiledarray.fusion.nearby import Nearby, bits_of
from tiledarray.fusion.short import taken_apart, without
from tiledarray.fusion.stored import (
    MustStore,
    cone,
    count_reads,
    largest_uses,
    must_be_stored,
    pieces_of,
    reachable,
    sooner_stored,
)
from tiledarray.fusion.target import Target
from tiledarray.ops.op import Item, Leaf, Library, Reduction, Reshape, Scan, Source, Update

TOLD = 8  # reasons why a sink did not join others
LARGE = 1 << 20  # elements of what reads once more rather than being in a kernel with others,
SPREAD = 64  # that are as many times those of something it needs
LATE = "what is computed with it, and is larger, would have to wait for what the kernel waits for"


class Needs(NamedTuple):
    """What a sink is computed from.

    Attributes
    ----------
    sources : int
        A bit for every stored value directly below it.
    loads : int
        How many of them are computed with.
    near : int
        A bit for every group that produces or reads some of them.
    above : int
        A bit for every group that must be done before some of them are there.
    promotable : bool
        Whether an earlier group might store something above them.
    owners : int
        A bit for every group that produces some of them.
    """

    sources: int
    loads: int
    near: int
    above: int
    promotable: bool
    owners: int


class Grouper:
    """Builds the groups of a list of values, in order.

    Attributes
    ----------
    values, outputs : list of Value
    forced : collection of Value
        What has to be stored beside what needs to be.
    alike : collection of Value
        What of it must not be computed in several passes of a kernel, either (`agree.py`).
    may_restart : bool
        Whether grouping may begin anew with more of that.
    stored : set of Value
        Values with memory of their own.
    groups : list of Group
    group_of : dict
        The group that produces a sink.
    """

    def __init__(self, values: list[Value], outputs: list[Value], target: Target,
                 forced: Collection[Value] = (), *, alike: Collection[Value] = (),
                 may_restart: bool = False) -> None:
        self.target = target
        self.may_restart = may_restart
        self.alike = alike
        self.values = reachable(values, outputs)
        self.outputs = outputs
        must = must_be_stored(self.values, outputs).union(forced)
        self._apart = taken_apart(self.values, must, target.limits)
        self.stored = must | sooner_stored(self.values, target.limits, self._apart.shared)
        self.groups: list[Group] = []
        self.group_of: dict[Value, Group] = {}
        self._before: list[int] = []  # for each group, a bit for every group that must be done
        self._after: defaultdict[int, set[int]] = defaultdict(set)
        self._uses = largest_uses(self.values)
        self._homes: defaultdict[Value, dict[int, Group]] = defaultdict(dict)
        self._reads: dict[Value, int] = {}
        self._nearby = Nearby(self.stored, self._reads, self._apart.axes,
                              across=target.limits.across_points > 0)

    def run(self) -> list[Group]:
        """Assign every sink to a group."""
        count_reads(self.values, self.stored, self._reads)
        for value in self.values:
            if isinstance(value.op, Library):
                self._library(value)
            elif self._is_sink(value) and value not in self.group_of:
                self._place(value)
        return self.groups

    def _is_sink(self, value: Value) -> bool:
        if isinstance(value.op, (Reduction, Scan, Update)):
            return True
        return value in self.stored and not isinstance(value.op, (Leaf, Item, Reshape, Library))

    def may_store(self, value: Value) -> bool:
        """Whether a value that has no memory yet could be given some."""
        return value not in self.stored and not isinstance(value.op, (Leaf, Item, Reshape, Library))

    # ---- order ---------------------------------------------------------------------------

    def comes_before(self, one: int, other: int) -> bool:
        """Whether a group must be done before another."""
        return bool(self._before[other] >> one & 1)

    def depend(self, group: Group, number: int) -> None:
        """Have a group wait for another, and so all that wait for it."""
        if number in group.depends:
            return
        group.depends.add(number)
        self._after[number].add(group.number)
        changed = [(group.number, self._before[number] | 1 << number)]
        while changed:
            at, above = changed.pop()
            if above & ~self._before[at]:
                self._before[at] |= above
                changed += [(user, self._before[at]) for user in self._after[at]]

    def _owner(self, value: Value) -> Group | None:
        """The group that produces a stored value, if it is not there from the beginning."""
        value = storage(value)
        return self.group_of.get(value.args[0] if isinstance(value.op, Item) else value)

    def _wait_for(self, group: Group, value: Value) -> None:
        owner = self._owner(value)
        if owner is not None and owner is not group:
            self.depend(group, owner.number)

    # ---- joining -------------------------------------------------------------------------

    def _library(self, value: Value) -> None:
        group = self._new_group(())
        group.library = value
        for arg in value_args(value):
            self._wait_for(group, library_operand(arg))
        self.group_of[value] = group

    def _place(self, value: Value) -> None:
        """Find a group for a sink, or make one; what is too much for any is cut first.

        Raises
        ------
        MustStore
            If it should have been cut before other kernels were made: they could have stored
            pieces of it.
        """
        while not self._join(value):
            sources = bits_of(self._needs(value).sources)
            if self.may_restart and any(self._owner(self._nearby.sources[k]) for k in sources):
                raise MustStore(pieces_of(
                    value, self.stored, self.target.limits, computed_beside=True))
            for piece in pieces_of(value, self.stored, self.target.limits):
                self._now_stored(piece)
                home = self._holder(piece)
                if home is not None:
                    self._store_in(piece, home)
                else:
                    self._place(piece)
            count_reads(cone(value, self.stored), self.stored, self._reads)

    def _join(self, value: Value) -> bool:
        refusals: list[str] = []
        needs = self._needs(value)
        tried = needs.near & self._nearby.fitting(value) & ~needs.above
        for number in islice(bits_of(needs.near & ~tried), TOLD):  # certain to refuse: to tell why
            tried |= 1 << number
        for number in bits_of(tried):
            group = self.groups[number]
            reason = LATE if self._is_late(value, number, needs) else (
                self._try(value, group, needs))
            if reason is None:
                return True
            if len(refusals) < TOLD:
                refusals.append(f"{value} not in kernel {number}: {reason}")
        shape = value.attrs[2] if isinstance(value.op, Update) else value.shape
        if isinstance(value.op, Reduction):
            shape = without(value.args[0].shape, self._apart.axes.get(value, ()))
        group = self._new_group(shape)
        if self._try(value, group, needs) is None:
            group.refusals = refusals
            return True
        self.groups.pop()
        self._before.pop()
        return False

    def _is_late(self, value: Value, number: int, needs: Needs) -> bool:
        """Whether a group waits for others, and large values would then have to, too."""
        largest = self._uses[value]
        return largest >= LARGE and largest >= SPREAD * value.size and (
            not needs.owners >> number & 1
            and bool(self._before[number] & ~(needs.above | needs.owners)))

    def _new_group(self, shape: tuple[int, ...]) -> Group:
        group = Group(len(self.groups), shape)
        self.groups.append(group)
        self._before.append(0)
        return group

    def _needs(self, value: Value) -> Needs:
        """What a sink reads, and the groups that hold some of it or read it too."""
        below = self._nearby.below(value)
        near = above = owners = 0
        for number in bits_of(below.sources):
            source = self._nearby.sources[number]
            near |= self._nearby.near(source)
            group = self._owner(source)
            if group is not None:
                above |= self._before[group.number]
                owners |= 1 << group.number
        if not below.sources:
            near = self._computing(value)
        # The old value of an update is not computed with.
        loads = below.sources.bit_count() - isinstance(value.op, Update)
        return Needs(below.sources, loads, near, above, self._nearby.could_be_read_back(below),
                     owners)

    def _computing(self, value: Value) -> int:
        """A bit for every group that computes what a sink is made of, which reads no memory."""
        found = 0
        seen: set[Value] = set()
        open_ = [*value_args(value)]
        while open_:
            part = open_.pop()
            if part in seen or isinstance(part.op, Source):
                continue
            seen.add(part)
            if self._homes[part]:
                found |= sum(1 << number for number in self._homes[part])
            else:
                open_ += value_args(part)
        return found

    def _refuse_early(self, group: Group, needs: Needs) -> None:
        """Refuse what is certain to be refused once it is lowered.

        Raises
        ------
        Refusal
            If what the sink needs comes after the group, or is too much to read.
        """
        if needs.above >> group.number & 1:
            sources = (self._nearby.sources[number] for number in bits_of(needs.sources))
            later = next(owner.number for source in sources
                         if (owner := self._owner(source)) is not None
                         and self.comes_before(group.number, owner.number))
            raise Refusal(f"kernel {later}, which it needs, needs this kernel")
        if not needs.promotable:
            held = self._nearby.held(group, needs.sources)
            refuse_loads(len(group.loads) + needs.loads - held, self.target.limits.loads)

    def _try(self, value: Value, group: Group, needs: Needs) -> str | None:
        """Add the sink to the group; return the reason if that cannot be done."""
        reason = self._lower(value, group, needs, turned=False)
        if reason is not None and may_turn(value, group) and (
                self._lower(value, group, needs, turned=True) is None):
            return None
        return reason

    def _lower(self, value: Value, group: Group, needs: Needs, *, turned: bool) -> str | None:
        lowering = Lowering(
            group, self.stored, self._home, self.target.limits, self._apart.axes)
        try:
            level, indices = lowering.frame(value, turned)
            self._refuse_early(group, needs)
            sinks = [lowering.sink(value, level, index) for index in indices]
            lowering.refuse_wide_rows()
            phases = self._passes(sinks, lowering)
        except Refusal as refusal:
            return str(refusal)
        for promoted, home in lowering.promoted.items():
            self._now_stored(promoted)
            self._store_in(promoted, home)
        lowering.apply(sinks)
        group.phases = phases
        self._nearby.shaped(group)
        self._produces(group, value)
        for read in lowering.reads:
            self._wait_for(group, read)
        for cell in lowering.cells:
            if cell.access is not None:
                self._nearby.touched(storage(cell.access.value), group)
            elif cell.kind == "apply":
                self._homes[cell.value][group.number] = group
                self._nearby.computed(cell.value)
        return None

    def _passes(self, added: list[Sink], lowering: Lowering) -> int:
        """Passes over the reduced axes with more sinks; refused if they cost more than they save.

        Raises
        ------
        Refusal
            If another kernel had better make them.
        """
        group, reduced = lowering.group, lowering.reduced
        sinks = added if reduced == group.reduced else [*group.sinks, *added]
        passes = max([group.phases, *(_last_phase(s, reduced) for s in sinks)])
        if passes > 1 and group.sinks:
            reason = self.target.refuse_passes(
                group.shape, reduced, [*group.loads, *lowering.loads])
            if reason:
                raise Refusal(reason)
            again = next((cell.value for cell in (*group.cells, *lowering.cells)
                          if cell.kind == "apply" and cell.value in self.alike), None)
            if again is not None:
                raise Refusal(f"{again}, computed anew in each pass, must be the same in all")
        return passes

    # ---- storing what an earlier group has in hand -----------------------------------------

    def _home(self, value: Value, group: Group) -> Group | None:
        """An earlier kernel that has the value in hand, where reading it back is less work."""
        if self._reads[value] < 2 * value.size or not value.shape:
            return None
        for home in self._homes[value].values():
            if (home is not group and place_in(value, home) is not None
                    and not self.comes_before(group.number, home.number)
                    and value.size <= 2 * home.largest):
                return home
        return None

    def _holder(self, value: Value) -> Group | None:
        """A kernel that computes the value where it could be stored from."""
        return next((home for home in self._homes[value].values()
                     if place_in(value, home) is not None), None)

    def _store_in(self, value: Value, home: Group) -> None:
        """Have a kernel write a value that it computes on its way."""
        sink = place_in(value, home)
        assert sink is not None
        home.add(sink)
        self._produces(home, value)

    def _now_stored(self, value: Value) -> None:
        """Have a value stored that has been virtual."""
        self.stored.add(value)
        self._nearby.forget()

    def _produces(self, group: Group, value: Value) -> None:
        self.group_of[value] = group
        self._nearby.touched(value, group)


def _last_phase(sink: Sink, reduced: frozenset[int]) -> int:
    """Passes over the reduced axes that must start before the sink is known."""
    if sink.level == "full" and reduced:
        return sink.cell.phase + 1
    return sink.cell.phase
