"""Lists and dicts with arrays in them that NumPy is given: they stay themselves."""

import numpy
import pytest

import tiledarray
from tiledarray import config


def pairs(np):
    return [(np.full(2, float(k)), k) for k in range(6)]


def shuffled_pairs(np):
    data = pairs(np)
    np.random.seed(0)
    np.random.shuffle(data)
    return [k for _, k in data]


def shuffled_arrays(np):
    data = [np.full(2, float(k)) for k in range(6)]
    same = [*data]
    np.random.default_rng(0).shuffle(data)
    return [next(k for k, y in enumerate(same) if x is y) for x in data]


def shuffled_columns(np):
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    both = [*zip(x, y, strict=True)]
    np.random.RandomState(3).shuffle(both)
    return [(float(a[0]), int(b)) for a, b in both]


def counted(np):
    state = {"n": 0, "w": np.ones(3)}

    def f(v, state):
        state["n"] += 1
        state["w"][0] += 1
        return v.sum()

    np.apply_along_axis(f, 1, np.arange(6.0).reshape(2, 3), state)
    return state["n"], state["w"].tolist()


def bound(np):
    state = {"w": np.ones(3)}

    def f(v, state):
        state["w"] = state["w"] * 2
        return v.sum()

    np.apply_along_axis(f, 1, np.arange(6.0).reshape(2, 3), state)
    return state["w"].tolist()


def appended(np):
    log = [np.ones(1)]
    np.apply_along_axis(lambda v, log: log.append(1) or 0.0, 1, np.ones((2, 3)), log)
    return len(log)


def given_twice(np):
    log = [np.ones(1)]
    np.apply_along_axis(lambda v, one, other: one is other, 1, np.ones((2, 3)), log, log)
    return len(log)


def padded(np):
    state = {"n": 0, "w": np.ones(2)}

    def f(vector, width, axis, kwargs):
        kwargs["state"]["n"] += 1

    np.pad(np.arange(3.0), 1, f, state=state)
    return state["n"]


def records(np):
    return [{"name": "a", "v": np.array([1.0, 2])}, {"name": "b", "v": np.array([0.0, 2])}]


def array_of_records(np):
    found = records(np)
    table = np.array(found)
    table[0]["name"] = "z"
    table[1]["v"][0] = 9
    return found[0]["name"], found[1]["v"].tolist(), table[0] is found[0]


def array_of_arrays(np):
    a = np.zeros(3)
    table = np.array([a, None], dtype=object)
    table[0][1] = 6
    return a.tolist(), len(table), np.asarray((a, None), dtype=object)[0] is a


def chosen(np):
    found = records(np)
    np.random.default_rng(1).choice(found)["seen"] = 1
    return [sorted(each) for each in found]


def filled(np):
    a, found = np.zeros(3), records(np)
    table = np.empty(3, object)
    np.put(table, [0, 1], found)
    holes = np.empty(3, object)
    np.place(holes, [True, False, True], found)
    return [table[1] is found[1], holes[2] is found[1],
            np.full(2, found[0], dtype=object)[1] is found[0],
            np.append(np.empty(1, object), [found[0]])[1] is found[0],
            np.insert(np.empty(1, object), 0, found[0])[0] is found[0],
            np.array({"k": a}, dtype=object).item()["k"] is a]


def floats_of_arrays(np):
    table = np.array([np.zeros(2), np.ones(2)], dtype=object)
    return table.shape, type(table[0, 0])


@pytest.mark.parametrize("at_once", [0, 1000])
@pytest.mark.parametrize("program", [
    shuffled_pairs, shuffled_arrays, shuffled_columns, counted, bound, appended, given_twice,
    padded, array_of_records, array_of_arrays, chosen, filled, floats_of_arrays])
def test_they_are_as_numpy_leaves_them(program, at_once):
    with config.override(at_once=at_once):
        assert program(tiledarray) == program(numpy)
