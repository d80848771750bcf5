"""Results as a table, as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Row
from benchmarks.workload import Workload

OURS = "tiledarray"
HEADINGS = f"{'':15}{'time':>11}{'x floor':>9}{'x best':>8}{'first':>11}{'2nd':>11}  error"


def duration(seconds: float | None) -> str:
    """Return seconds as text with a fitting unit."""
    if seconds is None:
        return "-"
    unit, scale = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return f"{seconds * scale:#.4g} {unit}"


def best_peer(rows: Iterable[Row]) -> float | None:
    """Return the least median of the others."""
    times = [row.median for row in rows if row.median and not row.peer.startswith(OURS)]
    return min(times, default=None)


def ratio(value: float | None, base: float | None) -> str:
    """Return ``value / base`` as text."""
    return f"{value / base:.2f}" if value and base else "-"


def table(workload: Workload, size: int, rows: list[Row]) -> str:
    """Return the rows of one workload; 'x best' compares with the best of the peers but ours."""
    floor = duration(rows[0].floor) if rows else "-"
    lines = [f"{workload.title}; size {size:,}; floor {floor}", HEADINGS]
    best = best_peer(rows)
    for row in rows:
        if row.median is None:
            lines.append(f"{row.peer:15}{duration(None):>11}  {row.failure}")
            continue
        error = f"{row.error:.0e}" if row.error is not None else "-"
        lines.append(
            f"{row.peer:15}{duration(row.median):>11}{ratio(row.median, row.floor):>9}"
            f"{ratio(row.median, best):>8}{duration(row.first):>11}{duration(row.second):>11}"
            f"  {error}{f'  ({row.note})' if row.note else ''}"
        )
    return "\n".join(lines) + "\n"


def save_json(path: Path, about: dict[str, Any], rows: list[Row]) -> None:
    """Write everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**about, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def save_plot(path: Path, about: dict[str, Any], rows: list[Row]) -> None:
    """Draw every peer's time over tiledarray's (or over the best's, where that one failed)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.workload for row in rows))[::-1]
    figure = Figure(figsize=(9, 0.6 * len(names) + 2.2), layout="constrained")
    axes = figure.subplots()
    base = {name: base_time([row for row in rows if row.workload == name]) for name in names}
    for peer in dict.fromkeys(row.peer for row in rows):
        points = [
            (row.median / base[row.workload], names.index(row.workload))
            for row in rows
            if row.peer == peer and row.median
        ]
        if points:
            style = {"marker": "D", "color": "black"} if peer == OURS else {"marker": "o"}
            axes.plot(*zip(*points, strict=True), linestyle="", label=peer, alpha=0.8, **style)
    floors = {row.workload: row.floor for row in rows if row.floor}
    for name, floor in floors.items():
        axes.plot([floor / base[name]], [names.index(name)], "k|", markersize=16)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="x", which="both", alpha=0.2)
    axes.set_xlabel("time over tiledarray's; the bar is the floor")
    axes.set_title(f"{about.get('gpu', about['cpu'])}, {about['commit']}, {about['date'][:10]}")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def base_time(rows: list[Row]) -> float:
    """Return our median of one workload, or the best there is, or 1."""
    ours = [row.median for row in rows if row.median and row.peer == OURS]
    return min(ours or [row.median for row in rows if row.median] or [1.0])
