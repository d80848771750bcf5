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
