"""Softmax along rows, float32."""

from benchmarks.workload import Sizes, Workload
from benchmarks.workloads.rows import reference_of, setup


def program(np, x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def build_torch():
    import torch

    def run(x):
        powers = torch.exp(x - x.amax(dim=1, keepdim=True))
        return powers / powers.sum(dim=1, keepdim=True)

    return run


def build_torch_library():
    import torch

    return lambda x: torch.softmax(x, dim=1)


def build_numexpr():
    import numexpr

    def run(x):
        powers = numexpr.evaluate("exp(x - top)", {"x": x, "top": x.max(axis=1, keepdims=True)})
        total = powers.sum(axis=1, keepdims=True)
        return numexpr.evaluate("powers / total", {"powers": powers, "total": total})

    return run


def build_numba():
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def run(x):
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            top = x[i].max()
            total = np.float32(0)
            for j in range(x.shape[1]):
                out[i, j] = np.exp(x[i, j] - top)
                total += out[i, j]
            for j in range(x.shape[1]):
                out[i, j] /= total
        return out

    return run


WORKLOAD = Workload(
    name="softmax",
    title="softmax along rows of 4096, float32",
    sizes=Sizes(cpu=2560, cuda=65536, quick=64),
    setup=setup,
    program=program,
    reference=reference_of(program),
    tolerance=1e-5,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={
        "torch": build_torch,
        "torch library": build_torch_library,
        "numexpr": build_numexpr,
        "numba": build_numba,
    },
)
