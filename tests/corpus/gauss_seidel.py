"""Gauss-Seidel over the rows of a sparse-looking dense system, and SOR over single grid points."""

import numpy as np

SIZES = {
    "test": {"n": 10, "sweeps": 4, "side": 5, "relaxations": 3},
    "tiny": {"n": 100, "sweeps": 40, "side": 16, "relaxations": 20},
    "middle": {"n": 400, "sweeps": 40, "side": 40, "relaxations": 30},
    "large": {"n": 2000, "sweeps": 60, "side": 60, "relaxations": 40},
}


def make(n, sweeps, side, relaxations):
    rng = np.random.RandomState(8)
    A = rng.rand(n, n) / n
    A += 2 * np.eye(n)
    u = np.zeros((side, side))
    u[0, :] = 1.0
    u[:, -1] = np.linspace(1, 0, side)
    return A, rng.rand(n), sweeps, u, relaxations


def gauss_seidel(A, b, sweeps):
    x = np.zeros_like(b)
    history = []
    for _ in range(sweeps):
        before = x.copy()
        for i in range(A.shape[0]):
            s1 = np.dot(A[i, :i], x[:i])
            s2 = np.dot(A[i, i + 1 :], before[i + 1 :])
            x[i] = (b[i] - s1 - s2) / A[i, i]
        change = np.linalg.norm(x - before, ord=np.inf)
        history.append(float(change))
        if change < 1e-12:
            break
    return x, history


def sor(u, omega):
    """One relaxation, in place, every point seeing its new neighbours."""
    ny, nx = u.shape
    for i in range(1, ny - 1):
        for j in range(1, nx - 1):
            mean = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
            u[i, j] += omega * (mean - u[i, j])


def run(A, b, sweeps, u, relaxations):
    x, history = gauss_seidel(A, b, sweeps)
    for _ in range(relaxations):
        sor(u, 1.7)
    return x, len(history), history[:3]
