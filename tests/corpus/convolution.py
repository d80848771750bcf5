"""Image convolution: pixel by pixel, by shifts, separably, and by strided windows."""

import numpy as np

SIZES = {
    "test": {"n": 8, "small": 5},
    "tiny": {"n": 28, "small": 26},
    "middle": {"n": 250, "small": 40},
    "large": {"n": 1000, "small": 60},
}


def make(n, small):
    y, x = np.mgrid[0:n, 0:n]
    image = 0.5 + 0.25 * np.sin(0.3 * x) * np.cos(0.21 * y) + 0.1 * ((x // 4 + y // 4) % 2)
    return image, small


def gaussian(radius, sigma):
    k = np.arange(-radius, radius + 1)
    g = np.exp(-0.5 * (k / sigma) ** 2)
    return g / g.sum()


def pixel_by_pixel(image, kernel):
    kh, kw = kernel.shape
    padded = np.pad(image, ((kh // 2, kh // 2), (kw // 2, kw // 2)))
    out = np.zeros_like(image)
    flipped = kernel[::-1, ::-1]
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            out[i, j] = np.sum(padded[i : i + kh, j : j + kw] * flipped)
    return out


def by_shifts(image, kernel):
    kh, kw = kernel.shape
    h, w = image.shape
    padded = np.pad(image, ((kh // 2, kh // 2), (kw // 2, kw // 2)))
    out = np.zeros_like(image)
    for i in range(kh):
        for j in range(kw):
            out += kernel[kh - 1 - i, kw - 1 - j] * padded[i : i + h, j : j + w]
    return out


def separable(image, g):
    rows = np.apply_along_axis(np.convolve, 1, image, g, mode="same")
    return np.apply_along_axis(np.convolve, 0, rows, g, mode="same")


def by_windows(image, kernel):
    padded = np.pad(image, kernel.shape[0] // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape)
    return np.einsum("ijkl,kl->ij", windows, kernel[::-1, ::-1])


def run(image, small):
    g = gaussian(2, 1.0)
    kernel = np.outer(g, g)
    crop = image[:small, :small].copy()
    slow = pixel_by_pixel(crop, kernel)
    fast = by_shifts(image, kernel)
    assert np.allclose(slow[:-2, :-2], fast[: small - 2, : small - 2])
    assert np.allclose(separable(crop, g), slow)
    windows = by_windows(image, kernel)
    sharpened = np.clip(image + 1.5 * (image - fast), 0, 1)
    edges = by_shifts(image, np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]]))
    return slow, np.abs(windows - fast).max() < 1e-12, sharpened, edges
