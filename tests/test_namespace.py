"""Every name of NumPy is here, and it is known how each works."""

from __future__ import annotations

import copy
import functools
import importlib
import os
import pickle
import pkgutil
import subprocess
import sys
import time
from types import ModuleType

import numpy
import pytest

import tiledarray
from tiledarray.api.namespace import kind_of

KINDS = {"native", "library", "host", "fallback", "constant"}


def public(module: ModuleType) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_") and name != "test"]


@pytest.mark.parametrize("prefix", ["", "linalg.", "fft.", "random."])
def test_every_name_is_here_and_classified(prefix: str) -> None:
    theirs, ours = numpy, tiledarray
    if prefix:
        theirs, ours = getattr(numpy, prefix[:-1]), getattr(tiledarray, prefix[:-1])
    for name in public(theirs):
        assert name in dir(ours), name
        assert kind_of(prefix + name) in KINDS, name
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert callable(found) == callable(expected), name
        assert isinstance(found, ModuleType) == isinstance(expected, ModuleType), name
        if not callable(expected) and not isinstance(expected, ModuleType):
            assert type(found) is type(expected) or kind_of(prefix + name) == "constant", name


def test_counts() -> None:
    counts = dict.fromkeys(KINDS, 0)
    for name in public(numpy):
        counts[kind_of(name)] += 1
    assert counts["native"] > 230
    assert counts["library"] > 20
    assert counts["fallback"] < 75


def test_constants_are_numpys_own() -> None:
    for name in ("float32", "int8", "pi", "newaxis", "nan", "errstate", "dtype", "bool", "generic",
                 "exceptions", "ma", "iinfo", "s_", "vectorize", "flatiter", "ScalarType"):
        assert getattr(tiledarray, name) is getattr(numpy, name), name


def test_ndarray_is_both() -> None:
    for array in (tiledarray.ones(2), numpy.ones(2)):
        assert isinstance(array, tiledarray.ndarray)
        assert issubclass(type(array), tiledarray.ndarray)
    assert not isinstance([1], tiledarray.ndarray)
    assert tiledarray.ndarray((2, 3), "f").shape == (2, 3)
    for namespace in tiledarray, numpy:
        array, method = namespace.arange(6).reshape(2, 3), tiledarray.ndarray
        assert method.sum(array, axis=0).tolist() == [3, 5, 7]
        assert [*map(method.tolist, array)] == [[0, 1, 2], [3, 4, 5]]
        assert method.__add__(array, 1).tolist() == [[1, 2, 3], [4, 5, 6]]
        assert method.__len__(array) == 2 and method.__repr__(array) == repr(array)
        assert type(method.copy(array)) is type(array)

    class Mine(tiledarray.ndarray):
        def __repr__(self):
            return "mine of " + super().__repr__() + tiledarray.ndarray.__str__(self)

    mine = numpy.ones(2).view(Mine)
    assert isinstance(mine, Mine) and repr(mine) == "mine of Mine([1., 1.])[1. 1.]"
    assert not isinstance(numpy.ones(2), Mine)


def test_names_and_documents_are_numpys() -> None:
    assert tiledarray.concatenate.__name__ == "concatenate"
    assert tiledarray.concatenate.__doc__ == numpy.concatenate.__doc__
    assert callable(tiledarray.array)
    assert tiledarray.permute_dims is tiledarray.transpose
    assert tiledarray.concat is tiledarray.concatenate


OWN = {"TiledArray", "asnumpy", "checkpoint", "config", "custom_jvp", "custom_vjp", "device",
       "evaluate", "explain", "fori_loop", "grad", "hessian", "hvp", "jacobian", "jit", "jvp",
       "load_ipython_extension", "stop_gradient", "unload_ipython_extension", "value_and_grad",
       "variable", "vjp", "vmap", "while_loop"}


def test_nothing_but_numpys_names_and_a_few_of_our_own() -> None:
    for _, name, _ in pkgutil.iter_modules(tiledarray.__path__):
        if not name.startswith("_"):
            importlib.import_module(f"tiledarray.{name}")  # as whoever comes first does
    own = {name for name in vars(tiledarray) if not name.startswith("_")} - set(dir(numpy))
    assert own <= OWN
    for name in ("graph", "fork", "arrays", "kernels", "command"):
        with pytest.raises(AttributeError):
            getattr(tiledarray, name)


def test_own_names() -> None:
    first, second = tiledarray.ones(3) + 1, tiledarray.ones(3) * 4
    assert tiledarray.evaluate(first, second)[1] is second
    assert not first.node.pending
    assert not second.node.pending
    assert type(tiledarray.asnumpy(first)) is numpy.ndarray
    assert tiledarray.__version__
    with tiledarray.device("cpu"):
        assert str(tiledarray.zeros(1).device) == "cpu"


def test_array_namespace_info() -> None:
    info = tiledarray.__array_namespace_info__()
    assert info.default_dtypes() == numpy.__array_namespace_info__().default_dtypes()
    assert info.default_device() in info.devices()
    assert info.capabilities()["boolean indexing"]
    assert info.dtypes(kind="bool") == {"bool": numpy.dtype(bool)}


def test_import_is_quick_and_light() -> None:
    code = (
        "import time, sys; import numpy; start = time.process_time(); import tiledarray; "
        "print(time.process_time() - start); "  # the CPU's time: the machine may be busy
        "heavy = {'scipy', 'networkx', 'cupy', 'opt_einsum', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    # With byte code, as it is installed: the first process writes it.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    times = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                             env=environment).stdout)
        for _ in range(4)
    ]
    assert min(times) < 0.25


def test_recording_a_ufunc_is_quick() -> None:
    array = tiledarray.ones(4)
    add = tiledarray.add
    add(array, array)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(300):
            add(array, array)
        best = min(best, (time.perf_counter() - start) / 300)
    assert best < 15e-6  # 3e-6 on a quiet machine


def test_assertions_look_at_arrays() -> None:
    testing = tiledarray.testing
    array = tiledarray.arange(6.0).reshape(2, 3)
    testing.assert_equal(array, numpy.arange(6.0).reshape(2, 3))
    testing.assert_equal({"sum": [array.sum(), array]}, {"sum": [15.0, array]})
    testing.assert_allclose(array + 1e-9, array, rtol=1e-6, atol=1e-8)
    testing.assert_raises(TypeError, tiledarray.zeros, (2.5,))
    for assertion in (testing.assert_equal, testing.assert_allclose, testing.assert_array_less):
        with pytest.raises(AssertionError):
            assertion(array + 1, array)
    assert kind_of("testing.assert_equal") == "host"
    assert kind_of("testing.assert_raises") == "constant"


# ---- what is imported late ---------------------------------------------------------------------

NOT_AT_ONCE = ("execution.evaluate", "fusion", "kernels.compile", "kernels.text", "gradients",
               "insight", "transforms", "command")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                          text=True).stdout


def test_planner_compilers_and_gradients_are_imported_when_they_are_asked_for() -> None:
    early = run("import sys, tiledarray as np; np.zeros(3) + np.ones(3)\n"
                "print(*(name for name in sys.modules if name.startswith('tiledarray.')))")
    too_early = [name for name in early.split()
                 if name.removeprefix("tiledarray.").startswith(NOT_AT_ONCE)]
    assert not too_early


def test_what_goes_op_by_op_brings_no_planner() -> None:
    late = run("""
import sys, numpy, tiledarray as np
np.config.device, np.config.compile, np.config.first_seconds = "cpu", "background", 0.02
x = np.array(numpy.arange(40_000.0).reshape(200, 200))
x[1:-1] += 0.5 * (x[2:] + x[:-2])
found = float(np.sqrt(np.where(x > 3, x @ x.T, x.sum(0) + np.sort(x, 1))).mean())
assert found > 0
print(*(name for name in sys.modules if name.startswith("tiledarray.")))""")
    planning = ("fusion", "kernels.compile", "kernels.text", "execution.plans", "execution.running")
    assert "tiledarray.execution.evaluate" in late.split()
    assert not [name for name in late.split()
                if name.removeprefix("tiledarray.").startswith(planning)]


def test_names_imported_late_are_there() -> None:
    late = run("import tiledarray as np; print(*dir(np))\nfrom tiledarray import grad\n"
               "print(np.TiledArray.grad is np.TiledArray.__dict__['grad'], 'grad' in vars(np))")
    names, found = late.splitlines()
    assert {*names.split()} >= OWN
    assert found == "True True"
    assert "wrt" in run("import tiledarray as np; print(np.ones(()).grad.__doc__)")
    assert "functions" in run("from tiledarray import *; print(vjp.__module__)")
    from tiledarray.gradients import public
    assert {*public.__all__} <= OWN


def test_what_is_imported_late_has_the_core_of_ours() -> None:
    """`tiledarray.core` is NumPy's for who imports this library, its own modules included."""
    wrong = run("""
import importlib, pkgutil, sys, tiledarray
ours = sys.modules["tiledarray.core"]
for part in ("execution", "fusion", "kernels", "gradients", "insight", "transforms", "command"):
    package = importlib.import_module("tiledarray." + part)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(found.name)
        if getattr(module, "core", ours) is not ours:
            print(found.name)
""")
    assert wrong == ""


@pytest.mark.parametrize("name", [
    "sum", "random.default_rng", "random.normal", "linalg.matrix_rank", "linalg.solve", "fft.rfft",
    "char.upper", "emath.sqrt", "testing.assert_allclose", "polynomial.polynomial.polyval"])
def test_functions_are_pickled_by_name(name):
    """As for `multiprocessing.Pool.map(np.random.default_rng, seeds)`."""
    function = functools.reduce(getattr, name.split("."), tiledarray)
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("made", [
    lambda: tiledarray.random.default_rng(3), lambda: tiledarray.random.RandomState(3),
    lambda: tiledarray.random.RandomState(numpy.random.PCG64(3))])
def test_generators_are_pickled_as_ours(made):
    generator = made()
    generator.normal()
    again = pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)
    wanted = numpy.asarray(generator.normal(size=5))
    for each in again:
        found = each.normal(size=5)
        assert type(found) is tiledarray.TiledArray
        assert (numpy.asarray(found) == wanted).all()


METHOD_DESCRIPTOR = 1 << 17  # of a type: Python hands it the object before it asks `__get__`


def is_bound(function):
    """Whether a function that a class has becomes a method of its objects."""
    instance = type("Layer", (), {"function": function})()
    return instance.function is not function or bool(type(function).__flags__ & METHOD_DESCRIPTOR)


@pytest.mark.parametrize("module", ["", "linalg", "fft", "random", "lib.stride_tricks", "strings"])
def test_a_class_has_functions_as_numpys(module):
    """`activation = np.tanh` in a class is no method: NumPy's ufuncs and builtins are none."""
    theirs, ours = numpy, tiledarray
    for name in filter(None, module.split(".")):
        theirs, ours = getattr(theirs, name), getattr(ours, name)
    names = [name for name in dir(theirs) if not name.startswith("_")
             and callable(getattr(theirs, name)) and not isinstance(getattr(theirs, name), type)]
    others = {name for name in names
              if is_bound(getattr(theirs, name)) != is_bound(getattr(ours, name))}
    assert others <= {"asfortranarray", "from_dlpack", "nested_iters", "ranf", "sample"}


def test_functions_of_a_class_are_called():
    class Layer:
        activation, initial, make = tiledarray.tanh, tiledarray.zeros, tiledarray.array
        draw, norm = tiledarray.random.random, staticmethod(tiledarray.linalg.norm)

    layer = Layer()
    assert layer.activation(layer.initial(3)).tolist() == [0, 0, 0]
    assert layer.make([1, 2]).tolist() == [1, 2] and layer.draw(2).shape == (2,)
    assert layer.norm([3., 4.]) == 5
