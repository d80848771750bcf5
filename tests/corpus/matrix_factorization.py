"""Factors of a matrix: multiplicative updates, alternating least squares, one rating at a time."""

import numpy as np

SIZES = {
    "test": {"users": 6, "items": 5, "rank": 2, "rounds": 2, "ratings": 12},
    "tiny": {"users": 20, "items": 16, "rank": 3, "rounds": 15, "ratings": 300},
    "middle": {"users": 200, "items": 150, "rank": 6, "rounds": 8, "ratings": 4000},
    "large": {"users": 1500, "items": 1000, "rank": 8, "rounds": 4, "ratings": 20_000},
}


def make(users, items, rank, rounds, ratings):
    rng = np.random.default_rng(53)
    V = rng.gamma(1.0, 1.0, (users, rank)) @ rng.gamma(1.0, 1.0, (rank, items))
    mask = rng.random((users, items)) < 0.5
    mask[np.arange(users), np.arange(users) % items] = True
    mask[np.arange(items) % users, np.arange(items)] = True
    seen = np.argwhere(mask)
    seen = seen[rng.integers(0, len(seen), ratings)]
    W, H = rng.random((users, rank)) + 0.1, rng.random((rank, items)) + 0.1
    return V, mask, seen, W, H, rounds


def nmf(V, W, H, rounds):
    """Lee and Seung, in place."""
    errors = []
    for _ in range(rounds):
        H *= (W.T @ V) / (W.T @ W @ H + 1e-12)
        W *= (V @ H.T) / (W @ (H @ H.T) + 1e-12)
        errors.append(np.linalg.norm(V - W @ H, "fro"))
    return np.array(errors)


def als(V, mask, rank, rounds, penalty=0.1):
    users, items = V.shape
    P = np.ones((users, rank)) + 0.01 * np.arange(rank)
    Q = np.cos(np.outer(np.arange(items), np.arange(rank)) * 0.1)
    ridge = penalty * np.eye(rank)
    for _ in range(rounds):
        for u in range(users):
            q = Q[mask[u]]
            P[u] = np.linalg.solve(q.T @ q + ridge, q.T @ V[u, mask[u]])
        for i in range(items):
            p = P[mask[:, i]]
            Q[i] = np.linalg.solve(p.T @ p + ridge, p.T @ V[mask[:, i], i])
    residual = np.where(mask, V - P @ Q.T, 0.0)
    return P, Q, np.sqrt((residual**2).sum() / mask.sum())


def funk(V, seen, rank, rate=0.02, penalty=0.02):
    P, Q = np.full((V.shape[0], rank), 0.5), np.full((V.shape[1], rank), 0.5)
    Q += 0.01 * np.arange(rank)
    for u, i in seen:
        error = min(max(V[u, i] - P[u] @ Q[i], -3.0), 3.0)
        old = P[u].copy()
        P[u] += rate * (error * Q[i] - penalty * P[u])
        Q[i] += rate * (error * old - penalty * Q[i])
    return P, Q


def run(V, mask, seen, W, H, rounds):
    errors = nmf(V, W, H, rounds)
    assert np.all(np.diff(errors) <= 1e-9)
    P, Q, rmse = als(V, mask, W.shape[1], max(1, rounds // 4))
    return errors, P @ Q.T, rmse, funk(V, seen, W.shape[1])
