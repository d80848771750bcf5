"""The one door to NumPy: what no kernel does, NumPy does on host copies, and it is told.

Who finds that a call is NumPy's raises `LeaveToNumPy` with the reason, or calls `call` with it.
The results become arrays of ours, and what NumPy changed in the copies is stored in the arrays.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from tiledarray.arrays import in_traces, told
from tiledarray.arrays.handle import (
    Handle,
    as_node,
    by_protocol,
    fitting,
    follow,
    same_bytes,
    same_elements,
    scalar,
    shown,
    wrap,
)
from tiledarray.arrays.views import is_frozen, on_array, overlaps
from tiledarray.devices.device import resolve
from tiledarray.errors import HistoryLost, LeaveToNumPy
from tiledarray.execution.spans import Spending
from tiledarray.graph.dtypes import is_numeric
from tiledarray.recording import record
from tiledarray.recording.history import check_kept, marked
from tiledarray.recording.stretch import local

Function = Callable[..., Any]
MOST_TRIED = 1 << 22  # elements of operands whose error NumPy is asked for: it may find none


# Other ways for functions whose arguments have a history, or no values in a traced function:
# `gradients` knows some that are made of what is recorded.
KEEPING: dict[Function, Function] = {}


def call(
    name: str, function: Function, args: Any, kwargs: Any = None, *, reason: str = ""
) -> Any:
    """Call a NumPy function on host copies; what it changes in them is stored in the arrays.

    Parameters
    ----------
    name : str
        For the account of what NumPy did.
    function : callable
    args, kwargs : tuple, dict
        With arrays of ours, nested ones too.
    reason : str
        Why it is NumPy's, for the same account; ``""`` if all there is to say is that no kernel
        does it.

    Returns
    -------
    object
        What NumPy returned, its arrays as arrays of ours: on the device of the first array of ours
        among the arguments, else on the current one.
    """
    record.note_fallback(name, reason=reason)
    with Spending("NumPy"):
        try:
            return _called(name, function, args, kwargs or {})
        except ValueError as error:
            given = by_protocol((args, kwargs or {}), error)
            if given is None:
                raise
        return _called(name, function, *given)


def _called(name: str, function: Function, args: Any, kwargs: Any) -> Any:
    told.tell_all((args, kwargs))
    found = first_handle((args, kwargs))
    device = resolve() if found is None else found.node.device
    if found is not None and local.recorder.scope is not None:
        recorded = _in_a_trace(name, function, args, kwargs, device)
        if recorded is not None:
            return recorded[0]
    copies = _Copies((args, kwargs), only_read=_only_reads(function, args, kwargs))
    kept = copies.kept()
    if kept and function in KEEPING:
        try:
            return KEEPING[function](*args, **kwargs)
        except (HistoryLost, LeaveToNumPy):
            pass  # a gradient that comes by what follows says which function has no derivative
    host_args, host_kwargs = copies.of(args), copies.of(kwargs)
    result = function(*host_args, **host_kwargs)
    mark = _Mark(name, kept)
    copies.write_back(mark, _outputs(name, result, args, kwargs) if kept else ())
    result = copies.as_given(result, (*host_args, *host_kwargs.values()))
    given = _Given(copies, host_args, host_kwargs, mark)
    if type(result) is tuple:
        return tuple(_ours(part, device, given) for part in result)
    return _ours(result, device, given)


_READING = {"reduce": 1, "accumulate": 1, "reduceat": 2, "outer": 2}  # and of how many operands


def _only_reads(function: Function, args: Any, kwargs: Any) -> bool:
    """Whether it is a ufunc's call, or a method, that writes into none of its arguments."""
    of: Any = getattr(function, "__self__", None)
    operands = (function.nin if isinstance(function, np.ufunc) else
                _READING.get(function.__name__, 0) if isinstance(of, np.ufunc) else 0)
    return 0 < len(args) <= operands and "out" not in kwargs


def _in_a_trace(name: str, function: Function, args: Any, kwargs: Any, device: Any) -> Any:
    """Record a call of arrays without values; ``None`` if that cannot be, else what it gives."""
    nodes = [handle.node for handle in handles_in((args, kwargs))]
    if local.recorder.scope.knows(nodes):
        return None
    keeping = KEEPING.get(function)
    if keeping is not None and any(node.keeps for node in nodes):
        try:
            return (keeping(*args, **kwargs),)
        except (HistoryLost, LeaveToNumPy, TypeError):  # the last where it looks at a value
            keeping = None
    made = in_traces.recorded(name, function, args, kwargs, device)
    if made is None and keeping is not None:
        with suppress(LeaveToNumPy):
            made = (keeping(*args, **kwargs),)
    return made


_CHANGE_NOTHING = frozenset(("save", "savetxt", "savez", "savez_compressed"))


def _outputs(name: str, result: Any, args: Any, kwargs: dict[str, Any]) -> list[Handle]:
    """Return the arrays that NumPy has written into, be it what was there before."""
    found = [*handles_in(kwargs.get("out"))]
    if result is None and name not in _CHANGE_NOTHING:
        found += [*handles_in((args, kwargs))][:1]
    return found


# What may be computed from elements without being of them: answers, places, texts.
_NO_NUMBERS = (bool, int, str, bytes, NoneType, np.integer, np.bool, np.dtype, type)


class _Mark:
    """Says of what NumPy computes that it has the history of what it was computed from."""

    def __init__(self, name: str, kept: list[Any]) -> None:
        self._name = name
        self._kept = kept

    def __call__(self, value: Any, device: Any) -> Any:
        """Return a result, an array of ours or a scalar, with that history if there is any.

        Raises
        ------
        HistoryLost
            If it is something else that may have elements in it.
        """
        if not self._kept or isinstance(value, _NO_NUMBERS):
            return value
        if isinstance(value, np.inexact):
            value = scalar(value, device)
        if not isinstance(value, Handle):
            check_kept(self._kept[0], self._name)
        return wrap(marked(self._name, self._kept, value.computed()))

    def of_written(self, copy: Any, handle: Handle) -> Any:
        """Return what NumPy has written into an array, with that history if there is any."""
        if not self._kept:
            return copy
        device = handle.node.device
        return self(wrap(as_node(copy, device)), device)


def or_numpy(name: str, original: Function, function: Function) -> Function:
    """Return a function of ours that hands the call to NumPy's where it says so.

    What an output is wrong for NumPy's tells, in its own words.
    """
    before = places_before_out(original)

    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LeaveToNumPy as error:
            reason = error.reason  # an error of NumPy's below comes without this as its context
        except (TypeError, ValueError) as error:
            given = by_protocol((args, kwargs), error)
            if given is not None:
                return either(*given[0], **given[1])
            if not _binds(original, args, kwargs):
                original(*args, **kwargs)  # raises, in words of its own
            out = args[before] if len(args) > before else kwargs.get("out")
            if out is None or _crashes(name, args, out):
                raise
            raise_first_error(original, args, None, kwargs)
            raise
        return call(name, original, args, kwargs, reason=reason)

    return either


def _crashes(name: str, args: Any, out: Any) -> bool:
    """Whether NumPy's own may crash of a wrong output: a tuple, or one without axes."""
    return type(out) is tuple or (
        name.startswith(("cum", "nancum")) and not getattr(out, "ndim", 1)
        and getattr(args[0] if args else None, "ndim", 0) <= 1)


def _binds(original: Function, args: Any, kwargs: Any) -> bool:
    """Whether a function takes such arguments, as far as its signature is known."""
    try:
        inspect.signature(original).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


@functools.lru_cache(1024)
def places_before_out(original: Any) -> int:
    """Return how many arguments may be given by position before one that is written to."""
    written = inspect.unwrap(original)
    if isinstance(written, FunctionType):  # a signature takes 50 times as long, for each at import
        code = written.__code__
        names = code.co_varnames[code.co_posonlyargcount:code.co_argcount]
        return code.co_posonlyargcount + names.index("out") if "out" in names else 12
    if "out" not in (getattr(written, "__text_signature__", None) or "out"):
        return 12
    try:
        parameters = [*inspect.signature(original).parameters.values()]
    except (TypeError, ValueError):
        return 2
    for place, parameter in enumerate(parameters):
        if parameter.name == "out" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return place
    return 12


def with_foreign(function: Function, args: Any, kwargs: Any, plain: Function | None = None) -> Any:
    """Call a ufunc of NumPy's with a foreign operand, whose type says what comes of it.

    Parameters
    ----------
    function : numpy.ufunc or one of its methods
    args, kwargs : tuple, dict
    plain : callable, optional
        What to call where that type does not know arrays of ours, and gets NumPy's instead; by
        default the same.
    """
    told.tell_all((args, kwargs))
    if first_handle((args, kwargs)) is None:
        return function(*args, **kwargs)
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if "NotImplemented" not in str(error):
            raise
    reason = "beside an array of another library"
    return call(function.__name__, plain or function, args, kwargs, reason=reason)


def raise_first_error(function: Function, inputs: Any, out: Any, options: Any) -> None:
    """Raise what NumPy raises first of several errors, by operands that take no memory."""
    given = {**options, "out": out} if out is not None else options
    if all(handle.node.form.kind.size <= MOST_TRIED for handle in handles_in((inputs, given))):
        try:
            function(*_weightless(inputs), **_weightless(given))
        except Exception as error:
            raise error from None  # and not from what ours has raised


def _weightless(value: Any) -> Any:
    """Return nested arguments with stand-ins: every element of an array is one in memory."""
    if isinstance(value, Handle):
        like = value.node
        made = np.lib.stride_tricks.as_strided(
            np.ones(1, like.dtype), like.shape, (0,) * len(like.shape)
        )
        if is_frozen(value.steps):
            made.flags.writeable = False
        return made
    if type(value) in (tuple, list):
        return type(value)(map(_weightless, value))
    if type(value) is dict:
        return {name: _weightless(part) for name, part in value.items()}
    return value


# Arguments --------------------------------------------------------------------------------------


def handles_in(values: Any) -> Iterator[Handle]:
    """Yield the arrays of ours in nested arguments."""
    if isinstance(values, Handle):
        yield values
    elif isinstance(values, (tuple, list, dict)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from handles_in(value)


_ATOMS = frozenset((int, float, bool, complex, str, bytes, NoneType))


def first_handle(values: Any) -> Handle | None:
    """Return an array of ours from nested arguments, if there is one."""
    if isinstance(values, Handle):
        return values
    if isinstance(values, (tuple, list)):
        if _ATOMS.issuperset(map(type, values)):  # quick for long ones
            return None
        for value in values:
            found = first_handle(value)
            if found is not None:
                return found
    elif isinstance(values, dict):
        return first_handle(tuple(values.values()))
    return None


def _is_foreign(kind: type) -> bool:
    """Whether NumPy leaves operations to this type: another library's, or an ndarray subclass."""
    if issubclass(kind, (np.ndarray, np.generic)):
        return kind not in (np.ndarray, np.memmap) and not issubclass(kind, np.generic)
    return not issubclass(kind, Handle) and (
        hasattr(kind, "__array_ufunc__") or hasattr(kind, "__array_function__")
    )


is_foreign: Callable[[type], bool] = functools.lru_cache(maxsize=1024)(_is_foreign)


def is_subclass(kind: type) -> bool:
    """Whether this is a class of NumPy arrays with behaviour of its own, such as a matrix."""
    return issubclass(kind, np.ndarray) and is_foreign(kind)


def to_host(values: Any) -> Any:
    """Return nested arguments with NumPy copies in place of arrays of ours.

    Raises
    ------
    HistoryLost
        If one of them has a history.
    """
    copies = _Copies(values)
    for node in copies.kept():
        check_kept(node, "a function of NumPy's")
    return copies.of(values)


class _Copies:
    """Host copies of the arrays of ours among arguments; what overlaps in ours does in the copies.

    Where all are only read, they are views that cannot be written.

    Attributes
    ----------
    pairs : dict
        For each array, by identity, the array and its copy.
    owners : list
        Arrays, what their memory held, as an array, and copies that hold all that can be changed.
    containers : dict
        For each list and dict with arrays of ours in it, by identity, that, its copy, and what was
        in the copy at first.
    """

    def __init__(self, values: Any, *, only_read: bool = False) -> None:
        self.pairs: dict[int, tuple[Handle, np.ndarray[Any, Any]]] = {}
        self.owners: list[tuple[Handle, Handle, np.ndarray[Any, Any]]] = []
        self.containers: dict[int, tuple[Any, Any, Any]] = {}
        self._only_read = only_read and not runs_code(values)
        families: dict[int, dict[int, Handle]] = {}
        for handle in handles_in(values):
            families.setdefault(id(handle.origin()), {})[id(handle)] = handle
        for family in families.values():
            self._add(list(family.values()))

    def _add(self, family: list[Handle]) -> None:
        """Copy an array, or all views of one array together."""
        alone = len(family) == 1 and not overlaps(family[0].steps)
        root = family[0] if alone else family[0].origin()
        # As long as somebody has the value, nobody writes into it.
        value = root if self._only_read else wrap(root.origin()._node)
        if self._only_read:
            base = shown(root).view()
            base.flags.writeable = False
        else:
            base = _seen(value, root).copy()
            self.owners.append((root, value, base))
        for handle in family:
            copy = base if handle is root else on_array(base, handle.steps)
            if not self._only_read and not np.may_share_memory(copy, base):
                self.owners.append((handle, value, copy))  # a reshape had to copy
            if self._only_read or is_frozen(handle.steps):
                copy.flags.writeable = False
            self.pairs[id(handle)] = handle, copy

    def kept(self) -> list[Any]:
        """Return the nodes of the arrays whose history is wanted; no settled one has any."""
        return [handle.node for handle, _ in self.pairs.values()
                if handle._array is None and handle.node.keeps]

    def of(self, value: Any) -> Any:
        """Return an argument with host copies."""
        if isinstance(value, Handle):
            return self.pairs[id(value)][1]
        if first_handle(value) is None:
            return value
        if type(value) is tuple:
            return tuple([self.of(part) for part in value])
        if type(value) not in (list, dict):
            return value
        if id(value) not in self.containers:
            copy: Any = [self.of(part) for part in value] if type(value) is list else {
                name: self.of(part) for name, part in value.items()}
            self.containers[id(value)] = value, copy, copy.copy()
        return self.containers[id(value)][1]

    def as_given(self, result: Any, arguments: Sequence[Any]) -> Any:
        """Change lists and dicts as NumPy, or a function that it calls, has changed their copies.

        Returns
        -------
        object
            The result.  Where it, or an array of objects that was written, has one of the copies
            in it, it has what was given.
        """
        parts = result if type(result) is tuple else (result,)
        objects = [x for x in (*parts, *arguments) if (
            isinstance(x, np.ndarray) and x.dtype.hasobject and x.dtype.names is None)]
        if not (self.containers or objects):
            return result
        given = {id(copy): value for value, copy, _ in self.containers.values()}
        given.update((id(copy), handle) for handle, copy in self.pairs.values())
        for value, copy, before in self.containers.values():
            if type(value) is list:
                if not _are_the_same(copy, before):
                    value[:] = [given.get(id(part), part) for part in copy]
            elif not (_are_the_same(copy, before) and _are_the_same(
                    copy.values(), before.values())):
                refilled = {name: given.get(id(part), part) for name, part in copy.items()}
                value.clear()
                value.update(refilled)
        for array in objects:
            if not array.flags.writeable or given.keys().isdisjoint(map(id, array.flat)):
                continue
            for place, part in zip(np.ndindex(array.shape), array.flat, strict=True):
                if id(part) in given:
                    array[place] = given[id(part)]
        return given.get(id(result), result) if type(result) in (list, dict) else result

    def write_back(self, mark: _Mark, outputs: Sequence[Handle]) -> None:
        """Store in the arrays what was changed in their copies, and in outputs in any case."""
        written = {id(each) for output in outputs for each in (output, output.origin())}
        for handle, value, copy in self.owners:
            if id(handle) in written or (
                    copy.flags.writeable and not same_bytes(_seen(value, handle), copy)):
                handle.change(partial(_merged, mark, handle, value, copy))

    def original(self, value: Any) -> Any:
        """Return the array of ours whose copy this is, ``None`` if there is none."""
        for handle, copy in self.pairs.values():
            if value is copy:
                return handle
        return None


def _are_the_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether there are the same objects in both, in the same order."""
    return [*map(id, some)] == [*map(id, others)]


def _seen(value: Handle, handle: Handle) -> np.ndarray[Any, Any]:
    """Return what an array holds, or held, by the value of the one that owns its memory."""
    return shown(follow(value, handle.steps))


def _merged(mark: _Mark, handle: Handle, value: Handle, copy: np.ndarray[Any, Any],
            old: Any) -> Any:
    """Return the node of a copy that was changed, beside what others have written meanwhile.

    An argument's code may have, or another thread: where the copy holds what the array did by its
    ``value`` at first, it is theirs.
    """
    if handle.origin()._node is not value._node:
        copy = np.where(same_elements(_seen(value, handle), copy), shown(wrap(old)), copy)
    if not is_numeric(old.dtype):  # numbers seen as times, say: they are written as numbers
        size = old.dtype.itemsize
        if size not in (1, 2, 4, 8):
            raise NotImplementedError(f"a view of numbers as {old.dtype} is read-only")
        numbers = np.ascontiguousarray(copy).view(f"u{size}").reshape(old.shape)
        return record.leaf(old.device.wrap(numbers, copy=True))
    return fitting(mark.of_written(copy, handle), old.shape, old.dtype, old.device)


_PLAIN = (Handle, np.generic, np.dtype, type, int, float, complex, str, bytes, type(None),
          type(...))


def runs_code(value: Any) -> bool:
    """Whether converting or calling some of the arguments runs code of somebody's."""
    if isinstance(value, (tuple, list)):
        return any(map(runs_code, value))
    if isinstance(value, dict):
        return any(map(runs_code, value.values()))
    if isinstance(value, slice):
        return any(map(runs_code, (value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray):
        return value.dtype.hasobject
    return not isinstance(value, _PLAIN)


# Results ----------------------------------------------------------------------------------------


class _Given:
    """What a call was given: what it returns may be one of these, which is then not new."""

    def __init__(
        self, copies: _Copies, args: Any, kwargs: dict[str, Any], mark: Callable[[Any, Any], Any]
    ) -> None:
        self.copies = copies
        self.mark = mark
        values = (*args, *kwargs.values())
        self.arrays = [value for value in values if isinstance(value, np.ndarray)]
        self.any_calls = any(map(callable, values))  # what such a function keeps is not new either
        out = kwargs.get("out")
        self.outputs = out if isinstance(out, tuple) else (out,)

    def holds(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether someone else may have the array; it is asked of each result once."""
        known = self.any_calls or any(array is value for value in self.arrays)
        self.arrays.append(array)
        return known


def _ours(result: Any, device: Any, given: _Given) -> Any:
    """Return a result with arrays of ours in place of NumPy's; an output is returned itself."""
    if type(result) is np.ndarray:
        handle = given.copies.original(result)
        if handle is not None:
            return handle
        if any(result is output for output in given.outputs):
            return result
    return _marked(wrapped(result, device, given.holds), device, given.mark)


def _marked(value: Any, device: Any, mark: Callable[[Any, Any], Any]) -> Any:
    if type(value) in (tuple, list):
        return type(value)(_marked(part, device, mark) for part in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_marked(part, device, mark) for part in value))
    return mark(value, device)


def wrapped(
    values: Any, device: Any, held: Callable[[np.ndarray[Any, Any]], bool] | None = None
) -> Any:
    """Return what NumPy returned with its arrays as arrays of ours; new ones are not copied.

    Scalars, subclasses such as masked arrays, and dtypes that no kernel knows stay NumPy's.

    Parameters
    ----------
    values : object
        Arrays, also in tuples and lists.
    device : Device
        Where they are to be.
    held : callable, optional
        Whether someone else may have an array.
    """
    if type(values) is np.ndarray:
        if not is_numeric(values.dtype):
            return values
        new = values.base is None and values.flags.c_contiguous and values.flags.writeable
        copy = not new or (held is not None and held(values))
        node = record.leaf(device.wrap(values, copy=copy))
        return wrap(node if values.ndim else record.without_axes(node))
    if type(values) in (tuple, list):
        return type(values)(wrapped(part, device, held) for part in values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(wrapped(part, device, held) for part in values))
    return values
