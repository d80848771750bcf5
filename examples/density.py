"""Where the flowers are: a kernel density estimate of the iris measurements.

Data: Fisher's iris measurements, which scikit-learn ships.  The density of petal length and width
is a sum of Gaussians, one for each flower, at every point of a fine grid; each species has its own
bandwidth by Scott's (1992) rule.  The points × flowers table is never needed, only its row sums.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, main

SPECIES = 3


def load(size):
    """Return the grid's axes, the petals (length, width in cm) of each species, and bandwidths."""
    from sklearn.datasets import load_iris

    iris = load_iris()
    petals = numpy.stack([iris.data[iris.target == k, 2:] for k in range(SPECIES)])
    bandwidths = petals.std(axis=1, ddof=1) * petals.shape[1] ** (-1 / 6)
    lengths = numpy.linspace(0.5, 7.5, 100 * size)
    widths = numpy.linspace(-0.2, 2.9, 60 * size)
    return lengths, widths, petals, bandwidths


def program(np, lengths, widths, petals, bandwidths):
    """Return the density of each species (1/cm²) at each point of the grid, and of all three."""
    x = np.broadcast_to(lengths[None, :], (len(widths), len(lengths))).reshape(-1)
    y = np.broadcast_to(widths[:, None], (len(widths), len(lengths))).reshape(-1)
    densities = []
    for k in range(SPECIES):
        length_scale, width_scale = bandwidths[k, 0], bandwidths[k, 1]
        u = (x[:, None] - petals[k, None, :, 0]) / length_scale
        v = (y[:, None] - petals[k, None, :, 1]) / width_scale
        total = np.exp(-0.5 * (u * u + v * v)).sum(axis=1)
        norm = 2 * math.pi * length_scale * width_scale * petals.shape[1]
        densities.append((total / norm).reshape(len(widths), len(lengths)))
    each = np.stack(densities)
    return each, each.mean(axis=0)


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    lengths, widths, petals, _ = inputs
    each, mean = outputs
    figure = Figure(figsize=(10, 6), layout="constrained")
    panel = figure.subplots()
    image = panel.pcolormesh(lengths, widths, numpy.sqrt(mean), cmap="Greys", rasterized=True)
    colours = ("tab:blue", "tab:orange", "tab:green")
    for density, flowers, colour, name in zip(
        each, petals, colours, ("setosa", "versicolor", "virginica"), strict=True
    ):
        levels = density.max() * numpy.array([0.05, 0.2, 0.4, 0.6, 0.8])
        panel.contour(lengths, widths, density, levels, colors=colour, linewidths=0.8)
        panel.plot(*flowers.T, ".", color=colour, label=f"Iris {name}")
    panel.set(xlabel="petal length (cm)", ylabel="petal width (cm)", title="Iris petals")
    panel.legend()
    figure.colorbar(image, label="square root of the density (1/cm)")
    return figure


EXAMPLE = Example("density", load, program, draw, default_size=5, rtol=1e-9, atol=1e-12)

if __name__ == "__main__":
    main(EXAMPLE)
