"""Steps of a plan that go block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.fusion.along import Sizes
from tiledarray.fusion.bodies import Body, Result
from tiledarray.fusion.tiles.kernel import FINE
from tiledarray.ops.failures import of_matrix

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


def looping(
    body: Body, executables: Mapping[Sizes, Executable], device: Device
) -> Callable[..., Any]:
    """Return what computes a loop's results from its operands, as a buffer or a tuple of them.

    Operands are arrays or, where all of one lies in memory, buffers.

    Parameters
    ----------
    body : Body
    executables : mapping
        What is done with a block, by its sizes.
    device : Device
    """
    if body.program is not None:
        return problems(body, executables[body.block], device)
    blocks = [*body.blocks()]

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [begun(result, device) for result in body.results]
        inputs = [_borrowed(x, device) for x in operands[:body.inputs]]
        leaves = [*results, *inputs]
        for starts, sizes in blocks:
            executable = executables[sizes]
            executable.run({value: leaves[number] for value, number in executable.leaves},
                           (*scalars, *starts))
        return results[0] if len(results) == 1 else tuple(results)

    return compute


def problems(body: Body, executable: Executable, device: Device) -> Callable[..., Any]:
    """Return what computes a loop's results by one kernel, of all problems of a batch.

    Raises `numpy.linalg.LinAlgError` where NumPy does, with the first problem's index.
    """
    failures = Failures(body, device) if body.program.failures else None
    origins = (0,) * len(body.lengths)

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [device.allocate(result.shape, result.dtype) for result in body.results]
        inputs = [_borrowed(x, device) for x in operands[:body.inputs]]
        leaves = [*results, *inputs]
        if failures is None:
            run(leaves, scalars)
        else:
            failures.check(lambda noting: run(noting, scalars), leaves)
        return results[0] if len(results) == 1 else tuple(results)

    def run(leaves: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        executable.run_one_step(
            {value: leaves[number] for value, number in executable.leaves}, (*scalars, *origins))

    return compute


class Failures:
    """Where kernels note the first problem of a batch that fails, and what is raised then."""

    def __init__(self, body: Body, device: Device) -> None:
        self._calls, self._lengths, self._device = body.program.failures, body.lengths, device
        self._spare: list[Buffer] = []  # where failures are noted, while nobody does
        self._lost: list[Buffer] = []  # where a kernel may still note some that nobody waits for

    def check(self, run: Callable[[Sequence[Buffer]], None], buffers: Sequence[Buffer]) -> None:
        """Run a kernel on these buffers and what it notes in, and wait for it.

        Raises
        ------
        numpy.linalg.LinAlgError
            With the first problem's index.
        """
        noted = self._spare.pop() if self._spare else self._device.notes(len(self._calls))
        noted.array[...] = FINE
        try:
            run([*buffers, noted])
            self._device.finish()
        except BaseException:
            self._lost.append(noted)
            raise
        found = noted.array.tolist()
        self._spare.append(noted)
        for call, problem in zip(self._calls, found, strict=True):
            if problem != FINE:
                raise np.linalg.LinAlgError(of_matrix(call.failure, problem, self._lengths))


def _borrowed(operand: Any, device: Device) -> Buffer:
    """An operand's buffer, which it may be already."""
    return operand if isinstance(operand, Buffer) else device.borrow(operand)


def begun(result: Result, device: Device) -> Buffer:
    """Memory for a result; what blocks add their parts to is what that begins with."""
    buffer = device.allocate(result.shape, result.dtype)
    if result.start is not None:
        buffer.array[...] = result.start
    return buffer
