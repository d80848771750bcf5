"""Writes into windows that overlap: an element of several has the last of what is written."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tiledarray import config

SIZE = 12


def assigned(np, w, chance):
    w[chance.integers(0, len(w), 4), chance.integers(0, w.shape[1], 4)] = chance.integers(0, 99, 4)


def assigned_rows(np, w, chance):
    w[chance.integers(0, len(w), 3)] = chance.integers(0, 99, (3, w.shape[1]))


def added_rows(np, w, chance):
    w[[0, 2], :2] += np.asarray(chance.integers(0, 9, (2, 2)))


def masked(np, w, chance):
    w[np.asarray(chance.random(len(w)) < 0.5)] = -1


def masked_each(np, w, chance):
    w[np.asarray(chance.random(w.shape) < 0.3)] = -2


def masked_by_values(np, w, chance):
    w[w % 3 == 0] = -5


def masked_added(np, w, chance):
    w[w > 4] += 1


def copied_where(np, w, chance):
    np.copyto(w, -7, where=np.asarray(chance.random(w.shape) < 0.3))


def putmask(np, w, chance):
    np.putmask(w, np.asarray(chance.random(w.shape) < 0.3), -8)


def putmask_several(np, w, chance):
    np.putmask(w, chance.random(w.shape) < 0.3, [-1, -2, -3])


def put(np, w, chance):
    np.put(w, chance.integers(0, w.size, 3), [50, 60, 70])


def placed(np, w, chance):
    np.place(w, w % 3 == 1, [-1, -2])


def along_axis(np, w, chance):
    np.put_along_axis(w, np.asarray(chance.integers(0, w.shape[1], (len(w), 1))), -3, 1)


def diagonal(np, w, chance):
    np.fill_diagonal(w, [10, 20])


def one_diagonal(np, w, chance):
    np.fill_diagonal(w, 10)


def added_at(np, w, chance):
    np.add.at(w, (chance.integers(0, len(w), 4), chance.integers(0, w.shape[1], 4)), 10)


def multiplied_at(np, w, chance):
    np.multiply.at(w, (chance.integers(0, len(w), 4), chance.integers(0, w.shape[1], 4)), 2)


def flat(np, w, chance):
    w.flat[chance.integers(0, w.size, 3)] = chance.integers(0, 99, 3)


def flat_slice(np, w, chance):
    w.flat[2:9] = chance.integers(0, 99, 7)


def column(np, w, chance):
    w[::2, 1] = chance.integers(0, 99, len(w[::2]))


def rows_backwards(np, w, chance):
    w[::-1][chance.integers(0, len(w), 2)] = chance.integers(0, 99, w.shape[1])


def all_of_it(np, w, chance):
    w[...] = np.asarray(chance.integers(0, 99, w.shape))


PROGRAMS = [assigned, assigned_rows, added_rows, masked, masked_each, masked_by_values,
            masked_added, copied_where, putmask, putmask_several, put, placed, along_axis, diagonal,
            one_diagonal, added_at, multiplied_at, flat, flat_slice, column, rows_backwards,
            all_of_it]


def windows(np, x, kind):
    view = np.lib.stride_tricks.sliding_window_view
    if kind == "plain":
        return view(x, 3, writeable=True)
    if kind == "backwards":
        return view(x[::-1], 2, writeable=True)
    return view(x.reshape(3, -1), 2, axis=1, writeable=True)[1]


def written(np, program, kind, seed):
    x = np.asarray(numpy.arange(SIZE) * 2) * 1
    program(np, windows(np, x, kind), numpy.random.default_rng(seed))
    return x.tolist()


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize("kind", ["plain", "backwards", "row of a matrix"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_not_written_stays(program, kind, at_once):
    with config.override(at_once=at_once):
        assert written(tiledarray, program, kind, 1) == written(numpy, program, kind, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PROGRAMS), min_size=2, max_size=6), st.integers(0, 99))
def test_one_after_the_other(programs, seed):
    def together(np, w, chance):
        for program in programs:
            program(np, w, chance)

    with config.override(at_once=0):
        assert written(tiledarray, together, "plain", seed) == (
            written(numpy, together, "plain", seed))


def test_gradients_follow_the_last():
    """Element 1 is in two windows: what was written first is in none."""
    def f(x, values):
        x = x * 1.0
        w = tiledarray.lib.stride_tricks.sliding_window_view(x, 2, writeable=True)
        w[[0, 1], [1, 0]] = values
        return (x * x).sum()

    x, values = tiledarray.arange(4.0), tiledarray.array([5.0, 7.0])
    by_x, by_values = tiledarray.grad(f, (0, 1))(x, values)
    assert by_x.tolist() == [0, 0, 4, 6] and by_values.tolist() == [0, 14]


@pytest.mark.parametrize("program", [assigned, masked_each, copied_where, added_at])
def test_under_jit(program):
    def f(x):
        x = x * 1
        program(tiledarray, windows(tiledarray, x, "plain"), numpy.random.default_rng(2))
        return x

    want = written(numpy, program, "plain", 2)
    assert tiledarray.jit(f)(tiledarray.arange(SIZE) * 2).tolist() == want


def test_read_only_windows_refuse():
    with config.override(at_once=0):
        w = tiledarray.lib.stride_tricks.sliding_window_view(tiledarray.arange(9), 3)
        for write in (lambda: w.__setitem__(([0], [1]), 1), lambda: w.__setitem__(w > 3, 1),
                      lambda: tiledarray.copyto(w, 1, where=w > 3)):
            with pytest.raises(ValueError, match="read-only"):
                write()
