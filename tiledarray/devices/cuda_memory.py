"""Memory of a CUDA device: buffers from CuPy's pool, copies from and to the host."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tiledarray.devices.cuda_launch import OUT_OF_MEMORY, translate
from tiledarray.devices.storage import Buffer

STAGING_CHUNK = 8 << 20
STAGED_FROM = 2 * STAGING_CHUNK
HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2
DEVICE_TO_DEVICE = 3


class PoolBuffer(Buffer):
    """A buffer in memory from the pool.

    Kernels need its address alone, so its array is made when somebody asks for it.
    """

    __slots__ = ("_memory", "_shape", "_dtype", "_array")
    _array: Any

    def __init__(self, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any],
                 device: Any) -> None:
        self._memory, self._shape, self._dtype = memory, shape, dtype
        super().__init__(None, memory.ptr, device)

    @property
    def array(self) -> Any:
        """Of the value's shape and dtype, dense."""
        if self._array is None:
            self._array = cupy.ndarray(self._shape, self._dtype, self._memory)
        return self._array

    @array.setter
    def array(self, value: Any) -> None:
        self._array = value

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return math.prod(self._shape) * self._dtype.itemsize

    def _again(self, shape: tuple[int, ...] | None) -> Buffer:
        return PoolBuffer(self._memory, self._shape if shape is None else shape, self._dtype,
                      self.device)


class Translated:
    """Turns CuPy's errors inside a ``with`` block into this library's."""

    __slots__ = ("doing",)

    def __init__(self, doing: str) -> None:
        self.doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
            raise translate(OUT_OF_MEMORY, f"{self.doing}: {error}") from error
        if isinstance(error, runtime.CUDARuntimeError):
            raise translate(error.status, f"{self.doing}: {error}") from error


class Staging:
    """Copies through two pinned chunks: one is on the bus while the other is filled or emptied.

    CuPy would pin as much as the whole array and keep it.  One copy at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned = [cupy.cuda.alloc_pinned_memory(STAGING_CHUNK) for _ in range(2)]
        self._views = [np.frombuffer(pinned, np.uint8, STAGING_CHUNK) for pinned in self._pinned]
        self._done = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]

    def upload(self, host: np.ndarray, array: cupy.ndarray) -> None:
        """Copy to the device; ``host`` may change when this returns, the copy goes on."""
        source = host.reshape(-1).view(np.uint8)
        stream = cupy.cuda.get_current_stream()
        with self._lock:
            for slot, start, size in _chunks(source.size):
                self._done[slot].synchronize()
                self._views[slot][:size] = source[start : start + size]
                runtime.memcpyAsync(
                    array.data.ptr + start, self._pinned[slot].ptr, size, HOST_TO_DEVICE, stream.ptr
                )
                self._done[slot].record(stream)

    def download(self, array: cupy.ndarray, host: np.ndarray) -> None:
        """Copy to the host, and wait."""
        target = host.reshape(-1).view(np.uint8)
        stream = cupy.cuda.get_current_stream()

        def drain(slot: int, start: int, size: int) -> None:
            self._done[slot].synchronize()
            target[start : start + size] = self._views[slot][:size]

        with self._lock:
            under_way: tuple[int, int, int] | None = None
            for slot, start, size in _chunks(target.size):
                self._done[slot].synchronize()
                runtime.memcpyAsync(
                    self._pinned[slot].ptr, array.data.ptr + start, size, DEVICE_TO_HOST, stream.ptr
                )
                self._done[slot].record(stream)
                if under_way is not None:
                    drain(*under_way)
                under_way = slot, start, size
            if under_way is not None:
                drain(*under_way)


def staging() -> Staging:
    """Return the staging chunks of the current device."""
    return _staging(runtime.getDevice())


@functools.cache
def _staging(index: int) -> Staging:
    return Staging()


def _chunks(nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Slot, start and size of each chunk of a copy."""
    for number, start in enumerate(range(0, nbytes, STAGING_CHUNK)):
        yield number % 2, start, min(STAGING_CHUNK, nbytes - start)
