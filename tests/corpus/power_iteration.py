"""Power iteration with deflation for the leading eigenpairs, and one by inverse iteration."""

import numpy as np

SIZES = {
    "test": {"n": 8, "pairs": 2, "most": 10},
    "tiny": {"n": 50, "pairs": 6, "most": 300},
    "middle": {"n": 300, "pairs": 5, "most": 200},
    "large": {"n": 1000, "pairs": 3, "most": 50},
}


def make(n, pairs, most):
    rng = np.random.default_rng(4)
    A = np.diag(10.0 * 0.9 ** np.arange(n))
    for w in rng.normal(size=(4, n)):  # reflections keep the eigenvalues
        w = w / np.linalg.norm(w)
        A -= 2 * np.outer(w, w @ A)
        A -= 2 * np.outer(A @ w, w)
    return (A + A.T) / 2, rng.normal(size=n), pairs, most


def power_iteration(A, start, most):
    v = start / np.linalg.norm(start)
    eigenvalue = 0.0
    for _step in range(most):
        w = A @ v
        previous, eigenvalue = eigenvalue, v @ w
        v = w / np.linalg.norm(w)
        if abs(eigenvalue - previous) < 1e-13 * abs(eigenvalue):
            break
    return eigenvalue, v


def run(A, start, pairs, most):
    work = A.copy()
    values = np.zeros(pairs)
    vectors = np.zeros((pairs, len(A)))
    for k in range(pairs):
        values[k], v = power_iteration(work, start, most)
        v = v * np.sign(v[np.argmax(np.abs(v))])
        vectors[k] = v
        work -= values[k] * np.outer(v, v)
    inverse = np.linalg.inv(A - 6.0 * np.eye(len(A)))
    v = start.copy()
    for _ in range(20):
        v = inverse @ v
        v /= np.sqrt((v * v).sum())
    near_six = v @ A @ v
    return values, np.abs(vectors @ A @ vectors.T).round(6), near_six
