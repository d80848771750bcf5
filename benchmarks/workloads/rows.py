"""What the row-wise workloads share: their input and the rows that are checked."""

import numpy as np

from benchmarks.workload import both_ends, double

COLUMNS = 4096


def setup(size, seed):
    """Return a float32 table of `size` rows of 4096."""
    return (8 * np.random.default_rng(seed).random((size, COLUMNS), dtype=np.float32) - 4,)


def reference_of(program):
    """Return a check of the first and last 256 rows of ``program(np, rows, *the_rest)``."""

    def reference(inputs):
        rows, *rest = inputs
        return [
            (part, double(program, rows[part], *rest)) for part in both_ends(256, len(rows))
        ]

    return reference
