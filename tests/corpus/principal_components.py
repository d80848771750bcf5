"""Principal component analysis by eigenvectors of the covariance, by SVD, and whitening."""

import numpy as np

SIZES = {
    "test": {"n": 20, "features": 4, "repeats": 1},
    "tiny": {"n": 60, "features": 5, "repeats": 25},
    "middle": {"n": 3000, "features": 20, "repeats": 6},
    "large": {"n": 80_000, "features": 24, "repeats": 1},
}


def make(n, features, repeats):
    rng = np.random.default_rng(14)
    scales = 2.0 ** -np.arange(features)
    mixing = np.eye(features) + 0.2 * rng.normal(size=(features, features))
    data = [rng.normal(size=(n, features)) * scales @ mixing + 5 for _ in range(repeats)]
    return (data,)


def fix_signs(components):
    largest = np.argmax(np.abs(components), axis=1)
    return components * np.sign(components[np.arange(len(components)), largest])[:, None]


def pca(X, k):
    mean = X.mean(axis=0)
    centred = X - mean
    covariance = centred.T @ centred / (len(X) - 1)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(values)[::-1][:k]
    return mean, values[order], fix_signs(vectors[:, order].T)


def run(data):
    summary = []
    for X in data:
        mean, variances, components = pca(X, 2)
        projected = (X - mean) @ components.T
        restored = projected @ components + mean
        error = np.sqrt(np.mean((X - restored) ** 2))
        white = projected / np.sqrt(variances)
        _, s, Vt = np.linalg.svd(X - mean, full_matrices=False)
        agree = np.allclose(s[:2] ** 2 / (len(X) - 1), variances)
        agree &= np.allclose(np.abs(Vt[:2]), np.abs(components), atol=1e-6)
        np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=1e-9)
        summary.append([error, variances[0], variances[1], float(agree)])
    return np.array(summary), components, projected
