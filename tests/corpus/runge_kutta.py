"""Classical Runge-Kutta for the Lorenz and the double pendulum, with its order checked."""

import numpy as np

SIZES = {
    "test": {"copies": 1, "steps": 5},
    "tiny": {"copies": 1, "steps": 120},
    "middle": {"copies": 8000, "steps": 15},
    "large": {"copies": 250_000, "steps": 2},
}


def make(copies, steps):
    offsets = 1e-3 * np.arange(copies)
    lorenz = np.array([1.0 + offsets, 1.0 - offsets, 20.0 + 0 * offsets])
    pendulum = np.array([2.0 + offsets % 0.5, 0 * offsets, 1.5 - offsets % 0.5, 0 * offsets])
    return np.squeeze(lorenz), np.squeeze(pendulum), steps


def lorenz_rate(t, s):
    x, y, z = s
    return np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


def pendulum_rate(t, s):
    th1, w1, th2, w2 = s
    delta = th1 - th2
    sin, cos = np.sin(delta), np.cos(delta)
    den = 2 - cos**2
    a1 = -(sin * (w2**2 + w1**2 * cos) + 9.81 * (2 * np.sin(th1) - np.sin(th2) * cos)) / den
    a2 = (2 * sin * (w1**2 + w2**2 * cos / 2) + 2 * 9.81 * (np.sin(th1) * cos - np.sin(th2))) / den
    return np.array([w1, a1, w2, a2])


def rk4(rate, state, t, h):
    k1 = rate(t, state)
    k2 = rate(t + h / 2, state + h / 2 * k1)
    k3 = rate(t + h / 2, state + h / 2 * k2)
    k4 = rate(t + h, state + h * k3)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def integrate(rate, state, h, steps):
    path = np.empty((steps + 1, *state.shape))
    path[0] = state
    for k in range(steps):
        path[k + 1] = rk4(rate, path[k], k * h, h)
    return path


def pendulum_energy(s):
    th1, w1, th2, w2 = s
    kinetic = w1**2 + 0.5 * w2**2 + w1 * w2 * np.cos(th1 - th2)
    return kinetic - 9.81 * (2 * np.cos(th1) + np.cos(th2))


def run(lorenz, pendulum, steps):
    attractor = integrate(lorenz_rate, lorenz, 0.01, steps)
    swing = integrate(pendulum_rate, pendulum, 0.005, steps)
    drift = pendulum_energy(swing[-1]) - pendulum_energy(swing[0])
    assert np.abs(drift).max() < 1e-2
    errors = []
    for n in (10, 20, 40):
        end = integrate(lambda t, y: -2.0 * t * y, np.array([1.0]), 1.0 / n, n)[-1]
        errors.append(abs(end[0] - np.exp(-1.0)))
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    return attractor[-1], swing[-1], orders.round(3), np.abs(attractor).max()
