// What tile programs need beside primitives: notes of failures, and copies between memory and tiles.
#pragma once
#include "tile.h"

// Keep the least problem that failed; before, all bits are set.
TA_FN void note_failure(i64* least, i64 problem) {
  auto* const noted = reinterpret_cast<unsigned long long*>(least);
  const auto number = (unsigned long long)problem;
#ifdef __CUDACC__
  atomicMin(noted, number);
#else
  auto found = __atomic_load_n(noted, __ATOMIC_RELAXED);
  while (number < found && !__atomic_compare_exchange_n(noted, &found, number, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
#endif
}

#ifdef __CUDACC__
#include "team.h"
namespace problems {

constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int AT_ONCE = 32;  // elements of a thread

// body(place in a tile, place in memory) for COUNT elements in rows of COLUMNS, which lie side by
// side in memory and PITCH apart in the tile.  A thread's places are some distances from each other
// that are known, so that they cost next to nothing.
template <int COUNT, int COLUMNS, int PITCH, int G, class Body>
TA_FN void each_of_rows(const Team<G>& team, Body body) {
  constexpr int ROUNDS = COLUMNS / common_divisor(COLUMNS, G);  // until all are in the same columns
  const i64 rank = team.rank;
  if constexpr (PITCH == COLUMNS && COLUMNS != G) each_of_rows<COUNT, G, G>(team, body);
  else if constexpr (COLUMNS % G == 0 && COUNT % COLUMNS == 0) {
    constexpr int ROWS = AT_ONCE * G / COLUMNS > 1 ? AT_ONCE * G / COLUMNS : 1;
    _Pragma("unroll ROWS") for (i64 row = 0; row < COUNT / COLUMNS; ++row)
      _Pragma("unroll AT_ONCE") for (int c = 0; c < COLUMNS; c += G)
        body(rank + (row * PITCH + c), rank + (row * COLUMNS + c));
  } else if constexpr (ROUNDS <= 8) {
    constexpr int ROWS = ROUNDS * G / COLUMNS, CHUNK = ROUNDS * (AT_ONCE / ROUNDS);
    i64 place[ROUNDS];
    _Pragma("unroll") for (int k = 0; k < ROUNDS; ++k) {
      const int e = team.rank + k * G;
      place[k] = e / COLUMNS * PITCH + e % COLUMNS;
    }
    const auto round = [&](i64 first, int k) {
      body(place[k % ROUNDS] + (first / ROUNDS * ROWS + k / ROUNDS * ROWS) * PITCH,
           rank + (first + k) * G);
    };
    constexpr int WHOLE = COUNT / G, LAST = WHOLE / CHUNK * CHUNK;
    _Pragma("unroll 1") for (i64 first = 0; first < LAST; first += CHUNK)
      _Pragma("unroll") for (int k = 0; k < CHUNK; ++k) round(first, k);
    _Pragma("unroll") for (int k = 0; k < WHOLE - LAST; ++k) round(LAST, k);
    if (team.rank < COUNT % G) round(LAST, WHOLE - LAST);
  } else {
    _Pragma("unroll 4") for (int e = team.rank; e < COUNT; e += G)
      body(e / COLUMNS * PITCH + e % COLUMNS, e);
  }
}

// The same for the problems that a warp's threads have, one each: body(problem, in its tile, in its
// part of memory).  Neighbouring threads have neighbouring elements; first and last all wait.
template <int COUNT, int COLUMNS, int PITCH, class T, class M, class Body>
TA_FN void each_of_warp(T* tile, M* memory, Body body) {
  const int lane = int(threadIdx.x) % 32;
  const auto at = [&](int problem, T* tile, M* memory, int e) {
    body(problem, tile + (e / COLUMNS * PITCH + e % COLUMNS), memory + e);
  };
  __syncwarp();
  if constexpr (COUNT >= 32) {
    _Pragma("unroll 1") for (int problem = 0; problem < 32; ++problem) {
      T* const its_tile = from_thread<32>(tile, problem);
      M* const its_memory = from_thread<32>(memory, problem);
      _Pragma("unroll AT_ONCE") for (int round = 0; round < COUNT / 32; ++round)
        at(problem, its_tile, its_memory, lane + 32 * round);
      if (lane < COUNT % 32) at(problem, its_tile, its_memory, lane + COUNT / 32 * 32);
    }
  } else {
    _Pragma("unroll 4") for (int e = lane; e < 32 * COUNT; e += 32) {
      const int problem = e / COUNT;
      at(problem, from_thread<32>(tile, problem), from_thread<32>(memory, problem), e % COUNT);
    }
  }
  __syncwarp();
}

template <class T> TA_FN void begin_copy(T* to, const T* from) {
  if constexpr (sizeof(T) >= 4) copy_async<sizeof(T)>(to, from);
  else *to = Constant<T>(from)[0];
}

}  // namespace problems

// Begins to copy rows from memory into a tile; `await_copies` waits for a team's own copies.
template <int COUNT, int COLUMNS, int PITCH, int G, class T>
TA_FN void load_rows(const Team<G>& team, T* tile, Constant<T> from) {
  problems::each_of_rows<COUNT, COLUMNS, PITCH>(team, [&](i64 on_chip, i64 in_memory) {
    problems::begin_copy(tile + on_chip, from.at + in_memory);
  });
}
template <int COUNT, int COLUMNS, int PITCH, int G, class T>
TA_FN void store_rows(const Team<G>& team, T* to, const T* tile, bool valid) {
  if (valid)
    problems::each_of_rows<COUNT, COLUMNS, PITCH>(team, [&](i64 on_chip, i64 in_memory) {
      put(to[in_memory], T(tile[on_chip]));
    });
}
template <int G> TA_FN void await_copies(const Team<G>&) { await_copies(); }

// Where a thread has a problem.
template <int COUNT, int COLUMNS, int PITCH, class T>
TA_FN void load_rows(const Team<1>&, T* tile, Constant<T> from) {
  problems::each_of_warp<COUNT, COLUMNS, PITCH>(
      tile, from.at, [](int, T* to, const T* at) { problems::begin_copy(to, at); });
}
template <int COUNT, int COLUMNS, int PITCH, class T>
TA_FN void store_rows(const Team<1>&, T* to, const T* tile, bool valid) {
  const unsigned all = __ballot_sync(0xffffffffu, valid);
  problems::each_of_warp<COUNT, COLUMNS, PITCH>(
      tile, to, [&](int problem, const T* from, T* at) {
        if (all >> problem & 1) put(*at, T(*from));
      });
}
TA_FN void await_copies(const Team<1>&) {
  await_copies();
  __syncwarp();
}
#else
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
