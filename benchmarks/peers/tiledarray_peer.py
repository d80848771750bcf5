"""This library: the plain NumPy text, recorded at each call and evaluated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, Refused, with_gradient
from benchmarks.workload import Arrays, Workload, as_tuple


class TiledArray(Peer):
    """tiledarray with its default settings; but for `settled`, which waits for compilation."""

    name = "tiledarray"
    devices = ("cpu", "cuda")
    compiles = True

    def start(self) -> None:
        import tiledarray

        self.library = tiledarray
        if self.device == "cuda":
            try:
                import cupy
            except ImportError as error:
                raise Refused(f"needs CuPy ({error})") from None
            if not cupy.cuda.is_available():
                raise Refused("finds no CUDA device")
            cupy.zeros(1).get()
        tiledarray.config.device = self.device

    @property
    def version(self) -> str:
        return self.library.__version__

    def put(self, array: np.ndarray) -> Any:
        return self.library.asarray(array)

    def build(self, workload: Workload) -> Callable[..., Any]:
        def run(*inputs: Any) -> tuple[Any, ...]:
            outputs = program(*inputs)
            self.library.evaluate(*outputs)
            return outputs

        program = self.program(workload)
        return run

    def program(self, workload: Workload) -> Callable[..., tuple[Any, ...]]:
        """Return what computes the outputs, and their gradients if those are asked for."""

        library, text = self.library, workload.program

        def program(*inputs: Any) -> Any:
            return text(library, *inputs)

        if workload.gradient:
            return with_gradient(self.library.value_and_grad(program, workload.gradient))
        return lambda *inputs: as_tuple(program(*inputs))

    def settled(self) -> AbstractContextManager[Any]:
        return self.library.config.override(compile="wait")

    def wait(self, outputs: tuple[Any, ...]) -> None:
        if self.device == "cuda":
            import cupy

            cupy.cuda.get_current_stream().synchronize()

    def get(self, outputs: tuple[Any, ...]) -> Arrays:
        return tuple(np.asarray(output) for output in outputs)

    def release(self) -> None:
        if self.device == "cuda":
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


class TiledArrayJit(TiledArray):
    """The same text under `tiledarray.jit`: recorded at the first call, replayed at the others."""

    name = "tiledarray jit"

    def build(self, workload: Workload) -> Callable[..., Any]:
        return self.library.jit(self.program(workload))
