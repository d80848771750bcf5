"""Planets around a star by leapfrog and by Yoshida's fourth order; pendulum phase space."""

import numpy as np

SIZES = {
    "test": {"planets": 3, "steps": 5, "ensemble": 8},
    "tiny": {"planets": 4, "steps": 180, "ensemble": 50},
    "middle": {"planets": 30_000, "steps": 25, "ensemble": 20_000},
    "large": {"planets": 500_000, "steps": 3, "ensemble": 500_000},
}


def make(planets, steps, ensemble):
    radius = np.linspace(0.5, 3.0, planets)
    phase = 2.4 * np.arange(planets)
    pos = radius * np.array([np.cos(phase), np.sin(phase)])
    speed = np.sqrt(1 / radius) * np.linspace(0.9, 1.1, planets)
    vel = speed * np.array([-np.sin(phase), np.cos(phase)])
    angle = np.linspace(-3, 3, ensemble)
    return pos, vel, angle, np.zeros_like(angle), steps


def pull(pos):
    r2 = (pos**2).sum(axis=0)
    return -pos / (r2 * np.sqrt(r2))


def leapfrog(pos, vel, dt, steps):
    for _ in range(steps):
        vel += 0.5 * dt * pull(pos)
        pos += dt * vel
        vel += 0.5 * dt * pull(pos)


def yoshida(pos, vel, dt, steps):
    cube = 2 ** (1 / 3)
    w1, w0 = 1 / (2 - cube), -cube / (2 - cube)
    c = [w1 / 2, (w0 + w1) / 2, (w0 + w1) / 2, w1 / 2]
    d = [w1, w0, w1]
    for _ in range(steps):
        for ci, di in zip(c, d):
            pos = pos + ci * dt * vel
            vel = vel + di * dt * pull(pos)
        pos = pos + c[3] * dt * vel
    return pos, vel


def energy(pos, vel):
    return 0.5 * (vel**2).sum(axis=0) - 1 / np.hypot(pos[0], pos[1])


def run(pos, vel, angle, momentum, steps):
    start = energy(pos, vel)
    spin = pos[0] * vel[1] - pos[1] * vel[0]
    far, fast = yoshida(pos, vel, 0.02, steps)
    leapfrog(pos, vel, 0.02, steps)
    assert np.allclose(spin, pos[0] * vel[1] - pos[1] * vel[0])
    for _ in range(steps):
        momentum -= 0.05 * np.sin(angle)
        angle += 0.05 * momentum
    drift = np.abs(energy(pos, vel) - start).max(), np.abs(energy(far, fast) - start).max()
    return drift, far, np.remainder(angle + np.pi, 2 * np.pi) - np.pi
