// Fourier transforms of the host, W side by side; included by fourier.h.
#pragma once

namespace fourier_parts {

// Computed when the kernel is loaded: the compiler would take longer.
template <class R, int N> struct Table {
  Root<R> at[N];
  Table() {
    for (int k = 0; k < N; ++k) {
      const Root<double> root = root_of_one(k, N);
      at[k] = {R(root.re), R(root.im)};
    }
  }
};
template <class R, int N> inline const Table<R, N> roots_of_one;

// A tile of W transforms, from one of them on, its elements STRIDE apart.  Between passes the parts
// of L numbers lie apart.
template <class R, int W, int STRIDE = 1> struct Elements {
  Complex<R>* at;
  using Z = linear::Lanes<Complex<R>, linear::WIDTH<Complex<R>, W>>;
  static constexpr int BYTES = sizeof(typename Z::V), L = BYTES / int(sizeof(R));
  template <bool APART> TA_MEMBER Z load(int i) const {
    const char* from = (const char*)(at + i * (STRIDE * W));
    if constexpr (!APART) return Z::load(at + i * (STRIDE * W));
    else return Z{linear::load_vector<R, L>(from), linear::load_vector<R, L>(from + BYTES)};
  }
  template <bool APART> TA_MEMBER void store(int i, const Z& x) const {
    char* to = (char*)(at + i * (STRIDE * W));
    if constexpr (!APART) return x.store(at + i * (STRIDE * W));
    linear::store_vector<R, L>(to, x.re);
    linear::store_vector<R, L>(to + BYTES, x.im);
  }
};

// A pass of N elements with radix RADIX; BEFORE is the product of the radices before it.
template <int N, int RADIX, int BEFORE, int SIGN, class R, class From, class To>
TA_FN void pass(From from, To to) {
  constexpr int AFTER = N / RADIX / BEFORE;
  constexpr bool FIRST = BEFORE == 1, LAST = AFTER == 1;
  using Z = typename From::Z;
  _Pragma("GCC unroll 1") for (int p = 0; p < AFTER; ++p) {
    Root<R> by[RADIX];
    if constexpr (!LAST)
      TA_UNROLLED for (int k = 1; k < RADIX; ++k) by[k] = roots_of_one<R, N>.at[p * BEFORE * k];
    _Pragma("GCC unroll 1") for (int q = 0; q < BEFORE; ++q) {
      Z x[RADIX];
      TA_UNROLLED for (int k = 0; k < RADIX; ++k)
        x[k] = from.template load<!FIRST>(q + BEFORE * (p + AFTER * k));
      butterfly<SIGN>(x);
      TA_UNROLLED for (int k = 0; k < RADIX; ++k) {
        const int i = q + BEFORE * (RADIX * p + k);
        if (LAST || k == 0) to.template store<!LAST>(i, x[k]);
        else to.template store<!LAST>(i, rotated<SIGN>(x[k], by[k]));
      }
    }
  }
}

// Passes go to and fro between the two tiles; the last one can be done in place.
template <int N, int SIGN, int PASS, class R, class Y, class Work>
TA_FN void passes(Y y, Work work) {
  constexpr Radices plan = radices(N, linear::REGISTERS < 32 ? 4 : 8);
  if constexpr (PASS < plan.count) {
    constexpr int RADIX = plan.at[PASS], BEFORE = product_before(plan, PASS);
    if constexpr (PASS % 2 == 1) pass<N, RADIX, BEFORE, SIGN, R>(work, y);
    else if constexpr (PASS + 1 == plan.count) pass<N, RADIX, BEFORE, SIGN, R>(y, y);
    else pass<N, RADIX, BEFORE, SIGN, R>(y, work);
    passes<N, SIGN, PASS + 1, R>(y, work);
  }
}

}  // namespace fourier_parts

// Y_j = sum over k of y_k exp(SIGN 2 pi i j k / N), without a factor, in place, elements STRIDE
// apart; `work` is for as many.
template <int N, int SIGN, int STRIDE = 1, int W, class C>
static __attribute__((noinline)) void fourier(const Team<W>&, C* y, C* work) {
  using namespace fourier_parts;
  static_assert(radices(N, 8).count >= 0, "a length has no factors above 13");
  constexpr int L = linear::WIDTH<C, W>;
  _Pragma("GCC unroll 1") for (int w = 0; w < W; w += L)
    passes<N, SIGN, 0, part_of<C>>(Elements<part_of<C>, W, STRIDE>{y + w},
                                   Elements<part_of<C>, W>{work + w});
}
