// Products of 16-bit floats on tensor cores, tile by tile; on the device alone.  (Those of 32 bits have
// tiles alike, and products of their own: `singles.h`.)
//
// A tile in shared memory has panels of 64 columns.  A row of a panel has 128 bytes; its eight pieces
// of 16 bytes lie in another order in each of eight rows, so that eight rows of a column are in all
// banks.  So lie the operands of both kinds of instructions: `mma` of a warp, which has 16 rows, and
// where there are those `wgmma` of four warps, which have 64.  The threads of either hold results alike:
// of 16 rows thread t has rows t / 4 and t / 4 + 8, and of every eight columns 2 (t % 4) and the next.
#pragma once
#include "tile.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TA_WGMMA 1
#else
#define TA_WGMMA 0
#endif

namespace streams {

constexpr int PANEL = 64;
template <class T> struct Of {
  enum { PANEL = 128 / sizeof(T), PIECE = 16 / sizeof(T) };  // elements
};

// The order of a row's pieces: the number of each, exclusive or this.  It is that of `wgmma`; where that
// is not used of 32 bits, pieces of rows that follow each other are apart by half a panel, and those of
// every other row are by two: see `singles.h`.
#if TA_WGMMA && defined(TA_ARRANGED)
template <class T> TA_FN constexpr int order_of(int row) { return row % 8; }
#else
template <class T> TA_FN constexpr int order_of(int row) {
  return sizeof(T) == 2 ? row % 8 : (row ^ row >> 1) % 2 * 4 + row / 4 % 2 * 2 + row / 2 % 2;
}
#endif
// Where an element of a tile with ROWS rows is.
template <class T, int ROWS> TA_FN constexpr int place_of(int row, int column) {
  constexpr int PANEL = Of<T>::PANEL, PIECE = Of<T>::PIECE;
  return column / PANEL * (ROWS * PANEL) + row * PANEL +
         ((column / PIECE % 8 ^ order_of<T>(row)) * PIECE) + column % PIECE;
}

// Element by element; neighbouring threads go along memory.
template <int THREADS, int ROWS, int COLUMNS, class T>
TA_FN void copy_elements(T* tile, const T* from, idx row_step, idx column_step, int rows) {
  constexpr int WIDTH = (COLUMNS + 15) / 16 * 16;
  const bool down = column_step != 1;
  _Pragma("unroll 1") for (int e = threadIdx.x % THREADS; e < ROWS * WIDTH; e += THREADS) {
    const int row = down ? e % ROWS : e / WIDTH, column = down ? e / ROWS : e % WIDTH;
    const bool there = row < rows && column < COLUMNS;
    tile[place_of<T, ROWS>(row, column)] = there ? from[row * row_step + column * column_step] : T(0);
  }
}
TA_FN void copy_or_zero(void* to, const void* from, bool there) {
  if (there) copy_async<16>(to, from);
  else *static_cast<uint4*>(to) = uint4{0, 0, 0, 0};
}

TA_FN bool is_aligned(const void* from) {
  return reinterpret_cast<unsigned long long>(from) % 16 == 0;
}
// Rows of a matrix in memory into a tile; beyond `rows` of them and COLUMNS there are zeros.
// Columns lie together, and each row is `whole` pieces of 16 bytes.
template <int THREADS, int ROWS, int COLUMNS, class T>
TA_FN void copy_rows(T* tile, const T* from, idx row_step, int rows, bool whole) {
  constexpr int PIECE = Of<T>::PIECE, PIECES = (COLUMNS + 15) / 16 * 16 / PIECE;
  if (!whole) return copy_elements<THREADS, ROWS, COLUMNS>(tile, from, row_step, 1, rows);
  _Pragma("unroll 1") for (int e = threadIdx.x % THREADS; e < ROWS * PIECES; e += THREADS) {
    const int row = e / PIECES, column = e % PIECES * PIECE;
    const bool there = row < rows && column < COLUMNS;
    copy_or_zero(tile + place_of<T, ROWS>(row, column), from + (there ? row * row_step + column : 0), there);
  }
}
// Whether threads that have so many rows at once have whole tiles, and orders of pieces that repeat.
constexpr bool goes_evenly(int together, int rows) {
  return together > rows ? together % 8 == 0
                         : together > 0 && rows % together == 0 && (8 % together == 0 || together % 8 == 0);
}
// A thread's pieces of a tile, in one column, beginning with that row.
template <int TOGETHER, int ROWS, class T>
TA_FN void copy_evenly(T* tile, int row, int column, const T* from, idx step) {
  if (TOGETHER > ROWS && row >= ROWS) return;
  constexpr int PANEL = Of<T>::PANEL, PIECE = Of<T>::PIECE;
  T* const to = tile + column / PANEL * (ROWS * PANEL) + row * PANEL;
  const int piece = column / PIECE % 8 ^ order_of<T>(row);
  _Pragma("unroll") for (int k = 0; k < (ROWS + TOGETHER - 1) / TOGETHER; ++k) {
    copy_async<16>(to + k * (TOGETHER * PANEL) + (piece ^ order_of<T>(k * TOGETHER)) * PIECE, from);
    from += TOGETHER * step;
  }
}
// The same as rows of a matrix, of the tile with that number.
template <int THREADS, int ROWS, int COLUMNS, class T> struct TilesOfRows {
  enum {
    PIECE = Of<T>::PIECE,
    PIECES = (COLUMNS + 15) / 16 * 16 / PIECE,
    TOGETHER = THREADS / PIECES,
    QUICK = COLUMNS % 16 == 0 && THREADS % PIECES == 0 && goes_evenly(TOGETHER, ROWS)
  };
  const T* from;  // of the first tile, the thread's first piece
  idx step;
  bool whole;
  TA_MEMBER int row() const { return QUICK ? threadIdx.x % THREADS / PIECES : 0; }
  TA_MEMBER int column() const { return QUICK ? threadIdx.x % PIECES * PIECE : 0; }
  TA_MEMBER TilesOfRows(const T* begin, idx step, bool whole) : from(begin), step(step), whole(whole) {
    from += row() * step + column();
  }
  // Whether copies have been asked for, and nothing was written.
  TA_MEMBER bool fetch(T* tile, int number, int rows) const {
    const T* const first = from + number * (ROWS * step);
    const bool quick = QUICK && whole && rows >= ROWS;
    if (quick) copy_evenly<TOGETHER, ROWS>(tile, row(), column(), first, step);
    else copy_rows<THREADS, ROWS, COLUMNS>(tile, first - (row() * step + column()), step, rows, whole);
    return quick;
  }
};

// The same of a matrix whose columns lie in memory as the tile's do, which has COLUMNS of them: a tile
// has COUNT rows of it, and below them zeros.
template <int THREADS, int COUNT, int COLUMNS, class T> struct TilesOfColumns {
  enum {
    ROWS = (COUNT + 15) / 16 * 16,
    PIECE = Of<T>::PIECE,
    PIECES = COLUMNS / PIECE,
    TOGETHER = THREADS / PIECES,
    QUICK = COUNT == ROWS && THREADS % PIECES == 0 && goes_evenly(TOGETHER, ROWS)
  };
  const T* begin;
  idx step;
  bool whole;
  TA_MEMBER TilesOfColumns(const T* begin, idx step, bool whole)
      : begin(begin), step(step), whole(whole) {}
  TA_MEMBER bool fetch(T* tile, int number, int columns) const {
    const T* const from = begin + number * COLUMNS;
    if (QUICK && whole && columns >= COLUMNS) {
      const int row = threadIdx.x % THREADS / PIECES, column = threadIdx.x % PIECES * PIECE;
      copy_evenly<TOGETHER, ROWS>(tile, row, column, from + (row * step + column), step);
      return true;
    }
    if (whole) {
      _Pragma("unroll 1") for (int e = threadIdx.x % THREADS; e < ROWS * PIECES; e += THREADS) {
        const int row = e / PIECES, column = e % PIECES * PIECE;
        const bool there = row < COUNT && column < columns;
        copy_or_zero(tile + place_of<T, ROWS>(row, column), from + (there ? row * step + column : 0), there);
      }
    } else {
      _Pragma("unroll 1") for (int e = threadIdx.x % THREADS; e < ROWS * COLUMNS; e += THREADS) {
        const int row = e / COLUMNS, column = e % COLUMNS;
        const bool there = row < COUNT && column < columns;
        tile[place_of<T, ROWS>(row, column)] = there ? from[row * step + column] : T(0);
      }
    }
    return false;
  }
};

// ---- elements of two bytes, by two ----

TA_FN bool is_word(const void* from) { return reinterpret_cast<unsigned long long>(from) % 4 == 0; }
TA_FN unsigned word_at(const void* from) { return __ldg(static_cast<const unsigned*>(from)); }
template <class T> TA_FN void put_half(unsigned& word, int place, T value) {
  const unsigned bits = __builtin_bit_cast(unsigned short, value);
  word = place ? word & 0xffffu | bits << 16 : word & 0xffff0000u | bits;
}
template <class T> TA_FN T half_of(unsigned word, int place) {
  return __builtin_bit_cast(T, (unsigned short)(place ? word >> 16 : word));
}

// ---- two numbers in a register ----

TA_FN unsigned packed(bf16, f32 low, f32 high) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TA_FN unsigned packed(f16, f32 low, f32 high) {
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// 16 columns of results as the left operand of another product.
template <class T> TA_FN void pack(unsigned (&a)[4], const f32 (&first)[4], const f32 (&second)[4]) {
  a[0] = packed(T(), first[0], first[1]);
  a[1] = packed(T(), first[2], first[3]);
  a[2] = packed(T(), second[0], second[1]);
  a[3] = packed(T(), second[2], second[3]);
}

// ---- warps ----

// Words of four neighbouring threads: the q-th then has the q-th of each, in order.
TA_FN void turn_among_four(unsigned (&w)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  _Pragma("unroll") for (int k = 0; k < 4; k += 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? w[k] : w[k + 1], 1);
    w[k] = odd ? other : w[k];
    w[k + 1] = odd ? w[k + 1] : other;
  }
  _Pragma("unroll") for (int k = 0; k < 2; ++k) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? w[k] : w[k + 2], 2);
    w[k] = upper ? other : w[k];
    w[k + 2] = upper ? w[k + 2] : other;
  }
}

TA_FN void four_matrices(unsigned (&r)[4], const void* from) {
  const unsigned place = unsigned(__cvta_generic_to_shared(const_cast<void*>(from)));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}
TA_FN void four_transposed(unsigned (&r)[4], const void* from) {
  const unsigned place = unsigned(__cvta_generic_to_shared(const_cast<void*>(from)));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}
TA_FN void multiply(bf16, f32 (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TA_FN void multiply(f16, f32 (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c = a b.T, of the warp's 16 rows of a tile with A rows and all N of another one; or, where that is
// TURNED, c = a b with its N columns.
template <int A, int N, int DEPTH, bool TURNED, class T>
TA_FN void multiply_tiles(f32 (&c)[N / 8][4], const T* a, const T* b) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  _Pragma("unroll") for (int n = 0; n < N / 8; ++n)
    _Pragma("unroll") for (int v = 0; v < 4; ++v) c[n][v] = 0;
  _Pragma("unroll") for (int k = 0; k < DEPTH; k += 16) {
    unsigned left[4];
    four_matrices(left, a + place_of<T, A>(row + lane % 16, k + lane / 16 * 8));
    _Pragma("unroll") for (int n = 0; n < N; n += 16) {
      unsigned right[4];
      if (TURNED) four_transposed(right, b + place_of<T, DEPTH>(k + lane % 16, n + lane / 16 * 8));
      else four_matrices(right, b + place_of<T, N>(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
      multiply(T(), c[n / 8], left, right[0], right[1]);
      multiply(T(), c[n / 8 + 1], left, right[2], right[3]);
    }
  }
}
// c += a b, where the warp has 16 rows of a as results, and b is a tile; or b.T, where that is TURNED.
template <int DEPTH, int N, bool TURNED, class T>
TA_FN void add_product(f32 (&c)[N / 8][4], const unsigned (&a)[DEPTH / 16][4], const T* b) {
  const int lane = threadIdx.x % 32;
  _Pragma("unroll") for (int k = 0; k < DEPTH; k += 16)
    _Pragma("unroll") for (int n = 0; n < N; n += 16) {
      unsigned right[4];
      if (TURNED)
        four_matrices(right, b + place_of<T, N>(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
      else four_transposed(right, b + place_of<T, DEPTH>(k + lane % 16, n + lane / 16 * 8));
      multiply(T(), c[n / 8], a[k / 16], right[0], right[1]);
      multiply(T(), c[n / 8 + 1], a[k / 16], right[2], right[3]);
    }
}

// ---- four warps ----

#if TA_WGMMA
// Where a tile is to the instruction: its pieces are in the order of above, eight rows are 1,024 bytes,
// and where what is not summed are its columns, `apart` bytes lead from one panel to the next.
// Places in it are numbers of elements that are added, divided by 8.
TA_FN unsigned described(const void* tile, int apart) {
  const unsigned at = unsigned(__cvta_generic_to_shared(const_cast<void*>(tile)));
  return at >> 4 | unsigned(apart >> 4) << 16;
}
TA_FN u64 operand_at(unsigned described) { return u64(1u << 30 | 1024 >> 4) << 32 | described; }
TA_FN int number_of_four_warps() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }
TA_FN void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TA_FN void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LATER> TA_FN void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
}
// The compiler may not move what uses results in front of this.
template <int N> TA_FN void settled(f32 (&c)[N][4]) {
  _Pragma("unroll") for (int n = 0; n < N; ++n)
    _Pragma("unroll") for (int v = 0; v < 4; ++v) asm volatile("" : "+f"(c[n][v])::"memory");
}
template <int N> TA_FN void finish(f32 (&c)[N][4]) {
  await_products<0>();
  settled(c);
}
template <int COUNT> TA_FN void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> TA_FN void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// Which of all tiles: the stage that it is in, and whether that has been used an even number of times.
struct Turn {
  int tile = 0, stage = 0, parity;
  TA_MEMBER explicit Turn(int parity) : parity(parity) {}
  template <int STAGES> TA_MEMBER void go_on() {
    ++tile;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};
TA_FN void prepare_barrier(u64* barrier, int arrivals) {
  const unsigned at = unsigned(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
TA_FN void arrive(u64* barrier) {
  const unsigned at = unsigned(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
TA_FN void await_barrier(u64* barrier, int parity) {
  const unsigned at = unsigned(__cvta_generic_to_shared(barrier));
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
               "@!p bra again; }" ::"r"(at), "r"(parity) : "memory");
}
template <int THREADS> TA_FN void workers_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
// Stages of tiles: barriers of those that are there, and of those that are free again.
template <int STAGES> struct Ring {
  u64* there;
  TA_MEMBER explicit Ring(u64* barriers) : there(barriers) {}
  TA_MEMBER void prepare(int copiers, int warps) const {
    for (int stage = 0; stage < STAGES; ++stage) {
      prepare_barrier(there + stage, copiers);
      prepare_barrier(there + STAGES + stage, warps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  TA_MEMBER void await(Turn at) const { await_barrier(there + at.stage, at.parity); }
  TA_MEMBER void await_free(Turn at) const { await_barrier(there + STAGES + at.stage, at.parity); }
  TA_MEMBER void leave(Turn at) const {  // a warp has done with a tile
    if (threadIdx.x % 32 == 0) arrive(there + STAGES + at.stage);
  }
  // A copier has asked for its part of a tile: it arrives with what it has asked for.
  TA_MEMBER void show(Turn at, bool by_copies) const;
};
// What the threads wrote into shared memory is seen by these instructions.
TA_FN void show_tiles() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <int STAGES> TA_MEMBER void Ring<STAGES>::show(Turn at, bool by_copies) const {
  if (by_copies) {
    const unsigned place = unsigned(__cvta_generic_to_shared(there + at.stage));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(place) : "memory");
  } else {
    await_copies();
    show_tiles();
    arrive(there + at.stage);
  }
}
#else
template <int N> TA_FN void finish(f32 (&)[N][4]) {}
TA_FN void show_tiles() {}
#endif

// ---- numbers of a row ----

TA_FN f32 quick_exp(f32 x) { return quick_exp2(x * log2_e<f32>); }
TA_FN f32 quick_exp2_from(f32 x, f32 most) { return quick_exp2(x - most); }
// The difference first: of large numbers (masks of -1e9) it is exact, and a rounded product is not.
TA_FN f32 quick_exp_from(f32 x, f32 most) { return quick_exp(x - most); }
// Of numbers so small that one is good enough, it is one instruction less: the exponent is off by
// three roundings of at most NEAR * log2(e).
constexpr f32 NEAR = 256;
TA_FN bool is_near(f32 most) { return m_abs(most) <= NEAR; }
TA_FN f32 quick_exp_near(f32 x, f32 by, f32 most) { return quick_exp2(m_fma(x, by, -most)); }
TA_FN bool in_whole_warp(bool holds) { return __ballot_sync(0xffffffffu, holds) == 0xffffffffu; }

TA_FN f32 sum_of_row(f32 x) {
  x += shuffled(x, 1);
  return x + shuffled(x, 2);
}
TA_FN f32 largest_of_row(f32 x) {
  x = m_maximum(x, shuffled(x, 1));
  return m_maximum(x, shuffled(x, 2));
}
TA_FN f32 smallest_of_row(f32 x) {
  x = m_minimum(x, shuffled(x, 1));
  return m_minimum(x, shuffled(x, 2));
}

}  // namespace streams
