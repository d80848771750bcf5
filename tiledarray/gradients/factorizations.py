"""What the rules of linear algebra are written with.

Nothing is looked at: what fails for its values (a singular matrix) fails where the gradient is
evaluated.  In formulas that are known for the conjugate of our cotangents (gradients in the usual
sense) those are conjugated on the way in and out.

Where a derivative is not defined, that part of it is taken to be 0: the share of eigenvectors and
singular vectors in equal eigenvalues and singular values, and what is divided by singular values
that are 0.  So gradients of functions of eigenvalues alone are right also where some are equal;
their second derivatives there lack that share.  The gradients with respect to Hermitian matrices,
of which one triangle is read, are Hermitian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiledarray.arrays.handle import wrap
from tiledarray.errors import NoDerivative
from tiledarray.gradients.notation import diagonal_alone, where, xp
from tiledarray.gradients.products import column, conjugated, real_dtype, row, turned
from tiledarray.ops.library import BY_NAME as LIBRARY
from tiledarray.ops.library import options
from tiledarray.recording import record

Part = Callable[..., Any]


def adjoint(x: Any) -> Any:
    """Return the conjugate transposes of matrices."""
    return conjugated(turned(x))


def _hermitian(x: Any) -> Any:
    return (x + adjoint(x)) * 0.5


def _diagonals(x: Any) -> Any:
    return x.diagonal(0, -2, -1)


def _with_diagonal(x: Any, values: Any) -> Any:
    """Return matrices with other diagonals."""
    return where(_eye(x.shape[-1], x), column(values), x)


def _eye(size: int, like: Any) -> Any:
    return xp.eye(size, dtype=bool, device=like.device)


def _inverse(x: Any) -> Any:
    """Return the elements' inverses, 0 of 0."""
    none = x == 0
    return where(none, 0.0, 1 / where(none, 1.0, x))


def _call(name: str, inputs: Any, shape: Any, dtype: Any, **keywords: Any) -> Any:
    op = LIBRARY[f"linalg.{name}"]
    nodes = [x.node for x in inputs]
    return wrap(record.library(op, nodes, options(**keywords), tuple(shape), dtype))


def solved(a: Any, b: Any) -> Any:
    """Return the solutions of linear equations, of matrices; they are not looked at."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return _call("solve", (a, b), (*batch, *b.shape[-2:]), np.result_type(a.dtype, b.dtype))


def inverted(a: Any) -> Any:
    """Return the inverses of matrices; they are not looked at."""
    return _call("inv", (a,), a.shape, a.dtype)


def inverted_lower(a: Any) -> Any:
    """Return the inverses of lower triangular matrices; they are not looked at."""
    return _call("inv_of_lower", (a,), a.shape, a.dtype)


# Inverses and equations --------------------------------------------------------------------------


def uninverted(g: Any, out: Any) -> Any:
    """Return what belongs to matrices that were inverted."""
    back = turned(out)
    return -(back @ g @ back)


def equations_left(g: Any, x: Any, y: Any, out: Any) -> Any:
    """Return what belongs to the matrices of linear equations."""
    right = equations_right(g, x, y)
    if y.ndim == 1:
        return -column(right) * row(out)
    one = y.shape[-1] == 1 and right.ndim == out.ndim
    return -(right * turned(out)) if one else -(right @ turned(out))


def equations_right(g: Any, x: Any, y: Any) -> Any:
    """Return what belongs to the right sides of linear equations."""
    return solved(turned(x), column(g))[..., 0] if y.ndim == 1 else solved(turned(x), g)


def uninverted_lower(g: Any, out: Any) -> Any:
    """Return what belongs to lower triangular matrices that were inverted."""
    return xp.tril(uninverted(g, out))


def unpseudoinverted(g: Any, x: Any, out: Any) -> Any:
    """Return what belongs to matrices of which the rank stays as it is (Golub and Pereyra 1973)."""
    g = conjugated(g)
    back, left = adjoint(out), adjoint(g)
    total = -(back @ g @ back)
    over = left @ out @ back
    total = total + over - x @ (out @ over)
    over = back @ out @ left
    return conjugated(total + over - (over @ out) @ x)


# Determinants ------------------------------------------------------------------------------------


def cofactors(x: Any) -> Any:
    """Return the derivatives of determinants by the elements, exact for singular matrices."""
    return _call("cofactors", (x,), x.shape, x.dtype)


def uncofactored(g: Any, x: Any, out: Any) -> Any:
    """Return what belongs to matrices whose cofactors were taken; those that are not singular."""
    back = turned(inverted(x))
    share = xp.sum(g * out, axis=(-2, -1))[..., None, None]
    return share * back - out @ turned(g) @ back


def unslogdet(g: dict[int, Any], x: Any, part: Part) -> Any:
    """Return what belongs to matrices of which sign and logarithm of the determinant were taken.

    Of real numbers the sign has the derivative 0.
    """
    share = g.get(1)
    if 0 in g and x.dtype.kind == "c":
        sign = part(0, x.shape[:-2], x.dtype)
        turn = -1j * (1j * g[0] * sign).real
        share = turn if share is None else share + turn
    if share is None:
        return None
    return share[..., None, None] * turned(inverted(x))


# Factorizations ----------------------------------------------------------------------------------


def uncholesky(g: Any, out: Any) -> Any:
    """Return what belongs to positive definite matrices (Murray 2016).

    The factor is inverted, which takes half of the time of solving with it twice.  Of what belongs
    to its diagonal alone, as in log-determinants, one product is left of three.
    """
    diagonal = diagonal_alone(g)
    if diagonal is not None and g.dtype.kind == "f":
        inverse = inverted_lower(out)
        return turned(inverse) @ (column(_diagonals(out) * diagonal * 0.5) * inverse)
    inner = xp.tril(adjoint(out) @ conjugated(g))
    inner = _with_diagonal(inner, _diagonals(inner) * 0.5)
    inverse = inverted_lower(out)
    return conjugated(_hermitian(adjoint(inverse) @ inner @ inverse))


def uneigh(g: dict[int, Any], x: Any, part: Part) -> Any:
    """Return what belongs to Hermitian matrices of which eigenvalues and vectors were taken."""
    w = part(0, x.shape[:-1], real_dtype(x))
    v = part(1, x.shape, x.dtype)
    inner = None
    if 1 in g:
        inner = adjoint(v) @ conjugated(g[1]) * _inverse(row(w) - column(w))
    if 0 in g:
        zero = xp.zeros(x.shape, v.dtype, device=x.device) if inner is None else inner
        inner = _with_diagonal(zero, g[0])
    return conjugated(_hermitian(v @ inner @ adjoint(v)))


def uneigvalsh(g: Any, x: Any, attrs: Any) -> Any:
    """Return what belongs to Hermitian matrices of which eigenvalues were taken."""
    node = record.library(
        LIBRARY["linalg.eigh"], (x.node,), attrs, x.shape[:-1], real_dtype(x))
    v = wrap(record.item(node, 1, x.shape, x.dtype))
    return conjugated(_hermitian(v * row(g) @ adjoint(v)))


def uneigvals(g: Any, x: Any) -> Any:
    """Return what belongs to matrices of which eigenvalues were taken; where they have vectors."""
    node = record.library(LIBRARY["linalg.eig"], (x.node,), (), g.shape, g.dtype)
    back = turned(wrap(record.item(node, 1, x.shape, g.dtype)))
    return solved(back, column(g) * back)


def uneig(g: dict[int, Any], x: Any, part: Part) -> Any:
    """Return what belongs to matrices of which eigenvalues and vectors of length 1 were taken.

    The vectors are determined up to phases.  What depends on them has no derivative.
    """
    dtype = g[min(g)].dtype
    w = part(0, x.shape[:-1], dtype)
    v = part(1, x.shape, dtype)
    inner = xp.zeros(x.shape, dtype, device=x.device)
    if 1 in g:
        own = adjoint(v) @ conjugated(g[1])
        lengths = (adjoint(v) @ v) * row(_diagonals(own).real)
        inner = (own - lengths) * _inverse(conjugated(row(w) - column(w)))
    inner = _with_diagonal(inner, conjugated(g[0]) if 0 in g else xp.zeros_like(w))
    return conjugated(solved(adjoint(v), inner @ adjoint(v)))


def unqr(g: dict[int, Any], x: Any, part: Part, attrs: Any) -> Any:
    """Return what belongs to matrices of full rank that were factored (Walter and Lehmann 2018).

    Of wide ones that is the square part in front, by which the rest follows.

    Raises
    ------
    NoDerivative
        If columns were asked for that the matrix does not determine.
    """
    rows, columns = x.shape[-2:]
    if rows > columns and dict(attrs)["mode"] == "complete":
        raise NoDerivative(
            "linalg.qr of more rows than columns by mode='complete' has no derivative: the columns "
            "behind the first ones are not determined", remedy="use mode='reduced'")
    short = min(rows, columns)
    batch = x.shape[:-2]
    q = part(0, (*batch, rows, short), x.dtype)
    r = part(1, (*batch, short, columns), x.dtype)
    to_q = conjugated(g[0]) if 0 in g else None
    to_r = conjugated(g[1]) if 1 in g else None
    if columns > rows:
        if to_r is not None:
            rest = to_r[..., short:]
            share = x[..., short:] @ adjoint(rest)
            to_q = share if to_q is None else to_q + share
            to_r = to_r[..., :short]
        else:
            rest = xp.zeros((*batch, rows, columns - rows), x.dtype, device=x.device)
        front = _unqr_tall(to_q, to_r, q, r[..., :short])
        return conjugated(xp.concatenate([front, q @ rest], axis=-1))
    return conjugated(_unqr_tall(to_q, to_r, q, r))


def unqr_r(g: Any, x: Any) -> Any:
    """Return what belongs to matrices of full rank of which the triangular factor was taken."""
    *batch, rows, columns = x.shape
    attrs = options(mode="reduced")
    shape = (*batch, rows, min(rows, columns))
    node = record.library(LIBRARY["linalg.qr"], (x.node,), attrs, shape, x.dtype)
    return unqr({1: g}, x, lambda *kind: wrap(record.item(node, *kind)), attrs)


def _unqr_tall(to_q: Any, to_r: Any, q: Any, r: Any) -> Any:
    inner = None if to_r is None else r @ adjoint(to_r)
    if to_q is not None:
        other = adjoint(to_q) @ q
        inner = -other if inner is None else inner - other
    low = xp.tril(inner, -1)
    whole = q @ _with_diagonal(low + adjoint(low), _diagonals(inner).real)
    if to_q is not None:
        whole = whole + to_q
    return adjoint(solved(r, adjoint(whole)))


def unsvd(g: dict[int, Any], x: Any, part: Part, attrs: Any) -> Any:
    """Return what belongs to matrices of which singular values and vectors were taken.

    Raises
    ------
    NoDerivative
        If vectors were asked for that the matrix does not determine.
    """
    full = dict(attrs)["full_matrices"]
    rows, columns = x.shape[-2:]
    short = min(rows, columns)
    if full and ((rows > short and 0 in g) or (columns > short and 2 in g)):
        raise NoDerivative(
            "linalg.svd by full_matrices=True has no derivative by those vectors that the matrix "
            "does not determine", remedy="use full_matrices=False")
    if [*g] == [1]:
        return unsvdvals(g[1], x)
    batch = x.shape[:-2]
    s = part(1, (*batch, short), real_dtype(x))
    u = v = None
    if not full or rows == short:
        u = part(0, (*batch, rows, short), x.dtype)
    if not full or columns == short:
        v = adjoint(part(2, (*batch, short, columns), x.dtype))
    if u is None:  # those of them that belong to the other side's
        u = x @ v * row(_inverse(s))
    if v is None:
        v = adjoint(x) @ u * row(_inverse(s))
    to_u = conjugated(g[0]) if 0 in g else None
    to_v = turned(g[2]) if 2 in g else None
    return conjugated(_unsvd(to_u, g.get(1), to_v, u, s, v))


def _unsvd(to_u: Any, to_s: Any, to_v: Any, u: Any, s: Any, v: Any) -> Any:
    """Return the gradient by those of the factors, as in Townsend (2016) and Wan and Zhang (2019).

    Complex vectors are determined up to phases.  What depends on them has no derivative; of
    anything else the diagonals are opposite, and their imaginary parts take part by halves.
    """
    inner = xp.zeros((*s.shape, s.shape[-1]), u.dtype, device=u.device)
    gaps = _inverse((row(s) - column(s)) * (row(s) + column(s)))
    inverse = _inverse(s)
    phases = None
    outside = None
    if to_u is not None:
        own = adjoint(u) @ to_u
        inner = inner + gaps * (own - adjoint(own)) * row(s)
        phases = _diagonals(own).imag if own.dtype.kind == "c" else None
        if u.shape[-2] > u.shape[-1]:
            outside = ((to_u - u @ own) * row(inverse)) @ adjoint(v)
    if to_v is not None:
        own = adjoint(v) @ to_v
        inner = inner + column(s) * gaps * (own - adjoint(own))
        if own.dtype.kind == "c":
            mine = _diagonals(own).imag
            phases = -mine if phases is None else phases - mine
        if v.shape[-2] > v.shape[-1]:
            more = (u * row(inverse)) @ adjoint(to_v - v @ own)
            outside = more if outside is None else outside + more
    diagonal = to_s
    if phases is not None:
        turn = 0.5j * phases * inverse
        diagonal = turn if diagonal is None else diagonal + turn
    if diagonal is not None:
        inner = _with_diagonal(inner, diagonal)
    found = u @ inner @ adjoint(v)
    return found if outside is None else found + outside


def unsvdvals(g: Any, x: Any) -> Any:
    """Return what belongs to matrices of which singular values were taken."""
    rows, columns = x.shape[-2:]
    short = min(rows, columns)
    batch = x.shape[:-2]
    node = record.library(
        LIBRARY["linalg.svd"], (x.node,), options(full_matrices=False), (*batch, rows, short),
        x.dtype)
    u = wrap(record.item(node, 0, (*batch, rows, short), x.dtype))
    vh = wrap(record.item(node, 2, (*batch, short, columns), x.dtype))
    return conjugated((u * row(g)) @ vh)
