"""Primes: Eratosthenes by slices, segmented, totients and divisors, Collatz lengths, Goldbach."""

import numpy as np

SIZES = {
    "test": {"limit": 60, "small": 12},
    "tiny": {"limit": 2500, "small": 250},
    "middle": {"limit": 800_000, "small": 1000},
    "large": {"limit": 10_000_000, "small": 3000},
}


def make(limit, small):
    return limit, small


def sieve(limit):
    is_prime = np.ones(limit + 1, dtype=bool)
    is_prime[:2] = False
    is_prime[4::2] = False
    for p in range(3, int(np.sqrt(limit)) + 1, 2):
        if is_prime[p]:
            is_prime[p * p :: 2 * p] = False
    return np.nonzero(is_prime)[0]


def segmented(low, high, primes):
    flags = np.ones(high - low, dtype=bool)
    for p in primes[primes * primes < high]:
        start = max(p * p, (low + p - 1) // p * p)
        flags[start - low :: p] = False
    return low + np.flatnonzero(flags)


def totients(limit, primes):
    phi = np.arange(limit + 1)
    for p in primes[primes <= limit]:
        phi[p::p] -= phi[p::p] // p
    return phi


def smooth_numbers(limit):
    """Products of 2, 3, 5 and 7."""
    rest = np.arange(1, limit + 1)
    for p in (2, 3, 5, 7):
        divisible = rest % p == 0
        while divisible.any():
            rest[divisible] //= p
            divisible = rest % p == 0
    return np.flatnonzero(rest == 1) + 1


def collatz(limit):
    n = np.arange(1, limit + 1)
    length = np.zeros(limit, dtype=np.int64)
    active = n > 1
    while np.any(active):
        odd = (n & 1) == 1
        n = np.where(active, np.where(odd, 3 * n + 1, n >> 1), n)
        length[active] += 1
        active = n > 1
    return length


def run(limit, small):
    primes = sieve(limit)
    assert np.array_equal(segmented(limit // 2, limit, primes), primes[primes >= limit // 2])
    phi, smooth = totients(small, primes), smooth_numbers(small)
    few = np.arange(1, 13)
    coprime = (np.gcd.outer(few, few) == 1) & (few <= few[:, None])
    assert np.array_equal(phi[1:13], coprime.sum(axis=1))
    lengths = collatz(small)
    gaps = np.diff(primes)
    counts = np.bincount(gaps)
    flags = np.zeros(limit + 1, dtype=int)
    flags[primes] = 1
    goldbach = np.array([np.sum(flags[2 : e // 2 + 1] * flags[e // 2 : e - 1][::-1])
                         for e in range(4, small, 2)])  # fmt: skip
    return len(primes), primes[-1], phi, smooth, lengths.argmax(), counts, goldbach
