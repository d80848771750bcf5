// Tile primitives: one text for the host compiler (C++17) and NVRTC (CUDA C++).
//
// A generated kernel is a tile program: blocks of work, rows of a block, lanes of a row.  On the
// device a block of TX x TY threads works on a tile: TX threads share a row's lanes, TY rows (or
// steps of a reduced axis) go side by side.  On the host one thread works on a tile, lanes are
// vector loops, and barriers vanish because the program is a sequence of whole-tile loops.
#pragma once
#include "reductions.h"
#include "scans.h"

struct Range {
  idx begin, end;
};

TA_FN idx min_idx(idx x, idx y) { return x < y ? x : y; }
TA_FN idx max_idx(idx x, idx y) { return x > y ? x : y; }

// Where a computed place along an axis of length `n` is: places from the end are negative.
template <class I> TA_FN idx place_in(I place, idx n) {
  return place < I(0) ? idx(place) + n : idx(place);
}
TA_FN idx place_in(u64 place, idx n) { return place_in(i64(place), n); }  // the largest are negative

#define TA_EVERY_ROW(row, range) for (idx row = range.begin; row < range.end; ++row)

// Part `k` of [0, n) cut into pieces of `size`.
TA_FN Range piece(idx k, idx size, idx n) { return Range{k * size, min_idx(k * size + size, n)}; }

// The same with the pieces moved down by `phase`: the first begins before 0.
TA_FN Range shifted(idx k, idx size, idx n, idx phase) {
  return Range{k * size - phase, min_idx(k * size - phase + size, n)};
}

// Stands for an array that has the same value everywhere.
template <class T> struct Filled {
  T value;
  TA_MEMBER Filled operator+(idx) const { return *this; }
  TA_MEMBER T operator[](idx) const { return value; }
};

template <int N>
struct Count {  // a compile-time int
  enum { value = N };
  TA_MEMBER constexpr operator int() const { return N; }
};

// Where a lane holds all that a total does, it goes on from leaf to leaf.
template <class R> constexpr bool leafless = is_same<typename R::Lane, typename R::Total>;

#ifdef __CUDACC__
#include "tile_device.h"
#else
#include "tile_host.h"
#endif
