// A team of G threads of the device that works on one problem, G a power of two; included by
// matrices.h and fourier.h.  Teams of more than 32 threads beside others in a block: 15 at most.
// Text whose blocks are one team each says so by defining TA_ONE_TEAM before it includes this: its
// kernels then need but one of the block's 16 barriers.  TA_BESIDE is the number of a block's teams
// where threads side by side belong to different ones, so that problems lie side by side.
#pragma once
#include "tile.h"

template <int G> struct Team {
  int rank;  // 0 ... G - 1
#ifdef TA_BESIDE
  TA_MEMBER Team() : rank(int(threadIdx.x) / TA_BESIDE) {}
#else
  TA_MEMBER Team() : rank(int(threadIdx.x) % G) {}
#endif
  // What threads of the team wrote before is seen by all of them after it.
  TA_MEMBER void sync() const {
#ifdef TA_BESIDE
    __syncthreads();
#else
#ifdef TA_ONE_TEAM
    if constexpr (G > 32) __syncthreads();
#else
    if constexpr (G > 32) {
      if (blockDim.x == G) __syncthreads();
      else await_barrier(1 + int(threadIdx.x) / G);  // barrier 0 is that of the whole block
    }
#endif
    if constexpr (G > 1 && G <= 32) __syncwarp();
#endif
  }
  // The same team with a rank that the compiler does not see through: else it keeps addresses, and
  // what lies there, in registers from one statement to the next.
  TA_MEMBER Team hidden() const {
    Team team = *this;
    asm volatile("" : "+r"(team.rank));
    return team;
  }
  static TA_MEMBER void await_barrier(int number) {
    asm volatile("barrier.sync %0, %1;" ::"r"(number), "n"(G) : "memory");
  }
};
