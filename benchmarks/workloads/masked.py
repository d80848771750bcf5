"""Mean and deviation of what a mask leaves, down the columns of a float32 table."""

import numpy as np

from benchmarks.workload import Sizes, Workload, both_ends, double

THRESHOLD = np.float32(0.3)


def setup(size, seed):
    return (np.random.default_rng(seed).random((size, size), dtype=np.float32),)


def program(np, x):
    inside = x > THRESHOLD
    count = inside.sum(axis=0)
    mean = np.where(inside, x, 0).sum(axis=0) / count
    return mean, np.sqrt(np.where(inside, (x - mean) ** 2, 0).sum(axis=0) / count)


def reference(inputs):
    (x,) = inputs
    return [(part, double(program, x[:, part])) for part in both_ends(128, x.shape[1])]


def build_torch():
    import torch

    def run(x):
        inside = x > float(THRESHOLD)
        count = inside.sum(0)
        mean = torch.where(inside, x, 0.0).sum(0) / count
        return mean, torch.sqrt(torch.where(inside, (x - mean) ** 2, 0.0).sum(0) / count)

    return run


WORKLOAD = Workload(
    name="masked",
    title="masked mean and deviation over axis 0, float32",
    sizes=Sizes(cpu=3162, cuda=16384, quick=64),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=2e-4,
    traffic=lambda inputs: inputs[0].nbytes,
    variants={"torch": build_torch},
)
