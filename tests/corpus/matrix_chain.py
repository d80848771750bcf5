"""Best order of a chain of matrix products, by diagonals of the dynamic programming table."""

import numpy as np

SIZES = {
    "test": {"count": 6},
    "tiny": {"count": 28},
    "middle": {"count": 100},
    "large": {"count": 260},
}


def make(count):
    return (np.random.default_rng(2).integers(5, 60, count + 1),)


def brackets(split, i, j):
    if i == j:
        return f"A{i}"
    k = int(split[i, j])
    return "(" + brackets(split, i, k) + brackets(split, k + 1, j) + ")"


def run(sizes):
    n = len(sizes) - 1
    cost = np.zeros((n, n), dtype=np.int64)
    split = np.zeros((n, n), dtype=np.int64)
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            k = np.arange(i, j)
            total = cost[i, i:j] + cost[i + 1 : j + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
            best = np.argmin(total)
            cost[i, j] = total[best]
            split[i, j] = i + best
    return cost, brackets(split, 0, n - 1)
