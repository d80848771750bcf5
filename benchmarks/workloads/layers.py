"""A layer of a net: a product of matrices, a bias, a rectification; in three precisions."""

import ml_dtypes
import numpy as np

from benchmarks.workload import Sizes, Workload

HALF = np.dtype(ml_dtypes.bfloat16)
# Rates of cuBLAS on an H200 (shared/workloads.md), in flops a second.
RATES = {"bfloat16": 685e12, "float32": 50.9e12, "float64": 60.8e12}
CHECKED = 64  # rows


def setup_in(dtype):
    def setup(size, seed):
        random = np.random.default_rng(seed)
        shapes = (size, size), (size, size), (size,)
        return tuple(random.standard_normal(shape, dtype=np.float32).astype(dtype)
                     for shape in shapes)

    return setup


def program(np, a, b, bias):
    return np.maximum(a @ b + bias, np.asarray(0, a.dtype))


def reference(inputs):
    a, b, bias = inputs
    wide = (a[:CHECKED].astype(np.float64), b.astype(np.float64), bias.astype(np.float64))
    return [(slice(0, len(wide[0])), (program(np, *wide),))]


def build_torch():
    import torch

    return lambda a, b, bias: torch.relu(a @ b + bias)


def layer(dtype, cuda, tolerance):
    """Return the workload of a dtype, for square matrices of a size."""
    name = np.dtype(dtype).name
    return Workload(
        name=f"layer_{name}",
        title=f"maximum(a @ b + bias, 0), {name}",
        sizes=Sizes(cpu=512, cuda=cuda, quick=64),
        setup=setup_in(dtype),
        program=program,
        reference=reference,
        tolerance=tolerance,
        traffic=lambda inputs: 3 * inputs[0].nbytes,
        fixed_floor={"cuda": 2 * cuda**3 / RATES[name], "cpu": None},
        variants={"torch": build_torch},
        refusals={"CuPy": "has no bfloat16"} if name == "bfloat16" else {},
    )


HALF_LAYER = layer(HALF, 8192, 0.02)
SINGLE_LAYER = layer(np.float32, 4096, 1e-4)
DOUBLE_LAYER = layer(np.float64, 4096, 1e-11)
