"""What kernels note of problems of a batch that fail, and when somebody looks at it.

On the host all is noted when a launch returns.  A GPU has to be waited for, and does nothing
meanwhile: so a plan is under way as a whole before that, where nothing is overwritten that a
failure would leave lost.  Where the user allows it (``config.linalg_errors``), nobody waits behind
a jitted call: then the device keeps the outcome until somebody looks at what it has computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tiledarray import config
from tiledarray.devices.device import Device
from tiledarray.devices.storage import Buffer
from tiledarray.fusion.bodies import Body
from tiledarray.fusion.tiles.kernel import FINE
from tiledarray.ops.failures import of_matrix

if TYPE_CHECKING:
    from tiledarray.fusion.ir import Value

T = TypeVar("T")


class Failures:
    """Where kernels note the first problem of a batch that fails, and what is raised then.

    Attributes
    ----------
    value : Value
        What they compute.
    device : Device
    """

    def __init__(self, value: Value, body: Body, device: Device) -> None:
        self.value, self.device = value, device
        self._mark, self._reach = device.mark, device.reach
        self._calls, self._lengths = body.program.failures, body.lengths
        self._spare: list[tuple[Buffer, Any]] = []  # where failures are noted, and what to wait for
        self._lost: list[Buffer] = []  # where a kernel may still note some that nobody waits for

    def noting(self, run: Callable[[Buffer], T]) -> tuple[T, Outcome]:
        """Run a kernel, given what it notes in; return its result, and what tells how that went."""
        noted, mark = self._spare.pop() if self._spare else (self._fresh(), None)
        try:
            return run(noted), Outcome(self, noted, self._mark(mark))
        except BaseException:
            self._lost.append(noted)
            raise

    def _fresh(self) -> Buffer:
        """Where nothing is noted yet."""
        noted = self.device.notes(len(self._calls))
        noted.array[...] = FINE
        return noted

    def lose(self, noted: Buffer) -> None:
        """Leave what a kernel may still note something in."""
        self._lost.append(noted)

    def read(self, noted: Buffer, mark: Any) -> None:
        """Wait until a kernel has come so far, and look at what it has noted.

        Raises
        ------
        numpy.linalg.LinAlgError
            With the first problem's index.
        """
        try:
            self._reach(mark)
        except BaseException:
            self._lost.append(noted)
            raise
        found = noted.array.tolist()
        if any(problem != FINE for problem in found):
            noted.array[...] = FINE
        self._spare.append((noted, mark))
        for call, problem in zip(self._calls, found, strict=True):
            if problem != FINE:
                raise np.linalg.LinAlgError(of_matrix(call.failure, problem, self._lengths))


class Outcome:
    """How the problems of one launch went: known when the device has come so far."""

    __slots__ = ("_failures", "_mark", "_noted")

    def __init__(self, failures: Failures, noted: Buffer, mark: Any) -> None:
        self._failures, self._noted, self._mark = failures, noted, mark

    @property
    def value(self) -> Value:
        """What was computed."""
        return self._failures.value

    def told(self) -> None:
        """Wait for it; raise `numpy.linalg.LinAlgError` where a problem failed.  Once only."""
        self._failures.read(self._noted, self._mark)

    def drop(self) -> None:
        """Nobody will wait for it."""
        self._failures.lose(self._noted)

    def told_or_kept(self) -> None:
        """The same, or leave it to the device, if errors may come later."""
        if config.linalg_errors == "deferred":
            self._failures.device.keep_outcome(self)
        else:
            self.told()
