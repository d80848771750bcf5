"""Call and put prices of European options (Black and Scholes, 1973), float32.

The normal distribution is Abramowitz and Stegun's formula 7.1.26 for every peer, as NumPy has no
error function.
"""

import math

from benchmarks.workload import Sizes, Workload, both_ends, double

RATE, VOLATILITY = 0.02, 0.3
SLOPE = 0.3275911 / math.sqrt(2)
A1, A2, A3, A4, A5 = 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429


def setup(size, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    unit = [generator.random(size, dtype=np.float32) for _ in range(3)]
    spot, strike = (np.float32(50) + np.float32(100) * part for part in unit[:2])
    return spot, strike, np.float32(0.1) + np.float32(2) * unit[2]


def normal(np, x):
    t = 1 / (1 + SLOPE * np.abs(x))
    tail = 0.5 * t * (A1 + t * (A2 + t * (A3 + t * (A4 + t * A5)))) * np.exp(-0.5 * x * x)
    return np.where(x > 0, 1 - tail, tail)


def program(np, spot, strike, time):
    deviation = VOLATILITY * np.sqrt(time)
    d1 = (np.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * time) / deviation
    discounted = strike * np.exp(-RATE * time)
    call = spot * normal(np, d1) - discounted * normal(np, d1 - deviation)
    return call, call - spot + discounted


def reference(inputs):
    return [
        (part, double(program, *(array[part] for array in inputs)))
        for part in both_ends(1 << 20, inputs[0].size)
    ]


def build_numexpr():
    import numexpr
    import numpy as np

    # Numbers written in the text would be float64, and everything with them.
    numbers = {
        "a1": A1, "a2": A2, "a3": A3, "a4": A4, "a5": A5, "half": 0.5, "slope": SLOPE,
        "rate": RATE, "volatility": VOLATILITY, "drift": RATE + 0.5 * VOLATILITY**2,
    }  # fmt: skip
    numbers = {name: np.float32(value) for name, value in numbers.items()}
    tail = "(half * t * (a1 + t * (a2 + t * (a3 + t * (a4 + t * a5)))) * exp(-half * x * x))"

    def evaluate(text, **values):
        return numexpr.evaluate(text, numbers | values)

    def below(x):
        t = evaluate("1 / (1 + slope * abs(x))", x=x)
        return evaluate(f"where(x > 0, 1 - {tail}, {tail})", x=x, t=t)

    def run(spot, strike, time):
        deviation = evaluate("volatility * sqrt(time)", time=time)
        d1 = evaluate(
            "(log(spot / strike) + drift * time) / deviation",
            spot=spot, strike=strike, time=time, deviation=deviation,
        )  # fmt: skip
        d2 = d1 - deviation
        discounted = evaluate("strike * exp(-rate * time)", strike=strike, time=time)
        call = evaluate(
            "spot * below1 - discounted * below2",
            spot=spot, discounted=discounted, below1=below(d1), below2=below(d2),
        )  # fmt: skip
        return call, evaluate(
            "call - spot + discounted", call=call, spot=spot, discounted=discounted
        )

    return run


def build_numba():
    import numba
    import numpy as np

    f = np.float32
    one, half, rate, volatility, slope = f(1), f(0.5), f(RATE), f(VOLATILITY), f(SLOPE)
    a1, a2, a3, a4, a5 = f(A1), f(A2), f(A3), f(A4), f(A5)
    drift = f(RATE + 0.5 * VOLATILITY**2)

    @numba.njit(inline="always")
    def below(x):
        t = one / (one + slope * abs(x))
        series = a1 + t * (a2 + t * (a3 + t * (a4 + t * a5)))
        tail = half * t * series * np.exp(-half * x * x)
        return one - tail if x > 0 else tail

    @numba.njit(parallel=True)
    def run(spot, strike, time):
        call, put = np.empty_like(spot), np.empty_like(spot)
        for i in numba.prange(spot.size):
            deviation = volatility * np.sqrt(time[i])
            d1 = (np.log(spot[i] / strike[i]) + drift * time[i]) / deviation
            discounted = strike[i] * np.exp(-rate * time[i])
            call[i] = spot[i] * below(d1) - discounted * below(d1 - deviation)
            put[i] = call[i] - spot[i] + discounted
        return call, put

    return run


WORKLOAD = Workload(
    name="black_scholes",
    title="Black-Scholes, call and put, float32",
    sizes=Sizes(cpu=10_000_000, cuda=64 << 20, quick=100_000),
    setup=setup,
    program=program,
    reference=reference,
    tolerance=5e-6,
    traffic=lambda inputs: 5 * inputs[0].nbytes,
    variants={"numexpr": build_numexpr, "numba": build_numba},
)
