"""Explicit heat equation in two dimensions with fixed, insulated and convective edges."""

import numpy as np

SIZES = {
    "test": {"n": 8, "steps": 5},
    "tiny": {"n": 16, "steps": 250},
    "middle": {"n": 200, "steps": 150},
    "large": {"n": 1200, "steps": 20},
}


def make(n, steps):
    T = np.full((n, n), 20.0)
    y, x = np.mgrid[0:n, 0:n]
    T[(x - n / 2) ** 2 + (y - n / 3) ** 2 < (n / 6) ** 2] = 400.0
    return T, steps


def step(T, r):
    new = T.copy()
    new[1:-1, 1:-1] += r * (
        T[2:, 1:-1] + T[:-2, 1:-1] + T[1:-1, 2:] + T[1:-1, :-2] - 4 * T[1:-1, 1:-1]
    )
    new[0, :] = 100.0
    new[-1, :] = new[-2, :]
    new[:, 0] = new[:, 1]
    new[:, -1] = (new[:, -2] + 0.1 * 20.0) / 1.1
    return new


def run(T, steps):
    centre = T.shape[0] // 2
    probe = np.zeros(steps)
    for k in range(steps):
        T = step(T, 0.2)
        probe[k] = T[centre, centre]
    return T, probe, T.mean(), (T > 50).sum()
