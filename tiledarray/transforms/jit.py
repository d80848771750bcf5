"""`jit`: record a function once, then run its plan on new arrays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.arrays.handle import wrap
from tiledarray.arrays.tiledarray import TiledArray, from_host
from tiledarray.devices.device import current
from tiledarray.devices.storage import Buffer
from tiledarray.execution import evaluate
from tiledarray.execution.executable import Executable, observers
from tiledarray.execution.replay import Replay, can_replay
from tiledarray.fusion.ir import Value
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Kind, Node, form_of
from tiledarray.graph.program import trace
from tiledarray.ops import movement
from tiledarray.ops.op import Leaf
from tiledarray.recording import record
from tiledarray.recording.stretch import tracing


def _flatten(tree: Any, arrays: list[Any]) -> Any:
    """Take the arrays out of nested tuples, lists and dicts.

    What remains can be a dict key; in it each array has left its `Kind`.
    """
    if isinstance(tree, (TiledArray, np.ndarray)):
        array = tree if isinstance(tree, TiledArray) else from_host(tree)
        arrays.append(array)
        return array.node.form.kind
    if isinstance(tree, (tuple, list)):
        return (type(tree), *[_flatten(part, arrays) for part in tree])
    if isinstance(tree, dict):
        return (dict, *[(name, _flatten(part, arrays)) for name, part in tree.items()])
    if isinstance(tree, (bool, int, float, complex)):
        return (type(tree), _Scalar(tree))
    return tree


class _Scalar:
    """A Python scalar as part of a key: equal to what has its very bits.

    ``0.0 == -0.0``, though a plan tells them apart, and a NaN equals not even itself.
    """

    __slots__ = ("value", "_text")

    def __init__(self, value: bool | int | float | complex) -> None:
        self.value = value
        self._text = repr(value)  # tells signs of zeros apart

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Scalar) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def _unflatten(shape: Any, arrays: Iterator[Any]) -> Any:
    """Put the arrays back, in the order in which `_flatten` took them out."""
    if type(shape) is Kind:
        return next(arrays)
    if isinstance(shape, tuple) and shape and isinstance(shape[0], type):
        kind, *parts = shape
        if kind is dict:
            return {name: _unflatten(part, arrays) for name, part in parts}
        if kind in (bool, int, float, complex):
            return parts[0].value
        made = [_unflatten(part, arrays) for part in parts]
        return kind(*made) if hasattr(kind, "_fields") else kind(made)
    return shape


_NO_NAMES = (dict,)  # what `_flatten` makes of no keyword arguments
_NOTHING = contextlib.nullcontext()


class _Call:
    """A function recorded for arguments of certain shapes and dtypes."""

    def __init__(self, function: Callable[..., Any], shape: Any, buffers: list[Buffer]) -> None:
        inputs = [record.leaf(buffer) for buffer in buffers]
        handles = [wrap(node) for node in inputs]
        with tracing():
            arrays = iter(handles)
            args = [_unflatten(part, arrays) for part in shape[0]]
            kwargs = _unflatten(shape[1], arrays)
            results: list[Any] = []
            self.result_shape = _flatten(function(*args, **kwargs), results)
            nodes = [x.node for x in results]
            written = {k: handle.node for k, handle in enumerate(handles)
                       if handle.node is not inputs[k]}
        wanted = dict.fromkeys([*nodes, *written.values()])
        self.targets = [node for node in wanted if node.buffer is None]
        same = {id(handle): k for k, handle in enumerate(handles)}
        self.results: list[tuple[str, Any]] = [
            ("argument", same[id(x)]) if id(x) in same else self._place(x.node, inputs)
            for x in results
        ]
        self.written = [(k, *self._place(node, inputs)) for k, node in written.items()]
        self.run: Callable[[dict[Value, Buffer]], list[Buffer]]
        self.step_by_step: Callable[[dict[Value, Buffer]], list[Buffer]]
        self.leaves: list[tuple[Value, int | Buffer]] = []
        self.forms = [form_of(movement.leaf, None, node.form.kind, 0) for node in self.targets]
        self.executable: Executable | None = None
        if self.targets:
            self._plan(inputs)

    def _place(self, node: Node, inputs: list[Node]) -> tuple[str, Any]:
        """Where a value comes from: the plan's outputs, an argument's value, or a fixed one."""
        if node.buffer is None:
            return "output", self.targets.index(node)
        return ("value", inputs.index(node)) if node in inputs else ("fixed", node)

    def _plan(self, inputs: list[Node]) -> None:
        traced = trace(self.targets)
        device = self.targets[0].device
        try:
            with evaluate.lock:
                executable = evaluate.executable_for(traced, device)
        except UnsupportedDtypeError as error:
            raise TypeError("a function under tiledarray.jit may use only dtypes that kernels "
                            "have: bool, integers, floats and complex numbers") from error
        executable.compile()
        for value in executable.plan.values:
            if isinstance(value.op, Leaf):
                node = traced.nodes[value.attrs]
                known = inputs.index(node) if node in inputs else node.buffer
                self.leaves.append((value, known))
        self.executable = executable
        self.step_by_step = lambda leaves: executable.run(leaves, traced.params)
        replays = can_replay(executable)
        self.run = Replay(executable, traced.params) if replays else self.step_by_step

    def _outputs(self, buffers: list[Buffer]) -> list[Node]:
        """Run the plan on these arguments; step by step where someone watches."""
        executable = self.executable
        if executable is None:
            return []
        leaves = {value: buffers[known] if isinstance(known, int) else known
                  for value, known in self.leaves}
        device = executable.device
        with evaluate.lock, device.active() if device.kind == "cuda" else _NOTHING:
            outputs = (self.step_by_step if observers else self.run)(leaves)
        for buffer in outputs:
            buffer.plan = executable
        return [Node(form, (), None, buffer)
                for form, buffer in zip(self.forms, outputs, strict=True)]

    def __call__(self, arguments: list[Any]) -> Any:
        buffers = [_buffer(array) for array in arguments]
        outputs = self._outputs(buffers)

        def node(source: str, at: Any) -> Node:
            if source == "output":
                return outputs[at]
            return record.leaf(buffers[at]) if source == "value" else at

        made = [arguments[at] if source == "argument" else wrap(node(source, at))
                for source, at in self.results]
        for k, source, at in self.written:
            arguments[k].assign(node(source, at))
        return _unflatten(self.result_shape, iter(made))


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Record a function once for each shape and dtype of its arguments, then run its plan.

    Calling the result costs one look-up instead of recording every operation again, and on a GPU
    its launches are one CUDA graph.

    Parameters
    ----------
    function : callable
        Takes and returns arrays, in nested tuples, lists and dicts.  It is run once for each
        combination of the arrays' shapes, dtypes and device and of its other arguments, which
        must be hashable; Python scalars among them are fixed in the plan, so pass what changes
        at every call as an array without axes.

    Returns
    -------
    callable
        With the same arguments and results.  Arrays that the function writes into are written
        into.  NumPy arrays among the arguments are copied to the current device.

    Raises
    ------
    TypeError
        The function looks at a value (``if x > 0``, ``float(x)``, ``print(x)``): what it does
        next would depend on that value, and is not recorded.

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
    calls: dict[Any, _Call] = {}

    @functools.wraps(function)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        arrays: list[Any] = []
        places = tuple([_flatten(part, arrays) for part in args])
        names = _flatten(kwargs, arrays) if kwargs else _NO_NAMES
        key = (places, names, None if arrays else current())
        call = calls.get(key)
        if call is None or config.compile == "never":
            device = arrays[0].device if arrays else current()
            if evaluate.compiler_problem(device) is not None:
                return function(*args, **kwargs)
            call = calls[key] = _Call(function, key, [_buffer(array) for array in arrays])
        return call(arrays)

    return jitted


def _buffer(array: TiledArray) -> Buffer:
    """The array's value, dense."""
    found = array.evaluated()
    return found if isinstance(found, Buffer) else array.copy().evaluated()
