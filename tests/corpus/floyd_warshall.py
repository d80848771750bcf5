"""All shortest paths by Floyd-Warshall with predecessors, beside Bellman-Ford from one node."""

import numpy as np

SIZES = {
    "test": {"n": 7, "degree": 2},
    "tiny": {"n": 70, "degree": 3},
    "middle": {"n": 150, "degree": 4},
    "large": {"n": 450, "degree": 5},
}


def make(n, degree):
    rng = np.random.RandomState(9)
    start = np.repeat(np.arange(n), degree)
    end = (start + rng.randint(1, n, n * degree)) % n
    length = rng.randint(1, 100, n * degree)
    return n, start, end, length


def floyd_warshall(D):
    n = len(D)
    via = np.full((n, n), -1)
    for k in range(n):
        through = D[:, k][:, None] + D[k][None, :]
        shorter = through < D
        D[shorter] = through[shorter]
        via[shorter] = k
    return via


def bellman_ford(n, start, end, length, source):
    distance = np.full(n, np.inf)
    distance[source] = 0
    for _ in range(n - 1):
        before = distance.copy()
        np.minimum.at(distance, end, distance[start] + length)
        if np.array_equal(before, distance):
            break
    return distance


def path(via, i, j):
    k = via[i, j]
    return [] if k < 0 else [*path(via, i, k), int(k), *path(via, k, j)]


def run(n, start, end, length):
    D = np.full((n, n), np.inf)
    np.minimum.at(D, (start, end), length)
    np.fill_diagonal(D, 0.0)
    via = floyd_warshall(D)
    one = bellman_ford(n, start, end, length, 0)
    assert np.array_equal(D[0], one)
    reached = np.isfinite(D)
    far = np.unravel_index(np.argmax(np.where(reached, D, -1)), D.shape)
    return D, via, far, path(via, *far), D[reached].mean()
