"""Lloyd's k-means with k-means++ seeding and a mean of the members by a Python loop."""

import numpy as np

SIZES = {
    "test": {"n": 40, "k": 3, "most": 3},
    "tiny": {"n": 200, "k": 9, "most": 40},
    "middle": {"n": 8000, "k": 6, "most": 30},
    "large": {"n": 150_000, "k": 6, "most": 8},
}


def make(n, k, most):
    rng = np.random.RandomState(0)
    centers = rng.uniform(-4, 4, (k, 2))
    X = centers[rng.randint(0, k, n)] + rng.randn(n, 2)
    return X, k, most


def plus_plus(X, k, rng):
    centroids = np.zeros((k, X.shape[1]))
    centroids[0] = X[rng.randint(len(X))]
    d2 = np.full(len(X), np.inf)
    for i in range(1, k):
        d2 = np.minimum(d2, ((X - centroids[i - 1]) ** 2).sum(axis=1))
        centroids[i] = X[np.searchsorted(np.cumsum(d2), rng.rand() * d2.sum())]
    return centroids


def closest_centroid(X, centroids):
    distances = np.sqrt(((X - centroids[:, np.newaxis]) ** 2).sum(axis=2))
    return np.argmin(distances, axis=0)


def run(X, k, most):
    centroids = plus_plus(X, k, np.random.RandomState(7))
    iterations = 0
    for _ in range(most):
        labels = closest_centroid(X, centroids)
        new = np.array([X[labels == j].mean(axis=0) for j in range(k)])
        iterations += 1
        if np.allclose(new, centroids):
            break
        centroids = new
    inertia = np.sum((X - centroids[labels]) ** 2)
    return {"centroids": centroids, "labels": labels, "sizes": np.bincount(labels, minlength=k),
            "inertia": inertia, "iterations": iterations}  # fmt: skip
