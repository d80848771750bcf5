"""QR by Householder reflections; the reflectors are kept and applied to a right-hand side."""

import numpy as np

SIZES = {
    "test": {"m": 9, "n": 5},
    "tiny": {"m": 120, "n": 40},
    "middle": {"m": 300, "n": 100},
    "large": {"m": 1500, "n": 200},
}


def make(m, n):
    t = np.cos(np.pi * (np.arange(m) + 0.5) / m) * 0.999
    A = np.cos(np.outer(np.arccos(t), np.arange(n)))  # Chebyshev polynomials
    return A, np.exp(t) * np.sin(5 * t)


def householder(A):
    R = A.copy()
    n = R.shape[1]
    vectors = []
    for k in range(n):
        v = R[k:, k].copy()
        v[0] += np.copysign(np.linalg.norm(v), v[0])
        v /= np.linalg.norm(v)
        R[k:, k:] -= 2.0 * np.outer(v, v @ R[k:, k:])
        vectors.append(v)
    return vectors, np.triu(R[:n])


def apply_transposed(vectors, b):
    b = b.copy()
    for k, v in enumerate(vectors):
        b[k:] -= 2.0 * v * (v @ b[k:])
    return b


def run(A, b):
    vectors, R = householder(A)
    n = R.shape[1]
    x = np.linalg.solve(R, apply_transposed(vectors, b)[:n])
    normal = A.T @ (b - A @ x)
    return x, np.abs(np.diag(R)), bool(np.max(np.abs(normal)) < 1e-9)
