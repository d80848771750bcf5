"""Travelling salesman by annealing with reversals, then a pass of 2-opt."""

import numpy as np

SIZES = {
    "test": {"cities": 8, "trials": 30},
    "tiny": {"cities": 25, "trials": 900},
    "middle": {"cities": 150, "trials": 5000},
    "large": {"cities": 1000, "trials": 25_000},
}


class Congruential:
    """Numerical Recipes' quick and dirty generator."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return self.state / 2**32

    def below(self, n):
        return int(self.uniform() * n)


def make(cities, trials):
    points = np.random.default_rng(37).random((cities, 2))
    return points, trials


def tour_length(distance, tour):
    return distance[tour, np.roll(tour, -1)].sum()


def anneal(distance, tour, trials, random):
    n = len(tour)
    temperature = 0.5
    lengths = []
    current = tour_length(distance, tour)
    for k in range(trials):
        i, j = sorted((random.below(n), random.below(n)))
        if i == j or j - i >= n - 2:
            continue  # the same tour
        a, b = tour[i - 1], tour[i]
        c, d = tour[j], tour[(j + 1) % n]
        change = distance[a, c] + distance[b, d] - distance[a, b] - distance[c, d]
        if change < 0 or random.uniform() < np.exp(-change / temperature):
            tour[i : j + 1] = tour[i : j + 1][::-1].copy()
            current += change
        temperature *= 0.995
        if k % 100 == 0:
            lengths.append(current)
    return np.array(lengths)


def two_opt_pass(distance, tour):
    """Best exchange for each start, all ends at once."""
    n = len(tour)
    for i in range(1, n - 2):
        a, b = tour[i - 1], tour[i]
        ends = np.arange(i + 1, n - 1)
        c, d = tour[ends], tour[ends + 1]
        gain = distance[a, c] + distance[b, d] - distance[a, b] - distance[c, d]
        best = gain.argmin()
        if gain[best] < -1e-12:
            j = ends[best]
            tour[i : j + 1] = tour[i : j + 1][::-1].copy()


def run(points, trials):
    difference = points[:, None, :] - points[None, :, :]
    distance = np.sqrt(np.sum(difference**2, axis=-1))
    tour = np.arange(len(points))
    lengths = anneal(distance, tour, trials, Congruential(12345))
    annealed = tour_length(distance, tour)
    two_opt_pass(distance, tour)
    improved = tour_length(distance, tour)
    assert np.array_equal(np.sort(tour), np.arange(len(points))) and improved <= annealed + 1e-12
    return tour, lengths, annealed, improved
