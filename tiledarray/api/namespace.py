"""The rest of NumPy's namespace: its own objects, and its functions called on host copies."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray.api.iterating import ndenumerate, nditer, nested_iters
from tiledarray.api.polynomials import SERIES, kind_of_series, series_function
from tiledarray.api.registry import KINDS, public_name, stand_for
from tiledarray.api.types import NDArrayOperatorsMixin
from tiledarray.arrays import by_numpy, immediate
from tiledarray.arrays.handle import Handle, shown
from tiledarray.arrays.protocols import FUNCTIONS
from tiledarray.fork import import_part

# Functions about dtypes, settings and files: they take no arrays of ours, and return none.
_PLAIN = frozenset((
    "base_repr", "binary_repr", "busday_count", "busday_offset", "can_cast", "broadcast_shapes",
    "datetime_as_string", "datetime_data", "format_float_positional", "format_float_scientific",
    "frompyfunc", "get_include", "get_printoptions", "getbufsize", "geterr", "geterrcall", "info",
    "is_busday", "isdtype", "issubdtype", "iterable", "min_scalar_type", "mintypecode",
    "printoptions", "promote_types", "result_type", "common_type",
    "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime",
    "test", "typename", "einsum_path", "seed", "bytes", "get_state", "set_state",
    "get_bit_generator", "set_bit_generator",
))
# Functions of `numpy.testing` that compare values; the others take functions and names.
_COMPARING = frozenset((
    "assert_allclose", "assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal",
    "assert_array_almost_equal_nulp", "assert_array_compare", "assert_array_equal",
    "assert_array_less", "assert_array_max_ulp", "assert_equal", "build_err_msg",
    "print_assert_equal",
))
# Submodules with functions that make or take arrays, or classes of ours; others are NumPy's own.
_WRAPPED_MODULES = frozenset((
    "numpy.polynomial", "numpy.emath", "numpy.lib.scimath", "numpy.strings", "numpy.char",
    "numpy.rec", "numpy.testing", "numpy.lib", "numpy.lib.mixins", "numpy.lib.stride_tricks",
    "numpy.lib.recfunctions", *SERIES,
))
# Classes of which there is one of ours, but for those at the top.
_CLASSES: dict[Any, type] = {
    np.lib.mixins.NDArrayOperatorsMixin: NDArrayOperatorsMixin, np.nditer: nditer,
    np.ndenumerate: ndenumerate}


def wrap_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that takes and returns arrays of ours."""

    def ours(*args: Any, **kwargs: Any) -> Any:
        return by_numpy.call(name, function, args, kwargs)

    stand_for(function, ours)
    found_by(ours, name)
    return immediate.function(name, function, ours, "fallback")


def found_by(function: Callable[..., Any], name: str) -> None:
    """Say by which name below ours pickle finds a function."""
    place = name.replace("lib.scimath", "emath")
    function.__module__, function.__qualname__ = __name__.partition(".")[0], place


def _looked_at(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that looks at arrays of ours, and changes none."""

    @functools.wraps(function)
    def ours(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # as NumPy's own, for pytest
        return function(*seen(args), **seen(kwargs))

    found_by(ours, name)
    return ours


def seen(values: Any) -> Any:
    """Return nested arguments with NumPy's arrays in place of ours, and its scalars."""
    if isinstance(values, Handle):
        return shown(values)[()]
    if type(values) in (tuple, list):
        return type(values)(seen(value) for value in values)
    if type(values) is dict:
        return {name: seen(value) for name, value in values.items()}
    return values


def convert(name: str, value: Any) -> Any:
    """Return what stands in our namespace for something of NumPy's.

    Constants, dtypes, classes and exceptions are NumPy's own objects; functions with a counterpart
    of ours become that; other functions are called on host copies.
    """
    if isinstance(value, ModuleType):
        return _module(value) if value.__name__ in _WRAPPED_MODULES else value
    if isinstance(value, (type, np.ufunc)) or not callable(value):
        return _CLASSES.get(value, value) if isinstance(value, type) else value
    try:
        ours = FUNCTIONS.get(value)
    except TypeError:
        return value
    if ours is not None:
        return ours
    if value is np.nested_iters:
        return nested_iters
    prefix, _, last = name.rpartition(".")
    if prefix == "testing":
        return _looked_at(name, value) if last in _COMPARING else value
    if last in _PLAIN:
        return value
    if f"numpy.{prefix}" in SERIES and last[0] != "_":
        return series_function(value, name)
    return wrap_function(name, value)


@functools.lru_cache(maxsize=64)
def _module(original: ModuleType) -> ModuleType:
    """Return a module whose functions take and return arrays of ours."""
    name = original.__name__.replace("numpy", "tiledarray", 1)
    module = ModuleType(name, original.__doc__)
    names = vars(module)
    names.update(__getattr__=namespace_getattr(original, name, names),
                 __dir__=lambda: dir(original))
    return module


def namespace_getattr(
    original: ModuleType, name: str, names: dict[str, Any] | None = None
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that stands for one of NumPy's.

    What it finds it enters in the module's ``names``, so that it runs once for each.

    Raises
    ------
    AttributeError
        By what is returned, where NumPy has no such name.
    """
    prefix = original.__name__.removeprefix("numpy").lstrip(".")

    def getattribute(attribute: str) -> Any:
        if attribute.startswith("__") and attribute.endswith("__") and not isinstance(
                vars(original).get(attribute), ModuleType):  # `numpy.__config__` is one
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        try:
            value = getattr(original, attribute)
        except AttributeError as error:
            raise AttributeError(
                str(error).replace("numpy", "tiledarray"), name=attribute, obj=sys.modules.get(name)
            ) from None
        found = convert(f"{prefix}.{attribute}".lstrip("."), value)
        if names is not None:
            names[attribute] = found
        return found

    return getattribute


def kind_of(name: str) -> str:
    """Return how a name of NumPy's namespace works here.

    ``"native"`` (recorded, fuses), ``"library"`` (recorded, a kernel of its own), ``"host"``
    (NumPy makes or counts the values), ``"fallback"`` (NumPy on host copies) or ``"constant"``
    (NumPy's own object: dtypes, exceptions, modules, functions that touch no arrays).
    """
    value: Any = np
    for part in name.split("."):
        value = getattr(value, part)
    if isinstance(value, np.ufunc):
        return "fallback" if value is np.isnat else KINDS.get(value.__name__, "native")
    if isinstance(value, type) or not callable(value):
        return "constant"
    found = KINDS.get(public_name(value)) or KINDS.get(name)
    if found is not None:
        return found
    prefix, _, last = name.rpartition(".")
    if prefix == "testing":
        return "host" if last in _COMPARING else "constant"
    if f"numpy.{prefix}" in SERIES:
        return kind_of_series(last)
    return "constant" if last in _PLAIN else "fallback"


class MethodOnFirstUse:
    """Stands for a method whose module is imported when it is first asked for.

    The module puts the method in its place.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        import_part(self._module)
        return getattr(owner if instance is None else instance, self._name)


class _Namespace(ModuleType):
    """NumPy's names and a few of our own, without the packages behind them (``np.graph``)."""

    _MODULES = frozenset(("config", "fft", "linalg", "random"))

    def __setattr__(self, name: str, value: Any) -> None:
        """Take what is set, but for the packages that the import system sets."""
        behind = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if not behind or name in self._MODULES:
            super().__setattr__(name, value)


def keep_packages_out(module: ModuleType) -> None:
    """Take out of a module the packages below it, those imported later too."""
    module.__class__ = _Namespace
    for name, value in [*vars(module).items()]:
        if isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}" and (
                name not in _Namespace._MODULES):
            delattr(module, name)
