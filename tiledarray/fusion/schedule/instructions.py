"""Choices for kernels that are bound by their instructions rather than by memory.

A multiprocessor of a GPU issues four instructions of a warp a cycle, and its L1 cache answers a
load of one word by a warp in one cycle, whether its threads read one address or 32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from tiledarray.fusion.ir import Cell
from tiledarray.fusion.plan import Kernel, Root
from tiledarray.fusion.schedule.place import inner_axes
from tiledarray.ops import arithmetic, reduction
from tiledarray.ops.op import Elementwise

QUICK_SAVES = 12  # flops for which the text of a map's chunk is written twice
QUICK_BLOCKS = 6  # of 256 threads on a multiprocessor, at 40 registers: they hide the memory
PAIR_WORDS = 96  # registers of a thread for what its lanes keep: 128 leave room for 16 warps
PAIR_COST = 320  # flops of a step by one thread: it waits for nothing then, and compiles soon
_CONTRACTED = (np.dtype(np.float32), np.dtype(np.float64))
_SPREAD_NAN = {
    arithmetic.add, arithmetic.subtract, arithmetic.multiply, arithmetic.divide,
    arithmetic.negative, arithmetic.square, arithmetic.scaled, arithmetic.multiply_add,
    arithmetic.multiply_subtract, arithmetic.subtract_product}
_SCALES = {arithmetic.multiply, arithmetic.scaled, arithmetic.negative}
_SUMS = {arithmetic.add, arithmetic.subtract}
_SUMS_OF_PRODUCTS = {
    arithmetic.multiply_add, arithmetic.multiply_subtract, arithmetic.subtract_product}
PAIR_LANES = 4  # from which loads are few beside the arithmetic
WARP = 32
ACROSS_WORDS = 64  # registers for elements of a row, and for what those of all rows become


def pairs(kernel: Kernel) -> bool:
    """Whether a column kernel streams nothing: steps meet lanes that stay where they are."""
    steps = [k for k, axis in enumerate(kernel.schedule.axes) if axis.role == "step"]
    return kernel.schedule.form == "column" and not kernel.schedule.scanned and not any(
        access.strides[-1] and any(access.strides[k] for k in steps)
        for access in kernel.loads.values()
    ) and not any(store.sink.level == "full" for store in kernel.stores)


def pair_width(kernel: Kernel) -> int:
    """Lanes that a thread keeps: what a step loads is used for each of them."""
    inner = inner_axes(kernel)
    lane = frozenset(kernel.schedule.lane.domain)
    own = sum(words(cell.dtype) for cell in kernel.cells
              if cell.kind == "load" and cell.axes & inner and cell.axes & inner <= lane)
    reduced = [cell for cell in kernel.cells if cell.kind == "reduce"]
    own += sum(3 * words(cell.dtype) for cell in reduced)  # a lane's value, and its total
    work = cost_of(kernel.cells)
    width = PAIR_LANES
    while width > 1 and (width * own > PAIR_WORDS or width * work > PAIR_COST):
        width //= 2
    return width


def cost_of(cells: Iterable[Cell]) -> int:
    """Flops of elementwise operations."""
    return sum(op.cost for cell in cells if cell.kind == "apply"
               and isinstance(op := cell.value.op, Elementwise))


def find_products(kernel: Kernel) -> None:
    """Note the sums of products that nothing else uses: a product is rounded with its sum."""
    uses = Counter(arg for cell in kernel.cells for arg in cell.args if isinstance(arg, Cell))
    uses.update(store.sink.cell for store in kernel.stores)
    for cell in kernel.cells:
        if cell.kind not in ("reduce", "across") or cell.value.op is not reduction.sum:
            continue
        product, accumulate = cell.args[0], cell.value.attrs[1]
        factors = _factors(product)
        if (factors is not None and uses[product] == 1 and product.dtype in _CONTRACTED
                and (accumulate is None or accumulate == product.dtype)):
            kernel.products[cell] = factors


def _factors(cell: Cell) -> tuple[Cell, Cell] | None:
    op = cell.value.op if cell.kind == "apply" else None
    if op not in (arithmetic.multiply, arithmetic.square) or any(
            loop != cell.dtype for loop in cell.value.attrs):
        return None
    return cell.args[0], cell.args[-1]


def find_roots(kernel: Kernel) -> None:
    """Note the exponentials that only sums use, where a kernel is bound by its instructions.

    An exponential of its argument alone takes 8 instructions, for it has to know the exponent to
    a place beyond float32.  In a sum what counts is how far off its terms are to one another, and
    each argument is rounded by itself already.
    """
    if kernel.schedule.scanned or not streams_nothing(kernel):
        return
    users: dict[Cell, set[Cell]] = {}
    for cell in kernel.cells:
        for arg in cell.args:
            users.setdefault(arg, set()).add(cell)
    stored = {store.sink.cell for store in kernel.stores}
    for cell in kernel.cells:
        op = cell.value.op if _is_single(cell) else None
        if not isinstance(op, Elementwise) or not op.root or not cell.axes & kernel.group.reduced:
            continue
        multiples = _multiples(kernel.cells, cell)
        used = set[Cell]().union(*(users.get(each, ()) for each in multiples)) - multiples
        if all(map(_is_sum, used)) and not any(
                each in stored or each.held for each in multiples):
            kernel.roots[cell] = _root_of(cell, added=len(multiples) == 1)
            if len(multiples) == 1:
                kernel.products.update(dict.fromkeys(used, (cell, cell)))


def _is_single(cell: Cell) -> bool:
    """Whether a cell applies an op in float32."""
    return cell.kind == "apply" and isinstance(cell.value.op, Elementwise) and all(
        loop == np.float32 for loop in (*cell.value.attrs, cell.dtype))


def _multiples(cells: list[Cell], factor: Cell) -> set[Cell]:
    """Cells that have a factor, itself among them: as far off as it is, to one another not at all.

    Sums and differences too, if all their terms have it equally often.
    """
    powers = {factor: 1}
    for cell in cells[factor.number + 1:]:
        if not _is_single(cell) or powers.keys().isdisjoint(cell.args):
            continue
        op, each = cell.value.op, [powers.get(arg, 0) for arg in cell.args]
        terms = ([sum(each)] if op in _SCALES else each if op in _SUMS else
                 [each[0] + each[1], each[2]] if op in _SUMS_OF_PRODUCTS else [0])
        if terms[0] and len({*terms}) == 1:
            powers[cell] = terms[0]
    return {*powers}


def _is_sum(cell: Cell) -> bool:
    """Whether a cell is a sum in float32."""
    return cell.kind == "reduce" and cell.value.op is reduction.sum and cell.dtype == np.float32


def _root_of(cell: Cell, *, added: bool) -> Root:
    """The root of an exponential: what its argument is times a scalar, and that."""
    inner, by, divided, negative = cell.args[0], None, False, False
    while inner.kind == "apply" and all(loop == np.float32 for loop in inner.value.attrs):
        op, scalars = inner.value.op, [arg for arg in inner.args if arg.kind == "param"]
        if op is arithmetic.negative and not scalars:
            negative = not negative
        elif by is None and len(scalars) == 1 and (
                op is arithmetic.multiply or (
                    op is arithmetic.divide and scalars[0] is inner.args[1])):
            by, divided = scalars[0], op is arithmetic.divide
        else:
            break
        (inner,) = (arg for arg in inner.args if arg.kind != "param")
    return Root(inner, by, divided, negative, added)


def words(dtype: np.dtype[Any]) -> int:
    """Registers that a value takes."""
    return -(-dtype.itemsize // 4)


def words_of_lanes(across: Iterable[Cell], loads: Iterable[Cell]) -> int:
    """Return the registers that a lane takes: what is read, and what all rows become."""
    lanes = frozenset[int]().union(*(cell.axes for cell in across))
    return sum(words(cell.dtype) for cell in loads if cell.axes & lanes) + sum(
        2 * words(cell.dtype) for cell in across)


def quick_op(cell: Cell) -> Elementwise | None:
    """The op of a cell, if it has a text for most arguments; a scalar may have to be known."""
    if cell.kind != "apply":
        return None
    op = cell.value.op
    if not isinstance(op, Elementwise) or not op.has_quick(cell.value.attrs):
        return None
    return op if not op.usual or cell.args[-1].kind == "param" else None


def float_sums(sinks: Iterable[Cell]) -> list[Cell]:
    """Those of some reductions that are NaN where a term is."""
    return [cell for cell in sinks if cell.value.op is reduction.sum
            and cell.args[0].kind != "param" and cell.args[0].dtype.kind == cell.dtype.kind == "f"]


def scaled_addends(cells: Collection[Cell], sinks: Collection[Cell]) -> dict[Cell, Any]:
    """The factors of products that only a sum uses, where they are products until it is NaN."""
    uses = Counter(arg for cell in {*cells, *sinks} for arg in cell.args)
    return {sink: sink.args[0].args for sink in float_sums(sinks)
            if sink.args[0] in cells and sink.args[0].kind == "apply"
            and sink.args[0].value.op is arithmetic.scaled and uses[sink.args[0]] == 1
            and sink.dtype == sink.args[0].dtype == np.float32}


def shown_in_sums(cells: Collection[Cell], sinks: Collection[Cell]) -> bool:
    """Whether what is NaN where it may be wrong leaves sums that are NaN, of a pass."""
    shows = {cell.args[0] for cell in float_sums(sinks)}
    for cell in reversed(list(cells)):
        if cell in shows and cell.kind == "apply" and cell.value.op in _SPREAD_NAN:
            shows.update(cell.args)
    found = [cell for cell in cells if (op := quick_op(cell)) is not None and op.shown]
    return bool(found) and shows.issuperset(found)


def streams_nothing(kernel: Kernel) -> bool:
    """Whether what a reduction reads stays in caches: each load is used again and again."""
    schedule = kernel.schedule
    return pairs(kernel) or (schedule.form == "row" and schedule.unroll > 1)


def try_quick(kernel: Kernel) -> None:
    """Let a kernel on a GPU try texts for most arguments, where it is bound by such operations.

    That is a map with many divisions and roots, and whatever meets in pairs.  All results of a
    chunk must be in registers until it is done, since it may be done again.
    """
    if kernel.schedule.scanned:  # what runs along would go on twice
        return
    saves = [op.saves for cell in kernel.cells if (op := quick_op(cell)) is not None]
    schedule = kernel.schedule
    if schedule.form == "map" and sum(saves) >= QUICK_SAVES and all(
            store.access.strides[-1] == 1 for store in kernel.stores):
        schedule.quick = True
        schedule.resident = QUICK_BLOCKS
    elif saves and streams_nothing(kernel):
        schedule.quick = True
