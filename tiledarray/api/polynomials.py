"""NumPy's functions of power, Chebyshev, Legendre, Hermite and Laguerre series, on arrays of ours.

NumPy writes them in its own operations, and asks on the way whether something is an array of its
own: with an array of ours they would take another branch.  Here they are run as a user's script is,
with ours for ``np``, so that they record, fuse and have gradients.
"""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from tiledarray.api.registry import Kind, stand_for, with_names
from tiledarray.arrays import by_numpy, immediate
from tiledarray.fork import import_part

SERIES = frozenset(
    f"numpy.polynomial.{name}"
    for name in ("polynomial", "chebyshev", "legendre", "hermite", "hermite_e", "laguerre"))
_RECORDING = re.compile(
    r".*(val|val[23]d|valfromroots|grid[23]d|vander|vander[23]d|der|int|weight)")
_CALLING = "chebinterpolate"  # hands arrays to a function of the user's, which expects ours


def series_function(original: Any, name: str) -> Any:
    """Return what stands for a function of one of the modules of `SERIES`.

    Parameters
    ----------
    original : function
    name : str
        Its name below ``numpy.``.
    """
    ours: Any = by_numpy.or_numpy(name, original, _run_with_ours(original.__module__)[
        original.__name__])
    stand_for(original, ours)
    ours.__module__, ours.__qualname__ = __name__.partition(".")[0], name
    return ours if original.__name__ == _CALLING else immediate.function(
        name, original, ours, kind_of_series(original.__name__))


def kind_of_series(name: str) -> Kind:
    """Return how a function of these modules works: most look at coefficients, to trim them."""
    return "native" if _RECORDING.fullmatch(name) else "host"


@functools.cache
def _run_with_ours(module: str) -> dict[str, Any]:
    """Return the names of a module of NumPy's, its functions with ours for NumPy."""
    ours = import_part(__name__.partition(".")[0])
    original = import_part(module)
    names = {**vars(original), "np": ours, "__name__": __name__}  # the user's line calls it
    if module != np.polynomial.polyutils.__name__:
        names["pu"] = SimpleNamespace(**_run_with_ours(np.polynomial.polyutils.__name__))
    names.update({
        name: with_names(function, names) for name, function in vars(original).items()
        if getattr(function, "__module__", "") == module and not isinstance(function, type)})
    return names
