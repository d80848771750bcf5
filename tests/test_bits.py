"""What NumPy does to the bit, however the work is done: at once, recorded, op by op, under `jit`.

Signs of zero, what wraps and what is refused, in NumPy's words.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import tiledarray
from tiledarray import config

Case = Callable[..., Any]
ENDS = (-0.0, 0.0, 1.0, -1.0, numpy.nan, numpy.inf)
WAYS = {
    "at once": {"at_once": 1 << 16},
    "kernels": {"at_once": 0, "compile": "wait", "first_seconds": 0.0},
    "op by op": {"at_once": 0, "compile": "never"},
}


def told(value: Any) -> Any:
    """All that can be seen of a result, in plain Python; a NaN is a NaN."""
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(told, value)]
    if hasattr(value, "dtype"):
        found = numpy.asarray(value)
        return str(found.dtype), found.shape, repr(found.tolist()).replace("-nan", "nan")
    return type(value).__name__, repr(value)


def outcome(case: Case, np: Any, *arrays: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return told(case(np, *arrays))
        except Exception as error:
            kind = next(k for k in type(error).__mro__ if not k.__name__.startswith("_"))
            return kind.__name__, str(error)


def changed(target: Any, change: Callable[[Any], Any]) -> Any:
    """What a change of an array gives or raises, and the array after it."""
    try:
        result = change(target)
    except Exception as error:
        kind = next(k for k in type(error).__mro__ if not k.__name__.startswith("_"))
        return kind.__name__, str(error), target
    return result is target, target


def assert_as_numpy(case: Case, *arrays: Any) -> None:
    """Compare a function of arrays in every way that it can go, `jit` if it takes any."""
    expected = outcome(case, numpy, *[array.copy() for array in arrays])
    for way, settings in WAYS.items():
        with config.override(**settings):
            given = [tiledarray.array(array) for array in arrays]
            assert outcome(case, tiledarray, *given) == expected, way
    if arrays:
        with config.override(compile="wait"):
            replayed = tiledarray.jit(lambda *given: case(tiledarray, *given))
            for _ in range(2):
                given = [tiledarray.array(array) for array in arrays]
                assert outcome(lambda np, *given: replayed(*given), tiledarray, *given) == expected


def each(*cases: Case) -> Case:
    """Return what several cases give, or raise, as one case: what they compute is one plan."""
    def case(np: Any, *arrays: Any) -> Any:
        found = []
        for one in cases:
            try:
                found.append(one(np, *arrays))
            except Exception as error:
                found.append((type(error).__name__, str(error)))
        return found

    return case


# Limits and extrema -------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_clipping_keeps_the_sign_of_zero_as_numpy_does(dtype: str) -> None:
    triples = numpy.array([*itertools.product(ENDS, repeat=3)]).astype(dtype)
    x, low, high = (numpy.ascontiguousarray(triples[:, k]) for k in range(3))
    pairs = [*itertools.product(ENDS, repeat=2)]

    def between_arrays(np: Any, x: Any, low: Any, high: Any) -> Any:
        return np.clip(x, low, high), x.clip(low, high), np.clip(x[:40], -0.0, high[:40])

    def between_scalars(np: Any, x: Any) -> Any:
        return [np.clip(x, *pair) for pair in pairs] + [x.clip(*pair) for pair in pairs]

    def from_one_side(np: Any, x: Any) -> Any:
        return [np.clip(x, end, None) for end in ENDS] + [np.clip(x, None, end) for end in ENDS]

    assert_as_numpy(between_arrays, x, low, high)
    assert_as_numpy(between_scalars, x[::36].copy())
    assert_as_numpy(from_one_side, x[::36].copy())


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_take_the_zero_that_numpy_takes(name: str, dtype: str) -> None:
    pairs = numpy.array([*itertools.product(ENDS, repeat=2)]).astype(dtype)

    def extrema(np: Any, x: Any, y: Any) -> Any:
        function = getattr(np, name)
        return function(x, y), function(x, 0.0), function(-0.0, y)

    assert_as_numpy(extrema, pairs[:, 0].copy(), pairs[:, 1].copy())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("low", [True, False, 0, 1.5, None])
@pytest.mark.parametrize("high", [True, False, 2, None])
def test_booleans_are_clipped_into_outputs(low: Any, high: Any) -> None:
    mask = numpy.array([True, False, True])
    assert_as_numpy(lambda np, x: x.clip(low, high), mask)
    assert_as_numpy(lambda np: changed(np.array(mask), lambda x: np.clip(x, low, high, out=x)))
    assert_as_numpy(lambda np: changed(np.array(mask), lambda x: x.clip(low, high, out=x)))
    assert_as_numpy(lambda np: np.clip(np.array(mask), low, high, out=np.zeros(3)))


CLIPS: dict[str, Case] = {
    "lists": lambda np: np.arange(3.0).clip([0.5] * 3, [1.0] * 3),
    "where": lambda np: np.clip(
        np.arange(3.0), 5, 6, out=np.zeros(3), where=np.array([True, False, True])),
    "dtype": lambda np: np.clip(np.arange(3.0), 0.5, 1, dtype="f4"),
    "casting": lambda np: np.clip(np.arange(3.0), 0.5, 1, casting="unsafe", dtype="i4"),
    "no such option": lambda np: np.clip(np.arange(3.0), 0, 1, foo=1),
    "shapes": lambda np: np.clip(np.ones(3), np.zeros(2), 1),
    "into a list": lambda np: np.clip(np.ones(3), 0, 1, out=[1]),
    "into a tuple": lambda np: np.clip(np.ones(3), 0, 0.5, out=(np.zeros(3),)),
    "into NumPy's": lambda np: np.clip(np.ones(3), 0, 0.5, out=numpy.zeros(3)),
    "into another shape": lambda np: np.clip(np.ones(3), 0, 1, out=np.ones(4)),
    "into what does not fit": lambda np: np.clip(np.ones(3), 0, 1, out=np.ones(3, "i4")),
}


@pytest.mark.parametrize("name", CLIPS)
def test_clip_takes_what_the_ufunc_takes(name: str) -> None:
    assert_as_numpy(CLIPS[name])


# Python ints beyond a dtype -----------------------------------------------------------------------

BEYOND = (-1, 300, 2**63, 2**64, -(2**63) - 1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("dtype", ["u1", "i1", "u8", "i8", "i4", "?", "f4"])
def test_ints_beyond_the_dtype_wrap_or_are_refused_as_numpys(dtype: str, value: int) -> None:
    mask = numpy.array([True, False, True])
    x = numpy.ones(3, dtype)
    assert_as_numpy(each(
        lambda np, mask, x: np.where(mask, value, x), lambda np, mask, x: np.where(mask, x, value),
        lambda np, mask, x: x + value, lambda np, mask, x: np.minimum(x, value),
        lambda np, mask, x: np.clip(x, value, 2), lambda np, mask, x: np.clip(x, None, value),
        lambda np, mask, x: x.clip(value)), mask, x)
    assert_as_numpy(lambda np, mask, x: x ** value, mask, x)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("value", [*BEYOND, 1.5, 2j, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u8", "i4", "?", "f4"])
def test_choices_are_cast_as_numpys(dtype: str, value: Any) -> None:
    mask = numpy.array([True, False, True])
    x = numpy.ones(3, dtype)
    assert_as_numpy(each(
        lambda np, mask, x: np.select([mask], [x], value),
        lambda np, mask, x: np.select([mask], [value], x),
        lambda np, mask, x: np.select([mask, ~mask], [x, value]),
        lambda np, mask, x: np.select([mask, ~mask], [3, value], 1)), mask, x)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("value", [*BEYOND, 1.5, 2j, True, (1, 300)])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i8", "?", "f4"])
def test_what_is_filled_in_is_cast_as_numpys(dtype: str, value: Any) -> None:
    x = numpy.ones(3, dtype)
    cases = [lambda np, x: np.pad(x, 1, constant_values=value),
             lambda np, x: np.ediff1d(x, to_end=value),
             lambda np, x: np.ediff1d(x, to_begin=value)]
    if not isinstance(value, tuple):
        cases.append(lambda np, x: np.nan_to_num(x, nan=value))
    assert_as_numpy(each(*cases), x)


# Outputs ------------------------------------------------------------------------------------------

INTO: dict[str, Case] = {
    "sum": lambda np, a, out: np.sum(a, axis=0, out=out),
    "sum method": lambda np, a, out: a.sum(0, None, out),
    "max": lambda np, a, out: np.max(a, 0, out),
    "max method": lambda np, a, out: a.max(0, out),
    "any": lambda np, a, out: np.any(a, 0, out),
    "mean": lambda np, a, out: np.mean(a, axis=0, out=out),
    "std": lambda np, a, out: a.std(0, None, out),
    "argmax": lambda np, a, out: np.argmax(a, 0, out),
    "argmin method": lambda np, a, out: a.argmin(0, out),
    "cumsum": lambda np, a, out: np.cumsum(a, 0, None, out),
    "nansum": lambda np, a, out: np.nansum(a, axis=0, out=out),
    "add.reduce": lambda np, a, out: np.add.reduce(a, out=out),
    "trace": lambda np, a, out: a.trace(out=out),
    "take": lambda np, a, out: np.take(a, [0, 1, 1], out=out),
    "dot": lambda np, a, out: np.dot(a[0], a[1], out=out),
    "round": lambda np, a, out: np.round(a, 1, out=out),
    "fix": lambda np, a, out: np.fix(a, out=out),
    "isposinf": lambda np, a, out: np.isposinf(a, out),
    "concatenate": lambda np, a, out: np.concatenate([a[0], a[1]], out=out),
}


def read_only(np: Any) -> Any:
    array = np.zeros(3)
    array.flags.writeable = False
    return array


OUTPUTS: dict[str, Case] = {
    "list": lambda np: [0.0], "int": lambda np: 3, "scalar": lambda np: numpy.float64(1),
    "text": lambda np: "a", "row": lambda np: np.zeros(3), "NumPy's": lambda np: numpy.zeros(3),
    "ints": lambda np: np.zeros(3, int), "bytes": lambda np: np.zeros(3, "u1"),
    "short": lambda np: np.zeros(2), "none": lambda np: np.zeros(()),
    "whole": lambda np: np.zeros((2, 3)), "more": lambda np: np.zeros((2, 2, 3)),
    "read-only": read_only,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", INTO)
def test_outputs_are_taken_or_refused_as_numpys(name: str, output: str) -> None:
    if name == "std" and output in ("ints", "bytes"):
        pytest.skip("NumPy writes half of it, then raises")
    if (name, output) == ("dot", "none"):
        pytest.skip("NumPy returns a copy of it")
    assert_as_numpy(lambda np: changed(
        OUTPUTS[output](np), lambda out: INTO[name](np, np.arange(6.0).reshape(2, 3), out)))


@pytest.mark.parametrize("name", ["sum", "max", "mean", "argmax"])
def test_a_tuple_is_no_output_of_a_reduction(name: str) -> None:
    assert_as_numpy(lambda np: getattr(np, name)(np.arange(3), out=(np.zeros((), int),)))


@pytest.mark.parametrize("dtype", "efdFDi")
def test_products_with_a_scalar_have_the_zeros_of_blas(dtype: str) -> None:
    calls: tuple[Case, ...] = (
        lambda np, x, y: np.dot(x, y), lambda np, x, y: np.dot(y, x),
        lambda np, x, y: np.inner(x, y), lambda np, x, y: np.dot(x[0], y),
        lambda np, x, y: np.dot(x[0, 0], y), lambda np, x, y: np.dot(x, 2))
    assert_as_numpy(
        each(*calls), numpy.array([[-0.0, 1], [1, -0.0]], dtype), numpy.array(2, dtype))


# Powers, repeats, and operands that write ---------------------------------------------------------


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
def test_a_negative_power_of_integers_is_an_error_everywhere(dtype: str) -> None:
    x, positive = numpy.array([2, 3, 4], dtype), numpy.array([1, 0, 2], dtype)
    negative, mask = numpy.array([1, -1, 2], dtype), numpy.array([True, False, True])
    for case in (lambda np, x, n: x ** n, lambda np, x, n: np.power(x, n) + 1,
                 lambda np, x, n: 2 ** n, lambda np, x, n: (x + 1) ** (n - 1)):
        assert_as_numpy(case, x, positive)
        assert_as_numpy(case, x, negative)
    for exponent in (negative, -1, positive):
        for chosen in (mask, ~mask, mask & False):
            assert_as_numpy(lambda np, n=exponent, where=chosen: np.power(
                np.array(x), n, where=np.array(where), out=np.zeros(3, int)))


@pytest.mark.parametrize("repeats", [
    -1, 0, (2, -1), (0, -1), 2.0, 1.5, None, "a", True, (), (1, 2, 3), numpy.array([2, 1])])
def test_repeats_are_taken_or_refused_as_numpys(repeats: Any) -> None:
    for array in (numpy.arange(3), numpy.arange(6).reshape(2, 3), numpy.array(3)):
        assert_as_numpy(lambda np, array=array: np.tile(np.array(array), repeats))
    if type(repeats) in (int, tuple):
        assert_as_numpy(lambda np: np.resize(np.arange(3), repeats))


class Writing:
    """What becomes an array, and writes into another as it does."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.target[...] = 7.0
        return numpy.ones(3)


@pytest.mark.parametrize("apply", [
    lambda np, a, other: a + other, lambda np, a, other: other - a, lambda np, a, other: a < other,
    lambda np, a, other: a ** other, lambda np, a, other: a.__iadd__(other),
    lambda np, a, other: numpy.add(a, other), lambda np, a, other: np.multiply(other, a),
    lambda np, a, other: np.where(a > 1, a, other), lambda np, a, other: np.where(a, other, a),
    lambda np, a, other: np.clip(a, other, 5), lambda np, a, other: np.stack([a, other]),
])
def test_an_operand_that_writes_into_the_other_one_comes_first(apply: Case) -> None:
    def case(np: Any) -> Any:
        a = np.arange(3.0)
        return apply(np, a, Writing(a)), a

    assert_as_numpy(case)


# ---- signs of zeros -----------------------------------------------------------------------------

SIGNED_X = numpy.array([0.0, -0.0, 1.0, -1.0, -0.0, 2.0])
SIGNED_Z = numpy.array([complex(0.0, 0.0), complex(-0.0, -0.0), complex(-1.0, -0.0),
                        complex(1.0, 0.0), complex(-1.0, 0.0), complex(2.0, -0.0)])
NEGATED = [
    "np.conj(1j * x)", "np.conj(1j * x) - 1", "-(1j * x) - 1", "np.conj(2 * z)", "np.conj(z * x)",
    "np.conj(z * z)", "-(z * z)", "-(2 * z)", "np.conj(z) * z", "z * -1", "-z", "1 - z", "z - x",
    "-(x * x - x)", "-(x * x + x) - x", "np.negative(x * 2 - x - x)", "-np.exp(z)", "z - z",
]


@pytest.mark.sampled(6)
@pytest.mark.compiler
@pytest.mark.parametrize("contract", [False, True])
@pytest.mark.parametrize("dtype", ["8", "4"])
@pytest.mark.parametrize("text", NEGATED)
def test_zeros_of_what_is_negated_have_numpys_signs(text, dtype, contract):
    """g++ draws a negation into a sum that it rounds once, where what cancels has another sign."""
    x, z = SIGNED_X.astype(f"f{dtype}"), SIGNED_Z.astype(f"c{2 * int(dtype)}")
    with numpy.errstate(all="ignore"):
        wanted = eval(text, {"np": numpy, "x": x, "z": z})
    with config.override(at_once=1, compile="wait", first_seconds=0.0, contract=contract):
        ours = {"np": tiledarray, "x": tiledarray.array(x), "z": tiledarray.array(z)}
        found = numpy.asarray(eval(text, ours))
    for mine, theirs in ((found.real, wanted.real), (found.imag, wanted.imag)):
        zero = theirs == 0
        assert (numpy.signbit(mine) == numpy.signbit(theirs))[zero].all(), (found, wanted)


@pytest.mark.sampled(3)
@pytest.mark.compiler
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("text", [
    "(-x).sum()", "(-x).sum(axis=0)", "(-x).mean(axis=1)", "(-abs(x * 0)).sum(0)",
    "(-(x > 0).astype(x.dtype)).sum(axis=1)", "(x + x).sum(axis=1)", "(-x - x).sum()",
    "np.add.reduce(-x)", "(x + x).sum()", "(-(x + x)).sum(axis=0)", "(0 - x).sum()",
])
def test_sums_that_cancel_have_numpys_zero(text, dtype):
    x = numpy.zeros((4, 6), dtype)
    x[0, 1], x[0, 4], x[2, 1], x[3] = 1, -1, -1, -0.0
    wanted = numpy.asarray(eval(text, {"np": numpy, "x": x, "abs": numpy.abs}))
    with config.override(at_once=1, compile="wait", first_seconds=0.0):
        ours = {"np": tiledarray, "x": tiledarray.array(x), "abs": tiledarray.abs}
        found = numpy.asarray(eval(text, ours))
    numpy.testing.assert_array_equal(found, wanted)
    assert (numpy.signbit(found) == numpy.signbit(wanted)).all(), (found, wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("exponent", [3, 4, 3.0, 4.0])
def test_cubes_and_fourth_powers_are_products(exponent, dtype):
    """Of negative numbers NumPy's power takes a hundred times as long."""
    x = numpy.concatenate([
        numpy.random.default_rng(0).standard_normal(500) * 10.0 ** numpy.arange(-13, 12, 0.05),
        [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e-320, -1e-30]]).astype(dtype)
    with config.override(at_once=0, compile="wait", first_seconds=0.0):
        power = tiledarray.array(x) ** exponent
        assert power.node.op.name in ("multiply", "square")
        found = power.numpy()
    with numpy.errstate(all="ignore"):
        expected = (x.astype(numpy.longdouble) ** exponent).astype(dtype)
    limits = numpy.finfo(dtype)
    numpy.testing.assert_allclose(
        found, expected, rtol=2 * limits.eps, atol=limits.smallest_subnormal)
    known = ~numpy.isnan(expected)
    assert (numpy.signbit(found) == numpy.signbit(expected))[known].all()


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "F"])
def test_other_cubes_are_powers(dtype):
    x = numpy.arange(5).astype(dtype)
    with config.override(at_once=0):
        cube = tiledarray.array(x) ** 3
        assert "power" in cube.node.op.name
        assert cube.dtype == (x ** 3).dtype and cube.numpy().tolist() == (x ** 3).tolist()
