"""Minimizers on Rosenbrock's function: momentum, Adam, BFGS with line search, Nelder-Mead."""

import numpy as np

SIZES = {
    "test": {"n": 3, "steps": 5},
    "tiny": {"n": 4, "steps": 130},
    "middle": {"n": 120, "steps": 150},
    "large": {"n": 500, "steps": 60},
}


def make(n, steps):
    return np.where(np.arange(n) % 2 == 0, -1.2, 1.0), steps


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def gradient(x):
    g = np.zeros_like(x)
    d = x[1:] - x[:-1] ** 2
    g[:-1] = -400 * x[:-1] * d - 2 * (1 - x[:-1])
    g[1:] += 200 * d
    return g


def momentum(x, steps):
    v = np.zeros_like(x)
    for _ in range(steps):
        v = 0.9 * v - 1e-4 * gradient(x)
        x = x + v
    return x


def adam(x, steps):
    x = x.copy()
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, steps + 1):
        g = gradient(x)
        m += 0.1 * (g - m)
        v += 0.001 * (g**2 - v)
        x -= 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return x


def bfgs(x, steps):
    inverse = np.eye(len(x))
    g = gradient(x)
    values = [rosenbrock(x)]
    for _ in range(steps):
        if np.linalg.norm(g) < 1e-5:
            break
        p = -inverse @ g
        slope = g @ p
        t = 1.0
        while rosenbrock(x + t * p) > values[-1] + 1e-4 * t * slope and t > 1e-10:
            t *= 0.5
        s = t * p
        x = x + s
        new = gradient(x)
        y = new - g
        g = new
        values.append(rosenbrock(x))
        sy = s @ y
        if sy > 1e-12:
            rho = 1 / sy
            left = np.eye(len(x)) - rho * np.outer(s, y)
            inverse = left @ inverse @ left.T + rho * np.outer(s, s)
    return x, np.array(values)


def nelder_mead(f, start, steps):
    n = len(start)
    simplex = np.vstack([start, start + 0.5 * np.eye(n)])
    values = np.array([f(p) for p in simplex])
    for _ in range(steps):
        order = np.argsort(values, kind="stable")
        simplex, values = simplex[order], values[order]
        centre = simplex[:-1].mean(axis=0)
        reflected = centre + (centre - simplex[-1])
        fr = f(reflected)
        if fr < values[0]:
            expanded = centre + 2 * (centre - simplex[-1])
            fe = f(expanded)
            simplex[-1], values[-1] = (expanded, fe) if fe < fr else (reflected, fr)
        elif fr < values[-2]:
            simplex[-1], values[-1] = reflected, fr
        else:
            contracted = centre + 0.5 * (simplex[-1] - centre)
            fc = f(contracted)
            if fc < values[-1]:
                simplex[-1], values[-1] = contracted, fc
            else:
                simplex[1:] = simplex[0] + 0.5 * (simplex[1:] - simplex[0])
                values[1:] = [f(p) for p in simplex[1:]]
    return simplex[values.argmin()], values.min()


def run(x, steps):
    found, values = bfgs(x, min(steps, 30))
    assert np.all(np.diff(values) <= 1e-9)
    point, least = nelder_mead(rosenbrock, x[:3], steps)
    return momentum(x, steps), adam(x, steps), values[:12], point, least, found.shape
