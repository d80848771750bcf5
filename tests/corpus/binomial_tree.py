"""Cox-Ross-Rubinstein trees: American put backwards in a loop, with its exercise boundary."""

import numpy as np

SIZES = {
    "test": {"steps": 10, "contracts": 2},
    "tiny": {"steps": 120, "contracts": 5},
    "middle": {"steps": 200, "contracts": 300},
    "large": {"steps": 250, "contracts": 4000},
}


def make(steps, contracts):
    return np.linspace(80.0, 120.0, contracts), steps


def american_put(S, K, T, r, sigma, N):
    dt = T / N
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    q = (np.exp(r * dt) - d) / (u - d)
    discount = np.exp(-r * dt)
    prices = S * d ** np.arange(N, -1, -1) * u ** np.arange(0, N + 1)
    values = np.maximum(K - prices, 0)
    boundary = np.full(N, np.nan)
    for i in range(N - 1, -1, -1):
        prices = prices[1:] * d
        hold = discount * (q * values[1:] + (1 - q) * values[:-1])
        exercise = K - prices
        early = exercise > hold
        values = np.where(early, exercise, hold)
        if early.any():
            boundary[i] = prices[early].max()
    return values[0], boundary


def european_calls(S, K, T, r, sigma, N):
    """All strikes at once."""
    dt = T / N
    u = np.exp(sigma * np.sqrt(dt))
    q = (np.exp(r * dt) - 1 / u) / (u - 1 / u)
    prices = S * u ** (2.0 * np.arange(N + 1) - N)
    V = np.maximum(prices[:, None] - K[None, :], 0.0)
    for _ in range(N):
        V = np.exp(-r * dt) * (q * V[1:] + (1 - q) * V[:-1])
    return V[0]


def run(strikes, steps):
    calls = european_calls(100.0, strikes, 1.0, 0.05, 0.3, steps)
    puts, boundaries = [], []
    for K in strikes[:20]:
        value, boundary = american_put(100.0, K, 1.0, 0.05, 0.3, steps)
        puts.append(value)
        boundaries.append(boundary)
    parity = calls[:20] - 100.0 + strikes[:20] * np.exp(-0.05)
    assert np.all(np.array(puts) >= parity - 1e-9)
    return calls, np.array(puts), np.array(boundaries)
