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

// Where element i lies between a pass of radix RADIX, after BEFORE, and the next.
template <class C, int N, int RADIX, int BEFORE> TA_FN int place_of(int i) {
  constexpr int WAVEFRONT = 128 / sizeof(C), SPAN = RADIX * BEFORE;
  constexpr int LINE = power_of_two_in(N) < WAVEFRONT ? power_of_two_in(N) : WAVEFRONT;
  constexpr bool POWERS = power_of_two_in(SPAN) == SPAN;
  if constexpr (POWERS && BEFORE < LINE) return i ^ (i / SPAN * BEFORE & (LINE - 1));
  else return i;
}

// A transform's elements in a tile, STRIDE apart.
template <class C, int STRIDE> struct Strided {
  C* at;
  TA_MEMBER C& operator[](int i) const { return at[i * STRIDE]; }
};

// Reads by `load` where it is the first, from the tile else, and leaves by `store` as the last.
template <int N, int RADIX, int BEFORE, int SIGN, int LAST_RADIX, int LAST_BEFORE, int G, class C,
          int STRIDE, class Load, class Store>
TA_FN void pass(const Team<G>& team, Strided<C, STRIDE> y, Load load, Store store) {
  constexpr int COUNT = N / RADIX, EACH = (COUNT + G - 1) / G, AFTER = COUNT / BEFORE;
  constexpr bool EVEN = COUNT % G == 0;
  const int rank = team.hidden().rank;
  C x[EACH][RADIX];
  TA_UNROLLED for (int e = 0; e < EACH; ++e) {
    const int number = rank + e * G;
    if (EVEN || number < COUNT) {
      TA_UNROLLED for (int k = 0; k < RADIX; ++k) {
        const int i = number + COUNT * k;
        if constexpr (BEFORE == 1) x[e][k] = load(i);
        else x[e][k] = y[place_of<C, N, LAST_RADIX, LAST_BEFORE>(i)];
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
    const int number = rank + e * G;
    if (EVEN || number < COUNT) {
      const int p = number / BEFORE, q = number % BEFORE;
      TA_UNROLLED for (int k = 0; k < RADIX; ++k) {
        const int i = q + BEFORE * (RADIX * p + k);
        if constexpr (AFTER == 1) store(i, x[e][k]);
        else y[place_of<C, N, RADIX, BEFORE>(i)] = x[e][k];
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

template <int N, int SIGN, int PASS, int G, class C, int STRIDE, class Load, class Store>
TA_FN void passes(const Team<G>& team, Strided<C, STRIDE> y, Load load, Store store) {
  constexpr Radices plan = radices(N, largest_radix<C, N, G>());
  if constexpr (PASS < plan.count) {
    constexpr int LAST = PASS == 0 ? 1 : plan.at[PASS - 1];
    pass<N, plan.at[PASS], product_before(plan, PASS), SIGN, LAST,
         PASS == 0 ? 1 : product_before(plan, PASS - 1)>(team, y, load, store);
    passes<N, SIGN, PASS + 1>(team, y, load, store);
  }
}

}  // namespace fourier_parts

// Y_j = sum over k of y_k exp(SIGN 2 pi i j k / N), without a factor.  load(k) gives y_k, asked for
// once; store(j, Y_j) takes each.  Between, elements change hands in `tile`, N of them STRIDE apart;
// load may read there, and store write there.
template <int N, int SIGN, int STRIDE = 1, int G, class C, class Load, class Store>
TA_FN void fourier_through(const Team<G>& team, C* tile, Load load, Store store) {
  using namespace fourier_parts;
  static_assert(radices(N, 8).count >= 0, "a length has no factors above 13");
  team.sync();
  if constexpr (N > 1) passes<N, SIGN, 0>(team, Strided<C, STRIDE>{tile}, load, store);
  else if (team.rank == 0) store(0, load(0));
  if constexpr (N == 1) team.sync();
}
// The same in place; no work is used.
template <int N, int SIGN, int STRIDE = 1, int G, class C>
TA_FN void fourier(const Team<G>& team, C* y, C* = nullptr) {
  fourier_through<N, SIGN, STRIDE>(team, y, [&](int k) { return y[k * STRIDE]; },
                                   [&](int j, C x) { y[j * STRIDE] = x; });
}
