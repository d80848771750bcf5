"""Ising model: Metropolis spin by spin, checkerboard sweeps, growth and flip of a cluster."""

import numpy as np

SIZES = {
    "test": {"n": 6, "flips": 20, "sweeps": 2},
    "tiny": {"n": 16, "flips": 700, "sweeps": 60},
    "middle": {"n": 200, "flips": 6000, "sweeps": 25},
    "large": {"n": 1000, "flips": 30_000, "sweeps": 4},
}


def make(n, flips, sweeps):
    rng = np.random.RandomState(41)
    spins = 2 * rng.randint(0, 2, (n, n)) - 1
    return spins, flips, sweeps


def metropolis(spins, flips, beta, rng):
    n = spins.shape[0]
    rows, cols = rng.randint(0, n, (2, flips))
    chances = rng.rand(flips)
    accepted = 0
    for i, j, u in zip(rows, cols, chances):
        s = spins[i, j]
        near = spins[(i + 1) % n, j] + spins[i, (j + 1) % n] + spins[i - 1, j] + spins[i, j - 1]
        cost = 2 * s * near
        if cost <= 0 or u < np.exp(-cost * beta):
            spins[i, j] = -s
            accepted += 1
    return accepted


def neighbour_sum(s):
    return np.roll(s, 1, 0) + np.roll(s, -1, 0) + np.roll(s, 1, 1) + np.roll(s, -1, 1)


def checkerboard(spins, beta, rng):
    n = spins.shape[0]
    black = np.indices((n, n)).sum(axis=0) % 2 == 0
    for color in (black, ~black):
        cost = 2 * spins * neighbour_sum(spins)
        flip = color & (rng.rand(n, n) < np.exp(-beta * cost))
        spins[flip] *= -1


def cluster(spins, beta, rng, most):
    joined = np.zeros(spins.shape, dtype=bool)
    joined[0, 0] = True
    same = spins == spins[0, 0]
    for _ in range(most):
        near = neighbour_sum(joined.astype(int)) > 0
        grown = joined | (near & same & (rng.rand(*spins.shape) < 1 - np.exp(-2 * beta)))
        if np.array_equal(grown, joined):
            break
        joined = grown
    spins[joined] = -spins[joined]
    return np.count_nonzero(joined)


def run(spins, flips, sweeps):
    rng = np.random.RandomState(43)
    accepted = metropolis(spins, flips, 0.44, rng)
    magnetization, energy = [], []
    for _ in range(sweeps):
        checkerboard(spins, 0.44, rng)
        magnetization.append(abs(spins.mean()))
        energy.append(-(spins * neighbour_sum(spins)).mean() / 2)
    size = cluster(spins, 0.44, rng, sweeps)
    return accepted, np.array(magnetization), np.array(energy), size
