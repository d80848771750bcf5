// What scans combine, included by tile.h: Total is what is carried from one element to the next.
//
// On the host a total is an element, and elements are combined one after the other: NumPy's bits.
// On the device they are combined as a tree, so a total has more bits than an element where that
// costs little, and no product of some of them leaves its range.
#pragma once
#include "reductions.h"

template <class T> struct TotalOf { using type = T; };
#ifdef __CUDACC__
template <> struct TotalOf<f16> { using type = f32; };
template <> struct TotalOf<bf16> { using type = f32; };
template <> struct TotalOf<f32> { using type = f64; };
template <> struct TotalOf<c64> { using type = c128; };
#endif

// One float16 after the other: where the processor converts them, that is sooner done than what
// `widen` and `round_f16` do for many at once.
template <class T> TA_FN f32 one_widened(T x) {
#if !TA_DEVICE && defined(__F16C__) && defined(__FLT16_MANT_DIG__)
  if constexpr (is_same<T, f16>) return f32(__builtin_bit_cast(_Float16, x));
#endif
  return cast<f32>(x);
}
template <class T> TA_FN T one_rounded(f32 x) {
#if !TA_DEVICE && defined(__F16C__) && defined(__FLT16_MANT_DIG__)
  if constexpr (is_same<T, f16>) return __builtin_bit_cast(f16, (_Float16)x);
#endif
  return cast<T>(x);
}

// What changes nothing it is combined with: of sums of reals -0, for 0 would lose its sign.
template <class T> TA_FN T nothing_to_add() {
  if constexpr (is_complex<T>) return T{-part_of<T>(0), -part_of<T>(0)};
  else if constexpr (is_half<T>) return cast<T>(-0.f);
  else if constexpr (is_real<T>) return -T(0);
  else return T(0);
}

template <class T> struct RunningSum {
  using Total = typename TotalOf<T>::type;
  static constexpr bool starts = true;  // from `start`, as well as from the first element
  TA_MEMBER static Total start() { return nothing_to_add<Total>(); }
  TA_MEMBER static Total lift(T x) { return cast<Total>(x); }
  TA_MEMBER static Total join(Total x, Total y) {
    if constexpr (is_bool<Total>) return x | y;
    else if constexpr (is_half<Total>) return one_rounded<Total>(one_widened(x) + one_widened(y));
    else return m_add(x, y);
  }
  TA_MEMBER static T value(Total x) { return cast<T>(x); }
};

template <class T> struct PlainProduct {
  using Total = T;
  static constexpr bool starts = !is_complex<T>;  // infinities times 1 + 0i are NaN
  TA_MEMBER static Total start() { return cast<T>(1); }
  TA_MEMBER static Total lift(T x) { return x; }
  TA_MEMBER static Total join(Total x, Total y) {
    if constexpr (is_bool<T>) return x & y;
    else if constexpr (is_half<T>) return one_rounded<T>(one_widened(x) * one_widened(y));
    else return m_multiply(x, y);
  }
  TA_MEMBER static T value(Total x) { return x; }
};
#ifdef __CUDACC__
// A product of some elements may be too large or too small for the product up to there, which is
// neither: exponents are kept apart.
struct Scaled {
  f64 x;
  i64 exponent;
};
struct ScaledComplex {
  f64 re, im;
  i64 exponent;
};
TA_FN i64 exponent_of(f64 x) {  // such that x is below 2 to that; 0 for 0, infinities and NaN
  if (x == 0.0 || x - x != 0.0) return 0;
  int exponent;
  frexp(x, &exponent);
  return exponent;
}
TA_FN f64 scaled_by(f64 x, i64 exponent) {
  return scalbn(x, int(exponent < -4000 ? -4000 : exponent > 4000 ? 4000 : exponent));
}
TA_FN Scaled settled(f64 x, i64 exponent) {
  const i64 more = exponent_of(x);
  return Scaled{scaled_by(x, -more), exponent + more};
}
TA_FN ScaledComplex settled(f64 re, f64 im, i64 exponent) {
  const i64 a = re == 0.0 ? -100000 : exponent_of(re), b = im == 0.0 ? -100000 : exponent_of(im);
  const i64 more = re == 0.0 && im == 0.0 ? 0 : a > b ? a : b;
  return ScaledComplex{scaled_by(re, -more), scaled_by(im, -more), exponent + more};
}
template <class T> struct RealProduct {
  using Total = Scaled;
  static constexpr bool starts = true;
  TA_MEMBER static Total start() { return Scaled{1.0, 0}; }
  TA_MEMBER static Total lift(T x) { return settled(cast<f64>(x), 0); }
  TA_MEMBER static Total join(Total x, Total y) {
    return settled(x.x * y.x, x.exponent + y.exponent);
  }
  TA_MEMBER static T value(Total x) { return cast<T>(scaled_by(x.x, x.exponent)); }
};
template <class T> struct ComplexProduct {
  using Total = ScaledComplex;
  static constexpr bool starts = false;
  TA_MEMBER static Total start() { return ScaledComplex{1.0, 0.0, 0}; }
  TA_MEMBER static Total lift(T x) { return settled(x.re, x.im, 0); }
  TA_MEMBER static Total join(Total x, Total y) {
    const c128 z = m_multiply(c128{x.re, x.im}, c128{y.re, y.im});
    return settled(z.re, z.im, x.exponent + y.exponent);
  }
  TA_MEMBER static T value(Total x) {
    return cast<T>(c128{scaled_by(x.re, x.exponent), scaled_by(x.im, x.exponent)});
  }
};
template <class T> struct ProductOf { using type = PlainProduct<T>; };
template <> struct ProductOf<f16> { using type = RealProduct<f16>; };
template <> struct ProductOf<bf16> { using type = RealProduct<bf16>; };
template <> struct ProductOf<f32> { using type = RealProduct<f32>; };
template <> struct ProductOf<f64> { using type = RealProduct<f64>; };
template <> struct ProductOf<c64> { using type = ComplexProduct<c64>; };
template <> struct ProductOf<c128> { using type = ComplexProduct<c128>; };
template <class T> using RunningProduct = typename ProductOf<T>::type;
#else
template <class T> using RunningProduct = PlainProduct<T>;
#endif

struct Larger {
  template <class T> TA_MEMBER static T start() { return lowest<T>(); }
  template <class T> TA_MEMBER static T pick(T x, T y) {
    if constexpr (is_half<T>) return cast<T>(m_first_maximum(cast<f32>(x), cast<f32>(y)));
    else if constexpr (is_complex<T>) return m_first_maximum(x, y);
    else return m_maximum(x, y);
  }
};
struct Smaller {
  template <class T> TA_MEMBER static T start() { return highest<T>(); }
  template <class T> TA_MEMBER static T pick(T x, T y) {
    if constexpr (is_half<T>) return cast<T>(m_first_minimum(cast<f32>(x), cast<f32>(y)));
    else if constexpr (is_complex<T>) return m_first_minimum(x, y);
    else return m_minimum(x, y);
  }
};
struct Both {
  template <class T> TA_MEMBER static T start() { return is_bool<T> ? T(true) : T(~u64(0)); }
  template <class T> TA_MEMBER static T pick(T x, T y) { return T(x & y); }
};
struct Either {
  template <class T> TA_MEMBER static T start() { return T(0); }
  template <class T> TA_MEMBER static T pick(T x, T y) { return T(x | y); }
};
struct OneAlone {
  template <class T> TA_MEMBER static T start() { return T(0); }
  template <class T> TA_MEMBER static T pick(T x, T y) { return T(x ^ y); }
};
template <class T, class Pick> struct Picked {
  using Total = T;
  static constexpr bool starts = true;
  TA_MEMBER static Total start() { return Pick::template start<T>(); }
  TA_MEMBER static Total lift(T x) { return x; }
  TA_MEMBER static Total join(Total x, Total y) { return Pick::pick(x, y); }
  TA_MEMBER static T value(Total x) { return x; }
};
template <class T> using RunningMax = Picked<T, Larger>;
template <class T> using RunningMin = Picked<T, Smaller>;
template <class T> using RunningAnd = Picked<T, Both>;
template <class T> using RunningOr = Picked<T, Either>;
template <class T> using RunningXor = Picked<T, OneAlone>;

// V columns, each scanned by itself.
template <class R, class T, int V> struct ColumnScan {
  typename R::Total total[V];
  TA_MEMBER ColumnScan() {
    for (int v = 0; v < V; ++v) total[v] = R::start();
  }
  TA_MEMBER T next(int v, bool first, T x) {
    const typename R::Total own = R::lift(x);
    if constexpr (R::starts) total[v] = R::join(total[v], own);
    else total[v] = first ? own : R::join(total[v], own);
    return R::value(total[v]);
  }
};
