// Cooperative groups of a block and of a warp. A group of all blocks (grid.sync) and clusters are not emulated.
// Source: CUDA C++ Programming Guide 13.0, section 11.
#pragma once

#include "plugfest/warp.h"

namespace cooperative_groups {

namespace plugfest_detail {
inline unsigned linear(const ::plugfest::kernels::Index& at, const ::plugfest::kernels::Index& size) {
  return at.x + size.x * (at.y + size.y * at.z);
}
inline unsigned thread_rank() { return linear(*plugfest_kernel_thread_index(), *plugfest_kernel_block_size()); }
inline unsigned block_threads() {
  const ::plugfest::kernels::Index size = *plugfest_kernel_block_size();
  return size.x * size.y * size.z;
}
}  // namespace plugfest_detail

/// All threads of a block.
class thread_block {
 public:
  static void sync(PLUGFEST_PLACE) { plugfest_kernel_barrier(0, 0, {file, line}); }
  static unsigned thread_rank() { return plugfest_detail::thread_rank(); }
  static unsigned num_threads() { return plugfest_detail::block_threads(); }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return dim(*plugfest_kernel_block_index()); }
  static dim3 thread_index() { return dim(*plugfest_kernel_thread_index()); }
  static dim3 dim_threads() { return dim(*plugfest_kernel_block_size()); }
  static dim3 group_dim() { return dim_threads(); }

 private:
  static dim3 dim(const ::plugfest::kernels::Index& index) { return dim3(index.x, index.y, index.z); }
};
inline thread_block this_thread_block() { return {}; }

/// The grid, without sync().
class grid_group {
 public:
  static unsigned long long block_rank() {
    return plugfest_detail::linear(*plugfest_kernel_block_index(), *plugfest_kernel_grid_size());
  }
  static unsigned long long num_blocks() {
    const ::plugfest::kernels::Index size = *plugfest_kernel_grid_size();
    return 1ULL * size.x * size.y * size.z;
  }
  static unsigned long long thread_rank() {
    return block_rank() * plugfest_detail::block_threads() + plugfest_detail::thread_rank();
  }
  static unsigned long long num_threads() { return num_blocks() * plugfest_detail::block_threads(); }
  static unsigned long long size() { return num_threads(); }
  [[noreturn]] static void sync(PLUGFEST_PLACE) {
    plugfest_kernel_fault("grid_group::sync() is not emulated: end the kernel there", {file, line});
  }
};
inline grid_group this_grid() { return {}; }

namespace plugfest_detail {

/// Some lanes of a warp. The rank of a lane is its position among them.
class Lanes {
 public:
  explicit Lanes(unsigned mask) : mask_(mask) {}

  unsigned thread_rank() const {
    return static_cast<unsigned>(__builtin_popcount(mask_ & ((1u << plugfest_kernel_lane()) - 1)));
  }
  unsigned num_threads() const { return static_cast<unsigned>(__builtin_popcount(mask_)); }
  unsigned size() const { return num_threads(); }
  void sync(PLUGFEST_PLACE) const { ::plugfest::kernels::exchange(mask_, 0, {file, line}); }

  template <typename T>
  T shfl(T value, unsigned rank, PLUGFEST_PLACE) const {
    return from(value, rank % num_threads(), {file, line});
  }
  template <typename T>
  T shfl_up(T value, unsigned delta, PLUGFEST_PLACE) const {
    const unsigned rank = thread_rank();
    return from(value, delta > rank ? rank : rank - delta, {file, line});
  }
  template <typename T>
  T shfl_down(T value, unsigned delta, PLUGFEST_PLACE) const {
    const unsigned rank = thread_rank();
    return from(value, rank + delta < num_threads() ? rank + delta : rank, {file, line});
  }
  template <typename T>
  T shfl_xor(T value, unsigned lanes, PLUGFEST_PLACE) const {
    const unsigned rank = thread_rank();
    return from(value, (rank ^ lanes) < num_threads() ? rank ^ lanes : rank, {file, line});
  }
  unsigned ballot(int predicate, PLUGFEST_PLACE) const {
    const unsigned found = __ballot_sync(mask_, predicate, file, line);
    unsigned ranks = 0;
    for (unsigned rank = 0; rank < num_threads(); ++rank) ranks |= (found >> lane_of(rank) & 1) << rank;
    return ranks;
  }
  int any(int predicate, PLUGFEST_PLACE) const { return __any_sync(mask_, predicate, file, line); }
  int all(int predicate, PLUGFEST_PLACE) const { return __all_sync(mask_, predicate, file, line); }

  /// For reduce().
  unsigned lanes() const { return mask_; }

 private:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    for (; rank > 0; --rank) left &= left - 1;
    return static_cast<unsigned>(__builtin_ctz(left));
  }
  template <typename T>
  T from(const T& value, unsigned rank, ::plugfest::kernels::Place place) const {
    return ::plugfest::kernels::shuffled(mask_, value, lane_of(rank), place);
  }

  unsigned mask_;
};

}  // namespace plugfest_detail

/// `Size` neighboring threads of a warp; a power of 2.
template <unsigned Size, typename Parent = void>
class thread_block_tile : public plugfest_detail::Lanes {
 public:
  static_assert(Size > 0 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

  thread_block_tile() : Lanes((0xffffffffu >> (32 - Size)) << (plugfest_kernel_lane() & ~(Size - 1))) {}
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned meta_group_rank() const { return plugfest_detail::thread_rank() / Size; }
  unsigned meta_group_size() const { return (plugfest_detail::block_threads() + Size - 1) / Size; }
};
template <unsigned Size, typename Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

/// Threads of a warp that are at the same place. Here that is the calling thread alone: the hardware may also have
/// diverged.
class coalesced_group : public plugfest_detail::Lanes {
 public:
  coalesced_group() : Lanes(1u << plugfest_kernel_lane()) {}
};
inline coalesced_group coalesced_threads() { return {}; }

template <typename Group>
inline void sync(const Group& group, PLUGFEST_PLACE) {
  group.sync(file, line);
}

template <typename T>
struct plus {
  T operator()(const T& a, const T& b) const { return a + b; }
};
template <typename T>
struct less {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <typename T>
struct greater {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};

/// The same value for all threads of the group.
template <typename Group, typename T, typename Operation>
inline T reduce(const Group& group, T value, Operation operation, PLUGFEST_PLACE) {
  return ::plugfest::kernels::reduced(group.lanes(), value, operation, {file, line});
}

}  // namespace cooperative_groups
