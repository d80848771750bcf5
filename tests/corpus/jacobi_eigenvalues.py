"""Cyclic Jacobi rotations for the eigenvalues and eigenvectors of a symmetric matrix."""

import numpy as np

SIZES = {
    "test": {"n": 4, "sweeps": 2},
    "tiny": {"n": 12, "sweeps": 4},
    "middle": {"n": 32, "sweeps": 5},
    "large": {"n": 70, "sweeps": 5},
}


def make(n, sweeps):
    rng = np.random.default_rng(12)
    B = rng.integers(-9, 10, (n, n)).astype(float)
    return B + B.T, sweeps


def rotate(A, V, p, q):
    if abs(A[p, q]) < 1e-300:
        return
    theta = (A[q, q] - A[p, p]) / (2.0 * A[p, q])
    t = np.copysign(1.0, theta) / (abs(theta) + np.sqrt(theta * theta + 1.0))
    c = 1.0 / np.sqrt(t * t + 1.0)
    s = t * c
    for M in (A, A.T, V):
        first = c * M[:, p] - s * M[:, q]
        M[:, q] = s * M[:, p] + c * M[:, q]
        M[:, p] = first


def run(A, sweeps):
    n = A.shape[0]
    original = A.copy()
    V = np.eye(n)
    off = []
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                rotate(A, V, p, q)
        off.append(np.sqrt(2.0 * np.sum(np.tril(A, -1) ** 2)))
    order = np.argsort(np.diag(A))
    values = np.diag(A)[order]
    vectors = V[:, order]
    error = np.abs(original @ vectors - vectors * values).max()
    return values, off[0], bool(error < 10.0 * off[-1] + 1e-10), np.abs(vectors).sum(axis=0)
