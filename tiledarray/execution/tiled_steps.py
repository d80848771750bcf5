"""Several steps of a loop at once, tile by tile: see `fusion.time_tiles`.

What `ta_tiles` (devices/threads.cpp) reads is made here, as int64 numbers and addresses: for each
thread the launches of all steps, bound to memory of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiledarray.devices.storage import Buffer
from tiledarray.execution.arguments import SLOT_BYTES, Arguments, dealt_from
from tiledarray.execution.replay import own_memory
from tiledarray.fusion.ir import Value, storage
from tiledarray.fusion.plan import Allocate, Kernel
from tiledarray.fusion.time_tiles import TimeTiles
from tiledarray.kernels.compile import host

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable

_AXES = 3
# Loads wait for stores to the same place in another page, as if they were to the same memory.
_PAGE, _APART = 4096, 9 * 64
_BYTE = np.dtype(np.uint8)


class _At(NamedTuple):
    """What binding asks of a buffer."""

    pointer: int


def can_be_tiled(executable: Executable) -> bool:
    """Whether a step's plan consists of kernels alone, and needs nothing of the process' own."""
    return all(isinstance(step, Kernel | Allocate) for step in executable.plan.steps) and not any(
        launch.binding.counters or launch.binding.scratch
        for launch in executable.launches.values())


class TiledSteps:
    """A loop's steps with scalars, ready to be done so many at once.

    Parameters
    ----------
    tiles : TimeTiles
    executable : Executable
        Of a step of a tile.
    first : int
        Which array of a step the state begins with.
    scalars : sequence
        The loop's.
    steps : int
        How many are done at once.
    """

    def __init__(self, tiles: TimeTiles, executable: Executable, first: int,
                 scalars: Sequence[Any], steps: int) -> None:
        self._tiles, self._executable, self._first, self._steps = tiles, executable, first, steps
        self._params = tiles.step.filled([scalars[number] for number in tiles.picks])
        self._keep: list[Any] = []
        self._taken = 0
        self._kernels = [step for step in executable.plan.kernels
                         if executable.programs[step].blocks]
        front = (1,) * (_AXES - len(tiles.shape))
        self._shapes = (*front, *tiles.shape), (*front, *tiles.tile)
        at = [(*((0, 0, 1) for _ in front), *place) for place in tiles.places()]
        self._places = self._numbers(
            [axis[k] for place in at for k in range(3) for axis in place])
        self._count = len(at)

    def _numbers(self, numbers: Sequence[int]) -> int:
        """Keep numbers in memory; return their address."""
        array = np.array(numbers, np.int64)
        self._keep.append(array)
        return int(array.ctypes.data)

    def _memory(self, nbytes: int) -> int:
        """Keep memory; return its address, which lies otherwise in its page than others."""
        buffer = self._executable.device.allocate((nbytes + 2 * _PAGE,), _BYTE)
        self._keep.append(buffer)
        self._taken += 1
        return -(-buffer.pointer // _PAGE) * _PAGE + self._taken * _APART % _PAGE

    def __call__(self, arrays: list[Buffer], number: int, by: int) -> list[Buffer]:
        """Do the steps on arrays that a step has, the first of this number; return the state."""
        pool, kept = host.pool(), len(self._keep)
        whole = [place for place, buffer in enumerate(arrays) if place and buffer.array.ndim]
        made = [self._executable.device.allocate(buffer.array.shape, buffer.array.dtype)
                for buffer in arrays[self._first:]]
        workers: list[int] = []
        for _ in range(pool.threads):
            workers += self._worker(arrays, whole, made)
        widths = [arrays[place].array.itemsize for place in whole]
        widths += [buffer.array.itemsize for buffer in made]
        table = [
            self._numbers([0]), self._count, self._places, *self._shapes[0], *self._shapes[1],
            len(whole), len(made), self._numbers(widths), self._steps, len(self._kernels), number,
            by, self._numbers(workers)]
        launch = Arguments((pool.tiles, pool.threads, 1, 0), table)
        launch.slots[:] = memoryview((ctypes.c_int64 * len(table))(*table)).cast("B").cast("q")
        pool.run(launch.address)
        del self._keep[kept:]
        return made

    def _worker(self, arrays: list[Buffer], whole: list[int], made: list[Buffer]) -> list[int]:
        """Return what a thread has: memory of its own, and the steps bound to that."""
        plan, step = self._executable.plan, self._tiles.step
        sizes = {place: self._tile_bytes(arrays[place]) for place in whole}
        counter = self._memory(SLOT_BYTES)
        has = {place: self._memory(sizes[place]) for place in whole}
        has.update((place, buffer.pointer) for place, buffer in enumerate(arrays)
                   if place and place not in has)
        has[0] = counter
        inputs = [x for place in whole for x in (arrays[place].pointer, has[place])]
        blocks, lengths = own_memory(plan)
        own = [self._memory(size) for size in lengths]
        inside = {base: _At(own[number]) for base, number in blocks.items()}
        free: dict[int, list[int]] = {}
        steps: list[int] = []
        for _ in range(self._steps):
            bound = dict(inside)
            for value, number in self._executable.leaves:
                bound[value] = _At(has[self._place_of(number)])
            outputs = self._outputs(bound, free)
            steps += self._launches(bound)
            after = {self._first + k: outputs[place] if computed else has[place]
                     for k, (computed, place) in enumerate(step.results)}
            for place in range(self._first, len(arrays)):
                if has[place] not in after.values():
                    free.setdefault(sizes[place], []).append(has[place])
            has.update(after)
        results = [x for k, buffer in enumerate(made)
                   for x in (buffer.pointer, has[self._first + k])]
        scratch = self._memory(max(
            [1, *(self._executable.programs[kernel].scratch_bytes for kernel in self._kernels)]))
        return [counter, scratch, self._numbers(steps), self._numbers(inputs),
                self._numbers(results)]

    def _tile_bytes(self, buffer: Buffer) -> int:
        size = 1
        for n in self._tiles.tile:
            size *= n
        return size * int(buffer.array.itemsize)

    def _place_of(self, number: int) -> int:
        """Which of a step's arrays a leaf is, by its number in the signature."""
        entries = [k for k, entry in enumerate(self._tiles.step.signature[0]) if entry[0] is None]
        return self._tiles.step.leaves[entries.index(number)]

    def _outputs(self, bound: dict[Value, _At], free: dict[int, list[int]]) -> list[int]:
        """Find memory for what a step gives, in what steps before it need no more."""
        plan, found = self._executable.plan, []
        for value in plan.outputs:
            base = plan.memory[storage(value)]
            if base not in bound:
                waiting = free.get(base.nbytes)
                bound[base] = _At(waiting.pop() if waiting else self._memory(base.nbytes))
            found.append(bound[base].pointer)
        return found

    def _launches(self, bound: dict[Value, _At]) -> list[int]:
        """Bind a step's kernels; return what is launched."""
        words: list[int] = []
        for kernel in self._kernels:
            launch: Any = self._executable.launches[kernel]
            arguments = launch.arguments()
            self._keep.append((arguments, launch))
            launch.binding.locate(arguments.slots, bound, self._params)
            launch.binding.fill(arguments.slots, self._params, dealt_from(0), launch.counters)
            words += (launch.address, arguments.address + SLOT_BYTES * launch.header_length,
                      launch.program.blocks)
        return words
