"""Which names a function's code looks up, and whether a module is a library's."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
from types import CodeType
from typing import NamedTuple

# What is installed otherwise may be a program's own, with layers or settings in it.
_LIBRARIES = frozenset((
    "tiledarray", "numpy", "scipy", "cupy", "jax", "torch", "builtins", "IPython", "PIL", "_pytest",
    "attr", "h5py", "hypothesis", "matplotlib", "numba", "optree", "pandas", "pytest", "sklearn",
    "sympy", "tqdm", "xarray"))
_STANDARD = sysconfig.get_path("stdlib") + os.sep

_BY_TEXT = frozenset(("getattr", "hasattr", "setattr", "delattr"))  # names that are values
_ALL_NAMES = frozenset((
    "vars", "__dict__", "attrgetter", "methodcaller", "__getattribute__", "asdict", "astuple",
    "fields", "dir"))
_NOTES = frozenset(("append", "appendleft", "extend", "insert", "add"))
_MADE_UP = frozenset(("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "BINARY_OP"))


class Used(NamedTuple):
    """Names that some code looks up.

    Attributes
    ----------
    names : frozenset of str
        Those of variables of modules, attributes and modules.
    noted : frozenset of str
        Those of which something is put into a container (``log.append``).
    read : frozenset of str
        Those with which something else is done.
    all_names : bool
        Whether attributes may be asked for by names that the code does not tell.
    """

    names: frozenset[str] = frozenset()
    noted: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    all_names: bool = False

    def only_notes(self, name: str) -> bool:
        """Whether all that is done with a name is to put something into a container there."""
        return name in self.noted and name not in self.read

    def and_also(self, other: Used) -> Used:
        """Return what two pieces of code look up."""
        return Used(self.names | other.names, self.noted | other.noted, self.read | other.read,
                    self.all_names or other.all_names)


@functools.lru_cache(4096)
def used(code: CodeType) -> Used:
    """Return what a function's code, and that of functions inside it, looks up."""
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    noted: set[str] = set()
    read: set[str] = set()
    for each, after in zip(instructions, [*instructions[1:], None], strict=True):
        if isinstance(each.argval, str) and each.opname.startswith(("LOAD_", "STORE_", "DELETE_")):
            notes = (after is not None and after.argval in _NOTES
                     and after.opname in ("LOAD_ATTR", "LOAD_METHOD"))
            if each.opname not in ("LOAD_CLOSURE", "LOAD_CONST"):
                (noted if notes else read).add(each.argval)
    names = {*code.co_names}
    if names & _BY_TEXT or "globals" in names:
        names |= {text for text in _texts(code.co_consts) if text.isidentifier()}
    any_name = bool(names & _ALL_NAMES) or (
        bool(names & _BY_TEXT) and _makes_names_up(instructions)) or (
        any(each.opname == "MATCH_CLASS" for each in instructions))
    found = Used(frozenset(names), frozenset(noted), frozenset(read), any_name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = found.and_also(used(constant))
    return found


def _texts(constants: tuple[object, ...]) -> list[str]:
    found = []
    for each in constants:
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, (tuple, frozenset)):
            found += _texts(tuple(each))
    return found


def _makes_names_up(instructions: list[dis.Instruction]) -> bool:
    """Whether some ``getattr`` is not plainly given a constant."""
    for k, each in enumerate(instructions):
        if each.argval not in _BY_TEXT:
            continue
        given = []
        for after in instructions[k + 1:]:
            if after.opname.startswith(("CALL", "PRECALL")):
                break
            given.append(after)
        if any(after.opname in _MADE_UP for after in given) or not any(
                after.opname == "LOAD_CONST" and isinstance(after.argval, str) for after in given):
            return True
    return False


@functools.lru_cache(4096)
def is_library(module: str) -> bool:
    """Whether a module is one whose variables are not the user's.

    Python's own are told by their files: a program may well have a ``test`` or a ``code``.
    """
    top = module.partition(".")[0]
    if top in _LIBRARIES:
        return True
    if top not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or (file.startswith(_STANDARD) and "site-packages" not in file)
