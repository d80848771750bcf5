"""Shaded relief of a mountain range before and after hillslope diffusion.

Data: the SRTM elevation model of the Jacksboro fault, Tennessee (USGS), which matplotlib ships.
The shading is Horn's (1981) third-order finite difference, as in GDAL and ArcGIS; soil creep is
the linear diffusion equation, in explicit steps written in place.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, enlarge, main

METRES_PER_DEGREE = 111_320.0
STEPS = 60
COURANT = 0.2  # diffusivity · time step / spacing²; stable below 0.25


def load(size):
    """Return the elevation in metres, at `size` times the 90 m resolution, and its spacing."""
    from matplotlib import cbook

    with cbook.get_sample_data("jacksboro_fault_dem.npz") as file:
        elevation = file["elevation"].astype(float)
        spacing = float(file["dy"]) * METRES_PER_DEGREE
    return enlarge(elevation, size), numpy.array(spacing / size)


def hillshade(np, dem, spacing, azimuth=315.0, altitude=45.0):
    """Return the light, 0 to 1, that falls on each inner cell of `dem`."""
    west = dem[:-2, :-2] + 2 * dem[1:-1, :-2] + dem[2:, :-2]
    east = dem[:-2, 2:] + 2 * dem[1:-1, 2:] + dem[2:, 2:]
    north = dem[:-2, :-2] + 2 * dem[:-2, 1:-1] + dem[:-2, 2:]
    south = dem[2:, :-2] + 2 * dem[2:, 1:-1] + dem[2:, 2:]
    dz_dx = (east - west) / (8 * spacing)
    dz_dy = (south - north) / (8 * spacing)

    slope = np.arctan(np.hypot(dz_dx, dz_dy))
    aspect = np.arctan2(dz_dy, -dz_dx)
    zenith = math.radians(90 - altitude)
    direction = math.radians(360 - azimuth + 90)
    light = math.cos(zenith) * np.cos(slope)
    light += math.sin(zenith) * np.sin(slope) * np.cos(direction - aspect)
    return np.clip(light, 0, 1)


def diffuse(np, dem, steps):
    """Return `dem` after `steps` explicit steps of diffusion; its rim stays as it is."""
    dem = dem.copy()
    for _ in range(steps):
        dem[1:-1, 1:-1] += COURANT * (
            dem[:-2, 1:-1] + dem[2:, 1:-1] + dem[1:-1, :-2] + dem[1:-1, 2:]
            - 4 * dem[1:-1, 1:-1]
        )
    return dem


def program(np, dem, spacing):
    """Return the relief before, the relief after, and how much ground was lost or gained."""
    worn = diffuse(np, dem, STEPS)
    return hillshade(np, dem, spacing), hillshade(np, worn, spacing), worn - dem


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    before, after, change = outputs
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    axes = figure.subplots(1, 3)
    for panel, light, title in zip(
        axes[:2], (before, after), ("today", "after diffusion"), strict=True
    ):
        panel.imshow(light, cmap="gray", vmin=0, vmax=1)
        panel.set_title(f"Jacksboro fault, {title}")
    limit = numpy.quantile(abs(change), 0.995)
    image = axes[2].imshow(change, cmap="RdBu", vmin=-limit, vmax=limit)
    axes[2].set_title("ground gained (m)")
    figure.colorbar(image, ax=axes[2])
    for panel in axes:
        panel.set_axis_off()
    return figure


EXAMPLE = Example("terrain", load, program, draw, default_size=4, rtol=1e-9, atol=1e-9)

if __name__ == "__main__":
    main(EXAMPLE)
