"""Kohonen's map trained sample by sample, and in batches; distances between its units."""

import numpy as np

SIZES = {
    "test": {"side": 3, "colors": 6, "epochs": 1},
    "tiny": {"side": 8, "colors": 60, "epochs": 5},
    "middle": {"side": 40, "colors": 200, "epochs": 5},
    "large": {"side": 120, "colors": 150, "epochs": 2},
}


def make(side, colors, epochs):
    rng = np.random.RandomState(60)
    return rng.rand(colors, 3), rng.rand(side, side, 3), epochs


def best_unit(weights, sample):
    d = ((weights - sample) ** 2).sum(axis=2)
    return np.unravel_index(np.argmin(d), d.shape)


def train(weights, data, epochs):
    """In place."""
    side = weights.shape[0]
    rows, cols = np.indices((side, side))
    total = epochs * len(data)
    t = 0
    for _ in range(epochs):
        for sample in data:
            progress = t / total
            radius = max(side / 2 * np.exp(-3 * progress), 0.5)
            rate = 0.5 * np.exp(-2 * progress)
            i, j = best_unit(weights, sample)
            d2 = (rows - i) ** 2 + (cols - j) ** 2
            influence = np.exp(-d2 / (2 * radius**2))
            influence[d2 > (3 * radius) ** 2] = 0
            weights += rate * influence[..., np.newaxis] * (sample - weights)
            t += 1


def train_batch(weights, data, radius):
    side = weights.shape[0]
    flat = weights.reshape(-1, 3)
    d = (flat**2).sum(1) - 2 * data @ flat.T
    winners = d.argmin(axis=1)
    grid = np.stack(np.divmod(np.arange(side * side), side), axis=1)
    apart = ((grid[winners][:, None] - grid[None]) ** 2).sum(axis=-1)
    h = np.exp(-apart / (2 * radius**2))
    return (h.T @ data / h.sum(axis=0)[:, None]).reshape(weights.shape), winners


def unified_distance(weights):
    u = np.zeros(weights.shape[:2])
    right = np.linalg.norm(np.diff(weights, axis=1), axis=2)
    below = np.linalg.norm(np.diff(weights, axis=0), axis=2)
    u[:, :-1] += right
    u[:, 1:] += right
    u[:-1] += below
    u[1:] += below
    return u / 4


def run(data, weights, epochs):
    train(weights, data, epochs)
    batch, winners = train_batch(weights, data, 1.5)
    error = np.sqrt(((data - batch.reshape(-1, 3)[winners]) ** 2).sum(axis=1)).mean()
    image = (255 * weights).astype(np.uint8)
    return batch, winners, error, unified_distance(weights), image
