"""Three centuries of sunspots: the spectrum of the series, and its Kalman filter and smoother.

Data: yearly mean sunspot numbers 1700-2008, NOAA's National Geophysical Data Center, public domain;
the numbers that statsmodels ships.  Their square roots vary evenly.  The spectrum is Welch's (1967)
and stands beside those of many series of red noise with the same memory from one year to the next.
The model is Harvey's (1989) stochastic cycle around a level that wanders; filter and smoother
(Rauch, Tung and Striebel 1965) run for all candidates of its three parameters side by side, and
what is smoothed is their mean, each weighed by its likelihood.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, main

SUNSPOTS = """
5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39 28 26 22 11 21 40 78 122 103 73 47 35 11 5
16 34 70 81 111 101 73 40 20 16 5 11 22 40 60 80.9 83.4 47.7 47.8 30.7 12.2 9.6 10.2 32.4 47.6
54 62.9 85.9 61.2 45.1 36.4 20.9 11.4 37.8 69.8 106.1 100.8 81.6 66.5 34.8 30.6 7 19.8 92.5
154.4 125.9 84.8 68.1 38.5 22.8 10.2 24.1 82.9 132 130.9 118.1 89.9 66.6 60 46.9 41 21.3 16 6.4
4.1 6.8 14.5 34 45 43.1 47.5 42.2 28.1 10.1 8.1 2.5 0 1.4 5 12.2 13.9 35.4 45.8 41.1 30.1 23.9
15.6 6.6 4 1.8 8.5 16.6 36.3 49.6 64.2 67 70.9 47.8 27.5 8.5 13.2 56.9 121.5 138.3 103.2 85.7
64.6 36.7 24.2 10.7 15 40.1 61.5 98.5 124.7 96.3 66.6 64.5 54.1 39 20.6 6.7 4.3 22.7 54.8 93.8
95.8 77.2 59.1 44 47 30.5 16.3 7.3 37.6 74 139 111.2 101.6 66.2 44.7 17 11.3 12.4 3.4 6 32.3
54.3 59.7 63.7 63.5 52.2 25.4 13.1 6.8 6.3 7.1 35.6 73 85.1 78 64 41.8 26.2 26.7 12.1 9.5 2.7 5
24.4 42 63.5 53.8 62 48.5 43.9 18.6 5.7 3.6 1.4 9.6 47.4 57.1 103.9 80.6 63.6 37.6 26.1 14.2 5.8
16.7 44.3 63.9 69 77.8 64.9 35.7 21.2 11.1 5.7 8.7 36.1 79.7 114.4 109.6 88.8 67.8 47.5 30.6
16.3 9.6 33.2 92.6 151.6 136.3 134.7 83.9 69.4 31.5 13.9 4.4 38 141.7 190.2 184.8 159 112.3 53.9
37.6 27.9 10.2 15.1 47 93.8 105.9 105.5 104.5 66.6 68.9 38 34.5 15.5 12.6 27.5 92.5 155.4 154.6
140.4 115.9 66.6 45.9 17.9 13.4 29.4 100.2 157.6 142.6 145.7 94.3 54.6 29.9 17.5 8.6 21.5 64.3
93.3 119.6 111 104 63.7 40.4 29.8 15.2 7.5 2.9
"""
FIRST_YEAR = 1700
WINDOW, HOP = 128, 60
SURROGATES = 1000


def load(size):
    """Return the series, `SURROGATES` of red noise, a taper, and 1024 * `size` candidates.

    A candidate is a period in years, how much of a cycle is left after a year, and the variance of
    what a year adds to the cycle, over that of what is observed wrongly.
    """
    series = numpy.sqrt(numpy.array(SUNSPOTS.split(), float))
    series = (series - series.mean()) / series.std()
    memory = (series[1:] * series[:-1]).mean()
    noise = numpy.random.default_rng(0).standard_normal((SURROGATES, len(series)))
    for year in range(1, len(series)):
        noise[:, year] = memory * noise[:, year - 1] + math.sqrt(1 - memory**2) * noise[:, year]
    taper = 0.5 - 0.5 * numpy.cos(2 * math.pi * numpy.arange(WINDOW) / WINDOW)
    grid = numpy.meshgrid(numpy.linspace(8, 14, 64 * size), numpy.linspace(0.9, 0.99, 4),
                          numpy.geomspace(0.3, 30, 4), indexing="ij")
    candidates = numpy.stack(grid).reshape(3, -1)
    return series, noise.astype("float32"), taper.astype("float32"), candidates


def spectrum(np, series, taper):
    """Return the power of each row of `series` at the frequencies of a window, averaged."""
    starts = range(0, series.shape[-1] - WINDOW + 1, HOP)
    powers = sum(
        np.abs(np.fft.fft(series[:, start : start + WINDOW] * taper)) ** 2 for start in starts)
    return powers / (len(starts) * (taper**2).sum())


def model(np, periods, damping, ratio):
    """Return of each candidate how its state goes on, and how uncertain that is."""
    turn, nothing = 2 * math.pi / periods, np.zeros_like(periods)
    c, s = damping * np.cos(turn), damping * np.sin(turn)
    forward = np.stack([
        np.stack([nothing + 1, nothing, nothing], axis=-1),
        np.stack([nothing, c, s], axis=-1),
        np.stack([nothing, -s, c], axis=-1)], axis=-2)
    noise = np.stack([nothing + 0.02, ratio, ratio], axis=-1)[:, :, None] * np.eye(3)
    return forward, noise


def expected(forward, noise, mean, spread):
    """Return mean and covariance of the state a year later."""
    return forward @ mean, forward @ spread @ forward.mT + noise


def filtered(np, forward, noise, observed, mean, spread, seen):
    """Go on by a year in which a value was `seen`.

    Return mean and covariance of the state, how far off the value was, squared and over its
    variance, and the logarithm of that.
    """
    mean, spread = expected(forward, noise, mean, spread)
    off = seen - observed @ mean
    variance = observed @ spread @ observed.mT + 1.0
    gain = np.linalg.solve(variance, observed @ spread).mT
    mean, spread = mean + gain @ off, spread - gain @ (observed @ spread)
    return mean, spread, off**2 / variance, np.log(variance)


def smoothed(np, forward, noise, mean, spread, later, surer):
    """Return mean and covariance of a year, given those of the next year after all years."""
    ahead, wider = expected(forward, noise, mean, spread)
    gain = np.linalg.solve(wider, forward @ spread).mT
    return mean + gain @ (later - ahead), spread + gain @ (surer - wider) @ gain.mT


def kalman(np, series, candidates):
    """Return the log-likelihood of each candidate, and of each year level, cycle and error."""
    jit = getattr(np, "jit", lambda function: function)  # one kernel a year
    ahead_by_a_year = jit(lambda *state: filtered(np, *state))
    back_by_a_year = jit(lambda *state: smoothed(np, *state))

    forward, noise = model(np, *candidates)
    observed = np.array([[1.0, 1.0, 0.0]])
    mean = np.zeros((candidates.shape[1], 3, 1))
    spread = np.zeros((candidates.shape[1], 3, 3)) + 10 * np.eye(3)
    fit = logs = np.zeros((candidates.shape[1], 1, 1))
    states = []
    for year in range(len(series)):  # not `for seen in series`: `jit` takes numbers as fixed
        mean, spread, square, log = ahead_by_a_year(
            forward, noise, observed, mean, spread, series[year])
        states.append((mean, spread))
        fit, logs = fit + square, logs + log
    scale = fit / len(series)  # of all variances: where the likelihood is greatest
    likelihood = -0.5 * (len(series) * np.log(scale) + logs)
    weight = np.exp(likelihood - likelihood.max())
    weight = weight / weight.sum()

    told = []
    while states:
        if told:
            mean, spread = back_by_a_year(forward, noise, *states.pop(), mean, spread)
        else:
            mean, spread = states.pop()
        error = np.sqrt(scale * (observed @ spread @ observed.mT))
        told.append((weight * np.concatenate([mean[:, :2], error], axis=1)).sum(axis=(0, 2)))
    return likelihood[:, 0, 0], np.stack(told[::-1])


def program(np, series, noise, taper, candidates):
    """Return the spectrum and those of the noise, the likelihoods, and level, cycle and error."""
    power = spectrum(np, series.astype("float32")[None], taper)[0, : WINDOW // 2 + 1]
    others = spectrum(np, noise, taper)[:, : WINDOW // 2 + 1]
    return power, np.sort(others, axis=0)[-SURROGATES // 100], *kalman(np, series, candidates)


def periods(outputs):
    """Return the period with the highest peak above the noise, and the likeliest one."""
    power, limit, likelihood, _ = outputs
    peak = 1 + (power / limit)[1:].argmax()
    grid = numpy.linspace(8, 14, len(likelihood) // 16)
    return WINDOW / peak, grid[likelihood.argmax() // 16]


def tell(outputs):
    return "period: {:.1f} years by the spectrum, {:.2f} by the likelihood".format(
        *periods(outputs))


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    power, limit, likelihood, smoothed = outputs
    series = inputs[0]
    years = FIRST_YEAR + numpy.arange(len(series))
    figure = Figure(figsize=(13, 7), layout="constrained")
    left, right, low = figure.subplot_mosaic("ab;cc").values()
    rates = numpy.arange(len(power)) / WINDOW
    left.semilogy(rates[1:], power[1:], label="sunspots")
    left.semilogy(rates[1:], limit[1:], "0.6", label="1 in 100 series of red noise is above")
    left.set(xlabel="cycles per year", title="spectrum")
    left.legend()
    best = likelihood.reshape(-1, 16).max(axis=1)
    right.plot(numpy.linspace(8, 14, len(best)), best - best.max())
    right.set(xlabel="period (years)", title="log-likelihood")
    level, cycle, error = smoothed.T
    low.plot(years, series, ".", color="0.4")
    low.plot(years, level, label="level")
    low.plot(years, level + cycle, label="level and cycle")
    low.fill_between(years, level + cycle - 2 * error, level + cycle + 2 * error, alpha=0.2)
    low.set(title="square roots of the yearly numbers, standardised, and what is smoothed")
    low.legend()
    return figure


EXAMPLE = Example("sunspots", load, program, draw, default_size=8, rtol=1e-3, atol=1e-5, tell=tell)

if __name__ == "__main__":
    main(EXAMPLE)
