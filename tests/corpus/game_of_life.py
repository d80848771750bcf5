"""Conway's Game of Life on a torus with np.roll, and with slices on a bounded board."""

import numpy as np

SIZES = {
    "test": {"n": 8, "generations": 3},
    "tiny": {"n": 20, "generations": 60},
    "middle": {"n": 200, "generations": 60},
    "large": {"n": 1000, "generations": 10},
}


def make(n, generations):
    board = np.random.RandomState(42).rand(n, n) < 0.3
    bounded = np.zeros((n + 2, n + 2), dtype=int)
    glider = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1]])
    bounded[1:4, 1:4] = glider
    bounded[-5:-2, 2:5] = glider[::-1]
    return board, bounded, generations


def neighbours(board):
    count = np.zeros(board.shape, dtype=np.int8)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            if (dy, dx) != (0, 0):
                count += np.roll(np.roll(board, dy, axis=0), dx, axis=1)
    return count


def evolve_bounded(Z):
    """One generation in place; the border stays dead."""
    N = (Z[:-2, :-2] + Z[:-2, 1:-1] + Z[:-2, 2:] + Z[1:-1, :-2] + Z[1:-1, 2:]
         + Z[2:, :-2] + Z[2:, 1:-1] + Z[2:, 2:])  # fmt: skip
    birth = (N == 3) & (Z[1:-1, 1:-1] == 0)
    survive = ((N == 2) | (N == 3)) & (Z[1:-1, 1:-1] == 1)
    Z[...] = 0
    Z[1:-1, 1:-1][birth | survive] = 1


def run(board, bounded, generations):
    population = [board.sum()]
    for _ in range(generations):
        n = neighbours(board)
        board = (n == 3) | (board & (n == 2))
        population.append(board.sum())
        evolve_bounded(bounded)
    ages = np.flatnonzero(board)
    return board, np.array(population), ages, int(bounded.sum())
