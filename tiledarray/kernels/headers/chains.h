// Stages of a chain (fusion/chains): a block has tiles of arrays in shared memory, all of E0 x E1
// x E2 elements, of which it computes boxes.
#pragma once

struct Box {
  int begin[3], end[3];
  TA_MEMBER bool operator==(const Box& other) const {
    bool same = true;
    _Pragma("unroll") for (int d = 0; d < 3; ++d)
      same = same && begin[d] == other.begin[d] && end[d] == other.end[d];
    return same;
  }
};

// Along one dimension, what lies in [begin, end) of the array and in [first, last) of the tile,
// which begins at `origin`; counted from there.
TA_FN void clip(Box& box, int d, idx first, idx last, idx begin, idx end, idx origin) {
  box.begin[d] = int(min_idx(last, max_idx(first, begin - origin)));
  box.end[d] = int(max_idx(box.begin[d], min_idx(last, end - origin)));
}
// The same of what lies in another box.
TA_FN void cut(Box& box, int d, const Box& all, idx begin, idx end, idx origin) {
  clip(box, d, all.begin[d], all.end[d], begin, end, origin);
}

// What of a box lies in one plane.
TA_FN void only(Box& box, int plane) {
  box.begin[0] = box.begin[0] < plane ? plane : box.begin[0];
  box.end[0] = box.end[0] > plane + 1 ? plane + 1 : box.end[0];
}

// Where an index is of a ring.
TA_FN idx around(idx i, idx n) {
  i %= n;
  return i < 0 ? i + n : i;
}

#define TA_TOGETHER(u) _Pragma("unroll") for (int u = 0; u < N; ++u)

// Calls f(plane, line, lane, Count<N>()) for all of a box, N lines from `line` on at a time: R, but for
// the last ones.
template <int TX, int TY, int R, class F> TA_FN void each_rows(const Box& box, F f) {
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const int groups = (box.end[1] - box.begin[1] + R - 1) / R;
  const int rows = groups * (box.end[0] - box.begin[0]);
  _Pragma("unroll 1") for (int row = ty; row < rows; row += TY) {
    const int outer = row < groups ? 0 : row / groups;
    const int plane = box.begin[0] + outer, first = box.begin[1] + (row - outer * groups) * R;
    if (first + R <= box.end[1]) {
      _Pragma("unroll 1") for (int lane = box.begin[2] + tx; lane < box.end[2]; lane += TX)
        f(plane, first, lane, Count<R>());
    } else {
      _Pragma("unroll 1") for (int line = first; line < box.end[1]; ++line)
        _Pragma("unroll 1") for (int lane = box.begin[2] + tx; lane < box.end[2]; lane += TX)
          f(plane, line, lane, Count<1>());
    }
  }
}

// Calls f(plane, line, lane) for all of a thin box, by so many threads of which this is one.
template <class F> TA_FN void each_point(const Box& box, int thread, int threads, F f) {
  const int lanes = box.end[2] - box.begin[2], rows = box.end[1] - box.begin[1];
  const int points = lanes * rows * (box.end[0] - box.begin[0]);
  _Pragma("unroll 1") for (int point = thread; point < points; point += threads) {
    const int row = lanes == 1 ? point : point / lanes, outer = row < rows ? 0 : row / rows;
    f(box.begin[0] + outer, box.begin[1] + row - outer * rows, box.begin[2] + point - row * lanes);
  }
}

// Calls f for all of one box that is not in another, which lies in it.
template <int THREADS, class F> TA_FN void each_around(const Box& all, const Box& inner, F f) {
  if (all == inner) return;
  Box left = all;
  _Pragma("unroll") for (int d = 0; d < 3; ++d) {
    Box side = left;
    side.end[d] = inner.begin[d];
    each_point(side, threadIdx.x, THREADS, f);
    side = left;
    side.begin[d] = inner.end[d];
    each_point(side, threadIdx.x, THREADS, f);
    left.begin[d] = inner.begin[d];
    left.end[d] = inner.end[d];
  }
}

// ---- planes of which each thread has R rows of a lane ----

TA_FN int near_place(int place, int end) { return place < 0 ? 0 : place < end ? place : end - 1; }
// The compiler keeps this, rather than to compute it again.
TA_FN int fixed(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
TA_FN unsigned fixed(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}
// A row of a plane of E1: that far from a thread's first one, or the nearest that there is.
template <int R, int E1> TA_FN int row_near(int own, int by) {
  return E1 % R == 0 && by >= 0 && by < R ? own + by : near_place(own + by, E1);
}
// Which of a thread's points lie in a box of a plane, as bits.
template <int R> TA_FN unsigned points_within(int own, int lane, int top, int bottom, int left, int right) {
  unsigned bits = 0;
  _Pragma("unroll") for (int u = 0; u < R; ++u)
    bits |= unsigned(own + u >= top && own + u < bottom && lane >= left && lane < right) << u;
  return bits;
}

// ---- an array in registers: a thread has R rows of C lanes of a tile, a warp whole rows ----

template <class T, int C> struct Lanes {
  enum { ALIGNMENT = C % 4 == 0 && sizeof(T) == 4 ? 16 : C % 2 == 0 ? 2 * sizeof(T) : sizeof(T) };
  alignas(ALIGNMENT) T lane[C];
};

// What a thread has, and sees around that.
// The tile has TALL rows of WIDE lanes.
template <class T, int TALL, int WIDE, int R, int C, int ABOVE, int BELOW, int LEFT, int RIGHT> struct Held {
  enum { HIGH = ABOVE + R + BELOW };
  T own[R][C], seen[HIGH][LEFT + C + RIGHT];
  int row, lane;

  TA_MEMBER Held() : row(int(threadIdx.x / 32) * R), lane(int(threadIdx.x % 32) * C) {}
  TA_MEMBER void load(const T* tile) {
    _Pragma("unroll") for (int u = 0; u < R; ++u) load_row(own[u], tile, row + u);
  }
  // From memory, where row and lane 0 of the tile would be at (top, left) of an array that is in
  // [0, height) and [0, width), all rows on their way at a time; beyond the array nothing matters.
  TA_MEMBER void fetch(const T* from, idx pitch, idx top, idx left, idx height, idx width) {
    from += top * pitch + left;
    const bool vectors = in_vectors(from, pitch);
    _Pragma("unroll") for (int u = 0; u < R; ++u) {
      const idx line = top + row + u, first = left + lane;
      const bool there = row + u < TALL && line >= 0 && line < height;
      const T* const at = from + (row + u) * pitch + lane;
      if (there && vectors && first >= 0 && first + C <= width) {
        const Lanes<T, C> lanes = *reinterpret_cast<const Lanes<T, C>*>(at);
        _Pragma("unroll") for (int v = 0; v < C; ++v) own[u][v] = lanes.lane[v];
      } else {
        _Pragma("unroll") for (int v = 0; v < C; ++v)
          own[u][v] = there && first + v >= 0 && first + v < width ? at[v] : T();
      }
    }
  }
  // To memory, but for so many rows and lanes at the ends of the tile, which are other blocks'.
  template <int B1, int A1, int B2, int A2>
  TA_MEMBER void leave(T* to, idx pitch, idx top, idx left, idx height, idx width) const {
    to += top * pitch + left;
    const bool vectors = in_vectors(to, pitch);
    const int last = int(min_idx(WIDE - A2, width - left)), end = int(min_idx(TALL - A1, height - top));
    _Pragma("unroll") for (int u = 0; u < R; ++u) {
      if (row + u < B1 || row + u >= end) continue;
      T* const at = to + (row + u) * pitch + lane;
      if (vectors && lane >= B2 && lane + C <= last) {
        Lanes<T, C> lanes;
        _Pragma("unroll") for (int v = 0; v < C; ++v) lanes.lane[v] = own[u][v];
        *reinterpret_cast<Lanes<T, C>*>(at) = lanes;
      } else {
        _Pragma("unroll") for (int v = 0; v < C; ++v)
          if (lane + v >= B2 && lane + v < last) at[v] = own[u][v];
      }
    }
  }
  // The rows around lie in `tile`; of the lanes beside only rows of [FIRST, LAST) are needed.
  template <int FIRST, int LAST> TA_MEMBER void look(const T* tile) {
    _Pragma("unroll") for (int q = 0; q < HIGH; ++q) {
      T line[C];
      if (q < ABOVE || q >= ABOVE + R) load_row(line, tile, row + q - ABOVE);
      _Pragma("unroll") for (int v = 0; v < C; ++v)
        seen[q][LEFT + v] = q < ABOVE || q >= ABOVE + R ? line[v] : own[q - ABOVE][v];
      if (q < FIRST || q >= LAST) continue;
      const int thread = int(threadIdx.x % 32);
      _Pragma("unroll") for (int v = 0; v < LEFT; ++v)
        seen[q][v] = from_thread<32>(seen[q][C + v], thread - 1);
      _Pragma("unroll") for (int v = 0; v < RIGHT; ++v)
        seen[q][LEFT + C + v] = from_thread<32>(seen[q][LEFT + v], thread + 1);
    }
  }
  // Rows that others look at, or all.
  TA_MEMBER void store(T* tile, bool all) const {
    _Pragma("unroll") for (int u = 0; u < R; ++u)
      if ((all || u < BELOW || u >= R - ABOVE) && row + u < TALL) {
        Lanes<T, C> lanes;
        _Pragma("unroll") for (int v = 0; v < C; ++v) lanes.lane[v] = own[u][v];
        *reinterpret_cast<Lanes<T, C>*>(tile + (row + u) * WIDE + lane) = lanes;
      }
  }

 private:
  // Whether each row of a thread lies where vectors may, if row and lane 0 lie here.
  TA_MEMBER static bool in_vectors(const T* at, idx pitch) {
    enum { BYTES = Lanes<T, C>::ALIGNMENT };
    return reinterpret_cast<unsigned long long>(at) % BYTES == 0 && pitch * idx(sizeof(T)) % BYTES == 0;
  }
  TA_MEMBER void load_row(T (&to)[C], const T* tile, int at) const {
    const int inside = at < 0 ? 0 : at < TALL ? at : TALL - 1;
    const Lanes<T, C> lanes = *reinterpret_cast<const Lanes<T, C>*>(tile + inside * WIDE + lane);
    _Pragma("unroll") for (int v = 0; v < C; ++v) to[v] = lanes.lane[v];
  }
};

// What blocks whose tiles stay on chip leave for one another in memory (fusion/chains/resident.py):
// of the B1 rows and B2 lanes before a tile, and A1 and A2 after it, each is some neighbour's.
// A block begins the next round but one only after its neighbours have taken what they need of this
// one, so two rounds share the memory in turn. All blocks must run at a time.
template <class T, int TALL, int WIDE, int B1, int A1, int B2, int A2> struct Edges {
  enum { T1 = TALL - B1 - A1, T2 = WIDE - B2 - A2 };
  T* edges;
  unsigned* flags;  // of each block, how many rounds it has left
  int down, along, tiles_1, tiles_2;

  TA_MEMBER Edges(void* edges, unsigned* flags, idx block, int tiles_1, int tiles_2)
      : edges(static_cast<T*>(edges)), flags(flags), down(int(block) / tiles_2),
        along(int(block) % tiles_2), tiles_1(tiles_1), tiles_2(tiles_2) {}

  // Leaves what a block has made in a round, and takes what its neighbours have.
  template <class H> TA_MEMBER void exchange(H& held, int round) const {
    enum { R = sizeof(held.own) / sizeof(held.own[0]), C = sizeof(held.own[0]) / sizeof(T) };
    T* const turn = edges + (round & 1) * tiles_1 * T1 * (tiles_2 * T2);
    const int lane = held.lane, from = along * T2 + lane - B2;
    const bool own = lane >= B2 && lane < WIDE - A2;
    const bool beside = lane < B2 + A2 || lane >= WIDE - A2 - B2;
    _Pragma("unroll") for (int u = 0; u < R; ++u) {
      const int row = held.row + u;
      if (own && row >= B1 && row < TALL - A1 &&
          (beside || row < B1 + A1 || row >= TALL - A1 - B1)) {
        Lanes<T, C> lanes;
        _Pragma("unroll") for (int v = 0; v < C; ++v) lanes.lane[v] = held.own[u][v];
        *reinterpret_cast<Lanes<T, C>*>(turn + place(row, from)) = lanes;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) raise_flag(flags + down * tiles_2 + along, unsigned(round + 1));
    if (threadIdx.x < 9) {
      const int row = down + int(threadIdx.x) / 3 - 1, column = along + int(threadIdx.x) % 3 - 1;
      if (row >= 0 && row < tiles_1 && column >= 0 && column < tiles_2)
        while (flag_at(flags + row * tiles_2 + column) < unsigned(round + 1)) {}
    }
    __syncthreads();
    _Pragma("unroll") for (int u = 0; u < R; ++u) {
      const int row = held.row + u, at = down * T1 + row - B1;
      if ((own && row >= B1 && row < TALL - A1) || row >= TALL || at < 0 || at >= tiles_1 * T1 ||
          from < 0 || from >= tiles_2 * T2)
        continue;
      const Lanes<T, C> lanes = *reinterpret_cast<const Lanes<T, C>*>(turn + place(row, from));
      _Pragma("unroll") for (int v = 0; v < C; ++v) held.own[u][v] = lanes.lane[v];
    }
  }

 private:
  TA_MEMBER int place(int row, int from) const {
    return (down * T1 + row - B1) * (tiles_2 * T2) + from;
  }
};
