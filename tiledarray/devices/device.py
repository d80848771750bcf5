"""Devices: where arrays live, and what evaluation asks of the place.

``Device`` objects are interned, so they compare by identity.  What a device does (allocate, copy,
wait) is done by the backend of its kind, loaded when first needed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray import config, core
from tiledarray.block import Block
from tiledarray.devices.pool import host_pool
from tiledarray.devices.storage import Borrowed, Buffer, address_of
from tiledarray.errors import DeviceNotFound, TiledArrayWarning
from tiledarray.fork import hold_at_fork
from tiledarray.graph.dtypes import canonical

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_ON_HOST = frozenset(("cpu", "auto"))

_backends: dict[str, str] = {}
_interned: dict[str, Device] = {}
_lock = threading.RLock()
hold_at_fork(_lock)
_chosen: ContextVar[Device | None] = ContextVar("tiledarray_device", default=None)


class Device:
    """A place for arrays: ``Device("cpu")``, ``Device("cuda:1")``, ``Device("auto")``.

    The last, where there is a GPU, is that of arrays that nobody put anywhere.  They are born on
    the host, and go where the work on them is done; see `tiledarray.execution.placement`.

    Attributes
    ----------
    kind : str
        ``"cpu"``, ``"cuda"`` or ``"auto"``.
    on_host : bool
        Whether its buffers are NumPy's arrays.
    index : int
        Number among the devices of its kind.
    backend : object
        What does the work.  The attributes below are its own, and others that only its kind has
        (such as ``properties`` of a GPU) can be read through the device too.
    xp : module
        ``numpy`` or ``cupy``.
    allocate : callable
        ``allocate(shape, dtype)`` returns a `Buffer` with any content.
    wrap : callable
        ``wrap(array, copy)`` returns a `Buffer` of that value.
    borrow : callable
        ``borrow(array)`` returns a `Buffer` that stands for an operand while it is read.
    to_host : callable
        ``to_host(buffer)`` returns a `numpy.ndarray`.
    synchronize : callable
        ``synchronize()`` waits until all work on the device is done.

    Raises
    ------
    DeviceNotFound
        The machine or the installation lacks the device.
    """

    __slots__ = (
        "kind", "index", "on_host", "backend", "xp", "allocate", "wrap", "borrow", "to_host",
        "synchronize", "__weakref__",
    )  # fmt: skip

    kind: str
    index: int
    on_host: bool
    backend: Any
    xp: ModuleType
    allocate: Callable[[tuple[int, ...], np.dtype[Any]], Buffer]
    wrap: Callable[..., Buffer]
    borrow: Callable[[Any], Buffer]
    to_host: Callable[[Buffer], np.ndarray]
    synchronize: Callable[[], None]

    def __new__(cls, spec: str | Device) -> Device:
        """Return the one object for that device."""
        found = _interned.get(str(spec))
        return found if found is not None else _make(str(spec))

    def __getattr__(self, name: str) -> Any:
        """Load the backend and its slots, or ask it for what only its kind of device has."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in Device.__slots__:
            _load_backend(self)
            return object.__getattribute__(self, name)
        return getattr(self.backend, name)

    def __str__(self) -> str:
        return self.kind if self.on_host else f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[[str], Device], tuple[str]]:
        return resolve, (str(self),)


class HostBackend:
    """Everything a ``Device`` does where it is the host."""

    xp = np

    def __init__(self, index: int, device: Device) -> None:
        self.index = index
        self.device = device

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """Return a buffer from the pool, with any content."""
        array, pointer = host_pool.array(shape, dtype)
        return Buffer(array, pointer, self.device)

    def wrap(self, array: Any, copy: bool = False, given: bool = False) -> Buffer:
        """Return a buffer of the array's value.

        Parameters
        ----------
        array : array_like
        copy : bool
            ``False`` takes the memory as it is where that is dense, aligned and of native byte
            order.  It is never written in place then, since its owner may still look at it.
        given : bool
            Nobody else looks at the array any more: memory that is taken becomes the buffer's own.
        """
        array = np.asarray(array)
        dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        if array.dtype.hasobject:
            dense = np.array(array, order="C", copy=copy or None)
            buffer = Buffer(dense, address_of(dense), self.device)
            return buffer if copy or given else buffer.lent_for_ever()
        flags = array.flags
        if not copy and flags.c_contiguous and flags.aligned and dtype is array.dtype:
            buffer = Buffer(array.view(np.ndarray), address_of(array), self.device)
            return buffer if given else buffer.lent_for_ever()
        buffer = self.allocate(array.shape, canonical(dtype))
        buffer.array[...] = array
        return buffer

    def borrow(self, array: Any) -> Buffer:
        """Return what stands for an array while it is read, or a copy that kernels can read."""
        if type(array) is np.ndarray and array.flags.carray and array.dtype.isnative:
            return Borrowed(array, address_of(array), self.device)
        return self.wrap(array, given=True)

    def notes(self, count: int) -> Buffer:
        """Memory for int64 numbers that kernels write, to be read when they have run."""
        return self.allocate((count,), np.dtype(np.int64))

    def mark(self, again: Any = None) -> Any:
        """Return what `reach` waits for: nothing."""

    def reach(self, mark: Any) -> None:
        """Nothing to wait for."""

    def keep_outcome(self, outcome: Any) -> None:
        """Have it told at once, since it is known."""
        outcome.told()

    def tell_outcomes(self) -> None:
        """Nothing is kept."""

    def to_host(self, buffer: Buffer) -> np.ndarray:
        """Return the buffer's own memory, which is lent as long as the array lives."""
        array: np.ndarray = buffer.lend()
        return array

    def synchronize(self) -> None:
        """Nothing to wait for: host kernels have run when their launch returns."""


def register_backend(kind: str, target: str) -> None:
    """Name the class (``"module:Class"``) that serves devices of a kind; loaded when needed.

    It is called with the index and the device, and has ``xp``, ``allocate``, ``wrap``,
    ``to_host`` and ``synchronize``.
    """
    _backends[kind] = target


def resolve(spec: str | Device | None = None) -> Device:
    """Return the device meant: a device, its name, ``"auto"``, or ``None`` for the current one."""
    if spec is None:
        return current()
    if isinstance(spec, Device):
        return spec
    return _automatic() if spec == "auto" else Device(spec)


def current() -> Device:
    """Device of new arrays: of the innermost ``with device(...)``, else ``config.device``."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    found = resolve(config.device)
    core.set_births(found.on_host and not _blocks)
    core.set_beside_gpu(found.kind == "auto")
    return found


def home() -> Device:
    """Device of what NumPy has computed on the host: where new arrays are, if that is there."""
    if config.device == "auto":
        found = _automatic()
        return found if found.on_host else Device("cpu")
    return Device("cpu")


class device(ContextDecorator, Block):  # noqa: N801  used as a function
    """Put the arrays made inside the ``with`` block on a device; holds for this thread or task.

    Parameters
    ----------
    spec : str or Device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"auto"`` (wherever the work is done).

    Yields
    ------
    Device
        The one chosen.

    Raises
    ------
    DeviceNotFound
        If there is no such device.
    RuntimeError
        If the object has been used: each ``with`` needs one of its own.

    Examples
    --------
    >>> import tiledarray as np
    >>> with np.device("cpu"):
    ...     x = np.ones(3)
    >>> str(x.device)
    'cpu'
    """

    def __init__(self, spec: str | Device) -> None:
        self._spec = spec
        self._before: tuple[Device | None] | None = None  # once it has begun

    def _recreate_cm(self) -> device:  # of functions that it decorates
        return device(self._spec)

    def begin(self) -> Device:
        """Have new arrays there; return the device."""
        found = resolve(self._spec)
        self._before = (_chosen.get(),)
        _set_blocks(_blocks.add, self)
        _chosen.set(found)
        return current()

    def end(self) -> None:
        """Have them where they were."""
        if self._before is not None:
            _chosen.set(self._before[0])
            _set_blocks(_blocks.discard, self)


_blocks: set[device] = set()


def _set_blocks(change: Callable[[device], None], block: device) -> None:
    """While a block says where arrays are made, the core leaves that to `current`."""
    with _lock:
        change(block)
        core.set_births(False)


def cuda_problem() -> DeviceNotFound | None:
    """Why no GPU can be used, or ``None`` where one can.  The driver is asked once."""
    problem = _driver_problem()
    if problem is None and importlib.util.find_spec("cupy") is None:
        problem = (
            "there is a GPU, but CuPy, which holds its arrays, is not installed",
            "pip install tiledarray[cuda12] (or [cuda13], after the driver's version)",
        )
    return DeviceNotFound(problem[0], remedy=problem[1]) if problem else None


@functools.cache
def cuda_count() -> int:
    """Return the number of GPUs that the driver shows to this process."""
    return _ask_driver()[1]


def _driver_problem() -> tuple[str, str] | None:
    """Return what is wrong with the driver, and the remedy."""
    status, count = _ask_driver()
    if status is None:
        return (
            "there is no NVIDIA driver (libcuda cannot be loaded)",
            "install the driver, start the container with its GPUs, or use device='cpu'",
        )
    if status not in (0, NO_DEVICE):
        return (
            f"the NVIDIA driver does not start (error {status})",
            "see whether nvidia-smi works, or use device='cpu'",
        )
    if count == 0:
        return (
            "the NVIDIA driver shows no GPU to this process",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device='cpu'",
        )
    return None


@functools.cache
def _ask_driver() -> tuple[int | None, int]:
    """Return the driver's status (``None``: there is no driver) and the number of GPUs."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        status = int(driver.cuInit(0))
        count = ctypes.c_int(0)
        status = status or int(driver.cuDeviceGetCount(ctypes.byref(count)))
    except (OSError, AttributeError):
        return None, 0
    return status, count.value


def accelerator() -> Device:
    """Return the device that computes what is large of arrays on ``Device("auto")``."""
    return Device("cuda:0")


@functools.cache
def _automatic() -> Device:
    problem = cuda_problem()
    if problem is None:
        return _intern("auto", "auto", 0)
    if cuda_count():
        warnings.warn(f"the GPU is not used: {problem}", TiledArrayWarning, stacklevel=3)
    return Device("cpu")


def _make(spec: str) -> Device:
    """Create a device and remember it under its names."""
    found = re.fullmatch(r"(\w+?)(?::(\d+))?", spec)
    kind, index = (found.group(1), int(found.group(2) or 0)) if found else ("", 0)
    if kind not in _backends or (kind in _ON_HOST and index) or kind == "auto":
        raise DeviceNotFound(
            f"there is no device {spec!r}", remedy="use 'cpu', 'cuda' or 'cuda:N'"
        )
    if kind == "cuda":
        _check_cuda(index)
    return _intern(spec, kind, index)


def _intern(spec: str, kind: str, index: int) -> Device:
    """Return the one object of a device."""
    made = object.__new__(Device)
    made.kind, made.index, made.on_host = kind, index, kind in _ON_HOST
    with _lock:
        made = _interned.setdefault(str(made), made)
        _interned[spec] = made
    return made


def _check_cuda(index: int) -> None:
    problem = cuda_problem()
    if problem is not None:
        raise problem
    if index >= cuda_count():
        raise DeviceNotFound(
            f"there is no cuda:{index}: this process sees {cuda_count()} GPUs",
            remedy=f"use cuda:0 to cuda:{cuda_count() - 1}, or check CUDA_VISIBLE_DEVICES",
        )


def _load_backend(device: Device) -> None:
    module, _, name = _backends[device.kind].partition(":")
    backend = getattr(importlib.import_module(module), name)(device.index, device)
    device.backend = backend
    device.xp = backend.xp
    device.allocate = backend.allocate
    device.wrap = backend.wrap
    device.borrow = backend.borrow
    device.to_host = backend.to_host
    device.synchronize = backend.synchronize


register_backend("cpu", f"{__name__}:HostBackend")
register_backend("auto", f"{__name__}:HostBackend")
register_backend("cuda", "tiledarray.devices.cuda:CudaBackend")
