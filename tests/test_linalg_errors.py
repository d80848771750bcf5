"""Factorizations that fail: what the error says, when it comes, and what else is computed."""

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.execution import shared_calls

ERROR = numpy.linalg.LinAlgError
TIERS = ["wait", "never"]
DEFINITE = "Matrix is not positive definite"
CALLS = {
    "inv": ("Singular matrix", lambda xp, a: xp.linalg.inv(a)),
    "solve": ("Singular matrix", lambda xp, a: xp.linalg.solve(a, xp.ones((a.shape[-1], 2)))),
    "cholesky": (DEFINITE, lambda xp, a: xp.linalg.cholesky(a)),
    "upper": (DEFINITE, lambda xp, a: xp.linalg.cholesky(a, upper=True)),
}
SVD = {
    "eigh": ("Eigenvalues did not converge", lambda xp, a: xp.linalg.eigh(a)),
    "eigvalsh": ("Eigenvalues did not converge", lambda xp, a: xp.linalg.eigvalsh(a)),
    "svd": ("SVD did not converge", lambda xp, a: xp.linalg.svd(a)),
    "svdvals": ("SVD did not converge", lambda xp, a: xp.linalg.svdvals(a)),
    "pinv": ("SVD did not converge", lambda xp, a: xp.linalg.pinv(a)),
}


@pytest.fixture(params=["at once", "recorded"])
def ways(request):
    """Small settled arrays, which NumPy computes at once, and what is recorded."""
    with config.override(at_once=0 if request.param == "recorded" else 65536):
        yield request.param


@pytest.fixture(params=TIERS)
def tier(request):
    with config.override(compile=request.param):
        yield request.param


@pytest.fixture
def deferred():
    with config.override(linalg_errors="deferred"):
        yield


def batch(*shape, zero):
    """Definite matrices, but for those at some places, which are 0."""
    a = numpy.zeros((*shape, 3, 3)) + numpy.diag([2.0, 3.0, 4.0])
    for place in zero:
        a[place] = 0
    return a


def ours(a):
    return np.array(a)


# ---- which matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape, zero, where", [
    ((20,), [17], "17"), ((20,), [0, 3], "0"), ((20,), [19], "19"), ((1,), [0], "0"),
    ((2, 3), [(1, 2)], "(1, 2)"), ((2, 3), [(0, 1), (1, 0)], "(0, 1)"),
])
def test_an_error_names_the_first_matrix_that_fails(ways, tier, name, shape, zero, where):
    message, call = CALLS[name]
    with pytest.raises(ERROR) as failure:
        call(np, ours(batch(*shape, zero=zero)))
    assert str(failure.value) == f"{message} (matrix {where} of the batch)"
    assert type(failure.value) is ERROR


@pytest.mark.parametrize("name", SVD)
def test_what_does_not_converge(ways, name):
    message, call = SVD[name]
    a = batch(5, zero=[])
    a[3] = numpy.nan
    try:
        call(numpy, a)
    except ERROR as theirs:
        assert str(theirs) == message
    else:
        pytest.skip("this LAPACK returns something for NaN")
    with pytest.raises(ERROR) as failure:
        call(np, ours(a))
    assert str(failure.value) == f"{message} (matrix 3 of the batch)"


@pytest.mark.parametrize("name", CALLS)
def test_of_one_matrix_the_message_is_numpys(ways, tier, name):
    message, call = CALLS[name]
    with pytest.raises(ERROR) as failure:
        call(np, ours(batch(zero=[...])))
    assert str(failure.value) == message


def test_a_batch_of_solutions_names_no_matrix_where_there_is_one(ways):
    with pytest.raises(ERROR) as failure:
        np.linalg.solve(ours(batch(zero=[...])), ours(numpy.ones((4, 3, 1))))
    assert str(failure.value) == "Singular matrix"


def test_equations_whose_matrices_are_broadcast(ways):
    with pytest.raises(ERROR, match=r"^Singular matrix \(matrix \(1, 0\) of the batch\)"):
        np.linalg.solve(ours(batch(2, 1, zero=[1])), ours(numpy.ones((1, 4, 3, 1))))


def test_a_call_that_is_shared_out_names_the_matrix_of_the_whole(monkeypatch, tier):
    monkeypatch.setattr(shared_calls, "WORTH_NANOSECONDS", 1)
    monkeypatch.setattr(shared_calls, "EACH", 1)
    with config.override(threads=3, at_once=0), pytest.raises(ERROR, match=r"matrix 17 of"):
        np.linalg.inv(ours(batch(20, zero=[17, 18])))


def test_wrong_shapes_are_numpys_errors(ways):
    a = numpy.ones((4, 3, 2))
    for name in ("inv", "cholesky", "eigh"):
        with pytest.raises(ERROR) as wanted:
            getattr(numpy.linalg, name)(a)
        with pytest.raises(ERROR) as failure:
            getattr(np.linalg, name)(ours(a))
        assert str(failure.value) == str(wanted.value)


def test_what_needs_values_names_the_matrix_too(ways):
    a = batch(4, zero=[])
    a[2, 0, 0] = numpy.inf
    with pytest.raises(ERROR, match="Array must not contain infs or NaNs"):
        np.linalg.eig(ours(a))


# ---- deferred ------------------------------------------------------------------------------------


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


@pytest.mark.parametrize("name", CALLS)
def test_deferred_it_is_told_where_someone_looks(ways, tier, deferred, name):
    message, call = CALLS[name]
    result = call(np, ours(batch(9, zero=[4]))) * 2
    for _ in range(2):  # again and again
        with pytest.raises(ERROR) as failure:
            result.tolist()
        assert str(failure.value) == f"{message} (matrix 4 of the batch)"
        assert any("recorded at" in note and __file__ in note
                   for note in failure.value.__notes__)


def test_deferred_it_names_the_line(ways, tier, deferred):
    a = ours(batch(9, zero=[4]))
    before = np.sort(a, axis=0) + 1
    inverse = np.linalg.inv(a)
    after = np.fft.fft(inverse + before)
    with pytest.raises(ERROR, match="Singular matrix") as failure:
        after.tolist()
    line = line_of(test_deferred_it_names_the_line, 3)
    assert failure.value.__notes__ == [
        f"while computing linalg.inv, recorded at {__file__}:{line}"]


def test_deferred_the_results_of_several(ways, deferred):
    w, _ = np.linalg.eigh(ours(batch(4, zero=[1])))
    numpy.testing.assert_array_equal(w.tolist()[1], [0, 0, 0])
    a = batch(5, zero=[])
    a[3] = numpy.nan
    found = np.linalg.svd(ours(a))
    try:
        numpy.linalg.svd(a)
    except ERROR:
        with pytest.raises(ERROR, match="matrix 3 of the batch"):
            found.S.tolist()


def test_deferred_the_rest_is_computed(ways, tier, deferred):
    a = ours(batch(9, zero=[4]))
    failing, fine, doubled = np.linalg.inv(a), np.linalg.inv(a + np.eye(3)), a * 2
    numpy.testing.assert_array_equal(doubled, batch(9, zero=[4]) * 2)
    numpy.testing.assert_allclose(
        fine, numpy.linalg.inv(batch(9, zero=[4]) + numpy.eye(3)), rtol=1e-12)
    with pytest.raises(ERROR):
        failing[0].tolist()


def test_deferred_nobody_hears_of_what_nobody_looks_at(ways, tier, deferred):
    a = ours(batch(9, zero=[4]))
    failing = np.linalg.inv(a)
    x = ours(numpy.ones(100_000))
    with config.override(cut=20):
        for _ in range(200):
            x = x * 1.5 - 0.5
    del failing
    numpy.testing.assert_array_equal(x, numpy.ones(100_000))


def test_deferred_a_long_recording_of_nothing_else(tier, deferred):
    with config.override(cut=10, at_once=0):
        found = [np.linalg.inv(ours(batch(2, zero=[1]))) for _ in range(60)]
    for x in found:
        with pytest.raises(ERROR):
            x.tolist()


def test_deferred_later_writes_do_not_matter(ways, deferred):
    a = ours(batch(3, zero=[1]))
    b = ours(batch(3, zero=[]))
    failing, fine = np.linalg.inv(a), np.linalg.inv(b)
    a[...], b[...] = numpy.eye(3), 0.0
    with pytest.raises(ERROR, match="matrix 1"):
        failing.tolist()
    numpy.testing.assert_allclose(fine, numpy.linalg.inv(batch(3, zero=[])))


def test_deferred_gradients(deferred):
    a = ours(batch(3, zero=[]))
    found = np.grad(lambda x: np.linalg.inv(x).sum())(a)
    inverse = numpy.linalg.inv(batch(3, zero=[])).swapaxes(-1, -2)
    numpy.testing.assert_allclose(found, -inverse @ numpy.ones((3, 3)) @ inverse, rtol=1e-12)
    with pytest.raises(ERROR, match="matrix 2 of the batch"):
        np.grad(lambda x: np.linalg.inv(x).sum())(ours(batch(3, zero=[2]))).tolist()


def test_the_condition_of_a_singular_matrix_is_known_in_both_modes(ways, deferred):
    assert np.linalg.cond(ours(numpy.zeros((2, 2))), 1) == numpy.inf


def test_under_jit_it_comes_with_the_call(deferred):
    inverse = np.jit(lambda x: np.linalg.inv(x) * 2)
    numpy.testing.assert_array_equal(inverse(ours(numpy.eye(2))), numpy.eye(2) * 2)
    for _ in range(2):
        with pytest.raises(ERROR, match="Singular matrix"):
            inverse(ours(numpy.zeros((2, 2)))).tolist()


# ---- odd shapes and layouts ----------------------------------------------------------------------

def operands():
    full = numpy.random.default_rng(0).normal(size=(6, 4, 4)) + 9 * numpy.eye(4)
    return {
        "dense": full, "a batch of none": full[:0], "1x1": full[:, :1, :1], "0x0": full[:, :0, :0],
        "one": full[0], "turned": full.swapaxes(-1, -2), "strided": full[::-2, ::-1, ::-1],
        "batch last": full.transpose(1, 2, 0).copy().transpose(2, 0, 1),
        "broadcast": numpy.broadcast_to(full[0], (5, 4, 4)),
    }


def symmetric(a):
    return a @ a.swapaxes(-1, -2)


FACTORS = {
    "inv": lambda xp, a: xp.linalg.inv(a), "det": lambda xp, a: xp.linalg.det(a),
    "solve": lambda xp, a: xp.linalg.solve(a, a[..., :1]),
    "cholesky": lambda xp, a: xp.linalg.cholesky(symmetric(a)),
    "slogdet": lambda xp, a: xp.linalg.slogdet(a), "qr": lambda xp, a: xp.linalg.qr(a),
    "eigh": lambda xp, a: xp.linalg.eigh(symmetric(a)).eigenvalues,
    "eigvalsh": lambda xp, a: xp.linalg.eigvalsh(symmetric(a)),
    "svdvals": lambda xp, a: xp.linalg.svdvals(a), "pinv": lambda xp, a: xp.linalg.pinv(a),
}


@pytest.mark.parametrize("mode", ["raise", "deferred"])
@pytest.mark.parametrize("layout", operands())
@pytest.mark.parametrize("name", FACTORS)
def test_factorizations_of_any_shape_and_layout(ways, monkeypatch, mode, layout, name):
    monkeypatch.setattr(shared_calls, "WORTH_NANOSECONDS", 1)
    monkeypatch.setattr(shared_calls, "EACH", 1)
    call, a = FACTORS[name], operands()[layout]
    with config.override(linalg_errors=mode, threads=2):
        compare(call, a)


TRANSFORMS = {
    name: lambda xp, a, name=name: getattr(xp.fft, name)(a)
    for name in ("fft", "ifft", "rfft", "ihfft", "fft2", "ifftn", "rfftn")
} | {
    "axis 0": lambda xp, a: xp.fft.fft(a, axis=0), "irfft": lambda xp, a: xp.fft.irfft(a, n=3),
    "of 1": lambda xp, a: xp.fft.fft(a, n=1), "hfft": lambda xp, a: xp.fft.hfft(a, n=1),
    "irfft2": lambda xp, a: xp.fft.irfft2(a, s=(1, 1)),
    "sorted": lambda xp, a: xp.sort(a, axis=0), "partition": lambda xp, a: xp.partition(a, 0, 1),
}


@pytest.mark.parametrize("layout", operands())
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_any_shape_and_layout(ways, monkeypatch, layout, name):
    monkeypatch.setattr(shared_calls, "WORTH_NANOSECONDS", 1)
    monkeypatch.setattr(shared_calls, "EACH", 1)
    with config.override(threads=2):
        compare(TRANSFORMS[name], operands()[layout])


def compare(call, a):
    """Compare with NumPy's values, or errors."""
    turned = a.transpose(*range(a.ndim)[::-1])
    try:
        wanted = call(numpy, a)
    except Exception as error:
        with pytest.raises(type(error)) as failure:
            found = call(np, ours(turned).transpose(*range(a.ndim)[::-1]))
            [numpy.array(x) for x in (found if isinstance(found, tuple) else (found,))]
        assert str(failure.value) == str(error)
        return
    found = call(np, ours(turned).transpose(*range(a.ndim)[::-1]))
    if not isinstance(wanted, tuple):
        wanted, found = (wanted,), (found,)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        numpy.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
