"""Logistic regression by gradient descent with an l2 penalty, on standardized features."""

import numpy as np

SIZES = {
    "test": {"n": 30, "features": 3, "epochs": 8},
    "tiny": {"n": 120, "features": 4, "epochs": 400},
    "middle": {"n": 8000, "features": 10, "epochs": 150},
    "large": {"n": 200_000, "features": 20, "epochs": 20},
}


class LogisticRegression:
    def __init__(self, learning_rate=0.3, epochs=100, penalty=1e-3):
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.penalty = penalty

    @staticmethod
    def sigmoid(z):
        return 1.0 / (1.0 + np.exp(-z))

    def fit(self, X, y):
        n_samples, n_features = X.shape
        self.weights = np.zeros(n_features)
        self.bias = 0.0
        self.losses = []
        for epoch in range(self.epochs):
            p = self.sigmoid(np.dot(X, self.weights) + self.bias)
            dw = (1 / n_samples) * np.dot(X.T, (p - y)) + self.penalty * self.weights
            db = (1 / n_samples) * np.sum(p - y)
            self.weights -= self.learning_rate * dw
            self.bias -= self.learning_rate * db
            if epoch % 10 == 0:
                loss = -np.mean(y * np.log(p + 1e-9) + (1 - y) * np.log(1 - p + 1e-9))
                self.losses.append(loss)
        return self

    def predict(self, X):
        return (self.sigmoid(X @ self.weights + self.bias) > 0.5).astype(int)


def make(n, features, epochs):
    rng = np.random.default_rng(1)
    X = rng.normal(3.0, 2.0, (n, features))
    w = np.linspace(-2, 2, features)
    y = (X @ w + rng.normal(size=n) > 3 * w.sum()).astype(int)
    return X, y, epochs


def run(X, y, epochs):
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    model = LogisticRegression(epochs=epochs).fit(X, y)
    predicted = model.predict(X)
    accuracy = np.sum(predicted == y) / len(y)
    confusion = np.zeros((2, 2), dtype=int)
    np.add.at(confusion, (y, predicted), 1)
    return model.weights, model.bias, np.array(model.losses), accuracy, confusion
