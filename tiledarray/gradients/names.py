"""What a name means in a rule."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tiledarray.api import ufuncs
from tiledarray.gradients import factorizations, notation, products, ranks, signals

_FAMILIES: tuple[ModuleType, ...] = (products, ranks, signals, factorizations, notation)


def name_of(name: str) -> Any:
    """Return what a name means in a rule.

    Raises
    ------
    NameError
        If it means nothing.
    """
    found = _names.get(name)
    if found is None:
        found = _names[name] = getattr(notation.xp, name, None)
        if found is None:
            raise NameError(f"{name!r} is no name of the notation of gradients")
    return found


_names: dict[str, Any] = {
    name: value for family in _FAMILIES for name, value in vars(family).items()
    if not name.startswith("_")}
_names.update(conj=ufuncs.BY_NAME["conjugate"])
