"""Levenshtein distance: element by element with its alignment, and row by row with accumulate."""

import numpy as np

SIZES = {
    "test": {"short": 7, "long": 30},
    "tiny": {"short": 40, "long": 150},
    "middle": {"short": 120, "long": 3000},
    "large": {"short": 250, "long": 12000},
}


def make(short, long):
    rng = np.random.default_rng(21)
    text = rng.integers(0, 4, long)
    copy = text.copy()
    places = rng.integers(0, long, long // 5)
    copy[places] = rng.integers(0, 4, len(places))
    return text, np.delete(copy, places[: long // 10]), short


def edit_table(a, b):
    D = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    D[:, 0] = np.arange(len(a) + 1)
    D[0, :] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + cost)
    return D


def alignment(D, a, b):
    i, j = len(a), len(b)
    steps = []
    while i > 0 and j > 0:
        cost = int(a[i - 1] != b[j - 1])
        if D[i, j] == D[i - 1, j - 1] + cost:
            steps.append((i - 1, j - 1))
            i, j = i - 1, j - 1
        elif D[i, j] == D[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return np.array(steps[::-1])


def distance_by_rows(a, b):
    offsets = np.arange(len(b) + 1)
    row = offsets.copy()
    for i, letter in enumerate(a, start=1):
        best = np.empty_like(row)
        best[0] = i
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (b != letter))
        row = np.minimum.accumulate(best - offsets) + offsets
    return row[-1]


def run(text, copy, short):
    a, b = text[:short], copy[:short]
    D = edit_table(a, b)
    table_distance = int(D[-1, -1])
    assert table_distance == distance_by_rows(a, b)
    whole = distance_by_rows(text[: 8 * short], copy)
    return D, alignment(D, a, b), whole
