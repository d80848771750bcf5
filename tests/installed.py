"""A small program for a tiledarray that was just installed: ``python installed.py c|python``.

It ends with an error unless that core is in use and the results are NumPy's.
"""

import importlib
import sys

import numpy

import tiledarray


def program(np):
    """Small and larger arrays, views, writes, a loop over elements, a reduction."""
    field = np.zeros((9, 7))
    field[0] = 1.0
    for _ in range(5):
        field[1:-1, 1:-1] += 0.2 * (field[:-2, 1:-1] + field[2:, 1:-1] - 2 * field[1:-1, 1:-1])
    column = field.T[2]
    for index in range(len(column) - 1):
        column[index + 1] = column[index] / 2 + column[index + 1]
    wave = np.sin(np.linspace(0.0, 9.0, 300_000)) ** 2
    return [float(value) for value in (field.sum(), column[3], wave.mean(), wave[7::1000].max())]


def main(wanted):
    core = importlib.import_module("tiledarray.core")
    assert core.kind == wanted, f"the core is {core.kind!r}: {core.problem}"
    numpy.testing.assert_allclose(program(tiledarray), program(numpy), rtol=1e-12)
    print(f"{core.kind} {tiledarray.__file__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
