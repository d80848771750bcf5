"""What an op is.  The families (one file each beside this one) declare the ops themselves.

The class of an op says how the planner treats it; its fields say what it computes.  Every op
carries a ``reference``: the same computation through NumPy (or CuPy, which has the same names),
used by the op-by-op tier, by the tests and as the definition of what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

Expression = str | dict[str, str]


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """Common part: a name, and the computation through an array module ``xp``.

    ``reference(xp, *inputs, attrs, shape, dtype)`` gets arrays and scalars in the order of
    ``Node.inputs`` and returns an array of the node's shape and dtype.  ``moves`` says that its
    scalar inputs are starts: a plan knows which of them are 0.
    """

    moves: ClassVar[bool] = False
    name: str
    reference: Callable[..., Any] = field(repr=False)


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
        (``b`` bool, ``i`` signed, ``u`` unsigned, ``f`` float, ``c`` complex; ``*`` otherwise).
        ``T`` is the output's type.  Functions come from ``kernels/math.h``.
    cost : int
        Rough arithmetic cost in flops; a transcendental function counts about 10.
    ufunc : numpy.ufunc or None
        Where the loop dtypes are asked for, if the op is a NumPy ufunc.
    quick : str
        Text for float32 on the device that is right wherever it leaves the flag ``rare`` alone
        (``kernels/device_math.h``), ``""`` if none.
    """

    expression: Expression = ""
    cost: int = 1
    ufunc: np.ufunc | None = None
    quick: str = ""

    def has_quick(self, loops: Iterable[np.dtype[Any]]) -> bool:
        """Whether there is such a text for operands of these loop dtypes."""
        return bool(self.quick) and all(loop == np.float32 for loop in loops)


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
    """

    accumulator: str = ""
    combine: str = ""


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
class Reshape(Op):
    """Row-major reshape to the node's shape; no attrs."""


@dataclass(frozen=True, eq=False, slots=True)
class Source(Op):
    """Elements computed from their index alone.

    ``full``: ``inputs = (value,)``.  ``iota``: ``inputs = (start, step)``, one-dimensional,
    element ``k`` is ``start + k * step`` computed in ``attrs[0]``, cast to the node's dtype.
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


@dataclass(frozen=True, eq=False, slots=True)
class Library(Op):
    """A call that is a kernel of its own, through NumPy on the host and CuPy on a GPU.

    ``reference`` is the call.  ``attrs`` is whatever the call needs.  If ``outputs > 1`` the call
    returns a tuple; `item` nodes with ``attrs = k`` pick from it.
    """

    outputs: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Item(Op):
    """Output ``attrs`` (an int) of a `Library` node with several outputs."""
