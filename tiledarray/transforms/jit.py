"""`jit`: record a function once, then run its plan on new arrays."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tiledarray import config, execution
from tiledarray.arrays.handle import assign_all, follow, stands_for_scalar, wrap
from tiledarray.arrays.shaping import is_dense
from tiledarray.arrays.tiledarray import TiledArray
from tiledarray.arrays.tracing import (
    Disturbed,
    HasHistory,
    Scope,
    is_tracing,
    make_placeholder,
    traced,
)
from tiledarray.arrays.views import Frozen, Step, handed_out, identity, is_frozen
from tiledarray.at_one_go import persist
from tiledarray.devices.device import current
from tiledarray.devices.storage import Buffer
from tiledarray.errors import NOT_COMPILED, of_a_handler
from tiledarray.execution import placement
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Node, is_scalar, leaf_form
from tiledarray.graph.program import trace
from tiledarray.recording import record
from tiledarray.transforms.arguments import (
    Copy,
    Given,
    Handed,
    containers,
    contains_itself,
    flatten,
    give_back,
    hand_back,
    outline,
    run_on_copies,
    unflatten,
)
from tiledarray.transforms.variables import Names, Variable, variables_of

if TYPE_CHECKING:
    from tiledarray.execution.executable import Executable


TRACES_REMEMBERED = 64  # of a function; their temporary memory stays with them
NUMBERS_TRIED = 16  # combinations that differ in their numbers alone; recording is cheaper then
OUTLINES_COUNTED = 1024
VARIANTS_REMEMBERED = 8  # of one combination of arguments, for other arrays behind the names
_NO_NAMES = (dict,)  # what `flatten` makes of no keyword arguments
_NOTHING = contextlib.nullcontext()


class _Input(NamedTuple):
    """An array that a traced function reads or writes.

    Attributes
    ----------
    argument : int or None
        The array argument that it is, or is the base of.
    whole : bool
        Whether it is the array that owns the memory, also where the argument is a view of it.
    ways : list
        The places of the names by which the function could have found it among what its watch
        meets, each with the steps from there.
    placeholder : Node
    """

    argument: int | None
    whole: bool
    ways: list[tuple[int, tuple[Step, ...]]]
    placeholder: Node


class _Trace:
    """A function recorded for arguments of certain shapes and dtypes.

    Parameters
    ----------
    function : callable
    shape : tuple
        Arguments by position and by name, with a `Kind` in place of each array.
    arrays : list of TiledArray
        Those arrays.
    related : bool
        Whether arguments that are views are traced as views of their bases, so that what is one
        array is one.  Otherwise each is taken for an array of its own, and it does not matter
        which view it is.

    Attributes
    ----------
    reads_only : bool
        Whether nothing from outside is written: then it does not matter what is one array.
    sound : bool
        Whether the trace is right for the arguments that it was made for.
    """

    def __init__(self, function: Callable[..., Any], shape: Any, arrays: list[Any],
                 related: bool) -> None:
        self.relation = _relation(arrays) if related else ()
        self.steps = [array.steps for array in arrays] if related else None
        dense = _dense(arrays)
        own = None if related else [
            make_placeholder(array.node.form.kind, scalar=stands_for_scalar(array))
            for array in arrays]
        with traced() as scope:
            nodes, written, changed = self._record(
                function, shape, arrays, own, dense, scope)
            if scope.refused and changed is not None:
                changed.restore()
            scope.check_looks()
            if scope.leaked():
                if changed is not None:
                    changed.restore()
                raise TypeError(
                    "a function under tiledarray.jit stored an array where it outlives the call "
                    "(a global name, an attribute, a list); that would happen once, not at every "
                    "call. Return the array, or write into one with x[...] ="
                )
        if changed is not None:
            raise _Unsettled(changed)
        placeholders = [each.placeholder for each in self.inputs]
        wanted = dict.fromkeys([*nodes, *written.values()])
        self.targets = [x for x in wanted if x.buffer is None and x not in placeholders]
        self.made = [self._place(node, placeholders) for node in nodes]
        self.all_new = self.results == [("new", k, ()) for k in range(len(nodes))]
        self.written = [(k, *self._place(node, placeholders)) for k, node in written.items()]
        self.outputs_alone = self.all_new and not (self.written or self.hands_back) and (
            self.made == [("output", k) for k in range(len(self.targets))])
        self.forms = [leaf_form(node) for node in self.targets]
        # Whether NumPy copies it matters where it is written, handed back or asked how it lies.
        self.dense = dense if not related and (
            scope.asked or not self.reads_only or not self.all_new) else None
        self.without_axes = [(k, is_scalar(node)) for k, node in enumerate(placeholders)
                             if not node.form.kind.shape]
        self.plain: list[int] | None = None  # the arguments that are the inputs, if that is all
        if not related and all(each.argument is not None and not each.ways for each in self.inputs):
            self.plain = [each.argument for each in self.inputs if each.argument is not None]
        self.leaves: list[int | Buffer] = []  # of the plan: which inputs they are, or fixed ones
        self.executable: Executable | None = None
        if self.targets:
            self._plan(placeholders)

    def _record(self, function: Callable[..., Any], shape: Any, arrays: list[Any],
                own: list[Node] | None, dense: list[bool], scope: Scope,
                ) -> tuple[list[Node], dict[int, Node], Names | None]:
        """Run the function; return the new arrays that it returns, and what it has written.

        Also, if it has changed what is behind names as it may to remember something, the names.
        With ``own``, arguments that are views are arrays of their own, with these placeholders.
        """
        origins = [array.origin() for array in arrays]
        given, alone = (arrays, {}) if own is None else _stand_ins(
            arrays, origins, own, dense, scope)
        parts = iter(given)
        args = tuple([unflatten(part, parts) for part in shape[0]])
        kwargs = unflatten(shape[1], parts)
        names = variables_of(function, args, kwargs)
        self.watch = names.watch
        handed = Handed((args, tuple(kwargs.values())))
        results: list[Any] = []
        try:
            self.result_shape = flatten(function(*args, **kwargs), results, None, handed.known)
            self.changes = handed.changes(results)
        finally:
            changed, remembered = names.changed()
            if changed:
                names.restore()
        if changed:
            raise TypeError(
                f"a function under tiledarray.jit binds {', '.join(changed)} to another array or "
                "number, or takes something out; that would happen once, not at every call. Write "
                "into an array with x[...] =, or return the new one"
            )
        self.inputs = _inputs(scope.outside, [k for k in range(len(arrays)) if k not in alone],
                              origins, names.variables)
        roots = [handle for handle, _ in scope.outside]
        drawn = names.drawn()
        if drawn:
            raise TypeError(
                f"a function under tiledarray.jit takes the next of {', '.join(drawn)}; that would "
                "happen once, not at every call. Make what it takes an argument")
        self.inputs += [_Input(k, False, [], node) for k, (_, node) in alone.items()]
        nodes: list[Node] = []
        self.results = self._results(results, given, roots, alone, nodes)
        written = scope.written()
        for place, (handle, node) in enumerate(alone.values(), len(roots)):
            if handle.node is not node:
                written[place] = handle.node
        apart = [id(origins[k]) for k in alone]
        self.hands_back = bool(self.changes) or _names_given(self.result_shape)
        self.reads_only = not written
        self.sound = scope.sparse.isdisjoint(scope.asked) and (self.reads_only or (
            len({*apart}) == len(apart) and {*apart}.isdisjoint(map(id, roots))))
        return nodes, written, names if remembered else None

    def _results(self, results: list[Any], given: list[Any], roots: list[Any],
                 alone: dict[int, Any], nodes: list[Node]) -> list[tuple[str, int, Any]]:
        """Say what each result is: an argument, an array from outside, a new one; or a view.

        The values of the new ones are added to ``nodes``.  A part of a new one of which nothing
        else is returned is an array of its own, so that the rest need not be computed.
        """
        owners: dict[int, tuple[str, int]] = {
            **{id(handle): ("outside", k) for k, handle in enumerate(roots)},
            **{id(handle.origin()): ("argument", k) for k, (handle, _) in alone.items()},
        }
        same = {id(handle): k for k, handle in enumerate(given)}
        uses = Counter(id(x.origin()) for x in results)
        found: list[tuple[str, int, Any]] = []
        for x in results:
            if id(x) in same:
                found.append(("argument", same[id(x)], ()))
                continue
            origin = x.origin()
            if id(origin) not in owners and x.nbytes < origin.nbytes and (
                    uses[id(origin)] == 1 and not is_frozen(x.steps)):
                found.append(("new", len(nodes), ()))
                nodes.append(x.node)
                continue
            if id(origin) not in owners:
                owners[id(origin)] = "new", len(nodes)
                nodes.append(origin.node)
            found.append((*owners[id(origin)], handed_out(x.steps)))
        return found

    def _place(self, node: Node, placeholders: list[Node]) -> tuple[str, Any]:
        """Where a value comes from: the plan's outputs, an input's value, or a fixed one."""
        if node in placeholders:
            return "value", placeholders.index(node)
        return ("output", self.targets.index(node)) if node.buffer is None else ("fixed", node)

    def _plan(self, placeholders: list[Node]) -> None:
        traced_nodes = trace(self.targets)
        try:
            with execution.known.lock:
                device = execution.evaluate.place_of(
                    traced_nodes, self.targets, self.targets[0].device, again=True)
                executable, params = execution.plans.bound_to(traced_nodes, device)
                executable.kept = True
        except UnsupportedDtypeError as error:
            raise TypeError("a function under tiledarray.jit may use only dtypes that kernels "
                            "have: bool, integers, floats and complex numbers") from error
        meanwhile = execution.running.goes_op_by_op(executable, traced_nodes, self.targets)
        if not meanwhile:
            executable.compile()
        numbers = [number for _, number in executable.leaves]
        if meanwhile:  # which computes what the plan has left out, too
            numbers = execution.direct.leaves_op_by_op(executable, traced_nodes)
        for number in numbers:
            node = traced_nodes.nodes[number]
            known = placeholders.index(node) if node in placeholders else node.buffer
            if known is None:
                raise Disturbed
            self.leaves.append(known)
        self.executable = executable
        self.run = (
            execution.direct.Meanwhile(executable, params, traced_nodes) if meanwhile else
            execution.direct.runner(executable, params))

    # ---- calling -------------------------------------------------------------------------

    def found(self, arrays: list[Any], relation: Any, given: tuple[Any, Any]) -> list[Any] | None:
        """Return the arrays that are the inputs of a call; ``None`` if they are related otherwise.

        Names must lead to arrays of the same kinds by the same steps, and to what they led to where
        that is no array; and if the function writes, the same ones of all must be one array.
        """
        if relation != self.relation and not (self.reads_only and self.steps is None):
            return None
        met = self.watch.read(given)
        if met is None:
            return None
        if self.changes and not _are_apart(_containers(given), met):
            return None
        if self.dense is not None and _dense(arrays) != self.dense:
            return None
        if self.steps is not None and [array.steps for array in arrays] != self.steps:
            return None
        if self.plain is not None:
            inputs = [arrays[k] for k in self.plain]
            return inputs if self._takes(inputs) else None
        origins = [array if array._base is None else array.origin() for array in arrays]
        inputs = []
        for each in self.inputs:
            k = each.argument
            whole = each.whole and self.steps is not None
            array = None if k is None else origins[k] if whole else arrays[k]
            if each.ways:
                array = _by_names(each, array, met)
                if array is None:
                    return None
            inputs.append(array)
        if len(inputs) > 1 and not self.reads_only and (
                len({id(array.origin()) for array in inputs}) < len(inputs)):
            return None
        return inputs if self._takes(inputs) else None

    def _takes(self, inputs: list[Any]) -> bool:
        """Whether of inputs without axes those are scalars that were, and none is read-only.

        What writes into one that is runs anew, and fails at the user's line.
        """
        return all(stands_for_scalar(inputs[k]) is scalar for k, scalar in self.without_axes) and (
            not any(is_frozen(inputs[k].steps) for k, *_ in self.written))

    def __call__(self, arguments: list[Any], inputs: list[Any], given: tuple[Any, Any],
                 copies: list[Copy]) -> Any:
        """Run the plan on these arrays, write what the function writes, return what it returns."""
        buffers = [_buffer(array) for array in inputs]
        outputs = self._outputs(buffers)
        if self.outputs_alone:
            return unflatten(self.result_shape, iter([wrap(node) for node in outputs]))

        def node(source: str, at: Any) -> Node:
            if source == "output":
                return outputs[at]
            return copied(at) if source == "value" else at

        def copied(at: int) -> Node:
            return record.leaf(buffers[at].another(), inputs[at].node.device)

        new = [wrap(node(source, at)) for source, at in self.made]
        writes = [(inputs[k], node(source, at)) for k, source, at in self.written]
        found = _containers(given) if self.hands_back else []

        def finish() -> Any:
            if writes:
                assign_all(writes)
            made = new
            if not self.all_new:
                places = {"argument": arguments, "outside": inputs, "new": new}
                made = [follow(places[kind][k], steps) for kind, k, steps in self.results]
            return self._returned(made, [*found], copies)

        if not self.changes:
            return finish()
        try:
            return finish()
        except BaseException:  # a handler's, perhaps: all is changed, or nothing
            persist(finish)
            raise

    def _returned(self, made: list[Any], found: list[Any], copies: list[Copy]) -> Any:
        """Put together what the function returns, and change what it changes in containers."""
        arrays = iter(made)
        if not self.hands_back:
            return unflatten(self.result_shape, arrays)
        result = unflatten(self.result_shape, arrays, found)
        hand_back(self.changes, arrays, found, copies)
        return result

    def _outputs(self, buffers: list[Buffer]) -> list[Node]:
        """Run the plan on these inputs; step by step where someone watches."""
        executable = self.executable
        if executable is None:
            return []
        device = executable.device
        leaves: list[Any] = [
            buffers[known] if type(known) is int else known for known in self.leaves]
        for place, buffer in enumerate(leaves):
            if type(buffer) is tuple or buffer.device is not device:
                leaves[place] = placement.on_one_side(buffer, device)
        with execution.known.lock, device.active() if device.kind == "cuda" else _NOTHING:
            outputs = self.run(leaves)
        for buffer in outputs:
            buffer.plan = executable
        return [Node(form, (), None, buffer)
                for form, buffer in zip(self.forms, outputs, strict=True)]


def _dense(arrays: list[Any]) -> list[bool]:
    """Say of each array whether its elements follow one another in memory."""
    return [array._base is None or is_dense(array) for array in arrays]


def _containers(given: tuple[Any, Any]) -> list[Any]:
    """Return what may be changed among arguments by position and by name."""
    return [*containers((given[0], tuple(given[1].values())))]


def _are_apart(found: list[Any], met: list[Any]) -> bool:
    """Whether each container was given once, and no name leads to it."""
    return len({*map(id, found)} - {*map(id, met)}) == len(found)


def _names_given(shape: Any) -> bool:
    """Whether what is returned is, or has in it, a container that was given."""
    return type(shape) is Given or (type(shape) is tuple and any(map(_names_given, shape)))


def _stand_ins(arrays: list[Any], origins: list[Any], own: list[Node],
               dense: list[bool], scope: Scope,
               ) -> tuple[list[Any], dict[int, tuple[Any, Node]]]:
    """Return what the function is given, and the placeholders of what is taken for itself."""
    count = Counter(map(id, origins))
    given, alone = [], {}
    for k, (array, origin) in enumerate(zip(arrays, origins, strict=True)):
        if array is origin and count[id(origin)] == 1:
            given.append(array)
            continue
        handle = wrap(own[k])
        alone[k] = handle, own[k]
        if not dense[k]:
            scope.sparse.add(id(handle))
            handle = follow(handle, [identity(own[k].shape)])
        given.append(follow(handle, [Frozen()] if is_frozen(array.steps) else ()))
    return given, alone


def _inputs(outside: list[tuple[Any, Node]], given: list[int], origins: list[Any],
            variables: list[Variable]) -> list[_Input]:
    """Say of every array that was met where it is found at the next call.

    Raises
    ------
    TypeError
        It is neither an argument nor behind a name of the function's.
    """
    places = {id(origins[k]): k for k in reversed(given)}
    found = []
    for handle, node in outside:
        ways = [(each.position, each.handle.steps) for each in variables
                if each.handle.origin() is handle]
        k = places.get(id(handle))
        if k is None and not ways:
            raise TypeError(
                f"a function under tiledarray.jit uses an array of shape {node.shape} that is "
                "neither an argument nor behind a name of the function, its module or an object "
                "of these; what that will be at the next call is not known. Make it an argument"
            )
        found.append(_Input(k, True, ways, node))
    return found


def _by_names(wanted: _Input, array: Any, met: list[Any]) -> Any:
    """Return the array that all names of an input lead to; ``None`` if they no longer do."""
    for position, steps in wanted.ways:
        now = met[position]
        if not isinstance(now, TiledArray) or now.steps != steps:
            return None
        origin = now.origin()
        if array is not None and origin is not array:
            return None
        array = origin
    return array if array.node.form.kind is wanted.placeholder.form.kind else None


def _relation(arrays: list[Any]) -> tuple[Any, ...]:
    """What a trace depends on where arguments are views of one array, or the same; else nothing."""
    if len(arrays) < 2:
        return ()
    if len({id(array) for array in arrays if array._base is None}) == len(arrays):
        return ()
    origins = [array if array._base is None else array.origin() for array in arrays]
    first = {id(origin): k for k, origin in reversed([*enumerate(origins)])}
    if len(first) == len(arrays):
        return ()
    count = Counter(map(id, origins))
    return tuple((first[id(origin)], array.steps) if count[id(origin)] > 1 else None
                 for array, origin in zip(arrays, origins, strict=True))


def _the_same(arrays: list[Any], relation: tuple[Any, ...]) -> str:
    """Say which arguments are the same array as an earlier one, as ``x is y`` would tell."""
    if not relation:
        return ""
    first: dict[int, int] = {}
    places = [first.setdefault(id(array), k) for k, array in enumerate(arrays)]
    return "" if len(first) == len(arrays) else ",".join(map(str, places))


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Record a function once for each shape and dtype of its arguments, then run its plan.

    Calling the result costs one look-up instead of recording every operation again, and on a GPU
    its launches are one CUDA graph.

    Parameters
    ----------
    function : callable
        Takes and returns arrays, in nested tuples, lists, dicts and dataclasses.  It is run once
        for each combination of the arrays' shapes, dtypes and device and of its other arguments;
        of an object without a hash it matters which one it is.  Python's and NumPy's scalars among
        them are fixed in the plan, as are the bounds of slices, so pass what changes at every call
        as an array without axes.  The last 64 combinations are remembered; after 16 that differ in
        such numbers alone, the function is run as it is for others, recorded and evaluated as
        without `jit`.

    Returns
    -------
    callable
        With the same arguments and results.  The function is given containers and dataclasses of
        its own, and what it changes in these is changed in the caller's.  Arrays that the function
        writes into are written into, and those that it finds by a name are read and written anew
        at every call.  Names are its own, and those of functions and methods that it calls, of
        their modules and objects.  What else is behind them is compared at every call (numbers,
        texts, ``None``, which functions, the lengths and keys of containers, the values of arrays
        of NumPy's own), and where that has changed, the function is run again.  What is one array
        to the function, the same argument twice or overlapping views, is one; what it returns of
        its arguments are those, and views of them views.  NumPy arrays among the arguments are
        copied to the current device, and what was written into a copy is written into the array
        when the call is done.

    Raises
    ------
    TypeError
        At the call: the function looks at a value (``if x > 0``, ``float(x)``, ``print(x)``) that
        its arguments or arrays behind names decide, since what it does next would depend on that
        value, and is not recorded; draws random numbers, or
        takes the next of an iterator, which would be the same at every call; binds a name anew, or
        changes a container behind one, at every call; stores an array where it outlives the
        call, or uses one that no name leads to; writes into a NumPy array that overlaps another
        argument; or has dtypes that kernels do not know.

    Examples
    --------
    >>> import tiledarray as ta
    >>> @ta.jit
    ... def step(u, rate):
    ...     u[1:-1] += rate * (u[2:] - 2 * u[1:-1] + u[:-2])
    ...     return u
    >>> print(step(ta.array([0.0, 4.0, 0.0]), ta.array(0.25)))
    [0. 2. 0.]
    """
    remembered = _Traces(function)

    @functools.wraps(function)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():  # part of a larger function that is
            return function(*args, **kwargs)
        arrays: list[Any] = []
        copies: list[Copy] = []
        try:
            places = tuple([flatten(part, arrays, copies) for part in args])
            names = flatten(kwargs, arrays, copies) if kwargs else _NO_NAMES
        except RecursionError as error:
            if not contains_itself((args, kwargs)):
                raise
            raise TypeError(
                "an argument of a function under tiledarray.jit contains itself") from error
        result = remembered.call((args, kwargs), (places, names), arrays, copies)
        if copies:
            give_back(copies)
        return result

    return jitted


class _Unsettled(Exception):
    """A function has changed what is behind names, as it may if it remembers something there."""

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.names = names


def _traced(function: Callable[..., Any], shape: Any, arrays: list[Any]) -> _Trace | None:
    """Trace it, again if it has filled what it remembers: once more it must find that there.

    Raises
    ------
    TypeError
        If it does so at every call.
    """
    try:
        return _attempt(function, shape, arrays)
    except _Unsettled as first:
        try:
            return _attempt(function, shape, arrays)
        except _Unsettled as second:
            _, changed = second.names.changed()
            for each in (second, first):
                each.names.restore()
            raise TypeError(
                f"a function under tiledarray.jit changes {', '.join(changed)}; that would happen "
                "once, not at every call. Make it an argument, or return what is new"
            ) from None


def _attempt(function: Callable[..., Any], shape: Any, arrays: list[Any]) -> _Trace | None:
    """Trace it, first as if every view were an array of its own: that serves more calls.

    ``None`` where it has to be run as it is: a gradient will ask for it, nothing compiles, or
    something else was recorded on the way.
    """
    try:
        if not _the_same(arrays, _relation(arrays)):
            apart = _Trace(function, shape, arrays, related=False)
            if apart.sound:
                return apart
        return _Trace(function, shape, arrays, related=True)
    except (HasHistory, Disturbed):
        return None
    except NOT_COMPILED as error:
        if of_a_handler(error):
            raise
        execution.doing_without.do_without(error)
        return None


class _Traces:
    """Those of one function, by what its arguments are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._by_key: OrderedDict[Any, list[_Trace]] = OrderedDict()
        self._made: Counter[Any] = Counter()  # how many were made, by the key but for its numbers

    def __len__(self) -> int:
        return len(self._by_key)

    def call(self, given: tuple[Any, Any], shape: tuple[Any, Any], arrays: list[Any],
             copies: list[Copy]) -> Any:
        """Call the function: by a trace, which is made if there is none, or as it is."""
        function = self._function
        args, kwargs = given
        if _any_keeps(arrays):  # a gradient will ask for what the function does
            return function(*args, **kwargs)
        relation = _relation(arrays)
        key = (*shape, None if arrays else current(), config.tf32, _the_same(arrays, relation))
        if config.compile != "never":
            for each in self.of(key):
                inputs = each.found(arrays, relation, given)
                if inputs is not None:
                    if each.plain is None and _any_keeps(inputs):
                        return function(*args, **kwargs)
                    return each(arrays, inputs, given, copies)
        device = arrays[0].device if arrays else current()
        if execution.running.compiler_problem(device) is not None:
            return function(*args, **kwargs)
        if self.change_in_numbers(key):
            if copies and _are_apart(_containers(given), []):
                return run_on_copies(function, shape, arrays, copies, given)
            return function(*args, **kwargs)
        made = _traced(function, shape, arrays)
        if made is None:
            return function(*args, **kwargs)
        inputs = made.found(arrays, relation, given)
        if inputs is None:  # a signal handler that ran meanwhile has changed what it was made for
            return function(*args, **kwargs)
        self.keep(key, made)
        return made(arrays, inputs, given, copies)

    def of(self, key: Any) -> Sequence[_Trace]:
        """Return those for such arguments, for other arrays behind the names each."""
        return self._by_key.get(key, ())

    def change_in_numbers(self, key: Any) -> bool:
        """Whether so many differ from one for such arguments in numbers alone that more will."""
        return self._made[outline(key)] >= NUMBERS_TRIED

    def keep(self, key: Any, made: _Trace) -> None:
        """Remember one; the one that was made longest ago is forgotten for it."""
        if len(self._made) >= OUTLINES_COUNTED:
            self._made.clear()
        self._made[outline(key)] += 1
        self._by_key[key] = [made, *self.of(key)[:VARIANTS_REMEMBERED - 1]]
        self._by_key.move_to_end(key)
        while len(self._by_key) > TRACES_REMEMBERED:
            self._by_key.popitem(last=False)


def _any_keeps(arrays: list[Any]) -> bool:
    """Whether the history of some array is wanted."""
    for array in arrays:
        node = (array if array._base is None else array.origin())._recorded
        if node is not None and node.keeps:
            return True
    return False


def _buffer(array: TiledArray) -> Buffer:
    """The array's value, dense."""
    if array._base is None:
        buffer = array._node.buffer
        if isinstance(buffer, Buffer):
            return buffer
    found = array.evaluated()
    return found if isinstance(found, Buffer) else array.copy().evaluated()
