"""How fast the machine moves and computes, and how long the steps of plans take."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.devices.threads import host_threads
from tiledarray.execution import executable as execution
from tiledarray.execution.executable import Executable
from tiledarray.fusion import limits
from tiledarray.fusion.ir import Value
from tiledarray.fusion.plan import Allocate, Call, Kernel, Step
from tiledarray.ops.op import Leaf

HOST_COPY_BYTES = 1 << 25
DEVICE_COPY_BYTES = 1 << 28
MEASURE_SECONDS = 0.5
MEASURE_RUNS = 20


@functools.cache
def copy_bandwidth(device: Device) -> float:
    """Bytes a second read and written by a large copy on the device; measured once (20 ms)."""
    if device.kind == "cuda":
        source = device.xp.zeros(DEVICE_COPY_BYTES, np.uint8)
        target = device.xp.empty_like(source)
        return 2 * DEVICE_COPY_BYTES / _best(lambda: device.xp.copyto(target, source), device)
    threads = host_threads()
    source = np.zeros(HOST_COPY_BYTES, np.uint8)
    target = np.zeros(HOST_COPY_BYTES, np.uint8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as executor:
        copy = functools.partial(executor.map, lambda pair: np.copyto(*pair), parts)
        return 2 * HOST_COPY_BYTES / _best(lambda: list(copy()), device)


def arithmetic_rate(device: Device) -> float:
    """Nominal flops a second of the device; a rough figure, not measured."""
    if device.kind == "cuda":
        return float(device.properties.multiprocessors * limits.GPU.flops_per_second)
    return host_threads() * limits.HOST.flops_per_second


def _best(action: Any, device: Device) -> float:
    times = []
    for _ in range(4):
        started = perf_counter()
        action()
        device.synchronize()
        times.append(perf_counter() - started)
    return min(times[1:])


# ---- what plans spend their time on ----------------------------------------------------------


@dataclass(slots=True)
class StepTime:
    """How often one kernel or library call ran, and for how long in all."""

    name: str
    kind: str
    executable: Executable
    step: Step
    runs: int = 0
    seconds: float = 0.0
    nbytes: int = 0


class Profile:
    """Times every step that runs inside a ``with`` block; equal kernels count as one.

    Attributes
    ----------
    steps : dict
        `StepTime` by what is run: a kernel's text, or a library call's name.
    executables : dict
        The plans that ran, in order; the values are how often.
    """

    def __init__(self) -> None:
        self.steps: dict[Any, StepTime] = {}
        self.executables: dict[Executable, int] = {}
        self._keys: dict[Step, Any] = {}

    def __enter__(self) -> Profile:
        execution.observers.append(self._add)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        execution.observers.remove(self._add)

    def slowest(self) -> list[StepTime]:
        """All steps, those that took longest first."""
        return sorted(self.steps.values(), key=lambda entry: -entry.seconds)

    def _add(self, executable: Executable, step: Step, elapsed: float) -> None:
        key = self._keys.get(step)
        if key is None:
            key = self._keys[step] = _key(executable, step)
            kind, name = key[:2]
            self.steps.setdefault(key, StepTime(name, kind, executable, step))
        entry = self.steps[key]
        entry.runs += 1
        entry.seconds += elapsed
        entry.nbytes += step.bytes_moved if isinstance(step, Kernel) else 0
        if step is executable.plan.steps[0]:
            self.executables[executable] = self.executables.get(executable, 0) + 1


def _key(executable: Executable, step: Step) -> tuple[Any, ...]:
    if isinstance(step, Kernel):
        return "kernel", executable.names[step], executable.programs[step].text, executable.device
    if isinstance(step, Call):
        return "library call", step.value.op.name, executable.device
    return type(step).__name__.lower(), type(step).__name__.lower(), executable.device


# ---- one plan, measured ----------------------------------------------------------------------


def measure(
    executable: Executable, leaves: dict[Value, Buffer] | None, params: Sequence[Any]
) -> dict[Step, float]:
    """Run a plan several times and return each step's shortest time in seconds.

    Parameters
    ----------
    executable : Executable
    leaves : dict or None
        The plan's inputs; they are left as they are.  ``None`` takes stand-ins.
    params : sequence of scalar
    """
    if not executable.ready:
        executable.compile()
    plan, device, runs = executable.plan, executable.device, 0
    if leaves is None:
        leaves = {value: _stand_in(value, device) for value in plan.values
                  if isinstance(value.op, Leaf)}
    written = {base for value, base in plan.memory.items() if base is not value}
    best: dict[Step, float] = {}
    inside = 0.0  # a loop, of which the steps of its body have told

    def observe(running: Executable, step: Step, elapsed: float) -> None:
        nonlocal inside
        if running is not executable:
            inside += elapsed
            return
        if not isinstance(step, Allocate):
            best[step] = min(elapsed + inside, best.get(step, elapsed + inside))
        inside = 0.0

    execution.observers.append(observe)
    try:
        started = perf_counter()
        while perf_counter() - started < MEASURE_SECONDS and runs < MEASURE_RUNS:
            inputs = {value: device.wrap(buffer.array, copy=True) if value in written else buffer
                      for value, buffer in leaves.items()}
            with device.active() if device.kind == "cuda" else nullcontext():
                executable.run(inputs, params)
            runs += 1
    finally:
        execution.observers.remove(observe)
    return best


def _stand_in(value: Value, device: Device) -> Buffer:
    """An array like an input that is gone: numbers between 0 and 1, or zeros for integers."""
    generator = np.random.default_rng(0)
    if value.dtype.kind in "fcV":
        array = generator.random(value.shape).astype(value.dtype)
    else:
        array = np.zeros(value.shape, value.dtype)
    return device.wrap(array, copy=True)
