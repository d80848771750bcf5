"""An explanation as a page of its own, the steps drawn as a graph."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from string import Template

from tiledarray.insight.facts import PlanReport, StepReport, bytes_text, counted, time_text

_PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<style>
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em; color: #1b2733; background: #fff; }
h1 { font-size: 1.2em; } pre { background: #f5f7f9; padding: 1em; overflow-x: auto; }
svg { font: 12px ui-monospace, monospace; max-width: 100%; height: auto; }
.kernel rect { fill: #e3f0ff; stroke: #2f6fb3; } .call rect { fill: #fff0dc; stroke: #b3762f; }
.copy rect { fill: #fde6e6; stroke: #b33a3a; } .array rect { fill: #f1f1f1; stroke: #888; }
.output rect { fill: #e2f5e4; stroke: #3a8f46; } path { fill: none; stroke: #8895a3; }
.name { font-weight: bold; } .edge { fill: #5a6672; font-size: 10px; }
</style></head><body>
<h1>$title</h1>
$graph
<h2>In words</h2>
<pre>$text</pre>
</body></html>
""")

_LINE = 16
_CHARACTER = 7.3
_GAP_X = 70
_GAP_Y = 18
_OPS_SHOWN = 8
_KINDS = {"kernel": "kernel", "library call": "call", "loop": "call", "copy": "copy",
          "allocation": "array"}


@dataclass(slots=True)
class _Box:
    """One rectangle: what it says, and where it is."""

    lines: list[str]
    style: str
    below: list[tuple[_Box, str]] = field(default_factory=list)
    depth: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * _CHARACTER + 16

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 12


def render(title: str, text: str, plan: PlanReport | None) -> str:
    """Return the page as text of HTML."""
    graph = _drawn(_boxes(plan)) if plan is not None and plan.steps else ""
    return _PAGE.substitute(title=escape(title), text=escape(text), graph=graph)


def _boxes(plan: PlanReport) -> list[_Box]:
    """The inputs, steps and outputs as boxes; each knows what it reads from."""
    boxes: list[_Box] = []
    holders: dict[str, _Box] = {}
    for step in plan.steps:
        box = _Box(_step_lines(step), _KINDS[step.kind])
        for use in step.reads:
            if use.label not in holders:
                lines = [use.label, use.kind, *([use.place] if use.place else [])]
                holders[use.label] = _Box(lines, "array")
                boxes.append(holders[use.label])
            box.below.append((holders[use.label], use.label))
        box.depth = 1 + max((source.depth for source, _ in box.below), default=-1)
        boxes.append(box)
        for use in step.writes:
            holders[use.label] = box
    for use in plan.outputs:
        source = holders.get(use.label)
        if source is not None and source.style != "array":
            depth = source.depth + 1
            boxes.append(_Box([use.label, use.kind], "output", [(source, use.label)], depth))
    return boxes


def _step_lines(step: StepReport) -> list[str]:
    lines = [f"{step.number}. {step.name}"]
    for place, names in step.fused[:_OPS_SHOWN]:
        text = counted(names)
        lines.append(f"{place}  {text if len(text) <= 40 else text[:37] + '...'}".strip())
    if len(step.fused) > _OPS_SHOWN:
        lines.append(f"... and {len(step.fused) - _OPS_SHOWN} lines more")
    times = [time_text(t) for t in (step.measured or step.predicted,) if t]
    if step.bytes_moved:
        lines.append(", ".join([f"{bytes_text(step.bytes_moved)} moved", *times]))
    return lines


def _drawn(boxes: list[_Box]) -> str:
    columns: defaultdict[int, list[_Box]] = defaultdict(list)
    for box in boxes:
        columns[box.depth].append(box)
    x = width = height = 0.0
    for depth in sorted(columns):
        y = 0.0
        for box in columns[depth]:
            box.x, box.y = x, y
            y += box.height + _GAP_Y
            width, height = max(width, x + box.width), max(height, y)
        x = max(box.x + box.width for box in columns[depth]) + _GAP_X
    edges = [_edge(source, box, label) for box in boxes for source, label in box.below]
    parts = "\n".join([*edges, *map(_rectangle, boxes)])
    return (f'<svg viewBox="-4 -4 {width + 8:.0f} {height + 8:.0f}" width="{width + 8:.0f}" '
            f'role="img" aria-label="graph of the steps">\n{parts}\n</svg>')


def _edge(source: _Box, target: _Box, label: str) -> str:
    x0, y0 = source.x + source.width, source.y + source.height / 2
    x1, y1 = target.x, target.y + target.height / 2
    middle = (x0 + x1) / 2
    text = "" if source.style == "array" else (
        f'<text class="edge" x="{middle:.0f}" y="{(y0 + y1) / 2 - 4:.0f}">{escape(label)}</text>')
    return (f'<path d="M{x0:.0f} {y0:.0f} C{middle:.0f} {y0:.0f} {middle:.0f} {y1:.0f} '
            f'{x1:.0f} {y1:.0f}"/>{text}')


def _rectangle(box: _Box) -> str:
    lines = "".join(
        f'<text x="{box.x + 8:.0f}" y="{box.y + 18 + k * _LINE:.0f}"'
        f'{" class=" + chr(34) + "name" + chr(34) if k == 0 else ""}>{escape(line)}</text>'
        for k, line in enumerate(box.lines)
    )
    return (f'<g class="{box.style}"><rect x="{box.x:.0f}" y="{box.y:.0f}" rx="4" '
            f'width="{box.width:.0f}" height="{box.height:.0f}"/>{lines}</g>')
