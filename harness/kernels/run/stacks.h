// Stacks of fibers, whose memory is reused.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace plugfest::kernels {

/// Hands out stacks and takes them back. A guard below each stack, for the first 24,000 or so, is not mapped, so that
/// an overflow raises a signal. Thread safety: any thread.
class Stacks {
 public:
  /// The size of a stack. Its pages take memory only once they are touched.
  static constexpr std::size_t kBytes = std::size_t{256} << 10;
  /// The size of the guard below a stack: a multiple of the pages of all architectures.
  static constexpr std::size_t kGuard = std::size_t{64} << 10;

  /// `count` stacks: the address at which each one begins. Throws std::system_error without memory.
  std::vector<std::byte*> take(std::size_t count);
  void give_back(const std::vector<std::byte*>& stacks);

 private:
  std::mutex mutex_;
  std::vector<std::byte*> free_;
  std::size_t made_ = 0;
};

/// The stacks of the process. They are never destroyed.
Stacks& the_stacks();

}  // namespace plugfest::kernels
