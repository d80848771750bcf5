"""Rosenblatt's perceptron and Adaline, sample by sample."""

import numpy as np

SIZES = {
    "test": {"n": 20, "features": 2, "epochs": 2},
    "tiny": {"n": 100, "features": 4, "epochs": 6},
    "middle": {"n": 400, "features": 100, "epochs": 15},
    "large": {"n": 1000, "features": 1500, "epochs": 20},
}


def make(n, features, epochs):
    rgen = np.random.RandomState(1)
    X = rgen.normal(size=(n, features))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.2, 1, -1)
    return X, y, epochs


def perceptron(X, y, eta, epochs):
    w_ = np.zeros(1 + X.shape[1])
    errors_ = []
    for _ in range(epochs):
        errors = 0
        for xi, target in zip(X, y):
            output = np.where(np.dot(xi, w_[1:]) + w_[0] >= 0.0, 1, -1)
            update = eta * (target - output)
            w_[1:] += update * xi
            w_[0] += update
            errors += int(update != 0.0)
        errors_.append(errors)
    return w_, errors_


def adaline(X, y, eta, epochs, rng):
    weights = rng.normal(0, 0.01, X.shape[1])
    bias = 0.0
    cost = np.zeros(epochs)
    for epoch in range(epochs):
        for i in rng.permutation(len(y)):
            error = y[i] - (X[i] @ weights + bias)
            weights += eta * error * X[i]
            bias += eta * error
            cost[epoch] += 0.5 * error**2
    return weights, bias, cost / len(y)


def run(X, y, epochs):
    w, errors = perceptron(X, y, 0.125, epochs)
    accuracy = np.mean(np.where(X @ w[1:] + w[0] >= 0, 1, -1) == y)
    rate = 0.1 / X.shape[1]
    return w, errors, accuracy, adaline(X, y, rate, epochs // 2, np.random.RandomState(3))
