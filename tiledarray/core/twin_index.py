"""Indexing in Python: `index.c`, `assign.c` and `elements.c` written again.

Reading and writing by ints and slices of a settled array are written out; what is seldom is in
functions below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
from numpy import float64, ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_operators import PLAIN, operand, quick_operand, settled_operand
from tiledarray.core.twin_sequences import Arguments, basic_part, is_bound, plain_sequence
from tiledarray.core.twin_state import (
    KNOWN_SCALARS,
    LONGEST_WAIT,
    WRITE_FACTOR,
    Turn,
    at_most,
    begin_turn,
    callbacks,
    end_turn,
    is_present,
    make_own_constant,
    own,
    own_known,
    recorded,
    root_of,
    settled,
    size_of,
    take_view,
    threads,
    writable,
)

HUGE = 1e300

# ---- indexing -----------------------------------------------------------------------------------

INTEGERS = frozenset(np.dtype(code).type for code in "bhilqBHILQ")
BOUNDS = INTEGERS | {int, NoneType}  # ends and steps of basic slices
PLACES = BOUNDS | {EllipsisType}  # what else is in basic indices


def is_basic(key: Any, kind: Any) -> bool:
    """Whether an index of this type is basic; see `basic_index`."""
    if kind is slice:
        start, stop, step = key.start, key.stop, key.step
        return (start is None or type(start) in BOUNDS) and (
            stop is None or type(stop) in BOUNDS
        ) and (step is None or type(step) in BOUNDS)
    if kind is tuple:
        for item in key:
            part = type(item)
            if part is not int and part not in PLACES and not (
                part is slice and type(item.start) in BOUNDS and type(item.stop) in BOUNDS
                and type(item.step) in BOUNDS
            ):
                return False
        return True
    return kind in PLACES


def basic_index(key: Any) -> int:
    """Return 1 for an index of ints alone, 2 for a basic one, 0 for another."""
    if type(key) is not tuple:
        return basic_part(key)
    whole = 1
    for item in key:
        if type(item) is not int:
            part = basic_part(item)
            if not part:
                return 0
            if part > whole:
                whole = part
    return whole


UNKNOWN: Any = object()  # what cannot be given to NumPy: the recorded way


def plain_bound(x: Any) -> Any:
    """Return a bound of a slice, or an index in a list, as NumPy takes it, or `UNKNOWN`."""
    if type(x) is state.handle_class and type(x._array_) in INTEGERS:
        return x._array_
    if is_bound(x) or type(x) is bool:
        return x
    value = settled(x) if isinstance(x, state.base_class) else None
    return value if isinstance(value, np.integer) else UNKNOWN


def plain_slice(key: slice) -> Any:
    """Return a slice as NumPy takes it, or `UNKNOWN`."""
    start, stop, step = key.start, key.stop, key.step
    if type(start) not in BOUNDS:
        start = plain_bound(start)
    if type(stop) not in BOUNDS:
        stop = plain_bound(stop)
    if type(step) not in BOUNDS:
        step = plain_bound(step)
    if start is UNKNOWN or stop is UNKNOWN or step is UNKNOWN:
        return UNKNOWN
    return slice(start, stop, step)


def plain_list(key: list[Any]) -> Any:
    """Return a list of indices as NumPy takes it, or `UNKNOWN`."""
    found: list[Any] = []
    for item in key:
        plain = item if type(item) is int else plain_bound(item)
        if plain is UNKNOWN or item is None:
            return UNKNOWN
        found.append(plain)
    return found


def most_read() -> int:
    """Return how many elements index arrays may name for NumPy to read them at once."""
    return at_most(min(WRITE_FACTOR, state.library_factor))


def most_written(array: Any) -> int:
    """Return the same for writing.

    The recorded way copies an array that is there: half of it is no fewer.
    """
    return max(most_read(), array.size // 2) if state.limit > 1 else most_read()


def is_taken(array: Any, most: int) -> bool:
    """Whether an index's array is taken as it is: a mask always, its values decide on the shape."""
    return bool(array.size <= state.limit or array.size <= most or (
        state.limit > 1 and is_mask(array)))


def plain_item(item: Any, most: int) -> Any:
    """Return an item of an index as NumPy takes it, or `UNKNOWN`."""
    kind = type(item)
    if kind is state.handle_class or isinstance(item, state.base_class):
        base, value = item._base_, item._array_
        if type(value) in INTEGERS:
            return value
        if value is None or state.most < 0 or (base is not None and base._array_ is not item._of_):
            value = settled(item)
        if type(value) is ndarray:  # without axes it is no scalar: by it an index is not basic
            return value if value.ndim and is_taken(value, most) else UNKNOWN
        return UNKNOWN if value is None or not state.limit else value
    if kind is slice:
        return plain_slice(item)
    if basic_part(item) or (kind is ndarray and is_taken(item, most)):
        return item
    if kind is list or ((kind is tuple or kind is range) and len(item) <= state.limit):
        found = list(item)  # in a tuple they are arrays, too
        return plain_list(found) if len(found) <= state.limit else UNKNOWN
    return UNKNOWN


def plain_index(key: Any, most: int) -> Any:
    """Return an index as NumPy takes it, of arrays of that many elements at most, or `UNKNOWN`."""
    if type(key) is not tuple:
        return plain_item(key, most)
    plain: list[Any] = []
    for item in key:
        found = item if type(item) is int else plain_item(item, most)
        if found is UNKNOWN:
            return UNKNOWN
        plain.append(found)
    return tuple(plain)


def named_elements(array: Any, key: Any) -> float:
    """How many elements a plain index with arrays names, at most; a huge number if not known."""
    items = key if type(key) is tuple else (key,)
    axis, ndim = 0, array.ndim
    covered = ndim - sum(item is not None and item is not Ellipsis for item in items)
    kept = named = 1.0
    flat = True  # all have one axis
    for item in items:
        if item is None:
            continue
        if item is Ellipsis:
            for _ in range(covered):
                kept *= array.shape[axis] if axis < ndim else 1
                axis += 1
            covered = 0
            continue
        if axis >= ndim or (type(item) is ndarray and item.dtype.char == "?"):
            return HUGE
        if type(item) is slice:
            kept *= array.shape[axis]
        elif type(item) is ndarray or type(item) is list:
            if type(item) is list and item and type(item[0]) is list:
                return HUGE
            rank, size = (item.ndim, item.size) if type(item) is ndarray else (1, len(item))
            flat = flat and rank == 1
            named = named if flat and size == named else named * size  # broadcast together
        axis += 1
    for length in array.shape[axis:]:
        kept *= length
    return kept * named


def has_mask(key: Any) -> bool:
    """Whether a plain index has a mask."""
    return any(map(is_mask, key)) if type(key) is tuple else is_mask(key)


def is_index_at_once(array: Any, key: Any, has_axes: bool, most: int) -> bool:
    """Whether reading by a plain index that is not basic is done at once, or writing what has axes.

    By a mask NumPy does it, whatever the size: no plan is found again that depends on the length.
    """
    return array.size <= at_most(WRITE_FACTOR) or (state.limit > 1 and (
        (has_axes and has_mask(key)) or named_elements(array, key) <= most))


def is_mask(x: Any) -> bool:
    """Whether it is an array of truth values."""
    return type(x) is ndarray and x.dtype.char == "?" and x.ndim > 0


def handle_getitem(handle: Any, key: Any) -> Any:
    """Return ``x[key]``."""
    base, kind = handle._base_, type(key)
    if base is None or base._array_ is handle._of_:
        array = handle._array_
        if type(array) is ndarray and state.most >= 0:
            if kind is int or is_basic(key, kind):
                result = array[key]
                if type(result) is ndarray:
                    if base is not None:
                        return take_view(handle, array, result, True, key)
                    view = state.handle_class()
                    view._array_, view._base_, view._of_ = result, handle, array
                    view._lay_ = array, key, True, None, 0
                    view._node_ = view._steps_ = view._seen = None
                    return view
                if type(result) is not float64 and type(result) not in KNOWN_SCALARS:
                    return result
                element = state.handle_class()
                element._array_ = result
                element._node_ = element._base_ = None
                return element
            return taken(handle, array, key)
    return getitem_otherwise(handle, key)


def getitem_otherwise(handle: Any, key: Any) -> Any:
    """Return ``x[key]`` of what is not known to be settled."""
    array = settled(handle)
    if array is None and basic_index(key) != 2:
        array = make_constant(handle)  # elements are read: they will be written too
    if array is None:
        array = looked_at_element(handle, key)
    if type(array) is not ndarray:
        return recorded["__getitem__"](handle, key)
    if not basic_index(key):
        return taken(handle, array, key)
    result = array[key]
    return take_view(handle, array, result, True, key) if type(result) is ndarray else own(result)


def taken(handle: Any, array: Any, key: Any) -> Any:
    """Return the elements that an index other than a plain basic one names."""
    if array.size > state.limit:
        plain = plain_of_large(array, key)
    else:
        plain = plain_index(key, most_read())
    if plain is UNKNOWN:
        return recorded["__getitem__"](handle, key)
    result = array[plain]
    if type(result) is not ndarray:
        return own(result)
    if is_basic(plain, type(plain)):
        return take_view(handle, array, result, True, plain)
    return own_known(result)  # new, though NumPy may give it as a view of one that nobody has


def plain_of_large(array: Any, key: Any) -> Any:
    """Return an index of a large array as NumPy takes it, or `UNKNOWN`."""
    if isinstance(key, state.base_class):
        mask = settled(key)  # the result's shape depends on it, so it is read
        if is_mask(mask):
            return mask
    plain = plain_index(key, most_read())
    if plain is UNKNOWN or basic_index(plain) or is_mask(plain):
        return plain
    return plain if is_index_at_once(array, plain, True, most_read()) else UNKNOWN


def is_written_back(handle: Any, key: Any, value: Any) -> bool:
    """Whether this is the second half of ``a[key] += b``: its view is written already."""
    if not isinstance(value, state.base_class) or value._base_ is None:
        return False
    lay, array = value._lay_, value._array_
    if lay is None or not lay[2] or lay[0] is not handle._array_ or lay[0] is None:
        return False
    if not is_present(value, array) or array is None or not array.flags.writeable:
        return False
    return lay[1] is key or bool(lay[1] == key)


def make_constant(handle: Any) -> Any:
    """Make what is recorded as a constant (`zeros`), for it is written into; as `settled`.

    Another thread may do so meanwhile: recorded, what is written into the one array would be lost
    in the other.
    """
    root = root_of(handle)
    if root._array_ is None and state.most > 1:
        make_own_constant(root)
    return settled(handle) if root._array_ is not None else None


def looked_at(handle: Any) -> Any:
    """Compute what is recorded; as `settled`."""
    if state.most < 0:
        return None
    callbacks["look"](handle)
    return settled(handle)


def looked_at_element(handle: Any, key: Any) -> Any:
    """Compute a large array on the host, for one of its elements is read or written; as `settled`.

    More will be, and each would be recorded.  ``None`` for another index.
    """
    node = handle._node_
    if state.most <= 1 or handle._base_ is not None or node is None or node.buffer is not None:
        return None
    kind = node.form.kind
    count = len(key) if type(key) is tuple else 1
    if kind.size <= state.limit or count != len(kind.shape) or basic_index(key) != 1:
        return None
    return looked_at(handle) if kind.device.kind == "cpu" else None


def new_values(value: Any, basic: int, lent: bool = False) -> Any:
    """Return what is written, as NumPy takes it; else ``None``.

    By index arrays and masks that may be large; and so where others have the memory (``lent``).
    """
    if type(value) in PLAIN:
        return value
    if type(value) in (list, tuple):
        return plain_sequence(Arguments(), value, state.limit, 3)
    new = operand(value)
    if new is None and lent:
        new = settled_operand(value)
    if new is None and not basic and state.most > 1:
        new = settled(value) if isinstance(value, state.base_class) else value
        return new if type(new) is ndarray else None
    return new


def to_be_written(handle: Any, key: Any, value: Any) -> Any:
    """Return the settled value, computed if it is known to pay; ``None`` if it is recorded."""
    array = settled(handle)
    if array is None and (
        type(value) in PLAIN or (isinstance(value, state.base_class) and settled(value) is not None)
    ):
        array = make_constant(handle)
    return looked_at_element(handle, key) if array is None else array


def handle_setitem(handle: Any, key: Any, value: Any) -> None:
    """Do ``x[key] = value``."""
    array, kind, plain, new = handle._array_, type(key), key, value
    if type(array) is ndarray:
        if type(value) is not float and type(value) is not int:
            new = quick_operand(value)
            if new is not value and new is not None:
                if value._base_ is not None and is_second_half(handle, key, value):
                    return
                if new.size > state.most:
                    new = None
        if kind is not int:
            if not is_basic(key, kind):
                plain = plain_index(key, most_read())
            if array.size > state.most:
                new = None
        if new is not None and plain is not UNKNOWN and state.most >= 0 and (
            put_present(handle, array, plain, new)
        ):
            return
    if not put_at_once(handle, key, value):
        recorded["__setitem__"](handle, key, value)


def put_present(handle: Any, array: Any, key: Any, new: Any) -> bool:
    """Write into a settled value, unless it is a node's too, or not the value any more."""
    base = handle._base_
    root = handle if base is None else base
    turn = threads() and begin_turn(True, LONGEST_WAIT)
    try:
        if root._node_ is None and handle._array_ is array and (
            base is None or base._array_ is handle._of_
        ):
            array[key] = new
            return True
        return False
    finally:
        if turn:
            end_turn()


def is_second_half(handle: Any, key: Any, value: Any) -> bool:
    """Whether this is `is_written_back` for certain, of a view."""
    lay = value._lay_
    return lay is not None and lay[1] is key and is_written_back(handle, key, value)


def put_at_once(handle: Any, key: Any, value: Any) -> bool:
    """Write at once; ``False`` for the recorded way."""
    array = to_be_written(handle, key, value)
    if type(array) is not ndarray:
        return False
    basic = basic_index(key)
    if basic and type(value) not in PLAIN and is_written_back(handle, key, value):
        return True
    lent = state.loan_of(root_of(handle)) is not None
    new = new_values(value, basic, lent)
    if new is None:
        return False
    if not basic:
        most = most_written(array)
        key = plain_index(key, most)
        if key is UNKNOWN:
            return False
        basic = basic_index(key)
        has_axes = type(new) is ndarray and new.ndim > 0
        if not basic and not is_index_at_once(array, key, has_axes, most):
            return False
    if basic == 2 and array.size > state.limit and not lent and (
        size_of(array[key]) > at_most(WRITE_FACTOR)
    ):
        return False  # a small part alone of a large array
    with Turn():
        return writable(handle, array) and put_present(handle, array, key, new)


def handle_delitem(handle: Any, key: Any) -> None:
    """Refuse, as NumPy does."""
    raise ValueError("cannot delete array elements")


def handle_length(handle: Any) -> int:
    """Return the length of the first axis."""
    array = handle._array_
    if type(array) is ndarray and state.most >= 0:
        return len(array)
    found: int = recorded["__len__"](handle)
    return found


def plain_element(element: Any) -> Any:
    """Return the element of an array that has become recorded as NumPy's scalar."""
    return element.__array__()[()] if isinstance(element, state.base_class) else element


def scalars(handle: Any) -> Iterator[Any]:
    """Yield the elements of an array with one axis, as NumPy's scalars, as each is by then."""
    place, known = 0, None
    while True:
        base = handle._base_
        array = handle._array_
        if array is None or state.most < 0 or (
            base is not None and base._array_ is not handle._of_
        ):
            array = settled(handle)
        if array is not known or array is None:
            if type(array) is not ndarray or array.ndim != 1:
                if place >= handle_length(handle):
                    return
                element = handle_getitem(handle, place)
                yield element if array is not None else plain_element(element)
                place += 1
                continue
            known = array
        try:
            element = known[place]
        except IndexError:
            return
        place += 1
        yield element


def rows(handle: Any) -> Iterator[Any]:
    """Yield the views along the first axis, as each is by then."""
    place = 0
    while True:
        base, array = handle._base_, handle._array_
        if type(array) is not ndarray or state.most < 0 or (
            base is not None and base._array_ is not handle._of_
        ):
            if place >= handle_length(handle):
                return
            row = handle_getitem(handle, place)
        else:
            try:
                part = array[place]
            except IndexError:
                return
            row = take_view(handle, array, part, True, place)
        place += 1
        yield row


def handle_iter(handle: Any) -> Any:
    """Return an iterator along the first axis."""
    array = settled(handle)
    if type(array) is not ndarray or not array.ndim:
        return recorded["__iter__"](handle)
    return scalars(handle) if array.ndim == 1 else rows(handle)


