"""Cholesky factorization of a covariance matrix, left-looking, and samples drawn with it."""

import numpy as np

SIZES = {
    "test": {"n": 7, "samples": 5},
    "tiny": {"n": 120, "samples": 50},
    "middle": {"n": 400, "samples": 200},
    "large": {"n": 1200, "samples": 1000},
}


def make(n, samples):
    points = np.sort(np.random.default_rng(5).uniform(0, 10, n))
    distance = points[:, None] - points[None, :]
    covariance = np.exp(-0.5 * distance**2) + 0.1 * np.eye(n)
    return covariance, samples


def cholesky(A):
    n = len(A)
    L = np.zeros_like(A)
    for j in range(n):
        column = A[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = column / np.sqrt(column[0])
    return L


def run(covariance, samples):
    L = cholesky(covariance)
    assert np.allclose(L @ L.T, covariance)
    z = np.random.default_rng(6).standard_normal((len(L), samples))
    paths = L @ z
    return L, paths.mean(axis=1), paths.std(axis=1, ddof=1)
