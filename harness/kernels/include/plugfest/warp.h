// Barriers, shuffles and votes of a block and of a warp. All are made of plugfest_kernel_barrier() and
// plugfest_kernel_exchange(). Source: CUDA C++ Programming Guide 13.0, sections 10.6, 10.19, 10.20, 10.21 and 10.22.
#pragma once

#include <cstring>

#include "plugfest/language.h"
#include "plugfest_kernel.h"

// Default arguments, so that a verdict names the line of the caller.
#define PLUGFEST_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace plugfest::kernels {

/// The values of the lanes of a warp, and the lanes that took part.
struct Exchanged {
  std::uint64_t all[kWarpSize];
  std::uint32_t lanes;
};

inline Exchanged exchange(std::uint32_t mask, std::uint64_t value, Place place) {
  Exchanged result;
  result.lanes = plugfest_kernel_exchange(mask, value, result.all, place);
  return result;
}

template <typename T>
inline std::uint64_t to_word(const T& value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t), "a shuffle moves at most 8 bytes");
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

template <typename T>
inline T from_word(std::uint64_t word) {
  T value;
  std::memcpy(static_cast<void*>(&value), &word, sizeof value);
  return value;
}

/// The value of the lane `from`; the own value if that lane does not take part.
template <typename T>
inline T shuffled(std::uint32_t mask, const T& value, unsigned from, Place place) {
  const Exchanged got = exchange(mask, to_word(value), place);
  return (got.lanes >> from & 1) != 0 ? from_word<T>(got.all[from]) : value;
}

/// Combines the values of all lanes that take part, in the order of the lanes.
template <typename T, typename Operation>
inline T reduced(std::uint32_t mask, const T& value, Operation operation, Place place) {
  const Exchanged got = exchange(mask, to_word(value), place);
  bool first = true;
  T result = value;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((got.lanes >> lane & 1) == 0) continue;
    const T one = from_word<T>(got.all[lane]);
    result = first ? one : operation(result, one);
    first = false;
  }
  return result;
}

/// The lanes whose value fulfills `predicate`.
template <typename Predicate>
inline unsigned ballot(std::uint32_t mask, std::uint64_t value, Predicate predicate, Place place) {
  const Exchanged got = exchange(mask, value, place);
  unsigned found = 0;
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    if ((got.lanes >> lane & 1) != 0 && predicate(got.all[lane])) found |= 1u << lane;
  return found;
}

/// A reduction over all threads of the block, through memory that they share.
template <typename Combine>
inline int block_reduced(int value, int start, Combine combine, Place place) {
  static thread_local int total;
  plugfest_kernel_barrier(0, 0, place);  // the previous total has been read
  const Index at = *plugfest_kernel_thread_index();
  if (at.x == 0 && at.y == 0 && at.z == 0) total = start;
  plugfest_kernel_barrier(0, 0, place);
  total = combine(total, value);  // one thread of the block runs at a time
  plugfest_kernel_barrier(0, 0, place);
  return total;
}

}  // namespace plugfest::kernels

inline void __syncthreads(PLUGFEST_PLACE) { plugfest_kernel_barrier(0, 0, {file, line}); }
inline int __syncthreads_count(int predicate, PLUGFEST_PLACE) {
  const auto add = [](int total, int one) { return total + one; };
  return plugfest::kernels::block_reduced(predicate != 0 ? 1 : 0, 0, add, {file, line});
}
inline int __syncthreads_and(int predicate, PLUGFEST_PLACE) {
  const auto both = [](int total, int one) { return total != 0 && one != 0 ? 1 : 0; };
  return plugfest::kernels::block_reduced(predicate, 1, both, {file, line});
}
inline int __syncthreads_or(int predicate, PLUGFEST_PLACE) {
  const auto either = [](int total, int one) { return total != 0 || one != 0 ? 1 : 0; };
  return plugfest::kernels::block_reduced(predicate, 0, either, {file, line});
}
inline void __barrier_sync(unsigned barrier, PLUGFEST_PLACE) { plugfest_kernel_barrier(barrier, 0, {file, line}); }
inline void __barrier_sync_count(unsigned barrier, unsigned threads, PLUGFEST_PLACE) {
  plugfest_kernel_barrier(barrier, threads, {file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffffu, PLUGFEST_PLACE) {
  plugfest::kernels::exchange(mask, 0, {file, line});
}

/// Only the calling lane: the hardware may also have diverged at any place.
inline unsigned __activemask() { return 1u << plugfest_kernel_lane(); }

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, PLUGFEST_PLACE) {
  const unsigned segment = plugfest_kernel_lane() & ~static_cast<unsigned>(width - 1);
  const unsigned from = segment | (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1));
  return plugfest::kernels::shuffled(mask, value, from, {file, line});
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, PLUGFEST_PLACE) {
  const unsigned lane = plugfest_kernel_lane(), rank = lane & static_cast<unsigned>(width - 1);
  return plugfest::kernels::shuffled(mask, value, delta > rank ? lane : lane - delta, {file, line});
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, PLUGFEST_PLACE) {
  const unsigned lane = plugfest_kernel_lane(), rank = lane & static_cast<unsigned>(width - 1);
  const bool inside = delta < static_cast<unsigned>(width) - rank;
  return plugfest::kernels::shuffled(mask, value, inside ? lane + delta : lane, {file, line});
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize, PLUGFEST_PLACE) {
  const unsigned lane = plugfest_kernel_lane(), from = lane ^ static_cast<unsigned>(lanes);
  const unsigned segment_end = (lane | static_cast<unsigned>(width - 1)) + 1;
  return plugfest::kernels::shuffled(mask, value, from < segment_end ? from : lane, {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, PLUGFEST_PLACE) {
  const auto is_set = [](std::uint64_t value) { return value != 0; };
  return plugfest::kernels::ballot(mask, predicate != 0 ? 1 : 0, is_set, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, PLUGFEST_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, PLUGFEST_PLACE) {
  return __ballot_sync(mask, predicate == 0, file, line) == 0 ? 1 : 0;
}
template <typename T>
inline unsigned __match_any_sync(unsigned mask, T value, PLUGFEST_PLACE) {
  const std::uint64_t own = plugfest::kernels::to_word(value);
  return plugfest::kernels::ballot(mask, own, [own](std::uint64_t other) { return other == own; }, {file, line});
}
template <typename T>
inline unsigned __match_all_sync(unsigned mask, T value, int* same, PLUGFEST_PLACE) {
  const std::uint64_t own = plugfest::kernels::to_word(value);
  const unsigned others =
      plugfest::kernels::ballot(mask, own, [own](std::uint64_t other) { return other != own; }, {file, line});
  *same = others == 0 ? 1 : 0;
  return others == 0 ? mask : 0;
}

#define PLUGFEST_REDUCTION(name, type, expression)                                                                   \
  inline type name(unsigned mask, type value, PLUGFEST_PLACE) {                                                      \
    return plugfest::kernels::reduced(mask, value, [](type a, type b) -> type { return expression; }, {file, line}); \
  }
PLUGFEST_REDUCTION(__reduce_add_sync, unsigned, a + b)
PLUGFEST_REDUCTION(__reduce_add_sync, int, a + b)
PLUGFEST_REDUCTION(__reduce_min_sync, unsigned, a < b ? a : b)
PLUGFEST_REDUCTION(__reduce_min_sync, int, a < b ? a : b)
PLUGFEST_REDUCTION(__reduce_max_sync, unsigned, a < b ? b : a)
PLUGFEST_REDUCTION(__reduce_max_sync, int, a < b ? b : a)
PLUGFEST_REDUCTION(__reduce_and_sync, unsigned, a& b)
PLUGFEST_REDUCTION(__reduce_or_sync, unsigned, a | b)
PLUGFEST_REDUCTION(__reduce_xor_sync, unsigned, a ^ b)
#undef PLUGFEST_REDUCTION
