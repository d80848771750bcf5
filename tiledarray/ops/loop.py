"""Recordings that are done block by block, or again and again."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tiledarray.ops.op import Loop, Repeat


def _inside_plans(xp: Any, *inputs: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
    raise AssertionError("what runs a plan runs what is in it")


@functools.cache
def loop(outputs: int) -> Loop:
    """Return the op of a loop of so many results; a value's ``attrs`` is a `fusion.bodies.Body`."""
    return Loop("loop", _inside_plans, outputs=outputs)


@functools.cache
def repeat(name: str, outputs: int) -> Repeat:
    """Return the op of a loop over time of so many results; a node's ``attrs`` is a `Steps`."""
    return Repeat(name, _inside_plans, outputs=outputs)


@dataclass(frozen=True)
class Step:
    """A recording that is done again and again.

    Attributes
    ----------
    signature : tuple
        See `graph.program.Trace.signature`.
    leaves : tuple of int
        Which of the arrays that a step has (see `Steps`) each leaf is, in order of the entries.
    params : tuple of int or None
        The scalars: the ints, which say where views begin, are known; ``None`` stands for the next
        of those that the loop is given.
    results : tuple of (bool, int)
        What a step gives: an output of the signature, or one of the arrays that it has.
    sites : tuple
        Where each entry was recorded.
    """

    signature: tuple[Any, ...]
    leaves: tuple[int, ...]
    params: tuple[int | None, ...]
    results: tuple[tuple[bool, int], ...]
    sites: tuple[Any, ...]

    @property
    def scalars(self) -> int:
        """How many scalars it is given."""
        return self.params.count(None)

    def filled(self, scalars: Any) -> list[Any]:
        """Return all parameters, given the scalars."""
        rest = iter(scalars)
        return [next(rest) if known is None else known for known in self.params]

    @functools.cached_property
    def gives_outputs(self) -> bool:
        """Whether it gives the outputs of the signature, as they are."""
        return self.results == tuple((True, k) for k in range(len(self.signature[2])))

    def is_nothing(self) -> bool:
        """Whether it computes nothing: it only says which array is where."""
        return not self.signature[2]

    @property
    def kept(self) -> frozenset[int]:
        """Which of the arrays that it has are there afterwards as they are."""
        return frozenset(place for computed, place in self.results if not computed)

    def given_up(self, first: int) -> frozenset[int]:
        """Numbers of the leaves in whose memory it may write, where the state begins at ``first``.

        The verdict is the plan's; whether the memory is the loop's own, is seen when it runs.
        """
        return frozenset(number for number, place in self.places.items()
                         if place >= first and place not in self.kept)

    @functools.cached_property
    def places(self) -> dict[int, int]:
        """Which of the arrays that it has each leaf is, by its number in the signature."""
        entries = (number for number, entry in enumerate(self.signature[0]) if entry[0] is None)
        return dict(zip(entries, self.leaves, strict=True))


@dataclass(frozen=True)
class Steps:
    """What a loop over time does.

    A step has these arrays: its number, arrays that stay the same, the state.  It gives the state
    of the next step; where a condition decides, also whether there is one.  The inputs of a node
    are how many steps there are, the number of the first and by what it grows (not where a
    condition decides), scalars of the step, then of the condition, and the arrays but the first.

    Attributes
    ----------
    body : Step
    goes : Step or None
        Says whether there is a first step.
    first : int
        Which array the state begins with.
    kinds : tuple of (tuple of int, numpy.dtype)
        Shapes and dtypes of the state's arrays.
    """

    body: Step
    goes: Step | None
    first: int
    kinds: tuple[tuple[tuple[int, ...], Any], ...]

    @property
    def recordings(self) -> list[Step]:
        """What there is to plan."""
        return [step for step in (self.body, self.goes) if step and not step.is_nothing()]

    @property
    def header(self) -> int:
        """How many inputs say how often and from where on."""
        return 3 if self.goes is None else 0

    @property
    def scalars(self) -> int:
        """How many scalars there are among the inputs, behind those."""
        return self.body.scalars + (0 if self.goes is None else self.goes.scalars)
