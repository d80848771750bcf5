"""What a peer must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np

from benchmarks.workload import Arrays, Workload, as_tuple


class Refused(Exception):
    """The peer cannot run this workload here, and why."""


def with_gradient(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Return `function`, which gives a value and a tuple of gradients, with all in one tuple."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        value, slopes = function(*inputs)
        return value, *slopes

    return run


class Peer:
    """One library on one device.

    Making a peer imports its package; `Refused` says why it cannot be made.

    Attributes
    ----------
    name : str
    devices : tuple of str
        Where it can run.
    compiles : bool
        Whether its first call compiles (and may take so long that it needs a limit).
    only_variants : bool
        Whether it takes part only in workloads that have words for it; else it has to refuse.
    """

    name: ClassVar[str]
    devices: ClassVar[tuple[str, ...]]
    compiles: ClassVar[bool] = False
    only_variants: ClassVar[bool] = False

    def __init__(self, device: str) -> None:
        if device not in self.devices:
            raise Refused(f"does not run on {device}")
        self.device = device
        try:
            self.start()
        except ImportError as error:
            raise Refused(f"not installed ({error})") from None

    @property
    def version(self) -> str:
        """The version of the package."""
        raise NotImplementedError

    def start(self) -> None:
        """Import the package and open the device."""
        raise NotImplementedError

    def put(self, array: np.ndarray) -> Any:
        """Return the peer's array, on its device."""
        return array

    def build(self, workload: Workload) -> Callable[..., Any]:
        """Return ``run(*inputs)``; nothing is compiled before it is called."""
        raise NotImplementedError

    def settled(self) -> AbstractContextManager[Any]:
        """Return a context in which a run leaves nothing to be compiled later."""
        return nullcontext()

    def wait(self, outputs: tuple[Any, ...]) -> None:
        """Return when `outputs` are computed."""

    def get(self, outputs: tuple[Any, ...]) -> Arrays:
        """Return `outputs` as NumPy arrays."""
        return tuple(np.asarray(output) for output in outputs)

    def release(self) -> None:
        """Give memory kept for reuse back."""

    def variant(self, workload: Workload, *names: str) -> Callable[..., Any] | None:
        """Return what the workload has for the first of `names`, or None; refuse if it says so."""
        for name in names:
            if name in workload.refusals:
                raise Refused(workload.refusals[name])
            if name in workload.variants:
                return workload.variants[name]()
        return None

    def finish(self, result: Any) -> tuple[Any, ...]:
        """Return `result` as a tuple of outputs, computed."""
        outputs = as_tuple(result)
        self.wait(outputs)
        return outputs
