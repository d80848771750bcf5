"""Conjugate gradients for Poisson's equation on a square, without a matrix."""

import numpy as np

SIZES = {
    "test": {"n": 6, "most": 4},
    "tiny": {"n": 12, "most": 200},
    "middle": {"n": 150, "most": 120},
    "large": {"n": 1000, "most": 25},
}


def make(n, most):
    x = np.linspace(0, 1, n + 2)[1:-1]
    X, Y = np.meshgrid(x, x, indexing="ij")
    f = np.exp(-30 * ((X - 0.3) ** 2 + (Y - 0.6) ** 2)) - X * Y
    return f, 1.0 / (n + 1), most


def laplacian(u):
    p = np.pad(u, 1)
    return 4 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]


def run(f, h, most):
    b = f * h * h
    u = np.zeros_like(b)
    r = b - laplacian(u)
    p = r.copy()
    rs = np.sum(r * r)
    norms = []
    for _ in range(most):
        Ap = laplacian(p)
        alpha = rs / np.sum(p * Ap)
        u += alpha * p
        r -= alpha * Ap
        new = np.sum(r * r)
        norms.append(np.sqrt(new))
        if norms[-1] < 1e-9 * norms[0]:
            break
        p = r + (new / rs) * p
        rs = new
    return u, len(norms), np.array(norms[:5])
