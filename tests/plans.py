"""Plans of ordinary code: what would run, or ran, and how many bytes it moves."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from queue import Empty
from typing import Any

import numpy
import pytest

import tiledarray as ta
from tiledarray.core import forget_programs
from tiledarray.devices.pool import host_pool
from tiledarray.execution import known, spans
from tiledarray.execution.background import background
from tiledarray.execution.taken import Taken
from tiledarray.fusion import passes
from tiledarray.fusion.plan import Call, Copy, Kernel, Plan
from tiledarray.fusion.target import Target
from tiledarray.graph.node import Node
from tiledarray.graph.program import trace
from tiledarray.recording.stretch import live_pending, local

HOST = Target("cpu", 2)
DEVICE = Target("cuda", 132, contract=True)
TARGETS = {"cpu": HOST, "cuda": DEVICE}


def fresh_recorder(**options: Any) -> Any:
    """A fixture of a module: nothing is pending from elsewhere, and `config` has these options."""
    @pytest.fixture(autouse=True)
    def clean() -> Iterator[None]:
        local.recorder.reset()
        with ta.config.override(**options):
            yield
        local.recorder.reset()

    return clean


def filled(*shape: int, dtype: Any = numpy.float64, seed: int = 0) -> Any:
    """A computed array of ours: numbers between 1 and 2, or small whole ones."""
    random = numpy.random.default_rng(seed)
    if numpy.dtype(dtype).kind in "iub":
        return ta.array(random.integers(0, 50, shape).astype(dtype))
    return ta.array((1 + random.random(shape)).astype(dtype))


def planned(*arrays: Any, target: Target = HOST) -> Plan:
    """The plan that a look at the arrays would make, for any target; nothing is computed."""
    nodes = dict.fromkeys([*live_pending(), *(array.origin().node for array in arrays)])
    traced = trace([node for node in nodes if node.buffer is None])
    del nodes
    taken = Taken(traced)
    taken.take([traced.nodes[number] for number in traced.outputs])
    plan = passes.plan(traced.signature, taken.given, target, params=traced.params, check=True)
    taken.restore()
    return plan


def plan_of(array: Any) -> Plan:
    """The plan by which a computed array was computed."""
    plan: Plan = array.origin().node.buffer.plan.plan
    return plan


def nbytes(*arrays: Any) -> int:
    """Bytes of arrays, pending or not."""
    return sum(prod(array.shape) * array.dtype.itemsize for array in arrays)


def moved(plan: Plan) -> int:
    """Bytes that the plan's kernels read and write."""
    return sum(kernel.bytes_moved for kernel in plan.kernels)


def kinds(plan: Plan) -> list[str]:
    """The plan's steps: ``map``, ``row`` and ``column`` kernels, library calls, copies."""
    names = []
    for step in plan.steps:
        if isinstance(step, Kernel):
            names.append(step.schedule.form)
        else:
            names.append({Call: "call", Copy: "copy"}.get(type(step), "allocate"))
    return names


def one_kernel(*arrays: Any, reads: Any) -> None:
    """Assert, for the host and for a GPU, that one kernel reads those and writes the arrays."""
    for name, target in TARGETS.items():
        plan = planned(*arrays, target=target)
        assert len(plan.steps) == 1, (name, kinds(plan), plan.refusals)
        assert len(plan.kernels) == 1, (name, kinds(plan))
        assert moved(plan) == nbytes(*reads, *arrays), (name, describe(plan))


class _Last:
    """Stands at the end of the queue of what is compiled in the background."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def compile(self) -> None:
        self.reached.set()


def let_compile() -> None:
    """Wait until the compiling thread has done all that was queued, by other tests too."""
    last: Any = _Last()
    background.compile(last)
    assert last.reached.wait(200)


def leave_uncompiled() -> None:
    """Take back what waits for the compiling thread: it is queued again where it is met again."""
    with suppress(Empty):
        while True:
            plan = background._queue.get_nowait()
            plan.queued = False
            background._unfinished.pop(plan, None)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What evaluation counts inside the block: plans made, kernels compiled, launches."""
    let_compile()
    before = spans.counters.copy()
    inside: Counter[str] = Counter()
    try:
        yield inside
    finally:
        inside.update(spans.counters)
        inside.subtract(before)


def peak_of(function: Callable[[], Any]) -> tuple[Any, int]:
    """What the function returns, and the most host memory that it took meanwhile."""
    before = host_pool.statistics().in_use
    host_pool.reset_peak()
    result = function()
    return result, host_pool.statistics().peak - before


def address(array: Any) -> int:
    """Where the array's value lies; it is computed if it was not."""
    node: Node = ta.evaluate(array).origin().node
    return int(node.buffer.pointer)


def describe(plan: Plan) -> str:
    """The plan as text: what each step does, on what, and the bytes it moves."""
    lines = []
    for number, step in enumerate(plan.steps):
        if isinstance(step, Kernel):
            for part in step.parts:
                lines += _describe_kernel(number, part)
            lines.append(f"  moves {step.bytes_moved} bytes")
        elif isinstance(step, Call):
            lines.append(f"step {number}: library call {step.value.op.name}")
        elif isinstance(step, Copy):
            lines.append(f"step {number}: copy {step.source} to {step.target}")
        else:
            lines.append(f"step {number}: allocate {step.value}")
    for update, (choice, reason) in plan.updates.items():
        lines.append(f"update {update}: {choice}: {reason}")
    lines += [f"not fused: {refusal}" for refusal in plan.refusals]
    lines += [f"rule: {name} x{count}" for name, count in sorted(plan.fired.items())]
    return "\n".join(lines) + "\n"


def _describe_kernel(number: int, kernel: Kernel) -> list[str]:
    schedule = kernel.schedule
    axes = ", ".join(f"{axis.role} {axis.size}{' reduced' if axis.reduced else ''}"
                     for axis in schedule.axes)
    lines = [
        f"step {number}: {schedule.form} kernel, {kernel.group.phases} passes over [{axes}]",
    ]
    for cell in kernel.cells:
        if cell.kind == "load":
            lines.append(f"  load {kernel.loads[cell].value} strides {kernel.loads[cell].strides}"
                         f"{' held' if cell.held else ''}")
        elif cell.kind in ("apply", "reduce"):
            lines.append(f"  {cell.kind} {cell.value.op.name}:{cell.dtype} in phase {cell.phase}"
                         f"{' held' if cell.held else ''}")
    lines += [f"  store {store.access.value} strides {store.access.strides}"
              for store in kernel.stores]
    return lines


def forget_plans(monkeypatch: Any) -> None:
    """Let nothing be known that was planned before: neither to Python nor to the core."""
    monkeypatch.setattr(known, "executables", OrderedDict())
    forget_programs()
