"""Epidemics: SEIR equations by Euler steps, agents on a lattice, and Gillespie's exact events."""

import numpy as np

SIZES = {
    "test": {"agents": 25, "days": 4, "events": 15, "regions": 2},
    "tiny": {"agents": 150, "days": 40, "events": 700, "regions": 4},
    "middle": {"agents": 30_000, "days": 40, "events": 3000, "regions": 200},
    "large": {"agents": 500_000, "days": 8, "events": 20_000, "regions": 1000},
}


def make(agents, days, events, regions):
    rng = np.random.RandomState(61)
    contact = rng.rand(regions, regions) * 0.1 / regions + 0.4 * np.eye(regions)
    return agents, days, events, contact


def seir(contact, days):
    n = len(contact)
    S, E, I, R = np.ones(n), np.zeros(n), np.zeros(n), np.zeros(n)  # noqa: E741
    I[0], S[0] = 0.01, 0.99
    dt = 0.25
    history = np.zeros((days * 4, 4))
    for k in range(days * 4):
        force = contact @ I
        infected, sick, healed = S * force * dt, E * dt / 3, I * dt / 5
        S = S - infected
        E = E + infected - sick
        I = I + sick - healed  # noqa: E741
        R = R + healed
        history[k] = S.mean(), E.mean(), I.mean(), R.mean()
    return history


def agents_on_lattice(n, days, rng):
    """0 susceptible, 1 infectious, 2 recovered."""
    side = int(np.sqrt(n))
    x, y = rng.randint(0, side, (2, n))
    state = np.zeros(n, dtype=np.int8)
    state[: max(2, n // 50)] = 1
    timer = np.where(state == 1, 6, 0)
    counts = np.zeros((days, 3), dtype=int)
    for day in range(days):
        x = (x + rng.randint(-1, 2, n)) % side
        y = (y + rng.randint(-1, 2, n)) % side
        cell = x * side + y
        sick_here = np.bincount(cell[state == 1], minlength=side * side)
        risk = 1 - 0.7 ** sick_here[cell]
        catch = (state == 0) & (rng.rand(n) < risk)
        timer[state == 1] -= 1
        state[(state == 1) & (timer <= 0)] = 2
        state[catch] = 1
        timer[catch] = 6
        counts[day] = np.bincount(state, minlength=3)
    return counts, state


def gillespie(events, rng):
    changes = np.array([[-1, 1, 0], [0, -1, 1], [1, 0, -1]])
    population = np.array([480, 20, 0])
    time = 0.0
    log = []
    for _ in range(events):
        s, i, r = population
        rates = np.array([0.3 * s * i / 500, 0.1 * i, 0.05 * r])
        total = rates.sum()
        if total == 0:
            break
        time += rng.exponential(1 / total)
        which = np.searchsorted(np.cumsum(rates), rng.rand() * total)
        population += changes[which]
        log.append((time, population[1]))
    return population, np.array(log)


def run(agents, days, events, contact):
    rng = np.random.RandomState(62)
    history = seir(contact, days)
    assert np.allclose(history.sum(axis=1), 1)
    counts, state = agents_on_lattice(agents, days, rng)
    assert (counts.sum(axis=1) == agents).all()
    population, log = gillespie(events, rng)
    return history, counts, state, population, log[-1], log[:, 1].max(), counts[:, 1].argmax()
