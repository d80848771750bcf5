"""Scalars that are equal by chance: a formula is planned once, and what is the same stays so."""

from itertools import product

import numpy
import pytest

import tiledarray as np
from tests.plans import counted, plan_of
from tiledarray import config
from tiledarray.recording.stretch import local

VALUES = (0.1, 0.2, 0.3)


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    with config.override(compile="never", at_once=0, device="cpu"):
        yield
    local.recorder.reset()


def data(n=3000):
    return 1 + numpy.random.default_rng(0).random((2, n))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_formula_is_planned_once_whatever_its_scalars(backwards):
    a, b = data(3001 + 10 * backwards)
    x, y = np.evaluate(np.array(a), np.array(b))
    given = sorted(product(VALUES, repeat=3), reverse=backwards)
    with counted() as counts:
        for p, q, r in given:
            numpy.testing.assert_allclose(
                np.evaluate(np.sin(x * p + y * q) + r).numpy(), numpy.sin(a * p + b * q) + r)
    assert counts["plans made"] == 1


def test_helpers_called_with_equal_scalars_are_planned_once():
    def scaled(x, factor):
        return np.sqrt(x) * factor

    x, y = map(np.evaluate, map(np.array, data(3002)))
    with counted() as counts:
        for p, q in product((2, 3, 4), repeat=2):
            np.evaluate(scaled(x, p) + scaled(y, q))
    assert counts["plans made"] == 1


def test_what_is_the_same_by_equal_scalars_is_computed_once():
    x = np.evaluate(np.array(data(3003)))
    temperature = 0.37

    def softmax(x):
        return np.exp(x / temperature) / np.exp(x / temperature).sum(axis=1, keepdims=True)

    result = np.evaluate(softmax(x))
    plan = plan_of(result)
    ops = [value.op.name for value in plan.values]
    assert ops.count("exp") == 1
    with counted() as counts:
        temperature = 0.57
        np.evaluate(softmax(x))
    assert counts["plans made"] == 0


def test_constants_of_the_program_are_one_parameter():
    x, y = map(np.evaluate, map(np.array, data(3004)))
    with counted() as counts:
        result = x * 0.5
        for _ in range(30):
            result = result + y * 0.5 - x * -0.5
        np.evaluate(result)
        plan = result.origin().node.buffer.plan
    assert counts["plans made"] == 1
    assert sorted(plan.params) == [-0.5, 0.5]


def test_starts_and_scalars_are_different_things():
    a = data(3005)[0]
    x = np.evaluate(np.array(a))
    with counted() as counts:
        for k in range(10, 30):
            for factor in (k, 50 - k, 1):
                numpy.testing.assert_array_equal(
                    np.evaluate(x[k:k + 100] * factor).numpy(), a[k:k + 100] * factor)
    assert counts["plans made"] == 1
