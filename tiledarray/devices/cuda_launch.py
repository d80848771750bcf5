"""Kernels on a CUDA device: loading machine code, launching it, launch graphs.

The driver is called through ``ctypes``, which takes half the time of general bindings.  Everything
here works in the current CUDA context, which is the one CuPy uses; the caller makes the device
current (``CudaBackend.active()``).
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import partial
from typing import Any, NamedTuple

import cupy

from tiledarray import errors
from tiledarray.core import start_kernel

Extent = tuple[int, int, int]

# From cuda.h: CUfunction_attribute, and the error codes that leave a context unusable.
ATTRIBUTE_SHARED_BYTES = 1
ATTRIBUTE_LOCAL_BYTES = 3
ATTRIBUTE_REGISTERS = 4
ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES = 8
ATTRIBUTE_SHARED_CARVEOUT = 9
OUT_OF_MEMORY = 2
CAPTURE_RELAXED = 2  # other streams of this thread, and other threads, go on as they like
DEVICE_LOST = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719}

_ArgumentPointer = c_char_p * 1


class DeviceError(errors.TiledArrayError, RuntimeError):
    """A CUDA call failed; the message has CUDA's own words."""


class DeviceLost(DeviceError):
    """The device's context is broken: every later call on it fails too."""


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("parameters", POINTER(c_char_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: what it is, and its value in as many bytes as the largest takes."""

    _fields_ = [("name", c_int), ("padding", c_int), ("value", c_int), ("rest", ctypes.c_char * 60)]


# The device starts all blocks of such a launch or none; it refuses those that it has no room for.
_AT_ONCE = _LaunchAttribute(name=2, value=1)  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


_SIGNATURES: dict[str, list[Any]] = {
    "cuModuleLoadData": [POINTER(c_void_p), c_char_p],
    "cuModuleUnload": [c_void_p],
    "cuCtxSynchronize": [],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuFuncGetAttribute": [POINTER(c_int), c_int, c_void_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuFuncGetParamInfo": [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t)],
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": [POINTER(c_int), c_void_p, c_int, c_size_t],
    "cuLaunchKernelEx": [c_void_p, c_void_p, c_void_p, c_void_p],
    "cuGraphCreate": [POINTER(c_void_p), c_uint],
    "cuGraphDestroy": [c_void_p],
    "cuGraphAddKernelNode_v2": [
        POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_size_t, POINTER(_KernelNode),
    ],
    "cuGraphKernelNodeSetAttribute": [c_void_p, c_int, c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cuGraphAddChildGraphNode": [
        POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_size_t, c_void_p,
    ],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, ctypes.c_ulonglong],
    "cuGraphExecKernelNodeSetParams_v2": [c_void_p, c_void_p, POINTER(_KernelNode)],
    "cuGraphExecDestroy": [c_void_p],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
}


@functools.cache
def driver() -> ctypes.CDLL:
    """Return the CUDA driver library, with the signatures used here declared."""
    library = ctypes.CDLL("libcuda.so.1")
    for name, arguments in _SIGNATURES.items():
        entry = getattr(library, name, None)
        if entry is not None:
            entry.argtypes = arguments
    return library


def check(status: int, doing: str) -> None:
    """Raise unless a driver call succeeded."""
    if status:
        raise driver_error(status, doing)


def driver_error(status: int, doing: str) -> Exception:
    """Return the exception for a driver status, with what the user can do about it."""
    texts = []
    for name in ("cuGetErrorName", "cuGetErrorString"):
        text = c_char_p()
        getattr(driver(), name)(status, byref(text))
        texts.append((text.value or b"unknown").decode())
    return translate(status, f"{doing}: {texts[0]} ({texts[1]})")


def translate(status: int, message: str) -> Exception:
    """Return the exception of this library for a CUDA status (runtime and driver share codes)."""
    if status == OUT_OF_MEMORY:
        return errors.OutOfMemory(message, remedy="delete arrays that are no longer needed")
    if status in DEVICE_LOST:
        return DeviceLost(
            f"{message}: this process cannot use the device again",
            remedy="save what is in host memory and start a new process; with "
            "CUDA_LAUNCH_BLOCKING=1 the error shows at the launch that caused it",
        )
    return DeviceError(message)


class CudaFunction:
    """A loaded kernel.  It takes one struct by value: ``Args``, packed as ``bytes``.

    Attributes
    ----------
    name : str
    args_bytes : int
        Size of ``Args``; 0 where the driver cannot tell (before 12.4).
    registers, shared_bytes, local_bytes : int
        As the driver reports them: per thread, static per block, per thread.
    """

    __slots__ = (
        "name", "handle", "args_bytes", "registers", "shared_bytes", "local_bytes",
        "_dynamic_limit", "__weakref__",
    )

    def __init__(self, name: str, handle: int) -> None:
        self.name = name
        self.handle = handle
        self._dynamic_limit = 48 * 1024
        self.registers = self._attribute(ATTRIBUTE_REGISTERS)
        self.shared_bytes = self._attribute(ATTRIBUTE_SHARED_BYTES)
        self.local_bytes = self._attribute(ATTRIBUTE_LOCAL_BYTES)
        self.args_bytes = self._parameter_bytes()
        # Without this the driver counts static shared memory against the first 48 KiB.
        self._dynamic_limit -= min(self.shared_bytes, self._dynamic_limit)

    def launch(
        self,
        grid: Extent,
        block: Extent,
        shared_bytes: int,
        args: bytes,
        stream: int | None = None,
    ) -> None:
        """Start the kernel on a stream (CuPy's current one) and return without waiting.

        Parameters
        ----------
        grid, block : tuple of 3 int
            Blocks, and threads of a block, along x, y, z.
        shared_bytes : int
            Dynamic shared memory of a block.
        args : bytes
            The packed ``Args``; copied before this returns.
        stream : int, optional
            Stream handle; a plan with several launches asks for it once.
        """
        memory = ctypes.create_string_buffer(args, len(args))
        self.bound(grid, block, shared_bytes, memory)(stream)

    def bound(
        self, grid: Extent, block: Extent, shared_bytes: int, args: ctypes.Array[Any], *,
        at_once: bool = False,
    ) -> BoundLaunch:
        """Prepare a launch that reads its ``Args`` from this memory at each start.

        With ``at_once`` its blocks all run at a time.
        """
        if ctypes.sizeof(args) < self.args_bytes:
            raise ValueError(
                f"{self.name} takes {self.args_bytes} bytes, got {ctypes.sizeof(args)}")
        if shared_bytes > self._dynamic_limit:
            self.allow_shared(shared_bytes)
        return BoundLaunch(self, grid, block, shared_bytes, args, at_once)

    def allow_shared(self, shared_bytes: int) -> None:
        """Raise the limit of dynamic shared memory (48 KiB, unless asked for)."""
        status = driver().cuFuncSetAttribute(
            self.handle, ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES, shared_bytes
        )
        check(status, f"asking for {shared_bytes} bytes of shared memory for {self.name}")
        self._dynamic_limit = shared_bytes

    def limit_shared(self, shared_bytes: int, available: int) -> None:
        """Take only so much of a multiprocessor's memory as shared memory; the rest is L1 cache.

        The driver takes the next larger size that the device knows, and more where one block
        needs it.
        """
        percent = min(100, 100 * shared_bytes // available)
        status = driver().cuFuncSetAttribute(self.handle, ATTRIBUTE_SHARED_CARVEOUT, percent)
        check(status, f"limiting the shared memory of {self.name}")

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int = 0) -> int:
        """Occupancy: how many blocks of this kernel one multiprocessor holds at a time."""
        if shared_bytes > self._dynamic_limit:
            self.allow_shared(shared_bytes)
        blocks = c_int()
        status = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            byref(blocks), self.handle, threads, shared_bytes
        )
        check(status, f"asking for the occupancy of {self.name}")
        return blocks.value

    def _attribute(self, attribute: int) -> int:
        value = c_int()
        status = driver().cuFuncGetAttribute(byref(value), attribute, self.handle)
        check(status, f"reading an attribute of {self.name}")
        return value.value

    def _parameter_bytes(self) -> int:
        ask = getattr(driver(), "cuFuncGetParamInfo", None)
        offset, size = c_size_t(), c_size_t()
        if ask is None or ask(self.handle, 0, byref(offset), byref(size)):
            return 0
        return size.value


class BoundLaunch:
    """A launch whose ``Args`` lie in memory of the caller's, copied at each start.

    Not for several threads at a time.
    """

    __slots__ = ("function", "_config", "_args", "_parameters", "_record", "_start")

    def __init__(self, function: CudaFunction, grid: Extent, block: Extent, shared_bytes: int,
                 args: ctypes.Array[Any], at_once: bool) -> None:
        self.function = function
        self._config = _LaunchConfig(grid=grid, block=block, shared_bytes=shared_bytes)
        if at_once:
            self._config.attributes = ctypes.addressof(_AT_ONCE)
            self._config.attribute_count = 1
        self._args = args
        self._parameters = (c_void_p * 1)(ctypes.addressof(args))
        call = driver().cuLaunchKernelEx
        self._record = (c_void_p * 4)(  # of the core: see `core/run.c`
            ctypes.cast(call, c_void_p).value, ctypes.addressof(self._config), function.handle,
            ctypes.addressof(self._parameters))
        self._start: Callable[[], int] = (  # by the core, several times as fast as by ctypes
            partial(start_kernel, ctypes.addressof(self._record)) if start_kernel is not None else
            partial(call, byref(self._config), function.handle, self._parameters, None))

    def __call__(self, stream: int | None = None) -> None:
        """Start the kernel on a stream (CuPy's current one) and return without waiting."""
        self.check(self.on(stream)())

    def on(self, stream: int | None = None) -> Callable[[], int]:
        """Return what starts the kernel on a stream (CuPy's current one), and gives a status."""
        self._config.stream = cupy.cuda.get_current_stream().ptr if stream is None else stream
        return self._start

    def address(self, stream: int) -> int:
        """Return where there is what the core starts the kernel on a stream with."""
        self._config.stream = stream
        return ctypes.addressof(self._record)

    def check(self, status: int) -> None:
        """Raise if the kernel could not be started."""
        if status:
            config = self._config
            raise driver_error(
                status,
                f"launching {self.function.name} with grid {tuple(config.grid)}, "
                f"block {tuple(config.block)}, {config.shared_bytes} bytes of shared memory",
            )


def load_function(cubin: bytes, name: str, dropped: list[c_void_p]) -> CudaFunction:
    """Load machine code into the current context.

    Once nothing refers to the function any more, its module is in ``dropped``, for `unload`: at
    that moment another context may be current, or a graph be recorded.
    """
    module, function = c_void_p(), c_void_p()
    check(driver().cuModuleLoadData(byref(module), cubin), f"loading the kernel {name}")
    status = driver().cuModuleGetFunction(byref(function), module, name.encode())
    check(status, f"finding the kernel {name} in its binary")
    assert function.value is not None
    made = CudaFunction(name, function.value)
    weakref.finalize(made, dropped.append, module).atexit = False
    return made


def unload(dropped: list[c_void_p]) -> None:
    """Unload modules of the current context once what was launched of them has run."""
    if not dropped or driver().cuCtxSynchronize():
        return  # while a graph is recorded nothing can be waited for
    while dropped:
        check(driver().cuModuleUnload(dropped.pop()), "unloading a kernel")


class Launch(NamedTuple):
    """One kernel launch."""

    function: CudaFunction
    grid: Extent
    block: Extent
    shared_bytes: int
    args: bytes
    at_once: bool = False


class Captured:
    """What a library launched while it was recorded: it does the same to the same memory again.

    Attributes
    ----------
    graph : c_void_p
    memory : object
        What the launches use besides, theirs alone.
    """

    def __init__(self, graph: c_void_p, memory: Any) -> None:
        self.graph = graph
        self.memory = memory
        self.args = b""
        weakref.finalize(self, driver().cuGraphDestroy, graph).atexit = False


def captured(work: Callable[[], Any], stream: int, memory: Any) -> Captured:
    """Record what is launched on a stream meanwhile; none of it is done.

    Raises
    ------
    DeviceError
        If something cannot be recorded.
    """
    graph = c_void_p()
    status = driver().cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED)
    check(status, "beginning to record launches")
    try:
        work()
    finally:
        status = driver().cuStreamEndCapture(stream, byref(graph))
    check(status, "recording launches")
    return Captured(graph, memory)


class LaunchGraph:
    """Launches one after another, started together; a replay costs one call.

    Grids, blocks and order are fixed; the arguments may change at each replay.
    """

    def __init__(self, launches: Sequence[Launch | Captured]) -> None:
        self._lock = threading.Lock()
        self._nodes: list[c_void_p] = []
        self._params: list[Any] = []
        self._args: list[bytes | None] = [launch.args for launch in launches]
        self._sizes = [len(launch.args) for launch in launches]
        self._kept = [*launches]  # for functions to stay loaded, and memory taken
        self._graph, self._executable = c_void_p(), c_void_p()
        library = driver()
        check(library.cuGraphCreate(byref(self._graph), 0), "creating a launch graph")
        weakref.finalize(self, library.cuGraphDestroy, self._graph).atexit = False
        for launch in launches:
            if isinstance(launch, Captured):
                self._append_captured(launch)
            else:
                self._append(launch)
        status = library.cuGraphInstantiateWithFlags(byref(self._executable), self._graph, 0)
        check(status, f"instantiating a graph of {len(launches)} launches")
        weakref.finalize(self, library.cuGraphExecDestroy, self._executable).atexit = False

    def _append(self, launch: Launch) -> None:
        function = launch.function
        if len(launch.args) < function.args_bytes:
            raise ValueError(f"{function.name} takes {function.args_bytes} bytes")
        if launch.shared_bytes > function._dynamic_limit:
            function.allow_shared(launch.shared_bytes)
        params = _KernelNode(
            function=function.handle,
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            parameters=_ArgumentPointer(launch.args),
        )
        node, after = c_void_p(), self._nodes[-1:]
        status = driver().cuGraphAddKernelNode_v2(
            byref(node), self._graph, byref(after[0]) if after else None, len(after), byref(params)
        )
        check(status, f"adding {function.name} to a launch graph")
        if launch.at_once:
            status = driver().cuGraphKernelNodeSetAttribute(
                node, _AT_ONCE.name, ctypes.addressof(_AT_ONCE) + _LaunchAttribute.value.offset)
            check(status, f"having all blocks of {function.name} run at a time")
        self._nodes.append(node)
        self._params.append(params)

    def _append_captured(self, captured: Captured) -> None:
        node, after = c_void_p(), self._nodes[-1:]
        status = driver().cuGraphAddChildGraphNode(
            byref(node), self._graph, byref(after[0]) if after else None, len(after),
            captured.graph)
        check(status, "adding a library call to a launch graph")
        self._nodes.append(node)
        self._params.append(None)

    def replay(self, args: Sequence[bytes], stream: int | None = None) -> None:
        """Start all launches with these arguments, one ``bytes`` each, and return at once.

        A launch under way keeps the arguments it was started with.
        """
        self.check(self.bound(dict(enumerate(args)), stream)())

    def bound(self, args: Mapping[int, bytes], stream: int | None = None) -> Callable[[], int]:
        """Return what starts all launches, some with new arguments, and gives a status."""
        if stream is None:
            stream = cupy.cuda.get_current_stream().ptr
        library = driver()
        with self._lock:
            for index, new in args.items():
                if new == self._args[index]:
                    continue
                if len(new) != self._sizes[index]:
                    raise ValueError(f"launch {index} takes {self._sizes[index]} bytes")
                self._args[index] = None  # not known, should a handler raise meanwhile
                params = self._params[index]
                params.parameters = _ArgumentPointer(new)
                status = library.cuGraphExecKernelNodeSetParams_v2(
                    self._executable, self._nodes[index], byref(params)
                )
                check(status, f"setting the arguments of launch {index} of a graph")
                self._args[index] = new
        return partial(library.cuGraphLaunch, self._executable, stream)

    @staticmethod
    def check(status: int) -> None:
        """Raise if the launches could not be started."""
        check(status, "starting a launch graph")
