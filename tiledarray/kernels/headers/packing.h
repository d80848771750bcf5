// To and from tiles of W problems side by side, on the host; included by lanes.h.
#pragma once

namespace linear {

template <int... I> struct Numbers {};
template <int N, int... I> struct Counting : Counting<N - 1, N - 1, I...> {};
template <int... I> struct Counting<0, I...> { using type = Numbers<I...>; };

// L elements in a vector of L * PARTS numbers.
template <class T> struct Parts {
  using Number = T;
  enum { count = 1 };
};
template <> struct Parts<c64> {  // a complex number of 8 bytes goes whole
  using Number = f64;
  enum { count = 1 };
};
template <> struct Parts<c128> {
  using Number = f64;
  enum { count = 2 };
};
// Elements of two vectors in turn: of their first halves (START 0) or their second (START L / 2).
template <int L, int PARTS, int START, class V, int... I>
TA_FN V interleaved(V x, V y, Numbers<I...>) {
  return __builtin_shufflevector(
      x, y, (I / PARTS % 2 * L * PARTS + (START + I / PARTS / 2) * PARTS + I % PARTS)...);
}
// Rows become columns by log2(L) times interleaving the first half of the rows with the second.
template <int L, int PARTS, int STEP, class V> TA_FN void transpose(V (&x)[L]) {
  if constexpr (STEP < L) {
    using All = typename Counting<L * PARTS>::type;
    V y[L];
    _Pragma("GCC unroll 64") for (int k = 0; k < L / 2; ++k) {
      y[2 * k] = interleaved<L, PARTS, 0>(x[k], x[k + L / 2], All());
      y[2 * k + 1] = interleaved<L, PARTS, L / 2>(x[k], x[k + L / 2], All());
    }
    transpose<L, PARTS, 2 * STEP>(y);
    _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k) x[k] = y[k];
  }
}

// Squares of L elements of L problems.
template <class T, int W, int BYTES> struct Packing {
  static constexpr int PER = BYTES / int(sizeof(T)) > 0 ? BYTES / int(sizeof(T)) : 1;
  static constexpr int L = W < PER ? W : PER, PARTS = Parts<T>::count;
  using Number = typename Parts<T>::Number;
  typedef Number Vector __attribute__((vector_size(L * sizeof(T))));
  typedef Number InMemory
      __attribute__((vector_size(L * sizeof(T)), aligned(sizeof(part_of<T>)), may_alias));

  static TA_MEMBER void pack(T* tile, const T* from, idx stride, int first, int valid, int e) {
    Vector x[L];
    _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k) {
      const idx w = first + k < valid ? first + k : valid - 1;
      x[k] = *(const InMemory*)(from + w * stride + e);
    }
    transpose<L, PARTS, 1>(x);
    _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
      *(InMemory*)(tile + (e + k) * W + first) = x[k];
  }
  static TA_MEMBER void unpack(T* to, const T* tile, idx stride, int first, int valid, int e) {
    Vector x[L];
    _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
      x[k] = *(const InMemory*)(tile + (e + k) * W + first);
    transpose<L, PARTS, 1>(x);
    _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
      if (first + k < valid) *(InMemory*)(to + (first + k) * stride + e) = x[k];
  }
  // body(first problem, first element) for all squares; the last may overlap another.
  template <int COUNT, class Body> static TA_MEMBER void squares(Body body) {
    _Pragma("GCC unroll 1") for (int first = 0; first < W; first += L) {
      _Pragma("GCC unroll 1") for (int e = 0; e + L <= COUNT; e += L) body(first, e);
      if (COUNT % L != 0) body(first, COUNT - L);
    }
  }
};

}  // namespace linear

// A tile from COUNT consecutive elements of each problem, problems `stride` elements apart; in the
// place of those past the `valid` first ones there is the last of these.
template <int COUNT, int W, class T>
static __attribute__((noinline)) void pack(const Team<W>&, T* tile, const T* from, idx stride,
                                           int valid) {
  using Whole = linear::Packing<T, W, linear::VECTOR_BYTES>;
  if constexpr (COUNT >= Whole::L && Whole::L > 1) {
    Whole::template squares<COUNT>([&](int first, int e) TA_LAMBDA {
      Whole::pack(tile, from, stride, first, valid, e);
    });
  } else {
    for (int w = 0; w < W; ++w)
      for (int e = 0; e < COUNT; ++e)
        tile[e * W + w] = from[(w < valid ? w : valid - 1) * stride + e];
  }
}
// And back, of the `valid` first problems.
template <int COUNT, int W, class T>
static __attribute__((noinline)) void unpack(const Team<W>&, T* to, const T* tile, idx stride,
                                             int valid) {
  using Whole = linear::Packing<T, W, linear::VECTOR_BYTES>;
  if constexpr (COUNT >= Whole::L && Whole::L > 1) {
    Whole::template squares<COUNT>([&](int first, int e) TA_LAMBDA {
      Whole::unpack(to, tile, stride, first, valid, e);
    });
  } else {
    for (int w = 0; w < valid; ++w)
      for (int e = 0; e < COUNT; ++e) to[w * stride + e] = tile[e * W + w];
  }
}
