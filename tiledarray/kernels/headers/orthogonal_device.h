// Orthogonal transformations of the device, a problem a team; included by orthogonal.h.
#pragma once

namespace linear {

// Of a warp, or of what a team has of one, the sum or the largest, which all get.
template <int G, class R> TA_FN R sum_of(R x, int rank) {
  TA_UNROLL for (int distance = 1; distance < G; distance *= 2)
    x = x + from_rank<G>(x, rank ^ distance);
  return x;
}
template <int G, class R> TA_FN R maximum_of(R x, int rank) {
  TA_UNROLL for (int distance = 1; distance < G; distance *= 2) {
    const R other = from_rank<G>(x, rank ^ distance);
    x = other > x ? other : x;
  }
  return x;
}

// Householder's reflections as LAPACK has them: H = 1 - tau v v^H, v 1 on the diagonal, what is
// below it in the place of the column that H^H turns into (beta, 0, ...), with beta real.  A thread
// has columns to itself, and all look at v.
template <int M, int LD, int G, class T> struct Reflections {
  static constexpr int WARP = G < 32 ? G : 32;
  using R = part_of<T>;
  const Team<G>& team;
  T* a;

  static TA_MEMBER R square(T x, R sum) {
    if constexpr (is_complex<T>) return m_fma(x.re, x.re, m_fma(x.im, x.im, sum));
    else return m_fma(x, x, sum);
  }
  // Of column k, by every warp for itself; numbers are scaled so that no square leaves the range.
  TA_MEMBER T reflect(int k) const {
    const int place = team.rank % WARP;
    const T alpha = a[k * LD + k];
    R beyond = 0, below = 0;
    for (int i = k + 1 + place; i < M; i += WARP) {
      const R size = size_of(a[i * LD + k]);
      beyond = size > beyond ? size : beyond;
    }
    beyond = maximum_of<WARP>(beyond, place);
    const R first = size_of(alpha), largest = beyond > first ? beyond : first;
    const R unit = largest > 0 ? 1 / largest : (R)1;
    for (int i = k + 1 + place; i < M; i += WARP) below = square(scaled(a[i * LD + k], unit), below);
    below = sum_of<WARP>(below, place);
    if (beyond > 0) below += largest - largest;  // NaN beside an infinity
    const R norm = m_sqrt(square(scaled(alpha, unit), below)) * largest;
    const R beta = real_of(alpha) < 0 ? norm : -norm;
    R other = 0;
    if constexpr (is_complex<T>) other = alpha.im;
    const bool flat = below == 0 && other == 0;
    T tau = number<T>(0), factor = number<T>(1);
    if (!flat) {
      factor = inverse_of(alpha - number<T>(beta));
      if constexpr (is_complex<T>) tau = T{(beta - alpha.re) / beta, -alpha.im / beta};
      else tau = (beta - alpha) / beta;
    }
    team.sync();
    for (int i = k + 1 + team.rank; i < M; i += G)
      a[i * LD + k] = multiplied(a[i * LD + k], factor);
    if (team.rank == 0) a[k * LD + k] = number<T>(flat ? real_of(alpha) : beta);
    team.sync();
    return tau;
  }
  // 1 - t v v^H times columns j of all from `begin` on.
  TA_MEMBER void apply_to(int k, int begin, int end, T t) const {
    _Pragma("unroll 1") for (int j = begin + team.rank; j < end; j += G) {
      T w = a[k * LD + j];
      _Pragma("unroll 1") for (int first = k + 1; first < M; first += LEAF_ROWS) {
        T part = number<T>(0);
        TA_UNROLL for (int i = first; i < first + LEAF_ROWS; ++i)
          if (i < M) add_product(part, conjugate(a[i * LD + k]), a[i * LD + j]);
        w = w + part;
      }
      w = multiplied(w, t);
      a[k * LD + j] = a[k * LD + j] - w;
      _Pragma("unroll 4") for (int i = k + 1; i < M; ++i)
        subtract_product(a[i * LD + j], w, a[i * LD + k]);
    }
  }
};

// The pairs of a round: first the columns of all, then the rows.
template <int N, int LDA, int LDV, bool VECTORS, int G, class T, class R>
TA_FN bool turn_pairs(const Team<G>& team, T* a, T* v, R bound, int round) {
  constexpr int EACH = (Tournament<N>::PAIRS + G - 1) / G;
  R c[EACH], s[EACH], low[EACH], high[EACH];
  T turn[EACH];
  bool turns[EACH], any = false;
  TA_UNROLL for (int e = 0; e < EACH; ++e) {
    const int pair = team.rank + e * G;
    const Tournament<N> here(round, pair);
    turns[e] = false;
    if (pair < Tournament<N>::PAIRS && here.q < N) {
      const T x = a[here.p * LDA + here.q];
      const R size = m_sqrt(real_of(multiplied(x, conjugate(x))));
      turns[e] = size > bound;
      const R first = real_of(a[here.p * LDA + here.p]), second = real_of(a[here.q * LDA + here.q]);
      const R angle = (second - first) / (2 * size);
      const R steep = m_sqrt(m_fma(angle, angle, (R)1)) + m_abs(angle);
      const R tangent = angle < 0 ? -1 / steep : 1 / steep;
      c[e] = 1 / m_sqrt(m_fma(tangent, tangent, (R)1));
      s[e] = tangent * c[e];
      turn[e] = scaled(conjugate(x), 1 / size);
      low[e] = first - tangent * size;
      high[e] = second + tangent * size;
    }
    any |= turns[e];
  }
  team.sync();
  const auto both = [&](T* x, T* y, int e, T by) {
    const T left = *x, right = multiplied(*y, by);
    *x = scaled(left, c[e]) - scaled(right, s[e]);
    *y = scaled(left, s[e]) + scaled(right, c[e]);
  };
  TA_UNROLL for (int e = 0; e < EACH; ++e) {
    const Tournament<N> here(round, team.rank + e * G);
    if (turns[e]) {
      _Pragma("unroll 2") for (int i = 0; i < N; ++i) {
        both(a + i * LDA + here.p, a + i * LDA + here.q, e, turn[e]);
        if constexpr (VECTORS) both(v + i * LDV + here.p, v + i * LDV + here.q, e, turn[e]);
      }
    }
  }
  team.sync();
  TA_UNROLL for (int e = 0; e < EACH; ++e) {
    const Tournament<N> here(round, team.rank + e * G);
    if (turns[e]) {
      _Pragma("unroll 2") for (int j = 0; j < N; ++j)
        both(a + here.p * LDA + j, a + here.q * LDA + j, e, conjugate(turn[e]));
      a[here.p * LDA + here.q] = a[here.q * LDA + here.p] = number<T>(0);
      a[here.p * LDA + here.p] = number<T>(low[e]);
      a[here.q * LDA + here.q] = number<T>(high[e]);
    }
  }
  team.sync();
  return any;
}

// Eigenvalues off the diagonal in ascending order, and the columns of v with them, by way of a.
template <int N, int LDA, int LDV, bool VECTORS, int G, class T, class R>
TA_FN void sort(const Team<G>& team, T* a, T* v, R* values, R unit) {
  constexpr int EACH = (N + G - 1) / G;
  int place[EACH];
  R value[EACH];
  TA_UNROLL for (int e = 0; e < EACH; ++e) {
    const int i = team.rank + e * G;
    value[e] = i < N ? real_of(a[i * LDA + i]) : (R)0;
    place[e] = 0;
    _Pragma("unroll 4") for (int j = 0; j < N; ++j) {
      const R other = real_of(a[j * LDA + j]);
      place[e] += other < value[e] || (other == value[e] && j < i);
    }
  }
  team.sync();
  TA_UNROLL for (int e = 0; e < EACH; ++e) {
    const int i = team.rank + e * G;
    if (i < N) {
      values[place[e]] = N == 1 ? real_of(a[0]) : value[e] * unit;
      if constexpr (VECTORS) {
        R squares = 0;
        _Pragma("unroll 4") for (int k = 0; k < N; ++k)
          squares += real_of(multiplied(conjugate(v[k * LDV + i]), v[k * LDV + i]));
        const R inverse = 1 / m_sqrt(squares);  // many rotations changed it by a rounding each
        _Pragma("unroll 4") for (int k = 0; k < N; ++k)
          a[k * LDA + place[e]] = scaled(v[k * LDV + i], inverse);
      }
    }
  }
  team.sync();
  if constexpr (VECTORS) {
    _Pragma("unroll 4") for (int e = team.rank; e < N * N; e += G)
      v[e / N * LDV + e % N] = a[e / N * LDA + e % N];
    team.sync();
  }
}

}  // namespace linear

// Q (M x K) and R (K x N) of Q R = A, an M x N matrix, with K the shorter of its sides.  Q is in the
// first columns of A, if it is asked for; `work` is K numbers.  Signs are LAPACK's.
template <int M, int N, int LDQ, int LDR, bool BOTH = true, int G, class T>
TA_FN void qr(const Team<G>& given, T* q, T* r, T* work) {
  using namespace linear;
  constexpr int K = M < N ? M : N;
  const Team<G> team = given.hidden();
  const Reflections<M, LDQ, G, T> by{team, q};
  team.sync();
  _Pragma("unroll 1") for (int k = 0; k < K; ++k) {
    const T tau = by.reflect(k);
    if (team.rank == 0) work[k] = tau;
    by.apply_to(k, k + 1, N, conjugate(tau));
    team.sync();
  }
  _Pragma("unroll 4") for (int e = team.rank; e < K * N; e += G)
    r[e / N * LDR + e % N] = e / N <= e % N ? q[e / N * LDQ + e % N] : number<T>(0);
  team.sync();
  _Pragma("unroll 1") for (int k = BOTH ? K - 1 : -1; k >= 0; --k) {
    const T tau = work[k];
    for (int j = k + 1 + team.rank; j < K; j += G) q[k * LDQ + j] = number<T>(0);
    by.apply_to(k, k + 1, K, tau);
    team.sync();
    for (int i = k + 1 + team.rank; i < M; i += G)
      q[i * LDQ + k] = -multiplied(q[i * LDQ + k], tau);
    if (team.rank == 0) q[k * LDQ + k] = number<T>(1) - tau;
    team.sync();
  }
}

// Eigenvalues w (N, ascending) and, if asked for, eigenvectors (the columns of v, N x N) of a
// Hermitian matrix, of which one triangle is read and nothing is left, by Jacobi's method: a thread
// turns a pair of rows and columns.  Of what is not finite all are NaN, and beyond two rows
// it fails, as it mostly does in LAPACK.
template <int N, int LDA, int LDV, bool VECTORS = true, bool UPPER = false, int G, class T, class R>
TA_FN void eigenvalues(const Team<G>& given, T* a, T* v, R* values, int& failed) {
  using namespace linear;
  static_assert(G <= 32, "teams are at most a warp");
  const Team<G> team = given.hidden();
  team.sync();
  R largest = 0;
  _Pragma("unroll 4") for (int e = team.rank; e < N * N; e += G) {
    const int i = e / N, j = e % N;
    const R size = j <= i ? size_of(UPPER ? a[j * LDA + i] : a[i * LDA + j]) : (R)0;
    largest = size > largest ? size : largest;
    if constexpr (VECTORS) v[i * LDV + j] = number<T>(i == j);
  }
  largest = maximum_of<G>(largest, team.rank);
  const bool far = largest > LARGE<R> || (largest < 1 / LARGE<R> && largest > 0);
  const R unit = far ? largest : (R)1, scale = 1 / unit;
  R squares = 0;
  _Pragma("unroll 4") for (int e = team.rank; e < N * N; e += G) {
    const int i = e / N, j = e % N;
    if (j > i) continue;
    if (N == 1) continue;  // the matrix is its eigenvalue, whatever it is
    T x = scaled(UPPER ? conjugate(a[j * LDA + i]) : a[i * LDA + j], scale);
    if (i == j) x = number<T>(real_of(x));
    else a[j * LDA + i] = conjugate(x);
    a[i * LDA + j] = x;
    const R square = real_of(multiplied(x, conjugate(x)));
    squares = squares + (i == j ? square : 2 * square);
  }
  const R norm = m_sqrt(sum_of<G>(squares, team.rank));
  constexpr R precision = sizeof(R) == 4 ? (R)0x1p-24 : (R)0x1p-53;
  const R bound = norm * (precision / N);
  team.sync();
  bool any = true;
  _Pragma("unroll 1") for (int sweep = 0; any && sweep < Tournament<N>::MOST_SWEEPS; ++sweep) {
    bool turned = false;
    _Pragma("unroll 1") for (int round = 0; round < Tournament<N>::ROUNDS; ++round)
      turned |= turn_pairs<N, LDA, LDV, VECTORS>(team, a, v, bound, round);
    any = __ballot_sync(0xffffffffu, turned) != 0;  // the whole warp goes on together
  }
  const bool finite = N == 1 || norm - norm == 0;
  if (((N > 2 && !finite) || any) && failed == 0) failed = 1;
  sort<N, LDA, LDV, VECTORS>(team, a, v, values, unit);
  _Pragma("unroll 4") for (int e = team.rank; e < N * N && !finite; e += G) {
    if (e < N) values[e] = quiet_nan<R>();
    if constexpr (VECTORS) v[e / N * LDV + e % N] = number<T>(quiet_nan<R>());
  }
  team.sync();
}
