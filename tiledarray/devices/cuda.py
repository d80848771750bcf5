"""A CUDA device: its memory, its copies, its limits, its kernels.

Memory comes from CuPy's stream-ordered pool and the array of every buffer is a ``cupy.ndarray``,
so whatever CuPy offers works on it.  Work goes to CuPy's current stream.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import cupy
import numpy as np
from cupy.cuda import runtime

from tiledarray import errors
from tiledarray.devices import cublas
from tiledarray.devices.cuda_launch import (
    Captured,
    CudaFunction,
    DeviceError,
    Launch,
    LaunchGraph,
    captured,
    load_function,
    translate,
    unload,
)
from tiledarray.devices.cuda_memory import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    STAGED_FROM,
    PoolBuffer,
    Translated,
    staging,
)
from tiledarray.devices.pool import host_pool
from tiledarray.devices.storage import Borrowed, Buffer
from tiledarray.graph.dtypes import canonical

T = TypeVar("T")

OUTCOMES = 64  # kept at most
SMALL = 4096  # bytes that go through pinned memory of the thread
ALIGNMENT = 16  # bytes: of the widest loads and stores
COUNTERS_AT_LEAST = 4096
SCRATCH_AT_LEAST = 1 << 16


class Binary(Protocol):
    """What ``load`` needs of a compiled kernel (``kernels.cuda.CudaBinary`` is one)."""

    @property
    def cubin(self) -> bytes:
        """Machine code for exactly this device."""
        ...


@dataclass(frozen=True, slots=True)
class CudaProperties:
    """Limits of a device, read from it.  Sizes in bytes.

    ``arch`` is what kernels are compiled for: ``sm_90a`` on Hopper, for its own instructions.
    """

    name: str
    arch: str
    capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int


class _ThreadState(threading.local):
    """What a thread has of a device.

    Attributes
    ----------
    has_context : bool
        A new thread has none until a runtime call that needs one; the driver's launches bring none.
    pinned : tuple of int and array, or None
        Where memory of the host begins that the device can copy to, and its bytes.
    """

    has_context = False
    pinned: tuple[int, np.ndarray] | None = None


class CudaBackend:
    """Everything a ``Device`` does where it is a CUDA device.

    Parameters
    ----------
    index : int
        The device, as CuPy and the CUDA runtime count them.
    device : Device, optional
        What the buffers made here say they live on; default this object.

    Raises
    ------
    DeviceNotFound
        There is no such device, or no driver.
    """

    xp = cupy

    def __init__(self, index: int = 0, device: Any = None) -> None:
        count = device_count()
        if index >= count:
            raise errors.DeviceNotFound(
                f"there is no cuda:{index}: this process sees {count} CUDA devices",
                remedy="use device='cpu', or check nvidia-smi and CUDA_VISIBLE_DEVICES",
            )
        self.index = index
        self.device = self if device is None else device
        self._thread = _ThreadState()
        self._functions: weakref.WeakValueDictionary[tuple[bytes, str], CudaFunction] = (
            weakref.WeakValueDictionary())
        self._dropped: list[Any] = []
        self._counters: dict[int, cupy.ndarray] = {}
        self._scratch: dict[int, cupy.ndarray] = {}
        self._outcomes: deque[Any] = deque()
        self._lock = threading.RLock()
        with Translated(f"opening cuda:{index}"), self.active():
            pass

    def __repr__(self) -> str:
        return f"<CudaBackend cuda:{self.index}>"

    @functools.cached_property
    def properties(self) -> CudaProperties:
        """Limits of the device."""
        found = runtime.getDeviceProperties(self.index)
        capability = (found["major"], found["minor"])
        return CudaProperties(
            name=found["name"].decode(),
            arch=architecture(*capability),
            capability=capability,
            multiprocessors=found["multiProcessorCount"],
            threads_per_multiprocessor=found["maxThreadsPerMultiProcessor"],
            registers_per_multiprocessor=found["regsPerMultiprocessor"],
            shared_bytes_per_block=found["sharedMemPerBlockOptin"],
            shared_bytes_per_multiprocessor=found["sharedMemPerMultiprocessor"],
            l2_bytes=found["l2CacheSize"],
            memory_bytes=found["totalGlobalMem"],
        )

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Make this the current device inside a ``with`` block; cheap where it is already.

        Launches need it around them, once for a whole plan.
        """
        if runtime.getDevice() != self.index:
            return cupy.cuda.Device(self.index)
        if not self._thread.has_context:
            runtime.setDevice(self.index)
            runtime.free(0)
            self._thread.has_context = True
        return _NOTHING

    def is_current(self, stream: int) -> bool:
        """Whether this thread's work goes to this device and stream, without more ado."""
        try:
            current = runtime.getDevice()
        except runtime.CUDARuntimeError:  # whoever goes on will tell
            return False
        return bool(current == self.index and self._thread.has_context
                    and self.stream() == stream)

    @staticmethod
    def stream() -> int:
        """Handle of the stream that work goes to: CuPy's current one."""
        return cupy.cuda.get_current_stream().ptr

    def synchronize(self) -> None:
        """Wait for all work on the device; raises what went wrong in it."""
        with Translated(f"waiting for cuda:{self.index}"), self.active():
            runtime.deviceSynchronize()
        self.tell_outcomes()

    # Memory

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """Take uninitialised memory from the pool."""
        nbytes = math.prod(shape) * dtype.itemsize
        memory = None
        try:
            with self.active():
                memory = cupy.cuda.alloc(nbytes)
        except cupy.cuda.memory.OutOfMemoryError:
            pass  # out of the handler, so that its frames keep nothing alive
        if memory is None:
            return self._buffer(self._empty(shape, dtype))
        return PoolBuffer(memory, shape, dtype, self.device)

    def wrap(self, array: Any, copy: bool = True, given: bool = False) -> Buffer:
        """Return a dense buffer of this device with the array's values.

        Parameters
        ----------
        array : array_like or cupy.ndarray
        copy : bool
            ``False`` takes the memory of a CuPy array as it is, if that is dense, here, and
            begins where vectors may be loaded.  It is never written in place then, since its owner
            may still look at it.
        given : bool
            Nobody else looks at the array any more: memory that is taken becomes the buffer's own.
        """
        if not isinstance(array, cupy.ndarray):
            return self._buffer(self._from_host(np.asarray(array)))
        if not copy and self._is_as_kernels_want(array):
            buffer = self._buffer(array)
            return buffer if given else buffer.lent_for_ever()
        if array.data.device_id != self.index:  # its stream knows nothing of ours
            with cupy.cuda.Device(array.data.device_id):
                cupy.cuda.get_current_stream().synchronize()
        return self._buffer(self._retry(lambda: array.copy(order="C"), array.nbytes))

    def borrow(self, array: Any) -> Buffer:
        """Return what stands for an array while it is read, or a copy that kernels can read."""
        if isinstance(array, cupy.ndarray) and self._is_as_kernels_want(array):
            return Borrowed(array, array.data.ptr, self.device)
        return self.wrap(array, copy=False, given=True)

    def _is_as_kernels_want(self, array: cupy.ndarray) -> bool:
        """Whether an array is dense, here, and begins where vectors may be loaded."""
        return bool(array.data.device_id == self.index and array.flags.c_contiguous
                    and not array.data.ptr % ALIGNMENT)

    def copy_bytes(self, to: int, source: int, nbytes: int) -> None:
        """Copy between addresses of the device, in stream order."""
        with self.active():
            runtime.memcpyAsync(to, source, nbytes, DEVICE_TO_DEVICE, self.stream())

    def to_host(self, buffer: Buffer) -> np.ndarray:
        """Copy a buffer to memory of the host, and wait for it."""
        self.tell_outcomes()
        array = buffer.array
        if array.nbytes <= SMALL:
            return self._small_to_host(array)
        host, _ = host_pool.array(array.shape, array.dtype)
        with Translated(f"copying {array.nbytes} bytes from cuda:{self.index}"), self.active():
            if array.nbytes >= STAGED_FROM:
                staging().download(array, host)
            else:
                array.get(out=host)
        return host

    def _small_to_host(self, array: cupy.ndarray) -> np.ndarray:
        """The same without CuPy, which would take longer than the copy."""
        host: np.ndarray = np.empty(array.shape, array.dtype)
        nbytes = array.nbytes
        with Translated(f"copying {nbytes} bytes from cuda:{self.index}"), self.active():
            if self._thread.pinned is None:
                pinned = cupy.cuda.alloc_pinned_memory(SMALL)
                self._thread.pinned = pinned.ptr, np.frombuffer(pinned, np.uint8, SMALL)
            pointer, view = self._thread.pinned
            stream = self.stream()
            if nbytes:
                runtime.memcpyAsync(pointer, array.data.ptr, nbytes, DEVICE_TO_HOST, stream)
            runtime.streamSynchronize(stream)
        host.reshape(-1).view(np.uint8)[:] = view[:nbytes]
        return host

    def notes(self, count: int) -> Buffer:
        """Memory of the host for int64 numbers that kernels write, to be read after `reach`."""
        nbytes = count * np.dtype(np.int64).itemsize
        with Translated(f"taking {nbytes} bytes that cuda:{self.index} sees"), self.active():
            pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        return Buffer(np.frombuffer(pinned, np.int64, count), pinned.ptr, self.device)

    def mark(self, again: Any = None) -> Any:
        """Return what `reach` waits for: the work of the current stream so far.

        Parameters
        ----------
        again : object, optional
            An earlier mark that is of no use any more.
        """
        event = cupy.cuda.Event(disable_timing=True) if again is None else again
        event.record()
        return event

    def reach(self, mark: Any) -> None:
        """Wait until the device has come to a mark; raises what went wrong before it."""
        try:
            mark.synchronize()
        except runtime.CUDARuntimeError as error:
            raise translate(error.status, f"waiting for cuda:{self.index}: {error}") from error

    def keep_outcome(self, outcome: Any) -> None:
        """Keep what says whether a batch failed until somebody looks at what is computed here.

        Of many the oldest is told when another comes.
        """
        self._outcomes.append(outcome)
        self._tell(OUTCOMES)

    def tell_outcomes(self) -> None:
        """Wait for the outcomes that are kept; raise the first that is an error."""
        if self._outcomes:
            self._tell(0)

    def _tell(self, most: int) -> None:
        """Wait for the oldest outcomes until so many are left.  Whoever is interrupted loses none.

        The error has a note, since the call that it is of has returned long since.
        """
        first: np.linalg.LinAlgError | None = None
        while len(self._outcomes) > most:
            outcome = self._outcomes.popleft()
            try:
                outcome.told()
            except np.linalg.LinAlgError as error:
                first = first or error
            except BaseException:
                self._outcomes.appendleft(outcome)
                raise
        if first is not None:
            first.add_note("in an earlier call of a function under jit: "
                           "config.linalg_errors is 'deferred'")
            raise first

    def counters(self, count: int) -> int:
        """Pointer to at least ``count`` zeroed ``uint32`` counters of the current stream.

        They are zeroed once: a kernel that counts with them leaves them at zero.
        """
        with self.active():
            stream = self.stream()
            held = self._counters.get(stream)
            if held is None or held.size < count:
                size = max(count, COUNTERS_AT_LEAST)
                held = self._retry(lambda: cupy.zeros(size, np.uint32), 4 * size)
                self._counters[stream] = held
        return held.data.ptr

    def scratch(self, nbytes: int) -> int:
        """Pointer to so many bytes that one launch at a time of the current stream may use."""
        with self.active():
            stream = self.stream()
            held = self._scratch.get(stream)
            if held is None or held.size < nbytes:
                size = max(nbytes, SCRATCH_AT_LEAST)
                held = self._scratch[stream] = self._empty((size,), np.dtype(np.uint8))
        return held.data.ptr

    def memory(self) -> tuple[int, int]:
        """Bytes free (the pool's unused blocks counted in) and bytes in all."""
        with self.active():
            free, total = runtime.memGetInfo()
            return free + cupy.get_default_memory_pool().free_bytes(), total

    def release(self) -> None:
        """Give unused memory of the pool back to the device."""
        with self.active():
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()

    def _buffer(self, array: cupy.ndarray) -> Buffer:
        return Buffer(array, array.data.ptr, self.device)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> cupy.ndarray:
        return self._retry(
            lambda: cupy.empty(shape, dtype), math.prod(shape) * np.dtype(dtype).itemsize
        )

    def _from_host(self, host: np.ndarray) -> cupy.ndarray:
        with Translated(f"copying {host.nbytes} bytes to cuda:{self.index}"), self.active():
            host = np.asarray(host, canonical(host.dtype.newbyteorder("=")), order="C")
            array = self._empty(host.shape, host.dtype)
            if host.nbytes >= STAGED_FROM:
                staging().upload(host, array)
            elif host.nbytes:
                array.set(host)
            return array

    def _retry(self, make: Callable[[], T], nbytes: int) -> T:
        """Allocate; when memory is short, free what nobody uses and try once more."""
        try:
            with self.active():
                return make()
        except cupy.cuda.memory.OutOfMemoryError:
            pass  # out of the handler, so that its frames do not keep arrays alive
        gc.collect()
        self.release()
        try:
            with self.active():
                return make()
        except cupy.cuda.memory.OutOfMemoryError as error:
            free, total = self.memory()
            raise errors.OutOfMemory(
                f"cuda:{self.index} is out of memory: {_gib(nbytes)} asked for, {_gib(free)} of "
                f"{_gib(total)} free",
                nbytes=nbytes,
                remedy="delete arrays that are no longer needed, work on smaller pieces, or "
                "compute on the CPU (device='cpu')",
            ) from error

    # Kernels

    def load(self, binary: Binary, name: str) -> CudaFunction:
        """Load a kernel, once for each device as long as somebody holds it."""
        key = (binary.cubin, name)
        function = self._functions.get(key)
        if function is None:
            with self._lock, Translated(f"loading {name}"), self.active():
                unload(self._dropped)
                function = self._functions.get(key)
                if function is None:
                    function = load_function(binary.cubin, name, self._dropped)
                    self._functions[key] = function
        return function

    def graph(self, launches: Sequence[tuple[CudaFunction, int, int, int, bytes, bool] | Captured]
              ) -> LaunchGraph:
        """Prepare launches to be started together.

        Each is a function, its blocks, threads a block, bytes of shared memory, ``Args``, and
        whether all blocks run at a time; or what a library launched.
        """
        with self.active():
            return LaunchGraph([
                launch if isinstance(launch, Captured) else Launch(
                    launch[0], (launch[1], 1, 1), (launch[2], 1, 1), *launch[3:])
                for launch in launches
            ])

    def recorded_product(self, name: str, left: Any, right: Any, out: Any, *,
                         tf32: bool = False) -> Captured:
        """Record the launches of a product of matrices, without doing it.

        Parameters
        ----------
        name : str
            NumPy's.
        left, right, out : cupy.ndarray
        tf32 : bool
            Whether factors of float32 may be rounded to TF32.

        Raises
        ------
        DeviceError
            If it is one that cannot be recorded.
        """
        with Translated("recording a product of matrices"), self.active():
            left, right, shape = cublas.as_matrices(name, left, right, out.shape)
            workspace = cupy.empty(cublas.WORKSPACE, np.uint8)
            stream = cupy.cuda.Stream(non_blocking=True)

            def work() -> None:
                cublas.multiply(left, right, out.reshape(shape), workspace.data.ptr, tf32=tf32)

            with stream:
                stream.wait_event(cupy.cuda.Stream.null.record())
                work()  # once as it is: what cuBLAS loads is there then
                stream.synchronize()
                return captured(work, stream.ptr, workspace)

    def product(self, name: str, left: Any, right: Any, out: Any, *, tf32: bool = False) -> bool:
        """Multiply stacks of matrices where they lie; ``False`` if cuBLAS does not take them so.

        Parameters
        ----------
        name : str
            NumPy's.
        left, right, out : cupy.ndarray
            Of one dtype of `cublas.TYPES`; ``out`` is dense.
        tf32 : bool
            Whether factors of float32 may be rounded to TF32.
        """
        try:
            with Translated("multiplying matrices"), self.active():
                left, right, shape = cublas.as_matrices(name, left, right, out.shape)
                cublas.multiply(left, right, out.reshape(shape), self.scratch(cublas.WORKSPACE),
                                tf32=tf32)
        except DeviceError:
            return False
        return True

    def elapsed(self, work: Callable[[], Any], repeats: int = 1) -> float:
        """Time ``work`` on the device by events: the least of ``repeats``, in milliseconds.

        ``work`` only starts things; waiting is done here.
        """
        times = []
        with Translated("timing"), self.active():
            stream = cupy.cuda.get_current_stream()
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            for _ in range(repeats):
                start.record(stream)
                work()
                end.record(stream)
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(start, end))
        return min(times)


def device_count() -> int:
    """How many CUDA devices this process sees; 0 also where there is no driver."""
    try:
        return runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        return 0


def architecture(major: int, minor: int) -> str:
    """Compilation target of a compute capability."""
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"


_NOTHING = contextlib.nullcontext()
