"""How an elementwise op is declared, and the dtypes in which it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray.ops.op import NANOSECONDS, Elementwise, Expression, Rules

_DType = np.dtype[Any]
Operand = _DType | type
Loop = tuple[tuple[_DType, ...], _DType]

_ZERO: dict[type, Any] = {bool: np.False_, int: 0, float: 0.0, complex: 0j}
_WEAK: dict[type, _DType] = {bool: np.dtype(bool)}

# Which output of a ufunc with several an op stands for (0 unless listed), and the dtype rules of
# the ops that are no ufuncs.  Both are filled by the declarations.
_output_of: dict[Elementwise, int] = {}
_rule_of: dict[Elementwise, Callable[..., Loop]] = {}
_known: dict[tuple[Any, ...], Loop] = {}


def ufunc(
    function: np.ufunc,
    expression: Expression,
    *,
    cost: int = 1,
    output: int = 0,
    name: str = "",
    quick: str = "",
    saves: int = 0,
    usual: str = "",
    rare: str = "",
    root: str = "",
    nanoseconds: tuple[float, float] = NANOSECONDS,
    exponent: bool = False,
    beyond: bool | None = None,
    ordered: bool = True,
    constant: Elementwise | None = None,
    derivatives: Rules = (),
    vjp: Rules = (),
) -> Elementwise:
    """Declare the op of a NumPy ufunc, or of one of its outputs.

    Parameters
    ----------
    function : numpy.ufunc
    expression : str or dict
        As in `Elementwise`, where a key may hold several kinds: ``"iu"``.
    cost : int
        Rough cost in flops.
    output : int
        Which output, for a ufunc with several.
    name : str
        The op's name, if it is not the ufunc's.
    quick, saves, usual, rare, root, nanoseconds, exponent, beyond, ordered : optional
    constant, derivatives, vjp : optional
        As in `Elementwise`.
    """
    numpy_name = function.__name__

    def reference(xp: Any, *inputs: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
        arrays = in_loop_dtypes(xp, inputs, attrs)
        with np.errstate(all="ignore"):
            try:
                result = getattr(xp, numpy_name)(*arrays)
            except TypeError:
                if xp is np:
                    raise
                result = function(*map(xp.asnumpy, arrays))  # CuPy lacks the loop
            return shaped(xp, result[output] if function.nout > 1 else result, shape, dtype)

    op = Elementwise(
        name or numpy_name, reference, spread(expression), cost, function, quick,
        saves=saves, usual=usual, rare=rare, root=root, nanoseconds=nanoseconds, exponent=exponent,
        beyond=beyond, ordered=ordered, constant=constant, derivatives=derivatives, vjp=vjp,
    )
    if output:
        _output_of[op] = output
    return op


def plain(
    name: str,
    compute: Callable[..., Any],
    expression: Expression,
    rule: Callable[..., Loop],
    *,
    cost: int = 1,
    nanoseconds: tuple[float, float] = NANOSECONDS,
    wraps: bool = False,
    shown: str = "",
    derivatives: Rules = (),
    vjp: Rules = (),
) -> Elementwise:
    """Declare an elementwise op that is no ufunc.

    ``compute(xp, *arrays, dtype=dtype)`` gets arrays of the loop dtypes; ``rule(*operands)`` gives
    the loop as `loop_dtypes` does; the rest is as in `Elementwise`.
    """

    def reference(xp: Any, *inputs: Any, attrs: Any, shape: Any, dtype: Any) -> Any:
        with np.errstate(all="ignore"):
            result = compute(xp, *in_loop_dtypes(xp, inputs, attrs), dtype=dtype)
            return shaped(xp, result, shape, dtype)

    op = Elementwise(
        name, reference, spread(expression), cost, nanoseconds=nanoseconds, wraps=wraps,
        shown=shown, derivatives=derivatives, vjp=vjp,
    )
    _rule_of[op] = rule
    return op


def spread(expression: Expression) -> Expression:
    """Give each kind of a key of several kinds its own entry."""
    if isinstance(expression, str):
        return expression
    return {kind: text for kinds, text in expression.items() for kind in kinds}


def in_loop_dtypes(xp: Any, inputs: Sequence[Any], loops: tuple[_DType, ...]) -> list[Any]:
    """Return the inputs as arrays of the loop dtypes."""
    return [xp.asarray(x, loop) for x, loop in zip(inputs, loops, strict=True)]


def shaped(xp: Any, result: Any, shape: tuple[int, ...], dtype: _DType) -> Any:
    """Return ``result`` as a dense array of the shape (broadcast up to it) and dtype."""
    array = xp.asarray(result).astype(dtype, copy=False)
    return array if array.shape == shape else xp.array(xp.broadcast_to(array, shape), order="C")


def result_dtype(*operands: Operand) -> _DType:
    """Return `numpy.result_type`, Python scalars given by their types and weak (NEP 50)."""
    return np.result_type(*(_ZERO[x] if isinstance(x, type) else x for x in operands))


def loop_dtypes(op: Elementwise, operands: tuple[Operand, ...]) -> Loop:
    """Return the dtypes to which NumPy casts the operands, and the dtype of the result.

    Parameters
    ----------
    op : Elementwise
    operands : tuple of numpy.dtype or type
        A Python scalar is given by its type: ``bool``, ``int``, ``float`` or ``complex``.

    Raises
    ------
    TypeError
        NumPy's own, if the op has no loop for these operands.
    """
    key = (op, *operands)
    found = _known.get(key)
    if found is None:
        found = _known[key] = _ask_numpy(op, operands)
    return found


def _ask_numpy(op: Elementwise, operands: tuple[Operand, ...]) -> Loop:
    if op.ufunc is None:
        return _rule_of[op](*operands)
    asked = tuple(_WEAK.get(x, x) if isinstance(x, type) else x for x in operands)
    resolved = op.ufunc.resolve_dtypes(asked + (None,) * op.ufunc.nout)
    inputs, outputs = resolved[: op.ufunc.nin], resolved[op.ufunc.nin :]
    return inputs, outputs[_output_of.get(op, 0)]
