"""Lennard-Jones fluid in a periodic box: neighbour lists by a cutoff, velocity Verlet."""

import numpy as np

SIZES = {
    "test": {"side": 3, "steps": 2, "every": 2},
    "tiny": {"side": 4, "steps": 50, "every": 10},
    "middle": {"side": 7, "steps": 15, "every": 5},
    "large": {"side": 11, "steps": 5, "every": 5},
}


def make(side, steps, every):
    grid = np.arange(side) * 1.2
    pos = np.stack(np.meshgrid(grid, grid, grid), axis=-1).reshape(-1, 3)
    rng = np.random.default_rng(3)
    pos += 0.05 * rng.uniform(-1, 1, pos.shape)
    vel = rng.normal(0, 0.5, pos.shape)
    vel -= vel.mean(axis=0)
    return pos, vel, side * 1.2, steps, every


def neighbour_pairs(pos, box, reach):
    first, second = np.triu_indices(len(pos), k=1)
    d = pos[first] - pos[second]
    d -= box * np.rint(d / box)
    near = np.sum(d * d, axis=1) < reach**2
    return first[near], second[near]


def forces(pos, box, pairs, cutoff):
    first, second = pairs
    d = pos[first] - pos[second]
    d -= box * np.round(d / box)
    r2 = np.einsum("ij,ij->i", d, d)
    inside = r2 < cutoff**2
    r2 = np.where(inside, r2, 1.0)
    s6 = 1.0 / r2**3
    shift = 4 * (cutoff**-12 - cutoff**-6)
    energy = np.sum(np.where(inside, 4 * s6 * (s6 - 1) - shift, 0.0))
    strength = np.where(inside, 24 * s6 * (2 * s6 - 1) / r2, 0.0)
    pair_force = strength[:, np.newaxis] * d
    force = np.zeros_like(pos)
    np.add.at(force, first, pair_force)
    np.subtract.at(force, second, pair_force)
    return force, energy


def run(pos, vel, box, steps, every):
    dt, cutoff = 0.004, 1.7
    totals = np.zeros(steps)
    pairs = neighbour_pairs(pos, box, cutoff + 0.3)
    force, energy = forces(pos, box, pairs, cutoff)
    for k in range(steps):
        vel += 0.5 * dt * force
        pos += dt * vel
        pos %= box
        if (k + 1) % every == 0:
            pairs = neighbour_pairs(pos, box, cutoff + 0.3)
        force, energy = forces(pos, box, pairs, cutoff)
        vel += 0.5 * dt * force
        totals[k] = energy + 0.5 * np.sum(vel**2)
    first, second = neighbour_pairs(pos, box, box / 2)
    d = pos[first] - pos[second]
    r = np.sqrt(((d - box * np.rint(d / box)) ** 2).sum(1))
    counts, _ = np.histogram(r, bins=8, range=(0.5, box / 2))
    return totals, np.ptp(totals) < 0.05 * len(pos), counts, len(pairs[0])
