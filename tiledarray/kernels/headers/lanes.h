// Vectors across problems, on the host: element e of W problems side by side, as the compiler's own
// vector types, so that blocks of them stay in registers.  A complex one is two vectors.
#pragma once
#include "tile.h"

template <int W> struct Team {};  // one thread, with W problems

namespace linear {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int VECTOR_BYTES = 16, REGISTERS = 32;
#else
constexpr int VECTOR_BYTES = 16, REGISTERS = 16;
#endif

}  // namespace linear

#include "packing.h"

namespace linear {

template <class R, int L> struct VectorType {
  typedef R type __attribute__((vector_size(L * sizeof(R))));
  typedef R in_memory __attribute__((vector_size(L * sizeof(R)), aligned(sizeof(R)), may_alias));
};
template <class R, int L> using Vec = typename VectorType<R, L>::type;
// Not by memcpy: g++ makes wide integers of that, which do not stay in vector registers.
template <class R, int L> TA_FN Vec<R, L> load_vector(const void* from) {
  return *static_cast<const typename VectorType<R, L>::in_memory*>(from);
}
template <class R, int L> TA_FN void store_vector(void* to, Vec<R, L> x) {
  *static_cast<typename VectorType<R, L>::in_memory*>(to) = x;
}
// g++ would rather read an operand from memory each time that it is used.
template <class V> TA_FN void keep_in_register(V& x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#endif
}
// What a comparison gives: all bits set where it holds.
template <class R, int L>
using Mask = decltype(Vec<R, L>() < Vec<R, L>());

// a b + c, rounded once where the processor can.
template <class V> TA_FN V fused(V a, V b, V c) {
#if defined(__clang__)
#pragma clang fp contract(fast)
  return a * b + c;
#else
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64 && sizeof(a[0]) == 4)
    return (V)__builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
  else if constexpr (sizeof(V) == 64)
    return (V)__builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4);
  else
#endif
#if defined(__FMA__)
  if constexpr (sizeof(V) == 32 && sizeof(a[0]) == 4) return (V)__builtin_ia32_vfmaddps256(a, b, c);
  else if constexpr (sizeof(V) == 32) return (V)__builtin_ia32_vfmaddpd256(a, b, c);
  else if constexpr (sizeof(V) == 16 && sizeof(a[0]) == 4)
    return (V)__builtin_ia32_vfmaddps(a, b, c);
  else if constexpr (sizeof(V) == 16) return (V)__builtin_ia32_vfmaddpd(a, b, c);
  else
#endif
    return a * b + c;
#endif
}

// L problems' numbers of type T.
template <class T, int L> struct Lanes {
  using R = part_of<T>;
  using V = Vec<R, L>;
  V re;

  static TA_MEMBER Lanes load(const T* from) {
    return Lanes{load_vector<R, L>(from)};
  }
  TA_MEMBER void store(T* to) const { store_vector<R, L>(to, re); }
  static TA_MEMBER Lanes all(R value) { return Lanes{value - V{}}; }
  TA_MEMBER Lanes operator-() const { return Lanes{-re}; }
  TA_MEMBER Lanes operator+(Lanes y) const { return Lanes{re + y.re}; }
  TA_MEMBER Lanes operator-(Lanes y) const { return Lanes{re - y.re}; }
  TA_MEMBER Lanes operator*(Lanes y) const { return Lanes{re * y.re}; }
  TA_MEMBER Lanes scaled(V by) const { return Lanes{re * by}; }
  TA_MEMBER Lanes conjugate() const { return *this; }
  TA_MEMBER Lanes inverse() const { return Lanes{(R)1 / re}; }
  TA_MEMBER void keep() { keep_in_register(re); }
  TA_MEMBER auto is_zero() const { return re == 0; }
  TA_MEMBER auto is_real() const { return re == re; }
  TA_MEMBER void set_real(V x) { re = x; }
  TA_MEMBER Lanes where(Mask<R, L> mask, Lanes other) const { return {mask ? re : other.re}; }
  // this + x y and this - x y.
  TA_MEMBER void add_product(Lanes x, Lanes y) { re = fused(x.re, y.re, re); }
  TA_MEMBER void subtract_product(Lanes x, Lanes y) { re = fused(-x.re, y.re, re); }
  TA_MEMBER V size() const { return re < 0 ? -re : re; }  // as LAPACK compares pivots
};

template <class Part, int L> struct Lanes<Complex<Part>, L> {
  using R = Part;
  using T = Complex<R>;
  using V = Vec<R, L>;
  V re, im;

  template <int... I> static TA_MEMBER Lanes parted(V low, V high, Numbers<I...>) {
    return Lanes{__builtin_shufflevector(low, high, (2 * I)...),
                 __builtin_shufflevector(low, high, (2 * I + 1)...)};
  }
  template <int... I> TA_MEMBER void join(V& low, V& high, Numbers<I...>) const {
    low = __builtin_shufflevector(re, im, (I % 2 * L + I / 2)...);
    high = __builtin_shufflevector(re, im, (I % 2 * L + I / 2 + L / 2)...);
  }
  static TA_MEMBER Lanes load(const T* from) {
    return parted(load_vector<R, L>(from), load_vector<R, L>((const char*)from + sizeof(V)),
                  typename Counting<L>::type());
  }
  TA_MEMBER void store(T* to) const {
    V low, high;
    join(low, high, typename Counting<L>::type());
    store_vector<R, L>(to, low);
    store_vector<R, L>((char*)to + sizeof(V), high);
  }
  static TA_MEMBER Lanes all(R value) { return Lanes{value - V{}, V{}}; }
  TA_MEMBER Lanes operator-() const { return Lanes{-re, -im}; }
  TA_MEMBER Lanes operator+(Lanes y) const { return Lanes{re + y.re, im + y.im}; }
  TA_MEMBER Lanes operator-(Lanes y) const { return Lanes{re - y.re, im - y.im}; }
  TA_MEMBER Lanes operator*(Lanes y) const {
    return Lanes{fused(-im, y.im, re * y.re), fused(re, y.im, im * y.re)};
  }
  TA_MEMBER Lanes scaled(V by) const { return Lanes{re * by, im * by}; }
  TA_MEMBER Lanes conjugate() const { return Lanes{re, -im}; }
  // R. L. Smith's algorithm (1962), so that squares do not overflow.
  TA_MEMBER Lanes inverse() const {
    const auto wide = (re < 0 ? -re : re) >= (im < 0 ? -im : im);
    const V large = wide ? re : im, small = wide ? im : re;
    const V ratio = small / large, scale = (R)1 / (large + small * ratio);
    return Lanes{wide ? scale : ratio * scale, wide ? -ratio * scale : -scale};
  }
  TA_MEMBER void keep() {
    keep_in_register(re);
    keep_in_register(im);
  }
  TA_MEMBER auto is_zero() const { return (re == 0) & (im == 0); }
  TA_MEMBER auto is_real() const { return im == 0; }
  TA_MEMBER void set_real(V x) {
    re = x;
    im = V{};
  }
  TA_MEMBER Lanes where(Mask<R, L> mask, Lanes other) const {
    return {mask ? re : other.re, mask ? im : other.im};
  }
  TA_MEMBER void add_product(Lanes x, Lanes y) {
    re = fused(x.re, y.re, re);
    im = fused(x.re, y.im, im);
    re = fused(-x.im, y.im, re);
    im = fused(x.im, y.re, im);
  }
  TA_MEMBER void subtract_product(Lanes x, Lanes y) { add_product(-x, y); }
  TA_MEMBER V size() const { return (re < 0 ? -re : re) + (im < 0 ? -im : im); }
};

// How many of W problems go into a vector.
template <class T, int W>
constexpr int WIDTH = W < VECTOR_BYTES / int(sizeof(part_of<T>))
                          ? W : VECTOR_BYTES / int(sizeof(part_of<T>));

template <class V> TA_FN V root(V x) {
  V r;
  for (unsigned k = 0; k < sizeof(V) / sizeof(x[0]); ++k) r[k] = m_sqrt(x[k]);
  return r;
}

// The columns where problems failed first, kept as numbers beside the vectors they belong to.
template <class T, int L> struct Failures {
  using R = part_of<T>;
  Vec<R, L> first{};
  TA_MEMBER void note(Mask<R, L> fails, int column) {
    first = (first == 0) & fails ? (R)(column + 1) - Vec<R, L>{} : first;
  }
  TA_MEMBER void leave(int* failed) const {
    for (int w = 0; w < L; ++w) failed[w] = failed[w] ? failed[w] : (int)first[w];
  }
};

}  // namespace linear
