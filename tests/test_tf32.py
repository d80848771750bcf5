"""`config.tf32`: products that are recorded meanwhile may round their factors, on a GPU."""

import numpy
import pytest

import tiledarray as np
from tests.plans import DEVICE, HOST, filled, planned
from tiledarray import config
from tiledarray.fusion.plan import Call
from tiledarray.ops.library import is_tf32

PRODUCTS = {
    "matmul": lambda x, y: x @ y, "dot": lambda x, y: np.dot(x, y),
    "inner": lambda x, y: np.inner(x, y.T), "tensordot": lambda x, y: np.tensordot(x, y, 1),
    "matvec": lambda x, y: np.matvec(x, y[0]),
}


def calls(array, target=DEVICE):
    return [step.value for step in planned(array, target=target).steps if isinstance(step, Call)]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["f4", "F", "f8", "D", "f2"])
def test_only_single_precision_is_asked_for_it(name, dtype):
    x, y = filled(300, 300, dtype=dtype), filled(300, 300, dtype=dtype, seed=1)
    for asked in (False, True):
        with config.override(tf32=asked, at_once=0):
            found = [value for value in calls(PRODUCTS[name](x, y)) if value.op.name != "cast"]
        assert [is_tf32(value.attrs) for value in found] == [
            asked and dtype in "f4F"] * len(found)


def test_a_host_computes_as_ever():
    x, y = filled(70, 60, dtype="f4"), filled(60, 50, dtype="f4", seed=1)
    with config.override(at_once=0):
        expected = (x @ y).numpy()
        with config.override(tf32=True):
            assert (x @ y).numpy().tolist() == expected.tolist()
            assert calls(x @ y, HOST)


def test_gradients_ask_for_what_holds_where_they_are_recorded():
    x, y = filled(70, 60, dtype="f4"), filled(60, 50, dtype="f4", seed=1)
    with config.override(tf32=True, at_once=0):
        found = calls(np.grad(lambda x: (x @ y).sum())(x))
        assert found == [] or all(is_tf32(value.attrs) for value in found)
        got = np.grad(lambda x: ((x @ y) ** 2).sum())(x)
        assert any(is_tf32(value.attrs) for value in calls(got))
    wide = x.numpy().astype("f8"), y.numpy().astype("f8")
    numpy.testing.assert_allclose(got.numpy(), 2 * (wide[0] @ wide[1]) @ wide[1].T, rtol=1e-4)


def test_a_jitted_function_is_traced_for_each():
    traces = []

    def product(x, y):
        traces.append(config.tf32)
        return x @ y

    jitted = np.jit(product)
    x, y = filled(70, 60, dtype="f4"), filled(60, 50, dtype="f4", seed=1)
    for asked in (False, True, False, True):
        with config.override(tf32=asked):
            jitted(x, y).numpy()
    assert traces == [False, True]


def test_samples_ask_for_it_as_well():
    x, y = filled(8, 70, 60, dtype="f4"), filled(60, 50, dtype="f4", seed=1)
    with config.override(tf32=True, at_once=0):
        found = np.vmap(lambda x: x @ y)(x)
        assert [is_tf32(value.attrs) for value in calls(found)] == [True]
    numpy.testing.assert_allclose(found.numpy(), x.numpy() @ y.numpy(), rtol=1e-5)
