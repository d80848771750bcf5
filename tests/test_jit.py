"""`tiledarray.jit`: recorded once, run many times."""

import operator
import threading

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.execution.executable import observers
from tiledarray.execution.spans import counters


@pytest.fixture(autouse=True, params=["compiled", "meanwhile"])
def _way(request):
    """Functions wait for their kernels, or go op by op while those are compiled."""
    ways = {"compiled": {"compile": "wait"}, "meanwhile": {"first_seconds": 0.2}}
    with ta.config.override(**ways[request.param]):
        yield


def heat(u, steps=5):
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def test_writes_into_its_argument_and_returns_it():
    start = np.random.default_rng(0).random(50)
    jitted = ta.jit(heat)
    u = ta.array(start)
    assert jitted(u) is u
    expected = heat(start.copy())
    np.testing.assert_array_equal(np.asarray(u), expected)
    jitted(u)
    np.testing.assert_array_equal(np.asarray(u), heat(expected))


class _Kept:
    array = None


def _writes_into_a_name(a):
    _Kept.array[None][0] += a
    return _Kept.array * 1


def _writing(write):
    def function(a):
        write(a)
        return a * 1
    return function


def _adds_to(a):
    b = a
    b += 1
    return a * 1


@pytest.mark.parametrize("make", [
    lambda lib: lib.full((), 5.0), lambda lib: lib.arange(6.0)[5:].reshape(()),
    lambda lib: lib.arange(6.0).max()], ids=["array", "view", "scalar"])
@pytest.mark.parametrize("function", [
    _writes_into_a_name, _adds_to,
    _writing(lambda a: np.add(a[None], 1, out=a[None])),
    _writing(lambda a: a[None].fill(3)),
    _writing(lambda a: operator.iadd(a.reshape(1, 1), 2)),
    _writing(lambda a: operator.iadd(a.ravel(), 2)),
    _writing(lambda a: operator.iadd(a.T, 2)),
])
def test_without_axes_arrays_are_written_into_and_scalars_are_not(function, make, monkeypatch):
    found = []
    for lib, wrapped in (np, function), (ta, ta.jit(function)):
        monkeypatch.setattr(_Kept, "array", lib.full((), 5.0))
        seen = []
        for _ in range(3):
            a = make(lib)
            result = wrapped(a)
            seen.append((float(result), float(a), float(_Kept.array)))
        found.append(seen)
    assert found[1] == found[0]


def test_one_function_is_given_a_scalar_and_an_array_without_axes():
    jitted = ta.jit(_adds_to)
    assert float(jitted(ta.arange(6.0).max())) == 5.0
    assert float(jitted(ta.full((), 5.0))) == 6.0
    assert float(jitted(ta.arange(6.0).max())) == 5.0


def test_an_array_without_axes_is_returned_as_one():
    jitted = ta.jit(lambda x: (x.sum(keepdims=True).reshape(()), x.sum()))
    for result, alias in zip(jitted(ta.arange(3.0)), (4.0, 3.0), strict=True):
        same = result
        result += 1
        assert float(same) == alias


@pytest.mark.compiler
def test_plans_once_for_a_shape():
    jitted = ta.jit(lambda x, y: np.sqrt(x * x + y).sum())
    x = ta.arange(10.0)
    jitted(x, x + 1)
    arrays = [ta.array(np.arange(10.0) + k) for k in range(3)]
    before = counters["plans made"]
    for k, y in enumerate(arrays):
        expected = np.sqrt(np.arange(10.0) ** 2 + np.arange(10.0) + k).sum()
        assert float(jitted(x, y)) == pytest.approx(expected)
    assert counters["plans made"] == before
    assert jitted(ta.arange(3.0), ta.arange(3.0)).shape == ()


def test_the_same_array_given_twice_is_the_same():
    """A function may ask `is`: a call with two arrays takes another way then."""
    @ta.jit
    def nearest(p, q):
        distances = abs(p[:, None] - q)
        if p is q:
            np.fill_diagonal(distances, np.inf)
        return distances.min(axis=1)

    x = ta.array([1.0, 4, 6, 11])
    for _ in range(3):
        assert nearest(x, x).tolist() == [3, 2, 2, 5]
        assert nearest(x, x[::-1]).tolist() == nearest(x, x.copy()).tolist() == [0, 0, 0, 0]
    doubled = ta.jit(lambda parts, one: [part * (2 if part is one else 1) for part in parts])
    y, z = ta.ones(2), ta.ones(2)
    for one, expected in ((z, [1, 2]), (y, [2, 1]), (ta.ones(2), [1, 1])):
        assert [float(part[0]) for part in doubled([y, z], one)] == expected


def test_nested_arguments_and_results():
    jitted = ta.jit(lambda d, k: {"a": d["x"] + k, "b": [d["x"].sum(), k], "c": d["x"]})
    x = ta.arange(4.0)
    result = jitted({"x": x}, 2)
    np.testing.assert_array_equal(np.asarray(result["a"]), np.arange(4.0) + 2)
    assert float(result["b"][0]) == 6.0
    assert result["b"][1] == 2
    assert result["c"] is x
    assert float(jitted({"x": x}, 3)["a"][0]) == 3.0


def test_captured_arrays_and_several_kernels():
    weights = ta.array([1.0, 2.0, 3.0])

    @ta.jit
    def centred(x):
        x = x - x.mean()
        return x * weights, np.linalg.norm(x)

    for values in ([3.0, 4.0, 8.0], [1.0, 1.0, 7.0]):
        scaled, length = centred(ta.array(values))
        expected = np.array(values) - np.mean(values)
        np.testing.assert_allclose(np.asarray(scaled), expected * [1, 2, 3])
        assert float(length) == pytest.approx(np.linalg.norm(expected))


def test_views_and_numpy_arrays_as_arguments():
    jitted = ta.jit(lambda x: x * 2)
    x = ta.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(jitted(x.T[1:])), np.asarray(x).T[1:] * 2)
    np.testing.assert_array_equal(np.asarray(jitted(np.arange(3))), [0, 2, 4])


@pytest.mark.parametrize("changes", [False, True])  # in numbers, so that it is no longer traced
def test_what_is_written_into_arrays_of_numpys_is_there(changes):
    @ta.jit
    def step(u, rest, rate):
        u[1:] += rate * rest["before"][0]
        np.multiply(rest["last"], 2, out=rest["last"])
        return u

    u, before, last = np.arange(3.0), np.arange(4.0)[2:], np.ones((2, 4), "f4")[:, ::2]
    expected = np.arange(3.0)
    for rate in range(20 if changes else 3):
        expected[1:] += rate * np.array([2, 3])
        found = step(u, rest={"before": [before], "last": last}, rate=rate)
        np.testing.assert_array_equal(u, expected)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert before.tolist() == [2, 3] and last.base[:, 1].tolist() == [1, 1]
    assert last.tolist() == [[2 ** (rate + 1)] * 2] * 2
    both = np.arange(4.0)
    assert ta.jit(lambda x, y: x + y)(both[1:], both[:-1]).tolist() == [1, 3, 5]
    with pytest.raises(TypeError, match="overlaps another"):
        step(both[1:], {"before": [both[:2]], "last": np.ones(1)}, 1)
    assert both.tolist() == [0, 1, 2, 3]


def test_results_of_different_calls_are_independent():
    jitted = ta.jit(lambda x: (x + 1).cumsum() * 2)
    first, second = jitted(ta.zeros(3)), jitted(ta.ones(3))
    np.testing.assert_array_equal(np.asarray(first), [2, 4, 6])
    np.testing.assert_array_equal(np.asarray(second), [4, 8, 12])


@pytest.mark.compiler
def test_looking_inside_is_refused():
    jitted = ta.jit(lambda x: x if float(x.sum()) > 0 else -x)
    with pytest.raises(TypeError, match="looked at a value"):
        jitted(ta.ones(3))


def test_without_kernels_the_function_just_runs():
    with ta.config.override(compile="never"):
        np.testing.assert_array_equal(np.asarray(ta.jit(lambda x: x + 1)(ta.zeros(2))), [1, 1])


@pytest.mark.compiler
def test_runs_are_seen_and_results_explained():
    jitted = ta.jit(lambda x: np.sqrt(x * x + 1).sum())
    x = ta.arange(1000.0)
    with ta.config.override(compile="wait"):
        jitted(x)
    seen = []

    def watch(executable, step, seconds):
        seen.append(step)

    observers.append(watch)
    try:
        result = jitted(x)
    finally:
        observers.remove(watch)
    assert len(seen) > 0
    assert float(result) == pytest.approx(np.sqrt(np.arange(1000.0) ** 2 + 1).sum())
    assert result.node.buffer.plan is not None
    assert "kernel" in str(ta.explain(result))


@pytest.mark.compiler
def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="only dtypes that kernels have"):
        ta.jit(lambda x: x[1:].copy())(np.array([1, 2], np.longdouble))


def test_equal_arguments_of_other_types_are_other_calls():
    jitted = ta.jit(lambda x, k: x * k)
    x = ta.arange(3)
    for k in (1, True, 1.0, 1 + 0j, 1):
        expected = np.arange(3) * k
        assert jitted(x, k).dtype == expected.dtype
        assert jitted(x, k=k).dtype == expected.dtype


def test_arguments_by_name_and_nested_ones_are_told_apart():
    jitted = ta.jit(lambda *args, **kwargs: (len(args), sorted(kwargs), [type(a) for a in args]))
    x = ta.ones(2)
    assert jitted(x, x) == (2, [], [ta.TiledArray] * 2)
    assert jitted((x, x)) == (1, [], [tuple])
    assert jitted([x, x]) == (1, [], [list])
    assert jitted(x, y=x) == (1, ["y"], [ta.TiledArray])
    assert jitted({"y": x}) == (1, [], [dict])
    assert jitted() == (0, [], [])


@pytest.mark.compiler
def test_replayed_kernels_with_offsets_and_scalars():
    def smooth(u):
        n = u.shape[0]
        for start in (1, 2):
            u[start:-start] = 0.25 * u[start - 1:-start - 1] + 0.75 * u[start + 1:n - start + 1]
            u = u - u.mean()
        return u, u[3:].sum()

    jitted = ta.jit(smooth)
    kept = []  # so that every call gets other memory
    for seed in range(4):
        values = np.random.default_rng(seed).random(5000)
        arrays = ta.array(values)
        kept.append((arrays, *jitted(arrays)))
        expected, total = smooth(values)
        np.testing.assert_allclose(np.asarray(kept[-1][1]), expected)
        assert float(kept[-1][2]) == pytest.approx(total)
        np.testing.assert_allclose(np.asarray(arrays), values)


@pytest.mark.compiler
def test_scalar_arguments_are_told_apart_by_their_bits():
    made = []

    def work(x, scalar):
        made.append(scalar)
        return ta.copysign(x, scalar)

    jitted = ta.jit(work)
    x = ta.ones(3)
    with ta.config.override(compile="wait"):
        for scalar in (0.0, -0.0, float("nan"), float("nan"), 0.0, complex(0.0, -0.0).imag):
            expected = np.copysign(np.ones(3), scalar)
            np.testing.assert_array_equal(jitted(x, scalar).numpy(), expected)
    assert len(made) == 3


# What is one array in NumPy is one under jit ----------------------------------------------------


def twice(function, *makers):
    """Call a function under jit and as it is, several times; all arrays must stay NumPy's."""
    jitted = ta.jit(function)
    for seed in range(3):
        ours = [make(ta, seed) for make in makers]
        theirs = [make(np, seed) for make in makers]
        for _ in range(2):
            found, expected = jitted(*ours), function(*theirs)
            found = found if isinstance(found, tuple) else (found,)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for x, y in zip((*found, *ours), (*expected, *theirs), strict=True):
                np.testing.assert_array_equal(np.asarray(x), y)
            for x, y in zip(found, expected, strict=True):  # results alias what NumPy's alias
                if np.ndim(y):
                    x[..., 0], y[..., 0] = seed + 7, seed + 7
            for x, y in zip((*found, *ours), (*expected, *theirs), strict=True):
                np.testing.assert_array_equal(np.asarray(x), y)


def ramp(xp, seed):
    return xp.arange(10.0) + seed


class Pairs:
    """Arguments that are one array, made together."""

    def same(xp, seed):
        x = ramp(xp, seed)
        return x, x

    def overlapping(xp, seed):
        x = ramp(xp, seed)
        return x[1:], x[:-1]

    def part_and_whole(xp, seed):
        x = ramp(xp, seed)
        return x[2:8], x

    def apart(xp, seed):
        return ramp(xp, seed), ramp(xp, seed + 1)


def writes_first(x, y):
    n = min(len(x), len(y))
    x += 1
    return x[:n] + y[:n]


def reads_only(x, y):
    n = min(len(x), len(y))
    return x[:n] * 2 + y[:n]


def writes_both(x, y):
    n = min(len(x), len(y))
    x[:n] += y[:n]
    y[1:n] -= x[:n - 1]
    return y.copy(), x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [writes_first, reads_only, writes_both])
@pytest.mark.parametrize("pair", ["same", "overlapping", "part_and_whole", "apart"])
@pytest.mark.parametrize("first", ["same", "apart", "overlapping"])
def test_arguments_that_are_one_array(function, pair, first):
    make = vars(Pairs)
    jitted = ta.jit(function)
    for kind in (first, pair, first, pair):
        ours, theirs = make[kind](ta, 1), make[kind](np, 1)
        found, expected = jitted(*ours), function(*theirs)
        for x, y in zip((found, *ours), (expected, *theirs), strict=True):
            for part, wanted in zip(x, y, strict=True) if isinstance(x, tuple) else [(x, y)]:
                np.testing.assert_array_equal(np.asarray(part), wanted)


@pytest.mark.parametrize("function", [
    lambda x: x, lambda x: x.copy(), lambda x: x[2:], lambda x: (x, x), lambda x: (x * 2, x * 2),
    lambda x: (x[1:], x[:-1]), lambda x: x[::-1][1:], lambda x: np.positive(x),
    lambda x: (x.reshape(2, 5).T, x + 1), lambda x: x.reshape(-1).copy(),
], ids=range(10))  # fmt: skip
def test_results_alias_what_numpys_do(function):
    twice(function, ramp)


def test_a_new_array_and_views_of_it():
    def function(x):
        new = x * 2
        return new, new[3:], new

    found, expected = ta.jit(function)(ta.arange(6.0)), function(np.arange(6.0))
    assert found[0] is found[2] or np.asarray(found[2] == found[0]).all()
    found[1][:] = 0
    expected[1][:] = 0
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y)


def test_a_view_after_an_array_of_its_own():
    @ta.jit
    def work(x):
        x += 1
        return x * 2

    whole, part = ta.arange(8.0), ta.arange(16.0)
    for _ in range(2):
        work(whole)
        work(part[4:12])
        work(part[::2])
    np.testing.assert_array_equal(np.asarray(whole), np.arange(8.0) + 2)
    expected = np.arange(16.0)
    expected[4:12] += 2
    expected[::2] += 2
    np.testing.assert_array_equal(np.asarray(part), expected)


def test_a_read_only_argument_stays_read_only():
    jitted = ta.jit(lambda x: x.__setitem__(0, 1.0))
    for fixed in (ta.broadcast_to(ta.arange(3.0), (2, 3)), ta.arange(3.0)):
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            jitted(fixed)


def _add_one(x):
    x += 1


@pytest.mark.parametrize("function", [_add_one, lambda x: np.add(x, 1, out=x), lambda x: x.sort()])
def test_a_read_only_argument_after_others_fails_in_numpys_words(function):
    jitted = ta.jit(function)
    jitted(ta.arange(3.0))
    ours, plain = ta.arange(3.0), np.arange(3.0)
    for fixed in (ours, plain):
        fixed.flags.writeable = False
    with pytest.raises(ValueError) as expected:
        function(plain)
    with pytest.raises(ValueError, match=str(expected.value)):
        jitted(ours)
    assert ours.tolist() == plain.tolist()


# Arrays that are no arguments ---------------------------------------------------------------------

table = ta.ones(4)


def test_arrays_of_the_closure_are_read_and_written_at_every_call():
    state, weights = ta.zeros(4), ta.ones(4)

    @ta.jit
    def step(x):
        state[...] += x * weights
        return state.sum()

    for k in range(1, 4):
        assert float(step(ta.ones(4))) == 4 * k
    weights[...] = 5.0
    assert float(step(ta.ones(4))) == 12 + 20
    weights = ta.full(4, 2.0)  # the name is bound to another array
    assert float(step(ta.ones(4))) == 32 + 8
    weights = ta.full(2, 2.0).repeat(2)[::1]  # a view
    assert float(step(ta.ones(4))) == 40 + 8
    np.testing.assert_array_equal(np.asarray(state), [12.0] * 4)


def test_arrays_of_the_module():
    global table
    jitted = ta.jit(lambda x: x + table)
    assert float(jitted(ta.zeros(4))[0]) == 1
    table[0] = 3.0
    assert float(jitted(ta.zeros(4))[0]) == 3
    table = ta.full(4, 9.0)
    assert float(jitted(ta.zeros(4))[0]) == 9
    table = ta.ones(4)


factor = 2


def test_numbers_behind_names_may_change():
    global factor
    offset, options = 1.0, {"power": 2}
    holder = type("Holder", (), {})()
    holder.rate, runs = 0.5, []

    @ta.jit
    def work(x, by):
        runs.append(1)
        return (x * factor + offset) ** options["power"] * by.rate + holder.rate

    def agrees():
        expected = (np.arange(3.0) * factor + offset) ** options["power"] * (holder.rate * 2)
        found = work(ta.arange(3.0), holder)
        np.testing.assert_array_equal(np.asarray(found), expected / 2 + holder.rate)

    agrees()
    for value in (3, 3.0, True, np.float32(0.5), -0.0, 0.0, float("nan"), 3):
        factor = value
        agrees()
    count = len(runs)
    factor = 1 + 2
    agrees()
    assert len(runs) == count  # what was recorded for that number
    factor = 2
    offset = -1.0
    agrees()
    options["power"] = 3
    agrees()
    holder.rate = 4.0
    agrees()
    holder.rate = 0.5
    agrees()


def test_numbers_bound_anew_are_refused_and_put_back():
    global factor
    holder = type("Holder", (), {})()
    holder.time = 0.0

    def by_name(x):
        global factor
        factor += 1
        return x * factor

    def by_attribute(x):
        holder.time += 0.5
        return x + holder.time

    for function, name in ((by_name, "factor"), (by_attribute, "holder.time")):
        with pytest.raises(TypeError, match=rf"binds {name} to another array or number"):
            ta.jit(function)(ta.ones(4))
    assert factor == 2 and holder.time == 0


@pytest.mark.parametrize("make, take", [
    (lambda: [3], lambda held: held.pop()), (lambda: [3], lambda held: held.clear() or 3),
    (lambda: {3: 4}, lambda held: held.popitem()[0]), (lambda: {3: 4}, lambda held: held.pop(3)),
    (lambda: {3}, lambda held: held.pop()), (lambda: {3}, lambda held: held.clear() or 3)])
def test_what_is_taken_out_of_a_container_is_refused(make, take):
    """The second time it would not be there; what has been taken is put back."""
    held = make()

    def f(x):
        return x + (take(held) if held else 0)

    with pytest.raises(TypeError, match="binds held to another array or number, or takes"):
        ta.jit(f)(ta.ones(4))
    assert len(held) == 1

    def step(i, x):
        return f(x)

    with pytest.raises(TypeError, match="binds held to another array or number, or takes"):
        ta.fori_loop(3, step, ta.ones(4))


def test_files_go_on_once(tmp_path):
    path = tmp_path / "lines"
    path.write_text("a\nbb\n")
    with path.open() as lines, pytest.raises(TypeError, match="takes the next of lines"):
        ta.jit(lambda x: x + len(lines.readline()))(ta.ones(4))


@pytest.mark.parametrize("transform", [
    lambda f: ta.jit(f)(ta.ones(3)), lambda f: ta.vmap(f)(ta.ones((2, 3))),
    lambda f: ta.fori_loop(3, lambda i, x: f(x), ta.ones(3)),
    lambda f: ta.while_loop(lambda x: x.sum() < 9, f, ta.ones(3))])
def test_a_look_that_the_function_catches(transform):
    """It has gone on as it would not have with the value."""
    def f(x):
        try:
            factor = float(x.max())
        except Exception:
            factor = 2.0
        return x * factor

    with pytest.raises(TypeError, match=r"looked at a value.*has caught this error"):
        transform(f)


def test_arrays_of_objects_and_containers():
    class Model:
        def __init__(self):
            self.weight = ta.ones(3)
            self.parts = {"bias": ta.zeros(3)}

        @ta.jit
        def step(self, x):
            self.parts["bias"][...] += 1
            return x * self.weight + self.parts["bias"]

    model, other = Model(), Model()
    for k in range(1, 3):
        assert float(model.step(ta.ones(3))[0]) == 1 + k
    model.weight = model.weight * 10
    assert float(model.step(ta.ones(3))[0]) == 13
    assert float(other.step(ta.ones(3))[0]) == 2


def test_an_argument_seen_by_a_name_as_well():
    state = ta.arange(6.0)

    @ta.jit
    def work(part):
        part += 10
        return state * 1

    expected = np.arange(6.0)
    for k in (1, 2, 1):
        expected[k:] += 10
        np.testing.assert_array_equal(np.asarray(work(state[k:])), expected)
    np.testing.assert_array_equal(np.asarray(work(ta.zeros(3))), expected)


def test_arrays_that_no_name_leads_to_are_refused():
    hidden = iter([ta.ones(2), ta.ones(2)])
    with pytest.raises(TypeError, match="neither an argument nor behind a name"):
        ta.jit(lambda x: x + next(hidden))(ta.ones(2))


def test_what_outlives_the_call_is_refused():
    kept = []
    with pytest.raises(TypeError, match="outlives the call"):
        ta.jit(lambda x: kept.append(x * 2))(ta.ones(2))
    with pytest.raises(TypeError, match=r"tiledarray\.jit recorded"):
        kept[0].numpy()


def test_names_bound_anew_are_refused_and_put_back():
    global table
    kept = table
    model = type("Model", (), {})()
    model.weight = weight = ta.ones(4)

    def by_name(x):
        global table
        table = table + x
        return x

    def by_attribute(x):
        model.weight = model.weight * 2
        return x

    def swapped(x):
        global table
        table, model.weight = model.weight, table
        return x

    for function, name in ((by_name, "table"), (by_attribute, "model.weight"), (swapped, "table")):
        with pytest.raises(TypeError, match=rf"binds .*{name}"):
            ta.jit(function)(ta.ones(4))
        assert table is kept and model.weight is weight
    np.testing.assert_array_equal(np.asarray(kept), np.ones(4))


@pytest.mark.compiler
@pytest.mark.parametrize("look", [
    lambda x, k: ta.moveaxis(x, k, [0, 1]), lambda x, k: np.moveaxis(x, k[0], k[1]),
    lambda x, k: np.moveaxis(np.ones((2, 3)), k, [1, 0]) + x, lambda x, k: x[:k[1]],
    lambda x, k: x.sum(k[0]), lambda x, k: ta.median(x, k[0]), lambda x, k: ta.flip(x, k[1]),
    lambda x, k: ta.expand_dims(x, (0, k[0])), lambda x, k: x.reshape(k[1], -1),
], ids=range(9))  # fmt: skip
def test_axes_and_lengths_that_are_arrays_are_refused(look):
    with pytest.raises(TypeError, match=(
            r"looked at a value \(line \d+ of .*test_jit.py\); an axis, a length, a count or a "
            "bound has to be the same at every call. Give it as a number of Python's")):
        ta.jit(look)(ta.ones((2, 3)), ta.array([1, 0]))


@pytest.mark.parametrize("look", [
    lambda x, k: x * float(k), lambda x, k: x + x.numpy().max(), lambda x, k: x[x > 1],
    lambda x, k: ta.nonzero(x)[0], lambda x, k: x if k > 0 else -x, lambda x, k: x + k.item(),
    lambda x, k: x.tolist(), lambda x, k: np.asarray(x),
    lambda x, k: ta.where(x > 1)[0], lambda x, k: x[int(k)], lambda x, k: str(x),
], ids=range(11))  # fmt: skip
def test_looks_at_arguments_are_refused(look):
    for _ in range(2):
        with pytest.raises(TypeError, match="looked at a value"):
            ta.jit(look)(ta.arange(5.0), ta.array(1.0))


def test_elements_of_arguments_are_taken_apart_without_a_look():
    def line(p, x):
        slope, shift = p
        first = slope
        first += 1  # not in p: NumPy's would be a scalar
        return slope * x + shift, list(p)

    def running(x):
        for k, value in enumerate(x):
            x[k] = value + x[0]

    for values in ([2.0, 3.0], [4.0, -1.0]):
        found, parts = ta.jit(line)(ta.array(values), ta.arange(3.0))
        wanted, _ = line(np.array(values), np.arange(3.0))
        np.testing.assert_array_equal(np.asarray(found), wanted)
        assert [float(part) for part in parts] == values
        x, y = ta.array(values), np.array(values)
        ta.jit(running)(x)
        running(y)
        np.testing.assert_array_equal(np.asarray(x), y)


def test_numpys_scalars_are_arguments_like_pythons():
    jitted = ta.jit(lambda x, k: x * k)
    x = ta.arange(3.0).astype("f4")
    for k in (np.float64(3), np.float32(4), np.int64(5), np.bool_(True), 3.0):
        expected = np.arange(3.0).astype("f4") * k
        found = jitted(x, k)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_random_numbers_are_refused():
    generator = ta.random.default_rng(0)
    for draw in (lambda x: x + ta.random.random(3), lambda x: x * generator.normal(size=3)):
        with pytest.raises(TypeError, match="random numbers"):
            ta.jit(draw)(ta.ones(3))


def test_jit_inside_jit():
    @ta.jit
    def inner(x):
        x += 1
        return x * 2

    outer = ta.jit(lambda x: inner(x) + inner(x))
    x, y = ta.zeros(3), np.zeros(3)
    for _ in range(3):
        y += 2
        np.testing.assert_array_equal(np.asarray(outer(x)), 2 * (y - 1) + 2 * y)
        np.testing.assert_array_equal(np.asarray(x), y)


def test_what_is_remembered_is_bounded():
    jitted = ta.jit(lambda x, name: x * len(name))
    x = ta.arange(3.0)
    for k in range(200):
        np.testing.assert_array_equal(np.asarray(jitted(x, "k" * k)), np.arange(3.0) * k)
    cells = dict(zip(jitted.__code__.co_freevars, jitted.__closure__, strict=True))
    assert len(cells["remembered"].cell_contents) == 64


def test_numbers_that_change_at_every_call_are_not_traced_for_ever():
    calls = []

    def step(x, state, time=0.0):
        calls.append(time)
        x[1:] += time
        return x * time, {"sum": state["sum"] + x[0]}

    jitted = ta.jit(step)
    x, y, ours, theirs = ta.arange(5.0), np.arange(5.0), {"sum": 1.0}, {"sum": 1.0}
    for k in range(40):
        found, ours = jitted(x, ours, time=0.1 * k)
        wanted, theirs = step(y, theirs, time=0.1 * k)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-14)
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-14)
        assert float(ours["sum"]) == theirs["sum"]
    assert type(jitted(np.arange(5.0), ours, time=7.5)[0]) is ta.TiledArray
    called = len(calls)
    jitted(x, ours, time=0.1)  # one of those that are remembered
    assert len(calls) == called


def test_a_failing_function_leaves_no_trace():
    x = ta.arange(3.0)

    @ta.jit
    def fails(x):
        x += 1
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fails(x)
    np.testing.assert_array_equal(np.asarray(x + 0), np.arange(3.0))
    assert float(ta.jit(lambda x: x.sum())(x)) == 3


def test_other_threads_see_values_while_one_traces():
    begun, seen, x = threading.Event(), threading.Event(), ta.arange(3.0)

    @ta.jit
    def slow(y):
        y += 1
        begun.set()
        seen.wait(10)
        return y * 2

    results = []
    thread = threading.Thread(target=lambda: results.append(slow(x)))
    thread.start()
    assert begun.wait(10)
    np.testing.assert_array_equal(np.asarray(x), np.arange(3.0))
    z = x + 1
    z[0] = 9
    np.testing.assert_array_equal(np.asarray(z), [9, 2, 3])
    seen.set()
    thread.join()
    np.testing.assert_array_equal(np.asarray(x), np.arange(3.0) + 1)
    np.testing.assert_array_equal(np.asarray(results[0]), (np.arange(3.0) + 1) * 2)


def test_slices_are_arguments():
    part = ta.jit(lambda x, key, by=slice(None): x[key] * 2 + x[by].sum())
    x = ta.arange(12.0).reshape(3, 4)
    for key in (slice(1, 3), slice(0, 2), (slice(None), slice(None, None, 2)), (0, slice(1, 3)),
                slice(1, 3), ..., (None, slice(-2, None))):
        for by in (slice(None), slice(True, 2), slice(1, 2)):
            expected = x.numpy()[key] * 2 + x.numpy()[by].sum()
            np.testing.assert_array_equal(part(x, key, by=by).numpy(), expected)
    bounds = ta.jit(lambda key: (key, key.stop))
    assert bounds(slice(1, 2.0)) == (slice(1, 2.0), 2.0)


def test_linear_algebra_is_traced_and_fails_with_the_call():
    def solved(a, b):
        w, v = ta.linalg.eigh(a @ a.T)
        factor = ta.linalg.cholesky(a @ a.T)
        return ta.linalg.solve(a, b) * 2, factor, (v * w) @ v.T, ta.linalg.slogdet(a)[1]

    f = ta.jit(solved)
    random = np.random.default_rng(0)
    for _ in range(4):
        a, b = random.normal(size=(3, 3)) + 3 * np.eye(3), random.normal(size=3)
        for found, wanted in zip(f(ta.array(a), ta.array(b)), solved(a, b), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
    inverse = ta.jit(lambda a: ta.linalg.inv(a) + 1)
    assert inverse(ta.eye(2)).tolist() == [[2.0, 1.0], [1.0, 2.0]]
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        inverse(ta.zeros((2, 2)))
    assert inverse(ta.eye(2)).tolist() == [[2.0, 1.0], [1.0, 2.0]]
    gradient = ta.jit(ta.grad(lambda a: ta.log(ta.linalg.cholesky(a @ a.T).diagonal()).sum()))
    a = ta.array(random.normal(size=(3, 3)) + 3 * np.eye(3))
    np.testing.assert_allclose(gradient(a), ta.linalg.inv(a).T, rtol=1e-9)


def test_a_part_of_a_new_array_is_an_array():
    """What nobody can see of it is not computed; two parts of one array still share memory."""
    x = ta.array(np.random.default_rng(0).random((40, 60)))
    first = ta.jit(lambda x: ta.sqrt(x)[3])
    assert np.array_equal(first(x), np.sqrt(x.numpy())[3]) and first(x).base is None
    assert [value.shape for value in first(x).node.buffer.plan.plan.outputs] == [(60,)]
    first(x)[...] = 0
    assert np.array_equal(first(x), np.sqrt(x.numpy())[3])
    real = ta.jit(lambda x: (x * (1 + 2j)).real)(x)
    assert real.dtype == np.float64 and np.array_equal(real, (x.numpy() * (1 + 2j)).real)

    @ta.jit
    def halves(x):
        y = x * 2
        return y[:20], y[10:]

    top, rest = halves(x)
    top[10:] = 7
    assert (rest.numpy()[:10] == 7).all()

    turned = ta.jit(lambda x: (x + 1).T)(x)
    assert turned.base is not None and turned.strides == (x + 1).T.strides
    frozen = ta.jit(lambda x: ta.broadcast_to((x + 1)[:1], (1, 60)))(x)
    assert not frozen.flags.writeable


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("way", "wanted"), [
    (ta.jit, lambda f, x: f(x)),
    (ta.vmap, lambda f, x: f(x)),
    (lambda f: ta.jit(ta.grad(lambda x: f(x).sum())), lambda f, x: f(x + 1) - f(x)),
    (lambda f: lambda x: ta.fori_loop(2, lambda i, s: f(s), x), lambda f, x: f(f(x))),
], ids=["jit", "vmap", "grad", "loop"])
def test_values_of_what_the_function_makes_itself_may_be_looked_at(way, wanted):
    def function_of(np):
        def function(x):
            weights = np.hanning(7)
            places = np.where(np.arange(5) > 2)[0]
            table = np.arange(6.0).reshape(2, 3)
            if weights.sum() > 1:
                x = x * float(weights.sum())
            return x * int(np.arange(5).sum()) + len(places) + table[table > 2].sum()

        return function

    x = np.arange(3.0)
    function = way(function_of(ta))
    for _ in range(2):
        np.testing.assert_allclose(
            np.asarray(function(ta.array(x))), wanted(function_of(np), x))


def test_values_of_arrays_behind_names_may_not_be_looked_at():
    scale = ta.array([1.0, 2.0])
    with pytest.raises(TypeError, match="looked at a value"):
        ta.jit(lambda x: x * float(scale.sum()))(ta.ones(3))


def test_constants_without_elements_have_room_in_programs():
    """What is computed of them has memory of the program's, which nothing else names."""
    function = ta.jit(lambda x: ta.arange(0).reshape(0, 0)
                              + (ta.arange(0) % 13).reshape(0, 1))
    with ta.config.override(compile="wait"):
        for _ in range(8):
            assert function(ta.ones(3)).shape == (0, 0)
