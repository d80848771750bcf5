"""Products of vectors and matrices: NumPy's shape rules here, the work in the library."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiledarray import config
from tiledarray.api.arguments import (
    TiledArray,
    arrays_of,
    check_with_numpy,
    common_dtype,
    give,
    give_alike,
    handle_of,
    host,
    normalize_axis_index,
    refuse,
)
from tiledarray.api.joining import moved_to
from tiledarray.api.registry import KINDS, implements
from tiledarray.arrays import reducing
from tiledarray.arrays.handle import array_of, view_of, wrap
from tiledarray.arrays.protocols import UFUNCS
from tiledarray.arrays.views import Affine
from tiledarray.graph.dtypes import Shape
from tiledarray.ops.elementwise import BY_NAME
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

__all__ = [
    "dot", "vdot", "inner", "outer", "kron", "tensordot", "einsum", "inexact",
]


def _product(name: str, arrays: Sequence[TiledArray], shape: Shape, **keywords: Any) -> TiledArray:
    """Record a product of the arrays' common dtype."""
    dtype = common_dtype(arrays)
    if config.tf32 and dtype.char in "fF":
        keywords["tf32"] = True
    nodes = [record.cast(array.node, dtype) for array in arrays]
    return wrap(record.library(LIBRARY[name], nodes, options(**keywords), shape, dtype))


def _matmul_shape(left: Shape, right: Shape) -> Shape | None:
    """Return the shape of a matrix product, ``None`` if there is none."""
    if not left or not right:
        return None
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        return None
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        return None
    return (*batch, *rows, *columns)


def matmul_of(left: Any, right: Any) -> TiledArray:
    """Record a matrix product.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    arrays = arrays_of(left, right)
    shape = _matmul_shape(arrays[0].shape, arrays[1].shape)
    if shape is None:
        check_with_numpy(np.matmul, *arrays)  # raises
        raise ValueError(f"matmul: {arrays[0].shape} and {arrays[1].shape} do not match")
    return _product("matmul", arrays, shape)


def _vector_product(ufunc: np.ufunc, cores: tuple[int, int]) -> Callable[..., Any]:
    """Make `vecdot`, `matvec` or `vecmat`, whose operands end with that many core axes."""

    def ours(left: Any, right: Any) -> TiledArray:
        arrays = arrays_of(left, right)
        shapes = [array.shape for array in arrays]
        fits = all(len(shape) >= core for shape, core in zip(shapes, cores, strict=True))
        if fits:
            inner = shapes[0][-1], shapes[1][-1] if cores[1] == 1 else shapes[1][-2]
            fits = inner[0] == inner[1]
        if not fits:
            check_with_numpy(ufunc, *arrays)
        try:
            batch = np.broadcast_shapes(shapes[0][:-cores[0]], shapes[1][:-cores[1]])
        except ValueError:
            check_with_numpy(ufunc, *arrays)
            raise
        tail = shapes[0][-2:-1] if cores[0] == 2 else shapes[1][-1:] if cores[1] == 2 else ()
        return _product(ufunc.__name__, arrays, (*batch, *tail))

    return ours


_vecdot = _vector_product(np.vecdot, (1, 1))


def _vecdot_along(left: Any, right: Any, axis: Any = -1) -> TiledArray:
    """Return `vecdot` of vectors along an axis."""
    arrays = arrays_of(left, right)
    if axis != -1:
        arrays = [moved_to(array, normalize_axis_index(axis, array.ndim), array.ndim - 1)
                  for array in arrays]
    return _vecdot(*arrays)


def _divided_parts(first: str, second: str) -> Callable[..., Any]:
    """Make a ufunc of two results out of two ops."""

    def ours(value: Any) -> tuple[TiledArray, TiledArray]:
        node = handle_of(value).node
        parts = (record.unary(BY_NAME[name], node) for name in (first, second))
        return tuple(map(wrap, parts))

    return ours


UFUNCS.update({
    np.matmul: matmul_of,
    np.vecdot: _vecdot_along,
    np.matvec: _vector_product(np.matvec, (2, 1)),
    np.vecmat: _vector_product(np.vecmat, (1, 2)),
    np.modf: _divided_parts("modf_fraction", "modf_integer"),
    np.frexp: _divided_parts("frexp_mantissa", "frexp_exponent"),
})
KINDS.update({name: "library" for name in ("matmul", "vecdot", "matvec", "vecmat")})


@implements(np.dot, "library")
def dot(a: Any, b: Any, out: Any = None) -> TiledArray:
    left, right = arrays_of(a, b)
    if left.ndim == 0 or right.ndim == 0:
        return give_alike(_scaled(left, right), out)
    if left.ndim <= 2 and right.ndim <= 2:
        shape = _matmul_shape(left.shape, right.shape)
        name = "matmul"
    else:
        inner = right.shape[-2] if right.ndim > 1 else right.shape[-1]
        rest = (*right.shape[:-2], right.shape[-1]) if right.ndim > 1 else ()
        shape = (*left.shape[:-1], *rest) if left.shape[-1] == inner else None
        name = "dot"
    if shape is None:
        check_with_numpy(np.dot, left, right)
    return give_alike(_product(name, (left, right), shape or ()), out)


def _scaled(left: TiledArray, right: TiledArray) -> TiledArray:
    """Return the product with an array without axes: BLAS adds it to zeros."""
    product = left * right
    return product + 0 if product.ndim and product.dtype.char in "fdFD" else product


@implements(np.vdot, "library")
def vdot(a: Any, b: Any, /) -> TiledArray:
    left, right = (array.reshape(-1) for array in arrays_of(a, b))
    if left.shape != right.shape:
        check_with_numpy(np.vdot, left, right)
    return _product("matmul", (left.conj(), right), ())


@implements(np.inner, "library")
def inner(a: Any, b: Any, /) -> TiledArray:
    left, right = arrays_of(a, b)
    if left.ndim == 0 or right.ndim == 0:
        return _scaled(left, right)
    if left.shape[-1] != right.shape[-1]:
        check_with_numpy(np.inner, left, right)
    return _product("inner", (left, right), (*left.shape[:-1], *right.shape[:-1]))


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> TiledArray:
    left, right = (array.reshape(-1) for array in arrays_of(a, b))
    return give(left[:, None] * right[None, :], out)


@implements(np.kron)
def kron(a: Any, b: Any) -> TiledArray:
    left, right = arrays_of(a, b)
    ndim = max(left.ndim, right.ndim)
    shapes = [(1,) * (ndim - part.ndim) + part.shape for part in (left, right)]
    pairs = [tuple(x for size in shapes[0] for x in (size, 1)),
             tuple(x for size in shapes[1] for x in (1, size))]
    product = left.reshape(pairs[0]) * right.reshape(pairs[1])
    return wrap(record.reshape(
        product.node, tuple(m * n for m, n in zip(*shapes, strict=True))
    ))


@implements(np.tensordot, "library")
def tensordot(a: Any, b: Any, axes: Any = 2) -> TiledArray:
    left, right = arrays_of(a, b)
    axes = host(axes)
    if np.ndim(axes) == 0 and not isinstance(axes, (tuple, list)):
        count = int(axes)
        pairs: Any = list(range(left.ndim - count, left.ndim)), list(range(count))
    else:
        pairs = tuple(
            [int(axis) for axis in part] if isinstance(part, (tuple, list, np.ndarray))
            else [int(part)] for part in axes
        )
    matches = len(pairs[0]) == len(pairs[1])
    for first, second in zip(*pairs, strict=False):
        matches = matches and -left.ndim <= first < left.ndim and -right.ndim <= second < right.ndim
        matches = matches and left.shape[first] == right.shape[second]
    if not matches:
        check_with_numpy(lambda x, y: np.tensordot(x, y, axes), left, right)
        raise ValueError("shape-mismatch for sum")
    reduced_left = [axis % left.ndim for axis in pairs[0]]
    reduced_right = [axis % right.ndim for axis in pairs[1]]
    kept_left = [axis for axis in range(left.ndim) if axis not in reduced_left]
    kept_right = [axis for axis in range(right.ndim) if axis not in reduced_right]
    size = int(np.prod([left.shape[axis] for axis in reduced_left], dtype=int))
    rows = tuple(left.shape[axis] for axis in kept_left)
    columns = tuple(right.shape[axis] for axis in kept_right)
    flat = (
        left.transpose(kept_left + reduced_left).reshape(int(np.prod(rows, dtype=int)), size),
        right.transpose(reduced_right + kept_right).reshape(size, int(np.prod(columns, dtype=int))),
    )
    product = _product("matmul", flat, (flat[0].shape[0], flat[1].shape[1]))
    return array_of(record.reshape(product.node, rows + columns))


@implements(np.einsum, "library")
def einsum(
    *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any
) -> TiledArray:
    refuse(kwargs or not operands, "options are given")
    subscripts, values = _in_words(operands)
    arrays = arrays_of(*values)
    if len(arrays) == 1 and out is None and arrays[0].ndim:
        step = _einsum_step(subscripts, arrays[0].shape)
        if step is not None:
            return view_of(arrays[0], step)
    dtype = common_dtype(arrays) if arrays else np.dtype(float)
    # Checks and the shape are NumPy's, of stand-ins that take no memory and little time.
    shape = _einsum_shape(subscripts, tuple(array.shape for array in arrays))
    nodes = [record.cast(array.node, dtype) for array in arrays]
    plan: Any = optimize if isinstance(optimize, (bool, str)) else True
    attrs = options(subscripts=subscripts, optimize=plan or len(nodes) > 2)
    return give_alike(wrap(record.library(LIBRARY["einsum"], nodes, attrs, shape, dtype)), out)


def _in_words(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the subscripts as text and the arrays, also of subscripts given as lists."""
    if isinstance(operands[0], str):
        return operands[0], operands[1:]
    terms = [_term(places) for places in operands[1::2]]
    result = f"->{_term(operands[-1])}" if len(operands) % 2 else ""
    return ",".join(terms) + result, operands[: len(operands) - len(operands) % 2 : 2]


def _term(places: Any) -> str:
    """Return a list of axis numbers as NumPy writes them: capital letters first, for they sort."""
    letters = string.ascii_uppercase + string.ascii_lowercase
    refuse(not isinstance(places, (list, tuple)), "subscripts do not fit")
    refuse(
        any(place is not Ellipsis and not 0 <= place < len(letters) for place in places),
        "subscripts do not fit",
    )
    return "".join("..." if place is Ellipsis else letters[place] for place in places)


def _einsum_step(subscripts: str, shape: Shape) -> Affine | None:
    """Return the view that an einsum of one array is; ``None`` where it adds up."""
    given, arrow, _ = subscripts.replace(" ", "").partition("->")
    wanted = _einsum_shape(subscripts, (shape,))
    labels = _labels(given, len(shape))
    result = _labels(subscripts.replace(" ", "").partition("->")[2], len(wanted)) if arrow else [
        *(label for label in labels if type(label) is int),
        *(label for label in sorted(x for x in labels if type(x) is str) if labels.count(label) < 2)
    ]
    if set(labels) != set(result):
        return None
    axes = tuple(result.index(label) for label in labels)
    refuse(any(shape[k] != wanted[axis] for k, axis in enumerate(axes)), "shapes do not fit")
    return Affine(axes, (1,) * len(axes), (0,) * len(axes), wanted)


def _labels(term: str, ndim: int) -> list[Any]:
    """Return a label for each axis: letters, and numbers for those of the ellipsis."""
    before, dots, after = term.partition("...")
    spare = range(ndim - len(before) - len(after)) if dots else ()
    return [*before, *spare, *after]


def _einsum_shape(subscripts: str, shapes: Sequence[Shape]) -> Shape:
    text = subscripts.replace(" ", "")
    terms, arrow, result = text.partition("->")
    names = terms.split(",")
    sizes: dict[str, int] = {}
    spare: Shape = ()
    if len(names) != len(shapes):  # NumPy says so
        np.einsum(subscripts, *(np.broadcast_to(True, shape) for shape in shapes))
        refuse(True, "subscripts do not fit")
    for name, shape in zip(names, shapes, strict=True):
        letters = name.replace("...", ".")
        dots = len(shape) - len(letters) + 1 if "." in letters else 0
        refuse(
            dots < 0 or ("." not in letters and len(letters) != len(shape)),
            "subscripts do not fit",
        )
        place = letters.find(".") if "." in letters else len(letters)
        named = shape[:place] + shape[place + dots:]
        if dots:
            try:
                spare = np.broadcast_shapes(spare, shape[place:place + dots])
            except ValueError:
                refuse(True, "shapes do not fit")
        for letter, size in zip(letters.replace(".", ""), named, strict=True):
            known = sizes.setdefault(letter, size)
            refuse(known != size and 1 not in (known, size), "shapes do not fit")
            sizes[letter] = max(known, size) if 0 not in (known, size) else 0
    if not arrow:
        counted = terms.replace(".", "").replace(",", "")
        result = "..." * bool("." in terms) + "".join(
            letter for letter in sorted(set(counted)) if counted.count(letter) == 1
        )
    refuse(not set(result.replace(".", "")) <= set(sizes), "subscripts do not fit")
    refuse(
        len(set(result.replace(".", ""))) != len(result.replace(".", "")),
        "subscripts do not fit",
    )
    refuse(bool(spare) and "." not in result, "subscripts do not fit")
    before, dots_text, after = result.partition("...")
    middle = spare if dots_text else ()
    return (*(sizes[x] for x in before), *middle, *(sizes[x] for x in after))


# Norms ------------------------------------------------------------------------------------------


def inexact(array: TiledArray) -> TiledArray:
    """Return the array as floating point."""
    return array if array.dtype.kind in "fc" else array.astype(float)


def squares(array: TiledArray) -> TiledArray:
    """Return the squared absolute values, real."""
    if array.dtype.kind == "c":
        return array.real * array.real + array.imag * array.imag
    return array * array


def _start(array: TiledArray) -> dict[str, Any]:
    """Return how the largest of absolute values begins where there may be none."""
    return {"initial": 0} if 0 in array.shape else {}


def vector_norm_of(array: TiledArray, order: Any, axis: Any, keepdims: bool) -> TiledArray:
    """Return the norm of vectors along the axes, by NumPy's formulas.

    Raises
    ------
    ValueError
        If there is no such norm of vectors.
    """
    if order is None or order == 2:
        return np.sqrt(reducing.sum(squares(array), axis=axis, keepdims=keepdims))
    if order == np.inf:
        return reducing.max(abs(array), axis=axis, keepdims=keepdims, **_start(array))
    if order == -np.inf:
        return reducing.min(abs(array), axis=axis, keepdims=keepdims)
    if order == 0:
        real = array.dtype.type(0).real.dtype
        return reducing.sum((array != 0).astype(real), axis=axis, keepdims=keepdims)
    if order == 1:
        return reducing.sum(abs(array), axis=axis, keepdims=keepdims)
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    powers = reducing.sum(abs(array) ** order, axis=axis, keepdims=keepdims)
    return powers ** np.reciprocal(order, dtype=powers.dtype).item()


def matrix_norm_of(
    array: TiledArray, order: Any, axes: tuple[int, int], keepdims: bool
) -> TiledArray:
    """Return the norm of matrices, of those that are sums of elements.

    Raises
    ------
    ValueError
        If both axes are the same.
    """
    row, column = (normalize_axis_index(axis, array.ndim) for axis in axes)
    if row == column:
        raise ValueError("Duplicate axes given.")
    if order in (None, "fro", "f"):
        return np.sqrt(reducing.sum(squares(array), axis=(row, column), keepdims=keepdims))
    summed, other = (row, column) if abs(order) == 1 else (column, row)
    totals = reducing.sum(abs(array), axis=summed, keepdims=True)
    if order > 0:
        result = reducing.max(totals, axis=other, keepdims=True, **_start(array))
    else:
        result = reducing.min(totals, axis=other, keepdims=True)
    return result if keepdims else result.squeeze((summed, other))
