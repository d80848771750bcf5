"""Elementary cellular automata: a rule as a table, as bit operations, and a forest fire."""

import numpy as np

SIZES = {
    "test": {"cells": 16, "steps": 5, "side": 6},
    "tiny": {"cells": 90, "steps": 150, "side": 18},
    "middle": {"cells": 30_000, "steps": 60, "side": 150},
    "large": {"cells": 1_000_000, "steps": 12, "side": 500},
}


def make(cells, steps, side):
    start = np.zeros(cells, dtype=np.uint8)
    start[cells // 2] = 1
    forest = (np.random.RandomState(2).rand(side, side) < 0.7).astype(np.int8)
    forest[:, 0] = 2
    return start, forest, steps


def rule_table(number):
    return np.array([(number >> k) & 1 for k in range(8)], dtype=np.uint8)


def evolve(state, table, steps):
    density = np.zeros(steps)
    for k in range(steps):
        left, right = np.roll(state, 1), np.roll(state, -1)
        state = table[4 * left + 2 * state + right]
        density[k] = state.mean()
    return state, density


def rule_110(state, steps):
    for _ in range(steps):
        padded = np.pad(state, 1, mode="wrap")
        left, centre, right = padded[:-2], padded[1:-1], padded[2:]
        state = (centre ^ right) | (centre & (1 - left) & right)
    return state


def burn(forest, steps):
    """0 bare, 1 tree, 2 burning; in place."""
    burnt = []
    for _ in range(steps):
        fire = forest == 2
        near = np.zeros_like(fire)
        near[1:] |= fire[:-1]
        near[:-1] |= fire[1:]
        near[:, 1:] |= fire[:, :-1]
        near[:, :-1] |= fire[:, 1:]
        forest[fire] = 0
        forest[near & (forest == 1)] = 2
        burnt.append(np.count_nonzero(fire))
    return burnt


def run(start, forest, steps):
    last, density = evolve(start, rule_table(30), steps)
    by_bits = rule_110(start, steps)
    by_table, _ = evolve(start, rule_table(110), steps)
    assert np.array_equal(by_bits, by_table)
    return last, density, by_bits, np.array(burn(forest, steps))
