"""Polynomials: least squares in three ways, cross-validation, Horner, Newton and Lagrange forms."""

import numpy as np

SIZES = {
    "test": {"n": 12, "degree": 3, "folds": 2},
    "tiny": {"n": 60, "degree": 6, "folds": 6},
    "middle": {"n": 5000, "degree": 8, "folds": 5},
    "large": {"n": 100_000, "degree": 5, "folds": 2},
}


def make(n, degree, folds):
    x = np.linspace(-1, 1, n)
    noise = np.random.default_rng(35).normal(0, 0.05, n)
    return x, np.sin(3 * x) + 0.3 * x**2 + noise, degree, folds


def normal_equations(x, y, degree):
    V = np.vander(x, degree + 1, increasing=True)
    return np.linalg.solve(V.T @ V, V.T @ y)


def horner(c, x):
    result = np.zeros_like(x)
    for a in c[::-1]:
        result = result * x + a
    return result


def cross_validation(x, y, degree, folds):
    order = np.random.RandomState(0).permutation(len(x))
    errors = np.zeros(degree)
    for d in range(1, degree + 1):
        for part in np.array_split(order, folds):
            train = np.setdiff1d(order, part)
            c = normal_equations(x[train], y[train], d)
            errors[d - 1] += np.mean((horner(c, x[part]) - y[part]) ** 2)
    return errors / folds


def divided_differences(x, y):
    c = y.copy()
    for j in range(1, len(x)):
        c[j:] = (c[j:] - c[j - 1 : -1]) / (x[j:] - x[:-j])
    return c


def newton_form(c, nodes, x):
    result = np.full_like(x, c[-1])
    for a, node in zip(c[-2::-1], nodes[-2::-1]):
        result = result * (x - node) + a
    return result


def lagrange(nodes, values, x):
    total = np.zeros_like(x)
    for i in range(len(nodes)):
        others = np.delete(nodes, i)
        total += values[i] * np.prod((x[:, None] - others) / (nodes[i] - others), axis=1)
    return total


def run(x, y, degree, folds):
    c = normal_equations(x, y, degree)
    by_polyfit = np.polyfit(x, y, degree)[::-1]
    by_lstsq = np.linalg.lstsq(np.vander(x, degree + 1, True), y, rcond=None)[0]
    assert np.allclose(c, by_polyfit, atol=1e-6) and np.allclose(c, by_lstsq, atol=1e-6)
    errors = cross_validation(x, y, degree, folds)
    nodes = np.cos(np.pi * (np.arange(degree + 2) + 0.5) / (degree + 2))
    values = np.exp(nodes) * np.sin(4 * nodes)
    fine = np.linspace(-1, 1, len(x))
    first = newton_form(divided_differences(nodes, values), nodes, fine)
    second = lagrange(nodes, values, fine)
    derivative = np.polyval(np.polyder(by_polyfit[::-1]), x)
    return horner(c, x), errors, int(np.argmin(errors)) + 1, first, second, derivative
