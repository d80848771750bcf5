"""Modified Gram-Schmidt with a second pass, and least squares by the QR factors it gives."""

import numpy as np

SIZES = {
    "test": {"rows": 12, "columns": 4},
    "tiny": {"rows": 100, "columns": 40},
    "middle": {"rows": 2000, "columns": 50},
    "large": {"rows": 80_000, "columns": 12},
}


def make(rows, columns):
    rng = np.random.default_rng(17)
    A = rng.normal(size=(rows, columns))
    y = A @ np.arange(1.0, columns + 1) + 0.1 * rng.normal(size=rows)
    return A, y


def modified_gram_schmidt(A):
    Q = A.copy()
    n = A.shape[1]
    R = np.zeros((n, n))
    for j in range(n):
        v = Q[:, j]
        for _ in range(2):
            for i in range(j):
                h = Q[:, i] @ v
                R[i, j] += h
                v = v - h * Q[:, i]
        R[j, j] = np.linalg.norm(v)
        Q[:, j] = v / R[j, j]
    return Q, R


def run(A, y):
    Q, R = modified_gram_schmidt(A)
    orthogonal = np.abs(Q.T @ Q - np.eye(len(R))).max()
    c = Q.T @ y
    for i in range(len(c) - 1, -1, -1):
        c[i] = (c[i] - R[i, i + 1 :] @ c[i + 1 :]) / R[i, i]
    return c, R, bool(orthogonal < 1e-12), np.sum((y - A @ c) ** 2)
