// Functions of the device for bits, addresses and clocks. The host's and the device's function are the same
// here. Source: CUDA C++ Programming Guide 13.0, sections 10.10 to 10.18; CUDA Math API, integer intrinsics.
#pragma once

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "plugfest/warp.h"

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (value >> bit & 1u) << (31 - bit);
  return result;
}
inline unsigned long long __brevll(unsigned long long value) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(value))) << 32 |
         __brev(static_cast<unsigned>(value >> 32));
}
/// The position of the n-th set bit from `base`, upwards for n > 0 and downwards for n < 0; 0xffffffff if there is
/// none.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
  if (n == 0) return base < 32 && (mask >> base & 1) != 0 ? base : 0xffffffffu;
  const int step = n > 0 ? 1 : -1;
  int left = n > 0 ? n : -n;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
    if ((mask >> at & 1) != 0 && --left == 0) return static_cast<unsigned>(at);
  return 0xffffffffu;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}

// Two 16-bit or four 8-bit numbers in a word.
#define PLUGFEST_PACKED(name, one, expression)                              \
  inline unsigned name(unsigned x, unsigned y) {                            \
    unsigned result = 0;                                                    \
    for (unsigned shift = 0; shift < 32; shift += 8 * sizeof(one)) {        \
      const auto a = static_cast<one>(x >> shift);                          \
      const auto b = static_cast<one>(y >> shift);                          \
      const auto both = static_cast<std::make_unsigned_t<one>>(expression); \
      result |= static_cast<unsigned>(both) << shift;                       \
    }                                                                       \
    return result;                                                          \
  }
PLUGFEST_PACKED(__vadd2, std::uint16_t, a + b)
PLUGFEST_PACKED(__vadd4, std::uint8_t, a + b)
PLUGFEST_PACKED(__vsub2, std::uint16_t, a - b)
PLUGFEST_PACKED(__vsub4, std::uint8_t, a - b)
PLUGFEST_PACKED(__vminu2, std::uint16_t, a < b ? a : b)
PLUGFEST_PACKED(__vminu4, std::uint8_t, a < b ? a : b)
PLUGFEST_PACKED(__vmins2, std::int16_t, a < b ? a : b)
PLUGFEST_PACKED(__vmins4, std::int8_t, a < b ? a : b)
PLUGFEST_PACKED(__vmaxu2, std::uint16_t, a < b ? b : a)
PLUGFEST_PACKED(__vmaxu4, std::uint8_t, a < b ? b : a)
PLUGFEST_PACKED(__vmaxs2, std::int16_t, a < b ? b : a)
PLUGFEST_PACKED(__vmaxs4, std::int8_t, a < b ? b : a)
#undef PLUGFEST_PACKED

// All memory is in one address space.
inline std::size_t __cvta_generic_to_global(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline std::size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline std::size_t __cvta_generic_to_local(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline std::size_t __cvta_generic_to_constant(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline void* __cvta_global_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }
inline void* __cvta_shared_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }
inline bool __isGlobal(const void* address) { return address != nullptr; }

namespace plugfest::kernels {
inline long long nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}
}  // namespace plugfest::kernels

/// A clock of 1 GHz. A thread that waits for a time lets other threads run.
inline long long clock64() {
  plugfest_kernel_yield();
  return plugfest::kernels::nanoseconds(CLOCK_MONOTONIC);
}
inline unsigned long long globaltimer() {
  plugfest_kernel_yield();
  return static_cast<unsigned long long>(plugfest::kernels::nanoseconds(CLOCK_REALTIME));
}
inline void __nanosleep(unsigned) { plugfest_kernel_yield(); }
[[noreturn]] inline void __trap(PLUGFEST_PLACE) { plugfest_kernel_fault("__trap()", {file, line}); }
inline void __brkpt() {}
template <typename T>
inline void __prefetch_global_l1(const T*) {}

// NVIDIA's headers for the host define no reinterpretations.
#define PLUGFEST_REINTERPRET(name, from, to)     \
  inline to name(from value) {                   \
    static_assert(sizeof(from) == sizeof(to));   \
    to result;                                   \
    std::memcpy(&result, &value, sizeof result); \
    return result;                               \
  }
PLUGFEST_REINTERPRET(__float_as_int, float, int)
PLUGFEST_REINTERPRET(__float_as_uint, float, unsigned)
PLUGFEST_REINTERPRET(__int_as_float, int, float)
PLUGFEST_REINTERPRET(__uint_as_float, unsigned, float)
PLUGFEST_REINTERPRET(__double_as_longlong, double, long long)
PLUGFEST_REINTERPRET(__longlong_as_double, long long, double)
#undef PLUGFEST_REINTERPRET
