"""Integration: trapezoid, Simpson, Romberg table, Gauss-Legendre, adaptive Simpson, Monte Carlo."""

import numpy as np

SIZES = {
    "test": {"panels": 16, "levels": 3, "points": 50, "repeats": 1},
    "tiny": {"panels": 128, "levels": 6, "points": 200, "repeats": 8},
    "middle": {"panels": 50_000, "levels": 12, "points": 60_000, "repeats": 4},
    "large": {"panels": 1_000_000, "levels": 18, "points": 1_500_000, "repeats": 2},
}


def make(panels, levels, points, repeats):
    return panels, levels, points, np.linspace(1.0, 2.0, repeats)


def integrand(x, a):
    return np.exp(-a * x) * np.cos(3 * x) + x**2


def exact(a):
    """Of the integral from 0 to 1."""
    wave = np.exp(-a) * (3 * np.sin(3) - a * np.cos(3)) + a
    return wave / (a * a + 9) + 1 / 3


def simpson(f, lower, upper, n):
    x = np.linspace(lower, upper, n + 1)
    y = f(x)
    return (upper - lower) / n / 3 * (y[0] + y[-1] + 4 * y[1:-1:2].sum() + 2 * y[2:-1:2].sum())


def romberg(f, levels):
    R = np.zeros((levels, levels))
    h = 1.0
    R[0, 0] = 0.5 * (f(0.0) + f(1.0))
    for i in range(1, levels):
        h /= 2
        odd = np.arange(1, 2**i, 2) * h
        R[i, 0] = 0.5 * R[i - 1, 0] + h * np.sum(f(odd))
        for j in range(1, i + 1):
            R[i, j] = R[i, j - 1] + (R[i, j - 1] - R[i - 1, j - 1]) / (4**j - 1)
    return R


def adaptive(f, a, b, tolerance):
    whole, middle = simpson(f, a, b, 2), (a + b) / 2
    left, right = simpson(f, a, middle, 2), simpson(f, middle, b, 2)
    if abs(left + right - whole) < 15 * tolerance:
        return left + right + (left + right - whole) / 15
    return adaptive(f, a, middle, tolerance / 2) + adaptive(f, middle, b, tolerance / 2)


def run(panels, levels, points, parameters):
    table = np.zeros((len(parameters), 6))
    x = np.linspace(0, 1, panels + 1)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    for row, a in zip(table, parameters):

        def f(t, a=a):
            return integrand(t, a)

        row[0] = np.trapezoid(f(x), x)
        row[1] = simpson(f, 0.0, 1.0, panels)
        row[2] = romberg(f, levels)[-1, -1]
        row[3] = 0.5 * np.sum(weights * f(0.5 * (nodes + 1)))
        row[4] = adaptive(f, 0.0, 1.0, 1e-6)
        row[5] = np.mean(f((np.arange(points) * 0.6180339887498949 + 0.5) % 1.0))
    errors = np.abs(table - exact(parameters)[:, None])
    assert errors[:, 1:5].max() < 1e-3
    cumulative = np.cumsum((integrand(x[1:], 1.0) + integrand(x[:-1], 1.0)) / 2) / panels
    return table, cumulative, np.argmin(errors[:, [0, 5]], axis=1)
