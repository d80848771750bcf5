"""Implicit diffusion in one dimension: Thomas algorithm for the tridiagonal system of each step."""

import numpy as np

SIZES = {
    "test": {"n": 10, "columns": 1, "steps": 3},
    "tiny": {"n": 100, "columns": 1, "steps": 12},
    "middle": {"n": 200, "columns": 300, "steps": 40},
    "large": {"n": 500, "columns": 4000, "steps": 12},
}


def make(n, columns, steps):
    x = np.linspace(0, 1, n)
    modes = np.arange(1, columns + 1) % 7 + 1
    u = np.sin(np.pi * np.outer(x, modes))
    return u, 0.4, steps


def thomas(lower, diagonal, upper, d):
    """Solve for all columns of d at once."""
    n = len(diagonal)
    cp = np.zeros(n)
    dp = np.zeros_like(d)
    cp[0] = upper[0] / diagonal[0]
    dp[0] = d[0] / diagonal[0]
    for i in range(1, n):
        m = diagonal[i] - lower[i] * cp[i - 1]
        cp[i] = upper[i] / m
        dp[i] = (d[i] - lower[i] * dp[i - 1]) / m
    x = np.empty_like(d)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def run(u, r, steps):
    n = u.shape[0]
    a = np.full(n, -r)
    b = np.full(n, 1 + 2 * r)
    c = np.full(n, -r)
    b[0] = b[-1] = 1.0
    c[0] = a[-1] = 0.0
    for _ in range(steps):
        u[[0, -1]] = 0.0
        u[:] = thomas(a, b, c, u)
    energy = (u**2).sum(axis=0)
    return energy, u.max()
