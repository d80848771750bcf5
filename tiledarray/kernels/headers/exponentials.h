// Exponentials and logarithms on the host, which take all arguments alike; included by math.h.
//
// A library's vector functions do what is unusual for them (beyond the range of normal results, zeros,
// infinities, NaN) one by one, ten times slower; masks are made of such arguments: exp(-1e9), log(0).
// Here there is neither call nor branch, so that loops vectorise with every compiler.
namespace own {

// By bits: of `condition ? x : y` g++ 12 may make a branch, and no vectors.
template <class R> TA_FN R chosen(bool condition, R x, R y) {
    using Bits = decltype(bits_of(x));
    const Bits first = (Bits)0 - (Bits)condition;
    return from_bits((Bits)((bits_of(x) & first) | (bits_of(y) & ~first)));
}
template <class R> TA_FN R within(R x, R least, R most) {
    x = chosen(x < least, least, x);
    return chosen(x > most, most, x);
}

// `whole` in a sum leaves a whole number in the last bits; ln2 is `high + low`, and few bits of
// `high` make products with whole numbers exact.  Below `least` results are 0, above `most` infinite.
template <class R> struct Range;
template <> struct Range<f32> {
    static constexpr f32 whole = 0x1.8p23f, bias = 127, least = -104, most = 89;
    static constexpr f32 high = 0.693359375f, low = -2.12194440e-4f;
    static constexpr int mantissa = 23;
};
template <> struct Range<f64> {
    static constexpr f64 whole = 0x1.8p52, bias = 1023, least = -746, most = 710;
    static constexpr f64 high = 6.93147180369123816490e-01, low = 1.90821492927058770002e-10;
    static constexpr int mantissa = 52;
};

// 2^n of a whole n whose power is a normal number.
template <class R> TA_FN R power_of_two(R n) {
    return from_bits(bits_of(n + (Range<R>::whole + Range<R>::bias)) << Range<R>::mantissa);
}

// In float32 the square of e^(x/2) = 2^n e^(r/2), x = 2 n ln2 + r: normal also where the square is not.
// At most 3 ulp.  P = (e^(r/2) - 1 - r/2) / r^2 where |r| <= ln2, to 1e-8 of the exponential; its
// values at Chebyshev's points decide the polynomial.
TA_FN f32 exponential(f32 x) {
    using In = Range<f32>;
    x = within(x, In::least, In::most);
    const f32 n = near_sum(x, 0.5f * log2_e<f32>, In::whole) - In::whole;
    f32 r = near_sum(n, -2 * In::high, x);
    r = near_sum(n, -2 * In::low, r);
    const f32 root = polynomial(
        r, 2.1759673525378338916e-05f, 2.6134953223541322613e-04f, 2.6041596607715711276e-03f,
        2.0833221192235962249e-02f, 0.125f, 0.5f, 1.f) * power_of_two(n);
    return root * root;
}
// In float64 2^n e^r, x = n ln2 + r: of the two powers only the second may leave the normal numbers.
// At most 1.2 ulp.  P = (e^r - 1 - r) / r^2 where |r| <= ln2 / 2, to 2e-17.
TA_FN f64 exponential(f64 x) {
    using In = Range<f64>;
    x = within(x, In::least, In::most);
    const f64 n = near_sum(x, log2_e<f64>, In::whole) - In::whole;
    const f64 half = near_sum(n, 0.5, In::whole) - In::whole;
    f64 r = near_sum(n, -In::high, x);
    r = near_sum(n, -In::low, r);
    const f64 y = polynomial(
        r, 2.5100385495510319078e-8, 2.7620088445409748161e-7, 2.7557268459997064772e-6,
        2.4801521295954375131e-5, 1.9841269863053616878e-4, 1.3888888917213716901e-3,
        8.3333333333300618325e-3, 4.1666666666624127873e-2, 1.6666666666666667453e-1, 0.5, 1.0, 1.0);
    return y * power_of_two(half) * power_of_two(n - half);
}

// The logarithm of what has one; of zeros, negative numbers, infinity and NaN their own.
template <class R> TA_FN R logarithm_or(R x, R y) {
    y = chosen(x < infinity<R>(), y, x);
    y = chosen(x == 0, -infinity<R>(), y);
    return chosen(x < 0, quiet_nan<R>(), y);
}
// x = m 2^n with m within a third of 1, and log(1 + f) = f + f f P(f).
TA_FN f32 logarithm(f32 x) {
    const bool denormal = x < 0x1p-126f;
    const f32 scaled = x * chosen(denormal, 0x1p23f, 1.f);
    const i32 power = (i32)(bits_of(scaled) - 0x3f2aaaabu) & (i32)0xff800000;
    const f32 f = from_bits(bits_of(scaled) - (u32)power) - 1.f;
    const f32 n = (f32)power * 0x1p-23f - chosen(denormal, 23.f, 0.f);
    f32 y = near_sum(f * rest_of_log(f), f, n * Range<f32>::low) + f;
    y = near_sum(n, Range<f32>::high, y);
    return logarithm_or(x, y);
}
// In float64 with m within sqrt(2) of 1, s = f / (2 + f) and log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + R(s^2)),
// by fdlibm's polynomial (e_log.c, Sun Microsystems 1993); whole numbers up to 2^52 become floats in their bits.
TA_FN f64 logarithm(f64 x) {
    const bool denormal = x < 0x1p-1022;
    const f64 scaled = x * chosen(denormal, 0x1p54, 1.0);
    const u64 least = 0x3fe6a09e667f3bcdull; // sqrt(1 / 2)
    const u64 word = bits_of(scaled) + (0x3ff0000000000000ull - least);
    const f64 n = from_bits(word >> 52 | 0x4330000000000000ull) -
        chosen(denormal, 0x1p52 + 1077, 0x1p52 + 1023);
    const f64 f = from_bits((word & 0xfffffffffffffull) + least) - 1;
    const f64 s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    const f64 p = polynomial(
        z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
        2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
        6.666666666666735130e-01);
    const f64 rest = near_sum(s, near_sum(p, z, half), n * Range<f64>::low);
    return logarithm_or(x, near_sum(n, Range<f64>::high, f - (half - rest)));
}

} // namespace own
