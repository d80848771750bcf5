"""Random programs with views and writes, line by line: what the tests of their gradients share.

A program is a list of lines.  Each was legal under NumPy when it was added, and left few and small
numbers.
"""

import re

import numpy

import tiledarray
from tests.scene import owner

MOVES = [line for line in """
{n} = {a} * {b} + {k}
{n} = {a} - {b}
{n} = {a} / (1 + {b} * {b})
{n} = np.sin({a})
{n} = np.tanh({a} * {k})
{n} = np.where({a} > {k}, {a}, {b})
{n} = np.maximum({a}, {b})
{n} = {a}.sum(0)
{n} = {a}.mean()
{n} = np.cumsum({a})
{n} = np.stack([{a}, {b}])
{n} = np.concatenate([{a}, {b}])
{n} = np.array([{a}.reshape(-1)[0], {b}.sum() * 0.1, {k}])
{n} = [{a}, {b}] + np.ones({a}.shape)
{n} = np.append({a}, {b}.reshape(-1)[1])
{n} = np.roll({a}, 1)
{n} = {a}
{n} = {a}.T
{n} = {a}[::-1]
{n} = {a}[1:]
{n} = {a}[..., ::2]
{n} = {a}[..., 1]
{n} = {a}[0]
{n} = {a}[None]
{n} = {a}.reshape(-1)
{n} = {a}.reshape(-1)[::-1][1:]
{n} = {a}.diagonal()
{n} = {a}[[0, 1, 0]]
{n} = {a}[{a} > {k}]
{n} = np.broadcast_to({a}, (2, *{a}.shape))
{n} = {a}.copy()
{n} = np.array({a})
{n} = np.zeros({a}.shape)
{n} = np.zeros_like({a}); {m} = {n}[1:]
{n} = np.ones((3, 4)); {m} = {n}.T; {m}[0] = {k}
{n} = np.empty({a}.shape); {n}[...] = {b}
{n} = numpy.arange({a}.size).reshape({a}.shape) * 0.1 + {b}
{a}[...] = {b}
{a}[:] = {k}
{a}[1:] = {b}[:-1]
{a}[..., 0] = {b}[..., 1]
{a}[0], {a}[1] = {a}[1], {a}[0]
{a}[0], {a}[1] = {a}[1].copy(), {a}[0].copy()
{a}[:2], {a}[1:3] = {b}[1:3], {b}[:2]
{a}[[0, 1]] = {a}[[1, 0]]
{a}[[0, 1, 0]] = {b}[:3]
{a}[[1, 1]] += {b}[:2]
{a}[:2] = [{b}[0], {b}[1] * 2]
{a}[-1] = {b}.mean() * {a}[0]
{a}[{a} > {k}] = {k}
{a}[{a} < {k}] *= {b}.mean()
{a}[{b} > {k}] = {b}[{b} > {k}] * 0.5
{a}[::2][:] = {b}[::2]
{a} += {b}
{a} += {a}
{a} *= {k}
{a} -= {b}[0] * 0.5
{a} /= 2 + {b} * {b}
{a} **= 2
{a}[1:] += {a}[:-1]
{a}[1:-1] += 0.1 * ({a}[2:] - 2 * {a}[1:-1] + {a}[:-2])
{a}.T[0] += {k}
{a}.reshape(-1)[1:3] *= {b}.reshape(-1)[:2]
{a}.flat[1] = {b}.mean()
{a}.fill({b}.reshape(-1)[0])
{a}.sort()
{a}.real[...] *= {k}
{a}[...] = np.sort({a}, axis=0)
np.multiply({a}, {b}, out={a})
np.exp(-{a} * {a}, out={b})
np.add({a}, {b}, out={a}, where={a} > {k})
np.copyto({a}, {b})
np.copyto({a}, {b}, where={a} > {k})
np.put({a}, [0, 2, 0], {b}.reshape(-1)[:3])
np.place({a}, {a} > {k}, {b}.reshape(-1))
np.add.at({a}, [0, 1, 0], {b}[:3])
np.fill_diagonal({a}, {b}.mean())
np.clip({a}, -1, 1, out={a})
for row in {a}: row *= {k}
for i in range(len({a})): {a}[i] = {a}[i - 1] * 0.5 + {b}[i]
for i in range(3): {a}[i % 2] += {a}[i] * {b}.mean()
for v, w in zip({a}, {b}): v += w
if {a}.sum() > {k}: {a} *= 0.5
while abs({a}).max() > 2: {a} *= 0.5
{n} = sum({a}) * {k}
{n} = np.sum([v * v for v in {a}], axis=0)
{n} = {a} + 0.5j * {b}; {n}.imag[1:] += {a}[1:]; {n} *= {n}; {n} = {n}.imag + {n}.real
{n} = {a} * (1 + 2j); {n}[0] = {b}[0]; {n} = abs({n} + 3)
{n} = {a}.astype('f4').astype('f8') if False else {a}.astype('f8')
{n} = np.hypot({a}, 1.5)
{n} = np.prod({a}, axis=0)
{n} = {a}.max(0) - {a}.min()
{n} = np.diff({a}, axis=0)
{n} = np.outer({a}.reshape(-1)[:3], {b}.reshape(-1)[:4])
{n} = np.take({a}, [0, 2, 2])
{n} = np.insert({a}.reshape(-1), 1, {b}.mean())
{n} = np.delete({a}, 1, axis=0)
{n} = np.repeat({a}, 2, axis=0)
{n} = np.tril({a}) if {a}.ndim == 2 else np.diag({a})
{n} = np.divmod({a}, 0.7)[1]
{n} = np.nan_to_num({a}) * np.linspace(0, 1, {a}.shape[-1])
step({a}, {b})
str({a}); np.isfinite({a}).all(); {a}.shape
del {a}
""".splitlines() if line]
FIRST = ["a = x * 1.0", "b = x[:12].reshape(3, 4)", "c = x[3:9].copy()", "d = np.zeros((3, 4))",
         "e = np.zeros(6)", "f = x.reshape(2, 6)[1]"]
SIZE = 12
SCALARS = ["0.5", "0.2", "-0.3", "1.1"]


def _step(u, v):
    u += 0.1 * v
    u[0] *= 0.9


def names(module, x):
    """The variables with which a program begins."""
    return {"np": module, "numpy": numpy, "x": x,
            "step": _step if module is numpy else tiledarray.jit(_step)}


_OTHERS = frozenset(("np", "numpy", "step", "row", "i", "v", "w"))


def arrays_in(variables):
    found = {name: value for name, value in variables.items()
             if name not in _OTHERS and hasattr(value, "dtype")}
    return {name: value for name, value in found.items() if value.dtype.kind in "fc"}


def result(module, x, lines):
    """A number that depends on everything the program has left."""
    variables = names(module, x)
    for line in lines:
        exec(line, variables)
    total = 0.0
    for k, (_, value) in enumerate(sorted(arrays_in(variables).items())):
        weights = numpy.cos(numpy.arange(value.size) + k).reshape(value.shape)
        total = total + (module.tanh(value.real * 0.3) * weights).sum()
    return total


def writes_what_it_may_not(line, variables):
    """Whether NumPy (2.4) lets a line pass that it should refuse.

    ``ufunc.at`` writes an array that is read-only; a running sum of one axis goes into an array of
    two where their memory overlaps (and writes past the end of one of none).
    """
    at = re.match(r"np\.\w+\.at\((\w+)", line)
    running = re.match(r"np\.cumsum\((\w+), out=(\w+)\)", line)
    return (at is not None and not variables[at[1]].flags.writeable) or (
        running is not None and variables[running[2]].shape != (variables[running[1]].size,))


def is_legal(lines, x):
    variables = names(numpy, x.copy())
    try:
        for line in lines:
            if writes_what_it_may_not(line, variables):
                return False
            exec(line, variables)
    except Exception:
        return False
    values = arrays_in(variables).values()
    if not all(owner(value).flags.c_contiguous for value in values):
        return False  # whether `reshape` copies depends on NumPy's layout; ours are row-major
    return all(value.size and value.size < 200 and numpy.abs(value).max() < 50 for value in values)
