"""Programs of ``tests/corpus``: each an ordinary NumPy module that any library can stand under.

A program is a file with ``import numpy as np``, a table ``SIZES``, ``make(**size)``, which returns
the arguments, and ``run(*arguments)``, which returns results and may write into its arguments.
Loaded for a library, its ``import numpy`` gives that library; the source is the same.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "corpus"
TIMED_SIZES = ("tiny", "middle", "large")
SIZES = ("test", *TIMED_SIZES)
RELATIVE = {"f": 1e-4, "d": 1e-9, "F": 1e-4, "D": 1e-9, "e": 1e-2}
PLAIN_TYPES = (bool, int, float, complex, str, type(None))


class Program:
    """One program, over one library.

    Parameters
    ----------
    name : str
        File name without its ending.
    library : module
        What ``import numpy`` gives it.
    """

    def __init__(self, name: str, library: Any) -> None:
        path = FOLDER / f"{name}.py"
        module = ModuleType(name)
        module.__file__ = str(path)
        namespace = vars(module)
        namespace["__builtins__"] = {**vars(builtins), "__import__": importer(library)}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        self.name = name
        self.module = module

    def arguments(self, size: str) -> tuple[Any, ...]:
        """Return new arguments."""
        return tuple(self.module.make(**self.module.SIZES[size]))

    def results(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Run; return what it returned, and its arguments as they are now, by name."""
        returned = self.module.run(*arguments)
        return dict([*leaves("result", returned), *leaves("argument", arguments)])


def names() -> list[str]:
    """Return the names of all programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def importer(library: Any) -> Any:
    """Return an ``__import__`` that knows `library` by the name numpy."""

    def import_for_program(name: str, *rest: Any) -> Any:
        return library if name == "numpy" else builtins.__import__(name, *rest)

    return import_for_program


def leaves(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield everything in nested tuples, lists and dicts, under labels such as ``result[2]``."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{label}[{key!r}]", item)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(f"{label}[{index}]", item)
    else:
        yield label, value


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return in which results `found` is not what NumPy gave, in a line each."""
    if list(expected) != list(found):
        return [f"other results: {sorted(set(expected) ^ set(found))}"]
    lines = ((label, difference(value, found[label])) for label, value in expected.items())
    return [f"{label}: {line}" for label, line in lines if line]


def difference(expected: Any, found: Any) -> str | None:
    """Return what is different about one value, or None."""
    if type(expected) in PLAIN_TYPES and type(found) is not type(expected):
        return f"is a {type(found).__name__}, not a {type(expected).__name__}"
    expected, found = numpy.asarray(expected), numpy.asarray(found)
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"is {found.dtype} of shape {found.shape}, not {expected.dtype} of {expected.shape}"
    if expected.dtype.char not in RELATIVE:
        wrong = int(numpy.count_nonzero(expected != found))
        return f"{wrong} of {expected.size} values differ" if wrong else None
    relative = RELATIVE[expected.dtype.char]
    finite = expected[numpy.isfinite(expected)]
    scale = float(numpy.abs(finite).max()) if finite.size else 0.0
    close = numpy.isclose(
        found, expected, rtol=relative, atol=relative * min(scale, 1.0) + 1e-13, equal_nan=True
    )
    if close.all():
        return None
    at = numpy.unravel_index(int(numpy.argmin(close)), expected.shape)
    return (
        f"{int(numpy.count_nonzero(~close))} of {expected.size} values differ, "
        f"such as {found[at]!r} for {expected[at]!r} at {tuple(map(int, at))}"
    )
