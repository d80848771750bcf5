"""NumPy's functions in traced ones: recorded as library calls, where results' shapes are known.

A traced function has no values to call NumPy with.  Where the shapes and dtypes of the results
follow from those of the arguments and from arguments that are no arrays, NumPy is asked for them
by stand-ins, and called when the values are there: on the host, whatever the device.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiledarray.arrays.handle import Handle, as_node, wrap
from tiledarray.arrays.views import Step, is_frozen, on_array, overlaps
from tiledarray.ops.op import Library
from tiledarray.recording import record
from tiledarray.recording.stretch import looked

Function = Callable[..., Any]

# What changes its first argument and returns nothing.
_WRITING = frozenset(("put", "place", "putmask", "put_along_axis"))
# What whole numbers are places to, or which of several; to the rest they are numbers.
_PLACES = _WRITING | frozenset((
    "bincount", "choose", "unravel_index", "ravel_multi_index", "packbits", "unpackbits"))
_KNOWN = _PLACES | frozenset((
    "histogram", "histogram2d", "histogramdd", "histogram_bin_edges", "vander", "geomspace", "isin",
    "in1d", "i0", "average", "polyfit", "linalg.lstsq", "linalg.matrix_rank", "linalg.cond",
    "linalg.multi_dot", "linalg.tensorinv", "linalg.tensorsolve", "digitize", "interp",
))
_METHODS = (".at", ".reduceat", ".accumulate", ".reduce")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, type, np.generic, slice,
          type(Ellipsis))


class _Unknown(Exception):
    """An argument of which nobody knows beforehand what it does."""


@dataclass(frozen=True, slots=True)
class _Array:
    """Stands for an input among the arguments, or for a view of it."""

    number: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    """A function and its arguments, arrays left out: the attrs of a recorded call."""

    function: Function
    args: Any
    kwargs: Any

    def on(self, arrays: Sequence[Any]) -> Any:
        """Call the function on these arrays; of what is written the new value is the result."""
        result = self.function(*_filled(self.args, arrays),
                               **dict(_filled(self.kwargs, arrays)))
        return arrays[0] if result is None else result


def recorded(
    name: str, function: Function, args: Any, kwargs: dict[str, Any], device: Any
) -> Any:
    """Record a call of NumPy's function; ``None`` if its results cannot be known.

    Parameters
    ----------
    name : str
        The function's public name.
    function : callable
    args, kwargs : tuple, dict
        With arrays of ours among them.
    device : Device
        Where arrays of NumPy's among them are to be.

    Returns
    -------
    tuple or None
        The result, alone.

    Raises
    ------
    TypeError
        If the shape of the result is to be said by an option, and is not.
    """
    if not (name in _KNOWN or name.endswith(_METHODS)) or kwargs.get("out") is not None:
        return None
    writes = name in _WRITING or name.endswith(".at")
    if writes and not isinstance(args[0], Handle):
        return None
    into = _written(args[0], (*args[1:], *kwargs.values())) if writes else None
    # NumPy reads what it has written, where another argument is a view of the same array.
    inputs: list[Any] = [] if into is None or not into[1] else [into[0].node]
    root = into[0] if into is not None and into[1] else None
    try:
        call = _Call(function, _emptied(args, inputs, device, root),
                     _emptied(tuple(kwargs.items()), inputs, device, root))
        hash(call)
    except (_Unknown, TypeError):
        return None
    if name == "bincount":
        _check_length(args, kwargs, device)
    places = name in _PLACES or name.endswith((".at", ".reduceat"))
    sample = _sample(call, inputs, places)
    parts = sample if isinstance(sample, tuple) else (sample,)
    if not all(isinstance(part, np.ndarray | np.generic | int | float) for part in parts):
        return None
    kinds = tuple((np.shape(part), np.asarray(part).dtype) for part in parts)
    if any(dtype.hasobject for _, dtype in kinds):
        return None
    made = record.library(_op(name, len(kinds)), inputs, _Known(call, kinds), *kinds[0])
    if into is not None:
        into[0][...] = wrap(made)
        return (None,)
    if not isinstance(sample, tuple):
        return (wrap(made),)
    items = [made] if len(kinds) == 1 else [
        record.item(made, place, *kind) for place, kind in enumerate(kinds)]
    wrapped = map(wrap, items)
    return (type(sample)(*wrapped) if hasattr(sample, "_fields") else tuple(wrapped),)


@dataclass(frozen=True, slots=True)
class _Known:
    """A call, and the shape and dtype of each of its results."""

    call: _Call
    kinds: tuple[tuple[tuple[int, ...], Any], ...]


@functools.lru_cache(1024)
def _op(name: str, results: int) -> Library:
    """Return the op of a function; what has several results is told from what has one."""

    def reference(xp: Any, *inputs: Any, attrs: _Known, shape: Any, dtype: Any) -> Any:
        arrays = [np.array(x if xp is np else xp.asnumpy(x)) for x in inputs]
        found = attrs.call.on(arrays)
        parts = found if isinstance(found, tuple) else (found,)
        for part, (known, _) in zip(parts, attrs.kinds, strict=True):
            if np.shape(part) != known:
                raise ValueError(
                    f"{name}: the result has shape {np.shape(part)}, and {known} when it was "
                    "recorded; under tiledarray.jit it may not depend on values"
                )
        made = tuple(xp.asarray(np.asarray(part, kind))
                     for part, (_, kind) in zip(parts, attrs.kinds, strict=True))
        return made if results > 1 else made[0]

    return Library(name, reference, outputs=results)


def _written(first: Handle, others: Sequence[Any]) -> tuple[Any, bool]:
    """Return what gets a new value: the first, or what it and others are views of; and whether."""
    root = first.origin()
    if is_frozen(first.steps) or not (overlaps(first.steps) or any(
            isinstance(x, Handle) and x.origin() is root for x in others)):
        return first, False
    memory = np.empty(root.node.shape, root.node.dtype)  # never touched
    if not np.may_share_memory(on_array(memory, first.steps), memory):
        return first, False  # a reshape that has to copy
    return root, True


def _emptied(value: Any, inputs: list[Any], device: Any, root: Handle | None = None) -> Any:
    """Return nested arguments with a place in place of each array, which becomes an input.

    Views of ``root``, which is the first input if there is one, are places in that.
    """
    if root is not None and isinstance(value, Handle) and value.origin() is root:
        return _Array(0, value.steps)
    if isinstance(value, (Handle, np.ndarray)):
        inputs.append(value.node if isinstance(value, Handle) else as_node(value, device))
        return _Array(len(inputs) - 1)
    if type(value) in (tuple, list):
        return type(value), tuple(_emptied(part, inputs, device, root) for part in value)
    if isinstance(value, _PLAIN):
        return value
    raise _Unknown


def _check_length(args: Any, kwargs: dict[str, Any], device: Any) -> None:
    """Refuse a call of ``bincount`` of which nobody knows how long the result is."""
    counted: list[Any] = []
    _emptied(args[0], counted, device)
    if len(args) < 3 and not kwargs.get("minlength") and (
            any(node.buffer is None for node in counted)):
        raise looked("how long the result is would depend on that value. Say so by minlength=, "
                     "which nothing that is counted may be beyond")


def _filled(value: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(value, _Array):
        return on_array(arrays[value.number], value.steps)
    if type(value) is tuple:
        kind, parts = value
        return kind(_filled(part, arrays) for part in parts)
    return value


def _sample(call: _Call, inputs: Sequence[Any], places: bool) -> Any:
    """Call the function on what is known, and stand-ins: of several the later are greater."""
    random = np.random.default_rng(0)
    arrays = []
    for k, node in enumerate(inputs):
        if node.buffer is not None:
            arrays.append(node.buffer.device.to_host(node.buffer).copy())
            continue
        numbers = (random.random(node.shape or (1,)) + k) / len(inputs)
        arrays.append(_stand_in(np.sort(numbers).reshape(node.shape), node.dtype, places))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call.on(arrays)


def _stand_in(numbers: Any, dtype: np.dtype[Any], places: bool) -> Any:
    """Return numbers of a dtype made of such from 0 to 1; whole ones that are places are 0."""
    if dtype.kind in "fc":
        return numbers.astype(dtype)
    if dtype.kind == "b":
        return (numbers > 0.5) & (not places)
    return (numbers * (0 if places else 100)).astype(dtype)
