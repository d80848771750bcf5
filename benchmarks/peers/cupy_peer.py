"""CuPy, op by op on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, Refused
from benchmarks.workload import Arrays, Workload


class CuPy(Peer):
    """CuPy: one kernel an operation."""

    name = "CuPy"
    devices = ("cuda",)

    def start(self) -> None:
        import cupy

        if not cupy.cuda.is_available():
            raise Refused("finds no CUDA device")
        self.library = cupy
        cupy.zeros(1).get()

    @property
    def version(self) -> str:
        return self.library.__version__

    def put(self, array: np.ndarray) -> Any:
        return self.library.asarray(array)

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, self.name)
        return run or (lambda *inputs: workload.program(self.library, *inputs))

    def wait(self, outputs: tuple[Any, ...]) -> None:
        self.library.cuda.get_current_stream().synchronize()

    def get(self, outputs: tuple[Any, ...]) -> Arrays:
        return tuple(self.library.asnumpy(output) for output in outputs)

    def release(self) -> None:
        self.library.get_default_memory_pool().free_all_blocks()
