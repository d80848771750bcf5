// The host's C library, included by math.h.
//
// TA_LIBMVEC says which of glibc's vector functions there are: 0 none, 1 those of glibc 2.22 (exp, log,
// sin, cos, pow), 2 those of 2.35.  They are declared here because glibc's own declarations offer
// them only under -ffast-math.
//
// Those of each width (SSE, AVX2, AVX-512) and the scalar ones all round a little differently, and a
// compiler gives the last elements of a loop to narrower ones.  So on x86 there is one width only,
// and what is not a vector is computed by that, too: an element's bits do not depend on its place.
#pragma once

#define TA_SCALAR __attribute__((const))
#define TA_DECLARE_1(ATTRIBUTE, NAME) \
    ATTRIBUTE double NAME(double) noexcept; ATTRIBUTE float NAME##f(float) noexcept;
#define TA_DECLARE_2(ATTRIBUTE, NAME) \
    ATTRIBUTE double NAME(double, double) noexcept; \
    ATTRIBUTE float NAME##f(float, float) noexcept;

#if TA_LIBMVEC && defined(__x86_64__) && !(defined(__AVX__) && !defined(__AVX2__))
#if defined(__AVX512F__)
#define TA_DOUBLES 8
#define TA_FLOATS 16
#define TA_WIDTH(LANES, ARGUMENTS) "_ZGVeN" LANES ARGUMENTS "_"
#define TA_SPREAD_DOUBLE(K) "vbroadcastsd %xmm" K ", %zmm" K "\n"
#define TA_SPREAD_FLOAT(K) "vbroadcastss %xmm" K ", %zmm" K "\n"
#define TA_LEAVE "vzeroupper\n"
#elif defined(__AVX2__)
#define TA_DOUBLES 4
#define TA_FLOATS 8
#define TA_WIDTH(LANES, ARGUMENTS) "_ZGVdN" LANES ARGUMENTS "_"
#define TA_SPREAD_DOUBLE(K) "vbroadcastsd %xmm" K ", %ymm" K "\n"
#define TA_SPREAD_FLOAT(K) "vbroadcastss %xmm" K ", %ymm" K "\n"
#define TA_LEAVE "vzeroupper\n"
#else
#define TA_DOUBLES 2
#define TA_FLOATS 4
#define TA_WIDTH(LANES, ARGUMENTS) "_ZGVbN" LANES ARGUMENTS "_"
#define TA_SPREAD_DOUBLE(K) "unpcklpd %xmm" K ", %xmm" K "\n"
#define TA_SPREAD_FLOAT(K) "shufps $0, %xmm" K ", %xmm" K "\n"
#define TA_LEAVE ""
#endif
#define TA_TEXT_OF(X) #X
#define TA_TEXT(X) TA_TEXT_OF(X)
#define TA_PRAGMA(X) _Pragma(#X)
#define TA_ONE(LANES) TA_PRAGMA(omp declare simd notinbranch simdlen(LANES))
// A function of the name one_NAME, whose vectors are the library's of NAME; what computes an element on
// its own makes a vector of it, in text for the assembler, which no kernel waits for.
#define TA_VECTORS(T, LANES, NAME, ARGUMENTS, PARAMETERS, SPREAD)                                 \
    extern "C" {                                                                                  \
    TA_ONE(LANES)                                                                                 \
    TA_SCALAR T host_##NAME PARAMETERS noexcept __asm__("one_" #NAME);                            \
    }                                                                                             \
    asm(".set " TA_WIDTH(TA_TEXT(LANES), ARGUMENTS) "one_" #NAME ", "                             \
        TA_WIDTH(TA_TEXT(LANES), ARGUMENTS) #NAME "\n"                                            \
        ".pushsection .text\n.p2align 4\n.globl one_" #NAME "\n.hidden one_" #NAME "\n"            \
        ".type one_" #NAME ", @function\none_" #NAME ":\nsub $8, %rsp\n" SPREAD                   \
        "call " TA_WIDTH(TA_TEXT(LANES), ARGUMENTS) #NAME "@PLT\n" TA_LEAVE                       \
        "add $8, %rsp\nret\n.size one_" #NAME ", . - one_" #NAME "\n.popsection");
#define TA_VECTOR_1(NAME)                                                                         \
    TA_VECTORS(double, TA_DOUBLES, NAME, "v", (double), TA_SPREAD_DOUBLE("0"))                    \
    TA_VECTORS(float, TA_FLOATS, NAME##f, "v", (float), TA_SPREAD_FLOAT("0"))
#define TA_VECTOR_2(NAME)                                                                         \
    TA_VECTORS(double, TA_DOUBLES, NAME, "vv", (double, double),                                  \
               TA_SPREAD_DOUBLE("0") TA_SPREAD_DOUBLE("1"))                                       \
    TA_VECTORS(float, TA_FLOATS, NAME##f, "vv", (float, float),                                   \
               TA_SPREAD_FLOAT("0") TA_SPREAD_FLOAT("1"))
#define TA_LIBRARY(NAME) host_##NAME
#elif TA_LIBMVEC
#define TA_VECTOR __attribute__((const, simd("notinbranch")))
#define TA_VECTOR_1(NAME) extern "C" { TA_DECLARE_1(TA_VECTOR, NAME) }
#define TA_VECTOR_2(NAME) extern "C" { TA_DECLARE_2(TA_VECTOR, NAME) }
#else
#define TA_VECTOR_1(NAME) extern "C" { TA_DECLARE_1(TA_SCALAR, NAME) }
#define TA_VECTOR_2(NAME) extern "C" { TA_DECLARE_2(TA_SCALAR, NAME) }
#endif

#if TA_LIBMVEC >= 2 || !defined(TA_LIBRARY)
#define TA_LATER_1(NAME) TA_VECTOR_1(NAME)
#define TA_LATER_2(NAME) TA_VECTOR_2(NAME)
#else
// Under these names, too.
#define TA_LATER_1(NAME)                                                  \
    extern "C" {                                                          \
    TA_SCALAR double TA_LIBRARY(NAME)(double) noexcept __asm__(#NAME);    \
    TA_SCALAR float TA_LIBRARY(NAME##f)(float) noexcept __asm__(#NAME "f"); \
    }
#define TA_LATER_2(NAME)                                                                \
    extern "C" {                                                                        \
    TA_SCALAR double TA_LIBRARY(NAME)(double, double) noexcept __asm__(#NAME);          \
    TA_SCALAR float TA_LIBRARY(NAME##f)(float, float) noexcept __asm__(#NAME "f");      \
    }
#endif

TA_VECTOR_1(exp) TA_VECTOR_1(log) TA_VECTOR_2(pow)
#ifdef TA_LIBRARY
TA_VECTOR_1(sin) TA_VECTOR_1(cos)
#else
// Under names of our own, else g++ joins sine and cosine of one argument into a call that does
// not vectorise.
#if TA_LIBMVEC
#define TA_SINE TA_VECTOR
#else
#define TA_SINE TA_SCALAR
#endif
extern "C" {
TA_SINE double host_sin(double) noexcept __asm__("sin");
TA_SINE float host_sinf(float) noexcept __asm__("sinf");
TA_SINE double host_cos(double) noexcept __asm__("cos");
TA_SINE float host_cosf(float) noexcept __asm__("cosf");
}
#undef TA_SINE
#endif
TA_LATER_1(exp2) TA_LATER_1(expm1) TA_LATER_1(log2) TA_LATER_1(log10) TA_LATER_1(log1p)
TA_LATER_1(tan) TA_LATER_1(asin) TA_LATER_1(acos) TA_LATER_1(atan)
TA_LATER_1(sinh) TA_LATER_1(cosh) TA_LATER_1(tanh)
TA_LATER_1(asinh) TA_LATER_1(acosh) TA_LATER_1(atanh) TA_LATER_1(cbrt)
TA_LATER_1(erf) TA_LATER_1(erfc) TA_LATER_2(atan2) TA_LATER_2(hypot)

extern "C" {
TA_DECLARE_1(TA_SCALAR, sqrt) TA_DECLARE_1(TA_SCALAR, fabs)
TA_DECLARE_1(TA_SCALAR, rint) TA_DECLARE_1(TA_SCALAR, floor)
TA_DECLARE_1(TA_SCALAR, ceil) TA_DECLARE_1(TA_SCALAR, trunc)
TA_DECLARE_2(TA_SCALAR, fmod) TA_DECLARE_2(TA_SCALAR, copysign)
TA_SCALAR double ldexp(double, int) noexcept;
TA_SCALAR float ldexpf(float, int) noexcept;
}
#undef TA_DECLARE_1
#undef TA_DECLARE_2
#undef TA_VECTOR_1
#undef TA_VECTOR_2
#undef TA_LATER_1
#undef TA_LATER_2
