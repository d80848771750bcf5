"""Forward and back substitution, row by row, for several right-hand sides one after the other."""

import numpy as np

SIZES = {
    "test": {"n": 8, "count": 2},
    "tiny": {"n": 60, "count": 30},
    "middle": {"n": 300, "count": 60},
    "large": {"n": 1400, "count": 60},
}


def make(n, count):
    rng = np.random.default_rng(11)
    factor = np.tril(rng.uniform(-1, 1, (n, n))) / n
    factor[np.arange(n), np.arange(n)] = rng.uniform(1, 2, n)
    return factor, rng.standard_normal((count, n))


def forward_substitution(L, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - np.dot(L[i, :i], x[:i])) / L[i, i]
    return x


def back_substitution(U, b):
    x = np.zeros_like(b)
    for i in range(len(b) - 1, -1, -1):
        x[i] = (b[i] - np.dot(U[i, i + 1 :], x[i + 1 :])) / U[i, i]
    return x


def run(L, right):
    solutions = np.empty_like(right)
    for k in range(len(right)):
        y = forward_substitution(L, right[k])
        solutions[k] = back_substitution(L.T, y)
    residual = np.abs(L @ (L.T @ solutions.T) - right.T).max()
    return solutions, residual < 1e-9
