"""The pool of host memory that arrays come from.

Fresh pages cost as much as the copy that fills them, so memory of dead arrays is kept for the next
ones.  A block goes back to the pool when nothing refers to it any more, NumPy views that the user
still holds included: the block is the ``base`` of the arrays that lie in it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.errors import OutOfMemory, suppress_own
from tiledarray.fork import hold_at_fork

ALIGNMENT = 64
STEPS_PER_OCTAVE = 8  # block sizes between a power of two and the next: 12.5 % is wasted at most
SHELVES_REMEMBERED = 4096

_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Bytes of a pool: in blocks that arrays use, in blocks kept for reuse, and the most used."""

    in_use: int
    cached: int
    peak: int


class _Shelf:
    """The free blocks of one size, and the type that lends them out."""

    __slots__ = ("size", "free", "lend")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[tuple[Any, int]] = []
        self.lend: Any = _block_type(size).from_address


class _Lent(weakref.ref[Any]):
    """A block that is lent out: its memory and its shelf.

    The block holds it; when the block dies, C alone puts it among those to be taken back.  A
    finaliser in Python would swallow what a signal handler raises in it.
    """

    __slots__ = ("store", "shelf")

    store: tuple[Any, int]
    shelf: _Shelf


def _block_type(size: int) -> type[Any]:
    """Make the type of a lent block: it exports its memory.

    Not an array: NumPy lets a view skip such a base only if that base is an array of its own type.
    """
    names = {"_type_": ctypes.c_char, "_length_": size, "__slots__": ("lent", "__weakref__")}
    return type("Block", (ctypes.Array,), names)


class HostPool:
    """Memory for host buffers, in 64-byte aligned blocks of a few sizes.

    At most ``config.pool_bytes`` are kept for reuse.  Threads may share a pool; the byte counts
    are exact where one thread at a time uses it.
    """

    def __init__(self) -> None:
        self.in_use = 0
        self.cached = 0
        self.peak = 0
        self._returned: list[_Lent] = []  # by blocks that died, since `take_back` looked
        self._shelf_of: dict[int, _Shelf] = {}
        self._shelves: dict[int, _Shelf] = {}
        self.lock = threading.RLock()

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[np.ndarray, int]:
        """Return an array of any old content, and its address.

        Raises
        ------
        OutOfMemory
            The system has no such amount, even after the pool gave back what it kept.
        """
        if self._returned:
            self.take_back()
        nbytes = math.prod(shape) * dtype.itemsize
        shelf = self._shelf_of.get(nbytes) or self._find_shelf(nbytes)
        size = shelf.size
        try:
            store = shelf.free.pop()
            self.cached -= size
        except IndexError:
            store = self._fresh(size, nbytes)
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        block = shelf.lend(store[1])
        lent = block.lent = _Lent(block, self._returned.append)
        lent.store, lent.shelf = store, shelf
        return np.ndarray(shape, dtype, block), store[1]

    def take_back(self) -> None:
        """Put the memory of arrays that died on the shelves, as much as is to be kept."""
        while self._returned:
            try:
                lent = self._returned.pop()
            except IndexError:
                break  # another thread took the last one
            size = lent.shelf.size
            self.in_use -= size
            if self.cached + size <= config.pool_bytes or self._makes_room(size):
                self.cached += size
                lent.shelf.free.append(lent.store)

    def _makes_room(self, size: int) -> bool:
        """Give back kept blocks of other sizes, and say whether one of ``size`` fits now."""
        limit = config.pool_bytes
        if size <= limit:
            self._drop(but=size)
        return self.cached + size <= limit

    def clear(self) -> None:
        """Give the free blocks back to the system."""
        self.take_back()
        self._drop()

    def _drop(self, but: int | None = None) -> None:
        """Give free blocks back to the system; those of ``but`` bytes stay."""
        with self.lock:
            for shelf in [shelf for shelf in self._shelves.values() if shelf.size != but]:
                while shelf.free:
                    try:
                        shelf.free.pop()
                    except IndexError:
                        break  # another thread took the last one
                    self.cached -= shelf.size

    def statistics(self) -> PoolStatistics:
        """Return the bytes in use and kept now, and the most in use since `reset_peak`."""
        self.take_back()
        return PoolStatistics(self.in_use, self.cached, self.peak)

    def reset_peak(self) -> None:
        """Measure the peak from now on."""
        self.take_back()
        self.peak = self.in_use

    def _find_shelf(self, nbytes: int) -> _Shelf:
        size = _rounded(nbytes)
        with self.lock:
            shelf = self._shelves.get(size)
            if shelf is None:
                if size > sys.maxsize // 2:
                    raise _out_of_memory(nbytes)
                shelf = self._shelves[size] = _Shelf(size)
            if len(self._shelf_of) >= SHELVES_REMEMBERED:
                self._shelf_of.clear()
            self._shelf_of[nbytes] = shelf
        return shelf

    def _fresh(self, size: int, nbytes: int) -> tuple[Any, int]:
        """Get a block from the system: the memory, and the aligned address in it."""
        memory = _asked(size + ALIGNMENT)
        if memory is None:
            self.clear()
            memory = _asked(size + ALIGNMENT)
        if memory is None:
            raise _out_of_memory(nbytes)
        address = int(memory.__array_interface__["data"][0])  # `ctypes` would import something
        return memory, address + -address % ALIGNMENT


def _asked(nbytes: int) -> np.ndarray | None:
    """Ask the system for memory; ``None`` if it has none."""
    with suppress_own(MemoryError):
        return np.empty(nbytes, _BYTE)
    return None


def _rounded(nbytes: int) -> int:
    """Size of the block that serves ``nbytes``."""
    step = max(ALIGNMENT, 1 << max(0, nbytes.bit_length() - STEPS_PER_OCTAVE.bit_length()))
    return max(ALIGNMENT, -(-nbytes // step) * step)


def _out_of_memory(nbytes: int) -> OutOfMemory:
    return OutOfMemory(
        f"no host memory for an array of {nbytes:,} bytes",
        nbytes=nbytes,
        remedy="delete arrays that are no longer needed, use a smaller dtype, or work in parts",
    )


host_pool = HostPool()
hold_at_fork(host_pool.lock)
