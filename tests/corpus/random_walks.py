"""Random walks from a linear congruential generator: one step by step, and many by cumsum."""

import numpy as np

SIZES = {
    "test": {"steps": 20, "walkers": 6},
    "tiny": {"steps": 700, "walkers": 12},
    "middle": {"steps": 500, "walkers": 600},
    "large": {"steps": 1500, "walkers": 2500},
}


class Generator:
    """Minimal standard generator of Park and Miller, one number or a vector of streams."""

    def __init__(self, seed):
        self.state = seed

    def draw(self):
        self.state = (self.state * 48271) % 2147483647
        return self.state


def make(steps, walkers):
    return steps, np.arange(1, walkers + 1, dtype=np.int64) * 12345


def single_walk(steps):
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    position = np.zeros(2, dtype=int)
    trail = np.zeros((steps + 1, 2), dtype=int)
    random = Generator(2024)
    for k in range(steps):
        position += moves[random.draw() >> 8 & 3]
        trail[k + 1] = position
    visited = np.unique(trail, axis=0)
    return trail, len(visited)


def many_walks(steps, seeds):
    streams = Generator(seeds)
    draws = np.stack([streams.draw() for _ in range(steps)])
    moves = np.where((draws >> 10) & 1 == 1, 1, -1)
    return np.cumsum(moves, axis=0)


def run(steps, seeds):
    trail, distinct = single_walk(steps)
    paths = many_walks(steps, seeds)
    crossed = (np.abs(paths) >= 10).any(axis=0)
    first = (np.abs(paths) >= 10).argmax(axis=0)
    returns = np.count_nonzero(paths == 0, axis=0)
    drift = (paths**2).mean(axis=1)
    return trail, distinct, first[crossed], returns, drift, paths.max(), paths.min()
