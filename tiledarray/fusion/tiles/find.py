"""Finds what is worth a kernel of tiles in a signature."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tiledarray.fusion.agree import is_sudden
from tiledarray.fusion.along import Entry, Graph, Looped, looped_of, transformed
from tiledarray.fusion.bodies import Made, cut_out, made_of
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles.build import NoRoom, NoTile
from tiledarray.fusion.tiles.definite import INSTEAD, by_factors
from tiledarray.fusion.tiles.ir import Program
from tiledarray.fusion.tiles.kernel import programmed
from tiledarray.fusion.tiles.long import in_steps
from tiledarray.fusion.tiles.region import TileRegion, batch_axes, is_seed
from tiledarray.fusion.tiles.signs import shown
from tiledarray.fusion.tiles.teams import EIGENVALUES_ROW_BYTES, refusal
from tiledarray.ops.op import AxisView, Elementwise, Item, Library, Reshape

MOST = 16  # kernels of a plan
TOGETHER = 3  # problems of a multiprocessor that hide each other's waits
VECTOR = 16  # times that what takes hardly any room is smaller than a call's result
LARGE_PRODUCT = 48  # rows and columns of what tensor cores multiply for many problems at once


class Found(NamedTuple):
    """A signature with loops over problems in it, and why there are no more."""

    looped: Looped
    refusals: list[str]


def in_tiles(signature: tuple[Any, ...], target: Target) -> Found:
    """Have what is worth it computed problem by problem on chip.

    Parameters
    ----------
    signature : tuple
        See `Trace.signature`.
    target : Target
    """
    looped = looped_of(signature)
    split = in_steps(looped, target)
    if split is not looped:
        found = _with_factors(split, target)
        if not any(_is_transform(entry) for entry in found.looped.entries):
            return found  # else libraries do one of the steps, and rather do both at once
    return _with_factors(looped, target)


def _with_factors(looped: Looped, target: Target) -> Found:
    """The same, with equations solved by factors that are computed anyway."""
    by_factor = by_factors(looped, target)
    if by_factor is not looped:
        found = _in_tiles(by_factor, target)
        if all(entry[0] not in INSTEAD for entry in found.looped.entries):
            return found  # else libraries have to solve, which would need the matrices again
    return _in_tiles(looped, target)


def _is_transform(entry: Any) -> bool:
    return isinstance(entry[0], Library) and entry[0].tile == "fourier"


def _in_tiles(looped: Looped, target: Target) -> Found:
    refusals: list[str] = []
    in_vain: set[int] = set()
    for _ in range(MOST):
        seeds = [place for place, entry in enumerate(looped.entries)
                 if is_seed(entry) and looped.numbers[place] not in in_vain]
        if not seeds:
            break
        graph = Graph.of(looped, problems=True)
        barred = _barred(graph, target)
        try:
            region, made = _found(graph, seeds[0], barred, looped, target)
        except NoTile as refusal:
            name = graph.entries[seeds[0]].op
            refusals.append(f"no kernel of tiles for {name.name if name else ''}: {refusal}")
            in_vain.add(looped.numbers[seeds[0]])
            continue
        looped = cut_out(region, looped, made)
    return Found(looped, refusals)


def _barred(graph: Graph, target: Target) -> dict[int, str]:
    """Which calls are left to libraries though others of their kind are not, and why."""
    reason = "it would show which signs its vectors have, and they are LAPACK's"
    found = dict.fromkeys(shown(graph), reason)
    for number, entry in enumerate(graph.entries):
        if target.kind == "cuda" and _is_product(entry) and min(
                n for ref in entry.values for n in graph.entries[ref].shape[-2:]) >= LARGE_PRODUCT:
            found[number] = "a library multiplies matrices as large as these faster"
        if not isinstance(entry.op, Library) or entry.op.tile not in ("eigh", "fourier"):
            continue
        source = graph.entries[entry.values[0]]
        width = entry.dtype.type(0).real.itemsize
        if entry.op.tile == "eigh":
            primitive, sizes = "eigenvalues", [source.shape[-1]]
            width *= 2 if source.dtype.kind == "c" else 1
            vectors = entry.op.outputs > 1 and any(
                graph.entries[user].attrs for user in graph.users[number])
            if target.kind == "cpu" and not vectors and sizes[0] * width > EIGENVALUES_ROW_BYTES:
                found[number] = f"LAPACK is as fast for eigenvalues of {sizes[0]} rows"
        else:
            attrs = dict(entry.attrs)
            primitive, sizes, width = "fourier", attrs.get("s") or [attrs["n"]], 2 * width
        for size in sizes:
            refused = refusal(primitive, (size,), width, device=target.kind == "cuda")
            if refused is not None:
                found[number] = refused
    return found


def _found(graph: Graph, seed: int, barred: dict[int, str], looped: Looped,
           target: Target) -> tuple[TileRegion, Made]:
    """What is computed for the sake of a call, with the loop that does it.

    Of several batch axes the last ones may be part of a problem: what is reduced along them is
    then reduced on chip, and what is transformed along an axis before them lies together.  Where
    there is no room for all, or for too few problems at a time, what no call is made of is left to
    others but for vectors, and what is made of none is computed again by them.

    Raises
    ------
    NoTile
    """
    if seed in barred:
        raise NoTile(barred[seed])
    full = None
    try:
        full = _largest(graph, seed, frozenset(barred), looped, target)
        if target.kind == "cpu" or TOGETHER * _nbytes(full[1]) <= target.shared_bytes:
            return full
    except NoRoom:
        pass
    before, behind = _apart_from_calls(graph)
    least = graph.entries[seed].nbytes // VECTOR
    large = frozenset(number for number in behind if graph.entries[number].nbytes > least)
    try:
        lean = _largest(graph, seed, frozenset(barred) | large, looped, target, before)
    except NoTile:
        if full is None:
            raise
        return full
    return lean if full is None or 2 * _nbytes(lean[1]) <= _nbytes(full[1]) else full


def _nbytes(made: Made) -> int:
    """Bytes of shared memory of a problem."""
    program = made.body.program
    assert isinstance(program, Program)
    return program.nbytes


def _apart_from_calls(graph: Graph) -> tuple[frozenset[int], frozenset[int]]:
    """What is made of no call, and of what none is made; products of matrices belong there, too.

    The former is computed in several kernels, so it is not what has to be the same in all of them.
    """
    last = len(graph.entries) - 1
    made, leads, alike = set[int](), set[int](), set[int]()
    behind: set[int] = set()
    for number, entry in enumerate(graph.entries):
        if _is_call(entry) or not made.isdisjoint(entry.values):
            made.add(number)
    for number in range(last, -1, -1):
        entry = graph.entries[number]
        if is_sudden(entry) or (
                number in alike and isinstance(entry.op, Elementwise | AxisView | Reshape)):
            alike.update(entry.values)
        if number in leads or _is_call(entry):
            leads.update(entry.values)
        elif not isinstance(entry.op, Item):
            behind.add(number)
        if _is_product(entry):
            behind.add(number)
    return frozenset({*range(last + 1)} - made - alike), frozenset(behind)


def _is_product(entry: Entry) -> bool:
    return isinstance(entry.op, Library) and entry.op.tile == "product"


def _is_call(entry: Entry) -> bool:
    return isinstance(entry.op, Library) and entry.op.tile not in ("", "product")


def _largest(graph: Graph, seed: int, barred: frozenset[int], looped: Looped, target: Target,
             again: frozenset[int] = frozenset()) -> tuple[TileRegion, Made]:
    axes = batch_axes(graph.entries[seed])
    regions = [TileRegion(graph, seed, axes[:count], target, barred, again)
               for count in range(len(axes), 0, -1)]
    refusal = NoTile("it is one problem")
    for region in sorted(regions, key=lambda region: (region.stored(), region.apart())):
        try:
            return region, _made(region, looped, target)
        except NoTile as other:
            refusal = other
    raise refusal


def _made(region: TileRegion, looped: Looped, target: Target) -> Made:
    """The loop over a region's problems.

    Raises
    ------
    NoTile
        If it is not worth it, or something has no form for tiles.
    """
    lengths, limits = region.lengths(), target.limits
    count = prod(lengths)
    if count < limits.problems:
        raise NoTile(f"{count} problems are too few (at least {limits.problems})")
    several = (region.graph.entries[number].op for number in region.results)
    if any(isinstance(op, Library) and op.outputs > 1 for op in several):
        raise NoTile("some of its results are asked for as they are")
    made = made_of(region, looped, (1,) * len(lengths))
    body = programmed(made.body, target)
    flops = count * (body.program.flops + limits.problem_call)
    if flops < limits.problem_flops:
        raise NoTile(f"{flops} flops are too few")
    if target.kind == "cpu" and _gain(region) < 1:
        raise NoTile("NumPy's transforms of them are as fast")
    return Made(body, made.refs)


def _gain(region: TileRegion) -> float:
    """What a kernel gains over NumPy's calls on the host, where those are transforms alone.

    pocketfft takes complex numbers of single precision as it does those of double precision, with
    half the vectors that a kernel of tiles fills; real ones by half as much work as a complex
    transform has, which is all that tiles do.  Along several axes it goes through memory for each
    of them, and a kernel of tiles once.
    """
    gain = 0.0
    for number in region.inside:
        entry = region.graph.entries[number]
        if not isinstance(entry.op, Library) or entry.op.tile in ("", "product"):
            continue
        if entry.op.tile != "fourier":
            return 1
        if len(transformed(entry.attrs, len(entry.shape))) > 1:
            gain += 1
            continue
        single = entry.dtype.char in "fF"
        real = entry.op.name.startswith(("fft.r", "fft.ir", "fft.h", "fft.ih"))
        gain += (-0.25 if single else -1) if real else 1 if single else 0.5
    return gain
