// Factorizations by orthogonal transformations on tiles; where tiles lie is said in matrices.h.
#pragma once
#include "matrices.h"

namespace linear {
constexpr int LEAF_ROWS = 8;  // summed by themselves: sums down tall columns lose less so

// Jacobi's method meets every pair of N rows once in a sweep, in ROUNDS of pairs that have no row
// in common (a tournament: one stays, the others go round).
template <int N> struct Tournament {
  static constexpr int PLAYERS = N + N % 2, ROUNDS = PLAYERS - 1, PAIRS = PLAYERS / 2;
  static constexpr int MOST_SWEEPS = 30;
  int p, q;  // p < q; none where q is N
  TA_MEMBER Tournament(int round, int pair) {
    const int first = pair == 0 ? ROUNDS : (round + pair) % ROUNDS;
    const int second = (round + ROUNDS - pair) % ROUNDS;
    p = first < second ? first : second;
    q = first < second ? second : first;
  }
};
// Numbers this much larger or smaller are scaled, so that their squares stay in range.
template <class R> constexpr R LARGE = sizeof(R) == 4 ? (R)1e10 : (R)1e100;

}  // namespace linear

#ifdef __CUDACC__
#include "orthogonal_device.h"
#else
#include "orthogonal_host.h"
#endif
