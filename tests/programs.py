"""Random whole programs: lines of NumPy code that any module with NumPy's names can run.

A program is written by running it: a line that raises, or whose numbers get out of hand, is left
out.  The writer also keeps how rough every array is: which rounding errors it may differ by.  What
decides by a number (comparisons, casts to integers, ``argmax``) only ever sees exact ones.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy

from tests.moves import EXACT, ROUGH
from tests.scene import NotNow, Scene, namespace, owner

LARGEST = 1e4
SIZES = [1, 2, 3, 4, 7, 16, 17, 33, 64, 100, 130]
DTYPES = [
    "?", "i1", "u1", "i2", "i4", "u4", "i8", "i8", "u8", "f2", "f4", "f4", "f8", "f8", "f8", "c8",
    "c16",
]
ROUGH_UNARY = [
    "np.sin({0})", "np.cos({0})", "np.tanh({0})", "np.arctan({0})", "np.exp(np.clip({0}, -3, 3))",
    "np.log1p(np.abs({0}))", "np.expm1(np.clip({0}, -2, 2))", "np.cbrt(np.abs({0}) + 1)",
    "np.hypot({0}, 1)", "np.exp2(np.clip({0}, -4, 4))", "np.power(np.abs({0}) + 1, 0.7)",
]
UNARY = [
    "-{0}", "np.abs({0})", "np.square({0})", "np.sqrt(np.abs({0}) + 1)", "1 / (np.abs({0}) + 1)",
    "{0} * 0.5", "{0} + 1", "3 - {0}", "np.clip({0}, -2, 5)", "{0} * {0} + {0}", "+{0}",
    "np.maximum({0}, 0)", "{0}.copy()", "np.positive({0})",
]
DECIDING_UNARY = [
    "np.floor({0})", "np.rint({0})", "np.sign({0})", "np.ceil({0})", "{0} > 1", "{0} != 0",
    "np.isfinite({0})", "np.signbit({0})", "{0}.astype(bool)", "{0} % 3", "{0} // 2",
    "np.clip({0}, 0, 100).astype('{dtype}')", "np.trunc({0})", "np.logical_not({0})",
]
WHOLE_UNARY = ["~{0}", "{0} & 6", "{0} ^ 1", "{0} << 1", "{0} >> 1", "{0} | 1", "np.invert({0})"]
COMPLEX_UNARY = [
    "np.conj({0})", "{0}.real", "{0}.imag", "{0} * (1 + 2j)", "-{0}", "np.abs({0})", "{0} + 1j",
    "np.exp({0} * 0.01)", "np.square({0})",
]
BINARY = [
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / (np.abs({1}) + 1)", "np.maximum({0}, {1})",
    "np.minimum({0}, {1})", "{0} + {1} * 2", "{0} - 0.5 * {1}",
]
ROUGH_BINARY = ["np.hypot({0}, {1})", "np.logaddexp({0} * 0.01, {1} * 0.01)"]
DECIDING_BINARY = [
    "{0} < {1}", "{0} >= {1}", "{0} == {1}", "{0} % (np.abs({1}) + 1)",
    "{0} // (np.abs({1}) + 1)", "np.logical_and({0}, {1})", "np.where({0} > {1}, {0}, {1})",
    "np.copysign({0}, {1})", "np.where({0}, {1}, {0})", "np.logical_xor({0}, {1})",
]
WHOLE_BINARY = [
    "{0} & {1}", "{0} | {1}", "{0} ^ {1}", "{0} << ({1} & 3)", "{0} // {1}", "{0} % {1}",
]
REDUCTIONS = ["sum", "mean", "max", "min", "var", "std", "prod", "sum", "max"]
DECIDING_REDUCTIONS = ["any", "all", "argmin", "argmax"]
CUMULATIVE = ["np.cumsum({0}, {axis})", "np.sort({0}, {axis})", "np.diff({0}, axis={axis})"]
JOINS = [
    "np.concatenate([{0}, {1}], axis={axis})", "np.stack([{0}, {0} + 1], axis={axis})",
    "np.pad({0}, 1)", "np.roll({0}, 1, {axis})", "np.repeat({0}, 2, {axis})",
    "np.concatenate([{0} * 2, {1}, {0}], axis={axis})", "np.pad({0}, 2, mode='edge')",
    "np.flip({0}, {axis})", "np.tile({0}, 2)", "np.take({0}, [0, -1, 0], axis={axis})",
]
VIEWS = [
    "{0}.T", "{0}[::-1]", "{0}[..., ::2]", "{0}[1:]", "{0}[..., None]", "{0}[None]",
    "{0}.reshape(-1)", "{0}.ravel()", "np.squeeze({0})", "np.moveaxis({0}, 0, -1)",
    "{0}.swapaxes(0, -1)", "{0}.reshape({0}.shape[::-1])", "{0}[..., -1]", "{0}[0]",
    "np.broadcast_to({0}, (2, *{0}.shape))", "{0}.reshape({0}.shape[0], -1)",
    "{0}.diagonal()",
]
WRITES = [
    "{0} += {1}", "{0} *= 2", "{0} -= 1", "{0}[...] = {1}", "{0}[{key}] = {1}", "{0}[{key}] = 3",
    "{0}[{key}] += 1", "{0}[{key}] *= {1}", "np.add({0}, 1, out={0})", "{0}[1:] = {0}[:-1]",
    "{0}[1:-1] = ({0}[:-2] + {0}[2:]) * 0.5", "{0}[:] = {0}[::-1]", "{0}[1:] += {0}[:-1]",
    "for _ in range(4): {0}[1:-1] += ({0}[2:] - {0}[:-2]) * 0.25",
    "for _ in range(5): {0}[..., 1:] = {0}[..., :-1] * 0.5 + {0}[..., 1:] * 0.5",
    "{0}[{key}] = {0}[{key}][::-1]", "{0}[..., 0] = {0}[..., -1]", "{0} *= 0.5", "{0}.fill(2)",
    "{0}[:] = {0} + {0}.sum(0)", "{0}[0], {0}[-1] = {0}[-1] + 0, {0}[0] + 0",
]
DECIDING_WRITES = ["{0}[{0} > 1] = 1", "{0}[{0} < 0] *= -1", "{0}[{1} > 2] = 0"]
ROUNDING = re.compile(r"sum|@|add\.at|subtract\.at")  # the order of what is added shows


@dataclass
class Program:
    """Lines to run, and by what their variables may differ from NumPy's.

    Attributes
    ----------
    lines : list of str
    tolerance : dict
        For each variable that is left at the end, the absolute error that rounding excuses.
    """

    lines: list[str]
    tolerance: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


def make(seed: int, shape: tuple[int, ...], dtype: str) -> numpy.ndarray:
    """An input: small numbers that floats of every width hold exactly."""
    random = numpy.random.default_rng(seed)
    kind = numpy.dtype(dtype).kind
    if kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if kind == "u":
        return random.integers(0, 20, shape).astype(dtype)
    values = random.integers(-16, 16, shape)
    if kind == "i":
        return values.astype(dtype)
    if kind == "c":
        return ((values + 1j * random.integers(-16, 16, shape)) / 8).astype(dtype)
    return (values / 8).astype(dtype)


def run(lines: Sequence[str], np: Any, array: Callable[[numpy.ndarray], Any],
        look: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Run a program in a module with NumPy's names; return its variables."""
    names: dict[str, Any] = {
        **namespace(np), "make": lambda *args: array(make(*args)), "look": look,
    }
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for line in lines:
            exec(line, names)
    return {name: value for name, value in names.items() if name[0] == "v"}


class Writer:
    """Writes one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: dict[str, Any] = {
            **namespace(numpy), "make": make, "look": lambda value: value,
        }
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.rough: dict[int, float] = {}
        self.kept: list[Any] = []  # so that no id is used twice
        self.largest = 1.0
        self.sizes = [*random.choices(SIZES, k=2), random.choice([1, 2, 3])]
        if random.random() < 0.05:
            self.sizes[0] = 0
        self.scene = Scene(random.randrange, self.names)

    def write(self, length: int) -> Program:
        """Write lines until there are that many."""
        for _ in range(self.random.randint(1, 3)):
            self.input()
        while not self.variables:
            self.input()
        steps = [
            (self.unary, 8), (self.binary, 8), (self.view, 5), (self.change, 6), (self.reduce, 4),
            (self.join, 2), (self.cumulate, 0.5), (self.multiply, 0.4), (self.forget, 2),
            (self.look, 0.7), (self.input, 0.7), (self.move, 6), (self.call, 0.3),
        ]
        kinds, weights = zip(*steps, strict=True)
        for _ in range(4 * length):
            if len(self.lines) >= length:
                break
            self.random.choices(kinds, weights)[0]()
        tolerance = {name: self.tolerance(self.names[name]) for name in self.variables}
        return Program(self.lines, tolerance)

    # ---- lines ---------------------------------------------------------------------------

    def input(self) -> None:
        shape = tuple(self.random.choice(self.sizes) for _ in range(self.random.choice(
            [0, 1, 1, 2, 2, 2, 3])))
        seed = self.random.randrange(1000)
        self.define(f"make({seed}, {shape}, {self.random.choice(DTYPES)!r})", [])

    def unary(self) -> None:
        name = self.pick()
        kind = self.names[name].dtype.kind
        if kind == "c":
            text = self.random.choice(COMPLEX_UNARY)
            self.define(text.format(name), [name], rough=text.startswith(("np.", "{0} *")))
        elif kind in "biu" and self.random.random() < 0.3:
            self.define(self.random.choice(WHOLE_UNARY).format(name), [name])
        elif self.exact(name) and self.random.random() < 0.4:
            text = self.random.choice(DECIDING_UNARY)
            self.define(text.format(name, dtype=self.random.choice("?bBhilfdF")), [name])
        elif self.random.random() < 0.4:
            self.define(self.random.choice(ROUGH_UNARY).format(name), [name], rough=True)
        else:
            self.define(self.random.choice(UNARY).format(name), [name])

    def binary(self) -> None:
        pair = [self.pick(), self.pick()]
        kinds = {self.names[name].dtype.kind for name in pair}
        draw = self.random.random()
        if draw < 0.25 and kinds <= set("biu"):
            self.define(self.random.choice(WHOLE_BINARY).format(*pair), pair)
        elif draw < 0.5 and all(map(self.exact, pair)) and "c" not in kinds:
            self.define(self.random.choice(DECIDING_BINARY).format(*pair), pair)
        elif draw < 0.6 and "c" not in kinds:
            self.define(self.random.choice(ROUGH_BINARY).format(*pair), pair, rough=True)
        else:
            text = self.random.choice(BINARY)
            if "c" in kinds and "imum" in text:
                return
            self.define(text.format(*pair), pair, rough="c" in kinds)

    def reduce(self) -> None:
        name = self.pick()
        array = self.names[name]
        axes: list[Any] = [None, *range(-array.ndim, array.ndim)]
        if array.ndim > 1:
            axes += [(0, 1), (0, -1)]
        keep = self.random.choice(["", "", ", keepdims=True"])
        deciding = self.exact(name) and array.dtype.kind != "c" and self.random.random() < 0.3
        op = self.random.choice(DECIDING_REDUCTIONS if deciding else REDUCTIONS)
        if array.dtype.kind == "c" and op in ("max", "min") and not self.exact(name):
            return
        if op == "prod" and array.dtype.kind in "fc" and array.size > 16:
            return  # the order decides whether it overflows on the way
        rough = op in ("mean", "var", "std") or (
            op in ("sum", "prod") and array.dtype.kind in "fc")
        self.define(f"{name}.{op}({self.random.choice(axes)}{keep})", [name], rough=rough)

    def view(self) -> None:
        name = self.pick()
        if self.random.random() < 0.3:
            self.define(f"{name}[{self.key(self.names[name])}]", [name])
        else:
            text = self.random.choice(VIEWS)
            array = self.names[name]
            if ("reshape" in text or "ravel" in text) and not (
                array.flags.c_contiguous and owner(array).flags.c_contiguous
            ):
                text += ".copy()"  # NumPy's results keep their operands' order; ours are row-major
            self.define(text.format(name), [name])

    def join(self) -> None:
        name, other = self.pick(), self.pick()
        if self.names[name].ndim:
            axis = self.random.randrange(self.names[name].ndim)
            text = self.random.choice(JOINS)
            inputs = [name, other] if "{1}" in text else [name]
            self.define(text.format(name, other, axis=axis), inputs)

    def cumulate(self) -> None:
        name = self.pick()
        if self.names[name].ndim and (self.exact(name) or self.names[name].dtype.kind != "c"):
            axis = self.random.randrange(self.names[name].ndim)
            self.define(self.random.choice(CUMULATIVE).format(name, axis=axis), [name], rough=True)

    def multiply(self) -> None:
        name = self.pick()
        if self.names[name].ndim == 2:
            self.define(f"{name} @ {name}.T", [name], rough=True)

    def change(self) -> None:
        name, other = self.pick(), self.pick()
        array = self.names[name]
        if not array.ndim or not owner(array).ndim:
            return  # NumPy has arrays and scalars without dimensions; ours behave as scalars
        deciding = (self.exact(name) and self.exact(other) and self.random.random() < 0.15
                    and array.dtype.kind != "c")
        text = self.random.choice(DECIDING_WRITES if deciding else WRITES)
        whole = array.dtype.kind in "biu"
        other_kind = self.names[other].dtype.kind
        if "{1}" in text and whole and other_kind in "fc":
            return  # a cast to integers decides
        if "[{1} >" in text and self.names[other].shape != array.shape:
            return
        if "sum" in text and array.dtype.kind in "fc":
            self.rewrite(text, name, other, rough=True)
        else:
            self.rewrite(text, name, other, rough=array.dtype.kind == "c" and "*" in text)

    def rewrite(self, text: str, name: str, other: str, *, rough: bool) -> None:
        """Add a line that writes into an array."""
        array = self.names[name]
        base = owner(array)
        before = base.copy()
        line = text.format(name, other, key=self.key(array))
        if self.tried(line) and self.tame(base):
            eps = self.rough[id(base)]
            if "{1}" in text:
                eps = max(eps, self.rough[id(owner(self.names[other]))])
            self.rough[id(base)] = self.rounded(base, eps, rough)
            self.lines.append(line)
        else:
            base.setflags(write=True)
            base[...] = before

    def forget(self) -> None:
        if len(self.variables) > 3:
            name = self.random.choice(self.variables)
            self.variables.remove(name)
            del self.names[name]
            self.lines.append(f"del {name}")

    def look(self) -> None:
        self.lines.append(f"look({self.pick()})")

    def move(self) -> None:
        """A move of the state machine's."""
        exact = self.random.random() < 0.2
        groups = EXACT if exact else ROUGH
        try:
            lines = self.scene.of(self.random.choice(groups)[1])
        except NotNow:
            return
        self.moved(lines, exact=exact)

    def call(self) -> None:
        """A call of a function under `jit`."""
        try:
            self.moved(self.scene.call(), exact=False)
        except NotNow:
            return

    def moved(self, lines: list[str], *, exact: bool) -> None:
        """Add the lines of a move, as far as what they compute can be compared."""
        for line in lines:
            names = [name for name in self.scene.touched(line) if name in self.names]
            arrays = [self.names[name] for name in names]
            kinds = {array.dtype.kind for array in arrays}
            eps = max([self.rough[id(owner(array))] for array in arrays], default=0.0)
            if (eps and exact) or (kinds & set("fc") and (eps or not exact) and kinds & set("biu")):
                return  # a comparison, or a cast to integers, decides
            with warnings.catch_warnings(), numpy.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                if not self.scene.tried(line, self.tame):
                    return
            rough = bool(ROUNDING.search(line)) or ("c" in kinds and "*" in line)
            self.lines.append(line)
            self.note(self.scene.touched(line), eps, rough)

    def note(self, touched: list[str], eps: float, rough: bool) -> None:
        """Keep how rough the arrays are that a line may have made or written."""
        for name in touched:
            if name in self.names:
                value = self.names[name]
                base = owner(value)
                eps = max(eps, self.rough.get(id(base), 0.0))
                self.rough[id(base)] = self.rounded(value, eps, rough)
                self.kept.append(base)
        self.variables[:] = [name for name in self.variables if name in self.names]
        self.variables += [name for name in touched
                           if name in self.names and name not in self.variables]

    # ---- parts ---------------------------------------------------------------------------

    def define(self, text: str, inputs: list[str], *, rough: bool = False) -> None:
        """Add a line that makes a variable."""
        name = f"v{self.scene.count}"
        if not self.tried(f"{name} = {text}"):
            return
        value = self.names[name]
        if not isinstance(value, (numpy.ndarray, numpy.generic)) or not self.tame(value):
            del self.names[name]
            return
        base = owner(value)
        if id(base) not in self.rough:
            eps = max([self.rough[id(owner(self.names[x]))] for x in inputs], default=0.0)
            self.rough[id(base)] = self.rounded(value, eps, rough)
            self.kept.append(base)
        self.scene.count += 1
        self.variables.append(name)
        self.lines.append(f"{name} = {text}")

    def tried(self, line: str) -> bool:
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                exec(line, self.names)
            except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
                return False
        return True

    def tame(self, value: Any) -> bool:
        """Whether the numbers are finite and not too large, and few enough."""
        if not isinstance(value, (numpy.ndarray, numpy.generic)):
            return False
        if value.size > 60_000 or value.ndim > 5:
            return False
        if value.dtype.kind not in "fc" or not value.size:
            return True
        largest = float(numpy.max(numpy.abs(value)))
        if not largest <= (500 if value.dtype.char == "e" else LARGEST):
            return False
        self.largest = max(self.largest, largest)
        return True

    def rounded(self, value: Any, eps: float, rough: bool) -> float:
        if value.dtype.kind in "fc" and (rough or eps):
            return max(eps, float(numpy.finfo(value.dtype).eps))
        return eps

    def tolerance(self, value: Any) -> float:
        eps = self.rough[id(owner(value))]
        return eps * (60 if eps > 1e-5 else 2000) * self.largest

    def exact(self, name: str) -> bool:
        return not self.rough[id(owner(self.names[name]))]

    def pick(self) -> str:
        """A variable, more often a late one."""
        count = len(self.variables)
        return self.variables[max(self.random.randrange(count), self.random.randrange(count))]

    def key(self, array: Any) -> str:
        """A basic index with any steps."""
        parts = []
        for size in array.shape:
            start, stop = self.random.randint(-size - 1, size), self.random.randint(0, size + 1)
            step = self.random.choice([1, 1, 2, 3, -1, -2])
            kind = self.random.random()
            if kind < 0.15 and size:
                parts.append(str(self.random.randrange(-size, size)))
            elif kind < 0.5:
                parts.append(f"::{step}")
            elif kind < 0.9:
                parts.append(f"{start}:{stop if step > 0 else ''}:{step}")
            else:
                parts.append(":")
        return ", ".join(parts) or "..."


def write_program(seed: int, shortest: int = 10, longest: int = 40) -> Program:
    """The program of a seed."""
    random = Random(seed)
    return Writer(random).write(random.randint(shortest, longest))


def difference(program: Program, ours: dict[str, Any]) -> str | None:
    """Say what variable is not NumPy's, if one is not."""
    theirs = run(program.lines, numpy, lambda array: array)
    for name, wanted in theirs.items():
        found, wanted = numpy.asarray(ours[name]), numpy.asarray(wanted)
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            return (f"{name} is {found.dtype}{list(found.shape)}, "
                    f"not {wanted.dtype}{list(wanted.shape)}")
        tolerance = program.tolerance.get(name, 0.0)
        wrong = found != wanted
        if tolerance and wanted.dtype.kind in "fc":
            wrong &= ~(numpy.abs(found - wanted) <= tolerance)
        if wrong.any():
            place = tuple(map(int, numpy.argwhere(wrong)[0]))
            return (f"{name}{list(place)} is {found[place]!r}, not {wanted[place]!r} within "
                    f"{tolerance:.1e}; {int(wrong.sum())} of {wrong.size} differ")
    return None


def shortened(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Leave out lines while the program goes on failing."""
    lines = list(program.lines)
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(lines))):
            fewer = lines[:k] + lines[k + 1:]
            try:
                run(fewer, numpy, lambda array: array)
            except Exception:
                continue
            if fails(Program(fewer, program.tolerance)):
                lines, changed = fewer, True
    return Program(lines, program.tolerance)
