"""150 dependent operations on 1,000 elements: what is left is the cost of each call."""

from benchmarks.workload import Sizes, Workload, double

ROUNDS = 50


def setup(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random(size, dtype=np.float32),)


def program(np, x):
    for _ in range(ROUNDS):
        x = x * 1.001
        x = x + 0.5
        x = np.sqrt(x)
    return x


def reference(inputs):
    return [(slice(None), double(program, *inputs))]


def build_numba():
    import numba
    import numpy as np

    factor, term = np.float32(1.001), np.float32(0.5)

    @numba.njit
    def run(x):
        out = np.empty_like(x)
        for i in range(x.size):
            value = x[i]
            for _ in range(ROUNDS):
                value = np.sqrt(value * factor + term)
            out[i] = value
        return out

    return run


WORKLOAD = Workload(
    name="dispatch",
    title="150 dependent operations on 1,000 elements, float32",
    sizes=Sizes(cpu=1000, cuda=1000, quick=1000),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=1e-5,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={"numba": build_numba},
    refusals={"numexpr": "one text of 150 nested operations is no use of it"},
    fixed_floor={"cuda": 10e-6, "cpu": None},
)
