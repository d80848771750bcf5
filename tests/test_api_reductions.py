"""Reductions, differences, order statistics and pointwise functions, against NumPy's."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiledarray
from tests.strategies import agree, agree_on, arrays

_random = numpy.random.default_rng(0)
VALUES = {
    "o": numpy.array([["a", 0, None], [[], 2, "b"]], object),
    "a": _random.normal(size=(4, 5)),
    "i": _random.integers(-9, 9, (3, 4)),
    "v": numpy.array([3.0, 1.0, 2.0, 5.0, 4.0]),
    "n": numpy.array([[1.0, numpy.nan, 3.0], [numpy.nan, numpy.nan, 6.0]]),
    "f": _random.normal(size=7).astype("f"),
    "c": _random.normal(size=4) + 1j * _random.normal(size=4),
    "m": numpy.array([True, False, True, True]),
    "u": numpy.array([200, 100, 250], "B"),
    "e": numpy.zeros((0, 3)),
    "h": numpy.array([1.5, 2.5, -0.5, 1000], "e"),
    "x": numpy.array([0.0, 1.0, 3.0, 4.5, 6.0]),
}
REDUCTIONS = ["sum", "prod", "min", "max", "mean", "std", "var", "ptp", "all", "any", "argmin",
              "argmax", "amin", "amax", "count_nonzero", "median", "nansum", "nanmax", "nanmin",
              "nanmean", "nanstd", "nanvar", "nanprod", "nanmedian", "cumsum", "cumprod",
              "nancumsum"]
EXPRESSIONS = [
    *(f"np.{name}({array}{axis})" for name in REDUCTIONS for array in "aivnfcmueh"
      for axis in ("", ", axis=0", ", -1")),
    *(f"np.{name}(a, axis=5)" for name in REDUCTIONS),
    *(f"np.{name}({given})" for name in ("any", "all") for given in (
        "o", "o, axis=0", "o, 1", "o[:1]", "o, None", "o, keepdims=True")), "o.any()", "o.all(0)",
    "np.sum(a, axis=(0, 1))", "np.sum(a, keepdims=True)", "np.sum(i, dtype='f')", "np.sum([1, 2])",
    "np.sum(a, [0])", "np.std(a, [0])", "np.max(a, True)", "np.sum(a, (True,))",
    "np.median(a, [0])", "np.sum(a, axis=2**65)", "np.average(a, [0])",
    "np.sum(a, dtype=v)", "np.asarray(a, v)",
    "np.full(3, 1.0, v)", "np.zeros_like(a, v)", "a.astype(v)", "np.array(a, dtype=i)",
    "np.squeeze(a[:1], [0])", "np.ptp(a, [1])", "a[99, []]", "a[[99], []]", "a[2**70, []]",
    "a[-2**63]", "a[2**63]",
    "np.sum(a, where=a > 0)", "np.sum(a, initial=3)", "np.max(a, initial=9)", "np.max([])",
    "np.sum(a, out=np.zeros(()))", "np.mean(a, axis=0, keepdims=True)", "np.sum(a, (0, 0))",
    "np.mean(a, where=a > 0)", "np.var(a, ddof=1)", "np.std(a, axis=1, correction=1)", "np.sum(3)",
    "np.max(a, where=a > 0, initial=0)", "np.all(a > 0, axis=0)", "np.sum(np.array(['a']))",
    "np.argmax(a, axis=1, keepdims=True)", "np.argmin([])", "np.count_nonzero(i, axis=0)",
    "np.count_nonzero(i, keepdims=True)",
    "np.cumulative_sum(v)", "np.cumulative_sum(v, include_initial=True)", "np.cumulative_sum(a)",
    "np.cumulative_prod(a, axis=1, include_initial=True)",
    "np.cumulative_sum(a, axis=0, dtype='f')",
    "np.average(a)", "np.average(a, axis=1)", "np.average(v, weights=[1, 2, 3, 4, 5])",
    "np.average(a, axis=1, weights=v)", "np.average(a, weights=v)", "np.average(i, returned=True)",
    "np.average(v, weights=v * 0)", "np.average(a, axis=0, weights=[1, 2, 3, 4], returned=True)",
    "np.average(a, 1, weights=[1, 2])", "np.average(a, axis=0, keepdims=True)",
    "np.average(v, weights=v > 1)", "np.average(f, weights=f > 0)",
    "np.diff(v)", "np.diff(a, axis=0)", "np.diff(a, n=2)", "np.diff(m)", "np.diff(v, prepend=0)",
    "np.diff(v, n=-1)", "np.diff(3)", "np.diff(v, append=[1, 2])", "np.diff(u)", "np.diff(v, 9)",
    "np.diff(a, axis=0, prepend=0, append=1)", "np.diff(v, n=0)", "np.diff(a, axis=3)",
    "np.ediff1d(a)", "np.ediff1d(v, to_begin=-99, to_end=[1, 2])", "np.ediff1d(i, to_end=1.5)",
    "np.gradient(v)", "np.gradient(a)", "np.gradient(a, 2.0)", "np.gradient(a, axis=1)",
    "np.gradient(v, x)", "np.gradient(v, edge_order=2)", "np.gradient(v, x, edge_order=2)",
    "np.gradient(a, 0.5, x, edge_order=2)", "np.gradient(i)", "np.gradient(f)", "np.gradient(h)",
    "np.gradient(v[:1])", "np.gradient(v, 1, 2)", "np.gradient(v, x[:3])", "np.gradient(c)",
    "np.gradient(a, 1.0, 2.0, axis=(1, 0))", "np.gradient(v, np.arange(5))", "np.gradient(v, 2)",
    "np.gradient(u)", "np.gradient(v, edge_order=3)",
    "np.trapezoid(v)", "np.trapezoid(v, x)", "np.trapezoid(a, dx=2)", "np.trapezoid(a, x)",
    "np.trapezoid(a, axis=0)", "np.trapezoid(i)", "np.trapezoid(a, a)", "np.trapezoid(v[:1])",
    "np.cross([1, 2, 3], [4, 5, 6])", "np.cross(a[:3, :3], a[1:, :3])", "np.cross([1, 2], [3, 4])",
    "np.cross(a[:3, :4], i, axis=0)", "np.cross(a[0, :3], a[:, :3])", "np.cross(v, v)",
    "np.unwrap(v * 3)", "np.unwrap(a * 5, axis=0)", "np.unwrap(i)", "np.unwrap(v, period=4)",
    "np.unwrap(i, period=5)",
    "np.interp(2.5, x, v)", "np.interp(a, x, v)", "np.interp([-1, 9], x, v, left=0, right=7)",
    "np.interp(v, x, v, period=5)", "np.interp(1, [], [])", "np.interp(1, x, v[:3])",
    "np.interp(1.0, x[:4], c)",
    "np.convolve(v, [1, 2])", "np.convolve(v, x, 'same')", "np.convolve(v, x, mode='valid')",
    "np.convolve([], v)", "np.convolve(v, a)", "np.correlate(v, [1, 2, 1])", "np.convolve(3, v)",
    "np.correlate(v, x, 'full')", "np.correlate(c, c, 'same')", "np.convolve(i[0], [1, 1])",
    "np.convolve(f, f)", "np.convolve(v, x, 'nothing')",
    "np.sort(v)", "np.sort(a, axis=0)", "np.sort(a, axis=None)", "np.sort(n)", "np.sort(c)",
    "np.sort(3)", "np.sort(v, kind='stable')", "np.sort(v, kind='nothing')", "np.sort(m)",
    "np.sort(v, stable=True)", "np.sort(a, axis=4)", "np.sort(['b', 'a'])", "np.sort_complex(v)",
    "np.argsort(v)", "np.argsort(a, axis=0)", "np.argsort(i, kind='stable')", "np.argsort(v, None)",
    "np.partition(v, 2)", "np.argpartition(v, 2)[2]", "np.partition(v, 9)",
    "np.partition(v, (1, 3))",
    "np.lexsort((v, x))", "np.lexsort([i[0], i[1]])", "np.lexsort([])",
    "np.searchsorted(x, v)", "np.searchsorted(x, 2.0)", "np.searchsorted(x, v, side='right')",
    "np.searchsorted(v, 3, sorter=[1, 2, 0, 4, 3])", "np.searchsorted(x, v, 'middle')",
    "np.searchsorted(a, 1)", "np.digitize(v, x)", "np.digitize(v, x[::-1])", "np.digitize(v, v)",
    "np.digitize(v, x, right=True)", "np.digitize(2.0, x)", "np.digitize(v, x[::-1], True)",
    "np.quantile(a, 0.3)", "np.quantile(a, [0.25, 0.5], axis=1)", "np.percentile(v, 40)",
    "np.percentile(a, (10, 90), axis=0, keepdims=True)", "np.quantile(v, 1.5)",
    "np.quantile(i, 0.5)",
    "np.quantile(v, 0.4, method='lower')", "np.quantile(v, 0.4, method='nothing')",
    "np.quantile(f, 0.3)", "np.percentile(f, np.array([10, 50]))", "np.nanquantile(n, 0.5, axis=1)",
    "np.nanpercentile(n, 30)", "np.quantile(h, 0.5)", "np.quantile(c, 0.5)", "np.percentile(u, 50)",
    "np.median(a, axis=(0, 1))", "np.median(v, keepdims=True)", "np.median([])", "np.median(i, 0)",
    "np.histogram(a, 4)", "np.histogram(v, bins=[0, 2, 6])", "np.histogram(v, range=(0, 3))",
    "np.bincount([1, 2, 2])", "np.bincount(u)[250]", "np.bincount([0, 1], weights=[0.5, 2])",
    "np.trapezoid(v, np.arange(25.0).reshape(5, 5) ** 2)", "np.trapezoid(v, a)",
    "np.trapezoid(a, v[None])", "np.trapezoid(a, a[None], axis=-2)", "np.trapezoid(a, axis=3)",
    "np.histogram2d(v, x, 3)", "np.cov(a)", "np.cov(a, rowvar=False)", "np.cov(v, x)",
    "np.corrcoef(a)", "np.corrcoef(v, x)", "np.cov(v)", "np.cov(a, bias=True)",
    "np.round(a, 2)", "np.round(a)", "np.around(v / 3, 3)", "np.round(i)", "np.round(i, -1)",
    "np.round(f, 1)", "np.round(c, 1)", "np.round(m)", "np.round(2.567, 2)",
    "np.round(a * 1e3, -2)",
    "np.round(h, 1)", "np.fix(a * 3)", "np.fix(i)", "np.clip(a, -1, 1)", "np.clip(a, None, 0.5)",
    "np.clip(a, 0, None)", "np.clip(i, -3, 3)", "np.clip(a, a * 0, 1)", "np.clip(a, 1, -1)",
    "np.clip(u, 0, 300)", "np.clip(u, -1, 150)", "np.clip(i, 0.5, 2.5)", "np.clip(a, min=0)",
    "np.clip(a, max=1)", "np.clip(v, [0] * 5, [2] * 5)", "np.clip(a, 0, 1, out=np.zeros((4, 5)))",
    "np.clip(a, None, None)", "np.clip(c, 0, 1)", "np.clip(a)", "np.clip(f, 0, 1.5)",
    "np.nan_to_num(n)", "np.nan_to_num(n, nan=-1)", "np.nan_to_num(i)", "np.nan_to_num(np.inf)",
    "np.nan_to_num([np.inf, -np.inf], posinf=1, neginf=2)", "np.nan_to_num(c * np.nan)",
    "np.real(c)", "np.imag(c)", "np.real(v)", "np.imag(v)", "np.angle(c)", "np.angle(v - 3)",
    "np.angle(c, deg=True)", "np.angle(m)", "np.isreal(c)", "np.iscomplex(c)", "np.iscomplex(v)",
    "np.isrealobj(c)", "np.iscomplexobj(c)", "np.real_if_close(c)", "np.real_if_close(v + 0j)",
    "np.isposinf([1, np.inf, -np.inf])", "np.isneginf(n)", "np.isposinf(c)", "np.isposinf(i)",
    "np.sinc(v)", "np.sinc([0.0, 0.5])", "np.sinc(i)", "np.i0(v)", "np.sinc(f)",
    "np.isclose(v, x)", "np.isclose(n, n)", "np.isclose(n, n, equal_nan=True)",
    "np.isclose(i, i + 1)",
    "np.isclose(v, 3)", "np.isclose(3, v)", "np.isclose(u, 100)",
    "np.isclose(v, x, atol=1, rtol=0)",
    "np.isclose([np.inf], [np.inf])", "np.isclose(2, 2.0)", "np.isclose(c, c)", "np.isclose(v, a)",
    "np.allclose(v, v + 1e-9)", "np.allclose(n, n)", "np.array_equal(v, v)", "np.array_equal(v, a)",
    "np.array_equal(n, n, equal_nan=True)", "np.array_equiv(a, a[0])", "np.array_equal(v, ['a'])",
    "np.allclose(a, v)", "np.trace(a)", "np.trace(a, 1)", "np.trace(v)",
    "np.nanargmax(n[:, 1:])", "np.nanargmin(n, axis=1)", "np.nanargmin(n * np.nan)",
    "np.nanargmax(i, axis=0)", "np.polyval([1, 2, 3], v)", "np.polyval(v, a)", "np.polyval([], v)",
    "np.polyval([1, 2], 3.0)", "np.polyval([1j, 2], f)", "np.polyval([2, 1], i)",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_numpy(expression: str) -> None:
    agree_on(expression, ulps=2000 if "h" in expression else 16, **VALUES)


@settings(max_examples=60, deadline=None)
@given(arrays(finite=True), st.data())
def test_reduced(array: numpy.ndarray, data: Any) -> None:
    axis = data.draw(st.sampled_from([None, *range(-array.ndim, array.ndim)]))
    keepdims = data.draw(st.booleans())
    for name in ("min", "max", "any", "all", "count_nonzero"):
        agree(name, array, axis, keepdims=keepdims)
    if array.dtype.kind in "biu":
        agree("sum", array, axis, keepdims=keepdims)
        agree("prod", array, axis, keepdims=keepdims)
    if array.dtype.kind != "b":
        agree("ptp", array, axis, keepdims=keepdims)
    for name in ("argmin", "argmax", "cumsum", "sort"):
        agree(name, array, axis, ulps=1000)


@settings(max_examples=60, deadline=None)
@given(arrays("?bBilefdFD"), arrays("?bBilefdFD", shape=()))
def test_pointwise(array: numpy.ndarray, limit: numpy.ndarray) -> None:
    agree("clip", array, None, limit)
    agree("isclose", array, limit)
    agree("nan_to_num", array)
    agree("real", array)
    agree("imag", array)
    agree("array_equal", array, limit)


@settings(max_examples=40, deadline=None)
@given(arrays("ilfd", min_dims=1, max_dims=2, finite=True), st.integers(0, 3))
def test_differences(array: numpy.ndarray, times: int) -> None:
    agree("diff", array, times, ulps=1)
    agree("ediff1d", array)
    agree("gradient", array, ulps=4)
    agree("trapezoid", array, ulps=8)


def test_nan_to_num_in_place() -> None:
    array = tiledarray.array([1.0, numpy.nan])
    tiledarray.nan_to_num(array, copy=False)
    assert array.tolist() == [1, 0]


@pytest.mark.parametrize("options", [
    {"order": "a"}, {"order": "a", "axis": 7}, {"kind": "nothing"},
    {"kind": "stable", "stable": True},
])
def test_sorting_in_place_refuses_what_numpys_does(options) -> None:
    with pytest.raises(ValueError) as expected:
        numpy.arange(3.0).sort(**options)
    array = tiledarray.arange(3.0) + 1
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        array.sort(**options)


def test_recorded_not_computed() -> None:
    array = tiledarray.arange(12.0).reshape(3, 4)
    for made in (tiledarray.diff(array), tiledarray.gradient(array)[0], tiledarray.sort(array),
                 tiledarray.nansum(array), tiledarray.clip(array, 1, 2), tiledarray.std(array),
                 tiledarray.isclose(array, 1), tiledarray.trapezoid(array),
                 tiledarray.quantile(array, 0.2), tiledarray.interp(1.0, array[0], array[0])):
        assert made.node.pending
