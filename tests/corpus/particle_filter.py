"""Bootstrap particle filter on the growth model, with systematic resampling."""

import numpy as np

SIZES = {
    "test": {"particles": 10, "steps": 4},
    "tiny": {"particles": 100, "steps": 60},
    "middle": {"particles": 20_000, "steps": 30},
    "large": {"particles": 400_000, "steps": 6},
}


def make(particles, steps):
    rng = np.random.RandomState(45)
    truth = np.zeros(steps)
    x = 0.1
    for t in range(steps):
        x = 0.5 * x + 25 * x / (1 + x * x) + 8 * np.cos(1.2 * t) + rng.randn()
        truth[t] = x
    return truth, truth**2 / 20 + rng.randn(steps), particles


def systematic_resample(weights, u):
    n = len(weights)
    positions = (np.arange(n) + u) / n
    cumulative = np.cumsum(weights)
    cumulative[-1] = 1.0
    return np.searchsorted(cumulative, positions)


def run(truth, observed, n):
    rng = np.random.RandomState(46)
    x = rng.normal(0, np.sqrt(10), n)
    estimates, spread, sizes = [], [], []
    loglik = 0.0
    for t, y in enumerate(observed):
        x = 0.5 * x + 25 * x / (1 + x**2) + 8 * np.cos(1.2 * t) + rng.standard_normal(n)
        logw = -0.5 * (y - x**2 / 20) ** 2
        top = np.max(logw)
        w = np.exp(logw - top)
        loglik += top + np.log(np.mean(w)) - 0.5 * np.log(2 * np.pi)
        w /= np.sum(w)
        mean = np.average(x, weights=w)
        estimates.append(mean)
        spread.append(np.sqrt(np.average((x - mean) ** 2, weights=w)))
        effective = 1.0 / np.sum(w**2)
        sizes.append(effective)
        if effective < n / 2:
            x = x[systematic_resample(w, rng.rand())]
        else:
            x = rng.choice(x, size=n, p=w)
    estimates = np.array(estimates)
    return estimates, np.array(spread), np.array(sizes), loglik, np.abs(estimates - truth).mean()
