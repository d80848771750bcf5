"""The floors: how fast this machine copies memory and multiplies matrices.

Every benchmark is reported as a multiple of what these numbers allow.  Rates count what a perfect
program must do: bytes read plus bytes written, and 2·n³ flops for a product.  Data is random:
a product of zeros runs faster than real data does.

    python -m benchmarks.floor
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

GPU_DTYPES = ("float16", "float32", "float64", "complex64")
CPU_DTYPES = ("float32", "float64", "complex64")


def cpu_copy_rate(nbytes: int = 1 << 28, threads: int | None = None, repeats: int = 7) -> float:
    """Bytes a second (read plus written) of a copy shared out to threads."""
    threads = threads or len(os.sched_getaffinity(0))
    source = np.random.default_rng(0).random(nbytes // 8)
    target = np.empty_like(source)
    target.fill(0)  # the pages exist before the clock runs
    edges = np.linspace(0, source.size, threads + 1).astype(int)

    def part(index: int) -> None:
        piece = slice(edges[index], edges[index + 1])
        np.copyto(target[piece], source[piece])

    with ThreadPoolExecutor(threads) as pool:
        seconds = least_seconds(lambda: list(pool.map(part, range(threads))), repeats)
    return 2 * source.nbytes / seconds


def cpu_matmul_rate(n: int = 2048, dtype: str = "float64", repeats: int = 5) -> float:
    """Flops a second of NumPy's matrix product, on as many threads as its BLAS takes."""
    a, b = (random_matrix(np, n, dtype, seed) for seed in (0, 1))
    out = np.empty_like(a)
    return product_flops(n, dtype) / least_seconds(lambda: np.matmul(a, b, out=out), repeats)


def gpu_copy_rate(nbytes: int = 4 << 30, repeats: int = 20) -> float:
    """Bytes a second (read plus written) of a copy within the device's memory."""
    import cupy

    source = cupy.random.default_rng(0).random(nbytes // 8, dtype=cupy.float64)
    target = cupy.empty_like(source)
    return 2 * source.nbytes / gpu_seconds(lambda: cupy.copyto(target, source), repeats)


def gpu_matmul_rate(n: int = 8192, dtype: str = "float32", repeats: int = 10) -> float:
    """Flops a second of cuBLAS through CuPy.  ``float32`` is true float32, never TF32."""
    import cupy

    a, b = (random_matrix(cupy, n, dtype, seed) for seed in (0, 1))
    out = cupy.empty_like(a)
    return product_flops(n, dtype) / gpu_seconds(lambda: cupy.matmul(a, b, out=out), repeats)


def transfer_rates(nbytes: int = 1 << 30, repeats: int = 5) -> dict[str, float]:
    """Bytes a second between host and device: from pinned memory, and plainly."""
    import cupy

    host = np.random.default_rng(0).random(nbytes // 8)
    device = cupy.empty(host.shape, host.dtype)
    pinned_memory = cupy.cuda.alloc_pinned_memory(host.nbytes)
    pinned = np.frombuffer(pinned_memory, host.dtype, host.size)
    pinned[:] = host
    work = {
        "upload_pinned": lambda: device.set(pinned),
        "upload_pageable": lambda: device.set(host),
        "download_pinned": lambda: device.get(out=pinned),
        "download_pageable": lambda: device.get(out=host),
    }

    def waited(start: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            start()
            cupy.cuda.get_current_stream().synchronize()

        return run

    return {name: host.nbytes / least_seconds(waited(f), repeats) for name, f in work.items()}


def gpu_launch_seconds(repeats: int = 2000) -> float:
    """Host seconds that CuPy spends starting one small elementwise kernel."""
    import cupy

    array = cupy.zeros(16, cupy.float32)
    cupy.add(array, array, out=array)
    cupy.cuda.get_current_stream().synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        cupy.add(array, array, out=array)
    seconds = (time.perf_counter() - start) / repeats
    cupy.cuda.get_current_stream().synchronize()
    return seconds


def floors(gpu: bool) -> dict[str, float]:
    """Every floor of one machine by name: ``copy`` in B/s, ``matmul_<dtype>`` in flop/s."""
    if gpu:
        matmul = {f"matmul_{dtype}": gpu_matmul_rate(dtype=dtype) for dtype in GPU_DTYPES}
        return {"copy": gpu_copy_rate(), **matmul}
    matmul = {f"matmul_{dtype}": cpu_matmul_rate(dtype=dtype) for dtype in CPU_DTYPES}
    return {"copy": cpu_copy_rate(), **matmul}


def least_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Least wall time of ``work``, after one run that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def gpu_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median device time of ``work`` by events, after three runs that are not counted."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    for _ in range(3):
        work()
    marks = [cupy.cuda.Event() for _ in range(repeats + 1)]
    marks[0].record(stream)
    for mark in marks[1:]:
        work()
        mark.record(stream)
    marks[-1].synchronize()
    milliseconds = [
        cupy.cuda.get_elapsed_time(start, end)
        for start, end in itertools.pairwise(marks)
    ]
    return float(np.median(milliseconds)) / 1e3


def random_matrix(xp: Any, n: int, dtype: str, seed: int) -> Any:
    """Return an n by n matrix of standard normals."""
    generator = xp.random.default_rng(seed)
    values = generator.standard_normal((n, n), dtype=xp.float32)
    if np.dtype(dtype).kind == "c":
        return (values + 1j * generator.standard_normal((n, n), dtype=xp.float32)).astype(dtype)
    return values.astype(dtype)


def product_flops(n: int, dtype: str) -> int:
    """Flops of an n by n product; a complex one counts four real ones."""
    return (8 if np.dtype(dtype).kind == "c" else 2) * n**3


def main() -> None:
    """Print the floors as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="measure the GPU (needs CuPy)")
    options = parser.parse_args()
    print(json.dumps(floors(options.gpu), indent=1))


if __name__ == "__main__":
    main()
