"""The first call of a program, compile included, in a fresh process with empty caches.

``measure`` starts the process; the process is ``python -m benchmarks.first_call WORKLOAD PEER
DEVICE SIZE``.  Importing the package, opening the device and copying the inputs there are not
counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

SEED = 1


@dataclass(frozen=True)
class FirstCall:
    """Seconds of the first and the second call, or what went wrong."""

    first: float | None = None
    second: float | None = None
    failure: str | None = None


def measure_all(
    names: list[str], workload: str, device: str, size: int, limit: float, jobs: int
) -> dict[str, FirstCall]:
    """Measure the peers called `names`, `jobs` at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda peer: measure(workload, peer, device, size, limit), names)
        return dict(zip(names, found, strict=True))


def measure(workload: str, peer: str, device: str, size: int, limit: float) -> FirstCall:
    """Run one peer in a fresh process, for at most `limit` seconds all told."""
    command = [sys.executable, "-m", "benchmarks.first_call", workload, peer, device, str(size)]
    with tempfile.TemporaryDirectory(prefix="first-call-") as folder:
        try:
            done = subprocess.run(
                command, env=empty_caches(folder), capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return FirstCall(failure=f"first call took over {limit:.0f} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return FirstCall(failure=lines[-1][:200])
    return FirstCall(**json.loads(done.stdout.splitlines()[-1]))


def empty_caches(folder: str) -> dict[str, str]:
    """Return an environment in which no peer finds what it compiled before."""
    return {
        **os.environ,
        "TILEDARRAY_CACHE_DIR": os.path.join(folder, "tiledarray"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "CUPY_CACHE_DIR": os.path.join(folder, "cupy"),
        "CUDA_CACHE_PATH": os.path.join(folder, "cuda"),
        "NUMBA_CACHE_DIR": os.path.join(folder, "numba"),
    }


def child(workload_name: str, peer_name: str, device: str, size: int) -> FirstCall:
    """Time the first two calls in this process."""
    from benchmarks.peers import PEERS, Refused
    from benchmarks.workloads import WORKLOADS

    workload = WORKLOADS[workload_name]
    peer = PEERS[peer_name](device)
    inputs = tuple(peer.put(array) for array in workload.setup(size, SEED))
    peer.wait(inputs)
    seconds = []
    start = time.perf_counter()
    try:
        run = peer.build(workload)
    except Refused as refusal:
        return FirstCall(failure=str(refusal))
    for _ in range(2):
        peer.finish(run(*inputs))
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
    return FirstCall(*seconds)


if __name__ == "__main__":
    result = child(*sys.argv[1:4], int(sys.argv[4]))
    print(json.dumps(vars(result)), flush=True)
    os._exit(0)  # background compilers need not be waited for
