"""Maxwell's equations in two dimensions by Yee's scheme, with perfectly matched layers."""

import numpy as np

SIZES = {
    "test": {"n": 12, "steps": 4, "layer": 3},
    "tiny": {"n": 24, "steps": 120, "layer": 5},
    "middle": {"n": 200, "steps": 60, "layer": 10},
    "large": {"n": 1000, "steps": 10, "layer": 20},
}


def make(n, steps, layer):
    eps = np.ones((n, n))
    y, x = np.ogrid[:n, :n]
    eps[(x - 2 * n // 3) ** 2 + (y - n // 2) ** 2 < (n // 8) ** 2] = 4.0
    return eps, steps, layer


def conductivity(n, layer, offset):
    k = np.arange(n) + offset
    depth = np.maximum(np.maximum(layer - k, k - (n - 1 - layer)), 0) / layer
    return 1.2 * depth**3


def run(eps, steps, layer):
    n = len(eps)
    c = 0.5  # Courant number
    sx, sxh = conductivity(n, layer, 0.0)[None, :], conductivity(n, layer, 0.5)[None, :]
    sy, syh = conductivity(n, layer, 0.0)[:, None], conductivity(n, layer, 0.5)[:, None]
    Ezx, Ezy = np.zeros((n, n)), np.zeros((n, n))
    Hx, Hy = np.zeros((n, n)), np.zeros((n, n))
    ax, bx = (1 - sx / 2) / (1 + sx / 2), c / (1 + sx / 2) / eps
    ay, by = (1 - sy / 2) / (1 + sy / 2), c / (1 + sy / 2) / eps
    hx, gx = (1 - syh / 2) / (1 + syh / 2), c / (1 + syh / 2)
    hy, gy = (1 - sxh / 2) / (1 + sxh / 2), c / (1 + sxh / 2)
    trace = []
    for t in range(steps):
        Ez = Ezx + Ezy
        Hx[:-1, :] = hx[:-1] * Hx[:-1, :] - gx[:-1] * (Ez[1:, :] - Ez[:-1, :])
        Hy[:, :-1] = hy[:, :-1] * Hy[:, :-1] + gy[:, :-1] * (Ez[:, 1:] - Ez[:, :-1])
        Ezx[:, 1:] = ax[:, 1:] * Ezx[:, 1:] + bx[:, 1:] * (Hy[:, 1:] - Hy[:, :-1])
        Ezy[1:, :] = ay[1:] * Ezy[1:, :] - by[1:] * (Hx[1:, :] - Hx[:-1, :])
        Ezx[n // 2, n // 3] += np.exp(-(((t - 20) / 6) ** 2)) * np.sin(0.4 * t)
        trace.append(Ezx[n // 2, n // 2] + Ezy[n // 2, n // 2])
    energy = 0.5 * np.sum(eps * (Ezx + Ezy) ** 2) + 0.5 * np.sum(Hx**2 + Hy**2)
    return Ezx + Ezy, np.array(trace), energy
