"""The calls of a tile program as text: of primitives of ``kernels/headers``.

The threads of a transform also do what stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tiledarray.fusion.ir import ORIGIN, Affine
from tiledarray.fusion.tiles.copies import everywhere
from tiledarray.fusion.tiles.ir import Call, Map, Matrix, Product, Read, Shape, Store, parts
from tiledarray.kernels.text.expression import ctype
from tiledarray.kernels.text.tile_text import TileText


class TileCalls(TileText):
    """Writes calls.

    Attributes
    ----------
    copies : bool
        Whether copies into tiles are under way.
    """

    copies = False

    @property
    def alone(self) -> bool:
        """Whether a thread has a problem, so that all is unrolled."""
        return self.program.own is not None

    @property
    def by(self) -> str:
        """Whose the primitives are: a thread's or a team's."""
        return "thread::" if self.alone else ""

    def _await_copies(self) -> None:
        if self.copies:
            self.put("await_copies(team);")
            self.copies = False

    def _indices(self, domain: Shape, number: str) -> None:
        """The place along each axis of a domain, of a point by its number."""
        rest, behind = number, prod(domain)
        for axis, n in enumerate(domain):
            behind //= max(n, 1)
            if n == 1:
                self.put(f"constexpr int i_{axis} = 0; (void)i_{axis};")
                continue
            at = f"{rest} / {behind}" if behind > 1 else rest
            first = prod(domain[:axis]) == 1
            self.put(f"const int i_{axis} = {at}{'' if first else f' % {n}'};")

    def _assigned(self, target: str, value: str) -> str:
        """A statement that writes an element in memory."""
        return f"put({target}, {value});" if self.device else f"{target} = {value};"

    # ---- primitives of matrices ------------------------------------------------------------------

    def _product(self, statement: Product) -> None:
        out, left, right = statement.out, statement.left, statement.right
        numbers = (out.rows, out.columns, left.columns, out.pitch, left.pitch, right.pitch,
                   left.transposed, right.transposed)
        half = ", true" if statement.hermitian else ""
        self.put(f"{self.by}product<{listed(numbers)}{half}>"
                 f"(team, {_name(out)}, {_name(left)}, {_name(right)});")

    def _call(self, call: Call) -> None:
        failures = self.program.failures
        failed = f"failed_{failures.index(call)}" if call.failure else "unnoticed"
        getattr(self, f"_call_{call.name}")(call, failed)

    def _call_cholesky(self, call: Call, failed: str) -> None:
        out, read = call.out[0], call.reads[0]
        self.put(f"{self.by}cholesky<{listed((out.rows, out.pitch, read.pitch))}>"
                 f"(team, {_name(out)}, {_name(read)}, {failed});")

    def _call_triangular(self, call: Call, failed: str) -> None:
        x, a = call.out[0], call.reads[1]
        lower = "true" if call.numbers[0] else "false"
        self.put(f"{self.by}triangular<{listed((x.rows, x.columns, x.pitch, a.pitch))}, {lower}, "
                 f"{a.transposed}, false>(team, {_name(x)}, {_name(a)}, {failed});")

    def _call_lu(self, call: Call, failed: str) -> None:
        a, pivots = call.out
        symmetric = ", true" if self.alone and call.numbers else ""
        text = (f"{self.by}lu<{listed((a.rows, a.pitch))}{symmetric}>"
                f"(team, {_name(a)}, {_name(pivots)}, {failed});")
        if call.failure:
            self.put(text)
        else:
            with self.block(""):
                self.put(f"int unnoticed{' = 0' if self.device else '[W] = {}'};")
                self.put(text)

    def _call_lu_solve(self, call: Call, failed: str) -> None:
        x, a, pivots = call.reads
        self.put(f"{self.by}lu_solve<{listed((x.rows, x.columns, x.pitch, a.pitch))}>"
                 f"(team, {_name(x)}, {_name(a)}, {_name(pivots)});")

    def _call_inverse(self, call: Call, failed: str) -> None:
        x, a, pivots = call.out
        self.put(f"{self.by}inverse<{listed((x.rows, x.pitch, a.pitch))}>"
                 f"(team, {_name(x)}, {_name(a)}, {_name(pivots)}, {failed});")

    def _call_lu_det(self, call: Call, failed: str) -> None:
        a, pivots = call.reads
        self.put(f"{self.by}determinant<{listed((a.rows, a.pitch))}>"
                 f"(team, {_name(call.out[0])}, {_name(a)}, {_name(pivots)});")

    def _call_lu_slogdet(self, call: Call, failed: str) -> None:
        a, pivots = call.reads
        sign, size = call.out
        self.put(f"{self.by}slogdet<{listed((a.rows, a.pitch))}>"
                 f"(team, {_name(sign)}, {_name(size)}, {_name(a)}, {_name(pivots)});")

    def _call_qr(self, call: Call, failed: str) -> None:
        q, r, work = call.out
        numbers = listed((q.rows, q.columns, q.pitch, r.pitch))
        self.put(f"qr<{numbers}, {'true' if call.numbers[0] else 'false'}>"
                 f"(team, {_name(q)}, {_name(r)}, {_name(work)});")

    def _call_eigenvalues(self, call: Call, failed: str) -> None:
        a, w, *vectors = call.out
        v = vectors[0] if vectors else a  # which is not touched then
        kinds = f"{'true' if vectors else 'false'}, {'true' if call.numbers[0] else 'false'}"
        self.put(f"eigenvalues<{listed((a.rows, a.pitch, v.pitch))}, {kinds}>"
                 f"(team, {_name(a)}, {_name(v)}, {_name(w)}, {failed});")

    # ---- transforms ------------------------------------------------------------------------------

    def _call_fourier(self, call: Call, failed: str) -> None:
        if call.before or call.after:
            self._fourier_through(call)
            return
        tile, work = call.out[0].tile, [_name(matrix) for matrix in call.out[1:]]
        sign, axis, *extents = call.numbers
        others = [k for k, n in enumerate(extents) if k != axis and n > 1]
        for k in others:
            self.put(f"for (int i_{k} = 0; i_{k} < {extents[k]}; ++i_{k})")
        at = self._offset(tile, tuple(
            Affine(k) if k in others else ORIGIN for k in range(len(extents))))
        spacing = self.program.spacing
        line = f"t_{tile.number} + ({at}) * {spacing if self.device else 'W'}"
        self.put(f"  fourier<{tile.shape[axis]}, {sign}, {tile.strides[axis] * spacing}>"
                 f"({', '.join(['team', line, *work])});")

    def _fourier_through(self, first: Call, second: Call | None = None) -> None:
        """Transforms whose threads do what stands beside them with the elements that they have.

        A second one takes what is made of the first one's elements.
        """
        self._await_copies()
        rows, last = first.out[0], second or first
        tile = rows.tile
        signs = [str(call.numbers[0]) for call in (first, second) if call is not None]
        padded = str(tile.pitch >= rows.columns + rows.columns // 8).lower()
        spacing = self.program.spacing
        name = "fourier_twice" if second else "fourier_through"
        with self.block(f"for (int row = 0; row < {rows.rows}; ++row)"):
            self._indices(tile.shape[:-1], "row")
            self.put(f"{name}<{listed((rows.columns, *signs, padded, spacing))}>"
                     f"(team, {_name(rows)} + row * {tile.pitch * spacing},")
            self._element(first, "", lambda: self._filled(first))
            if second is not None:
                self._element(first, "found", lambda: f"return {self._made(first)};")
            self._element(last, "found", lambda: self._left(last), ends=True)

    def _element(self, call: Call, found: str, text: Callable[[], str], *,
                 ends: bool = False) -> None:
        """A function of the place of an element in its row, and of the element if it is found.

        The place has 64 bits, so that what is added to it is part of an address.
        """
        tile = call.out[0].tile
        element = f", const {ctype(tile.dtype)} {found}" if found else ""
        with self.block(f"  [&](const i64 i_{len(tile.shape) - 1}{element})",
                        "  });" if ends else "  },"):
            self.written = {}
            self.put(text())

    def _filled(self, call: Call) -> str:
        """What a transform takes."""
        tile, before = call.out[0].tile, call.before
        if isinstance(before, Map):
            value = self._value(before.expression, tile.dtype)
        elif before is not None:
            value = self._in_memory(before.source, before.index)
        else:
            value = self._on_chip(tile, everywhere(tile))
        return f"return cast<{ctype(tile.dtype)}>({value});"

    def _made(self, call: Call) -> str:
        """What is made of an element that a transform has found."""
        tile, after = call.out[0].tile, call.after
        value, kind = "found", tile.dtype
        if after is not None:
            self.written = {part: "found" for part in parts(after.expression)
                            if isinstance(part, Read) and part.source is tile}
            value = self._value(after.expression, tile.dtype)
        if isinstance(after, Store):
            kind = after.target.dtype
        return f"cast<{ctype(kind)}>({value})"

    def _left(self, call: Call) -> str:
        """What is done with an element that a transform has found."""
        made, tile, after = self._made(call), call.out[0].tile, call.after
        if isinstance(after, Store):
            place = self._in_memory(after.target, after.index, stores=True)
            return f"if (valid) {self._assigned(place, made)}"
        return f"{self._on_chip(tile, everywhere(tile))} = {made};"


def _name(matrix: Matrix) -> str:
    return f"t_{matrix.tile.number}"


def listed(numbers: Sequence[int | str]) -> str:
    """Arguments of a template."""
    return ", ".join(map(str, numbers))
