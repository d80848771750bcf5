"""How library calls fall into parts: times are of NumPy 2.4 on a Xeon of the fourth generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tiledarray.ops.op import Library, Parts


def lines(nanoseconds: float, *, logarithmic: bool = False, **others: Any) -> Parts:
    """Return the parts of a call along an axis."""
    return Parts("lines", nanoseconds, logarithmic, **others)


def _first(attrs: Any) -> Any:
    return attrs[0]


def _sorted_into(out: Any, array: Any, *, attrs: Any) -> None:
    out[...] = array
    out.sort(axis=attrs[0], kind=attrs[1])


def _partitioned_into(out: Any, array: Any, *, attrs: Any) -> None:
    out[...] = array
    out.partition(**dict(attrs))


def _kept_axis(attrs: Any, axis: int) -> int:
    """Return the axis of an order statistic that follows an axis of its operand."""
    options = dict(attrs)
    reduced, points = options["axis"], options.get("q", 0.0)
    before = reduced if isinstance(reduced, tuple) else (reduced,)
    gone = 0 if options["keepdims"] else sum(place < axis for place in before)
    return axis - gone + isinstance(points, tuple)


def _rises(table: Any) -> bool:
    """Whether a table is in order.  In others, what NumPy finds depends on what it found before."""
    return bool((table[1:] >= table[:-1]).all())


def _searched(attrs: Any, table: Any, values: Any) -> bool:
    return _rises(table)


def _binned(attrs: Any, values: Any, edges: Any) -> bool:
    return _rises(edges) or _rises(edges[::-1])


def _interpolated(attrs: Any, at: Any, places: Any, values: Any) -> bool:
    return dict(attrs)["period"] is None and _rises(places)


def _multiplied_into(out: Any, left: Any, right: Any, *, attrs: Any) -> None:
    np.matmul(left, right, out=out)


SORTS = lines(1.0, logarithmic=True, axis=_first, into=_sorted_into)
ARGSORTS = lines(1.5, logarithmic=True, axis=_first)
PARTITIONS = lines(5.0, into=_partitioned_into)
QUANTILES = lines(5.0, result=_kept_axis)
SEARCHES = Parts("elements", 2.0, logarithmic=True, of=1, holds=_searched)
DIGITS = Parts("elements", 2.0, logarithmic=True, holds=_binned)
INTERPOLATIONS = Parts("elements", logarithmic=True, holds=_interpolated)
PRODUCTS = Parts("matrices", into=_multiplied_into)


# ---- Fourier transforms ----------------------------------------------------------------------


def _is_precise(attrs: Any, array: Any) -> bool:
    """Whether NumPy computes in the precision of its result, as it does not of float16."""
    return bool(array.dtype.char != "e")


def transforms(name: str, named: Callable[[str], Library]) -> Parts:
    """Return the parts of a transform; ``named`` finds those along one axis."""
    if name.endswith("n"):
        return lines(0.5, logarithmic=True, holds=_is_precise, turns=_turns(name, named))
    into = None if name == "hfft" else _transformed_into(getattr(np.fft, name))  # has no out=
    return lines(0.5, logarithmic=True, holds=_is_precise, into=into)


def _transformed_into(function: Callable[..., Any]) -> Callable[..., None]:
    def into(out: Any, array: Any, *, attrs: Any) -> None:
        function(array, out=out, **dict(attrs))

    return into


def _turns(name: str, named: Callable[[str], Library]) -> Callable[..., Any]:
    """Return what tells the calls along one axis that NumPy makes of one along several."""
    def turns(attrs: Any, shape: tuple[int, ...]) -> Iterator[tuple[Library, Any, Any]]:
        options, lengths = dict(attrs), [*shape]
        *others, last = zip(options["s"], options["axes"], strict=True)
        one = name[:-1]
        calls = [*((one, *pair) for pair in [last, *reversed(others)])]
        if name == "rfftn":
            calls = [("rfft", *last), *(("fft", *pair) for pair in reversed(others))]
        elif name == "irfftn":
            calls = [*(("ifft", *pair) for pair in others), ("irfft", *last)]
        for one, size, axis in calls:
            lengths[axis] = size // 2 + 1 if one == "rfft" else size
            given = {"n": size, "axis": axis % len(shape), "norm": options["norm"]}
            yield named(one), tuple(sorted(given.items())), tuple(lengths)

    return turns
