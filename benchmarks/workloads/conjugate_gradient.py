"""Fifty iterations of a conjugate gradient with the 5-point operator, written with `np.pad`."""

from benchmarks.workload import Sizes, Workload, double

ITERATIONS = 50
ARRAYS = 8  # that each iteration must read or write: p twice, x and r and p updated


def setup(size, seed):
    import numpy as np

    return (np.random.default_rng(seed).random((size, size)),)


def around(q):
    return q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:]


def program(np, b):
    x = np.zeros_like(b)
    r = p = b
    rr = np.vdot(r, r)
    for _ in range(ITERATIONS):
        q = 4 * p - around(np.pad(p, 1))
        alpha = rr / np.vdot(p, q)
        x = x + alpha * p
        r = r - alpha * q
        before, rr = rr, np.vdot(r, r)
        p = r + (rr / before) * p
    return x


def reference(inputs):
    return [(slice(None), double(program, *inputs))]


class _Torch:
    """The names of NumPy's that the program uses."""

    @staticmethod
    def zeros_like(b):
        import torch

        return torch.zeros_like(b)

    @staticmethod
    def vdot(x, y):
        import torch

        return torch.dot(x.reshape(-1), y.reshape(-1))

    @staticmethod
    def pad(p, width):
        import torch

        return torch.nn.functional.pad(p, (width,) * 4)


def build_torch():
    return lambda b: program(_Torch, b)


def build_compiled():
    import torch

    return torch.compile(lambda b: program(_Torch, b))


WORKLOAD = Workload(
    name="conjugate_gradient",
    title="50 iterations of a conjugate gradient, 2048², float64",
    sizes=Sizes(cpu=1024, cuda=2048, quick=64),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=1e-7,
    traffic=lambda inputs: ARRAYS * ITERATIONS * inputs[0].nbytes,
    variants={"torch": build_torch, "torch.compile": build_compiled},
    refusals={"numexpr": "no views and no sums of products", "numba": "no np.pad"},
)
