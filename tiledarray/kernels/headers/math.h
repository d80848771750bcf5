// The scalar functions that op expressions call, with NumPy's semantics, for g++ and NVRTC alike.
//
// Include directories that hold this file must be given to g++ with -iquote: with -I it would
// hide the system's <math.h>.
//
// TA_OWN_COMPLEX and TA_OWN_TRIGONOMETRY choose the functions in complex_math.h and trigonometry.h
// over a library's: always on the device, on the host for tests.
#pragma once
#include "types.h"

#if TA_DEVICE
#define TA_OWN_COMPLEX 1
#define TA_OWN_TRIGONOMETRY 1
#endif

#if !TA_DEVICE
#include "library.h"
#endif
#ifndef TA_LIBRARY
#define TA_LIBRARY(NAME) NAME
#endif

#define TA_FORWARD_EXACT_1(NAME, FUNCTION) \
    TA_FN f32 NAME(f32 x) { return ::FUNCTION##f(x); } \
    TA_FN f64 NAME(f64 x) { return ::FUNCTION(x); }
#define TA_FORWARD_1(NAME, FUNCTION) \
    TA_FN f32 NAME(f32 x) { return ::TA_LIBRARY(FUNCTION##f)(x); } \
    TA_FN f64 NAME(f64 x) { return ::TA_LIBRARY(FUNCTION)(x); }
#define TA_FORWARD_2(NAME, FUNCTION) \
    TA_FN f32 NAME(f32 x, f32 y) { return ::TA_LIBRARY(FUNCTION##f)(x, y); } \
    TA_FN f64 NAME(f64 x, f64 y) { return ::TA_LIBRARY(FUNCTION)(x, y); }
#if TA_DEVICE
TA_FORWARD_1(m_exp, exp) TA_FORWARD_1(m_log, log) TA_FORWARD_1(m_tanh, tanh)
#endif
TA_FORWARD_1(m_exp2, exp2) TA_FORWARD_1(m_expm1, expm1) TA_FORWARD_1(m_log2, log2) TA_FORWARD_1(m_log10, log10)
TA_FORWARD_1(m_log1p, log1p) TA_FORWARD_EXACT_1(m_sqrt, sqrt) TA_FORWARD_1(m_cbrt, cbrt)
#if !TA_OWN_TRIGONOMETRY
TA_FORWARD_EXACT_1(m_sin, host_sin) TA_FORWARD_EXACT_1(m_cos, host_cos) TA_FORWARD_1(m_tan, tan)
#endif
TA_FORWARD_1(m_arcsin, asin) TA_FORWARD_1(m_arccos, acos) TA_FORWARD_1(m_arctan, atan)
TA_FORWARD_1(m_sinh, sinh) TA_FORWARD_1(m_cosh, cosh)
TA_FORWARD_1(m_arcsinh, asinh) TA_FORWARD_1(m_arccosh, acosh) TA_FORWARD_1(m_arctanh, atanh)
TA_FORWARD_1(m_erf, erf) TA_FORWARD_1(m_erfc, erfc)
TA_FORWARD_EXACT_1(m_rint, rint) TA_FORWARD_EXACT_1(m_floor, floor)
TA_FORWARD_EXACT_1(m_ceil, ceil) TA_FORWARD_EXACT_1(m_trunc, trunc)
TA_FORWARD_2(m_arctan2, atan2) TA_FORWARD_2(m_hypot, hypot)
#if TA_DEVICE
TA_FORWARD_2(any_power, pow)
#else
TA_FORWARD_2(m_power, pow)
#endif
TA_FN f32 m_copysign(f32 x, f32 y) { return ::copysignf(x, y); }
TA_FN f64 m_copysign(f64 x, f64 y) { return ::copysign(x, y); }
#undef TA_FORWARD_EXACT_1
#undef TA_FORWARD_1
#undef TA_FORWARD_2

template <class R> constexpr R pi = (R)3.141592653589793238462643383279502884;
template <class R> constexpr R ln2 = (R)0.693147180559945309417232121458176568;
template <class R> constexpr R log2_e = (R)1.442695040888963407359924681001892137;
template <class R> constexpr R log10_e = (R)0.434294481903251827651128918916605082;

// ---- floats ----

TA_FN f32 m_abs(f32 x) { return ::fabsf(x); }
TA_FN f64 m_abs(f64 x) { return ::fabs(x); }
template <class R> TA_FN bool is_inf(R x) { return m_abs(x) == infinity<R>(); }
template <class R> TA_FN bool is_finite(R x) { return m_abs(x) < infinity<R>(); }
// One rounding, where that is wanted; a product that no sum takes in (save with g++ where `contract` is
// True); and 1 / x to an ulp or so for a normal x, which unlike division needs no subroutine on the device.
#if TA_DEVICE
TA_FN f32 m_product(f32 x, f32 y) { return __fmul_rn(x, y); }
TA_FN f64 m_product(f64 x, f64 y) { return __dmul_rn(x, y); }
TA_FN f32 m_fma(f32 x, f32 y, f32 z) { return __fmaf_rn(x, y, z); }
TA_FN f64 m_fma(f64 x, f64 y, f64 z) { return __fma_rn(x, y, z); }
TA_FN f32 near_reciprocal(f32 x) {
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
TA_FN f64 near_reciprocal(f64 x) {
    f64 r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    r = m_fma(r, m_fma(-x, r, 1.0), r);
    return m_fma(r, m_fma(-x, r, 1.0), r);
}
// A few halves as an exponent, such as of a squared distance, to 4 ulp; all threads of a warp mostly
// have the same, so this is no branch that divides them.
TA_FN f32 near_rsqrt(f32 x) {
    f32 r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return m_fma(.5f * r, m_fma(-x * r, r, 1.f), r);
}
TA_FN f64 near_rsqrt(f64 x) { return ::rsqrt(x); }
template <class R> TA_FN R m_power_of(R x, R y) {
    const R twice = y + y;
    if (x > (R)1e-9 && x < (R)1e9 && m_abs(twice) <= 8) {
        const R r = near_rsqrt(x);
        if (twice == -3) { // once more what is missing of x * r * r = 1, and half of that
            const R q = r * r, p = r * q;
            return m_fma(p, (R)-1.5 * m_fma(x, q, (R)-1), p);
        }
        if (twice == -1) return r;
        if (twice == 3) return x * (x * r);
        if (twice == 4) return x * x;
        if (twice == 6) return x * x * x;
        if (twice == 8) return (x * x) * (x * x);
    }
    return any_power(x, y);
}
TA_FN f32 m_power(f32 x, f32 y) { return m_power_of(x, y); }
TA_FN f64 m_power(f64 x, f64 y) { return m_power_of(x, y); }
// By an exponent that is one number.
template <class R> TA_FN R m_power_constant(R x, R y) { return y == (R)0.5 ? m_sqrt(x) : m_power(x, y); }
#else
// g++ (from 12 on) fuses products into sums and differences that alternate, also under -ffp-contract=off.
template <class R> TA_FN R m_product(R x, R y) {
#if defined(__clang__)
#pragma clang fp contract(off)
    return x * y;
#elif __GNUC__ >= 12
    return __builtin_assoc_barrier(x * y);
#else
    return x * y;
#endif
}
TA_FN f32 m_fma(f32 x, f32 y, f32 z) { return __builtin_fmaf(x, y, z); }
TA_FN f64 m_fma(f64 x, f64 y, f64 z) { return __builtin_fma(x, y, z); }
template <class R> TA_FN R near_reciprocal(R x) { return 1 / x; }
#endif
// x y + z, rounded once where the machine does that.
template <class R> TA_FN R near_sum(R x, R y, R z) {
#if TA_DEVICE || defined(__FMA__) || defined(__aarch64__)
    return m_fma(x, y, z);
#else
    return x * y + z;
#endif
}
// By Horner's scheme, from the highest power on.
template <class R> TA_FN R polynomial(R, R last) { return last; }
template <class R, class... Rest> TA_FN R polynomial(R x, R first, R second, Rest... rest) {
    return polynomial(x, near_sum(first, x, second), rest...);
}
// (log(1 + f) - f) / f^2 where |f| <= 1 / 3.
TA_FN f32 rest_of_log(f32 f) {
    return polynomial(f, 0.14017713f, -0.15390305f, 0.13997769f, -0.16415577f, 0.2001103f,
                      -0.25007844f, 0.333332f, -0.49999934f);
}
#if TA_DEVICE
#include "device_math.h"
#else
#include "exponentials.h"
template <class R> TA_FN R m_exp(R x) { return own::exponential(x); }
template <class R> TA_FN R m_log(R x) { return own::logarithm(x); }
// From 20 on it is 1, to the last place; the library's vectors do infinities one by one.
TA_FN f32 m_tanh(f32 x) { return ::TA_LIBRARY(tanhf)(own::within(x, -20.f, 20.f)); }
TA_FN f64 m_tanh(f64 x) { return ::TA_LIBRARY(tanh)(own::within(x, -20.0, 20.0)); }
#endif

#if TA_OWN_TRIGONOMETRY
#include "trigonometry.h"
TA_FN f32 m_sin(f32 x) { return own::sine(x); }
TA_FN f64 m_sin(f64 x) { return own::sine(x); }
TA_FN f32 m_cos(f32 x) { return own::cosine(x); }
TA_FN f64 m_cos(f64 x) { return own::cosine(x); }
TA_FN f32 m_tan(f32 x) { return own::tangent(x); }
TA_FN f64 m_tan(f64 x) { return own::tangent(x); }
template <class R> TA_FN void m_sine_cosine(R x, R& sine, R& cosine) {
    own::sine_cosine(x, sine, cosine);
}
#else
template <class R> TA_FN void m_sine_cosine(R x, R& sine, R& cosine) {
    sine = m_sin(x);
    cosine = m_cos(x);
}
#endif
TA_FN bool m_signbit(f32 x) { return (bits_of(x) >> 31) != 0; }
TA_FN bool m_signbit(f64 x) { return (bits_of(x) >> 63) != 0; }
TA_FN f32 m_ldexp(f32 x, i32 n) { return ::ldexpf(x, n); }
TA_FN f64 m_ldexp(f64 x, i32 n) { return ::ldexp(x, n); }
template <class R, class I> TA_FN R m_ldexp(R x, I n) {
    return m_ldexp(x, (i32)(n > 100000 ? 100000 : n < -100000 ? -100000 : n));
}
template <class R> TA_FN R m_degrees(R x) { return x * (R)((R)180 / pi<R>); }
template <class R> TA_FN R m_radians(R x) { return x * (R)(pi<R> / (R)180); }
template <class R> TA_FN R m_heaviside(R x, R y) {
    return x != x ? x : x == 0 ? y : x < 0 ? (R)0 : (R)1;
}
template <class R> TA_FN R m_modf_fraction(R x) {
    return m_copysign(is_inf(x) ? (R)0 : x - m_trunc(x), x);
}

// Mantissa in [0.5, 1) and exponent; 0, infinities and NaN are their own mantissa, exponent 0.
TA_FN i32 exponent_field(f32 x) { return (i32)(bits_of(x) >> 23) & 0xff; }
TA_FN i32 exponent_field(f64 x) { return (i32)(bits_of(x) >> 52) & 0x7ff; }
template <class R> TA_FN R normalised(R x) {
    constexpr R scale = sizeof(R) == 4 ? (R)0x1p25 : (R)0x1p54;
    return exponent_field(x) == 0 ? x * scale : x;
}
template <class R> TA_FN i32 m_frexp_exponent(R x) {
    constexpr i32 shift = sizeof(R) == 4 ? 25 : 54, bias = sizeof(R) == 4 ? 126 : 1022;
    i32 exponent = exponent_field(normalised(x)) - bias - (exponent_field(x) == 0 ? shift : 0);
    return (x == 0) | !is_finite(x) ? 0 : exponent;
}
TA_FN f32 m_frexp_mantissa(f32 x) {
    f32 m = from_bits((bits_of(normalised(x)) & 0x807fffffu) | 0x3f000000u);
    return (x == 0) | !is_finite(x) ? x : m;
}
TA_FN f64 m_frexp_mantissa(f64 x) {
    f64 m = from_bits((bits_of(normalised(x)) & 0x800fffffffffffffull) | 0x3fe0000000000000ull);
    return (x == 0) | !is_finite(x) ? x : m;
}

// The bit patterns of one sign are ordered as the numbers are, so the neighbour is one away.
template <class U> TA_FN U next_bits(U x, U y, bool equal, bool up) {
    constexpr U sign = (U)1 << (8 * sizeof(U) - 1);
    U away = (U)(up == ((x & sign) == 0) ? x + 1 : x - 1);
    U from_zero = (U)((y & sign) | 1);
    return equal ? y : (x & (U)~sign) == 0 ? from_zero : away;
}
template <class R> TA_FN R m_nextafter(R x, R y) {
    R next = from_bits(next_bits(bits_of(x), bits_of(y), x == y, y > x));
    return (x != x) | (y != y) ? x + y : next;
}
template <class H> TA_FN H nextafter_half(H x, H y) {
    f32 a = widen(x), b = widen(y);
    u16 next = next_bits((u16)x, (u16)y, a == b, b > a);
    return (a != a) | (b != b) ? cast<H>(a + b) : (H)next;
}
TA_FN f16 m_nextafter(f16 x, f16 y) { return nextafter_half(x, y); }
TA_FN bf16 m_nextafter(bf16 x, bf16 y) { return nextafter_half(x, y); }
// Of zeros of two signs some versions of NumPy have the first for float16, C and the others the second.
TA_FN f16 m_nextafter_or_first(f16 x, f16 y) { return widen(x) == widen(y) ? x : m_nextafter(x, y); }
TA_FN bf16 m_nextafter_or_first(bf16 x, bf16 y) { return m_nextafter(x, y); }

// Distance to the neighbour further from zero; for float16 to the one above, as in NumPy.
template <class R> TA_FN R m_spacing(R x) {
    R next = from_bits((decltype(bits_of(x)))(bits_of(x) + 1));
    if (x == 0) return from_bits((decltype(bits_of(x)))1);  // of -0 as well
    return is_finite(x) ? next - x : quiet_nan<R>();
}
TA_FN bf16 m_spacing(bf16 x) {
    f32 a = widen(x), next = widen((bf16)((u16)x + 1));
    return cast<bf16>(is_finite(a) ? next - a : quiet_nan<f32>());
}
TA_FN f16 m_spacing(f16 x) {
    f32 a = widen(x), next = widen(m_nextafter(x, (f16)0x7c00));
    return cast<f16>(is_finite(a) ? next - a : quiet_nan<f32>());
}

template <class R> TA_FN R m_logaddexp(R x, R y) {
    R top = x > y ? x : y, gap = x - y;
    R sum = top + m_log1p(m_exp(-m_abs(gap)));
    return x == y ? x + ln2<R> : gap != gap ? gap : sum;
}
template <class R> TA_FN R m_logaddexp2(R x, R y) {
    R top = x > y ? x : y, gap = x - y;
    R sum = top + log2_e<R> * m_log1p(m_exp2(-m_abs(gap)));
    return x == y ? x + 1 : gap != gap ? gap : sum;
}

// ---- division: floor semantics, NumPy's values for zero divisors and overflow ----

#if TA_DEVICE
// A loop of many instructions: a copy at every use takes NVRTC seconds each.
__device__ __noinline__ f32 m_fmod(f32 x, f32 y) { return ::fmodf(x, y); }
__device__ __noinline__ f64 m_fmod(f64 x, f64 y) { return ::fmod(x, y); }
#else
TA_FN f32 m_fmod(f32 x, f32 y) { return ::fmodf(x, y); }
TA_FN f64 m_fmod(f64 x, f64 y) { return ::fmod(x, y); }
#endif

template <class R> TA_FN R real_remainder(R x, R y) {
    R mod = m_fmod(x, y);
    R moved = (y < 0) != (mod < 0) ? mod + y : mod;
    R floored = mod != 0 ? moved : m_copysign((R)0, y);
    return y == 0 ? mod : floored;
}
template <class R> TA_FN R real_floor_divide(R x, R y) {
    R mod = m_fmod(x, y);
    R ratio = (x - mod) / y;
    ratio = (mod != 0) & ((y < 0) != (mod < 0)) ? ratio - 1 : ratio;
    R floored = m_floor(ratio);
    floored = ratio - floored > (R)0.5 ? floored + 1 : floored;
    R zero = m_copysign((R)0, x / y);
    return y == 0 ? x / y : ratio != 0 ? floored : zero;
}

#ifdef __AVX512DQ__
#define TA_QUOTIENT_64 1  // vectors of i64 and f64 are converted by one instruction
#else
#define TA_QUOTIENT_64 0
#endif
// The first quotient is off by at most 2^12, that of its rest by one.
TA_FN i64 float_quotient(i64 x, i64 y) {
    const f64 divisor = (f64)y;
    i64 ratio = (i64)((f64)x / divisor);
    i64 rest = x - ratio * y;
    ratio += (i64)((f64)rest / divisor);
    rest = x - ratio * y;
    const i64 outward = (x ^ y) < 0 ? -1 : 1;
    const u64 size = y < 0 ? (u64)0 - (u64)y : (u64)y;
    const u64 left = rest < 0 ? (u64)0 - (u64)rest : (u64)rest;
    const bool opposite = (x ^ rest) < 0;
    const i64 more = (left >= size) & !opposite ? outward : 0;
    const i64 less = (rest != 0) & opposite ? outward : 0;
    return ratio + more - less;
}
// Quotient towards zero where it fits.  On the host through the float unit: up to 32 bits exact,
// because the quotient is further from the next integer than its rounding error, and vectorised,
// which integer division is not.
template <class I> TA_FN I quotient(I x, I y) {
#if !TA_DEVICE
    if constexpr (sizeof(I) <= 2) return (I)(i32)((f32)x / (f32)y);
    if constexpr (sizeof(I) == 4) return (I)((f64)x / (f64)y);
    if constexpr (TA_QUOTIENT_64 && sizeof(I) == 8 && is_signed<I>) return float_quotient(x, y);
#endif
    return (I)(x / y);
}
template <class I> TA_FN bool negative(I x) {
    if constexpr (is_signed<I>) return x < 0;
    else return false;
}
template <class I> TA_FN bool is_minus_one(I y) {
    if constexpr (is_signed<I>) return y == (I)-1;
    else return false;
}
template <class I> TA_FN I safe_divisor(I y) { return (y == 0) | is_minus_one(y) ? (I)1 : y; }
template <class I> TA_FN I wrapped_product(I x, I y) { return (I)((wide_of<I>)x * (wide_of<I>)y); }

template <class T> TA_FN T m_fmod(T x, T y) {
    T divisor = safe_divisor(y);
    return (T)(x - (T)(quotient(x, divisor) * divisor));
}
template <class T> TA_FN T m_remainder(T x, T y) {
    if constexpr (is_real<T>) return real_remainder(x, y);
    else {
        T rest = m_fmod(x, y);
        return (T)((rest != 0) & (negative(rest) != negative(y)) ? rest + y : rest);
    }
}
template <class T> TA_FN T m_floor_divide(T x, T y) {
    if constexpr (is_real<T>) return real_floor_divide(x, y);
    else {
        T divisor = safe_divisor(y);
        T ratio = quotient(x, divisor);
        T rest = (T)(x - (T)(ratio * divisor));
        T floored = (T)(ratio - ((rest != 0) & (negative(rest) != negative(divisor)) ? 1 : 0));
        // What was divided by 1 is x: 0 times for 0, -1 times for -1.
        return wrapped_product(floored, is_minus_one(y) | (y == 0) ? y : (T)1);
    }
}
template <class T> TA_FN T m_reciprocal(T x) {
    if constexpr (is_integer<T>) return cast<T>(1.0 / (f64)x);
    else return 1 / x;
}

// ---- integers: wraparound, and shifts past the width, as in NumPy ----

template <class T> TA_FN T m_add(T x, T y) { return (T)((wide_of<T>)x + (wide_of<T>)y); }
template <class T> TA_FN T m_subtract(T x, T y) { return (T)((wide_of<T>)x - (wide_of<T>)y); }
template <class T> TA_FN T m_multiply(T x, T y) { return (T)((wide_of<T>)x * (wide_of<T>)y); }
template <class T> TA_FN T m_negative(T x) {
    if constexpr (is_integer<T>) return (T)((wide_of<T>)0 - (wide_of<T>)x);
    else if constexpr (is_same<T, f32> || is_same<T, f64>) return negated(x);
    else return -x;
}
template <class T> TA_FN T m_square(T x) { return m_multiply(x, x); }
template <class T> TA_FN T m_abs(T x) {
    if constexpr (is_signed<T>) return x < 0 ? m_negative(x) : x;
    else return x;
}
template <class T> TA_FN T m_sign(T x) {
    if constexpr (is_unsigned<T>) return (T)(x != 0);
    else return x > 0 ? (T)1 : x < 0 ? (T)-1 : x == 0 ? (T)0 : x;
}
// By squaring.  A negative exponent is refused before: where there may be one, NumPy computes.
template <class T> TA_FN T m_power(T x, T n) {
    using W = wide_of<T>;
    W result = 1, base = (W)x, left = negative(n) ? (W)0 : (W)n;
    while (left != 0) {
        result *= left & 1 ? base : (W)1;
        base *= base;
        left >>= 1;
    }
    return negative(n) ? (T)0 : (T)result;
}
template <class T> TA_FN T m_left_shift(T x, T n) {
    constexpr T width = (T)(8 * sizeof(T));
    bool inside = !negative(n) & (n < width);
    return inside ? (T)((wide_of<T>)x << (inside ? n : (T)0)) : (T)0;
}
template <class T> TA_FN T m_right_shift(T x, T n) {
    constexpr T width = (T)(8 * sizeof(T));
    bool inside = !negative(n) & (n < width);
    return (T)(x >> (inside ? n : (T)(width - 1))) * (T)(inside | negative(x));
}
template <class T> TA_FN u64 magnitude(T x) {
    return negative(x) ? (u64)0 - (u64)x : (u64)x;
}
template <class T> TA_FN u8 m_bitwise_count(T x) {
    u64 b = magnitude(x);
    b -= (b >> 1) & 0x5555555555555555ull;
    b = (b & 0x3333333333333333ull) + ((b >> 2) & 0x3333333333333333ull);
    b = (b + (b >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (u8)((b * 0x0101010101010101ull) >> 56);
}
template <class T> TA_FN u64 greatest_divisor(T x, T y) {
    u64 a = magnitude(x), b = magnitude(y);
    while (b != 0) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
template <class T> TA_FN T m_gcd(T x, T y) { return (T)greatest_divisor(x, y); }
template <class T> TA_FN T m_lcm(T x, T y) {
    u64 common = greatest_divisor(x, y);
    return (T)(magnitude(x) / (common == 0 ? 1 : common) * magnitude(y));
}

// ---- comparison ----

template <class A, class B> TA_FN bool m_equal(A x, B y) {
    if constexpr (is_bool<A> && is_bool<B>) return bool_byte(x) == bool_byte(y);
    else if constexpr (is_signed<A> && is_unsigned<B>) return (x >= 0) & ((B)x == y);
    else if constexpr (is_unsigned<A> && is_signed<B>) return (y >= 0) & (x == (A)y);
    else return x == y;
}
template <class A, class B> TA_FN bool m_less(A x, B y) {
    if constexpr (is_bool<A> && is_bool<B>) return bool_byte(x) < bool_byte(y);
    else if constexpr (is_signed<A> && is_unsigned<B>) return (x < 0) | ((B)x < y);
    else if constexpr (is_unsigned<A> && is_signed<B>) return (y >= 0) & (x < (A)y);
    else return x < y;
}
template <class A, class B> TA_FN bool m_less_equal(A x, B y) {
    if constexpr (is_bool<A> && is_bool<B>) return bool_byte(x) <= bool_byte(y);
    else if constexpr (is_signed<A> && is_unsigned<B>) return (x < 0) | ((B)x <= y);
    else if constexpr (is_unsigned<A> && is_signed<B>) return (y >= 0) & (x <= (A)y);
    else return x <= y;
}

// One of two floats, on the host by its bits: of a chain of selects g++ 12 makes branches, and of
// these so many that it takes minutes.
template <class T> TA_FN T first_if(bool condition, T x, T y) {
    if constexpr (kind_of<T> == Kind::real && !TA_DEVICE) {
        using Bits = decltype(bits_of(x));
        const Bits first = (Bits)0 - (Bits)condition;
        return from_bits((Bits)((bits_of(x) & first) | (bits_of(y) & ~first)));
    }
    else return condition ? x : y;
}
// The first of two where it is the one, or a NaN has it so.  Two selects, one after the other: g++
// turns a select on an `or` of conditions into branches once two such are chained.  A macro, for of
// conditions that are arguments of a function it makes bytes.
#define TA_FIRST_OF_TWO(name, is_the_one, has_nan) \
    template <class T> TA_FN T name(T x, T y) {    \
        T chosen = is_the_one ? x : y;             \
        return first_if(has_nan, x, chosen);       \
    }
// These let NaN through,
TA_FIRST_OF_TWO(m_maximum, m_less(y, x), is_nan(x))
TA_FIRST_OF_TWO(m_minimum, m_less(x, y), is_nan(x))
// these too, and of equal ones take the first, as NumPy's for complex numbers and float16,
TA_FIRST_OF_TWO(m_first_maximum, m_less_equal(y, x), is_nan(x))
TA_FIRST_OF_TWO(m_first_minimum, m_less_equal(x, y), is_nan(x))
// and these drop NaN.
TA_FIRST_OF_TWO(m_fmax, m_less_equal(y, x), is_nan(y))
TA_FIRST_OF_TWO(m_fmin, m_less_equal(x, y), is_nan(y))
#undef TA_FIRST_OF_TWO
// Between limits that are constants: NumPy keeps what equals one (-0.0 and 0.0 do).
template <class T> TA_FN T m_clip(T x, T low, T high) {
    T raised = m_less(x, low) ? low : x;
    T between = m_less(high, raised) ? high : raised;
    T known = is_nan(high) ? high : between;
    return is_nan(low) ? low : known;
}
#if TA_DEVICE
TA_FN f32 m_maximum(f32 x, f32 y) {
    f32 r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
TA_FN f32 m_minimum(f32 x, f32 y) {
    f32 r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
#endif
// Both sides are evaluated before (a load under a condition does not vectorise), and the
// condition is read as a byte (nor does g++ 12 vectorise loads of bools otherwise).  Floats are
// chosen by their bits: of choices by one mask, or between what was computed, g++ 12 may make
// branches.
template <class T> TA_FN T m_where(bool condition, T x, T y) {
    if constexpr (is_bool<T>)
        return (bool_byte(condition) != 0 ? bool_byte(x) : bool_byte(y)) != 0;
    else if constexpr (is_complex<T>)  // part by part: no branch
        return T{m_where(condition, x.re, y.re), m_where(condition, x.im, y.im)};
    else if constexpr (kind_of<T> == Kind::real && !TA_DEVICE) {
        using Bits = decltype(bits_of(x));
        const Bits first = (Bits)0 - (Bits)(bool_byte(condition) != 0);
        return from_bits((Bits)((bits_of(x) & first) | (bits_of(y) & ~first)));
    }
    else return bool_byte(condition) != 0 ? x : y;
}

#if !TA_DEVICE
// By an exponent that is one number; without a branch, so that loops are vectors.
template <class R> TA_FN R m_power_constant(R x, R y) { return m_where(y == (R)0.5, m_sqrt(x), m_power(x, y)); }
#endif

// A product that is 0 where a factor is.  By its bits, without a bool on the way: half the time.
template <class R> TA_FN R m_scaled(R x, R y) {
    using Bits = decltype(bits_of(x));
    const Bits kept = (Bits)0 - (Bits)((x != (R)0) & (y != (R)0));
    return from_bits((Bits)(bits_of(x * y) & kept));
}

// ---- logic: on bytes, because g++ 12 does not vectorise it on bools that were loaded ----

TA_FN bool m_not(bool x) { return bool_byte(x) == 0; }
TA_FN bool m_and(bool x, bool y) { return (bool_byte(x) & bool_byte(y)) != 0; }
TA_FN bool m_or(bool x, bool y) { return (bool_byte(x) | bool_byte(y)) != 0; }
TA_FN bool m_xor(bool x, bool y) { return bool_byte(x) != bool_byte(y); }

template <class T> TA_FN bool m_isnan(T x) { return is_nan(x); }
template <class T> TA_FN bool m_isinf(T x) {
    if constexpr (is_complex<T>) return is_inf(x.re) | is_inf(x.im);
    else if constexpr (is_real<T>) return is_inf(x);
    else return false;
}
template <class T> TA_FN bool m_isfinite(T x) {
    if constexpr (is_complex<T>) return is_finite(x.re) & is_finite(x.im);
    else if constexpr (is_real<T>) return is_finite(x);
    else return true;
}

#include "complex_math.h"
