"""Character-level recurrent network, forward and back through time by hand (after min-char-rnn)."""

import numpy as np

SIZES = {
    "test": {"hidden": 5, "length": 4, "steps": 2, "symbols": 4},
    "tiny": {"hidden": 24, "length": 15, "steps": 20, "symbols": 9},
    "middle": {"hidden": 200, "length": 25, "steps": 12, "symbols": 60},
    "large": {"hidden": 600, "length": 25, "steps": 2, "symbols": 100},
}


def make(hidden, length, steps, symbols):
    rng = np.random.RandomState(16)
    data = np.cumsum(rng.randint(0, 2, length * steps + 1)) % symbols
    weights = [
        rng.randn(hidden, symbols) * 0.1, rng.randn(hidden, hidden) * 0.1,
        rng.randn(symbols, hidden) * 0.1, np.zeros((hidden, 1)), np.zeros((symbols, 1)),
    ]  # fmt: skip
    return data, weights, length, steps


def loss_and_gradients(weights, inputs, targets, hprev):
    Wxh, Whh, Why, bh, by = weights
    xs, hs, ps = {}, {-1: np.copy(hprev)}, {}
    loss = 0
    for t in range(len(inputs)):
        xs[t] = np.zeros((Wxh.shape[1], 1))
        xs[t][inputs[t]] = 1
        hs[t] = np.tanh(np.dot(Wxh, xs[t]) + np.dot(Whh, hs[t - 1]) + bh)
        y = np.dot(Why, hs[t]) + by
        ps[t] = np.exp(y) / np.sum(np.exp(y))
        loss += -np.log(ps[t][targets[t], 0])
    dWxh, dWhh, dWhy, dbh, dby = (np.zeros_like(w) for w in weights)
    dhnext = np.zeros_like(hs[0])
    for t in reversed(range(len(inputs))):
        dy = np.copy(ps[t])
        dy[targets[t]] -= 1
        dWhy += np.dot(dy, hs[t].T)
        dby += dy
        dh = np.dot(Why.T, dy) + dhnext
        dhraw = (1 - hs[t] * hs[t]) * dh
        dbh += dhraw
        dWxh += np.dot(dhraw, xs[t].T)
        dWhh += np.dot(dhraw, hs[t - 1].T)
        dhnext = np.dot(Whh.T, dhraw)
    gradients = [dWxh, dWhh, dWhy, dbh, dby]
    for g in gradients:
        np.clip(g, -5, 5, out=g)
    return loss, gradients, hs[len(inputs) - 1]


def run(data, weights, length, steps):
    memory = [np.zeros_like(w) for w in weights]
    hprev = np.zeros((weights[1].shape[0], 1))
    rate = 0.2 / len(hprev)
    losses = []
    for k in range(steps):
        inputs = data[k * length : (k + 1) * length]
        targets = data[k * length + 1 : (k + 1) * length + 1]
        loss, gradients, hprev = loss_and_gradients(weights, inputs, targets, hprev)
        losses.append(float(loss))
        for param, dparam, mem in zip(weights, gradients, memory):
            mem += dparam * dparam
            param += -rate * dparam / np.sqrt(mem + 1e-4)
    return losses, hprev
