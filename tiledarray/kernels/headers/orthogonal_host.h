// Orthogonal transformations of the host, W problems side by side; included by orthogonal.h.
#pragma once

namespace linear {

// Householder's reflections as LAPACK has them: H = 1 - tau v v^H, v 1 on the diagonal, what is
// below it in the place of the column that H^H turns into (beta, 0, ...), with beta real.
template <class T, int W, int LD, int M> struct Reflections {
  static constexpr int L = WIDTH<T, W>;
  using P = Place<T, W, LD>;
  using V = Lanes<T, L>;
  using R = part_of<T>;
  P a;
  Place<T, W, 1> tau;

  // Of column k; its numbers are scaled so that no square leaves the range.
  TA_MEMBER void reflect(int k) const {
    const V alpha = a(k, k);
    typename V::V beyond{}, below{};
    for (int i = k + 1; i < M; ++i) {
      const auto size = a(i, k).size();
      beyond = size > beyond ? size : beyond;
    }
    const typename V::V first = alpha.size(), largest = beyond > first ? beyond : first;
    const typename V::V unit = largest > 0 ? 1 / largest : largest - largest + 1;
    _Pragma("GCC unroll 1") for (int begin = k + 1; begin < M; begin += LEAF_ROWS) {
      typename V::V part{};
      const int end = begin + LEAF_ROWS < M ? begin + LEAF_ROWS : M;
      _Pragma("GCC unroll 1") for (int i = begin; i < end; ++i)
        part = square(a(i, k).scaled(unit), part);
      below = below + part;
    }
    below = below + (beyond > 0 ? largest - largest : V::all(0).re);  // NaN beside an infinity
    const typename V::V all = square(alpha.scaled(unit), below);
    const typename V::V norm = root(all) * largest;
    const typename V::V beta = alpha.re < 0 ? norm : -norm;
    const auto flat = (below == 0) & alpha.is_real();
    V shifted = alpha;
    shifted.re = alpha.re - beta;
    const V factor = shifted.inverse();  // and tau is (beta - re, -im) / beta
    tau.set(k, 0, V::all(0).where(flat, -shifted.scaled(1 / beta)));
    _Pragma("GCC unroll 1") for (int i = k + 1; i < M; ++i)
      a.set(i, k, a(i, k).where(flat, a(i, k) * factor));
    V diagonal;
    diagonal.set_real(flat ? alpha.re : beta);
    a.set(k, k, diagonal);
  }
  static TA_MEMBER typename V::V square(V x, typename V::V sum) {
    if constexpr (is_complex<T>) sum = fused(x.im, x.im, sum);
    return fused(x.re, x.re, sum);
  }
  // 1 - t v v^H times C columns from j on.
  template <int C> TA_MEMBER void apply(int k, int j, V t) const {
    V w[C];
    _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) w[c] = a(k, j + c);
    _Pragma("GCC unroll 1") for (int begin = k + 1; begin < M; begin += LEAF_ROWS) {
      V part[C];
      _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) part[c] = V::all(0);
      const int end = begin + LEAF_ROWS < M ? begin + LEAF_ROWS : M;
      _Pragma("GCC unroll 1") for (int i = begin; i < end; ++i) {
        V v = a(i, k).conjugate();
        v.keep();
        _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) part[c].add_product(v, a(i, j + c));
      }
      _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) w[c] = w[c] + part[c];
    }
    _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) {
      w[c] = w[c] * t;
      a.set(k, j + c, a(k, j + c) - w[c]);
    }
    _Pragma("GCC unroll 1") for (int i = k + 1; i < M; ++i) {
      V v = a(i, k);
      v.keep();
      _Pragma("GCC unroll 8") for (int c = 0; c < C; ++c) {
        V x = a(i, j + c);
        x.subtract_product(w[c], v);
        a.set(i, j + c, x);
      }
    }
  }
  TA_MEMBER void apply_to(int k, int j, int end, V t) const {
    constexpr int C = 4;
    _Pragma("GCC unroll 1") for (; j + C <= end; j += C) apply<C>(k, j, t);
    _Pragma("GCC unroll 1") for (; j < end; ++j) apply<1>(k, j, t);
  }
};

template <class T> TA_FN part_of<T> size_squared(T x) {
  if constexpr (is_complex<T>) return x.re * x.re + x.im * x.im;
  else return x * x;
}
template <class T> TA_FN T scaled(T x, part_of<T> by) {
  if constexpr (is_complex<T>) return T{x.re * by, x.im * by};
  else return x * by;
}
// Eigenvalues off the diagonal in ascending order, and the columns of v with them, by way of a.
template <int N, int LDA, int LDV, bool VECTORS, int W, class T, class R>
static __attribute__((noinline)) void sort(T* a, T* v, R* values, R unit) {
  int place[N];
  R found[N];
  for (int i = 0; i < N; ++i) {
    if constexpr (is_complex<T>) found[i] = a[(i * LDA + i) * W].re * unit;
    else found[i] = a[(i * LDA + i) * W] * unit;
  }
  for (int i = 0; i < N; ++i) {
    place[i] = 0;
    for (int j = 0; j < N; ++j)
      place[i] += (found[j] < found[i]) | ((found[j] == found[i]) & (j < i));
  }
  for (int i = 0; i < N; ++i) {
    values[place[i] * W] = found[i];
    if constexpr (!VECTORS) continue;
    R squares = 0;
    for (int k = 0; k < N; ++k) squares += size_squared(v[(k * LDV + i) * W]);
    const R inverse = 1 / m_sqrt(squares);  // many rotations changed it by a rounding each
    for (int k = 0; k < N; ++k)
      a[(k * LDA + place[i]) * W] = scaled(v[(k * LDV + i) * W], inverse);
  }
  if constexpr (VECTORS)
    for (int k = 0; k < N; ++k)
      for (int i = 0; i < N; ++i) v[(k * LDV + i) * W] = a[(k * LDA + i) * W];
}
// No number anywhere: of a matrix that is not finite.
template <int N, int LDV, bool VECTORS, int W, class T, class R>
static __attribute__((noinline)) void spoil(T* v, R* values) {
  for (int i = 0; i < N; ++i) {
    values[i * W] = quiet_nan<R>();
    if constexpr (VECTORS)
      for (int k = 0; k < N; ++k) v[(i * LDV + k) * W] = cast<T>(values[i * W]);
  }
}

// Rotations of pairs of rows and columns, each by the angle that makes an element zero.
template <class T, int W, int LDA, int LDV, int N, bool VECTORS> struct Rotations {
  static constexpr int L = WIDTH<T, W>;
  using V = Lanes<T, L>;
  using R = part_of<T>;
  using Reals = typename V::V;
  Place<T, W, LDA> a;
  Place<T, W, LDV> v;

  // Of one triangle: both, scaled by what is returned, and v = 1.
  template <bool UPPER> TA_MEMBER Reals begin() const {
    Reals largest{};
    if constexpr (UPPER)
      for (int i = 0; i < N; ++i)
        for (int j = 0; j < i; ++j) a.set(i, j, a(j, i).conjugate());
    for (int i = 0; i < N; ++i) {
      V diagonal = a(i, i);
      diagonal.set_real(diagonal.re);
      a.set(i, i, diagonal);
      for (int j = 0; j <= i; ++j) {
        const Reals size = a(i, j).size();
        largest = size > largest ? size : largest;
        if constexpr (VECTORS) {
          v.set(i, j, V::all(i == j));
          v.set(j, i, V::all(i == j));
        }
      }
    }
    const auto far = (largest > LARGE<R>) | ((largest < 1 / LARGE<R>) & (largest > 0));
    const Reals unit = far ? largest : Reals{} + 1;
    for (int i = 0; i < N; ++i)
      for (int j = 0; j <= i; ++j) {
        const V x = a(i, j).scaled(1 / unit);
        a.set(j, i, x.conjugate());
        a.set(i, j, x);
      }
    return unit;
  }
  TA_MEMBER Reals squares() const {
    Reals sum{};
    for (int i = 0; i < N; ++i) {
      Reals row{};
      for (int j = 0; j < N; ++j) row = Reflections<T, W, LDA, N>::square(a(i, j), row);
      sum = sum + row;
    }
    return sum;
  }
  // Whether any of the problems was rotated.
  TA_MEMBER bool rotate(int p, int q, Reals bound) const {
    const V x = a(p, q);
    const Reals size = root(Reflections<T, W, LDA, N>::square(x, Reals{}));
    const auto turns = size > bound;
    bool any = false;
    for (int w = 0; w < L; ++w) any |= turns[w] != 0;
    if (!any) return false;
    const Reals one = Reals{} + 1, safe = turns ? size : one;
    const Reals first = a(p, p).re, second = a(q, q).re;
    const Reals angle = (second - first) / (2 * safe);
    const Reals steep = root(fused(angle, angle, one)) + (angle < 0 ? -angle : angle);
    const Reals tangent = turns ? (angle < 0 ? -1 / steep : 1 / steep) : Reals{};
    const Reals c = 1 / root(fused(tangent, tangent, one)), s = tangent * c;
    const V turn = x.conjugate().scaled(1 / safe).where(turns, V::all(1));
    const Reals half = s / (1 + c);
    _Pragma("GCC unroll 1") for (int i = 0; i < N; ++i) {
      V x, y;
      if constexpr (VECTORS) {
        rotated(v, i, p, q, s, half, turn, x, y);
        v.set(i, p, x);
        v.set(i, q, y);
      }
      if (i == p || i == q) continue;
      rotated(a, i, p, q, s, half, turn, x, y);
      a.set(i, p, x);
      a.set(i, q, y);
      a.set(p, i, x.conjugate());
      a.set(q, i, y.conjugate());
    }
    const V none = V::all(0);
    a.set(p, q, none.where(turns, a(p, q)));
    a.set(q, p, none.where(turns, a(q, p)));
    V diagonal = none;
    diagonal.set_real(turns ? first - tangent * size : first);
    a.set(p, p, diagonal);
    diagonal.set_real(turns ? second + tangent * size : second);
    a.set(q, q, diagonal);
    return true;
  }
  // Columns p and q of row i: c m_p - s turn m_q and s m_p + c turn m_q, in a form of Rutishauser's
  // that rounds only the change where the angle is small.
  template <class P>
  static TA_MEMBER void rotated(const P& m, int i, int p, int q, Reals s, Reals half, V turn, V& x,
                                V& y) {
    const V left = m(i, p), right = m(i, q) * turn;
    x = left - (right + left.scaled(half)).scaled(s);
    y = right + (left - right.scaled(half)).scaled(s);
  }
};

}  // namespace linear

// Q (M x K) and R (K x N) of Q R = A, an M x N matrix, with K the shorter of its sides.  Q is in the
// first columns of A, if it is asked for; `work` is K numbers.  Signs are LAPACK's.
template <int M, int N, int LDQ, int LDR, bool BOTH = true, int W, class T>
TA_PRIMITIVE qr(const Team<W>&, T* q, T* r, T* work) {
  using namespace linear;
  constexpr int L = WIDTH<T, W>, K = M < N ? M : N;
  using V = Lanes<T, L>;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    const Reflections<T, W, LDQ, M> by{{q + w}, {work + w}};
    const Place<T, W, LDR> upper{r + w};
    _Pragma("GCC unroll 1") for (int k = 0; k < K; ++k) {
      by.reflect(k);
      by.apply_to(k, k + 1, N, by.tau(k, 0).conjugate());
    }
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < N; ++j) upper.set(i, j, i <= j ? by.a(i, j) : V::all(0));
    _Pragma("GCC unroll 1") for (int k = BOTH ? K - 1 : -1; k >= 0; --k) {
      const V tau = by.tau(k, 0);
      for (int j = k + 1; j < K; ++j) by.a.set(k, j, V::all(0));
      by.apply_to(k, k + 1, K, tau);
      for (int i = k + 1; i < M; ++i) by.a.set(i, k, -(by.a(i, k) * tau));
      by.a.set(k, k, V::all(1) - tau);
    }
  }
}

// Eigenvalues w (N, ascending) and, if asked for, eigenvectors (the columns of v, N x N) of a
// Hermitian matrix, of which one triangle is read and nothing is left, by Jacobi's method.  Of what
// is not finite all are NaN, and beyond two rows it fails, as it mostly does in LAPACK.
template <int N, int LDA, int LDV, bool VECTORS = true, bool UPPER = false, int W, class T, class R>
TA_PRIMITIVE eigenvalues(const Team<W>&, T* a, T* v, R* values, int* failed) {
  using namespace linear;
  constexpr int L = WIDTH<T, W>;
  using Reals = typename Lanes<T, L>::V;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
    const Rotations<T, W, LDA, LDV, N, VECTORS> by{{a + w}, {v + w}};
    if constexpr (N == 1) {
      for (int k = w; k < w + L; ++k) {
        if constexpr (is_complex<T>) values[k] = a[k].re;
        else values[k] = a[k];
        if constexpr (VECTORS) v[k] = cast<T>((R)1);
      }
      continue;
    }
    const Reals unit = by.template begin<UPPER>(), norm = root(by.squares());
    constexpr R precision = sizeof(R) == 4 ? (R)0x1p-24 : (R)0x1p-53;
    const Reals bound = norm * (precision / N);
    int sweeps = 0;
    for (bool any = true; any && sweeps < Tournament<N>::MOST_SWEEPS; ++sweeps) {
      any = false;
      for (int round = 0; round < Tournament<N>::ROUNDS; ++round)
        for (int pair = 0; pair < Tournament<N>::PAIRS; ++pair) {
          const Tournament<N> here(round, pair);
          if (here.q < N) any |= by.rotate(here.p, here.q, bound);
        }
    }
    for (int k = 0; k < L; ++k) {
      const bool finite = norm[k] - norm[k] == 0;
      const bool fails = (N > 2 && !finite) || sweeps == Tournament<N>::MOST_SWEEPS;
      if (fails && failed[w + k] == 0) failed[w + k] = 1;
      if (finite)
        sort<N, LDA, LDV, VECTORS, W>(a + w + k, v + w + k, values + w + k, unit[k]);
      else spoil<N, LDV, VECTORS, W>(v + w + k, values + w + k);
    }
  }
}
