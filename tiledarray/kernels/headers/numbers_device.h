// Numbers and elements of tiles on the device; included by elimination_device.h.
#pragma once
#include "team.h"

namespace linear {

template <class T> TA_FN void add_product(T& sum, T x, T y) {
  if constexpr (is_complex<T>) {
    sum.re = m_fma(x.re, y.re, sum.re);
    sum.im = m_fma(x.re, y.im, sum.im);
    sum.re = m_fma(-x.im, y.im, sum.re);
    sum.im = m_fma(x.im, y.re, sum.im);
  } else sum = m_fma(x, y, sum);
}
template <class T> TA_FN void subtract_product(T& sum, T x, T y) { add_product(sum, -x, y); }
template <class T> TA_FN T multiplied(T x, T y) {
  if constexpr (is_complex<T>)
    return T{m_fma(-x.im, y.im, x.re * y.re), m_fma(x.re, y.im, x.im * y.re)};
  else return x * y;
}
template <class T> TA_FN T scaled(T x, part_of<T> by) {
  if constexpr (is_complex<T>) return T{x.re * by, x.im * by};
  else return x * by;
}
template <class T> TA_FN T inverse_of(T x) {
  if constexpr (is_complex<T>) return m_reciprocal(x);
  else return (T)1 / x;
}
template <class T> TA_FN part_of<T> real_of(T x) {
  if constexpr (is_complex<T>) return x.re;
  else return x;
}
template <class T> TA_FN bool is_zero(T x) {
  if constexpr (is_complex<T>) return (x.re == 0) & (x.im == 0);
  else return x == 0;
}
// As LAPACK compares pivots.
template <class T> TA_FN part_of<T> size_of(T x) {
  if constexpr (is_complex<T>) return m_abs(x.re) + m_abs(x.im);
  else return m_abs(x);
}
template <class T> TA_FN T number(part_of<T> x) {
  if constexpr (is_complex<T>) return T{x, 0};
  else return x;
}
template <class T> TA_FN void exchange_if(bool holds, T& a, T& b) {
  const T x = a, y = b;
  if constexpr (is_complex<T>) {
    a = T{holds ? y.re : x.re, holds ? y.im : x.im};
    b = T{holds ? x.re : y.re, holds ? x.im : y.im};
  } else {
    a = holds ? y : x;
    b = holds ? x : y;
  }
}
template <int TRANSPOSED, int LD, class T> TA_FN T element(const T* a, int i, int j) {
  if constexpr (TRANSPOSED == 0) return a[i * LD + j];
  else if constexpr (TRANSPOSED == 1) return a[j * LD + i];
  else return conjugate(a[j * LD + i]);
}
TA_FN void note(int& failed, bool fails, int column) {
  if (fails && failed == 0) failed = column + 1;
}

// sqrt(x) and its inverse, for x > 0 to an ulp or two; infinity has both as well.
template <class R> TA_FN void roots_of(R x, R& root, R& inverse) {
#if TA_DEVICE
  R near;
  if constexpr (sizeof(R) == 4) asm("rsqrt.approx.f32 %0, %1;" : "=f"(near) : "f"(x));
  else near = ::rsqrt(x);
  const R better = m_fma((R)0.5 * near, m_fma(-(x * near), near, (R)1), near);
  const R first = x * better, second = m_fma(m_fma(-first, first, x), (R)0.5 * better, first);
  inverse = x == infinity<R>() ? (R)0 : better;
  root = x == infinity<R>() ? x : second;
#else
  root = m_sqrt(x);
  inverse = 1 / root;
#endif
}

// Of a team within a warp: what another thread has.
template <int G, class T> TA_FN T from_rank(T x, int rank) {
  if constexpr (G == 1) return x;
  else return from_thread<G>(x, rank);
}

// Rows of a matrix in the registers of a team within a warp: slot r of a thread has row
// r G + rank.  Where only what is left of the diagonal counts, a slot has no column beyond its rows.
template <int N, int G, bool LOWER> constexpr int columns_of(int slot) {
  return LOWER && (slot + 1) * G < N ? (slot + 1) * G : N;
}
// Registers of 4 bytes that such rows take.
template <int N, int G, bool LOWER, class T> constexpr int registers_of() {
  int words = 0;
  for (int slot = 0; slot < (N + G - 1) / G; ++slot)
    words += columns_of<N, G, LOWER>(slot) * int(sizeof(T)) / 4;
  return words;
}
constexpr int MOST_UNROLLED = 32, MOST_REGISTERS = 160;
template <int N, int G, bool LOWER, class T>
constexpr bool in_registers =
    G <= 32 && N <= MOST_UNROLLED && registers_of<N, G, LOWER, T>() <= MOST_REGISTERS;
// So many steps of an elimination are one loop: unrolled, they would be too much text.
constexpr int PANEL = 8;

#define TA_UNROLL _Pragma("unroll")

}  // namespace linear
