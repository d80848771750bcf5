"""`jit`: record a function once, then run its plan on new arrays."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray import evaluation, recording
from tiledarray.array import TiledArray, from_host
from tiledarray.execution import Executable, observers
from tiledarray.fusion.ir import Value
from tiledarray.fusion.trace import trace
from tiledarray.graph import Node
from tiledarray.handle import wrap
from tiledarray.ops.op import Leaf
from tiledarray.recorder import tracing
from tiledarray.replay import Replay, can_replay
from tiledarray.runtime.buffer import Buffer
from tiledarray.runtime.device import current
from tiledarray.signatures import UnsupportedDtypeError


class _Place:
    """Stands for the ``number``-th array in a nested structure."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and other.number == self.number

    def __hash__(self) -> int:
        return hash((_Place, self.number))


def _flatten(tree: Any, arrays: list[Any]) -> Any:
    """Take the arrays out of nested tuples, lists and dicts; what remains can be a dict key."""
    if isinstance(tree, (TiledArray, np.ndarray)):
        arrays.append(tree)
        return _Place(len(arrays) - 1)
    if isinstance(tree, (tuple, list)):
        return (type(tree), *[_flatten(part, arrays) for part in tree])
    if isinstance(tree, dict):
        return (dict, *[(name, _flatten(part, arrays)) for name, part in tree.items()])
    return (type(tree), tree) if isinstance(tree, (bool, int, float, complex)) else tree


def _unflatten(shape: Any, arrays: list[Any]) -> Any:
    if isinstance(shape, _Place):
        return arrays[shape.number]
    if isinstance(shape, tuple) and shape and isinstance(shape[0], type):
        kind, *parts = shape
        if kind is dict:
            return {name: _unflatten(part, arrays) for name, part in parts}
        if kind in (bool, int, float, complex):
            return parts[0]
        made = [_unflatten(part, arrays) for part in parts]
        return kind(*made) if hasattr(kind, "_fields") else kind(made)
    return shape


class _Call:
    """A function recorded for arguments of certain shapes and dtypes."""

    def __init__(self, function: Callable[..., Any], shape: Any, buffers: list[Buffer]) -> None:
        inputs = [recording.leaf(buffer) for buffer in buffers]
        handles = [wrap(node) for node in inputs]
        with tracing():
            args, kwargs = _unflatten(shape, handles)
            results: list[Any] = []
            self.result_shape = _flatten(function(*args, **kwargs), results)
            results = [from_host(x) if isinstance(x, np.ndarray) else x for x in results]
            nodes = [x.node for x in results]
            written = [handle.node for handle in handles]
        self.written = [k for k, node in enumerate(written) if node is not inputs[k]]
        wanted = [*nodes, *(written[k] for k in self.written)]
        self.targets = list(dict.fromkeys(node for node in wanted if node.buffer is None))
        same = {id(handle): k for k, handle in enumerate(handles)}
        self.places: list[tuple[str, Any]] = [
            ("argument", same[id(x)]) if id(x) in same else self._place(x.node, inputs)
            for x in results
        ]
        self.places += [self._place(written[k], inputs) for k in self.written]
        self.lock = threading.Lock()
        self.run: Callable[[dict[Value, Buffer]], list[Buffer]]
        self.step_by_step: Callable[[dict[Value, Buffer]], list[Buffer]]
        self.leaves: list[tuple[Value, int | Buffer]] = []
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
            executable = evaluation.executable_for(traced, device)
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
        self.step_by_step = lambda leaves: executable.run(leaves, traced.params, lambda *_: None)
        replays = can_replay(executable)
        self.run = Replay(executable, traced.params) if replays else self.step_by_step

    def _outputs(self, leaves: dict[Value, Buffer]) -> list[Node]:
        """Run the plan; step by step where someone watches."""
        if self.executable is None:
            return []
        device = self.executable.device
        active = device.active() if device.kind == "cuda" else contextlib.nullcontext()
        with self.lock, active:
            buffers = (self.step_by_step if observers else self.run)(leaves)
        for buffer in buffers:
            buffer.plan = self.executable
        return [recording.leaf(buffer) for buffer in buffers]

    def __call__(self, arguments: list[Any], buffers: list[Buffer]) -> Any:
        leaves = {value: buffers[known] if isinstance(known, int) else known
                  for value, known in self.leaves}
        outputs = self._outputs(leaves)
        made = []
        for kind, at in self.places:
            if kind == "argument":
                made.append(arguments[at])
            elif kind == "value":
                made.append(wrap(recording.leaf(buffers[at])))
            else:
                made.append(wrap(outputs[at] if kind == "output" else at))
        count = len(made) - len(self.written)
        for k, value in zip(self.written, made[count:], strict=True):
            arguments[k][...] = value
        return _unflatten(self.result_shape, made[:count])


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
        shape = _flatten((args, kwargs), arrays)
        arrays = [x if isinstance(x, TiledArray) else from_host(x) for x in arrays]
        buffers = [_buffer(x) for x in arrays]
        key = (shape, *[(b.array.shape, b.array.dtype, b.device) for b in buffers])
        device = buffers[0].device if buffers else current()
        if evaluation.compiler_problem(device) is not None:
            return function(*args, **kwargs)
        call = calls.get(key)
        if call is None:
            call = calls[key] = _Call(function, shape, buffers)
        return call(arrays, buffers)

    return jitted


def _buffer(array: TiledArray) -> Buffer:
    """The array's value, dense."""
    found = array.evaluated()
    return found if isinstance(found, Buffer) else array.copy().evaluated()
