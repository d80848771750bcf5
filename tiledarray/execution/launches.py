"""Launching compiled kernels: one, on the buffers and scalars of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tiledarray.devices import threads
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.execution.arguments import Arguments, Binding, Workspace, dealt_from
from tiledarray.fusion.ir import Value
from tiledarray.kernels.compile import host
from tiledarray.kernels.compile.host import HostKernel
from tiledarray.kernels.text.program import Program


class HostLaunch:
    """A kernel compiled for the host."""

    report = None

    def __init__(self, program: Program, binding: Binding, kernel: HostKernel, grain: int) -> None:
        self.program = program
        self.binding = binding
        self._kernel = kernel  # it stays loaded while somebody may launch it
        self._header = (kernel.address, program.blocks, grain, program.scratch_bytes)
        self._own: Arguments | None = self.arguments()
        # Made here: of two threads that make it when it is first wanted one would keep the other's.
        self._zeroed = np.zeros(sum(count for _, count in binding.counters), np.uint32)

    def bound(self, device: Device, buffers: dict[Value, Buffer],
              params: Sequence[Any]) -> tuple[Callable[[], int], Any]:
        """Bind the arguments; return what runs the kernel and gives a status, and what to keep."""
        # A signal handler or a finaliser that looks may run the same kernel before this launch.
        arguments, self._own = self._own or self.arguments(), None
        workspace, slots = Workspace(device), arguments.slots
        self.binding.locate(slots, buffers, params)
        self.binding.fill(slots, params, workspace, self.counters)
        return partial(host.pool().start, arguments.address), (arguments, workspace)

    def free(self, kept: Any) -> None:
        """Let the next launch have the arguments."""
        self._own = kept[0]

    check = staticmethod(threads.check)

    @property
    def address(self) -> int:
        """Of the compiled kernel."""
        return int(self._kernel.address)

    @property
    def header_length(self) -> int:
        """How many numbers are before the arguments."""
        return len(self._header)

    @property
    def is_shared(self) -> bool:
        """Whether threads share the work."""
        _, blocks, grain, _ = self._header
        return blocks > grain

    def arguments(self) -> Arguments:
        """Return memory for the arguments of one launch, after what the thread pool reads."""
        return Arguments(self._header, self.binding.fields)

    def start(self, args: Arguments) -> None:
        """Run it with arguments that have been filled in."""
        host.pool().run(args.address)

    def counters(self, count: int) -> int:
        """Address of zeroed counters, which the kernel leaves at zero."""
        return self._zeroed.ctypes.data


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CudaKernel:
    """A kernel loaded on a CUDA device, and what the assembler says of it."""

    function: Any
    report: Any


class CudaArguments(Arguments):
    """Memory of an ``Args``, and the launch that reads it."""

    __slots__ = ("start",)

    def __init__(self, fields: Sequence[int], function: Any, program: Program) -> None:
        super().__init__((), fields)
        self.start: Any = function.bound(
            (program.blocks, 1, 1), (program.threads, 1, 1), program.shared_bytes, self.memory,
            at_once=program.at_once)


class CudaLaunch:
    """A kernel compiled for a CUDA device."""

    header_length = 0  # of its arguments
    is_shared = True  # other threads may go on while it is started

    def __init__(self, program: Program, binding: Binding, device: Device,
                 kernel: CudaKernel) -> None:
        self.program = program
        self.binding = binding
        self._kernel = kernel  # it stays loaded while somebody may launch it
        self.function = kernel.function
        self.report = kernel.report
        self.counters: Callable[[int], int] = device.counters
        self._scratch_bytes = binding.scratch_bytes
        self._own: CudaArguments | None = self.arguments()

    def bound(self, device: Device, buffers: dict[Value, Buffer],
              params: Sequence[Any]) -> tuple[Callable[[], int], Any]:
        """Bind the arguments; return what launches the kernel, and what to keep."""
        arguments, self._own = self._own or self.arguments(), None  # as on the host
        scratch = device.scratch(self._scratch_bytes) if self._scratch_bytes else 0
        slots = arguments.slots
        self.binding.locate(slots, buffers, params)
        self.binding.fill(slots, params, dealt_from(scratch), self.counters)
        return arguments.start.on(), (arguments,)

    def free(self, kept: Any) -> None:
        """Let the next launch have the arguments."""
        self._own = kept[0]

    def check(self, status: int) -> None:
        """Raise if the kernel could not be started."""
        (self._own or self.arguments()).start.check(status)

    def arguments(self) -> CudaArguments:
        """Return memory for the arguments of one launch."""
        return CudaArguments(self.binding.fields, self.function, self.program)

    def start(self, args: CudaArguments) -> None:
        """Launch it with arguments that have been filled in."""
        args.start()


Launch = HostLaunch | CudaLaunch
