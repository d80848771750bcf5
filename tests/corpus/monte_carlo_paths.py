"""Monte Carlo: Asian and barrier options on geometric Brownian paths, Heston step by step."""

import numpy as np

SIZES = {
    "test": {"paths": 10, "steps": 5},
    "tiny": {"paths": 100, "steps": 150},
    "middle": {"paths": 3000, "steps": 100},
    "large": {"paths": 60_000, "steps": 60},
}


def make(paths, steps):
    rng = np.random.default_rng(23)
    return rng.standard_normal((paths, steps)), rng.standard_normal((steps, paths))


def asian_and_barrier(z, S0, K, r, sigma, T):
    dt = T / z.shape[1]
    z = np.concatenate([z, -z])  # antithetic
    increments = (r - 0.5 * sigma**2) * dt + sigma * np.sqrt(dt) * z
    S = S0 * np.exp(np.cumsum(increments, axis=1))
    discount = np.exp(-r * T)
    asian = discount * np.maximum(S.mean(axis=1) - K, 0)
    alive = (S < 1.3 * S0).all(axis=1)
    barrier = discount * np.maximum(S[:, -1] - K, 0) * alive
    return asian, barrier, S


def heston(z1, z2, S0, v0, r, kappa, theta, xi, rho, T):
    steps = len(z1)
    dt = T / steps
    S = np.full(z1.shape[1], S0)
    v = np.full(z1.shape[1], v0)
    for k in range(steps):
        w = rho * z1[k] + np.sqrt(1 - rho**2) * z2[k]
        positive = np.maximum(v, 0)
        S *= np.exp((r - 0.5 * positive) * dt + np.sqrt(positive * dt) * z1[k])
        v += kappa * (theta - positive) * dt + xi * np.sqrt(positive * dt) * w
    return S, v


def run(z, shocks):
    asian, barrier, S = asian_and_barrier(z, 100.0, 100.0, 0.02, 0.25, 1.0)
    error = asian.std(ddof=1) / np.sqrt(len(asian))
    final, v = heston(shocks, z.T, 100.0, 0.04, 0.02, 1.5, 0.04, 0.5, -0.7, 1.0)
    losses = np.sort(100.0 - final)[::-1]
    worst = losses[: max(1, len(losses) // 20)]
    return {
        "asian": asian.mean(), "error": error, "barrier": barrier.mean(),
        "quantiles": np.percentile(S[:, -1], [5, 25, 50, 75, 95]),
        "heston": np.maximum(final - 100.0, 0).mean(), "variance": v.mean(),
        "value at risk": worst[-1], "shortfall": worst.mean(),
    }  # fmt: skip
