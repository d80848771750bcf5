"""Tables without pandas: groups by unique, bincount, reduceat and lexsort; joins, pivots, ranks."""

import numpy as np

SIZES = {
    "test": {"rows": 30, "groups": 4, "chunks": 1},
    "tiny": {"rows": 150, "groups": 10, "chunks": 15},
    "middle": {"rows": 40_000, "groups": 200, "chunks": 4},
    "large": {"rows": 800_000, "groups": 1000, "chunks": 1},
}


def make(rows, groups, chunks):
    rng = np.random.default_rng(48)
    key = rng.integers(0, groups, (chunks, rows)) * 7 + 3
    month = rng.integers(0, 12, (chunks, rows))
    price = np.round(rng.gamma(2.0, 10.0, (chunks, rows)), 2)
    return key, month, price


def summary(key, price):
    values, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, weights=price)
    squares = np.bincount(inverse, weights=price**2)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
    highest = np.maximum.reduceat(price[order], starts)
    lowest = np.minimum.reduceat(price[order], starts)
    mean = sums / counts
    std = np.sqrt(np.maximum(squares / counts - mean**2, 0))
    return values, counts, mean, std, highest, lowest


def pivot(key, month, price):
    rows, row = np.unique(key, return_inverse=True)
    table = np.zeros((len(rows), 12))
    np.add.at(table, (row, month), price)
    with np.errstate(invalid="ignore"):
        share = table / table.sum(axis=0)
    return table, np.nan_to_num(share)


def join(key, table_keys, table_values):
    place = np.searchsorted(table_keys, key)
    place[place == len(table_keys)] = 0
    found = table_keys[place] == key
    return np.where(found, table_values[place], np.nan), found


def top_per_group(key, price, k):
    order = np.lexsort((-price, key))
    sorted_key = key[order]
    starts = np.searchsorted(sorted_key, np.unique(key))
    position = np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    return order[position < k]


def run(keys, months, prices):
    parts = []
    for key, month, price in zip(keys, months, prices):
        values, counts, mean, std, highest, lowest = summary(key, price)
        table, share = pivot(key, month, price)
        rate, found = join(key, values[::2], mean[::2])
        best = top_per_group(key, price, 3)
        assert counts.sum() == len(key) and np.isclose(table.sum(), price.sum())
        parts.append(np.array([mean.mean(), std.max(), highest.sum(), lowest.sum(),
                               np.nansum(rate), found.mean(), price[best].mean()]))  # fmt: skip
        prices[keys == values[0]] *= 1.01
    edges = np.round(np.quantile(price, [0.25, 0.5, 0.75]), 2) + 0.005  # between cents
    band = np.digitize(price, edges)
    return np.vstack(parts), share, np.bincount(band), best, (values, counts)
