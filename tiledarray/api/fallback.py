"""The rest of NumPy's namespace: its own objects, and its functions called on host copies."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tiledarray import fallback, record
from tiledarray.api.arguments import default_device
from tiledarray.api.registry import KINDS, public_name
from tiledarray.handle import Handle, host_array, wrap
from tiledarray.protocols import FUNCTIONS
from tiledarray.signatures import is_numeric

# Functions about dtypes, settings and files: they take no arrays of ours, and return none.
_PLAIN = frozenset((
    "base_repr", "binary_repr", "busday_count", "busday_offset", "can_cast", "broadcast_shapes",
    "datetime_as_string", "datetime_data", "format_float_positional", "format_float_scientific",
    "frompyfunc", "get_include", "get_printoptions", "getbufsize", "geterr", "geterrcall", "info",
    "is_busday", "isdtype", "isscalar", "issubdtype", "iterable", "min_scalar_type", "mintypecode",
    "nested_iters", "printoptions", "promote_types", "result_type", "common_type",
    "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime",
    "test", "typename", "einsum_path",
))
# Submodules whose functions make arrays; the others are NumPy's own modules.
_WRAPPED_MODULES = frozenset((
    "numpy.polynomial", "numpy.emath", "numpy.lib.scimath", "numpy.strings", "numpy.char",
))


def wrapped(values: Any, device: Any) -> Any:
    """Return NumPy arrays among results as arrays of ours; fresh ones are not copied."""
    if type(values) is np.ndarray:
        if not is_numeric(values.dtype):
            return values
        fresh = values.base is None and values.flags.c_contiguous and values.flags.writeable
        return wrap(record.leaf(device.wrap(values, copy=not fresh)))
    if type(values) in (tuple, list):
        return type(values)(wrapped(part, device) for part in values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(wrapped(part, device) for part in values))
    return values


class _Copies:
    """Host copies of the arrays of ours among arguments, and what they were."""

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[Handle, np.ndarray[Any, Any]]] = {}

    def of(self, value: Any) -> Any:
        """Return an argument with host copies; one array is one copy wherever it stands."""
        if isinstance(value, Handle):
            found = self.pairs.get(id(value))
            if found is None:
                found = self.pairs[id(value)] = (value, host_array(value).copy())
            return found[1]
        if type(value) in (tuple, list):
            return type(value)(self.of(part) for part in value)
        if type(value) is dict:
            return {name: self.of(part) for name, part in value.items()}
        return value

    def write_back(self) -> None:
        """Store in the arrays what was changed in their copies."""
        for handle, copy in self.pairs.values():
            before = host_array(handle)
            same = before.shape == copy.shape and before.tobytes() == copy.tobytes()
            if not same:
                handle.store(copy)

    def original(self, value: Any) -> Any:
        """Return the array of ours whose copy this is, or the value."""
        for handle, copy in self.pairs.values():
            if value is copy:
                return handle
        return value


def written_back(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call NumPy's function on host copies; what it changes in them is stored in the arrays."""
    record.note_fallback(name)
    found = fallback.first_handle((args, kwargs))
    device = default_device() if found is None else found.node.device
    copies = _Copies()
    result = function(*copies.of(args), **copies.of(kwargs))
    copies.write_back()
    ours = copies.original(result)
    return ours if ours is not result else wrapped(result, device)


def wrap_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that takes and returns arrays of ours."""

    @functools.wraps(function)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return written_back(name, function, args, kwargs)

    return ours


def convert(name: str, value: Any) -> Any:
    """Return what stands in our namespace for something of NumPy's.

    Constants, dtypes, classes and exceptions are NumPy's own objects; functions with a counterpart
    of ours become that; other functions are called on host copies.
    """
    if isinstance(value, ModuleType):
        return _module(value) if value.__name__ in _WRAPPED_MODULES else value
    if isinstance(value, type) or not callable(value):
        return value
    try:
        ours = FUNCTIONS.get(value)
    except TypeError:
        return value
    if ours is not None:
        return ours
    if name.rpartition(".")[2] in _PLAIN or isinstance(value, np.ufunc):
        return value
    return wrap_function(name, value)


@functools.lru_cache(maxsize=64)
def _module(original: ModuleType) -> ModuleType:
    """Return a module whose functions take and return arrays of ours."""
    name = original.__name__.replace("numpy", "tiledarray", 1)
    module = ModuleType(name, original.__doc__)
    module.__getattr__ = namespace_getattr(original, name)  # type: ignore[method-assign]
    module.__dir__ = lambda: dir(original)  # type: ignore[method-assign]
    return module


def namespace_getattr(original: ModuleType, name: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that stands for one of NumPy's."""
    prefix = original.__name__.removeprefix("numpy").lstrip(".")

    def getattribute(attribute: str) -> Any:
        if attribute.startswith("__") and attribute.endswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        try:
            value = getattr(original, attribute)
        except AttributeError as error:
            raise AttributeError(
                str(error).replace("numpy", "tiledarray"), name=attribute, obj=sys.modules.get(name)
            ) from None
        return convert(f"{prefix}.{attribute}".lstrip("."), value)

    return getattribute


def kind_of(name: str) -> str:
    """Return how a name of NumPy's namespace works here.

    ``"native"`` (recorded, fuses), ``"library"`` (recorded, a kernel of its own), ``"host"``
    (NumPy makes or counts the values), ``"fallback"`` (NumPy on host copies) or ``"constant"``
    (NumPy's own object: dtypes, exceptions, modules, functions that touch no arrays).
    """
    value = functools.reduce(getattr, name.split("."), np)
    if isinstance(value, np.ufunc):
        return "fallback" if value is np.isnat else KINDS.get(value.__name__, "native")
    if isinstance(value, type) or not callable(value):
        return "constant"
    found = KINDS.get(public_name(value)) or KINDS.get(name)
    if found is not None:
        return found
    return "constant" if name.rpartition(".")[2] in _PLAIN else "fallback"
