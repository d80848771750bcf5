"""What a jitted function does until its kernels are there (`execution/direct.py`)."""

import time

import numpy as np
import pytest

import tiledarray as ta
from tiledarray.errors import CompilerError, TiledArrayWarning
from tiledarray.execution.background import background
from tiledarray.execution.executable import Executable
from tiledarray.execution.spans import counters


def until_compiled():
    for _ in range(600):
        if not background.unfinished():
            return
        time.sleep(0.1)


@pytest.mark.compiler
def test_quick_functions_do_not_wait_for_the_compiler(tmp_path):
    # of values that no other test has, so that these kernels are new, and on no disk
    jitted = ta.jit(lambda x: np.sqrt(x * x + 1.0625) * 3.5 + x[::-1])
    x = np.random.default_rng(0).random(77)
    expected = np.sqrt(x * x + 1.0625) * 3.5 + x[::-1]
    with ta.config.override(first_seconds=0.2, compile="background", cache_dir=tmp_path):
        before = counters["kernels compiled"], counters["op by op"]
        np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), expected)  # NumPy's bits
        assert counters["kernels compiled"] == before[0] and not background.unfinished()
        np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), expected)
        assert counters["op by op"] == before[1] + 2
        until_compiled()
        assert counters["kernels compiled"] == before[0] + 1
        launches = counters["launches"]
        np.testing.assert_allclose(np.asarray(jitted(ta.array(x))), expected, rtol=1e-15)
        assert counters["op by op"] == before[1] + 2 and counters["launches"] == launches + 1


@pytest.mark.compiler
def test_a_function_whose_kernels_do_not_compile_goes_on_op_by_op(monkeypatch):
    def fail(*args, **kwargs):
        raise CompilerError("no", passing=False)

    jitted = ta.jit(lambda x: np.exp(x * 1.0625) + x[::-1])
    x = np.random.default_rng(0).random(77)
    expected = np.exp(x * 1.0625) + x[::-1]
    monkeypatch.setattr(Executable, "_compile", fail)
    with ta.config.override(first_seconds=0.2, compile="background"):
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), expected)
        until_compiled()
        with pytest.warns(TiledArrayWarning):
            np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), expected)
        np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), expected)


@pytest.mark.compiler
@pytest.mark.parametrize("function", [
    lambda d: d[:, :1].argmin(axis=1), lambda d: d[:, :1].argmax(axis=1) + d.sum(),
    lambda d: d[:1, 0].argmin(), lambda d: np.cumsum(d[0, :0]),
    lambda d: ((d[:, None, :] - d[:1][None]) ** 2).sum(-1).argmin(1),
])
def test_inputs_that_the_plan_does_not_read(function):
    x = np.arange(12.0).reshape(4, 3) + 0.0625
    jitted = ta.jit(function)
    with ta.config.override(first_seconds=0.2, compile="background"):
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), function(x))
        until_compiled()
        np.testing.assert_array_equal(np.asarray(jitted(ta.array(x))), function(x))


def test_errors_are_told_while_kernels_are_compiled():
    jitted = ta.jit(lambda x: np.linalg.inv(x @ x) + 1)
    with ta.config.override(first_seconds=0.2, compile="background"):
        with pytest.raises(np.linalg.LinAlgError):
            jitted(ta.zeros((3, 3)))
        np.testing.assert_allclose(np.asarray(jitted(ta.array(np.eye(3)))), np.eye(3) + 1)
