"""Containers that a jitted function is given: what it changes in them is changed, as in NumPy."""

import copy
import dataclasses
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.transforms import found


@pytest.fixture(params=[1, 16], ids=["written", "walked"], autouse=True)
def reads(request, monkeypatch):
    """What was found is compared by text of its own from the second call on, or by a walk."""
    monkeypatch.setattr(found.Watch, "WRITTEN_AFTER", request.param)


Pair = namedtuple("Pair", "first rest")


@dataclasses.dataclass
class State:
    u: Any
    rate: float = 0.5
    parts: list = dataclasses.field(default_factory=list)

    def advance(self, x):
        self.u = self.u + self.rate * x
        self.parts.append(self.u.sum())
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    w: Any
    k: float = 2.0


def item(s, x):
    s["x"] = s["x"] + x
    s["last"] = x
    return s["x"].sum()


def counts(s, x):
    s["t"] = s.get("t", 0) + 1
    return x * s["t"]


def nested(s, x):
    s["list"].append(x * 2)
    s["list"][0], s["x"] = s["x"], s["list"][0]
    s["new"] = {"a": [x + 1], "same": s["list"]}
    return s["list"], s


def shrinks(s, x):
    first = s["list"].pop(0)
    del s["x"]
    s["list"].extend([first, first * x, 3])
    return first


def rotates(s, x):
    s["list"].reverse()
    s["x"] += x  # in place
    s["list"] = [*s["list"], s["x"]]


def clears(s, x):
    old = dict(s)
    s.clear()
    s["b"], s["a"] = old["x"], x
    return old


def leaves(s, x):
    return s["x"] * x, [s["list"]]


def made(xp, kind=dict):
    return kind({"x": xp.arange(3.0), "list": [xp.ones(3), xp.full(3, 2.0)]})


def same(ours, theirs, seen):
    """Whether two nested structures agree, and share containers and arrays alike."""
    if isinstance(theirs, np.ndarray) and theirs.ndim:
        assert seen.setdefault(id(theirs), ours) is ours
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    elif isinstance(theirs, (dict, list, tuple)) or dataclasses.is_dataclass(theirs):
        assert type(ours) is type(theirs)
        assert isinstance(theirs, tuple) or seen.setdefault(id(theirs), ours) is ours
        if dataclasses.is_dataclass(theirs):
            names = [each.name for each in dataclasses.fields(theirs)]
            ours, theirs = ([getattr(each, name) for name in names] for each in (ours, theirs))
        if isinstance(theirs, dict):
            assert [*ours] == [*theirs]
            ours, theirs = [*ours.values()], [*theirs.values()]
        assert len(ours) == len(theirs)
        for x, y in zip(ours, theirs, strict=True):
            same(x, y, seen)
    elif theirs is None or isinstance(theirs, str):
        assert ours is theirs or ours == theirs
    else:
        assert float(ours) == float(theirs)


def agree(function, make, calls=4, numpys=False):
    jitted = ta.jit(function)
    ours, theirs = make(np if numpys else ta), make(np)
    for k in range(calls):
        x = np.full(3, k + 1.0)
        found, expected = jitted(ours, ta.array(x)), function(theirs, x)
        same([ours, found], [theirs, expected], {})


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda d: defaultdict(list, d)])
@pytest.mark.parametrize("function", [item, counts, nested, rotates, leaves])
def test_what_is_changed_in_a_dict_or_list(function, kind):
    agree(function, lambda xp: made(xp, kind))


@pytest.mark.parametrize("function", [shrinks, clears])
def test_what_can_be_done_once(function):
    agree(function, made, calls=1)
    jitted = ta.jit(function)
    for k in range(3):
        ours, theirs = made(ta), made(np)
        same([jitted(ours, ta.full(3, k + 1.0)), ours], [function(theirs, np.full(3, k + 1.0)),
                                                       theirs], {})


def test_numbers_that_change_at_every_call_are_there_when_it_is_no_longer_traced():
    agree(counts, made, calls=40)
    agree(counts, made, calls=40, numpys=True)
    s = {"x": np.ones(3), "t": 0, "list": []}
    kept, array = s["list"], s["x"]

    @ta.jit
    def step(s):
        s["t"] += 1
        s["x"] += s["t"]
        s["list"].append(s["t"])
        return s["list"]

    for _ in range(30):
        assert step(s) is kept
    assert s["t"] == 30 and kept == [*range(1, 31)] and s["x"] is array and array[0] == 466


def test_numpys_arrays_stay_in_their_places():
    first, second = np.ones(3), np.full(3, 2.0)
    s = {"a": first, "b": second, "t": 0}

    @ta.jit
    def swap(s):
        s["a"], s["b"] = s["b"], s["a"]
        s["a"] += 1
        return s["a"] * 1

    assert swap(s).tolist() == [3.0] * 3
    assert s["a"] is second and s["b"] is first and second.tolist() == [3.0] * 3
    assert swap(s).tolist() == [2.0] * 3 and s["a"] is first


@pytest.mark.parametrize("alias", ["twice", "inside", "by name"])
def test_one_container_that_is_given_twice(alias):
    kept = {}

    def step(s, t):
        s["n"] = t["x"] + 1
        found = t["n"] if "n" in t else t["x"] * 5
        return found + (kept["s"]["n"] if "n" in kept.get("s", ()) else 0)

    jitted = ta.jit(step)
    for xp, function in ((np, step), (ta, jitted), (ta, jitted)):
        kept.clear()
        s = {"x": xp.ones(2)}
        if alias == "by name":
            kept["s"] = s
        t = {"twice": s, "by name": {"x": xp.ones(2)}, "inside": {"x": xp.zeros(2), "n": xp.ones(2),
                                                                 "s": s}}[alias]
        found = function(s, t)
        if xp is np:
            expected = found
        np.testing.assert_array_equal(np.asarray(found), expected)
        np.testing.assert_array_equal(np.asarray(s["n"]), t["x"] + 1)
    u, v = {"x": ta.ones(2)}, {"x": ta.zeros(2)}
    kept.clear()
    assert jitted(u, v).tolist() == [0, 0] and u["n"].tolist() == [1, 1]


def test_a_call_that_fails_changes_nothing():
    s = {"x": ta.zeros((2, 2)), "t": 0}

    @ta.jit
    def fails(s):
        s["t"] = 1
        s["x"] = ta.linalg.inv(s["x"])

    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            fails(s)
        assert s["t"] == 0 and s["x"].tolist() == [[0, 0], [0, 0]]


def test_other_containers():
    @ta.jit
    def work(pair, names):
        names["a"] = names.pop("b")
        return Pair(pair.first * 2, (pair.rest, {**names})), Counter(a=3)

    for _ in range(2):
        names = {"b": ta.ones(2)}
        pair, count = work(Pair(ta.ones(2), [None]), names)
        assert type(pair) is Pair and pair.first.tolist() == [2, 2] and pair.rest[0] == [None]
        assert [*names] == ["a"] and type(count) is Counter and count["a"] == 3


# Dataclasses and other objects --------------------------------------------------------------------


def test_dataclasses_are_arguments_and_results():
    runs = []

    @ta.jit
    def step(p, x):
        runs.append(1)
        assert type(p) is Fixed
        return Fixed(p.w * p.k + x, p.k), p

    p = Fixed(ta.ones(3))
    for k in range(3):
        old = p
        p, given = step(p, ta.full(3, float(k)))
        assert type(p) is Fixed and given is old and p.k == 2.0
    assert p.w.tolist() == [12.0] * 3 and len(runs) == 1
    assert step(dataclasses.replace(p, k=3.0), ta.zeros(3))[0].w.tolist() == [36.0] * 3


def test_methods_of_dataclasses_change_them():
    jitted = ta.jit(State.advance)
    ours, theirs = State(ta.ones(3)), State(np.ones(3))
    for k in range(3):
        found, expected = jitted(ours, ta.full(3, k * 1.0)), theirs.advance(np.full(3, k * 1.0))
        assert found is ours and expected is theirs
        same(ours, theirs, {})
    ours.rate = theirs.rate = 2.0
    jitted(ours, ta.ones(3))
    theirs.advance(np.ones(3))
    same(ours, theirs, {})


def test_gradients_with_dataclasses():
    def loss(p):
        return (p.w * p.k).sum()

    p = State(ta.ones(3), 2.0)
    q = Fixed(ta.ones(3), 2.0)
    for gradient in (ta.grad(loss), ta.jit(ta.grad(loss)), ta.grad(ta.jit(loss))):
        for _ in range(2):
            found = gradient(q)
            assert type(found) is Fixed and found.w.tolist() == [2.0] * 3 and float(found.k) == 3.0
    assert float(ta.jit(loss)(q)) == 6.0
    assert p.rate == 2.0


def test_objects_without_a_hash_are_arguments_by_identity():
    double = ta.jit(lambda space, more: space.w * space.k + sum(more))
    for k in (2.0, 3.0):
        space = types.SimpleNamespace(w=ta.ones(2), k=k)
        assert double(space, deque([1, 2])).tolist() == [k + 3] * 2
        space.k = 7.0
        assert double(space, {4}).tolist() == [11.0] * 2
        space.w = space.w * 2
        assert double(space, {4}).tolist() == [18.0] * 2
        for name in ("k", "w"):
            with pytest.raises(TypeError, match=f"{name} to another array or number"):
                ta.jit(lambda space, name=name: setattr(space, name, 3.0))(space)
    with pytest.raises(TypeError, match=r"bind|change"):
        ta.jit(lambda more: more.append(1))(deque([1.0]))


def test_an_argument_that_contains_itself_is_refused():
    s = {"x": ta.ones(2)}
    s["s"] = s
    with pytest.raises(TypeError, match="contains itself"):
        ta.jit(lambda s: s["x"] * 2)(s)


def test_objects_by_name_and_in_containers_are_looked_at():
    class Model:
        def __init__(self):
            self.k = 2.0

    @ta.jit
    def work(x, models, *, model):
        return x * model.k + models["a"][0].k

    m, n = Model(), Model()
    assert work(ta.ones(2), {"a": [n]}, model=m).tolist() == [4.0] * 2
    m.k = 5.0
    assert work(ta.ones(2), {"a": [n]}, model=m).tolist() == [7.0] * 2
    n.k = 1.0
    assert work(ta.ones(2), {"a": [n]}, model=m).tolist() == [6.0] * 2


# Programs made at random --------------------------------------------------------------------------


def random_step(random):
    """Return the source of one change of a nested state."""
    pick = random.choice
    value = pick(["s['x'] * 2", "x + 1", "s['l'][0]", "s['d']['y'] + x", "s['n'] + 1", "x",
                  "s['x'].sum()", "[x, s['l']]", "s['d']", "3.5", "s['l'][-1]"])
    return pick([
        f"s['x'] = {value} if not isinstance({value}, (dict, list)) else s['x']",
        f"s['d']['z{random.integers(3)}'] = {value}", f"s['l'].append({value})",
        "s['l'][0], s['x'] = s['x'], s['l'][0]", "s['x'] += x", "s['n'] = s['n'] + 1",
        "s['d'].pop('z0', None)", "s['l'] = s['l'][:3]", "s['l'].insert(0, x * 3)",
        "s['d'] = {**s['d'], 'y': x}", "s['l'][-1:] = [x]",
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_programs_that_change_what_they_are_given(seed):
    random = np.random.default_rng(seed)
    lines = [random_step(random) for _ in range(random.integers(1, 5))]
    result = random.choice(["s", "s['l']", "(s['x'], s['d'])", "None", "[s['x'] * 1, s['n']]"])
    names = {}
    exec("def step(s, x):\n" + "".join(f"    {line}\n" for line in [*lines, f"return {result}"]),
         names)

    def make(xp):
        return {"x": xp.arange(3.0), "n": 1, "l": [xp.ones(3)], "d": {"y": xp.full(3, 2.0)}}

    try:
        names["step"](copy.deepcopy(make(np)), np.ones(3))
        theirs = make(np)
        for k in range(5):
            names["step"](theirs, np.full(3, k + 1.0))
    except (AttributeError, TypeError, ValueError, KeyError, IndexError):
        pytest.skip("no program in NumPy either")
    if "[...]" in repr(theirs) or "{...}" in repr(theirs):
        pytest.skip("contains itself")
    agree(names["step"], make, calls=5)


def _of_line(a):
    line = a.ravel()
    line -= line.mean()
    return line


def _of_reshaped(a):
    line = a.reshape(-1)
    line *= 2
    return a.sum()


def _by_flags(a):
    return a * 2 if a.flags.c_contiguous else a * 3


def _in_order(a):
    np.asarray(a, order="C") if isinstance(a, np.ndarray) else ta.ascontiguousarray(a).fill(0)
    return a.sum()


@pytest.mark.parametrize("order", ["012345", "543210", "231045"])
@pytest.mark.parametrize("function", [_of_line, _by_flags, lambda a: a.ravel()],
                         ids=["line", "flags", "returned"])
def test_one_function_of_views_that_lie_otherwise_copies_what_numpy_copies(function, order):
    views = [lambda x: x[1], lambda x: x[:, 1], lambda x: x[2], lambda x: x[::-1, 2],
             lambda x: x[0].copy(), lambda x: x[:, 0]]
    jitted = ta.jit(function)
    for k in map(int, order):
        ways = []
        for lib, called in (np, function), (ta, jitted):
            x = lib.array(np.arange(16.0).reshape(4, 4))
            result = called(views[k](x))
            found = np.asarray(result).tolist()
            result += 1
            ways.append((found, np.asarray(x).tolist()))
        assert ways[1] == ways[0]


@pytest.mark.parametrize("function", [
    _of_line, _of_reshaped, _by_flags, _in_order, lambda a: a.ravel()],
    ids=["line", "reshaped", "flags", "in order", "returned"])
@pytest.mark.parametrize("view", [
    lambda x: x[:, 1], lambda x: x.T, lambda x: x[::-1], lambda x: x[:, 1:], lambda x: x[1],
    lambda x: x, lambda x: x[1:]],
    ids=["column", "turned", "reversed", "columns", "row", "whole", "rows"])
def test_what_does_not_lie_together_is_copied_where_numpy_copies_it(function, view):
    ways = []
    for lib, called in (np, function), (ta, ta.jit(function)):
        x = lib.array(np.arange(12.0).reshape(4, 3))
        found = []
        for _ in range(3):
            result = called(view(x))
            found.append(np.asarray(result).tolist())
            if result.ndim:
                result += 1
        ways.append((found, np.asarray(x).tolist()))
    if function is not _in_order:
        assert ways[1] == ways[0]
    elif view(np.zeros((4, 3))).flags.c_contiguous:
        assert not np.any(view(np.array(ways[1][1])))
    else:
        assert ways[1][1] == np.arange(12.0).reshape(4, 3).tolist()
