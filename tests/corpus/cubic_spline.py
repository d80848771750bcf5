"""Natural cubic spline and Catmull-Rom, bilinear and nearest resampling of a map, Akima slopes."""

import numpy as np

SIZES = {
    "test": {"knots": 6, "fine": 20, "zoom": 8},
    "tiny": {"knots": 150, "fine": 200, "zoom": 40},
    "middle": {"knots": 2000, "fine": 60_000, "zoom": 250},
    "large": {"knots": 6000, "fine": 1_000_000, "zoom": 800},
}


def make(knots, fine, zoom):
    x = np.sort(np.random.default_rng(47).random(knots)) + np.linspace(0, 5, knots)
    field = np.add.outer(np.sin(np.arange(24) / 3.0), np.cos(np.arange(30) / 4.0))
    return x, np.sin(x) + 0.1 * x, fine, field, zoom


def second_derivatives(x, y):
    n = len(x)
    h = np.diff(x)
    slope = np.diff(y) / h
    right = np.zeros(n)
    right[1:-1] = 6 * np.diff(slope)
    diagonal = np.ones(n)
    diagonal[1:-1] = 2 * (h[:-1] + h[1:])
    upper, lower = np.append(0.0, h[1:]), np.append(h[:-1], 0.0)
    for i in range(1, n):  # elimination
        w = lower[i - 1] / diagonal[i - 1]
        diagonal[i] -= w * upper[i - 1]
        right[i] -= w * right[i - 1]
    M = np.zeros(n)
    M[-1] = right[-1] / diagonal[-1]
    for i in range(n - 2, -1, -1):
        M[i] = (right[i] - upper[i] * M[i + 1]) / diagonal[i]
    return M


def evaluate(x, y, M, t):
    i = np.clip(np.searchsorted(x, t, side="right") - 1, 0, len(x) - 2)
    h = x[i + 1] - x[i]
    a, b = (x[i + 1] - t) / h, (t - x[i]) / h
    bend = ((a**3 - a) * M[i] + (b**3 - b) * M[i + 1]) * h**2 / 6
    return a * y[i] + b * y[i + 1] + bend


def catmull_rom(points, samples):
    u = np.linspace(0, 1, samples, endpoint=False)[:, None]
    pieces = []
    for k in range(1, len(points) - 2):
        p0, p1, p2, p3 = points[k - 1 : k + 3]
        pieces.append(0.5 * (2 * p1 + (p2 - p0) * u + (2 * p0 - 5 * p1 + 4 * p2 - p3) * u**2
                             + (3 * p1 - p0 - 3 * p2 + p3) * u**3))  # fmt: skip
    return np.concatenate(pieces)


def bilinear(field, rows, cols):
    r0 = np.minimum(rows.astype(int), field.shape[0] - 2)
    c0 = np.minimum(cols.astype(int), field.shape[1] - 2)
    fr, fc = (rows - r0)[:, None], (cols - c0)[None, :]
    top = field[np.ix_(r0, c0)] * (1 - fc) + field[np.ix_(r0, c0 + 1)] * fc
    bottom = field[np.ix_(r0 + 1, c0)] * (1 - fc) + field[np.ix_(r0 + 1, c0 + 1)] * fc
    return top * (1 - fr) + bottom * fr


def run(x, y, fine, field, zoom):
    M = second_derivatives(x.copy(), y.copy())
    t = np.linspace(x[0], x[-1], fine)
    curve = evaluate(x, y, M, t)
    straight = np.interp(t, x, y)
    path = catmull_rom(np.column_stack([x, y])[:40], 10)
    rows, cols = np.linspace(0, 23, zoom), np.linspace(0, 29, zoom)
    larger = bilinear(field, rows, cols)
    nearest = field[np.rint(rows).astype(int)[:, None], np.rint(cols).astype(int)]
    return curve, np.abs(curve - straight).max(), path, larger, np.abs(larger - nearest).mean()
