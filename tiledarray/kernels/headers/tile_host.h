// Tile primitives of the host: one thread works on a tile; included by tile.h.
#define TA_KERNEL(NAME, ARGS)                                                                     \
  static inline void NAME##_block(const ARGS& a, idx block, char* scratch);                       \
  extern "C" __attribute__((visibility("default"))) void NAME(const void* args, idx begin,        \
                                                              idx end, char* scratch) {           \
    for (idx block = begin; block < end; ++block)                                                 \
      NAME##_block(*static_cast<const ARGS*>(args), block, scratch);                              \
    TA_STREAM_FENCE();                                                                            \
  }                                                                                               \
  static inline void NAME##_block(const ARGS& a, const idx ta_block, char* scratch)
#define TA_BLOCKS(b) const idx b = ta_block;
#define TA_THREADS
#define TA_LAMBDA __attribute__((always_inline))
#define TA_EACH(v, w) _Pragma("omp simd") for (int v = 0; v < int(w); ++v)
#define TA_ROWS(row, range) for (idx row = range.begin; row < range.end; ++row)
#define TA_ONCE
#define TA_FIRST
#define TA_SCRATCH char* held = scratch;  // the same for every row
#define TA_HELD(T, name, length) T* const name = take<T>(held, length)
#define TA_SLOT(j, c, v) ((j) + (v))
#define TA_STAGED_ROW(T, name, offset) const Staged<T> name
#define TA_STAGED_STEPS(T, name, offset) const Staged<T> name
#define TA_STAGED_STEPS_SHARED(T, name, offset) const Staged<T> name

template <class T> TA_FN T* take(char*& scratch, idx length) {
  T* taken = reinterpret_cast<T*>(scratch);
  scratch += (length * idx(sizeof(T)) + 63) / 64 * 64;
  return taken;
}
template <class T> using Constant = const T*;
template <int N, class T> TA_FN const T* load(const T* from) { return from; }
template <int N, class T> TA_FN const T* load(const T* from, int) { return from; }
template <class T> struct Storing {
  T* to;
  TA_MEMBER T& operator[](int v) const { return to[v]; }
  TA_MEMBER void flush(int) const {}
};
template <int N, class T> TA_FN Storing<T> storing(T* to) { return Storing<T>{to}; }
#include "stream.h"

#define TA_TILE(T, name, ROWS, LANES) T name[ROWS][LANES]
#define TA_TURNED
template <int TX, int TY, class T, int ROWS, int LANES>
TA_FN void turn(T (&tile)[ROWS][LANES], const T* from, Range rows, Range js, idx stride) {
  for (idx j = js.begin; j < js.end; ++j)
    for (idx i = rows.begin; i < rows.end; ++i)
      tile[i - rows.begin][j - js.begin] = from[j * stride + i];
}

template <int TX, int V, int C, class Body> TA_FN void lanes(Range range, Body body) {
  for (idx j = range.begin; j < range.end; j += V) body(j, min_idx(V, range.end - j));
}
template <int TX, int V, int C, class Body> TA_FN void streamed_lanes(Range range, Body body) {
  idx j = range.begin;
  for (; j + V <= range.end; j += V) body(j, Count<V>());
  if (j < range.end) body(j, int(range.end - j));
}
template <int TX, int V, int U, class Body, class Flush>
TA_FN void lanes(Range range, Body body, Flush flush) {
  idx j = range.begin;
  while (j + V <= range.end) {
    const idx leaf = min_idx(j + V * LEAF, j + (range.end - j) / V * V);
    for (; j < leaf; j += V) body(j, Count<V>());
    flush();
  }
  if (j < range.end) {
    body(j, int(range.end - j));
    flush();
  }
}
template <int TX, int V, int C, class Body, class Flush>
TA_FN void held_lanes(Range range, Body body, Flush flush) {
  lanes<TX, V, 1>(range, [&](const idx j, const auto w) TA_LAMBDA { body(j, w, 0); }, flush);
}
template <int TX, int V, class Body> TA_FN void columns(Range range, Body body) {
  for (idx j = range.begin; j < range.end; j += V) body(j, min_idx(V, range.end - j));
}
template <int TX, int TY, int U, class Body, class Flush>
TA_FN void steps(Range range, Body body, Flush flush) {
  for (idx k = range.begin; k < range.end;) {
    const idx leaf = min_idx(k + LEAF, range.end);
    for (; k < leaf; ++k) body(k);
    flush();
  }
}

// A row, scanned element by element.
template <class R, class T, int V> struct RowScan {
  typename R::Total total;
  TA_MEMBER void begin(T x) { total = R::lift(x); }
  TA_MEMBER void next(T& x) {
    total = R::join(total, R::lift(x));
    x = R::value(total);
  }
};

// What the device stages is read where it lies.
template <class T> struct Staged {
  TA_MEMBER void fetch(idx, const T*, int) const {}
  TA_MEMBER const T* load(idx, const T* from) const { return from; }
};
TA_FN void await_copies() {}
template <int TX, int TY, int V, int S, class Fetch, class Body, class Flush>
TA_FN void staged_steps(Range range, Fetch, Body body, Flush flush) {
  steps<TX, TY, 1>(range, [&](const idx k) TA_LAMBDA { body(k, 0); }, flush);
}

template <class R, int V> struct RowAccumulator {
  LaneArray<R, V> lane;
  typename R::Total total;
  TA_MEMBER RowAccumulator() {
    total = R::total();
    for (int v = 0; v < V; ++v) lane.reset(v);
  }
  template <class T> TA_MEMBER void add(int v, T x, idx at) { lane.add(v, x, at); }
  TA_MEMBER void flush() {  // lanes pairwise: vector work, and the accuracy of a tree
    if constexpr (!leafless<R>) {
      typename R::Total part[V];
      _Pragma("omp simd") for (int v = 0; v < V; ++v) {
        part[v] = R::total();
        R::absorb(part[v], lane.get(v));
        lane.reset(v);
      }
      fold<V>([&](int v, int other) TA_LAMBDA { R::merge(part[v], part[other]); });
      R::merge(total, part[0]);
    }
  }
  template <int N, class Merge> TA_MEMBER void fold(Merge merge) {
    if constexpr (N > 1) {
      constexpr int HALF = (N + 1) / 2;
      _Pragma("omp simd") for (int v = 0; v < N / 2; ++v) merge(v, v + HALF);
      fold<HALF>(merge);
    }
  }
  template <int TX> TA_MEMBER typename R::Total finish() {
    if constexpr (leafless<R>) {
      fold<V>([&](int v, int other) TA_LAMBDA { lane.merge(v, other); });
      return lane.get(0);
    } else return total;
  }
};
template <class R, int V> struct ColumnAccumulator {
  LaneArray<R, V> lane;
  typename R::Total total[V];
  TA_MEMBER ColumnAccumulator() {
    for (int v = 0; v < V; ++v) {
      lane.reset(v);
      total[v] = R::total();
    }
  }
  template <class T> TA_MEMBER void add(int v, T x, idx at) { lane.add(v, x, at); }
  TA_MEMBER void absorb() {
    _Pragma("omp simd") for (int v = 0; v < V; ++v) {
      R::absorb(total[v], lane.get(v));
      lane.reset(v);
    }
  }
  TA_MEMBER void flush() {
    if (!leafless<R>) absorb();
  }
  template <int TX, int TY> TA_MEMBER void finish() {
    if (leafless<R>) absorb();
  }
  template <int TX, int TY> TA_MEMBER void restore(const typename R::Total* parts, idx stride,
                                                   idx count, int w) {
    for (int v = 0; v < w; ++v) total[v] = R::total();
    for (idx k = 0; k < count; ++k)
      for (int v = 0; v < w; ++v) R::merge(total[v], parts[k * stride + v]);
  }
};
TA_FN bool last_to_arrive(unsigned* counter, idx count) {
  if (__atomic_add_fetch(counter, 1u, __ATOMIC_ACQ_REL) != unsigned(count)) return false;
  __atomic_store_n(counter, 0u, __ATOMIC_RELAXED);
  return true;
}
template <int TX, class R> TA_FN typename R::Total merged(const typename R::Total* parts, idx count) {
  typename R::Total total = R::total();
  for (idx k = 0; k < count; ++k) R::merge(total, parts[k]);
  return total;
}
template <class T, class From> TA_FN void copy_lanes(T* to, From from, Range range) {
  for (idx j = range.begin; j < range.end; ++j) to[j] = from[j];
}
template <int THREADS, int NARROW, class T, class From, class Inside>
TA_FN void copy_around(T* to, From from, idx length, Range rows, Range js, Range left,
                       Range right, Inside inside) {
  for (idx row = rows.begin; row < rows.end; ++row) {
    const bool within = inside(row);
    copy_lanes(to + row * length, from + row * length, within ? left : js);
    if (within) copy_lanes(to + row * length, from + row * length, right);
  }
}
