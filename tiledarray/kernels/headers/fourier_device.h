// Fourier transforms of the device, one a team; included by fourier.h.
//
// A thread has its butterflies of a pass in registers; between passes they change hands in the
// tile itself, where elements are put so that no two of a wavefront are in one bank.
#pragma once

namespace fourier_parts {

// What a pass multiplies by: (p, k), with k from 1, at [(k - 1) AFTER + p], so that threads side by
// side find theirs side by side.  In constant evaluation few sines are affordable: those of an
// eighth of a turn give the others.
template <class R, int N, int RADIX, int BEFORE> struct PassRoots {
  static constexpr int AFTER = N / RADIX / BEFORE;
  Root<R> at[(RADIX - 1) * AFTER];
  constexpr PassRoots() : at() {
    Root<double> eighth[N / 8 + 1]{};
    for (int k = 0; k <= N / 8; ++k) eighth[k] = root_of_one(k, N);
    for (int k = 1; k < RADIX; ++k)
      for (int p = 0; p < AFTER; ++p) at[(k - 1) * AFTER + p] = power(eighth, p * k * BEFORE);
  }
  static constexpr Root<R> power(const Root<double>* eighth, int k) {
    const bool below = 2 * k > N;
    if (below) k = N - k;
    const bool left = 4 * k > N;
    // Angles beyond a quarter turn, and beyond an eighth, only mirror where N allows it.
    if (N % 8 != 0) return plain(k, below);
    if (left) k = N / 2 - k;
    const bool steep = 8 * k > N;
    const Root<double> found = eighth[steep ? N / 4 - k : k];
    const double re = steep ? found.im : found.re, im = steep ? found.re : found.im;
    return {R(left ? -re : re), R(below ? -im : im)};
  }
  static constexpr Root<R> plain(int k, bool below) {
    const Root<double> found = root_of_one(k, N);
    return {R(found.re), R(below ? -found.im : found.im)};
  }
};
template <class R, int N, int RADIX, int BEFORE>
__device__ const PassRoots<R, N, RADIX, BEFORE> roots_of_pass;

constexpr int power_of_two_in(int n) { return n & -n; }

// Where elements lie between a pass of radix RADIX, after BEFORE, and the next.  Where a tile has
// room for it, PADDED, the elements of a butterfly lie beside those of the next with a gap, and so
// at distances that are known; else their numbers are turned, which takes instructions.
template <class C, int N, int RADIX, int BEFORE, bool PADDED> struct Between {
  static constexpr int SPAN = RADIX * BEFORE, WAVEFRONT = 128 / sizeof(C);
  static constexpr int LINE = power_of_two_in(N) < WAVEFRONT ? power_of_two_in(N) : WAVEFRONT;
#ifdef TA_BESIDE  // what threads side by side take lies side by side
  static constexpr bool CONFLICTS = false;
#else
  static constexpr bool CONFLICTS = power_of_two_in(SPAN) == SPAN && BEFORE < LINE;
#endif
  static constexpr bool GAPS = PADDED && CONFLICTS && RADIX >= 8, TURNS = CONFLICTS && !GAPS;
  static __device__ __forceinline__ int place(unsigned i) {
    if constexpr (GAPS) return i + i / SPAN * BEFORE;
    else if constexpr (TURNS) return i ^ (i / SPAN * BEFORE & (LINE - 1));
    else return i;
  }
  // Of i + distance, a multiple of SPAN.
  static __device__ __forceinline__ int place_beyond(unsigned i, int distance) {
    if constexpr (TURNS) return place(i + distance);
    else return place(i) + (distance + (GAPS ? distance / SPAN * BEFORE : 0));
  }
  // Of element K of butterfly (p, q).
  static __device__ __forceinline__ int place_in(unsigned p, unsigned q, int k) {
    if constexpr (TURNS) return place(q + BEFORE * (RADIX * p + k));
    else return int(q + (SPAN + (GAPS ? BEFORE : 0)) * p) + BEFORE * k;
  }
};

// A transform's elements in a tile, STRIDE apart; there is room for gaps between them if PADDED.
template <class C, int STRIDE, bool PADDED> struct Strided {
  C* at;
  TA_MEMBER C& operator[](int i) const { return at[i * STRIDE]; }
};

// Takes what `load(i, slot)` gives if it is the first, from the tile else, and leaves it in the tile
// or, as the last, to store(i, element, slot).  A slot is the number of a thread's element.
template <int N, int RADIX, int BEFORE, int SIGN, int LAST_RADIX, int LAST_BEFORE, int G, class C,
          int STRIDE, bool PADDED, class Load, class Store>
TA_FN void pass(const Team<G>& team, Strided<C, STRIDE, PADDED> y, Load load, Store store) {
  constexpr int COUNT = N / RADIX, EACH = (COUNT + G - 1) / G, AFTER = COUNT / BEFORE;
  constexpr bool EVEN = COUNT % G == 0;
  using Last = Between<C, N, LAST_RADIX, LAST_BEFORE, PADDED>;
  using Next = Between<C, N, RADIX, BEFORE, PADDED>;
  const unsigned rank = team.hidden().rank;
  C x[EACH][RADIX];
  TA_UNROLLED for (int e = 0; e < EACH; ++e) {
    const unsigned number = rank + e * G;
    if (EVEN || number < COUNT) {
      TA_UNROLLED for (int k = 0; k < RADIX; ++k) {
        if constexpr (BEFORE == 1) x[e][k] = load(i64(number) + COUNT * k, e + COUNT / G * k);
        else x[e][k] = y[Last::place_beyond(number, COUNT * k)];
      }
      butterfly<SIGN>(x[e]);
      if constexpr (AFTER > 1) {
        const int p = number / BEFORE;
        TA_UNROLLED for (int k = 1; k < RADIX; ++k)
          x[e][k] = rotated<SIGN>(
              x[e][k], roots_of_pass<part_of<C>, N, RADIX, BEFORE>.at[(k - 1) * AFTER + p]);
      }
    }
  }
  team.sync();
  TA_UNROLLED for (int e = 0; e < EACH; ++e) {
    const unsigned number = rank + e * G;
    if (EVEN || number < COUNT) {
      const unsigned p = number / BEFORE, q = number % BEFORE;
      TA_UNROLLED for (int k = 0; k < RADIX; ++k) {
        if constexpr (AFTER == 1) store(i64(number) + COUNT * k, x[e][k], e + COUNT / G * k);
        else y[Next::place_in(p, q, k)] = x[e][k];
      }
    }
  }
  team.sync();
}

// A thread's elements: the largest radix is chosen by how many it has.
template <class C, int N, int G> constexpr int largest_radix() {
  const int share = (N + G - 1) / G, most = sizeof(C) == 8 ? 32 : 16;
  int radix = 2;
  while (radix * 2 <= share && radix * 2 <= most) radix *= 2;
  return radix;
}

template <int N, int SIGN, int PASS, int G, class C, int STRIDE, bool PADDED, class Load, class Store>
TA_FN void passes(const Team<G>& team, Strided<C, STRIDE, PADDED> y, Load load, Store store) {
  constexpr Radices plan = radices(N, largest_radix<C, N, G>());
  if constexpr (PASS < plan.count) {
    constexpr int LAST = PASS == 0 ? 1 : plan.at[PASS - 1];
    pass<N, plan.at[PASS], product_before(plan, PASS), SIGN, LAST,
         PASS == 0 ? 1 : product_before(plan, PASS - 1)>(team, y, load, store);
    passes<N, SIGN, PASS + 1>(team, y, load, store);
  }
}

// Whether a thread has after the last pass the elements that it takes in the first.
template <class C, int N, int G> constexpr bool keeps_elements() {
  constexpr Radices plan = radices(N, largest_radix<C, N, G>());
  return N > 1 && N / plan.at[0] % G == 0 && N / plan.at[plan.count - 1] % G == 0;
}

}  // namespace fourier_parts

// Y_j = sum over k of y_k exp(SIGN 2 pi i j k / N), without a factor.  load(k) gives y_k, asked for
// once; store(j, Y_j) takes each.  Between, elements change hands in `tile`, N of them STRIDE apart,
// which has room for an eighth more if it is PADDED; load may read there, and store write there.
template <int N, int SIGN, bool PADDED = false, int STRIDE = 1, int G, class C, class Load,
          class Store>
TA_FN void fourier_through(const Team<G>& team, C* tile, Load load, Store store) {
  using namespace fourier_parts;
  static_assert(radices(N, 8).count >= 0, "a length has no factors above 13");
  team.sync();
  if constexpr (N > 1)
    passes<N, SIGN, 0>(team, Strided<C, STRIDE, PADDED>{tile},
                       [&](i64 k, int) { return load(k); },
                       [&](i64 j, const C& x, int) { store(j, x); });
  else if (team.rank == 0) store(0, load(0));
  if constexpr (N == 1) team.sync();
}
// The same in place; no work is used.
template <int N, int SIGN, int STRIDE = 1, int G, class C>
TA_FN void fourier(const Team<G>& team, C* y, C* = nullptr) {
  fourier_through<N, SIGN, false, STRIDE>(team, y, [&](int k) { return y[k * STRIDE]; },
                                          [&](int j, C x) { y[j * STRIDE] = x; });
}
// Two transforms, the second of what `between(j, Y_j)` makes of the first.  Where a thread has the
// elements that it needs next, they stay in its registers.
template <int N, int SIGN, int SIGN_AFTER, bool PADDED, int STRIDE = 1, int G, class C, class Load,
          class Middle, class Store>
TA_FN void fourier_twice(const Team<G>& team, C* tile, Load load, Middle between, Store store) {
  using namespace fourier_parts;
  if constexpr (keeps_elements<C, N, G>()) {
    const Strided<C, STRIDE, PADDED> y{tile};
    C kept[N / G];
    team.sync();
    passes<N, SIGN, 0>(team, y, [&](i64 k, int) { return load(k); },
                       [&](int j, const C& x, int slot) { kept[slot] = between(j, x); });
    passes<N, SIGN_AFTER, 0>(team, y, [&](i64, int slot) { return kept[slot]; },
                             [&](i64 j, const C& x, int) { store(j, x); });
  } else {
    fourier_through<N, SIGN, PADDED, STRIDE>(
        team, tile, load, [&](int j, C x) { tile[j * STRIDE] = between(j, x); });
    fourier_through<N, SIGN_AFTER, PADDED, STRIDE>(
        team, tile, [&](int k) { return tile[k * STRIDE]; }, store);
  }
}
