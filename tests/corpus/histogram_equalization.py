"""Histograms of uint8 images: equalization, Otsu's threshold, gamma tables, dithering."""

import numpy as np

SIZES = {
    "test": {"n": 8, "dithered": 4},
    "tiny": {"n": 30, "dithered": 22},
    "middle": {"n": 400, "dithered": 50},
    "large": {"n": 1500, "dithered": 80},
}


def make(n, dithered):
    rng = np.random.default_rng(25)
    y, x = np.mgrid[0:n, 0:n] / n
    image = 60 + 50 * np.exp(-8 * ((x - 0.4) ** 2 + (y - 0.6) ** 2)) + rng.normal(0, 4, (n, n))
    image[(x > 0.7) & (y < 0.3)] += 70
    return np.clip(image, 0, 255).astype(np.uint8), dithered


def equalize(image):
    hist, _ = np.histogram(image.flatten(), 256, (0, 256))
    cdf = hist.cumsum()
    cdf_masked = np.ma.masked_equal(cdf, 0)
    table = (cdf_masked - cdf_masked.min()) * 255 / (cdf_masked.max() - cdf_masked.min())
    table = np.ma.filled(table, 0).astype("uint8")
    return table[image], hist


def otsu(image):
    hist = np.bincount(image.ravel(), minlength=256).astype(float)
    p = hist / hist.sum()
    omega = np.cumsum(p)
    mu = np.cumsum(p * np.arange(256))
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (mu[-1] * omega - mu) ** 2 / (omega * (1 - omega))
    return int(np.nanargmax(between))


def floyd_steinberg(image):
    pixels = image.astype(float)
    h, w = pixels.shape
    for y in range(h):
        for x in range(w):
            old = pixels[y, x]
            new = 255.0 if old > 96 else 0.0
            pixels[y, x] = new
            error = old - new
            if x + 1 < w:
                pixels[y, x + 1] += error * 7 / 16
            if y + 1 < h:
                if x > 0:
                    pixels[y + 1, x - 1] += error * 3 / 16
                pixels[y + 1, x] += error * 5 / 16
                if x + 1 < w:
                    pixels[y + 1, x + 1] += error * 1 / 16
    return pixels.astype(np.uint8)


def run(image, dithered):
    equalized, hist = equalize(image)
    threshold = otsu(image)
    binary = np.where(image > threshold, 255, 0).astype(np.uint8)
    gamma = (255 * (np.arange(256) / 255.0) ** (1 / 2.2)).astype(np.uint8)
    corrected = np.take(gamma, image)
    stretched = np.interp(image, [image.min(), image.max()], [0, 255]).astype(np.uint8)
    dots = floyd_steinberg(image[:dithered, :dithered])
    return equalized, hist, threshold, binary, corrected, stretched, dots
