"""(x * x).sum(), float64."""

from benchmarks.workload import Sizes, Workload


def setup(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random((size, size)),)


def program(np, x):
    return (x * x).sum()


def reference(inputs):
    import numpy as np

    wide = [(row.astype(np.longdouble) ** 2).sum() for row in inputs[0]]
    return [((), (np.asarray(sum(wide), dtype=np.float64),))]


def build_numexpr():
    import numexpr

    return lambda x: numexpr.evaluate("sum(x * x)", {"x": x})


def build_numba():
    import numba

    @numba.njit(parallel=True)
    def run(x):
        flat = x.ravel()
        total = 0.0
        for i in numba.prange(flat.size):
            total += flat[i] * flat[i]
        return total

    return run


WORKLOAD = Workload(
    name="sum_of_squares",
    title="sum of squares, float64",
    sizes=Sizes(cpu=3162, cuda=4096, quick=300),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=1e-12,
    traffic=lambda inputs: inputs[0].nbytes,
    variants={"numexpr": build_numexpr, "numba": build_numba},
)
