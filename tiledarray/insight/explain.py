"""``explain``: what the computation of an array is made of, and why."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tiledarray import config
from tiledarray.arrays.handle import Handle
from tiledarray.errors import TiledArrayError
from tiledarray.execution import evaluate, known, placement, plans
from tiledarray.execution.executable import Executable
from tiledarray.fusion.ir import Value
from tiledarray.graph.dtypes import UnsupportedDtypeError
from tiledarray.graph.node import Node
from tiledarray.graph.program import Trace, trace
from tiledarray.insight import page
from tiledarray.insight.facts import (
    ArrayUse,
    PlanReport,
    Reporter,
    StepReport,
    bytes_text,
    count_text,
    counted,
    place_text,
    time_text,
)
from tiledarray.insight.measure import copy_bandwidth, measure
from tiledarray.ops.op import Leaf
from tiledarray.recording.record import fallbacks
from tiledarray.recording.site import user_frame
from tiledarray.recording.stretch import live_pending, reasons

WIDTH = 100
LISTED = 12
Level = Literal["plan", "tile", "source"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(slots=True)
class Explanation:
    """What `explain` found; printed, it is text.

    Attributes
    ----------
    title : str
    plan : PlanReport or None
        Steps, outputs, bytes, refusals; ``None`` where nothing was or is to be computed.
    notes : list of str
    """

    title: str
    plan: PlanReport | None
    notes: list[str] = field(default_factory=list)
    level: Level = "plan"

    def __str__(self) -> str:
        lines = [self.title, *self.notes]
        if self.plan is not None:
            lines += _plan_lines(self.plan)
            for step in self.plan.steps:
                told = {"plan": "", "tile": step.program, "source": step.source}[self.level]
                if told:
                    what = "program" if self.level == "tile" else self.level
                    lines += ["", f"{what} of step {step.number}, {step.name}:", told]
        return "\n".join(lines)

    __repr__ = __str__

    def to_html(self, path: str | Path) -> Path:
        """Write a page of its own, with the steps drawn as a graph; return where it is."""
        target = Path(path)
        target.write_text(page.render(self.title, str(self), self.plan), encoding="utf-8")
        return target


def explain(y: Any, *others: Any, level: Level = "plan", measure: bool = False) -> Explanation:
    """Say how arrays are (or were) computed: kernels, what was fused and what not, and why.

    A pending array is planned, together with all that this thread has pending, as a look would do
    it; nothing is computed.  Of a computed array, the plan by which it was computed is told.

    Parameters
    ----------
    y, *others : TiledArray
    level : {"plan", "tile", "source"}
        Append each step's program, its loops over tiles as text to read, or its generated source.
    measure : bool
        Run the plan's steps several times (on copies of what they overwrite, and on stand-ins for
        inputs that are gone) and tell their shortest times.

    Returns
    -------
    Explanation
        ``print`` it, or write it with ``to_html(path)``.

    Raises
    ------
    TypeError
        If one is no array of ours.
    ValueError
        If there is no such level.

    Examples
    --------
    >>> import tiledarray as np
    >>> x = np.arange(1_000_000.0)
    >>> told = np.explain((x * 2).sum())
    >>> len(told.plan.kernels) >= 1
    True
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    frame = user_frame()
    names = names_in(frame.f_locals, frame.f_globals) if frame is not None else {}
    if frame is not None and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        _forget(frame.f_locals)
    return explained((y, *others), names, level=level, measure=measure)


def explained(
    arrays: Sequence[Any], names: dict[Node, str], *, level: Level = "plan",
    measure: bool = False,
) -> Explanation:
    """Do the work of `explain`; ``names`` says what variables hold the arrays, and is emptied."""
    handles = [_root(array) for array in arrays]
    recorded = [handle for handle in handles if not _is_small(handle)]
    pending = [handle._node for handle in recorded if handle._node.buffer is None]
    title = "explain: " + ", ".join(_title(handle, names) for handle in handles)
    if pending:
        explanation = _of_pending(title, pending, names, measure=measure)
    elif recorded:
        explanation = _of_computed(title, recorded[0]._node, measure=measure)
    else:
        explanation = Explanation(title, None)
    if len(recorded) < len(handles):
        sizes = dict.fromkeys(count_text(handle.size, "element")
                              for handle in handles if _is_small(handle))
        explanation.notes.insert(0, (
            f"  computed at once by NumPy: {', '.join(sizes)}, at most config.at_once "
            f"({config.at_once:,}): nothing was recorded"))
    explanation.level = level
    explanation.notes += _fallback_notes()
    return explanation


def _root(array: Any) -> Handle:
    if not isinstance(array, Handle):
        raise TypeError(f"explain takes arrays of tiledarray, not {type(array).__name__}")
    return array.origin()


def _is_small(handle: Handle) -> bool:
    """Whether the value is there, so small that NumPy computes it at once, and of no plan."""
    if handle._array is None or handle.size > config.at_once:
        return False
    node = handle._recorded
    return node is None or getattr(node.buffer, "plan", None) is None


def _title(handle: Handle, names: dict[Node, str]) -> str:
    node = handle._node
    name = f"{names[node]} = " if node in names else ""
    shape = ", ".join(map(str, node.shape))
    state = "pending" if node.buffer is None else "computed"
    place = place_text(node.site)
    return (f"{name}{node.dtype}[{shape}] on {node.device}, {state}"
            f"{f', recorded at {place}' if place else ''}")


def names_in(*scopes: Mapping[str, Any]) -> dict[Node, str]:
    """Names of the arrays that variables hold, those of the first scope first."""
    names: dict[Node, str] = {}
    for scope in scopes:
        for name, value in list(scope.items()):
            if isinstance(value, Handle) and name.isidentifier() and name[0] != "_":
                names.setdefault(value.origin()._node, name)
    return names


def _forget(variables: Any) -> None:
    """Empty the snapshot of its variables that a frame keeps: it would keep the arrays alive."""
    if type(variables) is dict:
        variables.clear()


def _of_pending(
    title: str, wanted: Sequence[Node], names: dict[Node, str], *, measure: bool
) -> Explanation:
    device = wanted[0].device
    targets = dict.fromkeys(node for node in live_pending() if node.device is device)
    others = [node for node in targets if node not in wanted]
    targets.update(dict.fromkeys(wanted))
    traced = trace(list(targets))
    leaf_names = {number: names[node] for number, node in enumerate(traced.nodes) if node in names}
    names.clear()  # a reference more would keep an update from being planned in place
    device = evaluate.place_of(traced, list(targets), device)
    try:
        executable, params = plans.bound_to(traced, device)
    except UnsupportedDtypeError as error:
        return Explanation(title, None, [f"  {error}: computed op by op"])
    executable = executable.used().whole()
    notes, times = _measured(executable, traced, params) if measure else ([], {})
    sites = [node.site for node in traced.nodes]
    if others:
        lines = counted([place_text(node.site) or "?" for node in others])
        notes += _wrapped(f"planned with {len(others)} other pending array"
                          f"{'s' if len(others) > 1 else ''} that something holds: {lines}", "  ")
    outputs = traced.outputs
    return Explanation(title, Reporter(executable, sites, leaf_names, outputs, times).run(), notes)


def _of_computed(title: str, node: Node, *, measure: bool) -> Explanation:
    executable = node.buffer.plan
    if executable is None:
        return Explanation(title, None, ["  it holds data: nothing was computed by a plan"])
    executable = executable.used().whole()
    notes, times = _measured(executable, None, executable.params) if measure else ([], {})
    return Explanation(title, Reporter(executable, executable.sites, measured=times).run(), notes)


def _measured(executable: Executable, traced: Trace | None, params: Sequence[Any]) -> (
        tuple[list[str], dict[Any, float]]):
    leaves: dict[Value, Any] | None = None
    if traced is not None:
        leaves = {
            value: placement.on_one_side(traced.nodes[value.attrs].buffer, executable.device)
            for value in executable.plan.values if isinstance(value.op, Leaf)
        }
    try:
        with known.lock:
            times = measure(executable, leaves, params)
    except (TiledArrayError, ArithmeticError, ValueError) as error:
        return [f"  not measured: {str(error).splitlines()[0]}"], {}
    notes = ["  measured on stand-ins for inputs that are gone"] if traced is None else []
    if executable.device.kind == "cuda":
        notes.append("  measured from launch to end, each step alone")
    return notes, times


def _fallback_notes() -> list[str]:
    if not fallbacks:
        return []
    found = [f"{key[0]} ({place_text(key[1]) or '?'}{f', {count} times' if count > 1 else ''}"
             f"{f': {reasons[key]}' if key in reasons else ''})"
             for key, count in fallbacks.most_common(LISTED)]
    return _wrapped(f"done by NumPy itself so far in this process: {', '.join(found)}", "  ")


# ---- text ------------------------------------------------------------------------------------


def _plan_lines(plan: PlanReport) -> list[str]:
    lines = [f"  plan: {_summary(plan)}; {plan.state}"]
    ratio = f" ({plan.bytes_moved / plan.least_bytes:.2f} x)" if plan.least_bytes else ""
    lines.append(f"  moves {bytes_text(plan.bytes_moved)}, the least possible is "
                 f"{bytes_text(plan.least_bytes)}{ratio}")
    predicted = sum(step.predicted or 0.0 for step in plan.kernels)
    if predicted:
        text = f"  kernels: at least {time_text(predicted)} predicted"
        measured = [step.measured for step in plan.kernels if step.measured is not None]
        if measured:
            text += f", {time_text(sum(measured))} measured"
        lines.append(text)
    if plan.tuned:
        lines += _wrapped(f"tuned: {plan.tuned}", "  ")
    for step, alike in _alike(plan.steps):
        lines += ["", *_step_lines(step)]
        if alike:
            lines += _wrapped(f"the same again: steps {', '.join(map(str, alike))}", "  ")
    if plan.refusals:
        lines += ["", "not fused:"]
        refusals = _merged(plan.refusals)
        for refusal in refusals[:LISTED]:
            lines += _wrapped(refusal, "  ")
        if len(refusals) > LISTED:
            lines.append(f"  ... and {len(refusals) - LISTED} more (Explanation.plan.refusals)")
    if plan.rules:
        rules = ", ".join(f"{name.replace('_', ' ')}{f' x{count}' if count > 1 else ''}"
                          for name, count in plan.rules.items())
        lines += ["", *_wrapped(f"simplified: {rules}", "")]
    return lines


def _alike(steps: Sequence[StepReport]) -> list[tuple[StepReport, list[int]]]:
    """Steps with the numbers of later ones that do the same from the same lines."""
    found: dict[Any, tuple[StepReport, list[int]]] = {}
    for step in steps:
        kinds = tuple((use.kind, use.nbytes) for use in (*step.reads, *step.writes))
        key = (step.name, step.source, str(step.fused), kinds, str(step.notes))
        if key in found:
            found[key][1].append(step.number)
        else:
            found[key] = (step, [])
    return list(found.values())


def _merged(refusals: Sequence[str]) -> list[str]:
    """Refusals, those that differ only in the step told once."""
    found: dict[str, list[str]] = {}
    for refusal in refusals:
        found.setdefault(re.sub(r"step \d+", "step", refusal), []).append(refusal)
    return [f"{alike[0]} (and {len(alike) - 1} alike)" if len(alike) > 1 else alike[0]
            for alike in found.values()]


def _summary(plan: PlanReport) -> str:
    kinds = [step.kind for step in plan.steps]
    parts = []
    for kind, plural in (("kernel", "kernels"), ("library call", "library calls"),
                         ("loop", "loops"),
                         ("copy", "copies"), ("allocation", "allocations")):
        count = kinds.count(kind)
        if count:
            parts.append(f"{count} {kind if count == 1 else plural}")
    return ", ".join(parts) or "nothing to run"


def _step_lines(step: StepReport) -> list[str]:
    form = f"  ({step.form} form)" if step.form else ""
    lines = [f"step {step.number}: {step.kind} {step.name}{form}"]

    def add(heading: str, text: str) -> None:
        lines.extend(_wrapped(text, f"  {heading:<9}"))

    def add_notes(*headings: str) -> None:
        for heading in headings:
            if heading in step.notes:
                add(heading, step.notes[heading])

    add_notes("why", "blocks", "each", "steps", "domain", "tile")
    for number, (place, names) in enumerate(step.fused):
        add("" if number else "ops", f"{place}  {counted(names)}".lstrip())
    add_notes("values", "update")
    for heading, uses in (("reads", step.reads), ("writes", step.writes)):
        for number, use in enumerate(uses):
            add("" if number else heading, _use_text(use))
    if step.bytes_moved:
        flops = f", {step.flops:.3g} flops" if step.kind == "kernel" else ""
        add("work", f"{bytes_text(step.bytes_moved)} moved{flops}")
    add_notes("device")
    times = _times(step)
    if times:
        add("time", times)
    return lines


def _times(step: StepReport) -> str:
    parts = []
    if step.predicted is not None:
        parts.append(f"at least {time_text(step.predicted)} predicted ({step.bound}-bound)")
    if step.measured is not None:
        parts.append(f"{time_text(step.measured)} measured")
    return ", ".join(parts)


def _use_text(use: ArrayUse) -> str:
    parts = [f"{use.label:<6} {use.kind:<22} {bytes_text(use.nbytes):>8}"]
    if use.place:
        parts.append(use.place)
    return "  ".join(parts) + (f"  ({use.note})" if use.note else "")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent,
                         subsequent_indent=" " * max(len(indent), 2), break_long_words=False,
                         drop_whitespace=True, break_on_hyphens=False) or [indent]


__all__ = ["Explanation", "copy_bandwidth", "explain"]
