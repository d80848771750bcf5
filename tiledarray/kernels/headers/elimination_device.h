// How the device eliminates: small matrices in the registers of a warp or a part of one, larger ones
// panel by panel in shared memory; included by matrices_device.h.
#pragma once
#include "numbers_device.h"

namespace linear {

// Of blocks of the lower triangle, that by its number: two rows of them, from both ends, have as
// many as any other two.
struct Below {
  int row, column;
  bool once;
  TA_MEMBER Below(int number, int rows) {
    const int pair = number / (rows + 1), place = number % (rows + 1);
    const bool low = place < rows - pair;
    row = low ? rows - 1 - pair : pair;
    column = low ? place : place - (rows - pair);
    once = low || row != rows - 1 - pair;
  }
};

// ---- Cholesky ----

// Columns of L one after the other: when one is done, those right of it move to the left by one.
template <int N, int LDL, int G, class T> struct CholeskyInRegisters {
  static constexpr int SLOTS = (N + G - 1) / G;
  using R = part_of<T>;
  const Team<G>& team;
  T* l;
  int& failed;
  T at[SLOTS][N];

  template <int LDA> TA_MEMBER void load(const T* a) {
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      const int i = r * G + team.rank;
      TA_UNROLL for (int j = 0; j < columns_of<N, G, true>(r); ++j)
        at[r][j] = j <= i && i < N ? a[i * LDA + j] : number<T>(0);
    }
    team.sync();
  }
  template <int BASE> TA_MEMBER void panels() {
    if constexpr (BASE < N) {
      constexpr int STEPS = N - BASE < PANEL ? N - BASE : PANEL;
      _Pragma("unroll 1") for (int t = 0; t < STEPS; ++t) step<BASE, STEPS>(BASE + t);
      panels<BASE + PANEL>();
    }
  }
  template <int BASE, int STEPS> TA_MEMBER void step(int k) {
    constexpr int FIRST = BASE / G, LAST = (BASE + STEPS - 1) / G;
    R pivot = real_of(at[FIRST][0]);
    TA_UNROLL for (int r = FIRST + 1; r <= LAST; ++r)
      pivot = k >= r * G ? real_of(at[r][0]) : pivot;
    pivot = from_rank<G>(pivot, k % G);
    note(failed, pivot <= 0, k);
    R size, inverse;
    roots_of(pivot, size, inverse);
    T factor[SLOTS];
    TA_UNROLL for (int r = FIRST; r < SLOTS; ++r) {
      const int i = r * G + team.rank;
      factor[r] = i == k ? number<T>(size) : scaled(at[r][0], inverse);
      if (i >= k && i < N) l[i * LDL + k] = factor[r];
    }
    team.sync();
    TA_UNROLL for (int next = 1; next < N - BASE; ++next) {
      const bool inside = next <= N - BASE - STEPS || k + next < N;
      const T y = inside ? conjugate(l[(k + next) * LDL + k]) : number<T>(0);
      TA_UNROLL for (int r = (BASE + next) / G; r < SLOTS; ++r) {
        T x = at[r][next];
        subtract_product(x, factor[r], y);
        at[r][next - 1] = x;
      }
    }
  }
  TA_MEMBER void clear_above() {
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      const int i = r * G + team.rank;
      if (i < N) {
        _Pragma("unroll 4") for (int j = i + 1; j < N; ++j) l[i * LDL + j] = number<T>(0);
      }
    }
  }
};

// Panels of B columns: every thread factors the block on the diagonal for itself, then each its
// rows below, then all the rest of the matrix, in blocks of S x S.
template <int N, int LDL, int G, class T> struct CholeskyByPanels {
  using R = part_of<T>;
  static constexpr int B = sizeof(T) > 8 ? 4 : 8, S = sizeof(T) > 8 ? 2 : 4;
  const Team<G>& team;
  T* l;
  int& failed;

  TA_MEMBER void panel(int first) const {
    T block[B][B];
    R inverse[B];
    TA_UNROLL for (int r = 0; r < B; ++r)
      TA_UNROLL for (int c = 0; c <= r; ++c)
        block[r][c] = first + r < N ? l[(first + r) * LDL + first + c] : number<T>(r == c);
    TA_UNROLL for (int k = 0; k < B; ++k) {
      R size;
      note(failed, real_of(block[k][k]) <= 0, first + k);
      roots_of(real_of(block[k][k]), size, inverse[k]);
      block[k][k] = number<T>(size);
      TA_UNROLL for (int r = k + 1; r < B; ++r) block[r][k] = scaled(block[r][k], inverse[k]);
      TA_UNROLL for (int c = k + 1; c < B; ++c)
        TA_UNROLL for (int r = c; r < B; ++r)
          subtract_product(block[r][c], block[r][k], conjugate(block[c][k]));
    }
    team.sync();
    TA_UNROLL for (int r = 0; r < B; ++r)
      TA_UNROLL for (int c = 0; c <= r; ++c)
        if ((r * B + c) % G == team.rank && first + r < N)
          l[(first + r) * LDL + first + c] = block[r][c];
    _Pragma("unroll 1") for (int i = first + B + team.rank; i < N; i += G) {
      T row[B];
      TA_UNROLL for (int c = 0; c < B; ++c) row[c] = l[i * LDL + first + c];
      TA_UNROLL for (int k = 0; k < B; ++k) {
        row[k] = scaled(row[k], inverse[k]);
        TA_UNROLL for (int c = k + 1; c < B; ++c)
          subtract_product(row[c], row[k], conjugate(block[c][k]));
      }
      TA_UNROLL for (int c = 0; c < B; ++c) l[i * LDL + first + c] = row[c];
    }
    team.sync();
  }
  TA_MEMBER void rest(int first) const {
    const int begin = first + B, rows = (N - begin + S - 1) / S;
    _Pragma("unroll 1") for (int e = team.rank; e < (rows + 1) / 2 * (rows + 1); e += G) {
      const Below block(e, rows);
      if (block.once) update(first, begin + block.row * S, begin + block.column * S);
    }
    team.sync();
  }
  TA_MEMBER void update(int first, int i, int j) const {
    T sum[S][S];
    TA_UNROLL for (int r = 0; r < S; ++r)
      TA_UNROLL for (int c = 0; c < S; ++c) sum[r][c] = number<T>(0);
    TA_UNROLL for (int k = 0; k < B; ++k) {
      T x[S], y[S];
      TA_UNROLL for (int r = 0; r < S; ++r) {
        x[r] = l[min_idx(i + r, N - 1) * LDL + first + k];
        y[r] = conjugate(l[min_idx(j + r, N - 1) * LDL + first + k]);
      }
      TA_UNROLL for (int r = 0; r < S; ++r)
        TA_UNROLL for (int c = 0; c < S; ++c) add_product(sum[r][c], x[r], y[c]);
    }
    TA_UNROLL for (int r = 0; r < S; ++r)
      TA_UNROLL for (int c = 0; c < S; ++c)
        if (i + r < N && j + c <= i + r) {
          T& x = l[(i + r) * LDL + j + c];
          x = x - sum[r][c];
        }
  }
};

// An index of 0 ... N - 1 where what is beyond is not used: of blocks of S, if they do not fit.
template <int N, int S> TA_FN int at_most(int i) { return N % S == 0 ? i : min_idx(i, N - 1); }

// ---- triangular systems ----

// The first zero on the diagonal; every warp, or part of one, looks for it.
template <int N, int LD, int G, class T>
TA_FN void note_zeros(const Team<G>& team, const T* a, int& failed) {
  constexpr int WARP = G < 32 ? G : 32;
  const int place = team.rank % WARP;
  _Pragma("unroll 1") for (int first = 0; first < N; first += WARP) {
    const int i = first + place;
    const bool zero = i < N && is_zero(a[i * LD + i]);
    if constexpr (G == 1) note(failed, zero, first);
    else {
      const unsigned zeros = __ballot_sync(0xffffffffu, zero);
      const unsigned ours = zeros >> (threadIdx.x % 32 - place) & (0xffffffffu >> (32 - WARP));
      if (ours != 0 && failed == 0) failed = first + __ffs(int(ours));
    }
  }
}

// Rows of M columns of the solution in registers, each told to all as soon as it is known.
template <int N, int M, int LDX, int LDA, bool FORWARD, int TRANSPOSED, bool UNIT, int G, class T>
TA_FN void triangular_by_rows(const Team<G>& team, T* x, const T* a) {
  constexpr int SLOTS = (N + G - 1) / G;
  T row[SLOTS][M], inverse[SLOTS];
  TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
    const int i = r * G + team.rank;
    TA_UNROLL for (int c = 0; c < M; ++c) row[r][c] = i < N ? x[i * LDX + c] : number<T>(0);
    if constexpr (!UNIT)
      inverse[r] = inverse_of(i < N ? element<TRANSPOSED, LDA>(a, i, i) : number<T>(1));
  }
  TA_UNROLL for (int step = 0; step < N; ++step) {
    const int k = FORWARD ? step : N - 1 - step;
    T known[M];
    TA_UNROLL for (int c = 0; c < M; ++c) {
      if constexpr (!UNIT) {
        const T divided = multiplied(row[k / G][c], inverse[k / G]);
        if (team.rank == k % G) row[k / G][c] = divided;
      }
      known[c] = from_rank<G>(row[k / G][c], k % G);
    }
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      const int i = r * G + team.rank;
      if (FORWARD ? r * G + G - 1 > k : r * G < k) {
        if (i < N && (FORWARD ? i > k : i < k)) {
          const T factor = element<TRANSPOSED, LDA>(a, i, k);
          TA_UNROLL for (int c = 0; c < M; ++c) subtract_product(row[r][c], factor, known[c]);
        }
      }
    }
  }
  TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
    const int i = r * G + team.rank;
    TA_UNROLL for (int c = 0; c < M; ++c)
      if (i < N) x[i * LDX + c] = row[r][c];
  }
}

// One column of the solution in the registers of a warp, as above but in a loop.
template <int N, int LDX, int LDA, bool FORWARD, int TRANSPOSED, bool UNIT, class T>
TA_FN void triangular_by_warp(int rank, T* x, const T* a) {
  constexpr int SLOTS = (N + 31) / 32;
  T row[SLOTS], inverse[SLOTS];
  TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
    const int i = r * 32 + rank;
    row[r] = i < N ? x[i * LDX] : number<T>(0);
    inverse[r] = number<T>(1);
    if constexpr (!UNIT)
      inverse[r] = inverse_of(i < N ? element<TRANSPOSED, LDA>(a, i, i) : number<T>(1));
  }
  TA_UNROLL for (int turn = 0; turn < SLOTS; ++turn) {
    const int slot = FORWARD ? turn : SLOTS - 1 - turn, rows = N - slot * 32 < 32 ? N % 32 : 32;
    _Pragma("unroll 1") for (int step = 0; step < rows; ++step) {
      const int place = FORWARD ? step : rows - 1 - step, k = slot * 32 + place;
      T known = row[slot];
      if constexpr (!UNIT) known = multiplied(known, inverse[slot]);
      known = from_rank<32>(known, place);
      TA_UNROLL for (int r = FORWARD ? slot : 0; r < (FORWARD ? SLOTS : slot + 1); ++r) {
        const int i = r * 32 + rank;
        if (i < N && (FORWARD ? i > k : i < k))
          subtract_product(row[r], element<TRANSPOSED, LDA>(a, i, k), known);
      }
      if (rank == place) row[slot] = known;
    }
  }
  TA_UNROLL for (int r = 0; r < SLOTS; ++r)
    if (r * 32 + rank < N) x[(r * 32 + rank) * LDX] = row[r];
}

// B rows of one column from `first` on, in registers, from what is left of them.
template <int B, int LDX, int LDA, bool FORWARD, int TRANSPOSED, bool UNIT, class T>
TA_FN void solve_block(T (&block)[B], T* x, const T* a, int first) {
  TA_UNROLL for (int step = 0; step < B; ++step) {
    const int k = FORWARD ? step : B - 1 - step;
    if constexpr (!UNIT)
      block[k] = multiplied(
          block[k], inverse_of(element<TRANSPOSED, LDA>(a, first + k, first + k)));
    TA_UNROLL for (int r = FORWARD ? k + 1 : 0; r < (FORWARD ? B : k); ++r)
      subtract_product(block[r], element<TRANSPOSED, LDA>(a, first + r, first + k), block[k]);
  }
  TA_UNROLL for (int r = 0; r < B; ++r) x[(first + r) * LDX] = block[r];
}
template <class T> constexpr int COLUMN_BLOCK = sizeof(T) > 8 ? 4 : 8;
// body(first, number of rows) for blocks of rows in the order in which they are solved.
template <int N, int B, bool FORWARD, class Body> TA_FN void row_blocks(Body body) {
  constexpr int REST = N % B;
  if constexpr (FORWARD) {
    _Pragma("unroll 1") for (int i = 0; i < N - REST; i += B) body(i, Count<B>());
    if constexpr (REST > 0) body(N - REST, Count<REST>());
  } else {
    _Pragma("unroll 1") for (int i = N - B; i >= REST; i -= B) body(i, Count<B>());
    if constexpr (REST > 0) body(0, Count<REST>());
  }
}
// A thread solves for a column.
template <int N, int M, int LDX, int LDA, bool FORWARD, int TRANSPOSED, bool UNIT, int G, class T>
TA_FN void triangular_by_columns(const Team<G>& team, T* all, const T* a) {
  _Pragma("unroll 1") for (int c = team.rank; c < M; c += G) {
    T* const x = all + c;
    row_blocks<N, COLUMN_BLOCK<T>, FORWARD>([&](int first, auto rows) {
      constexpr int B = decltype(rows)::value;
      T block[B], sum[B];
      TA_UNROLL for (int r = 0; r < B; ++r) {
        block[r] = x[(first + r) * LDX];
        sum[r] = number<T>(0);
      }
      const int begin = FORWARD ? 0 : first + B, end = FORWARD ? first : N;
      _Pragma("unroll 4") for (int k = begin; k < end; ++k) {
        const T known = x[k * LDX];
        TA_UNROLL for (int r = 0; r < B; ++r)
          add_product(sum[r], element<TRANSPOSED, LDA>(a, first + r, k), known);
      }
      TA_UNROLL for (int r = 0; r < B; ++r) block[r] = block[r] - sum[r];
      solve_block<B, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(block, x, a, first);
    });
  }
}
// A block of rows is solved, a thread a column, and then taken from the others by all threads, of
// which each has S x S elements as far apart as there are threads.
template <int N, int M, int LDX, int LDA, bool FORWARD, int TRANSPOSED, bool UNIT, int G, class T>
TA_FN void triangular_by_panels(const Team<G>& team, T* x, const T* a) {
  constexpr int S = N * M < 8 * G ? 1 : sizeof(T) > 8 || N * M < 32 * G ? 2 : 4;
  constexpr int COLUMNS = (M + S - 1) / S;
  row_blocks<N, COLUMN_BLOCK<T>, FORWARD>([&](int first, auto rows) {
    constexpr int B = decltype(rows)::value;
    _Pragma("unroll 1") for (int c = team.rank; c < M; c += G) {
      T block[B];
      TA_UNROLL for (int r = 0; r < B; ++r) block[r] = x[(first + r) * LDX + c];
      solve_block<B, LDX, LDA, FORWARD, TRANSPOSED, UNIT>(block, x + c, a, first);
    }
    team.sync();
    const int begin = FORWARD ? first + B : 0, end = FORWARD ? N : first;
    const int blocks = (end - begin + S - 1) / S;
    _Pragma("unroll 1") for (int e = team.rank; e < blocks * COLUMNS; e += G) {
      const int i = begin + e / COLUMNS, c = e % COLUMNS;
      T sum[S][S];
      TA_UNROLL for (int r = 0; r < S; ++r)
        TA_UNROLL for (int q = 0; q < S; ++q) sum[r][q] = number<T>(0);
      TA_UNROLL for (int k = 0; k < B; ++k) {
        T factor[S], known[S];
        TA_UNROLL for (int r = 0; r < S; ++r) {
          factor[r] = element<TRANSPOSED, LDA>(a, min_idx(i + r * blocks, N - 1), first + k);
          known[r] = x[(first + k) * LDX + at_most<M, S>(c + r * COLUMNS)];
        }
        TA_UNROLL for (int r = 0; r < S; ++r)
          TA_UNROLL for (int q = 0; q < S; ++q) add_product(sum[r][q], factor[r], known[q]);
      }
      TA_UNROLL for (int r = 0; r < S; ++r)
        TA_UNROLL for (int q = 0; q < S; ++q)
          if (i + r * blocks < end && (M % S == 0 || c + q * COLUMNS < M)) {
            T& y = x[(i + r * blocks) * LDX + c + q * COLUMNS];
            y = y - sum[r][q];
          }
    }
    team.sync();
  });
}

// ---- LU ----

// A NaN is chosen, so that it is in the result: a matrix with it is not singular.
template <class T> TA_FN part_of<T> pivot_size(T x) {
  const part_of<T> size = size_of(x);
  return size == size ? size : infinity<part_of<T>>();
}

// Of G neighbouring threads the largest, and of equals that of the first row.
template <int G, class R> TA_FN void largest_of(R& size, int& row, int rank) {
  TA_UNROLL for (int distance = 1; distance < G; distance *= 2) {
    const R other = from_rank<G>(size, rank ^ distance);
    const int row_of_other = from_rank<G>(row, rank ^ distance);
    const bool better = other > size || (other == size && row_of_other < row);
    size = better ? other : size;
    row = better ? row_of_other : row;
  }
}

// Which row has the pivot, from numbers of which the largest says so: of a size, less its last bits,
// and the first row.  A NaN is above all.
constexpr unsigned ROW_BITS = 31;
template <class R> TA_FN unsigned with_row(R size, int row) {
  unsigned bits;
  if constexpr (sizeof(R) == 4) bits = __float_as_uint(size);
  else bits = __double2hiint(size);
  return (bits & ~ROW_BITS) | (ROW_BITS - row);
}
template <int G> TA_FN int row_of_largest(unsigned found, int rank) {
  TA_UNROLL for (int distance = 1; distance < G; distance *= 2) {
    const unsigned other = from_rank<G>(found, rank ^ distance);
    found = other > found ? other : found;
  }
  return ROW_BITS - (found & ROW_BITS);
}

// Rows in registers stay where they are: `place` says where each would be by its exchanges.  When a
// column is done, those right of it move to the left by one.
template <int N, int LD, int G, class T> struct EliminationInRegisters {
  static constexpr int SLOTS = (N + G - 1) / G;
  using R = part_of<T>;
  const Team<G>& team;
  T* a;
  int* pivots;
  int& failed;
  int place[SLOTS];
  T at[SLOTS][N], lower[SLOTS][N];

  TA_MEMBER void load() {
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      place[r] = r * G + team.rank;
      TA_UNROLL for (int j = 0; j < N; ++j)
        at[r][j] = place[r] < N ? a[place[r] * LD + j] : number<T>(0);
    }
    team.sync();
  }
  template <int BASE> TA_MEMBER void panels() {
    if constexpr (BASE < N) {
      constexpr int STEPS = N - BASE < PANEL ? N - BASE : PANEL;
      _Pragma("unroll 1") for (int t = 0; t < STEPS; ++t) step<BASE, STEPS>(BASE + t);
      panels<BASE + PANEL>();
    }
  }
  // Where the pivot of step k is.
  TA_MEMBER int chosen_row(int k) const {
    static_assert(N <= ROW_BITS + 1, "");
    unsigned found = 0;
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      const unsigned here = with_row(size_of(at[r][0]), place[r]);
      const bool better = (place[r] >= k) & (place[r] < N) & (here > found);
      found = better ? here : found;
    }
    return row_of_largest<G>(found, team.rank);
  }
  template <int BASE, int STEPS> TA_MEMBER void step(int k) {
    const int row = chosen_row(k);
    if (team.rank == 0) pivots[k] = row;
    // Its elements become a row of U, which all read.
    T* const upper = a + k * LD + k;
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      const bool chosen = place[r] == row;
      place[r] = chosen ? k : place[r] == k ? row : place[r];
      if (chosen) {
        TA_UNROLL for (int next = 0; next < N - BASE; ++next)
          if (next <= N - BASE - STEPS || k + next < N) upper[next] = at[r][next];
      }
    }
    team.sync();
    const T pivot = upper[0];
    const bool zero = is_zero(pivot);
    note(failed, zero, k);
    const T inverse = zero ? number<T>(1) : inverse_of(pivot);
    T factor[SLOTS];
    TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
      factor[r] = place[r] > k ? multiplied(at[r][0], inverse) : number<T>(0);
      TA_UNROLL for (int q = 1; q < STEPS; ++q) lower[r][BASE + q - 1] = lower[r][BASE + q];
      lower[r][BASE + STEPS - 1] = factor[r];
    }
    TA_UNROLL for (int next = 1; next < N - BASE; ++next) {
      const bool inside = next <= N - BASE - STEPS || k + next < N;
      const T y = inside ? upper[next] : number<T>(0);
      TA_UNROLL for (int r = 0; r < SLOTS; ++r) {
        T x = at[r][next];
        subtract_product(x, factor[r], y);
        at[r][next - 1] = x;
      }
    }
  }
  TA_MEMBER void store() const {
    team.sync();
    TA_UNROLL for (int r = 0; r < SLOTS; ++r)
      TA_UNROLL for (int j = 0; j < N; ++j)
        if (place[r] < N && j < place[r]) a[place[r] * LD + j] = lower[r][j];
  }
};

// Elimination where the matrix lies.  Every warp looks for the pivot.
template <int N, int LD, int G, class T>
TA_FN void lu_in_memory(const Team<G>& team, T* a, int* pivots, int& failed) {
  constexpr int WARP = G < 32 ? G : 32;
  _Pragma("unroll 1") for (int k = 0; k < N; ++k) {
    part_of<T> size = -1;
    int row = N;
    _Pragma("unroll 1") for (int i = k + team.rank % WARP; i < N; i += WARP) {
      const auto here = pivot_size(a[i * LD + k]);
      row = here > size ? i : row;
      size = here > size ? here : size;
    }
    largest_of<WARP>(size, row, team.rank % WARP);
    row = row < N ? row : k;  // all are NaN
    team.sync();
    if (team.rank == 0) pivots[k] = row;
    _Pragma("unroll 1") for (int j = team.rank; j < N && row != k; j += G) {
      const T x = a[k * LD + j];
      a[k * LD + j] = a[row * LD + j];
      a[row * LD + j] = x;
    }
    team.sync();
    const T pivot = a[k * LD + k];
    const bool zero = is_zero(pivot);
    note(failed, zero, k);
    const T inverse = zero ? number<T>(1) : inverse_of(pivot);
    _Pragma("unroll 1") for (int i = k + 1 + team.rank; i < N; i += G)
      a[i * LD + k] = multiplied(a[i * LD + k], inverse);
    team.sync();
    const int rest = N - 1 - k;
    _Pragma("unroll 4") for (int e = team.rank; e < rest * rest; e += G) {
      const int i = k + 1 + e / rest, j = k + 1 + e % rest;
      subtract_product(a[i * LD + j], a[i * LD + k], a[k * LD + j]);
    }
    team.sync();
  }
}

// What the exchanges make of the rows: a thread follows its elements through all of them.
template <int N, int M, int LDX, int G, class T>
TA_FN void exchange_rows(const Team<G>& team, T* x, const int* pivots) {
  constexpr int EACH = (N * M + G - 1) / G;
  if constexpr (EACH <= 8) {
    T moved[EACH];
    int row[EACH];
    TA_UNROLL for (int e = 0; e < EACH; ++e) {
      const int at = team.rank + e * G;
      row[e] = at / M;
      if (at < N * M) moved[e] = x[row[e] * LDX + at % M];
    }
    _Pragma("unroll 4") for (int k = 0; k < N; ++k) {
      const int other = pivots[k];
      TA_UNROLL for (int e = 0; e < EACH; ++e)
        row[e] = row[e] == k ? other : row[e] == other ? k : row[e];
    }
    team.sync();
    TA_UNROLL for (int e = 0; e < EACH; ++e) {
      const int at = team.rank + e * G;
      if (at < N * M) x[row[e] * LDX + at % M] = moved[e];
    }
  } else {
    _Pragma("unroll 1") for (int c = team.rank; c < M; c += G) {
      _Pragma("unroll 1") for (int k = 0; k < N; ++k) {
        const int other = pivots[k];
        const T y = x[k * LDX + c];
        x[k * LDX + c] = x[other * LDX + c];
        x[other * LDX + c] = y;
      }
    }
  }
}

template <int M, int N, int G, class T> constexpr int block_of_product() {
  int size = sizeof(T) > 8 ? 2 : 4;
  while (size > 1 && ((M + size - 1) / size) * ((N + size - 1) / size) < G) size /= 2;
  return size;
}

// How a team within a warp shares a product out where there is much to sum and little to keep: a
// thread has `rows` x `columns` sums, of every `count`th product each; count is 1 where sums are
// better a thread's own.
struct Slices {
  int rows, columns, count;
};
template <int M, int N, int K, int G, class T> constexpr Slices slices_of_product() {
  // A multiprocessor loads an element for a warp while it adds four products for it.
  constexpr int LOAD = 4, S = block_of_product<M, N, G, T>();
  constexpr int BLOCKS = ((M + S - 1) / S) * ((N + S - 1) / S);
  Slices best{S, S, 1};
  if (G == 1 || G > 32) return best;
  int least = (BLOCKS + G - 1) / G * K * (2 * S * LOAD + S * S);
  for (int rows = 1; rows < 2 * M && rows <= 16; rows *= 2)
    for (int columns = 1; columns < 2 * N && columns <= 16; columns *= 2) {
      const int sums = rows * columns, words = int(sizeof(T)) / 4;
      const int blocks = ((M + rows - 1) / rows) * ((N + columns - 1) / columns);
      int count = 1;
      while (2 * count * blocks <= G && 8 * count <= K) count *= 2;
      if (blocks > G || count == 1 || sums * words > 64) continue;
      const int cost = (K + count - 1) / count * ((rows + columns) * LOAD + sums) +
                       sums * (LOAD + 3);
      if (cost < least) least = cost, best = Slices{rows, columns, count};
    }
  return best;
}

// Add up what COUNT / MASK threads side by side have of L sums, and leave an equal share of them to
// each: those from `first` on, at the beginning.
template <int L, int MASK, int COUNT, class T> TA_FN void share_out(T* sum, int rank, int& first) {
  if constexpr (MASK < COUNT && L > 1) {
    constexpr int H = L / 2;
    const bool upper = (rank & MASK) != 0;
    TA_UNROLL for (int e = 0; e < H; ++e) {
      T kept = sum[e], given = sum[H + e];
      exchange_if(upper, kept, given);
      sum[e] = kept + shuffled(given, MASK);
    }
    first += upper ? H : 0;
    share_out<H, 2 * MASK, COUNT>(sum, rank, first);
  } else if constexpr (MASK < COUNT) {
    sum[0] = sum[0] + shuffled(sum[0], MASK);
    share_out<1, 2 * MASK, COUNT>(sum, rank, first);
  }
}

}  // namespace linear
