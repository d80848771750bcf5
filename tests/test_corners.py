"""NumPy's corners: what a call gives, or raises, where few calls go; every one once was wrong.

Values, dtypes, shapes, the types of exceptions and their words are NumPy's.
"""

from __future__ import annotations

import array
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import tiledarray
from tiledarray import config
from tiledarray.arrays import by_numpy
from tiledarray.recording.stretch import fallbacks

Case = Callable[[Any], Any]
INF, NAN = numpy.inf, numpy.nan
MASK = numpy.array([True, False, True])


def told(value: Any) -> Any:
    """All that can be seen of a result, in plain Python."""
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(told, value)]
    if hasattr(value, "dtype"):
        found = numpy.asarray(value)
        return str(found.dtype), found.shape, repr(found.tolist())
    return type(value).__name__, repr(value)


def not_written(np: Any, work: Callable[[Any], Any]) -> Any:
    """The error of what cannot be done, and what the array holds after it."""
    a = np.arange(5.0)
    try:
        work(a)
    except (TypeError, ValueError) as error:
        return type(error).__name__, a
    return a


def outcome(case: Case, np: Any) -> Any:
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return told(case(np))
        except Exception as error:
            kind = next(k for k in type(error).__mro__ if not k.__name__.startswith("_"))
            return kind.__name__, str(error)


def assigned(target: Any, key: Any, value: Any) -> Any:
    target[key] = value
    return target


def changed(target: Any, change: Callable[[Any], Any]) -> Any:
    change(target)
    return target


def into(np: Any, source: Any, view: Callable[[Any], Any], key: Any = 0, value: Any = 5) -> Any:
    """What an array holds after its view was written to."""
    assigned(view(source), key, value)
    return source


def small(np: Any) -> Any:
    return np.zeros(3, "i1")


ASSIGNMENTS: dict[str, Case] = {
    **{f"{name} = {value!r}": lambda np, key=key, value=value: assigned(small(np), key, value)
       for name, key in (("element", 0), ("slice", slice(0, 2)), ("everything", ...),
                         ("places", [0, 1]), ("mask", MASK))
       for value in (numpy.int64(300), numpy.float64(300), 300, numpy.array(300), numpy.int64(-1),
                     numpy.array([1]), 3.7, numpy.float32(3.7))},
    **{f"int element = {value!r}": lambda np, value=value: assigned(np.zeros(3, int), 0, value)
       for value in (numpy.float64(NAN), numpy.float64(INF), numpy.float64(1e30), NAN,
                     numpy.float64(2.7), numpy.array(2.7))},
    "int slice = NaN": lambda np: assigned(np.zeros(3, int), slice(None), numpy.float64(NAN)),
    "int everything = empty mean": lambda np: assigned(np.zeros(3, int), ..., np.zeros(0).mean()),
    "int element = empty mean": lambda np: assigned(np.zeros(3, int), 1, np.zeros(0).mean()),
    "element = a sum": lambda np: assigned(small(np), 0, np.full(3, 100).sum()),
    "element = an element": lambda np: assigned(small(np), 0, np.array([300, 5])[0]),
    "element = an array without axes": lambda np: assigned(small(np), 0, np.array(300)),
    "places = a sum": lambda np: assigned(small(np), [0, 1], np.full(3, 100).sum()),
    "element = a list": lambda np: assigned(np.zeros(3), 0, [1]),
    "truth = a vector": lambda np: assigned(np.zeros(3, bool), 0, np.array([2.5])),
    "truth = a longer vector": lambda np: assigned(np.zeros(3, bool), 0, np.ones(2)),
    "complex element = a vector": lambda np: assigned(np.zeros(3, complex), 0, np.ones(1)),
    "int element = a list": lambda np: assigned(np.zeros(3, int), 0, [1]),
    "element = a longer list": lambda np: assigned(np.zeros(3), 0, [1, 2]),
    "element = a vector": lambda np: assigned(np.zeros(3), 0, np.array([1])),
    "nothing left = a vector": lambda np: assigned(np.zeros(()), (), np.array([1])),
    "everything = a list": lambda np: assigned(np.zeros(()), ..., [1]),
    "everything = a vector": lambda np: assigned(np.zeros(()), ..., np.array([1])),
    **{f"fill {value!r}": lambda np, value=value: changed(small(np), lambda a: a.fill(value))
       for value in (
           300, numpy.int64(300), 1.5, [1], numpy.array([1]), numpy.array(300), "a", NAN)},
    **{f"flat = {value!r}": lambda np, value=value: assigned(small(np).flat, 0, value) and None
       for value in (300, numpy.int64(300), "a", [1, 2], None)},
    "flat read beyond": lambda np: small(np).flat[7],
    "flat beyond": lambda np: assigned(small(np).flat, 7, 1),
    **{f"putmask {value!r}": lambda np, value=value: changed(
        small(np), lambda a: np.putmask(a, MASK, value))
       for value in (300, numpy.int64(300), 1.5)},
    "putmask booleans": lambda np: changed(MASK.copy() if np is numpy else np.array(MASK),
                                           lambda a: np.putmask(a, a, 3)),
    "putmask another shape": lambda np: changed(
        np.arange(4), lambda a: np.putmask(a, numpy.ones((2, 2), bool), 9)),
}

WHERE_MORE = numpy.ones((2, 3), bool)
REDUCTIONS: dict[str, Case] = {
    **{f"{name} where of more axes": lambda np, name=name, more=more: getattr(
        np.ones(3), name)(where=WHERE_MORE, **more)
       for name, more in (("sum", {}), ("prod", {}), ("any", {}), ("all", {}), ("mean", {}),
                          ("var", {}), ("max", {"initial": 0}), ("min", {"initial": 0}))},
    "where of another length": lambda np: np.ones(3).sum(where=numpy.ones(2, bool)),
    "where that would widen": lambda np: np.ones((1, 3)).sum(axis=1, where=WHERE_MORE),
    "where of integers": lambda np: np.ones(3).sum(where=numpy.array([1, 0, 1])),
    "where column": lambda np: np.ones((2, 3)).sum(where=numpy.ones((2, 1), bool)),
    "sum initial below": lambda np: np.ones(3, "u1").sum(initial=-5),
    "prod initial below": lambda np: np.ones(3, "u4").prod(initial=-5),
    "max initial below": lambda np: np.ones(3, "u1").max(initial=-5),
    "max initial beyond": lambda np: np.ones(3, "u1").max(initial=500),
    "sum initial array": lambda np: np.ones(3).sum(initial=np.array([1, 2])),
    "max of nothing, initial": lambda np: np.zeros((0, 0)).max(axis=0, initial=0),
    "min of nothing, kept empty": lambda np: np.zeros((0, 0, 2)).min(axis=1),
    **{f"{name} of no axes, axis {axis}": lambda np, name=name, axis=axis: getattr(
        np.array(2.0), name)(axis=axis)
       for name in ("mean", "var", "std", "sum", "max", "argmax", "cumsum") for axis in (0, -1, 1)},
    "mean of a sum": lambda np: np.ones(3).sum().mean(axis=-1),
    "var of complex in f4": lambda np: np.var(np.array([1 + 2j, 3 - 1j]), dtype="f4"),
    "var in complex": lambda np: np.var(np.arange(4.0), dtype=complex),
    "std in complex": lambda np: np.arange(4.0).std(dtype=complex),
    "nanvar infinity": lambda np: np.nanvar(np.array([1.0, INF, 2])),
    "nanstd infinity": lambda np: np.nanstd(
        np.array([[1.0, INF, NAN], [1, 2, NAN], [NAN, NAN, NAN]]), axis=1),
}

FUNCTIONS: dict[str, Case] = {
    "divmod by float32": lambda np: divmod(np.arange(4.0), numpy.float32(2)),
    "float32 divmod": lambda np: divmod(numpy.float32(2), np.arange(1, 4.0)),
    **{f"pad no axes, {mode}": lambda np, mode=mode: np.pad(np.array(3.0), 1, mode=mode)
       for mode in ("symmetric", "edge", "wrap", "constant")},
    "isclose booleans": lambda np: np.isclose(np.array([True, False]), True),
    "clip to what does not fit": lambda np: np.clip(
        np.arange(5, dtype="u1"), -1, 3, out=np.zeros(5, "u1")),
    "int of a complex element": lambda np: int(np.array([2 + 0j])[0]),
    "int of a complex array": lambda np: int(np.array(2 + 0j)),
    "add where integers": lambda np: np.add(
        np.ones(3), 1, where=numpy.array([1, 0, 1]), out=np.zeros(3)),
    "copyto where integers": lambda np: np.copyto(
        np.ones(3), 1, where=numpy.array([1, 0, 1])),
    "repeat": lambda np: np.repeat(np.array(2.0), 2, axis=0),
    **{f"argsort {axis}": lambda np, axis=axis: np.argsort(np.array(2.0), axis=axis)
       for axis in (-1, 0, 1, None)},
    **{f"x.argsort {axis}": lambda np, axis=axis: np.array(2.0).argsort(axis=axis)
       for axis in (-1, 0, 1, None)},
    "argpartition": lambda np: np.argpartition(np.array(2.0), 0),
    "power of a boolean scalar": lambda np: np.array([True]).any() ** 2,
    "power of booleans": lambda np: np.array([True]) ** 2,
    "65 axes by None": lambda np: np.ones((1,) * 64)[None],
    "65 axes by expand_dims": lambda np: np.expand_dims(np.ones((1,) * 64), 0),
    "65 axes by broadcast_to": lambda np: np.broadcast_to(np.ones(1), (1,) * 65),
    "80 axes by outer": lambda np: np.add.outer(np.ones((1,) * 40), np.ones((1,) * 40)),
    "imag is zeros": lambda np: np.arange(3.0).imag,
    "imag cannot be written": lambda np: assigned(np.arange(3.0).imag, 0, 1),
    "imag cannot be set": lambda np: setattr(np.arange(3.0), "imag", 1),
    "meshgrid": lambda np: np.meshgrid(np.arange(2), np.arange(3)),
    "repr of an array without axes": lambda np: repr(np.array(2.0)),
    "frozen before cast": lambda np: np.broadcast_to(np.arange(3), (2, 3)).__iadd__(1.5),
    "frozen before shapes": lambda np: np.broadcast_to(
        np.arange(3), (2, 3)).__iadd__(np.ones((4, 2, 3))),
    "cast before output's shape": lambda np: np.arange(3).__iadd__(np.ones((2, 3))),
    "cast before operands' shapes": lambda np: np.arange(3).__iadd__(np.ones(2)),
    "more than a process can have": lambda np: np.zeros(1 << 50),
    "more than a process can have, two axes": lambda np: np.ones((1 << 40, 1 << 12), "f4"),
}

INDICES: list[Any] = [
    range(2), range(-2, 0), range(0), (range(5), [0, 1, 2, 0, 1]), (slice(None), range(2)),
    (Ellipsis, range(2)), array.array("l", [1, 2]), memoryview(numpy.array([1, 2])),
    bytearray(b"\x01"), [slice(0, 2), 1], [None, 1], ["a"], [1.0], [[]], [()], [True, 1], b"a", {1},
    {}, object(), 1j, "", [Ellipsis], numpy.array([], float), (range(2), [1.0, 2]),
]

VIEWS: dict[str, Case] = {
    **{f"einsum {text}": lambda np, text=text, shape=shape: into(
        np, np.zeros(shape), lambda z: np.einsum(text, z))
       for text, shape in (("ii->i", (3, 3)), ("ij->ji", (2, 3)), ("ij", (2, 3)), ("ji", (2, 3)),
                           ("i...->...i", (2, 3)), ("iij->ji", (2, 2, 3)), ("iii->i", (2, 2, 2)),
                           ("...", (2, 3)), ("...ij -> j...i", (2, 2, 3)))},
    "einsum of lists": lambda np: into(
        np, np.zeros((2, 3)), lambda z: np.einsum(z, [0, 1], [1, 0])),
    "einsum optimized": lambda np: into(
        np, np.zeros((2, 3)), lambda z: np.einsum("ij->ji", z, optimize=True)),
    "trim_zeros": lambda np: into(np, np.array([0, 1, 2, 0]), np.trim_zeros),
    "trim_zeros of a table": lambda np: into(
        np, np.array([[0, 0, 0], [0, 1, 0], [0, 0, 2]]), np.trim_zeros),
    "trim_zeros to nothing": lambda np: np.trim_zeros(np.zeros(3)),
}


def alike(values: Any, shift: Callable[[Any], Any]) -> Case:
    """A call whose output overlaps its operand."""
    return lambda np: changed(np.arange(values), shift(np))


OVERLAPS: dict[str, Case] = {
    "reversed": alike(6, lambda np: lambda a: np.add(a, a[::-1], out=a, casting="unsafe")),
    "shifted": alike(6, lambda np: lambda a: np.multiply(
        a[1:], 2.5, out=a[:-1], casting="unsafe")),
    "place": alike(6, lambda np: lambda a: np.place(a, a[:], [9])),
    "place beside": alike(6, lambda np: lambda a: np.place(a, a[None] > 2, [9])),
    "put_along_axis": alike(6, lambda np: lambda a: np.put_along_axis(
        a, np.argsort(a[::-1]), a[::-1], axis=0)),
    "reshaped": alike(6, lambda np: lambda a: np.add(
        a.reshape(2, 3), a.reshape(3, 2).T, out=a.reshape(2, 3), casting="unsafe")),
    "at": alike(6, lambda np: lambda a: np.add.at(a, [0, 1], a[1:3])),
    "read-only": lambda np: np.place(np.broadcast_to(np.arange(3), (2, 3)), [True] * 6, [9]),
}

HALVES = numpy.array([[0.5, 1.75], [1.5, -3.25], [0.5, 0.75]])

FOUND_BY_SWEEPS: dict[str, Case] = {
    **{f"{name} into {dtype}": lambda np, name=name, dtype=dtype: getattr(np, name)(
        np.array(HALVES), axis=0, out=np.zeros(2, dtype))
       for name in ("sum", "prod", "min", "max", "mean", "var", "std", "nansum", "nanmin", "ptp",
                    "nanmean", "nanstd", "median")
       for dtype in ("i4", "u1", "f4", "?", "D")},
    **{f"{name} into {dtype}": lambda np, name=name, dtype=dtype: getattr(np, name)(
        np.array(HALVES), axis=0, out=np.zeros((3, 2) if "cum" in name else 2, dtype))
       for name in ("cumsum", "cumprod", "argmax", "any") for dtype in ("i4", "u8", "D", "f4")},
    "method compress": lambda np: np.array(HALVES).compress([True, False, True], axis=0),
    "choose among scalars": lambda np: np.choose(
        np.array([0, 1, 0]), [np.array([1, 2, 3], "i4"), 1, 7]),
    "insert what does not fit": lambda np: np.insert(np.arange(3, dtype="i2"), 1, 1 << 40),
    "a list that does not fit": lambda np: assigned(np.zeros(3, "u4"), [0, 1], [-2.0, 1.0]),
    "a list of complex numbers": lambda np: assigned(np.zeros(3), slice(0, 2), [1j, 2j]),
    "an array without axes gives a copy": lambda np: into(
        np, np.ones((3, 2)), lambda z: z[numpy.array(2)]),
    "a vector for an array's one place": lambda np: assigned(
        np.ones(3), numpy.array(2), np.ones(1)),
    "initial in the output's dtype": lambda np: np.array([False, True]).min(
        initial=-3, out=np.zeros((), "D")),
    "an element gives a view": lambda np: into(
        np, np.ones((3, 2)), lambda z: z[np.array([0, 2])[1]]),
    "scalars into an output": lambda np: np.add(1, 2.5, out=np.zeros(2)),
    "a scalar into an output": lambda np: np.sqrt(2, out=np.zeros(2, int)),
    "a scalar of a dtype into an output": lambda np: np.log2(
        2, dtype="e", where=numpy.array([True, False]), out=np.zeros(2)),
    "mean of nothing, weighed": lambda np: np.average(np.zeros((0, 3)), axis=1),
    "average along no such axis": lambda np: np.average(np.zeros((2, 3)), axis=2),
    "nanmean in integers": lambda np: np.nanmean(np.array(HALVES), dtype="i4"),
    "nanvar in complex": lambda np: np.nanvar(np.array(HALVES) * 1j, dtype="D"),
    "nanmin of places": lambda np: np.nanmin(np.array(HALVES), where=MASK[:2]),
    "median along nothing": lambda np: np.median(np.array(HALVES), axis=()),
    "quantile along nothing": lambda np: np.quantile(np.array(HALVES), [0.25, 0.5], axis=()),
    "norm of nothing": lambda np: np.linalg.norm(np.zeros((3, 0)), ord=INF, axis=-1),
    "matrix norm of nothing": lambda np: np.linalg.norm(np.zeros((2, 3, 0)), 1, (1, 2)),
    "putmask without axes": lambda np: np.putmask(np.zeros(3, "f4"), MASK, np.array(1.5)),
    "repeat less than never": lambda np: np.repeat(np.arange(3), -1),
    "repeat nothing less than never": lambda np: np.repeat(np.zeros((3, 0)), -1, axis=1),
    "take from nothing": lambda np: np.take(np.zeros(0), [0, 1], mode="clip"),
    "vectors of other batches": lambda np: np.vecdot(np.ones((2, 2, 3)), np.ones((3, 3))),
    "copyto of complex": lambda np: changed(
        np.zeros(2, "u2"), lambda a: np.copyto(a, 2 + 1j, casting="unsafe")),
    "copyto of another kind": lambda np: np.copyto(np.zeros(2, "u4"), np.array(-3, "i2")),
    "sort what cannot be written": lambda np: np.broadcast_to(np.arange(3), (2, 3)).sort(),
    "partition what cannot be written": lambda np: np.broadcast_to(
        np.arange(3), (2, 3)).partition(0),
    "a vector's product in place": lambda np: np.ones(3).__imatmul__(np.ones(3)),
    "operands before output": lambda np: np.ones((3, 3)).__imul__([1j, 2, 3]),
    "searchsorted in no vector": lambda np: np.array(2).searchsorted(1),
    "mask of fewer": lambda np: assigned(np.zeros(3), MASK, np.ones(3)),
    "places of fewer": lambda np: assigned(np.zeros((3, 3)), ([0, 1], 1), np.ones(3)),
    "the first place beyond": lambda np: np.zeros(2)[[0, 7, -9]],
    "an empty mask checks, too": lambda np: assigned(np.zeros(0, "i1"), numpy.zeros(0, bool), 300),
    "flat of two axes": lambda np: np.zeros((2, 2)).flat[0, 1],
    "fft along no such axis": lambda np: np.fft.fft(np.ones(3), axis=2),
    "fft2 of a vector": lambda np: np.fft.fft2(np.ones(3)),
    "fft by no such norm": lambda np: np.fft.fft(np.ones(3), norm="x"),
    "divmod into one": lambda np: not_written(np, lambda a: np.divmod(a, 2, out=a)),
    "divmod into (one,)": lambda np: not_written(np, lambda a: np.divmod(a, 2, out=(a,))),
    "add into two": lambda np: not_written(np, lambda a: np.add(a, 1, out=(a, a))),
    "modf into what does not fit": lambda np: not_written(
        np, lambda a: np.modf(a, out=(a, np.zeros(2)))),
    "a scalar times a list": lambda np: np.array([3, 4])[0] * [1],
    "an array times a list": lambda np: np.array([3]) * [1],
    "flat of none": lambda np: np.zeros((2, 2)).flat[None],
}

CASES = {**ASSIGNMENTS, **REDUCTIONS, **FUNCTIONS, **VIEWS, **OVERLAPS, **FOUND_BY_SWEEPS}


@pytest.mark.parametrize("at_once", [0, 1 << 12])
@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name: str, at_once: int) -> None:
    expected = outcome(CASES[name], numpy)
    with config.override(at_once=at_once):
        if not at_once and name.startswith(VALUES_LATER):
            pytest.skip("the value would have to be computed first")
        assert outcome(CASES[name], tiledarray) == expected


# What is assigned is checked where its value is there (README, "What differs from NumPy").
VALUES_LATER = ("int everything = empty mean", "int element = empty mean", "element = a sum",
                "element = an element")


@pytest.mark.parametrize("key", INDICES, ids=lambda key: re.sub(r" at 0x\w+", "", repr(key)))
def test_indices_as_numpy(key: Any) -> None:
    def read(np: Any) -> Any:
        return np.arange(15.0).reshape(5, 3)[key]

    def written(np: Any) -> Any:
        return assigned(np.zeros((5, 3)), key, 7)

    assert outcome(read, tiledarray) == outcome(read, numpy)
    assert outcome(written, tiledarray) == outcome(written, numpy)


def test_a_view_may_broadcast_beyond_all_memory() -> None:
    wide = tiledarray.broadcast_to(tiledarray.arange(3.0), (1 << 50, 3))
    assert wide.shape == (1 << 50, 3) and wide[1 << 49].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(MemoryError, match=r"Unable to allocate 24.0 PiB for an array with shape"):
        wide + 1


def test_unique_values_come_in_order() -> None:
    found = tiledarray.unique_values(tiledarray.array([3, 1, 2, 1]))
    assert found.tolist() == [1, 2, 3]


@pytest.mark.parametrize("compile", ["wait", "background"])
def test_what_slogdet_gives_has_no_axes(compile: str) -> None:
    matrix, vector = tiledarray.eye(2), tiledarray.array([1.0, 2.0])
    with config.override(compile=compile, at_once=0):
        _, logarithm = tiledarray.linalg.slogdet(matrix * 1)
        assert float(1.0 + logarithm + tiledarray.dot(vector * 1, vector * 2)) == 11.0


def test_results_do_not_share_memory_with_arguments_of_numpys() -> None:
    given = numpy.arange(3.0)
    ours = tiledarray.require(given)
    kept: list[Any] = []

    def keeping(values: Any) -> Any:
        kept.append(values * 2)
        return kept[0]

    made = tiledarray.apply_along_axis(keeping, 0, tiledarray.array(given))
    given[0] = kept[0][0] = 9
    assert ours.tolist() == [0.0, 1.0, 2.0] and made.tolist() == [0.0, 2.0, 4.0]


def test_a_result_given_twice_is_two_arrays() -> None:
    def twice(values: Any) -> Any:
        made = values + 1
        return made, [made]

    first, (second,) = by_numpy.call("twice", twice, (tiledarray.arange(3.0),))
    first[0] = 9
    assert second.tolist() == [1.0, 2.0, 3.0]


def test_an_output_of_numpys_is_returned_itself() -> None:
    target = numpy.zeros(3)
    fallbacks.clear()
    given = tiledarray.arange(3.0)
    assert tiledarray.add.accumulate(given, out=target) is target
    assert fallbacks and target.tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("make", [
    lambda np, s: np.ascontiguousarray(s), lambda np, s: np.atleast_1d(s), lambda np, s: s[None],
    lambda np, s: s.reshape(1), lambda np, s: s.T.reshape(1, 1), lambda np, s: s[...],
    lambda np, s: np.expand_dims(s, 0), lambda np, s: s.ravel(),
])
def test_what_is_made_of_a_scalar_is_new(make: Any) -> None:
    for compile in ("never", "wait"):
        for at_once in (0, 1):
            with config.override(compile=compile, at_once=at_once):
                x = tiledarray.arange(6.0)
                total = x.sum() + 1
                made = make(tiledarray, total)
                made[...] = 77
                assert float(total) == 16.0
                assert numpy.asarray(made).ravel().tolist() == [77.0]


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["i4", "f4", "?", "c8", "u1"])
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "floor_divide", "fmax"])
def test_outputs_of_any_dtype(name, dtype, jitted):
    """``casting="unsafe"`` is recorded, as a cast of the result."""
    def program(np, masked):
        def write(a, m):
            getattr(np, name)(a, 1.5, out=a, casting="unsafe", **({"where": m} if masked else {}))
            if not jitted:
                getattr(np, name)(a, 2.5, out=numpy.asarray(a), casting="unsafe")
            return a

        return write

    for masked in (False, True):
        found = []
        for np in (numpy, tiledarray):
            write = program(np, masked)
            write = tiledarray.jit(write) if jitted and np is tiledarray else write
            try:
                found.append(write(np.arange(6).astype(dtype), np.arange(6) % 2 == 0).tolist())
            except TypeError as error:
                found.append(str(error))
        assert found[0] == found[1]


def test_an_element_of_what_has_no_axes_is_a_scalar():
    def program(np, wrap=lambda function: function):
        def change(z):
            z[()] -= 0.5
            z[...] += 3
            part = z[()]
            part += 0.25
            return z, part

        z = np.zeros((), int)
        z[...] = (np.arange(1000) + 1).sum() % 7
        return [str(x) for x in (*wrap(change)(z), z)]

    expected = program(numpy)
    for at_once in (0, 1000):
        with config.override(at_once=at_once):
            assert program(tiledarray) == expected == program(tiledarray, tiledarray.jit)
