"""Gaussian and multinomial naive Bayes."""

import numpy as np

SIZES = {
    "test": {"n": 24, "features": 3, "words": 6},
    "tiny": {"n": 120, "features": 5, "words": 30},
    "middle": {"n": 5000, "features": 16, "words": 20},
    "large": {"n": 60_000, "features": 24, "words": 20},
}


def make(n, features, words):
    rng = np.random.default_rng(6)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, features)) + y[:, None] * np.linspace(0.2, 1.0, features)
    rates = rng.gamma(1.0, 1.0, (3, words))
    counts = rng.poisson(rates[y])
    return X, counts, y


class GaussianNB:
    def fit(self, X, y):
        self.classes = np.unique(y)
        shape = (len(self.classes), X.shape[1])
        self.mean, self.var = np.zeros(shape), np.zeros(shape)
        self.priors = np.zeros(len(self.classes))
        for idx, c in enumerate(self.classes):
            X_c = X[y == c]
            self.mean[idx, :] = X_c.mean(axis=0)
            self.var[idx, :] = X_c.var(axis=0)
            self.priors[idx] = X_c.shape[0] / float(X.shape[0])

    def log_joint(self, x):
        """Class by class, for one sample or many."""
        columns = []
        for idx in range(len(self.classes)):
            density = -0.5 * (x - self.mean[idx]) ** 2 / self.var[idx]
            density = density - 0.5 * np.log(2 * np.pi * self.var[idx])
            columns.append(density.sum(axis=-1) + np.log(self.priors[idx]))
        return np.stack(columns, axis=-1)


def multinomial(counts, y):
    totals = np.zeros((3, counts.shape[1]))
    np.add.at(totals, y, counts)
    logp = np.log((totals + 1) / (totals + 1).sum(axis=1, keepdims=True))
    return counts @ logp.T + np.log(np.bincount(y) / len(y))


def run(X, counts, y):
    model = GaussianNB()
    model.fit(X, y)
    joint = model.log_joint(X)
    evidence = np.logaddexp.reduce(joint, axis=1)
    single = np.array([int(model.log_joint(x).argmax()) for x in X[:60]])
    assert np.array_equal(single, joint[:60].argmax(axis=1))
    text = multinomial(counts, y).argmax(axis=1)
    return model.mean, model.var, np.exp(joint - evidence[:, None]), single, (text == y).mean()
