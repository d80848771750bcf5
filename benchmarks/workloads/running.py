"""Running totals: a mean along every row, and a sum along one very long one."""

import numpy as np

from benchmarks.workload import Sizes, Workload
from benchmarks.workloads.rows import COLUMNS, reference_of, setup

HEAD = 1 << 20  # elements of the long sum that are checked
MEAN_TOLERANCE = 2e-5  # NumPy's own sums of float32, one after the other, are less exact


def setup_mean(size, seed):
    """Return a float32 table and the number of elements up to each column."""
    return (*setup(size, seed), np.arange(1, COLUMNS + 1, dtype=np.float32))


def running_mean(np, x, n):
    return np.cumsum(x, -1) / n


def build_torch_mean():
    import torch

    return lambda x, n: torch.cumsum(x, -1) / n


def setup_sum(size, seed):
    return (np.random.default_rng(seed).random(size, dtype=np.float32) - np.float32(0.5),)


def running_sum(np, x):
    return np.cumsum(x)


def reference_of_sum(inputs):
    (x,) = inputs
    return [(slice(0, HEAD), (np.cumsum(x[:HEAD], dtype=np.float64),))]


def build_torch_sum():
    import torch

    return lambda x: torch.cumsum(x, 0)


MEAN = Workload(
    name="running_mean",
    title="running mean of every row, float32",
    sizes=Sizes(cpu=2560, cuda=32768, quick=64),
    setup=setup_mean,
    program=running_mean,
    reference=reference_of(running_mean),
    tolerance=MEAN_TOLERANCE,
    traffic=lambda inputs: 2 * inputs[0].nbytes + inputs[1].nbytes,
    variants={"torch": build_torch_mean},
    refusals={"numexpr": "no running totals"},
)
SUM = Workload(
    name="running_sum",
    title="running sum of one long row, float32",
    sizes=Sizes(cpu=1 << 24, cuda=1 << 27, quick=1 << 12),
    setup=setup_sum,
    program=running_sum,
    reference=reference_of_sum,
    tolerance=2e-4,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={"torch": build_torch_sum},
    refusals={"numexpr": "no running totals"},
)
