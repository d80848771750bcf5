"""The notation in which library calls declare what they are for many samples (`Library.batch`).

A rule is one Python expression.  In it ``call`` is a `Call`: the call as it was recorded for one
sample, and its inputs for all of them; ``attrs`` is what is static about it, and ``x`` its first
input for one sample.  It gives the result with the axis of the samples in front, or ``None`` where
there is none better than a call for each sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiledarray.api.linalg import solve
from tiledarray.arrays.handle import wrap
from tiledarray.gradients.notation import xp
from tiledarray.gradients.products import letters_of, turned
from tiledarray.graph.node import Node
from tiledarray.recording import record

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A library call that was recorded for one sample.

    Attributes
    ----------
    node : Node
        Of one sample.
    inputs : tuple
        Of all samples: nodes and scalars.
    mapped : tuple of bool
        Which of them differ from sample to sample: they have the samples' axis in front.
    count : int
        Of samples.
    """

    node: Node
    inputs: tuple[Any, ...]
    mapped: tuple[bool, ...]
    count: int

    def again(self, attrs: Any = None, inputs: Sequence[Any] | None = None,
              shape: Shape | None = None) -> Node:
        """Make the same call of all samples."""
        node = self.node
        return record.library(
            node.op, self.inputs if inputs is None else inputs,
            node.attrs if attrs is None else attrs,
            (self.count, *node.shape) if shape is None else shape, node.dtype, node.device)

    def of_one(self, *places: int) -> Node | None:
        """Make it of all samples if these inputs are the same for all."""
        return None if any(self.mapped[place] for place in places) else self.again()

    def spread(self) -> list[Node]:
        """Return the inputs as if all were different for each sample."""
        return [x if mapped else record.broadcast_to(x, (self.count, *x.shape))
                for x, mapped in zip(self.inputs, self.mapped, strict=True)]

    def rank(self, place: int) -> int:
        """Return how many axes an input has for one sample."""
        x = self.node.inputs[place]
        return len(x.shape) if type(x) is Node else 0

    def arrays(self) -> list[Any]:
        """Return the inputs as arrays."""
        return [wrap(x) if type(x) is Node else x for x in self.inputs]


def lifted(node: Node, rank: int, wanted: int) -> Node:
    """Return a value of samples of a rank as one of another rank, which broadcasts alike."""
    return record.expand_dims(node, range(1, 1 + wanted - rank)) if wanted > rank else node


# Axes --------------------------------------------------------------------------------------------


def shifted(axis: int) -> int:
    """Return an axis of a sample as one of all samples."""
    return axis + 1 if axis >= 0 else axis


def behind(attrs: Any, x: Node) -> Any:
    """Return keyword arguments whose axes are those of all samples; ``x`` is of one."""
    found = dict(attrs)
    for name in {"axis", "axes"} & found.keys():
        given = found[name]
        if given is None:
            given = tuple(range(len(x.shape)))
        found[name] = shifted(given) if type(given) is int else tuple(map(shifted, given))
    return tuple(sorted(found.items()))


def windows_of_each(call: Call) -> Node:
    """Return the windows of each sample's array."""
    of_each = ((0, 1),), *(
        tuple((axis + 1, step) for axis, step in terms) for terms in call.node.attrs)
    array, *starts = call.inputs
    return call.again(of_each, (array, 0, *starts))


def ranked(call: Call) -> Node:
    """Return quantiles of each sample: those that were asked for are in front."""
    attrs = behind(call.node.attrs, call.node.inputs[0])
    if type(dict(attrs).get("q")) is not tuple:
        return call.again(attrs)
    number, *rest = call.node.shape
    found = call.again(attrs, shape=(number, call.count, *rest))
    return record.transpose(found, (1, 0, *range(2, 2 + len(rest))))


# Products ----------------------------------------------------------------------------------------


def aligned(call: Call, *cores: int) -> Node:
    """Return a call of inputs that end with so many axes of their own; those ahead broadcast."""
    ahead = max(call.rank(place) - core for place, core in enumerate(cores))
    inputs = [
        lifted(x, call.rank(place), ahead + core) if mapped else x
        for place, (x, core, mapped) in enumerate(
            zip(call.inputs, cores, call.mapped, strict=True))]
    return call.again(inputs=inputs)


def multiplied(call: Call) -> Any:
    """Return matrix products, by one product where one factor is the same for all samples."""
    x, y = call.arrays()
    ranks = call.rank(0), call.rank(1)
    left, right = call.mapped
    if ranks == (1, 1):
        if left and right:
            return (x * y).sum(axis=-1, dtype=call.node.dtype)
        return x @ y if left else y @ x
    if ranks[0] == 1:
        if not left or (not right and ranks[1] == 2):
            return x @ y
        x = wrap(lifted(x.node, 1, ranks[1]))
        return (x @ y)[..., 0, :]
    if ranks[1] == 1:
        if not right:
            return x @ y
        if not left and ranks[0] == 2:
            return y @ x.T
        y = wrap(lifted(y[..., None].node, 2, ranks[0]))
        return (x @ y)[..., 0]
    if left and not right and ranks[1] == 2:
        shape = (call.count, *call.node.shape)
        rows = math.prod(shape[:-1])
        return (x.reshape(rows, x.shape[-1]) @ y).reshape(shape)
    rank = max(ranks)
    x, y = (wrap(lifted(z.node, own, rank)) if mapped else z
            for z, own, mapped in zip((x, y), ranks, call.mapped, strict=True))
    return x @ y


def dotted(call: Call, axis: int) -> Any:
    """Return products as those of `numpy.dot` and `numpy.inner`, which sum over this axis of y."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ranks = call.rank(0), call.rank(1)
    first = letters[1:1 + ranks[0]]
    second = list(letters[1 + ranks[0]:1 + sum(ranks)])
    place = max(axis, -len(second)) % len(second)
    second[place] = first[-1]
    result = first[:-1] + "".join(x for k, x in enumerate(second) if k != place)
    return _summed(call, (first, "".join(second)), result, optimize=True)


def summed(call: Call) -> Any:
    """Return an `numpy.einsum` with a letter for the samples."""
    attrs = dict(call.node.attrs)
    ranks = [call.rank(place) for place in range(len(call.inputs))]
    terms, result = letters_of(attrs["subscripts"], ranks, len(call.node.shape))
    return _summed(call, terms, result, optimize=attrs["optimize"])


def _summed(call: Call, terms: Sequence[str], result: str, *, optimize: Any) -> Any:
    used = {*"".join(terms), *result}
    own = next(x for x in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if x not in used)
    given = ",".join(own * mapped + term for term, mapped in zip(terms, call.mapped, strict=True))
    return xp.einsum(f"{given}->{own}{result}", *call.arrays(), optimize=optimize)


def solved(call: Call) -> Any:
    """Return solutions of equations; of one matrix for all samples by one factorization."""
    x, y = call.arrays()
    left, right = call.mapped
    if call.rank(1) > 1:
        return aligned(call, 2, 2)
    if not left and call.rank(0) == 2:
        return turned(solve(x, turned(y)))
    y = y[..., None]
    if right:
        y = wrap(lifted(y.node, 2, call.rank(0)))
    return solve(x, y)[..., 0]


# Indices -----------------------------------------------------------------------------------------


class _Index:
    """An index for all samples, from that of one.

    NumPy puts the axes of index arrays in the place of the first of them, where they stand side by
    side, else in front.

    Parameters
    ----------
    call : Call
    first : int
        Where the inputs begin that the index is made of.
    own : bool
        Whether what is indexed has an axis of samples.

    Attributes
    ----------
    template : tuple of str
    inputs : list
        Index arrays and numbers.
    order : tuple of int
        Which axes of what the index reads are those of the result, which has the samples in front.
    """

    def __init__(self, call: Call, first: int, own: bool) -> None:
        template = call.node.attrs
        places = [k for k, part in enumerate(template) if part == "at"]
        together = places[-1] - places[0] == len(places) - 1
        ahead = places[0] if together else 0
        self.width = max(call.rank(k) for k in range(first, len(call.inputs)))
        self.rank = len(template) - len(places) + self.width  # of what is read for one sample
        differ = any(call.mapped[first:])
        self.inputs: list[Any] = [
            lifted(x, call.rank(k), self.width) if call.mapped[k] else x
            for k, x in enumerate(call.inputs) if k >= first]
        self.template = template
        if not own:  # the samples are the first axis of the index arrays
            self.order = self._front(ahead)
        elif not differ:
            self.template = (":", *template)
            self.order = self._front(0 if together else self.width)
        else:
            numbers = record.places(call.count, call.node.device)
            self.template = ("at", *template)
            self.inputs.insert(0, record.expand_dims(numbers, range(1, 1 + self.width)))
            axes = [*range(1 + self.rank)]
            at = axes[1:1 + self.width]  # they follow the samples
            others = axes[1 + self.width:]
            self.order = (0, *others[:ahead], *at, *others[ahead:])

    def _front(self, place: int) -> tuple[int, ...]:
        return (place, *(axis for axis in range(1 + self.rank) if axis != place))

    def read_shape(self, shape: Shape) -> Shape:
        """Return the shape of what the index reads, given that of the result."""
        return tuple(shape[k] for k in np.argsort(self.order))


def taken(call: Call) -> Node:
    """Return the elements at the places of an index, for each sample."""
    index = _Index(call, 1, call.mapped[0])
    shape = index.read_shape((call.count, *call.node.shape))
    found = call.again(index.template, (call.inputs[0], *index.inputs), shape)
    return record.transpose(found, index.order)


def written(call: Call) -> Node:
    """Return each sample's array with values written, or added, at the places of an index."""
    index = _Index(call, 2, own=True)
    old, new = call.inputs[:2]
    rank = call.rank(1)
    if not call.mapped[0]:
        old = record.broadcast_to(old, (call.count, *old.shape))
    if not call.mapped[1]:
        new = record.expand_dims(new, (0,))
    new = record.transpose(lifted(new, rank, index.rank), tuple(np.argsort(index.order).tolist()))
    return call.again(index.template, (old, new, *index.inputs))
