// Complex arithmetic and functions, included by math.h.
//
// On the host the transcendental functions are the C library's (the ones NumPy calls), save exp,
// which vectorises; on the device, and on the host under TA_OWN_COMPLEX (so that tests can check
// them without a GPU), they are the ones below, after W. Kahan, "Branch cuts for complex elementary functions" (1987), with
// the special values of C99 annex G.
#pragma once

template <class R> TA_FN Complex<R> make_complex(R re, R im) { return {re, im}; }

// ---- arithmetic ----

template <class R> TA_FN Complex<R> operator+(Complex<R> x, Complex<R> y) {
    return {x.re + y.re, x.im + y.im};
}
template <class R> TA_FN Complex<R> operator-(Complex<R> x, Complex<R> y) {
    return {x.re - y.re, x.im - y.im};
}
template <class R> TA_FN Complex<R> operator-(Complex<R> x) {
    return {negated(x.re), negated(x.im)};
}
// Every product rounded by itself, as in C.
template <class R> TA_FN Complex<R> product_by_steps(Complex<R> x, Complex<R> y) {
    return {m_product(x.re, y.re) - m_product(x.im, y.im), m_product(x.re, y.im) + m_product(x.im, y.re)};
}
// One product of each sum fused: so of a square what overflows is infinite, and no NaN, and where both
// squares are nearly equal their difference is not lost.
template <class R> TA_FN Complex<R> fused_product(Complex<R> x, Complex<R> y) {
    return {m_fma(x.re, y.re, -(x.im * y.im)), m_fma(x.re, y.im, x.im * y.re)};
}
// As NumPy's loops, which are fused where the processor does that; on a device the imaginary part of
// z * conjugate(z) is 0.
template <class R> TA_FN Complex<R> operator*(Complex<R> x, Complex<R> y) {
#if defined(__CUDACC__)
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
#elif defined(__FMA__) || defined(__aarch64__)
    return fused_product(x, y);
#else
    return product_by_steps(x, y);
#endif
}
// R. L. Smith's algorithm (1962), written without branches.  With a product fused into its sum z / z would
// not be 1.
template <class R> TA_FN Complex<R> operator/(Complex<R> x, Complex<R> y) {
    bool wide = m_abs(y.re) >= m_abs(y.im);
    R large = wide ? y.re : y.im, small = wide ? y.im : y.re;
    R ratio = small / large;
    R scale = (R)1 / (large + m_product(small, ratio));
    R re = wide ? x.re + m_product(x.im, ratio) : m_product(x.re, ratio) + x.im;
    R im = wide ? x.im - m_product(x.re, ratio) : m_product(x.im, ratio) - x.re;
    bool zero = (y.re == 0) & (y.im == 0);
    R size = m_abs(y.re);
    return {zero ? x.re / size : re * scale, zero ? x.im / size : im * scale};
}
template <class R> TA_FN bool operator==(Complex<R> x, Complex<R> y) {
    return (x.re == y.re) & (x.im == y.im);
}
template <class R> TA_FN bool operator!=(Complex<R> x, Complex<R> y) { return !(x == y); }

template <class R> TA_FN Complex<R> m_conjugate(Complex<R> x) { return {x.re, negated(x.im)}; }
template <class R> TA_FN Complex<R> m_square(Complex<R> x) {
#ifdef __CUDACC__
    return fused_product(x, x);
#else
    return x * x;
#endif
}
template <class R> TA_FN Complex<R> m_reciprocal(Complex<R> x) {
    bool wide = m_abs(x.im) <= m_abs(x.re);
    R large = wide ? x.re : x.im, small = wide ? x.im : x.re;
    R ratio = small / large;
    R size = large + m_product(small, ratio);
    return {(wide ? (R)1 : ratio) / size, (wide ? -ratio : (R)-1) / size};
}
#ifdef __CUDACC__
template <class R> TA_FN R m_abs(Complex<R> x) { return m_hypot(x.re, x.im); }
#else
// Without branches, so that it vectorises; squares stay in range, and an infinity beats a NaN.
TA_FN f32 m_abs(Complex<f32> x) {
    const f64 re = x.re, im = x.im;
    const bool far = is_inf(x.re) | is_inf(x.im);
    return far ? infinity<f32>() : (f32)m_sqrt(re * re + im * im);
}
TA_FN f64 m_abs(Complex<f64> x) {
    const f64 re = m_abs(x.re), im = m_abs(x.im), large = re > im ? re : im;
    const f64 scale = large > 0x1p500 ? 0x1p-600 : large < 0x1p-400 ? 0x1p600 : 1.0;
    const f64 back = large > 0x1p500 ? 0x1p600 : large < 0x1p-400 ? 0x1p-600 : 1.0;
    const f64 a = re * scale, b = im * scale;
    return is_inf(re) | is_inf(im) ? infinity<f64>() : m_sqrt(a * a + b * b) * back;
}
#endif
template <class R> TA_FN R m_angle(Complex<R> x) { return m_arctan2(x.im, x.re); }
template <class R> TA_FN Complex<R> m_rint(Complex<R> x) { return {m_rint(x.re), m_rint(x.im)}; }

// x / |x|; an infinite part alone gives that direction, two give NaN.
template <class R> TA_FN Complex<R> m_sign(Complex<R> x) {
    R size = m_abs(x);
    bool re_inf = is_inf(x.re), im_inf = is_inf(x.im), any_inf = re_inf | im_inf;
    R re = any_inf ? (re_inf ? m_copysign((R)1, x.re) : (R)0) : x.re / size;
    R im = any_inf ? (im_inf ? m_copysign((R)1, x.im) : (R)0) : x.im / size;
    bool undefined = re_inf & im_inf;
    bool zero = size == 0;
    return {undefined ? quiet_nan<R>() : zero ? (R)0 : re,
            undefined ? quiet_nan<R>() : zero ? (R)0 : im};
}

// Lexicographic, with NumPy's rules for NaN.
template <class R> TA_FN bool m_less(Complex<R> x, Complex<R> y) {
    return ((x.re < y.re) & (x.im == x.im) & (y.im == y.im)) | ((x.re == y.re) & (x.im < y.im));
}
template <class R> TA_FN bool m_less_equal(Complex<R> x, Complex<R> y) {
    return ((x.re < y.re) & (x.im == x.im) & (y.im == y.im)) | ((x.re == y.re) & (x.im <= y.im));
}

// Between limits, as NumPy orders complex numbers there: a NaN beside a real part that decides is
// not looked at.
template <class R> TA_FN bool is_beyond(Complex<R> x, Complex<R> y) {
    return (x.re > y.re) | ((x.re == y.re) & (x.im > y.im));
}
template <class R> TA_FN Complex<R> m_clip_complex(Complex<R> x, Complex<R> low, Complex<R> high) {
    Complex<R> raised = is_nan(x) | is_beyond(x, low) ? x : low;
    return is_nan(raised) | is_beyond(high, raised) ? raised : high;
}

// ---- own functions ----

namespace own {

template <class R> constexpr R huge_value = sizeof(R) == 4 ? (R)0x1p126f : (R)0x1p1022;
template <class R> constexpr R tiny_value = sizeof(R) == 4 ? (R)0x1p-100f : (R)0x1p-960;

template <class R> TA_FN Complex<R> rotate(Complex<R> z) { return {negated(z.im), z.re}; }      // i z
template <class R> TA_FN Complex<R> rotate_back(Complex<R> z) { return {z.im, negated(z.re)}; }  // -i z

// (exp(x) a, exp(x) b) where exp(x) alone may overflow.
template <class R> TA_FN Complex<R> scaled_exp(R x, R a, R b) {
    R half = m_exp(x * (R)0.5);
    R whole = m_exp(x);
    bool plain = is_finite(whole) | !is_finite(x);
    return {plain ? whole * a : (half * a) * half, plain ? whole * b : (half * b) * half};
}

// Without branches, so that it vectorises.
template <class R> TA_FN Complex<R> exp(Complex<R> z) {
    R whole = m_exp(z.re), half = m_exp(z.re * (R)0.5);
    R sine, cosine;
    m_sine_cosine(z.im, sine, cosine);
    R first = whole == infinity<R>() ? half : whole;
    R second = whole == infinity<R>() ? half : (R)1;
    R im = z.im == 0 ? z.im : first * sine * second;
    // An infinite real part with an angle that is none.
    bool lost = is_inf(z.re) & !is_finite(z.im);
    R lost_im = z.re > 0 ? quiet_nan<R>() : m_copysign((R)0, z.im);
    return {lost ? (z.re > 0 ? z.re : (R)0) : first * cosine * second, lost ? lost_im : im};
}

template <class R> TA_FN R log_abs(Complex<R> z) {
    R x = m_abs(z.re), y = m_abs(z.im);
    R large = x > y ? x : y, small = x > y ? y : x;
    if (large > (R)0.5 && large < (R)2 && small < (R)2)
        return (R)0.5 * m_log1p((large - 1) * (large + 1) + small * small);
    if (large > huge_value<R>) return m_log(m_hypot(x * (R)0.5, y * (R)0.5)) + ln2<R>;
    if (large < tiny_value<R>) {
        R scale = (R)1 / tiny_value<R>;
        return m_log(m_hypot(x * scale, y * scale)) + m_log(tiny_value<R>);
    }
    return m_log(m_hypot(x, y));
}
template <class R> TA_FN Complex<R> log(Complex<R> z) {
    return {log_abs(z), m_arctan2(z.im, z.re)};
}

template <class R> TA_FN Complex<R> sqrt(Complex<R> z) {
    if (z.re == 0 && z.im == 0) return {(R)0, z.im};
    if (is_inf(z.im)) return {infinity<R>(), z.im};
    if (z.re != z.re) return {z.re, z.re};
    if (is_inf(z.re)) {
        R rest = z.im - z.im;
        if (z.re < 0) return {m_abs(rest), m_copysign(infinity<R>(), z.im)};
        return {z.re, m_copysign(rest, z.im)};
    }
    R largest = m_maximum(m_abs(z.re), m_abs(z.im));
    R scale = largest > huge_value<R> ? (R)0.25
        : largest < tiny_value<R> ? (sizeof(R) == 4 ? (R)0x1p100f : (R)0x1p960) : (R)1;
    R back = largest > huge_value<R> ? (R)2
        : largest < tiny_value<R> ? (sizeof(R) == 4 ? (R)0x1p-50f : (R)0x1p-480) : (R)1;
    R x = z.re * scale, y = z.im * scale;
    R root = m_sqrt((m_abs(x) + m_hypot(x, y)) * (R)0.5);
    R other = m_abs(y) / (2 * root);
    if (x >= 0) return {root * back, m_copysign(other * back, z.im)};
    return {other * back, m_copysign(root * back, z.im)};
}

template <class R> TA_FN Complex<R> sinh(Complex<R> z) {
    if (z.im == 0) return {m_sinh(z.re), z.im};
    if (!is_finite(z.im)) {
        if (z.re == 0) return {z.re, quiet_nan<R>()};
        if (is_inf(z.re)) return {z.re, quiet_nan<R>()};
        return {quiet_nan<R>(), quiet_nan<R>()};
    }
    if (z.re != z.re) return {z.re, z.re};
    R sine, cosine;
    m_sine_cosine(z.im, sine, cosine);
    R limit = sizeof(R) == 4 ? (R)80 : (R)700;
    if (m_abs(z.re) < limit) return {m_sinh(z.re) * cosine, m_cosh(z.re) * sine};
    R sign = m_copysign((R)0.5, z.re);
    return scaled_exp(m_abs(z.re), sign * cosine, (R)0.5 * sine);
}
template <class R> TA_FN Complex<R> cosh(Complex<R> z) {
    if (z.im == 0) return {m_cosh(z.re), m_copysign((R)0, z.re) * m_copysign((R)1, z.im)};
    if (!is_finite(z.im)) {
        if (z.re == 0) return {quiet_nan<R>(), z.re};
        if (is_inf(z.re)) return {infinity<R>(), quiet_nan<R>()};
        return {quiet_nan<R>(), quiet_nan<R>()};
    }
    if (z.re != z.re) return {z.re, z.re};
    R sine, cosine;
    m_sine_cosine(z.im, sine, cosine);
    R limit = sizeof(R) == 4 ? (R)80 : (R)700;
    if (m_abs(z.re) < limit) return {m_cosh(z.re) * cosine, m_sinh(z.re) * sine};
    return scaled_exp(m_abs(z.re), (R)0.5 * cosine, m_copysign((R)0.5, z.re) * sine);
}
template <class R> TA_FN Complex<R> tanh(Complex<R> z) {
    R sine, cosine;
    m_sine_cosine(z.im, sine, cosine);
    if (is_inf(z.re)) {
        R sign = is_finite(z.im) ? sine * cosine : z.im;
        return {m_copysign((R)1, z.re), m_copysign((R)0, sign)};
    }
    if (z.re != z.re) return {z.re, z.im == 0 ? z.im : z.re};
    if (!is_finite(z.im)) return {z.re == 0 ? z.re : quiet_nan<R>(), quiet_nan<R>()};
    R limit = sizeof(R) == 4 ? (R)11 : (R)22;
    if (m_abs(z.re) > limit) {
        R decay = m_exp(-m_abs(z.re));
        return {m_copysign((R)1, z.re), ((4 * sine * cosine) * decay) * decay};
    }
    R slope = sine / cosine, beta = 1 + slope * slope;
    R growth = m_sinh(z.re), rho = m_sqrt(1 + growth * growth);
    R size = 1 + beta * growth * growth;
    return {beta * rho * growth / size, slope / size};
}
template <class R> TA_FN Complex<R> sin(Complex<R> z) { return rotate_back(sinh(rotate(z))); }
template <class R> TA_FN Complex<R> cos(Complex<R> z) { return cosh(rotate(z)); }
template <class R> TA_FN Complex<R> tan(Complex<R> z) { return rotate_back(tanh(rotate(z))); }

template <class R> TA_FN R im_conj_product(Complex<R> x, Complex<R> y) {  // Im(conj(x) y)
    return x.re * y.im - x.im * y.re;
}
template <class R> TA_FN Complex<R> arccos(Complex<R> z) {
    if (!is_finite(z.re) || !is_finite(z.im)) {
        if (is_inf(z.re) || is_inf(z.im))
            return {m_arctan2(m_abs(z.im), z.re), -m_copysign(infinity<R>(), z.im)};
        return {z.re == 0 ? pi<R> / 2 : quiet_nan<R>(), quiet_nan<R>()};
    }
    Complex<R> below = sqrt(Complex<R>{1 - z.re, -z.im}), above = sqrt(Complex<R>{1 + z.re, z.im});
    return {2 * m_arctan2(below.re, above.re), m_arcsinh(im_conj_product(above, below))};
}
template <class R> TA_FN Complex<R> arcsin(Complex<R> z) {
    if (!is_finite(z.re) || !is_finite(z.im)) {
        if (is_inf(z.re) || is_inf(z.im))
            return {m_arctan2(z.re, m_abs(z.im)), m_copysign(infinity<R>(), z.im)};
        return {z.re == 0 ? z.re : quiet_nan<R>(), quiet_nan<R>()};
    }
    Complex<R> below = sqrt(Complex<R>{1 - z.re, -z.im}), above = sqrt(Complex<R>{1 + z.re, z.im});
    R re = m_arctan2(z.re, below.re * above.re - below.im * above.im);
    return {re, m_copysign(m_arcsinh(im_conj_product(below, above)), z.im)};
}
template <class R> TA_FN Complex<R> arccosh(Complex<R> z) {
    Complex<R> w = arccos(z);
    bool turn = m_signbit(z.im) == m_signbit(w.im) && w.im == w.im;
    if (w.im != w.im) return {w.im, w.re == pi<R> / 2 ? w.re : w.im};
    if (w.re != w.re) return {m_abs(w.im), w.re};
    return turn ? Complex<R>{w.im, -w.re} : Complex<R>{m_abs(w.im), m_copysign(w.re, z.im)};
}
template <class R> TA_FN Complex<R> arcsinh(Complex<R> z) {
    return rotate_back(arcsin(rotate(z)));
}
template <class R> TA_FN Complex<R> arctanh(Complex<R> z) {
    R quarter_turn = m_copysign(pi<R> / 2, z.im);
    if (is_inf(z.re) || is_inf(z.im))
        return {m_copysign((R)0, z.re), z.im != z.im ? z.im : quarter_turn};
    if (is_nan(z)) return {z.re == 0 ? z.re : quiet_nan<R>(), quiet_nan<R>()};
    R x = m_abs(z.re), y = m_abs(z.im);
    R root = sizeof(R) == 4 ? (R)0x1p60f : (R)0x1p500;
    if (x > root || y > root) {  // 1/z
        Complex<R> inverse = m_reciprocal(z);
        return {inverse.re, quarter_turn};
    }
    R gap = 1 - x;
    bool pole = (gap == 0) & (y * y < (sizeof(R) == 4 ? (R)0x1p-60f : (R)0x1p-500));
    R re = pole ? (R)0.5 * m_log(2 / y) : (R)0.25 * m_log1p(4 * x / (gap * gap + y * y));
    R im = (R)0.5 * m_arctan2(2 * z.im, gap * (1 + x) - y * y);
    return {m_copysign(re, z.re), im};
}
template <class R> TA_FN Complex<R> arctan(Complex<R> z) {
    return rotate_back(arctanh(rotate(z)));
}

// An infinity times a non-zero number is an infinity, also where the parts say NaN (C99, G.5.1).
template <class R> TA_FN R boxed(R x, bool inf) { return m_copysign(inf ? (R)1 : (R)0, x); }
template <class R> TA_FN R settled(R x) { return x != x ? m_copysign((R)0, x) : x; }
template <class R> TA_FN Complex<R> product(Complex<R> x, Complex<R> y) {
    Complex<R> plain = x * y;
    if (plain.re == plain.re || plain.im == plain.im) return plain;
    bool x_inf = is_inf(x.re) || is_inf(x.im), y_inf = is_inf(y.re) || is_inf(y.im);
    if (!x_inf && !y_inf) return plain;
    if (x_inf) {
        x = {boxed(x.re, is_inf(x.re)), boxed(x.im, is_inf(x.im))};
        y = {settled(y.re), settled(y.im)};
    }
    if (y_inf) {
        y = {boxed(y.re, is_inf(y.re)), boxed(y.im, is_inf(y.im))};
        x = {settled(x.re), settled(x.im)};
    }
    Complex<R> direction = x * y;
    return {infinity<R>() * direction.re, infinity<R>() * direction.im};
}
template <class R> TA_FN Complex<R> pow(Complex<R> x, Complex<R> y) {
    return exp(product(y, log(x)));
}

}  // namespace own

// ---- which functions stand behind the names ----

#if TA_OWN_COMPLEX
#define TA_COMPLEX_1(NAME, LIBRARY, OWN) \
    template <class R> TA_FN Complex<R> NAME(Complex<R> z) { return own::OWN(z); }
template <class R> TA_FN Complex<R> general_power(Complex<R> x, Complex<R> y) {
    return own::pow(x, y);
}
#else
TA_FN __complex__ float to_library(c64 z) {
    __complex__ float w; __real__ w = z.re; __imag__ w = z.im; return w;
}
TA_FN __complex__ double to_library(c128 z) {
    __complex__ double w; __real__ w = z.re; __imag__ w = z.im; return w;
}
TA_FN c64 from_library(__complex__ float w) { return {__real__ w, __imag__ w}; }
TA_FN c128 from_library(__complex__ double w) { return {__real__ w, __imag__ w}; }
#define TA_COMPLEX_1(NAME, LIBRARY, OWN) \
    extern "C" TA_SCALAR __complex__ double LIBRARY(__complex__ double) noexcept; \
    extern "C" TA_SCALAR __complex__ float LIBRARY##f(__complex__ float) noexcept; \
    TA_FN c64 NAME(c64 z) { return from_library(::LIBRARY##f(to_library(z))); } \
    TA_FN c128 NAME(c128 z) { return from_library(::LIBRARY(to_library(z))); }
extern "C" TA_SCALAR __complex__ double cpow(__complex__ double, __complex__ double) noexcept;
extern "C" TA_SCALAR __complex__ float cpowf(__complex__ float, __complex__ float) noexcept;
TA_FN c64 general_power(c64 x, c64 y) {
    return from_library(::cpowf(to_library(x), to_library(y)));
}
TA_FN c128 general_power(c128 x, c128 y) {
    return from_library(::cpow(to_library(x), to_library(y)));
}
#endif
template <class R> TA_FN Complex<R> m_exp(Complex<R> z) { return own::exp(z); }
TA_COMPLEX_1(m_log, clog, log) TA_COMPLEX_1(m_sqrt, csqrt, sqrt)
TA_COMPLEX_1(m_sin, csin, sin) TA_COMPLEX_1(m_cos, ccos, cos) TA_COMPLEX_1(m_tan, ctan, tan)
TA_COMPLEX_1(m_sinh, csinh, sinh) TA_COMPLEX_1(m_cosh, ccosh, cosh)
TA_COMPLEX_1(m_tanh, ctanh, tanh)
TA_COMPLEX_1(m_arcsin, casin, arcsin) TA_COMPLEX_1(m_arccos, cacos, arccos)
TA_COMPLEX_1(m_arctan, catan, arctan)
TA_COMPLEX_1(m_arcsinh, casinh, arcsinh) TA_COMPLEX_1(m_arccosh, cacosh, arccosh)
TA_COMPLEX_1(m_arctanh, catanh, arctanh)
#undef TA_COMPLEX_1

// ---- functions made of those, as in NumPy ----

template <class R> TA_FN Complex<R> m_exp2(Complex<R> z) {
    return m_exp(Complex<R>{z.re * ln2<R>, z.im * ln2<R>});
}
template <class R> TA_FN Complex<R> m_log2(Complex<R> z) {
    Complex<R> w = m_log(z);
    return {w.re * log2_e<R>, w.im * log2_e<R>};
}
template <class R> TA_FN Complex<R> m_log10(Complex<R> z) {
    Complex<R> w = m_log(z);
    return {w.re * log10_e<R>, w.im * log10_e<R>};
}
template <class R> TA_FN Complex<R> m_expm1(Complex<R> z) {
    R half = m_sin(z.im / 2);
    R sine, cosine;
    m_sine_cosine(z.im, sine, cosine);
    return {m_expm1(z.re) * cosine - 2 * half * half, m_exp(z.re) * sine};
}
// Near 0 by log1p of |1 + z|^2 - 1, which NumPy's log(hypot) cannot resolve.
template <class R> TA_FN Complex<R> m_log1p(Complex<R> z) {
    R near = (R)0.5 * m_log1p(z.re * (2 + z.re) + z.im * z.im);
    R far = m_log(m_hypot(z.re + 1, z.im));
    bool small = (m_abs(z.re) < (R)0.5) & (m_abs(z.im) < (R)0.5);
    return {small ? near : far, m_arctan2(z.im, z.re + 1)};
}

// Small whole exponents by squaring, as NumPy does, so that they are exact where that is.
template <class R> TA_FN Complex<R> m_power(Complex<R> x, Complex<R> y) {
    if (y.re == 0 && y.im == 0) return {(R)1, (R)0};
    if (x.re == 0 && x.im == 0) {
        if (y.re > 0) return {(R)0, (R)0};
        return {quiet_nan<R>(), quiet_nan<R>()};
    }
    if (y.im == 0 && m_abs(y.re) < 100 && y.re == m_trunc(y.re)) {
        i32 n = (i32)m_abs(y.re);
        Complex<R> result{(R)1, (R)0}, base = x;
        if (y.re == 1) return x;
        if (y.re == 2) return m_square(x);
        for (;;) {
            if (n & 1) result = product_by_steps(result, base);
            n >>= 1;
            if (n == 0) break;
            base = product_by_steps(base, base);
        }
        return y.re < 0 ? Complex<R>{(R)1, (R)0} / result : result;
    }
    return general_power(x, y);
}

// ---- sizes beside other numbers ----

#if !TA_DEVICE
#define TA_BESIDE_CIRCLE(NAME, COMPARE) \
    TA_FN bool NAME(Complex<f32> x, f32 radius) { return m_abs(x) COMPARE radius; }
#else
// A square says on which side of a circle a number lies, but very near to it, and where squares leave the
// range of normal numbers; there the size is computed, by a call, so that it is not in everybody's way.
__device__ __noinline__ f32 any_size(f32 re, f32 im) { return m_hypot(re, im); }
TA_FN bool is_clear(f32 beyond, f32 circle, f32 radius) {
    return (m_abs(beyond) > 0x1p-19f * circle) & (circle > 0x1p-100f) & (radius > 0.f);
}
#define TA_BESIDE_CIRCLE(NAME, COMPARE)                                                    \
    TA_FN bool NAME(Complex<f32> x, f32 radius) {                                          \
        const f32 circle = radius * radius, beyond = (x.re * x.re + x.im * x.im) - circle; \
        bool found = beyond COMPARE 0.f;                                                   \
        if (!is_clear(beyond, circle, radius)) found = any_size(x.re, x.im) COMPARE radius; \
        return found;                                                                      \
    }
#endif
TA_BESIDE_CIRCLE(size_less, <) TA_BESIDE_CIRCLE(size_less_equal, <=)
TA_BESIDE_CIRCLE(size_greater, >) TA_BESIDE_CIRCLE(size_greater_equal, >=)
#undef TA_BESIDE_CIRCLE

// ---- roots of one ----

// exp(2 pi i k / n), 0 <= k < n, reduced to an eighth of a turn in whole numbers; 8 n is an I.  There
// Taylor's series are as good as R is.
template <class R, class I> TA_FN constexpr Complex<R> unit_root(I k, I n) {
    I eighths = 8 * k;
    const bool below = eighths > 4 * n;
    if (below) eighths = 8 * n - eighths;
    const bool left = eighths > 2 * n;
    if (left) eighths = 4 * n - eighths;
    const bool steep = eighths > n;
    if (steep) eighths = 2 * n - eighths;
    const R x = R(f64(eighths) * (0.785398163397448309615660845819875721 / f64(n))), square = x * x;
    R cosine = 0, sine = 0;
    constexpr int TERMS = sizeof(R) == 8 ? 20 : 10;
#ifdef __CUDACC__
    _Pragma("unroll")
#endif
    for (int term = TERMS; term > 0; term -= 2) {
        cosine = (1 - cosine) * square * R(1.0 / (term * (term - 1)));
        sine = (1 - sine) * square * R(1.0 / (term * (term + 1)));
    }
    const R c = 1 - cosine, s = x - x * sine, re = steep ? s : c, im = steep ? c : s;
    return {left ? -re : re, below ? -im : im};
}
