"""JAX: the whole program under jit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, Refused, with_gradient
from benchmarks.workload import Workload


class Jax(Peer):
    """``jax.jit`` with 64-bit types allowed, as NumPy has them."""

    name = "JAX jit"
    devices = ("cpu", "cuda")
    compiles = True

    def start(self) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if self.device == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        jax.config.update("jax_enable_x64", True)
        if self.device != "cpu":
            jax.config.update("jax_default_matmul_precision", "highest")  # not TF32, as all others
        backend = jax.default_backend()
        if (backend == "cpu") != (self.device == "cpu"):
            raise Refused(f"computes on {backend} here")
        self.library = jax
        jax.numpy.zeros(1).block_until_ready()

    @property
    def version(self) -> str:
        return self.library.__version__

    def put(self, array: np.ndarray) -> Any:
        return self.library.device_put(array)

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, "jax")
        run = run or (lambda *inputs: workload.program(self.library.numpy, *inputs))
        if workload.gradient:
            run = with_gradient(self.library.value_and_grad(run, workload.gradient))
        return self.library.jit(run)

    def wait(self, outputs: tuple[Any, ...]) -> None:
        self.library.block_until_ready(outputs)
