// float32 functions for most arguments, on the device; included by math.h.
//
// No branch, no subroutine: they set `rare` where the result may be wrong (zeros, infinities, NaN,
// what is out of the range of normal numbers), and the kernel then computes that chunk of lanes once
// more with the functions of math.h.  So a division takes 5 instructions instead of 10, and the
// lanes of a chunk stay in one basic block.

TA_FN f32 near_root(f32 x) {
    f32 r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Whatever is wrong on the way (an inverse that is zero or infinite as well) leaves zero or NaN.
// Else the one correction rounds correctly, but for results near denormals: 2 ulp at most.
TA_FN f32 quick_divide(f32 x, f32 y, bool& rare) {
    const f32 inverse = near_reciprocal(y), near = x * inverse;
    const f32 quotient = m_fma(m_fma(-y, near, x), inverse, near);
    rare |= !(m_abs(quotient) > 0.f);
    return quotient;
}
// What is NaN where it may be wrong.
TA_FN f32 noted(f32 x, bool& rare) {
    rare |= is_nan(x);
    return x;
}
// As the correctly rounded one does it where nothing underflows.
TA_FN f32 quick_sqrt(f32 x, bool& rare) {
    const f32 inverse = near_root(x), near = x * inverse;
    const f32 root = m_fma(m_fma(-near, near, x), 0.5f * inverse, near);
    rare |= bits_of(x) - 0x0d000000u >= 0x72800000u;  // not in [2^-101, infinity)
    return root;
}
// With x r r = 1 - e the power is r^-2y (1 - e)^y; a loop knows its exponent.  Whatever is wrong on
// the way leaves what is too large, or NaN.
TA_FN f32 quick_power(f32 x, f32 y, bool& rare) {
    const f32 r = near_root(x), square = r * r;
    const f32 left = y == -1.5f ? m_fma(-x, square, 1.f) : m_fma(-x * r, r, 1.f);
    const f32 near = y == -1.5f ? r * square : r;
    const f32 power = m_fma(near * -y, left, near);
    rare |= !(m_abs(power) < 3e38f);
    return power;
}
template <int N> struct Halves {
    __device__ __forceinline__ constexpr operator f32() const { return N * 0.5f; }
};
template <class T> constexpr bool is_usual = false;
template <int N> constexpr bool is_usual<const Halves<N>> = true;
TA_FN f32 rare_power(f32 x, f32 y) { return m_power_constant(x, y); }
__device__ __noinline__ f32 half_power(f32 x, f32 y) { return any_power(x, y); }
template <int N> TA_FN f32 rare_power(f32 x, Halves<N> y) { return half_power(x, y); }
template <class Body> TA_FN void with_exponent(f32 y, Body body) {
    if (y == -1.5f) body(Halves<-3>());
    else if (y == -0.5f) body(Halves<-1>());
    else body(y);
}
// x = m 2^n with m within a third of 1, and log(1 + f) = f + f f P(f): at most 1.5 ulp.
TA_FN f32 quick_log(f32 x, bool& rare) {
    rare |= !(x >= 0x1p-126f) | !(x < infinity<f32>());
    const i32 power = (i32)(bits_of(x) - 0x3f2aaaabu) & (i32)0xff800000;
    const f32 f = from_bits(bits_of(x) - (u32)power) - 1.f;
    return m_fma((f32)power, ln2<f32> * 0x1p-23f, m_fma(f * rest_of_log(f), f, f));
}
TA_FN f32 quick_exp2(f32 x) {
    f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
// Roots of exp(x by) and exp2(x by), for sums: a square is added by one instruction, and is denormal
// where its root is not.  The exponent's two roundings more leave |x by| 2^-23 of the value.
TA_FN f32 root_of_exp2(f32 x, f32 by) { return quick_exp2(x * by * 0.5f); }
TA_FN f32 root_of_exp(f32 x, f32 by) { return quick_exp2(x * (by * (0.5f * log2_e<f32>))); }
// 1 / x, finite for what is not 0: 0 divided by it stays 0.
TA_FN f32 inverse_factor(f32 x) {
    const f32 inverse = 1 / x;
    return m_abs(inverse) == infinity<f32>() && x != 0 ? ::copysignf(0x1.fffffep127f, x) : inverse;
}
