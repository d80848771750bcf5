"""Clustering by distances: DBSCAN, single linkage by merging rows, mean shift, silhouettes."""

import numpy as np

SIZES = {
    "test": {"n": 14, "linked": 6, "shifts": 2},
    "tiny": {"n": 90, "linked": 40, "shifts": 8},
    "middle": {"n": 320, "linked": 150, "shifts": 12},
    "large": {"n": 1200, "linked": 400, "shifts": 8},
}


def make(n, linked, shifts):
    rng = np.random.RandomState(54)
    angle = rng.uniform(0, np.pi, n)
    side = np.arange(n) % 2
    X = np.column_stack([np.cos(angle) * (1 - 2 * side) + side, np.sin(angle) * (1 - 2 * side)])
    return X + 0.06 * rng.randn(n, 2), linked, shifts


def distance_matrix(X):
    difference = X[:, None, :] - X[None, :, :]
    return np.sqrt((difference**2).sum(-1))


def dbscan(D, eps, least):
    n = len(D)
    labels = np.full(n, -1)
    near = np.less_equal(D, eps)
    core = near.sum(axis=1) >= least
    cluster = 0
    for i in range(n):
        if labels[i] != -1 or not core[i]:
            continue
        front = np.zeros(n, dtype=bool)
        front[i] = True
        while front.any():
            labels[front] = cluster
            reach = near[front & core].any(axis=0)
            front = reach & (labels == -1)
        cluster += 1
    return labels, cluster


def single_linkage(D):
    D = D.copy()
    n = len(D)
    np.fill_diagonal(D, np.inf)
    heights = np.zeros(n - 1)
    members = np.arange(n)
    for k in range(n - 1):
        i, j = divmod(int(np.argmin(D)), n)
        i, j = min(i, j), max(i, j)
        heights[k] = D[i, j]
        D[i] = D[:, i] = np.minimum(D[i], D[j])
        D[i, i] = np.inf
        D[j, :] = D[:, j] = np.inf
        if k < n - 2:
            members[members == j] = i
    return heights, members


def mean_shift(X, bandwidth, shifts):
    points = X.copy()
    for _ in range(shifts):
        for i in range(len(points)):
            weights = np.exp(-0.5 * ((X - points[i]) ** 2).sum(axis=1) / bandwidth**2)
            points[i] = weights @ X / weights.sum()
    return points


def silhouette(D, labels):
    kinds = np.unique(labels)
    means = np.stack([D[:, labels == k].mean(axis=1) for k in kinds], axis=1)
    sizes = np.array([(labels == k).sum() for k in kinds])
    own = np.searchsorted(kinds, labels)
    rows = np.arange(len(D))
    inner = means[rows, own] * sizes[own] / np.maximum(sizes[own] - 1, 1)
    means[rows, own] = np.inf
    outer = means.min(axis=1)
    return np.where(sizes[own] > 1, (outer - inner) / np.maximum(outer, inner), 0.0)


def run(X, linked, shifts):
    D = distance_matrix(X)
    labels, clusters = dbscan(D, 0.3, 3)
    heights, members = single_linkage(D[:linked, :linked])
    assert np.all(np.diff(heights) >= 0)
    halves = (X[:, 0] > 0.5).astype(int)
    return labels, clusters, heights, members, mean_shift(X, 0.5, shifts), silhouette(D, halves)
