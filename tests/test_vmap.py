"""`vmap` against a loop over the samples whose results are stacked."""

import itertools
from dataclasses import dataclass
from functools import partial

import numpy
import pytest

import tiledarray as np
from tests.gradient_corpus import PROGRAMS, REFUSED
from tests.plans import kinds, planned
from tests.test_gradient_programs import MOVES, X, is_legal, result, written
from tiledarray.gradients import batching
from tiledarray.gradients.factorizations import inverted_lower
from tiledarray.ops import indexing, movement
from tiledarray.ops.library import BY_NAME
from tiledarray.ops.op import Library

COUNT = 3


@pytest.fixture(autouse=True)
def op_by_op(monkeypatch):
    """What is met once is not worth compiling."""
    monkeypatch.setattr(np.config, "first_seconds", 100.0)


def normal(*shape, seed=0):
    return numpy.random.default_rng(seed).normal(size=shape)


def stacked(function, in_axes, *args):
    """What a loop over the samples gives."""
    count = next(arg.shape[axis] for arg, axis in zip(args, in_axes, strict=True)
                 if axis is not None)
    results = [
        function(*(np.array(arg if axis is None else numpy.take(arg, k, axis))
                   for arg, axis in zip(args, in_axes, strict=True)))
        for k in range(count)]
    if isinstance(results[0], tuple):
        return tuple(numpy.stack([numpy.asarray(part) for part in parts])
                     for parts in zip(*results, strict=True))
    return numpy.stack([numpy.asarray(each) for each in results])


def check(function, in_axes, *args, tolerance=1e-10):
    wanted = stacked(function, in_axes, *args)
    found = np.vmap(function, in_axes=in_axes)(*map(np.array, args))
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for one, other in pairs:
        assert one.dtype == other.dtype and one.shape == other.shape
        numpy.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["?", "i1", "u4", "e"])
@pytest.mark.parametrize("product", [
    lambda x: x @ x, lambda x: np.dot(x, x), lambda x: np.vdot(x, x), lambda x: np.inner(x, x)])
def test_products_of_vectors_keep_their_dtype(product, dtype):
    check(product, (0,), numpy.array([[100, 100], [3, 1], [0, 0]], dtype), tolerance=1e-2)


@pytest.mark.parametrize("scan", [
    np.cumsum, lambda x: np.cumsum(x, axis=1), lambda x: np.cumprod(x, axis=0),
    lambda x: np.maximum.accumulate(x, axis=1), lambda x: np.cumsum(x[::-1], axis=0)[::-1]])
def test_scans_of_all_samples(scan):
    check(scan, (0,), normal(COUNT, 2, 4))
    check(np.grad(lambda x: (scan(x) ** 2).sum()), (0,), normal(COUNT, 2, 4))


# ---- programs ------------------------------------------------------------------------------------

SAMPLES = numpy.array([X, X * 0.9 + 0.05, X * 1.1 - 0.02])
# What looks at a value, which differs from sample to sample, or draws random numbers.
NOT_MAPPED = """
    python_max python_sorted tolist math_exp float_ int_ complex_ piecewise
    branch frompyfunc isclose_etc where1
    unique unique_inv array_of_objects hash_eq index_scalar setfield from_numpy_outside
    numpy_asarray bool_to_float scalar_minmax math_fsum while_
    vectorize vectorize_two take_ops poly_class statistics_mean
    resize_method arange_hist numpy_array_iadd numpy_out random_normal random_uniform
    random_shuffle random_permutation random_choice generator_normal generator_shuffle
    generator_standard
"""


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_mapped_with_its_gradient_or_refused(name):
    function = PROGRAMS[name]
    if name in NOT_MAPPED.split():
        with pytest.raises((TypeError, IndexError)):
            np.vmap(lambda x: function(np, x))(np.array(SAMPLES))
        return
    check(lambda x: np.asarray(function(np, x)), (0,), SAMPLES)
    if name not in REFUSED:
        check(np.grad(lambda x: function(np, x)), (0,), SAMPLES)


MAPPED_MOVES = [line for line in MOVES if not any(
    part in line for part in ("> {k}]", "< {k}]", "if {a}", "while", "place(", "str("))]


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    lines, x = written(seed, 12, MAPPED_MOVES)
    samples = numpy.array([x, x * 0.98 + 0.01, x * 1.01])
    if not all(is_legal(lines, sample) for sample in samples):
        pytest.skip("it is not defined for all samples")

    def function(x):
        return result(np, x, lines)

    check(lambda x: np.asarray(function(x)), (0,), samples, tolerance=1e-8)
    check(np.grad(function), (0,), samples, tolerance=1e-8)


# ---- library calls -------------------------------------------------------------------------------


def positive(x):
    return x @ x.swapaxes(-1, -2) + np.eye(x.shape[-1])


def of_positive(function):
    return lambda x: function(positive(x))


def indexed(x, k):
    return (x[k], x[:, k], x[:, k, None] * 2, x[k, :, k], x[None, k], x[1, ..., k],
            x[:, k[:2], k[1:]], x[:, :, k])


def overwritten(x, k):
    y, z, w = x * 2, x * 2, x * 2
    y[:, k] = x[:, :3] + 1
    z[k, :, k] = x[0, :4, 0]
    w[:, :, k] += 1.0
    return y, z, w


def added(x, k, v):
    """The gradient of a gather adds at the places that it read."""
    return np.grad(lambda x: (x[k] * v).sum() + (x[:, k] * v.swapaxes(0, 1)).sum())(x)


K = numpy.array([[0, 2, 1], [1, 1, 3], [2, 0, 0]])
# For each operation uses of it, with the shapes of a sample's arguments, or the arguments.
CALLS = {
    "matmul": [(np.matmul, shapes) for shapes in (
        [(4,), (4,)], [(2, 4), (4,)], [(4,), (4, 2)], [(2, 4), (4, 3)], [(5, 2, 4), (4, 3)],
        [(4,), (5, 4, 2)], [(5, 2, 4), (4,)], [(2, 4), (5, 4, 3)], [(5, 2, 4), (5, 4, 3)])],
    "vecdot": [(np.vecdot, [(2, 4), (4,)]), (np.vecdot, [(4,), (2, 4)])],
    "matvec": [(np.matvec, [(2, 4), (5, 4)]), (np.matvec, [(5, 2, 4), (4,)])],
    "vecmat": [(np.vecmat, [(5, 2), (2, 4)]), (np.vecmat, [(2,), (5, 2, 4)])],
    "dot": [(np.dot, [(2, 3, 4), (5, 4, 2)]), (np.dot, [(2, 3, 4), (4,)]),
            (np.dot, [(4,), (3, 4, 2)])],
    "inner": [(np.inner, [(2, 4), (3, 4)]), (np.inner, [(2, 4), (4,)])],
    "einsum": [(lambda x, y: np.einsum("ij,jk->ki", x, y), [(2, 4), (4, 3)]),
               (lambda x, y: np.einsum("...j,jj", x, y), [(2, 3, 4), (4, 4)]),
               (lambda x, y: np.einsum("ii,j->j", x, y), [(4, 4), (3,)])],
    "partition": [(lambda x: np.partition(x, 2, axis=0), [(5, 2)])],
    "argpartition": [(lambda x: np.argpartition(x, 1), [(2, 4)])],
    "searchsorted": [(lambda x: np.searchsorted(numpy.arange(5.0), x), [(4, 2)])],
    "lexsort": [(lambda x, y: np.lexsort((np.round(x), y)), [(6,), (6,)])],
    "median": [(lambda x: np.median(x, axis=0), [(5, 2)]), (np.median, [(5, 2)])],
    "quantile": [(lambda x: np.quantile(x, [0.2, 0.5], axis=1), [(5, 4)]),
                 (lambda x: np.quantile(x, 0.3, axis=(0, 1), keepdims=True), [(3, 2, 4)])],
    "percentile": [(lambda x: np.percentile(x, [20, 50]), [(5, 4)])],
    "nanmedian": [(lambda x: np.nanmedian(x, axis=-1), [(5, 2)])],
    "nanquantile": [(lambda x: np.nanquantile(x, 0.2), [(5, 2)])],
    "nanpercentile": [(lambda x: np.nanpercentile(x, [20.0], axis=0), [(5, 2)])],
    "power_of_integers": [
        (np.power, [numpy.arange(24).reshape(3, 2, 4) % 5, K[:, :1] + 1])],
    "interp": [(lambda x: np.interp(x, numpy.arange(4.0), numpy.arange(4.0) ** 2), [(5, 2)])],
    **{f"fft.{name}": [(getattr(np.fft, name), [(2, 6)]),
                       (partial(getattr(np.fft, name), axis=0), [(6, 2)])]
       for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{name}": [(getattr(np.fft, name), [(3, 4)])]
       for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{f"linalg.{name}": [(of_positive(getattr(np.linalg, name)), [(2, 3, 3)])]
       for name in ("inv", "det", "cholesky", "pinv", "eigvalsh")},
    "linalg.svdvals": [(np.linalg.svdvals, [(4, 3)])],
    "linalg.inv_of_lower": [(of_positive(inverted_lower), [(2, 3, 3)])],
    "linalg.cofactors": [(np.grad(lambda x: np.linalg.det(x)), [(3, 3)])],
    "linalg.solve": [(lambda x, y: np.linalg.solve(positive(x), y), shapes) for shapes in (
        [(3, 3), (3,)], [(3, 3), (3, 2)], [(2, 3, 3), (3,)], [(3, 3), (2, 3, 1)])],
    "linalg.slogdet": [(lambda x: tuple(np.linalg.slogdet(x)), [(2, 3, 3)])],
    "linalg.eigh": [(lambda x: tuple(np.linalg.eigh(positive(x))), [(3, 3)])],
    "linalg.qr": [(lambda x: tuple(np.linalg.qr(x)), [(4, 3)])],
    "linalg.qr_r": [(lambda x: np.linalg.qr(x, mode="r"), [(4, 3)])],
    "linalg.svd": [(lambda x: tuple(np.linalg.svd(x, full_matrices=False)), [(4, 3)])],
    "take_along_axis": [(lambda x, k: np.take_along_axis(x, k, 0),
                         [normal(3, 4, 2), K[:, :, None] % 4 + numpy.zeros((1, 1, 2), int)])],
    "take": [(indexed, [normal(3, 4, 5, 4), K])],
    "put": [(overwritten, [normal(3, 4, 4, 4), K])],
    "add_at": [(added, [normal(3, 4, 4, 4), K, normal(3, 3, 4, 4)])],
    "sort": [(np.sort, [(2, 4)]), (lambda x: np.sort(x, axis=0), [(4, 2)])],
    "argsort": [(lambda x: np.argsort(x, axis=0), [(4, 2)])],
    "windows": [(lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3))[1:], [(4, 5)])],
    "reinterpret": [(lambda x: x.astype(np.float32).view(np.int16), [(2, 4)])],
}


def test_every_rule_of_a_library_call_is_tried():
    declared = [*BY_NAME.values(), *(x for module in (indexing, movement)
                                     for x in vars(module).values() if isinstance(x, Library))]
    assert set(CALLS) == {op.name for op in declared if op.batch}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_a_library_call_is_made_of_all_samples(name, monkeypatch):
    met = set()

    def by_rule(text, call, original=batching._by_rule):
        met.add(call.node.op.name)
        found = original(text, call)
        assert found is not None
        return found

    monkeypatch.setattr(batching, "_by_rule", by_rule)
    for function, arguments in CALLS[name]:
        arrays = [normal(COUNT, *x, seed=k) if isinstance(x, tuple) else x
                  for k, x in enumerate(arguments)]
        for same in itertools.product((False, True), repeat=len(arrays)):
            if not all(same):
                axes = tuple(None if each else 0 for each in same)
                given = [array[0] if each else array
                         for array, each in zip(arrays, same, strict=True)]
                check(function, axes, *given)
    assert name in met


def test_what_has_no_rule_is_done_for_each_sample():
    kernel, steps = normal(COUNT, 3), numpy.sort(normal(COUNT, 6))
    check(lambda x, k: np.convolve(x, k, "same"), (0, 0), normal(COUNT, 8), kernel)
    check(lambda x, k: np.correlate(x, k), (0, None), normal(COUNT, 8), kernel[0])
    check(lambda s, x: np.searchsorted(s, x), (0, 0), steps, normal(COUNT, 4))
    check(np.grad(lambda x, s: np.interp(x, s, s ** 2).sum()), (0, 0), normal(COUNT, 4), steps)
    found = np.vmap(lambda x: np.convolve(x, x))(np.zeros((0, 4)))
    assert found.shape == (0, 7)


# ---- in-place writes, kinds of operations --------------------------------------------------------


def heat(u, rate):
    for _ in range(5):
        u[1:-1] += rate * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0], u[-1] = u[1], u[-2]
    return u


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 0)])
def test_writes_in_place(axes):
    shapes = {0: (COUNT, 9), 1: (9, COUNT), None: (9,)}
    u = normal(*shapes[axes[0]])
    rate = 0.1 + abs(normal(COUNT) if axes[1] == 0 else normal())
    given = np.array(u)
    wanted = stacked(heat, axes, u, rate)
    found = np.vmap(heat, in_axes=axes)(given, np.array(rate))
    numpy.testing.assert_allclose(found, wanted, rtol=1e-12)
    numpy.testing.assert_array_equal(given, u)  # the samples are the function's own
    check(np.grad(lambda u, rate: (heat(u, rate) ** 2).sum(), argnums=(0, 1)), axes, u, rate)


def test_operands_of_fewer_axes_are_aligned():
    x, y, z = normal(COUNT, 2, 4), normal(COUNT, 4), normal(COUNT)
    for axes in itertools.product((0, None), repeat=3):
        if axes != (None,) * 3:
            given = [a[0] if axis is None else a for a, axis in zip((x, y, z), axes, strict=True)]
            check(lambda x, y, z: (x * y + z, np.where(x > z, y, x), np.clip(x, z, 1.0 + z),
                                   np.maximum(z, y).T, (x + y).max(axis=0) * z), axes, *given)
            check(lambda x, y, z: x.astype(np.float32) * 2 + y.astype(np.float32), axes, *given)


def test_complex_numbers_and_other_dtypes():
    z = normal(COUNT, 4) + 1j * normal(COUNT, 4, seed=1)

    def parts(z):
        w = z.copy()
        w.imag[1:] = w.real[:-1]
        return w * z.conj(), abs(w)

    check(parts, (0,), z)
    check(lambda k: (k // 2, k.sum(), np.cumsum(k), k.astype(bool).any()), (0,), K)


def numbered(x, m, k):
    """Indices that are single numbers, and differ."""
    y, z, table = x.copy(), m.copy(), np.zeros(5)
    y[k], z[k] = 7.0, m[k - 2] * 2
    y[-k] += x[k]
    z[k, 1] = x[k]
    z[:, k] = z[:, k] - x[0]
    table[k] = 1.0
    return (x[k], m[k], m[k, 1], m[1, k], m[:, k], m[k, 1:, None], m[k, [0, 1]], x[x.argmax()],
            x[np.searchsorted(numpy.array([0.1, 0.3]), x[0])], np.eye(4)[k], y, z, table)


@pytest.mark.parametrize("axes", [
    (0, 0, 0), (None, 0, 0), (0, None, 0), (None, None, 0), (0, 0, None)])
def test_indices_that_are_numbers(axes):
    given = normal(COUNT, 4), normal(COUNT, 4, 4), numpy.array([1, 3, 2])
    given = [each[0] if axis is None else each for each, axis in zip(given, axes, strict=True)]
    check(numbered, axes, *given)
    x, k = normal(COUNT, 4), numpy.array([1, 3, 2])
    check(np.grad(lambda x, k: (numbered(x, np.outer(x, x), k)[-2] ** 2).sum()
                  + x[k] * x[x.argmax()]), (0, 0), x, k)
    check(np.hessian(lambda x: x[x.argmin()] ** 2 * x[1]), (0,), x)


def test_a_part_that_an_index_names_that_differs_is_not_written_in_vain():
    """With NumPy it is a view."""
    for write in (lambda row: row.__setitem__(0, 1.0), lambda row: row.fill(1.0),
                  lambda row: np.add(row, 1.0, out=row), lambda row: row[1:].sort()):
        with pytest.raises(ValueError, match="read-only"):
            np.vmap(lambda m, k, write=write: write(m[k]))(np.ones((3, 4, 4)), np.arange(3))
    with pytest.raises(ValueError, match=r"a copy here, a view in NumPy; .* write x\[i\] = x"):
        np.vmap(lambda m, k: m.__setitem__(k, m[k].__iadd__(1)))(np.ones((3, 4, 4)), np.arange(3))


# ---- trees, axes, results ------------------------------------------------------------------------


@dataclass
class Model:
    w: object
    b: object


def test_arguments_and_results_may_be_nested():
    def predict(model, batch):
        return {"y": model.w @ batch["x"] + model.b, "twice": [batch["x"] * 2, model.b]}

    w, b, x = normal(2, 4), normal(2), normal(4, COUNT)
    found = np.vmap(predict, in_axes=(None, {"x": 1}),
                    out_axes={"y": 1, "twice": [0, None]})(
        Model(np.array(w), np.array(b)), {"x": np.array(x)})
    numpy.testing.assert_allclose(found["y"], w @ x + b[:, None])
    numpy.testing.assert_allclose(found["twice"][0], 2 * x.T)
    numpy.testing.assert_allclose(found["twice"][1], b)
    each = np.vmap(predict, in_axes=(Model(0, None), None))(
        Model(np.array(normal(COUNT, 2, 4)), np.array(b)), {"x": np.array(x[:, 0])})
    assert each["y"].shape == (COUNT, 2) and each["twice"][1].shape == (COUNT, 2)


def test_arguments_by_name_and_of_other_kinds():
    def scaled(x, factor, name="sum", *, offset):
        return getattr(x * factor, name)() + offset

    x, offset = normal(COUNT, 4), normal(COUNT)
    found = np.vmap(scaled, in_axes=(0, None, None))(np.array(x), 2.0, "sum", offset=offset)
    numpy.testing.assert_allclose(found, 2 * x.sum(1) + offset)
    found = np.vmap(lambda x: (x, 1.0, np.arange(2)))(numpy.array([1.0, 2.0, 3.0]))
    assert [part.tolist() for part in found] == [[1, 2, 3], [1, 1, 1], [[0, 1]] * 3]


@pytest.mark.parametrize("axis", [0, 1, -1, 2])
def test_axes_of_arguments_and_results(axis):
    x = normal(2, 3, 4)
    found = np.vmap(lambda x: x * 2, in_axes=axis, out_axes=axis)(np.array(x))
    numpy.testing.assert_array_equal(found, 2 * x)
    moved = np.vmap(lambda x: x[0], in_axes=axis)(np.array(x))
    numpy.testing.assert_array_equal(moved, numpy.moveaxis(x, axis, 0)[:, 0])


# ---- errors --------------------------------------------------------------------------------------


def test_numbers_of_samples_that_differ():
    def loss(w, x, y):
        return (w @ x - y) ** 2

    with pytest.raises(ValueError, match=r"x of shape \(5,2\) has 5 along axis 0; y of shape \(4,\)"
                                         r" has 4 along axis 0"):
        np.vmap(loss, in_axes=(None, 0, 0))(np.ones(2), np.ones((5, 2)), np.ones(4))
    with pytest.raises(ValueError, match=r"x\['a'\] of shape \(3,\) .*x\['b'\]\[0\] of shape"):
        np.vmap(lambda x: x["a"])({"a": np.ones(3), "b": [np.ones(4)]})


def test_axes_that_do_not_fit():
    x = np.ones((3, 2))
    with pytest.raises(ValueError, match="for 1 arguments takes as many by position, not 2"):
        np.vmap(lambda x, y: x, in_axes=(0,))(x, x)
    with pytest.raises(ValueError, match="None of all"):
        np.vmap(lambda x: x, in_axes=None)(x)
    with pytest.raises(ValueError, match=r"x of shape \(3,2\) has no axis 2 of samples"):
        np.vmap(lambda x: x, in_axes=2)(x)
    with pytest.raises(ValueError, match=r"scale of shape \(\) has no axis 0"):
        np.vmap(lambda x, scale: x)(x, 2.0)
    with pytest.raises(ValueError, match="in_axes is nested otherwise than x"):
        np.vmap(lambda x: x, in_axes=({"a": 0},))({"b": x})
    for said in (lambda f: f(x, "sin"), lambda f: f(x, name="sin")):
        with pytest.raises(TypeError, match=r"name is a str, .* position, with None in in_axes"):
            said(np.vmap(lambda x, name: x))
    with pytest.raises(ValueError, match=r"flag of shape \(\) has no axis 0 of samples; .* None"):
        np.vmap(lambda x, flag: x)(x, flag=True)
    with pytest.raises(TypeError, match=r"takes a function that returns arrays.* not a str"):
        np.vmap(lambda x: {"x": x, "name": "a"})(x)
    with pytest.raises(TypeError, match="ints or None, not 'first'"):
        np.vmap(lambda x: x, in_axes="first")(x)
    with pytest.raises(ValueError, match="differs from sample to sample"):
        np.vmap(lambda x: x, out_axes=None)(x)
    with pytest.raises(ValueError, match="out_axes is nested otherwise"):
        np.vmap(lambda x: x, out_axes=(0, 0))(x)


def test_a_look_at_a_value_that_differs_names_the_line():
    def branching(x):
        if x.sum() > 0:  # this one
            return x
        return -x

    line = branching.__code__.co_firstlineno + 1
    with pytest.raises(TypeError, match=rf"vmap looked at a value \(line {line} of .*test_vmap"):
        np.vmap(branching)(np.ones((3, 2)))
    with pytest.raises(TypeError, match=r"vmap draws random numbers, .* the same for all"):
        np.vmap(lambda x: x * np.random.normal())(np.ones(3))


def test_values_that_are_the_same_for_all_may_be_looked_at():
    def branching(w, x):
        return x * 2 if (w * 2).sum() > 0 else x

    w, x = np.array([1.0, 2.0]), np.array(normal(3))
    numpy.testing.assert_allclose(np.vmap(branching, in_axes=(None, 0))(w, x), 2 * x)
    with pytest.raises(TypeError, match="looked at a value"):
        np.vmap(branching, in_axes=(0, None))(np.array(normal(3, 2)), x)


def test_what_is_outside_is_not_written():
    outside, stored = np.zeros(2), []
    with pytest.raises(TypeError, match="writes into an array from outside"):
        np.vmap(lambda x: outside.__setitem__(0, x))(np.ones(3))
    with pytest.raises(TypeError, match="stored an array where it outlives the call"):
        np.vmap(lambda x: stored.append(x * 2) or x)(np.ones(3))
    assert outside.tolist() == [0, 0]
    assert np.vmap(lambda x: outside + x)(np.ones(3)).tolist() == [[1, 1]] * 3


# ---- composition ---------------------------------------------------------------------------------


def loss(w, x, y):
    return np.logaddexp(0.0, -y * (x @ w))


W, FEATURES, LABELS = normal(5), normal(7, 5, seed=1), numpy.sign(normal(7, seed=2))


def by_hand(w):
    return -(LABELS / (1 + numpy.exp(LABELS * (FEATURES @ w))))[:, None] * FEATURES


def test_gradients_of_samples():
    for argnums in (0, 1, (0, 2)):
        check(np.grad(loss, argnums), (None, 0, 0), W, FEATURES, LABELS)
    check(lambda x: np.jacobian(lambda x: x[1:] * x[:-1])(x), (0,), FEATURES)
    check(np.hessian(lambda x: (x[1:] * x[:-1] ** 2).sum()), (0,), FEATURES)
    check(lambda x, v: np.jvp(np.cumsum, (x,), (v,)), (0, None), FEATURES, W)
    check(lambda x, v: np.vjp(np.sort, x)[1](v)[0], (0, 0), FEATURES, FEATURES[::-1].copy())
    check(lambda x, v: np.hvp(lambda x: (x ** 3).sum(), x, v), (0, 0), FEATURES, FEATURES)


def test_pulls_along_many_directions():
    _, pull = np.vjp(lambda x: np.sin(x) * x[::-1], np.array(W))
    (rows,) = np.vmap(pull)(np.eye(5))
    numpy.testing.assert_allclose(rows, np.jacobian(lambda x: np.sin(x) * x[::-1])(np.array(W)))


def test_it_is_differentiated():
    w, x, y = map(np.array, (W, FEATURES, LABELS))

    def total(w):
        return (np.vmap(loss, in_axes=(None, 0, 0))(w, x, y) ** 2).sum()

    def plain(w):
        return (np.logaddexp(0.0, -y * (x @ w)) ** 2).sum()

    numpy.testing.assert_allclose(np.grad(total)(w), np.grad(plain)(w))
    numpy.testing.assert_allclose(np.hessian(total)(w), np.hessian(plain)(w))
    inside = np.variable(W)
    slope = np.vmap(loss, in_axes=(None, 0, 0))(inside, x, y).sum().grad(inside)
    numpy.testing.assert_allclose(slope, by_hand(W).sum(0))
    captured = np.grad(lambda w: np.vmap(lambda x, y: loss(w, x, y))(x, y).sum())(w)
    numpy.testing.assert_allclose(captured, by_hand(W).sum(0))


def test_it_is_traced():
    calls = []

    def counted(w, x, y):
        calls.append(1)
        return loss(w, x, y)

    each = np.jit(np.vmap(np.grad(counted), in_axes=(None, 0, 0)))
    for _ in range(3):
        numpy.testing.assert_allclose(
            each(*map(np.array, (W, FEATURES, LABELS))), by_hand(W), rtol=1e-10)
    assert len(calls) <= 2
    inner = np.vmap(np.jit(loss), in_axes=(None, 0, 0))
    check(loss, (None, 0, 0), W, FEATURES, LABELS)
    numpy.testing.assert_allclose(
        inner(*map(np.array, (W, FEATURES, LABELS))),
        np.logaddexp(0.0, -LABELS * (FEATURES @ W)))


def test_it_is_mapped():
    apart = np.vmap(np.vmap(lambda x, y: ((x - y) ** 2).sum(), in_axes=(None, 0)),
                    in_axes=(0, None))
    wanted = ((FEATURES[:, None] - FEATURES[None]) ** 2).sum(-1)
    numpy.testing.assert_allclose(apart(FEATURES, FEATURES), wanted)
    slopes = np.vmap(np.vmap(np.grad(lambda x, y: (x * y).prod()), (None, 0)), (0, None))
    found = slopes(np.array(FEATURES), np.array(FEATURES))
    assert found.shape == (7, 7, 5)
    numpy.testing.assert_allclose(
        found[2, 3], np.grad(lambda x, y: (x * y).prod())(np.array(FEATURES[2]), FEATURES[3]))
    assert np.vmap(lambda x: np.vmap(lambda y: x * y)(x))(np.ones((3, 2))).shape == (3, 2, 2)


@pytest.mark.parametrize("wrapper", ["custom_vjp", "custom_jvp", "checkpoint"])
def test_rules_of_the_users_own(wrapper):
    function = getattr(np, wrapper)(lambda w, x: np.sin(w * x))
    factors = (1.0, 1.0)
    if wrapper == "custom_vjp":
        factors = (10.0, 20.0)
        function.defvjp(lambda w, x: (np.sin(w * x), (w, x)), lambda kept, g: (
            10 * g * kept[1] * np.cos(kept[0] * kept[1]),
            20 * g * kept[0] * np.cos(kept[0] * kept[1])))
    if wrapper == "custom_jvp":
        factors = (3.0, 3.0)
        function.defjvp(lambda at, v: (np.sin(at[0] * at[1]), 3 * np.cos(at[0] * at[1]) * (
            v[0] * at[1] + v[1] * at[0])))
    weights = numpy.arange(35.0).reshape(7, 5)
    w, x = np.array(W), np.array(FEATURES)
    slopes = weights * numpy.cos(W * FEATURES)
    wanted = (factors[0] * (slopes * FEATURES).sum(0), factors[1] * slopes * W)
    found = np.grad(lambda w, x: (np.vmap(function, (None, 0))(w, x) * weights).sum(), (0, 1))(w, x)
    for one, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(one, other)
    found = np.vmap(np.grad(lambda w, x, c: (function(w, x) * c).sum(), (0, 1)), (None, 0, 0))(
        w, x, np.array(weights))
    numpy.testing.assert_allclose(found[0].sum(0), wanted[0])
    numpy.testing.assert_allclose(found[1], wanted[1])


# ---- plans ---------------------------------------------------------------------------------------


def test_gradients_of_samples_take_a_few_kernels():
    w, x, y = (np.array(normal(*shape)) for shape in ((50,), (20_000, 50), (20_000,)))
    found = np.vmap(np.grad(lambda w, x, y: np.logaddexp(0.0, -y * (x * w).sum())),
                    in_axes=(None, 0, 0))(w, x, y)
    plan = planned(found)
    assert found.shape == (20_000, 50)
    assert len(plan.steps) <= 2, kinds(plan)
    by_product = np.vmap(np.grad(loss), in_axes=(None, 0, 0))(w, x, y)
    assert len(planned(by_product).steps) <= 3, kinds(planned(by_product))


def test_steps_of_samples_are_written_as_one_sample_is():
    u = np.array(normal(1000, 400))

    def kernels(function, u):
        return len(planned(function(u)).steps)

    def steps(u):
        u = u.copy()
        for _ in range(3):
            u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return u

    assert kernels(np.vmap(steps), u) <= kernels(lambda u: steps(u.T), u) + 1


@pytest.mark.parametrize("dtype", ["i1", "u1", "?", "u4", "f2"])
@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide", "hypot", "maximum"])
def test_methods_of_ufuncs_combine_in_numpys_dtype(name, method, dtype):
    if name == "subtract" and dtype == "?":
        return  # NumPy refuses
    x = numpy.array([[100, 100, 100], [3, 1, 2]]).astype(dtype)

    def program(lib, row):
        combine = getattr(getattr(lib, name), method)
        return combine(row, [0, 2, 1]) if method == "reduceat" else combine(row)

    with numpy.errstate(over="ignore"):
        expected = numpy.stack([program(numpy, row) for row in x])
        found = numpy.asarray(np.vmap(lambda row: program(np, row))(np.array(x)))
    assert found.dtype == expected.dtype
    numpy.testing.assert_allclose(found, expected, rtol=2e-3 if expected.dtype == "f2" else 1e-6)
