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
    failures = body.program.failures
    origins = (0,) * len(body.lengths)
    spare: list[Buffer] = []  # where failures are noted, while nobody does
    lost: list[Buffer] = []  # where a kernel may still note some that nobody waits for

    def compute(*operands: Any) -> Any:
        scalars = operands[body.inputs:]
        results = [device.allocate(result.shape, result.dtype) for result in body.results]
        inputs = [_borrowed(x, device) for x in operands[:body.inputs]]
        leaves = [*results, *inputs]
        if failures:
            check(leaves, scalars)
        else:
            run(leaves, scalars)
        return results[0] if len(results) == 1 else tuple(results)

    def run(leaves: list[Buffer], scalars: Sequence[Any]) -> None:
        executable.run_one_step(
            {value: leaves[number] for value, number in executable.leaves}, (*scalars, *origins))

    def check(leaves: list[Buffer], scalars: Sequence[Any]) -> None:
        noted = spare.pop() if spare else device.notes(len(failures))
        noted.array[...] = FINE
        try:
            run([*leaves, noted], scalars)
            device.finish()
        except BaseException:
            lost.append(noted)
            raise
        found = noted.array.tolist()
        spare.append(noted)
        for call, problem in zip(failures, found, strict=True):
            if problem != FINE:
                raise np.linalg.LinAlgError(of_matrix(call.failure, problem, body.lengths))

    return compute


def _borrowed(operand: Any, device: Device) -> Buffer:
    """An operand's buffer, which it may be already."""
    return operand if isinstance(operand, Buffer) else device.borrow(operand)


def begun(result: Result, device: Device) -> Buffer:
    """Memory for a result; what blocks add their parts to is what that begins with."""
    buffer = device.allocate(result.shape, result.dtype)
    if result.start is not None:
        buffer.array[...] = result.start
    return buffer
