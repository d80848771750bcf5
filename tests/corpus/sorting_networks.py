"""Sorting: bubble and insertion sort by elements, odd-even and bitonic networks, radix sort."""

import numpy as np

SIZES = {
    "test": {"few": 6, "n": 16},
    "tiny": {"few": 80, "n": 128},
    "middle": {"few": 60, "n": 32_768},
    "large": {"few": 80, "n": 524_288},
}


def make(few, n):
    rng = np.random.default_rng(29)
    return rng.integers(-1000, 1000, few), rng.random(n), rng.integers(0, 2**20, n, dtype=np.uint32)


def bubble(a):
    n = len(a)
    for i in range(n - 1):
        swapped = False
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
                swapped = True
        if not swapped:
            break


def insertion(a):
    for i in range(1, len(a)):
        value = a[i]
        place = np.searchsorted(a[:i], value, side="right")
        a[place + 1 : i + 1] = a[place:i].copy()
        a[place] = value


def odd_even(a):
    for k in range(len(a)):
        left, right = a[k % 2 : -1 : 2], a[k % 2 + 1 :: 2]
        smaller, larger = np.minimum(left, right), np.maximum(left, right)
        a[k % 2 : -1 : 2], a[k % 2 + 1 :: 2] = smaller, larger


def bitonic(a):
    n = len(a)
    block = 2
    while block <= n:
        rising = (np.arange(0, n, block) // block) % 2 == 0
        rows = a.reshape(-1, block)
        rows[~rising] = rows[~rising, ::-1]
        half = block // 2
        while half >= 1:
            pairs = a.reshape(-1, 2, half)
            low = np.minimum(pairs[:, 0], pairs[:, 1])
            pairs[:, 1] = np.maximum(pairs[:, 0], pairs[:, 1])
            pairs[:, 0] = low
            half //= 2
        rows[~rising] = rows[~rising, ::-1]
        block *= 2


def radix(a, bits):
    for bit in range(0, bits, 4):
        digit = (a >> bit) & 15
        a = np.concatenate([a[digit == d] for d in range(16)])
    return a


def run(small, values, keys):
    expected = np.sort(small)
    by_insertion, by_network = small.copy(), small.copy()
    bubble(small)
    insertion(by_insertion)
    odd_even(by_network)
    before = np.sort(values)
    bitonic(values)
    ordered = radix(keys, 20)
    checks = [np.array_equal(expected, other) for other in (small, by_insertion, by_network)]
    return checks, np.array_equal(values, before), ordered, bool((np.diff(values) >= 0).all())
