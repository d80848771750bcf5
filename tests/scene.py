"""The arrays that a program holds, as NumPy has them, and the lines that make its next move."""

from __future__ import annotations

import ast
import copy
import functools
import math
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from string import Formatter
from types import CodeType, SimpleNamespace
from typing import Any

import numpy

from tests.moves import (
    ALL,
    CALLS,
    CALLS_OF_TWO,
    DTYPES,
    FEW,
    FEW_DTYPES,
    FUNCTIONS,
    JIT,
    MAKING,
    PALETTES,
    RESULTS,
    SCALARS,
)
from tiledarray import config

AVOID = os.environ.get("MACHINE_AVOID", "")  # lines not to write, to see past what is known
NAME = re.compile(r"\bv\d+\b")
ONE_THING = re.compile(r"v\d+(\[.*\])? (=|\+=|-=|\*=|%=) |np\.(add|copyto|multiply|maximum)\(")
CALLED = re.compile(r"\bf\d+(?=\()")
_FIELDS: dict[str, list[tuple[str, str | None]]] = {}


@functools.lru_cache(50_000)
def code(line: str) -> CodeType:
    """The line, compiled: what is written again is the same place in a program."""
    return compile(line, "<program>", "exec")


def numpy_with_our_names() -> tuple[SimpleNamespace, SimpleNamespace]:
    """NumPy as ``np``, with what only we have, and as ``numpy``."""
    ours = {"config": SimpleNamespace(), "jit": lambda function: function,
            "evaluate": lambda *arrays: None}
    return SimpleNamespace(**{**vars(numpy), **ours}), SimpleNamespace(**vars(numpy))


NP, NUMPY = numpy_with_our_names()
COPYING = SimpleNamespace(**{**vars(numpy), "asarray": numpy.array})


def in_thread(work: Callable[[], None]) -> None:
    """Run it in a thread of its own, and wait for that."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(work).result()


def lends_memory() -> bool:
    """Whether others may write into the memory of arrays, which are not put on a GPU."""
    return not str(config.device).startswith("cuda")


def namespace(np: Any) -> dict[str, Any]:
    """What a program that makes moves finds when it begins, in NumPy or in ours.

    What is put on a GPU lends NumPy no memory: there `numpy.asarray` copies.
    """
    others = (NUMPY if np is numpy else numpy) if lends_memory() else COPYING
    return {"np": NP if np is numpy else np, "numpy": others,
            "copy": copy, "pickle": pickle, "in_thread": in_thread, "__name__": "program",
            "step": 1}


class NotNow(Exception):
    """There is no array that the move could be made with."""


def moves_of(group: tuple[float, str]) -> list[str]:
    return group[1].strip().splitlines()


def refusal(line: str) -> str | None:
    """A program that goes on if the line raises, and not otherwise; ``None`` for most lines.

    For lines that do one thing: of others NumPy leaves half done.  Views of another dtype depend on
    the order in which NumPy laid out a result; ours are row-major.
    """
    if ".view(" in line or not ONE_THING.match(line) or ";" in line or CALLED.search(line):
        return None
    return (f"try: {line}\nexcept Exception: pass\n"
            "else: raise AssertionError('NumPy raises here')")


def results_of(function: str) -> int:
    """How many arrays a one-line function returns."""
    (made,) = ast.parse(function).body
    assert isinstance(made, ast.FunctionDef)
    last = made.body[-1]
    if not isinstance(last, ast.Return):
        return 0
    return len(last.value.elts) if isinstance(last.value, ast.Tuple) else 1


def owner(value: Any) -> Any:
    """The array whose memory a NumPy array lies in."""
    while isinstance(value, numpy.ndarray) and isinstance(value.base, numpy.ndarray):
        value = value.base
    return value


def is_array(value: Any) -> bool:
    """Whether it is one that can be written: ours without axes are like NumPy's scalars."""
    return (isinstance(value, numpy.ndarray) and value.ndim > 0 and value.flags.writeable
            and owner(value).ndim > 0)


class Scene:
    """The arrays that a program holds, as NumPy has them, and the choice of what comes next.

    Parameters
    ----------
    below : callable
        ``below(n)`` draws a number from 0 to n - 1.
    names : dict
        The program's variables; those that the moves see are called ``v0``, ``v1`` ...
    few : bool
        Use few dtypes, where each costs the compiling of kernels.
    """

    def __init__(self, below: Callable[[int], int], names: dict[str, Any],
                 few: bool = False) -> None:
        self.below = below
        self.names = names
        self.count = 0
        self.few = few
        self.functions: dict[str, str] = {}
        self.refused = False
        self.recent: list[str] = []  # what the last line was about: the next may be as well
        n, m = self.choice(PALETTES)
        self.shapes = [(n,), (n,), (n, m), (n, m), (m,), (m, n), (m, m), (n * m,)]

    # ---- drawing -------------------------------------------------------------------------

    def choice(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def weighted(self, groups: list[tuple[float, Any]]) -> Any:
        total = int(sum(10 * weight for weight, _ in groups))
        draw = self.below(total)
        for weight, group in groups:
            draw -= int(10 * weight)
            if draw < 0:
                return group
        return groups[-1][1]

    # ---- lines ---------------------------------------------------------------------------

    def next(self) -> list[str]:
        """Lines that make the next move.

        Raises
        ------
        NotNow
            There is no array for what was drawn.
        """
        arrays = self.variables()
        if len(arrays) < 2:
            return [self.line(self.choice(moves_of(MAKING)))]
        if len(arrays) > 9:
            return [f"del {self.choice(arrays)}"]
        groups = [(weight, group[1]) for weight, group in FEW] if self.few else ALL
        group = self.weighted([*groups, (JIT, None)])
        return self.call() if group is None else self.of(group)

    def of(self, group: str) -> list[str]:
        """Lines that make a move of the group."""
        line = self.line(self.choice(group.strip().splitlines()))
        return [f"{line}\nin_thread(work)"] if line.startswith("def work") else [line]

    def call(self) -> list[str]:
        """A call of a function under ``jit``, and before the first one its definition."""
        lines = []
        if self.functions and self.chance(65):
            name = self.choice(list(self.functions))
        else:
            name = f"f{self.count}"
            self.count += 1
            text = self.choice(moves_of((0, FUNCTIONS)))
            lines = [f"@np.jit\n{self.line(text, f=name)}"]
            self.functions[name] = lines[0]
        text = self.functions[name]
        calls = CALLS_OF_TWO if "x, y):" in text else CALLS
        call = RESULTS[results_of(text)] + self.choice(moves_of((0, calls)))
        return [*lines, self.line(call, f=name)]

    def line(self, text: str, **given: str) -> str:
        """Fill in the fields of a move."""
        if text not in _FIELDS:
            _FIELDS[text] = list(dict.fromkeys(
                name for _, name, _, _ in Formatter().parse(text) if name))
        filled = dict(given)
        for field in _FIELDS[text]:
            if field not in filled:
                self._fill(field, filled)
        line = text.format(**filled)
        if AVOID and re.search(AVOID, line):
            raise NotNow
        if "nditer" in line and "write" in line and not lends_memory():
            raise NotNow
        return line

    def _fill(self, field: str, filled: dict[str, str]) -> None:
        if field in _PICKED:
            filled[field] = self.pick(_PICKED[field], filled)
            if field != "b" and field != "o":
                filled["last"] = filled[field]
        else:
            filled[field] = getattr(self, f"_{field}")(filled)

    # ---- what a line does -----------------------------------------------------------------

    def touched(self, line: str) -> list[str]:
        """Names of the arrays that a line may read or write."""
        text = " ".join([line, *(self.functions.get(name, "") for name in CALLED.findall(line))])
        return list(dict.fromkeys(NAME.findall(text)))

    def tried(self, line: str, good: Callable[[Any], bool]) -> bool:
        """Run a line with NumPy; if it or what it leaves is no good, all is as it was.

        `refused` says whether NumPy raised.
        """
        self.refused = False
        names = self.names
        before = dict(names)
        arrays = [value for value in before.values() if isinstance(value, numpy.ndarray)]
        shapes = [value.shape for value in arrays]
        owners = {id(base): base for base in map(owner, arrays)}
        copies = [(base, base.copy()) for base in owners.values()]
        try:
            # A float that no element of the dtype can hold becomes what the processor makes of it.
            with numpy.errstate(invalid="raise" if "astype" in line else None):
                exec(code(line), names)
            touched = self.touched(line)
            if all(good(names[name]) for name in touched if name in names):
                self.recent = touched or self.recent
                return True
        except Exception:  # of whatever kind: a move is only a proposal
            self.refused = True
        names.clear()
        names.update(before)
        for value, shape in zip(arrays, shapes, strict=True):
            if value.shape != shape:
                value.shape = shape
        for base, values in copies:
            if base.flags.writeable:
                base[...] = values
        return False

    # ---- arrays --------------------------------------------------------------------------

    def variables(self) -> list[str]:
        return [name for name, value in self.names.items()
                if name[0] == "v" and isinstance(value, (numpy.ndarray, numpy.generic))]

    def pick(self, wanted: Callable[[Any], bool], filled: dict[str, str]) -> str:
        """An array, more often a late one, and more often of the shape of what was picked."""
        found = [name for name in self.variables() if wanted(self.names[name])]
        if not found:
            raise NotNow
        recent = [name for name in found if name in self.recent and name != filled.get("last")]
        if recent and self.chance(45):
            return self.choice(recent)
        last = filled.get("last")
        if last is not None and self.chance(75):
            shape = self.names[last].shape
            alike = [name for name in found if self.names[name].shape == shape and name != last]
            found = alike or found
        return found[max(self.below(len(found)), self.below(len(found)))]

    def _array(self, filled: dict[str, str]) -> Any:
        return self.names[filled["last"]]

    # ---- fields --------------------------------------------------------------------------

    def _n(self, filled: dict[str, str]) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    _m = _n

    def _serial(self, filled: dict[str, str]) -> str:
        return str(self.below(3))

    def _h(self, filled: dict[str, str]) -> str:
        found = [name for name, value in self.names.items() if name[0] == "h" and is_array(value)]
        if not found:
            raise NotNow
        return self.choice(found)

    def _k(self, filled: dict[str, str]) -> str:
        return self.choice(SCALARS)

    def _dtype(self, filled: dict[str, str]) -> str:
        return self.choice(FEW_DTYPES if self.few else DTYPES)

    def _shape(self, filled: dict[str, str]) -> str:
        if "length" in filled:
            size = int(filled["length"])
            return str(self.choice([s for s in self.shapes if math.prod(s) == size]))
        return str(self.choice(self.shapes))

    def _length(self, filled: dict[str, str]) -> str:
        return str(math.prod(self.choice(self.shapes)))

    def _side(self, filled: dict[str, str]) -> str:
        return str(min(70, self.choice(self.shapes)[0]))

    def _factors(self, filled: dict[str, str]) -> str:
        size = self._array(filled).size
        first = self.choice([d for d in (1, 2, 3, 4, 5, size) if size and size % d == 0] or [1])
        return self.choice([f"({first}, -1)", f"(-1, {first})", f"({first}, 1, -1)", "(-1,)"])

    def _copy(self, filled: dict[str, str]) -> str:
        """NumPy's results keep their operands' order; ours are row-major."""
        array = self._array(filled)
        dense = array.flags.c_contiguous and owner(array).flags.c_contiguous
        return "" if dense else ".copy()"

    def _axis(self, filled: dict[str, str]) -> str:
        return self.choice(["None", "0", "-1", *map(str, range(self._array(filled).ndim))])

    def _i(self, filled: dict[str, str]) -> str:
        size = len(self._array(filled)) if self._array(filled).ndim else 0
        if not size:
            raise NotNow
        return str(self.choice([0, 1, -1, self.below(size)]))

    def _index(self, filled: dict[str, str]) -> str:
        array = self._array(filled)
        if not array.ndim or len(array) < 3:
            raise NotNow
        i, j = self.below(len(array)), self.below(len(array))
        return self.choice(["[0, 2, 2, -1]", f"[{i}, {j}]", f"[{i}, {j}, {i}]", f"np.array([{i}])"])

    def _key(self, filled: dict[str, str]) -> str:
        return self._key_of(self._array(filled).shape, 20)

    def _slices(self, filled: dict[str, str]) -> str:
        return self._key_of(self._array(filled).shape, 0)

    _slices2 = _slices

    def _tkey(self, filled: dict[str, str]) -> str:
        return self._key_of(self._array(filled).shape[::-1], 20)

    def _key_of(self, shape: tuple[int, ...], ints: int) -> str:
        """A basic index."""
        parts = []
        for size in shape:
            if size and self.chance(ints):
                parts.append(str(self.choice([0, 1 % size, size - 1, -1])))
            else:
                parts.append(self.choice([":", "1:", ":-1", "1:-1", "::2", "::-1", "::-2", "2:",
                                          "1::2", f"{size // 3}:{size // 2 + 1}", "-2:", ":2"]))
        while parts and parts[-1] == ":" and self.chance(50):
            parts.pop()
        return ", ".join(parts) or "..."


_PICKED: dict[str, Callable[[Any], bool]] = {
    "a": lambda x: True,
    "x": lambda x: isinstance(x, numpy.ndarray) and x.ndim > 0,  # without axes: as scalars
    "b": lambda x: True,
    "o": is_array,
    "w": is_array,
    "number": lambda x: x.dtype != bool,
    "complex": lambda x: is_array(x) and x.dtype.kind == "c",
    "line": lambda x: x.ndim == 1 and 0 < x.size <= 70,
    "matrix": lambda x: x.ndim == 2,
    "wide": lambda x: is_array(x) and x.ndim == 2,
    "zero": lambda x: isinstance(x, numpy.ndarray) and x.ndim == 0,
}
