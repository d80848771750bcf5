"""Two-layer network written out: minibatches, backpropagation by hand, Adam, numeric check."""

import numpy as np

SIZES = {
    "test": {"n": 16, "hidden": 4, "batch": 8, "epochs": 2},
    "tiny": {"n": 128, "hidden": 16, "batch": 16, "epochs": 12},
    "middle": {"n": 2048, "hidden": 64, "batch": 256, "epochs": 8},
    "large": {"n": 8192, "hidden": 256, "batch": 4096, "epochs": 2},
}


def make(n, hidden, batch, epochs):
    rng = np.random.default_rng(10)
    angle = rng.uniform(0, 2 * np.pi, n)
    label = rng.integers(0, 3, n)
    radius = 1 + label + 0.2 * rng.normal(size=n)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    params = {
        "W1": rng.normal(size=(2, hidden)), "b1": np.zeros(hidden),
        "W2": rng.normal(size=(hidden, 3)) / np.sqrt(hidden), "b2": np.zeros(3),
    }  # fmt: skip
    return X, label, params, batch, epochs


def forward(params, X):
    z1 = X @ params["W1"] + params["b1"]
    a1 = np.maximum(0, z1)
    scores = a1 @ params["W2"] + params["b2"]
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return z1, a1, e / e.sum(axis=1, keepdims=True)


def loss_of(probs, y):
    return -np.log(probs[np.arange(len(y)), y]).mean()


def gradients(params, X, y):
    z1, a1, probs = forward(params, X)
    dscores = probs.copy()
    dscores[np.arange(len(y)), y] -= 1
    dscores /= len(y)
    da1 = dscores @ params["W2"].T
    dz1 = da1 * (z1 > 0)
    grads = {"W2": a1.T @ dscores, "b2": dscores.sum(axis=0), "W1": X.T @ dz1,
             "b1": dz1.sum(axis=0)}  # fmt: skip
    return loss_of(probs, y), grads


def numeric(params, X, y, name, index, h=1e-5):
    saved = params[name][index]
    params[name][index] = saved + h
    up = loss_of(forward(params, X)[2], y)
    params[name][index] = saved - h
    down = loss_of(forward(params, X)[2], y)
    params[name][index] = saved
    return (up - down) / (2 * h)


def run(X, y, params, batch, epochs):
    m = {k: np.zeros_like(v) for k, v in params.items()}
    v = {k: np.zeros_like(v) for k, v in params.items()}
    t, losses = 0, []
    rng = np.random.default_rng(11)
    _, grads = gradients(params, X[:batch], y[:batch])
    slope = numeric(params, X[:batch], y[:batch], "W2", (1, 2))
    assert abs(slope - grads["W2"][1, 2]) < 1e-6
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for i in range(0, len(y), batch):
            rows = order[i : i + batch]
            loss, grads = gradients(params, X[rows], y[rows])
            losses.append(loss)
            t += 1
            for k in params:
                m[k] = 0.9 * m[k] + 0.1 * grads[k]
                v[k] = 0.999 * v[k] + 0.001 * grads[k] ** 2
                step = (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
                params[k] -= 0.02 * step
    predicted = forward(params, X)[2].argmax(axis=1)
    return np.array(losses), np.mean(predicted == y)
