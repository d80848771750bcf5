"""Programs chosen and shrunk by hypothesis: gradients, and both modes, against differences.

``GRADIENT_EXAMPLES=5000 pytest tests/test_gradient_machine.py`` tries that many a setting.
"""

import os
import warnings

import numpy
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import tiledarray
from tests.gradient_programs import (
    FIRST,
    MOVES,
    SCALARS,
    SIZE,
    arrays_in,
    is_legal,
    names,
    result,
)
from tiledarray import config
from tiledarray.errors import NoDerivative

EXAMPLES = int(os.environ.get("GRADIENT_EXAMPLES", "15"))
MOST_LINES = 30

# {a}, {b} are arrays, {n}, {m} new names, {k} a scalar, {s}, {t} basic indices, {i} places along
# the first axis, some of them twice, {w} a mask, {f} a function of one array, {g} of two.
GROUPS = {
    "making": """
{n} = np.zeros({a}.shape)
{n} = np.ones((2, 3)) * {a}.reshape(-1)[0]
{n} = np.empty_like({a}); {n}.fill({k}); {n}[{s}] = {b}[{t}]
{n} = np.full({a}.shape, {b}.reshape(-1)[1])
{n} = {a}.copy()
{n} = np.array([{a}.sum(), {k}, {b}.reshape(-1)[-1]])
{n} = [{a}, {b}, 1.5]; {n} = {n}[0] * {n}[2]
""",
    "viewing": """
{n} = {a}[{s}]
{n} = {a}[{s}]; {m} = {n}[{t}]
{n} = {a}.T[{s}]
{n} = {a}[{s}].T
{n} = {a}.reshape(-1)[{s}]
{n} = {a}.reshape(2, -1)[{s}]
{n} = {a}[None][..., {s}]
{n} = {a}.reshape(-1)[:6].reshape(2, 3)
{n} = {a}.diagonal()[{s}]
{n} = np.swapaxes({a}, 0, -1)
{n} = np.broadcast_to({a}[{s}], {b}.shape)
{n} = {a}.view()
{n}, {m} = {a}[0], {a}[1]
{n} = np.flip({a})
{n} = np.moveaxis({a}, 0, -1)
""",
    "writing": """
{a}[{s}] = {b}[{t}]
{a}[{s}] += {b}[{t}]
{a}[{s}] *= {k}
{a}[{s}] -= {a}[{t}]
{a}[{s}] = {g}({a}[{s}], {b}[{t}])
{a}[{s}][{t}] = {b}
{a}[{s}][{t}] *= {b}
{a}.T[{s}] += {b}.T[{s}]
{a}[...] = {f}({b})
{a} += {b}
{a} *= {f}({a})
{a} /= 2 + {b} ** 2
{a}[{s}] **= 2
{a}[{s}] = {a}[{s}].sum() * {k}
{a}.reshape(-1)[{s}] = {k}
{a}[{s}].fill({b}.mean())
""",
    "masking": """
{a}[{w}] = {k}
{a}[{w}] *= {b}.mean()
{a}[{w}] = {a}[{w}] ** 2
{a}[{w}] += {b}[{w}]
{n} = {a}[{w}] * {k}
{n} = np.where({w}, {a}, {f}({b}))
np.putmask({a}, {w}, {b})
np.copyto({a}, {b}, where={w})
np.add({a}, {b}, out={a}, where={w})
{n} = np.sum({a}, where={w})
""",
    "indexing": """
{n} = {a}[{i}]
{n} = {a}[..., {i}].copy()
{a}[{i}] = {b}[{i}]
{a}[{i}] += {b}[{i}]
{a}[{i}] = {a}[{i}] * {k}
{a}[..., {i}] = {b}.mean()
{a}[{i}, {i}] *= {k}
{n} = np.take({a}, {i}, axis=0)
np.put({a}, {i}, {b}.reshape(-1)[:len({i})])
{n} = np.take_along_axis({a}, np.argsort({b}, axis=0), 0)
{a}[np.argsort({a}, axis=0)[0]] *= {k}
""",
    "adding": """
np.add.at({a}, {i}, {b}[{i}])
np.add.at({a}, {i}, {k})
np.subtract.at({a}, {i}, {b}.mean())
np.add.at({a}[{s}], {i}, {b}[{i}])
np.multiply.at({a}, [0, 1], {b}[:2])
""",
    "swapping": """
{a}[{s}], {a}[{t}] = {a}[{t}], {a}[{s}]
{a}[{s}], {a}[{t}] = {a}[{t}].copy(), {a}[{s}].copy()
{a}[{i}] = {a}[{i}][::-1]
{a}, {b} = {b}, {a}
{a}[{s}], {b}[{s}] = {b}[{s}], {a}[{s}]
""",
    "storing": """
np.multiply({a}, {b}, out={a})
np.sin({a}[{s}], out={a}[{s}])
np.exp(-{a} ** 2, out={b})
{n} = np.zeros_like({a}); np.subtract({a}, {b}, out={n})
np.add({a}[{s}], {b}[{t}], out={a}[{s}])
np.clip({a}, -1, 1.5, out={a})
np.sum({a}, axis=0, out={b}[0])
np.cumsum({a}, out={b})
np.tanh({a}, out={a}[::-1])
""",
    "reducing": """
{n} = {a}.sum(axis=0)
{n} = {a}.mean(axis=-1, keepdims=True) * {a}
{n} = {a} - {a}.max(axis=-1, keepdims=True)
{n} = np.prod({a}, axis=-1)
{n} = np.std({a}) * {b}
{n} = np.cumsum({a}, axis=0)
{n} = np.cumprod({a} * {k})
{n} = np.linalg.norm({a}) * {b}[{s}]
{n} = {a}.min() + {b}
{n} = np.median({a}, axis=-1)
{n} = np.trapezoid({a})
{n} = np.einsum("i,i->", {a}.reshape(-1)[:3], {b}.reshape(-1)[:3]) * {a}
{n} = {a} @ {b}
{n} = np.dot({a}.reshape(-1)[:4], {b}.reshape(-1)[:4]) * {b}
""",
    "computing": """
{n} = {f}({a})
{n} = {g}({a}, {b})
{n} = {a} * {b} + {k}
{n} = {a} / (1 + {b} ** 2)
{n} = {a} - {b}[{s}]
{n} = abs({a}) * {k}
{n} = {a} ** 3 * {k}
{n} = ({a} + 1j * {b}); {n} = ({n} * {n}).imag
""",
    "sorting": """
{a}.sort()
{a}.sort(axis=0)
{a}[{s}].sort()
{n} = np.sort({a}, axis=0)
{n} = {a}[np.argsort({a})] if {a}.ndim == 1 else {a}
{n} = np.partition({a}.reshape(-1), 1)[:3]
{n} = np.sort({a}.reshape(-1))[::-1][{s}]
""",
    "joining": """
{n} = np.concatenate([{a}, {b}])
{n} = np.concatenate([{a}[{s}], {a}[{t}]])
{n} = np.stack([{a}, {b}], axis=-1)
{n} = np.pad({a}.reshape(-1), 1)
{n} = np.roll({a}, 1, axis=0)
{n} = np.append({a}, {b})[:8]
{n} = np.hstack([{a}, {b}])
{n} = np.tile({a}[0], 2)
{n} = np.diff({a}, axis=0)
{n}, {m} = np.split({a}, 2)
""",
    "forgetting": "del {a}\n{a} = {b}\n{n} = {a}",
    "others": "\n".join(MOVES),
}
KEYS = ["1:", ":-1", "::2", "::-1", "1:-1", "0", "-1", ":2", "1:3", "..., 0", "..., 1:",
        "..., ::-1", "-2:", "..., 0:2", "..., -1", "1::2"]
PLACES = ["[0, 1]", "[1, 0]", "[0, 1, 0]", "[1, 1]", "np.array([0, -1])", "[-1, 0, 0]"]
MASKS = ["{a} > {k}", "abs({a}) < 0.6", "{b} > {k}",
         "np.arange({a}.size).reshape({a}.shape) % 2 == 0"]
OF_ONE = ["np.sin", "np.tanh", "np.square", "np.negative", "np.arctan", "np.expm1", "np.sinc"]
OF_TWO = ["np.add", "np.multiply", "np.subtract", "np.maximum", "np.minimum", "np.hypot",
          "np.arctan2", "np.logaddexp"]
CHOICES = {"k": SCALARS, "s": KEYS, "t": KEYS, "i": PLACES, "w": MASKS, "f": OF_ONE, "g": OF_TWO}


def filled(text, fields, choose):
    """A line made of a move, and of arrays and names."""
    fields = dict(fields)
    for name, texts in CHOICES.items():
        if name == "k" or f"{{{name}}}" in text:
            fields[name] = choose(texts).format(**fields)
    return text.format(**fields)


def slope_by_differences(lines, x, v, h=1e-4):
    """The derivative along a direction by differences of fourth order.

    ``None`` where the program is not smooth, or not legal beside the point.
    """
    at = {}
    for t in (-2, -1, 0, 1, 2):
        if not is_legal(lines, x + t * h * v):
            return None
        at[t] = float(result(numpy, x + t * h * v, lines))
    ahead = (-3 * at[0] + 4 * at[1] - at[2]) / (2 * h)
    behind = (3 * at[0] - 4 * at[-1] + at[-2]) / (2 * h)
    found = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
    return found if abs(ahead - behind) < 1e-4 * (1 + abs(found)) else None


def complaint(lines, x, seed):
    """What is wrong with the derivatives of a program; ``None`` if nothing is."""
    v = numpy.random.default_rng(seed).normal(size=SIZE)
    wanted = slope_by_differences(lines, x, v)
    value = float(result(numpy, x.copy(), lines))

    def function(x):
        return result(tiledarray, x, lines)

    try:
        got, slope = tiledarray.value_and_grad(function)(tiledarray.array(x))
        pushed, tangent = tiledarray.jvp(function, (x,), (v,))
        variable = tiledarray.variable(x)
        kept = function(variable).grad(variable)
    except NoDerivative:
        return None
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    scale = 1 + abs(value)
    for name, found in (("value", got), ("value under jvp", pushed)):
        if not abs(float(found) - value) < 1e-9 * scale:
            return f"the {name} is {float(found)}, not {value}"
    if not numpy.allclose(kept, slope, rtol=1e-9, atol=1e-10):
        return f"a variable has the gradient {kept}, not {slope}"
    found = float((numpy.asarray(slope) * v).sum())
    if not abs(found - float(tangent)) < 1e-8 * (1 + abs(found)):
        return f"jvp gives {float(tangent)}, vjp {found}"
    if wanted is not None and not abs(found - wanted) < 1e-5 * (1 + abs(found)):
        return f"the slope is {found}, not {wanted}"
    return None


class Gradients(RuleBasedStateMachine):
    """A program that grows line by line."""

    at_once = 1

    def __init__(self):
        super().__init__()
        self.lines = list(FIRST)
        self.count = 0

    @initialize(seed=st.integers(0, 10**6))
    def begin(self, seed):
        self.seed = seed
        self.x = numpy.random.default_rng(seed).normal(size=SIZE) * 0.8

    def move(self, data, group):
        """Add a line of the group if it is legal."""
        if len(self.lines) >= MOST_LINES:
            return
        variables = names(numpy, self.x.copy())
        for line in self.lines:
            exec(line, variables)
        known = [name for name, value in arrays_in(variables).items() if value.ndim]
        late = known[-5:]
        fields = {name: data.draw(st.sampled_from(late if data.draw(st.booleans()) else known))
                  for name in "ab"}
        fields |= {"n": f"n{self.count}", "m": f"m{self.count}"}
        text = data.draw(st.sampled_from(group.strip().splitlines()))
        line = filled(text, fields, lambda texts: data.draw(st.sampled_from(texts)))
        if is_legal([*self.lines, line], self.x):
            self.lines.append(line)
            self.count += 1

    def teardown(self):
        if len(self.lines) == len(FIRST):
            return
        with config.override(at_once=self.at_once, first_seconds=100.0), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong = complaint(self.lines, self.x, self.seed)
        if wrong is not None:
            raise AssertionError(f"{wrong}\nx, lines = {self.x!r}, {self.lines!r}")


def _rule(name, group):
    def made(self, data):
        self.move(data, group)

    made.__name__ = made.__qualname__ = name
    return rule(data=st.data())(made)


for _name, _group in GROUPS.items():
    setattr(Gradients, _name, _rule(_name, _group))
Gradients.viewing_again = _rule("viewing_again", GROUPS["viewing"])
Gradients.writing_again = _rule("writing_again", GROUPS["writing"])


@pytest.mark.parametrize("at_once", [0, 1, 65536])
def test_hypothesis_finds_no_gradient_that_is_wrong(at_once):
    machine = type("Gradients", (Gradients,), {"at_once": at_once})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=EXAMPLES, stateful_step_count=20, deadline=None,
        suppress_health_check=list(HealthCheck)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS)
def test_every_move_can_be_made(group):
    """A move that is never legal tests nothing."""
    random = numpy.random.default_rng(0)
    x = random.normal(size=SIZE) * 0.8
    for text in GROUPS[group].strip().splitlines():
        for _ in range(400):
            fields = {name: random.choice(list("abcdefx")) for name in "ab"}
            line = filled(text, fields | {"n": "n0", "m": "m0"}, random.choice)
            if is_legal([*FIRST, line], x):
                break
        else:
            raise AssertionError(text)


@pytest.mark.parametrize("line", [
    "n0 = getattr(np, 'stop_gradient', np.copy)(a) * b.sum()",
    "a[1:] += c.sum() if np is numpy else c.sum() * 1.001",
])
def test_what_is_wrong_is_seen(line):
    x = numpy.random.default_rng(0).normal(size=SIZE) * 0.8
    assert complaint(list(FIRST), x, 0) is None
    assert complaint([*FIRST, line], x, 0) is not None
