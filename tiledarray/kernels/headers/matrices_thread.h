// Dense linear algebra of small matrices on the device, a problem a thread; included by matrices.h.
//
// The primitives are those of matrices.h.  An operand is an array of the thread's own, which lies in
// registers since everything is unrolled, or a pointer to a tile in shared memory.
#pragma once
#include "elimination_device.h"

namespace thread {

using namespace linear;

template <class T> T element_of(const T*);
template <class A> constexpr bool is_pointer = false;
template <class T> constexpr bool is_pointer<T*> = true;
template <class T> constexpr bool is_pointer<T* const> = true;
#define TA_ELEMENT(array) decltype(element_of(array))

template <int N, int LDL, int LDA, class L, class A>
TA_FN void cholesky(const Team<1>&, L& l, const A& a, int& failed) {
  using T = TA_ELEMENT(a);
  T x[N][N];
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j <= i; ++j) x[i][j] = a[i * LDA + j];
  TA_UNROLL for (int k = 0; k < N; ++k) {
    part_of<T> size, inverse;
    note(failed, real_of(x[k][k]) <= 0, k);
    roots_of(real_of(x[k][k]), size, inverse);
    x[k][k] = number<T>(size);
    TA_UNROLL for (int i = k + 1; i < N; ++i) x[i][k] = scaled(x[i][k], inverse);
    TA_UNROLL for (int j = k + 1; j < N; ++j)
      TA_UNROLL for (int i = j; i < N; ++i)
        subtract_product(x[i][j], x[i][k], conjugate(x[j][k]));
  }
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) l[i * LDL + j] = j <= i ? x[i][j] : number<T>(0);
}

template <int N, int M, int LDX, int LDA, bool LOWER, int TRANSPOSED, bool UNIT, class X, class A>
TA_FN void triangular(const Team<1>&, X& x, const A& a, int& failed) {
  using T = TA_ELEMENT(x);
  constexpr bool FORWARD = LOWER == (TRANSPOSED == 0);
  T inverse[N];
  if constexpr (!UNIT) {
    TA_UNROLL for (int k = 0; k < N; ++k) {
      const T pivot = element<TRANSPOSED, LDA>(a, k, k);
      note(failed, is_zero(pivot), k);
      inverse[k] = inverse_of(pivot);
    }
  }
  TA_UNROLL for (int c = 0; c < M; ++c) {
    T b[N];
    TA_UNROLL for (int k = 0; k < N; ++k) b[k] = x[k * LDX + c];
    TA_UNROLL for (int step = 0; step < N; ++step) {
      const int k = FORWARD ? step : N - 1 - step;
      if constexpr (!UNIT) b[k] = multiplied(b[k], inverse[k]);
      TA_UNROLL for (int i = FORWARD ? k + 1 : 0; i < (FORWARD ? N : k); ++i)
        subtract_product(b[i], element<TRANSPOSED, LDA>(a, i, k), b[k]);
    }
    TA_UNROLL for (int k = 0; k < N; ++k) x[k * LDX + c] = b[k];
  }
}

// What is summed over is a loop where no operand is in registers.
template <int M, int N, int K, int LDC, int LDA, int LDB, int TRANS_A, int TRANS_B,
          bool HERMITIAN = false, class C, class A, class B>
TA_FN void product(const Team<1>&, C& c, const A& a, const B& b) {
  using T = TA_ELEMENT(c);
  T sum[M][N];
  TA_UNROLL for (int i = 0; i < M; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = number<T>(0);
  const auto add = [&](int k) {
    T x[M], y[N];
    TA_UNROLL for (int i = 0; i < M; ++i) x[i] = element<TRANS_A, LDA>(a, i, k);
    TA_UNROLL for (int j = 0; j < N; ++j) y[j] = element<TRANS_B, LDB>(b, k, j);
    TA_UNROLL for (int i = 0; i < M; ++i)
      TA_UNROLL for (int j = 0; j < (HERMITIAN ? i + 1 : N); ++j) add_product(sum[i][j], x[i], y[j]);
  };
  if constexpr (is_pointer<A> && is_pointer<B>) {
    _Pragma("unroll 2") for (int k = 0; k < K; ++k) add(k);
  } else {
    TA_UNROLL for (int k = 0; k < K; ++k) add(k);
  }
  TA_UNROLL for (int i = 0; i < M; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) {
      if constexpr (HERMITIAN) c[i * LDC + j] = j > i ? conjugate(sum[j][i]) : sum[i][j];
      else c[i * LDC + j] = sum[i][j];
    }
}

// L and U of a symmetric matrix in place of it, from its lower triangle, if all pivots are positive;
// else it stays as it is.
template <int N, int LD, class A, class P> TA_FN bool is_definite(A& a, P& pivots) {
  using T = TA_ELEMENT(a);
  T x[N][N];
  bool definite = true;
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j <= i; ++j) x[i][j] = a[i * LD + j];
  TA_UNROLL for (int k = 0; k < N; ++k) {
    definite &= x[k][k] > 0 && x[k][k] < infinity<T>();
    const T inverse = inverse_of(x[k][k]);
    TA_UNROLL for (int j = k + 1; j < N; ++j) {
      x[k][j] = x[j][k];
      x[j][k] = x[j][k] * inverse;
    }
    TA_UNROLL for (int j = k + 1; j < N; ++j)
      TA_UNROLL for (int i = j; i < N; ++i) subtract_product(x[i][j], x[i][k], x[k][j]);
  }
  if (definite) {
    TA_UNROLL for (int i = 0; i < N; ++i) {
      pivots[i] = i;
      TA_UNROLL for (int j = 0; j < N; ++j) a[i * LD + j] = x[i][j];
    }
  }
  return definite;
}

// Rows to the left of a pivot stay where they are when it is exchanged, as `lu_solve` expects.
// A SYMMETRIC one is not exchanged where it turns out definite.
template <int N, int LD, bool SYMMETRIC = false, class A, class P>
TA_FN void lu(const Team<1>&, A& a, P& pivots, int& failed) {
  using T = TA_ELEMENT(a);
  if constexpr (SYMMETRIC)
    if (is_definite<N, LD>(a, pivots)) return;
  T x[N][N];
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) x[i][j] = a[i * LD + j];
  TA_UNROLL for (int k = 0; k < N; ++k) {
    int row = k;
    auto size = pivot_size(x[k][k]);
    TA_UNROLL for (int i = k + 1; i < N; ++i) {
      const auto here = pivot_size(x[i][k]);
      row = here > size ? i : row;
      size = here > size ? here : size;
    }
    pivots[k] = row;
    TA_UNROLL for (int i = k + 1; i < N; ++i)
      TA_UNROLL for (int j = k; j < N; ++j) exchange_if(row == i, x[k][j], x[i][j]);
    const bool zero = is_zero(x[k][k]);
    note(failed, zero, k);
    const T inverse = zero ? number<T>(1) : inverse_of(x[k][k]);
    TA_UNROLL for (int i = k + 1; i < N; ++i) {
      x[i][k] = multiplied(x[i][k], inverse);
      TA_UNROLL for (int j = k + 1; j < N; ++j) subtract_product(x[i][j], x[i][k], x[k][j]);
    }
  }
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) a[i * LD + j] = x[i][j];
}

template <int N, int M, int LDX, int LDA, class X, class A, class P>
TA_FN void lu_solve(const Team<1>&, X& x, const A& a, const P& pivots) {
  using T = TA_ELEMENT(x);
  T inverse[N];
  TA_UNROLL for (int k = 0; k < N; ++k) inverse[k] = inverse_of(a[k * LDA + k]);
  TA_UNROLL for (int c = 0; c < M; ++c) {
    T b[N];
    TA_UNROLL for (int k = 0; k < N; ++k) b[k] = x[k * LDX + c];
    TA_UNROLL for (int k = 0; k < N; ++k) {
      if (__any_sync(0xffffffffu, pivots[k] != k))
        TA_UNROLL for (int i = k + 1; i < N; ++i) exchange_if(pivots[k] == i, b[k], b[i]);
      TA_UNROLL for (int i = k + 1; i < N; ++i) subtract_product(b[i], a[i * LDA + k], b[k]);
    }
    TA_UNROLL for (int k = N - 1; k >= 0; --k) {
      b[k] = multiplied(b[k], inverse[k]);
      TA_UNROLL for (int i = 0; i < k; ++i) subtract_product(b[i], a[i * LDA + k], b[k]);
    }
    TA_UNROLL for (int k = 0; k < N; ++k) x[k * LDX + c] = b[k];
  }
}

template <int N, int LD, class S, class R, class A, class P>
TA_FN void slogdet(const Team<1>&, S& sign, R& log, const A& a, const P& pivots) {
  Determinant<TA_ELEMENT(a)> found;
  TA_UNROLL for (int k = 0; k < N; ++k) found.take(a[k * LD + k], pivots[k] != k);
  sign[0] = found.sign();
  log[0] = found.log();
}
template <int N, int LD, class V, class A, class P>
TA_FN void determinant(const Team<1>&, V& value, const A& a, const P& pivots) {
  Determinant<TA_ELEMENT(a)> found;
  TA_UNROLL for (int k = 0; k < N; ++k) found.take(a[k * LD + k], pivots[k] != k);
  value[0] = found.value();
}

template <int N, int LDX, int LDA, class X, class A, class P>
TA_FN void inverse(const Team<1>& team, X& x, A& a, P& pivots, int& failed) {
  using T = TA_ELEMENT(x);
  TA_UNROLL for (int i = 0; i < N; ++i)
    TA_UNROLL for (int j = 0; j < N; ++j) x[i * LDX + j] = number<T>(i == j);
  thread::lu<N, LDA>(team, a, pivots, failed);
  thread::lu_solve<N, N, LDX, LDA>(team, x, a, pivots);
}

}  // namespace thread
