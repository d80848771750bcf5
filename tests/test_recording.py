"""Recording: NumPy's errors at once, sites, and where a long recording is cut."""

import operator

import numpy as np
import pytest

from tiledarray import config
from tiledarray.arrays.tiledarray import from_host
from tiledarray.execution import evaluate as evaluation
from tiledarray.graph import node as graph
from tiledarray.recording import record
from tiledarray.recording.stretch import local

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
]
DTYPES = ["?", "i1", "u1", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
SCALARS = [True, 3, 2.5, 1j, -1, 300, 2**40, np.float32(1.5), np.int8(2), np.array(2.0)]


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()


def outcome(function, *args):
    """Return what a call gives: a value, or the error's type and text."""
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        return type(error), str(error)


def check(function, ours, expected):
    found, wanted = outcome(function, *ours), outcome(function, *expected)
    if isinstance(wanted, tuple) and isinstance(wanted[0], type):
        assert found == wanted
        return
    wanted = np.asarray(wanted)
    assert not isinstance(found, tuple), found
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(
        found.numpy(), wanted, rtol=1e-2 if wanted.dtype == "f2" else 1e-5
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("left", DTYPES)
def test_operators_of_two_arrays(op, left):
    x = np.array([1, 0, 2]).astype(left)
    for right in DTYPES:
        y = np.array([1, 2, 1]).astype(right)
        check(op, (from_host(x), from_host(y)), (x, y))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_with_scalars(op, dtype):
    x = np.array([1, 1, 2]).astype(dtype)
    for scalar in SCALARS:
        if type(scalar) is int and abs(scalar) > 63 and "shift" in op.__name__:
            continue  # undefined
        check(op, (from_host(x), scalar), (x, scalar))
        if not (op is operator.pow and scalar == 2**40):
            check(op, (scalar, from_host(x)), (scalar, x))


@pytest.mark.parametrize("op", [operator.neg, operator.pos, abs, operator.invert])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unary_operators(op, dtype):
    x = np.array([1, 0, 2]).astype(dtype)
    check(op, (from_host(x),), (x,))


def in_place(name):
    def function(x, y):
        getattr(operator, name)(x, y)
        return x

    return function


@pytest.mark.parametrize("name", ["iadd", "itruediv", "ipow", "iand", "ifloordiv"])
@pytest.mark.parametrize("left", DTYPES)
def test_in_place_operators(name, left):
    x = np.array([1, 0, 2]).astype(left)
    for right in DTYPES:
        y = np.array([1, 2, 1]).astype(right)
        check(in_place(name), (from_host(x), from_host(y)), (x.copy(), y))
    for scalar in SCALARS[:4]:
        check(in_place(name), (from_host(x), scalar), (x.copy(), scalar))


@pytest.mark.parametrize("exponent", [2, 1, -1, 0.5, 0, 3, 2.0, -2, 2j, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(exponent, dtype):
    x = np.array([1, 1, 2]).astype(dtype)
    check(operator.pow, (from_host(x), exponent), (x, exponent))
    check(np.power, (from_host(x), exponent), (x, exponent))


def test_short_powers():
    x = from_host(np.ones(2))
    assert (x**2).node.op.name == "square" and (x**0.5).node.op.name == "sqrt"
    assert (x**-1).node.op.name == "reciprocal" and (x**5).node.op.name.startswith("power")
    assert (x**3).node.op.name == "multiply" and (x**4).node.op.name == "square"


def test_shapes_that_do_not_match():
    with pytest.raises(ValueError) as error:
        from_host(np.ones(2)) + from_host(np.ones(3))
    assert str(error.value) == "operands could not be broadcast together with shapes (2,) (3,) "
    with pytest.raises(ValueError, match=r"non-broadcastable output operand with shape \(2,\)"):
        a = from_host(np.ones(2))
        a += np.ones((3, 2))


def test_numpy_arrays_are_copied_when_recorded():
    x = np.ones(3)
    result = from_host(np.zeros(3)) + x
    x[:] = 100
    assert result.tolist() == [1, 1, 1]


def test_scalars_are_parameters():
    node = (from_host(np.ones(3, np.float32)) * 2).node
    assert node.inputs[1] == 2.0 and type(node.inputs[1]) is float
    assert node.attrs == (np.dtype("f4"), np.dtype("f4"))


def test_sites_are_the_users_lines():
    a = from_host(np.ones(3))
    line = test_sites_are_the_users_lines.__code__.co_firstlineno
    results = [
        a + 1,
        np.exp(a),
        a.sum(),
        a[1:] * 2,
        a.mean(),
    ]
    for offset, result in enumerate(results):
        file, number = graph.location(result.node.site)
        assert file == __file__
        assert number == line + 4 + offset


def pending_below(targets):
    """Return the pending nodes that the targets need, themselves included."""
    found, stack = set(), list(targets)
    while stack:
        node = stack.pop()
        if node not in found and node.pending:
            found.add(node)
            stack.extend(x for x in node.inputs if isinstance(x, graph.Node))
    return found


@pytest.fixture
def stretches(monkeypatch):
    """Record how many nodes each evaluation has to compute."""
    found = []
    evaluate = evaluation.evaluate

    def watching(targets, *options, **named):
        found.append(len(pending_below(targets)))
        evaluate(targets, *options, **named)

    monkeypatch.setattr(evaluation, "evaluate", watching)
    return found


def test_a_long_loop_is_cut_into_equal_stretches(stretches):
    with config.override(cut=40):
        local.recorder.reset()
        x = from_host(np.ones(4))
        start = x * 1.0
        for _ in range(5):
            start = start + 1.0  # before the loop
        for _ in range(100):
            x = x * 0.5
            y = x + 1.0
            x = x + y * 0.25
        assert len(stretches) >= 5
        assert len(set(stretches[1:])) == 1, stretches
        assert 40 <= stretches[1] <= 48


def test_updates_in_place_are_cut_alike(stretches):
    with config.override(cut=40):
        local.recorder.reset()
        x = from_host(np.ones(8))
        for _ in range(200):
            x[1:-1] += 0.25 * (x[2:] - x[:-2])
        assert len(stretches) >= 5
        assert len(set(stretches[1:])) == 1, stretches
    expected = np.ones(8)
    for _ in range(200):
        expected[1:-1] += 0.25 * (expected[2:] - expected[:-2])
    np.testing.assert_array_equal(x.numpy(), expected)


def test_one_line_with_several_callers_is_no_anchor(stretches):
    def twice(value):
        return value * 2.0

    with config.override(cut=30):
        local.recorder.reset()
        x = from_host(np.ones(4))
        for _ in range(60):
            x = twice(x)
            x = x - 1.0
            x = twice(x) * 0.25
        assert len(set(stretches[1:])) == 1, stretches


def test_straight_code_is_cut_too(stretches):
    with config.override(cut=10):
        local.recorder.reset()
        x = from_host(np.ones(4))
        for line in range(100):
            x = eval(compile("x + 1.0", f"<line {line}>", "eval"), {"x": x})
        assert stretches and max(stretches) <= 40
    assert x.tolist() == [101.0] * 4


def test_what_nobody_holds_is_not_evaluated():
    a = from_host(np.ones(3))
    kept = a + 1
    a + 2
    assert record.live_pending() == [kept.node]
    alias = kept[1:]
    assert record.live_pending() == [kept.node] and alias.base is kept
    float(kept.sum())
    assert not kept.node.pending and record.live_pending() == []


def test_fallbacks_are_counted():
    record.fallbacks.clear()
    a = from_host(np.ones(3))
    np.add.reduceat(a, [0, 2])
    ((name, site),) = record.fallbacks
    assert name == "add.reduceat" and graph.location(site)[0] == __file__


def test_arrays_of_different_devices_are_refused():
    a, b = from_host(np.ones(3)), from_host(np.ones(3))
    elsewhere = type("Elsewhere", (), {
        "kind": "cuda", "on_host": False, "__str__": lambda self: "cuda:7"})()
    kind = graph.kind_of((3,), np.dtype(float), elsewhere)
    b.node.form = graph.form_of(b.node.op, None, kind, 0)
    with pytest.raises(ValueError, match=r"different devices, cpu and cuda:7.*x\.to\('cpu'\)"):
        a + b


def test_what_fails_does_not_hold_up_the_rest():
    a = from_host(np.arange(3.0))
    bad = a[from_host(np.array([5, 5])) * 1]
    good = a + 1
    assert good.tolist() == [1, 2, 3]
    with pytest.raises(IndexError):
        bad.tolist()
    assert (good * 2).tolist() == [2, 4, 6]
    with pytest.raises(IndexError):
        bad.tolist()


def test_a_failure_at_a_cut_is_raised_once():
    with config.override(cut=5):
        local.recorder.reset()
        a = from_host(np.arange(3.0))
        bad = a[from_host(np.array([5, 5])) * 1]
        kept = [bad]
        x = a
        for _ in range(40):
            x = x + 1
        assert x.tolist() == [40, 41, 42] and kept
