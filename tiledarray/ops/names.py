"""Ops by name: what another process finds them by."""

from __future__ import annotations

import functools
import sys

from tiledarray.ops.op import Op

TABLE = "BY_NAME"  # of those ops that are no variables of their own
_PACKAGE = f"{__name__.rpartition('.')[0]}."


@functools.cache
def _named() -> dict[str, Op]:
    """Every op that a module of this package has, alone or in a table."""
    found: dict[str, Op] = {}
    for module in sorted(name for name in sys.modules if name.startswith(_PACKAGE)):
        place = module.removeprefix(_PACKAGE)
        for name, held in vars(sys.modules[module]).items():
            if isinstance(held, Op):
                found[f"{place}:{name}"] = held
            elif name == TABLE:
                found.update({f"{place}:{key}": op for key, op in held.items()})
    return found


@functools.cache
def _names() -> dict[Op, str]:
    return {op: name for name, op in reversed(_named().items())}


def name_of(op: Op) -> str:
    """Return an op's name, which no other has.

    Raises
    ------
    LookupError
        It was not declared in this package.
    """
    return _names()[op]


def op_named(name: str) -> Op:
    """Return the op of a name.

    Raises
    ------
    LookupError
        There is none.
    """
    return _named()[name]
