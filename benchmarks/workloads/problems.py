"""Many small problems: factorizations, regressions, filters in the frequency domain."""

from functools import partial

import numpy as np

from benchmarks.workload import Sizes, Workload

RIDGE = 0.1
CHECKED = 64  # problems


def in_part(program, wide):
    """Return a reference of the first problems, in double precision; what is shared stays whole."""
    def reference(inputs):
        count = len(inputs[0])
        few = [x[:CHECKED] if len(x) == count else x for x in inputs]
        return [(slice(0, CHECKED), (program(np, *(x.astype(wide) for x in few)),))]

    return reference


def setup_factor(size, seed, n=32):
    """Return positive definite matrices, and a right side for each."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((size, n, n), dtype=np.float32)
    a = x @ x.swapaxes(-1, -2) / np.float32(n) + np.eye(n, dtype=np.float32)
    return a, random.standard_normal((size, n), dtype=np.float32)


def factor_and_solve(np, a, b):
    factor = np.linalg.cholesky(a)
    y = np.linalg.solve(factor, b[..., None])
    return np.linalg.solve(np.swapaxes(factor, -1, -2), y)[..., 0]


def factor_torch():
    import torch

    return lambda a, b: torch.cholesky_solve(b[..., None], torch.linalg.cholesky(a))[..., 0]


def setup_filter(size, seed, n):
    """Return complex64 rows, and what multiplies their transforms."""
    random = np.random.default_rng(seed)
    parts = random.standard_normal((2, size, n), dtype=np.float32)
    h = random.standard_normal((2, n), dtype=np.float32)
    return parts[0] + np.complex64(1j) * parts[1], h[0] + np.complex64(1j) * h[1]


def filtered(np, x, h):
    return np.fft.ifft(np.fft.fft(x) * h)


def filter_torch():
    import torch

    return lambda x, h: torch.fft.ifft(torch.fft.fft(x) * h)


def spectrum(np, x, window):
    return abs(np.fft.fft(x * window)) ** 2


def spectrum_torch():
    import torch

    return lambda x, window: torch.fft.fft(x * window).abs() ** 2


def setup_regressions(size, seed, rows, columns):
    """Return for each problem a table and what it should explain."""
    random = np.random.default_rng(seed)
    return (random.standard_normal((size, rows, columns), dtype=np.float32),
            random.standard_normal((size, rows), dtype=np.float32))


def normal_equations(np, x, y):
    turned = np.swapaxes(x, -1, -2)
    return turned @ x + RIDGE * np.eye(x.shape[-1], dtype=x.dtype), (turned @ y[..., None])[..., 0]


def ridge(np, x, y):
    a, b = normal_equations(np, x, y)
    return np.linalg.solve(a, b[..., None])[..., 0]


def least_squares(np, x, y):
    return factor_and_solve(np, *normal_equations(np, x, y))


def equations_torch(x, y):
    import torch

    turned = x.transpose(-1, -2)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return turned @ x + RIDGE * eye, turned @ y[..., None]


def ridge_torch():
    import torch

    return lambda x, y: torch.linalg.solve(*equations_torch(x, y))[..., 0]


def least_squares_torch():
    import torch

    def run(x, y):
        a, b = equations_torch(x, y)
        return torch.cholesky_solve(b, torch.linalg.cholesky(a))[..., 0]

    return run


_REFUSALS = {"numexpr": "no linear algebra, no transforms"}

FACTOR = Workload(
    name="small_cholesky",
    title="Cholesky and solve, 32×32, float32",
    sizes=Sizes(cpu=10_000, cuda=100_000, quick=100),
    setup=setup_factor,
    program=factor_and_solve,
    reference=in_part(factor_and_solve, np.float64),
    tolerance=1e-4,
    traffic=lambda inputs: inputs[0].nbytes + 2 * inputs[1].nbytes,
    variants={"torch": factor_torch},
    refusals=_REFUSALS,
)


def of_rows(name, title, program, torch, sizes, results, n):
    """Return a workload of rows of complex64; its results are so many times as large."""
    return Workload(
        name=name,
        title=title,
        sizes=sizes,
        setup=partial(setup_filter, n=n),
        program=program,
        reference=in_part(program, np.complex128),
        tolerance=1e-5,
        traffic=lambda inputs: int((1 + results) * inputs[0].nbytes) + inputs[1].nbytes,
        variants={"torch": torch},
        refusals=_REFUSALS,
    )


FILTER = of_rows(
    "small_filter", "ifft(fft(x) * h) of rows of 1024, complex64", filtered, filter_torch,
    Sizes(cpu=4096, cuda=65_536, quick=64), 1, 1024)
LONG_FILTER = of_rows(
    "long_filter", "ifft(fft(x) * h) of rows of 65,536, complex64", filtered, filter_torch,
    Sizes(cpu=64, cuda=1024, quick=2), 1, 1 << 16)
LONG_SPECTRUM = of_rows(
    "long_spectrum", "abs(fft(x * window))**2 of rows of 65,536, complex64", spectrum,
    spectrum_torch, Sizes(cpu=64, cuda=1024, quick=2), 0.5, 1 << 16)
RIDGES = Workload(
    name="small_ridge",
    title="ridge regression, 24×12, float32",
    sizes=Sizes(cpu=100_000, cuda=100_000, quick=100),
    setup=partial(setup_regressions, rows=24, columns=12),
    program=ridge,
    reference=in_part(ridge, np.float64),
    tolerance=1e-3,
    traffic=lambda inputs: inputs[0].nbytes + inputs[1].nbytes * 3 // 2,
    variants={"torch": ridge_torch},
    refusals=_REFUSALS,
)
LEAST_SQUARES = Workload(
    name="small_least_squares",
    title="least squares by Cholesky, 128×16, float32",
    sizes=Sizes(cpu=20_000, cuda=20_000, quick=100),
    setup=partial(setup_regressions, rows=128, columns=16),
    program=least_squares,
    reference=in_part(least_squares, np.float64),
    tolerance=1e-3,
    traffic=lambda inputs: inputs[0].nbytes + inputs[1].nbytes * 9 // 8,
    variants={"torch": least_squares_torch},
    refusals=_REFUSALS,
)
