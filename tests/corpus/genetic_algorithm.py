"""Genetic algorithm on bit strings with tournaments, and differential evolution on Rastrigin."""

import numpy as np

SIZES = {
    "test": {"population": 8, "genes": 10, "generations": 2},
    "tiny": {"population": 20, "genes": 24, "generations": 20},
    "middle": {"population": 300, "genes": 100, "generations": 12},
    "large": {"population": 5000, "genes": 200, "generations": 3},
}


def make(population, genes, generations):
    rng = np.random.RandomState(38)
    bits = rng.randint(0, 2, (population, genes))
    return bits, rng.uniform(-5, 5, (population, 6)), generations


def fitness(bits):
    """Ones, and a reward for runs."""
    return bits.sum(axis=1) + 0.5 * (bits[:, 1:] & bits[:, :-1]).sum(axis=1)


def evolve(bits, generations, rng):
    n, genes = bits.shape
    best = []
    for _ in range(generations):
        scores = fitness(bits)
        elite = bits[np.argmax(scores)].copy()
        pairs = rng.randint(0, n, (n, 2))
        winners = np.where(scores[pairs[:, 0]] >= scores[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
        parents = bits[winners]
        children = parents.copy()
        for i in range(0, n - 1, 2):
            if rng.rand() < 0.8:
                cut = rng.randint(1, genes)
                children[i, cut:] = parents[i + 1, cut:]
                children[i + 1, cut:] = parents[i, cut:]
        flips = rng.rand(n, genes) < 1 / genes
        children[flips] ^= 1
        children[0] = elite
        bits[:] = children
        best.append(fitness(bits).max())
    return np.array(best)


def rastrigin(x):
    return 10 * x.shape[-1] + np.sum(x**2 - 10 * np.cos(2 * np.pi * x), axis=-1)


def differential_evolution(x, generations, rng):
    n, d = x.shape
    cost = rastrigin(x)
    for _ in range(generations):
        a, b, c = (x[rng.permutation(n)] for _ in range(3))
        mutant = np.clip(a + 0.6 * (b - c), -5, 5)
        cross = rng.rand(n, d) < 0.7
        cross[np.arange(n), rng.randint(0, d, n)] = True
        trial = np.where(cross, mutant, x)
        trial_cost = rastrigin(trial)
        better = trial_cost < cost
        x[better] = trial[better]
        cost[better] = trial_cost[better]
    return cost


def run(bits, x, generations):
    rng = np.random.RandomState(39)
    best = evolve(bits, generations, rng)
    assert np.all(np.diff(best) >= 0)
    cost = differential_evolution(x, 3 * generations, rng)
    return best, cost, x[np.argmin(cost)], bits.mean(axis=0)
