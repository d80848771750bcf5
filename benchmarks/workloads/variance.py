"""Variance over axis 0 of a tall float32 table: one pass suffices, NumPy takes three."""

from benchmarks.workload import Sizes, Workload, both_ends
from benchmarks.workloads.rows import setup


def program(np, x):
    return x.var(axis=0)


def reference(inputs):
    import numpy as np

    (x,) = inputs
    return [
        (part, (x[:, part].astype(np.float64).var(axis=0),)) for part in both_ends(128, x.shape[1])
    ]


def build_torch():
    return lambda x: x.var(dim=0, correction=0)


def build_numba():
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def run(x):
        rows, columns = x.shape
        out = np.empty(columns, np.float32)
        width = 64
        for block in numba.prange((columns + width - 1) // width):
            first = block * width
            last = min(first + width, columns)
            mean = np.zeros(width, np.float32)
            square = np.zeros(width, np.float32)
            for i in range(rows):
                weight = np.float32(1) / np.float32(i + 1)
                for j in range(first, last):
                    delta = x[i, j] - mean[j - first]
                    mean[j - first] += delta * weight
                    square[j - first] += delta * (x[i, j] - mean[j - first])
            for j in range(first, last):
                out[j] = square[j - first] / np.float32(rows)
        return out

    return run


WORKLOAD = Workload(
    name="variance",
    title="variance over axis 0, float32",
    sizes=Sizes(cpu=2560, cuda=65536, quick=64),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=2e-4,
    traffic=lambda inputs: inputs[0].nbytes,
    variants={"torch": build_torch, "numba": build_numba},
    refusals={"numexpr": "no variance along an axis"},
)
