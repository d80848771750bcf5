"""Plans as the core runs them, without Python (`core/run.c`): instructions, each a few numbers."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Collection, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from tiledarray.core import Program, start_on_device
from tiledarray.devices.device import Device
from tiledarray.errors import NOT_COMPILED, of_a_handler
from tiledarray.execution.arguments import SLOT_BYTES, WRITERS, Writer
from tiledarray.execution.background import Trouble
from tiledarray.execution.launches import HostLaunch, Launch
from tiledarray.execution.library_calls import (
    SILENCE,
    is_shared,
    overwritten,
    stored,
    strides_of,
)
from tiledarray.execution.replay import own_memory
from tiledarray.fusion.ir import ONE, Param, Terms, Value
from tiledarray.fusion.plan import Call, Copy, Kernel
from tiledarray.fusion.regions import Assumption
from tiledarray.kernels.compile import host
from tiledarray.ops.op import Leaf, Library

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable, Place

_TAKE, _ADDRESS, _SUM, _PHASE, _PARAMETER, _LAUNCH, _DROP, _COPY, _SHARE, _CALL, _MAKE = range(11)
_WHOLE, _VIEW, _SCALAR, _OBJECT = range(4)  # operands of library calls
_MOST_OPERANDS = 8
_NUMBERS: dict[Writer, int] = {
    WRITERS[name]: k for k, name in enumerate(("f64", "f32", "i32", "i64", "c128"))}
_BYTE, _NOTES = np.dtype(np.uint8), np.dtype(np.int64)


SMALL_BYTES = 1 << 14  # of arrays for which NumPy finds memory sooner than the pool
KEPT_BYTES = 1 << 20  # of temporary memory that stays a program's between its runs
DROPPED_LATER = 1 << 20  # bytes that are kept a while longer where a program overwrites leaves
DROPPED_LATER_THERE = 1 << 28  # the same on a GPU
STARTED_SINGLY = 8  # launches of a recording on a GPU; under `jit` a graph is quicker for two


class _Kept(NamedTuple):
    """What the core asks of a buffer, for a value in a program's own memory."""

    array: Any  # of NumPy's, for library calls; else what holds the memory
    pointer: int


class _Unsuited(Exception):
    """A plan that Python has to run."""


def program_of(
    executable: Executable, updates: Sequence[int] = (), given: Collection[int] = frozenset(),
    *, keeps: bool = False, gpu: Device | None = None,
) -> Any:
    """Return the program of a plan that is ready; ``None`` if Python has to run it.

    Parameters
    ----------
    executable : Executable
    updates : sequence of int
        Numbers of the leaves that updates write to.
    given : set of int
        Those of them in whose memory the plan may write.
    keeps : bool
        Whether temporary memory stays the program's between its runs.
    gpu : Device, optional
        What is beside the host, of arrays that nobody put anywhere.
    """
    if Program is None:
        return None
    try:
        return _Maker(executable, keeps).program(updates, given, gpu)
    except _Unsuited:
        return None


class Lone(NamedTuple):
    """A launch that is all of a plan.

    Attributes
    ----------
    launch : Launch
    scalars : tuple of scalar
    places : list of (int, int, int)
        For each address the slot, the number of its buffer (first the leaves are counted, then
        what is noted in, then the results), and how many bytes from its beginning.
    results : list of (tuple of int, numpy.dtype)
        What the launch computes.
    produced : dict
        Which of the results the plan's values are.
    notes : bool
        Whether it notes what fails, in a buffer that comes behind the plan's leaves.
    """

    launch: Launch
    scalars: tuple[Any, ...]
    places: list[tuple[int, int, int]]
    results: list[tuple[tuple[int, ...], np.dtype[Any]]]
    produced: dict[Value, int]
    notes: bool

    def arguments(self) -> Any:
        """Return arguments of the launch in which all but addresses is written."""
        arguments = self.launch.arguments()
        self.launch.binding.fill(arguments.slots, self.scalars, _nothing, _nothing)
        return arguments


def _nothing(size: int) -> int:
    raise AssertionError("the launch has no memory of its own")


def program_of_launch(executable: Executable, lone: Lone) -> Any:
    """Return the program of a plan that is one launch; ``None`` if Python has to run it."""
    if Program is None:
        return None
    try:
        return _Maker(executable, keeps=False).lone(lone)
    except _Unsuited:
        return None


_without_pool = Trouble()


def _start_of_pool() -> int | None:
    """Address of what starts work on the host's threads; calls of libraries run without it, too.

    Raises
    ------
    _Unsuited
        It does not compile.
    """
    if _without_pool.standing() is not None:
        raise _Unsuited
    started = perf_counter()
    try:
        function: Any = host.pool().start
    except NOT_COMPILED as error:
        if of_a_handler(error):
            raise
        _without_pool.note(error, perf_counter() - started)
        raise _Unsuited from None
    return ctypes.cast(function, ctypes.c_void_p).value


class _Maker:
    """Makes one program.

    Attributes
    ----------
    code : list of int
    turn : int
        Where in the code a leaf is overwritten first; -1 where none is.
    shapes : list of (tuple of int, numpy.dtype)
        Of each value: memory that a plan's value lies in, or scratch.
    keep : list
        What the addresses in the code belong to.
    objects : list
        What library calls call, and constants that they are given.
    """

    def __init__(self, executable: Executable, keeps: bool) -> None:
        self.executable = executable
        self.code: list[int] = []
        self.turn = -1
        self.shapes: list[Any] = []
        self.keep: list[Any] = []
        self.objects: list[Any] = []
        self._numbers: dict[Value, int] = {}
        self._there: set[Value] = set()
        self._overwritten: dict[Value, None] = {}
        self._dropped_later = 0
        self._blocks: dict[Value, int] = {}
        self._memory: list[Any] = []  # by block; a number of bytes while it is not there
        self._device = executable.device
        on_gpu = self._device.kind == "cuda"
        if on_gpu and len(executable.launches) > (1 if keeps else STARTED_SINGLY):
            raise _Unsuited
        self._stream: int = self._device.backend.stream() if on_gpu else 0
        blocks, sizes = own_memory(executable.plan) if keeps or on_gpu else ({}, [])
        if keeps or sum(sizes) <= KEPT_BYTES:
            self._blocks, self._memory = blocks, [*sizes]
        self._own: dict[Value, _Kept] = {}
        self._calls = 0

    def program(
        self, updates: Sequence[int], given: Collection[int], gpu: Device | None
    ) -> Any:
        """Return the program; see `program_of`.

        Raises
        ------
        _Unsuited
            There is a step that Python has to run.
        """
        executable = self.executable
        leaves: list[int] = []
        for value, number in executable.leaves:
            leaves += self._number(value), number
            self._there.add(value)
        for step, releases in zip(executable.plan.steps, executable.releases, strict=True):
            if isinstance(step, Kernel):
                self._kernel(step)
            elif isinstance(step, Copy):
                self._copy(step)
            elif isinstance(step, Call):
                self._call(step.value, releases)
            else:
                self._take(executable.plan.memory[step.value])
            for value in releases:
                if value in self._there:
                    self._there.discard(value)
                    if value not in self._own:
                        self._drop(self._number(value))
        outputs = [self._output(place) for place in executable.places]
        overwritten = [number for value in self._overwritten
                       for number in (self._number(value), dict(executable.leaves)[value])]
        # A plan that overwrites nothing, though it might have, is the one for others that may not.
        asks = bool(overwritten) or not set(updates) <= set(given)
        updated = [x for number in dict.fromkeys(updates) for x in (number, int(number in given))]
        return self._made(leaves, outputs, tuple(updated) if asks else (), overwritten, gpu)

    def _made(self, leaves: Sequence[int], outputs: Sequence[int], updated: Sequence[int] = (),
              overwritten: Sequence[int] = (), gpu: Device | None = None) -> Any:
        """Put the program together."""
        ready = None
        start: int | None = start_on_device
        if self._device.kind != "cuda":
            start = _start_of_pool()
        else:
            ready = partial(self._device.backend.is_current, self._stream)
        executable = self.executable
        return Program(
            executable, tuple(self.keep), tuple(self.shapes), start, _words(self.code),
            tuple(leaves), tuple(outputs), len(executable.launches), self._calls, self.turn,
            tuple(updated), tuple(overwritten),
            _words(_conditions(executable.plan.assumed)), tuple(self.objects),
            tuple(self._own.values()), tuple(map(self._number, self._own)),
            self._device.allocate, ready, gpu, not self._device.on_host)

    def lone(self, lone: Lone) -> Any:
        """Return the program of a launch that is all of a plan.

        Raises
        ------
        _Unsuited
            There is no pool of threads.
        """
        launch, arguments = lone.launch, lone.arguments()
        self.keep += arguments, launch
        for value, _ in self.executable.leaves:
            self._there.add(value)
            self._number(value)
        if lone.notes:
            self.shapes.append(((), _NOTES))
        given = len(self.shapes)
        for value, number in lone.produced.items():
            self._there.add(value)
            self._numbers[value] = given + number
        for shape in lone.results:
            self.code += _TAKE, len(self.shapes)
            self.shapes.append(shape)
        for place, number, start in lone.places:
            self._address(_slot_of(launch, arguments, place), number, start, ())
        self.code += _LAUNCH, self._started_by(launch, arguments), int(launch.is_shared)
        self._calls = 1
        outputs = [self._output(place) for place in self.executable.places]
        return self._made([x for k in range(given) for x in (k, k)], outputs)

    def _number(self, value: Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.shapes)
            self.shapes.append((value.shape, value.dtype))
        return number

    def _take(self, base: Value) -> None:
        if base in self._there:
            return
        self._there.add(base)
        if base in self._blocks:
            self._own[base] = self._kept(base)
            self._number(base)  # where it has no elements nothing else may ask for one
        else:
            small = self._device.on_host and base.nbytes <= SMALL_BYTES
            self.code += _MAKE if small else _TAKE, self._number(base)

    def _kept(self, base: Value) -> _Kept:
        """Return memory of the program's own; what is dead by then may have had the same."""
        block = self._blocks[base]
        if isinstance(self._memory[block], int):
            self._memory[block] = self._device.allocate((self._memory[block],), _BYTE)
        memory = self._memory[block]
        if not self._device.on_host:
            return _Kept(memory, memory.pointer)
        return _Kept(np.ndarray(base.shape, base.dtype, memory.array), memory.pointer)

    def _drop(self, number: int) -> None:
        self.code += _DROP, number
        if self.turn >= 0:
            shape, dtype = self.shapes[number]
            self._dropped_later += math.prod(shape) * dtype.itemsize
            if self._dropped_later > (
                    DROPPED_LATER if self._device.on_host else DROPPED_LATER_THERE):
                raise _Unsuited

    def _output(self, place: Place) -> int:
        """Return the number of an output, which has a hold of its own on its memory."""
        base = place.base
        if place.number is not None:
            base = next(x for x in self.executable.parts[base] if x.attrs == place.number)
        if base not in self._there:
            raise _Unsuited
        if place.alone:
            return self._number(base)
        number = len(self.shapes)
        self.shapes.append((place.shape, base.dtype))
        self.code += _SHARE, number, self._number(base)
        return number

    def _copy(self, step: Copy) -> None:
        memory = self.executable.plan.memory
        target, source = memory[step.target], memory[step.source]
        if isinstance(target.op, Leaf) or source not in self._there or not self._device.on_host:
            raise _Unsuited
        self._take(target)
        nbytes = math.prod(target.shape) * target.dtype.itemsize
        self.code += _COPY, self._number(target), self._number(source), nbytes

    # ---- library calls -------------------------------------------------------------------

    def _call(self, value: Value, free: Collection[Value]) -> None:
        """Have a library compute a value; it may fail, so nothing was overwritten before.

        Nobody needs what is in the memory of ``free`` after it.
        """
        if self.turn >= 0 or len(value.args) > _MOST_OPERANDS or SILENCE is None or (
                not self._device.on_host):
            raise _Unsuited
        base = overwritten(value, self.executable.plan.memory, free)
        if base is not None and base not in self._own and not isinstance(base.op, Leaf):
            self._call_in_place(value, base)
            return
        into = _into(value)
        results: list[int] = []
        if into is not None:
            self._take(value)
        elif value in self.executable.parts:
            results = [-1] * cast(Library, value.op).outputs
            for part in self.executable.parts[value]:
                results[part.attrs] = self._number(part)
                self._there.add(part)
        else:
            results = [self._number(value)]
            self._there.add(value)
        operands = [word for arg in value.args for word in self._operand(arg)]
        called = self._object(into or self.executable.computing(value))
        self.code += (
            _CALL, 6 + len(results) + len(operands), called,
            -1 if into is None else self._number(value), len(results), *results,
            len(value.args), *operands)
        self._calls += 1

    def _call_in_place(self, value: Value, base: Value) -> None:
        """Have a library leave a value in memory that the program has taken for an operand."""
        change, attrs = cast(Library, value.op).in_place, value.attrs
        nothing = self.executable.device.wrap(np.empty(0, bool))

        def called(*inputs: Any) -> Any:
            assert change is not None
            change(np, *inputs, attrs=attrs)
            return nothing

        operands = [word for arg in value.args for word in self._operand(arg)]
        unused = len(self.shapes)
        self.shapes.append(((0,), np.dtype(bool)))
        self.code += (_CALL, 7 + len(operands), self._object(called), -1, 1, unused,
                      len(value.args), *operands)
        self._calls += 1
        self._drop(unused)
        self.code += _SHARE, self._number(value), self._number(base)
        self._there.add(value)

    def _operand(self, arg: Any) -> list[int]:
        if isinstance(arg, Param):
            return [_SCALAR, arg.index]
        if not isinstance(arg, Value):
            return [_OBJECT, self._object(arg or 0)]
        found = stored(arg, self.executable.plan.memory)
        if found.base not in self._there:
            raise _Unsuited
        if found.places is None and found.base.shape == found.stored:
            return [_WHOLE, self._number(found.base)]
        strides, start, terms = strides_of(found)
        return [_VIEW, self._number(found.base), len(strides), *found.shape, *strides, start,
                len(terms), *_flat(terms)]

    def _object(self, x: Any) -> int:
        self.objects.append(x)
        return len(self.objects) - 1

    # ---- kernels -------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> None:
        memory, launch = self.executable.plan.memory, self.executable.launches.get(kernel)
        overwrites = False
        for part in kernel.parts:
            for store in part.stores:
                base = memory[store.access.value]
                if isinstance(base.op, Leaf):
                    self._overwritten[base] = None
                    overwrites = True
                self._take(base)
        if not self.executable.programs[kernel].blocks:
            return
        if launch is None:
            raise _Unsuited
        if self.turn >= 0 and launch.program.scratch_bytes and self._device.on_host:
            raise _Unsuited  # it may fail, and then something has been overwritten
        self._launch(launch, overwrites)

    def _launch(self, launch: Launch, overwrites: bool) -> None:
        arguments, binding = launch.arguments(), launch.binding
        self.keep += arguments, launch
        slot = partial(_slot_of, launch, arguments)
        for place, value, fixed, terms in binding.addresses:
            self._address(slot(place), self._number(value), fixed, terms)
        for place, number, terms in binding.sums:
            fixed, rest = _split(terms)
            self.code += _SUM, slot(place), number + fixed, len(rest), *_flat(rest)
        for place, number, terms in binding.phases:
            fixed, rest = _split(terms)
            self.code += _PHASE, slot(place), fixed, len(rest), *_flat(rest), number
        for place, number, write in binding.params:
            self.code += _PARAMETER, slot(place), number, _NUMBERS[write]
        scratch = []
        for place, size in binding.scratch:
            if not self._device.on_host and size <= KEPT_BYTES:  # launches wait for one another
                self.keep.append(self._device.allocate((size,), _BYTE))
                arguments.slots[place] = self.keep[-1].pointer
                continue
            scratch.append(len(self.shapes))
            self.shapes.append(((size,), _BYTE))
            self.code += _TAKE, scratch[-1]
            self._address(slot(place), scratch[-1], 0, ())
        for place, size in binding.counters:
            arguments.slots[place] = self._counters(launch, size)
        if overwrites and self.turn < 0:
            self.turn = len(self.code)
        self.code += _LAUNCH, self._started_by(launch, arguments), int(launch.is_shared)
        for number in scratch:
            self._drop(number)

    def _counters(self, launch: Launch, count: int) -> int:
        """Address of zeroed counters; those of a GPU that all launches use might move."""
        if isinstance(launch, HostLaunch):
            return launch.counters(count)
        self.keep.append(self._device.wrap(np.zeros(count, np.uint32), copy=True))
        return int(self.keep[-1].pointer)

    def _started_by(self, launch: Launch, arguments: Any) -> int:
        """Address of what the launch is started with."""
        if isinstance(launch, HostLaunch):
            return int(arguments.address)
        return int(arguments.start.address(self._stream))

    def _address(self, slot: int, number: int, fixed: int, terms: Terms) -> None:
        more, rest = _split(terms)
        self.code += _ADDRESS, slot, number, fixed + more, len(rest), *_flat(rest)


def _slot_of(launch: Launch, arguments: Any, place: int) -> int:
    """Address of one of the arguments of a launch."""
    return ctypes.addressof(arguments.memory) + SLOT_BYTES * (launch.header_length + place)


def _into(value: Value) -> Any:
    """Return NumPy's function that computes a value into memory; ``None`` if there is none."""
    alike = all(isinstance(arg, Value) and arg.dtype == value.dtype for arg in value.args)
    alone = alike and not value.attrs and not is_shared(value)
    return getattr(value.op, "into", None) if alone else None


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"={len(numbers)}q", *numbers)


def _conditions(assumed: Sequence[Assumption]) -> list[int]:
    """What was assumed, as the core reads it."""
    numbers: list[int] = []
    for assumption in assumed:
        fixed, rest = _split(assumption.terms)
        numbers += (assumption.modulus is not None, assumption.modulus or 0, fixed, len(rest),
                    *_flat(rest))
    return numbers


def _split(terms: Terms) -> tuple[int, list[tuple[int, int]]]:
    """Return what is fixed of a linear form, and the rest."""
    return (sum(coefficient for number, coefficient in terms if number == ONE),
            [(number, coefficient) for number, coefficient in terms if number != ONE])


def _flat(terms: Sequence[tuple[int, int]]) -> list[int]:
    return [number for term in terms for number in term]
