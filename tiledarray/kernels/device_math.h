// float32 functions of the device, included by math.h.
//
// The `quick_` ones are for most arguments: no branch, no subroutine.  They set `rare` where the
// result may be wrong (zeros, infinities, NaN, results out of the range of normal numbers); a
// kernel then computes that chunk of lanes once more with the functions of math.h.  So a division
// takes 5 instructions instead of 10, and the lanes of a chunk stay in one basic block.

// 2^(x log2(e) / 2), squared: neither factor leaves the normal numbers where exp(x) is finite or
// denormal.  What rounding the exponent (towards zero) has taken away comes back to first order;
// the minimum stands in for the NaN that infinities leave there.
TA_FN f32 m_exp(f32 x) {
    f32 half, root;
    asm("mul.rz.f32 %0, %1, %2;" : "=f"(half) : "f"(x), "f"(log2_e<f32> / 2));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(half));
    f32 rest = m_fma(half, -2 * ln2<f32>, x);
    rest = m_fma(half, 3.8093086e-09f, rest);  // what ln2 lacks
    rest = ::fminf(rest, 0x1p-10f);
    return m_fma(root, rest, root) * root;
}
TA_FN f64 m_exp(f64 x) { return ::exp(x); }

TA_FN f32 near_root(f32 x) {
    f32 r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Whatever is wrong on the way (an inverse that is zero or infinite as well) leaves zero or NaN.
// Else one correction: at most 0.50001 ulp where x is no denormal or close to one, 2 ulp there.
TA_FN f32 quick_divide(f32 x, f32 y, bool& rare) {
    const f32 inverse = near_reciprocal(y), near = x * inverse;
    const f32 quotient = m_fma(m_fma(-y, near, x), inverse, near);
    rare |= !(m_abs(quotient) > 0.f);
    return quotient;
}
// As the correctly rounded one does it, whose test of the range is NaN here.
TA_FN f32 quick_sqrt(f32 x, bool& rare) {
    const f32 inverse = near_root(x), near = x * inverse;
    const f32 root = m_fma(m_fma(-near, near, x), 0.5f * inverse, near);
    rare |= !(root > 0.f);
    return root;
}
// x = m 2^n with m within a third of 1, and log(1 + f) = f + f f P(f): at most 1.5 ulp.
TA_FN f32 quick_log(f32 x, bool& rare) {
    rare |= !(x >= 0x1p-126f) | !(x < infinity<f32>());
    const i32 power = (i32)(bits_of(x) - 0x3f2aaaabu) & (i32)0xff800000;
    const f32 f = from_bits(bits_of(x) - (u32)power) - 1.f;
    f32 p = 0.14017713f;
    p = m_fma(p, f, -0.15390305f);
    p = m_fma(p, f, 0.13997769f);
    p = m_fma(p, f, -0.16415577f);
    p = m_fma(p, f, 0.2001103f);
    p = m_fma(p, f, -0.25007844f);
    p = m_fma(p, f, 0.333332f);
    p = m_fma(p, f, -0.49999934f);
    return m_fma((f32)power, ln2<f32> * 0x1p-23f, m_fma(f * p, f, f));
}
