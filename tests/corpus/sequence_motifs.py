"""DNA: k-mer spectra by strides, position weight matrices, Smith-Waterman by antidiagonals, GC."""

import numpy as np

SIZES = {
    "test": {"length": 40, "query": 6, "k": 2},
    "tiny": {"length": 200, "query": 90, "k": 3},
    "middle": {"length": 30_000, "query": 60, "k": 6},
    "large": {"length": 800_000, "query": 12, "k": 8},
}


def make(length, query, k):
    rng = np.random.default_rng(51)
    genome = rng.choice(4, size=length, p=[0.3, 0.2, 0.2, 0.3])
    start = length // 3
    piece = genome[start : start + query].copy()
    piece[::7] = (piece[::7] + 1) % 4
    return genome, piece, k


def kmer_codes(genome, k):
    powers = 4 ** np.arange(k)[::-1]
    windows = np.lib.stride_tricks.sliding_window_view(genome, k)
    return windows @ powers


def reverse_complement(genome):
    return 3 - genome[::-1]


def weight_matrix(sites, background):
    counts = np.stack([(sites == base).sum(axis=0) for base in range(4)])
    return np.log2((counts + 0.5) / (len(sites) + 2.0) / background[:, np.newaxis])


def scan(genome, pwm):
    scores = np.zeros(len(genome) - pwm.shape[1] + 1)
    for j in range(pwm.shape[1]):
        scores += pwm[genome[j : j + len(scores)], j]
    return scores


def smith_waterman(a, b, match=2, mismatch=-1, gap=-2):
    """Best local score; antidiagonal by antidiagonal."""
    m, n = len(a), len(b)
    before, last = np.zeros(m + 1, dtype=int), np.zeros(m + 1, dtype=int)
    best = 0
    for d in range(2, m + n + 1):
        low, high = max(1, d - n), min(m, d - 1)
        i = np.arange(low, high + 1)
        score = np.where(a[i - 1] == b[d - i - 1], match, mismatch)
        now = np.zeros(m + 1, dtype=int)
        diagonal = before[i - 1] + score
        sideways = np.maximum(last[i - 1], last[i]) + gap
        now[i] = np.maximum(np.maximum(diagonal, sideways), 0)
        best = max(best, int(now.max()))
        before, last = last, now
    return best


def run(genome, query, k):
    codes = kmer_codes(genome, k)
    spectrum = np.bincount(codes, minlength=4**k)
    common = np.argsort(-spectrum, kind="stable")[:5]
    opposite = np.bincount(kmer_codes(reverse_complement(genome), k), minlength=4**k)
    palindromes = np.minimum(spectrum, opposite).sum()
    at = np.flatnonzero(codes == common[0])
    at = at[(at >= 4) & (at < len(genome) - k - 4)]
    sites = genome[at[:, None] + np.arange(-4, k + 4)]
    background = np.bincount(genome, minlength=4) / len(genome)
    scores = scan(genome, weight_matrix(sites, background))
    local = smith_waterman(query, genome[: 12 * len(query) + 200])
    gc = np.isin(genome, [1, 2]).astype(float)
    content = np.convolve(gc, np.ones(16) / 16, mode="valid")
    transitions = np.zeros((4, 4), dtype=int)
    np.add.at(transitions, (genome[:-1], genome[1:]), 1)
    return common, palindromes, scores.max(), local, content[::8], transitions
