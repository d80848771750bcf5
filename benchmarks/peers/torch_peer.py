"""PyTorch: op by op, by its own library routine, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.peer import Peer, Refused
from benchmarks.workload import Arrays, Workload


class Torch(Peer):
    """PyTorch, op by op, without gradients."""

    name = "torch"
    devices = ("cpu", "cuda")

    def start(self) -> None:
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise Refused("finds no CUDA device")
        torch.set_grad_enabled(False)
        self.library = torch
        torch.zeros(1, device=self.device).cpu()

    @property
    def version(self) -> str:
        return self.library.__version__

    def put(self, array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":  # NumPy's arrays of it are not known to PyTorch
            words = self.library.from_numpy(np.array(array).view(np.int16))
            return words.view(self.library.bfloat16).to(self.device)
        return self.library.from_numpy(np.array(array)).to(self.device)

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, "torch")
        run = run or (lambda *inputs: workload.program(self.library, *inputs))
        return self.differentiated(run, workload.gradient) if workload.gradient else run

    def differentiated(
        self, run: Callable[..., Any], places: tuple[int, ...]
    ) -> Callable[..., tuple[Any, ...]]:
        """Return value and gradients of `run`, by its inputs at `places`."""

        def value_and_gradients(*inputs: Any) -> tuple[Any, ...]:
            with self.library.enable_grad():
                inputs = tuple(
                    tensor.detach().requires_grad_() if k in places else tensor
                    for k, tensor in enumerate(inputs)
                )
                value = run(*inputs)
                slopes = self.library.autograd.grad(value, [inputs[k] for k in places])
            return value.detach(), *slopes

        return value_and_gradients

    def wait(self, outputs: tuple[Any, ...]) -> None:
        if self.device == "cuda":
            self.library.cuda.synchronize()

    def get(self, outputs: tuple[Any, ...]) -> Arrays:
        return tuple(self._as_numpy(output.cpu()) for output in outputs)

    def _as_numpy(self, output: Any) -> np.ndarray:
        if output.dtype == self.library.bfloat16:
            output = output.float()
        found: np.ndarray = output.numpy()
        return found

    def release(self) -> None:
        if self.device == "cuda":
            self.library.cuda.empty_cache()


class TorchLibrary(Torch):
    """PyTorch's own routine for the whole workload, where it has one."""

    name = "torch library"
    only_variants = True

    def build(self, workload: Workload) -> Callable[..., Any]:
        run = self.variant(workload, "torch library")
        if run is None:
            raise Refused("has no routine for the whole of it")
        return run


class TorchCompile(Torch):
    """``torch.compile``, static shapes."""

    name = "torch.compile"
    compiles = True

    def build(self, workload: Workload) -> Callable[..., Any]:
        own = self.variant(workload, "torch.compile")
        if own is not None:
            return self.differentiated(own, workload.gradient) if workload.gradient else own
        run = self.variant(workload, "torch")
        run = run or (lambda *inputs: workload.program(self.library, *inputs))
        compiled = self.library.compile(run, dynamic=False)
        return self.differentiated(compiled, workload.gradient) if workload.gradient else compiled
