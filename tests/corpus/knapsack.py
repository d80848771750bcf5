"""0/1 knapsack by dynamic programming over capacities, with the chosen items traced back."""

import numpy as np

SIZES = {
    "test": {"items": 8, "capacity": 40},
    "tiny": {"items": 400, "capacity": 150},
    "middle": {"items": 300, "capacity": 30_000},
    "large": {"items": 40, "capacity": 1_000_000},
}


def make(items, capacity):
    rng = np.random.RandomState(1)
    weights = rng.randint(1, max(2, capacity // 8), items)
    values = rng.randint(10, 200, items)
    return weights, values, capacity


def run(weights, values, capacity):
    n = len(weights)
    best = np.zeros(capacity + 1, dtype=np.int64)
    keep = np.zeros((n, capacity + 1), dtype=bool)
    for i in range(n):
        w, v = weights[i], values[i]
        candidate = best[: capacity + 1 - w] + v
        better = candidate > best[w:]
        keep[i, w:] = better
        best[w:] = np.where(better, candidate, best[w:])
    chosen = []
    left = capacity
    for i in range(n - 1, -1, -1):
        if keep[i, left]:
            chosen.append(i)
            left -= int(weights[i])
    chosen = np.array(chosen[::-1])
    assert values[chosen].sum() == best[capacity]
    return {"best": best, "chosen": chosen, "weight": weights[chosen].sum()}
