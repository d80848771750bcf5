"""What an op is.  The families (one file each beside this one) declare the ops themselves.

The class of an op says how the planner treats it; its fields say what it computes.  Every op
carries a ``reference``: the same computation through NumPy (or CuPy, which has the same names),
used by the op-by-op tier, by the tests and as the definition of what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

Expression = str | dict[str, str]
# What an op contributes to gradients, in the notation of `gradients/notation.py`: for each input a
# text, or one by kind of the input's dtype; "" where nothing.
Rules = tuple[Expression, ...]

# What NumPy takes for an element of float64 (other dtypes are taken to be like it) and of float32;
# here and in the ops NumPy 2.4 on an EPYC of the fourth generation, data in the cache.
NANOSECONDS = (0.25, 0.125)


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """Common part: a name, and the computation through an array module ``xp``.

    ``reference(xp, *inputs, attrs, shape, dtype)`` gets arrays and scalars in the order of
    ``Node.inputs`` and returns an array of the node's shape and dtype.  ``moves`` says that its
    scalar inputs are starts: a plan knows which of them are 0.

    ``vjp`` has for each input what a cotangent ``g`` of the result contributes to that of the
    input (for the last of them also to those that follow).  Without it, and without
    ``Elementwise.derivatives``, the op has no derivative: a gradient through it is refused.
    """

    moves: ClassVar[bool] = False
    name: str
    reference: Callable[..., Any] = field(repr=False)
    vjp: Rules = field(default=(), repr=False, kw_only=True)


@dataclass(frozen=True, eq=False, slots=True)
class Leaf(Op):
    """A value that exists already: a buffer."""


@dataclass(frozen=True, eq=False, slots=True)
class Elementwise(Op):
    """One output element from the elements at the same (broadcast) place of each input.

    ``attrs`` of a node: the loop dtypes of the inputs, a tuple of ``numpy.dtype``; each input is
    cast to its loop dtype before the expression is applied, as NumPy's ufunc loops do.

    Parameters
    ----------
    expression : str or dict
        C++ over the operands ``x, y, z, w``, or one per kind of the first loop dtype
        (``b`` bool, ``i`` signed, ``u`` unsigned, ``f`` float, ``c`` complex; ``*`` otherwise;
        ``e`` of two bytes, computed as float32).  ``T`` is the output's type.  Functions come from
        ``kernels/math.h``.
    cost : int
        Rough arithmetic cost in flops; a transcendental function counts about 10.
    ufunc : numpy.ufunc or None
        Where the loop dtypes are asked for, if the op is a NumPy ufunc.
    quick : str
        Text for float32 on the device that is right wherever it leaves the flag ``rare`` alone
        (``kernels/device_math.h``), ``""`` if none.
    shown : str
        Instead of that: one that is NaN wherever it is not right.
    saves : int
        Flops that it saves in a kernel that streams memory.
    usual : str
        The device's function that gives a loop of its own to usual values of the last operand, a
        scalar: in such a loop the quick text is one.  ``""`` if it always is.
    rare : str
        Text for where the quick one is not right, if it is another one than elsewhere; ``known``
        is the usual value, or the last operand.
    root : str
        Text for float32 on a device of a square root of ``op(x * y)``, whose exponent is rounded
        twice more: for what only sums use (``kernels/device_math.h``).  ``""`` if there is none.
    nanoseconds : (float, float)
        NumPy's time for an element of float64 and of float32, where it is far from the usual.
    exponent : bool
        Whether the second operand, if it is an integer, may not be negative.
    beyond : bool or None
        Of an order comparison: its answer where the second operand is an int that is larger than
        the first one's dtype can hold, for NumPy compares the values, not the casts.
    ordered : bool
        Whether that answer turns where the int is too small, or stands on the left.
    wraps : bool
        Whether a Python int that the loop cannot hold is cast like an array, and not refused.
    derivatives : tuple
        The partial derivative by each operand.
    constant : Elementwise or None
        What stands for the op where all operands but the first are one number each, for which
        NumPy has a loop of its own.
    """

    expression: Expression = ""
    cost: int = 1
    ufunc: np.ufunc | None = None
    quick: str = ""
    shown: str = ""
    saves: int = 0
    usual: str = ""
    rare: str = ""
    root: str = ""
    nanoseconds: tuple[float, float] = NANOSECONDS
    exponent: bool = False
    beyond: bool | None = None
    ordered: bool = True
    wraps: bool = False
    constant: Elementwise | None = None
    derivatives: Rules = field(default=(), repr=False, kw_only=True)

    def has_quick(self, loops: Iterable[np.dtype[Any]]) -> bool:
        """Whether there is such a text for operands of these loop dtypes."""
        return bool(self.quick or self.shown) and all(loop == np.float32 for loop in loops)


def _same(elements: np.dtype[Any]) -> np.dtype[Any]:
    return elements


def _accumulator(elements: np.dtype[Any], accumulator: np.dtype[Any]) -> np.dtype[Any]:
    return accumulator


@dataclass(frozen=True, eq=False, slots=True)
class Reduction(Op):
    """A reduction over axes; ``attrs`` of a node: ``(axes, accumulate dtype)``.

    ``axes`` is a sorted tuple of non-negative ints; reduced axes vanish from the shape.

    Parameters
    ----------
    accumulator : str
        Name of the C++ accumulator template in ``kernels/tile.h``.
    combine : str
        Elementwise op by which a handful of elements may be reduced directly, ``""`` if none.
    accumulates : callable
        Gives the dtype in which elements of a dtype are accumulated, where none is asked for.
    gives : callable
        Gives the dtype of the result from that of the elements and that of the accumulator.
    widens : bool
        Whether float16 is accumulated in float32.
    positions : bool
        Whether the accumulator is told where each element stands.
    lanes : "light" or "heavy"
        Whether accumulators of a thousand columns side by side stay in a core's cache.
    """

    accumulator: str = ""
    combine: str = ""
    accumulates: Callable[[np.dtype[Any]], np.dtype[Any]] = _same
    gives: Callable[[np.dtype[Any], np.dtype[Any]], np.dtype[Any]] = _accumulator
    widens: bool = False
    positions: bool = False
    lanes: Literal["light", "heavy"] = "light"

    def accumulator_of(self, elements: np.dtype[Any], asked: np.dtype[Any] | None) -> np.dtype[Any]:
        """Return in what to accumulate elements of a dtype; ``asked`` is that of the result."""
        found = self.accumulates(elements) if asked is None else asked
        return np.dtype(np.float32) if self.widens and found.char == "e" else found

    def result_of(self, elements: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the result, where none is asked for."""
        return self.gives(elements, self.accumulates(elements))


@dataclass(frozen=True, eq=False, slots=True)
class Scan(Op):
    """Running totals along an axis; ``attrs`` of a node: the axis, not negative.

    Element ``k`` is what elements 0 to ``k`` of the input, cast to the node's dtype, are combined
    to, one after the other.

    Parameters
    ----------
    accumulator : str
        Name of the C++ template in ``kernels/headers/scans.h``.
    ufunc : numpy.ufunc or None
        What two elements are combined by.
    """

    accumulator: str = ""
    ufunc: np.ufunc | None = None


@dataclass(frozen=True, eq=False, slots=True)
class AxisView(Op):
    """Affine view: each input dimension follows one output axis, or stands at one index.

    ``inputs = (node, start_0, start_1, ...)`` one start per input dimension (run-time
    parameters); ``attrs = (axes, steps)``: input dimension ``d`` is read at
    ``start_d + steps[d] * index[axes[d]]``, or at ``start_d`` where ``axes[d] == -1``.
    Output axes that no dimension follows are broadcast.  Covers basic slicing, transposes,
    new axes, ``broadcast_to``, ``flip``, ``diagonal``; closed under composition.
    """

    moves: ClassVar[bool] = True


@dataclass(frozen=True, eq=False, slots=True)
class Gather(Op):
    """What an index array names along one axis of an array.

    The planner makes it of a library call (`fusion/gathers.py`).  ``inputs = (array, places,
    checked)``, ``attrs = (axis, along)``: the places are integers of which none is beyond the axis,
    and ``checked`` is there once that is known.  ``along``, they have the array's axes, each of its
    length or of 1, and name elements of their own line; else their axes stand where the axis was.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Strided(Op):
    """A view whose elements may be the same ones several times: the windows of an array.

    The planner makes it of the library call `ops.movement.windows` (`fusion/gathers.py`), whose
    inputs and attrs it has.  Kernels read the array's own memory.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Reshape(Op):
    """Row-major reshape to the node's shape; no attrs."""


@dataclass(frozen=True, eq=False, slots=True)
class Source(Op):
    """Elements computed from their index alone.

    ``full``: ``inputs = (value,)``.  ``iota``: ``inputs = (start, step)``, one-dimensional,
    element ``k`` is ``start + k * step`` computed in ``attrs[0]``, cast to the node's dtype;
    without inputs it is ``k``, and no kernel has to be told.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Update(Op):
    """A new value of an array in which one region has been overwritten.

    ``inputs = (old, new, start_0, start_1, ...)``; ``attrs = (axes, steps, region)``: the region's
    index space has the shape ``region``, ``new`` (of the array's dtype) broadcasts to it, and
    ``axes``, ``steps`` and the starts lead from there to the array's elements as in `AxisView`;
    every array element is reached at most once.  Planned as a store in place when ``old`` is dead
    afterwards.
    """

    moves: ClassVar[bool] = True


def _axis_of(attrs: Any) -> Any:
    return dict(attrs)["axis"]


def _the_same(attrs: Any, axis: int) -> int:
    return axis


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """How a library call falls into parts that are computed each on its own.

    Parameters
    ----------
    by : str
        "matrices": the call is of the last axes; "lines": of some axes of inputs of one rank;
        "elements": of each element of one input; "places": of what an index array names.
    nanoseconds : float
        Roughly NumPy's time, on one processor, for an element of 8 bytes.
    logarithmic : bool
        Whether that is to be taken times the binary logarithm of a line's length.
    axis : callable
        Gives of the attrs the axis of lines: an int, a tuple of them, or ``None`` for all.
    result : callable
        Gives the axis of the result that follows an axis of the inputs, from the attrs and that.
    into : callable or None
        ``into(out, *inputs, attrs)`` leaves a part in memory that it is given.
    of : int
        The input of which the elements are.
    holds : callable or None
        Says of the attrs and the inputs whether the parts really are the same as the whole.
    turns : callable or None
        The call is one along an axis, and then along another: from the attrs and the shape of the
        input, for each of them the op, its attrs and the shape of its result.
    """

    by: Literal["matrices", "lines", "elements", "places"]
    nanoseconds: float = 1.0
    logarithmic: bool = False
    axis: Callable[[Any], Any] = _axis_of
    result: Callable[[Any, int], int] = _the_same
    into: Callable[..., Any] | None = None
    of: int = 0
    holds: Callable[..., bool] | None = None
    turns: Callable[..., Any] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Library(Op):
    """A call that is a kernel of its own, through NumPy on the host and CuPy on a GPU.

    ``reference`` is the call.  ``attrs`` is whatever the call needs.  If ``outputs > 1`` the call
    returns a tuple; `item` nodes with ``attrs = k`` pick from it.  ``calls_back`` says that its
    derivative is a function of the user's.

    ``batch`` says what the call is where its inputs have one more axis, of samples, in the notation
    of `gradients/samples.py`; without it, it is made for each sample.

    ``into`` is NumPy's function that computes the same into an array that it is given last, where
    that and the inputs are arrays of one dtype and there are no ``attrs``.
    ``in_place``, if there is one, leaves the result in its first input, where nobody else needs
    that.
    ``parts`` says how threads share it on the host; without it, it is NumPy's, in one thread.

    ``tile`` names what computes it for one problem of a batch inside a kernel
    (`fusion/tiles/primitives.py`); its leading axes are those of the batch.
    """

    outputs: int = 1
    calls_back: bool = field(default=False, kw_only=True)
    batch: str = field(default="", repr=False, kw_only=True)
    into: Callable[..., Any] | None = field(default=None, repr=False, kw_only=True)
    in_place: Callable[..., None] | None = field(default=None, repr=False, kw_only=True)
    parts: Parts | None = field(default=None, repr=False, kw_only=True)
    tile: str = field(default="", repr=False, kw_only=True)


@dataclass(frozen=True, eq=False, slots=True)
class Loop(Library):
    """A call that is a recording of its own, done once for each block of some axes.

    The planner makes it (`fusion/loops.py`).
    """


@dataclass(frozen=True, eq=False, slots=True)
class Repeat(Library):
    """A call that is a recording of its own, done again and again: `ops.loop.Steps`."""


@dataclass(frozen=True, eq=False, slots=True)
class Item(Op):
    """Output ``attrs`` (an int) of a `Library` node with several outputs."""
