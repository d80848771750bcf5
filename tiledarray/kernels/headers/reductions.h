// Reductions, included by tile.h: Lane is what one lane accumulates, Total what lanes are merged
// into.
//
// What is added is handed on by value: of references to temporaries in an `omp simd` loop g++ 12
// makes arrays, one element for each lane of a vector, and reads others' elements.
#pragma once
#include "math.h"

#ifdef __CUDACC__
#define TA_MEMBER __device__ __forceinline__
#else
#define TA_MEMBER inline __attribute__((always_inline))
#endif

template <class T> struct SumTotal { using type = T; };  // integers wrap as NumPy's do
template <> struct SumTotal<f32> { using type = f64; };
template <> struct SumTotal<c64> { using type = c128; };

struct Compensated {  // hi + lo, Knuth's two-sum
  f64 hi, lo;
};
template <> struct SumTotal<f64> { using type = Compensated; };
struct CompensatedComplex {
  Compensated re, im;
};
template <> struct SumTotal<c128> { using type = CompensatedComplex; };

template <class T> struct LaneOf { using type = T; };
template <> struct LaneOf<f16> { using type = f32; };
template <> struct LaneOf<bf16> { using type = f32; };

TA_FN void accumulate(Compensated& total, f64 x) {
  const f64 sum = total.hi + x, part = sum - total.hi;
  total.lo += (total.hi - (sum - part)) + (x - part);
  total.hi = sum;
}
TA_FN void accumulate(Compensated& total, const Compensated& x) {
  accumulate(total, x.hi);
  total.lo += x.lo;
}
TA_FN void accumulate(CompensatedComplex& total, const c128& x) {
  accumulate(total.re, x.re);
  accumulate(total.im, x.im);
}
TA_FN void accumulate(CompensatedComplex& total, const CompensatedComplex& x) {
  accumulate(total.re, x.re);
  accumulate(total.im, x.im);
}
TA_FN void accumulate(c128& total, c64 x) { total = c128{total.re + x.re, total.im + x.im}; }
TA_FN void accumulate(c128& total, c128 x) { total = c128{total.re + x.re, total.im + x.im}; }
template <class T, class X>
TA_FN void accumulate(T& total, X x) { total = T(total + T(x)); }
TA_FN void accumulate(i64& total, i64 x) { total = i64(u64(total) + u64(x)); }

TA_FN f64 settled(const Compensated& x) {
  const f64 low = x.hi - x.hi == 0.0 ? x.lo : 0.0;  // an infinity has no low part
  return x.hi + low;
}
TA_FN c128 settled(const CompensatedComplex& x) { return c128{settled(x.re), settled(x.im)}; }
template <class T> TA_FN T settled(T x) { return x; }

// What V lanes of a reduction accumulate.
template <class R, int V> struct LaneArray {
  typename R::Lane lane[V];
  TA_MEMBER void reset(int v) { lane[v] = R::lane(); }
  template <class T> TA_MEMBER void add(int v, T x, idx at) { R::add(lane[v], x, at); }
  template <class T> TA_MEMBER void add(int v, T x, T y, idx) {
    R::add_product(lane[v], x, y);
  }
  TA_MEMBER typename R::Lane get(int v) const { return lane[v]; }
  TA_MEMBER void merge(int v, int other) { R::merge(lane[v], lane[other]); }
};

template <class T> struct Sum {
  using Lane = typename LaneOf<T>::type;
  using Total = typename SumTotal<Lane>::type;
  TA_MEMBER static Lane lane() { return Lane{}; }
  TA_MEMBER static Total total() { return Total{}; }
  TA_MEMBER static void add(Lane& lane, T x, idx) { accumulate(lane, cast<Lane>(x)); }
  TA_MEMBER static void add_product(Lane& lane, T x, T y) { lane = m_fma(x, y, lane); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { accumulate(total, lane); }
  TA_MEMBER static void merge(Total& total, const Total& other) { accumulate(total, other); }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(settled(total)); }
};
TA_FN void accumulate(c64& total, c64 x) { total = c64{total.re + x.re, total.im + x.im}; }

// How many are true.  Lanes count to LEAF: half the words of what they are added to.
struct Tally {
  using Lane = int;
  using Total = i64;
  TA_MEMBER static Lane lane() { return 0; }
  TA_MEMBER static Total total() { return 0; }
  template <class T> TA_MEMBER static void add(Lane& lane, T x, idx) { lane += int(x); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { total += lane; }
  TA_MEMBER static void merge(Total& total, const Total& other) { total += other; }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total); }
};

template <class T> struct Prod {
  using Lane = typename LaneOf<T>::type;
  using Total = Lane;
  TA_MEMBER static Lane lane() { return cast<Lane>(1); }
  TA_MEMBER static Total total() { return cast<Lane>(1); }
  TA_MEMBER static void add(Lane& lane, T x, idx) { lane = m_multiply(lane, cast<Lane>(x)); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { total = m_multiply(total, lane); }
  TA_MEMBER static void merge(Total& total, const Total& other) { total = m_multiply(total, other); }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total); }
};

// Max and Min propagate NaN, as NumPy's do.
template <class T, class Order> struct Extreme {
  using Lane = typename LaneOf<T>::type;
  using Total = Lane;
  TA_MEMBER static Lane lane() { return Order::template worst<Lane>(); }
  TA_MEMBER static Total total() { return lane(); }
  TA_MEMBER static void add(Lane& lane, T x, idx) { merge(lane, cast<Lane>(x)); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { merge(total, lane); }
  TA_MEMBER static void merge(Total& total, Total other) {
    total = Order::pick(total, other);
  }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total); }
};
struct Upward {
  template <class T> TA_MEMBER static T worst() { return lowest<T>(); }
  template <class T> TA_MEMBER static T pick(T x, T y) { return m_maximum(x, y); }
  template <class T> TA_MEMBER static bool behind(T x, T y) {
    return m_less_equal(x, y);
  }
};
struct Downward {
  template <class T> TA_MEMBER static T worst() { return highest<T>(); }
  template <class T> TA_MEMBER static T pick(T x, T y) { return m_minimum(x, y); }
  template <class T> TA_MEMBER static bool behind(T x, T y) {
    return m_less_equal(y, x);
  }
};
template <class T> using Max = Extreme<T, Upward>;
template <class T> using Min = Extreme<T, Downward>;

template <class T> struct All {
  using Lane = u8;
  using Total = u8;
  TA_MEMBER static Lane lane() { return 1; }
  TA_MEMBER static Total total() { return 1; }
  TA_MEMBER static void add(Lane& lane, T x, idx) { lane &= u8(cast<bool>(x)); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { total &= lane; }
  TA_MEMBER static void merge(Total& total, const Total& other) { total &= other; }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total != 0); }
};
template <class T> struct Any {
  using Lane = u8;
  using Total = u8;
  TA_MEMBER static Lane lane() { return 0; }
  TA_MEMBER static Total total() { return 0; }
  TA_MEMBER static void add(Lane& lane, T x, idx) { lane |= u8(cast<bool>(x)); }
  TA_MEMBER static void absorb(Total& total, Lane lane) { total |= lane; }
  TA_MEMBER static void merge(Total& total, const Total& other) { total |= other; }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total != 0); }
};

// The index of the first extreme element; a NaN is more extreme than anything.  Where no element is
// ahead of the worst there is, all are that, and the first is at 0: so a lane begins there.
template <class T, class At> struct Found {
  T x;
  At at;
};
template <class T, class Order, class At> struct ArgExtreme {
  using X = typename LaneOf<T>::type;
  using Lane = Found<X, At>;
  using Total = Lane;
  TA_MEMBER static Lane lane() { return Lane{Order::template worst<X>(), 0}; }
  TA_MEMBER static Total total() { return lane(); }
  TA_MEMBER static bool ahead(X x, X best) {
    return !Order::behind(x, best) & !is_nan(best);
  }
  TA_MEMBER static void add(Lane& lane, T value, idx at) {
    const X x = cast<X>(value);
    const bool better = ahead(x, lane.x);
    lane.x = better ? x : lane.x;
    lane.at = better ? At(at) : lane.at;
  }
  TA_MEMBER static void absorb(Total& total, Lane lane) { merge(total, lane); }
  TA_MEMBER static void merge(Total& total, const Total& other) {
    const bool tie = !ahead(total.x, other.x) & (other.at < total.at);
    const bool better = ahead(other.x, total.x) | tie;
    total.x = better ? other.x : total.x;
    total.at = better ? other.at : total.at;
  }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total.at); }
};
#ifndef __CUDACC__
// On the host lanes lie field by field, so that loops over them are vector loops.
template <class T, class Order, class At, int V> struct LaneArray<ArgExtreme<T, Order, At>, V> {
  using R = ArgExtreme<T, Order, At>;
  typename R::X x[V];
  At at[V];
  TA_MEMBER void set(int v, const typename R::Lane& lane) {
    x[v] = lane.x;
    at[v] = lane.at;
  }
  TA_MEMBER void reset(int v) { set(v, R::lane()); }
  TA_MEMBER void add(int v, T value, idx place) {
    const typename R::X y = cast<typename R::X>(value);
    const bool better = R::ahead(y, x[v]);
    x[v] = better ? y : x[v];
    at[v] = better ? At(place) : at[v];
  }
  TA_MEMBER typename R::Lane get(int v) const { return {x[v], at[v]}; }
  TA_MEMBER void merge(int v, int other) {
    typename R::Lane lane = get(v);
    R::merge(lane, get(other));
    set(v, lane);
  }
};
#endif
template <class T, class At = i64> using ArgMax = ArgExtreme<T, Upward, At>;
template <class T, class At = i64> using ArgMin = ArgExtreme<T, Downward, At>;

// Sum of squared deviations from the mean in one pass.  A lane sums a leaf of at most LEAF
// elements shifted by the leaf's first one (so that cancellation costs at most LEAF ulp), leaves
// are merged by Chan, Golub and LeVeque (1979).
template <class T> struct RealOf { using type = T; };
template <> struct RealOf<c64> { using type = f32; };
template <> struct RealOf<c128> { using type = f64; };
TA_FN f32 squared(f32 x) { return x * x; }
TA_FN f64 squared(f64 x) { return x * x; }
TA_FN f32 squared(const c64& x) { return x.re * x.re + x.im * x.im; }
TA_FN f64 squared(const c128& x) { return x.re * x.re + x.im * x.im; }
TA_FN f32 scaled(f32 x, f64 by) { return f32(x * by); }
TA_FN f64 scaled(f64 x, f64 by) { return x * by; }
TA_FN c128 scaled(const c128& x, f64 by) { return c128{x.re * by, x.im * by}; }

template <class T> struct Leaf {
  T shift, sum;
  typename RealOf<T>::type squares, count;
};
template <class T> struct Moments {
  T mean;
  f64 squares, count;
};
template <class T> struct Wide { using type = f64; };
template <> struct Wide<c64> { using type = c128; };
template <> struct Wide<c128> { using type = c128; };
template <class T> struct Deviation {
  using X = typename LaneOf<T>::type;
  using W = typename Wide<X>::type;
  using Real = typename RealOf<X>::type;
  using Lane = Leaf<X>;
  using Total = Moments<W>;
  TA_MEMBER static Lane lane() { return Lane{X{}, X{}, Real(0), Real(0)}; }
  TA_MEMBER static Total total() { return Total{W{}, 0.0, 0.0}; }
  TA_MEMBER static void add(Lane& lane, T value, idx) {
    const X x = cast<X>(value);
    lane.shift = lane.count == Real(0) ? x : lane.shift;
    const X d = m_subtract(x, lane.shift);
    accumulate(lane.sum, d);
    lane.squares += squared(d);
    lane.count += Real(1);
  }
  TA_MEMBER static void absorb(Total& total, Lane lane) {
    const W sum = cast<W>(lane.sum);
    const f64 count = lane.count, inverse = count == 0.0 ? 0.0 : near_reciprocal(count);
    const W offset = scaled(sum, inverse);
    f64 squares = f64(lane.squares) - squared(sum) * inverse;
    // Squares beyond the largest number leave an infinite deviation, infinite elements none.
    const bool beyond = is_nan(squares) && squared(m_subtract(sum, sum)) == 0.0;
    squares = beyond ? infinity<f64>() : squares < 0.0 ? 0.0 : squares;
    merge(total, Total{add_wide(cast<W>(lane.shift), offset), squares, count});
  }
  TA_MEMBER static W add_wide(W x, W y) {
    W sum = x;
    accumulate(sum, y);
    return sum;
  }
  TA_MEMBER static void merge(Total& total, const Total& other) {
    const f64 count = total.count + other.count;
    const f64 share = total.count == 0.0 ? 1.0 : other.count * near_reciprocal(count);
    const W gap = m_subtract(other.mean, total.mean);
    const f64 between = squared(gap) * total.count * share;
    total.mean = add_wide(total.mean, scaled(gap, share));
    total.squares += other.squares + (total.count == 0.0 || other.count == 0.0 ? 0.0 : between);
    total.count = count;
  }
  template <class R> TA_MEMBER static R value(Total total) { return cast<R>(total.squares); }
};

template <class T, int V> struct LaneArray<Deviation<T>, V> {
  using R = Deviation<T>;
  using X = typename R::X;
  using Real = typename R::Real;
  X shift[V], sum[V];
  Real squares[V];
#ifdef __CUDACC__
  int chunks;  // a thread's lanes take part all or none, so one count serves them
  TA_MEMBER void reset(int v) {
    shift[v] = sum[v] = X{};
    squares[v] = 0;
    chunks = 0;
  }
  TA_MEMBER bool begin(int v) {
    if (v == 0) ++chunks;
    return chunks == 1;
  }
  TA_MEMBER Real counted(int) const { return Real(chunks); }
#else
  Real count[V];
  TA_MEMBER void reset(int v) {
    shift[v] = sum[v] = X{};
    squares[v] = count[v] = 0;
  }
  TA_MEMBER bool begin(int v) {
    count[v] += 1;
    return count[v] == 1;
  }
  TA_MEMBER Real counted(int v) const { return count[v]; }
#endif
  TA_MEMBER void add(int v, T value, idx) {
    const X x = cast<X>(value);
    shift[v] = begin(v) ? x : shift[v];
    const X d = m_subtract(x, shift[v]);
    accumulate(sum[v], d);
    squares[v] += squared(d);
  }
  TA_MEMBER typename R::Lane get(int v) const { return {shift[v], sum[v], squares[v], counted(v)}; }
};

// The same of those real parts beside which the imaginary part is not 0, and their mean in the
// result's imaginary part.  Each leaf but the first is shifted by the mean of the one before.
template <class T> struct SelectedDeviation {
  using X = typename RealOf<T>::type;
  struct Lane {
    X shift = 0, sum = 0, squares = 0;
    int count = 0;
    bool open = true;  // nothing was selected yet
    TA_MEMBER void add(T pair) {
      const bool inside = pair.im != X(0);
      if (open & inside) {
        shift = pair.re;
        open = false;
      }
      const X d = inside ? pair.re - shift : X(0);
      sum += d;
      squares = m_fma(d, d, squares);
      count += inside;
    }
    TA_MEMBER void turn() {
      if (count) shift += X(f64(sum) * near_reciprocal(f64(count)));
      sum = squares = 0;
      count = 0;
    }
  };
  using Total = Moments<f64>;
  TA_MEMBER static Lane lane() { return Lane{}; }
  TA_MEMBER static Total total() { return Total{0.0, 0.0, 0.0}; }
  TA_MEMBER static void add(Lane& lane, T pair, idx) { lane.add(pair); }
  TA_MEMBER static void absorb(Total& total, Lane lane) {
    Deviation<X>::absorb(total, Leaf<X>{lane.shift, lane.sum, lane.squares, X(lane.count)});
  }
  TA_MEMBER static void merge(Total& total, const Total& other) { Deviation<X>::merge(total, other); }
  template <class R> TA_MEMBER static R value(Total total) {
    return R{X(total.squares), X(total.mean)};
  }
};
template <class T, int V> struct LaneArray<SelectedDeviation<T>, V> {
  using R = SelectedDeviation<T>;
  typename R::Lane lane[V];
  TA_MEMBER void reset(int v) { lane[v].turn(); }
  TA_MEMBER void add(int v, T pair, idx) { lane[v].add(pair); }
  TA_MEMBER typename R::Lane get(int v) const { return lane[v]; }
};

// Sum of exp(x - top), top being the greatest of all x: where a greater one comes, what was summed
// is scaled down (M. Milakov and N. Gimelshein, 2018).  Starting from a finite top, x of -infinity
// add nothing; if there is nothing else, or an infinite top, NumPy subtracts infinity from itself.
template <class T> struct Exponentials {
  struct Lane {
    T top, sum;
  };
  struct Total {
    T top;
    f64 sum;
  };
  TA_MEMBER static T bottom() {
    if constexpr (sizeof(T) == 4) return -0x1.fffffep127f;
    else return -0x1.fffffffffffffp1023;
  }
  TA_MEMBER static Lane lane() { return Lane{bottom(), T(0)}; }
  TA_MEMBER static Total total() { return Total{bottom(), 0.0}; }
  TA_MEMBER static void add(T& top, T& sum, T x) {
    const T gap = x - top, power = m_exp(-m_abs(gap));
    sum = gap > T(0) ? sum * power + T(1) : sum + power;
    top = gap > T(0) ? x : top;
  }
  TA_MEMBER static void add(Lane& lane, T x, idx) { add(lane.top, lane.sum, x); }
  TA_MEMBER static void absorb(Total& total, Lane lane) {
    merge(total, Total{lane.top, f64(lane.sum)});
  }
  TA_MEMBER static void merge(Total& total, const Total& other) {
    const f64 gap = f64(other.top) - f64(total.top), power = m_exp(-m_abs(gap));
    total.sum = gap > 0.0 ? total.sum * power + other.sum : total.sum + other.sum * power;
    total.top = gap > 0.0 ? other.top : total.top;
  }
  template <class R> TA_MEMBER static R value(Total total) {
    const f64 nothing = f64(total.top) - f64(total.top);
    return cast<R>(total.sum == 0.0 ? nothing / total.sum : total.sum + nothing);
  }
};
template <class T, int V> struct LaneArray<Exponentials<T>, V> {
  using R = Exponentials<T>;
  T top[V], sum[V];
  TA_MEMBER void reset(int v) {
    top[v] = R::bottom();
    sum[v] = T(0);
  }
  TA_MEMBER void add(int v, T x, idx) { R::add(top[v], sum[v], x); }
  TA_MEMBER typename R::Lane get(int v) const { return {top[v], sum[v]}; }
};

enum { LEAF = 64 };  // chunks a lane sums before it is merged into the total
