// Dense linear algebra of the device, a problem a team; included by matrices.h.
#pragma once
#include "elimination_device.h"

// Lower L of A = L L^H, zeros right of its diagonal; from the lower triangle of `a`, which may be
// `l`.  A pivot that is not positive fails.
template <int N, int LDL, int LDA, int G, class T>
TA_FN void cholesky(const Team<G>& given, T* l, const T* a, int& failed) {
  using namespace linear;
  const Team<G> team = given.hidden();
  team.sync();
  if constexpr (in_registers<N, G, true, T>) {
    CholeskyInRegisters<N, LDL, G, T> by{team, l, failed};
    by.template load<LDA>(a);
    by.template panels<0>();
    by.clear_above();
    team.sync();
  } else {
    _Pragma("unroll 4") for (int e = team.rank; e < N * N; e += G) {
      const int i = e / N, j = e % N;
      l[i * LDL + j] = j <= i ? a[i * LDA + j] : number<T>(0);
    }
    team.sync();
    const CholeskyByPanels<N, LDL, G, T> by{team, l, failed};
    _Pragma("unroll 1") for (int first = 0; first < N; first += by.B) {
      by.panel(first);
      by.rest(first);
    }
  }
}

// X of op(A) X = B, in place of B, an N x M matrix; A lower or upper triangular as it is stored.
// The first zero on its diagonal fails.
template <int N, int M, int LDX, int LDA, bool LOWER, int TRANSPOSED, bool UNIT, int G, class T>
TA_FN void triangular(const Team<G>& given, T* x, const T* a, int& failed) {
  using namespace linear;
  const Team<G> team = given.hidden();
  constexpr bool FORWARD = LOWER == (TRANSPOSED == 0);
  team.sync();
  if constexpr (!UNIT) note_zeros<N, LDA>(team, a, failed);
  if constexpr (2 * M > G)
    triangular_by_columns<N, M, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(team, x, a);
  else if constexpr (G <= 32 && N <= 2 * MOST_UNROLLED) {
    constexpr int C = M < 4 ? M : 4;
    _Pragma("unroll 1") for (int c = 0; c + C <= M; c += C)
      triangular_by_rows<N, C, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(team, x + c, a);
    if constexpr (M % C > 0)
      triangular_by_rows<N, M % C, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(team, x + M / C * C, a);
  } else if constexpr (M <= G / 16) {
    _Pragma("unroll 1") for (int c = team.rank / 32; c < M; c += G / 32)
      triangular_by_warp<N, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(team.rank % 32, x + c, a);
  } else triangular_by_panels<N, M, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(team, x, a);
  team.sync();
}

// The same by `Slices`: a thread sums every so manieth product of a block, and those that share a
// block give each other what each has of the parts that they keep.
template <int M, int N, int K, int LDC, int LDA, int LDB, int TRANS_A, int TRANS_B, int G, class T>
TA_FN void product_by_slices(const Team<G>& team, T* c, const T* a, const T* b) {
  using namespace linear;
  constexpr Slices SHARED = slices_of_product<M, N, K, G, T>();
  constexpr int ROWS = SHARED.rows, COLUMNS = SHARED.columns, COUNT = SHARED.count;
  constexpr int ACROSS = (N + COLUMNS - 1) / COLUMNS, BLOCKS = (M + ROWS - 1) / ROWS * ACROSS;
  const int slice = team.rank % COUNT, block = min_idx(team.rank / COUNT, BLOCKS - 1);
  const int i = block / ACROSS * ROWS, j = block % ACROSS * COLUMNS;
  T sum[ROWS * COLUMNS];
  TA_UNROLL for (int e = 0; e < ROWS * COLUMNS; ++e) sum[e] = number<T>(0);
  const auto add = [&](int k) {
    T x[ROWS], y[COLUMNS];
    TA_UNROLL for (int r = 0; r < ROWS; ++r)
      x[r] = element<TRANS_A, LDA>(a, M % ROWS == 0 ? i + r : min_idx(i + r, M - 1), k);
    TA_UNROLL for (int q = 0; q < COLUMNS; ++q)
      y[q] = element<TRANS_B, LDB>(b, k, N % COLUMNS == 0 ? j + q : min_idx(j + q, N - 1));
    TA_UNROLL for (int r = 0; r < ROWS; ++r)
      TA_UNROLL for (int q = 0; q < COLUMNS; ++q) add_product(sum[r * COLUMNS + q], x[r], y[q]);
  };
  _Pragma("unroll 2") for (int k = 0; k < K / COUNT; ++k) add(k * COUNT + slice);
  if (K % COUNT > 0 && slice < K % COUNT) add(K / COUNT * COUNT + slice);
  int first = 0;
  share_out<ROWS * COLUMNS, 1, COUNT>(sum, slice, first);
  constexpr int KEPT = ROWS * COLUMNS > COUNT ? ROWS * COLUMNS / COUNT : 1;
  TA_UNROLL for (int e = 0; e < KEPT; ++e) {
    const int row = i + (first + e) / COLUMNS, column = j + (first + e) % COLUMNS;
    if (team.rank / COUNT < BLOCKS && row < M && column < N) c[row * LDC + column] = sum[e];
  }
}

// C = op(A) op(B), M x K by K x N.  A thread sums S x S elements, as far apart as there are threads.
// Of a HERMITIAN one, where that is less for each thread, one triangle is summed.
template <int M, int N, int K, int LDC, int LDA, int LDB, int TRANS_A, int TRANS_B,
          bool HERMITIAN = false, int G, class T>
TA_FN void product(const Team<G>& given, T* c, const T* a, const T* b) {
  using namespace linear;
  const Team<G> team = given.hidden();
  constexpr int S = block_of_product<M, N, G, T>();
  constexpr int ROWS = (M + S - 1) / S, COLUMNS = (N + S - 1) / S, ALL = ROWS * COLUMNS;
  constexpr int PAIRED = (ROWS + 1) / 2 * (ROWS + 1);
  constexpr bool HALF = HERMITIAN && (PAIRED + G - 1) / G < (ALL + G - 1) / G;
  team.sync();
  if constexpr (slices_of_product<M, N, K, G, T>().count > 1) {
    product_by_slices<M, N, K, LDC, LDA, LDB, TRANS_A, TRANS_B>(team, c, a, b);
    team.sync();
    return;
  }
  _Pragma("unroll 1") for (int e = team.rank; e < (HALF ? PAIRED : ALL); e += G) {
    int i = e / COLUMNS, j = e % COLUMNS;
    if constexpr (HALF) {
      const Below below(e, ROWS);
      i = below.row, j = below.column;
      if (!below.once) continue;
    }
    T sum[S][S];
    TA_UNROLL for (int r = 0; r < S; ++r)
      TA_UNROLL for (int q = 0; q < S; ++q) sum[r][q] = number<T>(0);
    _Pragma("unroll 4") for (int k = 0; k < K; ++k) {
      T x[S], y[S];
      TA_UNROLL for (int r = 0; r < S; ++r) {
        x[r] = element<TRANS_A, LDA>(a, at_most<M, S>(i + r * ROWS), k);
        y[r] = element<TRANS_B, LDB>(b, k, at_most<N, S>(j + r * COLUMNS));
      }
      TA_UNROLL for (int r = 0; r < S; ++r)
        TA_UNROLL for (int q = 0; q < S; ++q) add_product(sum[r][q], x[r], y[q]);
    }
    TA_UNROLL for (int r = 0; r < S; ++r)
      TA_UNROLL for (int q = 0; q < S; ++q)
        if ((M % S == 0 || i + r * ROWS < M) && (N % S == 0 || j + q * COLUMNS < N)) {
          c[(i + r * ROWS) * LDC + j + q * COLUMNS] = sum[r][q];
          if constexpr (HALF)
            if (i != j) c[(j + q * COLUMNS) * LDC + i + r * ROWS] = conjugate(sum[r][q]);
        }
  }
  team.sync();
}

// L and U of P A = L U in place of A, by partial pivoting; pivots[k] is the row that row k was
// exchanged with.  The largest |re| + |im| is the pivot, the first of those that are equal (to 14 bits
// of a small matrix); zero fails.
template <int N, int LD, int G, class T>
TA_FN void lu(const Team<G>& given, T* a, int* pivots, int& failed) {
  using namespace linear;
  const Team<G> team = given.hidden();
  team.sync();
  if constexpr (in_registers<N, G, false, T>) {
    EliminationInRegisters<N, LD, G, T> by{team, a, pivots, failed};
    by.load();
    by.template panels<0>();
    by.store();
    team.sync();
  } else lu_in_memory<N, LD>(team, a, pivots, failed);
}

// X of A X = B in place of B, an N x M matrix, from what `lu` leaves.
template <int N, int M, int LDX, int LDA, int G, class T>
TA_FN void lu_solve(const Team<G>& given, T* x, const T* a, const int* pivots) {
  using namespace linear;
  const Team<G> team = given.hidden();
  team.sync();
  exchange_rows<N, M, LDX>(team, x, pivots);
  int never = 0;
  triangular<N, M, LDX, LDA, true, 0, true>(team, x, a, never);
  triangular<N, M, LDX, LDA, false, 0, false>(team, x, a, never);
}

// Sign and logarithm of the size of a determinant, and the determinant, from what `lu` leaves.
template <int N, int LD, int G, class T, class R>
TA_FN void slogdet(const Team<G>& team, T* sign, R* log, const T* a, const int* pivots) {
  team.sync();
  const auto found = linear::Determinant<T>::template of<N, LD, 1>(a, pivots);
  if (team.rank == 0) {
    *sign = found.sign();
    *log = found.log();
  }
  team.sync();
}
template <int N, int LD, int G, class T>
TA_FN void determinant(const Team<G>& team, T* value, const T* a, const int* pivots) {
  team.sync();
  const auto found = linear::Determinant<T>::template of<N, LD, 1>(a, pivots);
  if (team.rank == 0) *value = found.value();
  team.sync();
}

// The inverse of `a`, of which `lu` is left.
template <int N, int LDX, int LDA, int G, class T>
TA_FN void inverse(const Team<G>& team, T* x, T* a, int* pivots, int& failed) {
  team.sync();  // others may still read what is in the memory of x
  _Pragma("unroll 4") for (int e = team.rank; e < N * N; e += G)
    x[e / N * LDX + e % N] = cast<T>((part_of<T>)(e / N == e % N));
  lu<N, LDA>(team, a, pivots, failed);
  lu_solve<N, N, LDX, LDA>(team, x, a, pivots);
}
