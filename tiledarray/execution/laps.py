"""Short steps of a loop on a GPU, many at once: a launch graph does laps of them.

A lap is the fewest steps after which the state lies where it began, in memory that is the loop's
own: two where every array is computed from the one before, one where all is done in place.  The
host then starts dozens of steps by one call, and takes no time for each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tiledarray.devices.storage import Buffer
from tiledarray.errors import TiledArrayError
from tiledarray.execution.replay import OwnMemory, stored_into
from tiledarray.fusion.ir import Value, evaluated_terms
from tiledarray.fusion.plan import Allocate, Kernel
from tiledarray.ops.loop import Step
from tiledarray.ops.op import Leaf

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

LONGEST_LAP = 6  # steps
GRAPH_LAUNCHES = 64  # of a graph of many laps
WORTH_IT = 16  # steps, since a graph has to be made
STATE_BYTES = 64 << 20  # where there is more, a step takes longer than its start by the host
STREAMS = 8
_BYTE = np.dtype(np.uint8)

Place = tuple[str, int]  # of an array: "given" with its number, or "own" with that of a block


class Laps:
    """A loop's steps as graphs, for whatever scalars and however many steps.

    Parameters
    ----------
    step : Step
    executable : Executable
        Of a step, on a CUDA device.
    first : int
        Which array of a step the state begins with.
    kinds : sequence of (tuple of int, numpy.dtype)
        Shapes and dtypes of the state's arrays.
    """

    def __init__(self, step: Step, executable: Executable, first: int,
                 kinds: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self._step, self._executable, self.first, self._kinds = step, executable, first, kinds
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        self.sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        self.blocks = [*self.sizes]
        self._states: list[list[Place]] = []  # where the state is after each step of a lap
        self.lap = self._course() if self._is_suited() else []

    def _is_suited(self) -> bool:
        """Whether steps are kernels alone that do not ask for their number, and are short."""
        executable, step = self._executable, self._step
        return (
            0 not in step.leaves and sum(self.sizes) <= STATE_BYTES and all(self.sizes)
            and all(isinstance(each, Kernel | Allocate) for each in executable.plan.steps)
            and all(number is None for _, number, _, _ in executable.places)
            and all(computed or place > 0 for computed, place in step.results))

    def _course(self) -> list[dict[Value, Place]]:
        """Where each step of a lap has its leaves and outputs; nothing if there is no lap."""
        overwritten = stored_into(self._executable.plan)
        begin: list[Place] = [("own", k) for k in range(len(self.sizes))]
        homes = {place: k for k, (computed, place) in enumerate(self._step.results) if computed}
        state, lap = begin, list[dict[Value, Place]]()
        while len(lap) < LONGEST_LAP:
            arrays = [*(("given", k) for k in range(self.first)), *state]
            known = {value: arrays[self._step.places[number]]
                     for value, number in self._executable.leaves}
            for number, (base, *_) in enumerate(self._executable.places):
                if isinstance(base.op, Leaf):
                    if known[base][0] == "given" and base in overwritten:
                        return []
                elif base not in known:
                    known[base] = self._free_block(
                        base.nbytes, {*arrays, *known.values()}, homes.get(number, 0))
            outputs = [known[base] for base, *_ in self._executable.places]
            state = [outputs[place] if computed else arrays[place]
                     for computed, place in self._step.results]
            if len({*state}) < len(state) or any(where == "given" for where, _ in state):
                return []
            lap.append(known)
            self._states.append(state)
            if state == begin:
                return lap
        return []

    def after(self, steps: int) -> list[Place]:
        """Where the state is after so many steps, fewer than a lap has."""
        return self._states[steps - 1]

    def _free_block(self, nbytes: int, taken: set[Place], home: int) -> Place:
        """A block that nobody has; the one in which the array began, if that may be."""
        for number in (home, *range(len(self.blocks))):
            if self.blocks[number] == nbytes and ("own", number) not in taken:
                return "own", number
        self.blocks.append(nbytes)
        return "own", len(self.blocks) - 1

    def bind(self, scalars: Sequence[Any], count: int) -> Any:
        """Return what does so many steps, as `Tiled` has it."""
        if not self.lap or count < WORTH_IT:
            return None
        try:
            lane = self._lane()
        except TiledArrayError:  # no memory for it
            return None

        def several(arrays: list[Buffer], number: int, by: int) -> list[Buffer]:
            lane.fill(self._step.filled(scalars), [buffer.pointer for buffer in arrays])
            return lane.run(arrays[self.first:], count)

        return several

    def _lane(self) -> _Lane:
        """The memory for runs on the current stream: runs on another may still be under way."""
        device = self._executable.device
        stream = device.backend.stream()
        if stream not in self._lanes:
            if len(self._lanes) >= STREAMS:
                device.synchronize()
                self._lanes.popitem(last=False)
            self._lanes[stream] = _Lane(self, self._executable, self._kinds)
        return self._lanes[stream]


class _Lane:
    """Memory, arguments and graphs of a loop's steps on one stream."""

    def __init__(self, laps: Laps, executable: Executable,
                 kinds: Sequence[tuple[tuple[int, ...], Any]]) -> None:
        self._laps, self._kinds, self._device = laps, kinds, executable.device
        self._blocks = [self._device.allocate((size,), _BYTE) for size in laps.blocks]
        self._own = OwnMemory(executable)
        launches = self._own.launches
        self._launches = [[(launch, launch.arguments()) for launch in launches] for _ in laps.lap]
        self._known: Any = None
        self._graphs: list[Any] = []
        self._many = max(1, GRAPH_LAUNCHES // max(1, len(launches) * len(laps.lap)))

    def fill(self, params: Sequence[Any], given: Sequence[int]) -> None:
        """Write all arguments, for these scalars and arrays that stay the same."""
        known = repr(params), [*given[1:self._laps.first]]
        if known == self._known:
            return
        self._known = None
        for course, launches in zip(self._laps.lap, self._launches, strict=True):
            for number, (launch, arguments) in enumerate(launches):
                slots = arguments.slots
                self._own.fill(number, slots, params)
                for place, base, fixed, terms in launch.binding.addresses:
                    pointer = self._pointer(base, course, given)
                    slots[place] = pointer + fixed + evaluated_terms(terms, params)
        lap = [(launch.function, launch.program.blocks, launch.program.threads,
                launch.program.shared_bytes, arguments.packed(), launch.program.at_once)
               for launches in self._launches for launch, arguments in launches]
        if not self._graphs:
            self._graphs = [self._device.graph(lap * laps) for laps in (self._many, 1)]
        for graph, laps in zip(self._graphs, (self._many, 1), strict=True):
            graph.bound(dict(enumerate([launch[4] for launch in lap] * laps)))
        self._known = known

    def _pointer(self, base: Value, course: dict[Value, Place], given: Sequence[int]) -> int:
        if base in self._own.temporaries:
            return int(self._own.temporaries[base].pointer)
        where, number = course[base]
        return int(self._blocks[number].pointer) if where == "own" else given[number]

    def run(self, state: Sequence[Buffer], count: int) -> list[Buffer]:
        """Do so many steps on a state; return it, in memory that nobody has."""
        device, lap = self._device, self._launches
        for buffer, own in zip(state, self._blocks, strict=False):
            device.copy_bytes(own.pointer, buffer.pointer, buffer.nbytes)
        laps, rest = divmod(count, len(lap))
        for graph, times in zip(self._graphs, divmod(laps, self._many), strict=True):
            start = graph.bound({})
            for _ in range(times):
                graph.check(start())
        for launches in lap[:rest]:
            for launch, arguments in launches:
                launch.start(arguments)
        found = [device.allocate(shape, np.dtype(dtype)) for shape, dtype in self._kinds]
        for buffer, (_, number) in zip(found, self._laps.after(rest), strict=True):
            device.copy_bytes(buffer.pointer, self._blocks[number].pointer, buffer.nbytes)
        return found
