"""Library calls that write into memory of the plan's, and arrays that are there by some places."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.plans import forget_plans, fresh_recorder
from tiledarray import config
from tiledarray.execution import instructions, library_calls
from tiledarray.ops import indexing

N = 600_000
PLACES = numpy.random.default_rng(0).integers(-N, N, N // 3)


clean = fresh_recorder(compile="wait")


def alone(np, x, i):
    x = x * 2
    x[i] = 1.5
    return x


def with_its_sum(np, x, i):
    x = x * 2
    before = x.sum()
    x[i] = 1.5
    return x, before


def and_before(np, x, i):
    before = x * 2
    x = before.copy()
    x[i] = 1.5
    return x, before


def twice(np, x, i):
    x = x + 1
    x[i] = -1
    x[i[::3]] = 7
    return x * 2


def itself(np, x, i):
    x = x + 1
    x[i] = x[i] * 2
    return x


def in_a_matrix(np, x, i):
    x = (x + 1).reshape(-1, 2)
    x[i % (N // 2), 1] = 3
    return x


@pytest.mark.parametrize("program", [alone, with_its_sum, and_before, twice, itself, in_a_matrix])
def test_values(program):
    x = numpy.random.default_rng(1).normal(size=N)
    wanted = program(numpy, x, PLACES)
    given = np.array(x), np.array(PLACES)
    jitted = np.jit(lambda x, i: program(np, x, i))
    for run in (lambda *args: program(np, *args), jitted):
        for _ in range(3):
            found = run(*given)
            several = isinstance(found, tuple)
            np.evaluate(*(found if several else (found,)))
            for got, want in zip(*((found, wanted) if several else ((found,), (wanted,))),
                                 strict=True):
                numpy.testing.assert_allclose(numpy.asarray(got), want, rtol=1e-12)
    numpy.testing.assert_array_equal(numpy.asarray(given[0]), x)


def test_what_a_plan_has_made_is_written_in_place(monkeypatch):
    forget_plans(monkeypatch)
    written = []
    for place, name in ((instructions._Maker, "_call_in_place"), (library_calls, "_in_place")):
        call = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *args, call=call: (
            written.append(call), call(*args))[1])
    x, places = np.array(numpy.ones(N + 1)), np.array(PLACES)
    for _ in range(3):
        np.evaluate(alone(np, x, places))
    assert len(written) in (1, 2)  # without the core, and with it


@pytest.mark.parametrize("make", [lambda np: np.zeros(N, dtype=int), lambda np: np.arange(N) * 2,
                                  lambda np: np.zeros((N // 3, 3))])
def test_an_array_that_is_there_is_not_copied(make, monkeypatch):
    copies = []
    monkeypatch.setattr(indexing, "_put_into", lambda *args, **kwargs: copies.append(args))
    places = numpy.arange(0, N // 3, 2)
    x, wanted = make(np), make(numpy)
    np.evaluate(x)
    for value in (1, 2, numpy.float32(3), 4):
        x[np.array(places)] = value
        wanted[places] = value
    x[places[: N // 30]] += 1
    wanted[places[: N // 30]] += 1
    numpy.testing.assert_array_equal(numpy.asarray(x), wanted)
    assert not copies


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(0, 40), st.sampled_from([0, 1, 16]), st.booleans(),
       st.randoms(use_true_random=False))
def test_others_keep_what_they_have(size, count, at_once, pending, random):
    places = numpy.array([random.randrange(-size, size) for _ in range(count)], int)
    values = numpy.arange(float(count))

    def run(np):
        x = np.arange(float(size)) * 2
        if not pending and np is not numpy:
            np.evaluate(x)
        copy, view, made = x.copy(), x[::2], x + 1
        x[np.array(places)] = np.array(values) if random_sign else 5
        x[np.array(places[:3])] += 1
        return copy, view, made, x

    random_sign = count % 2
    with config.override(at_once=at_once):
        for got, want in zip(run(np), run(numpy), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(got), want)


@pytest.mark.parametrize("at_once", [0, 1 << 16])
@pytest.mark.parametrize("place", [2**64 - 1, 2**64 - 100_000, 7, 2**63, 100_000])
def test_places_without_a_sign_wrap(place, at_once):
    def run(np):
        x = np.arange(100_000.0) * 2
        x[np.array([place], "uint64")] = 2
        x[np.array([place, 3], "uint64")] += 1
        return x[np.array([place, 4], "uint64")] * 2, x

    with config.override(at_once=at_once):
        try:
            wanted = run(numpy)
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)):
                np.evaluate(*run(np))
            return
        for got, want in zip(run(np), wanted, strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(got), want)
