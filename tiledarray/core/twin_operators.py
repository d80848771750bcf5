"""Operators in Python: `operators.c` written again.

What is common is written out in each method, for a call costs as much as all that it would do:
operands that are settled handles, or handles and a Python number, small together.  A result of
arrays that own their values is dense; where views take part that is looked at.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy import float64, ndarray

from tiledarray.core import twin_state as state
from tiledarray.core.twin_state import (
    KNOWN_SCALARS,
    LONGEST_WAIT,
    Turn,
    at_most,
    begin_turn,
    end_turn,
    own,
    own_known,
    recorded,
    root_of,
    settled,
    size_of,
    threads,
    writable,
)

Function = Callable[..., Any]

PLAIN = frozenset((float, int, bool, complex))
NUMBERS = (np.number, np.bool_)
QUICK = PLAIN | KNOWN_SCALARS  # with them what a ufunc makes is known

# ---- operands -----------------------------------------------------------------------------------


def operand(x: Any) -> Any:
    """Return what NumPy computes with at once; ``None`` for the recorded way."""
    most = state.most
    if isinstance(x, state.base_class):
        array = settled(x)
        return array if array is not None and size_of(array) <= most else None
    if most < 0:
        return None
    if type(x) in PLAIN or isinstance(x, NUMBERS) or (type(x) is ndarray and x.size <= most):
        return x
    return None


def settled_operand(x: Any) -> Any:
    """Return the same of any size: for what NumPy does in its own memory in any case."""
    if isinstance(x, state.base_class):
        return state.find_array(x)
    return x if type(x) in PLAIN or isinstance(x, NUMBERS) or type(x) is ndarray else None


def operands_lent(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the operands of ``x += y`` where others have the memory of x.

    They are settled, and of any size, for nothing is recorded of that.  As `operands`.
    """
    if state.held or state.loan_of(root_of(x)) is None:
        return None, None
    left, right = state.find_array(x), settled_operand(y)
    return (None, None) if left is None or right is None else (left, right)


def operand_or_list(x: Any) -> Any:
    """Return the same of what operators and ufuncs take: they make an array of a list."""
    value = operand(x)
    return listed(x) if value is None and state.most >= 0 else value


def operands(x: Any, y: Any) -> tuple[Any, Any]:
    """Return both operands of an operator, or ``None`` for both.

    Beside an array NumPy makes one of a list, which a number repeats or refuses.
    """
    left = operand(x)
    right = None if left is None and isinstance(x, state.base_class) else operand(y)
    if left is None and type(right) is ndarray:
        left = listed(x)
    elif right is None and type(left) is ndarray and not isinstance(y, state.base_class):
        right = listed(y)
    return (None, None) if left is None or right is None else (left, right)


def listed(x: Any) -> Any:
    """Return the array that NumPy makes of a small list or tuple of numbers, or ``None``."""
    if type(x) not in (list, tuple) or len(x) > state.limit or not _is_of_numbers(x, 3):
        return None
    try:
        array = np.asarray(x)
    except Exception:
        return None
    return array if array.size <= state.limit else None


def _is_of_numbers(x: Any, depth: int) -> bool:
    """Whether a list or a tuple holds numbers alone, also in others."""
    return all(
        type(part) in PLAIN or isinstance(part, NUMBERS)
        or (depth > 0 and type(part) in (list, tuple) and _is_of_numbers(part, depth - 1))
        for part in x)


def quick_operand(x: Any) -> Any:
    """Return what NumPy takes for a settled handle or a number; ``None`` for anything else."""
    if type(x) is state.handle_class:
        base = x._base_
        return x._array_ if base is None or base._array_ is x._of_ else None
    return x if type(x) in QUICK else None


def fit(x: Any, y: Any) -> bool:
    """Whether what two operands broadcast to is small too."""
    if not isinstance(x, ndarray) or not isinstance(y, ndarray):
        return True
    if 0 < x.size * y.size <= state.most:
        return True
    left, right = x.shape, y.shape
    if left == right:
        return True
    size, extra = 1, len(left) - len(right)
    left, right = (1,) * -extra + left, (1,) * extra + right
    for a, b in zip(left, right, strict=True):
        size *= a if a > b else b
    return size <= state.most


# ---- operators ----------------------------------------------------------------------------------

numpys = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
    "matmul": operator.matmul}
numpys_in_place = {
    name: getattr(operator, "i" + function.__name__.strip("_")) for name, function in
    numpys.items()}


def named(name: str, function: Function) -> Function:
    """Give a function the name of a method."""
    function.__name__ = name
    function.__qualname__ = f"Base.{name}"
    return function


def of_operands(compute: Function, x: Any, y: Any) -> Any:
    """Return what NumPy makes of two operands at once: every case; `None` for the recorded way."""
    left, right = operands(x, y)
    return own(compute(left, right)) if right is not None and fit(left, right) else None


def forward(name: str, compute: Function) -> Function:
    """Make ``x + y``, or ``x < y``."""
    def method(x: Any, y: Any) -> Any:
        base = x._base_
        if base is None or base._array_ is x._of_:
            left, kind = x._array_, type(y)
            right = other = None
            if left is None:
                pass
            elif kind is state.handle_class:
                other = y._base_
                if other is None or other._array_ is y._of_:
                    right = y._array_
                    if right is not None and not (
                        (type(left) is type(right) is float64 and state.most > 0)
                        or 0 < left.size * right.size <= state.most
                    ):
                        right = None
            elif (kind is float or kind is int) and left.size <= state.most:
                right = y
            if right is not None:
                result = compute(left, right)
                if base is not None or other is not None:
                    return own_known(result)
                handle = state.handle_class()
                handle._array_ = result
                handle._node_ = handle._base_ = None
                return handle
        result = of_operands(compute, x, y)
        return recorded[name](x, y) if result is None else result

    return named(name, method)


def reflected(name: str, compute: Function) -> Function:
    """Make ``y + x`` for a ``y`` that is no array of ours."""
    def method(x: Any, y: Any) -> Any:
        kind = type(y)
        if kind is float or kind is int:
            base = x._base_
            if base is None or base._array_ is x._of_:
                right = x._array_
                if right is not None and right.size <= state.most:
                    return own_known(compute(y, right))
        result = of_operands(compute, y, x)
        return recorded[name](x, y) if result is None else result

    return named(name, method)


def binary(op: str) -> tuple[Function, Function]:
    """Make ``x + y``, and ``y + x`` for another ``y``."""
    return forward(f"__{op}__", numpys[op]), reflected(f"__r{op}__", numpys[op])


def update(op: str) -> Function:
    """Make ``x += y``."""
    compute, compute_in_place = numpys[op], numpys_in_place[op]

    def method(x: Any, y: Any) -> Any:
        left, right, most = x._array_, y, state.most
        if type(y) is not float and type(y) is not int:
            right = quick_operand(y)
        if right is None or left is None or most < 0:
            return update_otherwise(op, x, y)
        if type(left) is not ndarray:  # NumPy's scalars are immutable
            if right is y or right.size <= most:
                return own_known(compute(left, right))
        elif left.size <= most if right is y else 0 < left.size * right.size <= most:
            base = x._base_
            root = x if base is None else base
            turn = threads() and begin_turn(True, LONGEST_WAIT)
            try:
                if root._node_ is None and x._array_ is left and (
                    base is None or base._array_ is x._of_
                ):
                    result = compute_in_place(left, right)
                    return x if result is left else own(result)
            finally:
                if turn:
                    end_turn()
        return update_otherwise(op, x, y)

    return named(f"__i{op}__", method)


def update_otherwise(op: str, x: Any, y: Any) -> Any:
    """Do ``x += y``: every case."""
    left, right = operands(x, y)
    fits = right is not None and fit(left, right)
    if not fits:
        left, right = operands_lent(x, y)
    if right is not None:
        if type(left) is not ndarray:
            return own(numpys[op](left, right))
        compute_in_place = numpys_in_place[op]
        root = root_of(x)
        with Turn():
            if writable(x, left) and root._node_ is None and x._array_ is left and (
                x._base_ is None or root._array_ is x._of_
            ):
                result = compute_in_place(left, right)
                return x if result is left else own(result)
    return recorded[f"__i{op}__"](x, y)


def factor(x: Any) -> Any:
    """Return what a product takes: settled, and of almost any size."""
    if isinstance(x, state.base_class):
        array = settled(x)
    else:
        array = x if state.most >= 0 else None
    if type(array) is not ndarray:
        return None
    return array if array.size <= at_most(state.library_factor) else None


def elements_of_product(x: ndarray, y: ndarray) -> int:
    """Return the elements of ``x @ y``: rows, columns, and the axes in front, broadcast."""
    rows = x.shape[-2] if x.ndim > 1 else 1
    columns = y.shape[-1] if y.ndim > 1 else 1
    axes = zip_longest(reversed(x.shape[:-2]), reversed(y.shape[:-2]), fillvalue=1)
    return math.prod(map(max, axes), start=rows * columns)


def n_matmul(x: Any, y: Any) -> Any:
    """Multiply matrices."""
    left = factor(x)
    right = None if left is None else factor(y)
    if right is None or elements_of_product(left, right) > at_most(state.library_factor):
        return recorded["__matmul__"](x, y)
    return own(left @ right)


def r_matmul(y: Any, x: Any) -> Any:
    """Multiply matrices; the first is no array of ours."""
    left = factor(x)
    right = None if left is None else factor(y)
    if right is None or elements_of_product(left, right) > at_most(state.library_factor):
        return recorded["__rmatmul__"](y, x)
    return own(left @ right)


n_pow_of_two, r_pow_of_two = binary("pow")


def n_pow(x: Any, y: Any, modulus: Any = None) -> Any:
    """Raise to a power."""
    return n_pow_of_two(x, y) if modulus is None else NotImplemented


def r_pow(y: Any, x: Any, modulus: Any = None) -> Any:
    """Raise to a power; the base is no array of ours."""
    return r_pow_of_two(y, x) if modulus is None else NotImplemented


def unary(name: str, compute: Function) -> Function:
    """Make ``-x``."""
    def method(x: Any) -> Any:
        base = x._base_
        if base is None or base._array_ is x._of_:
            value = x._array_
            if value is not None and value.size <= state.most:
                return own_known(compute(value))
        value = operand(x)
        return recorded[name](x) if value is None else own(compute(value))

    return named(name, method)


def converted(name: str, compute: Function) -> Function:
    """Make what reads the one element: of a settled array of any size, for NumPy refuses others."""
    def method(x: Any) -> Any:
        base = x._base_
        if base is None or base._array_ is x._of_:
            value = x._array_
            if value is not None and state.most >= 0:
                return compute(value)
        value = settled(x)
        return recorded[name](x) if value is None else compute(value)

    return named(name, method)


def compare(name: str) -> Function:
    """Make ``x < y``."""
    return forward(name, getattr(operator, name.strip("_")))


def handle_hash(x: Any) -> int:
    """Return the hash of what stands for a scalar."""
    value = settled(x)
    if value is not None and not isinstance(value, ndarray):
        return hash(value)
    found: int = recorded["__hash__"](x)
    return found
