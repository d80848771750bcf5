"""exp(-(a - b)²) · sin(c) + tanh(d), float32: a short chain heavy with functions."""

from benchmarks.workload import Sizes, Workload, both_ends, double


def setup(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    return tuple(4 * generator.random(size, dtype=np.float32) - 2 for _ in range(4))


def program(np, a, b, c, d):
    return np.exp(-((a - b) ** 2)) * np.sin(c) + np.tanh(d)


def reference(inputs):
    return [
        (part, double(program, *(array[part] for array in inputs)))
        for part in both_ends(1 << 20, inputs[0].size)
    ]


def build_numexpr():
    import numexpr

    def run(a, b, c, d):
        values = {"a": a, "b": b, "c": c, "d": d}
        return numexpr.evaluate("exp(-((a - b) ** 2)) * sin(c) + tanh(d)", values)

    return run


def build_numba():
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def run(a, b, c, d):
        out = np.empty_like(a)
        for i in numba.prange(a.size):
            difference = a[i] - b[i]
            out[i] = np.exp(-(difference * difference)) * np.sin(c[i]) + np.tanh(d[i])
        return out

    return run


WORKLOAD = Workload(
    name="expression",
    title="exp(-(a-b)²)·sin(c)+tanh(d), float32",
    sizes=Sizes(cpu=10_000_000, cuda=64 << 20, quick=100_000),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=1e-6,
    traffic=lambda inputs: 5 * inputs[0].nbytes,
    variants={"numexpr": build_numexpr, "numba": build_numba},
)
