"""Running one plan many times: its own memory is taken once, and its launches are prepared.

A launch that touches neither an input nor an output has the same arguments every time; on a GPU
all launches are one CUDA graph, in which only the others are changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.execution import CudaLaunch, Executable
from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Value
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Allocate, Kernel
from tiledarray.ops.op import Leaf
from tiledarray.runtime.buffer import Buffer

_BYTE = np.dtype(np.uint8)


def can_replay(executable: Executable) -> bool:
    """Whether a plan consists of kernels alone, none of which writes into an input."""
    plan = executable.plan
    return all(isinstance(step, (Kernel, Allocate)) for step in plan.steps) and not any(
        isinstance(base.op, Leaf) and not isinstance(storage(value).op, Leaf)
        for value, base in plan.memory.items()
    )


class Replay:
    """A compiled plan with its scalars and its temporary memory.

    Not for several threads at once: calls share the temporary memory.
    """

    def __init__(self, executable: Executable, params: Sequence[Any]) -> None:
        self.executable = executable
        self.params = params
        plan = executable.plan
        self._memory = plan.memory
        self._outputs = list(dict.fromkeys(self._memory[storage(v)] for v in plan.outputs))
        self._keep: list[Buffer] = []
        self._temporaries = self._take_memory()
        self._workspace = executable.device.allocate((max(1, self._scratch()),), _BYTE)
        self._launches = [executable.launches[step] for step in plan.kernels
                          if executable.programs[step].blocks]
        moving = {*self._outputs, *(v for v in plan.values if isinstance(v.op, Leaf))}
        self._moving = [k for k, launch in enumerate(self._launches)
                        if self._touches(launch, moving)]
        self._graph: Any = None
        self._args: list[Any] = []

    def __call__(self, leaves: dict[Value, Buffer]) -> list[Buffer]:
        """Run with these inputs; return the outputs' buffers, new ones."""
        executable = self.executable
        buffers = {**self._temporaries, **leaves}
        for base in self._outputs:
            if not isinstance(base.op, Leaf):
                buffers[base] = executable.device.allocate(base.shape, base.dtype)
        if not self._args:
            self._args = [self._packed(launch, buffers) for launch in self._launches]
            if executable.device.kind == "cuda" and len(self._launches) > 1:
                self._graph = self._captured()
        else:
            for k in self._moving:
                self._args[k] = self._packed(self._launches[k], buffers)
        self._start()
        return executable.outputs(buffers)

    def _start(self) -> None:
        if self._graph is not None:
            self._graph.replay(self._args)
            return
        for launch, args in zip(self._launches, self._args, strict=True):
            launch.start(args)

    def _packed(self, launch: Any, buffers: dict[Value, Any]) -> Any:
        """The launch's ``Args``: bytes on a GPU, memory of its own on the host."""
        start = self._workspace.pointer
        used = 0

        def workspace(size: int) -> int:
            nonlocal used
            place = start + used
            used += -(-size // 256) * 256
            return place

        into = ctypes.create_string_buffer(max(8, launch.binding.packer.size))
        counters = (self.executable.device.counters if self.executable.device.kind == "cuda"
                    else launch._counters)
        launch.binding.pack(into, buffers, self.params, workspace, counters)
        return into.raw if self.executable.device.kind == "cuda" else into

    def _captured(self) -> Any:
        from tiledarray.runtime.cuda_launch import Launch, LaunchGraph  # needs CuPy

        return LaunchGraph([
            Launch(launch.function, (launch.program.blocks, 1, 1), (launch.program.threads, 1, 1),
                   launch.program.shared_bytes, args)
            for launch, args in zip(self._launches, self._args, strict=True)
            if isinstance(launch, CudaLaunch)
        ])

    def _touches(self, launch: Any, moving: set[Value]) -> bool:
        return any(slot.value is not None and self._memory[slot.value] in moving
                   for slot in launch.program.slots)

    def _scratch(self) -> int:
        return max((sum(-(-slot.number // 256) * 256 for slot in program.slots
                        if slot.kind == "scratch")
                    for program in self.executable.programs.values()), default=0)

    def _take_memory(self) -> dict[Value, Buffer]:
        """Buffers for what lives inside the plan; what is dead makes room for what comes later."""
        plan, device = self.executable.plan, self.executable.device
        taken: dict[Value, Buffer] = {}
        free: dict[int, list[Buffer]] = {}
        for number, step in enumerate(plan.steps):
            bases = dict.fromkeys(self._memory[value] for value in touched(step))
            for base in bases:
                if base in taken or base in self._outputs or isinstance(base.op, Leaf):
                    continue
                size = base.nbytes
                blocks = free.get(size)
                raw = blocks.pop() if blocks else device.allocate((size,), _BYTE)
                taken[base] = raw
                self._keep.append(raw)
            for base in bases:
                if base in taken and plan.last_use[base] == number:
                    free.setdefault(base.nbytes, []).append(taken[base])
        return taken
