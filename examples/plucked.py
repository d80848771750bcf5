"""A plucked string: how it was drawn and what it is made of, from noisy pickups along it.

Data: made here, by the same simulation, with noise.  A string of one metre is let go from a shape
that nobody saw, and its displacement is measured at every fourth point.  Unknown are the speed of
its waves, its drag in the air, the friction inside it, and the shape, point by point.  The
simulation writes into its arrays step by step, as one does.  SciPy's L-BFGS-B (Byrd, Lu, Nocedal
and Zhu 1995) fits it: with NumPy by differences, which take two simulations for every unknown; with
tiledarray by the gradient of the very same code.
"""

from __future__ import annotations

import numpy

from examples.harness import Example, main

POINTS = 25
BETWEEN = 1 / (POINTS - 1)  # metres
STEP = 1e-3  # seconds
STEPS = 30  # for a size of 1
LAWS = (("waves", "m/s"), ("drag", "1/s"), ("friction", "m²/s"))
TRUE = numpy.array([21.0, 9.0, 0.2])
GUESS = numpy.array([18.0, 5.0, 0.1])
SCALE = numpy.array([0.1, 1.0, 1.0])  # how well the laws are known, as logarithms,
DRAWN = 0.2  # and the shape, in metres
NOISE = 0.01
SMOOTH = 0.02  # how much a bend of the shape counts beside the misfit


def shapes():
    """Return the shape that is looked for, and the one that the search begins with."""
    place = numpy.linspace(0, 1, POINTS)
    return numpy.minimum(place / 0.3, (1 - place) / 0.7), numpy.sin(numpy.pi * place)


def motion(np, shape, laws, steps):
    """Return what the pickups see, step by step."""
    speed, drag, friction = laws
    tension = (speed * STEP / BETWEEN) ** 2
    inner, slower = friction * STEP / BETWEEN**2, 1 - drag * STEP
    u, v = shape.copy(), np.zeros(POINTS)  # displacement, and its change in a step
    u[0] = u[-1] = 0
    seen = np.zeros((steps, len(u[::4])))
    for step in range(steps):
        pull = tension * u + inner * v
        v[1:-1] += pull[2:] - 2 * pull[1:-1] + pull[:-2]
        v *= slower
        u += v
        seen[step] = u[::4]
    return seen


def load(size):
    """Return what the pickups saw, the guessed laws and the guessed shape."""
    true, guess = shapes()
    seen = motion(numpy, true, TRUE, STEPS * size)
    noise = numpy.random.default_rng(0).normal(size=seen.shape)
    return seen + NOISE * noise, GUESS, guess


def program(np, seen, guess, shape):
    """Return the laws and the shape that were found, and what the pickups would see then."""
    from scipy.optimize import minimize

    def parts(unknown):
        return shape + DRAWN * unknown[3:], guess * np.exp(SCALE * unknown[:3])

    def misfit(unknown):
        drawn, laws = parts(unknown)
        bend = drawn[2:] - 2 * drawn[1:-1] + drawn[:-2]
        off = motion(np, drawn, laws, len(seen)) - seen
        return ((off / NOISE) ** 2).mean() + SMOOTH * ((bend / NOISE) ** 2).mean()

    function, slope = (misfit, "3-point") if np is numpy else (np.value_and_grad(misfit), True)
    found = minimize(function, numpy.zeros(3 + POINTS), jac=slope, method="L-BFGS-B",
                     options={"ftol": 1e-6, "maxiter": 500})
    drawn, laws = parts(np.asarray(found.x))
    return laws, drawn, motion(np, drawn, laws, len(seen))


def tell(outputs):
    """Return lines that show what was found beside what is true."""
    shape, _ = shapes()
    lines = [f"{name:9} {value:8.3f} {unit:5} true: {true:.3f}"
             for (name, unit), value, true in zip(LAWS, outputs[0], TRUE, strict=True)]
    off = numpy.abs(outputs[1] - shape).max()
    return "\n".join([*lines, f"the shape is at most {off:.3f} off, and {shape.max():.2f} high"])


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    seen, _, guess = inputs
    _, shape, fitted = outputs
    true, _ = shapes()
    place = numpy.linspace(0, 1, POINTS)
    figure = Figure(figsize=(11, 5), layout="constrained")
    figure.suptitle(tell(outputs), family="monospace", fontsize="medium")
    left, right = figure.subplots(1, 2)
    times = 1e3 * STEP * numpy.arange(1, len(seen) + 1)
    for k in range(1, seen.shape[1] - 1):
        left.plot(times, seen[:, k] - k, ".", color="0.6", markersize=3)
        left.plot(times, fitted[:, k] - k, color="C0", linewidth=1)
    left.set(xlabel="time (ms)", yticks=[], title="what the pickups saw, and the fit")
    right.plot(place, guess, ":", color="0.5", label="first guess")
    right.plot(place, true, color="0.6", linewidth=4, label="true")
    right.plot(place, shape, "o-", markersize=3, label="found")
    right.set(xlabel="place (m)", title="shape that it was let go from")
    right.legend()
    return figure


EXAMPLE = Example("plucked", load, program, draw, default_size=1, rtol=1e-4, atol=1e-5,
                  tell=tell)

if __name__ == "__main__":
    main(EXAMPLE)
