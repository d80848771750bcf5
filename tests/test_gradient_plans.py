"""Gradients as plans: how many kernels and bytes the backward passes take, and what is kept."""

import gc

import numpy
import pytest

import tiledarray as np
from tests.plans import planned
from tiledarray import config
from tiledarray.core import history
from tiledarray.errors import HistoryLost
from tiledarray.fusion.plan import Call


def real(*shape, seed=0):
    return np.array(numpy.random.default_rng(seed).normal(size=shape))


def plan_of_gradient(function, *arrays):
    value, gradient = np.value_and_grad(function)(*arrays)
    return planned(value, gradient)


def logistic(w, x, y):
    return np.mean(np.logaddexp(0.0, -y * (x * w).sum(axis=1)))


def cross_entropy(z, t):
    shifted = z - z.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -(t * logs).sum() / len(z)


def of_labels(z, labels):
    top = z.max(axis=1, keepdims=True)
    total = np.log(np.exp(z - top).sum(axis=1)) + top[:, 0]
    return (total - z[np.arange(len(labels)), labels]).mean()


def layer_norm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return (y * y * y).sum()


def laplacian(u):
    inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return (inner * inner).sum()


def energy(x):
    apart = x[:, None] - x[None]
    return (1 / np.sqrt(apart * apart + 1)).sum()


def peaks(p, t):
    curve = p[-1] + sum(p[3 * k] * np.exp(-(((t - p[3 * k + 1]) / p[3 * k + 2]) ** 2))
                        for k in range(3))
    return ((curve - 1) ** 2).sum()


# Shapes of the arguments, launches, and bytes moved by the bytes of the arguments.
@pytest.mark.parametrize("function, shapes, launches, most", [
    (logistic, [(50,), (20_000, 50), (20_000,)], 3, 2.2),
    (cross_entropy, [(20_000, 40), (20_000, 40)], 3, 3.2),
    (layer_norm, [(20_000, 64)], 2, 5.2),
    (laplacian, [(1000, 1000)], 2, 6.1),
    (energy, [(2000,)], 3, 6.1),
    (peaks, [(10,), (20_000,)], 2, 2.1),  # a sum of what belongs to elements is no sum of arrays
])
def test_backward_passes_are_fused(function, shapes, launches, most):
    arrays = [real(*shape) for shape in shapes]
    plan = plan_of_gradient(function, *arrays)
    assert len(plan.kernels) <= launches
    moved = sum(kernel.bytes_moved for kernel in plan.kernels)
    assert moved <= most * sum(array.nbytes for array in arrays)


def test_no_array_of_all_pairs_is_stored():
    plan = plan_of_gradient(energy, real(2000))
    stored = [store.access.value for kernel in plan.kernels for store in kernel.stores]
    assert max(value.size for value in stored) == 2000


def test_a_gradient_finds_its_plan_again():
    x = real(1000)
    found = []
    with config.override(at_once=1):
        for _ in range(3):
            value, gradient = np.value_and_grad(lambda x: (np.sin(x) * x).sum())(x)
            np.evaluate(value, gradient)
            found.append(gradient.node.buffer.plan)
    assert found[1] is found[2]


def test_what_is_returned_has_no_history():
    value, gradient = np.value_and_grad(lambda x: (x ** 3).sum())(real(10))
    assert not value.node.keeps and not gradient.node.keeps
    np.evaluate(value, gradient)
    assert gradient.node.inputs == ()


def test_inner_gradients_keep_what_outer_ones_ask_for():
    def outer(x):
        inner = np.grad(lambda y: (y ** 3 * x).sum())(x)
        assert inner.node.keeps
        return (inner * inner).sum()

    x = numpy.array([1.0, 2.0])
    assert np.grad(outer)(np.array(x)) == pytest.approx(2 * (3 * x ** 3) * 9 * x ** 2)


def nodes_kept(array):
    return len(history([array.node]))


def test_checkpoint_keeps_the_arguments_alone():
    def steps(u):
        for _ in range(20):
            u = u + 0.01 * np.sin(u)
        return u

    def run(wrapped):
        u = np.variable(numpy.linspace(0, 1, 5))
        start = u
        for _ in range(10):
            u = wrapped(u)
        return nodes_kept(u), np.evaluate(u.sum().grad(start))

    gc.collect()
    with config.override(compile="never"):  # one tier, so that the bits are the same
        (all_of_it, plain), (few, again) = run(steps), run(np.checkpoint(steps))
    assert few <= 11 + 10 and all_of_it > 10 * few
    assert again.tolist() == plain.tolist()


def test_gradients_under_jit_record_nothing_again():
    calls = []

    def loss(w, x):
        calls.append(1)
        return ((x * w).sum(axis=1) ** 2).mean()

    compiled = np.jit(np.value_and_grad(loss))
    w, x = real(5), real(7, 5)
    wanted = np.value_and_grad(loss)(w, x)
    before = len(calls)
    for _ in range(3):
        value, gradient = compiled(w, x)
        assert float(value) == pytest.approx(float(wanted[0]))
        assert gradient == pytest.approx(numpy.asarray(wanted[1]))
    assert len(calls) == before + 1


def test_custom_rules():
    @np.custom_vjp
    def cube(x):
        return x * x * x

    cube.defvjp(lambda x: (x * x * x, (x,)), lambda kept, g: (g * 100 * kept[0],))
    x = np.array([1.0, 2.0])
    assert np.grad(lambda x: cube(x).sum())(x).tolist() == [100, 200]
    assert np.grad(lambda x: np.grad(lambda y: cube(y).sum())(x).sum())(x).tolist() == [100, 100]
    assert np.jvp(cube, (x,), (np.ones(2),))[1].tolist() == [100, 200]

    @np.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda args, tangents: (args[0] ** 2, 7 * args[0] * tangents[0]))
    assert np.grad(lambda x: square(x).sum())(x).tolist() == [7, 14]
    assert np.jvp(square, (x,), (np.ones(2),))[1].tolist() == [7, 14]
    assert np.jit(np.grad(lambda x: square(x).sum()))(x).tolist() == [7, 14]


@pytest.mark.parametrize("wrapper", ["custom_vjp", "custom_jvp", "checkpoint"])
def test_history_beside_the_arguments_is_refused(wrapper):
    def loss(w):
        def product(x):
            return w * x

        wrapped = getattr(np, wrapper)(product)
        if wrapper == "custom_vjp":
            wrapped.defvjp(lambda x: (w * x, ()), lambda kept, g: (g,))
        if wrapper == "custom_jvp":
            wrapped.defjvp(lambda args, tangents: (w * args[0], w * tangents[0]))
        return wrapped(w * 2).sum()

    with pytest.raises(HistoryLost, match="no argument of it"):
        np.grad(loss)(np.array([1.0, 2.0]))


def with_a_rule(wrapper, function):
    wrapped = getattr(np, wrapper)(function)
    if wrapper == "custom_vjp":
        wrapped.defvjp(lambda x: (function(x), ()), lambda kept, g: (g,))
    if wrapper == "custom_jvp":
        wrapped.defjvp(lambda args, tangents: (function(*args), tangents[0]))
    return wrapped


@pytest.mark.parametrize("wrapper", ["custom_vjp", "custom_jvp", "checkpoint"])
def test_an_argument_that_is_also_used_by_its_name_is_refused(wrapper):
    def loss(w):
        return with_a_rule(wrapper, lambda x: w * x)(w).sum()

    for gradient in (np.grad(loss), lambda x: loss(w := np.variable(x)).grad(w)):
        with pytest.raises(HistoryLost, match="no argument of it"):
            gradient(np.array([1.0, 2.0]))


@pytest.mark.parametrize("other", [3.0, numpy.full(2, 3.0), numpy.float64(3), np.full(2, 3.0)])
def test_other_arguments_under_a_rule_are_what_they_are(other):
    def product(x, k):
        return x * k

    with_jvp, with_vjp = np.custom_jvp(product), np.custom_vjp(product)
    with_jvp.defjvp(lambda args, tangents: (
        product(*args), tangents[0] * args[1] + args[0] * tangents[1]))
    with_vjp.defvjp(lambda x, k: (product(x, k), (x, k)), lambda kept, g: (
        g * kept[1], (g * kept[0]).sum() if np.ndim(kept[1]) == 0 else g * kept[0]))
    for function in (np.checkpoint(product), with_jvp, with_vjp):
        gradient = np.grad(lambda x, f=function: f(x, other).sum())(np.array([1.0, 2.0]))
        assert gradient.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("wrapper", ["custom_vjp", "custom_jvp", "checkpoint"])
def test_writing_into_an_argument_under_a_rule_is_refused(wrapper):
    def double(x):
        x *= 2
        return x * 1.0

    def loss(w):
        s = w * 1.0
        return (with_a_rule(wrapper, double)(s) * s).sum()

    x = np.array([1.0, 2.0])
    assert float(loss(x)) == 20.0
    with pytest.raises(HistoryLost, match="writes into an argument"):
        np.grad(loss)(x)


def test_what_belongs_to_places_is_added_last_to_what_is_dense():
    z = real(2_000, 40)
    labels = np.array(numpy.arange(2_000) * 7 % 40)
    plan = plan_of_gradient(of_labels, z, labels)
    calls = [step.value.op.name for step in plan.steps if isinstance(step, Call)]
    assert calls.count("add_at") == 1 and calls[-1] == "add_at"
    dense = [kernel for kernel in plan.kernels if kernel.bytes_moved > z.nbytes]
    assert len(dense) == 1 and dense[0].bytes_moved < 2.2 * z.nbytes
