"""The heat equation, 5-point explicit steps, float32: one large step, and a hundred in place."""

from benchmarks.workload import Sizes, Workload, double

COURANT = 0.2
STEPS = 100
BAND = 64


def setup(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random((size, size), dtype=np.float32),)


def change(u):
    return COURANT * (
        u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    )


def one_step(np, u):
    new = u.copy()
    new[1:-1, 1:-1] += change(u)
    return new


def hundred_steps(np, u):
    u = u.copy()
    for _ in range(STEPS):
        u[1:-1, 1:-1] += change(u)
    return u


def repeated(step, times=STEPS):
    """Return what does a step so many times, each on what the one before has made."""

    def run(u):
        for _ in range(times):
            u = step(u)
        return u

    return run


def reference_one(inputs):
    (u,) = inputs
    count = min(BAND, len(u) // 2)
    (top,) = double(one_step, u[: count + 1])
    (bottom,) = double(one_step, u[-count - 1 :])
    return [
        (slice(0, count), (top[:-1],)),
        (slice(len(u) - count, len(u)), (bottom[1:],)),
    ]


def reference_hundred(inputs):
    return [(slice(None), double(hundred_steps, *inputs))]


def build_jax_one():
    return lambda u: u.at[1:-1, 1:-1].add(change(u))


def build_jax_hundred():
    import jax

    step = build_jax_one()
    return lambda u: jax.lax.fori_loop(0, STEPS, lambda _, value: step(value), u)


def torch_step(u):
    new = u.clone()
    new[1:-1, 1:-1] += change(u)
    return new


def build_torch_hundred():
    def run(u):
        u = u.clone()
        for _ in range(STEPS):
            u[1:-1, 1:-1] += change(u)
        return u

    return run


def build_compiled_hundred():
    """Compile one step; on CUDA, capture a hundred of them as one graph."""
    import torch

    loop = repeated(torch.compile(torch_step))
    graphs = {}

    def captured(u):
        if u.data_ptr() not in graphs:
            loop(u)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = loop(u)
            graphs[u.data_ptr()] = graph, out
        graph, out = graphs[u.data_ptr()]
        graph.replay()
        return out

    return lambda u: captured(u) if u.is_cuda else loop(u)


def build_numba_one():
    import numba
    import numpy as np

    courant, four = np.float32(COURANT), np.float32(4)

    @numba.njit(parallel=True)
    def run(u):
        new = np.empty_like(u)
        new[0], new[-1] = u[0], u[-1]
        for i in numba.prange(1, u.shape[0] - 1):
            new[i, 0], new[i, -1] = u[i, 0], u[i, -1]
            for j in range(1, u.shape[1] - 1):
                around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                new[i, j] = u[i, j] + courant * (around - four * u[i, j])
        return new

    return run


def build_numba_hundred():
    return repeated(build_numba_one())


def build_numexpr_one():
    import numexpr
    import numpy as np

    courant = np.float32(COURANT)

    def run(u):
        new = u.copy()
        values = {
            "n": u[:-2, 1:-1], "s": u[2:, 1:-1], "w": u[1:-1, :-2], "e": u[1:-1, 2:],
            "c": u[1:-1, 1:-1], "k": courant,
        }  # fmt: skip
        numexpr.evaluate("c + k * (n + s + w + e - 4 * c)", values, out=new[1:-1, 1:-1])
        return new

    return run


def build_numexpr_hundred():
    return repeated(build_numexpr_one())


ONE_STEP = Workload(
    name="heat_step",
    title="heat equation, one 5-point step, float32",
    sizes=Sizes(cpu=3162, cuda=16384, quick=300),
    setup=setup,
    program=one_step,
    reference=reference_one,
    tolerance=1e-6,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={
        "jax": build_jax_one,
        "torch": lambda: torch_step,
        "numexpr": build_numexpr_one,
        "numba": build_numba_one,
    },
)

HUNDRED_STEPS = Workload(
    name="heat_100",
    title="heat equation, 100 in-place steps of 1024², float32",
    sizes=Sizes(cpu=1024, cuda=1024, quick=100),
    setup=setup,
    program=hundred_steps,
    reference=reference_hundred,
    tolerance=1e-5,
    traffic=lambda inputs: 2 * STEPS * inputs[0].nbytes,
    variants={
        "jax": build_jax_hundred,
        "torch": build_torch_hundred,
        "torch.compile": build_compiled_hundred,
        "numexpr": build_numexpr_hundred,
        "numba": build_numba_hundred,
    },
)
