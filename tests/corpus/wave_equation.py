"""Wave equation: leapfrog in time, damped sponge at the edges, a source and a line of receivers."""

import numpy as np

SIZES = {
    "test": {"nx": 10, "nt": 6},
    "tiny": {"nx": 14, "nt": 250},
    "middle": {"nx": 220, "nt": 100},
    "large": {"nx": 1100, "nt": 20},
}


def make(nx, nt):
    depth = np.arange(nx)[:, None]
    velocity = np.where(depth < nx // 2, 1500.0, 2500.0) * np.ones((1, nx))
    return velocity, nt


def ricker(t, frequency):
    arg = (np.pi * frequency * (t - 1.2 / frequency)) ** 2
    return (1 - 2 * arg) * np.exp(-arg)


def run(velocity, nt):
    n = velocity.shape[0]
    dx, dt = 10.0, 0.0015
    c2 = (velocity * dt / dx) ** 2
    width = max(n // 8, 2)
    ramp = np.clip((width - np.minimum(np.arange(n), np.arange(n)[::-1])) / width, 0, None)
    sponge = np.exp(-((0.3 * np.add.outer(ramp, ramp)) ** 2))
    source = ricker(np.arange(nt) * dt, 15.0)
    previous = np.zeros((n, n))
    now = np.zeros((n, n))
    seismogram = np.zeros((nt, n))
    for k in range(nt):
        lap = np.zeros_like(now)
        lap[1:-1, 1:-1] = (
            now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        ) - 4.0 * now[1:-1, 1:-1]
        following = 2 * now - previous + c2 * lap
        following[n // 4, n // 2] += source[k]
        previous = now * sponge
        now = following * sponge
        seismogram[k, :] = now[n // 3, :]
    return now, seismogram, np.abs(seismogram).max(axis=0)
