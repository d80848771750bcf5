"""The sixteen colours that say most about a photograph: k-means on its pixels.

Data: ``flower.jpg``, a photograph that scikit-learn ships.  Lloyd's (1982) algorithm; the first
centres are pixels at even steps through the image sorted by brightness, so that every run agrees.
"""

from __future__ import annotations

import numpy

from examples.harness import Example, main

COLOURS = 16
ROUNDS = 12


def load(size):
    """Return the pixels, float64 in 0 to 1, `size` × 273,280 of them, and the first centres."""
    from sklearn.datasets import load_sample_image

    image = load_sample_image("flower.jpg") / 255.0
    pixels = numpy.tile(image.reshape(-1, 3), (size, 1))
    order = numpy.argsort(pixels.sum(axis=1), kind="stable")
    chosen = order[numpy.linspace(0, len(order) - 1, COLOURS).astype(int)]
    return pixels, pixels[chosen]


def squared_distances(pixels, centres):
    """Return the squared distance of each pixel to each centre: pixels × centres."""
    return sum((pixels[:, None, k] - centres[None, :, k]) ** 2 for k in range(3))


def program(np, pixels, centres):
    """Return the centres, the label of each pixel, and the mean squared error."""
    index = np.arange(len(centres))
    for _ in range(ROUNDS):
        labels = squared_distances(pixels, centres).argmin(axis=1)
        member = (labels[:, None] == index[None, :]).astype(float)
        counts = member.sum(axis=0)
        totals = np.stack([(member * pixels[:, k, None]).sum(axis=0) for k in range(3)], axis=1)
        centres = np.where(counts[:, None] > 0, totals / np.maximum(counts, 1)[:, None], centres)
    distances = squared_distances(pixels, centres)
    return centres, distances.argmin(axis=1), distances.min(axis=1).mean()


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    centres, labels, error = outputs
    shape = (427, 640)
    count = shape[0] * shape[1]
    figure = Figure(figsize=(14, 5), layout="constrained")
    before, after = figure.subplots(1, 2)
    before.imshow(inputs[0][:count].reshape(*shape, 3))
    before.set_title("photograph")
    after.imshow(centres[labels[:count]].reshape(*shape, 3))
    after.set_title(f"{len(centres)} colours, root mean square error {error**0.5:.3f}")
    for panel in (before, after):
        panel.set_axis_off()
    return figure


EXAMPLE = Example("kmeans", load, program, draw, default_size=1, rtol=1e-9, atol=1e-12)

if __name__ == "__main__":
    main(EXAMPLE)
