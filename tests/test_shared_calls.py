"""Library calls of many matrices, each thread of a part of them."""

import threading

import numpy
import pytest

import tiledarray as np
from tests.plans import counted
from tiledarray import config
from tiledarray.execution import library_calls, shared_calls
from tiledarray.ops.library import BY_NAME, options


def matrices(*shape, dtype="f8"):
    random = numpy.random.default_rng(0)
    x = random.normal(size=shape)
    if dtype == "c16":
        x = x + 1j * random.normal(size=shape)
    return x + 5 * numpy.eye(shape[-1]) if shape[-1] == shape[-2] else x


def definite(x):
    return x @ x.conj().swapaxes(-1, -2)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(shared_calls, "WORTH_SHARING", 1)


CALLS = {
    "linalg.inv": [(7, 4, 4)], "linalg.det": [(7, 4, 4)], "linalg.slogdet": [(3, 2, 4, 4)],
    "linalg.cofactors": [(7, 4, 4)], "linalg.svdvals": [(7, 4, 3)], "linalg.pinv": [(7, 4, 3)],
    "linalg.eigvals": [(7, 4, 4)], "linalg.eig": [(2, 4, 4)], "linalg.qr": [(7, 4, 3)],
    "matmul": [(7, 4, 3), (7, 3, 5)],
}
TWO = [("matmul", (7, 4, 3), (3, 5)), ("matmul", (3,), (7, 3, 5)), ("matmul", (7, 4, 3), (3,)),
       ("matmul", (7, 4, 3), (1, 3, 5)), ("matmul", (2, 1, 4, 3), (5, 3, 2)),
       ("linalg.solve", (7, 4, 4), (7, 4, 2)), ("linalg.solve", (7, 4, 4), (4,)),
       ("linalg.solve", (7, 4, 4), (4, 2)), ("linalg.solve", (4, 4), (7, 4, 2)),
       ("linalg.solve", (1, 4, 4), (7, 4, 2)), ("linalg.solve", (3, 2, 4, 4), (2, 4, 1))]


def compare(name, inputs, threads, **keywords):
    """Ours is NumPy's to the bit, and was computed in parts."""
    op, used = BY_NAME[name], set()

    def reference(*given, **others):
        used.add(threading.get_ident())
        return op.reference(*given, **others)

    dtype = numpy.result_type(*inputs, "c8" if "eig" in name and "h" not in name else "?")
    given = {"attrs": options(**keywords), "shape": None, "dtype": dtype}
    shared = shared_calls.shared_out(op, reference, [x.shape for x in inputs], threads)
    found, wanted = shared(numpy, *inputs, **given), op.reference(numpy, *inputs, **given)
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)),
                          strict=True):
        assert one.dtype == other.dtype and numpy.array_equal(one, other)
    assert shared is not reference and len(used) > 1


@pytest.mark.parametrize("threads", [2, 3, 16])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_parts_are_put_together(name, threads, dtype, small):
    compare(name, [matrices(*shape, dtype=dtype) for shape in CALLS[name]], threads)


@pytest.mark.parametrize("name, left, right", TWO, ids=str)
def test_two_inputs(name, left, right, small):
    compare(name, [matrices(*shape) if len(shape) > 1 else numpy.arange(1.0, 1 + shape[0])
                   for shape in (left, right)], 2)


@pytest.mark.parametrize("name", ["linalg.cholesky", "linalg.eigh", "linalg.eigvalsh"])
def test_of_definite_matrices(name, small):
    keywords = {} if name == "linalg.cholesky" else {"UPLO": "L"}
    compare(name, [definite(matrices(7, 4, 4))], 2, **keywords)


@pytest.mark.parametrize("shapes", [
    [(4, 4)], [(0, 4, 4)], [(7, 0, 0)], [(7, 400, 400)], [(1, 4, 4)], [(4,), (4,)], [(7, 4, 4)],
], ids=str)
def test_what_one_thread_does(shapes):
    op = BY_NAME["matmul"]
    assert shared_calls.shared_out(op, op.reference, shapes, 8) is op.reference


@pytest.mark.parametrize("place", [0, 6])
def test_a_singular_matrix_among_them(place, small):
    x = matrices(7, 4, 4)
    x[place] = 0
    with config.override(threads=2, compile="wait"), pytest.raises(
            numpy.linalg.LinAlgError, match="Singular matrix"):
        np.linalg.inv(np.array(x)).tolist()


def test_a_plan_shares_its_calls_out(monkeypatch, small):
    made = []

    def noted(op, reference, *others):
        made.append((op.name, shared_calls.shared_out(op, reference, *others) is not reference))
        return shared_calls.shared_out(op, reference, *others)

    monkeypatch.setattr(library_calls, "shared_out", noted)
    x = matrices(9, 5, 5)
    with config.override(threads=3, compile="wait"), counted() as counts:
        found = np.sin(np.array(x) + 1) @ np.array(x) * 2
        numpy.testing.assert_allclose(found, numpy.sin(x + 1) @ x * 2, rtol=1e-12)
    assert ("matmul", True) in made and counts["library calls"] == 1
