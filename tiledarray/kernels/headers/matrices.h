// Dense linear algebra on tiles: one problem a team, on values that stay on chip.
//
// Host: Team<W> is one thread with W problems side by side; element e (row-major) of problem w lies
// at p[e * W + w].  Device: Team<G> is G threads with one problem; element (i, j) of a matrix lies
// at p[i * LD + j], in shared memory.  There every primitive waits for the team when it begins and
// when it ends, so all threads of the team must come to it, and of the warp where G < 32.
//
// TRANSPOSED says what stands for a matrix: 0 itself, 1 its transpose, 2 its conjugate transpose.
// `failed` (int[W] on the host, an int& with the same value in all threads of the team on the
// device) is 0 where nothing failed yet, else 1 + the column that failed first; what a primitive
// leaves of a problem that failed is not to be shown.  A NaN fails as little as in NumPy's LAPACK:
// it is in the result.
#pragma once
#include "tile.h"

namespace linear {

template <class T> TA_FN T conjugate(T x) {
  if constexpr (is_complex<T>) return T{x.re, -x.im};
  else return x;
}

// A determinant: factor 2^exponent, so that it does not leave the range on the way.  A pivot that
// is zero makes it zero whatever else there is, as NumPy has it of a singular matrix.
template <class T> struct Determinant {
  using R = part_of<T>;
  T factor = cast<T>((R)1);
  i32 exponent = 0;
  bool zero = false, negative = false;

  // Of what `lu` left, elements STEP apart.
  template <int N, int LD, int STEP> static TA_MEMBER Determinant of(const T* a, const int* pivots) {
    Determinant d;
    for (int k = 0; k < N; ++k) d.take(a[(k * LD + k) * STEP], pivots[k * STEP] != k);
    return d;
  }
  // The next element on the diagonal, and whether its row was exchanged.
  TA_MEMBER void take(T x, bool exchanged) {
    multiply(x);
    if (exchanged) {
      factor = -factor;
      negative = !negative;
    }
  }
  TA_MEMBER void multiply(T x) {
    if constexpr (is_complex<T>) zero |= (x.re == 0) & (x.im == 0);
    else {
      zero |= x == 0;
      negative ^= x < 0;
    }
    exponent += normalise(x);
    factor = factor * x;
    exponent += normalise(factor);
  }
  static TA_MEMBER i32 normalise(T& x) {
    if constexpr (is_complex<T>) {
      const R size = m_abs(x.re) > m_abs(x.im) ? m_abs(x.re) : m_abs(x.im);
      const i32 power = m_frexp_exponent(size);
      x = T{m_ldexp(x.re, -power), m_ldexp(x.im, -power)};
      return power;
    } else {
      const i32 power = m_frexp_exponent(x);
      x = m_frexp_mantissa(x);
      return power;
    }
  }
  TA_MEMBER T sign() const {  // of a NaN that of the numbers beside it, where they are real
    if (zero) return cast<T>((R)0);
    if constexpr (is_complex<T>) {
      const R size = m_abs(factor);
      return T{factor.re / size, factor.im / size};
    } else return negative ? (T)-1 : (T)1;
  }
  TA_MEMBER R log() const {
    return zero ? -infinity<R>() : m_log(m_abs(factor)) + (R)exponent * ln2<R>;
  }
  TA_MEMBER T value() const {
    if (zero) return cast<T>((R)0);
    if constexpr (is_complex<T>)
      return T{m_ldexp(factor.re, exponent), m_ldexp(factor.im, exponent)};
    else return m_ldexp(factor, exponent);
  }
};

}  // namespace linear

#ifdef __CUDACC__
#include "matrices_device.h"
#include "matrices_thread.h"
#else
#include "matrices_host.h"
#endif
