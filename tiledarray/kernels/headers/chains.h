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
  TA_MEMBER void load_row(T (&to)[C], const T* tile, int at) const {
    const int inside = at < 0 ? 0 : at < TALL ? at : TALL - 1;
    const Lanes<T, C> lanes = *reinterpret_cast<const Lanes<T, C>*>(tile + inside * WIDE + lane);
    _Pragma("unroll") for (int v = 0; v < C; ++v) to[v] = lanes.lane[v];
  }
};
