"""AdaBoost over decision stumps found by trying every feature, threshold and polarity."""

import numpy as np

SIZES = {
    "test": {"n": 16, "features": 2, "thresholds": 4, "rounds": 2},
    "tiny": {"n": 80, "features": 3, "thresholds": 10, "rounds": 12},
    "middle": {"n": 10_000, "features": 5, "thresholds": 12, "rounds": 6},
    "large": {"n": 150_000, "features": 4, "thresholds": 10, "rounds": 2},
}


def make(n, features, thresholds, rounds):
    rng = np.random.default_rng(15)
    X = rng.normal(size=(n, features))
    y = np.where(X[:, 0] + X[:, 1] ** 2 - 0.5 > 0, 1, -1)
    return X, y, thresholds, rounds


def stump_predict(X, dim, threshold, polarity):
    predictions = np.ones(X.shape[0])
    if polarity == 1:
        predictions[X[:, dim] < threshold] = -1
    else:
        predictions[X[:, dim] > threshold] = -1
    return predictions


def best_stump(X, y, w, thresholds):
    best = None
    least = float("inf")
    for dim in range(X.shape[1]):
        for threshold in np.quantile(X[:, dim], np.linspace(0.05, 0.95, thresholds)):
            for polarity in (1, -1):
                predictions = stump_predict(X, dim, threshold, polarity)
                error = np.sum(w[predictions != y])
                if error < least - 1e-12:
                    least = error
                    best = (dim, float(threshold), polarity)
    return best, least


def run(X, y, thresholds, rounds):
    w = np.full(len(y), 1 / len(y))
    stumps, alphas = [], []
    for _ in range(rounds):
        stump, error = best_stump(X, y, w, thresholds)
        alpha = 0.5 * np.log((1.0 - error + 1e-10) / (error + 1e-10))
        w *= np.exp(-alpha * y * stump_predict(X, *stump))
        w /= np.sum(w)
        stumps.append(stump)
        alphas.append(alpha)
    votes = sum(a * stump_predict(X, *s) for a, s in zip(alphas, stumps))
    return stumps, np.array(alphas), w, np.mean(np.sign(votes) == y)
