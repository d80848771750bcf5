"""The float32 functions of kernels/device_math.h on a real CUDA device, against float64.

Of one argument: every float32 there is.  Errors are worked out by the kernels themselves: CuPy's
own kernels take denormals for zero.
"""

import pytest

from tests.test_elementwise_kernels import nvrtc_compile

pytestmark = pytest.mark.gpu

PIECE = 1 << 28
# Units in the last place between a float32 and the exact result; denormals have places too.
SOURCE = """
#include "math.h"
TA_FN f32 ulps(f32 found, f64 exact) {
    const f32 near = (f32)exact;
    if (is_nan(near) || is_nan(found)) return is_nan(near) && is_nan(found) ? 0.f : infinity<f32>();
    if (is_inf(near) || is_inf(found) || found == 0.f)
        return bits_of(found) == bits_of(near) ? 0.f : is_inf(found) || is_inf(near)
            ? infinity<f32>() : (f32)(m_abs(exact) * 0x1p149);
    int exponent;
    ::frexp(exact, &exponent);
    return (f32)(m_abs((f64)found - exact) * ::ldexp(1.0, -max(exponent - 24, -149)));
}
"""
FUNCTIONS = {  # the largest error, the text, and that of the exact value
    "exp": (2.0, "m_exp(x)", "::exp((f64)x)"),
    "log": (1.5, "quick_log(x, rare)", "::log((f64)x)"),
    "sqrt": (0.51, "quick_sqrt(x, rare)", "::sqrt((f64)x)"),
    **{f"power_{k}": (4.0, f"m_power(x, {k} / 2.f)", f"::pow((f64)x, {k} / 2.)")
       for k in (3, 4, 5, 6, 8)},
    **{f"power_minus_{k}": (4.0, f"m_power(x, -{k} / 2.f)", f"::pow((f64)x, -{k} / 2.)")
       for k in (1, 3, 4)},
}
# Of a kernel whose loop knows the exponent.  Beyond these a power overflows, or is none.
QUICK_POWERS = {
    "quick_power_minus_1": (2.0, "quick_power(x, -.5f, rare)", "::pow((f64)x, -.5)"),
    "quick_power_minus_3": (2.0, "quick_power(x, -1.5f, rare)", "::pow((f64)x, -1.5)"),
}
LEAST_USUAL = {"quick_power_minus_1": 254 << 23, "quick_power_minus_3": 211 << 23}
FUNCTIONS |= QUICK_POWERS
for _name, (_, _text, _exact) in FUNCTIONS.items():
    SOURCE += f"""
extern "C" __global__ void every_{_name}(u32 first, f32* error) {{
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    bool rare = false;
    const f32 x = from_bits(first + k), found = {_text};
    error[k] = rare ? -1.f : ulps(found, {_exact});
}}"""
SOURCE += """
extern "C" __global__ void divide(const f32* x, const f32* y, f32* error) {
    const u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    bool rare = false;
    const f32 found = quick_divide(x[k], y[k], rare);
    error[k] = rare ? -1.f : ulps(found, (f64)x[k] / (f64)y[k]);
}"""


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


def quotients(device, x, y):
    """Errors of the quotients of bit patterns; -1 where they are rare."""
    cupy, function = device
    error = cupy.empty(x.size, "f4")
    function("divide")((-(-x.size // 256),), (min(x.size, 256),), (x, y, error))
    return error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument(device, name):
    cupy, function = device
    error = cupy.empty(PIECE, "f4")
    worst, rare = 0.0, 0
    for first in range(0, 2**32, PIECE):
        function(f"every_{name}")((PIECE // 256,), (256,), (cupy.uint32(first), error))
        worst = max(worst, float(error.max()))
        rare += int((error < 0).sum())
    print(f"{name}: {worst:.4f} ulp, {rare} rare")
    assert worst <= FUNCTIONS[name][0]
    if name in LEAST_USUAL:
        assert 2**31 <= rare <= 2**32 - LEAST_USUAL[name]
        return
    # Rare is nothing but what is negative, infinite, no number, or as small as the header says.
    usual = {"exp": 512, "log": 254, "sqrt": 229}.get(name, 512)
    assert rare == 2**32 - usual * 2**23


def test_quotients(device):
    cupy, _ = device
    cupy.random.seed(3)
    count = 1 << 26
    for low, high, limit in [(127, 128, 0.501), (67, 187, 0.501), (1, 254, 2), (0, 255, 2)]:
        x, y = (cupy.random.randint(low << 23, (high << 23) + (1 << 23), count, dtype="u4")
                for _ in range(2))
        error = quotients(device, x, y ^ cupy.uint32(1 << 31))
        print(f"exponents {low} to {high}: {float(error.max())} ulp, "
              f"{int((error > 0.5).sum())} misrounded, {int((error < 0).sum())} rare")
        assert float(error.max()) <= limit
        if high < 254:
            assert int((error < 0).sum()) == 0


def test_special_quotients_are_right_or_rare(device):
    cupy, _ = device
    values = cupy.array([0.0, cupy.inf, cupy.nan, 3e38, 1.0, 3.0, 1.2e-38, 2.0**126, 2.0**127,
                         2.0**-126, 0.5], "f4").view("u4")
    values = cupy.concatenate([values, cupy.array([1, 7, 0x7fffff], "u4")])
    values = cupy.concatenate([values, values | cupy.uint32(1 << 31)])
    x, y = (part.ravel().copy() for part in cupy.meshgrid(values, values))
    error = quotients(device, cupy.resize(x, 1024), cupy.resize(y, 1024))
    assert float(error.max()) <= 2
    assert int((error >= 0).sum()) > 200
