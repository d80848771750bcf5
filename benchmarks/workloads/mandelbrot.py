"""Mandelbrot's set: thirty steps of a complex map, of points that have not gone too far."""

import numpy as np

from benchmarks.workload import Sizes, Workload

STEPS = 30
CHECKED = 64  # rows, far from the set: where points leave does not hang on rounding
ONE_STEP = 1.5 / STEPS  # that a point near the circle may differ by


def setup(size, seed):
    """Return the points of a square as complex64."""
    x = np.linspace(-2.2, 0.8, size, dtype=np.float32)
    y = np.linspace(-1.5, 1.5, size, dtype=np.float32)
    return (x + np.complex64(1j) * y[:, None],)


def mandelbrot(np, c):
    z = np.zeros_like(c)
    n = np.zeros(c.shape, np.int32)
    for _ in range(STEPS):
        inside = np.abs(z) < 2
        z = np.where(inside, z * z + c, z)
        n = n + inside
    return n


def reference_of(inputs):
    (c,) = inputs
    rows = slice(0, min(CHECKED, len(c) // 8))
    return [(rows, (mandelbrot(np, c[rows].astype(np.complex128)),))]


def build_torch():
    import torch

    def run(c):
        z = torch.zeros_like(c)
        n = torch.zeros(c.shape, dtype=torch.int32, device=c.device)
        for _ in range(STEPS):
            inside = torch.abs(z) < 2
            z = torch.where(inside, z * z + c, z)
            n = n + inside
        return n

    return run


WORKLOAD = Workload(
    name="mandelbrot",
    title="Mandelbrot's set, 30 steps, complex64",
    sizes=Sizes(cpu=2048, cuda=8192, quick=64),
    setup=setup,
    program=mandelbrot,
    reference=reference_of,
    tolerance=ONE_STEP,
    traffic=lambda inputs: inputs[0].nbytes * 1.5,
    flops=lambda inputs: 16.0 * STEPS * inputs[0].size,
    variants={"torch": build_torch},
    refusals={"numexpr": "no abs of complex64"},
)
