// Stages of a chain (fusion/chains.py): a block has tiles of arrays in shared memory, all of E0 x E1
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
  TA_MEMBER bool has(int i_0, int i_1, int i_2) const {
    return i_0 >= begin[0] && i_0 < end[0] && i_1 >= begin[1] && i_1 < end[1] &&
           i_2 >= begin[2] && i_2 < end[2];
  }
};

// Along one dimension, what lies in [begin, end) of the array and in [first, last) of the tile,
// which begins at `origin`; counted from there.
TA_FN void clip(Box& box, int d, idx first, idx last, idx begin, idx end, idx origin) {
  box.begin[d] = int(max_idx(first, begin - origin));
  box.end[d] = int(max_idx(box.begin[d], min_idx(last, end - origin)));
}

// The same of what lies in another box.
TA_FN void cut(Box& box, int d, const Box& all, idx begin, idx end, idx origin) {
  clip(box, d, all.begin[d], all.end[d], begin, end, origin);
}

#define TA_TOGETHER(u) _Pragma("unroll") for (int u = 0; u < R; ++u)

// Calls f(i_0, i_1, i_2) for all of a box, R rows from i_1 on at a time.
template <int TX, int TY, int R, class F> TA_FN void each_rows(const Box& box, F f) {
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const int groups = (box.end[1] - box.begin[1] + R - 1) / R;
  const int rows = groups * (box.end[0] - box.begin[0]);
  _Pragma("unroll 1") for (int row = ty; row < rows; row += TY) {
    const int outer = row < groups ? 0 : row / groups;
    const int i_0 = box.begin[0] + outer, i_1 = box.begin[1] + (row - outer * groups) * R;
    _Pragma("unroll 1") for (int i_2 = box.begin[2] + tx; i_2 < box.end[2]; i_2 += TX)
      f(i_0, i_1, i_2);
  }
}

// Calls f(i_0, i_1, i_2) for all of a thin box; one warp of the block does it.
template <int WARPS, class F> TA_FN void each_point(int part, const Box& box, F f) {
  if (int(threadIdx.x) / 32 != part % WARPS) return;
  const int lanes = box.end[2] - box.begin[2], rows = box.end[1] - box.begin[1];
  const int points = lanes * rows * (box.end[0] - box.begin[0]);
  _Pragma("unroll 1") for (int point = threadIdx.x % 32; point < points; point += 32) {
    const int row = lanes == 1 ? point : point / lanes, outer = row < rows ? 0 : row / rows;
    f(box.begin[0] + outer, box.begin[1] + row - outer * rows, box.begin[2] + point - row * lanes);
  }
}
