"""What a mask selects, as long as nobody asks how much that is.

The shape of ``x[mask]`` depends on values.  Where these are not known, or lie on a GPU, the array
is *deferred*: it has all of ``x``, and the mask.  Elementwise functions compute with all elements,
sums and means take the mask as their ``where=``, and what is written by the same mask is a `where`.
So that is recorded like any arithmetic, and fused with it, under `jit` and `vmap` as well.
Whatever else asks for the value has it selected then (`recorded.resolve`), which is a look.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import ref

import numpy as np

from tiledarray import config, core
from tiledarray.arrays import handle as handles
from tiledarray.arrays import index, tracing
from tiledarray.arrays.handle import SCALARS, Handle, as_node, fitting, is_recorded, wrap
from tiledarray.arrays.views import is_frozen, overlaps
from tiledarray.errors import LeaveToNumPy, raised_outside
from tiledarray.fork import hold_at_fork
from tiledarray.graph.dtypes import Shape
from tiledarray.graph.node import Kind, Node
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.selection import where as where_op
from tiledarray.recording import record
from tiledarray.recording.stretch import local

Function = Callable[..., Any]
_AND = BY_NAME["logical_and"]
# What all elements may cost where those that are selected could be had: off the host, and there.
MOST_COST = (100, 8)
MOST_LIVE = 16  # deferred arrays whose values could be had
MOST_MEMORY = 64  # part of the memory that each of them may keep
LONGEST_WAIT = 1.0  # seconds, for another thread that gives such an array its value
_DEEPEST = 16  # steps that are compared of how two masks were made
# Where exponents are, of which those that are not selected may be negative: integers refuse that.
_EXPONENTS = {"__pow__": 1, "__rpow__": 0, "power": 1}
_NOTHING = object()


class Selection:
    """An array without a value of its own: the elements of another one where a mask holds.

    Attributes
    ----------
    full : Node
        The other one, whose first axes are those of the mask.
    mask : Node
        Of the dtype bool, with at least one axis.
    cost : int
        Of what all elements have gone through since they were selected, for each.
    made : tuple of callable and sequence, optional
        The function that gave it, with what it was of: deferred arrays as what they stand for.
    reduced : bool
        Whether a reduction has gone through all elements: another one had better not.
    """

    __slots__ = ("full", "mask", "cost", "made", "reduced", "_found")

    def __init__(
        self, full: Node, mask: Node, cost: int = 0,
        made: tuple[Function, Sequence[Any]] | None = None,
    ) -> None:
        self.full, self.mask, self.cost, self.made = full, mask, cost, made
        self.reduced = False
        self._found: Any = None

    def value(self, taken: Function) -> Any:
        """Return the elements, as NumPy gets them: selected first, computed with then.

        ``taken(array, mask)`` selects.
        """
        if self._found is None and self.made is None:
            self._found = taken(wrap(self.full), wrap(self.mask))
        elif self._found is None and self.made is not None:
            function, values = self.made
            self._found = function(*[
                each.value(taken) if type(each) is Selection else each for each in values])
        return self._found

    @property
    def ndim(self) -> int:
        """Axes of the selected array: one for those of the mask, and the rest."""
        return 1 + len(self.rest)

    @property
    def rest(self) -> Shape:
        """Lengths of the axes that are not the mask's."""
        return self.full.shape[len(self.mask.shape):]


def selection(value: Any) -> Selection | None:
    """Return what a deferred array stands for; ``None`` of anything else."""
    return of_array(value) if isinstance(value, Handle) else None


def of_array(array: Handle) -> Selection | None:
    """Return the same of an array of ours.

    ``None`` of a deferred one that the present tracing has not made: its nodes belong to another.
    """
    seen = getattr(array, "_seen", None)
    if type(seen) is not Selection:
        return None
    scope = local.recorder.scope
    return seen if scope is None or scope.is_inside(array) else None


def deferred(full: Node, mask: Node) -> Any:
    """Return an array of what a mask selects, without computing it."""
    return _standing_for(Selection(full, mask))


def _standing_for(chosen: Selection) -> Any:
    made = handles.without_value()
    made._seen = chosen
    scope = local.recorder.scope
    if scope is not None:
        scope.adopt(made)
    else:
        _keep_few(made)
    return made


_live: deque[ref[Any]] = deque()  # deferred though values can be had, perhaps


def _keep_few(made: Any) -> None:
    """Have the oldest of many deferred arrays computed: each keeps all elements in memory."""
    _live.append(ref(made))
    if len(_live) <= MOST_LIVE:
        return
    kept: list[Any] = [
        each for each in (known() for known in [*_live]) if selection(each) is not None]
    _live.clear()
    _live.extend(map(ref, kept[-MOST_LIVE // 2:]))
    for handle in kept[:-MOST_LIVE // 2]:
        len(handle)  # for which it is given its value


def select(array: Handle, key: tuple[Any, ...]) -> Any:
    """Return ``array[key]`` deferred; ``None`` if it is to be found now.

    Raises
    ------
    IndexError
        If the mask does not fit the array.
    """
    mask = _unknown_mask(key)
    if mask is None:
        return None
    chosen, narrower = selection(array), selection(key[0])
    if narrower is not None:
        if chosen is None or not _same(chosen.mask, narrower.mask) or narrower.rest:
            return None
        return deferred(chosen.full, record.binary(_AND, chosen.mask, narrower.full))
    node = array.node
    if node.device is not mask.device or not _fits(mask, node.shape) or (
            local.recorder.scope is None and _is_too_large(node)):
        return None
    return deferred(node, mask)


def _is_too_large(node: Node) -> bool:
    """Whether too much memory would be kept for a part of an array."""
    device = node.device
    memory = int(device.properties.memory_bytes) if device.kind == "cuda" else config.memory_bytes()
    return math.prod(node.shape) * node.dtype.itemsize > memory // MOST_MEMORY


def _unknown_mask(key: tuple[Any, ...]) -> Node | None:
    """Return the mask that an index is, if a look at it is not to be had, or would cost.

    Of a deferred one, all of it.
    """
    if len(key) != 1 or not isinstance(key[0], Handle) or key[0]._array is not None:
        return None
    chosen = selection(key[0])
    mask: Node = key[0].node if chosen is None else chosen.full
    if mask.dtype.kind != "b" or not mask.shape:
        return None
    scope = local.recorder.scope
    if scope is not None:
        return None if scope.knows([mask]) else mask
    if mask.device.kind == "cuda":
        return mask
    pending = mask.buffer is None and mask.form.kind.size > core.small()
    return mask if pending and local.recorder.immediate and config.at_once > 1 else None


def along_rest(mask: Node, ndim: int) -> Node:
    """Record a mask with an axis of length one for each that comes after its own."""
    return record.reshape(mask, mask.shape + (1,) * (ndim - len(mask.shape)))


def _fits(mask: Node, shape: Shape) -> bool:
    """Whether a mask is for the first axes of an array.

    Raises
    ------
    IndexError
        If it has more axes than that, or others.
    """
    if len(mask.shape) > len(shape):
        raise index.too_many(len(shape), len(mask.shape))
    index.check_mask(mask.shape, shape, 0)
    return mask.shape == shape[:len(mask.shape)]


def _same(one: Any, other: Any, deepest: int = _DEEPEST) -> bool:
    """Whether two masks are made of the same values by the same operations."""
    if one is other:
        return True
    if type(one) is not Node or type(other) is not Node:
        return type(one) is type(other) and one == other and str(one) == str(other)  # -0.0
    if one.buffer is not None or one.form is not other.form or not deepest or not one.inputs:
        return False
    return len(one.inputs) == len(other.inputs) and all(
        _same(a, b, deepest - 1) for a, b in zip(one.inputs, other.inputs, strict=True))


# Functions of each element -----------------------------------------------------------------------


def of_each(function: Function) -> Function:
    """Have an elementwise function take deferred arrays, of which it gives a deferred one."""

    @functools.wraps(function)
    def lifted(*values: Any, **options: Any) -> Any:
        for value in values:
            if isinstance(value, Handle) and type(getattr(value, "_seen", None)) is Selection:
                found = applied(function, values, options)
                return function(*values, **options) if found is None else found
        return function(*values, **options)

    return lifted


def applied(function: Function, values: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return an elementwise function of arrays, some of them deferred; ``None`` if it cannot be."""
    chosen = next((found for value in values if (found := selection(value)) is not None), None)
    if chosen is None or not all(_is_plain(value) for value in options.values()) or (
            options.get("out") is not None or options.get("where", True) is not True):
        return None
    full = [_whole(value, chosen) for value in values]
    if any(each is _NOTHING for each in full):
        return None
    try:
        result = function(*full, **options)
    except (TypeError, ValueError) as error:
        if local.recorder.scope is not None or raised_outside(error):
            raise
        return None  # its error is that of what is selected
    if not isinstance(result, Handle) or result.ndim != len(chosen.full.shape):
        return None
    exponent = _EXPONENTS.get(function.__name__)
    if exponent is not None and result.dtype.kind in "iu" and not _is_plain(values[exponent]):
        return None
    given = {each.node for each in full if isinstance(each, Handle)}
    cost = chosen.cost + _cost(result.node, given)
    if local.recorder.scope is not None:
        return deferred(result.node, chosen.mask)
    if cost > MOST_COST[result.node.device.on_host]:
        return None
    kept = [selection(value) or _as_it_is(value) for value in values]
    return _standing_for(
        Selection(result.node, chosen.mask, cost, (functools.partial(function, **options), kept)))


def _as_it_is(value: Any) -> Any:
    """Return an operand of which nobody sees what is written into it later."""
    if isinstance(value, Handle):
        return wrap(value.node)
    return value.copy() if isinstance(value, np.ndarray) else value


def _cost(node: Node, given: Collection[Node]) -> int:
    """What it costs to compute an element of a value from those that are given."""
    if node in given or node.buffer is not None:
        return 0
    return getattr(node.op, "cost", 0) + sum(
        _cost(each, given) for each in node.inputs if type(each) is Node)


def _whole(value: Any, chosen: Selection) -> Any:
    """Return what stands for an operand beside all elements; `_NOTHING` if nothing does."""
    found = selection(value)
    if found is not None:
        alike = _same(found.mask, chosen.mask) and len(found.rest) == len(chosen.rest)
        return wrap(found.full) if alike else _NOTHING
    if _is_plain(value):
        return value
    if not isinstance(value, (Handle, np.ndarray)):
        return _NOTHING
    shape = value.shape
    ahead = chosen.mask.shape
    flat = len(ahead) == 1 and len(shape) == chosen.ndim and shape[0] in (1, min(1, ahead[0]))
    return value if flat or len(shape) <= len(chosen.rest) else _NOTHING


def _is_plain(value: Any) -> bool:
    """Whether a value is no array, and means the same beside any."""
    return type(value) in SCALARS or value is None or value is np._NoValue or isinstance(
        value, (np.generic, np.dtype, type, str))


def in_place(forward: Function, target: Handle, other: Any) -> bool:
    """Do ``target op= other`` of a deferred array; ``False`` if it cannot be done."""
    before = selection(target)
    after = None if before is None else selection(applied(forward, (target, other), {}))
    if before is None or after is None or after.full.shape != before.full.shape or (
            not np.can_cast(after.full.dtype, before.full.dtype, "same_kind")):
        return False
    if after.full.dtype != before.full.dtype:
        after = Selection(record.cast(after.full, before.full.dtype), after.mask, after.cost)
    return _exchanged(target, before, after)


def _exchanged(target: Handle, before: Selection, after: Selection) -> bool:
    """Have a deferred array stand for something else, unless it has got its value meanwhile."""
    with _Turn():
        if target._seen is not before:
            return False
        target._seen = after
        return True


def give_value(array: Handle, chosen: Selection, node: Node) -> None:
    """Give a deferred array its value, unless another thread has, or has written into it."""
    with _Turn():
        if array._seen is chosen:
            tracing.give_value(array, node)
            array._seen = None


_changing = threading.RLock()
hold_at_fork(_changing)


class _Turn:
    """What one thread at a time does; not for ever, for it may wait for what others have locked."""

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        self._held = _changing.acquire(timeout=LONGEST_WAIT)

    def __exit__(self, *_: object) -> None:
        if self._held:
            _changing.release()


# Reductions --------------------------------------------------------------------------------------


def of_all(function: Function, *, of_none: bool = True, passes: int = 1) -> Function:
    """Have a reduction take deferred arrays, with the mask as its ``where=``.

    Where it has no value `of_none`, it is so if it is given an ``initial=``.  What goes through the
    elements in several `passes` has those that are selected taken out first, on the host.
    """

    @functools.wraps(function)
    def lifted(a: Any, axis: Any = None, *others: Any, **options: Any) -> Any:
        chosen = selection(a)
        if chosen is not None and not others and (
                passes == 1 or local.recorder.scope is not None or not chosen.full.device.on_host):
            given = options.get("initial")
            known = of_none or (given is not None and given is not np._NoValue)
            found = _reduced(function, chosen, axis, options, known=known)
            if found is not None:
                return found
        return function(a, axis, *others, **options)

    return lifted


def _reduced(function: Function, chosen: Selection, axis: Any, options: dict[str, Any], *,
             known: bool) -> Any:
    if options.get("where", True) is not True or options.get("out") is not None or (
            type(axis) not in (int, type(None))):
        return None
    if axis is not None and not -chosen.ndim <= axis < chosen.ndim:
        return None  # its error is that of what is selected
    full, masked = wrap(chosen.full), len(chosen.mask.shape)
    if axis is not None and axis % chosen.ndim:
        kept = function(full, axis % chosen.ndim - 1 + masked, **options)
        return deferred(kept.node, chosen.mask)
    if options.get("keepdims") or not known:
        return None
    if local.recorder.scope is None and chosen.full.device.on_host:
        if chosen.reduced:
            return None
        chosen.reduced = True
    condition = along_rest(chosen.mask, len(chosen.full.shape))
    axes = None if axis is None else tuple(range(masked))
    return function(full, axes, **options, where=wrap(condition))


# Writing -----------------------------------------------------------------------------------------


def write(array: Handle, key: tuple[Any, ...], value: Any) -> bool:
    """Do ``array[key] = value`` as a `where`; ``False`` if it is to be done otherwise.

    Raises
    ------
    IndexError
        If the mask does not fit the array.
    """
    mask = _unknown_mask(key)
    if mask is None or is_frozen(array.steps) or overlaps(array.steps):
        return False
    within, narrower = selection(array), selection(key[0])
    if narrower is None:
        if within is not None:
            return False
        kind, wanted = array.node.form.kind, mask  # who holds the node makes the write a copy
    elif within is None or not _same(within.mask, narrower.mask) or narrower.rest:
        return False
    else:
        kind, wanted = within.full.form.kind, record.binary(_AND, within.mask, mask)
    new = _fitted(value, kind, len(mask.shape), wanted) if _fits(mask, kind.shape) else None
    if new is None:
        return False
    condition = along_rest(mask, len(kind.shape))

    def chosen(old: Node) -> Node:
        return record.elementwise(where_op, condition, new, old)

    if within is not None:
        return _exchanged(array, within, Selection(chosen(within.full), within.mask))
    array.change(chosen)
    return True


def _fitted(value: Any, kind: Kind, ahead: int, wanted: Node) -> Node | None:
    """Return what is written beside all elements, of which the first axes are the mask's.

    ``None`` if nothing can be: it is neither selected by the same mask nor the same for all.
    """
    given = selection(value)
    if given is not None:
        if not _same(given.mask, wanted) or len(given.rest) != len(kind.shape) - ahead:
            return None
        value = wrap(given.full)
    elif type(value) not in SCALARS:
        if type(value) in (list, tuple) and is_recorded(value):
            value = wrap(as_node(value, kind.device))
        if not record.broadcastable(np.shape(value), kind.shape[ahead:]):
            return None
    try:
        return fitting(value, kind.shape, kind.dtype, kind.device, checked=False)
    except LeaveToNumPy:
        return None
