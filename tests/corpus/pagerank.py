"""PageRank with dangling nodes: dense, by edges with add.at and bincount; hubs and authorities."""

import numpy as np

SIZES = {
    "test": {"n": 8, "edges": 20},
    "tiny": {"n": 150, "edges": 400},
    "middle": {"n": 300, "edges": 80_000},
    "large": {"n": 1200, "edges": 400_000},
}


def make(n, edges):
    rng = np.random.default_rng(40)
    source = rng.integers(0, n - n // 8, edges)
    target = (n * rng.random(edges) ** 2).astype(np.int64)
    return n, source, target


def dense(n, source, target, d):
    M = np.zeros((n, n))
    np.add.at(M, (target, source), 1.0)
    out = M.sum(axis=0)
    M[:, out > 0] /= out[out > 0]
    M[:, out == 0] = 1.0 / n
    G = d * M + (1 - d) / n
    rank = np.full(n, 1.0 / n)
    for _ in range(100):
        new = G @ rank
        if np.abs(new - rank).sum() < 1e-10:
            break
        rank = new
    return rank


def by_edges(n, source, target, d):
    out = np.bincount(source, minlength=n)
    dangling = out == 0
    share = np.divide(1.0, out, out=np.zeros(n), where=~dangling)
    rank = np.ones(n) / n
    changes = []
    for _ in range(100):
        flow = np.bincount(target, weights=(rank * share)[source], minlength=n)
        new = d * (flow + rank[dangling].sum() / n) + (1 - d) / n
        changes.append(np.abs(new - rank).sum())
        rank = new
        if changes[-1] < 1e-10:
            break
    return rank, changes


def hits(n, source, target):
    hubs = np.ones(n)
    for _ in range(20):
        authorities = np.zeros(n)
        np.add.at(authorities, target, hubs[source])
        authorities /= np.linalg.norm(authorities)
        hubs = np.zeros(n)
        np.add.at(hubs, source, authorities[target])
        hubs /= np.linalg.norm(hubs)
    return hubs, authorities


def run(n, source, target):
    rank, changes = by_edges(n, source, target, 0.85)
    full = dense(n, source, target, 0.85)
    assert np.allclose(rank, full, atol=1e-8) and np.isclose(rank.sum(), 1)
    hubs, authorities = hits(n, source, target)
    degree = np.bincount(target, minlength=n)
    correlation = np.corrcoef(np.argsort(np.argsort(rank)), np.argsort(np.argsort(degree)))[0, 1]
    return rank, np.array(changes), hubs, authorities, correlation > 0.3
