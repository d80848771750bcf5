"""Escape times of the Mandelbrot set: with a shrinking index, with masks, and point by point."""

import numpy as np

SIZES = {
    "test": {"width": 8, "height": 6, "most": 6},
    "tiny": {"width": 20, "height": 14, "most": 80},
    "middle": {"width": 180, "height": 120, "most": 60},
    "large": {"width": 900, "height": 600, "most": 20},
}


def make(width, height, most):
    x = np.linspace(-2.013, 0.987, width)
    y = np.linspace(-1.217, 1.217, height)
    return x[np.newaxis, :] + 1j * y[:, np.newaxis], most


def with_masks(c, most):
    z = np.zeros_like(c)
    output = np.zeros(c.shape, dtype=int)
    for it in range(most):
        notdone = z.real * z.real + z.imag * z.imag < 4.0
        output[notdone] = it
        z[notdone] = z[notdone] ** 2 + c[notdone]
    output[output == most - 1] = 0
    return output


def shrinking(c, most):
    counts = np.zeros(c.size, dtype=np.int32)
    index = np.arange(c.size)
    c = c.ravel()
    z = c.copy()
    for _ in range(most):
        inside = np.abs(z) <= 2.0
        index, z, c = index[inside], z[inside], c[inside]
        if len(index) == 0:
            break
        counts[index] += 1
        z = z * z + c
    return counts


def run(c, most):
    output = with_masks(c, most)
    counts = shrinking(c, most).reshape(c.shape)
    area = np.mean(counts == most) * 3.0 * 2.434
    levels = np.bincount(counts.ravel(), minlength=most + 1)
    return output, counts, area, levels
