"""European options over a grid of strikes, maturities and volatilities, with their Greeks.

Data: Google's daily closing prices 2004-2008, which matplotlib ships.  The last close is the spot
price and the standard deviation of the daily log returns the volatility the grid is centred on.
Prices and Greeks are Black and Scholes' (1973) formulas; the normal distribution is formula 7.1.26
of Abramowitz and Stegun (absolute error below 1.5e-7), as NumPy has no error function.
"""

from __future__ import annotations

import math

import numpy

from examples.harness import Example, main

TRADING_DAYS = 252
RATE = 0.02


def load(size):
    """Return spot, historical volatility, strikes, maturities (years) and volatilities."""
    from matplotlib import cbook

    with cbook.get_sample_data("goog.npz") as file:
        close = file["price_data"]["adj_close"]
    spot = close[-1]
    volatility = numpy.diff(numpy.log(close)).std() * math.sqrt(TRADING_DAYS)
    strikes = spot * numpy.linspace(0.5, 1.5, 100 * size)
    maturities = numpy.linspace(5, 3 * TRADING_DAYS, 100 * size) / TRADING_DAYS
    volatilities = volatility * numpy.linspace(0.5, 1.5, 8 * size)
    return numpy.array(spot), strikes, maturities, volatilities


def normal_density(np, x):
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def normal_distribution(np, x):
    """Return the probability that a standard normal variable is below `x`."""
    t = 1 / (1 + 0.3275911 / math.sqrt(2) * np.abs(x))
    series = 0.254829592 + t * (
        -0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
    )
    tail = 0.5 * t * series * np.exp(-0.5 * x * x)
    return np.where(x > 0, 1 - tail, tail)


def program(np, spot, strikes, maturities, volatilities):
    """Return call, put and the call's Greeks, each volatility × maturity × strike.

    The Greeks are delta, gamma, vega and theta.
    """
    strike = strikes[None, None, :]
    time = maturities[None, :, None]
    volatility = volatilities[:, None, None]

    deviation = volatility * np.sqrt(time)
    d1 = (np.log(spot / strike) + (RATE + 0.5 * volatility**2) * time) / deviation
    d2 = d1 - deviation
    discounted = strike * np.exp(-RATE * time)
    density, below = normal_density(np, d1), normal_distribution(np, d1)

    call = spot * below - discounted * normal_distribution(np, d2)
    put = call - spot + discounted
    delta = below
    gamma = density / (spot * deviation)
    vega = spot * density * np.sqrt(time)
    theta = -spot * density * volatility / (2 * np.sqrt(time))
    theta -= RATE * discounted * normal_distribution(np, d2)
    return call, put, delta, gamma, vega, theta


def draw(inputs, outputs):
    from matplotlib.figure import Figure

    spot, strikes, maturities, volatilities = inputs
    middle = len(volatilities) // 2
    figure = Figure(figsize=(14, 8), layout="constrained")
    figure.suptitle(
        f"Google, 2008-10-13: spot ${float(spot):.2f}, volatility {volatilities[middle]:.0%}"
    )
    titles = ("call ($)", "put ($)", "delta", "gamma", "vega", "theta ($ a year)")
    for panel, value, title in zip(
        figure.subplots(2, 3).ravel(), outputs, titles, strict=True
    ):
        image = panel.pcolormesh(strikes, maturities, value[middle], rasterized=True)
        panel.axvline(float(spot), color="white", linewidth=0.5)
        panel.set(title=title, xlabel="strike ($)", ylabel="maturity (years)")
        figure.colorbar(image, ax=panel)
    return figure


EXAMPLE = Example("options", load, program, draw, default_size=5, rtol=1e-7, atol=1e-7)

if __name__ == "__main__":
    main(EXAMPLE)
