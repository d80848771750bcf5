"""Smoothed particle hydrodynamics of a toy star: all pairs, Gaussian kernel, polytropic gas."""

import numpy as np

SIZES = {
    "test": {"n": 6, "steps": 2},
    "tiny": {"n": 14, "steps": 60},
    "middle": {"n": 200, "steps": 30},
    "large": {"n": 1000, "steps": 4},
}


def make(n, steps):
    rng = np.random.default_rng(42)
    return rng.normal(size=(n, 2)) * 0.5, np.zeros((n, 2)), steps


def kernel(r2, h):
    return (1.0 / (h * np.sqrt(np.pi))) ** 2 * np.exp(-r2 / h**2)


def pairwise_separations(ri, rj):
    M, N = ri.shape[0], rj.shape[0]
    dx = ri[:, 0].reshape((M, 1)) - rj[:, 0].reshape((N, 1)).T
    dy = ri[:, 1].reshape((M, 1)) - rj[:, 1].reshape((N, 1)).T
    return dx, dy


def density(r, pos, m, h):
    dx, dy = pairwise_separations(r, pos)
    return np.sum(m * kernel(dx**2 + dy**2, h), 1).reshape((r.shape[0], 1))


def acceleration(pos, vel, m, h, k, n, lmbda, nu):
    N = pos.shape[0]
    rho = density(pos, pos, m, h)
    P = k * rho ** (1 + 1 / n)
    dx, dy = pairwise_separations(pos, pos)
    w = -2 * kernel(dx**2 + dy**2, h) / h**2
    factor = P / rho**2 + P.T / rho.T**2
    ax = -np.sum(m * factor * w * dx, 1).reshape((N, 1))
    ay = -np.sum(m * factor * w * dy, 1).reshape((N, 1))
    a = np.hstack((ax, ay))
    a -= lmbda * pos
    a -= nu * vel
    return a


def run(pos, vel, steps):
    m, h, dt = 2.0 / len(pos), 0.2, 0.02
    acc = acceleration(pos, vel, m, h, 0.1, 1, 2.0, 1.0)
    radii = []
    for _ in range(steps):
        vel += acc * dt / 2
        pos += vel * dt
        acc = acceleration(pos, vel, m, h, 0.1, 1, 2.0, 1.0)
        vel += acc * dt / 2
        radii.append(np.sqrt(np.mean(np.sum(pos**2, axis=1))))
    line = np.stack([np.linspace(0, 1, 20), np.zeros(20)], axis=1)
    return np.array(radii), density(line, pos, m, h).ravel(), np.abs(vel).max()
