"""Layer normalization along rows with scale and shift, float32."""

from benchmarks.workload import Sizes, Workload
from benchmarks.workloads import rows

EPSILON = 1e-5


def setup(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed + 1)
    scale, shift = (generator.random(rows.COLUMNS, dtype=np.float32) for _ in range(2))
    return (*rows.setup(size, seed), scale, shift)


def program(np, x, scale, shift):
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * scale + shift


def build_torch_library():
    import torch

    return lambda x, scale, shift: torch.nn.functional.layer_norm(
        x, x.shape[1:], scale, shift, EPSILON
    )


def build_numexpr():
    import numexpr
    import numpy as np

    epsilon = np.float32(EPSILON)

    def run(x, scale, shift):
        mean = x.mean(axis=1, keepdims=True)
        centred = numexpr.evaluate("x - mean", {"x": x, "mean": mean})
        square = numexpr.evaluate("centred * centred", {"centred": centred})
        variance = square.mean(axis=1, keepdims=True) + epsilon
        values = {"c": centred, "v": variance, "a": scale, "b": shift}
        return numexpr.evaluate("c / sqrt(v) * a + b", values)

    return run


def build_numba():
    import numba
    import numpy as np

    epsilon = np.float32(EPSILON)

    @numba.njit(parallel=True)
    def run(x, scale, shift):
        out = np.empty_like(x)
        count = np.float32(x.shape[1])
        for i in numba.prange(x.shape[0]):
            mean = np.float32(0)
            for j in range(x.shape[1]):
                mean += x[i, j]
            mean /= count
            variance = np.float32(0)
            for j in range(x.shape[1]):
                variance += (x[i, j] - mean) * (x[i, j] - mean)
            deviation = np.sqrt(variance / count + epsilon)
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) / deviation * scale[j] + shift[j]
        return out

    return run


WORKLOAD = Workload(
    name="layer_norm",
    title="layer norm along rows of 4096, float32",
    sizes=Sizes(cpu=2560, cuda=65536, quick=64),
    setup=setup,
    program=program,
    reference=rows.reference_of(program),
    tolerance=1e-5,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={
        "torch library": build_torch_library,
        "numexpr": build_numexpr,
        "numba": build_numba,
    },
)
