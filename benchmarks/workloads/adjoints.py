"""Value and gradient through time steps, and of small programs, where each call's cost counts."""

from itertools import pairwise

from benchmarks.workload import Sizes, Workload, by_hand_in_double
from benchmarks.workloads import heat

WIDTHS = (20, 32, 32, 5)
PEAKS = 3


def setup_heat(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    return tuple(generator.random((size, size), dtype=np.float32) for _ in range(2))


def misfit(np, u, seen):
    return ((heat.hundred_steps(np, u) - seen) ** 2).sum()


def heat_by_hand(u, seen):
    import numpy as np

    difference = heat.hundred_steps(np, u) - seen
    slope = 2 * difference
    for _ in range(heat.STEPS):
        inner = u.dtype.type(heat.COURANT) * slope[1:-1, 1:-1]
        slope[1:-1, 1:-1] -= 4 * inner
        slope[:-2, 1:-1] += inner
        slope[2:, 1:-1] += inner
        slope[1:-1, :-2] += inner
        slope[1:-1, 2:] += inner
    return (difference**2).sum(), slope


def build_heat_jax():
    run = heat.build_jax_hundred()
    return lambda u, seen: ((run(u) - seen) ** 2).sum()


def build_heat_torch(compiled=False):
    import torch

    step = torch.compile(heat.torch_step) if compiled else heat.torch_step

    def run(u, seen):
        for _ in range(heat.STEPS):
            u = step(u)
        return ((u - seen) ** 2).sum()

    return run


def setup_net(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal((size, WIDTHS[0])), generator.random((size, WIDTHS[-1]))]
    for wide, narrow in pairwise(WIDTHS):
        arrays += [generator.standard_normal((wide, narrow)) / wide**0.5, np.zeros(narrow)]
    return tuple(arrays)


def net(np, x, wanted, w1, b1, w2, b2, w3, b3):
    hidden = np.tanh(np.tanh(x @ w1 + b1) @ w2 + b2)
    return ((hidden @ w3 + b3 - wanted) ** 2).mean()


def net_by_hand(x, wanted, w1, b1, w2, b2, w3, b3):
    import numpy as np

    first = np.tanh(x @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    difference = second @ w3 + b3 - wanted
    last = difference * (2 / difference.size)
    middle = (last @ w3.T) * (1 - second**2)
    front = (middle @ w2.T) * (1 - first**2)
    slopes = []
    for given, slope in ((x, front), (first, middle), (second, last)):
        slopes += [given.T @ slope, slope.sum(axis=0)]
    return (difference**2).mean(), *slopes


def setup_peaks(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    t = np.linspace(0, 10, size)
    seen = sum(np.exp(-(((t - c) / 0.7) ** 2)) for c in (2, 5, 8))
    start = np.array([0.8, 2.3, 0.6, 1.2, 4.8, 0.9, 0.9, 8.2, 0.5, 0.1])
    return t, seen + 0.05 * generator.standard_normal(size), start


def peaks(np, t, seen, p):
    curve = p[-1]
    for k in range(PEAKS):
        curve = curve + p[3 * k] * np.exp(-(((t - p[3 * k + 1]) / p[3 * k + 2]) ** 2))
    return ((curve - seen) ** 2).sum()


def peaks_by_hand(t, seen, p):
    import numpy as np

    places = [(t - p[3 * k + 1]) / p[3 * k + 2] for k in range(PEAKS)]
    shapes = [np.exp(-(place**2)) for place in places]
    difference = p[-1] + sum(p[3 * k] * shapes[k] for k in range(PEAKS)) - seen
    slope = np.empty_like(p)
    for k in range(PEAKS):
        slope[3 * k] = 2 * difference @ shapes[k]
        moved = 4 * p[3 * k] / p[3 * k + 2] * difference * shapes[k] * places[k]
        slope[3 * k + 1] = moved.sum()
        slope[3 * k + 2] = moved @ places[k]
    slope[-1] = 2 * difference.sum()
    return (difference**2).sum(), slope


HEAT = Workload(
    name="heat_100_gradient",
    title="gradient through 100 in-place heat steps of 1024², float32",
    sizes=Sizes(cpu=1024, cuda=1024, quick=32),
    setup=setup_heat,
    program=misfit,
    gradient=(0,),
    reference=by_hand_in_double(heat_by_hand),
    tolerance=2e-5,
    traffic=lambda inputs: 4 * heat.STEPS * inputs[0].nbytes,
    variants={
        "NumPy": lambda: heat_by_hand,
        "jax": build_heat_jax,
        "torch": build_heat_torch,
        "torch.compile": lambda: build_heat_torch(compiled=True),
    },
)

NET = Workload(
    name="net_gradient",
    title="net of 3 layers, value and gradient on 32 samples, float64",
    sizes=Sizes(cpu=32, cuda=32, quick=32),
    setup=setup_net,
    program=net,
    gradient=(2, 3, 4, 5, 6, 7),
    reference=by_hand_in_double(net_by_hand),
    tolerance=1e-10,
    traffic=lambda inputs: 2 * sum(array.nbytes for array in inputs),
    variants={"NumPy": lambda: net_by_hand},
    fixed_floor={"cuda": 10e-6, "cpu": None},
)

PEAKS_FIT = Workload(
    name="peaks_gradient",
    title="misfit of 3 peaks at 200 points, value and gradient by 10 parameters, float64",
    sizes=Sizes(cpu=200, cuda=200, quick=200),
    setup=setup_peaks,
    program=peaks,
    gradient=(2,),
    reference=by_hand_in_double(peaks_by_hand),
    tolerance=1e-10,
    traffic=lambda inputs: sum(array.nbytes for array in inputs),
    variants={"NumPy": lambda: peaks_by_hand},
    fixed_floor={"cuda": 10e-6, "cpu": None},
)
