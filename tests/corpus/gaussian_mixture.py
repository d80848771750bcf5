"""Expectation-maximization for a mixture of full Gaussians in two dimensions."""

import numpy as np

SIZES = {
    "test": {"n": 30, "k": 2, "iterations": 3},
    "tiny": {"n": 120, "k": 3, "iterations": 25},
    "middle": {"n": 6000, "k": 4, "iterations": 15},
    "large": {"n": 150_000, "k": 4, "iterations": 4},
}


def make(n, k, iterations):
    rng = np.random.default_rng(18)
    means = 6 * np.column_stack([np.cos(np.arange(k)), np.sin(np.arange(k))])
    X = means[rng.integers(0, k, n)] + rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]])
    return X, means + rng.normal(size=(k, 2)), iterations


def log_density(X, mean, covariance):
    L = np.linalg.cholesky(covariance)
    z = np.linalg.solve(L, (X - mean).T)
    return -0.5 * np.sum(z**2, axis=0) - np.log(np.diag(L)).sum() - np.log(2 * np.pi)


def run(X, means, iterations):
    n, d = X.shape
    k = len(means)
    covariances = np.tile(np.eye(d), (k, 1, 1))
    weights = np.ones(k) / k
    history = []
    for _ in range(iterations):
        logs = np.empty((n, k))
        for j in range(k):
            logs[:, j] = np.log(weights[j]) + log_density(X, means[j], covariances[j])
        top = logs.max(axis=1, keepdims=True)
        total = top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
        history.append(total.mean())
        r = np.exp(logs - total)
        counts = r.sum(axis=0)
        weights = counts / n
        means[:] = r.T @ X / counts[:, None]
        for j in range(k):
            centred = X - means[j]
            covariances[j] = (r[:, j, None] * centred).T @ centred / counts[j] + 1e-6 * np.eye(d)
    assert np.all(np.diff(history) > -1e-4)
    return weights, covariances, np.array(history), r
