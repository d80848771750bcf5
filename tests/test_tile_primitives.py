"""The tile primitives of the headers against NumPy: host text, and device text emulated."""

import ctypes

import numpy
import pytest
import scipy.fft
import scipy.linalg

from tests.tile_cases import TYPES, Case, Emulated, Host, cuda_text
from tiledarray.fusion.tiles import teams
from tiledarray.kernels.compile import cuda, host

ARCHITECTURES = ("sm_90", "sm_80")
PROBLEMS = 11  # no multiple of a width: the last group is not full
SIZES = [1, 2, 5, 8, 16, 31, 33, 64]
TALL = [(1, 1), (3, 2), (5, 5), (24, 12), (33, 32), (160, 7), (1, 3), (5, 9)]
CODES = "fdFD"


SYSTEMS = [(1, 1), (3, 2), (5, 5), (8, 1), (16, 16), (31, 1), (33, 7), (64, 3), (50, 1), (64, 32)]
KINDS = [(1, 0, 0), (0, 0, 0), (1, 1, 0), (1, 2, 0), (0, 1, 1), (0, 2, 0), (1, 0, 1)]
PRODUCTS = [(1, 1, 1), (1, 1, 7), (2, 3, 4), (16, 13, 3), (31, 32, 33),
            (64, 5, 16)]
TURNS = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 2)]


HERMITIAN = [1, 2, 5, 16, 32]
INVERTED = [1, 2, 5, 16, 33]
LENGTHS = {1: 1, 2: 1, 3: 1, 5: 2, 7: 1, 8: 2, 11: 4, 13: 4, 16: 4, 30: 8, 64: 8, 81: 16, 128: 32,
           210: 32, 512: 64, 1001: 64, 1024: 32}


def codes_of(number):
    """Two of the types, so that all come up but not with every size."""
    return CODES[number % 4], CODES[(number + 1 + number // 4 % 3) % 4]


def some(members, number):
    """Two of them, so that all come up but not with every size."""
    return members[number % len(members)], members[(number * 3 + 1) % len(members)]


def turned(shape, transposed, code):
    return (*(shape[::-1] if transposed else shape), code)


def as_turned(x, transposed):
    return x if transposed == 0 else x.swapaxes(-1, -2) if transposed == 1 else adjoint(x)


def random(rng, shape, code):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if code in "FD" else x).astype(code)


def adjoint(x):
    return x.conj().swapaxes(-1, -2)


def positive(rng, n, code, problems=PROBLEMS, condition=None):
    """Positive definite matrices; with a condition number, spectra that fall down to it."""
    if condition is None:
        x = random(rng, (problems, n, n + 3), code.upper() if code in "FD" else "d")
        return (x @ adjoint(x) / n).astype(code)
    q = numpy.linalg.qr(random(rng, (problems, n, n), "D" if code in "FD" else "d"))[0]
    return ((q * numpy.geomspace(1, 1 / condition, n)) @ adjoint(q)).astype(code)


def largest(x):
    return numpy.abs(x).reshape(len(x), -1).max(1)


def assert_as_good(ours, theirs, size, code):
    """Residuals within twice theirs, and no bound below a few roundings of numbers of that size."""
    floor = 4 * numpy.finfo(code).eps * largest(size)
    assert (largest(ours) <= 2 * numpy.maximum(largest(theirs), floor)).all(), (
        largest(ours).max(), largest(theirs).max())


def group_for(primitive, sizes, code, number):
    """What the planner would take, and else a warp or four."""
    if number % 3 < 2:
        return teams.team_of(primitive, sizes, numpy.dtype(code).itemsize)
    return 32 if max(sizes) <= 32 else 128


def cholesky(n, code, group, together=0):
    return Case(f"cholesky_{n}_{code}", {"l": (n, n, code), "a": (n, n, code)},
                f"cholesky<{n}, {{l}}, {{a}}>(team, l, a, failed);", group, together)


def triangular(n, m, kind, code, group):
    lower, transposed, unit = kind
    return Case(f"triangular_{n}_{m}_{lower}{transposed}{unit}_{code}",
                {"x": (n, m, code), "a": (n, n, code)},
                f"triangular<{n}, {m}, {{x}}, {{a}}, {lower}, {transposed}, {unit}>"
                "(team, x, a, failed);", group)


def product(m, n, k, t, u, code, group):
    return Case(f"product_{m}_{n}_{k}_{t}{u}_{code}",
                {"c": (m, n, code), "a": turned((m, k), t, code), "b": turned((k, n), u, code)},
                f"product<{m}, {n}, {k}, {{c}}, {{a}}, {{b}}, {t}, {u}>(team, c, a, b);", group)


def solve(n, m, code, group):
    return Case(f"solve_{n}_{m}_{code}", {"x": (n, m, code), "a": (n, n, code), "p": (n, 1, "i")},
                f"lu<{n}, {{a}}>(team, a, p, failed); "
                f"lu_solve<{n}, {m}, {{x}}, {{a}}>(team, x, a, p);", group)


def inverse(n, code, group):
    return Case(f"inverse_{n}_{code}",
                {"x": (n, n, code), "a": (n, n, code), "p": (n, 1, "i"), "d": (1, 1, code),
                 "sign": (1, 1, code), "log": (1, 1, code.lower())},
                f"inverse<{n}, {{x}}, {{a}}>(team, x, a, p, failed); "
                f"determinant<{n}, {{a}}>(team, d, a, p); "
                f"slogdet<{n}, {{a}}>(team, sign, log, a, p);", group)


def qr(m, n, code, group):
    k = min(m, n)
    return Case(f"qr_{m}_{n}_{code}",
                {"q": (m, n, code), "r": (k, n, code), "work": (k, 1, code), "a": (m, n, code),
                 "alone": (k, n, code)},
                f"qr<{m}, {n}, {{q}}, {{r}}>(team, q, r, work);"
                f"qr<{m}, {n}, {{a}}, {{alone}}, false>(team, a, alone, work);", group)


def eigenvalues(n, code, group):
    return Case(f"eigenvalues_{n}_{code}",
                {"a": (n, n, code), "v": (n, n, code), "w": (n, 1, code.lower()),
                 "upper": (n, n, code), "alone": (n, 1, code.lower())},
                f"eigenvalues<{n}, {{a}}, {{v}}>(team, a, v, w, failed);"
                f"eigenvalues<{n}, {{upper}}, {{v}}, false, true>(team, upper, v, alone, failed);",
                group)


def fourier(n, sign, code, group):
    return Case(f"fourier_{n}_{sign}_{code}", {"y": (n, 1, code), "work": (n, 1, code)},
                f"fourier<{n}, {sign}>(team, y, work);", group)


def strided(n, sign, code, group):
    """A column of two that lie side by side."""
    return Case(f"strided_{n}_{sign}_{code}", {"y": (n, 2, code), "work": (n, 1, code)},
                f"fourier<{n}, {sign}, {{y}}>(team, y, work);", group)


STRIDED = [strided(1, 1, "F", 1), strided(6, -1, "D", 2), strided(32, 1, "F", 4),
           strided(210, -1, "F", 32)]
CASES = [
    *STRIDED,
    *(cholesky(n, c, group_for("cholesky", (n,), c, n + k), 2 if n == 33 else 0)
      for n in SIZES for k, c in enumerate(codes_of(n))),
    *(triangular(n, m, kind, c, group_for("triangular", (n, m), c, n + kind[1]))
      for n, m in SYSTEMS for kind in some(KINDS, n) for c in codes_of(n + kind[1])[:1]),
    *(product(m, n, k, t, u, c, group_for("product", (m, n, k), c, m + t))
      for m, n, k in PRODUCTS for t, u in some(TURNS, m + n) for c in codes_of(m + n + k + t)[:1]),
    *(solve(n, m, c, group_for("lu", (n,), c, n + m))
      for n, m in SYSTEMS for c in codes_of(n + m)[:1]),
    *(inverse(n, c, group_for("inverse", (n,), c, n)) for n in INVERTED for c in codes_of(n)[:1]),
    *(qr(m, n, c, group_for("qr", (n,), c, m)) for m, n in TALL for c in codes_of(m + n)[:1]),
    *(eigenvalues(n, c, teams.team_of("eigenvalues", (n,), numpy.dtype(c).itemsize))
      for n in HERMITIAN for c in codes_of(n)[:1]),
    *(fourier(n, -1 if c == "F" else 1, c, group) for n, group in LENGTHS.items()
      for c in ("FD" if n < 20 or n == 1024 else "F")),
]


@pytest.fixture(scope="module")
def on_host():
    return Host(CASES, 8)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(CASES, tmp_path_factory.mktemp("emulated"))


@pytest.fixture(params=["host", "device"])
def run(request):
    machine = request.getfixturevalue("on_host" if request.param == "host" else "emulated")
    by_name = {case.name: case for case in CASES}
    return lambda name, **inputs: machine.run(by_name[name], inputs)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(run, n):
    rng = numpy.random.default_rng(n)
    for code in codes_of(n):
        for condition in (None, 1e3 if code in "fF" else 1e10):
            a = positive(rng, n, code, condition=condition)
            found = run(f"cholesky_{n}_{code}", a=numpy.tril(a))
            lower, right = found["l"], numpy.linalg.cholesky(a)
            assert not found["failed"].any()
            assert (numpy.triu(lower, 1) == 0).all()
            exact = a.astype("D")
            assert_as_good(lower.astype("D") @ adjoint(lower.astype("D")) - exact,
                           right.astype("D") @ adjoint(right.astype("D")) - exact, a, code)


@pytest.mark.parametrize("n", SIZES)
def test_a_matrix_that_is_not_positive_definite(run, n):
    rng = numpy.random.default_rng(n)
    for code in codes_of(n):
        a = positive(rng, n, code)
        wrong = numpy.arange(PROBLEMS) % n
        a[numpy.arange(PROBLEMS)[1::2], wrong[1::2], wrong[1::2]] = -1
        a[2, 0, 0] = 0
        a[4, n - 1, n - 1] = numpy.nan
        found = run(f"cholesky_{n}_{code}", a=a)
        expected = numpy.where(numpy.arange(PROBLEMS) % 2, wrong + 1, 0)
        expected[2] = 1
        assert (found["failed"] == expected).all()
        right = numpy.linalg.cholesky(a[4])  # a NaN is no failure
        assert (numpy.isnan(found["l"][4]) == numpy.isnan(right)).all()


@pytest.mark.parametrize(("n", "m"), SYSTEMS)
def test_triangular(run, n, m):
    rng = numpy.random.default_rng(n)
    for lower, transposed, unit in some(KINDS, n):
        for code in codes_of(n + transposed)[:1]:
            a = random(rng, (PROBLEMS, n, n), code) / n + 2 * numpy.eye(n, dtype=code)
            b = random(rng, (PROBLEMS, n, m), code)
            a[3, n // 2, n // 2] = 0
            found = run(f"triangular_{n}_{m}_{lower}{transposed}{unit}_{code}", x=b, a=a)
            assert (found["failed"] != 0).nonzero()[0].tolist() == ([] if unit else [3])
            assert unit or found["failed"][3] == n // 2 + 1
            used = numpy.tril(a, -unit) if lower else numpy.triu(a, unit)
            exact = as_turned(used + unit * numpy.eye(n), transposed).astype("D")
            assert (found["a"] == a).all()
            keep = numpy.arange(PROBLEMS) != 3
            right = numpy.linalg.solve(
                (exact if code in "FD" else exact.real)[keep].astype(code), b[keep])
            assert_as_good(exact[keep] @ found["x"][keep] - b[keep],
                           exact[keep] @ right - b[keep],
                           numpy.abs(exact[keep]) @ numpy.abs(right), code)


@pytest.mark.parametrize(("m", "n", "k"), PRODUCTS)
def test_product(run, m, n, k):
    rng = numpy.random.default_rng(n)
    for t, u in some(TURNS, m + n):
        for code in codes_of(m + n + k + t)[:1]:
            a = random(rng, (PROBLEMS, *turned((m, k), t, code)[:2]), code)
            b = random(rng, (PROBLEMS, *turned((k, n), u, code)[:2]), code)
            found = run(f"product_{m}_{n}_{k}_{t}{u}_{code}", a=a, b=b)["c"]
            exact = as_turned(a, t).astype("D") @ as_turned(b, u).astype("D")
            assert_as_good(found - exact, as_turned(a, t) @ as_turned(b, u) - exact,
                           numpy.abs(as_turned(a, t)) @ numpy.abs(as_turned(b, u)), code)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "m"), SYSTEMS)
def test_solve(run, n, m):
    rng = numpy.random.default_rng(n)
    for code in codes_of(n + m)[:1]:
        a, b = random(rng, (PROBLEMS, n, n), code), random(rng, (PROBLEMS, n, m), code)
        a[2] = a[2].round(0) + 9 * numpy.eye(n)  # pivots that are equal
        a[5, :, n // 2] = 0
        found = run(f"solve_{n}_{m}_{code}", x=b, a=a)
        assert (found["failed"] != 0).nonzero()[0].tolist() == [5]
        keep = numpy.arange(PROBLEMS) != 5
        right = numpy.linalg.solve(a[keep], b[keep])
        exact = a[keep].astype("D")
        assert_as_good(exact @ found["x"][keep] - b[keep], exact @ right - b[keep],
                       numpy.abs(exact) @ numpy.abs(right), code)
        for k in numpy.nonzero(keep)[0]:
            packed, pivots = scipy.linalg.lu_factor(a[k])
            assert (found["p"][k, :, 0] == pivots).all()
            assert numpy.allclose(found["a"][k], packed, 1e-3 if code in "fF" else 1e-9,
                                  1e-4 if code in "fF" else 1e-11)


@pytest.mark.parametrize("n", LENGTHS)
def test_fourier(run, n):
    rng = numpy.random.default_rng(n)
    for case in CASES:
        if not case.name.startswith(f"fourier_{n}_"):
            continue
        _, _, sign, code = case.name.split("_")
        x = random(rng, (PROBLEMS, n), code)
        found = run(case.name, y=x)["y"][:, :, 0]
        transform = scipy.fft.fft if sign == "-1" else lambda x: scipy.fft.ifft(x, norm="forward")
        angle = int(sign) * 8 * numpy.arctan(numpy.longdouble(1)) / n
        powers = numpy.arange(n)[:, None] * numpy.arange(n) % n
        exact = x.astype(numpy.clongdouble) @ numpy.exp(
            1j * angle * powers) if code == "D" else transform(x.astype("D"))
        theirs = numpy.linalg.norm((transform(x) - exact).astype("D"))
        floor = numpy.finfo(code).eps * numpy.linalg.norm(exact.astype("D")) / 4
        ours = numpy.linalg.norm((found - exact).astype("D"))
        assert ours <= 2 * max(theirs, floor), (case.name, ours / theirs)


@pytest.mark.parametrize("case", STRIDED, ids=lambda case: case.name)
def test_fourier_along_columns(run, case):
    n, _, code = case.tiles["y"]
    x = random(numpy.random.default_rng(n), (PROBLEMS, n, 2), code)
    found = run(case.name, y=x)["y"]
    transform = numpy.fft.fft if "_-1_" in case.name else numpy.fft.ifft
    want = transform(x[..., 0], norm="backward" if "_-1_" in case.name else "forward")
    assert (found[..., 1] == x[..., 1]).all()
    assert abs(found[..., 0] - want).max() <= 8 * numpy.finfo(code).eps * abs(want).max()


@pytest.mark.parametrize("n", INVERTED)
def test_inverse_and_determinant(run, n):
    rng = numpy.random.default_rng(n)
    for code in codes_of(n)[:1]:
        real, eps = code.lower(), numpy.finfo(code).eps
        a = random(rng, (PROBLEMS, n, n), code)
        a[3] = 0
        a[4] = numpy.nan
        a[6:8] *= 1e30 if code in "fF" else 1e250  # beyond the largest number
        a[8] *= 1e-30 if code in "fF" else 1e-250
        found = run(f"inverse_{n}_{code}", a=a)
        assert (found["failed"] != 0).nonzero()[0].tolist() == [3]
        good = numpy.array([0, 1, 2, 5, 9, 10])
        exact, right = a[good].astype("D"), numpy.linalg.inv(a[good])
        size = numpy.abs(exact) @ numpy.abs(right)
        assert_as_good(exact @ found["x"][good] - numpy.eye(n),
                       exact @ right - numpy.eye(n), size, code)
        with numpy.errstate(all="ignore"):
            sign, log = numpy.linalg.slogdet(a)
            value = numpy.linalg.det(a)
        near = 30 * n * eps * numpy.linalg.cond(a[good]).max()
        numpy.testing.assert_allclose(found["log"][:, 0, 0], log, near, near)
        known = ~numpy.isnan(log)
        numpy.testing.assert_allclose(found["sign"][known, 0, 0], sign[known], 0, near)
        assert found["log"].dtype == real
        keep = numpy.isfinite(value)
        numpy.testing.assert_allclose(found["d"][keep, 0, 0], value[keep], 10 * near, 0)
        assert (numpy.isfinite(found["d"][:, 0, 0]) == keep).all()


def test_packing():
    """Whole groups and ragged ones, counts that are no multiple of a vector, rows apart."""
    counts, width = (1, 5, 31), 16
    text = 'using idx = long long;\n#include "tile.h"\n#include "fourier.h"\n'
    for count in counts:
        for code in CODES:
            for w in (4, width):
                t = TYPES[code]
                text += (f'extern "C" __attribute__((visibility("default"))) void '
                         f"both_{count}_{code}_{w}({t}* tile, const {t}* from, {t}* to, int valid)"
                         f"{{ Team<{w}> team; pack<{count}>(team, tile, from, {count + 3}, valid);"
                         f" unpack<{count}>(team, to, tile, {count + 2}, valid); }}\n")
    kernel = host.compile_source(text, f"both_1_f_{width}")
    rng = numpy.random.default_rng(0)
    for count in counts:
        for code in CODES:
            for w in (4, width):
                for valid in (1, w - 1, w):
                    x = random(rng, (w, count + 3), code)
                    tile, back = numpy.zeros((count, w), code), numpy.zeros((w, count + 2), code)
                    getattr(kernel.library.handle, f"both_{count}_{code}_{w}")(
                        *(ctypes.c_void_p(y.ctypes.data) for y in (tile, x, back)), valid)
                    rows = numpy.minimum(numpy.arange(w), valid - 1)
                    assert (tile == x[rows, :count].T).all()
                    assert (back[:valid, :count] == x[:valid, :count]).all()
                    assert not back[valid:].any() and not back[:, count:].any()


@pytest.mark.parametrize(("m", "n"), TALL)
def test_qr(run, m, n):
    rng = numpy.random.default_rng(m)
    for code in codes_of(m + n)[:1]:
        a = random(rng, (PROBLEMS, m, n), code)
        a[3, :, n // 2] = a[3, :, 0]  # of less than full rank
        a[4] = 0
        a[5:7] *= 1e30 if code in "fF" else 1e250  # squares are beyond the largest number
        a[7] *= 1e-30 if code in "fF" else 1e-250
        found = run(f"qr_{m}_{n}_{code}", q=a, a=a)
        q, r, right = found["q"][..., :min(m, n)], found["r"], numpy.linalg.qr(a)
        assert (found["alone"] == r).all()
        scale = numpy.abs(a).max(axis=(1, 2), keepdims=True)
        scale[scale == 0] = 1
        eps = numpy.finfo(code).eps

        def residuals(q, r, a=a, scale=scale):
            q, r = q.astype("D"), (r / scale).astype("D")
            return q @ r - a / scale, adjoint(q) @ q - numpy.eye(q.shape[-1])

        for ours, theirs in zip(residuals(q, r), residuals(*right), strict=True):
            assert_as_good(ours, theirs, numpy.ones((PROBLEMS, 1)), code)
        assert (numpy.tril(r, -1) == 0).all()
        full = numpy.arange(PROBLEMS) != 3  # signs are LAPACK's
        assert numpy.abs(r - right[1])[full].max(axis=(1, 2), initial=0).tolist() <= (
            300 * m * eps * scale[full, 0, 0]).tolist()


@pytest.mark.parametrize("n", HERMITIAN)
def test_eigenvalues(run, n):
    rng = numpy.random.default_rng(n)
    for code in codes_of(n)[:1]:
        a = random(rng, (PROBLEMS, n, n), code)
        a = a + adjoint(a)
        a[1] = numpy.eye(n)
        a[2] = 0
        a[3] = positive(rng, n, code, 1, 1e4)[0]
        a[4] *= 1e30 if code in "fF" else 1e250  # squares are beyond the largest number
        a[5] *= 1e-30 if code in "fF" else 1e-250
        a[6, 0, 0] = a[7, n - 1, 0] = a[7, 0, n - 1] = numpy.nan
        a[8, n // 2, n // 2] = numpy.inf
        found = run(f"eigenvalues_{n}_{code}", a=numpy.tril(a), upper=numpy.triu(a))
        assert (found["failed"] != 0).nonzero()[0].tolist() == ([6, 7, 8] if n > 2 else [])
        keep = numpy.array([0, 1, 2, 3, 4, 5, 9, 10])
        if n > 1:  # of one number that is the eigenvalue, and LAPACK does not mind
            assert all(numpy.isnan(found[name][6:9]).all() for name in ("w", "alone", "v"))
        else:
            assert numpy.array_equal(found["w"][:, 0, 0], a[:, 0, 0].real, equal_nan=True)
        a = a[keep]
        right = numpy.linalg.eigh(a)
        scale = numpy.abs(a).max(axis=(1, 2), keepdims=True)
        scale[scale == 0] = 1

        def residuals(w, v, a=a, scale=scale):
            w, v = (w / scale[:, :, 0]).astype("D"), v.astype("D")
            return a / scale @ v - v * w[:, None, :], adjoint(v) @ v - numpy.eye(v.shape[-1])

        w, v = found["w"][keep, :, 0], found["v"][keep]
        assert (numpy.diff(w) >= 0).all()
        alone = found["alone"][keep, :, 0]
        near = 8 * n * numpy.finfo(code).eps * scale[:, :, 0] * numpy.ones(n)
        assert (abs(alone - w) <= near).all()
        size = numpy.full((len(a), 1), n**0.5)  # a spectrum is that much wider than an element
        for ours, theirs in zip(residuals(w, v), residuals(*right), strict=True):
            assert_as_good(ours, theirs, size, code)


# ---- offline: registers alone hold what a thread has -------------------------------------------


def compiled():
    """Cases and the architectures they are compiled for: what is unlike one another for both."""
    for n in (8, 16, 32, 64):
        for code in "fD" if n == 32 else "f":
            itemsize = numpy.dtype(code).itemsize
            group = teams.team_of("cholesky", (n,), itemsize)
            case = cholesky(n, code, group)
            case.tiles = {"a": case.tiles["a"], "x": (n, 1, code)}
            case.statements = (
                f"cholesky<{n}, {{a}}, {{a}}>(team, a, a, failed); "
                f"triangular<{n}, 1, {{x}}, {{a}}, 1, 0, 0>(team, x, a, failed); "
                f"triangular<{n}, 1, {{x}}, {{a}}, 1, 2, 0>(team, x, a, failed);")
            archs = ARCHITECTURES if code == "f" and n == 32 else ARCHITECTURES[:1]
            yield case, archs
            if code == "f":
                yield solve(n, 1, code, teams.team_of("lu", (n,), itemsize)), archs
    yield eigenvalues(32, "f", teams.team_of("eigenvalues", (32,), 4)), ARCHITECTURES[:1]
    yield qr(100, 32, "f", 32), ARCHITECTURES[:1]
    for n in (64, 256, 1024, 4096):
        case = fourier(n, -1, "F", teams.team_of("fourier", (n,), 8))
        del case.tiles["work"]
        case.name, case.statements = f"fourier_{n}_F", f"fourier<{n}, -1>(team, y);"
        yield case, ARCHITECTURES if n == 1024 else ARCHITECTURES[:1]


@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_into_registers(arch):
    cases = [case for case, archs in compiled() if arch in archs]
    binaries = cuda.compile_many([(cuda_text(case), case.name) for case in cases], arch)
    for case, binary in zip(cases, binaries, strict=True):
        report = binary.reports[case.name]
        print(f"{arch} {case.name} with {case.group} threads: {report.registers} registers")
        assert report.clean, f"{arch}: {report}"


# ---- what the planner asks -----------------------------------------------------------------------


def test_what_is_refused():
    assert teams.refusal("fourier", (1001,), 8, device=True) is None
    assert "17" in teams.refusal("fourier", (34,), 8, device=False)
    assert teams.refusal("fourier", (8192,), 8, device=True) is None
    assert "4096" in teams.refusal("fourier", (8192,), 16, device=True)
    assert teams.refusal("cholesky", (160,), 4, device=True) is None
    assert "160" in teams.refusal("cholesky", (161,), 4, device=True)
    assert teams.workspace("fourier", (64,), device=False) == 64
    assert teams.workspace("cholesky", (64,), device=False) == 0
    assert teams.workspace("qr", (64, 8), device=True) == 8


@pytest.mark.parametrize("itemsize", [4, 8, 16])
@pytest.mark.parametrize("group", [1, 2, 4, 8, 16, 32])
def test_teams_of_a_warp_read_from_different_banks(group, itemsize):
    """Threads that read a column each, in all teams that are served at once, meet no other."""
    at_once = min(32, 128 // itemsize)
    for columns in (1, 4, 8, 16, 17, 32):
        pitch = teams.pitch(columns, itemsize)
        region = teams.region(32 * pitch * itemsize, group, itemsize)
        assert region % itemsize == 0 and region >= 32 * pitch * itemsize
        words = [(t // group * region + t % group * pitch * itemsize) // itemsize
                 for t in range(at_once)]
        assert len({word % at_once for word in words}) == at_once
