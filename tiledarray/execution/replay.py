"""Running one plan many times: its own memory is taken once, and its launches are prepared.

Only the addresses of inputs and outputs change from run to run: they alone are written anew.  On a
GPU several launches are one CUDA graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiledarray.devices.storage import Buffer
from tiledarray.execution.arguments import dealt_from
from tiledarray.execution.executable import Executable
from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Value, evaluated_terms
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Allocate, Kernel
from tiledarray.ops.op import Leaf

STREAMS_REMEMBERED = 8
_BYTE = np.dtype(np.uint8)


def can_replay(executable: Executable) -> bool:
    """Whether a plan consists of kernels alone, none of which writes into an input."""
    plan = executable.plan
    return all(isinstance(step, (Kernel, Allocate)) for step in plan.steps) and not any(
        isinstance(base.op, Leaf) and not isinstance(storage(value).op, Leaf)
        for value, base in plan.memory.items()
    )


class Replay:
    """A compiled plan with its scalars and its temporary memory, for each stream that runs it.

    Not for several threads at once.
    """

    def __init__(self, executable: Executable, params: Sequence[Any]) -> None:
        self.executable = executable
        self._params = params
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        device = executable.device
        self._stream = device.backend.stream if device.kind == "cuda" else int
        self._lane()

    def __call__(self, leaves: dict[Value, Buffer]) -> list[Buffer]:
        """Run with these inputs; return the outputs' buffers, new ones."""
        return self.executable.outputs(self._lane().run(leaves))

    def _lane(self) -> _Lane:
        """The memory for runs on the current stream: runs on another may still be under way."""
        stream = self._stream()
        lane = self._lanes.get(stream)
        if lane is None:
            if len(self._lanes) >= STREAMS_REMEMBERED:
                self.executable.device.synchronize()
                self._lanes.popitem(last=False)
            lane = self._lanes[stream] = _Lane(self.executable, self._params)
        return lane


class _Lane:
    """Memory, packed arguments and launch graph of a plan on one stream.

    All of it is its own: what other launches use (counters, scratch) may grow and move.
    """

    def __init__(self, executable: Executable, params: Sequence[Any]) -> None:
        self.executable = executable
        plan = executable.plan
        self._memory = plan.memory
        bases = dict.fromkeys(self._memory[storage(value)] for value in plan.outputs)
        self._outputs = [base for base in bases if not isinstance(base.op, Leaf)]
        self._temporaries = self._take_memory()
        self._launches: list[Any] = [
            executable.launches[step] for step in plan.kernels if executable.programs[step].blocks
        ]
        scratch = max((launch.binding.scratch_bytes for launch in self._launches), default=0)
        self._workspace = executable.device.allocate((max(1, scratch),), _BYTE)
        self._counters: list[Buffer] = []
        self._args = [launch.arguments() for launch in self._launches]
        self._moving: list[tuple[memoryview, int, Value, int]] = []
        for launch, args in zip(self._launches, self._args, strict=True):
            self._fill(launch, args.slots, params)
        self._graph: Any = None
        if executable.device.kind == "cuda" and len(self._launches) > 1:
            self._graph = executable.device.graph([
                (launch.function, launch.program.blocks, launch.program.threads,
                 launch.program.shared_bytes, args.packed())
                for launch, args in zip(self._launches, self._args, strict=True)
            ])

    def _fill(self, launch: Any, slots: memoryview, params: Sequence[Any]) -> None:
        """Write the arguments that stay, and note the addresses that do not."""
        launch.binding.fill(slots, params, dealt_from(self._workspace.pointer), self._zeroed)
        for place, base, fixed, terms in launch.binding.addresses:
            offset = fixed + evaluated_terms(terms, params)
            if base in self._temporaries:
                slots[place] = self._temporaries[base].pointer + offset
            else:
                self._moving.append((slots, place, base, offset))

    def _zeroed(self, count: int) -> int:
        """Address of counters, which the kernels leave at zero."""
        device = self.executable.device
        buffer = device.wrap(np.zeros(count, np.uint32), copy=True)
        self._counters.append(buffer)
        return buffer.pointer

    def run(self, leaves: dict[Value, Buffer]) -> dict[Value, Any]:
        """Run with these inputs; return all that is in memory."""
        allocate = self.executable.device.allocate
        buffers: dict[Value, Any] = leaves.copy()
        for base in self._outputs:
            buffers[base] = allocate(base.shape, base.dtype)
        for slots, place, base, offset in self._moving:
            slots[place] = buffers[base].pointer + offset
        if self._graph is not None:
            self._graph.replay([args.packed() for args in self._args])
        else:
            for launch, args in zip(self._launches, self._args, strict=True):
                launch.start(args)
        return buffers

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
            for base in bases:
                if base in taken and plan.last_use[base] == number:
                    free.setdefault(base.nbytes, []).append(taken[base])
        return taken
