// Sine, cosine and tangent for the device, included by math.h.
//
// CUDA's own reduce huge arguments in an array in local memory, behind a subroutine call around
// which registers spill, in every kernel that contains one.  Here moderate arguments are reduced
// with three fused multiply-adds (W. J. Cody and W. Waite, 1980) and huge ones with integers and
// the bits of 2/pi (M. Payne and R. Hanek, 1983), all in registers.  The host compiles this under
// TA_OWN_TRIGONOMETRY, so that tests can compare it with NumPy over the whole range.
#pragma once

namespace own {

#if TA_DEVICE
TA_FN u64 high_product(u64 x, u64 y) { return __umul64hi(x, y); }
TA_FN i32 leading_zeros(u64 x) { return __clzll((long long)x); }
#define TA_TABLE __constant__
#else
TA_FN u64 high_product(u64 x, u64 y) { return (u64)(((unsigned __int128)x * y) >> 64); }
TA_FN i32 leading_zeros(u64 x) { return __builtin_clzll(x); }
#define TA_TABLE
#endif

// 128 zero bits, then 2/pi after the binary point: enough for the largest double.
TA_TABLE static const u64 two_over_pi[] = {
    0, 0, 0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull,
    0xdb6295993c439041ull, 0xfe5163abdebbc561ull, 0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull,
    0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull, 0xe99c7026b45f7e41ull, 0x3991d639835339f4ull,
    0x9c845f8bbdf9283bull, 0x1ff897ffde05980full, 0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull,
    0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull, 0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull,
};
#undef TA_TABLE
constexpr u64 half_pi_bits = 0xc90fdaa22168c235ull;  // pi/2 times 2^63

TA_FN u64 joined(u64 high, u64 low, i32 shift) {
    return shift == 0 ? high : (high << shift) | (low >> (64 - shift));
}

// x = quadrant * pi/2 + high + low, |high| <= pi/4 and a little.
template <class R> struct Reduced {
    R high, low;
    i32 quadrant;
};

// For finite |x| >= 2^17.  Bits of 2/pi that make whole turns only are left out, so that the
// lowest 96 bits of the product are a quadrant (2 bits) and a fraction of it.
TA_FN Reduced<f32> reduce_huge(f32 x) {
    const u32 word = bits_of(x);
    const i32 first = (i32)((word >> 23) & 0xff) - 126 - 34 + 64;  // 47 .. 158
    const u64 w0 = 0xa2f9836e4e441529ull, w1 = 0xfc2757d1f534ddc0ull, w2 = 0xdb6295993c439041ull, w3 = 0xfe5163abdebbc561ull;
    const bool far = first >= 128, near = first < 64;
    const u64 a = near ? 0 : far ? w1 : w0, b = near ? w0 : far ? w2 : w1;
    const u64 c = near ? w1 : far ? w3 : w2;
    const u64 top = joined(a, b, first & 63), next = joined(b, c, first & 63) >> 32;
    const u64 mantissa = (word << 8) | 0x80000000u;
    const u64 low = mantissa * next;                                   // bits 0 .. 63
    const u64 middle = mantissa * (u64)(u32)top + (low >> 32);         // bits 32 .. 95
    const u64 high = (mantissa * (top >> 32) << 32) + middle;          // bits 32 .. 95, wrapped
    const i64 fraction = (i64)(high << 2 | ((u32)low >> 30));
    const i32 quadrant = (i32)(high >> 62) + (i32)((u64)fraction >> 63);
    const f64 rest = (f64)fraction * ((word >> 31) != 0 ? -0x1.921fb54442d18p-64
                                                        : 0x1.921fb54442d18p-64);
    return {(f32)rest, (f32)(rest - (f64)(f32)rest), (word >> 31) != 0 ? -quadrant : quadrant};
}

// For finite |x| >= 2^29, with 192 bits likewise.
TA_FN Reduced<f64> reduce_huge(f64 x) {
    const u64 word = bits_of(x);
    const i32 first = (i32)((word >> 52) & 0x7ff) - 1022 - 66 + 128;
    const u64* const from = two_over_pi + (first >> 6);
    const i32 shift = first & 63;
    const u64 t0 = from[0], t1 = from[1], t2 = from[2], t3 = from[3];
    const u64 a = joined(t0, t1, shift), b = joined(t1, t2, shift), c = joined(t2, t3, shift);
    const u64 mantissa = (word << 11) | 0x8000000000000000ull;
    const u64 r0 = mantissa * c;
    const u64 r1 = high_product(mantissa, c) + mantissa * b;
    const u64 carry = r1 < mantissa * b ? 1 : 0;
    const u64 r2 = high_product(mantissa, b) + mantissa * a + carry;
    u64 high = r2 << 2 | r1 >> 62, low = r1 << 2 | r0 >> 62;
    const i32 quadrant = (i32)(r2 >> 62) + (i32)(high >> 63);
    const bool below = (high >> 63) != 0;
    high = below ? ~high + (low == 0 ? 1 : 0) : high;
    low = below ? (u64)0 - low : low;
    const i32 zeros = high == 0 ? 63 : leading_zeros(high);
    high = joined(high, low, zeros);  // times 2^-(64 + zeros)
    const u64 product = high_product(high, half_pi_bits);  // times 2^-(63 + zeros)
    const bool minus = ((word >> 63) != 0) != below;
    const f64 scale = from_bits((u64)(1023 - 63 - zeros) << 52);
    const f64 top = (f64)product, below_top = (f64)(i64)(product - (u64)top);
    return {top * (minus ? -scale : scale), below_top * (minus ? -scale : scale),
            (word >> 63) != 0 ? -quadrant : quadrant};
}

// Adding 1.5 times 2^(bits of the mantissa) rounds to a whole number in the low bits.
TA_FN f32 whole(f32 x) { return m_fma(x, 0.636619747f, 12582912.0f); }
TA_FN f64 whole(f64 x) { return m_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52); }
template <class R> constexpr R magic = sizeof(R) == 4 ? (R)12582912.0f : (R)0x1.8p52;
template <class R> constexpr R huge_angle = sizeof(R) == 4 ? (R)100000.0f : (R)0x1p30;
// pi/2 in three parts; n times the first is exact for moderate n.
template <class R> constexpr R half_pi_1 = sizeof(R) == 4 ? (R)0x1.921fb0p+0 : (R)0x1.921fb54442d18p+0;
template <class R> constexpr R half_pi_2 =
    sizeof(R) == 4 ? (R)3.13916473e-07f : (R)0x1.1a62633145c07p-54;
template <class R> constexpr R half_pi_3 =
    sizeof(R) == 4 ? (R)5.39030253e-15f : (R)-0x1.f1976b7ed8fbcp-110;

template <class R> TA_FN Reduced<R> reduce(R x) {
    if (m_abs(x) >= huge_angle<R> && is_finite(x)) return reduce_huge(x);
    const R shifted = whole(x), n = shifted - magic<R>;
    R rest = m_fma(n, -half_pi_1<R>, x);
    rest = m_fma(n, -half_pi_2<R>, rest);
    return {m_fma(n, -half_pi_3<R>, rest), 0, (i32)bits_of(shifted)};
}
// The same to twice the precision.
template <class R> TA_FN Reduced<R> reduce_exactly(R x) {
    if (m_abs(x) >= huge_angle<R> && is_finite(x)) return reduce_huge(x);
    const R shifted = whole(x), n = shifted - magic<R>;
    const R first = m_fma(n, -half_pi_1<R>, x);
    const R second = n * half_pi_2<R>, missing = m_fma(n, half_pi_2<R>, -second);
    const R rest = first - second, taken = rest - first;
    const R lost = (first - (rest - taken)) - (second + taken);
    const R low = m_fma(n, -half_pi_3<R>, lost - missing), high = rest + low;
    return {high, (rest - high) + low, (i32)bits_of(shifted)};
}

// Polynomials on [-pi/4, pi/4]: (sin(x) / x - 1) / z or, where the flag says so, (cos(x) - 1) / z,
// with z = x x.  In double precision the coefficients are those of fdlibm (Sun Microsystems,
// 1993, freely usable): k_sin.c and k_cos.c.
TA_FN f32 bend(f32 z, bool cosine) {
    f32 r = cosine ? 2.44677067e-5f : 2.86567956e-6f;
    r = m_fma(r, z, cosine ? -1.38877297e-3f : -1.98559923e-4f);
    r = m_fma(r, z, cosine ? 4.16666567e-2f : 8.33338592e-3f);
    return m_fma(r, z, cosine ? -5.00000000e-1f : -1.66666672e-1f);
}
TA_FN f64 bend(f64 z, bool cosine) {
    f64 r = cosine ? -1.13596475577881948265e-11 : 1.58969099521155010221e-10;
    r = m_fma(r, z, cosine ? 2.08757232129817482790e-09 : -2.50507602534068634195e-08);
    r = m_fma(r, z, cosine ? -2.75573143513906633035e-07 : 2.75573137070700676789e-06);
    r = m_fma(r, z, cosine ? 2.48015872894767294178e-05 : -1.98412698298579493134e-04);
    r = m_fma(r, z, cosine ? -1.38888888888741095749e-03 : 8.33333333332248946124e-03);
    r = m_fma(r, z, cosine ? 4.16666666666666019037e-02 : -1.66666666666666324348e-01);
    return cosine ? m_fma(r, z, -0.5) : r;
}
template <class R> TA_FN R turned(const Reduced<R>& at, i32 quadrant) {
    const bool cosine = (quadrant & 1) != 0;
    const R x = at.high, z = x * x, curve = bend(z, cosine);
    const R value = m_fma(cosine ? z : x * z, curve, cosine ? (R)1 : x);
    return (quadrant & 2) != 0 ? -value : value;
}
template <class R> TA_FN void sine_cosine(R x, R& sine, R& cosine) {
    const Reduced<R> at = reduce(x);
    sine = x == 0 ? x : turned(at, at.quadrant);
    cosine = turned(at, at.quadrant + 1);
}
template <class R> TA_FN R sine(R x) {
    const Reduced<R> at = reduce(x);
    return x == 0 ? x : turned(at, at.quadrant);
}
template <class R> TA_FN R cosine(R x) {
    const Reduced<R> at = reduce(x);
    return turned(at, at.quadrant + 1);
}
// Sine over cosine with what rounding took from either.
template <class R> TA_FN R tangent(R x) {
    const Reduced<R> at = reduce_exactly(x);
    const R z = at.high * at.high;
    const R rise = m_fma(at.high * z, bend(z, false), at.low), fall = z * bend(z, true);
    const R sine = at.high + rise, sine_low = (at.high - sine) + rise;
    const R cosine = 1 + fall, cosine_low = ((1 - cosine) + fall) - at.high * at.low;
    const bool odd = (at.quadrant & 1) != 0;
    const R over = odd ? -cosine : sine, over_low = odd ? -cosine_low : sine_low;
    const R under = odd ? sine : cosine, under_low = odd ? sine_low : cosine_low;
    const R inverse = near_reciprocal(under), near = over * inverse;
    const R rest = m_fma(-near, under, over) + (over_low - near * under_low);
    return x == 0 ? x : m_fma(rest, inverse, near);
}

}  // namespace own
