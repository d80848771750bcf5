"""Scalars that are equal by chance: a formula has one plan, whatever its scalars are.

A trace takes equal scalars for one, which is quick.  Where it is met for the first time, they are
told apart here: two uses stay one parameter only where that is written in the program (a constant
of the code), where it spares work (two operations compute the same thing by it), or where there are
very many of them and one line records both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from tiledarray.core import Key
from tiledarray.core.twin_graph import kinds_of
from tiledarray.graph.node import Form, Site
from tiledarray.graph.program import Trace

FEW = 16  # uses of scalars that are all told apart; each takes a kernel's argument
REMEMBERED = 1 << 10  # pieces of code

_constants: dict[int, tuple[CodeType, frozenset[Any]]] = {}  # by identity: comparing code is slow


class Use(NamedTuple):
    """A scalar among the operands of a node: its parameter in the trace, and what it is known by.

    Uses of one ``family`` are one parameter.
    """

    number: int
    family: Any


class _Families:
    """Which families are one, as far as has been found."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def of(self, family: Any) -> Any:
        while family in self._above:
            family = self._above[family]
        return family

    def unite(self, one: Any, other: Any) -> None:
        one, other = self.of(one), self.of(other)
        if one != other:
            self._above[other] = one


def told_apart(traced: Trace, sites: Sequence[Site | None]) -> tuple[Trace, tuple[int, ...]]:
    """Return the trace with such scalars as parameters of their own.

    Parameters
    ----------
    traced : Trace
    sites : sequence of Site or None
        Where each of its nodes was recorded.

    Returns
    -------
    Trace
    tuple of int
        For each of its parameters, that of the given trace which has its value.
    """
    entries = list(_entries(traced, sites))
    families = _families(entries)
    key: list[Any] = []
    picks: list[int] = []
    references: dict[Any, int] = {}
    starts: set[int | None] = set()
    for first, operands in entries:
        key.append(first)
        for operand in operands:
            if type(operand) is Use:
                family = families.of(operand.family)
                reference = references.get(family)
                if reference is None:
                    reference = references[family] = ~len(picks)
                    picks.append(operand.number)
                operand = reference
            key.append(operand)
            if type(first) is Form and first.op.moves and (operand is None or operand < 0):
                starts.add(operand)
    params = [traced.params[number] for number in picks]
    key += kinds_of(params, starts)
    key += traced.outputs
    return traced._replace(key=Key(tuple(key)), params=params), tuple(picks)


def _entries(traced: Trace, sites: Sequence[Site | None]) -> Iterable[tuple[Any, list[Any]]]:
    """What each node begins with in the key, and its operands: scalars as uses."""
    parts = iter(traced.parts)
    nodes = [(first, [next(parts) for _ in range(first.arity)] if type(first) is Form else [])
             for first, _ in zip(parts, traced.nodes, strict=False)]
    many = sum(type(first) is Form and not first.op.moves and x is not None and x < 0
               for first, operands in nodes for x in operands) > FEW
    for number, (first, operands) in enumerate(nodes):
        for place, x in enumerate(operands):
            if x is not None and x < 0:
                operands[place] = Use(~x, _family(
                    traced.params[~x], x, "moves" if first.op.moves else sites[number],
                    None if many else (number, place)))
        yield first, operands


def _family(scalar: Any, reference: int, site: Site | str | None, use: Any) -> Any:
    """What a use of a scalar is known by: itself, or the line or the code that says so."""
    if site is None or isinstance(site, str):
        return site, reference
    if (type(scalar), repr(scalar)) in _constants_of(site[0]):
        return site[0], reference
    return use or (*site, reference)


def _constants_of(code: CodeType) -> frozenset[Any]:
    """The numbers that are written in a piece of code, signs apart."""
    known = _constants.get(id(code))
    if known is None:
        if len(_constants) >= REMEMBERED:
            _constants.clear()
        numbers = [x for x in code.co_consts if type(x) in (bool, int, float, complex)]
        known = _constants[id(code)] = code, frozenset(
            (type(x), repr(x)) for number in numbers for x in (number, -number))
    return known[1]


def _families(entries: Iterable[tuple[Any, list[Any]]]) -> _Families:
    """Unite the families of scalars by which operations turn out to compute the same thing."""
    families = _Families()
    known: dict[Any, tuple[int, list[Any]]] = {}
    same: list[int] = []  # for each node the first that computes the same
    for number, (first, operands) in enumerate(entries):
        if type(first) is not Form or not first.arity:
            same.append(number)
            continue
        key = first, *(~x.number if type(x) is Use else x if x is None else same[x]
                       for x in operands)
        earlier, others = known.setdefault(key, (number, operands))
        same.append(earlier)
        if earlier != number:
            for one, other in zip(others, operands, strict=True):
                if type(one) is Use:
                    families.unite(one.family, other.family)
    return families
