// The device's functions for numbers that the C library lacks. The fast variants are as exact as the others here.
// Source: CUDA Math API 13.0, single precision functions and intrinsics.
#pragma once

#include <cmath>

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rcbrtf(float x) { return 1 / std::cbrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __frsqrt_rn(float x) { return 1 / std::sqrt(x); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Not templates, so that they are preferred to namespace std's.
#define PLUGFEST_MIN_MAX(type)                              \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
PLUGFEST_MIN_MAX(int)
PLUGFEST_MIN_MAX(unsigned)
PLUGFEST_MIN_MAX(long)
PLUGFEST_MIN_MAX(unsigned long)
PLUGFEST_MIN_MAX(long long)
PLUGFEST_MIN_MAX(unsigned long long)
PLUGFEST_MIN_MAX(float)
PLUGFEST_MIN_MAX(double)
#undef PLUGFEST_MIN_MAX

// Pairs of different types have the type of C's conversions.
#define PLUGFEST_MIN_MAX_OF(one, other, type)                                                 \
  inline type min(one a, other b) { return min(static_cast<type>(a), static_cast<type>(b)); } \
  inline type min(other a, one b) { return min(static_cast<type>(a), static_cast<type>(b)); } \
  inline type max(one a, other b) { return max(static_cast<type>(a), static_cast<type>(b)); } \
  inline type max(other a, one b) { return max(static_cast<type>(a), static_cast<type>(b)); }
PLUGFEST_MIN_MAX_OF(int, unsigned, unsigned)
PLUGFEST_MIN_MAX_OF(long, unsigned long, unsigned long)
PLUGFEST_MIN_MAX_OF(long long, unsigned long long, unsigned long long)
PLUGFEST_MIN_MAX_OF(float, double, double)
#undef PLUGFEST_MIN_MAX_OF
