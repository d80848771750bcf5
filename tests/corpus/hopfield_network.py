"""Hopfield memory: Hebb's rule, recall by units or all at once; a restricted Boltzmann machine."""

import numpy as np

SIZES = {
    "test": {"units": 9, "patterns": 2, "sweeps": 1, "epochs": 1},
    "tiny": {"units": 64, "patterns": 4, "sweeps": 6, "epochs": 40},
    "middle": {"units": 256, "patterns": 12, "sweeps": 25, "epochs": 60},
    "large": {"units": 1024, "patterns": 40, "sweeps": 40, "epochs": 12},
}


def make(units, patterns, sweeps, epochs):
    rng = np.random.RandomState(56)
    memories = np.sign(rng.randn(patterns, units)).astype(int)
    damaged = memories[0].copy()
    damaged[rng.permutation(units)[: units // 5]] *= -1
    return memories, damaged, sweeps, epochs


def hebb(memories):
    n = memories.shape[1]
    W = np.zeros((n, n))
    for p in memories:
        W += np.outer(p, p)
    np.fill_diagonal(W, 0)
    return W / n


def energy(W, s):
    return -0.5 * s @ W @ s


def recall(W, s, sweeps, rng):
    energies = [energy(W, s)]
    for _ in range(sweeps):
        for i in rng.permutation(len(s)):
            s[i] = 1 if W[i] @ s >= 0 else -1
        energies.append(energy(W, s))
    return np.array(energies)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def contrastive_divergence(data, hidden, epochs, rng):
    n, visible = data.shape
    W = 0.05 * rng.randn(visible, hidden)
    a, b = np.zeros(visible), np.zeros(hidden)
    errors = np.zeros(epochs)
    for epoch in range(epochs):
        ph = sigmoid(data @ W + b)
        h = (ph > rng.rand(*ph.shape)).astype(float)
        pv = sigmoid(h @ W.T + a)
        ph2 = sigmoid(pv @ W + b)
        W += 0.1 * (data.T @ ph - pv.T @ ph2) / n
        a += 0.1 * (data - pv).mean(axis=0)
        b += 0.1 * (ph - ph2).mean(axis=0)
        errors[epoch] = ((data - pv) ** 2).mean()
    return W, errors


def run(memories, damaged, sweeps, epochs):
    W = hebb(memories)
    rng = np.random.RandomState(57)
    together = damaged.copy()
    for _ in range(5):
        together = np.where(W @ together >= 0, 1, -1)
    energies = recall(W, damaged, sweeps, rng)
    assert np.all(np.diff(energies) <= 1e-9)
    overlap = memories @ damaged / len(damaged)
    weights, errors = contrastive_divergence((memories + 1) / 2, 8, epochs, rng)
    return energies, together, overlap, weights, errors
