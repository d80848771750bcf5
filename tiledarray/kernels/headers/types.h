// Scalar types of the kernels and the conversions between them, for g++ and NVRTC alike.
//
// No system header is included: NVRTC has none, and on the host this keeps a kernel's compile
// time in its own text.  float16 and bfloat16 are storage types: arithmetic widens to f32 and
// rounds the result, as NumPy does.
#pragma once

// g++ would move a const call that only one arm of a select needs into a branch, and the loop
// around it would stay scalar; and it would make two loops of a select on a scalar, with branches.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC_RTC__)
#pragma GCC optimize("no-tree-sink", "no-unswitch-loops")
#endif

#ifdef __CUDACC_RTC__
#define TA_DEVICE 1
#define TA_FN __device__ __forceinline__
#else
#define TA_DEVICE 0
#define TA_FN static inline __attribute__((always_inline))
#endif

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;
enum class f16 : u16 {};   // scalars, not structs: a struct declared in a simd loop stops
enum class bf16 : u16 {};  // its vectorisation
template <class R> struct alignas(sizeof(R)) Complex {
    R re, im;
#ifndef __CUDACC__
    // Part by part: loops that assign the whole do not vectorise.
    inline __attribute__((always_inline)) Complex& operator=(const Complex& x) {
        re = x.re;
        im = x.im;
        return *this;
    }
#endif
};
using c64 = Complex<f32>;
using c128 = Complex<f64>;

// ---- traits ----

enum class Kind { boolean, signed_integer, unsigned_integer, half, real, complex };

// kind: which family; wide: the type in which wrapping arithmetic is done; part: of a complex.
template <class T> struct Type;
#define TA_TYPE(TYPE, KIND, WIDE, PART) \
    template <> struct Type<TYPE> { \
        static constexpr Kind kind = Kind::KIND; using wide = WIDE; using part = PART; };
TA_TYPE(bool, boolean, u32, bool)
TA_TYPE(i8, signed_integer, u32, i8)
TA_TYPE(i16, signed_integer, u32, i16)
TA_TYPE(i32, signed_integer, u32, i32)
TA_TYPE(long, signed_integer, u64, long)
TA_TYPE(i64, signed_integer, u64, i64)
TA_TYPE(char, signed_integer, u32, char)
TA_TYPE(u8, unsigned_integer, u32, u8)
TA_TYPE(u16, unsigned_integer, u32, u16)
TA_TYPE(u32, unsigned_integer, u32, u32)
TA_TYPE(unsigned long, unsigned_integer, u64, unsigned long)
TA_TYPE(u64, unsigned_integer, u64, u64)
TA_TYPE(f16, half, f32, f16)
TA_TYPE(bf16, half, f32, bf16)
TA_TYPE(f32, real, f32, f32)
TA_TYPE(f64, real, f64, f64)
TA_TYPE(c64, complex, c64, f32)
TA_TYPE(c128, complex, c128, f64)
#undef TA_TYPE

template <class T> using wide_of = typename Type<T>::wide;
template <class T> using part_of = typename Type<T>::part;
template <class T> constexpr Kind kind_of = Type<T>::kind;
template <class T> constexpr bool is_signed = kind_of<T> == Kind::signed_integer;
template <class T> constexpr bool is_unsigned = kind_of<T> == Kind::unsigned_integer;
template <class T> constexpr bool is_integer = is_signed<T> || is_unsigned<T>;
template <class T> constexpr bool is_bool = kind_of<T> == Kind::boolean;
template <class T> constexpr bool is_half = kind_of<T> == Kind::half;
template <class T> constexpr bool is_real = kind_of<T> == Kind::real;
template <class T> constexpr bool is_complex = kind_of<T> == Kind::complex;
template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

// ---- bits ----

TA_FN u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
TA_FN u64 bits_of(f64 x) { return __builtin_bit_cast(u64, x); }
TA_FN f32 from_bits(u32 x) { return __builtin_bit_cast(f32, x); }
TA_FN f64 from_bits(u64 x) { return __builtin_bit_cast(f64, x); }
template <class T, class X> TA_FN T m_bits(X x) { return __builtin_bit_cast(T, x); }

// g++ makes of -(x y + z), rounded once, -x y - z, whose zero has the other sign where the sum
// cancels.  Bits it leaves alone.
#if defined(__GNUC__) && !defined(__clang__) && !TA_DEVICE
TA_FN f32 negated(f32 x) { return from_bits(bits_of(x) ^ 0x80000000u); }
TA_FN f64 negated(f64 x) { return from_bits(bits_of(x) ^ 0x8000000000000000ull); }
#else
TA_FN f32 negated(f32 x) { return -x; }
TA_FN f64 negated(f64 x) { return -x; }
#endif

TA_FN u8 bool_byte(bool x) { return __builtin_bit_cast(u8, x); }

template <class T> TA_FN T infinity() {
    if constexpr (sizeof(T) == 4) return from_bits(0x7f800000u);
    else return from_bits(0x7ff0000000000000ull);
}
template <class T> TA_FN T quiet_nan() {
    if constexpr (sizeof(T) == 4) return from_bits(0x7fc00000u);
    else return from_bits(0x7ff8000000000000ull);
}

// ---- float16 and bfloat16 ----

#if TA_DEVICE
TA_FN f32 widen(f16 x) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)x)); return r; }
TA_FN f16 round_f16(f32 x) {
    u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return (f16)r;
}
TA_FN f16 round_f16(f64 x) {
    u16 r; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x)); return (f16)r;
}
#else
// The two float conversions without a branch, so that loops over them vectorise: scaling by a
// power of two lets the float unit do the exponent and the rounding (M. Dukhan, FP16 library).
TA_FN f32 widen(f16 x) {
    u32 word = (u32)x << 16;
    u32 twice = word + word;
    f32 normal = from_bits((twice >> 4) + (0xe0u << 23)) * 0x1.0p-112f;
    f32 denormal = from_bits((twice >> 17) | (126u << 23)) - 0.5f;
    return from_bits((word & 0x80000000u) | bits_of(twice < (1u << 27) ? denormal : normal));
}
TA_FN f16 round_f16(f32 x) {
    u32 word = bits_of(x);
    u32 twice = word + word;
    f32 base = (from_bits(word & 0x7fffffffu) * 0x1.0p+112f) * 0x1.0p-110f;
    u32 bias = twice & 0xff000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    u32 sum = bits_of(from_bits((bias >> 1) + 0x07800000u) + base);
    u32 finite = ((sum >> 13) & 0x7c00u) + (sum & 0xfffu);
    return (f16)(((word & 0x80000000u) >> 16) | (twice > 0xff000000u ? 0x7e00u : finite));
}
// Rounding first to odd makes the second rounding that of the exact value.
TA_FN f16 round_f16(f64 x) {
    f32 near = (f32)x;
    f64 back = (f64)near;
    f64 size = from_bits(bits_of(x) & 0x7fffffffffffffffull);
    f64 back_size = from_bits(bits_of(back) & 0x7fffffffffffffffull);
    u32 down = bits_of(near) - (back_size > size ? 1u : 0u);
    return round_f16(from_bits(back == x || x != x ? bits_of(near) : down | 1u));
}
#endif

TA_FN f32 widen(bf16 x) { return from_bits((u32)x << 16); }
#if TA_DEVICE
TA_FN bf16 round_bf16(f32 x) {
    u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return (bf16)r;
}
#else
TA_FN bf16 round_bf16(f32 x) {
    u32 word = bits_of(x);
    u32 rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    return (bf16)(x != x ? ((word >> 16) & 0x8000u) | 0x7fc0u : rounded);
}
#endif
TA_FN bf16 round_bf16(f64 x) { return round_bf16((f32)x); }

// ---- casts ----

// Out of range (undefined in C++) gives what NumPy gives on x86: the smallest integer of the
// 32- or 64-bit conversion instruction, cut to the width asked for.
template <class R> TA_FN i32 truncate_to_i32(R x) {
    bool fits = (x >= (R)-0x1p31) & (x < (R)0x1p31);
    return fits ? (i32)(fits ? x : (R)0) : (i32)0x80000000u;
}
template <class R> TA_FN i64 truncate_to_i64(R x) {
    bool fits = (x >= (R)-0x1p63) & (x < (R)0x1p63);
    return fits ? (i64)(fits ? x : (R)0) : (i64)0x8000000000000000ull;
}
template <class To, class R> TA_FN To truncate(R x) {
    if constexpr (sizeof(To) < 4 || (sizeof(To) == 4 && is_signed<To>))
        return (To)truncate_to_i32(x);
    else if constexpr (sizeof(To) == 4 || is_signed<To>)
        return (To)truncate_to_i64(x);
    else {
        bool upper = x >= (R)0x1p63;
        u64 low = (u64)truncate_to_i64(upper ? x - (R)0x1p63 : x);
        return (To)(low ^ (upper ? 0x8000000000000000ull : 0ull));
    }
}

// An integer as a real number.  GCC takes `(double)(long)x` for `trunc(x)`, which may be -0.
template <class R, class I> TA_FN R real_of(I x) {
  const R y = (R)x;
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDA_ARCH__)
  using Bits = decltype(bits_of(y));
  const Bits bits = bits_of(y), is_other = bits != bits_of((R)-0.0);
  return from_bits((Bits)(bits & (Bits)(0 - is_other)));
#else
  return y;
#endif
}

// The value converted as NumPy's astype does; a complex number loses its imaginary part.
template <class To, class From> TA_FN To cast(From x) {
    if constexpr (is_bool<To> && is_bool<From>) return bool_byte(x) != 0;
    else if constexpr (is_same<To, From>) return x;
    else if constexpr (is_bool<From>) return cast<To>(bool_byte(x));
    else if constexpr (is_complex<From> && is_bool<To>) return (x.re != 0) | (x.im != 0);
    else if constexpr (is_complex<From> && is_complex<To>)
        return To{(part_of<To>)x.re, (part_of<To>)x.im};
    else if constexpr (is_complex<From>) return cast<To>(x.re);
    else if constexpr (is_complex<To>) return To{cast<part_of<To>>(x), 0};
    else if constexpr (is_half<From>) return cast<To>(widen(x));
    else if constexpr (is_bool<To>) return x != 0;
    else if constexpr (is_half<To>) {
        if constexpr (is_same<From, f64> && is_same<To, f16>) return round_f16(x);
        else if constexpr (is_same<To, f16>) return round_f16(cast<f32>(x));
        else return round_bf16(cast<f32>(x));
    }
    else if constexpr (is_real<From> && is_integer<To>) return truncate<To>(x);
    else if constexpr (is_signed<From> && is_real<To>) return real_of<To>(x);
    else return (To)x;
}

// ---- limits: what every value is at least and at most, infinities included ----

template <class T> TA_FN T highest() {
    if constexpr (is_bool<T>) return true;
    else if constexpr (is_signed<T>) return (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1);
    else if constexpr (is_unsigned<T>) return (T)~(u64)0;
    else if constexpr (is_half<T>) return cast<T>(infinity<f32>());
    else if constexpr (is_complex<T>) return T{infinity<part_of<T>>(), infinity<part_of<T>>()};
    else return infinity<T>();
}
template <class T> TA_FN T lowest() {
    if constexpr (is_bool<T>) return false;
    else if constexpr (is_signed<T>) return (T)((u64)1 << (8 * sizeof(T) - 1));
    else if constexpr (is_unsigned<T>) return (T)0;
    else if constexpr (is_half<T>) return cast<T>(-infinity<f32>());
    else if constexpr (is_complex<T>) return T{-infinity<part_of<T>>(), -infinity<part_of<T>>()};
    else return -infinity<T>();
}

template <class T> TA_FN bool is_nan(T x) {
    if constexpr (is_complex<T>) return (x.re != x.re) | (x.im != x.im);
    else if constexpr (is_half<T>) return widen(x) != widen(x);
    else if constexpr (is_real<T>) return x != x;
    else return false;
}
