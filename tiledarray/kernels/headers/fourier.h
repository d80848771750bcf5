// Fourier transforms on tiles: one transform a team, in place, of a length with factors 2 ... 13.
//
// Where tiles lie and who takes part is said in matrices.h.  Stockham's algorithm: each pass makes
// butterflies of one radix and leaves the elements in order; with the radices r1 r2 ... and s
// the product of those before, butterfly (p, q), q < s, reads q + s p + (N / r) k and writes
// q + s (r p + k), k < r.  Both dialects have the butterflies below in common: a number is a
// struct of a real and an imaginary part, of vectors across problems on the host.
#pragma once
#ifdef __CUDACC__
#include "team.h"
#else
#include "lanes.h"
#endif

namespace fourier_parts {

// The real numbers of which a number Z is made, and a constant as one of Z's parts.
#ifdef __CUDACC__
#define TA_UNROLLED _Pragma("unroll")
template <class Z> using Real = part_of<Z>;
template <class Z> TA_FN Real<Z> spread(Real<Z> x) { return x; }
template <class P> TA_FN P multiply_add(P x, P y, P z) { return m_fma(x, y, z); }
#else
#define TA_UNROLLED _Pragma("GCC unroll 64")
template <class Z> using Real = typename Z::R;
template <class Z> TA_FN typename Z::V spread(Real<Z> x) { return x - typename Z::V{}; }
template <class P> TA_FN P multiply_add(P x, P y, P z) { return linear::fused(x, y, z); }
#endif

template <class R> struct alignas(2 * sizeof(R)) Root {
  R re, im;
};
// exp(2 pi i k / n), in double.
TA_FN constexpr Root<double> root_of_one(long long k, long long n) {
  const auto root = unit_root<double, i64>(k % n, n);
  return {root.re, root.im};
}
// The powers of a root of one of order N.
template <class R, int N> struct Roots {
  Root<R> at[N];
  constexpr Roots() : at() {
    for (int k = 0; k < N; ++k) {
      const Root<double> root = root_of_one(k, N);
      at[k] = {R(root.re), R(root.im)};
    }
  }
};

// ---- radices ----

struct Radices {
  int count, at[16];
};
constexpr int MOST_PRIME = 13;
// Of a length: powers of two of about the same size, none above `most`, and then odd primes.
constexpr Radices radices(int n, int most) {
  Radices found{0, {}};
  int bits = 0, highest = 0;
  for (; n % 2 == 0; n /= 2) ++bits;
  for (; (2 << highest) <= most; ++highest) {}
  for (int passes = (bits + highest - 1) / (highest ? highest : 1); passes > 0; --passes) {
    const int share = (bits + passes - 1) / passes;
    found.at[found.count++] = 1 << share;
    bits -= share;
  }
  for (int prime = 3; prime <= MOST_PRIME; prime += 2)
    for (; n % prime == 0; n /= prime) found.at[found.count++] = prime;
  if (n > 1) found.count = -1;
  return found;
}
constexpr int product_before(const Radices& all, int pass) {
  int product = 1;
  for (int k = 0; k < pass; ++k) product *= all.at[k];
  return product;
}

// ---- butterflies ----

template <class Z> TA_FN Z sum(const Z& x, const Z& y) { return Z{x.re + y.re, x.im + y.im}; }
template <class Z> TA_FN Z difference(const Z& x, const Z& y) {
  return Z{x.re - y.re, x.im - y.im};
}
// SIGN i x
template <int SIGN, class Z> TA_FN Z turned(const Z& x) {
  if constexpr (SIGN > 0) return Z{-x.im, x.re};
  else return Z{x.im, -x.re};
}
// Times a root, or its conjugate where SIGN is -1.
template <int SIGN, class Z, class R> TA_FN Z rotated(const Z& x, Root<R> by) {
  const auto re = spread<Z>(by.re), im = spread<Z>(by.im);
  if constexpr (SIGN > 0)
    return Z{multiply_add(-x.im, im, x.re * re), multiply_add(x.re, im, x.im * re)};
  else return Z{multiply_add(x.im, im, x.re * re), multiply_add(-x.re, im, x.im * re)};
}

template <int SIGN, class Z> TA_FN void butterfly(Z (&x)[2]) {
  const Z y = x[1];
  x[1] = difference(x[0], y);
  x[0] = sum(x[0], y);
}
template <int SIGN, class Z> TA_FN void butterfly(Z (&x)[4]) {
  const Z a = sum(x[0], x[2]), b = difference(x[0], x[2]);
  const Z c = sum(x[1], x[3]), d = turned<SIGN>(difference(x[1], x[3]));
  x[0] = sum(a, c);
  x[1] = sum(b, d);
  x[2] = difference(a, c);
  x[3] = difference(b, d);
}
// Of a power of two: FOUR columns of N / 4, rotated, then rows of four.
template <int SIGN, int N, class Z> TA_FN void butterfly(Z (&x)[N]) {
  using R = Real<Z>;
  if constexpr (N % 2 == 0) {
    constexpr int INNER = N == 8 ? 2 : 4, OUTER = N / INNER;
    constexpr Roots<R, N> roots;
    Z columns[INNER][OUTER];
    TA_UNROLLED for (int j = 0; j < INNER; ++j) {
      TA_UNROLLED for (int k = 0; k < OUTER; ++k) columns[j][k] = x[j + INNER * k];
      butterfly<SIGN>(columns[j]);
    }
    TA_UNROLLED for (int k = 0; k < OUTER; ++k) {
      Z row[INNER];
      TA_UNROLLED for (int j = 0; j < INNER; ++j) {
        if (j * k == 0) row[j] = columns[j][k];
        else if (4 * j * k == N) row[j] = turned<SIGN>(columns[j][k]);
        else if (8 * j * k == N || 8 * j * k == 3 * N) {  // an odd eighth of a turn
          const Z quarter = turned<SIGN>(columns[j][k]);
          const Z twice = 8 * j * k == N ? sum(columns[j][k], quarter)
                                         : difference(quarter, columns[j][k]);
          const auto half = spread<Z>(R(0.707106781186547524400844362104849039));
          row[j] = Z{twice.re * half, twice.im * half};
        } else row[j] = rotated<SIGN>(columns[j][k], roots.at[j * k]);
      }
      butterfly<SIGN>(row);
      TA_UNROLLED for (int j = 0; j < INNER; ++j) x[k + OUTER * j] = row[j];
    }
  } else {  // of an odd prime: elements k and N - k go together
    constexpr Roots<R, N> roots;
    constexpr int HALF = N / 2;
    Z even[HALF], odd[HALF], first = x[0];
    TA_UNROLLED for (int k = 0; k < HALF; ++k) {
      even[k] = sum(x[1 + k], x[N - 1 - k]);
      odd[k] = difference(x[1 + k], x[N - 1 - k]);
    }
    TA_UNROLLED for (int k = 0; k < HALF; ++k) x[0] = sum(x[0], even[k]);
    TA_UNROLLED for (int j = 1; j <= HALF; ++j) {
      Z real = first, turn{};
      TA_UNROLLED for (int k = 1; k <= HALF; ++k) {
        const auto c = spread<Z>(roots.at[j * k % N].re), s = spread<Z>(SIGN * roots.at[j * k % N].im);
        real.re = multiply_add(even[k - 1].re, c, real.re);
        real.im = multiply_add(even[k - 1].im, c, real.im);
        turn.re = multiply_add(-odd[k - 1].im, s, turn.re);
        turn.im = multiply_add(odd[k - 1].re, s, turn.im);
      }
      x[j] = sum(real, turn);
      x[N - j] = difference(real, turn);
    }
  }
}

}  // namespace fourier_parts

#ifdef __CUDACC__
#include "fourier_device.h"
#else
#include "fourier_host.h"
#endif
