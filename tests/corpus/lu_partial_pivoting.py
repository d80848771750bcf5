"""LU factorization with partial pivoting, in place, and the solution of a system by it."""

import numpy as np

SIZES = {
    "test": {"n": 8},
    "tiny": {"n": 100},
    "middle": {"n": 240},
    "large": {"n": 600},
}


def make(n):
    rng = np.random.RandomState(3)
    return rng.rand(n, n) - 0.5, rng.rand(n)


def lu_decompose(A):
    """Overwrite A with its factors; return the row order."""
    n = A.shape[0]
    perm = np.arange(n)
    for k in range(n - 1):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            A[[k, p]] = A[[p, k]]
            perm[[k, p]] = perm[[p, k]]
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return perm


def solve(LU, perm, b):
    n = len(b)
    x = b[perm]
    for i in range(1, n):
        x[i] -= LU[i, :i] @ x[:i]
    for i in reversed(range(n)):
        x[i] = (x[i] - LU[i, i + 1 :] @ x[i + 1 :]) / LU[i, i]
    return x


def run(A, b):
    original = A.copy()
    perm = lu_decompose(A)
    x = solve(A, perm, b)
    sign, logdet = np.linalg.slogdet(original)
    by_factors = np.log(np.abs(np.diag(A))).sum()
    return {
        "x": x,
        "perm": perm,
        "solved": np.allclose(original @ x, b),
        "determinant": np.isclose(by_factors, logdet),
        "sign": sign,
    }
