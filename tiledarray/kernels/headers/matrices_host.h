// Dense linear algebra of the host, W problems side by side; included by matrices.h.
//
// Vectors go across problems, and a block of B x B elements of each is computed in registers, from
// the blocks before it, as a product of two panels.
#pragma once
#include "lanes.h"

namespace linear {

template <int N> struct Number {
  enum { value = N };
};
// Rows and columns of a block in registers.
template <class T> constexpr int BLOCK = is_complex<T> || REGISTERS < 32 ? 2 : 4;

// Where L of W problems lie, from one on: rows of LD elements.
template <class T, int W, int LD> struct Place {
  T* at;
  using Element = T;
  using V = Lanes<T, WIDTH<T, W>>;
  TA_MEMBER V operator()(int i, int j) const { return V::load(at + (i * LD + j) * W); }
  TA_MEMBER void set(int i, int j, V x) const { x.store(at + (i * LD + j) * W); }
};
// Element (i, j) of what stands for a matrix.
template <int TRANSPOSED, class P> TA_FN auto element(const P& place, int i, int j) {
  if constexpr (TRANSPOSED == 0) return place(i, j);
  else if constexpr (TRANSPOSED == 1) return place(j, i);
  else return place(j, i).conjugate();
}

template <class V, int M, int N> struct Block {
  V at[M][N];
  template <class P> TA_MEMBER void store(const P& to, int i, int j) const {
    _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) to.set(i + r, j + c, at[r][c]);
  }
  template <class P> TA_MEMBER void store_adjoint(const P& to, int i, int j) const {
    _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c)
        to.set(i + c, j + r, at[r][c].conjugate());
  }
  // What is left of a block of a matrix, which has no part in the roundings of the sum.
  template <class P> TA_MEMBER void subtract_from(const P& from, int i, int j) {
    _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c)
        at[r][c] = from(i + r, j + c) - at[r][c];
  }
  TA_MEMBER void clear() {
    _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) at[r][c] = V::all(0);
  }
  // The product of a panel of M rows and one of N columns, k from begin to end.
  template <class Left, class Right>
  TA_MEMBER void multiply(int begin, int end, Left left, Right right) {
    clear();
    _Pragma("GCC unroll 1") for (int k = begin; k < end; ++k) {
      V x[M];
      _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r) {
        x[r] = left(r, k);
        x[r].keep();
      }
      _Pragma("GCC unroll 16") for (int c = 0; c < N; ++c) {
        V y = right(k, c);
        y.keep();
        _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r) at[r][c].add_product(x[r], y);
      }
    }
  }
};

// ---- Cholesky ----

template <class T, int W, int LDL, int LDA> struct Cholesky {
  Place<T, W, LDL> l;
  Place<T, W, LDA> a;
  using V = Lanes<T, WIDTH<T, W>>;
  Failures<T, WIDTH<T, W>>& failures;

  template <int M, int N> TA_MEMBER void begin(Block<V, M, N>& block, int i, int j) const {
    block.multiply(
        0, j, [&](int r, int k) TA_LAMBDA { return l(i + r, k); },
        [&](int k, int c) TA_LAMBDA { return l(j + c, k).conjugate(); });
    block.subtract_from(a, i, j);
  }
  // The block on the diagonal, the inverses of its diagonal, and zeros right of it.
  template <int N, int SIZE> TA_MEMBER void diagonal(int j, typename V::V (&inverse)[N]) const {
    Block<V, N, N> block;
    begin(block, j, j);
    _Pragma("GCC unroll 16") for (int k = 0; k < N; ++k) {
      V& pivot = block.at[k][k];
      failures.note(pivot.re <= 0, j + k);
      const auto size = root(pivot.re);
      pivot.set_real(size);
      inverse[k] = 1 / size;
      _Pragma("GCC unroll 16") for (int r = k + 1; r < N; ++r) {
        block.at[r][k] = block.at[r][k].scaled(inverse[k]);
        block.at[k][r] = V::all(0);
      }
      _Pragma("GCC unroll 16") for (int c = k + 1; c < N; ++c)
        _Pragma("GCC unroll 16") for (int r = c; r < N; ++r)
          block.at[r][c].subtract_product(block.at[r][k], block.at[c][k].conjugate());
    }
    block.store(l, j, j);
    for (int r = 0; r < N; ++r)
      for (int c = j + N; c < SIZE; ++c) l.set(j + r, c, V::all(0));
  }
  template <int M, int N>
  TA_MEMBER void below(int i, int j, const typename V::V (&inverse)[N]) const {
    Block<V, M, N> block;
    begin(block, i, j);
    _Pragma("GCC unroll 16") for (int k = 0; k < N; ++k) {
      _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
        block.at[r][k] = block.at[r][k].scaled(inverse[k]);
      _Pragma("GCC unroll 16") for (int c = k + 1; c < N; ++c) {
        const V y = l(j + c, j + k).conjugate();
        _Pragma("GCC unroll 16") for (int r = 0; r < M; ++r)
          block.at[r][c].subtract_product(block.at[r][k], y);
      }
    }
    block.store(l, i, j);
  }
};

// ---- triangular systems ----

template <int TRANSPOSED, bool UNIT, class X, class A, class F> struct Triangular {
  X x;
  A a;
  F& failures;
  using V = typename X::V;

  // Rows i to i + B of the solution, from those before (forward) or after them, of `columns`.
  template <bool FORWARD, int B> TA_MEMBER void rows(int i, int n, int columns) const {
    V inverse[B];
    if constexpr (!UNIT) {
      _Pragma("GCC unroll 16") for (int r = 0; r < B; ++r) {
        const V pivot = element<TRANSPOSED>(a, i + r, i + r);
        failures.note(pivot.is_zero(), i + r);
        inverse[r] = pivot.inverse();
      }
    }
    constexpr int C = BLOCK<typename X::Element>;
    int j = 0;
    _Pragma("GCC unroll 1") for (; j + C <= columns; j += C) block<FORWARD, B, C>(i, j, n, inverse);
    _Pragma("GCC unroll 1") for (; j < columns; ++j) block<FORWARD, B, 1>(i, j, n, inverse);
  }
  template <bool FORWARD, int B, int C>
  TA_MEMBER void block(int i, int j, int n, const V (&inverse)[B]) const {
    Block<V, B, C> block;
    block.multiply(
        FORWARD ? 0 : i + B, FORWARD ? i : n,
        [&](int r, int k) TA_LAMBDA { return element<TRANSPOSED>(a, i + r, k); },
        [&](int k, int c) TA_LAMBDA { return x(k, j + c); });
    block.subtract_from(x, i, j);
    _Pragma("GCC unroll 16") for (int step = 0; step < B; ++step) {
      const int k = FORWARD ? step : B - 1 - step;
      if constexpr (!UNIT) {
        _Pragma("GCC unroll 16") for (int c = 0; c < C; ++c)
          block.at[k][c] = block.at[k][c] * inverse[k];
      }
      _Pragma("GCC unroll 16") for (int other = step + 1; other < B; ++other) {
        const int r = FORWARD ? other : B - 1 - other;
        const V y = element<TRANSPOSED>(a, i + r, i + k);
        _Pragma("GCC unroll 16") for (int c = 0; c < C; ++c)
          block.at[r][c].subtract_product(y, block.at[k][c]);
      }
    }
    block.store(x, i, j);
  }
  template <bool FORWARD, int N> TA_MEMBER void solve(int columns) const {
    constexpr int B = BLOCK<typename X::Element>, REST = N % B;
    if constexpr (FORWARD) {
      _Pragma("GCC unroll 1") for (int i = 0; i < N - REST; i += B) rows<true, B>(i, N, columns);
      if constexpr (REST > 0) rows<true, REST>(N - REST, N, columns);
    } else {
      _Pragma("GCC unroll 1") for (int i = N - B; i >= REST; i -= B) rows<false, B>(i, N, columns);
      if constexpr (REST > 0) rows<false, REST>(0, N, columns);
    }
  }
};

// ---- LU ----

// Row k of `columns` columns changes places with row rows[w] in problem w.
template <class T, int W, int LD, int L>
static __attribute__((noinline)) void exchange_rows(T* a, int k, const int (&rows)[L],
                                                    int columns) {
  int offset[L];
  for (int w = 0; w < L; ++w) offset[w] = (rows[w] - k) * (LD * W) + w;
  a += k * (LD * W);
  _Pragma("GCC unroll 1") for (int j = 0; j < columns; ++j, a += W) {
    // One by one: a scatter takes longer.
    T x[L], y[L];
    _Pragma("GCC unroll 16") for (int w = 0; w < L; ++w) x[w] = a[offset[w]];
    _Pragma("GCC unroll 16") for (int w = 0; w < L; ++w) y[w] = a[w];
    _Pragma("GCC unroll 16") for (int w = 0; w < L; ++w) a[w] = x[w];
    _Pragma("GCC unroll 16") for (int w = 0; w < L; ++w) a[offset[w]] = y[w];
  }
}

// Columns in panels: a panel is solved for its rows of U, then what is left of it is eliminated.
template <class T, int W, int LD, int N> struct Elimination {
  static constexpr int L = WIDTH<T, W>;
  using P = Place<T, W, LD>;
  using V = Lanes<T, L>;
  using R = part_of<T>;
  P a;
  int* pivots;
  Failures<T, L>& failures;

  template <int C> TA_MEMBER void panel(int j) const {
    constexpr int B = BLOCK<T>;
    const Triangular<0, true, P, P, Failures<T, L>> upper{a, a, failures};
    const V none[B] = {};
    _Pragma("GCC unroll 1") for (int i = 0; i < j; i += B)
      upper.template block<true, B, C>(i, j, N, none);
    int i = j;
    _Pragma("GCC unroll 1") for (; i + B <= N; i += B) update<B, C>(i, j);
    _Pragma("GCC unroll 1") for (; i < N; ++i) update<1, C>(i, j);
    columns<C>(j);
  }
  template <int M, int C> TA_MEMBER void update(int i, int j) const {
    if (j == 0) return;
    Block<V, M, C> block;
    block.multiply(
        0, j, [&](int r, int k) TA_LAMBDA { return a(i + r, k); },
        [&](int k, int c) TA_LAMBDA { return a(k, j + c); });
    block.subtract_from(a, i, j);
    block.store(a, i, j);
  }
  // Column by column: while one is divided by its pivot, the largest of the next is looked for.
  template <int C> TA_MEMBER void columns(int j) const {
    typename V::V largest = V::all(-1).re;
    Mask<R, L> row{};
    _Pragma("GCC unroll 1") for (int i = j; i < N; ++i) consider(a(i, j), i, largest, row);
    _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) {
      const int k = j + c;
      exchange(k, largest, row);
      const V pivot = a(k, k);
      const auto zero = pivot.is_zero();
      failures.note(zero, k);
      const V inverse = V::all(1).where(zero, pivot.inverse());
      V u[C];
      _Pragma("GCC unroll 8") for (int d = c + 1; d < C; ++d) u[d] = a(k, j + d);
      largest = V::all(-1).re;
      _Pragma("GCC unroll 1") for (int i = k + 1; i < N; ++i) {
        const V factor = a(i, k) * inverse;
        a.set(i, k, factor);
        _Pragma("GCC unroll 8") for (int d = c + 1; d < C; ++d) {
          V x = a(i, j + d);
          x.subtract_product(factor, u[d]);
          a.set(i, j + d, x);
          if (d == c + 1) consider(x, i, largest, row);
        }
      }
    }
  }
  static TA_MEMBER void consider(V x, int i, typename V::V& largest, Mask<R, L>& row) {
    const auto found = x.size();
    const auto size = found == found ? found : V::all(infinity<R>()).re;  // NaN is in the result
    row = size > largest ? i - Mask<R, L>{} : row;
    largest = size > largest ? size : largest;
  }
  TA_MEMBER void exchange(int k, typename V::V largest, Mask<R, L> row) const {
    int rows[L];
    for (int w = 0; w < L; ++w) {
      rows[w] = largest[w] >= 0 ? (int)row[w] : k;  // all may be NaN
      pivots[k * W + w] = rows[w];
    }
    exchange_rows<T, W, LD>(a.at, k, rows, N);
  }
};

}  // namespace linear

#define TA_PRIMITIVE static __attribute__((noinline)) void

// Lower L of A = L L^H, zeros right of its diagonal; from the lower triangle of `a`, which may be
// `l`.  A pivot that is not positive fails.
template <int N, int LDL, int LDA, int W, class T>
TA_PRIMITIVE cholesky(const Team<W>&, T* l, const T* a, int* failed) {
  using namespace linear;
  constexpr int B = BLOCK<T>, REST = N % B, L = WIDTH<T, W>;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    Failures<T, L> failures;
    const Cholesky<T, W, LDL, LDA> by{{l + w}, {const_cast<T*>(a) + w}, failures};
    _Pragma("GCC unroll 1") for (int j = 0; j < N - REST; j += B) {
      typename Lanes<T, L>::V inverse[B];
      by.template diagonal<B, N>(j, inverse);
      _Pragma("GCC unroll 1") for (int i = j + B; i < N - REST; i += B)
        by.template below<B, B>(i, j, inverse);
      if constexpr (REST > 0) by.template below<REST, B>(N - REST, j, inverse);
    }
    if constexpr (REST > 0) {
      typename Lanes<T, L>::V inverse[REST];
      by.template diagonal<REST, N>(N - REST, inverse);
    }
    failures.leave(failed + w);
  }
}

// X of op(A) X = B, in place of B, an N x M matrix; A lower or upper triangular as it is stored.
template <int N, int M, int LDX, int LDA, bool LOWER, int TRANSPOSED, bool UNIT, int W, class T>
TA_PRIMITIVE triangular(const Team<W>&, T* x, const T* a, int* failed) {
  using namespace linear;
  constexpr int L = WIDTH<T, W>;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    using X = Place<T, W, LDX>;
    using A = Place<T, W, LDA>;
    Failures<T, L> failures;
    const Triangular<TRANSPOSED, UNIT, X, A, Failures<T, L>> by{
        {x + w}, {const_cast<T*>(a) + w}, failures};
    by.template solve<LOWER == (TRANSPOSED == 0), N>(M);
    failures.leave(failed + w);
  }
}

// C = op(A) op(B), M x K by K x N.  Of a Hermitian one, such as A A^H, one triangle of blocks is
// computed.
template <int M, int N, int K, int LDC, int LDA, int LDB, int TRANS_A, int TRANS_B,
          bool HERMITIAN = false, int W, class T>
TA_PRIMITIVE product(const Team<W>&, T* c, const T* a, const T* b) {
  using namespace linear;
  constexpr int L = WIDTH<T, W>, B = BLOCK<T>, ROWS = M % B, COLUMNS = N % B;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    const Place<T, W, LDC> to{c + w};
    const Place<T, W, LDA> left{const_cast<T*>(a) + w};
    const Place<T, W, LDB> right{const_cast<T*>(b) + w};
    const auto block = [&](int i, int j, auto& sum) TA_LAMBDA {
      sum.multiply(
          0, K, [&](int r, int k) TA_LAMBDA { return element<TRANS_A>(left, i + r, k); },
          [&](int k, int c) TA_LAMBDA { return element<TRANS_B>(right, k, j + c); });
      sum.store(to, i, j);
      if (HERMITIAN && i != j) sum.store_adjoint(to, j, i);
    };
    const auto rows = [&](int i, auto height) TA_LAMBDA {
      constexpr int H = decltype(height)::value;
      Block<Lanes<T, L>, H, B> sum;
      const int end = HERMITIAN && H == B ? i + B : N - COLUMNS;
      _Pragma("GCC unroll 1") for (int j = 0; j < end; j += B) block(i, j, sum);
      if constexpr (COLUMNS > 0 && !(HERMITIAN && H == B)) {
        Block<Lanes<T, L>, H, COLUMNS> rest;
        block(i, N - COLUMNS, rest);
      }
    };
    _Pragma("GCC unroll 1") for (int i = 0; i < M - ROWS; i += B) rows(i, Number<B>());
    if constexpr (ROWS > 0) rows(M - ROWS, Number<ROWS>());
  }
}

// L and U of P A = L U in place of A, by partial pivoting; pivots[k] is the row that row k was
// exchanged with.  The largest |re| + |im| is the pivot, the first of equals; zero fails.
template <int N, int LD, int W, class T>
TA_PRIMITIVE lu(const Team<W>&, T* a, int* pivots, int* failed) {
  using namespace linear;
  constexpr int L = WIDTH<T, W>, B = BLOCK<T>, REST = N % B;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    Failures<T, L> failures;
    const Elimination<T, W, LD, N> by{{a + w}, pivots + w, failures};
    _Pragma("GCC unroll 1") for (int j = 0; j < N - REST; j += B) by.template panel<B>(j);
    if constexpr (REST > 0) by.template panel<REST>(N - REST);
    failures.leave(failed + w);
  }
}

// X of A X = B in place of B, an N x M matrix, from what `lu` leaves.
template <int N, int M, int LDX, int LDA, int W, class T>
TA_PRIMITIVE lu_solve(const Team<W>& team, T* x, const T* a, const int* pivots) {
  constexpr int L = linear::WIDTH<T, W>;
  int never[W];
  for (int k = 0; k < N; ++k) {
    for (int w = 0; w < W; w += L) {
      int rows[L];
      for (int v = 0; v < L; ++v) rows[v] = pivots[k * W + w + v];
      linear::exchange_rows<T, W, LDX>(x + w, k, rows, M);
    }
  }
  triangular<N, M, LDX, LDA, true, 0, true>(team, x, a, never);
  triangular<N, M, LDX, LDA, false, 0, false>(team, x, a, never);
}

// Sign and logarithm of the size of a determinant, and the determinant, from what `lu` leaves.
template <int N, int LD, int W, class T, class R>
TA_PRIMITIVE slogdet(const Team<W>&, T* sign, R* log, const T* a, const int* pivots) {
  for (int w = 0; w < W; ++w) {
    const auto found = linear::Determinant<T>::template of<N, LD, W>(a + w, pivots + w);
    sign[w] = found.sign();
    log[w] = found.log();
  }
}
template <int N, int LD, int W, class T>
TA_PRIMITIVE determinant(const Team<W>&, T* value, const T* a, const int* pivots) {
  for (int w = 0; w < W; ++w)
    value[w] = linear::Determinant<T>::template of<N, LD, W>(a + w, pivots + w).value();
}

// The inverse of `a`, of which `lu` is left.
template <int N, int LDX, int LDA, int W, class T>
TA_PRIMITIVE inverse(const Team<W>& team, T* x, T* a, int* pivots, int* failed) {
  for (int e = 0; e < N * N; ++e)
    for (int w = 0; w < W; ++w)
      x[(e / N * LDX + e % N) * W + w] = cast<T>((part_of<T>)(e / N == e % N));
  lu<N, LDA>(team, a, pivots, failed);
  lu_solve<N, N, LDX, LDA>(team, x, a, pivots);
}
