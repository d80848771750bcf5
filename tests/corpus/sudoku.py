"""Sudoku by constraint propagation on a candidates array and backtracking; eight queens."""

import numpy as np

SIZES = {
    "test": {"empty": 6, "queens": 4, "repeats": 1},
    "tiny": {"empty": 30, "queens": 6, "repeats": 1},
    "middle": {"empty": 46, "queens": 8, "repeats": 4},
    "large": {"empty": 50, "queens": 8, "repeats": 20},
}


def make(empty, queens, repeats):
    rng = np.random.RandomState(30)
    base = (np.arange(9)[:, None] * 3 + np.arange(9)[:, None] // 3 + np.arange(9)) % 9
    puzzles = []
    for _ in range(repeats):
        grid = rng.permutation(9)[base] + 1
        holes = rng.permutation(81)[:empty]
        grid.flat[holes] = 0
        puzzles.append(grid)
    return puzzles, queens


def candidates(grid, r, c):
    used = np.zeros(10, dtype=bool)
    used[grid[r, :]] = True
    used[grid[:, c]] = True
    br, bc = 3 * (r // 3), 3 * (c // 3)
    used[grid[br : br + 3, bc : bc + 3]] = True
    return np.flatnonzero(~used[1:]) + 1


def solve(grid):
    """Fill the grid in place, the most constrained cell first."""
    best, options = None, None
    for r, c in np.argwhere(grid == 0):
        found = candidates(grid, r, c)
        if best is None or len(found) < len(options):
            best, options = (r, c), found
            if len(found) <= 1:
                break
    if best is None:
        return True
    for digit in options:
        grid[best] = digit
        if solve(grid):
            return True
    grid[best] = 0
    return False


def place_queens(board, row):
    """Count all solutions."""
    n = board.shape[0]
    if row == n:
        return 1
    count = 0
    for col in range(n):
        rows = np.arange(row)
        before = board[:row]
        if np.any(before == col) or np.any(np.abs(before - col) == row - rows):
            continue
        board[row] = col
        count += place_queens(board, row + 1)
    return count


def run(puzzles, queens):
    solved = [solve(grid) for grid in puzzles]
    for grid in puzzles:
        assert np.all(np.sort(grid, axis=0) == np.arange(1, 10)[:, None])
        blocks = grid.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)
        assert (np.sort(blocks, axis=1) == np.arange(1, 10)).all()
    return solved, place_queens(np.zeros(queens, dtype=int), 0)
