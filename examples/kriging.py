"""Heights between the points of a survey: thousands of small Gaussian processes.

Data: the SRTM elevation model of the Jacksboro fault, Tennessee (USGS), which matplotlib ships.  Of
its cells one in twenty counts as surveyed.  Each height that is asked for is predicted from the 32
points nearest to it, by a Gaussian process of its own (kriging in local neighbourhoods; Vecchia
1988), with a Matérn covariance of order 3/2.  Amplitude, length and noise are common to all: the
mean marginal likelihood of the neighbourhoods is climbed along its gradient (Rasmussen and Williams
2006, section 5.4.1).  tiledarray differentiates it; for NumPy its gradient is written out by hand.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, main

METRES_PER_DEGREE = 111_320.0
NEAREST = 32
FIRST = (math.log(50.0), math.log(500.0), math.log(10.0))  # amplitude, length, noise in metres


def load(size):
    """Return places and heights of neighbourhoods, what is true in their middle, and the start.

    There are 250 * `size` of them; places are metres from the middle, heights those above the
    neighbourhood's mean.
    """
    from matplotlib import cbook
    from scipy.spatial import KDTree

    with cbook.get_sample_data("jacksboro_fault_dem.npz") as file:
        elevation = file["elevation"].astype(float)
        north = float(file["dy"]) * METRES_PER_DEGREE
        east = float(file["dx"]) * METRES_PER_DEGREE * math.cos(math.radians(float(file["ymin"])))
    order = numpy.random.default_rng(0).permutation(elevation.size)
    surveyed, asked = numpy.split(order, [elevation.size // 20])
    rows, columns = numpy.divmod(numpy.arange(elevation.size), elevation.shape[1])
    place = numpy.stack([rows * north, columns * east], axis=1)
    asked = asked[: 250 * size]
    _, near = KDTree(place[surveyed]).query(place[asked], NEAREST)
    near = surveyed[near]
    heights = elevation.ravel()[near]
    middle = heights.mean(axis=1)
    return (place[near] - place[asked][:, None], heights - middle[:, None],
            elevation.ravel()[asked] - middle, numpy.array(FIRST))


def covariance(np, squares, amplitude, length):
    """Return the covariance of heights whose places have squared distances `squares` (Matérn)."""
    reach = np.sqrt(3 * squares + 1e-6) / length
    return amplitude**2 * (1 + reach) * np.exp(-reach)


def distances(places):
    """Return the squared distances between the places of each neighbourhood."""
    return ((places[:, :, None] - places[:, None]) ** 2).sum(axis=-1)


def misfit(np, unknown, places, heights):
    """Return the mean negative log marginal likelihood of a neighbourhood, but for a constant."""
    amplitude, length, noise = np.exp(unknown)
    matrix = covariance(np, distances(places), amplitude, length) + noise**2 * np.eye(NEAREST)
    lower = np.linalg.cholesky(matrix)
    white = np.linalg.solve(lower, heights[..., None])[..., 0]
    logs = np.log(np.diagonal(lower, axis1=1, axis2=2))
    return (0.5 * (white**2).sum(axis=1) + logs.sum(axis=1)).mean()


def by_hand(np):
    """Return the function that a gradient took before one could ask for it."""

    def both(unknown, places, heights):
        amplitude, length, noise = np.exp(unknown)
        squares = distances(places)
        smooth = covariance(np, squares, amplitude, length)
        matrix = smooth + noise**2 * np.eye(NEAREST)
        inverse = np.linalg.inv(matrix)
        weights = inverse @ heights[..., None]
        outer = 0.5 * (inverse - weights * weights.mT)
        reach = np.sqrt(3 * squares + 1e-6) / length
        slopes = (2 * smooth, amplitude**2 * reach**2 * np.exp(-reach),
                  2 * noise**2 * np.eye(NEAREST))
        gradient = [(outer * slope).sum(axis=(1, 2)).mean() for slope in slopes]
        return misfit(np, unknown, places, heights), np.array(gradient)

    return both


def asked_for(np):
    """Return the function that gives misfit and gradient, recorded once."""
    both = np.jit(np.value_and_grad(
        lambda unknown, places, heights: misfit(np, unknown, places, heights)))
    return lambda unknown, *seen: both(np.asarray(unknown), *seen)


def predict(np, unknown, places, heights):
    """Return the height in the middle of each neighbourhood, and its standard deviation."""
    amplitude, length, noise = np.exp(unknown)
    matrix = covariance(np, distances(places), amplitude, length) + noise**2 * np.eye(NEAREST)
    across = covariance(np, (places**2).sum(axis=-1), amplitude, length)[..., None]
    weights = np.linalg.solve(matrix, across)
    mean = (weights[..., 0] * heights).sum(axis=1)
    return mean, np.sqrt(amplitude**2 - (weights * across).sum(axis=(1, 2)))


def program(np, places, heights, true, start):
    """Return the misfit before and after, the parameters (metres), heights and deviations."""
    from scipy.optimize import minimize

    function = by_hand(np) if np is numpy else asked_for(np)
    found = minimize(function, start, (places, heights), jac=True, method="L-BFGS-B",
                     options={"maxiter": 10})
    unknown = np.asarray(found.x)
    fits = [misfit(np, parameters, places, heights) for parameters in (start, unknown)]
    return np.stack(fits), np.exp(unknown), *predict(np, unknown, places, heights)


def tell(outputs):
    (before, after), (amplitude, length, noise), _, _ = outputs
    return (f"misfit from {before:.2f} to {after:.2f}: amplitude {amplitude:.0f} m, "
            f"length {length:.0f} m, noise {noise:.1f} m")


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    _, _, true, _ = inputs
    _, _, heights, deviations = outputs
    figure = Figure(figsize=(11, 5), layout="constrained")
    figure.suptitle(tell(outputs))
    left, right = figure.subplots(1, 2)
    left.plot(true, heights, ",")
    error = numpy.sqrt(((heights - true) ** 2).mean())
    left.set(xlabel="true (m)", ylabel="predicted (m)", aspect="equal",
             title=f"heights: root mean square error {error:.1f} m,\n"
                   f"the mean of the neighbours {true.std():.1f} m")
    right.hist((heights - true) / deviations, 60, density=True, range=(-5, 5))
    x = numpy.linspace(-5, 5, 200)
    right.plot(x, numpy.exp(-0.5 * x**2) / math.sqrt(2 * math.pi))
    right.set(title="errors over predicted deviations")
    return figure


EXAMPLE = Example("kriging", load, program, draw, default_size=16, rtol=1e-4, atol=1e-3, tell=tell)

if __name__ == "__main__":
    main(EXAMPLE)
