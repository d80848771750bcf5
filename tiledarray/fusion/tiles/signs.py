"""Whether it shows which of their signs eigenvectors have.

An eigenvector times -1, or times any number of size 1 if it is complex, is one as well.  LAPACK's
choice follows from how it computes them, and so does Jacobi's method's: they differ.  So a kernel
computes them only for what is the same with either, such as ``v @ diag(f(w)) @ v.T``; then a
program's values do not depend on whether its kernels are compiled.

Each dimension of a value has a *power*: by which power of the factor of eigenvector ``k`` what
stands at index ``k`` along it is multiplied.  Of eigenvectors that is 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiledarray.fusion.along import ONE, PRODUCTS, SUMMED, WHOLE, Entry, Graph
from tiledarray.ops.op import AxisView, Elementwise, Item, Library, Reduction, Reshape

Powers = tuple[int, ...]


def shown(graph: Graph) -> frozenset[int]:
    """Return the calls for eigenvectors whose signs show in what a signature gives."""
    return frozenset(
        number for number, entry in enumerate(graph.entries)
        if isinstance(entry.op, Library) and entry.op.tile == "eigh" and _shows(graph, number))


def _shows(graph: Graph, call: int) -> bool:
    found: dict[int, Powers] = {}
    for number in _after(graph, call):
        entry = graph.entries[number]
        if isinstance(entry.op, Item) and entry.refs[0] == call:
            powers: Powers | None = (*(0,) * (len(entry.shape) - 1), 1) if entry.attrs else ()
        else:
            powers = _Rule(graph, number, found).powers()
        if powers is None:
            return True
        if entry.dtype.kind != "c":
            powers = tuple(power % 2 for power in powers)
        if any(powers):
            if number in graph.outputs:
                return True
            found[number] = powers
    return False


def _after(graph: Graph, call: int) -> Iterator[int]:
    """The entries that are made of a call's results, in order, if its vectors are asked for."""
    if not any(graph.entries[user].attrs for user in graph.users[call]):
        return
    behind = {call}
    for number in range(call + 1, len(graph.entries)):
        if not behind.isdisjoint(graph.entries[number].values):
            behind.add(number)
            yield number


class _Rule:
    """The powers of a result from those of its operands; ``None`` where there are none."""

    def __init__(self, graph: Graph, number: int, found: dict[int, Powers]) -> None:
        self.entry: Entry = graph.entries[number]
        self.dtypes = [graph.entries[ref].dtype for ref in self.entry.values]
        self.operands = [(found.get(ref), relation) for ref, relation in graph.operands(number)]
        self.refs = self.entry.refs

    def powers(self) -> Powers | None:
        """Of the result."""
        op = self.entry.op
        if not any(powers for powers, _ in self.operands):
            return ()
        if isinstance(op, AxisView | Reshape):
            return self._placed(0)
        if isinstance(op, Reduction):
            return self._placed(0) if op.combine == "add" else None
        if op in PRODUCTS and (op is not None and op.name not in ("vecdot", "vecmat")):
            return self._product()
        return self._elementwise(op.name) if isinstance(op, Elementwise) else None

    def _placed(self, k: int, by: int = 1) -> Powers | None:
        """The powers of an operand's dimensions where they are in the result."""
        given, relation = self.operands[k]
        powers = [0] * len(self.entry.shape)
        for power, to in zip(given or (), relation, strict=bool(given)):
            if power and to < 0:
                return None
            if power:
                powers[to] = by * power
        return tuple(powers)

    def _elementwise(self, name: str) -> Powers | None:
        if name == "absolute":
            return ()
        if name in ("conjugate", "negative", "positive", "square"):
            return self._placed(0, {"conjugate": -1, "square": 2}.get(name, 1))
        if name == "cast":
            return self._placed(0) if self.dtypes[0].kind != "c" or (
                self.entry.dtype.kind == "c") else None
        if name in ("multiply", "divide"):
            return self._sum(self._of_both(-1 if name == "divide" else 1))
        if name in ("add", "subtract"):
            left, right = self._of_both(1)
            return left if left == right else None
        return None

    def _of_both(self, sign: int) -> list[Powers | None]:
        """The powers of the first operand and of the second, either of which may be a number."""
        signs, placed = (1, sign), iter(range(len(self.operands)))
        none = (0,) * len(self.entry.shape)
        return [self._placed(next(placed), by) if ref is not None and ref >= 0 else none
                for ref, by in zip(self.refs, signs, strict=True)]

    @staticmethod
    def _sum(parts: list[Powers | None]) -> Powers | None:
        left, right = parts
        if left is None or right is None:
            return None
        return tuple(one + other for one, other in zip(left, right, strict=True))

    def _product(self) -> Powers | None:
        """What is summed over has no factor, or those of both sides go away."""
        summed: dict[int, int] = {}
        powers = [0] * len(self.entry.shape)
        for given, relation in self.operands:
            for power, to in zip(given or (), relation, strict=bool(given)):
                if power and to in (WHOLE, ONE):
                    return None
                if to <= SUMMED:
                    summed[to] = summed.get(to, 0) + power
                elif to >= 0:
                    powers[to] += power
        if any(total % 2 if self.entry.dtype.kind != "c" else total for total in summed.values()):
            return None
        return tuple(powers)
