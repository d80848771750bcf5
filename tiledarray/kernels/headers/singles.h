// Products of 32-bit floats on tensor cores, tile by tile: of numbers with 10 bits behind the point
// (TF32) either one, or three of numbers that are parted in two.
//
// Three have 22 bits of the 24: what is left out, low by low, is as small as their last roundings.  High
// parts are multiplied apart: they alone say whether a result is finite (the low part of an infinity is
// no number), and sums of theirs are rounded as seldom as can be, for tensor cores do not round to the
// nearest.  So a tile's products are summed by themselves, and go to what is there by an addition.
//
// The instruction sums eight products; which numbers of a row are the eight is for us to say, if both
// operands agree.  Thread t of four has in turn the numbers 4t to 4t + 3 of 16, a piece of a row, by one
// load, where rows are what is summed; and 2t, 2t + 1 of eight where columns are, or where results of
// another product are multiplied, of which it has just those.
#pragma once
#include "streams.h"

namespace streams {

TA_FN void multiply(f32 (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// N numbers, halved, as one TF32 each or as the sum of two: the instruction leaves out what is below 10
// bits.  A number that is made larger by a third of the last one's half is rounded so, near enough to the
// nearest, and none that has no more bits is changed; halves of the largest floats do not become infinite.
// (`cvt.rna.tf32` takes so long that products wait for it.)
template <int PRODUCTS, int N>
TA_FN void part(const f32 (&x)[N], unsigned (&high)[N], unsigned (&low)[N]) {
  _Pragma("unroll") for (int k = 0; k < N; ++k) {
    high[k] = __builtin_bit_cast(unsigned, x[k] * (0.5f * 1.00034f));
    if (PRODUCTS == 1) continue;
    high[k] &= 0xffffe000u;
    low[k] = __builtin_bit_cast(unsigned, m_fma(0.5f, x[k], -__builtin_bit_cast(f32, high[k])));
  }
}
// Sums of eight columns each, as they are summed.
template <int PRODUCTS, int N> struct Sums {
  f32 high[N][4], low[N][4];
  TA_MEMBER void clear() {
    _Pragma("unroll") for (int n = 0; n < N; ++n)
      _Pragma("unroll") for (int v = 0; v < 4; ++v) high[n][v] = low[n][v] = 0;
  }
  // Add products of eight numbers, of which a thread has two of each of two rows, and two of a column.
  TA_MEMBER void add(int n, const unsigned (&a)[4], const unsigned (&a_low)[4], unsigned b0, unsigned b1,
                     unsigned b0_low, unsigned b1_low) {
    if (PRODUCTS == 3) multiply(low[n], a_low, b0, b1);
    if (PRODUCTS == 3) multiply(low[n], a, b0_low, b1_low);
    multiply(high[n], a, b0, b1);
  }
  TA_MEMBER f32 at(int n, int v) const {
    const bool parted = PRODUCTS == 3 && m_abs(high[n][v]) < infinity<f32>();
    return 4 * (parted ? high[n][v] + low[n][v] : high[n][v]);
  }
};
// Of so many columns by eights, how many are summed at once: more take more registers.
template <int COUNT> constexpr int at_once() { return COUNT % 8 == 0 ? 8 : COUNT % 4 == 0 ? 4 : 2; }

TA_FN void two_of(f32& x, f32& y, const f32* from) {
  const auto both = *reinterpret_cast<const uint2*>(from);
  x = __builtin_bit_cast(f32, both.x), y = __builtin_bit_cast(f32, both.y);
}
TA_FN void four_of(f32& x, f32& y, f32& z, f32& w, const f32* from) {
  const auto all = *reinterpret_cast<const uint4*>(from);
  x = __builtin_bit_cast(f32, all.x), y = __builtin_bit_cast(f32, all.y);
  z = __builtin_bit_cast(f32, all.z), w = __builtin_bit_cast(f32, all.w);
}

// c = a b.T, of the warp's 16 rows of a tile with A rows and all N of another one; or, where that is
// TURNED, c = a b with its N columns.
template <int PRODUCTS, int A, int N, int DEPTH, bool TURNED>
TA_FN void multiply_singles(f32 (&c)[N / 8][4], const f32* a, const f32* b) {
  constexpr int GROUP = at_once<N / 8>();
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, t = lane % 4;
  _Pragma("unroll") for (int first = 0; first < N / 8; first += GROUP) {
    Sums<PRODUCTS, GROUP> sums;
    sums.clear();
    _Pragma("unroll 1") for (int k = 0; k < DEPTH; k += 16) {
      f32 left[2][4];  // of two instructions: both rows' first numbers, then both rows' second ones
      _Pragma("unroll") for (int r = 0; r < 2; ++r) {
        if (TURNED) {
          two_of(left[0][r], left[0][r + 2], a + place_of<f32, A>(row + r * 8, k + 2 * t));
          two_of(left[1][r], left[1][r + 2], a + place_of<f32, A>(row + r * 8, k + 8 + 2 * t));
        } else {
          four_of(left[0][r], left[0][r + 2], left[1][r], left[1][r + 2],
                  a + place_of<f32, A>(row + r * 8, k + 4 * t));
        }
      }
      unsigned high[2][4], low[2][4];
      _Pragma("unroll") for (int step = 0; step < 2; ++step)
        part<PRODUCTS>(left[step], high[step], low[step]);
      _Pragma("unroll") for (int n = 0; n < GROUP; ++n) {
        f32 right[4];
        const int column = (first + n) * 8 + lane / 4;
        if (TURNED) {
          _Pragma("unroll") for (int v = 0; v < 4; ++v)
            right[v] = b[place_of<f32, DEPTH>(k + v / 2 * 8 + 2 * t + v % 2, column)];
        } else {
          four_of(right[0], right[1], right[2], right[3], b + place_of<f32, N>(column, k + 4 * t));
        }
        unsigned right_high[4], right_low[4];
        part<PRODUCTS>(right, right_high, right_low);
        _Pragma("unroll") for (int step = 0; step < 2; ++step)
          sums.add(n, high[step], low[step], right_high[2 * step], right_high[2 * step + 1],
                   right_low[2 * step], right_low[2 * step + 1]);
      }
    }
    _Pragma("unroll") for (int n = 0; n < GROUP; ++n)
      _Pragma("unroll") for (int v = 0; v < 4; ++v) c[first + n][v] = sums.at(n, v);
  }
}
// c += a b, where the warp has 16 rows of a as results, and b is a tile; or b.T, where that is TURNED.
template <int PRODUCTS, int DEPTH, int N, bool TURNED>
TA_FN void add_singles(f32 (&c)[N / 8][4], const f32 (&a)[DEPTH / 8][4], const f32* b) {
  constexpr int GROUP = at_once<N / 8>();
  const int lane = threadIdx.x % 32, t = lane % 4;
  _Pragma("unroll") for (int first = 0; first < N / 8; first += GROUP) {
    Sums<PRODUCTS, GROUP> sums;
    sums.clear();
    _Pragma("unroll") for (int k = 0; k < DEPTH; k += 8) {
      const f32 left[4] = {a[k / 8][0], a[k / 8][2], a[k / 8][1], a[k / 8][3]};
      unsigned high[4], low[4];
      part<PRODUCTS>(left, high, low);
      _Pragma("unroll") for (int n = 0; n < GROUP; ++n) {
        f32 right[2];
        const int column = (first + n) * 8 + lane / 4;
        if (TURNED) {
          two_of(right[0], right[1], b + place_of<f32, N>(column, k + 2 * t));
        } else {
          right[0] = b[place_of<f32, DEPTH>(k + 2 * t, column)];
          right[1] = b[place_of<f32, DEPTH>(k + 2 * t + 1, column)];
        }
        unsigned right_high[2], right_low[2];
        part<PRODUCTS>(right, right_high, right_low);
        sums.add(n, high, low, right_high[0], right_high[1], right_low[0], right_low[1]);
      }
    }
    _Pragma("unroll") for (int n = 0; n < GROUP; ++n)
      _Pragma("unroll") for (int v = 0; v < 4; ++v) c[first + n][v] += sums.at(n, v);
  }
}

#if TA_WGMMA
// Four warps multiply what lies in shared memory as it is: what is below 10 bits is left out there, too.
// So of three products the high parts are the numbers themselves, and tiles of low parts are made of them;
// for one product they are rounded in place.  What is summed goes along rows, always: a tile where it goes
// down columns is turned, and results that are multiplied want the numbers 2t and 2t + 1 of eight where
// others have t and t + 4.
TA_FN f32 high_part(f32 x) {
  return __builtin_bit_cast(f32, __builtin_bit_cast(unsigned, x) & 0xffffe000u);
}
TA_FN f32 low_part(f32 x) { return (x - high_part(x)) * 1.00034f; }
TA_FN f32 rounded_half(f32 x) { return x * (0.5f * 1.00034f); }

// Of a tile of so many elements.
template <int PRODUCTS, int THREADS, int ELEMENTS> TA_FN void part_tile(f32* tile, f32* low) {
  _Pragma("unroll 4") for (int e = threadIdx.x * 4; e < ELEMENTS; e += THREADS * 4) {
    f32 x[4];
    four_of(x[0], x[1], x[2], x[3], tile + e);
    uint4 made;
    unsigned* const to[4] = {&made.x, &made.y, &made.z, &made.w};
    _Pragma("unroll") for (int k = 0; k < 4; ++k)
      *to[k] = __builtin_bit_cast(unsigned, PRODUCTS == 3 ? low_part(x[k]) : rounded_half(x[k]));
    *reinterpret_cast<uint4*>((PRODUCTS == 3 ? low : tile) + e) = made;
  }
}
// The same to other tiles, of N rows of DEPTH numbers each: what was ACROSS, in columns, goes along rows.
// A thread takes a piece of a row, and its neighbours those of the rows below.
template <int PRODUCTS, int THREADS, int N, int DEPTH, bool ACROSS, bool OF_RESULTS>
TA_FN void arrange_tile(const f32* tile, f32* high, f32* low) {
  _Pragma("unroll 2") for (int e = threadIdx.x; e < N * (DEPTH / 4); e += THREADS) {
    const int n = e % N, piece = e / N;
    uint4 highs, lows;
    unsigned* const to[2][4] = {{&highs.x, &highs.y, &highs.z, &highs.w}, {&lows.x, &lows.y, &lows.z, &lows.w}};
    _Pragma("unroll") for (int v = 0; v < 4; ++v) {
      const int k = OF_RESULTS ? piece / 2 * 8 + 2 * v + piece % 2 : piece * 4 + v;
      const f32 x = tile[ACROSS ? place_of<f32, DEPTH>(k, n) : place_of<f32, N>(n, k)];
      *to[0][v] = __builtin_bit_cast(unsigned, PRODUCTS == 3 ? x : rounded_half(x));
      *to[1][v] = __builtin_bit_cast(unsigned, low_part(x));
    }
    *reinterpret_cast<uint4*>(high + place_of<f32, N>(n, piece * 4)) = highs;
    if (PRODUCTS == 3) *reinterpret_cast<uint4*>(low + place_of<f32, N>(n, piece * 4)) = lows;
  }
}
// Results become what is multiplied first, and then their low parts; all of it before products begin.
template <int PRODUCTS, int COUNT> TA_FN void begin_results(f32 (&s)[COUNT][4]) {
  if (PRODUCTS == 3) return;
  _Pragma("unroll") for (int n = 0; n < COUNT; ++n)
    _Pragma("unroll") for (int v = 0; v < 4; ++v) s[n][v] = rounded_half(s[n][v]);
  settled(s);
}
template <int COUNT> TA_FN void low_results(f32 (&s)[COUNT][4]) {
  _Pragma("unroll") for (int n = 0; n < COUNT; ++n)
    _Pragma("unroll") for (int v = 0; v < 4; ++v) s[n][v] = low_part(s[n][v]);
  settled(s);
}
template <int PRODUCTS> TA_FN f32 whole_of(f32 high, f32 low) {
  if (PRODUCTS == 1) return 4 * high;
  return m_abs(high) < infinity<f32>() ? high + low : high;
}
// Where the numbers from the k-th on are in a tile of so many rows, in units of a descriptor.
template <int ROWS> TA_FN constexpr int along(int k) { return k / 32 * (ROWS * 8) + k % 32 / 4; }
#endif

}  // namespace streams
