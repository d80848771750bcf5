"""Markov chain: simulation, stationary distribution in three ways, gambler's ruin."""

import numpy as np

SIZES = {
    "test": {"states": 4, "steps": 20},
    "tiny": {"states": 8, "steps": 900},
    "middle": {"states": 200, "steps": 6000},
    "large": {"states": 450, "steps": 50_000},
}


def make(states, steps):
    rng = np.random.default_rng(19)
    P = rng.exponential(size=(states, states))
    P /= P.sum(axis=1)[:, np.newaxis]
    return P, rng.random(steps)


def simulate(P, uniforms):
    cumulative = np.cumsum(P, axis=1)
    cumulative[:, -1] = 1.0
    state = 0
    visits = np.zeros(len(P), dtype=int)
    for u in uniforms:
        state = int(np.searchsorted(cumulative[state], u, side="right"))
        visits[state] += 1
    return visits


def stationary(P):
    n = len(P)
    pi = np.ones(n) / n
    for _ in range(200):
        new = pi @ P
        if np.abs(new - pi).max() < 1e-14:
            break
        pi = new
    A = np.vstack([P.T - np.eye(n), np.ones(n)])
    b = np.append(np.zeros(n), 1.0)
    solved, *_ = np.linalg.lstsq(A, b, rcond=None)
    squared = np.linalg.matrix_power(P, 64)[0]
    return pi, solved, squared


def ruin(n, p):
    Q = np.diag(np.full(n - 2, p), 1) + np.diag(np.full(n - 2, 1 - p), -1)
    N = np.linalg.inv(np.eye(n - 1) - Q)
    return N @ np.ones(n - 1), N[:, -1] * p


def run(P, uniforms):
    visits = simulate(P, uniforms)
    pi, solved, squared = stationary(P)
    assert np.allclose(pi, solved) and np.allclose(pi, squared)
    entropy = -np.sum(pi[:, None] * P * np.log2(P))
    return visits, pi, entropy, ruin(len(P), 0.45)
