"""Convolutional network in float32: im2col, max-pooling and their gradients by hand, momentum."""

import numpy as np

SIZES = {
    "test": {"images": 4, "side": 6, "filters": 2, "steps": 1},
    "tiny": {"images": 6, "side": 8, "filters": 4, "steps": 30},
    "middle": {"images": 32, "side": 16, "filters": 8, "steps": 8},
    "large": {"images": 128, "side": 28, "filters": 16, "steps": 5},
}


def make(images, side, filters, steps):
    rng = np.random.default_rng(49)
    label = rng.integers(0, 2, images)
    stripes = np.sin(np.arange(side) * 1.5)
    X = np.where(label[:, None, None] == 0, stripes[:, None], stripes[None, :])
    X = (X + 0.3 * rng.normal(size=X.shape)).astype(np.float32)
    half = (side - 2) // 2
    params = [
        (0.3 * rng.normal(size=(9, filters))).astype(np.float32),
        np.zeros(filters, np.float32),
        (0.1 * rng.normal(size=(half * half * filters, 2))).astype(np.float32),
        np.zeros(2, np.float32),
    ]
    return X, label, params, steps


def im2col(X):
    n, h, w = X.shape
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), axis=(1, 2))
    return windows.reshape(n, h - 2, w - 2, 9)


def pool(a):
    n, h, w, c = a.shape
    blocks = a[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
    out = blocks.max(axis=(2, 4))
    mask = blocks == out[:, :, None, :, None, :]
    return out, mask


def unpool(d, mask, shape):
    spread = mask * d[:, :, None, :, None, :]
    n, h, w, c = shape
    out = np.zeros(shape, d.dtype)
    out[:, : h // 2 * 2, : w // 2 * 2] = spread.reshape(n, h // 2 * 2, w // 2 * 2, c)
    return out


def step(X, label, params):
    W, b, V, c = params
    n = len(X)
    columns = im2col(X)
    z = columns @ W + b
    a = np.maximum(z, 0)
    pooled, mask = pool(a)
    flat = pooled.reshape(n, -1)
    scores = flat @ V + c
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(n), label]).mean()
    d = p
    d[np.arange(n), label] -= 1
    d /= n
    dV, dc = flat.T @ d, d.sum(axis=0)
    dpooled = (d @ V.T).reshape(pooled.shape)
    dz = unpool(dpooled, mask, a.shape) * (z > 0)
    dW = np.tensordot(columns, dz, axes=([0, 1, 2], [0, 1, 2]))
    return loss, [dW, dz.sum(axis=(0, 1, 2)), dV, dc]


def run(X, label, params, steps):
    velocity = [np.zeros_like(p) for p in params]
    losses = []
    for _ in range(steps):
        loss, gradients = step(X, label, params)
        for p, v, g in zip(params, velocity, gradients):
            v *= 0.8
            v -= np.float32(0.05) * g
            p += v
        losses.append(loss)
    return np.array(losses)
