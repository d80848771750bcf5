"""Integral images: box means, adaptive threshold, Haar features, template matching."""

import numpy as np

SIZES = {
    "test": {"n": 12, "template": 3, "features": 5},
    "tiny": {"n": 40, "template": 5, "features": 500},
    "middle": {"n": 250, "template": 9, "features": 2000},
    "large": {"n": 1200, "template": 5, "features": 5000},
}


def make(n, template, features):
    rng = np.random.default_rng(27)
    image = rng.integers(0, 256, (n, n)).astype(np.float64)
    top = n // 3
    piece = image[top : top + template, top : top + template] * 0.5 + 20
    boxes = rng.integers(0, n - 6, (features, 2))
    return image, piece, boxes


def integral(a):
    out = np.zeros((a.shape[0] + 1, a.shape[1] + 1))
    out[1:, 1:] = a.cumsum(axis=0).cumsum(axis=1)
    return out


def box_sums(S, k):
    return S[k:, k:] - S[:-k, k:] - S[k:, :-k] + S[:-k, :-k]


def haar(S, y, x):
    """White above black, six by six."""
    white = S[y + 3, x + 6] - S[y, x + 6] - S[y + 3, x] + S[y, x]
    black = S[y + 6, x + 6] - S[y + 3, x + 6] - S[y + 6, x] + S[y + 3, x]
    return white - black


def match(image, piece):
    k = piece.shape[0]
    mean = box_sums(integral(image), k) / k**2
    variance = box_sums(integral(image**2), k) / k**2 - mean**2
    centred = piece - piece.mean()
    h, w = mean.shape
    products = np.zeros_like(mean)
    for dy, dx in np.ndindex(piece.shape):
        products += centred[dy, dx] * image[dy : dy + h, dx : dx + w]
    return products / (k**2 * np.sqrt(variance * piece.var()))


def run(image, piece, boxes):
    S = integral(image)
    scores = match(image, piece)
    where = np.unravel_index(scores.argmax(), scores.shape)
    local = box_sums(S, 5) / 25
    dark = image[2:-2, 2:-2] < 0.9 * local
    values = np.array([haar(S, y, x) for y, x in boxes[:500]])
    all_values = haar(S, boxes[:, 0], boxes[:, 1])
    assert np.array_equal(values, all_values[:500])
    order = np.argsort(all_values, kind="stable")
    return where, scores.max().round(9), dark, values, order[:10], boxes[order[-3:]]
