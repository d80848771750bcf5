"""Poisson's equation on a periodic square by transforms, written for whole spectra as most do."""

import numpy as np

from benchmarks.workload import Sizes, Workload

CHECKED = 64  # rows


def setup(size, seed):
    """Return a source of mean 0, and the wave numbers along an axis."""
    source = np.random.default_rng(seed).standard_normal((size, size), dtype=np.float32)
    return source - source.mean(), np.fft.fftfreq(size, 1 / size).astype(np.float32)


def poisson(np, source, k):
    squares = k[:, None] ** 2 + k**2
    squares = np.where(squares == 0, 1, squares)
    return np.fft.ifft2(np.fft.fft2(source) / -squares).real


def reference_of(inputs):
    rows = slice(0, CHECKED)
    return [(rows, (poisson(np, *(x.astype(np.float64) for x in inputs))[rows],))]


def build_torch():
    import torch

    def run(source, k):
        squares = k[:, None] ** 2 + k**2
        squares = torch.where(squares == 0, 1, squares)
        return torch.fft.ifft2(torch.fft.fft2(source) / -squares).real

    return run


WORKLOAD = Workload(
    name="poisson",
    title="Poisson's equation by fft2 and ifft2, float32",
    sizes=Sizes(cpu=1024, cuda=8192, quick=64),
    setup=setup,
    program=poisson,
    reference=reference_of,
    tolerance=1e-5,
    traffic=lambda inputs: 2 * inputs[0].nbytes,
    variants={"torch": build_torch},
    refusals={"numexpr": "no transforms"},
)
