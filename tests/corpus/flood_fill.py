"""Flood fill by a stack, connected components by spreading labels, distances by wavefronts."""

import numpy as np

SIZES = {
    "test": {"n": 7, "small": 5, "most": 4},
    "tiny": {"n": 26, "small": 14, "most": 60},
    "middle": {"n": 200, "small": 30, "most": 40},
    "large": {"n": 1000, "small": 40, "most": 10},
}


def make(n, small, most):
    rng = np.random.RandomState(28)
    noise = rng.rand(n, n)
    for _ in range(2):
        noise = 0.2 * (
            noise + np.roll(noise, 1, 0) + np.roll(noise, -1, 0)
            + np.roll(noise, 1, 1) + np.roll(noise, -1, 1)
        )  # fmt: skip
    image = (noise > 0.49).astype(np.int32)
    image[0, 0] = 1
    return image, small, most


def flood(image, row, col, color):
    """Fill in place; return how many pixels."""
    old = image[row, col]
    if old == color:
        return 0
    h, w = image.shape
    stack = [(row, col)]
    filled = 0
    while stack:
        r, c = stack.pop()
        if 0 <= r < h and 0 <= c < w and image[r, c] == old:
            image[r, c] = color
            filled += 1
            stack.extend([(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)])
    return filled


def components(mask, most):
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    for _ in range(most):
        p = np.pad(labels, 1)
        best = np.maximum.reduce([labels, p[:-2, 1:-1], p[2:, 1:-1], p[1:-1, :-2], p[1:-1, 2:]])
        spread = np.where(mask, best, 0)
        if (spread == labels).all():
            break
        labels = spread
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return inverse.reshape(mask.shape), counts


def distances(free, most):
    distance = np.where(free, -1, -2)
    front = np.zeros_like(free)
    front[0, 0] = free[0, 0]
    for step in range(most):
        distance[front] = step
        grown = np.zeros_like(front)
        grown[1:] |= front[:-1]
        grown[:-1] |= front[1:]
        grown[:, 1:] |= front[:, :-1]
        grown[:, :-1] |= front[:, 1:]
        front = grown & (distance == -1)
        if not front.any():
            break
    return distance


def run(image, small, most):
    mask = image == 1
    labels, counts = components(mask, most)
    distance = distances(mask, most)
    filled = flood(image[:small, :small], 0, 0, 7)
    corners = [labels[0, 0], labels[-1, -1]]
    return labels, counts, distance, filled, (image == 7).sum(), corners
