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
HEADINGS = f"{'':15}{'time':>12}{'x floor':>9}{'x best':>8}{'first':>9}{'2nd':>9}  error"


def duration(seconds: float | None) -> str:
    """Return seconds as text with a fitting unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if scale == 1.0 else f"{seconds * scale:.3f} ms"
    return f"{seconds * 1e6:.1f} us"


def best_peer(rows: Iterable[Row]) -> float | None:
    """Return the least median of the others."""
    times = [row.median for row in rows if row.median and row.peer != OURS]
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
            lines.append(f"{row.peer:15}{duration(None):>12}  {row.failure}")
            continue
        error = f"{row.error:.0e}" if row.error is not None else "-"
        lines.append(
            f"{row.peer:15}{duration(row.median):>12}{ratio(row.median, row.floor):>9}"
            f"{ratio(row.median, best):>8}{duration(row.first):>9}{duration(row.second):>9}"
            f"  {error}{f'  ({row.note})' if row.note else ''}"
        )
    return "\n".join(lines) + "\n"


def save_json(path: Path, about: dict[str, Any], rows: list[Row]) -> None:
    """Write everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**about, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def save_plot(path: Path, about: dict[str, Any], rows: list[Row]) -> None:
    """Draw, for each workload, every peer's time over tiledarray's."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.workload for row in rows))
    peers = [peer for peer in dict.fromkeys(row.peer for row in rows) if peer != OURS]
    ours = {row.workload: row.median for row in rows if row.peer == OURS}
    figure = Figure(figsize=(1.6 * len(names) + 3, 5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(peers))
    for k, peer in enumerate(peers):
        places, heights = [], []
        for place, name in enumerate(names):
            time = next((r.median for r in rows if (r.workload, r.peer) == (name, peer)), None)
            if time and ours.get(name):
                places.append(place + (k - len(peers) / 2 + 0.5) * width)
                heights.append(time / ours[name])
        bars = axes.bar(places, heights, width, bottom=0, label=peer)
        axes.bar_label(bars, fmt="%.1f", fontsize=6)
    floors = {row.workload: row.floor for row in rows}
    for place, name in enumerate(names):
        if floors[name] and ours.get(name):
            level = floors[name] / ours[name]
            axes.plot([place - 0.45, place + 0.45], [level, level], "k:", lw=1)
    axes.axhline(1, color="black", lw=1)
    axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names, rotation=20)
    axes.set_ylabel("time over tiledarray's (dotted: the floor)")
    axes.set_title(f"{about.get('gpu', about['cpu'])}, {about['commit']}, {about['date'][:10]}")
    axes.legend(ncols=4, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
