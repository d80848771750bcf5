// What tile programs need beside primitives: notes of failures, and copies between memory and tiles.
#pragma once
#include "tile.h"

// Keep the least problem that failed.
TA_FN void note_failure(i64* least, i64 problem) {
#ifdef __CUDACC__
  atomicMin(reinterpret_cast<unsigned long long*>(least), (unsigned long long)problem);
#else
  i64 found = __atomic_load_n(least, __ATOMIC_RELAXED);
  while (problem < found && !__atomic_compare_exchange_n(least, &found, problem, true,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
#endif
}

#ifndef __CUDACC__
#include "lanes.h"
namespace problems {

template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = u64; };

// Exchange the elements of rows I and I + H that lie H lanes apart: a step of a transposition.
template <int H, int L, class V, int... K>
TA_FN void exchange(V& low, V& high, linear::Numbers<K...>) {
  const V a = low, b = high;
  low = __builtin_shufflevector(a, b, (K & H ? L + K - H : K)...);
  high = __builtin_shufflevector(a, b, (K & H ? L + K : K + H)...);
}
template <int H, int L, class V> TA_FN void transpose(V (&rows)[L]) {
  if constexpr (H > 0) {
    _Pragma("GCC unroll 64") for (int i = 0; i < L; ++i)
      if (!(i & H)) exchange<H, L>(rows[i], rows[i + H], typename linear::Counting<L>::type());
    transpose<H / 2, L>(rows);
  }
}
template <class T, int W> constexpr int SIDE =
    W < linear::VECTOR_BYTES / int(sizeof(T)) ? W : linear::VECTOR_BYTES / int(sizeof(T));

}  // namespace problems

// N elements that lie side by side in memory, of W problems, into a tile.
template <int N, int W, class T> static __attribute__((noinline)) void load_problems(
    T* tile, const T* const (&from)[W]) {
  using namespace problems;
  int e = 0;
  if constexpr (sizeof(T) <= 8 && SIDE<T, W> > 1) {
    constexpr int L = SIDE<T, W>;
    using X = typename problems::Word<sizeof(T)>::type;
    typedef X V __attribute__((vector_size(L * sizeof(X))));
    _Pragma("GCC unroll 1") for (; e + L <= N; e += L)
      _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L) {
        V rows[L];
        _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
          __builtin_memcpy(&rows[k], from[w + k] + e, sizeof(V));
        transpose<L / 2, L>(rows);
        _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
          __builtin_memcpy(tile + (e + k) * W + w, &rows[k], sizeof(V));
      }
  }
  _Pragma("GCC unroll 1") for (; e < N; ++e)
    for (int w = 0; w < W; ++w) tile[e * W + w] = from[w][e];
}
// The same the other way round, of the first `valid` problems.
template <int N, int W, class T> static __attribute__((noinline)) void store_problems(
    T* const (&to)[W], const T* tile, int valid) {
  using namespace problems;
  int e = 0;
  if constexpr (sizeof(T) <= 8 && SIDE<T, W> > 1) {
    constexpr int L = SIDE<T, W>;
    using X = typename problems::Word<sizeof(T)>::type;
    typedef X V __attribute__((vector_size(L * sizeof(X))));
    _Pragma("GCC unroll 1") for (; e + L <= N; e += L)
      _Pragma("GCC unroll 1") for (int w = 0; w < valid; w += L) {
        V rows[L];
        _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
          __builtin_memcpy(&rows[k], tile + (e + k) * W + w, sizeof(V));
        transpose<L / 2, L>(rows);
        _Pragma("GCC unroll 64") for (int k = 0; k < L; ++k)
          if (w + k < valid) __builtin_memcpy(to[w + k] + e, &rows[k], sizeof(V));
      }
  }
  _Pragma("GCC unroll 1") for (; e < N; ++e)
    for (int w = 0; w < valid; ++w) to[w][e] = tile[e * W + w];
}
#endif
