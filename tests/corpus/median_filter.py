"""Rank filters: medians by a loop and stacked, erosion and dilation, bilateral filter."""

import numpy as np

SIZES = {
    "test": {"n": 8, "looped": 4},
    "tiny": {"n": 24, "looped": 16},
    "middle": {"n": 120, "looped": 30},
    "large": {"n": 450, "looped": 50},
}


def make(n, looped):
    rng = np.random.RandomState(26)
    image = np.tile(np.linspace(0, 200, n), (n, 1))
    image[n // 3 : 2 * n // 3, n // 3 : 2 * n // 3] = 220
    salt = rng.rand(n, n)
    image[salt < 0.04] = 0
    image[salt > 0.96] = 255
    return image, looped


def median_by_loop(image):
    h, w = image.shape
    out = image.copy()
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            out[i, j] = np.median(image[i - 1 : i + 2, j - 1 : j + 2])
    return out


def neighbourhood(image):
    p = np.pad(image, 1, mode="edge")
    h, w = image.shape
    return np.array([p[i : i + h, j : j + w] for i in range(3) for j in range(3)])


def bilateral(image, radius, spatial, tonal):
    p = np.pad(image, radius, mode="reflect")
    h, w = image.shape
    total, weights = np.zeros_like(image), np.zeros_like(image)
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            shifted = p[dy : dy + h, dx : dx + w]
            distance = (dy - radius) ** 2 + (dx - radius) ** 2
            weight = np.exp(-distance / (2 * spatial**2) - (shifted - image) ** 2 / (2 * tonal**2))
            total += weight * shifted
            weights += weight
    return total / weights


def run(image, looped):
    slow = median_by_loop(image[:looped, :looped])
    stack = neighbourhood(image)
    median = np.median(stack, axis=0)
    assert np.array_equal(slow[1:-1, 1:-1], median[1 : looped - 1, 1 : looped - 1])
    eroded, dilated = stack.min(axis=0), stack.max(axis=0)
    opened = neighbourhood(eroded).max(axis=0)
    smooth = bilateral(median, 2, 1.5, 30.0)
    mse = np.mean((median - smooth) ** 2)
    return slow, median, dilated - eroded, opened, smooth, 10 * np.log10(255**2 / (mse + 1e-9))
