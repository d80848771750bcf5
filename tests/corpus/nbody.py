"""Gravity between all pairs: leapfrog with softening, energies, and the classic loop over pairs."""

import numpy as np

SIZES = {
    "test": {"n": 4, "steps": 3, "few": 3},
    "tiny": {"n": 12, "steps": 60, "few": 4},
    "middle": {"n": 150, "steps": 25, "few": 12},
    "large": {"n": 700, "steps": 4, "few": 24},
}


def make(n, steps, few):
    rng = np.random.RandomState(17)
    mass = 20.0 * np.ones((n, 1)) / n
    pos, vel = rng.randn(n, 3), rng.randn(n, 3)
    vel -= np.mean(mass * vel, 0) / np.mean(mass)
    return mass, pos, vel, steps, few


def acceleration(pos, mass, G, softening):
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inv_r3 = dx**2 + dy**2 + dz**2 + softening**2
    inv_r3[inv_r3 > 0] = inv_r3[inv_r3 > 0] ** (-1.5)
    ax = G * (dx * inv_r3) @ mass
    ay = G * (dy * inv_r3) @ mass
    az = G * (dz * inv_r3) @ mass
    return np.hstack((ax, ay, az))


def energies(pos, vel, mass, G):
    kinetic = 0.5 * np.sum(mass * vel**2)
    d = pos[:, None, :] - pos[None, :, :]
    r = np.sqrt((d**2).sum(axis=-1))
    r[r > 0] = 1.0 / r[r > 0]
    potential = G * np.sum(np.triu(-(mass * mass.T) * r, 1))
    return kinetic, potential


def pairwise(pos, vel, mass, dt, steps):
    """In place, pair by pair."""
    n = len(pos)
    for _ in range(steps):
        for i in range(n):
            for j in range(i + 1, n):
                d = pos[i] - pos[j]
                mag = dt / (np.dot(d, d) + 0.01) ** 1.5
                vel[i] -= d * mass[j] * mag
                vel[j] += d * mass[i] * mag
        pos += dt * vel


def run(mass, pos, vel, steps, few):
    dt, G = 0.01, 1.0
    pairwise(pos[:few], vel[:few], mass[:few], dt, steps)
    acc = acceleration(pos, mass, G, 0.1)
    history = np.zeros((steps, 2))
    for i in range(steps):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc = acceleration(pos, mass, G, 0.1)
        vel += acc * dt / 2.0
        history[i] = energies(pos, vel, mass, G)
    return history, np.linalg.norm(np.sum(mass * vel, axis=0)), acc
