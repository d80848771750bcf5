"""Newton's fractal of z**3 - 1 with masks, a Julia set, and Newton's method on a small system."""

import numpy as np

SIZES = {
    "test": {"n": 6, "most": 6, "starts": 2},
    "tiny": {"n": 14, "most": 60, "starts": 25},
    "middle": {"n": 130, "most": 25, "starts": 60},
    "large": {"n": 900, "most": 5, "starts": 100},
}


def make(n, most, starts):
    # Off the axes, where a root or the other would be a matter of rounding.
    x = np.linspace(-1.9, 2.03, n) + 0.0137
    y = np.linspace(-2.01, 1.93, n) + 0.0291
    return x + 1j * y[:, None], most, np.random.RandomState(36).uniform(0.5, 3, (starts, 2))


def newton(z, most):
    z = z.copy()
    roots = np.exp(2j * np.pi * np.arange(3) / 3)
    steps = np.zeros(z.shape, dtype=np.int16)
    active = np.ones(z.shape, dtype=bool)
    for _ in range(most):
        za = z[active]
        z[active] = za - (za**3 - 1) / (3 * za**2)
        distance = np.abs(z[..., np.newaxis] - roots).min(axis=-1)
        active = distance > 1e-6
        if not active.any():
            break
        steps[active] += 1
    basin = np.argmin(np.abs(z[..., None] - roots), axis=-1)
    return np.where(active, -1, basin), steps


def julia(z, c, most):
    smooth = np.zeros(z.shape)
    for _ in range(most):
        smooth += np.exp(-np.abs(z))
        z = np.where(np.abs(z) < 4, z**2 + c, z)
    return smooth


def newton_system(start):
    """x*x + y*y = 4 and x*y = 1."""
    p = start.copy()
    for it in range(30):
        x, y = p
        F = np.array([x * x + y * y - 4, x * y - 1])
        if np.linalg.norm(F) < 1e-12:
            return p, it
        J = np.array([[2 * x, 2 * y], [y, x]])
        p = p - np.linalg.solve(J, F)
    return p, 30


def run(z, most, starts):
    basin, steps = newton(z, most)
    shade = julia(z[::2, ::2], -0.4 + 0.6j, min(most, 12))
    ends = [newton_system(s + np.array([0.0, 0.01 * i])) for i, s in enumerate(starts)]
    points = np.array([p for p, _ in ends])
    return basin, steps.mean(), shade, points.round(9), np.bincount([it for _, it in ends])
