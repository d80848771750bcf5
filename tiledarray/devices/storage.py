"""Who owns memory.

A `Buffer` is one value's hold on memory.  Where a second value holds the same memory, or someone
outside the library does, a `Storage` stands between them and counts: *owners* are the values whose
memory it is, *leases* what was handed out (NumPy and CuPy arrays, DLPack capsules).  Memory may be
written in place while it has one owner and no lease, which `Buffer.alone` tells; nothing else
decides it.  A value acquires its hold by `Buffer.another` and releases it when it dies.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

import numpy as np

# By buffers that are being given a storage: the first one that some thread has made for each.  No
# lock, for what runs in the middle of anything (signal handlers, finalisers) comes here too.
_made: dict[Buffer, Storage] = {}


class Storage:
    """What holds a piece of memory: made when a second holder, or an outsider, comes.

    Attributes
    ----------
    owners : int
        Values whose memory it is.
    leases : int
        Arrays handed out that still live; one that is never given back counts for ever.
    """

    __slots__ = ("_owners", "_leases", "_for_ever")

    def __init__(self) -> None:
        # Sets of references that drop themselves.  That is done by C alone, in one step: whichever
        # thread does it, and whatever signal handlers raise meanwhile.
        self._owners: set[weakref.ref[Any]] = set()
        self._leases: set[weakref.ref[Any]] = set()
        self._for_ever = 0

    @property
    def owners(self) -> int:
        """Number of values whose memory it is."""
        return len(self._owners)

    @property
    def leases(self) -> int:
        """Number of arrays handed out that still live."""
        return len(self._leases) + self._for_ever

    def acquire(self, holder: Any) -> None:
        """Count an owner until it dies."""
        self._owners.add(weakref.ref(holder, self._owners.discard))

    def lease(self, holder: Any) -> None:
        """Count a lease until it dies."""
        self._leases.add(weakref.ref(holder, self._leases.discard))

    def lease_for_ever(self) -> None:
        """Count a lease that does not end."""
        self._for_ever += 1


class Buffer:
    """One value's hold on dense, row-major memory on one device.

    Attributes
    ----------
    array : numpy.ndarray or cupy.ndarray
        C-contiguous, of the value's shape and dtype.
    pointer : int
        Address of the first element.
    device : Device
    storage : Storage
        Made when it is first asked for; until then nobody else was ever given the memory.
    plan : object or None
        How the value was computed.
    elsewhere : Buffer or None
        The same value on the other side (the host's or a GPU's), as long as nobody writes here.
    looks : int
        How often a small part of it was read by way of the GPU that it lies on.
    """

    __slots__ = (
        "array", "pointer", "device", "_storage", "plan", "elsewhere", "looks", "__weakref__",
    )

    def __init__(self, array: Any, pointer: int, device: Any) -> None:
        self.array = array
        self.pointer = pointer
        self.device = device
        self._storage: Storage | None = None
        self.plan: Any = None
        self.elsewhere: Buffer | None = None
        self.looks = 0
        if _watched is not None:
            _watched[id(self)] = self

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return int(self.array.nbytes)

    @property
    def storage(self) -> Storage:
        """What counts the holders of the memory."""
        if self._storage is None:
            storage = Storage()
            storage.acquire(self)
            try:
                first = _made.setdefault(self, storage)
                if self._storage is None:  # else others have been here, and are gone
                    self._storage = first
            finally:
                _made.pop(self, None)
        assert self._storage is not None
        return self._storage

    def another(self, shape: tuple[int, ...] | None = None) -> Buffer:
        """Return a hold of one more value on the memory, of another shape if one is given."""
        other = self._again(shape)
        self.storage.acquire(other)
        other._storage = self.storage
        other.plan = self.plan
        if shape is None:
            other.elsewhere = self.elsewhere
        return other

    def _again(self, shape: tuple[int, ...] | None) -> Buffer:
        array = self.array if shape is None else self.array.reshape(shape)
        return Buffer(array, self.pointer, self.device)

    def on(self, device: Any) -> Buffer:
        """Return the value on one side, to be read: this buffer, or a copy that it remembers."""
        if self.is_on(device):
            return self
        found = self.elsewhere
        if found is None or not found.is_on(device):
            if device.on_host:
                found = device.wrap(self.device.to_host(self), copy=False, given=True)
            else:
                found = device.wrap(self.array, copy=True)
            if self._storage is None or not self._storage.leases:  # else others may write here
                self.elsewhere = found
        return found

    def parted(self, device: Any) -> Buffer:
        """Return the value on one side, to be written: who writes has asked whether it is alone.

        Of the two sides this one is kept, and the other forgotten.
        """
        found = self.on(device)
        self.elsewhere = None
        if found is not self and not found.alone():
            found = device.wrap(found.array, copy=True)
        return found

    def is_on(self, device: Any) -> bool:
        """Whether the memory is on that device; the host is one place, by either name."""
        return self.device is device or (self.device.on_host and device.on_host)

    def alone(self) -> bool:
        """Whether nobody else looks at the memory, so that it may be written in place."""
        storage = self._storage
        return storage is None or (storage.owners == 1 and not storage.leases)

    def lend(self) -> Any:
        """Return a view of the array for somebody outside: a lease while that or its views live.

        Where that cannot be seen (CuPy's arrays, objects) the lease never ends.
        """
        array = self.array
        self.elsewhere = None  # others may write here
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            self.lent_for_ever()
            return array.view()
        # NumPy lets views of views refer to the innermost array, but not past other objects.
        lease = _lease_type(array.nbytes).from_address(self.pointer)
        lease.array = array
        self.storage.lease(lease)
        return np.ndarray(array.shape, array.dtype, lease)

    def lent_for_ever(self) -> Buffer:
        """Count a lease that never ends: the memory belongs to somebody else."""
        self.storage.lease_for_ever()
        return self

    def __repr__(self) -> str:
        array = self.array
        return f"<{type(self).__name__} {array.dtype}{list(array.shape)} on {self.device}>"


class Borrowed(Buffer):
    """What stands for an array that is a value's already, for as long as it is read.

    It is no hold, and not watched: an error's traceback may keep it longer than that value.
    """

    __slots__ = ()

    def __init__(self, array: Any, pointer: int, device: Any) -> None:
        self.array = array
        self.pointer = pointer
        self.device = device
        self._storage = None
        self.plan = None
        self.elsewhere = None
        self.looks = 0


class HostValue(Buffer):
    """A buffer on the host of an array that nothing else refers to.

    Most that are made have a few elements and are never handed to a kernel: the address, which
    takes longer to find than all the rest, is looked up where it is asked for.
    """

    __slots__ = ()

    def __init__(self, array: np.ndarray, device: Any) -> None:
        self.array = array
        self.device = device
        self._storage = None
        self.plan = None
        self.elsewhere = None
        self.looks = 0

    @property
    def pointer(self) -> int:  # type: ignore[override]
        """Address of the first element."""
        return address_of(self.array)


@functools.lru_cache(maxsize=256)
def _lease_type(nbytes: int) -> Any:
    """Make the type of an object that exports so many bytes, and keeps what they belong to."""
    names = {"_type_": ctypes.c_char, "_length_": nbytes, "__hash__": object.__hash__}
    return type("Lease", (ctypes.Array,), names)


def memory_of(array: Any) -> int:
    """Identity of the object in whose memory an array of NumPy's or CuPy's, or a scalar, lies."""
    if isinstance(array, np.generic):
        return id(array)
    if not isinstance(array, np.ndarray):
        return id(array.data.mem)  # a view of CuPy's need not name what it is a view of
    base: Any = array.base
    while base is not None:
        array, base = base, getattr(base, "base", None)
    return id(array)


def address_of(array: np.ndarray) -> int:
    """Address of the first element of a host array."""
    return int(array.__array_interface__["data"][0])


# Checking ---------------------------------------------------------------------------------------


class MemoryShared(AssertionError):
    """Two values that may be written lie in the same memory."""


_watched: weakref.WeakValueDictionary[int, Buffer] | None = None
watching = False


def watch(wanted: bool) -> None:
    """Begin or end to keep track of the buffers that live, for `check`."""
    global _watched, watching
    if wanted is not watching:
        _watched, watching = weakref.WeakValueDictionary() if wanted else None, wanted


def check() -> None:
    """Raise `MemoryShared` if live buffers share memory that one of them thinks it has alone.

    It knows the buffers made since `watch` began.
    """
    known = () if _watched is None else _watched.valuerefs()  # other threads add to them meanwhile
    found = [buffer for each in known if (buffer := each()) is not None and buffer.nbytes]
    found.sort(key=lambda buffer: (str(buffer.device), buffer.pointer))
    furthest = found[0] if found else None
    for buffer in found[1:]:
        assert furthest is not None
        end = furthest.pointer + furthest.nbytes
        if buffer.device is furthest.device and buffer.pointer < end and (
                buffer.alone() or furthest.alone()):
            raise MemoryShared(f"{furthest!r} and {buffer!r} share memory at {buffer.pointer:#x}, "
                               "and one of them may be written in place")
        if buffer.device is not furthest.device or buffer.pointer + buffer.nbytes > end:
            furthest = buffer
