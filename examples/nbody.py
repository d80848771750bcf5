"""The giant planets and an asteroid belt, every body pulling on every other.

Data: JPL's mean orbital elements at J2000 (E. M. Standish, "Keplerian elements for approximate
positions of the major planets", table 1, valid 1800-2050) and the IAU 2009 masses.  The asteroids
stand evenly in the belt, 2.1 to 3.3 AU, on circles, and share the belt's mass.  The inner planets
are counted with the Sun.  Leapfrog steps (kick, drift, kick) conserve the energy, which is checked.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, main

# semi-major axis (AU), eccentricity, inclination, mean longitude, longitude of perihelion,
# longitude of the ascending node (degrees)
PLANETS = {
    "Jupiter": (5.20288700, 0.04838624, 1.30439695, 34.39644051, 14.72847983, 100.47390909),
    "Saturn": (9.53667594, 0.05386179, 2.48599187, 49.95424423, 92.59887831, 113.66242448),
    "Uranus": (19.18916464, 0.04725744, 0.77263783, 313.23810451, 170.95427630, 74.01692503),
    "Neptune": (30.06992276, 0.00859048, 1.77004347, -55.12002969, 44.96476227, 131.78422574),
}
PLANETS_PER_SUN = {
    "Jupiter": 1047.3486, "Saturn": 3497.898, "Uranus": 22902.98, "Neptune": 19412.24,
}  # fmt: skip
INNER_PLANETS = 1 / 6023600 + 1 / 408523.71 + 1 / 328900.56 + 1 / 3098708
BELT = 1.2e-9  # mass of all asteroids, in Suns
GRAVITY = 4 * math.pi**2  # AU³ / (Sun · year²)
STEP = 0.05  # years
STEPS = 20
SOFTENING = 1e-4  # AU


def state_from_elements(axis, eccentricity, inclination, longitude, perihelion, node):
    """Return heliocentric ecliptic position (AU) and velocity (AU/year)."""
    mean = math.radians(longitude - perihelion)
    anomaly = mean
    for _ in range(20):  # Kepler's equation, by Newton's method
        excess = anomaly - eccentricity * math.sin(anomaly) - mean
        anomaly -= excess / (1 - eccentricity * math.cos(anomaly))
    root = math.sqrt(1 - eccentricity**2)
    rate = math.sqrt(GRAVITY / axis) / (1 - eccentricity * math.cos(anomaly))
    position = axis * (math.cos(anomaly) - eccentricity), axis * root * math.sin(anomaly)
    velocity = -rate * math.sin(anomaly), rate * root * math.cos(anomaly)

    argument, tilt, turn = (math.radians(a) for a in (perihelion - node, inclination, node))
    along = numpy.array([
        math.cos(argument) * math.cos(turn) - math.sin(argument) * math.sin(turn) * math.cos(tilt),
        math.cos(argument) * math.sin(turn) + math.sin(argument) * math.cos(turn) * math.cos(tilt),
        math.sin(argument) * math.sin(tilt),
    ])
    across = numpy.array([
        -math.sin(argument) * math.cos(turn) - math.cos(argument) * math.sin(turn) * math.cos(tilt),
        -math.sin(argument) * math.sin(turn) + math.cos(argument) * math.cos(turn) * math.cos(tilt),
        math.cos(argument) * math.sin(tilt),
    ])
    return tuple(first * along + second * across for first, second in (position, velocity))


def load(size):
    """Return masses (Suns), positions (3 × bodies, AU) and velocities (AU/year)."""
    states = [state_from_elements(*elements) for elements in PLANETS.values()]
    count = 1000 * size
    turns = math.pi * (3 - math.sqrt(5)) * numpy.arange(count)  # golden angle: evenly spread
    radii = numpy.sqrt(numpy.linspace(2.1**2, 3.3**2, count))
    speeds = numpy.sqrt(GRAVITY / radii)
    flat = numpy.zeros(count)
    belt = radii * numpy.array([numpy.cos(turns), numpy.sin(turns), flat])
    drift = speeds * numpy.array([-numpy.sin(turns), numpy.cos(turns), flat])

    masses = [1 + INNER_PLANETS, *(1 / PLANETS_PER_SUN[name] for name in PLANETS)]
    masses = numpy.concatenate([masses, numpy.full(count, BELT / count)])
    positions, velocities = (
        numpy.column_stack([numpy.zeros(3), *(state[k] for state in states), asteroids])
        for k, asteroids in ((0, belt), (1, drift))
    )
    velocities -= (velocities * masses).sum(axis=1, keepdims=True) / masses.sum()
    return masses, positions, velocities


def acceleration(np, masses, x, y, z):
    """Return the pull of all bodies on each, without a table of pairs when it is fused."""
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    square = dx * dx + dy * dy + dz * dz + SOFTENING**2
    weight = GRAVITY * masses[None, :] / (square * np.sqrt(square))
    return (weight * dx).sum(axis=1), (weight * dy).sum(axis=1), (weight * dz).sum(axis=1)


def energy(np, masses, x, y, z, velocities):
    """Return the total energy (Sun · AU² / year²)."""
    dx = x[None, :] - x[:, None]
    dy = y[None, :] - y[:, None]
    dz = z[None, :] - z[:, None]
    square = dx * dx + dy * dy + dz * dz
    inverse = np.where(square > 0, 1 / np.sqrt(square + SOFTENING**2), 0)  # no pair with itself
    pairs = (masses[None, :] * inverse).sum(axis=1)
    kinetic = 0.5 * (masses * (velocities * velocities).sum(axis=0)).sum()
    return kinetic - 0.5 * GRAVITY * (masses * pairs).sum()


def program(np, masses, positions, velocities):
    """Return positions and velocities after `STEPS` steps and the relative change of energy."""
    x, y, z = positions[0], positions[1], positions[2]
    vx, vy, vz = velocities[0], velocities[1], velocities[2]
    before = energy(np, masses, x, y, z, velocities)
    ax, ay, az = acceleration(np, masses, x, y, z)
    for _ in range(STEPS):
        vx, vy, vz = vx + 0.5 * STEP * ax, vy + 0.5 * STEP * ay, vz + 0.5 * STEP * az
        x, y, z = x + STEP * vx, y + STEP * vy, z + STEP * vz
        ax, ay, az = acceleration(np, masses, x, y, z)
        vx, vy, vz = vx + 0.5 * STEP * ax, vy + 0.5 * STEP * ay, vz + 0.5 * STEP * az
    velocities = np.stack([vx, vy, vz])
    after = energy(np, masses, x, y, z, velocities)
    return np.stack([x, y, z]), velocities, (after - before) / np.abs(before)


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    _, start, _ = inputs
    positions, _, drift = outputs
    planets = len(PLANETS) + 1
    figure = Figure(figsize=(13, 6), layout="constrained")
    wide, near = figure.subplots(1, 2)
    turn = numpy.linspace(0, 2 * math.pi, 200)
    places = positions[:2, 1:planets].T
    for (name, elements), place in zip(PLANETS.items(), places, strict=True):
        wide.plot(elements[0] * numpy.cos(turn), elements[0] * numpy.sin(turn), "0.85", lw=0.8)
        wide.plot(*place, "o")
        wide.annotate(name, place, xytext=(6, 6), textcoords="offset points")
    wide.plot(*positions[:2, planets:], ",", color="0.4")
    wide.plot(*positions[:2, 0], "o", color="gold")
    wide.set(title=f"after {STEPS * STEP:g} year; energy changed by {float(drift):.1e}")

    moved = numpy.hypot(*(positions - positions[:, :1])[:2, planets:])
    shift = moved - numpy.hypot(*start[:2, planets:])
    image = near.scatter(*positions[:2, planets:], s=3, c=shift * 1e3, cmap="coolwarm")
    near.set(title="the asteroid belt: distance from the Sun gained (10⁻³ AU)")
    figure.colorbar(image, ax=near)
    for panel in (wide, near):
        panel.set(xlabel="AU", ylabel="AU", aspect="equal")
    return figure


EXAMPLE = Example("nbody", load, program, draw, default_size=2, rtol=1e-9, atol=1e-11)

if __name__ == "__main__":
    main(EXAMPLE)
