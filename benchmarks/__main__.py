"""Measure tiledarray and its peers.

    python -m benchmarks                                        # all workloads, on the CPU
    python -m benchmarks --device cuda --json out.json --plot out.png
    python -m benchmarks --only softmax,heat_step --peers NumPy,tiledarray --quick

Every peer's results are checked against float64 before anything is timed.  Timed batches of all
peers alternate in one process; first calls run in fresh processes with empty caches.  What a peer
cannot do is a row with the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.measure import Limits, Row, measure
from benchmarks.peers import PEERS, Refused
from benchmarks.workloads import WORKLOADS

CPUS_PER_JOB = 4


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--only", type=names_of(WORKLOADS), default=list(WORKLOADS), metavar="NAME,...",
        help=", ".join(WORKLOADS))
    add("--peers", type=names_of(PEERS), default=list(PEERS), metavar="NAME,...",
        help=", ".join(PEERS))
    add("--quick", action="store_true", help="small sizes and short batches")
    add("--size", type=int, help="instead of the workload's own")
    add("--no-first-call", action="store_true", help="leave first calls (and their limit) out")
    add("--limit", type=float, default=60, help="seconds for a first call, process and all")
    add("--budget", type=float, default=450,
        help="seconds after which first calls are left out, except of peers that compile")
    add("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // CPUS_PER_JOB),
        help="processes at a time for first calls")
    add("--json", type=Path, help="write all numbers there")
    add("--plot", type=Path, help="draw a picture there")
    return parser.parse_args(arguments)  # fmt: skip


def names_of(known: dict[str, Any]) -> Any:
    """Return a parser of comma-separated names."""

    def parse_names(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {unknown}; there are {', '.join(known)}")
        return names

    return parse_names


def present(names: list[str], device: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions of the peers that can run here, and why the others cannot."""
    versions, absent = {}, {}
    for name in names:
        try:
            versions[name] = PEERS[name](device).version
        except Refused as refusal:
            absent[name] = str(refusal)
    return versions, absent


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks; the exit status is 1 if tiledarray failed on a workload."""
    options = parse(arguments)
    started = time.monotonic()
    versions, absent = present(options.peers, options.device)
    rates = machine.rates(options.device)
    about = {
        **machine.describe(options.device),
        "device": options.device,
        "copy_bytes_per_second": rates[0],
        "flops_per_second": rates[1],
        "versions": versions,
        "absent": absent,
    }
    print(f"{about.get('gpu', about['cpu'])}; commit {about['commit']}")
    print(f"copy {rates[0] / 1e9:.1f} GB/s, float32 {rates[1] / 1e12:.2f} TFLOP/s")
    print("peers:", ", ".join(f"{name} {version}" for name, version in versions.items()))
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")
    print(flush=True)

    rows: list[Row] = []
    for name in options.only:
        spent = time.monotonic() - started
        workload = WORKLOADS[name]
        size = options.size or workload.sizes.of(options.device, options.quick)
        found = measure(
            workload, list(versions), options.device, size, limits_of(options, spent), rates
        )
        print(report.table(workload, size, found), flush=True)
        rows += found
        if options.json:
            report.save_json(options.json, about, rows)
    if options.plot:
        report.save_plot(options.plot, about, rows)
    print(f"{time.monotonic() - started:.0f} s in all")
    return int(any(row.peer == report.OURS and row.median is None for row in rows))


def limits_of(options: argparse.Namespace, spent: float) -> Limits:
    """Return how long the next workload may take."""
    return Limits(
        batch=0.02 if options.quick else 0.1,
        first_call=None if options.no_first_call else options.limit,
        jobs=options.jobs,
        compilers_only=spent > options.budget,
    )


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # several runtimes in one process do not always agree on how to end
