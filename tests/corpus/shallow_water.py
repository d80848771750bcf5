"""Shallow water over a sloping bed: Lax-Friedrichs fluxes in two dimensions, reflecting walls."""

import numpy as np

SIZES = {
    "test": {"n": 8, "steps": 3},
    "tiny": {"n": 16, "steps": 60},
    "middle": {"n": 130, "steps": 30},
    "large": {"n": 800, "steps": 4},
}


def make(n, steps):
    x = (np.arange(n) + 0.5) / n
    X, Y = np.meshgrid(x, x)
    h = 1.0 + 0.4 * np.exp(-60 * ((X - 0.35) ** 2 + (Y - 0.5) ** 2))
    state = np.array([h, np.zeros_like(h), np.zeros_like(h)])
    return state, steps


def fluxes(q, g):
    h, hu, hv = q
    u, v = hu / h, hv / h
    F = np.stack([hu, hu * u + 0.5 * g * h * h, hu * v])
    G = np.stack([hv, hu * v, hv * v + 0.5 * g * h * h])
    return F, G


def with_walls(q):
    p = np.pad(q, ((0, 0), (1, 1), (1, 1)), mode="edge")
    p[1, :, [0, -1]] *= -1
    p[2, [0, -1], :] *= -1
    return p


def step(q, dx, dt, g):
    p = with_walls(q)
    F, G = fluxes(p, g)
    speed = np.max(np.sqrt(g * p[0]) + np.hypot(p[1], p[2]) / p[0])
    fx = 0.5 * (F[:, :, 1:] + F[:, :, :-1]) - 0.5 * speed * (p[:, :, 1:] - p[:, :, :-1])
    gy = 0.5 * (G[:, 1:] + G[:, :-1]) - 0.5 * speed * (p[:, 1:] - p[:, :-1])
    return q - dt / dx * (
        fx[:, 1:-1, 1:] - fx[:, 1:-1, :-1] + gy[:, 1:, 1:-1] - gy[:, :-1, 1:-1]
    ), speed


def run(state, steps):
    dx = 1.0 / state.shape[1]
    volume = state[0].sum()
    speeds = np.empty(steps)
    gauge = []
    for k in range(steps):
        state[:], speeds[k] = step(state, dx, 0.1 * dx, 9.81)
        gauge.append(state[0, -1, -1])
    assert np.isclose(state[0].sum(), volume)
    return speeds, np.array(gauge), state[0].max()
