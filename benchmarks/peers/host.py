"""NumPy and the two libraries that speed it up on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, Refused
from benchmarks.workload import Workload


class NumPy(Peer):
    """NumPy, op by op."""

    name = "NumPy"
    devices = ("cpu",)

    def start(self) -> None:
        """Nothing to do."""

    @property
    def version(self) -> str:
        return np.__version__

    def build(self, workload: Workload) -> Callable[..., Any]:
        if workload.gradient:
            return workload.variants[self.name]()
        return lambda *inputs: workload.program(np, *inputs)


class NumExpr(Peer):
    """numexpr: expressions as text, in cache-sized blocks on all threads."""

    name = "numexpr"
    devices = ("cpu",)

    def start(self) -> None:
        import numexpr

        self._version = numexpr.__version__

    @property
    def version(self) -> str:
        return self._version

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, self.name)
        if run is None:
            raise Refused("cannot be written as expressions")
        return run


class Numba(Peer):
    """Numba: loops written out, compiled, parallel."""

    name = "numba"
    devices = ("cpu",)
    compiles = True

    def start(self) -> None:
        import numba

        self._version = numba.__version__

    @property
    def version(self) -> str:
        return self._version

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, self.name)
        if run is None:
            raise Refused("no loops were written for it")
        return run
