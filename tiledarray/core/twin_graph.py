"""The recorded graph in Python, and the walk over what is pending that a plan is looked up by.

This is `graph.c` and `walk.c` written again, in their order and with their names: what is changed
here is changed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile
from struct import Struct
from typing import Any
from weakref import ref

MOVES = 1  # its scalars are starts: a plan knows which of them are 0
UPDATES = 2  # overwrites a part of its first input
CONSTANT = 4  # has no nodes among its inputs, and may be computed at any time
SMOOTH = 8  # may have a derivative: its elements are real or complex numbers

# Whether a node's history is wanted, for a gradient.
KEEPS = 1  # it forgets no inputs, nor does what is computed from it
BEGINS = 2  # the history begins with it: its own inputs are let go

Start = tuple[int | None, int]  # reference to another start (None: 0), and how far behind it
Key = tuple  # what a plan is looked up by

NEAR = 2  # starts of views that lie so close are taken to move together
_COMPLEX = Struct("dd")  # two NaNs may differ, too


class Kind:
    """Shape, dtype and device of a value."""

    __slots__ = ("shape", "dtype", "device", "size")

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: Any, size: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.size = size  # elements on the host, at least 1; elsewhere no number is larger


class Form:
    """Everything about a node but its operands."""

    __slots__ = ("op", "attrs", "kind", "arity", "roles", "call")

    def __init__(self, op: Any, attrs: Any, kind: Kind, arity: int, roles: int = 0) -> None:
        self.op = op
        self.attrs = attrs
        self.kind = kind
        self.arity = arity
        self.roles = roles
        self.call: Any = None


# All nodes whose history is wanted, by the order in which that was found.
_keeping: dict[int, Any] = {}
_numbers = count()


class Node:
    """One recorded operation and, once computed, its value."""

    __slots__ = ("form", "inputs", "site", "buffer", "keeps", "_place", "__weakref__")

    def __init__(
        self, form: Form, inputs: tuple[Any, ...], site: Any = None, buffer: Any = None
    ) -> None:
        self.form = form
        self.inputs = inputs
        self.site = site
        self.buffer = buffer
        self.keeps = 0
        self.inherit()

    def forget_inputs(self) -> None:
        """Let go of the inputs, unless they are kept: the value has been computed."""
        if self.keeps != KEEPS:
            self.inputs = ()

    def inherit(self) -> None:
        """Say anew whether the history is wanted: where that of an input is."""
        wanted = self.form.roles & SMOOTH and any_keeps(self.inputs)
        if wanted or self.keeps:
            self.keep(KEEPS if wanted else 0)

    def keep(self, keeps: int) -> None:
        """Say whether the history is wanted."""
        if keeps and not self.keeps:
            self._place = place = next(_numbers)
            _keeping[place] = ref(self, lambda _: _keeping.pop(place, None))
        elif self.keeps and not keeps:
            _keeping.pop(self._place, None)
        self.keeps = keeps

    def kept_since(self) -> list[Node]:
        """All nodes made since this one whose history is wanted, inputs first; it is one itself."""
        while True:
            try:
                places = [*takewhile(lambda place: place > self._place, reversed(_keeping))]
                break
            except RuntimeError:  # another thread has recorded meanwhile
                continue
        found = [_keeping[place]() for place in reversed(places) if place in _keeping]
        return [node for node in found if node is not None]

    @property
    def op(self) -> Any:
        """What computes the value."""
        return self.form.op

    @property
    def attrs(self) -> Any:
        """What is static about this use of the op."""
        return self.form.attrs

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.form.kind.shape

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return self.form.kind.dtype

    @property
    def device(self) -> Any:
        """Where the value lives."""
        return self.form.kind.device

    @property
    def pending(self) -> bool:
        """Whether the value is still to be computed."""
        return self.buffer is None

    def __repr__(self) -> str:
        state = "pending" if self.buffer is None else "computed"
        return f"<Node {self.op.name} {self.dtype}{list(self.shape)} {state}>"


def any_keeps(inputs: tuple[Any, ...]) -> bool:
    """Whether the history of some input is wanted."""
    return any(type(x) is Node and x.keeps for x in inputs)


# ---- the walk -----------------------------------------------------------------------------------


def trace(targets: Sequence[Node]) -> tuple[Any, ...]:
    """Number what is pending below the targets, and collect what it binds; see `graph.program`."""
    numbers = _numbered(targets)
    key: list[Any] = []
    params: list[Any] = []
    known_params: dict[Any, int] = {}
    updates: list[int] = []
    leaves: list[int] = []
    starts: set[int | None] = set()
    for node in numbers:
        if node.buffer is not None:
            leaves.append(numbers[node])
            key.append(node.form.kind)
            continue
        form = node.form
        key.append(form)
        moves = form.roles & MOVES
        for x in node.inputs:
            if type(x) is Node:
                key.append(numbers[x])
                continue
            number = None
            if x or not moves:  # a reference to a parameter is never 0
                number = known_params.get(id(x)) or _param(x, params, known_params)
            key.append(number)
            if moves:
                starts.add(number)
        if len(node.inputs) != form.arity:
            # An evaluation takes the inputs of what it computes (`execution.taken`), and a signal
            # handler or a finaliser that runs in the middle of it may come by such a node.
            raise RuntimeError("an array cannot be looked at in the middle of its own evaluation, "
                               "nor once that has lost what it was made of; what runs in the "
                               "middle of things (a signal handler, a finaliser) may write into "
                               "arrays, and is to look at them later")
        if form.roles & UPDATES and node.inputs[0].buffer is not None:
            updates.append(numbers[node.inputs[0]])
    outputs = tuple([numbers[target] for target in targets])
    key += kinds_of(params, starts)
    key += outputs
    return tuple(key), list(numbers), params, outputs, updates, leaves


def parts_of(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts of a key."""
    return key


def _pending_inputs(node: Node) -> Sequence[Any]:
    return node.inputs if node.buffer is None else ()


def _kept_inputs(node: Node) -> Sequence[Any]:
    return () if node.keeps == BEGINS else [x for x in node.inputs if type(x) is Node and x.keeps]


def history(targets: list[Node]) -> list[Node]:
    """Return what is kept of the history of the targets, inputs first; and they themselves."""
    return [*_numbered(targets, _kept_inputs)]


def _numbered(targets: Sequence[Node], inputs: Any = _pending_inputs) -> dict[Node, int]:
    """Number the nodes below the targets, inputs first.  Leaves have no inputs."""
    numbers: dict[Node, int] = {}
    above: list[Node] = []  # from the target down to the node: recordings are too deep to recurse
    for node in targets:
        while True:
            for x in inputs(node):
                if type(x) is Node and x not in numbers:
                    above.append(node)
                    node = x
                    break
            else:
                if node not in numbers:
                    numbers[node] = len(numbers)
                if not above:
                    break
                node = above.pop()
    return numbers


def _param(x: Any, params: list[Any], known: dict[Any, int]) -> int:
    """Return the reference to a scalar, the same for all that are equal, zeros' signs included."""
    kind = type(x)
    if kind is complex:
        value: Any = kind, _COMPLEX.pack(x.real, x.imag)
    else:
        value = kind, x if x else repr(x)
    reference = known.get(value)
    if reference is None:
        reference = known[value] = ~len(params)
        params.append(x)
    known[id(x)] = reference
    return reference


def kinds_of(params: Sequence[Any], starts: set[int | None]) -> list[type | Start]:
    """Return the type of every parameter, or of a start near another where it lies."""
    kinds: list[type | Start] = [type(x) for x in params]
    if len(starts) < 2:
        return kinds
    anchor = None
    base = last = 0 if None in starts else -NEAR - 1
    for start in sorted(filter(None, starts), key=lambda reference: params[~reference]):
        value = params[~start]
        if value - last <= NEAR:
            kinds[~start] = anchor, value - base
        else:
            anchor, base = start, value
        last = value
    return kinds
