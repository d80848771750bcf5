"""A kernel's ``Args`` in memory: what is written once, and what every launch writes anew."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.fusion.ir import ONE, Terms, Value, evaluated_terms
from tiledarray.kernels.text.program import Slot

SLOT_BYTES = 8
ALIGNMENT = 256  # of what lies side by side in scratch memory
LARGEST_SINGLE = float(np.finfo(np.float32).max)
_BYTE = np.dtype(np.uint8)

Writer = Callable[[Any, int, Any], None]  # memory, offset in bytes, scalar
_SINGLE, _COMPLEX = Struct("=f4x"), Struct("=dd")
_INT32, _UINT64 = Struct("=i4x"), Struct("=Q")


def _write_single(memory: Any, offset: int, scalar: Any) -> None:
    if not -LARGEST_SINGLE <= scalar <= LARGEST_SINGLE:
        with np.errstate(over="ignore"):  # computing warns of nothing
            scalar = float(np.float32(scalar))  # an infinity, or it is rounded to the largest
    _SINGLE.pack_into(memory, offset, scalar)


def _write_complex(memory: Any, offset: int, scalar: Any) -> None:
    _COMPLEX.pack_into(memory, offset, scalar.real, scalar.imag)


WRITERS: dict[str, Writer] = {
    "f32": _write_single,
    "f64": Struct("=d").pack_into,
    "i32": lambda memory, offset, scalar: _INT32.pack_into(memory, offset, int(scalar)),
    "i64": lambda memory, offset, scalar: _UINT64.pack_into(
        memory, offset, int(scalar) & (1 << 64) - 1),
    "c128": _write_complex,
}


class Arguments:
    """Memory of an ``Args``, and of the ``header`` before it.

    Attributes
    ----------
    memory : ctypes array
    slots : memoryview of int64
        The fields of ``Args``.
    address : int
        Of the memory, header included.
    """

    __slots__ = ("memory", "slots", "address")

    def __init__(self, header: Sequence[int], fields: Sequence[int]) -> None:
        self.memory = (ctypes.c_int64 * max(1, len(header) + len(fields)))(*header, *fields)
        self.slots = memoryview(self.memory).cast("B").cast("q")[len(header) :]
        self.address = ctypes.addressof(self.memory)

    def packed(self) -> bytes:
        """Return a copy of the memory."""
        return bytes(self.memory)


@dataclass(eq=False, slots=True)
class Binding:
    """What the slots of a kernel's ``Args`` hold; each part names its slot's place first.

    Attributes
    ----------
    fields : list of int
        Every slot, with the lengths that never change.
    addresses : list
        A value whose memory is meant, bytes from its start, and terms to add.
    sums, phases : list
        A number, and terms to add to it or to be taken modulo it.
    params : list
        A parameter's number, and what writes it.
    scratch, counters : list
        How many bytes or zeroed counters.
    """

    fields: list[int] = field(default_factory=list)
    addresses: list[tuple[int, Value, int, Terms]] = field(default_factory=list)
    sums: list[tuple[int, int, Terms]] = field(default_factory=list)
    phases: list[tuple[int, int, Terms]] = field(default_factory=list)
    params: list[tuple[int, int, Writer]] = field(default_factory=list)
    scratch: list[tuple[int, int]] = field(default_factory=list)
    counters: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, slots: Iterable[Slot], memory: dict[Value, Value]) -> Binding:
        """Work out the binding of a program's slots; ``memory`` says where each value lies."""
        binding = cls()
        for slot in slots:
            binding._add(slot, len(binding.fields), memory)
        return binding

    def _add(self, slot: Slot, place: int, memory: dict[Value, Value]) -> None:
        self.fields.append(slot.number if slot.kind == "size" else 0)
        if slot.kind == "pointer":
            assert slot.value is not None
            width = slot.value.dtype.itemsize
            fixed = sum(c for number, c in slot.offset if number == ONE) * width
            terms = tuple((n, c * width) for n, c in slot.offset if n != ONE)
            self.addresses.append((place, memory[slot.value], fixed, terms))
        elif slot.kind == "size":
            if slot.offset:
                self.sums.append((place, slot.number, slot.offset))
        elif slot.kind == "phase":
            self.phases.append((place, slot.number, slot.offset))
        elif slot.kind == "param":
            self.params.append((place, slot.number, WRITERS[slot.ctype]))
            if slot.ctype == "c128":
                self.fields.append(0)
        elif slot.kind == "scratch":
            self.scratch.append((place, slot.number))
        else:
            self.counters.append((place, slot.number))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that `dealt_from` shares out."""
        return sum(-(-size // ALIGNMENT) * ALIGNMENT for _, size in self.scratch)

    def locate(self, slots: memoryview, buffers: dict[Value, Buffer],
               params: Sequence[Any]) -> None:
        """Write the addresses of these buffers."""
        for place, value, fixed, terms in self.addresses:
            address = buffers[value].pointer + fixed
            for number, coefficient in terms:
                address += coefficient * params[number]
            slots[place] = address

    def fill(self, slots: memoryview, params: Sequence[Any],
             workspace: Callable[[int], int], zeroed: Callable[[int], int]) -> None:
        """Write everything else that is not the same at every launch."""
        for place, number, terms in self.sums:
            slots[place] = number + evaluated_terms(terms, params)
        for place, number, terms in self.phases:
            slots[place] = evaluated_terms(terms, params) % number
        for place, number, write in self.params:
            write(slots, SLOT_BYTES * place, params[number])
        for place, size in self.scratch:
            slots[place] = workspace(size)
        for place, size in self.counters:
            slots[place] = zeroed(size)


def dealt_from(start: int) -> Callable[[int], int]:
    """Return what deals out memory from an address on, to one launch: the next may begin there."""
    at = start

    def take(size: int) -> int:
        nonlocal at
        place = at
        at += -(-size // ALIGNMENT) * ALIGNMENT
        return place

    return take


class Workspace:
    """Memory for the scratch of one launch; it is kept as long as this object."""

    __slots__ = ("device", "_keep")

    def __init__(self, device: Device) -> None:
        self.device = device
        self._keep: list[Buffer] = []

    def __call__(self, size: int) -> int:
        """Take so many bytes; return their address."""
        self._keep.append(self.device.allocate((size,), _BYTE))
        return self._keep[-1].pointer
