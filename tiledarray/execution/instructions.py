"""Plans as the core runs them, without Python (`core/run.c`): instructions, each a few numbers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray import core
from tiledarray.execution.arguments import SLOT_BYTES, WRITERS, Writer
from tiledarray.execution.executable import Executable
from tiledarray.execution.launches import HostLaunch
from tiledarray.fusion.ir import ONE, Terms, Value
from tiledarray.fusion.plan import Call, Copy, Kernel
from tiledarray.kernels.compile import host
from tiledarray.ops.op import Leaf

_TAKE, _ADDRESS, _SUM, _PHASE, _PARAMETER, _LAUNCH, _DROP = range(7)
_NUMBERS: dict[Writer, int] = {
    WRITERS[name]: k for k, name in enumerate(("f64", "f32", "i32", "i64", "c128"))}
_BYTE = np.dtype(np.uint8)


class _Unsuited(Exception):
    """A plan that Python has to run."""


def program_of(executable: Executable) -> Any:
    """Return the program of a plan that is ready; ``None`` if Python has to run it."""
    if core.Program is None or executable.device.kind != "cpu" or executable.plan.assumed:
        return None
    try:
        return _Maker(executable).program()
    except _Unsuited:
        return None


class _Maker:
    """Makes one program.

    Attributes
    ----------
    code : list of int
    shapes : list of (tuple of int, numpy.dtype)
        Of each value: memory that a plan's value lies in, or scratch.
    keep : list
        What the addresses in the code belong to.
    """

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.code: list[int] = []
        self.shapes: list[Any] = []
        self.keep: list[Any] = []
        self._numbers: dict[Value, int] = {}
        self._there: set[Value] = set()

    def program(self) -> Any:
        """Return the program.

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
            elif isinstance(step, (Call, Copy)):
                raise _Unsuited
            else:
                self._take(executable.plan.memory[step.value])
            for value in releases:
                if value in self._there:
                    self._there.discard(value)
                    self.code += _DROP, self._number(value)
        outputs = []
        for place in executable.places:
            if not place.alone or place.number is not None or place.base not in self._there:
                raise _Unsuited
            outputs.append(self._number(place.base))
        function: Any = host.pool().start
        start = ctypes.cast(function, ctypes.c_void_p).value
        return core.Program(
            executable, tuple(self.keep), tuple(self.shapes), start,
            struct.pack(f"={len(self.code)}q", *self.code), tuple(leaves), tuple(outputs),
            len(executable.launches))

    def _number(self, value: Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.shapes)
            self.shapes.append((value.shape, value.dtype))
        return number

    def _take(self, base: Value) -> None:
        if base not in self._there:
            self._there.add(base)
            self.code += _TAKE, self._number(base)

    def _kernel(self, kernel: Kernel) -> None:
        memory, launch = self.executable.plan.memory, self.executable.launches.get(kernel)
        for part in kernel.parts:
            for store in part.stores:
                if isinstance(memory[store.access.value].op, Leaf):
                    raise _Unsuited
                self._take(memory[store.access.value])
        if not self.executable.programs[kernel].blocks:
            return
        if not isinstance(launch, HostLaunch):
            raise _Unsuited
        self._launch(launch)

    def _launch(self, launch: HostLaunch) -> None:
        arguments, binding = launch.arguments(), launch.binding
        self.keep += arguments, launch
        first = ctypes.addressof(arguments.memory) + SLOT_BYTES * launch.header_length

        def slot(place: int) -> int:
            return first + SLOT_BYTES * place

        for place, value, fixed, terms in binding.addresses:
            self._address(slot(place), self._number(value), fixed, terms)
        for place, number, terms in binding.sums:
            fixed, rest = _split(terms)
            self.code += _SUM, slot(place), number + fixed, len(rest), *_flat(rest)
        for place, number, terms in binding.phases:
            if any(number == ONE for number, _ in terms):
                raise _Unsuited
            self.code += _PHASE, slot(place), number, len(terms), *_flat(terms)
        for place, number, write in binding.params:
            self.code += _PARAMETER, slot(place), number, _NUMBERS[write]
        scratch = []
        for place, size in binding.scratch:
            scratch.append(len(self.shapes))
            self.shapes.append(((size,), _BYTE))
            self.code += _TAKE, scratch[-1]
            self._address(slot(place), scratch[-1], 0, ())
        for place, size in binding.counters:
            arguments.slots[place] = launch.counters(size)
        self.code += _LAUNCH, arguments.address, int(launch.is_shared)
        for number in scratch:
            self.code += _DROP, number

    def _address(self, slot: int, number: int, fixed: int, terms: Terms) -> None:
        more, rest = _split(terms)
        self.code += _ADDRESS, slot, number, fixed + more, len(rest), *_flat(rest)


def _split(terms: Terms) -> tuple[int, list[tuple[int, int]]]:
    """Return what is fixed of a linear form, and the rest."""
    return (sum(coefficient for number, coefficient in terms if number == ONE),
            [(number, coefficient) for number, coefficient in terms if number != ONE])


def _flat(terms: Sequence[tuple[int, int]]) -> list[int]:
    return [number for term in terms for number in term]
