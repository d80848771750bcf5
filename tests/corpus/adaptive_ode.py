"""Dormand-Prince with step control on the Brusselator and on a reaction-diffusion line."""

import numpy as np

SIZES = {
    "test": {"points": 8, "end": 0.05},
    "tiny": {"points": 30, "end": 1.5},
    "middle": {"points": 20_000, "end": 0.2},
    "large": {"points": 400_000, "end": 0.03},
}
A = [
    [],
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
B4 = [5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40]


def make(points, end):
    x = np.linspace(0, 1, points)
    return np.stack([1 + 0.5 * np.sin(2 * np.pi * x), 3 + 0 * x]), end


def brusselator(y, diffusion):
    u, v = y
    rate = np.empty_like(y)
    uuv = u * u * v
    rate[0] = 1 + uuv - 4 * u
    rate[1] = 3 * u - uuv
    rate[:, 1:-1] += diffusion * (y[:, 2:] - 2 * y[:, 1:-1] + y[:, :-2])
    return rate


def dormand_prince(f, y, end, tolerance):
    t, h = 0.0, 1e-3
    k = [f(y)]
    accepted, rejected = [], 0
    while t < end:
        h = min(h, end - t)
        for row in A[1:]:
            total = sum(a * ki for a, ki in zip(row, k) if a)
            new = y + h * total
            k.append(f(new))
        fourth = y + h * sum(b * ki for b, ki in zip(B4, k) if b)
        scale = tolerance * (1 + np.maximum(np.abs(y), np.abs(new)))
        error = float(np.sqrt(np.mean(((new - fourth) / scale) ** 2)))
        if error <= 1:
            t += h
            y = new
            k = [k[-1]]
            accepted.append(t)
        else:
            k = [k[0]]
            rejected += 1
        h *= min(4.0, max(0.2, 0.9 * (error + 1e-12) ** -0.2))
    return y, accepted, rejected


def run(start, end):
    line, times, rejected = dormand_prince(lambda y: brusselator(y, 0.5), start, end, 1e-5)
    decay, steps, _ = dormand_prince(lambda y: -y, np.array([1.0, 2.0]), 1.0, 1e-7)
    assert np.allclose(decay, np.array([1.0, 2.0]) * np.exp(-1), atol=1e-6)
    return line, np.array(times), rejected, decay, len(steps)
