"""An element of each row at a place of its own: read and added to within kernels for a GPU."""

import shutil

import numpy
import pytest

import tiledarray as ta
from tests.emulation import emulated
from tests.plans import DEVICE, kinds, moved, planned
from tiledarray import config

with_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def recorded():
    with config.override(at_once=0):
        yield


def entropy(np, logits, labels):
    top = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return (total - logits[np.arange(len(logits)), labels]).mean()


def entropy_and_slope(np, logits, labels):
    if np is ta:
        return ta.value_and_grad(lambda x: entropy(np, x, labels))(logits)
    share = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    share[numpy.arange(len(labels)), labels] -= 1
    return entropy(np, logits, labels), share / len(labels)


def added(np, x, labels, more):
    y = np.exp(x)
    np.add.at(y, (np.arange(len(y)), labels), more)
    return y * 2


def weighted(np, x, labels, more):
    return (np.tanh(x)[np.arange(len(x)), labels] * more).sum()


def data(rows, columns, dtype="f8", places="i8"):
    random = numpy.random.default_rng(rows + columns)
    x = random.standard_normal((rows, columns))
    if dtype[0] == "c":
        x = x + 1j * random.standard_normal((rows, columns))
    least = 0 if places[0] == "u" else -columns
    return x.astype(dtype), random.integers(least, columns, rows).astype(places), (
        x[:, 0].astype(dtype))


@pytest.mark.sampled(12)
@with_gxx
@pytest.mark.parametrize("places", ["i8", "i4", "i1", "u1", "u4"])
@pytest.mark.parametrize("shape", [(1, 5), (40, 3), (33, 100)], ids=str)
def test_values(folder, shape, places):
    x, labels, more = data(*shape, places=places)
    for program, inputs in (
            (entropy_and_slope, (x, labels)), (added, (x, labels, more)),
            (added, (x, labels, more[:1].reshape(()))), (weighted, (x, labels, more))):
        expected = program(numpy, *inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        _, found = emulated(program, *inputs, folder=folder)
        for one, other in zip(expected, found, strict=True):
            numpy.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-13)


@with_gxx
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_dtypes(folder, dtype):
    x, labels, more = data(50, 20, dtype)
    _, (found,) = emulated(added, x, labels, more, folder=folder)
    numpy.testing.assert_allclose(found, added(numpy, x, labels, more), rtol=1e-5)


@with_gxx
def test_signs_of_zeros_and_nan_stay(folder):
    def program(np, x, labels, more):
        y = x * 1.0
        np.add.at(y, (np.arange(len(y)), labels), more)
        return y

    x = numpy.full((4, 3), -0.0)
    x[2, 1] = numpy.nan
    labels, more = numpy.array([0, 1, 2, 0]), numpy.array([1.0, -0.0, numpy.inf, 2.0])
    _, (found,) = emulated(program, x, labels, more, folder=folder)
    expected = program(numpy, x, labels, more)
    numpy.testing.assert_array_equal(found, expected)
    numpy.testing.assert_array_equal(numpy.signbit(found), numpy.signbit(expected))


@with_gxx
@pytest.mark.parametrize("wrong", [20, -21])
@pytest.mark.parametrize("program", [added, weighted], ids=lambda program: program.__name__)
def test_places_beyond_the_row(folder, program, wrong):
    x, labels, more = data(50, 20)
    labels[7] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 1 with size 20"):
        emulated(program, x, labels, more, folder=folder)


def test_one_kernel_reads_and_writes_once():
    x, labels = ta.zeros((4096, 512), "f4") + 1, ta.array(numpy.arange(4096) % 512)
    ta.evaluate(x)
    plan = planned(*entropy_and_slope(ta, x, labels), target=DEVICE)
    assert sorted(kinds(plan)) == ["call", "row", "row"], kinds(plan)
    assert moved(plan) < 2.05 * x.nbytes
    host = planned(*entropy_and_slope(ta, x, labels))
    assert kinds(host).count("call") == 2


def test_gradients_of_what_is_taken_are_no_calls():
    x, labels, _ = map(ta.array, data(4096, 512))

    def alone(x):
        return x[ta.arange(4096), labels].sum()

    for loss in (alone, lambda x: (x * x).sum() + alone(x)):
        plan = planned(ta.grad(loss)(x), target=DEVICE)
        assert plan.fired["added_to_each_row"] == 1
        assert [step.value.op.name for step in plan.steps if hasattr(step, "value")] == [
            "check_places"]


def test_other_indices_are_calls():
    x, labels, _ = data(64, 64)
    x, labels = ta.array(x), ta.array(labels)
    for found in (x[labels, labels], x[ta.arange(64) + 1 - 1, labels], x[labels, ta.arange(64)],
                  x[ta.arange(1, 64), labels[1:]]):
        assert "taken_from_each_row" not in planned(found * 2, target=DEVICE).fired
