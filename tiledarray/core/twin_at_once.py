"""NumPy's functions at once, in Python: `at_once.c` again, with the common calls short.

For each function one is made of those below, by what it is: they know settled handles, numbers and
what else has no arrays in it, and leave all other calls to `twin_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from itertools import pairwise
from types import EllipsisType, FunctionType, MethodType, NoneType
from typing import Any

import numpy as np
from numpy import ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_calls import (
    ANY_SIZE,
    BOUND,
    DRAWS,
    HUGE,
    LIBRARY,
    METHOD,
    MOST_ARGUMENTS,
    OF_COUNT,
    OF_DATA,
    OF_RANGE,
    OF_SHAPE,
    OF_SQUARE,
    OURS,
    OUTER,
    PRODUCT,
    READS,
    RECORDED,
    STATIC,
    UFUNC,
    WRITES,
    Related,
    bound_of,
    call_numpy,
    finished,
    give,
)
from tiledarray.core.twin_operators import PLAIN, fit, operand_or_list, quick_operand
from tiledarray.core.twin_sequences import Arguments
from tiledarray.core.twin_state import (
    KNOWN_SCALARS,
    bounds,
    own,
    own_known,
    recorded,
    take_view,
)

Function = Callable[..., Any]

SCALARS = PLAIN | {np.dtype(code).type for code in "?bhilqBHILQefdgFDGm"}
# Types of what has no arrays in it; see `is_bare`.
BARE = SCALARS | {NoneType, str, type, EllipsisType} | {
    type(np.dtype(code)) for code in "?bhilqBHILQefdgFDGmMSUVO"}


def is_bare_sequence(x: Any) -> bool:
    """Whether it is a list or a tuple, not too long, of what has no arrays in it."""
    if (type(x) is not tuple and type(x) is not list) or len(x) > state.limit:
        return False
    for part in x:  # noqa: SIM110  a generator takes longer
        if type(part) not in BARE:
            return False
    return True


def are_bare(names: dict[str, Any]) -> bool:
    """Whether arguments by name have no arrays in them, and do not make a call ours."""
    for name, x in names.items():
        if name in OURS or (type(x) not in BARE and not is_bare_sequence(x)):
            return False
    return True


def of_parts(x: Any) -> Any:
    """Return a sequence with NumPy's arrays in place of ours, and how many elements they have.

    ``None`` if there is anything else in it.
    """
    if (type(x) is not tuple and type(x) is not list) or len(x) > state.limit:
        return None
    values: list[Any] = []
    total = 0
    for part in x:
        if type(part) is state.handle_class:
            base, value = part._base_, part._array_
            if value is None or (base is not None and base._array_ is not part._of_):
                return None
            total += value.size
            values.append(value)
        elif type(part) in SCALARS:
            total += 1
            values.append(part)
        else:
            return None
    return (tuple(values) if type(x) is tuple else values), total


def is_among(result: Any, values: Any) -> bool:
    """Whether a result is one of the arguments, or a part of one."""
    for value in values:
        if value is result or (type(value) in (list, tuple) and is_among(result, value)):
            return True
    return False


def by_other_ways(function: Any, args: Any, names: Any) -> Any:
    """Call NumPy's function, or ours: every case."""
    result = call_numpy(function, args, names)
    return function[1](*args, **names) if result is RECORDED else result


def finish(function: Any, result: Any, values: Any, args: Any, names: Any) -> Any:
    """Return what NumPy has returned: every case, for arguments with arrays of ours."""
    arguments = Arguments()
    arguments.values = [*values, *names.values()]
    arguments.arrays = True
    result = finished(function, result, arguments, args, names)
    return function[1](*args, **names) if result is RECORDED else result


# ---- what is made for a function ----------------------------------------------------------------


def of_any(function: Any) -> Function:
    """Make the call of a function that is not common."""
    def call(*args: Any, **names: Any) -> Any:
        return by_other_ways(function, args, names)

    return call


def of_one(function: Any) -> Function:
    """Make the call of a ufunc of one argument."""
    target = function[0]

    def call(*args: Any, **names: Any) -> Any:
        if names or len(args) != 1:
            return by_other_ways(function, args, names)
        x, = args
        if type(x) is state.handle_class:
            base, value = x._base_, x._array_
            if value is None or value.size > state.most or (
                base is not None and base._array_ is not x._of_
            ):
                return by_other_ways(function, args, names)
            result = target(value)
            if type(result) is tuple:
                return finish(function, result, (value,), args, names)
            if base is not None:
                return own_known(result)
            handle = state.handle_class()
            handle._array_ = result
            handle._node_ = handle._base_ = None
            return handle
        if type(x) in SCALARS and state.most >= 0:
            result = target(x)
            return give(result, Arguments()) if type(result) is tuple else result
        return by_other_ways(function, args, names)

    return call


def of_two(function: Any) -> Function:
    """Make the call of a ufunc of two arguments."""
    target = function[0]

    def call(*args: Any, **names: Any) -> Any:
        if names or len(args) != 2:
            return by_other_ways(function, args, names)
        x, y = args
        left, right, most = quick_operand(x), quick_operand(y), state.most
        if left is None or right is None or most < 0:
            return by_other_ways(function, args, names)
        if left is x:
            if right is y:
                result = target(left, right)
                return give(result, Arguments()) if type(result) is tuple else result
            fits = right.size <= most
        elif right is y:
            fits = left.size <= most
        else:
            size, other = left.size, right.size
            fits = 0 < size * other <= most and size + other <= most
        if not fits:
            return by_other_ways(function, args, names)
        result = target(left, right)
        if type(result) is tuple:
            return finish(function, result, (left, right), args, names)
        return own_known(result)

    return call


def of_arrays(function: Any) -> Function:
    """Make the call of a function of arrays."""
    target, _, kind, of, furthest, _ = function
    which, broadcasts, reads = bound_of(kind), not kind & LIBRARY, kind & READS
    of_data, of_handles = of == OF_DATA, kind & UFUNC

    def call(*args: Any, **names: Any) -> Any:
        values: list[Any] = []
        total = first = ours = 0
        product: float = 0
        for x in args:
            given = type(x)
            if given is state.handle_class:
                base, value = x._base_, x._array_
                if value is None or (base is not None and base._array_ is not x._of_):
                    return by_other_ways(function, args, names)
                size = value.size
                total += size
                ours += 1
                if ours == 1:
                    first = size
                elif not 0 < first * size <= product:
                    product = first * size or HUGE
                values.append(value)
            elif given in BARE or is_bare_sequence(x):
                values.append(x)
            else:
                found = of_parts(x)
                if found is None:
                    return by_other_ways(function, args, names)
                total += found[1]
                ours += 1
                values.append(found[0])
        born = state.births
        if total > bounds[which] or state.most < 0 or len(args) > furthest or not (
            born or (ours and not of_data)
        ) or (of_handles and not ours) or (
            broadcasts and product > state.most
        ) or (names and not are_bare(names)):
            return by_other_ways(function, args, names)
        result = target(*values, **names)
        return result if reads else given_of(function, result, values, args, names)

    return call


def given_of(function: Any, result: Any, values: Any, args: Any, names: Any) -> Any:
    """Return what NumPy has returned, for arguments with arrays of ours."""
    if type(result) is ndarray:
        if result.base is None and not is_among(result, values):
            return own(result)
    elif type(result) in KNOWN_SCALARS:
        return own_known(result)
    return finish(function, result, values, args, names)


def of_sizes(function: Any) -> Function:
    """Make the call of a function that creates an array of a size that its arguments say."""
    target, _, _, size, furthest, _ = function
    count_of = {OF_SHAPE: by_shape, OF_RANGE: by_range, OF_COUNT: by_count, OF_SQUARE: by_square}[
        size]

    def call(*args: Any, **names: Any) -> Any:
        if not args or state.most < 0 or not state.births or len(args) > furthest or (
            count_of(args) > state.limit
        ) or (names and not (are_bare(names) and SIZES.isdisjoint(names))):
            return by_other_ways(function, args, names)
        if len(args) == 1 and not names:
            return own(target(*args))
        for x in args:
            if type(x) not in BARE and not is_bare_sequence(x):
                return by_other_ways(function, args, names)
        result = target(*args, **names)
        return own(result) if type(result) is ndarray else finish(
            function, result, args, args, names)

    return call


SIZES = frozenset(("start", "stop", "step", "num", "N", "M"))  # names of what says a size


def by_shape(args: Any) -> float:
    """Return how many elements `numpy.zeros` makes; a huge number if that is not so clear."""
    first = args[0]
    if type(first) is int:
        return first
    if type(first) is not tuple:
        return HUGE
    count = 1
    for length in first:
        if type(length) is not int:
            return HUGE
        count *= length
    return count


def by_range(args: Any) -> float:
    """Return how many elements `numpy.arange` makes; a huge number if that is not so clear."""
    for x in args:
        if type(x) is not int and type(x) is not float:
            return HUGE
    start, stop = (0, args[0]) if len(args) == 1 else args[:2]
    step = args[2] if len(args) > 2 else 1
    count: float = (stop - start) / step if step else HUGE
    return count


def by_count(args: Any) -> float:
    """Return how many elements `numpy.linspace` makes; a huge number if that is not so clear."""
    if len(args) == 2:
        return 50
    return args[2] if len(args) > 2 and type(args[2]) is int else HUGE


def by_square(args: Any) -> float:
    """Return how many elements `numpy.eye` makes; a huge number if that is not so clear."""
    if type(args[0]) is not int or (len(args) > 1 and type(args[1]) is not int):
        return HUGE
    count: int = args[0] * (args[1] if len(args) > 1 else args[0])
    return count


def of_draws(function: Any) -> Function:
    """Make the call of a function that draws random numbers."""
    target, _, kind, _, furthest, _ = function
    begin = 1 if kind & BOUND else 0

    def call(*args: Any, **names: Any) -> Any:
        if state.watch is not None and begin and state.watch.counts():
            return state.watch.draw(call, args, names)
        if state.most < 0 or not state.births or len(args) > furthest or len(args) < begin or (
            names and not are_bare(names)
        ):
            return by_other_ways(function, args, names)
        values: list[Any] = []
        for x in args:
            if type(x) is state.handle_class:
                value = x._array_
                if type(value) not in KNOWN_SCALARS:
                    return by_other_ways(function, args, names)
                x = value
            elif type(x) not in BARE and not is_bare_sequence(x) and (not begin or values):
                return by_other_ways(function, args, names)
            values.append(x)
        result = target(*values, **names)
        if type(result) is ndarray and result.base is None:
            return own(result)
        if type(result) in BARE:
            return result
        return finish(function, result, values, args, names)

    return call


def of_method(function: Any) -> Function:
    """Make the call of a method of arrays."""
    name, fallback, kind, _, furthest, _ = function
    target, which, reads = getattr(ndarray, name), bound_of(kind), kind & READS
    given = own if name in ("astype", "view") else own_known

    def call(x: Any, /, *args: Any, **names: Any) -> Any:
        if type(x) is not state.handle_class or state.most < 0 or len(args) >= furthest:
            return by_other_ways(function, (x, *args), names)
        base, value = x._base_, x._array_
        if type(value) is not ndarray or value.size > bounds[which] or (
            base is not None and base._array_ is not x._of_
        ) or (names and not are_bare(names)):
            return by_other_ways(function, (x, *args), names)
        for other in args:
            if other is state.handle_class or (
                    type(other) not in BARE and not is_bare_sequence(other)):
                return by_other_ways(function, (x, *args), names)
        result = target(value, *args, **names)
        if reads:
            return result
        if type(result) is ndarray:
            of = result.base
            if of is None:
                if result is not value:
                    return given(result)
            elif not names and (of is value or of is value.base) and result.size and (
                result is not value and list not in map(type, args)
            ):
                return take_view(x, value, result, False, (fallback, args, None, None))
        elif type(result) in KNOWN_SCALARS:
            handle = state.handle_class()
            handle._array_ = result
            handle._node_ = handle._base_ = None
            return handle
        return finish(function, result, (value, *args), (x, *args), names)

    return call


def call_of(function: Any) -> Function:
    """Make the call of a function at once."""
    _, _, kind, size, furthest, _ = function
    if kind & METHOD:
        return of_any(function) if kind & WRITES else of_method(function)
    if kind & (WRITES | OUTER | PRODUCT):
        return of_any(function)
    if kind & DRAWS:
        return of_draws(function)
    if kind & UFUNC and not kind & (LIBRARY | BOUND) and furthest < 3:
        return of_one(function) if furthest == 1 else of_two(function)
    if kind & BOUND:
        return of_any(function)
    return of_arrays(function) if size in (ANY_SIZE, OF_DATA) else of_sizes(function)


def method_at_once(function: Any) -> Function:
    """Make what is a method: a function, which Python binds soonest."""
    call, fallback = call_of(function), function[1]
    update_wrapper(call, fallback)
    vars(call).update(fallback=fallback, parts=function)
    return call


class AtOnce(partial):
    """A function of NumPy's, called at once where all arguments are small and settled.

    What is called is the one argument of `partial`, which passes it on in C.  Methods are functions
    of Python's own, and so are those of NumPy's generators.
    """

    # target: NumPy's function, or the name of its arrays' method; fallback: ours; kind; size;
    # furthest: arguments by position, one more may be what NumPy writes to; attributes: a dict,
    # other attributes are those of `fallback`.
    __slots__ = ("parts",)

    def __new__(
        cls, target: Any, fallback: Any, kind: int = 0, size: int = ANY_SIZE,
        most: int = MOST_ARGUMENTS, attributes: dict[str, Any] | None = None,
        reduce: Any = None, behind: Any = None,
    ) -> Any:
        """Make one, or a method; what to ``reduce`` by and what is ``behind`` NumPy finds."""
        function = target, fallback, kind, size, most, attributes or {}
        if kind & (METHOD | BOUND):
            return method_at_once(function)
        made = partial.__new__(cls, call_of(function))
        set_parts(made, function)
        return made

    def __getattribute__(self, name: str) -> Any:
        parts = parts_of(self)
        if name in parts[5]:
            return parts[5][name]
        if name == "fallback":
            return parts[1]
        if name in OWN_ATTRIBUTES:
            return object.__getattribute__(self, name)
        return getattr(parts[1], name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or parts_of(self)[2] & STATIC:
            return self
        return MethodType(self, instance)

    def __reduce_ex__(self, protocol: Any) -> Any:
        fallback = parts_of(self)[1]
        if type(fallback) is FunctionType:
            return fallback.__qualname__
        return fallback.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(parts_of(self)[1])

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        fallback = parts_of(other)[1] if type(other) is AtOnce else other
        return parts_of(self)[1] == fallback

    def __hash__(self) -> int:
        return hash(parts_of(self)[1])


_parts: Any = vars(AtOnce)["parts"]
parts_of, set_parts = _parts.__get__, _parts.__set__
OWN_ATTRIBUTES = frozenset(("__class__", "__call__", "__get__", "__reduce_ex__"))


def handle_array_ufunc(handle: Any, ufunc: Any, method: str, /, *args: Any, **names: Any) -> Any:
    """Apply one of NumPy's ufuncs."""
    if not names and 0 < len(args) < 4 and method == "__call__" and state.most >= 0:
        values: list[Any] = []
        product = 1
        for x in args:
            value = quick_operand(x)
            if value is not x and value is not None:
                product *= value.size
                if not 0 < product <= state.most:
                    value = None
            if value is None:
                break
            values.append(value)
        else:
            result = ufunc(*values)
            return own(result) if type(result) is ndarray else give(result, Arguments())
        values = [operand_or_list(x) for x in args]
        arrays = [value for value in values if isinstance(value, ndarray)]
        if all(value is not None for value in values) and all(
            fit(first, second) for first, second in pairwise(arrays)
        ):
            try:
                return give(ufunc(*values), Arguments())
            except Related:
                pass
    return recorded["__array_ufunc__"](handle, ufunc, method, *args, **names)


def zeros_like(*args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.zeros_like` does, which finds out the shape and the dtype in Python."""
    if len(args) == 1 and not kwargs and type(args[0]) is np.ndarray and (
            args[0].flags.c_contiguous):
        return np.zeros(args[0].shape, args[0].dtype)
    return np.zeros_like(*args, **kwargs)


def empty(*args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.empty` does, with zeros, but of objects with ``None``."""
    zeros = np.zeros(*args, **kwargs)
    return np.empty(*args, **kwargs) if zeros.dtype.hasobject else zeros


def empty_like(*args: Any, **kwargs: Any) -> Any:
    """Do what `numpy.empty_like` does, with zeros, but of objects with ``None``."""
    zeros = zeros_like(*args, **kwargs)
    return np.empty_like(*args, **kwargs) if zeros.dtype.hasobject else zeros
