"""Running one plan many times: its own memory is taken once, and its launches are prepared.

Only the addresses of inputs and outputs change from run to run: they alone are written anew, and of
a recording the scalars, if they are others.  On a GPU several launches are one CUDA graph, of which
there are some for addresses that come round.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tiledarray.at_one_go import at_one_go
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.errors import TiledArrayError
from tiledarray.execution.arguments import dealt_from
from tiledarray.execution.captured import (
    MOST_COPIES,
    Copies,
    can_be_captured,
    captured,
    static_bases,
)
from tiledarray.execution.graphs import Graphs, Places
from tiledarray.fusion.group import storage
from tiledarray.fusion.ir import Value, evaluated_terms
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Allocate, Call, Kernel, Plan
from tiledarray.ops.op import Leaf

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

STREAMS_REMEMBERED = 8
MET = 2  # runs of a recorded plan before it is replayed
PREPARED = 64  # recorded plans, at most
PART = 32  # of a GPU's memory that recorded plans have for their own, together
_BYTE = np.dtype(np.uint8)


_prepared: OrderedDict[Executable, int] = OrderedDict()  # and the bytes that each has


def can_replay(executable: Executable) -> bool:
    """Whether a plan consists of launches alone, none of which writes into an input."""
    return _has_launches_alone(executable) and not executable.plan.writes_inputs()


def _has_launches_alone(executable: Executable) -> bool:
    """Whether all of a plan is kernels, or can be in a launch graph beside them."""
    return all(isinstance(step, (Kernel, Allocate)) for step in executable.plan.steps) or (
        can_be_captured(executable))


def stored_into(plan: Plan) -> set[Value]:
    """The values in whose memory kernels write."""
    return {plan.memory[store.access.value] for kernel in plan.kernels
            for part in kernel.parts for store in part.stores}


def prepare(executable: Executable, params: Sequence[Any]) -> None:
    """Let a recorded plan that has been met a few times run by one launch from now on, if it can.

    Its memory stays its own as long as it is among the last that were prepared.
    """
    launches = sum(isinstance(step, Call) or executable.programs[step].blocks > 0
                   for step in executable.plan.steps if isinstance(step, Kernel | Call))
    nbytes = sum(own_memory(executable.plan)[1])
    most = _most_bytes(executable.device)
    if launches < 2 or nbytes > most or not _has_launches_alone(executable):
        return
    try:
        executable.replay = Replay(executable, params).recorded
    except TiledArrayError:  # no memory, or a call that cannot be recorded
        return
    _prepared[executable] = nbytes
    while len(_prepared) > PREPARED or sum(_prepared.values()) > most:
        _prepared.popitem(last=False)[0].replay = None


def _most_bytes(device: Device) -> int:
    memory: int = device.properties.memory_bytes
    return memory // PART


def own_memory(plan: Plan) -> tuple[dict[Value, int], list[int]]:
    """Say which block what lives inside the plan has, and how many bytes each block.

    What is dead makes room for what comes later.
    """
    outputs = {plan.memory[storage(value)] for value in plan.outputs
               if storage(value) in plan.memory}
    blocks: dict[Value, int] = {}
    sizes: list[int] = []
    free: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        bases = [base for base in dict.fromkeys(
                     plan.memory[value] for value in touched(step) if value in plan.memory)
                 if base not in outputs and not isinstance(base.op, Leaf)]
        for base in bases:
            if base in blocks:
                continue
            if free.get(base.nbytes):
                blocks[base] = free[base.nbytes].pop()
            else:
                blocks[base] = len(sizes)
                sizes.append(base.nbytes)
        for base in bases:
            if plan.last_use[base] == number:
                free.setdefault(base.nbytes, []).append(blocks[base])
    return blocks, sizes


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

    def recorded(self, buffers: dict[Value, Any], params: Sequence[Any],
                 overwritten: list[Kernel]) -> None:
        """Run with these inputs and scalars; what is in memory then is in ``buffers``."""
        lane = self._lane()
        if not _are_same(params, lane.params):
            lane.fill(params)
        lane.run_into(buffers, overwritten)

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


def _are_same(params: Sequence[Any], known: Sequence[Any] | None) -> bool:
    """Whether scalars are the same to the bit; equal ones that may not be count as others."""
    return params == known and not any(x == 0 or type(x) is complex for x in params)


class OwnMemory:
    """What a plan's launches have for themselves: temporary memory, scratch, counters.

    All of it is its own: what other launches use (counters, scratch) may grow and move.
    """

    def __init__(self, executable: Executable) -> None:
        self._device = device = executable.device
        plan = executable.plan
        self.launches: list[Any] = [
            executable.launches[step] for step in plan.kernels if executable.programs[step].blocks
        ]
        blocks, sizes = own_memory(plan)
        taken = [device.allocate((size,), _BYTE) for size in sizes]
        self.temporaries = {base: taken[number] for base, number in blocks.items()}
        scratch = max((launch.binding.scratch_bytes for launch in self.launches), default=0)
        self._workspace = device.allocate((max(1, scratch),), _BYTE)
        self._counters: dict[tuple[int, int], Buffer] = {}

    def fill(self, number: int, slots: memoryview, params: Sequence[Any]) -> None:
        """Write a launch's arguments but for addresses of values."""
        self.launches[number].binding.fill(
            slots, params, dealt_from(self._workspace.pointer), partial(self._zeroed, number))

    def _zeroed(self, number: int, count: int) -> int:
        """Address of a launch's counters, which the kernel leaves at zero."""
        key = number, count
        if key not in self._counters:
            self._counters[key] = self._device.wrap(np.zeros(count, np.uint32), copy=True)
        return self._counters[key].pointer


class _Lane:
    """Memory, packed arguments and launch graph of a plan on one stream."""

    def __init__(self, executable: Executable, params: Sequence[Any]) -> None:
        self.executable = executable
        plan = executable.plan
        self._memory = plan.memory
        bases = dict.fromkeys(self._memory[storage(value)] for value in plan.outputs)
        self._outputs = [base for base in bases if not isinstance(base.op, Leaf)]
        self._own = OwnMemory(executable)
        self._temporaries = self._own.temporaries
        calls = any(isinstance(step, Call) for step in plan.steps)
        self._static = {base: executable.device.allocate(base.shape, base.dtype)
                        for base in (static_bases(executable) if calls else ())}
        self._temporaries.update((base, buffer) for base, buffer in self._static.items()
                                 if not isinstance(base.op, Leaf))
        self._launches = self._own.launches
        self._in_place = [
            step for step in plan.kernels
            if any(plan.writes_input(store.access.value)
                   for part in step.parts for store in part.stores)
        ]
        self._args = [launch.arguments() for launch in self._launches]
        self._graphs: Graphs | None = None
        self.fill(params)
        if executable.device.kind == "cuda" and (calls or len(self._launches) > 1):
            launches = self._in_order()
            self._graphs = Graphs(
                partial(executable.device.graph, launches), self._arguments, len(launches))

    def _in_order(self) -> list[Any]:
        """All launches for a graph; says which of them are the plan's kernels, and which copy."""
        self._nodes: list[int] = []
        self._copies: list[tuple[int, Copies, list[Value]]] = []
        launches: list[Any] = []
        before = [base for base in self._static if isinstance(base.op, Leaf)]
        behind = [base for base in self._static if not isinstance(base.op, Leaf)]
        self._copy(before, launches)
        for step in self.executable.plan.steps:
            if isinstance(step, Call):
                launches.append(captured(
                    step, self._memory, {**self._temporaries, **self._static},
                    self.executable.device))
            elif isinstance(step, Kernel) and self.executable.programs[step].blocks:
                launch, args = self._launches[len(self._nodes)], self._args[len(self._nodes)]
                self._nodes.append(len(launches))
                launches.append((
                    launch.function, launch.program.blocks, launch.program.threads,
                    launch.program.shared_bytes, args.packed(), launch.program.at_once))
        self._copy(behind, launches)
        return launches

    def _copy(self, bases: list[Value], launches: list[Any]) -> None:
        """Add what copies inputs to where calls read them, or outputs from where they are made."""
        for begin in range(0, len(bases), MOST_COPIES):
            some = bases[begin:begin + MOST_COPIES]
            copies = Copies([base.nbytes for base in some], self.executable.device)
            self._copies.append((len(launches), copies, some))
            launches.append((copies.function, copies.blocks, copies.threads, 0,
                             self._copying(copies, some, dict.fromkeys(some, 0))))

    def _copying(self, copies: Copies, bases: list[Value], places: Mapping[Value, int]) -> bytes:
        stay, move = [self._static[base].pointer for base in bases], [*map(places.get, bases)]
        return copies.packed(*((move, stay) if isinstance(bases[0].op, Leaf) else (stay, move)))

    def fill(self, params: Sequence[Any]) -> None:
        """Write all arguments but the addresses of inputs and outputs, and note those."""
        self.params: list[Any] | None = None  # not known until all is written
        self._places: Places | None = None
        if self._graphs is not None:
            self._graphs.forget()
        # Which addresses are inputs' and outputs': the slots, a place there, what to add.
        self._moving: list[tuple[memoryview, int, Value, int]] = []
        for number, (launch, args) in enumerate(zip(self._launches, self._args, strict=True)):
            self._fill(number, launch, args.slots, params)
        self._bases = [*dict.fromkeys(
            [*self._static, *(base for _, _, base, _ in self._moving)])]
        self.params = [*params]

    def _fill(self, number: int, launch: Any, slots: memoryview, params: Sequence[Any]) -> None:
        self._own.fill(number, slots, params)
        for place, base, fixed, terms in launch.binding.addresses:
            offset = fixed + evaluated_terms(terms, params)
            if base in self._temporaries:
                slots[place] = self._temporaries[base].pointer + offset
            else:
                self._moving.append((slots, place, base, offset))

    def run(self, leaves: dict[Value, Buffer]) -> dict[Value, Any]:
        """Run with these inputs; return all that is in memory."""
        buffers: dict[Value, Any] = leaves.copy()
        self.run_into(buffers, [])
        return buffers

    def run_into(self, buffers: dict[Value, Any], overwritten: list[Kernel]) -> None:
        """Run with these inputs, and add what is in memory then.

        What is written in place is noted in one go with the launch.
        """
        allocate = self.executable.device.allocate
        for base in self._outputs:
            buffers[base] = allocate(base.shape, base.dtype)
        places = tuple([buffers[base].pointer for base in self._bases])
        if self._graphs is not None:
            start, graph = self._graphs.start(places)
            graph.check(at_one_go(start, [partial(overwritten.extend, self._in_place)])
                        if self._in_place else start())
            return
        if places != self._places:
            self._places = None  # not known until all is written
            self._locate(places)
            self._places = places
        for launch, args in zip(self._launches, self._args, strict=True):
            launch.start(args)
        overwritten += self._in_place

    def _locate(self, places: Places) -> dict[Value, int]:
        """Write where inputs and outputs lie."""
        at = dict(zip(self._bases, places, strict=True))
        for slots, place, base, offset in self._moving:
            slots[place] = at[base] + offset
        return at

    def _arguments(self, places: Places) -> dict[int, bytes]:
        """Return the arguments of a graph's launches on arrays that lie there."""
        at = self._locate(places)
        return {
            **{node: args.packed() for node, args in zip(self._nodes, self._args, strict=True)},
            **{node: self._copying(copies, bases, at) for node, copies, bases in self._copies},
        }
