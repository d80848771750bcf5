"""Filters on a photograph: Gaussian blur, unsharp mask, Sobel edges, bilateral filter.

Data: ``china.jpg``, a photograph that scikit-learn ships (CC-BY, see its README).  The bilateral
filter is Tomasi and Manduchi's (1998): a weighted mean over a window whose weights fall with the
distance in space and in brightness.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, enlarge, main


def load(size):
    """Return the photograph as float32 in 0 to 1, enlarged `size` times."""
    from sklearn.datasets import load_sample_image

    return (enlarge(load_sample_image("china.jpg") / 255.0, size).astype("float32"),)


def gaussian_blur(np, image, sigma):
    """Convolve the first two axes with a Gaussian, reflecting at the edges."""
    radius = math.ceil(3 * sigma)
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    height, width = image.shape[:2]
    padded = np.pad(image, ((radius, radius), (radius, radius), (0, 0)), mode="reflect")
    rows = sum(w * padded[k : k + height] for k, w in enumerate(weights))
    return sum(w * rows[:, k : k + width] for k, w in enumerate(weights)) / sum(weights) ** 2


def unsharp(np, image, sigma=2.0, amount=1.5):
    """Sharpen by adding what a blur takes away."""
    return np.clip(image + amount * (image - gaussian_blur(np, image, sigma)), 0, 1)


def luminance(image):
    """Return the brightness of an RGB image (ITU-R BT.709)."""
    return 0.2126 * image[..., 0] + 0.7152 * image[..., 1] + 0.0722 * image[..., 2]


def sobel(np, gray):
    """Return the length of the Sobel gradient at each inner pixel."""
    left = gray[:-2, :-2] + 2 * gray[1:-1, :-2] + gray[2:, :-2]
    right = gray[:-2, 2:] + 2 * gray[1:-1, 2:] + gray[2:, 2:]
    top = gray[:-2, :-2] + 2 * gray[:-2, 1:-1] + gray[:-2, 2:]
    bottom = gray[2:, :-2] + 2 * gray[2:, 1:-1] + gray[2:, 2:]
    return np.hypot(right - left, bottom - top)


def bilateral(np, gray, radius=3, sigma_space=2.0, sigma_range=0.1):
    """Smooth `gray` but not across its edges."""
    height, width = gray.shape
    padded = np.pad(gray, radius, mode="reflect")
    total = np.zeros_like(gray)
    norm = np.zeros_like(gray)
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            near = math.exp(-(dx * dx + dy * dy) / (2 * sigma_space**2))
            row, column = radius + dy, radius + dx
            other = padded[row : row + height, column : column + width]
            weight = near * np.exp((other - gray) ** 2 * (-0.5 / sigma_range**2))
            total += weight * other
            norm += weight
    return total / norm


def program(np, image):
    gray = luminance(image)
    return unsharp(np, image), sobel(np, gray), bilateral(np, gray)


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    sharp, edges, smooth = outputs
    figure = Figure(figsize=(13, 9), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    for panel, picture, title, top in zip(
        panels,
        (inputs[0], sharp, edges, smooth),
        ("photograph", "unsharp mask", "Sobel edges", "bilateral filter"),
        (1, 1, numpy.quantile(edges, 0.99), 1),
        strict=True,
    ):
        panel.imshow(picture, cmap="gray", vmin=0, vmax=top)
        panel.set_title(title)
        panel.set_axis_off()
    return figure


EXAMPLE = Example("image_filter", load, program, draw, default_size=4, rtol=1e-4, atol=1e-5)

if __name__ == "__main__":
    main(EXAMPLE)
