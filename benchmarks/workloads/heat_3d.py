"""The heat equation in three dimensions: 7-point explicit steps in place, float32."""

from benchmarks.workload import Sizes, Workload, double
from benchmarks.workloads.heat import repeated

RATE = 0.1
STEPS = 20
BAND = 16


def setup(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random((size, size, size), dtype=np.float32),)


def change(u):
    return RATE * (
        u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
        + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:] - 6 * u[1:-1, 1:-1, 1:-1]
    )  # fmt: skip


def program(np, u):
    u = u.copy()
    for _ in range(STEPS):
        u[1:-1, 1:-1, 1:-1] += change(u)
    return u


def reference(inputs):
    """Of both ends, each with as many planes more as steps reach."""
    (u,) = inputs
    count = min(BAND, len(u) // 2)
    (top,) = double(program, u[: count + STEPS])
    (bottom,) = double(program, u[-count - STEPS :])
    return [
        (slice(0, count), (top[:count],)),
        (slice(len(u) - count, len(u)), (bottom[-count:],)),
    ]


def build_jax():
    import jax

    def step(u):
        return u.at[1:-1, 1:-1, 1:-1].add(change(u))

    return lambda u: jax.lax.fori_loop(0, STEPS, lambda _, value: step(value), u)


def build_torch():
    def run(u):
        u = u.clone()
        for _ in range(STEPS):
            u[1:-1, 1:-1, 1:-1] += change(u)
        return u

    return run


def build_compiled():
    import torch

    @torch.compile
    def step(u):
        new = u.clone()
        new[1:-1, 1:-1, 1:-1] += change(u)
        return new

    return repeated(step, STEPS)


def build_numba():
    import numba
    import numpy as np

    rate, six = np.float32(RATE), np.float32(6)

    @numba.njit(parallel=True)
    def step(u):
        new = u.copy()
        for i in numba.prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                for k in range(1, u.shape[2] - 1):
                    around = (u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k]
                              + u[i, j, k - 1] + u[i, j, k + 1])
                    new[i, j, k] = u[i, j, k] + rate * (around - six * u[i, j, k])
        return new

    return repeated(step, STEPS)


WORKLOAD = Workload(
    name="heat_3d",
    title="heat equation in three dimensions, 20 steps in place, float32",
    sizes=Sizes(cpu=128, cuda=512, quick=24),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=1e-5,
    traffic=lambda inputs: 2 * STEPS * inputs[0].nbytes,
    variants={
        "jax": build_jax,
        "torch": build_torch,
        "torch.compile": build_compiled,
        "numba": build_numba,
    },
)
