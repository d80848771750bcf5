"""A plan as plain data, and back: what running it needs, without what its kernels compute.

Only numbers, strings, tuples, lists, dtypes and the types of scalars are in it, so it may be read
without running anything.  What comes back runs like the plan that was packed: the same steps on the
same memory.  Who wants to know more of it (`explain`) has it planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from sys import intern
from typing import Any

from tiledarray.fusion.ir import Access, Cell, Group, Param, Sink, Value, storage, value_args
from tiledarray.fusion.order import read_by, touched
from tiledarray.fusion.plan import (
    Allocate,
    Call,
    Copy,
    Kernel,
    Plan,
    Schedule,
    Step,
    Store,
    Strided,
)
from tiledarray.fusion.regions import Assumption
from tiledarray.kernels.text.program import Program, Slot
from tiledarray.ops import op
from tiledarray.ops.names import name_of, op_named
from tiledarray.ops.op import AxisView, Item, Leaf, Library, Reshape

_READ_THROUGH = (Reshape, Item, AxisView, op.Strided, Library)  # running goes on to the operands
_NO_SCHEDULE = Schedule(())
_Number = Callable[[Value], int]


def packed(plan: Plan, programs: dict[Kernel, Program], names: dict[Kernel, str]) -> Any:
    """Return what running a plan needs, and its kernels' programs and names, as plain data.

    Raises
    ------
    LookupError
        One of its ops has no name.
    """
    values = _kept(plan)
    numbers = {value: number for number, value in enumerate(values)}
    number = numbers.__getitem__
    texts: dict[str, int] = {}
    steps = [_packed_step(step, number, programs, names, texts) for step in plan.steps]
    return (
        [_packed_value(value, number) for value in values],
        list(texts),
        steps,
        [number(value) for value in plan.outputs],
        [(number(value), number(base)) for value, base in plan.memory.items() if value in numbers],
        [(number(base), places) for base, places in plan.shared.items()],
        [(number(base), step) for base, step in plan.last_use.items()],
        [(number(value), found) for value, found in plan.entry.items() if value in numbers],
        [(assumption.terms, assumption.modulus) for assumption in plan.assumed],
    )


def unpacked(data: Any) -> tuple[Plan, dict[Kernel, Program], dict[Kernel, str]]:
    """Return a plan that runs as the packed one did, with its kernels' programs and names.

    Raises
    ------
    LookupError
        It names an op that there is not.
    """
    rows, texts, steps, outputs, memory, shared, last_use, entry, assumed = data
    values: list[Value] = []
    for row in rows:
        values.append(_unpacked_value(row, len(values), values))
    programs: dict[Kernel, Program] = {}
    names: dict[Kernel, str] = {}
    plan = Plan(
        steps=[_unpacked_step(step, values, programs, names, texts) for step in steps],
        values=values, outputs=[values[k] for k in outputs],
        memory={values[k]: values[base] for k, base in memory},
        shared={values[k]: places for k, places in shared},
        last_use={values[k]: step for k, step in last_use}, fired={}, origin={},
        entry={values[k]: found for k, found in entry}, refusals=[], updates={},
        assumed=tuple(Assumption(terms, modulus) for terms, modulus in assumed),
    )
    return plan, programs, names


# ---- values ------------------------------------------------------------------------------------


def _kept(plan: Plan) -> list[Value]:
    """The values that running asks for, inputs first."""
    wanted = {*plan.outputs, *plan.last_use, *plan.shared}
    for step in plan.steps:
        wanted.update(touched(step), _written(step))
    wanted.update(value for value in plan.values if isinstance(value.op, (Leaf, Item)))
    for value in reversed(plan.values):
        if value in wanted:
            wanted.update(_looked_through(value))
            wanted.add(plan.memory[storage(value)])
    return [value for value in plan.values if value in wanted]


def _looked_through(value: Value) -> list[Value]:
    """The operands that running goes on to from a value."""
    return value_args(value) if isinstance(value.op, _READ_THROUGH) else []


def _packed_value(value: Value, number: _Number) -> Any:
    if not isinstance(value.op, _READ_THROUGH):
        attrs = value.attrs if isinstance(value.op, Leaf) else None
        return name_of(value.op), attrs, (), value.shape, value.dtype
    args = [(0, number(arg)) if isinstance(arg, Value)
            else (1, arg.index, arg.kind, arg.shift) if isinstance(arg, Param)
            else arg for arg in value.args]
    return name_of(value.op), value.attrs, args, value.shape, value.dtype


def _unpacked_value(row: Any, number: int, values: list[Value]) -> Value:
    name, attrs, args, shape, dtype = row
    return Value(number, op_named(name), attrs, tuple([
        arg if type(arg) is not tuple else Param(*arg[1:]) if arg[0] else values[arg[1]]
        for arg in args]), shape, dtype)


# ---- steps -------------------------------------------------------------------------------------


def _written(step: Step) -> Iterable[Value]:
    """What a step stores, reshaped or not."""
    for part in step.parts if isinstance(step, Kernel) else ():
        yield from (store.access.value for store in part.stores)


def _packed_step(step: Step, number: _Number, programs: dict[Kernel, Program],
                 names: dict[Kernel, str], texts: dict[str, int]) -> Any:
    if isinstance(step, Call):
        return "call", number(step.value)
    if isinstance(step, Allocate):
        return "allocate", number(step.value)
    if isinstance(step, Copy):
        return "copy", number(step.source), number(step.target)
    parts = [([number(value) for value in read_by(part.group)],
              [number(store.access.value) for store in part.stores]) for part in step.parts]
    program = programs[step]
    slots = [_packed_slot(slot, number) for slot in program.slots]
    return (names[step], parts, step.bytes_moved, step.flops,
            texts.setdefault(program.text, len(texts)), slots, program.blocks, program.threads,
            program.scratch_bytes, program.shared_bytes, program.shared_limit, program.at_once)


def _packed_slot(slot: Slot, number: _Number) -> Any:
    place = None if slot.value is None else number(storage(slot.value))
    return (slot.kind, intern(slot.name), intern(slot.ctype), place, slot.number, slot.offset,
            slot.param)


def _unpacked_step(step: Any, values: list[Value], programs: dict[Kernel, Program],
                   names: dict[Kernel, str], texts: list[str]) -> Step:
    kind, *rest = step
    if kind == "call":
        value = values[rest[0]]
        return Call(Group(-1, value.shape, library=value), value)
    if kind == "allocate":
        return Allocate(values[rest[0]])
    if kind == "copy":
        return Copy(values[rest[0]], values[rest[1]])
    parts, bytes_moved, flops, text, slots, *sizes = rest
    kernel, *beside = [_unpacked_part(reads, stores, values)
                       for reads, stores in parts]
    kernel.beside, kernel.bytes_moved, kernel.flops = beside, bytes_moved, flops
    programs[kernel] = Program(texts[text], _Slots(slots, values), *sizes)
    names[kernel] = kind
    return kernel


def _unpacked_part(reads: list[int], stores: list[int], values: list[Value]) -> Kernel:
    cells = [Cell(-1, "load", values[k], values[k].dtype, access=Access(values[k], ()))
             for k in reads]
    written = [values[k] for k in stores]
    nothing = Cell(-1, "param", 0, None)  # type: ignore[arg-type]
    return Kernel(Group(-1, (), cells=cells), _NO_SCHEDULE, {}, [
        Store(Sink(value, nothing, "full", ()), Strided(value, (), ())) for value in written])


class _Slots:
    """Slots of a program, made when its kernel is to be launched."""

    __slots__ = ("_rows", "_values")

    def __init__(self, rows: list[Any], values: list[Value]) -> None:
        self._rows = rows
        self._values = values

    def __iter__(self) -> Iterator[Slot]:
        for kind, name, ctype, place, number, offset, param in self._rows:
            value = None if place is None else self._values[place]
            yield Slot(kind, name, ctype, value, number, offset, param)
