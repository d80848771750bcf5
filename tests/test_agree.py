"""What is computed in several places comes out alike where that shows (`fusion/agree.py`)."""

import platform
import subprocess
import sys

import numpy
import pytest

import tiledarray as np
from tests.plans import HOST, planned
from tests.test_docs import as_users_have_it
from tiledarray import config
from tiledarray.fusion import agree
from tiledarray.fusion.ir import Value
from tiledarray.fusion.target import Target
from tiledarray.kernels.compile import host
from tiledarray.ops import arithmetic, transcendental
from tiledarray.ops.op import Elementwise

GPU = Target("cuda", 132)
FUNCTIONS = ["exp", "tanh", "sin", "log", "arctan", "expm1"]


def positive(*shape, seed=0):
    return numpy.random.default_rng(seed).uniform(0.1, 1.5, shape)


@pytest.fixture
def kernels():
    """Have all computed by kernels."""
    with config.override(compile="wait", at_once=0, first_seconds=0.0):
        yield


PROGRAMS = {
    "one is the maximum": lambda v: (v == v.max()).sum(),
    "in each row": lambda v: (v == v.max(axis=-1, keepdims=True)).sum(axis=-1),
    "in each column": lambda v: (v == v.min(axis=0)).sum(axis=0),
    "none is above": lambda v: (v > np.max(v)).sum(),
    "roots": lambda v: np.isnan(np.sqrt(v.max(axis=0) - v)).sum(),
    "angles": lambda v: np.isnan(np.arccos(v / abs(v).max())).sum(),
    "whole numbers": lambda v: (v / v.max() * 255).astype("u1").max(),
    "running": lambda v: (v == np.maximum.accumulate(v, axis=0)).any(axis=0),
    "turned": lambda v: (v[:, :4] == v[:, 3::-1][:, ::-1]).all(),
    "at the place": lambda v: v.reshape(-1)[v.argmax()] == v.max(),
    "scaled": lambda v: ((v * 3 + 1) == (v * 3 + 1).max(axis=1, keepdims=True)).sum(axis=1),
    "both ways": lambda v: (v == v.max(axis=0)).sum() + (v == v.max(axis=1)[:, None]).sum(),
    "a look between": lambda v: (v.max(), v - v.max(), (v - v.max() == 0).sum())[2],
}


@pytest.mark.sampled(32)
@pytest.mark.compiler
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shape", [(1, 4), (7, 7), (50, 5), (3, 1000), (33, 13)], ids=str)
def test_extrema_are_elements(program, shape):
    x = positive(*shape)
    for name in FUNCTIONS:
        ours = numpy.asarray(PROGRAMS[program](getattr(np, name)(np.array(x))))
        theirs = numpy.asarray(PROGRAMS[program](getattr(numpy, name)(x)))
        assert (ours == theirs).all(), name


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", ["exp", "tanh", "sin"])
def test_the_gradient_of_a_maximum_is_there(name, jit):
    others = numpy.random.default_rng(7).standard_normal((2, 4))
    function, slope = getattr(numpy, name), getattr(np, name)
    with config.override(compile="wait", first_seconds=0.0):
        gradient = np.grad(lambda a, b: np.sum(np.sin(b * np.max(slope(a)))))
        gradient = np.jit(gradient) if jit else gradient
        for n in (4, 7, 50):
            for seed in range(12):
                a = numpy.random.default_rng(seed).standard_normal(n)
                got = gradient(np.array(a), np.array(others)).numpy()
                place = function(a).argmax()
                assert got[place] != 0 and (numpy.delete(got, place) == 0).all()


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.parametrize("name", ["exp", "tanh", "log", "sin"])
def test_a_maximum_that_numpy_computed_before(name):
    """The forward pass went op by op; the backward pass is a kernel, which rounds otherwise."""
    function, x = getattr(np, name), positive(20_000)
    with config.override(at_once=0, first_seconds=0.0):
        with config.override(compile="never"):
            one = function(np.array(x)).numpy()
        with config.override(compile="wait"):
            other = function(np.array(x)).numpy()
        for each in x[one != other][:3]:
            values = numpy.full(64, 0.01)
            values[5] = each
            a = np.variable(np.array(values))
            with config.override(compile="never"):
                most, least = np.max(function(a) * 1.5), np.min(-function(a))
                running = np.maximum.accumulate(function(a))
                assert float(most) and float(least) and running.numpy().any()
            with config.override(compile="wait"):
                for result in (most * most, least * least, running.sum()):
                    assert result.grad(a).numpy()[5]


def test_what_a_kernel_holds_is_not_stored():
    def softmax(x):
        scores = np.tanh(x) * 50
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    kernel, = planned(softmax(np.asarray(positive(64, 300))), target=HOST).kernels
    assert len(kernel.stores) == 1


def test_what_is_in_two_kernels_is_stored_once():
    def stored(function):
        x = np.asarray(positive(64, 300))
        plan = planned((lambda v: function(v))(np.exp(x)), target=HOST)
        return sum(store.access.value.op is transcendental.exp for kernel in plan.kernels
                   for store in kernel.stores)

    assert stored(lambda v: (v == v.max()).sum(axis=0)) == 1
    assert stored(lambda v: (v == v.max(axis=0)).sum(axis=0)) == 1
    assert stored(lambda v: v.sum() + (v * v).sum(axis=0)) == 0


def _value(op, *dtypes):
    return Value(0, op, tuple(map(numpy.dtype, dtypes)), (), (5,), numpy.dtype(dtypes[0]))


def test_which_functions_may_be_rounded_otherwise():
    functions = [op for op in vars(transcendental).values() if isinstance(op, Elementwise)]
    assert len(functions) > 20
    for op in functions:
        arguments = ["d"] * (op.ufunc.nin if op.ufunc is not None else 1)
        assert agree._is_near(_value(op, *arguments), HOST) is (op is not transcendental.sqrt), op
    assert agree._is_near(_value(arithmetic.power, "d", "d"), HOST)
    assert not agree._is_near(_value(arithmetic.power, "l", "l"), HOST)
    for op in (arithmetic.add, arithmetic.divide, arithmetic.absolute, arithmetic.floor):
        assert not agree._is_near(_value(op, "d", "d"), HOST)
    assert agree._is_near(_value(transcendental.log, "f"), GPU)
    assert not agree._is_near(_value(transcendental.exp, "f"), GPU)
    assert not agree._is_near(_value(transcendental.log, "d"), GPU)


EARLY = """
import numpy
import tiledarray as np
b = np.array(numpy.random.default_rng(7).standard_normal((2, 4)))
for f in (np.sin, np.exp):
    g = np.grad(lambda a, b: np.sum(np.sin(b * np.max(f(a)))))
    for k in range(60):
        g(np.array(numpy.random.default_rng(k).standard_normal(4)), b).numpy()
"""


@pytest.mark.compiler
def test_gradients_are_evaluated_again_before_anything_else_was_planned():
    """The core was to run a program before it had been told what with."""
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True,
                          env={**as_users_have_it(), "TILEDARRAY_COMPILE": "wait"}, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.compiler
@pytest.mark.usefixtures("kernels")
@pytest.mark.skipif(platform.machine() != "x86_64" or host.available() is not None
                    or not host.compiler().libmvec, reason="vectors of glibc's on x86")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_do_not_depend_on_an_elements_place(dtype):
    numbers = positive(3, seed=1).astype(dtype)
    for name in [*FUNCTIONS, "cosh", "arcsin", "cbrt", "log2", "exp2", "cos"]:
        function = getattr(np, name)
        for n in (1, 3, 17, 1003):
            for number in numbers / 2:
                same = numpy.asarray(function(np.full(n, number)) * 1)
                assert (same == same[0]).all(), name
        x = np.array(positive(29).astype(dtype))
        matrix = numpy.asarray(function(abs(x[:, None] - x) / 2))
        assert (matrix == matrix.T).all(), name
    x = np.array(positive(29).astype(dtype))
    for function in (np.power, np.hypot, np.arctan2):
        matrix = numpy.asarray(function(abs(x[:, None] - x) + 1, x[:, None] * x))
        assert (matrix == matrix.T).all()
