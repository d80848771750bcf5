"""Gaussian kernel density of points in 3-D at those points, float32: all pairs.

Op by op this builds several tables of N × N; fused it needs none.  Counted as 10 flops a pair.
"""

from benchmarks.workload import Sizes, Workload, both_ends

SCALE = -0.5 / 0.25**2
CHECKED = 128


def setup(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    return tuple(generator.random(size, dtype=np.float32) for _ in range(3))


def program(np, x, y, z):
    dx, dy, dz = x[:, None] - x[None, :], y[:, None] - y[None, :], z[:, None] - z[None, :]
    return np.exp(SCALE * (dx * dx + dy * dy + dz * dz)).sum(axis=1)


def reference(inputs):
    import numpy as np

    wide = [array.astype(np.float64) for array in inputs]
    checks = []
    for part in both_ends(CHECKED, inputs[0].size):
        square = sum((array[part, None] - array[None, :]) ** 2 for array in wide)
        checks.append((part, (np.exp(SCALE * square).sum(axis=1),)))
    return checks


def build_numexpr():
    import numexpr
    import numpy as np

    scale = np.float32(SCALE)
    text = "exp(k * ((x - u) ** 2 + (y - v) ** 2 + (z - w) ** 2))"

    def run(x, y, z):
        values = {"x": x[:, None], "y": y[:, None], "z": z[:, None]}
        values |= {"u": x, "v": y, "w": z, "k": scale}
        return numexpr.evaluate(f"sum({text}, axis=1)", values)

    return run


def build_numba():
    import numba
    import numpy as np

    scale = np.float32(SCALE)

    @numba.njit(parallel=True)
    def run(x, y, z):
        out = np.empty_like(x)
        for i in numba.prange(x.size):
            total = np.float32(0)
            for j in range(x.size):
                dx, dy, dz = x[i] - x[j], y[i] - y[j], z[i] - z[j]
                total += np.exp(scale * (dx * dx + dy * dy + dz * dz))
            out[i] = total
        return out

    return run


WORKLOAD = Workload(
    name="density",
    title="Gaussian kernel density, all pairs in 3-D, float32",
    sizes=Sizes(cpu=8192, cuda=65536, quick=500),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=2e-5,
    traffic=lambda inputs: 4 * inputs[0].nbytes,
    variants={"numexpr": build_numexpr, "numba": build_numba},
    flops=lambda inputs: 10.0 * inputs[0].size ** 2,
    bulky=True,
)
