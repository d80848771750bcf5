"""Calls of NumPy's functions in Python: `calls.c` written again.

Here is every case; what is common is done by `twin_at_once.py` without it.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from types import NoneType
from typing import Any

import numpy as np
from numpy import ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_index import HUGE, looked_at, make_constant
from tiledarray.core.twin_operators import NUMBERS, PLAIN, elements_of_product, fit
from tiledarray.core.twin_sequences import Arguments, basic_part, plain_sequence
from tiledarray.core.twin_state import (
    LARGER,
    OF_COSTLY,
    OF_LIBRARY,
    OF_LOOKS,
    OF_SHARED,
    SMALL,
    WRITE_FACTOR,
    Turn,
    at_most,
    own,
    root_of,
    settled,
    size_of,
    take_view,
    writable,
)

MOST_ARGUMENTS = 16
WRITEABLE = 0x400  # NumPy's flag: to ask for it by its name may warn

# ---- functions that NumPy computes at once if all their arguments are small and settled ---------

METHOD = 1  # a method of arrays: `target` is its name
WRITES = 2  # changes its first argument
READS = 4  # returns no array: at once whatever the size
LIBRARY = 8  # fuses with nothing: at once for larger arrays too
UFUNC = 16  # of scalars alone it returns NumPy's scalar
OUTER = 32  # the result's size is the product of those of the arguments
DRAWS = 64  # draws random numbers: what it makes is born like any array
LOOKS = 256  # computes what is recorded, for only NumPy does it
BOUND = 128  # the first argument is an object of NumPy's own
PRODUCT = 2048  # sums over an axis, so the result may be larger than the arguments
SHARED = 4096  # of the library's, but several threads do it where it is recorded
COSTLY = 8192  # of these, what takes long for an element
VIEWS = 1024  # gives a view of what lies row after row, or reads little of it, whatever the size
ALIKE = 16384  # lists are of alternatives: each array is as large as the result
STATIC = 32768  # as an attribute of a class it is no method
RECORDS = 512  # ours does nothing but record, the same for the same kinds: of use to the extension
ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA = range(6)  # what creation looks at


def is_bare(x: Any, depth: int) -> bool:
    """Whether a value has no arrays in it, nor anything that NumPy would ask for one."""
    kind = type(x)
    if kind in PLAIN or x is None or kind is str or isinstance(x, (*NUMBERS, np.dtype)):
        return True
    if isinstance(x, type):
        return not issubclass(x, state.base_class)
    if x is Ellipsis or (kind is slice and basic_part(x)):
        return True
    return depth > 0 and kind in (tuple, list) and all(is_bare(part, depth - 1) for part in x)


def take_array(arguments: Arguments, array: Any, bound: int, kind: int) -> bool:
    """Count an array among the arguments; ``False`` if that is too much."""
    size = size_of(array)
    arguments.arrays = True
    if size > bound and not (
            kind & VIEWS and type(array) is ndarray and array.flags.c_contiguous):
        return False
    arguments.product *= size
    if isinstance(array, ndarray):
        if arguments.first is None:
            arguments.first = array
        elif not kind & LIBRARY and not fit(arguments.first, array):
            return False
    return True


def take_argument(arguments: Arguments, x: Any, kind: int, bound: int) -> bool:
    """Add one argument; ``False`` if the call has to go the recorded way."""
    value = x
    if isinstance(x, state.base_class):
        value = settled(x)
        if value is None and kind & WRITES and not arguments.values:
            value = make_constant(x)
        if value is None and kind & LOOKS:
            value = looked_at(x)
        if value is None:
            return False
        arguments.handles = True
        if not take_array(arguments, value, bound, kind):
            return False
    elif type(x) is ndarray:
        if not take_array(arguments, x, bound, kind):
            return False
    elif not is_bare(x, 0):
        value = taken_sequence(arguments, x, kind, bound)
        if value is None:
            return False
    arguments.values.append(value)
    return True


def taken_sequence(arguments: Arguments, x: Any, kind: int, bound: int) -> Any:
    """Return a sequence with NumPy's arrays in it; ``None`` for the recorded way."""
    if type(x) is range:
        arguments.arrays = True
        return x if x[:state.limit] == x else None
    if type(x) not in (tuple, list) or len(x) > state.limit:
        return None
    if is_bare(x, 3):
        arguments.arrays = arguments.arrays or type(x) is list
        return x
    room = (arguments.total + bound * len(x) if kind & ALIKE
            else max(bound, at_most(WRITE_FACTOR)))
    return plain_sequence(arguments, x, room, 3)


def number_or(x: Any, otherwise: float) -> float:
    """Return a number as a float; else what is given."""
    if type(x) in (int, float) or isinstance(x, np.number):
        try:
            return float(x)
        except Exception:
            return otherwise
    return otherwise


def created_size(size: int, values: tuple[Any, ...], names: dict[str, Any]) -> float:
    """Return the elements of the array that a function creates; a huge number if not known."""
    if size in (ANY_SIZE, OF_DATA):
        return 0
    if not values:
        return HUGE
    first = values[0]
    if size == OF_SHAPE:
        if type(first) not in (tuple, list):
            return number_or(first, HUGE)
        found = 1.0
        for length in first:
            found *= number_or(length, HUGE)
        return found
    if size == OF_SQUARE:
        side = number_or(first, HUGE)
        return side * (number_or(values[1], side) if len(values) > 1 else side)
    if size == OF_COUNT:
        count = number_or(values[2], HUGE) if len(values) > 2 else 50
        return number_or(names["num"], HUGE) if "num" in names else count
    return range_size(values, names)


def range_size(values: tuple[Any, ...], names: dict[str, Any]) -> float:
    """Return the elements of the array that `numpy.arange` creates."""
    if names.keys() - {"dtype"}:
        return HUGE  # start=, stop=, step=
    numbers = [number_or(value, HUGE) for value in values]
    start, stop = numbers[:2] if len(numbers) > 1 else (0.0, numbers[0])
    step = numbers[2] if len(numbers) > 2 else 1.0
    return (stop - start) / step if step else HUGE


OURS = frozenset(("device", "like"))  # names of arguments by which a call is ours


def overlap(x: Any, y: Any) -> bool:
    """Whether the ends of the memory of two arrays overlap."""
    if not isinstance(x, ndarray) or not isinstance(y, ndarray):
        return False
    return np.may_share_memory(x, y)


def shares(value: Any, result: Any) -> bool:
    """Whether an argument, or one in it, is the result or shares memory with it."""
    if type(value) in (list, tuple):
        return any(shares(part, result) for part in value)
    return value is result or (result.base is not None and overlap(value, result))


def is_related(array: Any, arguments: Arguments) -> bool:
    """Whether a result shares its memory with an argument."""
    if not array.size:
        return False  # there are no elements to share
    if array.base is not None and not array.flags.num & WRITEABLE:
        return True
    return any(shares(value, array) for value in arguments.values)


class Related(Exception):
    """A result has to be had the recorded way."""


def give(result: Any, arguments: Arguments) -> Any:
    """Return a result with handles in it; raise `Related` if it shares an argument's memory."""
    if type(result) is ndarray:
        if is_related(result, arguments):
            raise Related
        return own(result)
    kind = type(result)
    if kind is list or isinstance(result, tuple):
        made: dict[int, Any] = {}  # the same array again is one of ours
        for part in result:
            if id(part) not in made:
                made[id(part)] = give(part, arguments)
        parts = [made[id(part)] for part in result]
        return kind(parts) if kind in (tuple, list) else kind(*parts)  # with names
    if is_bare(result, 0):
        return own(result)
    raise Related  # it may hold an argument


def lasting(x: Any) -> Any:
    """Return an argument that nobody can change any more; raise `Related` if there is none."""
    if not is_bare(x, 1):
        raise Related
    return tuple(x) if type(x) is list else x


def how_of(fallback: Any, rest: Any, names: dict[str, Any]) -> tuple[Any, ...]:
    """Say how a view was had of the first argument, but for which of several results it is.

    Raises
    ------
    Related
        That cannot be said.
    """
    options = {name: lasting(x) for name, x in names.items()} if names else None
    return fallback, tuple([lasting(x) for x in rest]), options, None


def is_view(x: Any, of: Any) -> bool:
    """Whether it is a view of an array."""
    return type(x) is ndarray and x.base is not None and overlap(x, of)


def given_view(function: Any, result: Any, arguments: Arguments, args: Any, names: Any) -> Any:
    """Return what is a view of the first argument, or views; ``None`` if it is none."""
    fallback, kind = function[1], function[2]
    if not args or not isinstance(args[0], state.base_class) or kind & (WRITES | BOUND):
        return None
    of = arguments.values[0]
    if result is of:
        return args[0]
    several = type(result) in (tuple, list)
    parts = result if several else (result,)
    if kind & OUTER or not parts:  # of those ours are copies
        return None
    for part in parts:
        if part is of or not is_view(part, of):
            return None
    try:
        how = how_of(fallback, args[1:], names)
    except Related:
        return None
    if not several:
        return take_view(args[0], of, result, False, how)
    return type(result)(
        [take_view(args[0], of, part, False, (*how[:3], k)) for k, part in enumerate(result)])


def elements_of_sum(text: str, operands: list[Any]) -> int:
    """Return those of a sum in Einstein's notation; 0 where that leaves letters out."""
    terms, arrow, result = text.replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    for letters, array in zip_longest(terms.split(","), operands, fillvalue=""):
        if not letters:
            continue
        if not isinstance(array, ndarray) or not letters.isalpha() or len(letters) > array.ndim:
            return 0
        for letter, n in zip(letters, array.shape, strict=False):
            lengths[letter] = max(n, lengths.get(letter, 0))
    return math.prod(lengths.get(letter, 0) for letter in result) if arrow else 0


def elements_of_result(kind: int, arguments: Arguments) -> float:
    """Return those of the product that a function makes of its arguments; 0 if not known."""
    values = arguments.values
    if values and type(values[0]) is str:
        return elements_of_sum(values[0], values[1:])
    if len(values) < 2 or not all(isinstance(x, ndarray) for x in values[:2]):
        return 0
    if kind & UFUNC:
        return elements_of_product(values[0], values[1])
    summed = max(values[0].shape[-1], 1) if values[0].ndim else 1  # `dot` has the axes of both
    return arguments.product / summed**2


RECORDED = object()  # what `call_numpy` returns for the recorded way


def bound_of(kind: int) -> int:
    """Return which of `bounds` holds for a function of a kind."""
    if kind & READS:
        return LARGER
    if kind & LOOKS:
        return OF_LOOKS
    if kind & COSTLY:
        return OF_COSTLY
    if kind & SHARED:
        return OF_SHARED
    return OF_LIBRARY if kind & LIBRARY else SMALL


def has_output(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> bool:
    """Whether the last argument by position is one array of ours that a ufunc writes to."""
    target, _, kind, _, furthest, _ = function
    return (len(args) == furthest + 1 and kind & (UFUNC | DRAWS) == UFUNC
            and isinstance(target, np.ufunc) and target.nout == 1
            and isinstance(args[furthest], state.base_class) and names.get("out") is None)


def with_output(function: Any, names: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, with an array of ours for a ufunc's ``out=(array,)``."""
    target, _, kind, _, _, _ = function
    out = names.get("out")
    if (kind & (UFUNC | DRAWS) == UFUNC and type(out) is tuple and len(out) == 1
            and target.nout == 1 and isinstance(out[0], state.base_class)):
        return {**names, "out": out[0]}
    return names


def output_of(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> tuple[Any, int]:
    """Return the array that a call has NumPy write to, if there is one, and its place."""
    if len(args) > function[4]:
        return args[-1], len(args) - 1
    out = names.get("out") if names else None
    return out, -1 if out is None else len(args) + list(names).index("out")


def taken_arguments(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Return the arguments as NumPy takes them; ``None`` for the recorded way."""
    _, _, kind, size, furthest, _ = function
    count = len(args)
    if state.most < 0 or count + len(names) > MOST_ARGUMENTS or (
            count > furthest and not has_output(function, args, names)):
        return None
    ours = names and not (
        OURS.isdisjoint(names) and isinstance(names.get("out"), (state.base_class, NoneType)))
    if ours or (
        not state.births and (size != ANY_SIZE or kind & DRAWS)
    ):
        return None
    bound = state.bounds[bound_of(kind)]
    arguments = Arguments()
    if kind & BOUND and args:
        arguments.values.append(args[0])
    for x in (*args[len(arguments.values):], *names.values()):
        if not take_argument(arguments, x, kind, bound):
            return None
    if created_size(size, args, names) > state.limit:
        return None
    of_ours = arguments.handles or (kind & UFUNC and not arguments.arrays) or state.births
    if (size == ANY_SIZE and not of_ours) or (kind & OUTER and arguments.product > state.limit):
        return None
    if kind & PRODUCT and elements_of_result(kind, arguments) > at_most(state.library_factor):
        return None
    return arguments


def may_be_written(x: Any, array: Any) -> bool:
    """Whether NumPy may write into an argument."""
    if not isinstance(x, state.base_class) or type(array) is not ndarray:
        return False
    return writable(x, array) and root_of(x)._node_ is None


def call_numpy(function: Any, args: tuple[Any, ...], names: dict[str, Any]) -> Any:
    """Call NumPy; return `RECORDED` for the recorded way."""
    names = with_output(function, names) if names else names
    arguments = taken_arguments(function, args, names)
    if arguments is None:
        return RECORDED
    target, _, kind, _, _, _ = function
    values = arguments.values
    options = dict(zip(names, values[len(args):], strict=True)) if names else names
    values = values[:len(args)] if names else values
    if kind & METHOD:
        target, values = getattr(values[0], target), values[1:]
    out, place = output_of(function, args, names)
    if out is None and not kind & WRITES:
        return finished(function, target(*values, **options), arguments, args, names)
    with Turn():
        if kind & WRITES:
            at = 1 if kind & BOUND else 0
            if len(args) <= at or not may_be_written(args[at], arguments.values[at]):
                return RECORDED
        if out is not None and not may_be_written(out, arguments.values[place]):
            return RECORDED
        result = target(*values, **options)
    return finished(function, result, arguments, args, names)


def finished(
    function: Any, result: Any, arguments: Arguments, args: Any, names: dict[str, Any]
) -> Any:
    """Return what NumPy has returned as it is given; `RECORDED` for the recorded way."""
    kind = function[2]
    out, place = output_of(function, args, names)
    if out is not None and result is arguments.values[place]:
        return out
    scalar = not isinstance(result, (ndarray, tuple))
    if kind & READS or (
        scalar and (kind & DRAWS or (kind & UFUNC and not arguments.arrays))
    ):
        return result
    found = given_view(function, result, arguments, args, names)
    if found is not None:
        return found
    if out is not None or kind & WRITES:  # it has been written: not again, by the recorded way
        return own(result.copy()) if type(result) is ndarray else result
    try:
        return give(result, arguments)
    except Related:
        return RECORDED
