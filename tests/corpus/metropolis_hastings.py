"""Bayesian regression by Metropolis, Gibbs and Hamiltonian sampling, with diagnostics."""

import numpy as np

SIZES = {
    "test": {"n": 12, "samples": 10},
    "tiny": {"n": 60, "samples": 120},
    "middle": {"n": 20_000, "samples": 120},
    "large": {"n": 600_000, "samples": 12},
}


def make(n, samples):
    rng = np.random.default_rng(58)
    x = rng.normal(size=n)
    return x, 1.5 * x - 0.7 + rng.normal(0, 0.5, n), samples


def log_posterior(theta, x, y):
    slope, intercept, log_sigma = theta
    residual = y - slope * x - intercept
    likelihood = -len(y) * log_sigma - 0.5 * np.sum(residual**2) * np.exp(-2 * log_sigma)
    return likelihood - 0.5 * np.sum(theta**2) / 100


def gradient(theta, x, y):
    slope, intercept, log_sigma = theta
    residual = y - slope * x - intercept
    precision = np.exp(-2 * log_sigma)
    g = np.array([np.dot(residual, x) * precision, residual.sum() * precision,
                  -len(y) + np.dot(residual, residual) * precision])  # fmt: skip
    return g - theta / 100


def metropolis(x, y, samples, rng):
    theta = np.zeros(3)
    current = log_posterior(theta, x, y)
    chain = np.zeros((samples, 3))
    accepted = 0
    for k in range(samples):
        proposal = theta + 2.0 / np.sqrt(len(y)) * rng.normal(size=3)
        new = log_posterior(proposal, x, y)
        if np.log(rng.random()) < new - current:
            theta, current = proposal, new
            accepted += 1
        chain[k] = theta
    return chain, accepted / samples


def hamiltonian(x, y, samples, rng):
    step = 0.2 / np.sqrt(len(y))
    theta = np.array([1.5, -0.7, -0.7])
    chain = []
    for _ in range(samples // 4):
        p = rng.normal(size=3)
        q = theta.copy()
        start = log_posterior(q, x, y) - 0.5 * p @ p
        p += 0.5 * step * gradient(q, x, y)
        for leap in range(6):
            q += step * p
            p += step * gradient(q, x, y) * (0.5 if leap == 5 else 1.0)
        end = log_posterior(q, x, y) - 0.5 * p @ p
        if np.log(rng.random()) < end - start:
            theta = q
        chain.append(theta)
    return np.array(chain)


def gibbs(x, y, samples, rng):
    slope = intercept = 0.0
    variance = 1.0
    trace = np.empty((samples, 3))
    xx = np.dot(x, x)
    for k in range(samples):
        slope = rng.normal(x @ (y - intercept) / xx, np.sqrt(variance / xx))
        intercept = rng.normal(np.mean(y - slope * x), np.sqrt(variance / len(y)))
        rss = np.sum((y - slope * x - intercept) ** 2)
        variance = rss / rng.chisquare(len(y))
        trace[k] = slope, intercept, variance
    return trace


def autocorrelation(chain, lags):
    c = chain - chain.mean(axis=0)
    total = (c * c).sum(axis=0) + 1e-300
    return np.array([(c[: len(c) - k] * c[k:]).sum(axis=0) / total for k in range(lags)])


def run(x, y, samples):
    rng = np.random.default_rng(59)
    chain, rate = metropolis(x, y, samples, rng)
    trace = gibbs(x, y, samples, rng)
    hmc = hamiltonian(x, y, samples, rng)
    half = len(trace) // 2
    between = (trace[:half].mean(axis=0) - trace[half:].mean(axis=0)) ** 2 / 2 * half
    within = (trace[:half].var(axis=0, ddof=1) + trace[half:].var(axis=0, ddof=1)) / 2
    shrink = np.sqrt((half - 1) / half + between / within / half)
    return chain, rate, trace.mean(axis=0), hmc, shrink, autocorrelation(trace, 5)
