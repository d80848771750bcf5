"""The float32 functions for most arguments (kernels/quick.h) on a real CUDA device.

Of one argument: every float32 there is.  Wherever `rare` stays false the result is as near the
exact one as the header says.
"""

import pytest

from tests.test_elementwise_kernels import nvrtc_compile

pytestmark = pytest.mark.gpu

PIECE = 1 << 28
SOURCE = '#include "math.h"\n' + "".join(f"""
extern "C" __global__ void {name}_all(const u32* first, f32* out, u8* flags) {{
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    bool rare = false;
    const f32 x = from_bits(first[0] + k);
    out[k] = {call};
    flags[k] = rare;
}}""" for name, call in [
    ("exp", "m_exp(x)"), ("log", "quick_log(x, rare)"), ("sqrt", "quick_sqrt(x, rare)"),
]) + """
extern "C" __global__ void divide(const f32* x, const f32* y, f32* out, u8* flags) {
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    bool rare = false;
    out[k] = quick_divide(x[k], y[k], rare);
    flags[k] = rare;
}"""
ULPS = {"exp": 2.0, "log": 1.5, "sqrt": 0.51}


@pytest.fixture(scope="module")
def device():
    """CuPy, and the functions of the source."""
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    cubin, _ = nvrtc_compile(SOURCE, f"sm_{cupy.cuda.Device().compute_capability}")
    module = cupy.cuda.function.Module()
    module.load(cubin)
    return cupy, module.get_function


def distances(cupy, found, exact):
    """Errors in units of the last place of the exact results, of denormals too."""
    exponent = cupy.maximum(cupy.frexp(exact)[1] - 24, -149)
    return cupy.abs(found.astype("f8") - exact) / cupy.ldexp(cupy.ones_like(exact), exponent)


@pytest.mark.parametrize("name", ULPS)
def test_every_argument(device, name):
    cupy, function = device
    out, flags = cupy.empty(PIECE, "f4"), cupy.empty(PIECE, "u1")
    worst = 0.0
    usual = 0
    for piece in range(2**32 // PIECE):
        first = cupy.array([piece * PIECE], "u4")
        function(f"{name}_all")((PIECE // 256,), (256,), (first, out, flags))
        for part in range(0, PIECE, PIECE // 8):
            these = slice(part, part + PIECE // 8)
            bits = cupy.arange(piece * PIECE + part, piece * PIECE + part + PIECE // 8)
            x = bits.astype("u4").view("f4").astype("f8")
            exact = getattr(cupy, name)(x)
            finite = cupy.isfinite(exact.astype("f4")) & (flags[these] == 0)
            error = cupy.where(finite, distances(cupy, out[these], cupy.where(finite, exact, 1)), 0)
            worst = max(worst, float(error.max()))
            odd = ~cupy.isfinite(exact.astype("f4")) & (flags[these] == 0)
            same = (out[these] == exact.astype("f4")) | (cupy.isnan(out[these]) & cupy.isnan(exact))
            assert bool(cupy.all(same | ~odd))
            usual += int((flags[these] == 0).sum())
    print(f"{name}: {worst:.4f} ulp, rare {1 - usual / 2**32:.4f}")
    assert worst <= ULPS[name]
    assert usual > 2**30


def test_quotients(device):
    cupy, function = device
    cupy.random.seed(3)
    count = 1 << 24
    misrounded = usual = 0
    for spread in [1, 8, 40, 127, None]:  # powers of two between operands; None: any bits at all
        x, y = (
            cupy.random.randint(0, 2**32, count, "u4").view("f4") if spread is None else
            cupy.ldexp(1 + cupy.random.random(count, dtype="f4"),
                       cupy.random.randint(-spread, spread, count, "i4"))
            for _ in range(2)
        )
        out, flags = cupy.empty(count, "f4"), cupy.empty(count, "u1")
        function("divide")((count // 256,), (256,), (x, y, out, flags))
        exact = x.astype("f8") / y.astype("f8")
        plain = flags == 0
        error = cupy.where(plain, distances(cupy, out, cupy.where(plain, exact, 1)), 0)
        finite = cupy.isfinite(exact.astype("f4"))
        assert bool(cupy.all(~plain | finite | (out == exact.astype("f4"))))
        error = cupy.where(finite, error, 0)
        tame = cupy.abs(x) > 2.0**-100
        assert float(error.max()) <= 2
        assert float(cupy.where(tame, error, 0).max()) <= 0.501
        if spread == 1:
            misrounded = int((out != x / y).sum())
            usual = int(plain.sum())
    print(f"misrounded: {misrounded} of {count}")
    assert usual == count
    assert misrounded <= count // 100_000


def test_special_values_are_rare(device):
    cupy, function = device
    values = cupy.array([0.0, -0.0, cupy.inf, -cupy.inf, cupy.nan, 1e-45, -1e-40, 3e38, -3e38, 1.0,
                         -2.0, 1e-38, 2.0**126, 2.0**127, 2.0**-126, 0.5], "f4")
    x, y = (part.ravel().copy() for part in cupy.meshgrid(values, values))
    out, flags = cupy.empty(x.size, "f4"), cupy.empty(x.size, "u1")
    function("divide")((1,), (x.size,), (x, y, out, flags))
    exact = x / y
    same = (out == exact) & (cupy.signbit(out) == cupy.signbit(exact))
    assert bool(cupy.all(same | (flags == 1)))
