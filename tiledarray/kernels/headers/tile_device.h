// Tile primitives of the device: a block of TX x TY threads works on a tile; included by tile.h.
#ifdef TA_BLOCKS_RESIDENT
#define TA_BOUNDS __launch_bounds__(TX* TY, TA_BLOCKS_RESIDENT)
#elif defined(TA_RESIDENT)
#define TA_BOUNDS __launch_bounds__(TX* TY, TA_RESIDENT)
#else
#define TA_BOUNDS __launch_bounds__(TX* TY)
#endif
#define TA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void TA_BOUNDS NAME(const __grid_constant__ ARGS a)
#define TA_BLOCKS(b) \
  const idx b = blockIdx.x; \
  TA_THREADS
#define TA_THREADS \
  const int tx = TY == 1 ? threadIdx.x : threadIdx.x % TX, ty = TY == 1 ? 0 : threadIdx.x / TX; \
  (void)tx; (void)ty;
#define TA_LAMBDA
#define TA_EACH(v, w) _Pragma("unroll") for (int v = 0; v < V; ++v) if (v < w)
#define TA_ROWS(row, range) for (idx row = range.begin + ty; row < range.end; row += TY)
#define TA_ONCE if (tx == 0)
#define TA_FIRST if (ty == 0)
#define TA_SCRATCH
#define TA_HELD(T, name, length) T name[C * V]
#define TA_SLOT(j, c, v) ((c) * V + (v))
#define TA_STAGED_ROW(T, name, offset) const Staged<T, V> name(offset, ty * (C * TX * V))
#define TA_STAGED_STEPS(T, name, offset) const Staged<T, V> name(offset, threadIdx.x * V)
#define TA_STAGED_STEPS_SHARED(T, name, offset) const Staged<T, 1> name(offset, threadIdx.x)

template <class T, int N> struct alignas(sizeof(T) * N) Vector {
  T at[N];
};
template <class T, int N> struct Loaded {
  Vector<T, N> data;
  TA_MEMBER const T& operator[](int v) const { return data.at[v]; }
};
template <int N, class T> TA_FN Loaded<T, N> load(const T* from) {
  return Loaded<T, N>{*reinterpret_cast<const Vector<T, N>*>(from)};
}

// Memory that nothing writes while the kernel runs: its loads may go ahead of any store.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };
template <class T> TA_FN T fetched(const void* from) {
  return __builtin_bit_cast(T, __ldg(static_cast<const typename Word<sizeof(T)>::type*>(from)));
}
// In one piece, also where a type is made of two.
template <class T> TA_FN void put(T& to, T x) {
  using W = typename Word<sizeof(T)>::type;
  reinterpret_cast<W&>(to) = __builtin_bit_cast(W, x);
}
template <class T> struct Constant {
  const T* at;
  TA_MEMBER Constant(const T* at) : at(at) {}
  TA_MEMBER Constant operator+(idx offset) const { return at + offset; }
  TA_MEMBER T operator[](i64 offset) const { return fetched<T>(at + offset); }
};
template <int N, class T> TA_FN Loaded<T, N> load(Constant<T> from) {
  return Loaded<T, N>{fetched<Vector<T, N>>(from.at)};
}

template <int N, class From> TA_FN auto load(From from, int count) -> decltype(load<N>(from)) {
  decltype(load<N>(from)) loaded;
  if (count == N) loaded = load<N>(from);
  return loaded;
}
// Lanes LO to N + HI of a line, where lane 0 is aligned: in vectors but for the ends.
template <class T, int N, int LO, int HI> struct Window {
  T at[N + HI - LO];
  TA_MEMBER T operator[](int v) const { return at[v - LO]; }
};
template <int N, int LO, int HI, class T, class From> TA_FN Window<T, N, LO, HI> windowed(From from) {
  enum { FIRST = (LO < 0 ? LO - N + 1 : LO) / N * N, END = N + HI };
  Window<T, N, LO, HI> window;
  _Pragma("unroll") for (int k = FIRST; k < END; k += N) {
    if (k >= LO && k + N <= END) {
      const auto vector = load<N>(from + k);
      _Pragma("unroll") for (int v = 0; v < N; ++v) window.at[k + v - LO] = vector[v];
    } else {
      _Pragma("unroll") for (int v = 0; v < N; ++v)
        if (k + v >= LO && k + v < END) window.at[k + v - LO] = from[k + v];
    }
  }
  return window;
}
template <int N, int LO, int HI, class T> TA_FN auto window(Constant<T> from) {
  return windowed<N, LO, HI, T>(from);
}
template <int N, int LO, int HI, class T> TA_FN auto window(const T* from) {
  return windowed<N, LO, HI, T>(from);
}
template <class T, int N> struct Storing {
  T* to;
  Vector<T, N> data;
  TA_MEMBER T& operator[](int v) { return data.at[v]; }
  TA_MEMBER void flush(int count) {
    if (count == N) *reinterpret_cast<Vector<T, N>*>(to) = data;
  }
};
template <int N, class T> TA_FN Storing<T, N> storing(T* to) { return Storing<T, N>{to}; }

// body(j, w) for every chunk of V lanes; V divides the range when it is not 1.  A range has C
// chunks a thread, or less at the end.
template <int TX, int V, int C, class Body> TA_FN void lanes(Range range, Body body) {
  const idx first = range.begin + idx(threadIdx.x % TX) * V;
  if (C > 1 && first + (C - 1) * TX * V < range.end) {
    _Pragma("unroll") for (int c = 0; c < C; ++c) body(first + c * (TX * V), Count<V>());
  } else {
    _Pragma("unroll 1") for (idx j = first; j < range.end; j += TX * V) body(j, Count<V>());
  }
}
// The same where a row may begin before 0 or end within a chunk: lanes that are no whole chunk go
// to a thread each.
template <int TX, int V, int C, class Body> TA_FN void ragged_lanes(Range range, Body body) {
  const idx first = range.begin + idx(threadIdx.x % TX) * V;
  if (C > 1 && first >= 0 && first + ((C - 1) * TX + 1) * V <= range.end) {
    _Pragma("unroll") for (int c = 0; c < C; ++c) body(first + c * (TX * V), Count<V>());
  } else {
    _Pragma("unroll 1") for (int c = 0; c < C; ++c) {
      const idx j = first + c * (TX * V);
      if (j >= 0 && j + V <= range.end) body(j, Count<V>());
    }
  }
  if (V == 1) return;
  const idx begin = max_idx(range.begin, 0);
  const idx from = min_idx(range.begin + (begin - range.begin + V - 1) / V * V, range.end);
  const idx to = max_idx(range.begin + (range.end - range.begin) / V * V, from);
  const idx ahead = from - begin, loose = ahead + range.end - to;
  _Pragma("unroll 1") for (idx k = threadIdx.x % TX; k < loose; k += TX)
    body(k < ahead ? begin + k : to + k - ahead, Count<1>());
}
// N lanes from lane j of short rows that are joined: the row of each, and its place there.
template <int N> struct JoinedRows {
  idx row[N], place[N];
};
template <int N> TA_FN JoinedRows<N> joined_rows(idx j, idx period) {
  JoinedRows<N> at;
  idx row = j / period, place = j - row * period;
  _Pragma("unroll") for (int v = 0; v < N; ++v) {
    at.row[v] = row;
    at.place[v] = place;
    const bool last = ++place == period;
    row += last;
    place = last ? 0 : place;
  }
  return at;
}
// A block's tile of an array that runs along the rows in memory: copied as it lies, read along
// the lanes once every thread has come to TA_TURNED.
#define TA_TILE(T, name, ROWS, LANES) __shared__ T name[ROWS][LANES + 1]
#define TA_TURNED __syncthreads();
template <int TX, int TY, class T, int ROWS, int PITCH, class From>
TA_FN void turn(T (&tile)[ROWS][PITCH], From from, Range rows, Range js, idx stride) {
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const int height = rows.end - rows.begin, width = js.end - js.begin;
  From at = from + (js.begin + ty) * stride + (rows.begin + tx);
  if (height == ROWS && width == PITCH - 1) {  // no guards: all loads are under way at once
    _Pragma("unroll") for (int lane = 0; lane < PITCH - 1; lane += TY)
      _Pragma("unroll") for (int row = 0; row < ROWS; row += TX)
        tile[row + tx][lane + ty] = at[lane * stride + row];
  } else {
    _Pragma("unroll 1") for (int lane = 0; lane < width - ty; lane += TY)
      _Pragma("unroll 1") for (int row = 0; row < height - tx; row += TX)
        tile[row + tx][lane + ty] = at[lane * stride + row];
  }
}
// U chunks side by side, so that as many loads are under way.
template <int TX, int V, int U, class Body, class Flush>
TA_FN void lanes(Range range, Body body, Flush flush) {
  int chunks = 0;
  idx j = range.begin + idx(threadIdx.x % TX) * V;
  _Pragma("unroll 1") for (; j + (U - 1) * TX * V < range.end; j += U * TX * V) {
    _Pragma("unroll") for (int u = 0; u < U; ++u) body(j + u * (TX * V), Count<V>());
    chunks += U;
    if (chunks == LEAF) {
      flush();
      chunks = 0;
    }
  }
  if (U > 1) {
    _Pragma("unroll 1") for (; j < range.end; j += TX * V) body(j, Count<V>());
  }
  flush();
}
// The row is held in registers: C chunks a thread, each at a compile-time place.
template <int TX, int V, int C, class Body, class Flush>
TA_FN void held_lanes(Range range, Body body, Flush flush) {
  _Pragma("unroll") for (int c = 0; c < C; ++c) {
    const idx j = range.begin + idx(c * TX + threadIdx.x % TX) * V;
    body(j, j < range.end ? V : 0, c);
  }
  flush();
}
// Every thread takes part, with w == 0 past the end (the body holds barriers).
template <int TX, int V, class Body> TA_FN void columns(Range range, Body body) {
  const idx j = range.begin + idx(threadIdx.x % TX) * V;
  body(j, j < range.end ? V : 0);
}
// The same with a thread's lanes TX apart: w of them are in the range.
template <int TX, int V, class Body> TA_FN void spread_columns(Range range, Body body) {
  const idx j = range.begin + idx(threadIdx.x % TX), left = range.end - j;
  body(j, left <= 0 ? 0 : left > (V - 1) * TX ? V : (left + TX - 1) / TX);
}
template <int TX, int TY, int U, class Body, class Flush>
TA_FN void steps(Range range, Body body, Flush flush) {
  int count = 0;
  idx k = range.begin + threadIdx.x / TX;
  _Pragma("unroll 1") for (; k + (U - 1) * TY < range.end; k += U * TY) {
    _Pragma("unroll") for (int u = 0; u < U; ++u) body(k + u * TY);
    count += U;
    if (count == LEAF) {
      flush();
      count = 0;
    }
  }
  if (U > 1) {
    _Pragma("unroll 1") for (; k < range.end; k += TY) body(k);
  }
  flush();
}

// The same, 2 U steps a turn, with what U steps read asked for while U others are done, by
// fetch(k, where); what is asked for last, nobody needs.
// This thread is number `at` of TY.
template <int TY, int U, class Ahead, class Fetch, class Body, class Flush>
TA_FN void turns_ahead(Range range, int at, Fetch fetch, Body body, Flush flush) {
  int count = 0;
  const idx last = range.end - 1;
  idx k = range.begin + at;
  Ahead some[U], others[U];
  if (k + (2 * U - 1) * TY < range.end)
    _Pragma("unroll") for (int u = 0; u < U; ++u) fetch(k + u * TY, some[u]);
  _Pragma("unroll 1") for (; k + (2 * U - 1) * TY < range.end; k += 2 * U * TY) {
    _Pragma("unroll") for (int u = 0; u < U; ++u) fetch(k + (U + u) * TY, others[u]);
    _Pragma("unroll") for (int u = 0; u < U; ++u) body(k + u * TY, some[u]);
    _Pragma("unroll") for (int u = 0; u < U; ++u)
      fetch(min_idx(k + (2 * U + u) * TY, last), some[u]);
    _Pragma("unroll") for (int u = 0; u < U; ++u) body(k + (U + u) * TY, others[u]);
    count += 2 * U;
    if (count == LEAF) {
      flush();
      count = 0;
    }
  }
  _Pragma("unroll 1") for (; k < range.end; k += TY) {
    fetch(k, some[0]);
    body(k, some[0]);
  }
  flush();
}
template <int TX, int TY, int U, class Ahead, class Fetch, class Body, class Flush>
TA_FN void steps_ahead(Range range, Fetch fetch, Body body, Flush flush) {
  turns_ahead<TY, U, Ahead>(range, TY == 1 ? 0 : threadIdx.x / TX, fetch, body, flush);
}
template <int TX, int V, int U, class Ahead, class Fetch, class Body, class Flush>
TA_FN void lanes_ahead(Range range, Fetch fetch, Body body, Flush flush) {
  turns_ahead<TX, U, Ahead>(
      Range{0, (range.end - range.begin) / V}, threadIdx.x % TX,
      [&](const idx k, Ahead& next) TA_LAMBDA { fetch(range.begin + k * V, next); },
      [&](const idx k, const Ahead& now) TA_LAMBDA { body(range.begin + k * V, Count<V>(), now); },
      flush);
}

// Copies that go on while the thread works: from memory into shared memory, where a thread reads
// only what it asked for itself.  So no register holds what is under way, and no barrier is needed.
// Places are aligned as memory is: a sector that lay across two would be read twice from L2.
struct alignas(128) Line {
  char bytes[128];
};
extern __shared__ Line shared_memory[];
TA_FN unsigned shared_place(void* at) { return unsigned(__cvta_generic_to_shared(at)); }
// To shared memory: `place` is where `to` is there.
template <int BYTES> TA_FN void copy_async_at(unsigned place, void* to, const void* from) {
  (void)to;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(BYTES)
                 : "memory");
}
template <int BYTES> TA_FN void copy_async(void* to, const void* from) {
  copy_async_at<BYTES>(shared_place(to), to, from);
}
TA_FN void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
TA_FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> TA_FN void await_copies_before() {  // all but those of the last LATER commits
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
template <class T, int V> struct Staged {  // chunks of an array, each at a place
  T* places;
  TA_MEMBER Staged(int offset, int first)
      : places(reinterpret_cast<T*>(reinterpret_cast<char*>(shared_memory) + offset) + first) {}
  TA_MEMBER void fetch(idx place, Constant<T> from, int count) const {
    if (count == V) copy_async<sizeof(T) * V>(places + place, from.at);
  }
  template <class From> TA_MEMBER Loaded<T, V> load(idx place, From) const {
    return ::load<V>(const_cast<const T*>(places) + place);
  }
};
// body(k, place) for every TY-th step, S - 1 steps after fetch(k, place) has asked for its chunk.
template <int TX, int TY, int V, int S, class Fetch, class Body, class Flush>
TA_FN void staged_steps(Range range, Fetch fetch, Body body, Flush flush) {
  enum { TURN = TX * TY * V };
  idx k = range.begin + (TY == 1 ? 0 : threadIdx.x / TX), ahead = k;
  _Pragma("unroll") for (int turn = 0; turn < S - 1; ++turn, ahead += TY) {
    if (ahead < range.end) fetch(ahead, turn * TURN);
    commit_copies();
  }
  int turn = 0;
  _Pragma("unroll 1") while (k < range.end) {
    const idx leaf = range.end - k > LEAF * TY ? k + LEAF * TY : range.end;
    _Pragma("unroll 2") for (; k < leaf; k += TY) {
      if (k + (S - 1) * TY < range.end)
        fetch(k + (S - 1) * TY, turn == 0 ? (S - 1) * TURN : (turn - 1) * TURN);
      commit_copies();
      await_copies_before<S - 1>();
      body(k, turn * TURN);
      turn = turn == S - 1 ? 0 : turn + 1;
    }
    flush();
  }
}

template <class T> TA_FN T shuffled(const T& x, int mask) {
  union Words {
    T value;
    unsigned word[(sizeof(T) + 3) / 4];
    __device__ Words() {}
  } words;
  words.value = x;
  _Pragma("unroll") for (unsigned k = 0; k < sizeof(words.word) / 4; ++k)
    words.word[k] = __shfl_xor_sync(0xffffffffu, words.word[k], mask);
  return words.value;
}
// Merge the totals of N threads of a warp, APART from one another, each pair in the same order on
// both sides.
template <int N, class R, int APART = 1> TA_FN void butterfly(typename R::Total& total) {
  using Total = typename R::Total;
  _Pragma("unroll") for (int mask = APART; mask < N * APART; mask *= 2) {
    const Total other = shuffled(total, mask);
    const bool upper = threadIdx.x & mask;
    const Total right = upper ? total : other;
    total = upper ? other : total;
    R::merge(total, right);
  }
}
// Merge the totals of TX neighbouring threads; every one of them gets the result.
template <int TX, class R> TA_FN typename R::Total across(typename R::Total total) {
  using Total = typename R::Total;
  enum { WARPS = TX > 32 ? TX / 32 : 1 };
  butterfly<TX / WARPS, R>(total);
  if (WARPS > 1) {
    __shared__ alignas(16) unsigned char memory[sizeof(Total) * WARPS];
    Total* parts = reinterpret_cast<Total*>(memory);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    total = parts[threadIdx.x % WARPS];
    butterfly<WARPS, R>(total);
  }
  return total;
}

template <class R, int V> struct RowAccumulator {
  LaneArray<R, V> lane;
  typename R::Total total;
  TA_MEMBER RowAccumulator() {
    total = R::total();
    _Pragma("unroll") for (int v = 0; v < V; ++v) lane.reset(v);
  }
  template <class T> TA_MEMBER void add(int v, const T& x, idx at) { lane.add(v, x, at); }
  template <class T> TA_MEMBER void add(int v, const T& x, const T& y, idx at) {
    lane.add(v, x, y, at);
  }
  TA_MEMBER void flush() {
    _Pragma("unroll") for (int v = 0; v < V; ++v) R::absorb(total, lane.get(v));
    _Pragma("unroll") for (int v = 0; v < V; ++v) lane.reset(v);
  }
  TA_MEMBER bool is_wrong() const { return is_nan(settled(total)); }
  template <int TX> TA_MEMBER typename R::Total finish() { return across<TX, R>(total); }
};

template <class R, int V> struct ColumnAccumulator {
  LaneArray<R, V> lane;
  typename R::Total total[V];
  TA_MEMBER ColumnAccumulator() {
    _Pragma("unroll") for (int v = 0; v < V; ++v) {
      lane.reset(v);
      total[v] = R::total();
    }
  }
  template <class T> TA_MEMBER void add(int v, const T& x, idx at) { lane.add(v, x, at); }
  template <class T> TA_MEMBER void add(int v, const T& x, const T& y, idx at) {
    lane.add(v, x, y, at);
  }
  TA_MEMBER void flush() {
    if constexpr (leafless<R>) {
      _Pragma("unroll") for (int v = 0; v < V; ++v) total[v] = lane.get(v);
    } else {
      _Pragma("unroll") for (int v = 0; v < V; ++v) R::absorb(total[v], lane.get(v));
      _Pragma("unroll") for (int v = 0; v < V; ++v) lane.reset(v);
    }
  }
  TA_MEMBER bool is_wrong() const {
    bool wrong = false;
    _Pragma("unroll") for (int v = 0; v < V; ++v) wrong |= is_nan(settled(total[v]));
    return wrong;
  }
  // Merge over ty; every thread of a column gets the result.
  template <int TX, int TY> TA_MEMBER void finish() {
    using Total = typename R::Total;
    enum { TOGETHER = TX >= 32 ? 1 : TY < 32 / TX ? TY : 32 / TX, WARPS = TY / TOGETHER };
    _Pragma("unroll") for (int v = 0; v < V; ++v) butterfly<TOGETHER, R, TX>(total[v]);
    if (WARPS == 1) return;
    __shared__ alignas(16) unsigned char memory[sizeof(Total) * TX * WARPS];
    Total* parts = reinterpret_cast<Total*>(memory);
    const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
    _Pragma("unroll") for (int v = 0; v < V; ++v) {
      __syncthreads();
      if (ty % TOGETHER == 0) parts[ty / TOGETHER * TX + tx] = total[v];
      __syncthreads();
      Total sum = parts[tx];
      _Pragma("unroll 1") for (int k = 1; k < WARPS; ++k) R::merge(sum, parts[k * TX + tx]);
      total[v] = sum;
    }
  }
  // Merge what other blocks left, one part every `stride` elements, its lanes `APART` of them
  // apart; a part of it per ty.
  template <int TX, int TY, int APART = 1> TA_MEMBER void restore(const typename R::Total* parts, idx stride,
                                                   idx count, int w) {
    const int ty = threadIdx.x / TX;
    _Pragma("unroll") for (int v = 0; v < V; ++v) total[v] = R::total();
    for (idx k = ty; k < count; k += TY) {
      _Pragma("unroll") for (int v = 0; v < V; ++v) {
        if (v < w) R::merge(total[v], parts[k * stride + v * APART]);
      }
    }
  }
};

// A thread's C chunks of columns, of which it has a leaf in registers; the totals that leaves are
// added to lie in shared memory, each at a place of its own.
template <class R, int V, int C, int THREADS> struct ChunkedLeaves {
  LaneArray<R, V> lane[C];
  typename R::Total* totals;
  TA_MEMBER ChunkedLeaves(int offset)
      : totals(reinterpret_cast<typename R::Total*>(
                   reinterpret_cast<char*>(shared_memory) + offset) + threadIdx.x) {
    each([&](int c, int v) {
      lane[c].reset(v);
      totals[(c * V + v) * THREADS] = R::total();
    });
  }
  template <class Body> TA_MEMBER static void each(Body body) {
    _Pragma("unroll") for (int c = 0; c < C; ++c)
      _Pragma("unroll") for (int v = 0; v < V; ++v) body(c, v);
  }
  TA_MEMBER LaneArray<R, V>& operator[](int c) { return lane[c]; }
  TA_MEMBER void flush() {
    each([&](int c, int v) {
      R::absorb(totals[(c * V + v) * THREADS], lane[c].get(v));
      lane[c].reset(v);
    });
  }
  TA_MEMBER void take(ColumnAccumulator<R, V> (&columns)[C]) {
    flush();
    each([&](int c, int v) { columns[c].total[v] = totals[(c * V + v) * THREADS]; });
  }
};

// ---- pairs of points, each met once ----

// Two tiles of points: all pairs of tiles, and each with itself, are numbered so that the second
// one changes last.
struct Tiles {
  idx first, second;
};
TA_FN Tiles pair_of_tiles(idx number) {
  idx second = idx((sqrt(8.0 * double(number) + 1.0) - 1.0) * 0.5);
  second -= second * (second + 1) / 2 > number;
  second += (second + 1) * (second + 2) / 2 <= number;
  return Tiles{number - second * (second + 1) / 2, second};
}
// What each step of a tile gives, added up over all lanes: by warps, then over the WARPS that have
// the same steps.  U steps of a thread are added up together.
template <class R, int NUMBER, int TX, int STEPS, int U> struct Mirror {
  enum { WARPS = TX / 32 };
  using Lane = typename R::Lane;
  Lane now[U];
  bool wrong;

  TA_MEMBER Mirror() : wrong(false) {
    _Pragma("unroll") for (int u = 0; u < U; ++u) now[u] = R::lane();
  }
  TA_MEMBER bool is_wrong() const { return wrong; }
  template <class T> TA_MEMBER void add(int u, const T& x) { R::add(now[u], x, 0); }
  template <class T> TA_MEMBER void add(int u, const T& x, const T& y) {
    R::add_product(now[u], x, y);
  }
  // Of N steps, TY apart from step `at` on.
  template <int TY, int N> TA_MEMBER void gather(idx at, Count<N>) {
    const int lane = threadIdx.x % 32;
    const int step = halve<N / 2, 1>(lane);
    _Pragma("unroll") for (int mask = N; mask < 32; mask *= 2)
      accumulate(now[0], shuffled(now[0], mask));
    wrong |= is_nan(now[0]);
    if (lane < N) sums()[threadIdx.x % TX / 32 * STEPS + at + step * TY] = now[0];
    _Pragma("unroll") for (int u = 0; u < U; ++u) now[u] = R::lane();
  }
  // SIGN times the sum of every step, by the block.
  template <int SIGN, int TY> TA_MEMBER void leave(typename R::Total* part) const {
    __syncthreads();
    for (int step = threadIdx.x; step < STEPS; step += TX * TY) {
      typename R::Total total = R::total();
      _Pragma("unroll") for (int warp = 0; warp < WARPS; ++warp) {
        const Lane sum = sums()[warp * STEPS + step];
        R::absorb(total, SIGN < 0 ? -sum : sum);
      }
      part[step] = total;
    }
  }

 private:
  // Of 2 HALF steps lanes take one half, those MASK away the other, and so on: the step left.
  template <int HALF, int MASK> TA_MEMBER int halve(int lane) {
    if constexpr (HALF == 0) {
      return 0;
    } else {
      const bool upper = lane & MASK;
      _Pragma("unroll") for (int u = 0; u < HALF; ++u) {
        const Lane low = now[u], high = now[u + HALF];  // no places, of which one were chosen
        now[u] = upper ? high : low;
        accumulate(now[u], shuffled(upper ? low : high, MASK));
      }
      return (upper ? HALF : 0) + halve<HALF / 2, 2 * MASK>(lane);
    }
  }
  TA_MEMBER static Lane* sums() {
    __shared__ alignas(16) unsigned char memory[sizeof(Lane) * WARPS * STEPS];
    return reinterpret_cast<Lane*>(memory);
  }
};
// body(k, u) for every TY-th step, and gather(k, N) after N of them, from step k on.
template <int TX, int TY, int U, class Body, class Gather, class Flush>
TA_FN void mirrored_steps(Range range, Body body, Gather gather, Flush flush) {
  int count = 0;
  idx k = range.begin + threadIdx.x / TX;
  _Pragma("unroll 1") for (; k + (U - 1) * TY < range.end; k += U * TY) {
    _Pragma("unroll") for (int u = 0; u < U; ++u) body(k + u * TY, u);
    gather(k, Count<U>());
    count += U;
    if (count == LEAF) {
      flush();
      count = 0;
    }
  }
  if (U > 1) {
    _Pragma("unroll 1") for (; k < range.end; k += TY) {
      body(k, 0);
      gather(k, Count<1>());
    }
  }
  flush();
}

// What all rows of a block are reduced to, in C chunks of V lanes a thread: `A` accumulates a chunk.
#define TA_CHUNKS(c) _Pragma("unroll") for (int c = 0; c < C; ++c)
// body(j, w, c) for a thread's chunks of a row: w lanes of the row from lane j.
template <int TX, int V, int C, class Body> TA_FN void each_chunk(idx length, Body body) {
  TA_CHUNKS(c) {
    const idx j = idx(c * TX + threadIdx.x % TX) * V;
    body(j, j < length ? V : 0, c);
  }
}
template <int TX, int V, class A, int C, class Body>
TA_FN void each_across(const A (&chunks)[C], idx length, Body body) {
  TA_CHUNKS(c) {
    const idx j = idx(c * TX + threadIdx.x % TX) * V;
    _Pragma("unroll") for (int v = 0; v < V; ++v) {
      if (j + v < length) body(j + v, chunks[c].total[v]);
    }
  }
}
template <int TX, int V, class A, int C, class Total>
TA_FN void leave_part(const A (&chunks)[C], Total* part, idx length) {
  if (threadIdx.x / TX == 0)
    each_across<TX, V>(chunks, length, [&](const idx j, const Total& x) { part[j] = x; });
}
template <int TX, int TY, int V, class A, int C, class Total>
TA_FN void take_parts(A (&chunks)[C], const Total* parts, idx length, idx count) {
  TA_CHUNKS(c) {
    const idx j = idx(c * TX + threadIdx.x % TX) * V;
    const int w = j < length ? V : 0;
    chunks[c].template restore<TX, TY>(parts + j, length, count, w);
  }
}

// True in every thread of the last of `count` blocks to arrive; leaves the counter at zero.  One
// thread's atomic operation releases what its block wrote and acquires what the others did.
TA_FN bool last_to_arrive(unsigned* counter, idx count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    last = before + 1 == unsigned(count);
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}
template <int TX, class R> TA_FN typename R::Total merged(const typename R::Total* parts, idx count) {
  typename R::Total total = R::total();
  for (idx k = threadIdx.x % TX; k < count; k += TX) R::merge(total, parts[k]);
  return across<TX, R>(total);
}
// ---- scans ----

// body(first, end) for every tile of TX * C chunks, by all threads of a row.
template <int TX, int V, int C, class Body> TA_FN void tiles(Range range, Body body) {
  _Pragma("unroll 1") for (idx first = range.begin; first < range.end; first += TX * V * C)
    body(first, range.end);
}
// body(c, j, w) for a thread's chunks of a tile, with w == 0 past the end.
template <int TX, int V, int C, class Body> TA_FN void chunks(idx first, idx end, Body body) {
  _Pragma("unroll") for (int c = 0; c < C; ++c) {
    const idx j = first + idx(c * TX + threadIdx.x % TX) * V;
    body(c, j, j < end ? V : 0);
  }
}
// The words of a value, exchanged with threads of the same warp.
template <class T, class Exchange> TA_FN T exchanged(const T& x, Exchange exchange) {
  union Words {
    T value;
    unsigned word[(sizeof(T) + 3) / 4];
    __device__ Words() {}
  } words;
  words.value = x;
  _Pragma("unroll") for (unsigned k = 0; k < sizeof(words.word) / 4; ++k)
    words.word[k] = exchange(words.word[k]);
  return words.value;
}
template <int N, class T> TA_FN T from_below(const T& x, int distance) {
  return exchanged(x, [&](unsigned w) { return __shfl_up_sync(0xffffffffu, w, distance, N); });
}
template <int N, class T> TA_FN T from_thread(const T& x, int thread) {
  return exchanged(x, [&](unsigned w) { return __shfl_sync(0xffffffffu, w, thread, N); });
}
// Each of N neighbouring threads gets what those up to it have, combined in their order.
template <int N, class R> TA_FN typename R::Total scanned(typename R::Total total) {
  const int thread = threadIdx.x % N;
  _Pragma("unroll") for (int distance = 1; distance < N; distance *= 2) {
    const typename R::Total below = from_below<N>(total, distance);
    if (thread >= distance) total = R::join(below, total);
  }
  return total;
}
// What there is so far, and then more.
template <class R> struct Running {
  typename R::Total total;
  bool any;
  TA_MEMBER void add(const typename R::Total& more) {
    total = any ? R::join(total, more) : more;
    any = true;
  }
};

// Flags that blocks raise for one another.
TA_FN unsigned flag_at(const unsigned* flag) {
  unsigned found;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
  return found;
}
TA_FN void raise_flag(unsigned* flag, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
// Blocks numbered in the order in which they start: those before one are running or done.
TA_FN idx next_in_order(unsigned* counter) {
  __shared__ unsigned number;
  if (threadIdx.x == 0) number = atomicAdd(counter, 1u);
  __syncthreads();
  return idx(number);
}
// The last block of all sets the flags, which follow two counters, and these to zero.
template <int TX> TA_FN void clear_flags(unsigned* counters, idx flags, idx blocks) {
  if (!last_to_arrive(counters + 1, blocks)) return;
  if (threadIdx.x == 0) counters[0] = 0;
  for (idx k = threadIdx.x; k < flags; k += TX) counters[2 + k] = 0;
}

// Decoupled look-back (D. Merrill and M. Garland, Single-pass Parallel Prefix Scan with Decoupled
// Look-back, 2016), but in an order that does not depend on who comes first, so that sums have the
// same bits each time: a warp adds up the tiles of its SUPER, a block of 32, as one tree, and
// whole SUPERs from the first on.
template <class R> struct LookBack {
  using Total = typename R::Total;
  enum { SUPER = 32, OWN = 1, ALL = 2 };  // a flag says which totals are there
  unsigned *tile_flags, *super_flags;
  Total *tiles, *supers, *prefixes;  // of each tile, of each SUPER, of all up to its end
  idx tile, super;
  int place;

  TA_MEMBER LookBack(unsigned* flags, void* parts, idx row, idx split, idx splits) {
    const idx count = (splits + SUPER - 1) / SUPER;
    tile_flags = flags;
    super_flags = flags + splits;
    tiles = static_cast<Total*>(parts) + row * (splits + 2 * count);
    supers = tiles + splits;
    prefixes = supers + count;
    tile = split;
    super = split / SUPER;
    place = int(split % SUPER);
  }
  // By a warp: leave a tile's total, and find that of all tiles before it.
  TA_MEMBER Running<R> before(const Total& own) const {
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
      tiles[tile] = own;
      raise_flag(tile_flags + tile, OWN);
    }
    Total inside = own;
    if (lane < place) {
      const idx other = tile - place + lane;
      while (flag_at(tile_flags + other) == 0) {}
      inside = tiles[other];
    }
    __syncwarp();
    inside = scanned<32, R>(inside);
    const Total whole = from_thread<32>(inside, place);
    const bool closes = place == SUPER - 1;
    if (closes && lane == 0) {
      (super == 0 ? prefixes : supers)[super] = whole;
      raise_flag(super_flags + super, super == 0 ? ALL : OWN);
    }
    Running<R> found{own, false};
    if (super > 0) found.add(up_to(super - 1, own));
    if (closes && super > 0 && lane == 0) {
      prefixes[super] = R::join(found.total, whole);
      raise_flag(super_flags + super, ALL);
    }
    const Total beside = from_thread<32>(inside, place - 1);
    if (place > 0) found.add(beside);
    return found;
  }
  // All up to the end of a SUPER: from the nearest that knows it, and those after that.
  TA_MEMBER Total up_to(idx last, const Total& own) const {
    const int lane = threadIdx.x % 32;
    const idx at = last - lane;
    unsigned ready, known;
    do {
      const unsigned flag = at >= 0 ? flag_at(super_flags + at) : 0;
      ready = __ballot_sync(0xffffffffu, flag != 0);
      known = __ballot_sync(0xffffffffu, flag == ALL);
    } while (known == 0 || (~ready & (known & (0 - known)) - 1) != 0);
    const int nearest = __ffs(int(known)) - 1;
    Total part = own;
    if (lane <= nearest) part = lane == nearest ? prefixes[at] : supers[at];
    __syncwarp();
    Total total = from_thread<32>(part, nearest);
    for (int k = nearest - 1; k >= 0; --k) total = R::join(total, from_thread<32>(part, k));
    return total;
  }
};

// Hide where a float comes from: else its conversion to a double is kept, in two registers more,
// from where it is added up to where it is scanned.
template <class T> TA_FN T hidden(T x) {
  if constexpr (sizeof(T) == 4 && is_real<T>) {
    unsigned bits = __builtin_bit_cast(unsigned, x);
    asm volatile("" : "+r"(bits));
    return __builtin_bit_cast(T, bits);
  } else return x;
}

// A row, scanned tile by tile by TX threads; x holds C chunks of V elements of each.
template <class R, class T, int V> struct RowScan {
  using Total = typename R::Total;
  Running<R> carried;  // of the tiles before
  TA_MEMBER RowScan() : carried{Total{}, false} {}

  template <int TX, int C> TA_MEMBER void advance(T (&x)[C * V]) {
    scan<TX, C>(x, [&](const Total&) { return carried; });
  }
  template <int TX, int C> TA_MEMBER void advance(T (&x)[C * V], const LookBack<R>& back) {
    scan<TX, C>(x, [&](const Total& own) { return back.before(own); });
  }
  // `before`, of the tile's total, is asked by a warp.
  template <int TX, int C, class Before> TA_MEMBER void scan(T (&x)[C * V], Before before) {
    enum { WARP = TX < 32 ? TX : 32, WARPS = TX / WARP, PARTS = C * WARPS };
    const int thread = threadIdx.x % WARP, warp = threadIdx.x % TX / WARP;
    Total sums[C];
    _Pragma("unroll") for (int c = 0; c < C; ++c) {
      sums[c] = R::lift(x[c * V]);
      _Pragma("unroll") for (int v = 1; v < V; ++v)
        sums[c] = R::join(sums[c], R::lift(x[c * V + v]));
      sums[c] = scanned<WARP, R>(sums[c]);
    }
    if constexpr (WARPS == 1) {
      _Pragma("unroll") for (int c = 0; c < C; ++c) {
        settle(x + c * V, carried, from_below<WARP>(sums[c], 1), thread > 0);
        carried.add(from_thread<WARP>(sums[c], WARP - 1));
      }
    } else {
      __shared__ alignas(16) unsigned char memory[sizeof(Total) * (PARTS + 1)];
      Total* parts = reinterpret_cast<Total*>(memory);
      __shared__ bool any;
      __syncthreads();  // the tile before has been read
      if (thread == WARP - 1) {
        _Pragma("unroll") for (int c = 0; c < C; ++c) parts[c * WARPS + warp] = sums[c];
      }
      __syncthreads();
      if (warp == 0) {
        Total part = sums[0];
        _Pragma("unroll") for (int k = 0; k < PARTS; k += WARP) {
          const int at = k + thread;
          const Total below = from_thread<WARP>(part, WARP - 1);
          part = scanned<WARP, R>(at < PARTS ? parts[at] : sums[0]);  // each reads its own
          if (k > 0) part = R::join(below, part);
          if (at < PARTS) parts[at] = part;
        }
        const Running<R> found = before(from_thread<WARP>(part, (PARTS - 1) % WARP));
        if (thread == 0) {
          parts[PARTS] = found.total;
          any = found.any;
        }
      }
      __syncthreads();
      carried = Running<R>{parts[PARTS], any};
      _Pragma("unroll") for (int c = 0; c < C; ++c) {
        Running<R> chunk = carried;
        if (c * WARPS + warp > 0) chunk.add(parts[c * WARPS + warp - 1]);
        settle(x + c * V, chunk, from_below<WARP>(sums[c], 1), thread > 0);
      }
      carried.add(parts[PARTS - 1]);
    }
  }
  TA_MEMBER static void settle(T* x, Running<R> run, const Total& beside, bool follows) {
    if (follows) run.add(beside);
    _Pragma("unroll") for (int v = 0; v < V; ++v) {
      run.add(R::lift(hidden(x[v])));
      x[v] = R::value(run.total);
    }
  }
};

// Division of a whole row by one float.  With the correctly rounded inverse one correction gives the
// correctly rounded quotient (P. Markstein, IBM J. Res. Dev. 34, 1990); next to zero, infinities and
// denormals the uncorrected one is taken, which is right or an ulp off.
struct Divisor {
  f32 scale, value, inverse;
};
TA_FN Divisor divisor(f32 x) {
  const f32 size = m_abs(x);
  const f32 scale = size < 0x1p-100f ? 0x1p100f : size > 0x1p100f ? 0x1p-100f : 1.f;
  return Divisor{scale, x * scale, 1.f / (x * scale)};
}
TA_FN f32 divided(f32 x, const Divisor& by) {
  const f32 over = x * by.scale, near = over * by.inverse;
  const f32 quotient = m_fma(m_fma(-near, by.value, over), by.inverse, near);
  return bits_of(near) * 2 - 1 < 0xfeffffffu ? quotient : near;
}

template <class T, class From>
TA_FN void copy_lanes(T* to, From from, Range range, int first, int by) {
  _Pragma("unroll 4") for (idx j = range.begin + first; j < range.end; j += by) to[j] = from[j];
}
// Copy what lies outside a region, for some rows of `length` elements: of a row that passes through
// it the parts `left` and `right` of it, of another the lanes `js`.  Where at most NARROW are left of
// a row, one thread does it, so that many rows go side by side; whole rows in a row are one piece.
template <int THREADS, int NARROW, class T, class From, class Inside>
TA_FN void copy_around(T* to, From from, idx length, Range rows, Range js, Range left,
                       Range right, Inside inside) {
  const idx width = (left.end > left.begin ? left.end - left.begin : 0) +
                    (right.end > right.begin ? right.end - right.begin : 0);
  const bool narrow = width <= NARROW;
  bool whole = false, parts = false;  // of most blocks all rows are of one kind
  for (idx row = rows.begin + threadIdx.x; row < rows.end; row += THREADS) {
    if (!inside(row)) {
      whole = true;
      continue;
    }
    parts = true;
    if (!narrow) continue;
    copy_lanes(to + row * length, from + row * length, left, 0, 1);
    copy_lanes(to + row * length, from + row * length, right, 0, 1);
  }
  whole = __syncthreads_or(whole);
  if (!whole && narrow) return;
  if (!__syncthreads_or(parts) && js.end - js.begin == length) {
    copy_lanes(to, from, Range{rows.begin * length, rows.end * length}, threadIdx.x, THREADS);
    return;
  }
  for (idx row = rows.begin; row < rows.end; ++row) {
    const bool within = inside(row);
    if (within && narrow) continue;
    copy_lanes(to + row * length, from + row * length, within ? left : js, threadIdx.x, THREADS);
    if (within) copy_lanes(to + row * length, from + row * length, right, threadIdx.x, THREADS);
  }
}
