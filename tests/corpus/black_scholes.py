"""Black-Scholes prices and Greeks, and implied volatilities by Newton's method."""

import numpy as np

SIZES = {
    "test": {"n": 8, "repeats": 1, "most": 4},
    "tiny": {"n": 60, "repeats": 4, "most": 12},
    "middle": {"n": 20_000, "repeats": 1, "most": 6},
    "large": {"n": 600_000, "repeats": 1, "most": 2},
}


def make(n, repeats, most):
    rng = np.random.default_rng(22)
    spot = rng.uniform(50, 150, (repeats, n))
    strike = spot * rng.uniform(0.8, 1.25, (repeats, n))
    expiry = rng.uniform(0.2, 2.0, (repeats, n))
    sigma = rng.uniform(0.15, 0.6, (repeats, n))
    return spot, strike, expiry, sigma, most


def norm_cdf(x):
    """Abramowitz and Stegun 26.2.17."""
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = k * (
        0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)))
    )
    tail = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) * poly
    return np.where(x >= 0, 1.0 - tail, tail)


def d1_d2(S, K, T, r, sigma):
    root = sigma * np.sqrt(T)
    d1 = (np.log(S / K) + (r + 0.5 * sigma**2) * T) / root
    return d1, d1 - root


def call(S, K, T, r, sigma):
    d1, d2 = d1_d2(S, K, T, r, sigma)
    return S * norm_cdf(d1) - K * np.exp(-r * T) * norm_cdf(d2)


def greeks(S, K, T, r, sigma):
    d1, d2 = d1_d2(S, K, T, r, sigma)
    density = np.exp(-0.5 * d1**2) / np.sqrt(2 * np.pi)
    delta = norm_cdf(d1)
    gamma = density / (S * sigma * np.sqrt(T))
    vega = S * density * np.sqrt(T)
    theta = -S * density * sigma / (2 * np.sqrt(T)) - r * K * np.exp(-r * T) * norm_cdf(d2)
    return delta, gamma, vega, theta


def run(spot, strike, expiry, sigma, most):
    r = 0.03
    price = np.empty_like(spot)
    implied = np.full_like(spot, 0.3)
    for k in range(len(spot)):
        S, K, T = spot[k], strike[k], expiry[k]
        price[k] = call(S, K, T, r, sigma[k])
        for _ in range(most):
            vega = greeks(S, K, T, r, implied[k])[2]
            implied[k] -= np.clip((call(S, K, T, r, implied[k]) - price[k]) / vega, -0.2, 0.2)
    put = price - spot + strike * np.exp(-r * expiry)
    delta, gamma, vega, theta = greeks(spot, strike, expiry, r, sigma)
    return price, put.clip(0), implied, delta.mean(), gamma.max(), vega.sum(), theta.min()
