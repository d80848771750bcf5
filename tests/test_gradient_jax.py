"""Whole functions beside JAX, where it is installed: first and second derivatives, and conventions.

What writes into arrays is written anew for JAX; the rest runs under `jax.numpy` as it is.
"""

import numpy
import pytest

import tiledarray
from tests.gradient_corpus import PROGRAMS
from tests.test_gradient_functions import PROGRAMS as LONGER

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
jax.config.update("jax_enable_x64", True)

X = numpy.array([0.7, -1.3, 2.1, 0.4, 1.9])
ARANGE = numpy.arange(5.0)


def close(found, wanted):
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    scale = 1 + numpy.abs(wanted).max(initial=0)
    numpy.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11 * scale)


# ---- programs that write, and what one writes for JAX --------------------------------------------

WRITTEN_ANEW = {}


def equivalent(function):
    WRITTEN_ANEW[function.__name__] = function
    return function


@equivalent
def swap_in_arg(x):
    x = x.at[:2].set(x[:2][::-1])
    return (x * x * ARANGE).sum()


@equivalent
def swap_slices(x):
    x = jnp.concatenate([x[2:4], x[:2], x[4:]])
    return (x * x * ARANGE).sum()


@equivalent
def swap_index(x):
    x = x.at[jnp.array([0, 3])].set(x[jnp.array([3, 0])])
    return (x * x * ARANGE).sum()


@equivalent
def full_assign(x):
    return (x * x * ARANGE).sum()


@equivalent
def view_iadd(x):
    a = jnp.zeros((5, 2)).at[1:, 0].set(x[1:] ** 2)
    a = a.at[:, 1].add(a[:, 0])
    return (a * a).sum()


@equivalent
def view_of_view(x):
    places = jnp.array([3, 1])
    a = x.at[places].multiply(3.0)
    a = a.at[places].add(a[0])
    return (a ** 2).sum()


@equivalent
def out_arg(x):
    a = x * x
    a = a.at[2:4].set(jnp.exp(a[:2])) + x
    return (a * ARANGE).sum()


@equivalent
def where_arg(x):
    a = jnp.where(x > 0.5, jnp.sin(x), 2 * x)
    return (a * a).sum()


@equivalent
def copyto(x):
    a = jnp.where(x > 1, 2 * x, x * x)
    return (a * a).sum()


@equivalent
def put(x):
    a = jnp.zeros(5).at[jnp.array([0, 2, 4])].set(x[:3] ** 2).at[1].set(x[4])
    return (a * a).sum()


@equivalent
def imag_write(x):
    z = x + x * x + 1j * x * x
    return (z * z).real.sum()


@equivalent
def real_view_write(x):
    z = x.at[1:3].set(x[0] ** 2) + 1j * (x * x)
    return jnp.abs(z).sum()


@equivalent
def transposed_write(x):
    a = (x[:, None] * x).at[:, 0].set(x ** 2).at[:, 1].add(1)
    return (a * a).sum()


@equivalent
def zeros_loop2(x):
    a = jnp.tril(x[:, None] - x, -1)
    return ((a - a.T) ** 4).sum()


@equivalent
def zeros_views_first(x):
    a = jnp.zeros((3, 5)).at[1].set(x).at[0, 2].set(x[0] * x[1]).at[:, 2].add(1.0)
    return (a[1] * a[1]).sum() + (a[:, 2] ** 3).sum() + a.sum()


@equivalent
def recurrence(x):
    values = [x[0]]
    for k in range(1, 20):
        values.append(0.9 * values[-1] + 0.1 * x[k % 5] ** 2)
    return sum(values)


@equivalent
def generator(x):
    u, total = x, 0
    for _ in range(5):
        u = u.at[1:-1].add(0.2 * (u[2:] - 2 * u[1:-1] + u[:-2]))
        total += u.sum()
    return total ** 2


@equivalent
def reshape_write(x):
    flat = jnp.zeros(10).at[3:8].set(x).at[0].set(x[0] ** 2).at[2:].multiply(2)
    return (flat ** 3).sum()


@equivalent
def diag_write(x):
    a = jnp.where(jnp.eye(5) > 0, x ** 3, x[:, None] * x)
    return (a * a).sum() + (jnp.diag(a) ** 2).sum()


@equivalent
def mask_write(x):
    a = jnp.where(x > 0.5, 0.0, x ** 2)
    a = jnp.where(x < 0, a * x[0], a)
    a = jnp.where(a == 0, x[4], a)
    return (a * a).sum()


@equivalent
def mask_write_array(x):
    a = jnp.where(x > 0.5, 2 * x, x ** 2 + x ** 3)
    return (a * a).sum()


@equivalent
def mask_arith_write(x):
    a = jnp.where(x > 1, x - 1, x)
    a = jnp.where((a < 0) & (x > -2), -x[1] ** 2, a)
    return (a ** 2).sum()


@equivalent
def augmented_getitem(x):
    a = jnp.zeros((3, 5)).at[1].add(x).at[1, 2].multiply(x[0]).at[:, 1].add(-x[0])
    a = a.at[0, 0].add(x[1]).at[2, 0].add(x[1]).at[2, 1].add(x[2])
    return (a ** 2).sum()


@equivalent
def chained_where_out(x):
    r = 1 / x
    r = jnp.where(r > 0, jnp.log(jnp.where(r > 0, r, 1)), r)
    return (r * r).sum()


@equivalent
def cum_out(x):
    return (jnp.cumsum(x) ** 2).sum()


@equivalent
def sort_method(x):
    return (jnp.sort(x ** 2) * ARANGE).sum()


@equivalent
def sort_view(x):
    a = jnp.concatenate([x[:1], jnp.sort(x[1:4]), x[4:]])
    return (a * a * ARANGE).sum()


AS_THEY_ARE = (
    "where_sum", "insert", "block", "divmod_", "interp", "real_imag", "recursion", "stats",
    "median", "nanstats", "cum", "cross", "hypot_etc",
)


@pytest.mark.parametrize("name", [*WRITTEN_ANEW, *AS_THEY_ARE])
def test_programs(name):
    def ours(x):
        return PROGRAMS[name](tiledarray, x)

    theirs = WRITTEN_ANEW.get(name, lambda x: PROGRAMS[name](jnp, x))

    @jax.jit
    def wanted(x):
        return theirs(x), jax.grad(theirs)(x), jax.hessian(theirs)(x)

    found = ours(tiledarray.array(X)), tiledarray.grad(ours)(X), tiledarray.hessian(ours)(X)
    for value, right in zip(found, wanted(X), strict=True):
        close(value, right)


# ---- simulations, fits and nets ------------------------------------------------------------------


def heat_in_place(u, rate):
    for _ in range(30):
        u = u.at[1:-1, 1:-1].add(rate[0] * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]))
    return (u ** 2).sum()


def wave_with_swaps(before, now):
    for _ in range(25):
        after = 2 * now[1:-1] - before[1:-1] + 0.3 * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, jnp.concatenate([now[1:2], after, now[-2:-1]])
    return (now * before).sum()


def shallow_water(state):
    h, u, v = state
    for _ in range(8):
        u = u.at[:, 1:].add(-0.1 * (h[:, 1:] - h[:, :-1]))
        v = v.at[1:].add(-0.1 * (h[1:] - h[:-1]))
        h = h.at[:, :-1].add(-0.1 * (u[:, 1:] - u[:, :-1]))
        h = h.at[:-1].add(-0.1 * (v[1:] - v[:-1]))
    return jnp.mean(h ** 2 + u * v)


def burgers_upwind(u, dt):
    for _ in range(15):
        u = u.at[1:].add(-dt[0] * u[1:] * (u[1:] - u[:-1]))
    return jnp.sum(u * jnp.arange(20))


LONGER_ANEW = {function.__name__: function for function in (
    heat_in_place, wave_with_swaps, shallow_water, burgers_upwind)}
LONGER_AS_THEY_ARE = (
    "gray_scott", "leapfrog_of_particles", "two_layers", "soft_kmeans", "attention",
    "option_price_by_a_tree", "bilinear_warp", "sphere_tracing", "complex_response",
)


@pytest.mark.parametrize("name", [*LONGER_ANEW, *LONGER_AS_THEY_ARE])
def test_longer_programs(name):
    function, arrays = LONGER[name]
    numbers = tuple(range(len(arrays)))
    theirs = LONGER_ANEW.get(name, lambda *given: function(jnp, *given))
    wanted, slopes = jax.value_and_grad(theirs, numbers)(*map(jnp.asarray, arrays))
    value, found = tiledarray.value_and_grad(
        lambda *given: function(tiledarray, *given), numbers)(*map(tiledarray.array, arrays))
    assert float(value) == pytest.approx(float(wanted), rel=1e-12)
    for ours, slope in zip(found, slopes, strict=True):
        close(ours, slope)


# ---- complex numbers -----------------------------------------------------------------------------

Z = X[:4] * (1 + 0.5j) + 1j * X[1:]
MATRIX = (numpy.arange(9.0).reshape(3, 3) % 4 + 1j * numpy.cos(numpy.arange(9.0)).reshape(3, 3)
          + 4 * numpy.eye(3))

OF_COMPLEX = {  # functions of a module and of complex numbers
    "squares": lambda np, z: abs(z) ** 2, "abs": lambda np, z: abs(z),
    "angle": lambda np, z: np.angle(z), "conj": lambda np, z: np.conj(z) * z * z,
    "real": lambda np, z: (z ** 3).real, "imag": lambda np, z: (z * z[::-1]).imag * z,
    "exp": lambda np, z: np.exp(z * 1j), "log": lambda np, z: np.log(z),
    "power": lambda np, z: z ** 2.5 + z ** -1, "sqrt": lambda np, z: np.sqrt(z),
    "sin": lambda np, z: np.sin(z) * np.tanh(z), "quotient": lambda np, z: z / (1 + z * z),
    "sum": lambda np, z: z.sum() * z.conj().mean(), "prod": lambda np, z: np.prod(z),
    "cumsum": lambda np, z: np.cumsum(z) ** 2, "where": lambda np, z: np.where(z.real > 0, z, 2j),
    "fft": lambda np, z: np.fft.fft(z), "ifft": lambda np, z: np.fft.ifft(z * z),
    "irfft": lambda np, z: np.fft.irfft(z), "rfft": lambda np, z: np.fft.rfft(z.real * z.imag),
    "from real": lambda np, z: z.real * (1 + 2j) - z.imag, "outer": lambda np, z: np.outer(z, z),
    "dot": lambda np, z: np.dot(z, z[::-1]), "vdot": lambda np, z: np.vdot(z, z * z),
    "einsum": lambda np, z: np.einsum("i,j->ij", z, z.conj()),
    "norm": lambda np, z: np.linalg.norm(z),
}
OF_MATRICES = {
    "inv": lambda np, a: np.linalg.inv(a), "det": lambda np, a: np.linalg.det(a),
    "slogdet": lambda np, a: np.linalg.slogdet(a)[1],
    "solve": lambda np, a: np.linalg.solve(a, a[:, 0]), "matmul": lambda np, a: a @ a.T.conj() @ a,
    "cholesky": lambda np, a: np.linalg.cholesky(a @ a.T.conj()),
    "eigvalsh": lambda np, a: np.linalg.eigvalsh(a @ a.T.conj()),
    "singular values": lambda np, a: np.linalg.svd(a, compute_uv=False),
    "trace": lambda np, a: np.trace(a @ a),
}
ALL = {**{name: (function, Z) for name, function in OF_COMPLEX.items()},
       **{name: (function, MATRIX) for name, function in OF_MATRICES.items()}}


@pytest.mark.parametrize("name", ALL)
def test_complex_conventions(name):
    function, z = ALL[name]
    random = numpy.random.default_rng(2)
    value, pull = tiledarray.vjp(lambda z: function(tiledarray, z), z)
    g = random.normal(size=value.shape)
    v = random.normal(size=z.shape) + 1j * random.normal(size=z.shape)
    if value.dtype.kind == "c":
        g = g + 1j * random.normal(size=value.shape)

    def number(np, z):
        made = function(np, z)
        return (made * made.conj()).real.sum()

    @jax.jit
    def wanted(z, g, v):
        def theirs(z):
            return function(jnp, z)

        made, pull = jax.vjp(theirs, z)
        slope = jax.grad(lambda z: number(jnp, z))(z)
        return made, pull(g)[0], jax.jvp(theirs, (z,), (v,))[1], slope

    pushed = tiledarray.jvp(lambda z: function(tiledarray, z), (z,), (v,))[1]
    slope = tiledarray.grad(lambda z: number(tiledarray, z))(z)
    for found, right in zip((value, pull(g)[0], pushed, slope), wanted(z, g, v), strict=True):
        close(found, right)


# ---- where there is a choice ---------------------------------------------------------------------

TIES = numpy.array([1.0, -0.0, 2.0, 2.0, 0.0])
CHOICES = {  # not abs(0): the slope is 0 here, and 1 with JAX
    "max": lambda np, x: np.max(x), "min": lambda np, x: np.min(x * x),
    "maximum": lambda np, x: np.maximum(x, 2.0).sum(),
    "minimum": lambda np, x: np.minimum(x, x[::-1]).sum(), "sign": lambda np, x: np.sign(x).sum(),
    "sort": lambda np, x: (np.sort(x) * np.arange(5.0)).sum(),
    "median": lambda np, x: np.median(x), "where": lambda np, x: np.where(x > 0, x, -x).sum(),
    "prod": lambda np, x: np.prod(x), "power": lambda np, x: (x ** 2).sum() + (x ** 1.0).sum(),
    "cumprod": lambda np, x: (np.cumprod(x) * np.arange(5.0)).sum(),
}


@pytest.mark.parametrize("name", CHOICES)
def test_ties_and_zeros(name):
    function = CHOICES[name]
    close(tiledarray.grad(lambda x: function(tiledarray, x))(TIES),
          jax.jit(jax.grad(lambda x: function(jnp, x)))(TIES))
